#!/usr/bin/env python3
"""Golden steps of torch.optim, for the optimizers of ref/optim that are held to it.

    golden/make_optimizers.py            write golden/optimizers.safetensors and its line of golden/MANIFEST
    golden/make_optimizers.py --check    make it again and compare

A case is named as an optimizer of `orrery list`, and computes in fp64, from numbers that are exact in fp32.
"""
import pathlib
import sys

import numpy as np
import torch

import philox
import tensor_file

FILE = pathlib.Path(__file__).resolve().parent / "optimizers.safetensors"
SEED, STEPS, ELEMENTS = 47, 8, 61
NUMBERS = {"lr": 0.01, "beta1": 0.85, "beta2": 0.97, "eps": 1e-3, "weight_decay": 0.3}
N = NUMBERS

CASES = {                               # of the 8 steps RAdam does the first five without the second moment
    "radam": lambda p: torch.optim.RAdam(p, lr=N["lr"], betas=(N["beta1"], N["beta2"]), eps=N["eps"], weight_decay=N["weight_decay"],
                                         decoupled_weight_decay=True),
}


def drawn(name, size=1.0):
    return torch.from_numpy((philox.normal(SEED, name, ELEMENTS) * size).astype(np.float32).astype(np.float64))


def steps(make_optimizer):
    """The weight after each step, and the optimizer's states after the last."""
    w, out = torch.nn.Parameter(drawn("start")), {}
    optimizer = make_optimizer([w])
    for t in range(1, STEPS + 1):
        w.grad = drawn(f"gradient.{t}", 0.01)
        optimizer.step()
        out[f"weight.{t}"] = w.detach().clone()
    out.update({key: x for key, x in optimizer.state[w].items() if torch.is_tensor(x) and x.shape == w.shape})
    return out


def make():
    tensors = {"start": drawn("start"), **{f"gradient.{t}": drawn(f"gradient.{t}", 0.01) for t in range(1, STEPS + 1)}}
    for case, make_optimizer in CASES.items():
        tensors.update({f"{case}.{key}": x for key, x in steps(make_optimizer).items()})
    metadata = {key: repr(x) for key, x in NUMBERS.items()}
    metadata.update(generator="golden/make_optimizers.py", torch=torch.__version__, cases=" ".join(CASES), steps=str(STEPS))
    return {key: x.numpy().copy() for key, x in tensors.items()}, metadata


def check():
    return tensor_file.compare("optimizers", make()[0], FILE, 1e-12)


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(tensor_file.command("Make golden steps of torch.optim.", FILE, make, check))
