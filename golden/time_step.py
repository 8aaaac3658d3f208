"""The time of a training step in PyTorch, beside `orrery bench step`: the same shapes and batch, AdamW with clipping.

    python golden/time_step.py --batch 8 --device cuda --dtype bf16

Medians of --runs steps, after three that warm up.  Products of fp32 are in fp32, not tf32, as ours are.  bf16 and fp16 are
the format of weights, gradients and states, where ours keep fp32 masters.
"""
import argparse
import statistics
import time

import torch
import transformers

DTYPES = {"fp32": torch.float32, "fp64": torch.float64, "bf16": torch.bfloat16, "fp16": torch.float16}


def arguments():
    p = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    p.add_argument("--layers", type=int, default=6)
    p.add_argument("--heads", type=int, default=6)
    p.add_argument("--width", type=int, default=384)
    p.add_argument("--tokens", type=int, default=256, help="of a sequence")
    p.add_argument("--words", type=int, default=256, help="of the vocabulary")
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--runs", type=int, default=20)
    p.add_argument("--dtype", choices=DTYPES, default="fp32")
    p.add_argument("--device", default="cpu", help="cpu, or cuda")
    p.add_argument("--attention", choices=("eager", "sdpa"), default="eager")
    p.add_argument("--seed", type=int, default=1)
    return p.parse_args()


def make(a):
    torch.manual_seed(a.seed)
    c = transformers.GPT2Config(vocab_size=a.words, n_positions=a.tokens, n_embd=a.width, n_layer=a.layers, n_head=a.heads,
                                resid_pdrop=0, embd_pdrop=0, attn_pdrop=0, tie_word_embeddings=False,
                                attn_implementation=a.attention)
    model = transformers.GPT2LMHeadModel(c).to(device=a.device, dtype=DTYPES[a.dtype])
    ids = torch.randint(a.words, (a.batch, a.tokens), device=a.device)
    return model, torch.optim.AdamW(model.parameters(), lr=1e-3), ids


def step(model, optimizer, ids):
    model(ids, labels=ids, use_cache=False).loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1)
    optimizer.step()
    optimizer.zero_grad()


def main():
    a = arguments()
    wait = torch.cuda.synchronize if a.device.startswith("cuda") else lambda: None
    model, optimizer, ids = make(a)
    seconds = []
    for i in range(a.runs + 3):
        wait()
        began = time.perf_counter()
        step(model, optimizer, ids)
        wait()
        seconds.append(time.perf_counter() - began)
    seconds = seconds[3:]
    print(f"PyTorch {torch.__version__}, {a.device}, {a.dtype}, attention {a.attention}: "
          f"{1e3 * statistics.median(seconds):.2f} ms, at least {1e3 * min(seconds):.2f}; "
          f"{a.batch * a.tokens / statistics.median(seconds):.0f} tokens/s")


if __name__ == "__main__":
    main()
