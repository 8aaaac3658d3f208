#!/usr/bin/env python3
"""Golden texts of chats for serve/http/chat.h: what apply_chat_template of transformers makes of messages.

    golden/make_chats.py            write golden/chats.json
    golden/make_chats.py --check    make it again, and compare with the stored one

An entry has a template, its two tokens, messages, and the text up to where an answer begins; or `refused`, where the template refuses
the messages.  The templates are written for this file, in the manner of those that models have: ChatML, turns with headers, brackets of
instructions, turns without a system message, namespaces, comments, and white space of all kinds.
"""
import json
import pathlib
import sys

import jinja2
from transformers.utils.chat_template_utils import render_jinja_template

FILE = pathlib.Path(__file__).resolve().parent / "chats.json"

TEMPLATES = {
    "chatml": "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + message['content'] + '<|im_end|>' + '\\n'}}"
              "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}",
    "chatml-default": "{%- if messages[0].role != 'system' -%}\n    {{- '<|im_start|>system\\nYou help.<|im_end|>\\n' -}}\n{%- endif -%}\n"
                      "{%- for message in messages %}\n    {{- '<|im_start|>' ~ message.role ~ '\\n' ~ message.content | trim ~ '<|im_end|>\\n' }}\n"
                      "{%- endfor %}\n{%- if add_generation_prompt %}\n    {{- '<|im_start|>assistant\\n' }}\n{%- endif %}\n",
    "headers": "{{- bos_token }}\n{%- if messages[0]['role'] == 'system' %}\n    {%- set system_message = messages[0]['content']|trim %}\n"
               "    {%- set messages = messages[1:] %}\n{%- else %}\n    {%- set system_message = \"\" %}\n{%- endif %}\n"
               "{{- \"<|start|>system<|end|>\\n\\n\" }}{{- system_message }}{{- \"<|eot|>\" }}\n"
               "{%- for message in messages %}\n    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}\n"
               "        {{- '<|start|>' + message['role'] + '<|end|>\\n\\n'+ message['content'] | trim + '<|eot|>' }}\n    {%- endif %}\n{%- endfor %}\n"
               "{%- if add_generation_prompt %}\n    {{- '<|start|>assistant<|end|>\\n\\n' }}\n{%- endif %}",
    "brackets": "{{ bos_token }}{% for message in messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
                "{{ raise_exception('Roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
                "{% if message['role'] == 'user' %}{{ '[INST] ' + message['content'] + ' [/INST]' }}"
                "{% elif message['role'] == 'assistant' %}{{ message['content'] + eos_token}}"
                "{% else %}{{ raise_exception('Only user and assistant roles are supported!') }}{% endif %}{% endfor %}",
    "turns": "{{ bos_token }}{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
             "{% for message in messages %}{% if (message['role'] == 'assistant') %}{% set role = 'model' %}{% else %}{% set role = message['role'] %}{% endif %}"
             "{{ '<turn>' + role + '\\n' + message['content'] | trim + '</turn>\\n' }}{% endfor %}"
             "{% if add_generation_prompt %}{{'<turn>model\\n'}}{% endif %}",
    "namespace": "{%- set ns = namespace(seen=false, count=0) %}\n{%- for m in messages %}\n  {%- if m.role == 'system' and loop.first %}\n"
                 "    {%- set ns.seen = true %}\n  {%- endif %}\n  {%- set ns.count = ns.count + 1 %}\n{%- endfor %}\n"
                 "{{- 'system first: ' ~ ns.seen ~ ', messages: ' ~ ns.count }}\n{% for m in messages %}\n  {# a comment #}\n"
                 "  {{ loop.index }}/{{ loop.length }}{{ ' last' if loop.last else '' }}: {{ m.content | upper }}\n{% endfor %}\n",
    "white": "  {% if true %}\n kept\n  {% endif %}\n  text {{ 1 + 2 * 3 }} {{ 7 // 2 }} {{ -7 % 3 }} {{ none is none }}\n\n {%+ if false %}x{% endif %} end {% set x = 3 %}\n{{ x }}\n",
    "calls": "{% for m in messages %}{{ m.content.strip() }}|{{ m.content.lstrip('x') }}|{{ m.content.startswith('x') }}|{{ m.content.split(' ')[-1] }}|"
             "{{ m.content | length }}|{{ m.name is defined and m.name }}|{{ m.get('name', 'nobody') }}|{{ 'x' in m.content }}|{{ m.role in ['user', 'tool'] }}|"
             "{{ m.content | tojson }}|{{ m.name | default('none') }}|{{ not m.content }};{% endfor %}{{ ['a', 'b'] | join('-') }}{% for i in range(3) %}{{ i }}{% endfor %}",
}
CHATS = {
    "one": [{"role": "user", "content": "  Hello, who are you? "}],
    "system": [{"role": "system", "content": " Be brief.\n"}, {"role": "user", "content": "xx wait for\nit"},
               {"role": "assistant", "content": "Zürich \"1\""}, {"role": "user", "content": "x"}],
    "turned": [{"role": "assistant", "content": "I begin."}, {"role": "user", "content": "You do."}],
}


def entries():
    for name, template in TEMPLATES.items():
        for chat, messages in CHATS.items():
            entry = {"name": f"{name} {chat}", "template": template, "bos": "<s>", "eos": "</s>", "messages": messages}
            try:
                texts, _ = render_jinja_template(conversations=[messages], chat_template=template, add_generation_prompt=True, bos_token="<s>",
                                                 eos_token="</s>")
                entry["text"] = texts[0]
            except jinja2.exceptions.TemplateError:
                entry["refused"] = True
            yield entry


def main():
    text = json.dumps(list(entries()), ensure_ascii=False, indent=1) + "\n"
    if "--check" not in sys.argv[1:]:
        FILE.write_text(text)
    elif FILE.read_text() != text:
        sys.exit(f"{FILE.name} is not what transformers makes now")


if __name__ == "__main__":
    main()
