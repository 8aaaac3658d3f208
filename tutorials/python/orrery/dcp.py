"""Folders of PyTorch Distributed Checkpoint (torch.distributed.checkpoint), beside checkpoints of Orrery.

    orrery.read_dcp("folder")                          # arrays of numpy by name; PyTorch reads the tensors
    orrery.write_dcp("folder", {"wte.weight": array})  # any mesh of a PyTorch program loads it
    orrery.write_dcp("folder", orrery.read_checkpoint("saved")["weights"])

PyTorch must be there.  `.metadata` is a pickle: it is read by orrery.restricted, which builds only the classes below, and tensors by
torch.load with weights_only, so nothing that a folder names is run.
"""

import io
import os

import numpy

from orrery import restricted

_METADATA = "torch.distributed.checkpoint.metadata."
_CLASSES = [_METADATA + name for name in (
    "Metadata", "TensorStorageMetadata", "BytesStorageMetadata", "ChunkStorageMetadata", "TensorProperties", "MetadataIndex",
    "StorageMeta", "_MEM_FORMAT_ENCODING")] + [
    "torch.distributed.checkpoint.filesystem._StorageInfo", "torch.distributed.checkpoint.filesystem._StoragePrefix",
    "torch.distributed.checkpoint.planner.SavePlan", "torch.serialization._get_layout"]
LEAST_RANK_FILE = ".distcp"


def _listed():
    """Records for classes, and numbers or strings for what else .metadata of a folder names."""
    listed = restricted.records(_CLASSES)
    listed["torch.Size"] = lambda dims=(): tuple(dims)
    listed["collections.OrderedDict"] = dict
    listed["pathlib.PosixPath"] = lambda *parts: "/".join(parts)
    for name in ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool",
                 "float8_e4m3fn", "float8_e5m2"):
        listed[f"torch.{name}"] = name
    return listed


def _torch():
    try:
        import torch
    except ImportError:
        raise ImportError("orrery: folders of torch.distributed.checkpoint are read and written with PyTorch, which is not there") from None
    return torch


def _field(record, name, where):
    if not hasattr(record, name):
        raise ValueError(f"{where}: {getattr(record, 'of', type(record).__name__)} has no {name}")
    return getattr(record, name)


def _dims(value, where):
    if isinstance(value, restricted.Record):
        value = value.args[0] if value.args else ()
    if not isinstance(value, (tuple, list)) or not all(isinstance(n, int) and n >= 0 for n in value):
        raise ValueError(f"{where}: a shape is none")
    return tuple(value)


def dcp_shapes(folder):
    """Names and shapes of the tensors of a folder, by its .metadata alone: without PyTorch."""
    where = os.path.join(folder, ".metadata")
    metadata = restricted.load_file(where, _listed())
    tensors = _field(metadata, "state_dict_metadata", where)
    if not isinstance(tensors, dict):
        raise ValueError(f"{where}: has no list of tensors")
    return {name: _dims(_field(entry, "size", where), where) for name, entry in tensors.items()
            if getattr(entry, "of", "").endswith(".TensorStorageMetadata")}


def _pieces(metadata, where):
    """(name, offset) of each stored piece, and where it lies: file, first byte, bytes."""
    stored = {}
    for index, info in _field(metadata, "storage_data", where).items():
        offset = getattr(index, "offset", None)
        stored[_field(index, "fqn", where), None if offset is None else _dims(offset, where)] = (
            str(_field(info, "relative_path", where)), int(_field(info, "offset", where)), int(_field(info, "length", where)))
    return stored


def _numbers(torch, tensor):
    if tensor.dtype == torch.bfloat16 or str(tensor.dtype).startswith("torch.float8"):
        tensor = tensor.float()  # as read_tensors does: exactly
    return tensor.detach().numpy()


def read_dcp(folder, names=None):
    """The tensors of a folder as arrays, put together from the pieces of all ranks; names: only these."""
    torch = _torch()
    where = os.path.join(folder, ".metadata")
    metadata = restricted.load_file(where, _listed())
    shapes, stored, result = dcp_shapes(folder), _pieces(metadata, where), {}
    for name in shapes if names is None else names:
        if name not in shapes:
            raise KeyError(f"{folder}: has no {name}")
        whole, filled = None, 0
        for chunk in _field(metadata.state_dict_metadata[name], "chunks", where):
            offset, size = _dims(_field(chunk, "offsets", where), where), _dims(_field(chunk, "sizes", where), where)
            place = stored.get((name, offset), stored.get((name, None)))
            if place is None or len(offset) != len(shapes[name]) or any(o + s > d for o, s, d in zip(offset, size, shapes[name])):
                raise ValueError(f"{where}: a piece of {name} is nowhere, or outside of it")
            file, first, length = place
            if os.path.basename(file) != file or file in ("", ".", ".."):
                raise ValueError(f"{where}: {name} is said to be in {file[:80]}, outside of the folder")
            with open(os.path.join(folder, file), "rb") as data:
                data.seek(first)
                piece = torch.load(io.BytesIO(data.read(length)), map_location="cpu", weights_only=True)
            piece = _numbers(torch, piece)
            if piece.shape != size:
                raise ValueError(f"{folder}: a piece of {name} in {file} has the shape {piece.shape}, not {size}")
            if whole is None:
                whole = numpy.empty(shapes[name], piece.dtype)
            whole[tuple(slice(o, o + s) for o, s in zip(offset, size))] = piece
            filled += piece.size
        if whole is None or filled != whole.size:
            raise ValueError(f"{where}: the pieces of {name} leave holes or overlap")
        result[name] = whole
    return result


def write_dcp(folder, tensors):
    """Write arrays, by name, as a folder that torch.distributed.checkpoint loads.  An existing one is refused."""
    torch = _torch()
    from torch.distributed import checkpoint
    if os.path.exists(os.path.join(folder, ".metadata")):
        raise ValueError(f"{folder}: has a checkpoint already")
    state = {name: torch.from_numpy(numpy.array(array)) for name, array in tensors.items()}
    checkpoint.save(state, checkpoint_id=folder, no_dist=True)
