"""Reads what runs leave behind: tensors and checkpoints as arrays of numpy, traces as dicts."""

import json
import os
import struct

import numpy

TYPES = {
    "F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "I32": "<i4", "I16": "<i2", "I8": "i1",
    "U64": "<u8", "U32": "<u4", "U16": "<u2", "U8": "u1", "BOOL": "?",
}
HEADER_LIMIT = 100_000_000


def _array(dtype, shape, data):
    if dtype == "BF16":  # the upper half of a 32-bit number
        upper = numpy.frombuffer(data, "<u2").astype("<u4") << 16
        return upper.view("<f4").reshape(shape)
    return numpy.frombuffer(data, TYPES[dtype]).reshape(shape)


def read_tensors(path, names=None):
    """A safetensors file as a dict of arrays; names: only these.  BF16 becomes 32-bit numbers, exactly."""
    with open(path, "rb") as file:
        start = file.read(8)
        length = struct.unpack("<Q", start)[0] if len(start) == 8 else HEADER_LIMIT + 1
        if length > HEADER_LIMIT:
            raise ValueError(f"{path}: is no safetensors file")
        header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        missing = [name for name in names or [] if name not in header]
        if missing:
            raise KeyError(f"{path}: has no {missing[0]}")
        tensors = {}
        for name in names or header:
            entry = header[name]
            begin, end = entry["data_offsets"]
            file.seek(8 + length + begin)
            data = file.read(end - begin)
            if len(data) != end - begin:
                raise ValueError(f"{path}: ends inside {name}")
            tensors[name] = _array(entry["dtype"], entry["shape"], data)
        return tensors


def read_checkpoint(folder):
    """A folder of `orrery train --save`: {"weights": .., "optimizer": .., "training": .., "config": ..}."""
    def document(name):
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            return json.load(file)

    return {
        "weights": read_tensors(os.path.join(folder, "model.safetensors")),
        "optimizer": read_tensors(os.path.join(folder, "optimizer.safetensors")),
        "training": document("training.json"),
        "config": document("config.json"),
    }


def read_trace(path):
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
