#!/usr/bin/env python3
"""Golden codes of ZeRO++'s quantiser: what DeepSpeed's kernels make of fp16 numbers, and of their sums in two steps.

    golden/make_quantised.py            write golden/quantised.safetensors and its line of golden/MANIFEST
    golden/make_quantised.py --check    make it again and compare, bit for bit

DeepSpeed quantises on GPUs only.  Its kernels are compiled here for a processor, one thread a block, from the files of the installed
package (deepspeed_host.cpp says which); all arithmetic is theirs.  Needs a C++ compiler and an x86 processor with F16C.  How devices
exchange codes is written again below from deepspeed/runtime/comm/coalesced_collectives.py, all_to_all_quant_reduce.
"""
import ctypes
import hashlib
import importlib.metadata
import importlib.util
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

try:
    import numpy as np
except ImportError as missing:
    sys.exit(f"make_quantised.py: {missing}; golden/README.md says what to install")

import philox
import tensor_file

HERE = pathlib.Path(__file__).resolve().parent
FILE = HERE / "quantised.safetensors"
SEED = 17
GROUP = 16                      # elements that share a scale; as in deepspeed_host.cpp
NODES, DEVICES = 2, 2           # of the sums: devices of each node
GROUPS_EACH = 3                 # groups of the sum that one device keeps
WHOLE = ["includes/quantization.h", "includes/quantization_utils.h", "includes/dequantization_utils.h", "includes/conversion_utils.h",
         "includes/ds_kernel_utils.h"]
KERNELS = {"quantization/quantize.cu": "/********* Launcher methods", "quantization/swizzled_quantize.cu": "#define LAUNCH_SWIZZLE_QUANT",
           "quantization/quant_reduce.cu": "template <int Power>"}          # file -> where its kernel ends
STAND_INS = ["cuda.h", "cuda_fp16.h", "cooperative_groups.h", "memory_access_utils.h", "reduction_utils.h"]


# ---- DeepSpeed's kernels -----------------------------------------------------------------------------------------------

def sources():
    """File name -> text, of the installed package, which is not imported: it would look for GPUs."""
    found = importlib.util.find_spec("deepspeed")
    if found is None:
        sys.exit("make_quantised.py needs DeepSpeed's kernels: pip install --no-deps --no-build-isolation deepspeed==0.19.8")
    folder = pathlib.Path(found.origin).parent / "ops" / "csrc"
    texts = {name: (folder / name).read_text() for name in WHOLE}
    for name, end in KERNELS.items():
        text = (folder / name).read_text()
        assert text.count(end) >= 1, f"{name}: {end!r} is not there"
        texts[name] = text[:text.index(end)]
    return texts


def compiled(texts):
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        for file, text in texts.items():
            (folder / pathlib.Path(file).name).write_text(text)
        for file in STAND_INS:
            (folder / file).write_text('#include "deepspeed_host.h"\n')
        for file in ("deepspeed_host.h", "deepspeed_host.cpp"):
            shutil.copy(HERE / file, folder)
        subprocess.run([os.environ.get("CXX", "c++"), "-std=c++17", "-O1", "-w", "-mf16c", "-ffp-contract=off", "-fPIC", "-shared", f"-I{folder}",
                        str(folder / "deepspeed_host.cpp"), "-o", str(folder / "kernels.so")], check=True)
        return ctypes.CDLL(str(folder / "kernels.so"))


TEXTS = sources()
KERNEL = compiled(TEXTS)


def call(name, *arguments):
    getattr(KERNEL, name)(*[a.ctypes.data_as(ctypes.c_void_p) if isinstance(a, np.ndarray) else ctypes.c_int(a) for a in arguments])


def quantised(bits, x):
    groups = x.size // GROUP
    codes, scales = np.zeros(x.size * bits // 8, np.uint8), np.zeros(groups, np.float32)
    call(f"quantize{bits}", codes, scales, np.ascontiguousarray(x), groups)
    return codes, scales


def dequantised(bits, codes, scales):
    y = np.zeros(scales.size * GROUP, np.float16)
    call(f"dequantize{bits}", y, np.ascontiguousarray(codes), np.ascontiguousarray(scales), scales.size)
    return y


# ---- numbers ----------------------------------------------------------------------------------------------------------

def drawn(name, count):
    return philox.normal(SEED, name, count)


def groups():
    """fp16 groups of every kind: name -> [GROUP]."""
    x, place = drawn("x", GROUP), np.arange(GROUP)
    kinds = {f"normal.{i}": drawn(f"normal.{i}", GROUP) * 10.0 ** (i - 2) for i in range(6)}
    kinds["zeros"] = np.where(place % 3, 0.0, -0.0)
    kinds["positive"], kinds["negative"] = np.abs(x), -np.abs(x)
    kinds["ties8"] = np.where(place, (place - 8.5) * (2 * place + 1), 128.0)            # factor 1: half-integers and integers
    kinds["ties4"] = np.where(place, (place - 8) / 2, 8.0)
    kinds["all largest"], kinds["all lowest"] = np.full(GROUP, 3.25), np.full(GROUP, -3.25)
    kinds["of 65504"] = np.where(place % 2, 65504.0, -65504.0) * (1 - place / 40)
    kinds["subnormal"] = (place - 7) * 2.0 ** -24
    kinds["least"] = np.where(place == 5, 2.0 ** -24, 0.0)
    kinds["lone"] = np.where(place == 3, 1000.0, x)
    return {name: k.astype(np.float16) for name, k in kinds.items()}


# ---- sums in two steps -------------------------------------------------------------------------------------------------

def exchanged(parts):
    """All to all: member i's j-th equal part becomes member j's i-th."""
    cut = [np.split(p, len(parts)) for p in parts]
    return [np.concatenate([cut[i][j] for i in range(len(parts))]) for j in range(len(parts))]


def reduced(bits, rows):
    """The sum that each device keeps, of as many rows as devices."""
    P, each = NODES * DEVICES, GROUPS_EACH * NODES
    codes, scales, sums = [None] * P, [None] * P, [None] * P
    for r, row in enumerate(rows):
        codes[r], scales[r] = np.zeros(row.size * bits // 8, np.uint8), np.zeros(row.size // GROUP, np.float32)
        call(f"swizzle{bits}", codes[r], scales[r], row, row.size // GROUP, NODES, DEVICES)
    for node in range(NODES):
        own = slice(node * DEVICES, (node + 1) * DEVICES)
        codes[own], scales[own] = exchanged(codes[own]), exchanged(scales[own])
    for r in range(P):
        q, s = np.zeros(each * GROUP * bits // 8, np.uint8), np.zeros(each, np.float32)
        call(f"reduce{bits}", q, s, codes[r], scales[r], DEVICES, each)
        codes[r], scales[r] = q, s
    for place in range(DEVICES):
        own = slice(place, None, DEVICES)
        codes[own], scales[own] = exchanged(codes[own]), exchanged(scales[own])
        for r in range(place, P, DEVICES):
            parts = np.split(dequantised(bits, codes[r], scales[r]), NODES)
            sums[r] = sum(parts[1:], np.float16(0) + parts[0])          # in fp16; DeepSpeed then divides by the number of nodes
    return sums


# ---- the file ---------------------------------------------------------------------------------------------------------

def make():
    """fp16 numbers are kept as fp32, which holds them exactly."""
    tensors, kinds = {}, groups()
    x = np.concatenate(list(kinds.values()))
    tensors["x"] = x.astype(np.float32)
    rows = [(drawn(f"row.{r}", NODES * DEVICES * GROUPS_EACH * GROUP) * 10.0 ** (r % 3)).astype(np.float16) for r in range(NODES * DEVICES)]
    for r, row in enumerate(rows):
        tensors[f"in/{r}"] = row.astype(np.float32)
    for bits in (4, 8):
        codes, scales = quantised(bits, x)
        tensors.update({f"int{bits}.codes": codes, f"int{bits}.scales": scales, f"int{bits}.values": dequantised(bits, codes, scales).astype(np.float32)})
        tensors.update({f"int{bits}.out/{r}": y.astype(np.float32) for r, y in enumerate(reduced(bits, rows))})
    metadata = {"generator": "golden/make_quantised.py", "deepspeed": importlib.metadata.version("deepspeed"), "numpy": np.__version__,
                "block": str(GROUP), "nodes": str(NODES), "devices": str(DEVICES), "groups": ", ".join(kinds)}
    metadata.update({f"sha256 {name}": hashlib.sha256(text.encode()).hexdigest() for name, text in TEXTS.items()})
    return tensors, metadata


def check():
    new, old = make()[0], tensor_file.read(FILE)[0]
    wrong = sorted(set(new) ^ set(old)) + [key for key in sorted(set(new) & set(old)) if new[key].tobytes() != old[key].tobytes()]
    for key in wrong:
        print(f"  quantised: {key} differs")
    print(f"  quantised: {len(old)} tensors, {len(wrong)} differ")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(tensor_file.command("Make the golden codes of ZeRO++'s quantiser with DeepSpeed's kernels.", FILE, make, check))
