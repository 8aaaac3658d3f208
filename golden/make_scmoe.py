#!/usr/bin/env python3
"""A golden model with its mixture on a shortcut: loss and the gradients of all weights, by autograd in fp64.

    golden/make_scmoe.py            write golden/scmoe.safetensors and its line of golden/MANIFEST
    golden/make_scmoe.py --check    make it again, compare with the stored one and name the tensors that differ

It is transformers' LongcatFlashForCausalLM (5.23.0) with one change: its latent attention is replaced by transformers' LlamaAttention, as
Orrery has no other.  Blocks, norms, dense feed-forwards, router, experts and those without computation are the released classes.  The
auxiliary losses are not in it.  golden/README.md says what is in the file.
"""
import importlib
import os
import pathlib
import sys

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

try:
    import numpy as np
    import torch
    import transformers
except ImportError as missing:
    sys.exit(f"make_scmoe.py: {missing}; golden/README.md says what to install")

import make_routers
import philox
import tensor_file

HERE = pathlib.Path(__file__).resolve().parent
FILE = HERE / "scmoe.safetensors"
SHAPE = dict(L=2, H=3, K=1, D=12, F=7, V=17, S=5, E=5, zero=2, k=3)
BATCH, THETA, SCALE, EPS, DEVIATION = 3, 100.0, 2.5, 1e-5, 0.05


def drawn(name, *shape):
    return make_routers.drawn("scmoe/" + name, *shape)


def model():
    c = SHAPE
    longcat = importlib.import_module("transformers.models.longcat_flash.modeling_longcat_flash")
    llama = importlib.import_module("transformers.models.llama.modeling_llama")
    longcat.torch = llama.torch = make_routers.Wide()
    rope = {"rope_type": "default", "rope_theta": THETA}
    config = transformers.LongcatFlashConfig(
        vocab_size=c["V"], hidden_size=c["D"], num_layers=c["L"], num_attention_heads=c["H"], num_key_value_heads=c["K"],
        max_position_embeddings=c["S"], rms_norm_eps=EPS, ffn_hidden_size=c["F"], expert_ffn_hidden_size=c["F"], moe_topk=c["k"],
        n_routed_experts=c["E"], zero_expert_num=c["zero"], routed_scaling_factor=SCALE, q_lora_rank=4, kv_lora_rank=4,
        qk_nope_head_dim=4, qk_rope_head_dim=4, head_dim=4, v_head_dim=4, rope_parameters=rope, attn_implementation="eager",
        experts_implementation="eager", use_cache=False, bos_token_id=0, eos_token_id=0)
    grouped = transformers.LlamaConfig(
        hidden_size=c["D"], num_attention_heads=c["H"], num_key_value_heads=c["K"], max_position_embeddings=c["S"],
        rope_parameters=rope, attn_implementation="eager")
    m = transformers.LongcatFlashForCausalLM(config)
    m.model.rotary_emb = llama.LlamaRotaryEmbedding(grouped)
    for layer in m.model.layers:
        layer.self_attn = torch.nn.ModuleList([llama.LlamaAttention(grouped, 0) for _ in (0, 1)])
    return m.double().train()


def parts(name, tensor):
    """A tensor as released files have it: each expert's matrices by themselves."""
    if ".experts." not in name:
        yield name if name.endswith(".weight") else name + ".weight", tensor
        return
    at = name[:name.index(".experts.") + len(".experts.")]
    for e in range(SHAPE["E"]):
        if name.endswith("down_proj"):
            yield f"{at}{e}.down_proj.weight", tensor[e]
        else:
            gate, up = tensor[e].chunk(2, dim=0)
            yield f"{at}{e}.gate_proj.weight", gate
            yield f"{at}{e}.up_proj.weight", up


def stored(t, kind="<f8"):
    return np.ascontiguousarray(t.detach().numpy().astype(kind))


def make():
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = torch.Tensor.double
    c, m, tensors = SHAPE, model(), {}
    with torch.no_grad():
        for name, w in m.named_parameters():
            w.copy_((1 if "norm" in name else 0) + 0.3 * drawn(name, *w.shape))
        for i, layer in enumerate(m.model.layers):
            bias = layer.mlp.router.e_score_correction_bias
            bias.copy_(DEVIATION * drawn(f"bias/{i}", *bias.shape))
            tensors[f"bias.{i}"] = stored(bias)
    tokens = [torch.from_numpy(np.floor(c["V"] * philox.uniform(make_routers.SEED, "scmoe/" + what, BATCH * c["S"])).astype("i8")
                               .reshape(BATCH, c["S"])) for what in ("ids", "labels")]
    chosen = []
    for layer in m.model.layers:
        layer.mlp.router.register_forward_hook(lambda _, args, out: chosen.append(out))
    logits = m(input_ids=tokens[0]).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, c["V"]), tokens[1].reshape(-1))
    loss.backward()
    for (rows, _, experts), layer in zip(chosen, m.model.layers):
        keys = torch.sort(rows.softmax(-1) + layer.mlp.router.e_score_correction_bias, dim=-1)[0]
        assert keys.diff(dim=-1).min() > make_routers.MARGIN, "two keys are too near: draw others"
        assert (experts >= c["E"]).any() and (experts < c["E"]).any(), "only experts of one kind are chosen"
    tensors.update(ids=stored(tokens[0], "<i4"), labels=stored(tokens[1], "<i4"), loss=stored(loss), logits=stored(logits))
    for name, w in m.named_parameters():
        for part, t in parts(name, w):
            tensors[part] = stored(t)
        for part, t in parts(name, w.grad):
            tensors[part + ".grad"] = stored(t)
    metadata = {"generator": "golden/make_scmoe.py", "numpy": np.__version__, "torch": torch.__version__,
                "transformers": transformers.__version__, "theta": str(THETA), "scale": str(SCALE), "eps": str(EPS), "batch": str(BATCH)}
    metadata.update({key: str(value) for key, value in c.items()})
    return tensors, metadata


def check():
    return tensor_file.compare("scmoe", make()[0], FILE, make_routers.ROUNDING)


if __name__ == "__main__":
    torch.set_num_threads(1)
    philox.known_answers()
    sys.exit(tensor_file.command("Make a golden model with its mixture on a shortcut.", FILE, make, check))
