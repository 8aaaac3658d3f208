"""The time of a decoded token in transformers beside `orrery serve`: GPT-2's 124M drawn weights, one thread, fp32.

    python golden/time_decode.py --orrery ./orrery

Both answer the same prompts, twice: with few and with many tokens.  The difference is the time of the tokens between, by
processor time, which other work on the machine hardly changes.  Rounds take turns; the middle of each side's is printed.
"""
import argparse
import json
import os
import resource
import statistics
import subprocess
import tempfile
import time

import torch
import transformers

FEW, MANY, PROMPT = 9, 73, 32


def prompts(batch):
    return [[(7 * i + 3 * j) % 50257 for j in range(PROMPT)] for i in range(batch)]


def theirs(model, batch):
    ids = torch.tensor(prompts(batch))
    seconds = []
    for tokens in (FEW, MANY):
        began = time.process_time()
        with torch.inference_mode():
            model.generate(ids, max_new_tokens=tokens, min_new_tokens=tokens, do_sample=False, pad_token_id=0)
        seconds.append(time.process_time() - began)
    return (seconds[1] - seconds[0]) / (MANY - FEW)


def ours(program, batch, words):
    seconds = []
    for tokens in (FEW, MANY):
        with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as trace:
            for ids in prompts(batch):
                trace.write(json.dumps({"prompt_ids": ids, "max_tokens": tokens, "temperature": 0, "ignore_eos": True}) + "\n")
            trace.flush()
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run([program, "serve", "--model", "gpt2", "--seq", "256", "--cache-blocks", str(8 * batch), "--trace",
                            trace.name] + words, check=True, stdout=subprocess.DEVNULL)
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    return (seconds[1] - seconds[0]) / (MANY - FEW)


def main():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--orrery", default="./orrery", help="the program")
    p.add_argument("--batch", type=int, nargs="+", default=[1, 16])
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("words", nargs="*", help="more words for `orrery serve`, after --")
    a = p.parse_args()
    os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    torch.manual_seed(1)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(attn_implementation="sdpa")).eval()
    print(f"transformers {transformers.__version__}, PyTorch {torch.__version__}; ms of processor time an iteration")
    for batch in a.batch:
        theirs(model, batch)
        pairs = [(theirs(model, batch), ours(a.orrery, batch, a.words)) for _ in range(a.rounds)]
        other, own = (1e3 * statistics.median(side) for side in zip(*pairs))
        print(f"batch {batch:3}: transformers {other:7.1f} ms, {1e3 * batch / other:6.1f} tokens/s; "
              f"orrery {own:7.1f} ms, {1e3 * batch / own:6.1f} tokens/s; {own / other:.2f} times its time")


if __name__ == "__main__":
    main()
