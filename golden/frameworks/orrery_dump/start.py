"""The weights that a golden file begins with: which of them a model's own parameter has."""
import json

import numpy as np

NUMPY = {"F64": np.float64, "F32": np.float32}
NEAR = {"float64": 1e-6, "float32": 1e-6, "float16": 2e-3, "bfloat16": 1e-2}   # roundings of a start in these formats


class Start:
    """Reads start/NAME of a golden file, a weight at a time."""

    def __init__(self, path):
        with open(path, "rb") as f:
            size = int.from_bytes(f.read(8), "little")
            self.header, self.path, self.begin = json.loads(f.read(size)), path, 8 + size

    def weight(self, name):
        """[rows, columns] of one of ours; None: the file has no numbers of it."""
        entry = self.header.get("start/" + name)
        if entry is None or entry["dtype"] not in NUMPY:
            return None
        begin, end = entry["data_offsets"]
        with open(self.path, "rb") as f:
            f.seek(self.begin + begin)
            values = np.frombuffer(f.read(end - begin), NUMPY[entry["dtype"]]).astype(np.float64)
        return values.reshape(entry["shape"] if len(entry["shape"]) == 2 else (-1, 1))


def values_of(p):
    """(numbers, how near copies are) of a parameter that is here as it is; (None, 0) of any other."""
    if hasattr(p, "placements") or getattr(p, "device", None) is None or p.device.type == "meta" or p.numel() == 0:
        return None, 0
    return p.detach().double().cpu().numpy(), NEAR.get(str(p.dtype).replace("torch.", ""), 0)


def same(a, b, near):
    """Whether two arrays of one shape have the same numbers, as far as the parameter's format has them."""
    return a is not None and b is not None and a.size == b.size and bool(np.all(np.abs(a.reshape(b.shape) - b) <= near * np.abs(b) + 1e-12))


def says_nothing(values):
    """All numbers are the same, as those of a new norm are: then equal numbers do not tell which weight it is."""
    return values is None or values.size == 0 or bool(np.all(values == values.flat[0]))
