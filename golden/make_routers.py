#!/usr/bin/env python3
"""Golden choices of experts: what the routers of released models make of the same logits, by transformers in fp64.

    golden/make_routers.py            write golden/routers.safetensors and its line of golden/MANIFEST
    golden/make_routers.py --check    make it again, compare with the stored one and name the tensors that differ

Each router is transformers' own class, unchanged, from a version that has all of them (5.23.0).  Its matrix is the identity, so that
what goes in are the logits, and autograd's gradient of it is theirs.  The classes compute in fp32 whatever the model is in; their
modules are given a torch whose float32 is float64.  They return a token's experts in any order; here they stand from the largest
key to the smallest.  golden/README.md says what is in the file.
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
    sys.exit(f"make_routers.py: {missing}; golden/README.md says what to install")

import philox
import tensor_file

HERE = pathlib.Path(__file__).resolve().parent
FILE = HERE / "routers.safetensors"
SEED, ROWS = 19, 24
MARGIN = 1e-6                                   # keys of a row are further apart than this, so that rounding changes no choice
ROUNDING = 1e-13                                # relative, that another PyTorch may differ by

# name -> module, class, our rule, E, k, groups, kept groups, scale, deviation of the bias
CASES = {
    "mixtral": ("mixtral", "MixtralTopKRouter", "top-k-softmax", 8, 2, 0, 0, 1.0, 0),
    "qwen3": ("qwen3_moe", "Qwen3MoeTopKRouter", "top-k-softmax", 11, 3, 0, 0, 1.0, 0),
    "qwen2": ("qwen2_moe", "Qwen2MoeTopKRouter", "softmax", 11, 4, 0, 0, 1.0, 0),
    "switch": ("qwen2_moe", "Qwen2MoeTopKRouter", "softmax", 5, 1, 0, 0, 1.0, 0),
    "llama4": ("llama4", "Llama4Router", "sigmoid", 7, 2, 0, 0, 1.0, 0),
    "deepseek-v2": ("deepseek_v2", "DeepseekV2TopkRouter", "group-limited", 12, 3, 4, 2, 16.0, 0),
    "deepseek-v2-pairs": ("deepseek_v2", "DeepseekV2TopkRouter", "group-limited", 6, 2, 3, 1, 1.0, 0),
    "deepseek-v3": ("deepseek_v3", "DeepseekV3TopkRouter", "noaux-tc", 12, 3, 4, 2, 2.5, 0.3),
    "deepseek-v3-large-groups": ("deepseek_v3", "DeepseekV3TopkRouter", "noaux-tc", 15, 4, 3, 1, 1.0, 0.2),
    "longcat": ("longcat_flash", "LongcatFlashTopkRouter", "longcat", 10, 4, 0, 0, 6.0, 0.1),
}
SEQUENCE = 6                                    # rows of a sequence, for the balance loss of each
SMALL = 60                                      # what the first row of a case with sigmoids is lowered by: all of them are nearly 0


class Wide:
    """`torch` for the modules of transformers: their float32 is float64."""

    def __getattr__(self, name):
        return torch.float64 if name in ("float32", "float") else getattr(torch, name)


def config(name, E, k, groups, kept, scale):
    """All that any of the classes asks for; in LongCat a count of experts is one without those that compute nothing."""
    return SimpleNamespace(hidden_size=E, num_local_experts=E, num_experts=E, n_routed_experts=E, zero_expert_num=0, num_experts_per_tok=k,
                           norm_topk_prob=name != "qwen2" and name != "switch", n_group=groups, topk_group=kept,
                           topk_method="group_limited_greedy", routed_scaling_factor=scale)


def router_of(name, module, cls, E, k, groups, kept, scale):
    m = importlib.import_module(f"transformers.models.{module}.modeling_{module}")
    m.torch = Wide()
    router = getattr(m, cls)(config(name, E, k, groups, kept, scale))
    matrix = router.classifier.weight if hasattr(router, "classifier") else router.weight
    with torch.no_grad():
        matrix.copy_(torch.eye(E))
    return router


def drawn(name, *shape):
    return torch.from_numpy(philox.normal(SEED, name, int(np.prod(shape))).reshape(shape).astype(np.float64))


def route(name, router, logits, k):
    """Weights [N,k] and experts [N,k], in the class's own order."""
    out = router(logits)
    if name != "llama4":
        return out[1], out[2]
    scores, _ = out                             # a matrix of all experts, 0 where not chosen
    experts = torch.topk(scores, k, dim=-1)[1]
    return scores.gather(1, experts), experts


def in_order(logits, bias, weights, experts):
    """From the largest key to the smallest."""
    if bias is None:
        key = logits
    else:
        key = (logits.softmax(-1) if bias.ndim == 2 else logits.sigmoid()) + bias.reshape(-1)
    near = torch.sort(key, dim=-1)[0].diff(dim=-1).min()
    assert near > MARGIN, f"two keys are {near} apart: draw others"
    order = torch.argsort(key.gather(1, experts), dim=-1, descending=True)
    return weights.gather(1, order), experts.gather(1, order)


def sequence_balance(scores, experts, k):
    """The sum over sequences of DeepSeek's balance loss, as in the papers: equations 17 to 20 of DeepSeek-V3's, 23 to 25 of DeepSeek-V2's."""
    E = scores.shape[-1]
    of_sequence = (scores / scores.sum(-1, keepdim=True)).view(-1, SEQUENCE, E)
    chosen = torch.nn.functional.one_hot(experts, E).sum(1).view(-1, SEQUENCE, E).to(scores.dtype)
    f = chosen.sum(1) * E / (k * SEQUENCE)
    return (f * of_sequence.mean(1)).sum()


def case(name, module, cls, rule, E, k, groups, kept, scale, deviation):
    router = router_of(name, module, cls, E, k, groups, kept, scale)
    logits, d_weights = 2 * drawn(name + "/logits", ROWS, E), drawn(name + "/dweights", ROWS, k)
    tensors, bias = {}, None
    if rule in ("noaux-tc", "sigmoid"):
        logits[0] -= SMALL
    if deviation:
        bias = deviation * drawn(name + "/bias", E)
        router.e_score_correction_bias.copy_(bias)
        tensors["bias"] = bias
        bias = bias.reshape(1, -1) if rule == "longcat" else bias
    logits.requires_grad_()
    weights, experts = in_order(logits.detach(), bias, *route(name, router, logits, k))
    weights.backward(d_weights)
    plain = torch.topk(logits.detach(), k, dim=-1)[1].sort(-1)[0]
    others = int((plain != experts.sort(-1)[0]).any(-1).sum())
    assert (others > ROWS // 8) == (deviation > 0 or groups > 0), f"{name}: bias and groups change {others} of {ROWS} choices"
    again = logits.detach().requires_grad_()
    balance = sequence_balance(again.sigmoid() if rule in ("noaux-tc", "sigmoid") else again.softmax(-1), experts, k)
    balance.backward()
    tensors.update(sequence_loss=balance.detach().reshape(1), dlogits_of_sequence_loss=again.grad)
    tensors.update(logits=logits.detach(), weights=weights.detach(), dweights=d_weights, dlogits=logits.grad)
    out = {f"{name}/{key}": t.numpy().astype("<f8") for key, t in tensors.items()}
    out[f"{name}/experts"] = experts.numpy().astype("<i4")
    return out


def make():
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = torch.Tensor.double
    tensors = {}
    metadata = {"generator": "golden/make_routers.py", "cases": " ".join(CASES), "numpy": np.__version__, "torch": torch.__version__,
                "transformers": transformers.__version__}
    for name, row in CASES.items():
        tensors.update(case(name, *row))
        metadata.update({f"{name}.router": row[2], f"{name}.groups": str(row[5]), f"{name}.kept": str(row[6]), f"{name}.scale": repr(row[7])})
    return tensors, metadata


def check():
    return tensor_file.compare("routers", make()[0], FILE, ROUNDING)


if __name__ == "__main__":
    torch.set_num_threads(1)
    philox.known_answers()
    sys.exit(tensor_file.command("Make the golden choices of experts with transformers.", FILE, make, check))
