#!/usr/bin/env python3
"""Golden balance losses of mixtures: the functions of transformers, Megatron Core and DeepSpeed, and autograd, in fp64.

    golden/make_balance.py            write golden/balance.safetensors and its line of golden/MANIFEST
    golden/make_balance.py --check    make it again, compare with the stored one and name the tensors that differ

The packages' code is unchanged.  It computes in fp32 in places; its modules are given a torch whose float32 is float64.  What each
package's step does around these functions is written here, with the file that does it.  golden/README.md says what is in the file.
"""
import os
import pathlib
import sys
import types
import warnings

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ["TORCHDYNAMO_DISABLE"] = "1"         # Megatron's small functions are not compiled
os.environ.setdefault("DS_ACCELERATOR", "cpu")
warnings.simplefilter("ignore")

try:
    import importlib.metadata
    import numpy as np
    import torch
    from transformers.models.mixtral import modeling_mixtral
    from deepspeed.moe import sharded_moe
    from megatron.core import utils
    from megatron.core.pipeline_parallel import schedules
    from megatron.core.tensor_parallel import mappings
    from megatron.core.transformer import transformer_config
    from megatron.core.transformer.moe import moe_utils, router
except ImportError as missing:
    sys.exit(f"make_balance.py: {missing}; golden/README.md says what to install")

import philox
import tensor_file

HERE = pathlib.Path(__file__).resolve().parent
FILE = HERE / "balance.safetensors"
SEED = 31
MARGIN = 1e-6                                   # logits of a row are further apart than this, so that rounding changes no choice
ROUNDING = 1e-13                                # relative, that another PyTorch may differ by


class Wide:
    """`torch` for a released module: its float32 is float64, its GPU the CPU, its all-reduce that of Group."""
    cuda = types.SimpleNamespace(current_device=lambda: "cpu")
    distributed = types.SimpleNamespace(is_initialized=lambda: True, all_reduce=lambda x, group: group.all_reduce(x))

    def __getattr__(self, name):
        return torch.float64 if name == "float32" else getattr(torch, name)


# ---- what every case has: M microbatches of all replicas, L layers, B sequences of S tokens, E experts, k choices ----------------

def draw(name, M, L, B, S, E):
    x = torch.from_numpy(2 * philox.normal(SEED, name + "/logits", M * L * B * S * E).reshape(M, L, B, S, E).astype(np.float64))
    near = torch.sort(x, dim=-1)[0].diff(dim=-1).min()
    assert near > MARGIN, f"{name}: two logits are {near} apart: draw others"
    return x.requires_grad_()


def mask_of(real, M, B, S):
    """1 for a token, 0 for padding.  real: tokens of each sequence of each microbatch; None: there is no padding."""
    real = real or [[S] * B] * M
    return torch.tensor([[[int(s < n) for s in range(S)] for n in each] for each in real])


# ---- transformers: MixtralForCausalLM in a loop that divides a microbatch's loss by their number -----------------------------------

def by_transformers(x, mask, k, masked):
    M, L = x.shape[:2]
    total = 0
    for m in range(M):
        layers = tuple(x[m, layer].reshape(-1, x.shape[-1]) for layer in range(L))
        attention = mask[m] if masked else None
        loss = modeling_mixtral.load_balancing_loss_func(layers, x.shape[-1], k, attention) / M
        loss.backward()
        total += loss.item()
    return total


# ---- DeepSpeed: the losses of layers are added, by the caller; engine.py divides by the number of microbatches -----------------------

def gate(logits, k, sampling):
    if k == 1:
        return sharded_moe.top1gating(logits, 1.0, 1)
    if k == 2:
        return sharded_moe.top2gating(logits.clone(), 1.0, 1, top2_2nd_expert_sampling=sampling)    # which adds noise in place
    return sharded_moe.topkgating(logits, k, 1.0, 1)


def by_deepspeed(x, k, sampling):
    torch.manual_seed(SEED)
    M, L = x.shape[:2]
    total = 0
    for m in range(M):
        loss = sum(gate(x[m, layer].reshape(-1, x.shape[-1]), k, sampling)[0] for layer in range(L)) / M
        loss.backward()
        total += loss.item()
    return total


# ---- Megatron Core: TopKRouter and forward_step_calc_loss ------------------------------------------------------------------------

class Group:
    """A group of ranks that are run one after another, twice: the first time each says what it adds, then each gets the sum."""

    def __init__(self, ranks):
        self.said, self.rank = [None] * ranks, 0

    def size(self):
        return len(self.said)

    def all_reduce(self, x):
        if any(said is None for said in self.said):
            self.said[self.rank] = x.detach().clone()
        else:
            x += sum(other for rank, other in enumerate(self.said) if rank != self.rank)


def megatron_config(kind, E, k, L, per_token):
    return transformer_config.TransformerConfig(
        num_layers=L, hidden_size=8, num_attention_heads=1, num_moe_experts=E, moe_router_topk=k, add_bias_linear=False,
        moe_router_load_balancing_type="none" if kind == "z" else kind, moe_aux_loss_coeff=0.0 if kind == "z" else 1.0,
        moe_z_loss_coeff=1.0 if kind == "z" else None, calculate_per_token_loss=per_token, perform_initialization=False,
        params_dtype=torch.float64)


ATTACHED = []                                   # the losses that routers have attached to their outputs since it was emptied


def attach(activation, loss):
    ATTACHED.append(loss.item())
    return moe_utils.MoEAuxLossAutoScaler.apply(activation, loss)


def route(config, groups, ranks, rows, padding):
    """A rank's router: rows [S,B,E], padding [S,B] or None.  ranks: its own in each of the groups."""
    for group, rank in zip(groups, ranks):
        group.rank = rank
    collection = types.SimpleNamespace(tp=None, cp=None, tp_cp=groups[0], tp_dp_cp=groups[1])
    return router.TopKRouter(config, collection).routing(rows, padding)[0]


def backward(config, out, tokens, micros, parts):
    """Scale the attached loss as a step with so many microbatches does, and go backward.  Returns the scale."""
    def loss_func(out):
        return out, tokens, None

    out, _ = schedules.forward_step_calc_loss(None, out.sum() * 0, loss_func, config, None, False, micros, [], parts, True)
    out.backward()
    return moe_utils.MoEAuxLossAutoScaler.main_loss_backward_scale.item()


def by_megatron(x, mask, k, masked, kind, parts=1, dp=1, per_token=False):
    """parts: ranks along cp, which have other tokens of each sequence, and add their counts as ranks along tp do; dp: replicas, each
    with one microbatch at a time.  Gradients of a step are divided by dp and cp (distributed_data_parallel.py), or by the
    batch's tokens (finalize_model_grads.py)."""
    M, L, B, S, E = x.shape
    config, share, total = megatron_config(kind, E, k, L, per_token), S // parts, 0
    for first, layer in ((first, layer) for first in range(0, M, dp) for layer in range(L)):
        within, across = [Group(parts) for _ in range(dp)], Group(dp * parts)
        for again in (False, True):
            for replica, part in ((replica, part) for replica in range(dp) for part in range(parts)):
                rows, padding = (t[:, part * share:(part + 1) * share].transpose(0, 1).contiguous()
                                 for t in (x[first + replica, layer], mask[first + replica] == 0))
                ATTACHED.clear()
                out = route(config, (within[replica], across), (part, replica * parts + part), rows, padding if masked else None)
                if again:
                    total += sum(ATTACHED) * backward(config, out, (~padding).sum(), M // dp, parts)
    divisor = mask.sum().item() if per_token else dp * parts
    x.grad /= divisor
    return total / divisor


# ---- cases -----------------------------------------------------------------------------------------------------------

def transformers_case(k, masked=False):
    return "torch", lambda x, mask: by_transformers(x, mask, k, masked)


def deepspeed_case(k, sampling=True):
    return "deepspeed", lambda x, mask: by_deepspeed(x, k, sampling)


def megatron_case(k, kind, over=None, masked=False, **more):
    return "megatron" + (f",balance-over={over}" if over else ""), lambda x, mask: by_megatron(x, mask, k, masked, kind, **more)


# name -> M, L, B, S, E, k, real tokens, package, and how many times ours the package's loss is
CASES = {
    "torch.top2": (3, 2, 2, 5, 6, 2, None, transformers_case(2), 1),
    "torch.top1": (2, 3, 1, 9, 5, 1, None, transformers_case(1), 1),
    "torch.top4": (2, 2, 2, 4, 8, 4, None, transformers_case(4), 1),
    "torch.masked": (3, 2, 2, 6, 6, 3, [[6, 3], [4, 5], [3, 6]], transformers_case(3, True), 1),
    "megatron.aux": (3, 2, 2, 5, 6, 2, None, megatron_case(2, "aux_loss"), 1),
    "megatron.ranks": (4, 3, 2, 6, 5, 3, None, megatron_case(3, "aux_loss", parts=3, dp=2), 1),
    "megatron.sequence": (2, 2, 3, 6, 8, 4, None, megatron_case(4, "seq_aux_loss", "sequence", parts=2, dp=2), 1),
    "megatron.tokens": (3, 2, 2, 6, 6, 2, [[6, 1], [4, 2], [6, 6]], megatron_case(2, "aux_loss", masked=True, per_token=True), 1),
    "megatron.tokens-of-ranks": (3, 2, 2, 6, 6, 2, None, megatron_case(2, "aux_loss", parts=2, per_token=True), 1 / 2),
    "megatron.tokens-of-masked-ranks": (2, 2, 2, 6, 6, 2, [[6, 2], [4, 5]],
                                        megatron_case(2, "aux_loss", masked=True, parts=2, per_token=True), 1),
    "megatron.global": (3, 2, 2, 4, 6, 2, None, megatron_case(2, "global_aux_loss", "batch", parts=2, dp=3), 1 / 3),
    "megatron.z": (2, 3, 2, 6, 5, 2, None, megatron_case(2, "z", parts=2), 1),
    "megatron.z-masked": (2, 2, 2, 6, 5, 2, [[6, 1], [4, 6]], megatron_case(2, "z", masked=True, per_token=True), 1),
    "deepspeed.top1": (3, 2, 2, 5, 5, 1, None, deepspeed_case(1), 1),
    "deepspeed.top2": (3, 2, 2, 5, 6, 2, None, deepspeed_case(2), 1),
    "deepspeed.top2-unsampled": (2, 3, 1, 7, 4, 2, None, deepspeed_case(2, False), 1),
    "deepspeed.top3": (2, 2, 2, 5, 6, 3, None, deepspeed_case(3), 1),
    "deepspeed.top4": (2, 2, 3, 4, 8, 4, None, deepspeed_case(4), 1),
}


def make():
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = torch.Tensor.double
    for module in (modeling_mixtral, moe_utils, router, mappings, utils):
        module.torch = Wide()
    router.MoEAuxLossAutoScaler = types.SimpleNamespace(apply=attach)
    tensors = {}
    metadata = {"generator": "golden/make_balance.py", "cases": " ".join(CASES), "numpy": np.__version__}
    for package in ("torch", "transformers", "megatron-core", "deepspeed"):
        metadata[package] = importlib.metadata.version(package)
    for name, (M, L, B, S, E, k, real, (convention, run), times) in CASES.items():
        x, mask = draw(name, M, L, B, S, E), mask_of(real, M, B, S)
        loss = run(x, mask)
        tensors.update({f"{name}/logits": x.detach().reshape(-1, E).numpy().astype("<f8"),
                        f"{name}/dlogits": x.grad.reshape(-1, E).numpy().astype("<f8"),
                        f"{name}/loss": np.array([loss], "<f8"), f"{name}/mask": mask.reshape(M, B * S).numpy().astype("<i4")})
        numbers = {"as": convention, "loss": "z" if ".z" in name else "balance", "microbatches": M, "layers": L, "sequences": B,
                   "choices": k, "times": float(times)}
        metadata.update({f"{name}.{key}": str(value) for key, value in numbers.items()})
    return tensors, metadata


def check():
    return tensor_file.compare("balance", make()[0], FILE, ROUNDING)


if __name__ == "__main__":
    torch.set_num_threads(1)
    philox.known_answers()
    sys.exit(tensor_file.command("Make golden balance losses with transformers, Megatron Core and DeepSpeed.", FILE, make, check))
