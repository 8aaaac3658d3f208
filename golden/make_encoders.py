#!/usr/bin/env python3
"""Golden encoders of what is not text: outputs and all gradients of the weights, by autograd in fp64.

    golden/make_encoders.py            write golden/encoders.safetensors and its line of golden/MANIFEST
    golden/make_encoders.py --check    make it again, compare with the stored one and name the tensors that differ

A linear layer, GELU in its tanh form and a linear layer, of PyTorch.  golden/README.md says what is in the file.
"""
import pathlib
import sys

try:
    import torch
except ImportError as missing:
    sys.exit(f"make_encoders.py: {missing}; golden/README.md says what to install")

import tensor_file

HERE = pathlib.Path(__file__).resolve().parent
FILE = HERE / "encoders.safetensors"
WIDTH = 10

# name -> numbers of a patch, inner width, patches
CASES = {"image": (12, 20, 9), "audio": (5, 9, 4), "video": (7, 16, 1)}


def make():
    torch.manual_seed(11)
    tensors = {}
    for name, (C, F, n) in CASES.items():
        x, dy = torch.randn(n, C, dtype=torch.float64), torch.randn(n, WIDTH, dtype=torch.float64)
        up, out = torch.nn.Linear(C, F, dtype=torch.float64), torch.nn.Linear(F, WIDTH, dtype=torch.float64)
        y = out(torch.nn.functional.gelu(up(x), approximate="tanh"))
        (y * dy).sum().backward()
        tensors |= {f"{name}/x": x, f"{name}/dy": dy, f"{name}/y": y}
        for key, weight in (("up.w", up.weight), ("up.b", up.bias), ("out.w", out.weight), ("out.b", out.bias)):
            tensors |= {f"{name}/{key}": weight, f"{name}/d.{key}": weight.grad}
    return {key: t.detach().numpy() for key, t in tensors.items()}, {"width": str(WIDTH)}


if __name__ == "__main__":
    sys.exit(tensor_file.command(__doc__.splitlines()[0], FILE, make, lambda: tensor_file.compare("encoders", make()[0], FILE, 1e-13)))
