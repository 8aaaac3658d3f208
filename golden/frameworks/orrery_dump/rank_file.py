"""The file of one rank: tensors, and in its metadata where each lies in the whole."""
import json
import pathlib
import re

import numpy as np

from .errors import DumpError
from .layouts import flat_boxes, intervals

AXES = ("pp", "dp", "cp", "ep", "tp")
STORED = {"float64": "F64", "float32": "F32", "bfloat16": "BF16", "float16": "F16"}


def to_numpy(t):
    """(array, name of its format) of a tensor of numpy, torch or jax.  bfloat16, which numpy lacks, as its bits."""
    if hasattr(t, "detach"):                                        # torch
        t = t.detach().cpu().contiguous()
        name = str(t.dtype).replace("torch.", "")
        return (t.view(__import__("torch").uint16) if name == "bfloat16" else t).numpy(), name
    array = np.asarray(t)
    name = array.dtype.name
    return (array.view(np.uint16) if name == "bfloat16" else array), name


def key_of(name, piece):
    return f"{name}#{piece}" if piece else name


class RankFile:
    """Collects the pieces of a rank; save() writes them.

    rank         its global number
    mesh         {"dp": 2, "tp": 2}: axes and sizes
    coordinates  {"dp": 0, "tp": 1}: where this rank is
    dtype        in which it computes: fp64, fp32, bf16, fp16
    parts        of a sum that are stored in that format and then added
    arithmetic   "exact" or "exact2" if sums do not round before they are finished (docs/checking/exact.md): no bounds
                 then, but bits

    left_out has the activations that the program cannot show, {name: why}; they are then not missing.
    """

    def __init__(self, folder, rank, mesh, coordinates, dtype=None, program=None, parts=None, arithmetic=None):
        for axis in mesh:
            if axis not in AXES:
                raise DumpError(f"mesh axis {axis!r} is not one of {', '.join(AXES)}")
        if arithmetic not in (None, "ordinary", "exact", "exact2"):
            raise DumpError(f"arithmetic: {arithmetic!r} is none of ordinary, exact, exact2")
        self.folder, self.rank = pathlib.Path(folder), rank
        self.tensors, self.layout, self.left_out, self.declared = {}, {}, {}, []
        self.head = {"orrery_dump": "1", "rank": str(rank), "mesh": json.dumps({a: mesh[a] for a in AXES if a in mesh}),
                     "coordinates": json.dumps(dict(coordinates))}
        self.head.update({k: v for k, v in (("dtype", dtype), ("program", program), ("parts", parts and str(parts)), ("arithmetic", arithmetic)) if v})

    def declare(self, patterns):
        """Patterns of tensors that the dump is not to have: they are not kept, and orrery check does not miss them."""
        patterns = [patterns] if isinstance(patterns, str) else list(patterns)
        for pattern in patterns:
            if not isinstance(pattern, str) or not pattern or len(pattern) > 255:
                raise DumpError(f"not_recorded: {pattern!r} is no pattern of names, such as 'h.*.attn.rotated'")
        self.declared += [p for p in patterns if p not in self.declared]

    def is_declared(self, name):
        """Whether a pattern is of this name; of an activation and of its gradient it may be of what stands behind act/ and grad/."""
        rest = re.sub(r"^(act|grad)/", "", name) if not name.endswith((".weight", ".bias")) else name
        return any(re.fullmatch(".*".join(map(re.escape, p.split("*"))), n, re.S) for p in self.declared for n in (name, rest))

    def add(self, name, array, *, of, piece="", rows=None, cols=None, partial=(), transposed=False, times=1.0, micro=None):
        """A piece of tensor `name`, of shape `of` = (rows, columns) as a whole.  rows, cols: indices, None: all."""
        bits, kind = to_numpy(array)
        count = [n if i is None else len(i) for n, i in zip(of, (rows, cols))]
        if bits.size != count[0] * count[1]:
            raise DumpError(f"{name}: {list(bits.shape)} is stored, but its layout has {count[0]} rows and {count[1]} columns of {list(of)}")
        if bits.size == 0:
            return                                                  # an uneven cut may leave a rank nothing
        bits = bits.reshape(count[1], count[0]) if transposed else bits.reshape(count)
        entry = {"of": list(map(int, of))}
        for field, index in (("rows", rows), ("cols", cols)):
            if index is not None:
                entry[field] = intervals(index)
        self._keep(name, piece, bits, kind, entry, partial, transposed, times, micro)

    def add_flat(self, name, array, *, of, begin, count, piece="", partial=(), transposed=False, times=1.0, micro=None):
        """Elements begin .. begin + count - 1 of the whole in row-major order; what `array` has beyond is padding.
        With `transposed` they are elements of the transpose, of which the whole has the shape (of[1], of[0])."""
        bits, kind = to_numpy(array)
        bits = bits.reshape(-1)
        if bits.size < count or begin + count > of[0] * of[1]:
            raise DumpError(f"{name}: {bits.size} elements cannot be elements {begin} to {begin + count - 1} of {list(of)}")
        if count == 0:
            return
        if not transposed:
            return self._keep(name, piece, bits, kind, {"of": list(map(int, of)), "flat": [int(begin), int(count)]}, partial, False, times, micro)
        for i, (rows, cols, at) in enumerate(flat_boxes(begin, count, of[0])):
            box = bits[at:at + len(rows) * len(cols)].reshape(len(rows), len(cols))
            entry = {"of": list(map(int, of)), "rows": intervals(cols), "cols": intervals(rows)}
            self._keep(name, f"{piece}box{i}", box, kind, entry, partial, True, times, micro)

    def number(self, name, value, partial=(), times=1.0, micro=None, piece=""):
        """A single number, such as the loss."""
        value = value.detach() if hasattr(value, "detach") else value
        self._keep(name, piece, np.asarray(float(value), np.float64), "float64", {}, partial, False, times, micro)

    def numbers(self, name, values):
        """A row of numbers, such as the losses of all steps."""
        self._keep(name, "", np.asarray(values, np.float64), "float64", {}, (), False, 1.0, None)

    def _keep(self, name, piece, bits, kind, entry, partial, transposed, times, micro):
        if kind not in STORED:
            raise DumpError(f"{name}: format {kind} is not one of {', '.join(STORED)}")
        if self.is_declared(name):
            return
        key = key_of(name, piece)
        kept = (STORED[kind], list(bits.shape), np.ascontiguousarray(bits).tobytes())
        if self.tensors.get(key) == kept:
            return                                                  # split backward passes walk some of the graph twice
        if key in self.tensors:
            raise DumpError(f"{key} is recorded twice on rank {self.rank}: give microbatches numbers, or stop() after the pass to be compared")
        if partial:                                                 # axes, or {axis: places along it}
            entry["partial"] = {a: intervals(p) for a, p in partial.items()} if isinstance(partial, dict) else sorted(partial)
        entry.update({"transposed": True} if transposed else {})
        entry.update({"times": float(times)} if times != 1.0 else {})
        entry.update({"micro": int(micro)} if micro is not None else {})
        self.tensors[key] = kept
        if entry:
            self.layout[key] = entry

    def share_inputs(self, other):
        """Also have the pass that another file of this rank has, but for tensors that this one has of its own: so they can be recomputed."""
        own = {key.split("#")[0] for key in self.tensors}
        for key, kept in other.tensors.items():
            name = key.split("#")[0]
            if name.startswith(("act/", "grad/", "start/")) and name not in own:
                self.tensors[key] = kept
                if key in other.layout:
                    self.layout[key] = other.layout[key]

    def save(self, step=None):
        """Write FOLDER/rankR.safetensors.  With a step FOLDER/stepK.rankR.safetensors, of what was added since the step before.
        A file gets its name when it is whole, so `orrery check --watch` never reads a part of one.  @return its path"""
        if not self.tensors:
            raise DumpError(f"rank {self.rank} has recorded nothing")
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f"{'' if step is None else f'step{step}.'}rank{self.rank}.safetensors"
        temporary = path.with_suffix(".part")
        left_out = {"left_out": json.dumps(self.left_out)} if self.left_out else {}
        declared = {"not_recorded": json.dumps(self.declared)} if self.declared else {}
        write(temporary, self.tensors, {**self.head, **left_out, **declared, "layout": json.dumps(self.layout)})
        temporary.rename(path)
        if step is not None:
            self.tensors, self.layout = {}, {}
        return path


def write(path, tensors, metadata):
    """A safetensors file of {key: (format, shape, bytes)}.  By hand: the safetensors package takes no bfloat16 from numpy."""
    header, at = {"__metadata__": metadata}, 0
    for key, (kind, shape, data) in tensors.items():
        header[key] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(len(text).to_bytes(8, "little") + text)
        for _, _, data in tensors.values():
            f.write(data)
