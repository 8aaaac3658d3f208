#!/usr/bin/env python3
"""Golden balance loss of sequences with padding: transformers' own function and autograd, in fp64.

    golden/make_padding.py            write golden/padding.safetensors and its line of golden/MANIFEST
    golden/make_padding.py --check    make it again, compare with the stored one and name the tensors that differ

The function is `load_balancing_loss_func` of Mixtral, unchanged, with an attention mask.  It computes in fp32; its module is given a
torch whose float32 is float64.  golden/README.md says what is in the file.
"""
import os
import pathlib
import sys

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

try:
    import numpy as np
    import torch
    import transformers
    from transformers.models.mixtral import modeling_mixtral
except ImportError as missing:
    sys.exit(f"make_padding.py: {missing}; golden/README.md says what to install")

import philox
import tensor_file

HERE = pathlib.Path(__file__).resolve().parent
FILE = HERE / "padding.safetensors"
SEED, LAYERS, S = 23, 3, 7
MARGIN = 1e-6                                   # logits of a row are further apart than this, so that rounding changes no choice
ROUNDING = 1e-13                                # relative, that another PyTorch may differ by

# name -> tokens before the padding of each sequence, E, k
CASES = {"none": ([7, 7], 5, 2), "some": ([7, 4, 1], 5, 2), "most": ([1, 2], 8, 1), "all-chosen": ([3, 6], 4, 4)}


class Wide:
    """`torch` for the module of transformers: its float32 is float64."""

    def __getattr__(self, name):
        return torch.float64 if name == "float32" else getattr(torch, name)


def case(name, real, E, k):
    rows = LAYERS * len(real) * S
    logits = torch.from_numpy(2 * philox.normal(SEED, name + "/logits", rows * E).reshape(rows, E).astype(np.float64))
    near = torch.sort(logits, dim=-1)[0].diff(dim=-1).min()
    assert near > MARGIN, f"two logits are {near} apart: draw others"
    logits.requires_grad_()
    mask = torch.tensor([[int(at < n) for at in range(S)] for n in real])
    loss = modeling_mixtral.load_balancing_loss_func(tuple(logits.chunk(LAYERS)), E, k, mask)
    loss.backward()
    return {f"{name}/logits": logits.detach().numpy().astype("<f8"), f"{name}/dlogits": logits.grad.numpy().astype("<f8"),
            f"{name}/loss": loss.detach().reshape(1).numpy().astype("<f8"), f"{name}/mask": mask.numpy().astype("<i4")}


def make():
    torch.Tensor.float = torch.Tensor.double
    modeling_mixtral.torch = Wide()
    tensors = {}
    metadata = {"generator": "golden/make_padding.py", "cases": " ".join(CASES), "layers": str(LAYERS), "numpy": np.__version__,
                "torch": torch.__version__, "transformers": transformers.__version__}
    for name, (real, E, k) in CASES.items():
        tensors.update(case(name, real, E, k))
        metadata[f"{name}.choices"] = str(k)
    return tensors, metadata


def check():
    return tensor_file.compare("padding", make()[0], FILE, ROUNDING)


if __name__ == "__main__":
    torch.set_num_threads(1)
    philox.known_answers()
    sys.exit(tensor_file.command("Make the golden balance loss of sequences with padding with transformers.", FILE, make, check))
