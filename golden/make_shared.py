#!/usr/bin/env python3
"""Golden mixtures with shared experts: what the feed-forward of released models makes of the same rows, by transformers in fp64.

    golden/make_shared.py            write golden/shared.safetensors and its line of golden/MANIFEST
    golden/make_shared.py --check    make it again, compare with the stored one and name the tensors that differ

Each case is transformers' own block, unchanged (5.23.0): router, experts and shared experts; Qwen2-MoE's has a gate.  Gradients are
autograd's.  The classes compute scores in fp32 whatever the model is in; their modules are given a torch whose float32 is float64.
golden/README.md says what is in the file.
"""
import importlib
import os
import pathlib
import sys
from types import SimpleNamespace

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

try:
    import numpy as np
    import torch
    import transformers
except ImportError as missing:
    sys.exit(f"make_shared.py: {missing}; golden/README.md says what to install")

import philox
import tensor_file

HERE = pathlib.Path(__file__).resolve().parent
FILE = HERE / "shared.safetensors"
SEED, ROWS = 23, 14
ROUNDING = 1e-13                                # relative, that another PyTorch may differ by

# name -> module, class, our rule of the router, D, F, E, k, width of the shared experts, normalized
CASES = {
    "qwen2-moe": ("qwen2_moe", "Qwen2MoeSparseMoeBlock", "softmax", 12, 7, 5, 2, 10, False),
    "qwen2-moe-wide": ("qwen2_moe", "Qwen2MoeSparseMoeBlock", "top-k-softmax", 6, 3, 9, 4, 1, True),
    "deepseek-v2": ("deepseek_v2", "DeepseekV2Moe", "softmax", 10, 5, 6, 3, 10, False),
    "deepseek-v3": ("deepseek_v3", "DeepseekV3MoE", "noaux-tc", 9, 4, 8, 3, 4, True),
}


class Wide:
    """`torch` for the modules of transformers: their float32 is float64."""

    def __getattr__(self, name):
        return torch.float64 if name in ("float32", "float") else getattr(torch, name)


def block_of(module, cls, D, F, E, k, width, normalized):
    m = importlib.import_module(f"transformers.models.{module}.modeling_{module}")
    m.torch = Wide()
    return getattr(m, cls)(SimpleNamespace(
        hidden_size=D, moe_intermediate_size=F, intermediate_size=F, shared_expert_intermediate_size=width, n_shared_experts=width // F,
        num_experts=E, num_local_experts=E, n_routed_experts=E, num_experts_per_tok=k, norm_topk_prob=normalized, n_group=1, topk_group=1,
        topk_method="greedy", routed_scaling_factor=1.0, hidden_act="silu", mlp_bias=False, experts_implementation="eager",
        _experts_implementation="eager"))


def drawn(name, *shape):
    return torch.from_numpy(philox.normal(SEED, name, int(np.prod(shape))).reshape(shape).astype(np.float64))


def named(block):
    """Its parameters by our names."""
    shared = block.shared_expert if hasattr(block, "shared_expert") else block.shared_experts
    out = {"gate": block.gate.weight, "w13": block.experts.gate_up_proj, "w2": block.experts.down_proj,
           "shared.w1": shared.gate_proj.weight, "shared.w3": shared.up_proj.weight, "shared.w2": shared.down_proj.weight}
    if hasattr(block, "shared_expert_gate"):
        out["shared.gate"] = block.shared_expert_gate.weight
    return out


def case(name, module, cls, rule, D, F, E, k, width, normalized):
    block = block_of(module, cls, D, F, E, k, width, normalized)
    weights = named(block)
    assert len(weights) == len(list(block.parameters())), [n for n, _ in block.named_parameters()]
    with torch.no_grad():
        for what, w in weights.items():
            w.copy_(0.5 * drawn(f"{name}/{what}", *w.shape))
    x, dy = drawn(name + "/x", 1, ROWS, D).requires_grad_(), drawn(name + "/dy", 1, ROWS, D)
    y = block(x)
    y = y[0] if isinstance(y, tuple) else y
    y.backward(dy)
    tensors = {"x": x, "dy": dy, "y": y, "dx": x.grad, **weights, **{"d" + what: w.grad for what, w in weights.items()}}
    flat = {key: t.detach().reshape(-1, t.shape[-1]).numpy().astype("<f8") for key, t in tensors.items()}
    return {f"{name}/{key}": t for key, t in flat.items()}


def make():
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = torch.Tensor.double
    tensors = {}
    metadata = {"generator": "golden/make_shared.py", "cases": " ".join(CASES), "numpy": np.__version__, "torch": torch.__version__,
                "transformers": transformers.__version__}
    for name, row in CASES.items():
        tensors.update(case(name, *row))
        metadata.update({f"{name}.router": row[2], f"{name}.experts": str(row[5]), f"{name}.choices": str(row[6])})
    return tensors, metadata


def check():
    new, old = make()[0], tensor_file.read(FILE)[0]
    wrong = [f"{key}: in one of the two only" for key in sorted(set(new) ^ set(old))]
    for key in (key for key in old if key in new):
        apart = np.abs(new[key] - old[key]).max() / max(np.abs(old[key]).max(), 1e-300)
        if not apart <= ROUNDING:
            wrong.append(f"{key}: differs by {apart:.3g}, relative")
    for line in wrong:
        print(f"  shared: {line}")
    if not wrong:
        print(f"  shared: {len(old)} tensors hold")
    return 1 if wrong else 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    philox.known_answers()
    sys.exit(tensor_file.command("Make the golden mixtures with shared experts with transformers.", FILE, make, check))
