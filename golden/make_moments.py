#!/usr/bin/env python3
"""Golden steps of torch.optim.AdamW for the flags --beta1, --beta2 and --eps, and for what PyTorch takes without them.

    golden/make_moments.py            write golden/moments.safetensors and its line of golden/MANIFEST
    golden/make_moments.py --check    make it again and compare

A case is one optimizer and the flags of `orrery train` that must take the same steps.  Everything that a case does not name is the
package's default.  Steps are in fp64, from numbers that are exact in fp32.
"""
import pathlib
import sys

import numpy as np
import torch

import philox
import tensor_file

FILE = pathlib.Path(__file__).resolve().parent / "moments.safetensors"
SEED, STEPS, ELEMENTS = 53, 5, 37

CASES = {                               # flags, then the arguments of torch.optim.AdamW
    "usual": ("", {}),
    "beta1": ("--beta1 0.5", {"betas": (0.5, 0.999)}),
    "beta2": ("--beta2 0.75", {"betas": (0.9, 0.75)}),
    "betas": ("--beta1 0.625 --beta2 0.8", {"betas": (0.625, 0.8)}),
    "without": ("--beta1 0 --beta2 0", {"betas": (0.0, 0.0)}),
    "eps": ("--eps 0.25", {"eps": 0.25}),
    "all": ("--beta1 0.7 --beta2 0.6 --eps 0.01", {"betas": (0.7, 0.6), "eps": 0.01}),
}


def drawn(name, size=1.0):
    return torch.from_numpy((philox.normal(SEED, name, ELEMENTS) * size).astype(np.float32).astype(np.float64))


def steps(arguments):
    """The weight after each step, and both moments after the last."""
    w, out = torch.nn.Parameter(drawn("start")), {}
    optimizer = torch.optim.AdamW([w], **arguments)
    for t in range(1, STEPS + 1):
        w.grad = drawn(f"gradient.{t}", 0.01)
        optimizer.step()
        out[f"weight.{t}"] = w.detach().clone()
    out.update({key: optimizer.state[w][key] for key in ("exp_avg", "exp_avg_sq")})
    return out


def make():
    tensors = {"start": drawn("start"), **{f"gradient.{t}": drawn(f"gradient.{t}", 0.01) for t in range(1, STEPS + 1)}}
    metadata = {"generator": "golden/make_moments.py", "torch": torch.__version__, "cases": " ".join(CASES), "steps": str(STEPS)}
    for case, (flags, arguments) in CASES.items():
        tensors.update({f"{case}.{key}": x for key, x in steps(arguments).items()})
        metadata[f"{case}.flags"] = flags
    return {key: x.numpy().copy() for key, x in tensors.items()}, metadata


def check():
    return tensor_file.compare("moments", make()[0], FILE, 1e-12)


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(tensor_file.command("Make golden steps of torch.optim.AdamW.", FILE, make, check))
