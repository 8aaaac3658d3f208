#!/usr/bin/env python3
"""Golden tensors for ref/sphere: spherical harmonics, local convolution and CRPS, as FourCastNet 3's code computes them.

    golden/make_spatial.py            write golden/spatial.safetensors and its line of golden/MANIFEST
    golden/make_spatial.py --check    make it again, compare with the stored one and name the tensors that differ

Transforms and convolution are torch-harmonics' (pip install torch-harmonics==0.9.1), in fp64, with gradients by autograd.  The score is makani's: CRPS_LOSS says where
makani/utils/losses/crps_loss.py of NVIDIA/makani at 2dfc4c8 is.  Of that file two functions are run, unchanged; the rest needs a cluster.

golden/README.md says what is in the file.
"""
import ast
import hashlib
import math
import os
import pathlib
import sys
from unittest import mock

import numpy as np
import torch

# Its compiled kernels fit one PyTorch only; without them it computes by PyTorch's operations.  Its attention is not needed.
for module in ("attention", "disco.optimized", "disco.optimized.disco_optimized"):
    sys.modules[f"torch_harmonics.{module}"] = mock.Mock()
sys.modules["disco_helpers"] = mock.Mock(optimized_kernels_is_available=lambda: False)
import torch_harmonics
from torch_harmonics.quadrature import clenshaw_curtiss_weights

import philox
import tensor_file

HERE = pathlib.Path(__file__).resolve().parent
FILE = HERE / "spatial.safetensors"
CRPS_SHA256 = "e3d76e02b2cde642f569bf5458e0b005a8c2b979b1b71a58b1109b63b061902a"
NLAT, NLON = 13, 24
SHAPES = {"equiangular": dict(), "cut": dict(lmax=5), "legendre-gauss": dict()}         # `cut`: fewer degrees than the grid has
BATCH, IN, OUT, KERNEL = 2, 2, 3, (3, 3)
MEMBERS, ALPHA, CHANNELS = 3, 0.75, 2
ROUNDING = 1e-13


def drawn(name, *shape):
    """Numbers between -1 and 1."""
    return torch.from_numpy(2 * philox.uniform(1, name, math.prod(shape)).astype("<f8").reshape(shape) - 1)


def real(t):
    return torch.view_as_real(t).contiguous() if t.is_complex() else t


def passes(tensors, name, function, given):
    """Forward and backward of a function; complex numbers are two real ones."""
    x = given.clone().requires_grad_()
    out = function(x)
    slope = drawn(f"{name}/d_out", *real(out).shape)
    (real(out) * slope).sum().backward()
    tensors.update({f"{name}/in": given, f"{name}/out": real(out), f"{name}/d_out": slope, f"{name}/d_in": x.grad})


def transforms(tensors):
    for case, shape in SHAPES.items():
        grid = "equiangular" if case == "cut" else case
        analysis = torch_harmonics.RealSHT(NLAT, NLON, grid=grid, **shape)
        synthesis = torch_harmonics.InverseRealSHT(NLAT, NLON, grid=grid, **shape)
        passes(tensors, f"{case}/analysis", analysis, drawn(f"{case}/analysis/in", 1, NLAT, NLON))
        given = drawn(f"{case}/synthesis/in", 1, analysis.lmax, analysis.mmax, 2)
        passes(tensors, f"{case}/synthesis", lambda c: synthesis(torch.view_as_complex(c)), given)


def convolution(tensors):
    layer = torch_harmonics.DiscreteContinuousConvS2(
        IN, OUT, (NLAT, NLON), (NLAT, NLON), KERNEL, basis_type="harmonic", basis_norm_mode="mean", bias=False,
        theta_cutoff=(KERNEL[0] + 1) * 0.5 * math.pi / (NLAT - 1), optimized_kernel=False).double()
    weight = drawn("convolution/weight", *layer.weight.shape)
    layer.weight.data.copy_(weight)
    passes(tensors, "convolution", layer, drawn("convolution/in", BATCH, IN, NLAT, NLON))
    tensors.update({"convolution/weight": weight, "convolution/d_weight": layer.weight.grad})


def released_score():
    path = pathlib.Path(os.environ["CRPS_LOSS"])
    if hashlib.sha256(path.read_bytes()).hexdigest() != CRPS_SHA256:
        sys.exit(f"{path} is not makani's crps_loss.py at 2dfc4c8")
    wanted = ("rankdata", "_crps_skillspread_kernel")
    body = [f for f in ast.parse(path.read_text()).body if isinstance(f, ast.FunctionDef) and f.name in wanted]
    names = {"torch": torch}
    exec(compile(ast.Module(body, []), str(path), "exec"), names)
    return names["_crps_skillspread_kernel"]


def score(tensors):
    kernel = released_score()
    points = NLAT * NLON
    area = (clenshaw_curtiss_weights(NLAT, -1, 1)[1].unsqueeze(1) / NLON / 2).tile(1, NLON).reshape(points)
    observed, forecasts = drawn("crps/observed", CHANNELS, points), drawn("crps/in", MEMBERS, CHANNELS, points)
    forecasts[1, 0, :5] = forecasts[0, 0, :5]                       # members that agree
    observed[1, 7] = math.nan

    def loss(f):
        return (kernel(observed, f, torch.ones_like(f), ALPHA) * area).sum(-1)

    passes(tensors, "crps", loss, forecasts)
    tensors["crps/observed"] = torch.nan_to_num(observed, nan=1e300)  # 1e300: not observed


def make():
    tensors = {}
    transforms(tensors)
    convolution(tensors)
    score(tensors)
    metadata = {"generator": "golden/make_spatial.py", "alpha": repr(ALPHA), "numpy": np.__version__, "torch": torch.__version__,
                "torch-harmonics": torch_harmonics.__version__, "makani": "2dfc4c8"}
    return {name: t.detach().numpy().astype("<f8") for name, t in tensors.items()}, metadata


def check():
    new, old = make()[0], tensor_file.read(FILE)[0]
    wrong = [f"{key}: in one of the two only" for key in sorted(set(new) ^ set(old))]
    for key in (key for key in old if key in new):
        apart = np.abs(new[key] - old[key]).max() / np.abs(old[key]).max()
        if not apart <= ROUNDING:
            wrong.append(f"{key}: differs by {apart:.3g}, relative")
    for line in wrong:
        print(f"  spatial: {line}")
    if not wrong:
        print(f"  spatial: {len(old)} tensors hold")
    return 1 if wrong else 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    philox.known_answers()
    sys.exit(tensor_file.command("Make the golden tensors of the sphere with torch-harmonics and makani.", FILE, make, check))
