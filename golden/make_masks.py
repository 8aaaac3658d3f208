#!/usr/bin/env python3
"""Golden attention under the masks of `--mask`: plain PyTorch with an explicit matrix of which token sees which, and autograd, in fp64.

    golden/make_masks.py            write golden/masks.safetensors and its line of golden/MANIFEST
    golden/make_masks.py --check    make it again, compare with the stored one and name the tensors that differ

Each mask is a condition on one pair of tokens, and no ranges: written from the definitions in dcp/runtime/flash_attention/utils.py of
chenyu-jiang/dcp.  golden/README.md says what is in the file.
"""
import sys

try:
    import numpy as np
    import torch
except ImportError as missing:
    sys.exit(f"make_masks.py: {missing}; golden/README.md says what to install")

import pathlib

import philox
import tensor_file

HERE = pathlib.Path(__file__).resolve().parent
FILE = HERE / "masks.safetensors"
SEED, H, K, A = 29, 4, 2, 3
SAMPLES = [1, 7, 19, 13]                        # tokens of the samples of one sequence
N = sum(SAMPLES)
ROUNDING = 1e-13                                # relative, that another PyTorch may differ by


def causal(n, query, key):
    return key <= query


def lambda_(sinks, window):
    return lambda n, query, key: key <= query and (key < sinks or query - key < window)


def shared_question(answers, part):
    def sees(n, query, key):
        question = int(n * part)
        each = (n - question) // answers

        def part_of(token):
            if token < question:
                return -1
            return min((token - question) // each, answers - 1) if each > 0 else answers - 1
        return key <= query and (part_of(key) == -1 or part_of(key) == part_of(query))
    return sees


def blockwise(tokens, blocks):
    def sees(n, query, key):
        block, last = query // tokens, (n + tokens - 1) // tokens - 1
        return key <= query and (block in (0, last) or key // tokens == 0 or query - key <= blocks * tokens)
    return sees


CASES = {"causal": causal, "lambda:2,5": lambda_(2, 5), "lambda:3,0": lambda_(3, 0), "shared-question:3,0.2": shared_question(3, 0.2),
         "blockwise:4,1": blockwise(4, 1)}


def matrix(sees):
    """[N,N] whether a query sees a key; samples do not see each other."""
    out, first = torch.zeros(N, N, dtype=torch.bool), 0
    for n in SAMPLES:
        for query in range(n):
            for key in range(n):
                out[first + query, first + key] = sees(n, query, key)
        first += n
    assert out.any(1).all()
    return out


def case(name, sees, qkv, d_out):
    visible = matrix(sees)
    leaf = qkv.clone().requires_grad_()
    q, k, v = (t.reshape(N, -1, A).transpose(0, 1) for t in leaf.split([H * A, K * A, K * A], 1))
    k, v = k.repeat_interleave(H // K, 0), v.repeat_interleave(H // K, 0)
    scores = (q @ k.transpose(1, 2) / A**0.5).masked_fill(~visible, -torch.inf)
    lse = torch.logsumexp(scores, -1)
    out = (torch.exp(scores - lse[..., None]) @ v).transpose(0, 1).reshape(N, H * A)
    out.backward(d_out)
    numbers = {"out": out, "lse": lse, "dqkv": leaf.grad}
    tensors = {f"{name}/{what}": t.detach().numpy().astype("<f8") for what, t in numbers.items()}
    return {**tensors, f"{name}/sees": visible.numpy().astype("u1")}


def make():
    def drawn(what, columns):
        return torch.from_numpy(philox.normal(SEED, what, N * columns).reshape(N, columns).astype(np.float64))
    qkv, d_out = drawn("qkv", (H + 2 * K) * A), drawn("dout", H * A)
    tensors = {"qkv": qkv.numpy().astype("<f8"), "dout": d_out.numpy().astype("<f8"), "samples": np.array(SAMPLES, "<i4")}
    metadata = {"generator": "golden/make_masks.py", "cases": " ".join(CASES), "H": str(H), "K": str(K), "numpy": np.__version__,
                "torch": torch.__version__}
    for name, sees in CASES.items():
        tensors.update(case(name, sees, qkv, d_out))
    return tensors, metadata


def check():
    return tensor_file.compare("masks", make()[0], FILE, ROUNDING)


if __name__ == "__main__":
    torch.set_num_threads(1)
    philox.known_answers()
    sys.exit(tensor_file.command("Make the golden attention under masks with PyTorch.", FILE, make, check))
