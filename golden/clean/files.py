"""Safetensors files, and dumps of several ranks (docs/checking/dumps.md), by hand."""
import json
import pathlib

import numpy as np

KINDS = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "I32": np.int32, "I64": np.int64}


def read(path):
    """@return metadata, {name: array}"""
    data = pathlib.Path(path).read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    meta = header.pop("__metadata__", {})
    return meta, {n: np.frombuffer(data[begin + t["data_offsets"][0]:begin + t["data_offsets"][1]], KINDS[t["dtype"]]).reshape(t["shape"])
                  for n, t in header.items()}


def write(path, tensors, meta):
    """tensors: {name: (kind, array)}; of kind BF16 an array has the rounded numbers in float32."""
    header, blobs, at = {"__metadata__": meta}, [], 0
    for name, (kind, x) in tensors.items():
        x = np.ascontiguousarray(x)
        blobs.append((x.view(np.uint32) >> 16).astype(np.uint16).tobytes() if kind == "BF16" else x.astype(KINDS[kind]).tobytes())
        header[name] = {"dtype": kind, "shape": list(x.shape), "data_offsets": [at, at + len(blobs[-1])]}
        at += len(blobs[-1])
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blobs))


def runs(index):
    """[[begin, count], ...] of an array of indices."""
    cut = np.split(index, np.flatnonzero(np.diff(index) != 1) + 1)
    return [[int(c[0]), len(c)] for c in cut if len(c)]


class Dump:
    """What every rank has: pieces of tensors, each with its place in the whole."""

    def __init__(self, case):
        self.case, self.ranks = case, {(d, t): ({}, {}) for d in range(case.dp) for t in range(case.tp)}

    def add(self, name, rank, x, of, rows=None, cols=None, kind=None, **more):
        tensors, layout = self.ranks[rank]
        entry = {"of": [int(n) for n in of], **{k: v for k, v in more.items() if v is not None}}
        entry.update({k: runs(i) for k, i in (("rows", rows), ("cols", cols)) if i is not None})
        key = f"{name}#{len(tensors)}"
        tensors[key] = (kind or {"fp32": "F32", "bf16": "BF16", "fp16": "F16"}[self.case.dtype], x)
        layout[key] = entry

    def numbers(self, name, values):
        for tensors, _ in self.ranks.values():
            tensors[name] = ("F64", np.asarray(values, float))

    def save(self, folder):
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for number, ((d, t), (tensors, layout)) in enumerate(self.ranks.items()):
            meta = {"orrery_dump": "1", "rank": str(number), "mesh": json.dumps({"dp": self.case.dp, "tp": self.case.tp}),
                    "dtype": self.case.dtype, "program": "golden/clean/program.py", "layout": json.dumps(layout)}
            if self.case.parts > 1:                                 # a product's parts on each rank
                meta["parts"] = str(self.case.parts * self.case.tp * self.case.dp * self.case.micros)
            write(folder / f"rank{number}.safetensors", tensors, meta)
