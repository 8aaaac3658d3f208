#!/usr/bin/env python3
"""Golden vectors of weights in fp8: codes and factors as released files have them, and what other programs make of them.

    golden/make_fp8.py            write golden/fp8.safetensors and its line of golden/MANIFEST
    golden/make_fp8.py --check    make it again and compare, bit for bit

PyTorch's float8_e4m3fn gives codes and their numbers; transformers' Fp8Dequantize the matrix of whole blocks, which is all it takes, and PyTorch
the one whose last blocks are cut, as of DeepSeek's kv_a_proj_with_mqa.
"""
import pathlib
import sys

try:
    import numpy as np
    import torch
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize
except ImportError as missing:
    sys.exit(f"make_fp8.py: {missing}; golden/README.md says what to install")

import philox
import tensor_file

FILE = pathlib.Path(__file__).resolve().parent / "fp8.safetensors"
SEED, BLOCK = 8, 128


def quantised(name, rows, cols):
    """(codes, factors) of numbers whose blocks differ in size."""
    x = torch.from_numpy(philox.normal(SEED, name, rows * cols).reshape(rows, cols))
    blocks = [(r, c) for r in range(0, rows, BLOCK) for c in range(0, cols, BLOCK)]
    codes, factors = torch.empty(rows, cols, dtype=torch.float8_e4m3fn), torch.empty(-(-rows // BLOCK), -(-cols // BLOCK))
    for i, (r, c) in enumerate(blocks):
        block = x[r:r + BLOCK, c:c + BLOCK] * 3.7 ** (i - 1)
        factor = (block.abs().max() / 448).float()
        codes[r:r + BLOCK, c:c + BLOCK] = (block / factor).to(torch.float8_e4m3fn)
        factors[r // BLOCK, c // BLOCK] = factor
    return codes, factors


def by_torch(codes, factors):
    wide = factors.repeat_interleave(BLOCK, 0)[:codes.shape[0]].repeat_interleave(BLOCK, 1)[:, :codes.shape[1]]
    return codes.to(torch.float32) * wide


def make():
    whole, whole_factors = quantised("whole", 256, 128)
    cut, cut_factors = quantised("cut", 131, 130)
    every = torch.arange(256, dtype=torch.uint8).reshape(16, 16).view(torch.float8_e4m3fn)
    tensors = {}
    for name, codes, factors, want in (("whole", whole, whole_factors, Fp8Dequantize(None)._dequantize_one(whole, whole_factors, torch.float32)),
                                       ("cut", cut, cut_factors, by_torch(cut, cut_factors)),
                                       ("every", every, torch.ones(1, 1), every.to(torch.float32))):
        tensors[f"{name}.weight"] = codes.view(torch.uint8).numpy().view(tensor_file.DTYPES["F8_E4M3"])
        tensors[f"{name}.weight_scale_inv"] = factors.numpy()
        tensors[f"want/{name}"] = want.numpy()
    import transformers
    return tensors, {"generator": "golden/make_fp8.py", "torch": torch.__version__, "transformers": transformers.__version__}


def check():
    new, old = make()[0], tensor_file.read(FILE)[0]
    wrong = sorted(set(new) ^ set(old)) + [key for key in old if key in new and new[key].tobytes() != old[key].tobytes()]
    for key in wrong:
        print(f"  fp8: {key} differs")
    if not wrong:
        print(f"  fp8: {len(old)} tensors, every bit the same")
    return 1 if wrong else 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(tensor_file.command("Make the golden vectors of fp8 weights.", FILE, make, check))
