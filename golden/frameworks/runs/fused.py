#!/usr/bin/env python3
"""A Llama of fused modules, on one process, whose inner results no hook sees.

--variant te: LayerNormLinear and LayerNormMLP in the manner of TransformerEngine, which need a GPU there
--variant add_norm: the sum of the stream and the norm after it are one module that returns both; queries, keys and values are one matrix
"""
import torch
from torch import nn
from torch.nn import functional

import common
from orrery_dump import Recorder


def heads_of(config):
    """(query heads, key heads, width of a head)"""
    H = config["num_attention_heads"]
    return H, config["num_key_value_heads"], config.get("head_dim") or config["hidden_size"] // H


class LayerNormLinear(nn.Module):
    def __init__(self, inner, outer, eps):
        super().__init__()
        self.eps, self.layer_norm_weight, self.weight = eps, nn.Parameter(torch.empty(inner)), nn.Parameter(torch.empty(outer, inner))

    def forward(self, x):
        return functional.linear(functional.rms_norm(x, x.shape[-1:], self.layer_norm_weight, self.eps), self.weight)


class LayerNormMLP(nn.Module):
    def __init__(self, width, inner, eps, bug):
        super().__init__()
        self.eps, self.bug, self.layer_norm_weight = eps, bug, nn.Parameter(torch.empty(width))
        self.fc1_weight, self.fc2_weight = nn.Parameter(torch.empty(2 * inner, width)), nn.Parameter(torch.empty(width, inner))

    def forward(self, x):
        weight = self.layer_norm_weight + (1 if self.bug == "zero-centered-gamma" else 0)
        gate, up = functional.linear(functional.rms_norm(x, x.shape[-1:], weight, self.eps), self.fc1_weight).chunk(2, -1)
        return functional.linear(functional.silu(gate) * up, self.fc2_weight)


class AddNorm(nn.Module):
    """(the norm of the sum, the sum)"""

    def __init__(self, width, eps, bug=None):
        super().__init__()
        self.eps, self.bug, self.weight = eps, bug, nn.Parameter(torch.empty(width))

    def forward(self, branch, stream):
        total = branch + stream
        normed = functional.rms_norm(branch if self.bug == "norm-of-the-branch" else total, total.shape[-1:], self.weight, self.eps)
        return normed, total


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.sizes = H, K, A = heads_of(config)
        self.frequencies = config["rope_theta"] ** -(torch.arange(0, A, 2, dtype=torch.float32) / A)

    def forward(self, qkv):
        H, K, A = self.sizes
        B, S = qkv.shape[:2]
        angles = torch.arange(S)[:, None] * self.frequencies
        turn = torch.cat([angles, angles], -1)
        cos, sin = turn.cos().to(qkv.dtype), turn.sin().to(qkv.dtype)
        q, k, v = qkv.view(B, S, -1, A).transpose(1, 2).split([H, K, K], 1)
        q, k = (x * cos + torch.cat([-x[..., A // 2:], x[..., :A // 2]], -1) * sin for x in (q, k))
        heads = functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return heads.transpose(1, 2).flatten(2)


class FusedLayer(nn.Module):
    """As te.TransformerLayer is made: both norms are inside the modules that read them."""

    def __init__(self, config, bug):
        super().__init__()
        D, eps = config["hidden_size"], config["rms_norm_eps"]
        H, K, A = heads_of(config)
        self.layernorm_qkv, self.attention = LayerNormLinear(D, (H + 2 * K) * A, eps), Attention(config)
        self.proj, self.layernorm_mlp = nn.Linear(H * A, D, bias=False), LayerNormMLP(D, config["intermediate_size"], eps, bug)

    def forward(self, x):
        x = x + self.proj(self.attention(self.layernorm_qkv(x)))
        return x + self.layernorm_mlp(x)


class AddNormLayer(nn.Module):
    """What enters is the norm that the layer before has made, and the stream."""

    def __init__(self, config, bug):
        super().__init__()
        D, F, eps = config["hidden_size"], config["intermediate_size"], config["rms_norm_eps"]
        H, K, A = heads_of(config)
        self.qkv, self.attention, self.proj = nn.Linear(D, (H + 2 * K) * A, bias=False), Attention(config), nn.Linear(H * A, D, bias=False)
        self.add_norm, self.next_norm = AddNorm(D, eps, bug), AddNorm(D, eps)
        self.fc1, self.fc2 = nn.Linear(D, 2 * F, bias=False), nn.Linear(F, D, bias=False)

    def forward(self, normed, stream):
        normed, stream = self.add_norm(self.proj(self.attention(self.qkv(normed))), stream)
        gate, up = self.fc1(normed).chunk(2, -1)
        return self.next_norm(self.fc2(functional.silu(gate) * up), stream)


class Fused(nn.Module):
    def __init__(self, config, variant, bug):
        super().__init__()
        D, V, eps = config["hidden_size"], config["vocab_size"], config["rms_norm_eps"]
        layer, self.adds = (FusedLayer, AddNormLayer)[variant == "add_norm"], variant == "add_norm"
        self.embedding, self.head = nn.Embedding(V, D), nn.Linear(D, V, bias=False)
        self.layers = nn.ModuleList([layer(config, bug if i == 1 else None) for i in range(config["num_hidden_layers"])])
        self.norm = nn.RMSNorm(D, eps)                              # the last one, or of add_norm the first one

    def forward(self, ids):
        x = self.embedding(ids)
        if not self.adds:
            for layer in self.layers:
                x = layer(x)
            return self.head(self.norm(x))
        normed, stream = self.norm(x), x
        for layer in self.layers:
            normed, stream = layer(normed, stream)
        return self.head(normed)


AT = "model.layers.*."
COMMON = {"embedding.weight": "model.embed_tokens.weight", "head.weight": "lm_head.weight", "layers.*.proj.weight": AT + "self_attn.o_proj.weight"}


def names_of(variant, layers):
    """What Recorder(names=..., returns=...) is told."""
    if variant == "te":
        return dict(names={**COMMON, "norm.weight": "model.norm.weight",
                            "layers.*.layernorm_qkv.layer_norm_weight": AT + "input_layernorm.weight",
                            "layers.*.layernorm_qkv.weight": AT + "self_attn.qkv_proj.weight",
                            "layers.*.layernorm_mlp.layer_norm_weight": AT + "post_attention_layernorm.weight",
                            "layers.*.layernorm_mlp.fc1_weight": AT + "mlp.gate_up_proj.weight",
                            "layers.*.layernorm_mlp.fc2_weight": AT + "mlp.down_proj.weight"})
    after = {i: f"model.layers.{i + 1}.input_layernorm.weight" if i + 1 < layers else "model.norm.weight" for i in range(layers)}
    return dict(names={**COMMON, "norm.weight": "model.layers.0.input_layernorm.weight",
                        "layers.*.qkv.weight": AT + "self_attn.qkv_proj.weight", "layers.*.add_norm.weight": AT + "post_attention_layernorm.weight",
                        "layers.*.fc1.weight": AT + "mlp.gate_up_proj.weight", "layers.*.fc2.weight": AT + "mlp.down_proj.weight",
                        **{f"layers.{i}.next_norm.weight": name for i, name in after.items()}},
                returns={"embedding": ("embedding",), "layers.*.add_norm": ("h.*.ln_2", "h.*.mid"),      # a layer's input is a norm here
                         **{f"layers.{i}.next_norm": (f"h.{i + 1}.ln_1" if i + 1 < layers else "ln_f", f"h.{i}.out") for i in range(layers)}})


def run(golden, out, case):
    model = Fused(golden.config, case.variant, case.bug)
    recorder = Recorder(model, None, out, batch=(golden.sequences, golden.tokens), dtype=case.dtype, golden=golden.path,
                        **names_of(case.variant, golden.config["num_hidden_layers"]))
    golden.started(model, recorder.names.parameters, common.DTYPES[case.dtype])
    recorder.start()

    def step_of(step):
        if step == 0:
            recorder.microbatch()
        loss = common.summed_loss(model(golden.ids[step]), golden.labels[step]) / golden.counted(step)
        loss.backward()
        return loss.detach()

    common.train(golden, recorder, model, step_of, masters=case.dtype == "fp32")


if __name__ == "__main__":
    common.alone(run, bugs=("zero-centered-gamma", "norm-of-the-branch"), variants=("te", "add_norm"))
