#!/usr/bin/env python3
"""Golden steps, loss scales and initial values of released packages, for the profiles of `--as` (ref/optim/conventions.h).

    golden/make_profiles.py            write golden/profiles.safetensors and its line of golden/MANIFEST
    golden/make_profiles.py --check    make it again and compare

Each package runs its own code: torch.optim, clip_grad_norm_ and GradScaler; Megatron Core's clip_grads.py and grad_scaler.py, with
the fused optimizers of Apex that it imports; DeepSpeed's clipping, its loss scaler and its FusedAdam; galore_torch's AdamW.  torch and
galore_torch compute in fp64.  The others compute in fp32 whatever one does: their inputs are exact in fp32.  What is added from outside:

  - Kernels are CUDA's.  They are compiled for a processor, with one thread (optimizer_host.cpp says how); all arithmetic is in the
    released files.  APEX names a folder with multi_tensor_adam.cu and multi_tensor_sgd_kernel.cu of NVIDIA/apex at 6424da3.
  - Megatron's modules are given a `torch` whose "cuda" is the CPU and whose all-reduce is that of one process; gradients say that
    they are fp32 tensors of a GPU.
  - DeepSpeed is not imported, since it looks for GPUs: classes and functions are taken from its files.
"""
import ast
import ctypes
import hashlib
import importlib.metadata
import importlib.util
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import types
import warnings

import numpy as np
import torch
from transformers import LlamaConfig, LlamaForCausalLM        # before make_galore, which has a stand-in for transformers

import make_galore
import philox
import tensor_file

HERE = pathlib.Path(__file__).resolve().parent
FILE = HERE / "profiles.safetensors"
SEED, STEPS, CLIP = 31, 5, 0.05
SIZES = [1e-2, 4e-3, 1e-2, 7e-3, 2e-2]                  # of gradients: in steps 2 and 4 they are not clipped, in the others they are
NUMBERS = {"lr": 0.01, "beta1": 0.9, "beta2": 0.999, "eps": 1e-3, "weight_decay": 0.3, "momentum": 0.8}
SHAPES = {"one.weight": (7, 5), "one.bias": (5,), "two.weight": (4, 7)}
APEX = {"multi_tensor_adam.cu": "b176d090815fa0262dcddd5e1df2a9053e3f9b8d19ee9f687d71ee8aa6878efc", "multi_tensor_sgd_kernel.cu": "4a401527e6d0c5c7c4bacd7e7a75baff82006241ddf3d4bd40ee270f9d21d3f1"}
STAND_INS = ["ATen/ATen.h", "ATen/AccumulateType.h", "ATen/cuda/CUDAContext.h", "ATen/cuda/Exceptions.h", "cuda_runtime.h",
             "multi_tensor_apply.cuh", "type_shim.h"]
OVERFLOWS = "....x...x.xx.......xxxxxxxxxx.............x.x.x.x.........."         # x: gradients of this step overflow


def drawn(name, shape, size=1.0):
    x = philox.normal(SEED, name, int(np.prod(shape))).reshape(shape) * size
    return torch.from_numpy(x.astype(np.float32).astype(np.float64))


def gradient(name, t):
    return drawn(f"gradient.{name}.{t}", SHAPES[name], SIZES[t - 1])


# ---- the packages' code ------------------------------------------------------------------------------------------------

def source(package, file):
    found = importlib.util.find_spec(package)
    if found is None:
        sys.exit(f"make_profiles.py: {package} is not installed; golden/README.md says what to install")
    return (pathlib.Path(list(found.submodule_search_locations)[0]) / file).read_text()


def taken(text, names, around):
    """Top-level definitions, or methods as functions, of a file, with what they refer to."""
    tree = ast.parse(text)
    found = {x.name: x for x in ast.walk(tree) if isinstance(x, (ast.ClassDef, ast.FunctionDef)) and x.name in names}
    module = dict(around)
    for name in names:
        exec(compile(ast.Module([found[name]], []), "released code", "exec"), module)
    return module


def default(text, owner, name):
    """What a class declares a field to be at first."""
    body = next(x for x in ast.walk(ast.parse(text)) if isinstance(x, ast.ClassDef) and x.name == owner).body
    value = next(x.value for x in body if isinstance(x, ast.AnnAssign) and x.target.id == name)
    return float(eval(compile(ast.Expression(value), "default", "eval")))


def kernel(name, text, defines=()):
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        (folder / "kernel.cu").write_text(text)
        for file in STAND_INS:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text('#include "optimizer_host.h"\n')
        subprocess.run([os.environ.get("CXX", "c++"), "-std=c++17", "-O1", "-w", "-ffp-contract=off", "-fPIC", "-shared", f"-I{folder}",
                        f"-I{HERE}", '-DKERNEL="kernel.cu"', *defines, str(HERE / "optimizer_host.cpp"), "-o", str(folder / f"{name}.so")],
                       check=True)
        return ctypes.CDLL(str(folder / f"{name}.so"))


def apex(file):
    folder = os.environ.get("APEX")
    if folder is None:
        sys.exit("make_profiles.py: APEX must name a folder with " + " and ".join(APEX) + " of NVIDIA/apex at 6424da3")
    content = (pathlib.Path(folder) / file).read_bytes()
    if hashlib.sha256(content).hexdigest() != APEX[file]:
        sys.exit(f"make_profiles.py: {file} is not that of NVIDIA/apex at 6424da3: {hashlib.sha256(content).hexdigest()}")
    return content.decode()


def fp32(*arrays):
    return [a.ctypes.data_as(ctypes.c_void_p) for a in arrays]


def floats(*numbers):
    return [ctypes.c_float(x) for x in numbers]


class OneProcess:
    """torch, for code of a process with a GPU: "cuda" is the CPU, and there is nobody to reduce with."""
    distributed = types.SimpleNamespace(all_reduce=lambda *a, **k: None, ReduceOp=torch.distributed.ReduceOp, ProcessGroup=object)

    def tensor(self, data, dtype=None, device=None):
        return torch.tensor(data, dtype=dtype)

    def zeros(self, *shape, dtype=None, device=None):
        return torch.zeros(*shape, dtype=dtype)

    def __getattr__(self, name):
        return getattr(torch, name)


class OnGpu(torch.Tensor):
    def type(self):
        return "torch.cuda.FloatTensor"


with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import megatron.core.optimizer as megatron_optimizer
    import megatron.core.optimizer.clip_grads as megatron_clip
    import megatron.core.optimizer.grad_scaler as megatron_scaler
    import megatron.core.utils as megatron_utils
megatron_clip.torch = megatron_scaler.torch = OneProcess()


# ---- clipping, and then a step: each takes weights, gradients and states in place ---------------------------------------------

def parameters(dtype):
    return {name: torch.nn.Parameter(drawn(f"start.{name}", shape).to(dtype)) for name, shape in SHAPES.items()}


def by_torch(W, make_optimizer, clip=lambda W: torch.nn.utils.clip_grad_norm_(list(W.values()), CLIP)):
    """Weights after each step, and the optimizer's states at the end."""
    optimizer, out = make_optimizer(list(W.values())), {}
    for t in range(1, STEPS + 1):
        for name, w in W.items():
            w.grad = gradient(name, t).to(w.dtype)
        clip(W)
        optimizer.step()
        out.update({f"{name}.weight.{t}": w.detach().clone() for name, w in W.items()})
    for name, w in W.items():
        for key, x in optimizer.state[w].items():
            if torch.is_tensor(x) and x.shape == w.shape:
                out[f"{name}.{key}"] = x
    return out


def torch_adamw(p):
    n = NUMBERS
    return torch.optim.AdamW(p, lr=n["lr"], betas=(n["beta1"], n["beta2"]), eps=n["eps"], weight_decay=n["weight_decay"])


def torch_sgd(momentum):
    return lambda p: torch.optim.SGD(p, lr=NUMBERS["lr"], momentum=momentum, weight_decay=NUMBERS["weight_decay"])


def galore_adamw(correct_bias):
    n = NUMBERS
    return lambda p: make_galore.AdamW(p, lr=n["lr"], betas=(n["beta1"], n["beta2"]), eps=n["eps"], weight_decay=n["weight_decay"],
                                       correct_bias=correct_bias, no_deprecation_warning=True)


def megatron_clips(grads):
    fake = [types.SimpleNamespace(grad=g.as_subclass(OnGpu)) for g in grads.values()]
    utils, megatron_utils.torch = megatron_utils.torch, megatron_clip.torch
    norm = megatron_clip.get_grad_norm_fp32([p.grad for p in fake])
    megatron_clip.clip_grad_by_total_norm_fp32(fake, CLIP, norm)
    megatron_utils.torch = utils


ZERO = source("deepspeed", "runtime/zero/stage_1_and_2.py")
UNSCALE = taken(ZERO, ["unscale_and_clip_grads"], {"torch": torch, "is_invalid_grad_norm": lambda norm: False})["unscale_and_clip_grads"]


def deepspeed_clips(grads):
    norm = torch.sqrt(sum(g.double().norm() ** 2 for g in grads.values())).float()
    UNSCALE(types.SimpleNamespace(loss_scale=1.0, clip_grad=CLIP), list(grads.values()), norm)


def megatron_decay(name, w):
    """The decay of a parameter in the groups that Megatron makes by default."""
    overrides = megatron_optimizer.get_standard_config_overrides(megatron_optimizer.OptimizerConfig(optimizer="adam", lr=1.0))
    factors = [o["wd_mult"] for key, o in overrides.items() if "wd_mult" in o and key.matches(w, name)]
    return NUMBERS["weight_decay"] * (factors[0] if factors else 1.0)


def by_kernel(clip, step, states, decay):
    """The same in fp32: step(g, w, states, t, decay) is a kernel."""
    W, out = {name: w.detach() for name, w in parameters(torch.float32).items()}, {}
    S = {name: [torch.zeros_like(w) for _ in range(2)] for name, w in W.items()}
    for t in range(1, STEPS + 1):
        G = {name: gradient(name, t).float() for name in SHAPES}
        clip(G)
        for name, w in W.items():
            step(G[name].numpy(), w.numpy(), [s.numpy() for s in S[name]], t, decay(name, w))
            out[f"{name}.weight.{t}"] = w.clone()
    out.update({f"{name}.{key}": S[name][i] for name in W for i, key in enumerate(states)})
    return out


def adam_kernel(library):
    n = NUMBERS
    return lambda g, w, s, t, decay: library.adam(*fp32(g, w, s[0], s[1]), g.size, t, *floats(n["lr"], n["beta1"], n["beta2"], n["eps"], decay))


def sgd_kernel(library, momentum):
    return lambda g, w, s, t, decay: library.sgd(*fp32(g, w, s[0]), g.size, t, *floats(NUMBERS["lr"], momentum, decay))


def steps():
    """Case -> its `--as`, optimizer and format, and tensors."""
    n, moments = NUMBERS, ["exp_avg", "exp_avg_sq"]
    wide, narrow = lambda: parameters(torch.float64), lambda: parameters(torch.float32)
    apex_adam = adam_kernel(kernel("apex_adam", apex("multi_tensor_adam.cu"), ["-DADAM"]))
    apex_sgd = kernel("apex_sgd", apex("multi_tensor_sgd_kernel.cu"))
    ds_adam = adam_kernel(kernel("ds_adam", source("deepspeed", "ops/csrc/adam/multi_tensor_adam.cu"), ["-DADAM"]))
    clip = lambda W: deepspeed_clips({name: w.grad for name, w in W.items()})
    all_decay = lambda name, w: n["weight_decay"]
    return {
        "torch.adamw": ("torch", "adamw", "fp64", by_torch(wide(), torch_adamw)),
        "torch.sgd": ("torch", "sgd", "fp64", by_torch(wide(), torch_sgd(0))),
        "torch.momentum": ("torch", "momentum", "fp64", by_torch(wide(), torch_sgd(n["momentum"]))),
        "galore-torch.adamw": ("galore-torch", "adamw", "fp64", by_torch(wide(), galore_adamw(True))),
        "galore-torch.uncorrected": ("galore-torch,bias-correction=no", "adamw", "fp64", by_torch(wide(), galore_adamw(False))),
        "megatron.adamw": ("megatron", "adamw", "fp32", by_kernel(megatron_clips, apex_adam, moments, megatron_decay)),
        "megatron.sgd": ("megatron", "sgd", "fp32", by_kernel(megatron_clips, sgd_kernel(apex_sgd, 0), [], megatron_decay)),
        "megatron.momentum": ("megatron", "momentum", "fp32",
                              by_kernel(megatron_clips, sgd_kernel(apex_sgd, n["momentum"]), ["momentum_buffer"], megatron_decay)),
        "deepspeed.adamw": ("deepspeed", "adamw", "fp32", by_kernel(deepspeed_clips, ds_adam, moments, all_decay)),
        "deepspeed.momentum": ("deepspeed", "momentum", "fp32", by_torch(narrow(), torch_sgd(n["momentum"]), clip)),
    }


# ---- loss scales: what they are after each step, and at first ---------------------------------------------------------------

SCALE = {"start": 64.0, "interval": 3, "least": 4.0}


def torch_scales():
    scaler, out = torch.amp.GradScaler("cpu", init_scale=SCALE["start"], growth_interval=SCALE["interval"]), []
    w = torch.nn.Parameter(torch.zeros(3))
    optimizer = torch.optim.SGD([w], lr=0.1)
    scaler.scale(torch.zeros(()))
    for x in OVERFLOWS:
        w.grad = torch.tensor([1.0, math.inf if x == "x" else 1.0, 1.0])
        scaler.step(optimizer)
        scaler.update()
        out.append(scaler.get_scale())
    return out


def megatron_scales():
    scaler, out = megatron_scaler.DynamicGradScaler(SCALE["start"], SCALE["least"], 2.0, 0.5, SCALE["interval"], 2), []
    for x in OVERFLOWS:
        scaler.update(x == "x")
        out.append(float(scaler.scale))
    return out


SCALER = taken(source("deepspeed", "runtime/fp16/loss_scaler.py"), ["LossScalerBase", "DynamicLossScaler"],
               {"torch": torch, "DeepSpeedConfigObject": object, "dist": types.SimpleNamespace(get_rank=lambda: 1)})


def deepspeed_scales(hysteresis, consecutive):
    """NaN from the step on that ends the run."""
    scaler = SCALER["DynamicLossScaler"](SCALE["start"], SCALE["interval"], SCALE["least"], hysteresis, consecutive)
    out = []
    for x in OVERFLOWS:
        try:
            scaler.update_scale(x == "x")
        except Exception as stop:
            assert "already at minimum" in str(stop)
            return out + [math.nan] * (len(OVERFLOWS) - len(out))
        out.append(float(scaler.cur_scale))
    return out


def scales():
    """Case -> its `--as` and the scale after each step of OVERFLOWS."""
    short = f",scale-start={SCALE['start']:g},scale-interval={SCALE['interval']}"
    least = short + f",scale-least={SCALE['least']:g}"
    return {
        "torch": ("torch" + short, torch_scales()),
        "megatron": ("megatron" + least, megatron_scales()),
        "deepspeed": ("deepspeed" + least, deepspeed_scales(2, False)),
        "deepspeed.consecutive": ("deepspeed" + least + ",scale-refill=step", deepspeed_scales(2, True)),
        "deepspeed.third": ("deepspeed" + least + ",scale-hysteresis=3", deepspeed_scales(3, False)),
    }


def defaults():
    """Profile -> first scale, growth, backoff, interval, hysteresis, least; what a package does not have is 0."""
    scaler = torch.amp.GradScaler("cpu")
    config = source("megatron", "core/optimizer/optimizer_config.py")
    made = next(x for x in ast.walk(ast.parse(source("megatron", "core/optimizer/__init__.py")))
                if isinstance(x, ast.Call) and getattr(x.func, "id", "") == "DynamicGradScaler")
    said = {k.arg: k.value.value for k in made.keywords if isinstance(k.value, ast.Constant)}
    fp16 = source("deepspeed", "runtime/precision_config.py")
    m, d = lambda name: default(config, "OptimizerConfig", name), lambda name: default(fp16, "DeepSpeedFP16Config", name)
    assert not d("consecutive_hysteresis")
    factor = SCALER["DynamicLossScaler"](1.0, 1, 1.0, 1, False).scale_factor
    return {
        "torch": [scaler._init_scale, scaler.get_growth_factor(), scaler.get_backoff_factor(), scaler.get_growth_interval(), 0, 0],
        "megatron": [m("initial_loss_scale"), said["growth_factor"], said["backoff_factor"], m("loss_scale_window"), m("hysteresis"),
                     m("min_loss_scale")],
        "deepspeed": [2.0 ** d("initial_scale_power"), factor, 1 / factor, d("loss_scale_window"), d("hysteresis"), d("min_loss_scale")],
    }


# ---- initial values: which distribution a package asks for -------------------------------------------------------------------

MODEL = {"L": 3, "D": 12, "F": 20, "V": 17}
NORMAL, UNIFORM = 0.0, 1.0


def asked(initialise):
    """[distribution, deviation or half the width] of the one draw that this makes of a tensor."""
    seen, kept = [], (torch.Tensor.normal_, torch.Tensor.uniform_)

    def normal(t, mean=0.0, std=1.0, **more):
        assert mean == 0
        seen.append([NORMAL, std])
        return t

    def uniform(t, low=0.0, high=1.0, **more):
        assert low == -high
        seen.append([UNIFORM, high])
        return t
    torch.Tensor.normal_, torch.Tensor.uniform_ = normal, uniform
    try:
        initialise()
    finally:
        torch.Tensor.normal_, torch.Tensor.uniform_ = kept
    return seen


def initial_values():
    """PROFILE.KIND -> [distribution, number]: of the token embedding, of matrices with D and F inputs, and of a bias with D."""
    D, F, V, L = MODEL["D"], MODEL["F"], MODEL["V"], MODEL["L"]
    up, down = asked(lambda: torch.nn.Linear(D, F)), asked(lambda: torch.nn.Linear(F, D))
    out = {"torch.tokens": asked(lambda: torch.nn.Embedding(V, D))[0], "torch.up": up[0], "torch.up_bias": up[1], "torch.down": down[0],
           "torch.down_bias": down[1]}
    from megatron.core.transformer.transformer_config import TransformerConfig
    config = TransformerConfig(num_layers=L, hidden_size=D, num_attention_heads=3, ffn_hidden_size=F)
    w = torch.empty(2, 2)
    out.update({"megatron.tokens": asked(lambda: config.embedding_init_method(w))[0], "megatron.up": asked(lambda: config.init_method(w))[0],
                "megatron.down": asked(lambda: config.output_layer_init_method(w))[0]})
    llama = LlamaConfig(hidden_size=D, intermediate_size=F, vocab_size=V, num_hidden_layers=L, num_attention_heads=3)
    every = {tuple(x) for x in asked(lambda: LlamaForCausalLM(llama)) if x[0] == NORMAL}
    assert (NORMAL, llama.initializer_range) in every and every <= {(NORMAL, llama.initializer_range), (NORMAL, 1.0)}
    out.update({f"galore-torch.{kind}": [NORMAL, llama.initializer_range] for kind in ("tokens", "up", "down")})
    return out


# ---- the file ----------------------------------------------------------------------------------------------------------

def make():
    tensors = {f"start.{name}": drawn(f"start.{name}", shape) for name, shape in SHAPES.items()}
    tensors.update({f"gradient.{name}.{t}": gradient(name, t) for name in SHAPES for t in range(1, STEPS + 1)})
    metadata = {key: repr(x) for key, x in NUMBERS.items()}
    metadata.update(generator="golden/make_profiles.py", numpy=np.__version__, torch=torch.__version__, clip=repr(CLIP), steps=str(STEPS),
                    apex="6424da3", **{key: str(x) for key, x in MODEL.items()})
    for package in ("megatron-core", "deepspeed", "galore-torch", "transformers"):
        metadata[package] = importlib.metadata.version(package)
    cases, scaled = steps(), scales()
    metadata.update(cases=" ".join(cases), scales=" ".join(scaled), parameters=" ".join(SHAPES), overflows=OVERFLOWS)
    for case, (profile, optimizer, dtype, results) in cases.items():
        metadata.update({f"{case}.as": profile, f"{case}.optimizer": optimizer, f"{case}.dtype": dtype})
        tensors.update({f"{case}.{key}": x for key, x in results.items()})
    for case, (profile, after) in scaled.items():
        metadata[f"scale.{case}.as"] = profile
        tensors[f"scale.{case}"] = torch.tensor(after, dtype=torch.float64)
    tensors.update({f"defaults.{profile}": torch.tensor(x, dtype=torch.float64) for profile, x in defaults().items()})
    tensors.update({f"init.{key}": torch.tensor(x, dtype=torch.float64) for key, x in initial_values().items()})
    return {key: x.detach().double().numpy().copy() for key, x in tensors.items()}, metadata


def check():
    new, old = make()[0], tensor_file.read(FILE)[0]
    for tensors in (new, old):                          # NaN: the run has ended
        for key in tensors:
            tensors[key] = np.nan_to_num(tensors[key], nan=-1.0)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "old.safetensors"
        tensor_file.write(path, old, {})
        return tensor_file.compare("profiles", new, path, 1e-6)


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(tensor_file.command("Make golden steps, loss scales and initial values with released packages.", FILE, make, check))
