#!/usr/bin/env python3
"""Golden steps of GaLore and Natural GaLore: what PyTorch makes of the same gradients, in fp64.

    golden/make_galore.py            write golden/galore.safetensors and its line of golden/MANIFEST
    golden/make_galore.py --check    make it again and compare: drawn tensors bit for bit, computed ones to 1e-13, relative

Singular vectors are those of torch.linalg.svd, each with its element of largest size positive; Adam is torch.optim.AdamW,
stepping zeros with rate 1; the natural gradient solves the whole (lambda I + H H^T) x = R, as large as it is.
"""
import pathlib
import sys

import numpy as np
import torch

import philox
import tensor_file

FILE = pathlib.Path(__file__).parent / "galore.safetensors"
SEED = 12
STEPS = 5
NUMBERS = {"rank": 3, "refresh": 2, "galore_scale": 0.3, "history": 3, "damping": 0.05, "lr": 0.05, "weight_decay": 0.2,
           "beta1": 0.85, "beta2": 0.97, "eps": 1e-3}
SHAPES = {"wide": (12, 20), "tall": (20, 12), "square": (11, 11)}
LEAST_GAP = 0.02                # between neighbouring singular values that count, relative to the largest


def drawn(name, *shape):
    return torch.from_numpy(philox.normal(SEED, name, int(np.prod(shape))).reshape(shape).copy())


def projection(G):
    """The r directions of the shorter side, [shorter, r]."""
    r = NUMBERS["rank"]
    U, S, Vh = torch.linalg.svd(G, full_matrices=False)
    assert ((S[:r] - S[1:r + 1]) / S[0]).min() > LEAST_GAP, "two singular values are too near each other"
    P = (Vh.T if G.shape[0] > G.shape[1] else U)[:, :r]
    return P * torch.sign(P[P.abs().argmax(0), torch.arange(r)])


def natural(R, history):
    H = torch.stack([h.reshape(-1) for h in history], 1)
    return torch.linalg.solve(NUMBERS["damping"] * torch.eye(R.numel(), dtype=R.dtype) + H @ H.T, R.reshape(-1)).reshape(R.shape)


def run(name, shape, is_natural):
    """The weights after each step, and the state after the last."""
    n = NUMBERS
    W, tall, history, adam = drawn(f"{name}.start", *shape), shape[0] > shape[1], [], None
    out = {}
    for t in range(STEPS):
        G = drawn(f"{name}.gradient.{t + 1}", *shape)
        if t % n["refresh"] == 0:
            P = projection(G)
        R = G @ P if tall else P.T @ G
        if is_natural:
            history = [R] + history[:n["history"] - 1]
            R = natural(R, history)
        if adam is None:
            Z = torch.zeros_like(R, requires_grad=True)
            adam = torch.optim.AdamW([Z], lr=1, betas=(n["beta1"], n["beta2"]), eps=n["eps"], weight_decay=0)
        with torch.no_grad():
            Z.zero_()
        Z.grad = R
        adam.step()
        N = -Z.detach()
        W = W - n["lr"] * n["weight_decay"] * W - n["lr"] * n["galore_scale"] * (N @ P.T if tall else P @ N)
        out[f"weight.{t + 1}"] = W
    out.update({"projection": P, "exp_avg": adam.state[Z]["exp_avg"], "exp_avg_sq": adam.state[Z]["exp_avg_sq"]})
    return out


def make():
    tensors = {}
    for name, shape in SHAPES.items():
        tensors[f"{name}.start"] = drawn(f"{name}.start", *shape)
        tensors.update({f"{name}.gradient.{t + 1}": drawn(f"{name}.gradient.{t + 1}", *shape) for t in range(STEPS)})
        for optimizer in ("galore", "natural-galore"):
            tensors.update({f"{name}.{optimizer}.{key}": x for key, x in run(name, shape, optimizer != "galore").items()})
    metadata = {key: repr(x) for key, x in NUMBERS.items()}
    metadata.update(generator="golden/make_galore.py", steps=str(STEPS), numpy=np.__version__, torch=torch.__version__)
    return {key: x.numpy().copy() for key, x in tensors.items()}, metadata


def check():
    new, old = make()[0], tensor_file.read(FILE)[0]
    wrong, farthest = sorted(set(new) ^ set(old)), (0.0, "nothing")
    for key in sorted(set(new) & set(old)):
        apart = np.linalg.norm(new[key] - old[key]) / np.linalg.norm(old[key])
        farthest = max(farthest, (apart, key))
        if not apart <= (1e-13 if ".galore." in key or ".natural-galore." in key else 0):
            wrong.append(key)
    for key in wrong:
        print(f"  galore: {key} differs")
    print(f"  galore: {len(old)} tensors, the farthest is {farthest[1]}, by {farthest[0]:.2g}")
    return 1 if wrong else 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(tensor_file.command("Make the golden steps of GaLore with PyTorch.", FILE, make, check))
