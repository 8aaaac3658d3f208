"""Safetensors files with nothing but the standard library and numpy: 8 bytes of length, a JSON header, the numbers."""
import argparse
import hashlib
import json
import struct

import numpy as np

DTYPES = {"F64": np.dtype("<f8"), "I64": np.dtype("<i8"), "F32": np.dtype("<f4"), "F16": np.dtype("<f2"), "I32": np.dtype("<i4"), "U8": np.dtype("u1"),
          "F8_E4M3": np.dtype("V1")}                  # bytes


def write(path, tensors, metadata):
    """tensors: name -> array; metadata: name -> string.  Wide numbers first, then by name, so that all are aligned."""
    names = {dtype: name for name, dtype in DTYPES.items()}
    order = sorted(tensors, key=lambda name: (-tensors[name].dtype.itemsize, name))
    header, at = {"__metadata__": metadata}, 0
    for name in order:
        t = tensors[name]
        header[name] = {"dtype": names[t.dtype], "shape": list(t.shape), "data_offsets": [at, at + t.nbytes]}
        at += t.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        for name in order:
            f.write(np.ascontiguousarray(tensors[name]).tobytes())


def read(path):
    """The tensors and the metadata of a file."""
    with open(path, "rb") as f:
        content = f.read()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8:8 + length])
    metadata, data, tensors = header.pop("__metadata__", {}), content[8 + length:], {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        tensors[name] = np.frombuffer(data[begin:end], DTYPES[entry["dtype"]]).reshape(entry["shape"])
    return tensors, metadata


def checksum(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


def manifest_of(folder):
    """File -> line, from the folder's MANIFEST; files are named from the folder."""
    manifest = folder / "MANIFEST"
    lines = manifest.read_text().splitlines() if manifest.exists() else []
    return {line.split()[1]: line for line in lines}


def note_checksums(paths, folder=None):
    """Put the checksums of these files into the MANIFEST of a folder, by default the first file's; lines of other files stay."""
    folder = folder or paths[0].parent
    known = manifest_of(folder)
    for path in paths:
        name = path.relative_to(folder).as_posix()
        known[name] = f"{checksum(path)}  {name}"
    (folder / "MANIFEST").write_text("".join(known[name] + "\n" for name in sorted(known)))


def checksum_holds(folder, path):
    name = path.relative_to(folder).as_posix()
    return manifest_of(folder).get(name) == f"{checksum(path)}  {name}"


def compare(title, new, path, rounding):
    """Compare tensors with the stored ones, integers exactly, and name those that differ.  An exit status."""
    old = read(path)[0]
    wrong = [f"{key}: in one of the two only" for key in sorted(set(new) ^ set(old))]
    for key in (key for key in old if key in new):
        apart = np.abs(new[key].astype(float) - old[key]).max() / max(np.abs(old[key]).max(), 1e-300)
        if not apart <= (0 if old[key].dtype == np.dtype("<i4") else rounding):
            wrong.append(f"{key}: differs by {apart:.3g}, relative")
    for line in wrong:
        print(f"  {title}: {line}")
    if not wrong:
        print(f"  {title}: {len(old)} tensors hold")
    return 1 if wrong else 0


def command(description, path, make, check):
    """What a script that makes one file does, as its words say.  make: its tensors and metadata; check: compares them, for an exit status."""
    arguments = argparse.ArgumentParser(description=description)
    arguments.add_argument("--check", action="store_true", help="compare with the stored file instead of writing it")
    if arguments.parse_args().check:
        return check()
    write(path, *make())
    note_checksums([path])
    return 0
