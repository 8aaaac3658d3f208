"""A reader of dump folders that shares nothing with the package: it joins the pieces of all ranks, for the tests."""
import json
import pathlib

import numpy as np

NUMPY = {"I32": "<i4", "F64": "<f8", "F32": "<f4", "F16": "<f2", "BF16": "<u2"}


def read_file(path):
    """({key: fp64 array}, metadata, {key: format})"""
    data = pathlib.Path(path).read_bytes()
    n = int.from_bytes(data[:8], "little")
    header = json.loads(data[8:8 + n])
    meta, tensors, formats = header.pop("__metadata__", {}), {}, {}
    for key, e in header.items():
        a, b = e["data_offsets"]
        raw = np.frombuffer(data[8 + n + a:8 + n + b], NUMPY[e["dtype"]])
        if e["dtype"] == "BF16":
            raw = (raw.astype(np.uint32) << 16).view(np.float32)
        tensors[key], formats[key] = raw.astype(np.float64).reshape(e["shape"]), e["dtype"]
    return tensors, meta, formats


def expand(spans, whole):
    return np.arange(whole) if spans is None else np.concatenate([np.arange(a, a + n) for a, n in spans] or [np.arange(0)])


def elements(entry, stored):
    """(numbers of a piece, their places in the whole in row-major order)"""
    of = entry.get("of") or [stored.shape[0] if stored.ndim else 1, int(np.prod(stored.shape[1:]))]
    if "flat" in entry:
        begin, count = entry["flat"]
        return stored.reshape(-1)[:count], np.arange(begin, begin + count), of
    rows, cols = expand(entry.get("rows"), of[0]), expand(entry.get("cols"), of[1])
    values = stored.reshape(len(cols), len(rows)).T if entry.get("transposed") else stored.reshape(len(rows), len(cols))
    return values.reshape(-1), (rows[:, None] * of[1] + cols[None, :]).reshape(-1), of


def join(folder, holes=()):
    """{name: whole array [rows, columns]} of a folder.  Overlaps in a rank, copies that differ, and holes, except in the tensors `holes`,
    are AssertionErrors."""
    parts = {}                                              # name -> {coordinates without the partial axes -> [...]}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        tensors, meta, _ = read_file(path)
        assert meta["orrery_dump"] == "1"
        mesh, at, layout = json.loads(meta["mesh"]), json.loads(meta["coordinates"]), json.loads(meta["layout"])
        assert all(0 <= at[a] < n for a, n in mesh.items())
        for key, stored in tensors.items():
            entry = layout.get(key, {})
            values, places, of = elements(entry, stored)
            partial = entry.get("partial", [])
            parts.setdefault(key.split("#")[0], []).append((at, frozenset(partial), values * entry.get("times", 1), places, of, mesh))
    return {name: _join(name, pieces, name in holes) for name, pieces in parts.items()}


def _join(name, pieces, holes):
    of, mesh = pieces[0][4], pieces[0][5]
    whole, filled = np.zeros(of[0] * of[1]), np.zeros(of[0] * of[1], bool)
    groups = {}
    for at, partial, values, places, size, _ in pieces:
        assert size == of, f"{name}: of {size} and {of}"
        shared = tuple((a, at[a]) for a in mesh if a not in partial)
        groups.setdefault((shared, partial), {}).setdefault(tuple(at[a] for a in mesh), []).append((values, places))
    for (_, partial), ranks in groups.items():
        total, have = np.zeros_like(whole), np.zeros(len(whole), int)
        for own in ranks.values():
            mine = np.zeros(len(whole), int)
            for values, places in own:
                np.add.at(mine, places, 1)
                total[places] += values
            assert mine.max() <= 1, f"{name}: pieces of one rank overlap"
            have += mine
        need = int(np.prod([mesh[a] for a in partial])) if partial else 1
        got = have > 0
        assert (have[got] == need).all(), f"{name}: some parts of a sum are missing"
        both = got & filled
        assert (whole[both] == total[both]).all(), f"{name}: copies differ"
        whole[got], filled = total[got], filled | got
    assert holes or filled.all(), f"{name}: {np.count_nonzero(~filled)} of {len(filled)} elements are on no rank"
    return whole.reshape(of)


def compare(golden, folder):
    """[(error norm over norm, name)] of all joined tensors, worst first."""
    truth, found = read_file(golden)[0], []
    for name, mine in join(folder).items():
        a = truth[name].reshape(-1)
        found.append((np.linalg.norm(mine.reshape(-1) - a) / max(np.linalg.norm(a), 1e-300), name))
    return sorted(found, reverse=True)


if __name__ == "__main__":
    import sys
    rows = compare(*sys.argv[1:3])
    print(len(rows), "tensors", *(f"{e:.2e} {n}" for e, n in rows[:4]), sep="\n  ")
