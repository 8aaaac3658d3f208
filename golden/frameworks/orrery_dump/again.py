"""Passes that run again: activation checkpointing drops activations and computes them a second time in the backward pass.

What is kept is what the forward pass has computed.  The second time tells two things: the microbatch, whose numbers it repeats, because gradients of
a reentrant checkpoint are those of the second time; and whether it repeats them at all.
"""
import numpy as np

from .errors import DumpError


def is_again():
    """Whether the autograd engine is running: a module that is called now has been called before."""
    return __import__("torch")._C._current_graph_task_id() != -1


def _numbers(kept):
    """fp64 of what RankFile keeps of a tensor."""
    kind, _, data = kept
    if kind == "BF16":
        return (np.frombuffer(data, "<u2").astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return np.frombuffer(data, {"F64": "<f8", "F32": "<f4", "F16": "<f2"}[kind]).astype(np.float64)


def _distance(a, b):
    """0 for the same bits; else the norm of the difference over the norm."""
    if a[0] != b[0] or len(a[2]) != len(b[2]):
        return np.inf
    if a[2] == b[2]:
        return 0.0
    x, y = _numbers(a), _numbers(b)
    distance = np.linalg.norm(x - y) / max(np.linalg.norm(x), np.finfo(np.float64).tiny)
    return distance if np.isfinite(distance) else np.inf


def same_pass(name, candidates):
    """(pass, distance, whether another one is as near) of the pass whose numbers these are.  candidates: [(pass, kept then, kept now)]"""
    found = sorted(((_distance(then, now), i) for i, (_, then, now) in enumerate(candidates)))
    if not found or found[0][0] == np.inf:
        raise DumpError(f"{name} is computed in the backward pass, but not in a forward pass that was recorded: call microbatch() before each")
    return candidates[found[0][1]][0], found[0][0], len(found) > 1 and found[1][0] == found[0][0]
