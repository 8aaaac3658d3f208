#!/usr/bin/env python3
"""What transformers makes of published config.json files: golden/configs/transformers.json.

    golden/make_published_configs.py            write it
    golden/make_published_configs.py --check    compute it again and compare

golden/configs/NAME.json has the keys and values of a published file, as found in public code (golden/configs/list.json says where),
and not as transformers rewrites them.  For each that Orrery reads, the installed transformers builds the model without memory, on its
meta device, and counts its parameters.  Of scaled rotary positions all frequencies are stored.  A release of its own code has no class
in transformers: of these the class that computes the same is told so here, by hand, from the release's modeling file.
"""
import json
import math
import pathlib
import sys
import tempfile

import torch
import transformers
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

HERE = pathlib.Path(__file__).resolve().parent / "configs"
OUT = HERE / "transformers.json"


def kimi_k2(keys):
    """modeling_deepseek.py beside it is DeepSeek-V3's."""
    return dict(keys, model_type="deepseek_v3")


def internlm(keys):
    """modeling_internlm.py: a Llama whose four projections of attention have biases if `bias` is true."""
    return dict(keys, model_type="llama", architectures=["LlamaForCausalLM"], attention_bias=keys["bias"])


def mimo(keys):
    """modeling_mimo.py: class MiMoForCausalLM(Qwen2ForCausalLM), and layers that predict further tokens."""
    return dict(keys, model_type="qwen2", architectures=["Qwen2ForCausalLM"])


def minicpm(keys):
    """modeling_minicpm.py: embed_tokens(ids) * scale_emb; residual + branch * (scale_depth / sqrt(num_hidden_layers));
    lm_head(hidden / (hidden_size / dim_model_base)); scores over sqrt(head_dim)."""
    width = keys["hidden_size"] / keys["num_attention_heads"]
    return dict(keys, model_type="granite", architectures=["GraniteForCausalLM"], embedding_multiplier=keys["scale_emb"],
                residual_multiplier=keys["scale_depth"] / math.sqrt(keys["num_hidden_layers"]),
                logits_scaling=keys["hidden_size"] / keys["dim_model_base"], attention_multiplier=1 / math.sqrt(width))


RELEASES = {"kimi_k2": kimi_k2, "internlm": internlm, "mimo": mimo, "minicpm": minicpm}


def config_of(keys):
    keys = {key: value for key, value in keys.items() if key != "quantization_config"}
    keys = RELEASES.get(keys["model_type"], dict)(keys)
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(keys))
        return transformers.AutoConfig.from_pretrained(folder)


def count(config):
    with torch.device("meta"):
        model = transformers.AutoModelForCausalLM.from_config(config)
    return sum(p.numel() for p in model.parameters())           # a tied matrix is there once


def first(config, *names):
    return next((value for value in (getattr(config, name, None) for name in names) if value is not None), 0)


def head_width(config):
    return first(config, "head_dim") or config.hidden_size // config.num_attention_heads


def turned(config, rope):
    """How many numbers of a head have rotary positions."""
    if hasattr(config, "qk_rope_head_dim"):
        return config.qk_rope_head_dim
    return int(head_width(config) * rope.get("partial_rotary_factor", 1.0))


def windows(config):
    """The layers with a window that is shorter than the longest sequence, and its size."""
    size = first(config, "sliding_window")
    kinds = getattr(config, "layer_types", None) or ["sliding_attention"] * config.num_hidden_layers
    layers = kinds.count("sliding_attention") if 0 < size < config.max_position_embeddings else 0
    return {"windowed_layers": layers, "window": size if layers else 0}


def rotary(config):
    """Base, and of scaled positions the frequency of each pair, in sequences as long as the model takes."""
    rope = getattr(config, "rope_parameters", None)
    if not rope:
        return {"turned": first(config, "rotary_dim")}
    if "full_attention" in rope:
        return {"theta": rope["full_attention"]["rope_theta"], "local_theta": rope["sliding_attention"]["rope_theta"],
                "turned": head_width(config)}
    facts = {"theta": rope["rope_theta"], "turned": turned(config, rope)}
    if rope["rope_type"] != "default":
        frequencies, factor = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, "cpu", seq_len=config.max_position_embeddings)
        facts.update(enlarged=float(f"{factor:.9g}"), frequencies=[float(f"{x:.8g}") for x in frequencies.tolist()])
    return facts


def facts_of(keys):
    config = config_of(keys)
    facts = dict(parameters=count(config), layers=config.num_hidden_layers, width=config.hidden_size, heads=config.num_attention_heads,
                 vocabulary=config.vocab_size, positions=config.max_position_embeddings, tied=bool(config.tie_word_embeddings),
                 experts=first(config, "num_experts", "num_local_experts", "n_routed_experts"),
                 experts_of_a_token=first(config, "num_experts_per_tok"))
    if facts["experts"] == 0:
        facts["experts_of_a_token"] = 0
    facts["epsilon"] = first(config, "rms_norm_eps", "layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps")
    facts["key_heads"] = first(config, "num_key_value_heads") or config.num_attention_heads
    return {**facts, **windows(config), **rotary(config)}


def made():
    entries = json.loads((HERE / "list.json").read_text())
    return {entry["name"]: facts_of(json.loads((HERE / f"{entry['name']}.json").read_text())) for entry in entries if "refused" not in entry}


def written(facts):
    rows = [f"{json.dumps(name)}: {json.dumps(entry)}" for name, entry in facts.items()]
    return "{\n" + ",\n".join(rows) + "\n}\n"


def main():
    text = written(made())
    if sys.argv[1:] != ["--check"]:
        OUT.write_text(text)
    elif OUT.read_text() != text:
        sys.exit(f"golden/configs/{OUT.name}: transformers {transformers.__version__} makes something else")


if __name__ == "__main__":
    main()
