"""The families of models that golden files are made of: their parameters, the classes of transformers, and where to look.

A family is an object with
    parameters(c)       (name, shape, mean, std, parts) of every logical parameter, matrices [out,in].  parts: what
                        transformers has in its place, (name, rows), one below the other; name[E]: item E of a tensor
    config(c)           its config.json, as a dictionary
    model(c)            the model of transformers, in fp64
    transposed(name)    whether transformers keeps this matrix [in,out]
    watch(model, c)     hooks on every tensor that the C announces.  Returns a function that, after backward, gives
                        (name, activation, gradient) of each, rows = tokens
    loss(model, c, ids, labels)
"""
import importlib
import importlib.util
import itertools
import math
import os
import sys

os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
import numpy as np
import torch
import transformers
from transformers.models.gptj import modeling_gptj
from transformers.models.llama import modeling_llama

try:
    from transformers.models.mixtral import modeling_mixtral
except ImportError:                             # before 4.36
    modeling_mixtral = None
try:
    from transformers.models.mistral import modeling_mistral
except ImportError:                             # before 4.34
    modeling_mistral = None
try:
    from transformers.models.olmo2 import modeling_olmo2
except ImportError:                             # before 4.47
    modeling_olmo2 = None
try:
    from transformers.models.phi3 import modeling_phi3
except ImportError:                             # before 4.41
    modeling_phi3 = None
try:
    from transformers.models.qwen2 import modeling_qwen2
except ImportError:                             # before 4.37
    modeling_qwen2 = None
try:
    from transformers.models.qwen3 import modeling_qwen3
except ImportError:                             # before 4.51
    modeling_qwen3 = None
try:
    from transformers.models.qwen3_moe import modeling_qwen3_moe
except ImportError:                             # before 4.51
    modeling_qwen3_moe = None
try:
    from transformers.models.gpt_oss import modeling_gpt_oss
except ImportError:                             # before 4.55
    modeling_gpt_oss = None
try:
    from transformers.models.gemma import modeling_gemma
except ImportError:                             # before 4.38
    modeling_gemma = None
try:
    from transformers.models.gemma2 import modeling_gemma2
except ImportError:                             # before 4.42
    modeling_gemma2 = None
try:
    from transformers.models.gemma3 import modeling_gemma3
except ImportError:                             # before 4.50
    modeling_gemma3 = None
try:
    from transformers.models.deepseek_v2 import modeling_deepseek_v2
except ImportError:                             # before 4.54
    modeling_deepseek_v2 = None
try:
    from transformers.models.deepseek_v3 import modeling_deepseek_v3
except ImportError:                             # before 4.50
    modeling_deepseek_v3 = None


def module_of(family):
    """The code of a family; None where this version of transformers has not."""
    try:
        return importlib.import_module(f"transformers.models.{family}.modeling_{family}")
    except ImportError:
        return None


modeling_gpt_neox, modeling_nemotron, modeling_starcoder2 = module_of("gpt_neox"), module_of("nemotron"), module_of("starcoder2")
modeling_granite, modeling_smollm3, modeling_olmo3 = module_of("granite"), module_of("smollm3"), module_of("olmo3")
modeling_olmoe, modeling_qwen2_moe, modeling_glm4_moe = module_of("olmoe"), module_of("qwen2_moe"), module_of("glm4_moe")
# The released code of nanoGPT: a folder with its model.py.
NANOGPT = os.environ.get("NANOGPT")
if NANOGPT:
    of_nanogpt = importlib.util.spec_from_file_location("nanogpt", os.path.join(NANOGPT, "model.py"))
    modeling_nanogpt = importlib.util.module_from_spec(of_nanogpt)
    sys.modules["nanogpt"] = modeling_nanogpt   # whose dataclass looks there for its annotations
    of_nanogpt.loader.exec_module(modeling_nanogpt)
else:
    modeling_nanogpt = None
# The released code with parallel streams: a folder of modeling_qwen2_parscale.py and configuration_qwen2_parscale.py.
PARSCALE = os.environ.get("PARSCALE")
if PARSCALE:
    sys.path.insert(0, os.path.dirname(os.path.abspath(PARSCALE)))
    modeling_parscale = importlib.import_module(os.path.basename(os.path.abspath(PARSCALE)) + ".modeling_qwen2_parscale")
else:
    modeling_parscale = None
try:
    from transformers import modeling_rope_utils
except ImportError:                             # before 4.43
    modeling_rope_utils = None

EPS = 1e-5                                      # of the norms, where a shape has none
INIT_STD = 0.25                                 # ten times the usual: attention that is far from uniform
IGNORE = -1                                     # a label that does not count
MARGIN = 1e-3                                   # routers' logits of the last chosen and the first not chosen are further apart in golden files


# ---- fp64 all the way ----------------------------------------------------------------------------------------------------

class Wide:
    """`torch` for the modules of transformers, which compute norms, softmax and rotary angles in float32 whatever the model
    is in: here their float32 is float64."""

    def __getattr__(self, name):
        return torch.float64 if name in ("float32", "float") else getattr(torch, name)


def widen():
    torch.set_default_dtype(torch.float64)
    torch.Tensor.float = torch.Tensor.double
    for module in (modeling_gptj, modeling_llama, modeling_mistral, modeling_mixtral, modeling_olmo2, modeling_phi3, modeling_qwen2, modeling_qwen3, modeling_qwen3_moe,
                   modeling_gpt_oss, modeling_gemma, modeling_gemma2, modeling_gemma3, modeling_deepseek_v2, modeling_deepseek_v3, modeling_parscale, modeling_rope_utils,
                   modeling_gpt_neox, modeling_nemotron, modeling_starcoder2, modeling_granite, modeling_smollm3, modeling_olmo3, modeling_olmoe,
                   modeling_qwen2_moe, modeling_glm4_moe):
        if module is not None:
            module.torch = Wide()


# ---- looking on -------------------------------------------------------------------------------------------------------------

class Watch:
    """Tensors by name, kept with their gradients."""

    def __init__(self):
        self.seen = {}

    def keep(self, name, tensor):
        if tensor.requires_grad:
            tensor.retain_grad()
        self.seen[name] = tensor

    def output_of(self, module, name):
        module.register_forward_hook(lambda _m, _i, out: self.keep(name, out[0] if isinstance(out, tuple) else out))

    def input_of(self, module, name, which=0):
        module.register_forward_pre_hook(lambda _m, inputs: self.keep(name, inputs[which]))

    def pair(self, name, columns=None):
        """A tensor and its gradient as matrices, rows = tokens."""
        t = self.seen[name]
        return tuple(a.detach().numpy().reshape(-1, columns or t.shape[-1]) for a in (t, t.grad))

    def beside(self, *names):
        """Several side by side."""
        pairs = [self.pair(name) for name in names]
        return tuple(np.concatenate([p[i] for p in pairs], axis=1) for i in (0, 1))

    def turned(self, at, values):
        """Queries and keys after rotary positions, [batch,heads,S,A], as rows of tokens, heads side by side; then values, a pair."""
        pairs = []
        for which in "qk":
            t = self.seen[at + "rotated." + which]
            pairs.append([a.detach().transpose(1, 2).reshape(t.shape[0] * t.shape[2], -1).numpy() for a in (t, t.grad)])
        pairs.append(values)
        return tuple(np.concatenate([p[i] for p in pairs], axis=1) for i in (0, 1))


def cross_entropy(logits, labels):
    """Mean over the labels that count.  Labels stand beside their tokens; transformers' own argument would shift them."""
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]),
                                             torch.from_numpy(labels.reshape(-1).astype(np.int64)), ignore_index=IGNORE)


def tokens(ids):
    return torch.from_numpy(ids.astype(np.int64))


# ---- GPT-2 -------------------------------------------------------------------------------------------------------------------

class GPT2:
    name = "transformers GPT2LMHeadModel"

    def parameters(self, c):
        D, F, into_residual = c["D"], c["F"], INIT_STD / float(np.sqrt(2.0 * c["L"]))
        rows = [("wte.weight", (c["V"], D), 0, INIT_STD), ("wpe.weight", (c["S"], D), 0, INIT_STD)]
        for layer in range(c["L"]):
            rows += [(f"h.{layer}.{name}", shape, mean, std) for name, shape, mean, std in (
                ("ln_1.weight", (D,), 1, 0), ("ln_1.bias", (D,), 0, 0),
                ("attn.c_attn.weight", (3 * D, D), 0, INIT_STD), ("attn.c_attn.bias", (3 * D,), 0, 0),
                ("attn.c_proj.weight", (D, D), 0, into_residual), ("attn.c_proj.bias", (D,), 0, 0),
                ("ln_2.weight", (D,), 1, 0), ("ln_2.bias", (D,), 0, 0),
                ("mlp.c_fc.weight", (F, D), 0, INIT_STD), ("mlp.c_fc.bias", (F,), 0, 0),
                ("mlp.c_proj.weight", (D, F), 0, into_residual), ("mlp.c_proj.bias", (D,), 0, 0))]
        rows += [("ln_f.weight", (D,), 1, 0), ("ln_f.bias", (D,), 0, 0)]
        if not c["tied"]:
            rows.append(("lm_head.weight", (c["V"], D), 0, INIT_STD))
        for name, shape, mean, std in rows:
            yield name, shape, mean, std, [(name if name == "lm_head.weight" else "transformer." + name, shape[0])]

    def config(self, c):
        return dict(model_type="gpt2", vocab_size=c["V"], n_positions=c["S"], n_embd=c["D"], n_layer=c["L"], n_head=c["H"],
                    n_inner=c["F"], activation_function="gelu_new", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0,
                    layer_norm_epsilon=c.get("eps", EPS), initializer_range=INIT_STD, tie_word_embeddings=c["tied"])

    def model(self, c):
        return transformers.GPT2LMHeadModel(transformers.GPT2Config(
            **self.config(c), use_cache=False, bos_token_id=0, eos_token_id=0, attn_implementation="eager"))

    def transposed(self, name, w):
        """GPT-2's Conv1D layers keep their matrices [in,out]."""
        return name.startswith("h.") and w.ndim == 2

    def watch(self, model, c):
        w, t = Watch(), model.transformer
        w.output_of(t.drop, "embedding")
        for layer, block in enumerate(t.h):
            at = f"h.{layer}."
            w.output_of(block.ln_1, at + "ln_1")
            w.output_of(block.attn.c_attn, at + "attn.qkv")
            w.input_of(block.attn.c_proj, at + "attn.heads")
            w.output_of(block.attn.c_proj, at + "attn.out")
            w.input_of(block.ln_2, at + "mid")
            w.output_of(block.ln_2, at + "ln_2")
            w.output_of(block.mlp.c_fc, at + "mlp.up")
            w.output_of(block.mlp.act, at + "mlp.act")
            w.output_of(block.mlp.c_proj, at + "mlp.out")
            w.output_of(block, at + "out")
        w.output_of(t.ln_f, "ln_f")
        w.output_of(model.lm_head, "logits")
        return lambda: [(name, *w.pair(name)) for name in w.seen]

    def loss(self, model, c, ids, labels):
        return cross_entropy(model(input_ids=tokens(ids)).logits, labels), {}


# ---- Llama -------------------------------------------------------------------------------------------------------------------

def llama3_frequencies(c):
    """Of Llama 3.1: written from the description of its context extension, by wavelengths."""
    out = []
    for i in range(0, c["D"] // c["H"], 2):
        f = c["theta"] ** (-i / (c["D"] // c["H"]))
        wavelength, s = 2 * math.pi / f, c["llama3"]
        if wavelength < s["original_max_position_embeddings"] / s["high_freq_factor"]:
            out.append(f)
        elif wavelength > s["original_max_position_embeddings"] / s["low_freq_factor"]:
            out.append(f / s["factor"])
        else:
            smooth = ((s["original_max_position_embeddings"] / wavelength - s["low_freq_factor"])
                      / (s["high_freq_factor"] - s["low_freq_factor"]))
            out.append((1 - smooth) * f / s["factor"] + smooth * f)
    return torch.tensor(out)


class Llama:
    name = "transformers LlamaForCausalLM"
    module = modeling_llama
    of_block = ("ln_1", "attn.heads", "attn.out", "mid", "ln_2", "out")
    ends = ("embedding", "ln_f", "logits")

    def feed_forward(self, c, at, into_residual):
        yield at + "mlp.gate_up_proj.weight", (2 * c["F"], c["D"]), 0, INIT_STD, [(at + "mlp.gate_proj.weight", c["F"]), (at + "mlp.up_proj.weight", c["F"])]
        yield at + "mlp.down_proj.weight", (c["D"], c["F"]), 0, into_residual, None

    def head_width(self, c):
        return c["D"] // c["H"]

    def of_heads(self, c, at):
        return ()

    def in_order(self, c):
        D, into_residual = c["D"], INIT_STD / float(np.sqrt(2.0 * c["L"]))
        width = self.head_width(c)
        yield "model.embed_tokens.weight", (c["V"], D), 0, INIT_STD, None
        for layer in range(c["L"]):
            at = f"model.layers.{layer}."
            heads = [(at + f"self_attn.{which}_proj.weight", c[letter] * width) for which, letter in (("q", "H"), ("k", "K"), ("v", "K"))]
            yield at + "input_layernorm.weight", (D,), 1, 0, None
            yield at + "self_attn.qkv_proj.weight", (sum(n for _, n in heads), D), 0, INIT_STD, heads
            yield from self.of_heads(c, at)
            yield at + "self_attn.o_proj.weight", (D, c["H"] * width), 0, into_residual, None
            yield at + "post_attention_layernorm.weight", (D,), 1, 0, None
            yield from self.feed_forward(c, at, into_residual)
        yield "model.norm.weight", (D,), 1, 0, None
        if not c["tied"]:
            yield "lm_head.weight", (c["V"], D), 0, INIT_STD, None

    def parameters(self, c):
        for name, shape, mean, std, parts in self.in_order(c):
            yield name, shape, mean, std, parts or [(name, shape[0])]

    def config(self, c):
        scaling = dict(rope_scaling=dict(rope_type="llama3", **c["llama3"])) if "llama3" in c else {}
        if "linear" in c:
            scaling = dict(rope_scaling=dict(type="linear", factor=c["linear"]))
        return dict(model_type="llama", vocab_size=c["V"], max_position_embeddings=c["S"], hidden_size=c["D"], num_hidden_layers=c["L"],
                    num_attention_heads=c["H"], num_key_value_heads=c["K"], intermediate_size=c["F"], hidden_act="silu",
                    rms_norm_eps=c.get("eps", EPS), initializer_range=INIT_STD, rope_theta=c["theta"], attention_dropout=0.0,
                    tie_word_embeddings=c["tied"], **scaling)

    def make(self, **config):
        return transformers.LlamaForCausalLM(transformers.LlamaConfig(**config))

    def model(self, c):
        config = {key: value for key, value in self.config(c).items() if key not in ("model_type", "router_z_loss_coef")}
        if "llama3" in c:
            del config["rope_scaling"]
        model = self.make(**config, use_cache=False, attn_implementation="eager")
        if "llama3" in c:                       # which this version of transformers does not know
            for layer in model.model.layers:
                layer.self_attn.rotary_emb.inv_freq = llama3_frequencies(c)
                layer.self_attn.rotary_emb._set_cos_sin_cache(c["S"], "cpu", torch.float64)
        return model

    def transposed(self, name, w):
        return False

    def turning(self, model):
        """The layers that have rotary positions, in order."""
        return range(10**6)

    def watch_attention(self, w, model):
        """The rotated queries and keys are seen where they are made, in order of the layers."""
        plain, layers = self.module.apply_rotary_pos_emb, iter(self.turning(model))

        def rotate(*arguments):
            out, at = plain(*arguments), f"h.{next(layers)}."
            for which, tensor in zip("qk", out):
                w.keep(at + "rotated." + which, tensor)
            return out

        self.module.apply_rotary_pos_emb = rotate
        for layer, block in enumerate(model.model.layers):
            at = f"h.{layer}."
            self.watch_norms(w, block, at)
            self.watch_projections(w, block.self_attn, at)
            w.input_of(block.self_attn.o_proj, at + "attn.heads")
            w.output_of(block.self_attn.o_proj, at + "attn.out")
            w.output_of(block, at + "out")
        w.output_of(model.model.embed_tokens, "embedding")
        w.output_of(model.model.norm, "ln_f")
        w.output_of(model.lm_head, "logits")

    def watch_norms(self, w, block, at):
        w.output_of(block.input_layernorm, at + "ln_1")
        w.input_of(block.post_attention_layernorm, at + "mid")
        w.output_of(block.post_attention_layernorm, at + "ln_2")

    def watch_projections(self, w, attention, at):
        for which in "qkv":
            w.output_of(getattr(attention, which + "_proj"), at + which)

    def projected(self, w, c, at):
        """Queries, keys and values side by side; values alone."""
        return w.beside(at + "q", at + "k", at + "v"), w.pair(at + "v")

    def watch_feed(self, w, model):
        for layer, block in enumerate(model.model.layers):
            at = f"h.{layer}."
            w.output_of(block.mlp.gate_proj, at + "gate")
            w.output_of(block.mlp.up_proj, at + "up")
            w.input_of(block.mlp.down_proj, at + "mlp.act")
            w.output_of(block.mlp, at + "mlp.out")

    def result_of_feed(self, w, model, c, layer):
        at = f"h.{layer}."
        yield at + "mlp.up", *w.beside(at + "gate", at + "up")
        yield at + "mlp.act", *w.pair(at + "mlp.act")
        yield at + "mlp.out", *w.pair(at + "mlp.out")

    def watch(self, model, c):
        w = Watch()
        self.watch_attention(w, model)
        self.watch_feed(w, model)

        def result():
            for layer in range(c["L"]):
                at = f"h.{layer}."
                qkv, values = self.projected(w, c, at)
                yield at + "attn.qkv", *qkv
                if at + "rotated.q" in w.seen:
                    yield at + "attn.rotated", *w.turned(at, values)
                for name in self.of_block:
                    yield at + name, *w.pair(at + name)
                yield from self.result_of_feed(w, model, c, layer)
            for name in self.ends:
                yield name, *w.pair(name)

        return lambda: list(result())

    def loss(self, model, c, ids, labels):
        return cross_entropy(model(input_ids=tokens(ids)).logits, labels), {}


# ---- Mistral ------------------------------------------------------------------------------------------------------------------

class Mistral(Llama):
    """All layers have a sliding window, unless it is None."""
    name = "transformers MistralForCausalLM"
    module = modeling_mistral

    def head_width(self, c):
        return c["A"]

    def config(self, c):
        return dict(super().config(c), model_type="mistral", head_dim=c["A"], sliding_window=c["window"])

    def make(self, **config):
        return transformers.MistralForCausalLM(transformers.MistralConfig(**config))


class Phi3(Llama):
    """Matrices of one input are one; part of a head is turned, perhaps by LongRoPE."""
    name = "transformers Phi3ForCausalLM"
    module = modeling_phi3

    def head_width(self, c):
        return c["A"]

    def in_order(self, c):
        for name, shape, mean, std, parts in super().in_order(c):
            yield name, shape, mean, std, None

    def config(self, c):
        scaling = dict(rope_scaling=dict(type="longrope", **c["long"])) if "long" in c else {}
        heads = dict(head_dim=c["A"]) if c["A"] * c["H"] != c["D"] else {}
        return dict(super().config(c), model_type="phi3", **heads, sliding_window=c["window"], partial_rotary_factor=c["part"], pad_token_id=None,
                    original_max_position_embeddings=c["original"], resid_pdrop=0.0, embd_pdrop=0.0, **scaling)

    def make(self, **config):
        return transformers.Phi3ForCausalLM(transformers.Phi3Config(bos_token_id=0, eos_token_id=0, **config))

    def watch_projections(self, w, attention, at):
        w.output_of(attention.qkv_proj, at + "attn.qkv")

    def projected(self, w, c, at):
        qkv = w.pair(at + "attn.qkv")
        return qkv, tuple(x[:, -c["K"] * c["A"]:] for x in qkv)

    def watch_feed(self, w, model):
        for layer, block in enumerate(model.model.layers):
            at = f"h.{layer}."
            w.output_of(block.mlp.gate_up_proj, at + "mlp.up")
            w.input_of(block.mlp.down_proj, at + "mlp.act")
            w.output_of(block.mlp, at + "mlp.out")

    def result_of_feed(self, w, model, c, layer):
        for name in ("mlp.up", "mlp.act", "mlp.out"):
            yield f"h.{layer}.{name}", *w.pair(f"h.{layer}.{name}")


def windows_of_qwen(c):
    """Which layers have a sliding window: `late`, those from a layer on; `kinds`, a letter for each."""
    if "window" not in c:
        return dict(use_sliding_window=False)
    words = dict(s="sliding_attention", f="full_attention")
    layers = dict(layer_types=[words[kind] for kind in c["kinds"]]) if "kinds" in c else dict(max_window_layers=c["late"])
    return dict(use_sliding_window=True, sliding_window=c["window"], **layers)


# ---- Qwen2 --------------------------------------------------------------------------------------------------------------------

class Qwen2(Llama):
    name = "transformers Qwen2ForCausalLM"
    module = modeling_qwen2

    def in_order(self, c):
        for name, shape, mean, std, parts in super().in_order(c):
            yield name, shape, mean, std, parts
            if "qkv_proj" in name:
                yield (name.replace("weight", "bias"), shape[:1], 0, 0, [(part.replace("weight", "bias"), rows) for part, rows in parts])

    def config(self, c):
        return dict(super().config(c), model_type="qwen2", **windows_of_qwen(c))

    def make(self, **config):
        return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**config))


# ---- ParScale -----------------------------------------------------------------------------------------------------------------

class ParScale(Qwen2):
    name = "QwenLM/ParScale Qwen2ParScaleForCausalLM"
    module = modeling_parscale
    ends = ("embedding", "ln_f", "streams.up", "streams.act", "streams.logits", "streams.mean", "logits")

    def in_order(self, c):
        D, P = c["D"], c["P"]
        for row in super().in_order(c):
            yield row
            name = row[0]
            if name.endswith("qkv_proj.bias"):
                at = name.replace("qkv_proj.bias", "prefix_")
                yield (at + "kv.weight", (P * c["T"], 2 * c["K"] * (D // c["H"])), 0, INIT_STD, [(at + "k", P), (at + "v", P)])
            if name == "model.norm.weight":
                for part, shape, std in (("0.weight", (D, D * P), INIT_STD), ("0.bias", (D,), 0), ("2.weight", (P, D), INIT_STD), ("2.bias", (P,), 0)):
                    yield "model.aggregate_layer." + part, shape, 0, std, None

    def split(self, c, name, w):
        """A prefix, rows = (stream, token), as the model has it: keys and values [P,K,T,A]."""
        if "prefix_kv" not in name:
            return None
        w = w.reshape(c["P"], c["T"], 2, c["K"], -1).transpose(2, 0, 3, 1, 4)
        return {name.replace("kv.weight", "k"): w[0], name.replace("kv.weight", "v"): w[1]}

    def join(self, c, name, arrays):
        if "prefix_kv" not in name:
            return None
        return np.stack([a.transpose(0, 2, 1, 3) for a in arrays], axis=2).reshape(c["P"] * c["T"], -1)

    def config(self, c):
        return dict(super().config(c), model_type="qwen2_parscale", parscale_n=c["P"], parscale_n_tokens=c["T"],
                    parscale_attn_smooth=c["smooth"])

    def make(self, **config):
        return self.module.Qwen2ParScaleForCausalLM(self.module.Qwen2ParScaleConfig(**config))

    def watch_attention(self, w, model):
        super().watch_attention(w, model)
        w.input_of(model.model.layers[0], "embedding")
        for place, name in enumerate(("up", "act", "logits")):
            w.output_of(model.model.aggregate_layer[place], "streams." + name)
        w.input_of(model.lm_head, "streams.mean")


# ---- Llama with biases ---------------------------------------------------------------------------------------------------------

class Biased(Llama):
    """Biases of attention, of the feed-forward, or of both."""
    name = "transformers LlamaForCausalLM with biases"

    def in_order(self, c):
        of = [name for name, sets in (("qkv_proj", "attention"), ("o_proj", "attention"), ("gate_up_proj", "mlp"), ("down_proj", "mlp"))
              if c[sets]]
        for name, shape, mean, std, parts in super().in_order(c):
            yield name, shape, mean, std, parts
            if name.split(".")[-2] in of:
                yield (name.replace("weight", "bias"), shape[:1], 0, 0,
                       [(part.replace("weight", "bias"), rows) for part, rows in parts or [(name, shape[0])]])

    def config(self, c):
        return dict(super().config(c), attention_bias=c["attention"], mlp_bias=c["mlp"])


# ---- Qwen3 --------------------------------------------------------------------------------------------------------------------

class Qwen3(Llama):
    """Norms of the heads of queries and keys, whose width is a number of its own."""
    name = "transformers Qwen3ForCausalLM"
    module = modeling_qwen3

    def head_width(self, c):
        return c["A"]

    def of_heads(self, c, at):
        parts = [(at + f"self_attn.{which}_norm.weight", c["A"]) for which in "qk"]
        yield at + "self_attn.qk_norm.weight", (2 * c["A"],), 1, 0, parts

    def config(self, c):
        return dict(super().config(c), model_type="qwen3", head_dim=c["A"], **windows_of_qwen(c))

    def make(self, **config):
        return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(**config))

    def watch(self, model, c):
        seen = Watch()
        for layer, block in enumerate(model.model.layers):
            for which in "qk":
                seen.output_of(getattr(block.self_attn, which + "_norm"), f"h.{layer}.{which}")
            seen.output_of(block.self_attn.v_proj, f"h.{layer}.v")
        rest = super().watch(model, c)

        def result():
            for layer in range(c["L"]):
                heads = [seen.pair(f"h.{layer}.{which}", c[letter] * c["A"]) for which, letter in (("q", "H"), ("k", "K"), ("v", "K"))]
                yield f"h.{layer}.attn.normed", *(np.concatenate([h[i] for h in heads], axis=1) for i in (0, 1))
            yield from rest()

        return lambda: list(result())


# ---- Gemma --------------------------------------------------------------------------------------------------------------------

class Gemma(Llama):
    """Scaled embeddings, norms whose factors are 1 + their weights, a geglu, and heads of a width of their own."""
    name = "transformers GemmaForCausalLM"
    module = modeling_gemma

    def head_width(self, c):
        return c["A"]

    def in_order(self, c):
        for name, shape, mean, std, parts in super().in_order(c):
            yield name, shape, 0, std, parts

    def config(self, c):
        return dict(super().config(c), model_type="gemma", head_dim=c["A"], hidden_act="gelu_pytorch_tanh", pad_token_id=None)

    def make(self, **config):
        return transformers.GemmaForCausalLM(transformers.GemmaConfig(**config))


class Gemma2(Gemma):
    """Norms around each branch, soft caps, scores divided by the root of a number of their own, and windows in some layers."""
    name = "transformers Gemma2ForCausalLM"
    module = modeling_gemma2
    of_block = ("ln_1", "attn.heads", "attn.out", "post_1", "mid", "ln_2", "post_2", "out")

    def in_order(self, c):
        for name, shape, mean, std, parts in super().in_order(c):
            if name.endswith("post_attention_layernorm.weight"):
                yield name, shape, mean, std, parts
                yield name.replace("post_attention", "pre_feedforward"), shape, mean, std, parts
                yield name.replace("post_attention", "post_feedforward"), shape, mean, std, parts
            else:
                yield name, shape, mean, std, parts

    def config(self, c):
        kinds = dict(layer_types=[{"s": "sliding_attention", "f": "full_attention"}[kind] for kind in c["kinds"]]) if "kinds" in c else {}
        return dict(super().config(c), model_type="gemma2", query_pre_attn_scalar=c["scalar"], sliding_window=c["window"],
                    attn_logit_softcapping=c.get("score_cap"), final_logit_softcapping=c.get("logit_cap"), **kinds)

    def make(self, **config):
        return transformers.Gemma2ForCausalLM(transformers.Gemma2Config(**config))

    def watch_norms(self, w, block, at):
        w.output_of(block.input_layernorm, at + "ln_1")
        w.output_of(block.post_attention_layernorm, at + "post_1")
        w.input_of(block.pre_feedforward_layernorm, at + "mid")
        w.output_of(block.pre_feedforward_layernorm, at + "ln_2")
        w.output_of(block.post_feedforward_layernorm, at + "post_2")

    def watch(self, model, c):
        seen = Watch()
        if c.get("logit_cap"):
            model.register_forward_hook(lambda _m, _i, out: seen.keep("capped", out.logits))
        rest = super().watch(model, c)
        return lambda: rest() + ([("capped", *seen.pair("capped"))] if c.get("logit_cap") else [])


class Gemma3(Gemma2):
    """Norms of queries and keys, and rotary positions of two kinds: those of layers with a window have a theta of their own."""
    name = "transformers Gemma3ForCausalLM"
    module = modeling_gemma3

    def of_heads(self, c, at):
        parts = [(at + f"self_attn.{which}_norm.weight", c["A"]) for which in "qk"]
        yield at + "self_attn.qk_norm.weight", (2 * c["A"],), 0, 0, parts

    def config(self, c):
        pattern = dict(sliding_window_pattern=c["pattern"]) if "pattern" in c else {}
        scaling = dict(rope_scaling=dict(rope_type="linear", factor=c["linear"])) if "linear" in c else {}
        return dict(super().config(c), model_type="gemma3_text", rope_local_base_freq=c["local"], **pattern, **scaling)

    def make(self, **config):
        return transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(**config))

    def watch(self, model, c):
        seen = Watch()
        for layer, block in enumerate(model.model.layers):
            for which in "qk":
                seen.output_of(getattr(block.self_attn, which + "_norm"), f"h.{layer}.rotated.{which}")
            seen.output_of(block.self_attn.v_proj, f"h.{layer}.v")
        rest = super().watch(model, c)

        def result():
            for layer in range(c["L"]):
                at = f"h.{layer}."
                yield at + "attn.normed", *seen.turned(at, seen.pair(at + "v"))
            yield from rest()

        return lambda: list(result())


# ---- OLMo 2 -------------------------------------------------------------------------------------------------------------------

class Olmo2(Qwen3):
    """Norms of all queries and of all keys, and of what the branches give."""
    name = "transformers Olmo2ForCausalLM"
    module = modeling_olmo2

    def in_order(self, c):
        names = {"input_layernorm": "post_attention_layernorm", "post_attention_layernorm": "post_feedforward_layernorm"}
        for name, shape, mean, std, parts in super().in_order(c):
            kind = name.split(".")[-2]
            yield name.replace(kind, names.get(kind, kind)), shape, mean, std, parts

    def of_heads(self, c, at):
        parts = [(at + f"self_attn.{which}_norm.weight", c[letter] * c["A"]) for which, letter in (("q", "H"), ("k", "K"))]
        yield at + "self_attn.qk_norm.weight", (sum(n for _, n in parts),), 1, 0, parts

    def config(self, c):
        heads = dict(head_dim=c["A"]) if c["A"] * c["H"] != c["D"] else {}
        config = dict(super().config(c), model_type="olmo2", pad_token_id=None)
        return dict({key: value for key, value in config.items() if key not in ("use_sliding_window", "head_dim")}, **heads)

    def make(self, **config):
        return transformers.Olmo2ForCausalLM(transformers.Olmo2Config(eos_token_id=0, **config))

    def watch_norms(self, w, block, at):
        w.output_of(block.post_attention_layernorm, at + "ln_1")
        w.input_of(block.mlp, at + "mid")
        w.output_of(block.post_feedforward_layernorm, at + "ln_2")


# ---- YaRN ---------------------------------------------------------------------------------------------------------------------

class Yarn(Qwen3):
    """A Qwen3 with stretched positions; released ones are given these numbers by hand."""

    def config(self, c):
        return dict(super().config(c), rope_scaling=dict(rope_type="yarn", **c["yarn"]))

    def model(self, c):
        config = self.config(c)
        del config["model_type"], config["rope_scaling"], config["rope_theta"]
        return self.make(**config, rope_parameters=dict(rope_type="yarn", rope_theta=c["theta"], **c["yarn"]), use_cache=False,
                         attn_implementation="eager")


def far_apart(keys, c):
    """Refuse a batch in which a router chooses between two experts that are nearly equal."""
    ordered = torch.sort(keys.detach(), descending=True).values
    margin = c.get("margin", MARGIN)
    if c["k"] < c["E"] and not (ordered[:, c["k"] - 1] - ordered[:, c["k"]]).min() > margin:
        raise AssertionError(f"two experts are chosen between by less than {margin}: another seed")


# ---- Mixtral ------------------------------------------------------------------------------------------------------------------

class Mixtral(Llama):
    name = "transformers MixtralForCausalLM"
    module = modeling_mixtral

    def feed_forward(self, c, at, into_residual):
        at += "block_sparse_moe."
        yield at + "gate.weight", (c["E"], c["D"]), 0, INIT_STD, None
        for e in range(c["E"]):
            expert = at + f"experts.{e}."
            yield expert + "w13.weight", (2 * c["F"], c["D"]), 0, INIT_STD, [(expert + "w1.weight", c["F"]), (expert + "w3.weight", c["F"])]
            yield expert + "w2.weight", (c["D"], c["F"]), 0, into_residual, None

    def config(self, c):
        return dict(super().config(c), model_type="mixtral", num_local_experts=c["E"], num_experts_per_tok=c["k"], sliding_window=None,
                    output_router_logits=True, router_aux_loss_coef=c["balance"], router_z_loss_coef=c["z"])

    def make(self, **config):
        return transformers.MixtralForCausalLM(transformers.MixtralConfig(**config))

    def watch_feed(self, w, model):
        for layer, block in enumerate(model.model.layers):
            at, moe = f"h.{layer}.", block.block_sparse_moe
            w.output_of(moe.gate, at + "router.logits")
            w.output_of(moe, at + "mlp.out")
            for e, expert in enumerate(moe.experts):
                w.output_of(expert.w1, at + f"gate.{e}")
                w.output_of(expert.w3, at + f"up.{e}")
                w.input_of(expert.w2, at + f"act.{e}")
                w.output_of(expert.w2, at + f"out.{e}")
                w.input_of(expert, at + f"weight.{e}", which=1)

    def chosen(self, w, at, c):
        """For each expert the (token, slot) that it is given, in transformers' order: slots one after another."""
        best = torch.topk(w.seen[at + "router.logits"].detach(), c["k"], dim=-1).indices.numpy()
        return best, [[(n, i) for i in range(c["k"]) for n in range(len(best)) if best[n, i] == e] for e in range(c["E"])]

    def of_experts(self, w, at, what, places):
        """Rows of all experts, each expert's in order of its tokens."""
        rows = [[], []]
        for e, place in enumerate(places):
            if place:
                order = np.argsort([n for n, _ in place])
                for i, a in enumerate(w.pair(at + f"{what}.{e}")):
                    rows[i].append(a[order])
        return tuple(np.concatenate(r) for r in rows)

    def result_of_feed(self, w, model, c, layer):
        at = f"h.{layer}."
        best, places = self.chosen(w, at, c)
        logits = w.pair(at + "router.logits")
        picked = np.take_along_axis(logits[0], best, 1)
        weights = np.exp(picked - picked[:, :1])
        slope = np.zeros_like(weights)
        for e, place in enumerate(places):
            for row, (n, i) in enumerate(place):
                slope[n, i] = w.seen[at + f"weight.{e}"].grad[row, 0]
        gate, up = self.of_experts(w, at, "gate", places), self.of_experts(w, at, "up", places)
        yield at + "router.logits", *logits
        yield at + "router.weights", weights / weights.sum(1, keepdims=True), slope
        yield at + "mlp.up", *(np.concatenate([gate[i], up[i]], axis=1) for i in (0, 1))
        yield at + "mlp.act", *self.of_experts(w, at, "act", places)
        yield at + "experts.out", *self.of_experts(w, at, "out", places)
        yield at + "mlp.out", *w.pair(at + "mlp.out")

    def loss(self, model, c, ids, labels):
        """The load-balancing loss as transformers has it from version 4.37 on; that of 4.36 does not depend on the weights."""
        out = model(input_ids=tokens(ids), output_router_logits=True)
        logits = torch.cat([l.reshape(-1, c["E"]) for l in out.router_logits])
        far_apart(logits, c)
        mask = torch.nn.functional.one_hot(torch.topk(logits, c["k"], dim=-1).indices, c["E"]).double()
        balance = c["E"] * (mask.mean(0) * torch.softmax(logits, -1).mean(0)).sum()
        z = (torch.logsumexp(logits, -1) ** 2).mean()
        loss = cross_entropy(out.logits, labels) + c["balance"] * balance + c["z"] * z
        return loss, {"balance_loss": balance, "z_loss": z}


# ---- Qwen3-MoE ----------------------------------------------------------------------------------------------------------------

class Spy:
    """`nn` for a module of transformers: keeps the input and the output of every product of its experts, in order."""

    def __init__(self, plain):
        self.plain, self.functional, self.products = plain, self, []

    def __getattr__(self, name):
        return getattr(self.plain if hasattr(self.plain, name) else self.plain.functional, name)

    def linear(self, x, w, b=None):
        y = torch.nn.functional.linear(x, w, b)
        for t in (x, y):
            if t.requires_grad:
                t.retain_grad()
        self.products.append((x, y))
        return y


def rows_of(tensors, order):
    """(values, gradients) of tensors, one below the other, each with its rows in an order."""
    return tuple(np.concatenate([a.detach().numpy()[o] for a, o in zip(which, order)]) for which in (tensors, [t.grad for t in tensors]))


class Qwen3Moe(Qwen3):
    """A mixture, in some layers: `dense` is the width of the others, at the numbers `only`, or where step does not divide."""
    name = "transformers Qwen3MoeForCausalLM"
    module = modeling_qwen3_moe

    def is_dense(self, c, layer):
        return layer in c.get("only", []) or (layer + 1) % c.get("step", 1) != 0

    def feed_forward(self, c, at, into_residual):
        at += "mlp."
        if self.is_dense(c, int(at.split(".")[2])):
            F = c["dense"]
            yield at + "gate_up_proj.weight", (2 * F, c["D"]), 0, INIT_STD, [(at + "gate_proj.weight", F), (at + "up_proj.weight", F)]
            yield at + "down_proj.weight", (c["D"], F), 0, into_residual, None
            return
        yield at + "gate.weight", (c["E"], c["D"]), 0, INIT_STD, None
        for e in range(c["E"]):
            expert = at + f"experts.{e}."
            yield expert + "gate_up_proj.weight", (2 * c["F"], c["D"]), 0, INIT_STD, [(f"{at}experts.gate_up_proj[{e}]", 2 * c["F"])]
            yield expert + "down_proj.weight", (c["D"], c["F"]), 0, into_residual, [(f"{at}experts.down_proj[{e}]", c["D"])]

    def config(self, c):
        return dict(super().config(c), model_type="qwen3_moe", intermediate_size=c.get("dense", c["F"]), moe_intermediate_size=c["F"],
                    num_experts=c["E"], num_experts_per_tok=c["k"], norm_topk_prob=c["normalized"], decoder_sparse_step=c.get("step", 1),
                    mlp_only_layers=c.get("only", []), output_router_logits=True, router_aux_loss_coef=c["balance"], router_z_loss_coef=c["z"])

    def make(self, **config):
        model = transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(**config))
        model.config._experts_implementation = "eager"
        return model

    def mixture(self, block):
        return block.mlp

    def watch_feed(self, w, model):
        """Products are kept in order of the layers, in each of the experts that have rows; two of an expert."""
        self.module.nn = self.spy = Spy(torch.nn)
        for layer, block in enumerate(model.model.layers):
            at = f"h.{layer}."
            if hasattr(block.mlp, "experts"):
                w.output_of(block.mlp.gate, at + "router.logits")
                block.mlp.gate.register_forward_hook(lambda _m, _i, out, at=at: w.keep(at + "router.weights", out[1]))
                block.mlp.gate.register_forward_hook(lambda _m, _i, out, at=at: w.seen.update({at + "chosen": out[2]}))
                block.mlp.experts.register_forward_pre_hook(lambda _m, _i, at=at: w.seen.update({at + "first": len(self.spy.products)}))
                block.mlp.experts.register_forward_hook(lambda _m, _i, _o, at=at: w.seen.update({at + "end": len(self.spy.products)}))
            else:
                w.output_of(block.mlp.gate_proj, at + "gate")
                w.output_of(block.mlp.up_proj, at + "up")
                w.input_of(block.mlp.down_proj, at + "dense.act")
            w.output_of(block.mlp, at + "mlp.out")

    def keys_of_choices(self, w, model, at, weights):
        """By which choices are ordered."""
        return weights

    def result_of_feed(self, w, model, c, layer):
        at = f"h.{layer}."
        if self.is_dense(c, layer):
            yield at + "dense.up", *w.beside(at + "gate", at + "up")
            yield at + "dense.act", *w.pair(at + "dense.act")
        else:
            products = self.spy.products[w.seen[at + "first"]:w.seen[at + "end"]]
            order = [np.argsort(torch.where((w.seen[at + "chosen"] == e).T)[1].numpy()) for e in range(c["E"]) if (w.seen[at + "chosen"] == e).any()]
            yield at + "router.logits", *w.pair(at + "router.logits")
            weights = w.pair(at + "router.weights")
            largest_first = np.argsort(-self.keys_of_choices(w, model, at, weights[0]), axis=1)
            yield at + "router.weights", *(np.take_along_axis(x, largest_first, 1) for x in weights)
            yield at + "mlp.up", *rows_of([y for _, y in products[::2]], order)
            yield at + "mlp.act", *rows_of([x for x, _ in products[1::2]], order)
            yield at + "experts.out", *rows_of([y for _, y in products[1::2]], order)
        yield at + "mlp.out", *w.pair(at + "mlp.out")

    def loss(self, model, c, ids, labels):
        out = model(input_ids=tokens(ids), output_router_logits=True)
        logits = torch.cat([l.reshape(-1, c["E"]) for l in out.router_logits])
        far_apart(logits, c)
        z = (torch.logsumexp(logits, -1) ** 2).mean()
        loss = cross_entropy(out.logits, labels) + c["balance"] * out.aux_loss + c["z"] * z
        return loss, {"balance_loss": out.aux_loss, "z_loss": z}


# ---- DeepSeek-V2 --------------------------------------------------------------------------------------------------------------

class DeepseekV2(Qwen3Moe):
    """Latent attention: of a head's numbers `nope` have no positions, `rope` have, and a value has `v`."""
    name = "transformers DeepseekV2ForCausalLM"
    module = modeling_deepseek_v2

    def is_dense(self, c, layer):
        return layer < c["first"]

    def in_order(self, c):
        H, A, into_residual = c["H"], c["nope"] + c["rope"], INIT_STD / float(np.sqrt(2.0 * c["L"]))
        for name, shape, mean, std, parts in super().in_order(c):
            at, _, which = name.rpartition("self_attn.")
            if which == "qkv_proj.weight":
                at += "self_attn."
                if c["q"]:
                    yield at + "q_a_proj.weight", (c["q"], c["D"]), 0, INIT_STD, None
                    if "biased" in c:
                        yield at + "q_a_proj.bias", (c["q"],), 0, 0, None
                    yield at + "q_a_layernorm.weight", (c["q"],), 1, 0, None
                yield at + ("q_b_proj.weight" if c["q"] else "q_proj.weight"), (H * A, c["q"] or c["D"]), 0, INIT_STD, None
                yield at + "kv_a_proj_with_mqa.weight", (c["kv"] + c["rope"], c["D"]), 0, INIT_STD, None
                if "biased" in c:
                    yield at + "kv_a_proj_with_mqa.bias", (c["kv"] + c["rope"],), 0, 0, None
                yield at + "kv_a_layernorm.weight", (c["kv"],), 1, 0, None
                yield at + "kv_b_proj.weight", (H * (c["nope"] + c["v"]), c["kv"]), 0, INIT_STD, None
            elif which == "o_proj.weight":
                yield name, (c["D"], H * c["v"]), 0, into_residual, None
                if "biased" in c:
                    yield at + "self_attn.o_proj.bias", (c["D"],), 0, 0, None
            elif which != "qk_norm.weight":
                yield name, shape, mean, std, parts

    def feed_forward(self, c, at, into_residual):
        for row in super().feed_forward(c, at, into_residual):
            yield row
            if row[0].endswith("mlp.gate.weight"):
                shared, F = at + "mlp.shared_experts.", c["shared"] * c["F"]
                yield (shared + "gate_up_proj.weight", (2 * F, c["D"]), 0, INIT_STD,
                       [(shared + "gate_proj.weight", F), (shared + "up_proj.weight", F)])
                yield shared + "down_proj.weight", (c["D"], F), 0, into_residual, None

    def config(self, c):
        plain = Llama.config(self, c)
        groups = dict(topk_method="group_limited_greedy", n_group=c["groups"], topk_group=c["kept"]) if "groups" in c else dict(topk_method="greedy")
        if "yarn" in c:
            groups["rope_scaling"] = dict(rope_type="yarn", **c["yarn"])
        if "long" in c:
            groups["rope_scaling"] = dict(rope_type="longrope", **c["long"])
        if "biased" in c:
            groups["attention_bias"] = True
        return dict(plain, model_type="deepseek_v2", intermediate_size=c.get("dense", c["F"]), moe_intermediate_size=c["F"], num_key_value_heads=c["H"],
                    q_lora_rank=c["q"] or None, kv_lora_rank=c["kv"], qk_nope_head_dim=c["nope"], qk_rope_head_dim=c["rope"], v_head_dim=c["v"],
                    n_routed_experts=c["E"], num_experts_per_tok=c["k"], n_shared_experts=c["shared"], first_k_dense_replace=c["first"],
                    routed_scaling_factor=c["scale"], norm_topk_prob=False, **groups)

    def model(self, c):
        config = self.config(c)
        for key in ("model_type", "rope_theta", "rope_scaling"):
            config.pop(key, None)
        rope = self.config(c).get("rope_scaling", dict(rope_type="default"))
        return self.make(**config, rope_parameters=dict(rope, rope_theta=c["theta"]), use_cache=False, attn_implementation="eager")

    def make(self, **config):
        model = transformers.DeepseekV2ForCausalLM(transformers.DeepseekV2Config(**config))
        model.config._experts_implementation = "eager"
        return model

    def head_width(self, c):
        return c["nope"] + c["rope"]

    def of_heads(self, c, at):
        return ()

    def watch(self, model, c):
        w, plain, layers = Watch(), self.module.eager_attention_forward, iter(range(10**6))

        def attend(module, query, key, value, *rest, **more):
            at = f"h.{next(layers)}."
            for name, t in (("query", query), ("key", key), ("value", value)):
                w.keep(at + name, t)
            return plain(module, query, key, value, *rest, **more)

        self.module.eager_attention_forward = attend
        for layer, block in enumerate(model.model.layers):
            at, attention = f"h.{layer}.", block.self_attn
            w.output_of(block.input_layernorm, at + "ln_1")
            if c["q"]:
                w.output_of(attention.q_a_proj, at + "attn.q_latent")
                w.output_of(attention.q_a_layernorm, at + "attn.q_normed")
            w.output_of(attention.q_b_proj if c["q"] else attention.q_proj, at + "attn.q")
            w.output_of(attention.kv_a_proj_with_mqa, at + "attn.kv_latent")
            w.output_of(attention.kv_a_layernorm, at + "attn.kv_normed")
            w.output_of(attention.kv_b_proj, at + "attn.kv")
            w.input_of(attention.o_proj, at + "attn.heads")
            w.output_of(attention.o_proj, at + "attn.out")
            w.input_of(block.post_attention_layernorm, at + "mid")
            w.output_of(block.post_attention_layernorm, at + "ln_2")
            w.output_of(block, at + "out")
            if not self.is_dense(c, layer):
                w.output_of(block.mlp.experts, at + "routed.out")
                for which in ("gate", "up"):
                    w.output_of(getattr(block.mlp.shared_experts, which + "_proj"), at + "shared." + which + "_proj")
                w.input_of(block.mlp.shared_experts.down_proj, at + "shared.act")
                w.output_of(block.mlp.shared_experts, at + "shared.out")
        w.output_of(model.model.embed_tokens, "embedding")
        w.output_of(model.model.norm, "ln_f")
        w.output_of(model.lm_head, "logits")
        self.watch_feed(w, model)

        def result():
            own = ["ln_1", "attn.q_latent", "attn.q_normed", "attn.q", "attn.kv_latent", "attn.kv_normed", "attn.kv", "attn.heads", "attn.out",
                   "mid", "ln_2", "out"]
            for layer in range(c["L"]):
                at = f"h.{layer}."
                yield at + "attn.rotated", *self.rotated(w, at, c)
                for name in own:
                    if at + name in w.seen:
                        yield at + name, *w.pair(at + name)
                yield from self.result_of_feed(w, model, c, layer)
                if not self.is_dense(c, layer):
                    yield at + "shared.up", *w.beside(at + "shared.gate_proj", at + "shared.up_proj")
                    for name in ("routed.out", "shared.act", "shared.out"):
                        yield at + name, *w.pair(at + name)
            for name in self.ends:
                yield name, *w.pair(name)

        return lambda: list(result())

    def turned(self, c):
        """Where a head's turned numbers are, pair by pair."""
        return list(range(c["nope"], c["nope"] + c["rope"]))

    def rotated(self, w, at, c):
        """Queries, keys and values beside each other: of a head the turned numbers first; values have zeros up to a key's width."""
        def rows(t, order, width):
            t = t.detach().transpose(1, 2)
            t = t[..., order] if order is not None else t
            return torch.nn.functional.pad(t, (0, width - t.shape[-1])).reshape(t.shape[0] * t.shape[1], -1).numpy()
        A = c["nope"] + c["rope"]
        turned = self.turned(c) + list(range(c["nope"]))
        seen = [(w.seen[at + name], turned if name != "value" else None) for name in ("query", "key", "value")]
        return tuple(np.concatenate([rows(of(t), order, A) for t, order in seen], axis=1) for of in (lambda t: t, lambda t: t.grad))

    def loss(self, model, c, ids, labels):
        """Logits of groups that are not kept, or that decide which are, are as far apart as those of experts."""
        seen = []
        hooks = [m.register_forward_hook(lambda _m, _i, out: seen.append(out)) for m in model.modules() if type(m).__name__.endswith("TopkRouter")]
        loss = cross_entropy(model(input_ids=tokens(ids)).logits, labels)
        for hook in hooks:
            hook.remove()
        logits, chosen = torch.cat([out[0] for out in seen]), torch.cat([out[2] for out in seen])
        mask = torch.nn.functional.one_hot(chosen, c["E"]).double()
        balance, z = c["E"] * (mask.mean(0) * torch.softmax(logits, -1).mean(0)).sum(), (torch.logsumexp(logits, -1) ** 2).mean()
        if "groups" in c:
            best = logits.reshape(-1, c["groups"], c["E"] // c["groups"]).max(-1).values
            far_apart(best, dict(c, k=c["kept"], E=c["groups"]))
            closed = torch.ones_like(best).scatter(1, torch.topk(best, c["kept"], dim=-1).indices, 0).bool()
            logits = logits.masked_fill(closed.repeat_interleave(c["E"] // c["groups"], 1), -1e9)
        far_apart(logits, c)
        return loss, {"balance_loss": balance, "z_loss": z}             # which have no coefficients


class DeepseekV3(DeepseekV2):
    """Sigmoids, and a correction bias that only the choice sees: it is drawn, so that it changes choices."""
    name = "transformers DeepseekV3ForCausalLM"
    module = modeling_deepseek_v3

    def config(self, c):
        plain = super().config(c)
        moved = {"router_bias_speed": c["speed"]} if "speed" in c else {}
        moved.update(dict(rope_interleave=False) if "halves" in c else {})
        return dict({key: value for key, value in plain.items() if key != "topk_method"}, model_type="deepseek_v3", topk_method="noaux_tc",
                    scoring_func="sigmoid", norm_topk_prob=c["normalized"], n_group=c.get("groups", 1), topk_group=c.get("kept", 1), **moved)

    def make(self, **config):
        for key in ("topk_method", "scoring_func", "router_bias_speed"):
            config.pop(key, None)
        model = transformers.DeepseekV3ForCausalLM(transformers.DeepseekV3Config(**config))
        model.config._experts_implementation = "eager"
        return model

    def biases(self, c):
        """Names and sizes of what no optimizer steps."""
        return [(f"model.layers.{layer}.mlp.gate.e_score_correction_bias", c["E"]) for layer in range(c["first"], c["L"])]

    def keys_of_choices(self, w, model, at, weights):
        bias = model.model.layers[int(at.split(".")[1])].mlp.gate.e_score_correction_bias
        return (torch.sigmoid(w.seen[at + "router.logits"].detach()) + bias).gather(1, w.seen[at + "chosen"]).numpy()

    def after_step(self, c):
        """The biases of experts with fewer choices than the mean of the batch rise, the others' sink (arXiv:2408.15664, algorithm 1)."""
        for router, chosen in self.chosen if "speed" in c else []:
            load = torch.bincount(chosen.reshape(-1), minlength=c["E"]).double()
            router.e_score_correction_bias += c["speed"] * torch.sign(load.mean() - load)

    def turned(self, c):
        half = c["rope"] // 2
        return [c["nope"] + (i if "halves" in c else i // 2 + i % 2 * half) for i in range(c["rope"])]

    def loss(self, model, c, ids, labels):
        """Keys, and groups' sums of their two largest, are far apart."""
        seen = []
        routers = [m for m in model.modules() if type(m).__name__.endswith("TopkRouter")]
        hooks = [m.register_forward_hook(lambda m, _i, out: seen.append((out[0], out[2], m.e_score_correction_bias))) for m in routers]
        loss = cross_entropy(model(input_ids=tokens(ids)).logits, labels)
        for hook in hooks:
            hook.remove()
        self.chosen = [(m, out[1]) for m, out in zip(routers, seen)]
        logits, chosen = torch.cat([out[0] for out in seen]), torch.cat([out[1] for out in seen])
        keys = torch.cat([torch.sigmoid(out[0]) + out[2] for out in seen])
        scores = torch.softmax(logits, -1)
        mask = torch.nn.functional.one_hot(chosen, c["E"]).double()
        balance, z = c["E"] * (mask.mean(0) * scores.mean(0)).sum(), (torch.logsumexp(logits, -1) ** 2).mean()
        if "groups" in c:
            best = keys.reshape(-1, c["groups"], c["E"] // c["groups"]).topk(2, dim=-1).values.sum(-1)
            far_apart(best, dict(c, k=c["kept"], E=c["groups"]))
            closed = torch.ones_like(best).scatter(1, torch.topk(best, c["kept"], dim=-1).indices, 0).bool()
            keys = keys.masked_fill(closed.repeat_interleave(c["E"] // c["groups"], 1), -1e9)
        far_apart(keys, c)
        return loss, {"balance_loss": balance, "z_loss": z}             # which have no coefficients


# ---- OLMoE, Qwen2-MoE, GLM-4.5 -----------------------------------------------------------------------------------------------

class Olmoe(Qwen3Moe):
    """Norms of all queries and of all keys, and experts in every layer."""
    name = "transformers OlmoeForCausalLM"
    module = modeling_olmoe
    of_heads = Olmo2.of_heads

    def is_dense(self, c, layer):
        return False

    def config(self, c):
        left = ("head_dim", "use_sliding_window", "moe_intermediate_size", "decoder_sparse_step", "mlp_only_layers")
        config = {key: value for key, value in super().config(c).items() if key not in left}
        return dict(config, model_type="olmoe", pad_token_id=None)

    def make(self, **config):
        model = transformers.OlmoeForCausalLM(transformers.OlmoeConfig(eos_token_id=0, **config))
        model.config._experts_implementation = "eager"
        return model


class Beside(Qwen3Moe):
    """Experts beside shared ones, which may have a gate."""
    gate = False
    shared = "shared_experts"

    def shared_width(self, c):
        return c["shared"] * c["F"]

    def of_heads(self, c, at):
        return super().of_heads(c, at) if c.get("normed") else ()

    def in_order(self, c):
        for name, shape, mean, std, parts in super().in_order(c):
            yield name, shape, mean, std, parts
            if "qkv_proj" in name and c["biased"]:
                yield (name.replace("weight", "bias"), shape[:1], 0, 0, [(part.replace("weight", "bias"), rows) for part, rows in parts])

    def feed_forward(self, c, at, into_residual):
        for row in super().feed_forward(c, at, into_residual):
            yield row
            if row[0].endswith("mlp.gate.weight"):
                shared, F = at + f"mlp.{self.shared}.", self.shared_width(c)
                yield (shared + "gate_up_proj.weight", (2 * F, c["D"]), 0, INIT_STD,
                       [(shared + "gate_proj.weight", F), (shared + "up_proj.weight", F)])
                yield shared + "down_proj.weight", (c["D"], F), 0, into_residual, None
                if self.gate:
                    yield at + "mlp.shared_expert_gate.weight", (1, c["D"]), 0, INIT_STD, None

    def watch(self, model, c):
        return super().watch(model, c) if c.get("normed") else Llama.watch(self, model, c)

    def watch_feed(self, w, model):
        super().watch_feed(w, model)
        for layer, block in enumerate(model.model.layers):
            at = f"h.{layer}."
            if hasattr(block.mlp, "experts"):
                shared = getattr(block.mlp, self.shared)
                w.output_of(block.mlp.experts, at + "routed.out")
                for which in ("gate", "up"):
                    w.output_of(getattr(shared, which + "_proj"), at + "shared." + which + "_proj")
                w.input_of(shared.down_proj, at + "shared.act")
                w.output_of(shared, at + "shared.out")
                if self.gate:
                    w.output_of(block.mlp.shared_expert_gate, at + "shared.gate")

    def result_of_feed(self, w, model, c, layer):
        at = f"h.{layer}."
        yield from super().result_of_feed(w, model, c, layer)
        if self.is_dense(c, layer):
            return
        yield at + "shared.up", *w.beside(at + "shared.gate_proj", at + "shared.up_proj")
        for name in ("routed.out", "shared.act", "shared.out"):
            yield at + name, *w.pair(at + name)
        if self.gate:                           # the product is no module's output, so it is made again; the sum passes its gradient on
            gate = w.pair(at + "shared.gate")
            yield at + "shared.gate", *gate
            gated = torch.sigmoid(torch.from_numpy(gate[0])) * torch.from_numpy(w.pair(at + "shared.out")[0])
            yield at + "shared.gated", gated.numpy(), w.pair(at + "mlp.out")[1]


class Qwen2Moe(Beside):
    name = "transformers Qwen2MoeForCausalLM"
    module = modeling_qwen2_moe
    gate = True
    shared = "shared_expert"

    def shared_width(self, c):
        return c["shared"]

    def config(self, c):
        return dict(super().config(c), model_type="qwen2_moe", shared_expert_intermediate_size=c["shared"], qkv_bias=c["biased"])

    def make(self, **config):
        model = transformers.Qwen2MoeForCausalLM(transformers.Qwen2MoeConfig(**config))
        model.config._experts_implementation = "eager"
        return model


class Glm4Moe(Beside):
    """A DeepSeek-V3's router; part of a head is turned; some models have norms of heads."""
    name = "transformers Glm4MoeForCausalLM"
    module = modeling_glm4_moe
    is_dense = DeepseekV2.is_dense
    biases, keys_of_choices, loss, after_step = DeepseekV3.biases, DeepseekV3.keys_of_choices, DeepseekV3.loss, DeepseekV3.after_step

    def config(self, c):
        return dict(Llama.config(self, c), model_type="glm4_moe", head_dim=c["A"], intermediate_size=c["dense"], moe_intermediate_size=c["F"],
                    n_routed_experts=c["E"], num_experts_per_tok=c["k"], n_shared_experts=c["shared"], first_k_dense_replace=c["first"],
                    routed_scaling_factor=c["scale"], norm_topk_prob=c["normalized"], n_group=c.get("groups", 1), topk_group=c.get("kept", 1),
                    use_qk_norm=c["normed"], attention_bias=c["biased"], partial_rotary_factor=c["part"], num_nextn_predict_layers=0)

    def make(self, **config):
        config.pop("num_nextn_predict_layers")
        model = transformers.Glm4MoeForCausalLM(transformers.Glm4MoeConfig(num_mtp_layers=0, **config))
        model.config._experts_implementation = "eager"
        return model


# ---- OLMo 3 -------------------------------------------------------------------------------------------------------------------

class Olmo3(Olmo2):
    """Windows, and in layers without one scaled rotary positions."""
    name = "transformers Olmo3ForCausalLM"
    module = modeling_olmo3

    def config(self, c):
        words = dict(s="sliding_attention", f="full_attention")
        full = dict(rope_type="yarn", **c["yarn"]) if "yarn" in c else dict(rope_type="default")
        plain = {key: value for key, value in super().config(c).items() if key != "rope_theta"}
        return dict(plain, model_type="olmo3", sliding_window=c["window"], layer_types=[words[kind] for kind in c["kinds"]],
                    rope_parameters=dict(full_attention=dict(full, rope_theta=c["theta"]),
                                         sliding_attention=dict(rope_type="default", rope_theta=c["theta"])))

    def make(self, **config):
        return transformers.Olmo3ForCausalLM(transformers.Olmo3Config(eos_token_id=0, **config))


# ---- GPT-OSS ------------------------------------------------------------------------------------------------------------------

class Sums(torch.overrides.TorchFunctionMode):
    """Keeps every sum of a matrix and a vector, in order: what products with a bias give."""

    def __init__(self):
        super().__init__()
        self.kept = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        y = function(*args, **(kwargs or {}))
        if getattr(function, "__name__", "") in ("add", "__add__") and all(isinstance(a, torch.Tensor) for a in args[:2]) and args[1].ndim == 1:
            if y.requires_grad:
                y.retain_grad()
            self.kept.append(y)
        return y


class GptOss(Qwen3):
    """Sinks, windows in layers of `kinds`, biases, and a mixture of clamped swiglus, which transformers keeps as one tensor of all experts."""
    name = "transformers GptOssForCausalLM"
    module = modeling_gpt_oss

    def of_heads(self, c, at):
        yield at + "self_attn.sinks.weight", (c["H"],), 0, INIT_STD, [(at + "self_attn.sinks", c["H"])]

    def in_order(self, c):
        for row in super().in_order(c):
            name, shape, _, _, parts = row
            yield row
            if c["biased"] and name.endswith(("qkv_proj.weight", "o_proj.weight")):
                yield (name.replace("weight", "bias"), shape[:1], 0, 0,
                       [(part.replace("weight", "bias"), rows) for part, rows in parts or [(name, shape[0])]])

    def feed_forward(self, c, at, into_residual):
        at += "mlp."
        yield at + "router.weight", (c["E"], c["D"]), 0, INIT_STD, None
        yield at + "router.bias", (c["E"],), 0, INIT_STD, None
        for e in range(c["E"]):
            for name, shape, std in (("gate_up_proj.weight", (2 * c["F"], c["D"]), INIT_STD), ("gate_up_proj.bias", (2 * c["F"],), 0),
                                     ("down_proj.weight", (c["D"], c["F"]), into_residual), ("down_proj.bias", (c["D"],), 0)):
                part = name.replace(".weight", "").replace(".", "_")
                yield at + f"experts.{e}.{name}", shape, 0, std, [(f"{at}experts.{part}[{e}]", shape[0])]

    def split(self, c, name, w):
        """An expert's matrices are [in,out] there; gates and gated values take turns."""
        part = next(part for full, *_, parts in self.parameters(c) if full == name for part, _ in parts)
        if ".experts." not in name:
            return None
        if "gate_up" in name:
            w = w.reshape(2, c["F"], -1).swapaxes(0, 1).reshape(w.shape)
        return {part: np.ascontiguousarray(w.T)}

    def join(self, c, name, arrays):
        if ".experts." not in name:
            return None
        w = arrays[0].T
        return w.reshape(c["F"], 2, -1).swapaxes(0, 1).reshape(w.shape) if "gate_up" in name else w

    def config(self, c):
        words = dict(s="sliding_attention", f="full_attention")
        config = dict(super().config(c), model_type="gpt_oss", attention_bias=c["biased"], sliding_window=c.get("window", c["S"]),
                      layer_types=[words[kind] for kind in c["kinds"]], num_local_experts=c["E"], num_experts_per_tok=c["k"],
                      swiglu_alpha=c["alpha"], swiglu_limit=c["limit"], output_router_logits=True, router_aux_loss_coef=c["balance"],
                      router_z_loss_coef=c["z"], rope_scaling=dict(rope_type="yarn", **c["yarn"]) if "yarn" in c else dict(rope_type="default"))
        del config["use_sliding_window"]
        return config

    def model(self, c):
        config = self.config(c)
        rope = dict(config.pop("rope_scaling"), rope_theta=config.pop("rope_theta"))
        del config["model_type"], config["router_z_loss_coef"]
        model = transformers.GptOssForCausalLM(transformers.GptOssConfig(**config, rope_parameters=rope, use_cache=False, attn_implementation="eager"))
        model.config._experts_implementation = "eager"
        return model

    def watch(self, model, c):
        return Llama.watch(self, model, c)

    def watch_feed(self, w, model):
        """Sums are kept in each of the experts that have rows: of the first product, of the second."""
        for layer, block in enumerate(model.model.layers):
            at, router, experts, sums = f"h.{layer}.", block.mlp.router, block.mlp.experts, Sums()
            w.output_of(router, at + "router.logits")
            router.register_forward_hook(lambda _m, _i, out, at=at: (w.keep(at + "router.weights", out[1]), w.seen.update({at + "chosen": out[2]}))[2:] or None)
            plain = experts._apply_gate

            def gate(x, plain=plain, at=at):
                y = plain(x)
                y.retain_grad()
                w.seen.setdefault(at + "gated", []).append(y)
                return y

            experts._apply_gate = gate
            experts.register_forward_pre_hook(lambda _m, _i, sums=sums: sums.__enter__() and None)
            experts.register_forward_hook(lambda _m, _i, _o, at=at, sums=sums: (sums.__exit__(None, None, None), w.seen.update({at + "sums": sums.kept}))[2:] or None)
            w.output_of(block.mlp, at + "mlp.out")

    def result_of_feed(self, w, model, c, layer):
        at = f"h.{layer}."
        order = [np.argsort(torch.where((w.seen[at + "chosen"] == e).T)[1].numpy()) for e in range(c["E"]) if (w.seen[at + "chosen"] == e).any()]
        sums = w.seen[at + "sums"]
        halves = [np.concatenate([a[:, ::2], a[:, 1::2]], axis=1) for a in rows_of(sums[::2], order)]
        if np.abs(np.abs(halves[0]) - c["limit"]).min() < 1e-2 * c["limit"]:
            raise AssertionError("a number is so near to the limit of the clamp that 16 bits may take it to the other side: another limit")
        yield at + "router.logits", *w.pair(at + "router.logits")
        yield at + "router.weights", *w.pair(at + "router.weights")
        yield at + "mlp.up", *halves
        yield at + "mlp.act", *rows_of(w.seen[at + "gated"], order)
        yield at + "experts.out", *rows_of(sums[1::2], order)
        yield at + "mlp.out", *w.pair(at + "mlp.out")

    def loss(self, model, c, ids, labels):
        return Qwen3Moe.loss(self, model, c, ids, labels)


# ---- GPT-J --------------------------------------------------------------------------------------------------------------------

class GPTJ:
    name = "transformers GPTJForCausalLM"

    def parameters(self, c):
        D, F, into_residual = c["D"], c["F"], INIT_STD / float(np.sqrt(2.0 * c["L"]))
        yield "wte.weight", (c["V"], D), 0, INIT_STD, [("transformer.wte.weight", c["V"])]
        for layer in range(c["L"]):
            at = f"h.{layer}."
            yield at + "ln_1.weight", (D,), 1, 0, [("transformer." + at + "ln_1.weight", D)]
            yield at + "ln_1.bias", (D,), 0, 0, [("transformer." + at + "ln_1.bias", D)]
            yield (at + "attn.qkv_proj.weight", (3 * D, D), 0, INIT_STD,
                   [(f"transformer.{at}attn.{which}_proj.weight", D) for which in "qkv"])
            for name, shape, std in (("attn.out_proj.weight", (D, D), into_residual), ("mlp.fc_in.weight", (F, D), INIT_STD),
                                     ("mlp.fc_in.bias", (F,), 0), ("mlp.fc_out.weight", (D, F), into_residual),
                                     ("mlp.fc_out.bias", (D,), 0)):
                yield at + name, shape, 0, std, [("transformer." + at + name, shape[0])]
        yield "ln_f.weight", (D,), 1, 0, [("transformer.ln_f.weight", D)]
        yield "ln_f.bias", (D,), 0, 0, [("transformer.ln_f.bias", D)]
        if not c["tied"]:
            yield "lm_head.weight", (c["V"], D), 0, INIT_STD, [("lm_head.weight", c["V"])]
        yield "lm_head.bias", (c["V"],), 0, 0, [("lm_head.bias", c["V"])]

    def config(self, c):
        return dict(model_type="gptj", vocab_size=c["V"], n_positions=c["S"], n_embd=c["D"], n_layer=c["L"], n_head=c["H"],
                    n_inner=c["F"], rotary_dim=c["turned"], activation_function="gelu_new", resid_pdrop=0.0, embd_pdrop=0.0,
                    attn_pdrop=0.0, layer_norm_epsilon=c.get("eps", EPS), initializer_range=INIT_STD,
                    tie_word_embeddings=c["tied"])

    def model(self, c):
        return transformers.GPTJForCausalLM(transformers.GPTJConfig(
            **self.config(c), use_cache=False, bos_token_id=0, eos_token_id=0, attn_implementation="eager"))

    def transposed(self, name, w):
        return False

    def watch_attention(self, w, attention, at):
        """Queries and keys are seen as they enter the product, turned: the rest of a head beside what turns."""
        plain = attention._attn

        def attend(query, key, *rest, **more):
            w.keep(at + "rotated.q", query)
            w.keep(at + "rotated.k", key)
            return plain(query, key, *rest, **more)

        attention._attn = attend
        for which in "qkv":
            w.output_of(getattr(attention, which + "_proj"), at + which)
        w.input_of(attention.out_proj, at + "attn.heads")
        w.output_of(attention.out_proj, at + "attn.out")

    def watch(self, model, c):
        w, t = Watch(), model.transformer
        w.output_of(t.drop, "embedding")
        for layer, block in enumerate(t.h):
            at = f"h.{layer}."
            w.output_of(block.ln_1, at + "ln_1")
            self.watch_attention(w, block.attn, at)
            w.output_of(block.mlp.fc_in, at + "mlp.up")
            w.output_of(block.mlp.act, at + "mlp.act")
            w.output_of(block.mlp.fc_out, at + "mlp.out")
            w.output_of(block, at + "out")
        w.output_of(t.ln_f, "ln_f")
        w.output_of(model.lm_head, "logits")

        def result():
            for layer in range(c["L"]):
                at = f"h.{layer}."
                yield at + "attn.qkv", *w.beside(at + "q", at + "k", at + "v")
                yield at + "attn.rotated", *w.turned(at, w.pair(at + "v"))
                for name in ("ln_1", "attn.heads", "attn.out", "mlp.up", "mlp.act", "mlp.out", "out"):
                    yield at + name, *w.pair(at + name)
            for name in ("embedding", "ln_f", "logits"):
                yield name, *w.pair(name)

        return lambda: list(result())

    def loss(self, model, c, ids, labels):
        return cross_entropy(model(input_ids=tokens(ids)).logits, labels), {}


# ---- nanoGPT ------------------------------------------------------------------------------------------------------------------

class NanoGPT(GPT2):
    """A GPT-2 with the exact gelu, whose biases, of norms too, are all there or all missing; matrices are [out,in]."""
    name = "nanoGPT GPT"
    module = modeling_nanogpt

    def parameters(self, c):
        for row in super().parameters(c):
            if c["bias"] or not row[0].endswith(".bias"):
                yield row

    def config(self, c):
        return dict(model_type="nanogpt", vocab_size=c["V"], block_size=c["S"], n_layer=c["L"], n_head=c["H"], n_embd=c["D"], dropout=0.0,
                    bias=c["bias"], initializer_range=INIT_STD)

    def model(self, c):
        """GPTConfig has no key for its kind, and none for the initial weights, which are replaced."""
        ours = ("model_type", "initializer_range")
        return self.module.GPT(self.module.GPTConfig(**{key: value for key, value in self.config(c).items() if key not in ours}))

    def transposed(self, name, w):
        return False

    def watch(self, model, c):
        for block in model.transformer.h:
            block.mlp.act = block.mlp.gelu
        return super().watch(model, c)

    def loss(self, model, c, ids, labels):
        """Logits of all tokens are computed only where targets are given."""
        return cross_entropy(model(tokens(ids), tokens(labels))[0], labels), {}


# ---- GPT-NeoX -----------------------------------------------------------------------------------------------------------------

class GPTNeoX:
    """Branches in parallel, each with a norm of its own, or in sequence; a part of a head is turned; queries, keys and values of a head
    are neighbours in its matrix."""
    name = "transformers GPTNeoXForCausalLM"
    module = modeling_gpt_neox

    def parameters(self, c):
        D, F, into_residual = c["D"], c["F"], INIT_STD / float(np.sqrt(2.0 * c["L"]))
        def with_bias(name, shape, mean, std):
            for part, size, m, s in ((".weight", shape, mean, std), (".bias", shape[:1], 0, 0)):
                yield name + part, size, m, s, [("gpt_neox." + name + part, size[0])]
        yield "embed_in.weight", (c["V"], D), 0, INIT_STD, [("gpt_neox.embed_in.weight", c["V"])]
        for layer in range(c["L"]):
            at = f"layers.{layer}."
            yield from with_bias(at + "input_layernorm", (D,), 1, 0)
            yield from with_bias(at + "attention.query_key_value", (3 * D, D), 0, INIT_STD)
            yield from with_bias(at + "attention.dense", (D, D), 0, into_residual)
            yield from with_bias(at + "post_attention_layernorm", (D,), 1, 0)
            yield from with_bias(at + "mlp.dense_h_to_4h", (F, D), 0, INIT_STD)
            yield from with_bias(at + "mlp.dense_4h_to_h", (D, F), 0, into_residual)
        yield from with_bias("final_layer_norm", (D,), 1, 0)
        if not c["tied"]:
            yield "lm_head.weight", (c["V"], D), 0, INIT_STD, [(self.head(), c["V"])]

    def head(self):
        model = transformers.GPTNeoXForCausalLM
        return "embed_out.weight" if "embed_out" in str(getattr(model, "_tied_weights_keys", "")) else "lm_head.weight"

    def split(self, c, name, w):
        if "query_key_value" not in name:
            return None
        return {"gpt_neox." + name: w.reshape(3, c["H"], c["D"] // c["H"], -1).swapaxes(0, 1).reshape(w.shape)}

    def join(self, c, name, arrays):
        if "query_key_value" not in name:
            return None
        return self.apart(c, arrays[0])

    def apart(self, c, w):
        """All queries, all keys, all values: rows, from those of each head."""
        return w.reshape(c["H"], 3, c["D"] // c["H"], -1).swapaxes(0, 1).reshape(w.shape)

    def config(self, c):
        return dict(model_type="gpt_neox", vocab_size=c["V"], max_position_embeddings=c["S"], hidden_size=c["D"], num_hidden_layers=c["L"],
                    num_attention_heads=c["H"], intermediate_size=c["F"], hidden_act="gelu", rotary_pct=c["part"], rotary_emb_base=c["theta"],
                    use_parallel_residual=c["parallel"], attention_bias=True, layer_norm_eps=c.get("eps", EPS), initializer_range=INIT_STD,
                    attention_dropout=0.0, hidden_dropout=0.0, tie_word_embeddings=c["tied"])

    def model(self, c):
        config = {key: value for key, value in self.config(c).items() if key not in ("model_type", "rotary_pct", "rotary_emb_base")}
        rope = dict(rope_type="default", rope_theta=c["theta"], partial_rotary_factor=c["part"])
        return transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(**config, rope_parameters=rope, use_cache=False, bos_token_id=0,
                                                                          eos_token_id=0, attn_implementation="eager"))

    def transposed(self, name, w):
        return False

    def watch(self, model, c):
        w, t, plain, layers = Watch(), model.gpt_neox, self.module.apply_rotary_pos_emb, iter(range(10**6))

        def rotate(*arguments):
            out, at = plain(*arguments), f"h.{next(layers)}."
            for which, tensor in zip("qk", out):
                w.keep(at + "rotated." + which, tensor)
            return out

        self.module.apply_rotary_pos_emb = rotate
        w.output_of(t.embed_in, "embedding")
        for layer, block in enumerate(t.layers):
            at = f"h.{layer}."
            w.output_of(block.input_layernorm, at + "ln_1")
            w.output_of(block.attention.query_key_value, at + "heads")
            w.input_of(block.attention.dense, at + "attn.heads")
            w.output_of(block.attention.dense, at + "attn.out")
            if not c["parallel"]:
                w.input_of(block.post_attention_layernorm, at + "mid")
            w.output_of(block.post_attention_layernorm, at + "ln_2")
            w.output_of(block.mlp.dense_h_to_4h, at + "mlp.up")
            w.output_of(block.mlp.act, at + "mlp.act")
            w.output_of(block.mlp.dense_4h_to_h, at + "mlp.out")
            w.output_of(block, at + "out")
        w.output_of(t.final_layer_norm, "ln_f")
        w.output_of(model.get_output_embeddings(), "logits")

        def result():
            for layer in range(c["L"]):
                at = f"h.{layer}."
                qkv = tuple(self.apart(c, x.T).T for x in w.pair(at + "heads"))
                yield at + "attn.qkv", *qkv
                yield at + "attn.rotated", *w.turned(at, tuple(x[:, -c["D"]:] for x in qkv))
                for name in ("ln_1", "attn.heads", "attn.out", "mid", "ln_2", "mlp.up", "mlp.act", "mlp.out", "out"):
                    if at + name in w.seen:
                        yield at + name, *w.pair(at + name)
            for name in ("embedding", "ln_f", "logits"):
                yield name, *w.pair(name)

        return lambda: list(result())

    def loss(self, model, c, ids, labels):
        return cross_entropy(model(input_ids=tokens(ids)).logits, labels), {}


# ---- feed-forwards without a gate, beside a Llama's attention ---------------------------------------------------------------

class Nemotron(Llama):
    """Layernorms whose factors are 1 + their weights, the squared relu, a part of a head is turned."""
    name = "transformers NemotronForCausalLM"
    module = modeling_nemotron
    norm_mean, up, down = 0, "mlp.up_proj", "mlp.down_proj"

    def head_width(self, c):
        return c["A"]

    def feed_forward(self, c, at, into_residual):
        yield at + self.up + ".weight", (c["F"], c["D"]), 0, INIT_STD, None
        yield at + self.down + ".weight", (c["D"], c["F"]), 0, into_residual, None

    def biased(self, c):
        return [name for name, sets in (("qkv_proj", "attention"), ("o_proj", "attention"), (self.up[4:], "mlp"), (self.down[4:], "mlp")) if c[sets]]

    def in_order(self, c):
        for name, shape, mean, std, parts in super().in_order(c):
            norm = "norm" in name
            yield name, shape, self.norm_mean if norm else mean, std, parts
            if norm or name.split(".")[-2] in self.biased(c):
                yield (name.replace("weight", "bias"), shape[:1], 0, 0,
                       [(part.replace("weight", "bias"), rows) for part, rows in parts or [(name, shape[0])]])

    def config(self, c):
        plain = {key: value for key, value in super().config(c).items() if key != "rms_norm_eps"}
        return dict(plain, model_type="nemotron", head_dim=c["A"], hidden_act="relu2", norm_eps=c.get("eps", EPS), partial_rotary_factor=c["part"],
                    attention_bias=c["attention"], mlp_bias=c["mlp"])

    def make(self, **config):
        rope = dict(rope_type="default", rope_theta=config.pop("rope_theta"), partial_rotary_factor=config.pop("partial_rotary_factor"))
        return transformers.NemotronForCausalLM(transformers.NemotronConfig(bos_token_id=0, eos_token_id=0, rope_parameters=rope, **config))

    def watch_feed(self, w, model):
        for layer, block in enumerate(model.model.layers):
            at, up, down = f"h.{layer}.", block.get_submodule(self.up), block.get_submodule(self.down)
            w.output_of(up, at + "mlp.up")
            w.input_of(down, at + "mlp.act")
            w.output_of(block.mlp, at + "mlp.out")

    def result_of_feed(self, w, model, c, layer):
        for name in ("mlp.up", "mlp.act", "mlp.out"):
            yield f"h.{layer}.{name}", *w.pair(f"h.{layer}.{name}")


class Starcoder2(Nemotron):
    """Layernorms, the tanh form of gelu, biases of all matrices or of none, windows in all layers or in none."""
    name = "transformers Starcoder2ForCausalLM"
    module = modeling_starcoder2
    norm_mean, up, down = 1, "mlp.c_fc", "mlp.c_proj"

    def head_width(self, c):
        return c["D"] // c["H"]

    def biased(self, c):
        return ["qkv_proj", "o_proj", "c_fc", "c_proj"] if c["biased"] else []

    def config(self, c):
        plain = {key: value for key, value in Llama.config(self, c).items() if key != "rms_norm_eps"}
        return dict(plain, model_type="starcoder2", hidden_act="gelu_pytorch_tanh", norm_epsilon=c.get("eps", EPS), use_bias=c["biased"],
                    sliding_window=c["window"], residual_dropout=0.0, embedding_dropout=0.0)

    def make(self, **config):
        return transformers.Starcoder2ForCausalLM(transformers.Starcoder2Config(bos_token_id=0, eos_token_id=0, **config))


# ---- Granite ------------------------------------------------------------------------------------------------------------------

class Granite(Biased):
    """A Llama, perhaps with biases, that multiplies embeddings, scores and branches, and divides logits."""
    name = "transformers GraniteForCausalLM"
    module = modeling_granite

    def config(self, c):
        return dict(super().config(c), model_type="granite", embedding_multiplier=c["embedding"], attention_multiplier=c["scores"],
                    residual_multiplier=c["residual"], logits_scaling=c["divisor"])

    def make(self, **config):
        return transformers.GraniteForCausalLM(transformers.GraniteConfig(bos_token_id=0, eos_token_id=0, pad_token_id=None, **config))

    def watch(self, model, c):
        """The embedding is what enters the first block, multiplied; `scaled` is what the loss is of."""
        seen = Watch()
        model.register_forward_hook(lambda _m, _i, out: seen.keep("scaled", out.logits))
        seen.input_of(model.model.layers[0], "embedding")
        rest = super().watch(model, c)
        return lambda: [row for row in rest() if row[0] != "embedding"] + [(name, *seen.pair(name)) for name in ("embedding", "scaled")]


# ---- SmolLM3 ------------------------------------------------------------------------------------------------------------------

class SmolLM3(Biased):
    """Layers of kind `n` have no positions; windows as of a Qwen2, by letters of their own."""
    name = "transformers SmolLM3ForCausalLM"
    module = modeling_smollm3

    def config(self, c):
        layers = dict(no_rope_layers=[int(kind != "n") for kind in c["turns"]]) if "turns" in c else dict(no_rope_layer_interval=c["every"])
        return dict(super().config(c), model_type="smollm3", pad_token_id=None, **layers, **windows_of_qwen(c))

    def make(self, **config):
        return transformers.SmolLM3ForCausalLM(transformers.SmolLM3Config(bos_token_id=0, eos_token_id=0, **config))

    def turning(self, model):
        return itertools.cycle([layer for layer, turns in enumerate(model.config.no_rope_layers) if turns])


# ---- OLMo 3 and OLMoE ---------------------------------------------------------------------------------------------------------

