#!/usr/bin/env python3
"""Golden vectors for the 16-bit formats: what PyTorch makes of the same bits.

    golden/make_float16.py            write golden/float16.safetensors and its line of golden/MANIFEST
    golden/make_float16.py --check    make it again and compare, bit for bit

Conversions: fp32 to bf16 and fp16 by PyTorch; fp64 to fp16 by numpy, and to bf16 by exact arithmetic written here, since
PyTorch goes from fp64 to 16 bits by way of fp32 and so rounds twice.  NaNs are left out: each program has its own rule.
Operations and their gradients, from inputs that are bf16 numbers: linear by PyTorch in bf16 on the CPU, which sums in fp32 and
rounds once; layer_norm, gelu and attention by PyTorch in fp64, rounded to bf16 at the end, since its bf16 kernels round between
the steps too.  All are kept as fp32, which holds them exactly.
"""
import os
import pathlib
import sys
from fractions import Fraction

os.environ.update({"OMP_NUM_THREADS": "1", "ATEN_CPU_CAPABILITY": "avx2"})

try:
    import numpy as np
    import torch
except ImportError as missing:
    sys.exit(f"make_float16.py: {missing}; golden/README.md says what to install")

import philox
import tensor_file

HERE = pathlib.Path(__file__).resolve().parent
FILE = HERE / "float16.safetensors"
SEED = 16


# ---- conversions -----------------------------------------------------------------------------------------------------

def words(name, count, which=0):
    return philox.blocks(SEED, name, count)[which].astype(np.uint32)


def wide_numbers():
    """fp32 numbers of every size, and those on and beside the ties of both formats."""
    drawn = words("bits", 1500)
    bf16_ties = (words("bf16", 500) & np.uint32(0xFFFF0000)) | np.uint32(0x8000)
    exponent = np.uint32(100) + words("fp16 exponent", 500) % np.uint32(46)             # 2^-27 .. 2^18: all of fp16's
    fp16_ties = exponent << np.uint32(23) | (words("fp16", 500) & np.uint32(0x807FE000)) | np.uint32(0x1000)
    near = [ties + np.uint32(step) for ties in (bf16_ties, fp16_ties) for step in (0xFFFFFFFF, 0, 1)]
    ends = np.array([0, 0x80000000, 0x7F800000, 0xFF800000, 0x7F7FFFFF, 1, 0x477FEFFF, 0x477FF000, 0x33000000, 0x33000001], np.uint32)
    with np.errstate(over="ignore"):
        bits = np.concatenate([drawn, *near, ends])
    return bits[(bits & np.uint32(0x7FFFFFFF)) <= np.uint32(0x7F800000)]


def beside(fp32):
    """fp64 numbers: those of fp32, every second one moved by a 2^-40th, so that a tie in fp32 is none in fp64."""
    x = fp32.view(np.float32).astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        return np.where(np.arange(x.size) % 2 == 1, x * (1 + 2.0**-40), x)


def bf16_of_double(x):
    """Nearest, ties to even, in exact arithmetic."""
    sign = 0x8000 if np.signbit(x) else 0
    size = abs(float(x))
    if size == 0:
        return sign
    if size >= float(2**128 - 2**119):                          # the tie above the largest number
        return sign | 0x7F80
    exponent = max(int(np.frexp(size)[1]) - 1, -126)
    places = Fraction(size) / Fraction(2) ** (exponent - 7)     # of the last place; round() takes ties to even
    return sign | (round(places) + ((exponent + 126) << 7))


def torch_bits(x):
    return x.view(torch.int16).numpy().view(np.uint16).astype(np.int32)


def conversions():
    fp32 = wide_numbers()
    fp64 = beside(fp32)
    x = torch.from_numpy(fp32.view(np.float32).copy())
    bits64 = fp64.view(np.uint64)
    with np.errstate(over="ignore"):
        half = fp64.astype(np.float16).view(np.uint16).astype(np.int32)
    return {
        "fp32": fp32.view(np.int32),
        "fp64.high": (bits64 >> np.uint64(32)).astype(np.uint32).view(np.int32),
        "fp64.low": (bits64 & np.uint64(0xFFFFFFFF)).astype(np.uint32).view(np.int32),
        "fp32.as.bf16": torch_bits(x.bfloat16()), "fp32.as.fp16": torch_bits(x.half()),
        "fp64.as.bf16": np.array([bf16_of_double(v) for v in fp64], np.int32), "fp64.as.fp16": half,
    }


# ---- operations ------------------------------------------------------------------------------------------------------

def drawn(name, *shape):
    x = 2 * philox.normal(SEED, name, int(np.prod(shape))).reshape(shape)
    return torch.from_numpy(x).float().bfloat16()


def passes(name, compute, function, **inputs):
    """The result of a function of bf16 tensors, and the gradient of each for a gradient of the result that is drawn."""
    given = {key: x.to(compute).requires_grad_() for key, x in inputs.items()}
    y = function(**given)
    dy = drawn(name + ".dy", *y.shape)
    y.backward(dy.to(compute))
    out = {f"{name}.y": y, f"{name}.dy": dy}
    out.update({f"{name}.{key}": x for key, x in given.items()})
    out.update({f"{name}.d{key}": x.grad for key, x in given.items()})
    return {key: t.detach().float().bfloat16().float().numpy() for key, t in out.items()}


def attention(x, heads, width, tokens):
    """Causal, from rows of all queries, all keys, all values."""
    q, k, v = x.view(-1, tokens, 3, heads, width).permute(2, 0, 3, 1, 4)
    scores = q @ k.transpose(-1, -2) / width**0.5
    hidden = torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    return (scores.masked_fill(hidden, float("-inf")).softmax(-1) @ v).transpose(1, 2).reshape(-1, heads * width)


def operations():
    f = torch.nn.functional
    N, D, O = 13, 37, 29
    H, A, S = 3, 5, 7
    tensors = passes("linear", torch.bfloat16, f.linear, input=drawn("x", N, D), weight=drawn("w", O, D), bias=drawn("b", O))
    tensors.update(passes("layer_norm", torch.float64, lambda input, weight, bias: f.layer_norm(input, (D,), weight, bias, 1e-5),
                          input=drawn("x", N, D), weight=drawn("w", D), bias=drawn("b", D)))
    tensors.update(passes("gelu", torch.float64, lambda input: f.gelu(input, approximate="tanh"), input=drawn("x", N, D)))
    tensors.update(passes("attention", torch.float64, lambda input: attention(input, H, A, S), input=drawn("qkv", 2 * S, 3 * H * A)))
    return tensors


def make():
    return {**conversions(), **operations()}, {"generator": "golden/make_float16.py", "numpy": np.__version__, "torch": torch.__version__, "eps": "1e-5"}


def check():
    new, old = make()[0], tensor_file.read(FILE)[0]
    wrong = sorted(set(new) ^ set(old)) + [key for key in old if key in new and new[key].tobytes() != old[key].tobytes()]
    for key in wrong:
        print(f"  float16: {key} differs")
    if not wrong:
        print(f"  float16: {len(old)} tensors, every bit the same")
    return 1 if wrong else 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(tensor_file.command("Make the golden vectors of bf16 and fp16 with PyTorch.", FILE, make, check))
