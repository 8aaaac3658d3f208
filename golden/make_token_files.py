#!/usr/bin/env python3
"""Golden files of tokens, as Megatron Core's IndexedDatasetBuilder and NumPy write them.

    golden/make_token_files.py            write golden/token_files/ and its lines of golden/MANIFEST
    golden/make_token_files.py --check    make them again and compare bytes

Needs Megatron Core in Python's path, and with it PyTorch.  Token i of a file is i * 7919 modulo its vocabulary.  Documents have 1, 2 or 3
sequences, of 1 to 29 tokens.
"""
import pathlib
import sys
import tempfile

import numpy as np
import torch
from megatron.core.datasets import indexed_dataset

import tensor_file

FOLDER = pathlib.Path(__file__).resolve().parent / "token_files"
COUNT = 500
NARROW, WIDE = 50257, 128256            # vocabularies: of GPT-2, for which Megatron takes 16 bits, and of Llama 3


def tokens(vocabulary):
    return np.arange(COUNT, dtype=np.int64) * 7919 % vocabulary


def documents():
    """Lengths of sequences, a list for each document."""
    out, sequence, left = [], 0, COUNT
    while left > 0:
        document = []
        for _ in range(1 + len(out) % 3):
            document.append(min(1 + sequence * 11 % 29, left))
            left -= document[-1]
            sequence += 1
            if left == 0:
                break
        out.append(document)
    return out


def build(folder, name, vocabulary, multimodal=False):
    ids, at = torch.from_numpy(tokens(vocabulary)), 0
    builder = indexed_dataset.IndexedDatasetBuilder(str(folder / f"{name}.bin"), dtype=indexed_dataset.DType.optimal_dtype(vocabulary),
                                                    multimodal=multimodal)
    for lengths in documents():
        modes = [0] * len(lengths) if multimodal else None
        builder.add_document(ids[at:at + sum(lengths)], lengths, modes)
        at += sum(lengths)
    builder.finalize(str(folder / f"{name}.idx"))


def write(folder):
    build(folder, "megatron16", NARROW)
    build(folder, "megatron32", WIDE)
    build(folder, "multimodal", NARROW, multimodal=True)
    for name, dtype, vocabulary in (("u16", "<u2", NARROW), ("i32", "<i4", WIDE), ("u32", "<u4", WIDE), ("i64", "<i8", WIDE)):
        np.save(folder / f"{name}.npy", tokens(vocabulary).astype(dtype))
    np.save(folder / "matrix.npy", tokens(NARROW).astype("<u2").reshape(20, 25))
    return sorted(folder.iterdir())


def main():
    if sys.argv[1:] == ["--check"]:
        with tempfile.TemporaryDirectory() as place:
            made = write(pathlib.Path(place))
            wrong = [path.name for path in made if (FOLDER / path.name).read_bytes() != path.read_bytes()]
        print(f"  token_files: {len(made) - len(wrong)} of {len(made)} files hold", *wrong)
        return 1 if wrong else 0
    FOLDER.mkdir(exist_ok=True)
    tensor_file.note_checksums(write(FOLDER), FOLDER.parent)
    return 0


if __name__ == "__main__":
    sys.exit(main())
