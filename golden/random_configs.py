"""Random configurations of every family that transformers accepts, as folders that it has written and loads: for transformers_fuzz.py.

Sizes that do not divide, every kind of rotary positions, windows, biases, caps, routers; weights of which all matter; then keys of config.json
are left out, nulled or written as transformers 4 did.
"""
import json
import math
import random

import torch
import transformers
import transformers_check as check

SIZES = set("""model_type architectures vocab_size hidden_size intermediate_size num_hidden_layers num_attention_heads moe_intermediate_size n_embd n_layer n_head n_inner
    n_positions max_position_embeddings n_routed_experts num_local_experts num_experts kv_lora_rank q_lora_rank qk_nope_head_dim qk_rope_head_dim v_head_dim""".split())


# ---- configurations ------------------------------------------------------------------------------------------------------

def sizes(r):
    K, L = r.choice([1, 1, 2, 3]), r.randint(1, 4)
    H, A = K * r.choice([1, 1, 2, 3, 5]), 2 * r.randint(1, 7)
    D = H * r.choice([A, r.randint(1, max(1, 40 // H))])
    return dict(vocab_size=r.randint(3, 70), hidden_size=D, num_attention_heads=H, num_key_value_heads=K, head_dim=A, num_hidden_layers=L,
                intermediate_size=r.randint(1, 45), max_position_embeddings=r.randint(3, 40), rms_norm_eps=r.choice([1e-6, 1e-3, 0.1]),
                tie_word_embeddings=r.random() < 0.5, bos_token_id=None, eos_token_id=None, pad_token_id=None)


def rotary(r, A, S, kinds=("default", "linear", "dynamic", "llama3", "yarn", "longrope")):
    """rope_parameters, for A numbers of a head."""
    o = dict(rope_type=r.choice(kinds), rope_theta=r.choice([10000.0, 500.0, 50.0, 3.7]))
    some = lambda chance, **keys: o.update({k: r.choice(v) for k, v in keys.items() if r.random() < chance})
    if o["rope_type"] not in ("default", "longrope"):
        some(1, factor=[1.0, 1.5, 4.0, 32.0])
    if o["rope_type"] == "llama3":
        some(1, low_freq_factor=[0.5, 1.0, 2.0], high_freq_factor=[3.0, 4.0, 8.0], original_max_position_embeddings=range(1, 2 * S))
    if o["rope_type"] == "yarn":
        some(1, original_max_position_embeddings=range(1, 2 * S))
        some(0.4, beta_fast=[32.0, 2.0, 7.5], beta_slow=[1.0, 0.25], truncate=[True, False], attention_factor=[1.0, 0.7], mscale=[1.0, 0.7], mscale_all_dim=[1.0, 0.9])
    if o["rope_type"] == "longrope":
        o.update({key: [round(r.uniform(1, most), 3) for _ in range(A // 2)] for key, most in (("short_factor", 2), ("long_factor", 20))})
        some(0.9, original_max_position_embeddings=range(2, S + 1))
        some(0.3, factor=[1.0, 4.0], attention_factor=[1.0, 0.7])
    return o


def config(family, r):
    """What the class of this family is made with."""
    flip = lambda chance=0.5: r.random() < chance
    if family in ("gpt2", "gptj"):
        H, A = r.choice([1, 2, 3, 5]), r.randint(3, 9) if family == "gpt2" else 2 * r.randint(2, 5)     # a norm of one or two numbers cancels
        c = dict(vocab_size=r.randint(3, 70), n_positions=r.randint(1, 40), n_embd=H * A, n_head=H, n_layer=r.randint(1, 4), n_inner=r.choice([None, r.randint(1, 50)]),
                 layer_norm_epsilon=r.choice([1e-5, 1e-3, 0.1]), tie_word_embeddings=flip(), activation_function=r.choice(["gelu_new", "gelu_pytorch_tanh"]),
                 bos_token_id=None, eos_token_id=None, attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0)
        return dict(c, rotary_dim=2 * r.randint(1, A // 2)) if family == "gptj" else c
    c = sizes(r)
    A, L, S, E = c["head_dim"], c["num_hidden_layers"], c["max_position_embeddings"], r.randint(1, 8)
    window, kinds = r.randint(1, S + 2), [r.choice(["full_attention", "sliding_attention"]) for _ in range(L)]
    c["rope_parameters"] = rotary(r, A, S)
    if family in ("llama", "qwen3", "qwen3_moe", "olmo2", "olmo3", "olmoe", "glm4_moe", "gemma", "gemma2", "gemma3_text", "gpt_oss"):
        c["attention_bias"] = flip()
    if family == "llama":
        c.update(mlp_bias=flip(), hidden_act=r.choice(["silu", "swish"]))
    if family in ("mistral", "mixtral", "phi3"):
        c["sliding_window"] = r.choice([None, window])
    if family in ("qwen2", "qwen3"):
        c.update(use_sliding_window=flip(), sliding_window=window, max_window_layers=r.randint(0, L + 1))
        c.update(dict(layer_types=kinds) if c["use_sliding_window"] and flip() else {})
    if family in ("gemma2", "gemma3_text"):
        c.update(query_pre_attn_scalar=r.choice([1, 3, 17, 256]), final_logit_softcapping=r.choice([None, 0.9, 30.0]), sliding_window=window)
        c.update(dict(layer_types=kinds) if flip() else {})
        c["attn_logit_softcapping"] = r.choice([None, 0.7, 50.0]) if family == "gemma2" else None
    if family == "gemma3_text":
        c.update({} if "layer_types" in c else dict(sliding_window_pattern=r.randint(1, 4)))
        c["rope_parameters"] = dict(full_attention=c["rope_parameters"], sliding_attention=rotary(r, A, S, ["default"]))
    if family == "phi3":
        part, c["hidden_size"] = r.choice([1.0, 0.5, 0.75, 0.67, 0.9]), c["num_attention_heads"] * A
        part = part if int(A * part) > 1 and int(A * part) % 2 == 0 else 1.0
        c["rope_parameters"] = dict(rotary(r, int(A * part), S, ["default", "longrope"]), partial_rotary_factor=part)
        c.update(partial_rotary_factor=part, original_max_position_embeddings=c["rope_parameters"].pop("original_max_position_embeddings", S))
    if family in ("mixtral", "qwen3_moe", "qwen2_moe", "olmoe", "gpt_oss"):
        c.update(num_local_experts=E, num_experts_per_tok=r.randint(1, E), output_router_logits=flip(), router_aux_loss_coef=r.choice([0.001, 0.3]))
    if family == "olmo3":
        c.update(sliding_window=window, **(dict(layer_types=kinds) if flip() else {}))
        c["rope_parameters"] = dict(full_attention=c["rope_parameters"], sliding_attention=rotary(r, A, S, ["default"]))
    if family == "olmoe":
        c.update(num_experts=c.pop("num_local_experts"), norm_topk_prob=flip(), hidden_size=c["num_attention_heads"] * A)
        del c["head_dim"]
    if family == "glm4_moe":
        G = r.choice([g for g in range(1, E + 1) if E % g == 0])
        kept, part = r.randint(1, G), r.choice([1.0, 0.5, 0.75])
        part = part if int(A * part) > 1 and int(A * part) % 2 == 0 else 1.0
        c.update(moe_intermediate_size=r.randint(1, 15), n_routed_experts=2 * E, n_group=G, topk_group=kept, num_experts_per_tok=r.randint(1, kept * 2 * E // G),
                 n_shared_experts=r.randint(1, 3), first_k_dense_replace=r.randint(0, L - 1), routed_scaling_factor=r.choice([1.0, 2.5, 0.3]),
                 norm_topk_prob=flip(), use_qk_norm=flip(), num_mtp_layers=0, rope_parameters=dict(rotary(r, int(A * part), S), partial_rotary_factor=part))
    if family == "qwen2_moe":
        c.update(shared_expert_intermediate_size=r.randint(1, 20), qkv_bias=flip())
    if family in ("qwen3_moe", "qwen2_moe"):
        c.update(num_experts=c.pop("num_local_experts"), moe_intermediate_size=r.randint(1, 20), norm_topk_prob=flip(), decoder_sparse_step=r.randint(1, min(2, L)))
        c["mlp_only_layers"] = sorted(r.sample(range(L - 1), r.randint(0, L - 1))) if c["decoder_sparse_step"] == 1 else []
    if family == "gpt_oss":
        c.update(sliding_window=window, swiglu_limit=r.choice([0.5, 1.0, 7.0]), swiglu_alpha=r.choice([1.702, 1.3]), **(dict(layer_types=kinds) if flip() else {}))
    if family.startswith("deepseek"):
        del c["head_dim"]
        E = E if family == "deepseek_v2" else 2 * E
        G = r.choice([g for g in range(1, E + 1) if E % g == 0 and (family == "deepseek_v2" or E // g > 1)])
        kept, turned, rest = r.randint(1, G), 2 * r.randint(1, 4), 2 * r.randint(1, 4)          # transformers views numbers in pairs
        c.update(num_key_value_heads=c["num_attention_heads"], q_lora_rank=r.choice([None, r.randint(1, 12)]), kv_lora_rank=2 * r.randint(1, 6), qk_nope_head_dim=rest,
                 qk_rope_head_dim=turned, v_head_dim=r.randint(1, rest + turned), moe_intermediate_size=r.randint(1, 15), n_routed_experts=E, n_group=G, topk_group=kept,
                 num_experts_per_tok=r.randint(1, kept * E // G), n_shared_experts=r.randint(1, 3), first_k_dense_replace=r.randint(0, L - 1),
                 routed_scaling_factor=r.choice([1.0, 2.5, 0.3]), rope_parameters=rotary(r, turned, S), attention_bias=flip(0.4))
        c.update(dict(topk_method=r.choice(["greedy", "group_limited_greedy"])) if family == "deepseek_v2" else dict(norm_topk_prob=flip(), rope_interleave=flip()))
    return c


# ---- files ---------------------------------------------------------------------------------------------------------------

def older(r, c):
    """Rotary positions as transformers 4 wrote them."""
    o = c.pop("rope_parameters")
    if "full_attention" in o and c["model_type"] == "olmo3":
        return c.update(rope_parameters=o)                              # of which it knows one theta alone
    if "full_attention" in o:
        c["rope_local_base_freq"], o = o["sliding_attention"]["rope_theta"], o["full_attention"]
    c.update({key: o.pop(key) for key in ("rope_theta", "partial_rotary_factor") if key in o})
    if c["model_type"] != "gemma3_text" and r.random() < 0.5:
        o["type"] = o.pop("rope_type")
    c["rope_scaling"] = o if "default" not in o.values() else None


def change(r, c):
    """A file as somebody else might have written it."""
    rope = c.get("rope_parameters", {})
    for keys in (c, rope, rope.get("full_attention", {})):             # transformers has a default for it, in each place
        if "original_max_position_embeddings" in keys and r.random() < 0.15:
            del keys["original_max_position_embeddings"]
    if "rope_parameters" in c and r.random() < 0.4:
        older(r, c)
    others = sorted(set(c) - SIZES)
    for key in r.sample(others, r.choice([0, 0, 1, 2])):
        del c[key]
    if r.random() < 0.1:
        c[r.choice(others)] = None


class Unfit(Exception):
    """transformers itself makes, loads or runs no such model."""


def draw(family, number, folder):
    """A folder, and the model that transformers reads from it."""
    r = random.Random(f"{family} {number}")
    torch.manual_seed(number)
    try:
        model = transformers.AutoModelForCausalLM.from_config(transformers.AutoConfig.for_model(family, **config(family, r)))
        scale = r.choice([0.5, 1.0, 1.5])
        for name, w in [*model.named_parameters(), *((n, b) for n, b in model.named_buffers() if n.endswith("correction_bias"))]:
            matrix = w.ndim > 1 and "embed" not in name and not name.endswith("bias")
            w.data = torch.randn_like(w) * scale / math.sqrt(w.shape[-1]) if matrix else torch.randn_like(w) if w.ndim > 1 else w.data + 0.3 * torch.randn_like(w)
        check.written(model.to(r.choice([torch.float64, torch.float32, torch.bfloat16, torch.float16])), folder, r.choice(["1GB", "20KB"]))
        path = folder / "config.json"
        c = json.loads(path.read_text())
        change(r, c)
        path.write_text(json.dumps(c, indent=1))
        return r, check.load(folder)
    except (Exception, SystemExit) as e:        # whatever validation of config.json raises
        raise Unfit(e) from None
