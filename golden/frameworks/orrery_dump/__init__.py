"""Writes what a training framework computes, rank by rank, for `orrery check GOLDEN FOLDER`.

    recorder.py     Recorder(model, mesh): hooks for PyTorch
    tap.py          the same for JAX, which has functions and no hooks
    names.py        what a framework calls a tensor, and which part of ours it is
    layouts.py      which rows and columns a rank has
    modes.py        whether the parallelism that was asked for is in force
    rank_file.py    the file of one rank

Needs numpy and safetensors; torch or jax are imported only where they are used.  docs/checking/frameworks.md has examples.
"""
from .errors import DumpError
from .rank_file import RankFile
from .recorder import Recorder

__all__ = ["DumpError", "RankFile", "Recorder"]
