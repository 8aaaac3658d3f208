"""What a framework calls a tensor, and which part of ours it is.

Ours are those of golden/README.md: matrices that multiply the same input are one, rows below each other, and layer i's activations
begin with `h.i.`.  So one of ours is often several of theirs: q_proj, k_proj and v_proj are intervals of qkv_proj's rows, and
their outputs intervals of attn.qkv's columns.
"""
from dataclasses import dataclass, field

import numpy as np

from .errors import DumpError
from .experts import Mixture
from .layouts import interleaved_qkv


@dataclass
class Place:
    """Where a parameter of theirs lies in one of ours."""
    name: str                                   # ours
    of: tuple                                   # its shape (rows, columns); a vector has one column
    rows: np.ndarray                            # ours of each row of theirs
    piece: str = ""                             # tells pieces of one of ours apart
    transposed: bool = False                    # theirs is [in, out]
    parts: tuple = ()                           # sizes of parts of theirs that are cut one by one; () = one part


@dataclass
class Watch:
    """An activation: the output or first input of a module, and its columns in one of ours."""
    name: str                                   # ours, without act/ or grad/
    module: str
    side: str                                   # "input" or "output"
    of: int                                     # columns of ours
    cols: np.ndarray                            # ours of each column of theirs
    piece: str = ""
    parts: tuple = ()                           # as in Place
    item: int = 0                               # of a result that is several tensors
    heads: int = 0                              # it may be [sequences, heads, tokens, width] or [sequences, tokens, heads, width]


@dataclass
class Names:
    parameters: dict                            # theirs -> Place; of a tensor of all experts a list of Places, one for each
    watches: list
    layers: dict = field(default_factory=dict)  # module of a layer's attention -> our layer, for what is not a module's result
    heads: tuple = ()                           # (query heads, key heads, width)
    order: str = "bsh"                          # of the dimensions of an activation: "bsh" or "sbh"
    mixtures: list = field(default_factory=list)        # layers whose experts are one module (experts.py)
    products: dict = field(default_factory=dict)        # ours -> (module, module inside it, columns): the product with the latter's result
    turned: np.ndarray = None                   # ours of each column of a head's queries and keys after rotary positions; None: the same
    left_out: dict = field(default_factory=dict)        # activations that no module has, and why: they are not recorded
    start: object = None                        # of a golden file: its weights (start.Start)
    matched: dict = field(default_factory=dict)         # theirs -> the golden file's name that was found for it (matching.py)
    transposed: dict = field(default_factory=dict)      # theirs that are [in, out] by themselves -> what shows it
    shapes: dict = field(init=False)

    def __post_init__(self):
        self.shapes = {p.name: p.of for places in self.parameters.values() for p in (places if isinstance(places, list) else [places])}


class _Table:
    """Collects the names of a family; `theirs` and `ours` are patterns with {} for the layer."""

    def __init__(self, layers, offset, order="bsh"):
        self.parameters, self.watches, self.layers, self.offset, self.order = {}, [], list(layers), offset, order

    def each(self, pattern, ours):
        if "{}" not in pattern:
            return [(pattern, ours)]
        return [(pattern.format(i - self.offset), ours.format(i)) for i in self.layers]

    def parameter(self, theirs, ours, rows, columns, start=0, count=None, index=None, **more):
        index = np.arange(start, start + (count or rows)) if index is None else index
        for a, b in self.each(theirs, ours):
            self.parameters[a] = Place(b, (rows, columns), index, **more)

    def watch(self, ours, module, side, width, start=0, count=None, index=None, **more):
        index = np.arange(start, start + (count or width)) if index is None else index
        for a, b in self.each(module, ours):
            self.watches.append(Watch(b, a, side, width, index, **more))

    def names(self, attention, heads):
        return Names(self.parameters, self.watches, {attention.format(i - self.offset): i for i in self.layers}, heads, self.order)


def _sizes(config):
    get = config.get
    D, H = get("hidden_size"), get("num_attention_heads")
    K = get("num_key_value_heads") or H
    return D, H, K, get("head_dim") or D // H, get("intermediate_size"), get("vocab_size"), get("num_hidden_layers")


def llama(config, layers=None, offset=0, prefix="model."):
    """LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM and Qwen3ForCausalLM of transformers.

    layers   ours that this model has: a stage of a pipeline has some of them
    offset   our number of its layer 0
    """
    D, H, K, A, F, V, L = _sizes(config)
    t = _Table(range(L) if layers is None else layers, offset)
    ours, at, Q = "model.layers.{}.", prefix + "layers.{}.", (H + 2 * K) * A
    t.parameter(prefix + "embed_tokens.weight", "model.embed_tokens.weight", V, D)
    qkv = (("q", 0, H * A), ("k", H * A, K * A), ("v", (H + K) * A, K * A))
    for name in ("input_layernorm", "post_attention_layernorm"):
        t.parameter(f"{at}{name}.weight", f"{ours}{name}.weight", D, 1)
    for name, start, count in qkv:
        t.parameter(f"{at}self_attn.{name}_proj.weight", ours + "self_attn.qkv_proj.weight", Q, D, start, count, piece=name)
        t.parameter(f"{at}self_attn.{name}_proj.bias", ours + "self_attn.qkv_proj.bias", Q, 1, start, count, piece=name)
    t.parameter(at + "self_attn.o_proj.weight", ours + "self_attn.o_proj.weight", D, H * A)
    t.parameter(at + "self_attn.o_proj.bias", ours + "self_attn.o_proj.bias", D, 1)
    for i, name in enumerate("qk"):
        t.parameter(f"{at}self_attn.{name}_norm.weight", ours + "self_attn.qk_norm.weight", 2 * A, 1, i * A, A, piece=name)
    for i, name in enumerate(("gate", "up")):
        t.parameter(f"{at}mlp.{name}_proj.weight", ours + "mlp.gate_up_proj.weight", 2 * F, D, i * F, F, piece=name)
        t.parameter(f"{at}mlp.{name}_proj.bias", ours + "mlp.gate_up_proj.bias", 2 * F, 1, i * F, F, piece=name)
    t.parameter(at + "mlp.down_proj.weight", ours + "mlp.down_proj.weight", D, F)
    t.parameter(at + "mlp.down_proj.bias", ours + "mlp.down_proj.bias", D, 1)
    t.parameter(prefix + "norm.weight", "model.norm.weight", D, 1)
    t.parameter("lm_head.weight", "lm_head.weight", V, D)

    t.watch("embedding", prefix + "embed_tokens", "output", D)
    t.watch("h.{}.ln_1", at + "input_layernorm", "output", D)
    for name, start, count in qkv:
        t.watch("h.{}.attn.qkv", f"{at}self_attn.{name}_proj", "output", Q, start, count, piece=name)
        if config.get("model_type") == "qwen3":
            t.watch("h.{}.attn.normed", f"{at}self_attn.{name}_norm" if name != "v" else at + "self_attn.v_proj", "output", Q, start, count, piece=name)
    t.watch("h.{}.attn.heads", at + "self_attn.o_proj", "input", H * A)
    t.watch("h.{}.attn.out", at + "self_attn.o_proj", "output", D)
    t.watch("h.{}.mid", at + "post_attention_layernorm", "input", D)
    t.watch("h.{}.ln_2", at + "post_attention_layernorm", "output", D)
    for i, name in enumerate(("gate", "up")):
        t.watch("h.{}.mlp.up", f"{at}mlp.{name}_proj", "output", 2 * F, i * F, F, piece=name)
    t.watch("h.{}.mlp.act", at + "mlp.down_proj", "input", F)
    t.watch("h.{}.mlp.out", at + "mlp.down_proj", "output", D)
    t.watch("h.{}.out", at[:-1], "output", D)
    t.watch("ln_f", prefix + "norm", "output", D)
    t.watch("logits", "lm_head", "output", V)
    return t.names(at + "self_attn", (H, K, A))


def gpt_oss(config, layers=None, offset=0, prefix="model."):
    """GptOssForCausalLM of transformers.

    Its tensors of all experts have matrices [in, out], in which gates and gated values take turns.  What an expert computes is no module's
    result, and is seen if config._experts_implementation is "eager": one expert after the other.
    """
    D, H, K, A, F, V, L = _sizes(config)
    E, turns = config["num_local_experts"], np.arange(2 * F) // 2 + np.arange(2 * F) % 2 * F
    t = llama(config, layers, offset, prefix)
    ours, at = "model.layers.{}.", prefix + "layers.{}."
    t.watches = [w for w in t.watches if ".mlp." not in w.name]
    for i in range(L) if layers is None else layers:
        here, there = ours.format(i), at.format(i - offset)
        for name in [n for n in t.parameters if n.startswith(there + "mlp.")]:
            del t.parameters[name]
        t.mixtures.append(Mixture(i, there + "mlp.experts", f"h.{i}.router.weights", E, turns, F, D))
        t.watches.append(Watch(f"h.{i}.router.logits", there + "mlp.router", "output", E, np.arange(E)))
        t.watches.append(Watch(f"h.{i}.mlp.out", there + "mlp", "output", D, np.arange(D)))
        t.parameters[there + "self_attn.sinks"] = Place(here + "self_attn.sinks.weight", (H, 1), np.arange(H))
        t.parameters[there + "mlp.router.weight"] = Place(here + "mlp.router.weight", (E, D), np.arange(E))
        t.parameters[there + "mlp.router.bias"] = Place(here + "mlp.router.bias", (E, 1), np.arange(E))
        for name, rows, columns, index in (("gate_up_proj", 2 * F, D, turns), ("down_proj", D, F, np.arange(D))):
            expert = here + "mlp.experts.{}." + name
            t.parameters[f"{there}mlp.experts.{name}"] = [Place(expert.format(e) + ".weight", (rows, columns), index, transposed=True) for e in range(E)]
            t.parameters[f"{there}mlp.experts.{name}_bias"] = [Place(expert.format(e) + ".bias", (rows, 1), index) for e in range(E)]
    t.__post_init__()
    return t


def gpt2(config, layers=None, offset=0, prefix="transformer."):
    """GPT2LMHeadModel of transformers: its Conv1D keeps matrices [in, out]."""
    D, H, V, L, S = (config[k] for k in ("n_embd", "n_head", "vocab_size", "n_layer", "n_positions"))
    F = config.get("n_inner") or 4 * D
    t = _Table(range(L) if layers is None else layers, offset)
    at = prefix + "h.{}."
    t.parameter(prefix + "wte.weight", "wte.weight", V, D)
    t.parameter(prefix + "wpe.weight", "wpe.weight", S, D)
    for name in ("ln_1", "ln_2"):
        for kind in ("weight", "bias"):
            t.parameter(f"{at}{name}.{kind}", f"h.{{}}.{name}.{kind}", D, 1)
    for name, rows, columns, parts in (("attn.c_attn", 3 * D, D, (D, D, D)), ("attn.c_proj", D, D, ()), ("mlp.c_fc", F, D, ()), ("mlp.c_proj", D, F, ())):
        t.parameter(f"{at}{name}.weight", f"h.{{}}.{name}.weight", rows, columns, transposed=True, parts=parts)
        t.parameter(f"{at}{name}.bias", f"h.{{}}.{name}.bias", rows, 1, parts=parts)
    for kind in ("weight", "bias"):
        t.parameter(f"{prefix}ln_f.{kind}", f"ln_f.{kind}", D, 1)
    t.parameter("lm_head.weight", "lm_head.weight", V, D)

    t.watch("embedding", prefix + "drop", "output", D)
    t.watch("h.{}.attn.qkv", at + "attn.c_attn", "output", 3 * D, parts=(D, D, D))
    for name, module, side, width in (
            ("ln_1", "ln_1", "output", D), ("attn.heads", "attn.c_proj", "input", D), ("attn.out", "attn.c_proj", "output", D),
            ("mid", "ln_2", "input", D), ("ln_2", "ln_2", "output", D), ("mlp.up", "mlp.c_fc", "output", F), ("mlp.act", "mlp.c_proj", "input", F),
            ("mlp.out", "mlp.c_proj", "output", D)):
        t.watch("h.{}." + name, at + module, side, width)
    t.watch("h.{}.out", at[:-1], "output", D)
    t.watch("ln_f", prefix + "ln_f", "output", D)
    t.watch("logits", "lm_head", "output", V)
    return t.names(at + "attn", (H, H, D // H))


def megatron(config, layers=None, offset=0):
    """GPTModel of Megatron-Core as a Llama: [s, b, h], queries, keys and values interleaved by group, gate and up in one matrix."""
    D, H, K, A, F, V, L = _sizes(config)
    t = _Table(range(L) if layers is None else layers, offset, "sbh")
    ours, at, Q = "model.layers.{}.", "decoder.layers.{}.", (H + 2 * K) * A
    turned = interleaved_qkv(H, K, A)
    t.parameter("embedding.word_embeddings.weight", "model.embed_tokens.weight", V, D)
    t.parameter(at + "input_layernorm.weight", ours + "input_layernorm.weight", D, 1)
    t.parameter(at + "pre_mlp_layernorm.weight", ours + "post_attention_layernorm.weight", D, 1)
    t.parameter(at + "self_attention.linear_qkv.weight", ours + "self_attn.qkv_proj.weight", Q, D, index=turned)
    t.parameter(at + "self_attention.linear_proj.weight", ours + "self_attn.o_proj.weight", D, H * A)
    t.parameter(at + "mlp.linear_fc1.weight", ours + "mlp.gate_up_proj.weight", 2 * F, D, parts=(F, F))
    t.parameter(at + "mlp.linear_fc2.weight", ours + "mlp.down_proj.weight", D, F)
    t.parameter("decoder.final_layernorm.weight", "model.norm.weight", D, 1)
    t.parameter("output_layer.weight", "lm_head.weight", V, D)

    t.watch("embedding", "embedding", "output", D)
    t.watch("h.{}.ln_1", at + "input_layernorm", "output", D)
    t.watch("h.{}.attn.qkv", at + "self_attention.linear_qkv", "output", Q, index=turned)
    t.watch("h.{}.attn.heads", at + "self_attention.linear_proj", "input", H * A)
    t.watch("h.{}.attn.out", at + "self_attention.linear_proj", "output", D)
    t.watch("h.{}.mid", at + "pre_mlp_layernorm", "input", D)
    t.watch("h.{}.ln_2", at + "pre_mlp_layernorm", "output", D)
    t.watch("h.{}.mlp.up", at + "mlp.linear_fc1", "output", 2 * F, parts=(F, F))
    t.watch("h.{}.mlp.act", at + "mlp.linear_fc2", "input", F)
    t.watch("h.{}.mlp.out", at + "mlp.linear_fc2", "output", D)
    t.watch("h.{}.out", at[:-1], "output", D)
    t.watch("ln_f", "decoder.final_layernorm", "output", D)
    t.watch("logits", "output_layer", "output", V)
    return t.names(at + "self_attention", (H, K, A))


FAMILIES = {"llama": llama, "mistral": llama, "qwen2": llama, "qwen3": llama, "gpt2": gpt2, "gpt_oss": gpt_oss}


def of_config(config, **more):
    """The names that transformers uses, by the model_type of its config.json."""
    kind = config.get("model_type")
    if kind not in FAMILIES:
        raise DumpError(f"no names are known for model_type {kind!r}: give golden=, a file of orrery golden make; known without one are {', '.join(FAMILIES)}")
    return FAMILIES[kind](config, **more)
