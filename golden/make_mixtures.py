#!/usr/bin/env python3
"""Golden mixtures with choices that no expert computes: a layer's output and all its gradients, by autograd in fp64.

    golden/make_mixtures.py            write golden/mixtures.safetensors and its line of golden/MANIFEST
    golden/make_mixtures.py --check    make it again, compare with the stored one and name the tensors that differ

`longcat` is transformers' own LongcatFlashMoE (5.23.0), unchanged, whose router can choose experts that return what they get.  No
library drops choices in each sequence: the `capacity` cases are a program of its own, with a loop where C has counts.  `dcmoe` is
Uni-MoE 2.0's UniMoEV2MoESparseMoeBlock, unchanged, from the file $UNI_MOE (UniMoEV2.py of HITsz-TMG/Uni-MoE at f5e82dd); its experts on
many devices, which need DeepSpeed, are a loop here.  golden/README.md says what is in the file.
"""
import ast
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
    sys.exit(f"make_mixtures.py: {missing}; golden/README.md says what to install")

import make_routers
import philox
import tensor_file

HERE = pathlib.Path(__file__).resolve().parent
FILE = HERE / "mixtures.safetensors"
ROWS, D, F, SEQUENCE = 24, 6, 7, 6

# name -> our rule, E, experts without computation, k, scale, deviation of the bias, capacity factor, by weight, top-p, how near
CASES = {
    "longcat": ("longcat", 5, 3, 3, 2.5, 0.05, 0, False),
    "longcat-one": ("longcat", 1, 2, 2, 6.0, 0.2, 0, False),
    "capacity-position": ("softmax", 5, 0, 2, 1.0, 0, 0.7, False),
    "capacity-weight": ("softmax", 5, 0, 2, 1.0, 0, 0.7, True),
    "capacity-normalized": ("top-k-softmax", 4, 0, 3, 1.0, 0, 0.5, True),
    "capacity-identities": ("longcat", 4, 2, 3, 1.5, 0.05, 0.6, False),
    "dcmoe": ("top-p", 4, 1, 5, 1.0, 0, 0, False, 0.7, 0.01),
    "dcmoe-near": ("top-p", 5, 2, 7, 1.0, 0, 0, False, 0.8, 0.2),
}


def drawn(name, *shape):
    return make_routers.drawn("mixtures/" + name, *shape)


def released(E, Z, k, scale, start):
    """transformers' class, with these weights; its parameters, as ours are named, and what to call."""
    m = importlib.import_module("transformers.models.longcat_flash.modeling_longcat_flash")
    m.torch = make_routers.Wide()
    layer = m.LongcatFlashMoE(SimpleNamespace(
        hidden_size=D, expert_ffn_hidden_size=F, n_routed_experts=E, num_local_experts=E, zero_expert_num=Z, num_experts_per_tok=k,
        routed_scaling_factor=scale, hidden_act="silu"))
    with torch.no_grad():
        layer.router.classifier.weight.copy_(start["router"])
        layer.router.e_score_correction_bias.copy_(start["bias"])
        layer.experts.gate_up_proj.zero_()[:E] = start["up"]
        layer.experts.down_proj.copy_(start["down"])
    weights = {"router": layer.router.classifier.weight, "up": layer.experts.gate_up_proj, "down": layer.experts.down_proj}
    return weights, lambda x: (layer(x[None])[0], layer.router(x)[2])


class ExpertsOfDCMoE(torch.nn.Module):
    """All experts on one device, with the arguments and the result of the released layer of experts."""

    def __init__(self, config, expert, num_experts, ep_size):
        super().__init__()
        self.up = torch.nn.Parameter(torch.zeros(num_experts, 2 * config.dynamic_intermediate_size, config.hidden_size))
        self.down = torch.nn.Parameter(torch.zeros(num_experts, config.hidden_size, config.dynamic_intermediate_size))

    def forward(self, hidden_states, expert_mask, router_weight):
        y = torch.zeros_like(hidden_states)
        for e in range(len(self.up)):
            gate, up = (hidden_states @ self.up[e].T).chunk(2, dim=-1)
            y = y + (expert_mask * router_weight)[:, e:e + 1] * ((torch.nn.functional.silu(gate) * up) @ self.down[e].T)
        return y


def dcmoe(E, Z, top_p, near, start):
    """The released block: its source's classes and functions, without what imports DeepSpeed.  A sequence is a batch of its own."""
    path = pathlib.Path(os.environ.get("UNI_MOE", "UniMoEV2.py"))
    if not path.exists():
        sys.exit(f"make_mixtures.py: {path}: not found; golden/README.md says where UNI_MOE is from")
    wanted = ("allocation_expert", "dynamic_expert_selection", "load_balancing_loss_func", "UniMoEV2MoESparseMoeBlock")
    source = ast.parse(path.read_text())
    source.body = [node for node in source.body if getattr(node, "name", None) in wanted]
    names = {"torch": torch, "nn": torch.nn, "os": os, "Optional": __import__("typing").Optional, "MoE": ExpertsOfDCMoE,
             "DynamicExpertMLP": lambda config: None, "SharedExpertMLP": None}
    exec(compile(source, path.name, "exec"), names)
    block = names["UniMoEV2MoESparseMoeBlock"](SimpleNamespace(
        hidden_size=D, dynamic_intermediate_size=F, mlp_dynamic_expert_num=E, mlp_dynamic_null_expert_num=Z, mlp_dynamic_top_p=top_p,
        mlp_dynamic_top_k=0, mlp_fixed_expert_num=0, ep_size=1, router_jitter_noise=near, input_jitter_noise=0, min_capacity=0,
        capacity_factor=1.0, token_drop=False, drop_policy="probs", avg_hidden_states_last=False, drop_token_num_print=False, fp32_gate=True))
    weights = {"router": block.gate.weight, "up": block.dynamic_real_moe.up, "down": block.dynamic_real_moe.down}
    with torch.no_grad():
        for key, weight in weights.items():
            weight.copy_(start[key])
    ratio = lambda x, top: (top - x) / torch.maximum(x.abs(), top.abs())

    def run(x):
        y, experts, loss = [], [], 0
        for of_one in x.split(SEQUENCE):
            out, logits, count, mask, _, aux = block(of_one[None], torch.ones(1, SEQUENCE), None)
            order = torch.argsort(logits, dim=-1, descending=True)
            sums = logits.softmax(-1).gather(1, order).cumsum(-1)
            assert (sums - top_p).abs().min() > make_routers.MARGIN, "a sum of probabilities is top-p: draw others"
            apart = ratio(logits[:, :, None], logits[:, None, :])
            assert (apart - 2 * near).abs().min() > make_routers.MARGIN, "two logits are as near as they can: draw others"
            places = torch.arange(E + Z).expand_as(order)
            chosen = torch.where(places < count[:, None], order, -1)
            assert (mask.sum(-1) == count).all()
            y.append(out[0]), experts.append(chosen)
            loss = loss + aux
        return torch.cat(y), torch.cat(experts), loss
    return weights, run


def kept(experts, weights, E, Z, factor, by_weight):
    """Which choices stay: in each sequence an expert takes the first, or the largest, until it is full."""
    keep = torch.ones_like(experts, dtype=torch.bool)
    capacity = int(np.ceil(factor * experts.shape[1] * SEQUENCE / (E + Z)))
    for first in range(0, ROWS, SEQUENCE):
        places = [(n, i) for n in range(first, first + SEQUENCE) for i in range(experts.shape[1])]
        if by_weight:
            places.sort(key=lambda at: -weights[at].item())
        taken = [0] * E
        for at in places:
            e = experts[at].item()
            if e < E:
                taken[e] += 1
                keep[at] = taken[e] <= capacity
    return keep


def written(rule, E, Z, k, scale, factor, by_weight, start):
    """A program of its own, expert by expert on all rows."""
    weights = {key: start[key].clone().requires_grad_() for key in ("router", "up", "down")}

    def run(x):
        logits = x @ weights["router"].T
        scores = logits.softmax(-1)
        experts = torch.topk(scores.detach() + start["bias"], k, dim=-1)[1]
        w = scores.gather(1, experts)
        if rule == "top-k-softmax":
            w = w / w.sum(-1, keepdim=True)
        w = w * scale
        keep = kept(experts, w, E, Z, factor, by_weight)
        assert not keep.all() and keep.any(), "nothing, or all, is dropped"
        w = torch.where(keep, w, torch.zeros(()))
        y = torch.zeros_like(x)
        for e in range(E + Z):
            result = x
            if e < E:
                gate, up = (x @ weights["up"][e].T).chunk(2, dim=-1)
                result = (torch.nn.functional.silu(gate) * up) @ weights["down"][e].T
            y = y + (w * (experts == e)).sum(-1, keepdim=True) * result
        return y, experts
    return weights, run


def case(name, rule, E, Z, k, scale, deviation, factor, by_weight, top_p=0, near=0):
    start = {"router": drawn(name + "/router", E + Z, D), "up": drawn(name + "/up", E, 2 * F, D), "down": drawn(name + "/down", E, D, F),
             "bias": deviation * drawn(name + "/bias", E + Z)}
    x, dy = drawn(name + "/x", ROWS, D).requires_grad_(), drawn(name + "/dy", ROWS, D)
    if top_p > 0:
        weights, run = dcmoe(E, Z, top_p, near, start)
    elif factor == 0:
        weights, run = released(E, Z, k, scale, start)
    else:
        weights, run = written(rule, E, Z, k, scale, factor, by_weight, start)
    y, experts, *loss = run(x)
    ((y * dy).sum() + sum(loss)).backward()
    keys = (x.detach() @ start["router"].T).softmax(-1) + start["bias"]
    near = torch.sort(keys, dim=-1)[0].diff(dim=-1).min()
    assert near > make_routers.MARGIN, f"{name}: two keys are {near} apart: draw others"
    assert Z == 0 or ((experts >= E).any() and (experts < E).any()), f"{name}: only experts of one kind are chosen"
    order = torch.arange(k).expand_as(experts) if loss else torch.argsort(keys.gather(1, experts), dim=-1, descending=True)
    out = {"x": x.detach(), "dy": dy, "y": y.detach(), "dx": x.grad, "drouter": weights["router"].grad,
           "dup": weights["up"].grad[:E], "ddown": weights["down"].grad, **start}
    out = {f"{name}/{key}": np.ascontiguousarray(t.numpy().astype("<f8")) for key, t in out.items()}
    if loss:
        out[f"{name}/loss"] = loss[0].detach().numpy().reshape(1).astype("<f8")
        assert 1 < (experts >= 0).sum(-1).double().mean() < k, f"{name}: all tokens go to as many experts"
    out[f"{name}/experts"] = np.ascontiguousarray(experts.gather(1, order).numpy().astype("<i4"))
    return out


def make():
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = torch.Tensor.double
    tensors = {}
    metadata = {"generator": "golden/make_mixtures.py", "cases": " ".join(CASES), "sequence": str(SEQUENCE), "numpy": np.__version__,
                "torch": torch.__version__, "transformers": transformers.__version__}
    for name, row in CASES.items():
        tensors.update(case(name, *row))
        for key, value in zip(("router", "E", "zero", "k", "scale", "deviation", "capacity", "by_weight", "top_p", "near"), row):
            metadata[f"{name}.{key}"] = str(int(value) if isinstance(value, bool) else value)
    return tensors, metadata


def check():
    return tensor_file.compare("mixtures", make()[0], FILE, make_routers.ROUNDING)


if __name__ == "__main__":
    torch.set_num_threads(1)
    philox.known_answers()
    sys.exit(tensor_file.command("Make golden mixtures with choices that no expert computes.", FILE, make, check))
