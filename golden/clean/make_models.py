"""Small models of random shape in the format of transformers, and batches: what `orrery golden make` reads."""
import json
import pathlib
import subprocess

import numpy as np

from files import write

FAMILIES = ("llama", "gpt2", "qwen2", "llama", "qwen3", "gpt2", "mixtral", "qwen3_moe")
KINDS = {"llama": "LlamaForCausalLM", "gpt2": "GPT2LMHeadModel", "qwen2": "Qwen2ForCausalLM", "qwen3": "Qwen3ForCausalLM",
         "mixtral": "MixtralForCausalLM", "qwen3_moe": "Qwen3MoeForCausalLM"}


def config_of(family, draw):
    """Heads and columns that 2 or 3 ranks can share, widths that are no powers of two, large and small weights."""
    pick = lambda *of: of[draw.integers(len(of))]
    A, groups, K = pick(2, 4, 6, 8), pick(1, 2, 3), pick(1, 2, 2, 3, 6)
    L, F, V, S = pick(1, 2, 3), pick(12, 24, 36, 66), pick(18, 42, 61), pick(5, 9, 16, 24)
    c = {"model_type": family, "architectures": [KINDS[family]], "vocab_size": V, "tie_word_embeddings": bool(draw.integers(2)),
         "initializer_range": float(pick(0.02, 0.05, 0.15, 0.3)), "torch_dtype": "float32"}
    if family == "gpt2":
        return c | {"n_embd": A * K * groups, "n_head": K * groups, "n_layer": L, "n_inner": F, "n_positions": S, "layer_norm_epsilon": 1e-5,
                    "activation_function": "gelu_new", "resid_pdrop": 0.0, "embd_pdrop": 0.0, "attn_pdrop": 0.0}
    c |= {"hidden_size": A * K * groups if family in ("llama", "qwen2") else pick(12, 24, 30), "num_attention_heads": K * groups, "num_key_value_heads": K,
          "head_dim": A, "num_hidden_layers": L, "intermediate_size": F, "max_position_embeddings": S, "rms_norm_eps": 1e-6, "hidden_act": "silu",
          "rope_theta": float(pick(50, 10000, 1000000)), "attention_dropout": 0.0}
    if family == "mixtral":
        c |= {"num_local_experts": pick(4, 5, 7), "num_experts_per_tok": pick(1, 2, 3), "router_aux_loss_coef": 0.0, "output_router_logits": False,
              "sliding_window": None, "hidden_size": A * K * groups}
        c.pop("head_dim")
    if family == "qwen3_moe":
        c |= {"num_experts": pick(4, 6), "num_experts_per_tok": pick(1, 2), "moe_intermediate_size": pick(6, 10), "norm_topk_prob": bool(draw.integers(2)),
              "router_aux_loss_coef": 0.0, "output_router_logits": False, "decoder_sparse_step": 1, "mlp_only_layers": []}
    return c


def weights_of(c, draw):
    """Names and shapes of transformers; a GPT-2 has its matrices [in, out]."""
    normal = lambda *shape: (draw.standard_normal(shape) * c["initializer_range"]).astype(np.float32)
    vector = lambda n, about: (about + 0.1 * draw.standard_normal(n)).astype(np.float32)
    V, w = c["vocab_size"], {}
    if c["model_type"] == "gpt2":
        D, F = c["n_embd"], c["n_inner"]
        w["transformer.wte.weight"], w["transformer.wpe.weight"] = normal(V, D), normal(c["n_positions"], D)
        norms, head = [f"transformer.h.{i}.ln_{k}" for i in range(c["n_layer"]) for k in (1, 2)] + ["transformer.ln_f"], D
        for i in range(c["n_layer"]):
            for name, rows, cols in (("attn.c_attn", D, 3 * D), ("attn.c_proj", D, D), ("mlp.c_fc", D, F), ("mlp.c_proj", F, D)):
                w[f"transformer.h.{i}.{name}.weight"], w[f"transformer.h.{i}.{name}.bias"] = normal(rows, cols), vector(cols, 0)
        for name in norms:
            w[name + ".weight"], w[name + ".bias"] = vector(D, 1), vector(D, 0)
        if not c["tie_word_embeddings"]:
            w["lm_head.weight"] = normal(V, head)
        return w
    D, H, K, F = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"], c["intermediate_size"]
    A, E = c.get("head_dim") or D // H, c.get("num_local_experts") or c.get("num_experts") or 0
    w["model.embed_tokens.weight"], w["model.norm.weight"] = normal(V, D), vector(D, 1)
    if not c["tie_word_embeddings"]:
        w["lm_head.weight"] = normal(V, D)
    for i in range(c["num_hidden_layers"]):
        at = f"model.layers.{i}."
        w[at + "input_layernorm.weight"], w[at + "post_attention_layernorm.weight"] = vector(D, 1), vector(D, 1)
        for name, rows in (("q", H * A), ("k", K * A), ("v", K * A)):
            w[at + f"self_attn.{name}_proj.weight"] = normal(rows, D)
            if c["model_type"] == "qwen2":
                w[at + f"self_attn.{name}_proj.bias"] = vector(rows, 0)
            if c["model_type"].startswith("qwen3") and name != "v":
                w[at + f"self_attn.{name}_norm.weight"] = vector(A, 1)
        w[at + "self_attn.o_proj.weight"] = normal(D, H * A)
        if c["model_type"] == "mixtral":
            w[at + "block_sparse_moe.gate.weight"] = 3 * normal(E, D)
            for e in range(E):
                for name, rows, cols in (("w1", F, D), ("w3", F, D), ("w2", D, F)):
                    w[at + f"block_sparse_moe.experts.{e}.{name}.weight"] = normal(rows, cols)
        elif E:
            w[at + "mlp.gate.weight"] = 3 * normal(E, D)
            for e in range(E):
                for name, rows, cols in (("gate", c["moe_intermediate_size"], D), ("up", c["moe_intermediate_size"], D), ("down", D, c["moe_intermediate_size"])):
                    w[at + f"mlp.experts.{e}.{name}_proj.weight"] = normal(rows, cols)
        else:
            for name, rows, cols in (("gate", F, D), ("up", F, D), ("down", D, F)):
                w[at + f"mlp.{name}_proj.weight"] = normal(rows, cols)
    return w


# Conventions of losses that program.py follows.  A text is also for models without a mixture, or only for mixtures.
LOSSES = ("torch-smoothing", "megatron-smoothing", "logits-z=0.01", "sequence-mean", "row-mean", "loss-sum,loss-divisor=40",
          "loss-mean=parts,loss-parts=2", "label-smoothing=0.3,smoothing-over=others,logits-z=0.001,sequence-mean", "loss-mean=parts,loss-parts=2,loss-divisor=3")
BALANCES = ("megatron-aux-loss", "megatron-seq-aux-loss", "megatron-global-aux-loss", "deepspeed-aux-loss", "transformers-aux-loss", "batch-aux-loss",
            "sequence-aux-loss", "megatron-seq-aux-loss,sequence-mean,label-smoothing=0.1")


def losses_of(c, draw):
    """The words of --as, and microbatches where they are needed."""
    moe = c["model_type"] in ("mixtral", "qwen3_moe")
    one = str(draw.choice(BALANCES if moe else LOSSES))
    if moe:
        c |= {"router_aux_loss_coef": float(draw.choice([0.02, 0.5])), "output_router_logits": True}
    return ["--as", "orrery," + one] + (["--micro", "2"] if one.split("-aux")[0] in ("megatron", "deepspeed", "transformers") else [])


def make(place, number, orrery, losses=False):
    """The golden file of model `number`, and its bounds, in a folder that keeps them.  @return its path"""
    draw = np.random.default_rng(number)
    family, golden = FAMILIES[number % len(FAMILIES)], pathlib.Path(place) / f"{number}-{FAMILIES[number % len(FAMILIES)]}.safetensors"
    if golden.with_suffix("").with_suffix(".bounds.json").exists():
        return golden
    folder = golden.with_suffix("")
    folder.mkdir(parents=True, exist_ok=True)
    c = config_of(family, draw)
    words = losses_of(c, draw) if losses else []
    (folder / "config.json").write_text(json.dumps(c))
    write(folder / "model.safetensors", {k: ("F32", x) for k, x in weights_of(c, draw).items()}, {"format": "pt"})
    S, B = c.get("n_positions") or c["max_position_embeddings"], int(draw.integers(2, 7))
    ids = draw.integers(0, c["vocab_size"], (3, B, S + 1))
    labels = np.where(draw.random((3, B, S)) < draw.choice([0.0, 0.3]), -100, ids[:, :, 1:])
    labels[:, :, 0] = ids[:, :, 1]                                  # a sequence has at least one label
    write(folder / "batch.safetensors", {"ids": ("I32", ids[:, :, :-1]), "labels": ("I32", labels)}, {})
    done = subprocess.run([orrery, "golden", "make", "--out", golden, "--model", folder, "--batch", folder / "batch.safetensors", "--threads", "1", *words,
                           "--eps", "1e-4", "--lr", str(draw.choice([1e-3, 1e-2])), "--clip", str(draw.choice([0.3, 1.0]))], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{golden}: {done.stderr.strip()}")
    return golden
