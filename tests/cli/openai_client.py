# A client of `orrery serve --port` by the openai package: openai_client.py PORT MODEL.  It prints what it got, a line each.
import sys

import openai

client = openai.OpenAI(base_url=f"http://127.0.0.1:{sys.argv[1]}/v1", api_key="none", max_retries=0)
model = sys.argv[2]
print("models", [one.id for one in client.models.list().data])

whole = client.completions.create(model=model, prompt="First", max_tokens=6, temperature=0)
print("whole", repr(whole.choices[0].text), whole.choices[0].finish_reason, whole.usage.completion_tokens)
pieces = list(client.completions.create(model=model, prompt="First", max_tokens=6, temperature=0, stream=True,
                                        stream_options={"include_usage": True}))
print("pieces", repr("".join(p.choices[0].text for p in pieces if p.choices)), pieces[-2].choices[0].finish_reason,
      pieces[-1].usage.completion_tokens)

messages = [{"role": "system", "content": "x"}, {"role": "user", "content": "Hi"}]
chat = client.chat.completions.create(model=model, messages=messages, max_completion_tokens=5, temperature=0)
print("chat", repr(chat.choices[0].message.content), chat.choices[0].finish_reason)
deltas = list(client.chat.completions.create(model=model, messages=messages, max_completion_tokens=5, temperature=0, stream=True))
print("deltas", repr("".join(d.choices[0].delta.content or "" for d in deltas)), deltas[0].choices[0].delta.role, deltas[-1].choices[0].finish_reason)

for name, wrong in [("model", {"model": "gpt-4", "prompt": "a"}), ("n", {"model": model, "prompt": "a", "n": 2}),
                    ("length", {"model": model, "prompt": "a", "max_tokens": 4000})]:
    try:
        client.completions.create(**wrong)
    except openai.APIStatusError as error:
        print("refused", name, error.status_code, type(error).__name__, error.code, error.param)
