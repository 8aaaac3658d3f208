#!/usr/bin/env python3
"""Golden tensors for ref/weather: a whole FourCastNet 3 of tiny size, its ensemble loss and gradients, as the released code computes them.

    golden/make_weather.py            write golden/weather.safetensors and its line of golden/MANIFEST
    golden/make_weather.py --check    make it again, compare with the stored one and name the tensors that differ

The network is makani's AtmoSphericNeuralOperatorNet with its blocks, layers and losses: MAKANI says where the folder makani/ of NVIDIA/makani at 2dfc4c8 is.  Transforms
and convolutions are torch-harmonics' (pip install torch-harmonics==0.9.1).  Of makani's files the classes and functions that WANTED names are run.  Two things are
changed: they get a `torch` whose float32 is float64, and modules stay in double where they say .float(); and its communication says that there is one device.

golden/README.md says what is in the file.
"""
import ast
import hashlib
import math
import os
import pathlib
import re
import sys
import types
from unittest import mock

import numpy as np
import torch

# Its compiled kernels fit one PyTorch only; without them it computes by PyTorch's operations.  Its attention is not needed.
for module in ("attention", "disco.optimized", "disco.optimized.disco_optimized"):
    sys.modules[f"torch_harmonics.{module}"] = mock.Mock()
sys.modules["disco_helpers"] = mock.Mock(optimized_kernels_is_available=lambda: False)
import torch_harmonics
import torch_harmonics.disco.convolution
from torch_harmonics.quadrature import clenshaw_curtiss_weights

import philox
import tensor_file

HERE = pathlib.Path(__file__).resolve().parent
FILE = HERE / "weather.safetensors"
WANTED = {
    "models/common/layers.py": ("8f4d74906042cd66f1eb6c5da9b21bf3182d0e06cb34fcfc9414bbe0dcba1b4a", ("LayerScale", "MLP", "drop_path", "DropPath")),
    "models/common/contractions.py": ("cf26879de76b40020880986949d7a754eef623a9fc52fea3e9b0e7ebf8d3cfd4", ("_contract_lmwise", "_contract_lwise", "_contract_sep_lmwise",
                                                                                                        "_contract_sep_lwise", "_contract_dense_pytorch")),
    "models/common/spectral_convolution.py": ("50fd7aae64ca98ab578931ad5d08de51a90741fbef72852075d0ed4896c1ab1e", ("SpectralConv",)),
    "utils/features.py": ("269513c17ae00aee2d58eee076fa3276011131c82b56dadaac248bb91112eb79", ("get_water_channels", "get_channel_groups")),
    "models/networks/fourcastnet3.py": ("33686ce644fe020e3dc1f1cc3bec48c88b7270fcd0b8a1f2d5aa394e7e56fe4f",
                                        ("_compute_cutoff_radius", "_soft_clamp", "_get_norm_layer_handle", "DiscreteContinuousEncoder", "DiscreteContinuousDecoder",
                                         "NeuralOperatorBlock", "AtmoSphericNeuralOperatorNet")),
    "utils/losses/crps_loss.py": ("e3d76e02b2cde642f569bf5458e0b005a8c2b979b1b71a58b1109b63b061902a", ("rankdata", "_crps_ensemble_kernel", "_crps_skillspread_kernel")),
}
# ref/weather's fourcastnet-tiny.
NLAT, NLON, DEGREES = 13, 24, 7
CHANNELS = ["u500", "v500", "u850", "v850", "u10m", "v10m"]
SIZES = dict(model_grid_type="equiangular", sht_grid_type="equiangular", inp_shape=(NLAT, NLON), out_shape=(NLAT, NLON), kernel_shape=(3, 3),
             filter_basis_type="harmonic", filter_basis_norm_mode="mean", scale_factor=1, channel_names=CHANNELS, aux_channel_names=["xnoise0"],
             atmo_embed_dim=4, surf_embed_dim=4, aux_embed_dim=2, num_layers=2, use_mlp=True, mlp_ratio=2.0, activation_function="gelu", layer_scale=True,
             normalization_layer="none", max_modes=(DEGREES, DEGREES), sfno_block_frequency=2, bias=False)
BATCH, MEMBERS = 2, 3
SCORES = {"fair": 1.0, "biased": 0.0}
ROUNDING = 1e-12


class Doubles(types.ModuleType):
    """torch, whose float32 is float64, and complex64 complex128."""
    float32, complex64 = torch.float64, torch.complex128

    def __getattr__(self, name):
        return getattr(torch, name)


def released():
    """The released classes and functions, in one space of names."""
    torch.set_default_dtype(torch.float64)
    torch.nn.Module.float = lambda module: module
    one = mock.Mock(get_size=lambda name: 1, get_rank=lambda name: 0, is_distributed=lambda name: False)
    harmonics = mock.Mock(DistributedInverseRealSHT=type("never", (), {}))
    names = {"torch": Doubles("torch"), "nn": torch.nn, "amp": torch.amp, "math": math, "np": np, "re": re, "comm": one, "th": torch_harmonics, "thd": harmonics,
             "OrderedDict": __import__("collections").OrderedDict, "partial": __import__("functools").partial, "checkpoint": torch.utils.checkpoint.checkpoint,
             "EncoderDecoder": None, "DistributedMLP": None, "_TE_AVAILABLE": False, "Optional": __import__("typing").Optional}
    for path, (checksum, wanted) in WANTED.items():
        text = (pathlib.Path(os.environ["MAKANI"]) / path).read_bytes()
        if hashlib.sha256(text).hexdigest() != checksum:
            sys.exit(f"{path} is not makani's at 2dfc4c8")
        body = [n for n in ast.parse(text).body if isinstance(n, (ast.FunctionDef, ast.ClassDef)) and n.name in wanted]
        exec(compile(ast.Module(body, []), path, "exec"), names)
    return names


def drawn(name, *shape):
    """Numbers between -1 and 1."""
    return torch.from_numpy(2 * philox.uniform(1, name, math.prod(shape)).astype("<f8").reshape(shape) - 1)


def real(t):
    return torch.view_as_real(t).contiguous() if t.is_complex() else t


def scored(names, forecasts, observed, alpha):
    """The mean over samples and channels of makani's score, with the weights of its quadrature.  forecasts: [members, samples, channels, points]."""
    area = (clenshaw_curtiss_weights(NLAT, -1, 1)[1].unsqueeze(1) / NLON / 2).tile(1, NLON).reshape(-1)
    if alpha == 0:                                                  # `cdf`: the score of the ensemble as a distribution
        ordered = torch.sort(forecasts, dim=0)[0]
        score = names["_crps_ensemble_kernel"](observed, ordered, torch.ones_like(ordered))
        return (score.reshape(observed.shape) * area).sum(-1).mean()
    return (names["_crps_skillspread_kernel"](observed, forecasts, torch.ones_like(forecasts), alpha) * area).sum(-1).mean()


def psi(convolution):
    """The released filter as ref/sphere has it: [points, functions], by output row, input row and longitude."""
    k, row, column = (getattr(convolution, f"psi_{axis}_idx").tolist() for axis in ("ker", "row", "col"))
    places = sorted(set(zip(row, column)))
    where, out = {place: i for i, place in enumerate(places)}, torch.zeros(len(places), max(k) + 1)
    for function, t, at, value in zip(k, row, column, convolution.psi_vals.tolist()):
        out[where[t, at], function] = value
    return out


def make():
    names = released()
    model = names["AtmoSphericNeuralOperatorNet"](**SIZES)
    tensors = {}
    for name, p in model.named_parameters():
        size = 0.1 if "layer_scale" in name else 0.3
        value = size * drawn(f"weight/{name}", *real(p.data).shape) + (0.2 if "layer_scale" in name else 0)
        p.data.copy_(torch.view_as_complex(value) if p.is_complex() else value)
        tensors[f"weight/{name}"] = value
    state, noise = drawn("state", BATCH, len(CHANNELS), NLAT, NLON), drawn("noise", MEMBERS, BATCH, 1, NLAT, NLON)
    observed = drawn("next", BATCH, len(CHANNELS), NLAT, NLON)
    tensors.update({"state": state, "noise": noise, "next": observed})
    given = torch.cat((state.expand(MEMBERS, *state.shape), noise), 2).reshape(MEMBERS * BATCH, -1, NLAT, NLON)
    for case, alpha in SCORES.items():
        model.zero_grad()
        forecast = model(given)
        loss = scored(names, forecast.reshape(MEMBERS, BATCH, len(CHANNELS), -1), observed.reshape(BATCH, len(CHANNELS), -1), alpha)
        loss.backward()
        tensors[f"{case}/loss"] = loss.reshape(1)
        tensors.update({f"{case}/d/{name}": real(p.grad).clone() for name, p in model.named_parameters()})
    tensors["forecast"] = forecast
    tensors.update({"psi/ends": psi(model.atmo_encoder.conv), "psi/blocks": psi(model.blocks[1].local_conv)})
    metadata = {"generator": "golden/make_weather.py", "numpy": np.__version__, "torch": torch.__version__, "torch-harmonics": torch_harmonics.__version__, "makani": "2dfc4c8"}
    return {name: t.detach().numpy().astype("<f8") for name, t in tensors.items()}, metadata


def check():
    return tensor_file.compare("weather", make()[0], FILE, ROUNDING)


if __name__ == "__main__":
    torch.set_num_threads(1)
    philox.known_answers()
    sys.exit(tensor_file.command("Make the golden tensors of a weather model with makani and torch-harmonics.", FILE, make, check))
