"""Reads what runs leave behind: tensors and checkpoints as arrays of numpy, traces as dicts."""

from __future__ import annotations

import json
import os
import struct
from typing import Any, Iterable, Optional, Union

import numpy

Path = Union[str, "os.PathLike[str]"]

TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
}
HEADER_LIMIT = 100_000_000


def _eight_bits(exponent_bits: int, has_infinity: bool) -> numpy.ndarray:
    """All 256 numbers of a format of 8 bits.  Without infinities only the pattern of all ones is a NaN."""
    code = numpy.arange(256)
    fraction_bits = 7 - exponent_bits
    exponent, fraction = code >> fraction_bits & (1 << exponent_bits) - 1, code & (1 << fraction_bits) - 1
    bias = (1 << exponent_bits - 1) - 1
    scale = 2.0 ** (numpy.maximum(exponent, 1) - bias - fraction_bits)
    number = (fraction + (exponent > 0) * (1 << fraction_bits)) * scale
    if has_infinity:
        top = exponent == (1 << exponent_bits) - 1
        number[top] = numpy.where(fraction[top] > 0, numpy.nan, numpy.inf)
    else:
        number[code & 127 == 127] = numpy.nan
    numbers: numpy.ndarray = numpy.where(code < 128, number, -number).astype("<f4")
    return numbers


EIGHT_BITS = {"F8_E4M3": _eight_bits(4, False), "F8_E5M2": _eight_bits(5, True)}


def _array(dtype: str, shape: list[int], data: bytes) -> numpy.ndarray:
    if dtype in EIGHT_BITS:
        numbers: numpy.ndarray = EIGHT_BITS[dtype][numpy.frombuffer(data, "u1")]
        return numbers.reshape(shape)
    if dtype == "BF16":  # the upper half of a 32-bit number
        upper = numpy.frombuffer(data, "<u2").astype("<u4") << 16
        return upper.view("<f4").reshape(shape)
    return numpy.frombuffer(data, TYPES[dtype]).reshape(shape)


def read_tensors(path: Path, names: Optional[Iterable[str]] = None) -> dict[str, numpy.ndarray]:
    """A safetensors file as a dict of arrays; names: only these.  BF16 and F8 become 32-bit numbers, exactly."""
    with open(path, "rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else HEADER_LIMIT + 1
        if length > HEADER_LIMIT:
            raise ValueError(f"{path}: is no safetensors file")
        try:
            header = json.loads(file.read(length))
        except ValueError as why:
            raise ValueError(f"{path}: its header is no JSON: {why}") from None
        header.pop("__metadata__", None)
        names = list(header if names is None else names)
        missing = [name for name in names if name not in header]
        if missing:
            raise KeyError(f"{path}: has no {missing[0]}")
        tensors = {}
        for name in names:
            entry = header[name]
            if entry["dtype"] not in {"BF16", *EIGHT_BITS, *TYPES}:
                raise ValueError(f"{path}: {name} has numbers of format {entry['dtype']}, which numpy lacks")
            begin, end = entry["data_offsets"]
            file.seek(8 + length + begin)
            data = file.read(end - begin)
            if len(data) != end - begin:
                raise ValueError(f"{path}: ends inside {name}")
            tensors[name] = _array(entry["dtype"], entry["shape"], data)
        return tensors


def write_tensors(path: Path, tensors: dict[str, numpy.ndarray]) -> None:
    """Write arrays, by name, as a safetensors file, which the program reads (`--model DIR`, `orrery tensors`)."""
    names = {numpy.dtype(numpy_name).str: name for name, numpy_name in TYPES.items()}
    header, parts, at = {}, [], 0
    for name, array in tensors.items():
        array = numpy.asarray(array)
        dtype = names.get(array.dtype.newbyteorder("<").str)
        if dtype is None:
            raise ValueError(f"{path}: {name} has numbers of {array.dtype}, which a safetensors file cannot have")
        data = array.astype(array.dtype.newbyteorder("<")).tobytes()
        header[name] = {"dtype": dtype, "shape": list(array.shape), "data_offsets": [at, at + len(data)]}
        parts.append(data)
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    temporary = f"{path}.tmp.{os.getpid()}"
    with open(temporary, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        file.writelines(parts)
    os.replace(temporary, path)


def read_checkpoint(folder: Path) -> dict[str, Any]:
    """A folder of `orrery train --save`: {"weights": .., "optimizer": .., "training": .., "config": ..}."""
    def document(name: str) -> Any:
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            return json.load(file)

    return {
        "weights": read_tensors(os.path.join(folder, "model.safetensors")),
        "optimizer": read_tensors(os.path.join(folder, "optimizer.safetensors")),
        "training": document("training.json"),
        "config": document("config.json"),
    }


def read_trace(path: Path) -> list[dict[str, Any]]:
    """The slices of `orrery train --trace`: dicts with device, lane, name, start_us, us and args."""
    with open(path, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    device, lane = {}, {}
    for event in events:
        if event["ph"] == "M" and event["name"] == "process_name":
            device[event["pid"]] = event["args"]["name"]
        if event["ph"] == "M" and event["name"] == "thread_name":
            lane[event["pid"], event["tid"]] = event["args"]["name"]
    return [
        {"device": device.get(event["pid"], event["pid"]), "lane": lane.get((event["pid"], event["tid"]), event["tid"]),
         "name": event["name"], "start_us": event["ts"], "us": event["dur"], "args": event.get("args", {})}
        for event in events if event["ph"] == "X"
    ]
