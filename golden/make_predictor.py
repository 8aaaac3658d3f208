#!/usr/bin/env python3
"""Golden multi-token prediction of a DeepSeek-V3: a layer behind the last that predicts the token after the next, in fp64.

    golden/make_predictor.py            write golden/predictor.safetensors and its line of golden/MANIFEST
    golden/make_predictor.py --check    make it again, compare with the stored one and name the tensors that differ

transformers has the model, and the layer's block as one layer more (DeepseekV3ForCausalLM), but leaves the module out.  What is around
the block is as the released module has it, DeepseekModelNextN of SGLang (python/sglang/srt/models/deepseek_nextn.py at 0114f9c): enorm
and hnorm, one behind the other into eh_proj, the decoder layer, shared_head.norm, the model's head; the model's hidden states are those
behind its norm, and the module's own, behind shared_head.norm, are those of its next step.
"""
import os
import pathlib
import sys

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

try:
    import numpy as np
    import torch
    import transformers
    from transformers.models.deepseek_v3 import modeling_deepseek_v3 as released
except ImportError as missing:
    sys.exit(f"make_predictor.py: {missing}; golden/README.md says what to install")

import tensor_file

FILE = pathlib.Path(__file__).resolve().parent / "predictor.safetensors"
TOKENS, LAYERS = 9, 2
SHAPE = dict(vocab_size=23, hidden_size=16, intermediate_size=20, moe_intermediate_size=6, num_attention_heads=2, num_key_value_heads=2,
             n_shared_experts=1, n_routed_experts=6, routed_scaling_factor=1.5, kv_lora_rank=6, q_lora_rank=8, qk_rope_head_dim=4, v_head_dim=5,
             qk_nope_head_dim=6, n_group=3, topk_group=2, num_experts_per_tok=2, first_k_dense_replace=1, norm_topk_prob=True,
             max_position_embeddings=2 * TOKENS, rms_norm_eps=1e-6, rope_interleave=True, attention_bias=False, tie_word_embeddings=False)


class Wide:
    """`torch` for the module, which computes norms, angles and scores in fp32: its float32 is float64."""

    def __getattr__(self, name):
        return torch.float64 if name in ("float32", "float") else getattr(torch, name)


def steps(model, block, rotary, own, hidden, following, first):
    """Rows of the module: hidden [n,D] beside the tokens that follow, at positions from the first on, all of one sequence."""
    x = torch.nn.functional.linear(torch.cat((own["enorm"](model.model.embed_tokens(following)), own["hnorm"](hidden)), dim=-1), own["eh_proj"])
    n = len(x)
    position = torch.arange(n)[None] + first
    mask = torch.full((n, n), float("-inf"), dtype=torch.float64).triu(1)[None, None]
    out = block(x[None], attention_mask=mask, position_ids=position, position_embeddings=rotary(x[None], position))
    out = own["shared_head.norm"](out[0] if isinstance(out, tuple) else out)[0]
    return out, model.lm_head(out)


def make():
    released.torch = Wide()
    torch.Tensor.float = torch.Tensor.double
    torch.manual_seed(37)
    config = transformers.DeepseekV3Config(num_hidden_layers=LAYERS + 1, attn_implementation="eager", experts_implementation="eager", **SHAPE)
    config._attn_implementation = "eager"
    model = transformers.DeepseekV3ForCausalLM(config).double().eval()
    norm = lambda: released.DeepseekV3RMSNorm(config.hidden_size, eps=config.rms_norm_eps).double()
    own = {"enorm": norm(), "hnorm": norm(), "shared_head.norm": norm(), "eh_proj": torch.empty(config.hidden_size, 2 * config.hidden_size).double()}
    with torch.no_grad():
        for p in list(model.parameters()) + [own["eh_proj"]]:
            p.normal_(0, 0.3) if p.dim() > 1 else p.uniform_(0.5, 1.5)
        for name in ("enorm", "hnorm", "shared_head.norm"):
            own[name].weight.uniform_(0.5, 1.5)
        for name, b in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                b.normal_(0, 0.3)
        block, model.model.layers = model.model.layers[LAYERS], model.model.layers[:LAYERS]
        state = {f"model.layers.{LAYERS}.{key}": t for key, t in block.state_dict().items()} | dict(model.state_dict())
        ids = torch.randint(0, SHAPE["vocab_size"], (TOKENS,))
        hidden = model.model(ids[None], use_cache=False).last_hidden_state[0]
        first = steps(model, block, model.model.rotary_emb, own, hidden[:-1], ids[1:], 0)
        # The module goes on with its own hidden states, beside the token that it finds the most probable.
        found = first[1][-1].argmax()[None]
        again = steps(model, block, model.model.rotary_emb, own, torch.cat((hidden[:-1], first[0][-1:])), torch.cat((ids[1:], found)), 0)
    out = {"ids": ids.int(), "hidden": hidden, "logits": model.lm_head(hidden), "next/hidden": first[0], "next/logits": first[1],
           "further/token": found.int(), "further/logits": again[1][-1]}
    for name, t in state.items():
        if ".experts.gate_up_proj" in name or ".experts.down_proj" in name:
            out |= experts_of(name, t)
        else:
            out[name] = t
    before = f"model.layers.{LAYERS}."
    out |= {f"{before}{key}.weight": t if key == "eh_proj" else t.weight for key, t in own.items()}
    # Released files have copies of these two.
    out |= {before + "embed_tokens.weight": out["model.embed_tokens.weight"], before + "shared_head.head.weight": out["lm_head.weight"]}
    return ({key: np.ascontiguousarray(t.detach().numpy()) for key, t in out.items()},
            {"transformers": transformers.__version__, "torch": torch.__version__.split("+")[0]})


def experts_of(name, t):
    """Newer transformers stack the experts' matrices; released files have one of each."""
    before, kind = name.rsplit(".", 1)
    half = t.shape[1] // 2
    if kind == "down_proj":
        return {f"{before}.{e}.down_proj.weight": t[e] for e in range(len(t))}
    return {f"{before}.{e}.{part}.weight": t[e, half * i:half * (i + 1)] for e in range(len(t)) for i, part in enumerate(("gate_proj", "up_proj"))}


if __name__ == "__main__":
    sys.exit(tensor_file.command(__doc__.splitlines()[0], FILE, make, lambda: tensor_file.compare("predictor", make()[0], FILE, 1e-12)) or 0)
