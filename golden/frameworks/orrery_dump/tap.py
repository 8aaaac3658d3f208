"""Recording JAX: functions have no hooks, so a program taps the values that it wants to keep.

    taps = Taps(mesh, "dump", widths={"h.0.ln_1": 32, ...}, batch=(4, 16), dtype="fp32")
    x = taps(x, "h.0.ln_1")                             # inside shard_map: returns x; keeps it, and its gradient
    taps.array("grad/NAME", array)                      # a global array: each device's shard, its index is the box
    taps.save()                                         # a file for each device

All devices of a process are recorded, each as a rank of its own.
"""
import functools

import numpy as np

from .errors import DumpError
from .layouts import chunk, of_parts
from .rank_file import RankFile


class Taps:
    """
    mesh    a jax.sharding.Mesh with axes called pp, dp, cp, ep, tp
    folder  where rankR.safetensors go, R the position of a device in the mesh
    widths  columns of each activation, {"h.0.ln_1": 32, ...} by our names
    batch   (sequences, tokens)
    """

    def __init__(self, mesh, folder, *, widths, batch, dtype=None, program=None, parts=None):
        import jax
        self.jax, self.mesh, self.widths, self.batch = jax, mesh, widths, batch
        sizes, self.files, self.on = dict(mesh.shape), {}, True
        for rank, at in enumerate(np.ndindex(*mesh.devices.shape)):
            at = dict(zip(mesh.axis_names, at))
            self.files[mesh.devices[tuple(at.values())]] = RankFile(folder, rank, sizes, at, dtype=dtype, program=program, parts=parts)
        self.by_at = {tuple(np.argwhere(mesh.devices == d)[0]): f for d, f in self.files.items()}

    def __call__(self, x, name, *, parts=(), start=0, piece="", times=1.0, partial=()):
        """Keep x, [sequences, tokens, columns] of this device, and its gradient; to be called inside shard_map.

        A device has its share of sequences along dp, and of the columns along tp if it has fewer than all.
        parts    sizes of parts of the columns that are cut one by one
        start    ours of the first column
        partial  axes over which the gradient is a part of a sum; times: its factor
        """
        jax, axes = self.jax, self.mesh.axis_names

        def keep(kind, value):
            where = tuple(jax.lax.axis_index(a) for a in axes)
            jax.debug.callback(functools.partial(self._keep, kind, name, parts, start, piece, times, partial), value, *where)

        @jax.custom_vjp
        def tap(x):                                                 # called where nothing is differentiated
            keep("act/", x)
            return x

        def forward(x):
            keep("act/", x)
            return x, None

        def backward(_, g):
            keep("grad/", g)
            return (g,)

        tap.defvjp(forward, backward)
        return tap(x)

    def _keep(self, kind, name, parts, start, piece, times, partial, value, *where):
        if not self.on:
            return
        file, at = self.by_at[tuple(int(i) for i in where)], dict(zip(self.mesh.axis_names, map(int, where)))
        B, S = self.batch
        sequences = chunk(np.arange(B), self.mesh.shape.get("dp", 1), at.get("dp", 0))
        rows = (sequences[:, None] * S + np.arange(S)).reshape(-1)
        width, parts = value.shape[-1], parts or (value.shape[-1],)
        if sum(parts) != width:                                     # fewer than all: this device's of tp
            cols = start + of_parts(parts, self.mesh.shape.get("tp", 1), at.get("tp", 0))
        else:
            cols = start + np.arange(width)
        if value.shape[0] != len(sequences) or len(cols) != width:
            raise DumpError(f"{kind}{name}: {list(value.shape)}, but this device has {len(sequences)} sequences and {len(cols)} columns")
        file.add(kind + name, np.asarray(value).reshape(-1, width), of=(B * S, self.widths[name]), rows=rows, cols=cols, piece=piece,
                 times=times if kind == "grad/" else 1.0, partial=partial if kind == "grad/" else ())

    def array(self, name, array, *, of=None, start=0, piece=""):
        """A global array: a matrix [out, in] or a vector.  of: the shape of ours, if it is one of several matrices, from row `start`."""
        shape = (array.shape + (1,))[:2] if array.ndim < 2 else array.shape
        of = of or shape
        for shard in array.addressable_shards:
            if shard.device not in self.files:
                raise DumpError(f"{name}: device {shard.device} is not in the mesh")
            index = [np.arange(n)[i] for n, i in zip(array.shape, shard.index)] + [np.arange(1)] * (2 - array.ndim)
            self.files[shard.device].add(name, np.asarray(shard.data), of=of, rows=start + index[0], cols=index[1], piece=piece)

    def number(self, name, value):
        for file in self.files.values():
            file.number(name, value)

    def stop(self):
        """Later passes are not kept."""
        self.jax.effects_barrier()
        self.on = False

    def save(self):
        self.jax.effects_barrier()
        return [file.save() for file in self.files.values()]
