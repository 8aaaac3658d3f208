#!/usr/bin/env python3
"""Holds a run of `orrery train --arithmetic exact --check GOLDEN --dump FOLDER/`, or exact2, to docs/checking/exact.md.

    python3 golden/exact.py GOLDEN.safetensors FOLDER

The rule is written here once more, from that page alone, in Python's integers: an integer m stands for the sum m 2^-100.
Every matrix product, attention, gradient of a weight, norm and loss of a GPT-2, a Llama or a ParScale is computed from
the inputs that the run has stored; a Mistral without windows is a Llama.  Exit status 0: all have the stored bits; 3: the
first tensor that has others is named; 1: a file cannot be used.
"""
import json
import math
import pathlib
import sys
from fractions import Fraction

import numpy as np

import tensor_file

UNIT = 100                                             # a sum is an integer times 2^-100
BITS = {"exact": (22, 21, 22), "exact2": (28, 28, 28)}   # of operands of a product, of a sum over tokens, of rows of attention
FORMATS = {"fp32": (24, -149), "bf16": (8, -133), "fp16": (11, -24)}   # bits of a number; exponent of the last one
tensor_file.DTYPES.update(BF16=np.dtype("<u2"), F16=np.dtype("<f2"))


class Differs(Exception):
    """A tensor whose stored bits are not those of the rule."""


# ---- the rule ---------------------------------------------------------------------------------------------------------

def rounded(m, digits, least):
    """The number of a format that is nearest to the sum m: ties to even."""
    if abs(m) >= 1 << 127:
        return math.nan
    cut = max(abs(m).bit_length() - digits, least + UNIT, 0)
    return math.ldexp(round(Fraction(abs(m), 1 << cut)), cut - UNIT) * (-1 if m < 0 else 1)


def round_all(sums, form):
    with np.errstate(over="ignore"):
        values = np.frompyfunc(lambda m: rounded(m, *FORMATS[form]), 1, 1)(sums).astype(np.float64)
        return values.astype(np.float16 if form == "fp16" else np.float32).astype(np.float32)


def sums_of(x):
    """Each number as the nearest sum, an integer."""
    return np.frompyfunc(lambda v: round(Fraction(float(v)) * (1 << UNIT)), 1, 1)(np.asarray(x)).astype(object)


def integers(x, bits, finest):
    """Rows as integers, and the exponent of each row's grid; a row of zeros has zeros on any grid."""
    if not np.isfinite(x).all():
        raise Differs("a number is not finite: this program has no sums that do not exist")
    exponent = np.frexp(np.abs(x.astype(np.float64)).max(axis=1))[1]
    grid = np.maximum(exponent - bits, finest)
    return np.rint(np.ldexp(x.astype(np.float64), -grid[:, None])).astype(np.int64), grid


def shifted(integer, exponent):
    return np.frompyfunc(lambda m, e: int(m) << (int(e) + UNIT), 2, 1)(integer, exponent)


def times(a, b):
    """A B in Python's integers where 64 bits might not hold the sums; b is cut into two parts of 14 bits."""
    low = b & 16383
    return (a @ (b >> 14)).astype(object) * 16384 + (a @ low).astype(object)


def product(x, w, finest_x, finest_w, bits):
    """X W^T, rows of both on grids of their own."""
    (qx, gx), (qw, gw) = integers(x, bits[0], finest_x), integers(w, bits[0], finest_w)
    return shifted(times(qx, qw.T), gx[:, None] + gw[None, :])


def weight_gradient(dy, x, bits):
    """dY^T X: a token has one grid of dY and one of X."""
    (qy, gy), (qx, gx) = integers(dy, bits[1], -64), integers(x, bits[1], -36)
    total = np.zeros((dy.shape[1], x.shape[1]), object)
    for g in np.unique(gy + gx):
        here = gy + gx == g
        total = total + shifted(times(qy[here].T, qx[here]), np.full(total.shape, g))
    return total


def lane_sums(x):
    """Sums of rows in fp32: 16 partial sums, then the second half of them is added to the first, and so on."""
    lanes = np.zeros((len(x), 16), np.float32)
    for i in range(0, x.shape[1], 16):
        part = x[:, i:i + 16]
        lanes[:, :part.shape[1]] += part
    for half in (8, 4, 2, 1):
        lanes = lanes[:, :half] + lanes[:, half:]
    return lanes


def row_sums(x, down=0):
    """Exact sums of rows, in fp32; down: terms are added times 2^-down."""
    sums = sums_of(np.ldexp(x.astype(np.float64), -down)).sum(axis=1, keepdims=True)
    return np.ldexp(round_all(sums, "fp32"), down)


def normed(x, eps, centred):
    """(X - mean) rstd, or X rstd, in fp32, each operation rounded."""
    width, one = np.float32(x.shape[1]), np.float32(1)
    if centred:
        x = x - row_sums(x) * (one / width)
    return x * (one / np.sqrt(row_sums(x * x, 40) / width + np.float32(eps)))


def exp(x):
    """The exp of the page, in fp32, operation by operation."""
    f = np.float32
    x = np.clip(x, f(-104), f(89))
    shift = f(1.5 * 2 ** 23)
    k = (x * f(float.fromhex("0x1.71547652b82fep+0")) + shift) - shift
    high, low = x - k * f(float.fromhex("0x1.63p-1")), k * f(float.fromhex("-0x1.bd0106p-13"))
    r, p = high - low, f(1) / f(40320)
    for divisor in (5040, 720, 120, 24, 6, 2):
        p = p * r + f(1) / f(divisor)
    p = f(1) + (high + (r * r * p - low))
    return np.ldexp(p, k.astype(np.int32))


SLOPE, CUBIC = np.float32(1.5957691216057308), np.float32(0.044715)     # 2 sqrt(2 / pi)


def gelu(x):
    return x / (np.float32(1) + exp(-SLOPE * x * (np.float32(1) + CUBIC * x * x)))


def gelu_slope(x):
    one, x = np.float32(1), np.clip(x, np.float32(-10), np.float32(10))
    e = exp(-SLOPE * x * (one + CUBIC * x * x))
    s = one / (one + e)
    return s + x * s * (s * e) * (SLOPE * (one + np.float32(3) * CUBIC * x * x))


def swiglu(x):
    g, u = np.split(x, 2, axis=1)
    return g / (np.float32(1) + exp(-g)) * u


def swiglu_gradient(dy, x):
    one, (g, u) = np.float32(1), np.split(x, 2, axis=1)
    s, rest = one / (one + exp(-g)), one / (one + exp(g))
    return np.concatenate([dy * u * s * (one + g * rest), dy * (g * s)], axis=1)


# ---- the stored run ---------------------------------------------------------------------------------------------------

def numbers(t):
    """Stored numbers of 16 bits in fp32; bf16 are the upper halves of fp32 numbers."""
    if t.dtype == np.dtype("<u2"):
        return (t.astype(np.uint32) << 16).view(np.float32)
    return t.astype(np.float32) if t.dtype == np.dtype("<f2") else t


def read_dump(folder):
    """Whole tensors from all ranks' pieces, the format, the loss scale and the bits; copies of an element must be the same."""
    whole, form, scale, bits = {}, None, 1, None
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        tensors, meta = tensor_file.read(path)
        form, layout, bits = meta["dtype"], json.loads(meta.get("layout", "{}")), BITS[meta["arithmetic"]]
        for name, stored in tensors.items():
            entry, name, stored = layout.get(name, {}), name.split("#")[0], numbers(stored)
            scale = 1 / entry.get("times", 1 / scale)
            if set(entry) - {"of", "rows", "cols", "micro", "times"}:
                sys.exit(f"{path}: {name} has a layout that this program does not read: {', '.join(sorted(entry))}")
            of = entry.get("of", stored.shape if stored.ndim == 2 else (stored.size, 1))
            every = [np.concatenate([np.arange(b, b + n) for b, n in entry.get(key, [[0, of[axis]]])])
                     for axis, key in enumerate(("rows", "cols"))]
            values, known = whole.setdefault(name, (np.zeros(of, stored.dtype), np.zeros(of, bool)))
            at, piece = np.ix_(*every), stored.reshape(len(every[0]), len(every[1]))
            if not same(values[at][known[at]], piece[known[at]]):
                raise Differs(f"{name}: {path.name} has other bits than the ranks before")
            values[at], known[at] = piece, True
    if not whole:
        sys.exit(f"{folder}: has no file NAME.safetensors")
    return {name: values for name, (values, known) in whole.items() if known.all()}, form, scale, bits


def same(a, b):
    """Whether all bits are the same, but those of zeros' signs and of NaNs."""
    return np.array_equal(a, b, equal_nan=True)


class Pass:
    """A pass over a batch: what was stored, and how much of it has been computed again."""

    def __init__(self, dump, before, weights, form, scale, bits):
        self.dump, self.before, self.weights, self.form, self.scale, self.bits = dump, before, weights, form, scale, bits
        self.count, self.squares = 0, Fraction(0)      # tensors; of the gradients of all weights

    def get(self, name):
        return self.dump[self.before + name]

    def hold(self, name, value):
        stored = self.get(name).reshape(value.shape)
        wrong = ~((stored == value) | (np.isnan(stored) & np.isnan(value)))
        if wrong.any():
            at = tuple(int(i) for i in np.argwhere(wrong)[0])
            raise Differs(f"{self.before}{name} {list(at)}: stored {stored[at]!r}, the rule gives {value[at]!r}; "
                          f"{wrong.sum()} of {wrong.size} elements differ")
        self.count += 1

    def hold_gradient(self, name, sums):
        gradient = round_all(sums, "fp32")
        self.squares += sum(Fraction(float(v)) ** 2 for v in gradient.ravel())
        self.hold("grad/" + name, gradient)

    def forward(self, y, x, matrix, bias=None):
        total = product(self.get("act/" + x), self.weights[matrix], -50, -50, self.bits)
        if bias in self.weights:
            total = total + sums_of(self.weights[bias].reshape(1, -1))
        self.hold("act/" + y, round_all(total, self.form))

    def backward(self, y, x, matrix, bias=None, more=0):
        dy = self.get("grad/" + y)
        self.hold("grad/" + x, round_all(product(dy, self.weights[matrix].T, -64, -36, self.bits), self.form))
        self.hold_gradient(matrix, weight_gradient(dy, self.get("act/" + x), self.bits) + more)
        if bias in self.weights:
            self.hold_gradient(bias, sums_of(dy).sum(axis=0))

    def norm(self, y, x, weight, bias, eps, gradient):
        """The norm, or the gradients of its weights."""
        unit = normed(self.get("act/" + x), eps, bias is not None)
        if not gradient:
            value = unit * self.weights[weight].reshape(1, -1)
            value = value if bias is None else value + self.weights[bias].reshape(1, -1)
            return self.hold("act/" + y, round_to(value, self.form))
        dy = self.get("grad/" + y)
        self.hold_gradient(weight, sums_of(dy * unit).sum(axis=0))
        if bias is not None:
            self.hold_gradient(bias, sums_of(dy).sum(axis=0))

    def attention(self, layer, sequences, queries, keys, prefix, streams):
        """The output of attention from queries, keys and values, which may be rotated; and the gradients of these.  With
        parallel streams queries see the prefix of their stream, too: keys and values that are weights."""
        before = f"h.{layer}.attn."
        name = before + ("rotated" if f"{self.before}act/{before}rotated" in self.dump else "qkv")
        qkv, o, do = (self.get(n) for n in ("act/" + name, f"act/{before}heads", f"grad/{before}heads"))
        tokens, width = len(qkv) // sequences, qkv.shape[1] // (queries + 2 * keys)
        output, gradient = np.zeros(o.shape), np.full(qkv.shape, 0, object)
        at = lambda h: slice(h * width, (h + 1) * width)
        stored = lambda sums: sums_of(round_all(sums, self.form))
        extra = np.full(self.weights[prefix].shape, 0, object) if streams > 1 else None
        for b in range(sequences):
            rows = slice(b * tokens, (b + 1) * tokens)
            for h in range(queries):
                k, v = (at(queries + part * keys + h // (queries // keys)) for part in (0, 1))
                head = Head(qkv[rows, at(h)], qkv[rows, k], qkv[rows, v], self.bits, np.tri(tokens, dtype=bool))
                if streams == 1:
                    output[rows, at(h)] = head.output()
                    sums = head.gradients(o[rows, at(h)], do[rows, at(h)], head.lse(), False)
                else:
                    each = len(extra) // streams
                    own = slice(b * streams // sequences * each, (b * streams // sequences + 1) * each)
                    places = tuple(at(part * keys + h // (queries // keys)) for part in (0, 1))
                    more = Head(qkv[rows, at(h)], *(self.weights[prefix][own, place] for place in places), self.bits,
                                np.ones((tokens, each), bool))
                    output[rows, at(h)], lse = merged(head, more, self.form)
                    dq, *sums = more.gradients(o[rows, at(h)], do[rows, at(h)], lse, True)
                    for place, part in zip(places, sums):
                        extra[own, place] += part
                    gradient[rows, at(h)] += dq
                    dq, *sums = head.gradients(o[rows, at(h)], do[rows, at(h)], lse, True)
                    sums = (stored(dq), *sums)
                for place, part in zip((at(h), k, v), sums):
                    gradient[rows, place] += part
        self.hold(f"act/{before}heads", round_to(output.astype(np.float32) if self.form == "fp32" else output, self.form))
        self.hold("grad/" + name, round_all(gradient, self.form))
        if extra is not None:
            self.hold_gradient(prefix, extra)

    def streams(self, streams, smoothing):
        """The weighted mean of the results of parallel streams, which a network of two matrices weighs."""
        self.results = self.get("act/ln_f").reshape(streams, -1, self.get("act/ln_f").shape[1]).transpose(1, 2, 0)
        self.dump[self.before + "act/streams.beside"] = self.results.reshape(len(self.results), -1)
        self.forward("streams.up", "streams.beside", MEAN + "0.weight", MEAN + "0.bias")
        up = self.get("act/streams.up")
        self.hold("act/streams.act", round_to(up / (np.float32(1) + exp(-up)), self.form))
        self.forward("streams.logits", "streams.act", MEAN + "2.weight", MEAN + "2.bias")
        logits, one, c = self.get("act/streams.logits"), np.float32(1), np.float32(smoothing)
        parts = np.exp((logits - logits.max(axis=1, keepdims=True)).astype(np.float64)).astype(np.float32)
        self.shares = parts / in_order(parts)
        self.stream_weights = self.shares * (one - c) + c / np.float32(streams)
        self.hold("act/streams.mean", round_to(in_order(self.stream_weights[:, None, :] * self.results)[..., 0], self.form))

    def streams_backward(self, smoothing):
        dy, one, c = self.get("grad/streams.mean"), np.float32(1), np.float32(smoothing)
        g = in_order((dy[:, :, None] * self.results).transpose(0, 2, 1))[..., 0]
        logit = (one - c) * self.shares * (g - in_order(self.shares * g))
        self.hold("grad/streams.logits", round_to(logit, self.form))
        self.backward("streams.logits", "streams.act", MEAN + "2.weight", MEAN + "2.bias")
        up, dy_act = self.get("act/streams.up"), self.get("grad/streams.act")
        s, rest = one / (one + exp(-up)), one / (one + exp(up))
        self.hold("grad/streams.up", round_to(dy_act * s * (one + up * rest), self.form))
        d_up, beside = self.get("grad/streams.up"), self.get("act/streams.beside")
        self.hold_gradient(MEAN + "0.weight", weight_gradient(d_up, beside, self.bits))
        self.hold_gradient(MEAN + "0.bias", sums_of(d_up).sum(axis=0))
        mixed = round_to(self.stream_weights[:, None, :] * dy[:, :, None], self.form)
        back = round_all(product(d_up, self.weights[MEAN + "0.weight"].T, -64, -36, self.bits), self.form)
        total = round_to(mixed + back.reshape(mixed.shape), self.form)
        self.hold("grad/ln_f", total.transpose(2, 0, 1).reshape(-1, total.shape[1]))

    def activation(self, layer, gradient):
        """What a layer's perceptron has between its matrices: gelu, or silu times the other half."""
        x, gated = self.get(f"act/h.{layer}.mlp.up"), self.get(f"act/h.{layer}.mlp.up").shape != self.get(
            f"act/h.{layer}.mlp.act").shape
        if not gradient:
            return self.hold(f"act/h.{layer}.mlp.act", round_to(swiglu(x) if gated else gelu(x), self.form))
        dy = self.get(f"grad/h.{layer}.mlp.act")
        value = swiglu_gradient(dy, x) if gated else dy * gelu_slope(x)
        return self.hold(f"grad/h.{layer}.mlp.up", round_to(value, self.form))

    def loss(self, labels):
        """The loss over the tokens that count, and the gradient of the logits."""
        x, rows = self.get("act/logits"), np.arange(labels.size)
        top, scale, counts = x.max(axis=1, keepdims=True), np.float32(self.scale / max((labels >= 0).sum(), 1)), labels >= 0
        parts = exp(x - top)
        total = np.rint(parts.astype(np.float64) * 2.0 ** 34).sum(axis=1) / 2.0 ** 34
        each = [math.log(t) + float(m) - float(h) for t, m, h in zip(total, top[:, 0], x[rows, labels])]
        loss = np.rint(np.array(each) * 2.0 ** 28)[counts].sum() / 2.0 ** 28 / max(counts.sum(), 1)
        self.hold("loss", np.array([[loss]]))
        gradient = parts * (scale / total.astype(np.float32))[:, None]
        gradient[rows[counts], labels[counts]] -= scale
        self.hold("grad/logits", round_to(np.where(counts[:, None], gradient, np.float32(0)), self.form))


def round_to(x, form):
    return x if form == "fp32" else round_all(sums_of(x), form)


MEAN = "model.aggregate_layer."


def in_order(x):
    """Sums along the last axis in fp32, one term after the other."""
    total = np.zeros(x.shape[:-1], np.float32)
    for i in range(x.shape[-1]):
        total = total + x[..., i]
    return total[..., None]


# ---- attention --------------------------------------------------------------------------------------------------------

def weighted(weights, unit, rows, finest, bits):
    """Sums over j of weight [i, j], a multiple of 2^unit, times row j on its grid."""
    q, grid = integers(rows, bits[2], finest)
    whole = np.frompyfunc(int, 1, 1)(np.rint(np.ldexp(weights.astype(np.float64), -unit)))
    return whole @ shifted(q, np.broadcast_to(grid[:, None] + unit, q.shape))


def dots(x, y, bits):
    """X Y^T, terms one after the other in fp32; by exact2 in fp64, rounded to fp32."""
    form = np.float64 if bits == BITS["exact2"] else np.float32
    total, x, y = np.zeros((len(x), len(y)), form), x.astype(form), y.astype(form)
    for i in range(x.shape[1]):
        total = total + x[:, i, None] * y[None, :, i]
    return total.astype(np.float32)


class Head:
    """A query head of one sequence: its scores, and the sums of its output."""

    def __init__(self, q, k, v, bits, seen):
        self.q, self.k, self.v, self.bits, self.seen = q, k, v, bits, seen
        self.scale = np.float32(1 / math.sqrt(q.shape[1]))
        self.scores = np.where(seen, self.scale * dots(q, k, bits), np.float32(-np.inf))
        self.top = self.scores.max(axis=1, keepdims=True)
        weights = np.where(seen, exp(self.scores - self.top), np.float32(0))
        self.total = weighted(weights, -36, np.ones((len(k), 1), np.float32), -64, bits)
        self.sums = weighted(weights, -36, v, -64, bits)

    def output(self):
        to_float = np.frompyfunc(float, 1, 1)
        return (to_float(self.sums) / to_float(self.total)).astype(np.float64)

    def lse(self):
        total = (self.total[:, 0] / (1 << UNIT)).astype(np.float64).astype(np.float32)
        return self.top + np.array([math.log(t) for t in total], np.float32)[:, None]

    def gradients(self, o, do, lse, more):
        """Sums of dq, dk and dv; more: queries also see keys that are not among these."""
        p = np.where(np.isinf(self.scores), np.float32(0), exp(self.scores - lse))
        ds = (dots(do, self.v, self.bits) - lane_sums(do * o)) * p * self.scale
        if not more:
            ds[self.seen.sum(axis=1) == 1] = 0         # these queries see one key and nothing more
        return (weighted(ds, -64, self.k, -36, self.bits), weighted(ds.T, -64, self.q, -36, self.bits),
                weighted(p.T, -36, do, -64, self.bits))


def merged(one, other, form):
    """The output and the logarithm of attention to two sets of keys, each operation in fp32."""
    o, o2 = (round_to(head.output().astype(np.float32) if form == "fp32" else head.output(), form) for head in (one, other))
    top = np.maximum(one.lse(), other.lse())
    e, e2 = exp(one.lse() - top), exp(other.lse() - top)
    log = np.array([math.log(t) for t in (e + e2)[:, 0]], np.float32)[:, None]
    return (e * o + e2 * o2) * (np.float32(1) / (e + e2)), top + log


def scattered(rows, ids, dy):
    """The gradient of an embedding: each row adds the rows of dY of its tokens."""
    total = np.zeros((rows, dy.shape[1]), object)
    np.add.at(total, ids, sums_of(dy))
    return total


# ---- models -----------------------------------------------------------------------------------------------------------

def names_of(config):
    """Layers, epsilon, and the names of each weight: those of layer i by a function."""
    if config["model_type"] == "gpt2":
        layer = {"ln_1": "ln_1", "attn.qkv": "attn.c_attn", "attn.out": "attn.c_proj", "ln_2": "ln_2",
                 "mlp.up": "mlp.c_fc", "mlp.out": "mlp.c_proj"}
        return (config["n_layer"], config["layer_norm_epsilon"], True, "wte.weight", "wpe.weight", "ln_f",
                lambda i, what: f"h.{i}.{layer[what]}")
    if config["model_type"] in ("llama", "qwen2_parscale") or config["model_type"] == "mistral" and config["sliding_window"] is None:
        layer = {"ln_1": "input_layernorm", "attn.qkv": "self_attn.qkv_proj", "attn.out": "self_attn.o_proj",
                 "ln_2": "post_attention_layernorm", "mlp.up": "mlp.gate_up_proj", "mlp.out": "mlp.down_proj"}
        return (config["num_hidden_layers"], config["rms_norm_eps"], False, "model.embed_tokens.weight", None, "model.norm",
                lambda i, what: f"model.layers.{i}.{layer[what]}")
    sys.exit(f"{config['model_type']}: this program knows gpt2, llama, mistral without windows, and qwen2_parscale")


def run_pass(one, config, ids, labels):
    layers, eps, biased, embedding, positions, last, name = names_of(config)
    output = embedding if config["tie_word_embeddings"] else "lm_head.weight"
    pair = lambda full: (full + ".weight", full + ".bias" if biased else None)
    both = lambda full: (full + ".weight", full + ".bias")
    streams, smoothing = config.get("parscale_n", 1), config.get("parscale_attn_smooth", 0)
    result = "streams.mean" if streams > 1 else "ln_f"
    products = (("mlp.out", "mlp.act"), ("mlp.up", "ln_2"), ("attn.out", "attn.heads"), ("attn.qkv", "ln_1"))
    stream = lambda i: f"h.{i - 1}.out" if i else "embedding"
    norm = lambda i, gradient, which, x: one.norm(f"h.{i}.{which}", x, *pair(name(i, which)), eps, gradient)
    queries = config["n_head"] if "n_head" in config else config["num_attention_heads"]
    for i in range(layers):
        one.attention(i, streams * len(ids), queries, config.get("num_key_value_heads", queries),
                      f"model.layers.{i}.self_attn.prefix_kv.weight", streams)
        for y, x in reversed(products):
            if x.startswith("ln_"):
                norm(i, False, x, stream(i) if x == "ln_1" else f"h.{i}.mid")
            if x == "mlp.act":
                one.activation(i, False)
            one.forward(f"h.{i}.{y}", f"h.{i}.{x}", *both(name(i, y)))
    one.norm("ln_f", stream(layers), *pair(last), eps, False)
    if streams > 1:
        one.streams(streams, smoothing)
    one.forward("logits", result, output)
    one.loss(labels.ravel())
    looked_up = scattered(len(one.weights[embedding]), np.tile(ids.ravel(), streams), one.get("grad/embedding"))
    one.backward("logits", result, output, more=looked_up if output == embedding else 0)
    if streams > 1:
        one.streams_backward(smoothing)
    one.norm("ln_f", stream(layers), *pair(last), eps, True)
    for i in reversed(range(layers)):
        for y, x in products:
            one.backward(f"h.{i}.{y}", f"h.{i}.{x}", *both(name(i, y)))
            if x == "mlp.act":
                one.activation(i, True)
            if x.startswith("ln_"):
                norm(i, True, x, stream(i) if x == "ln_1" else f"h.{i}.mid")
    if output != embedding:
        one.hold_gradient(embedding, looked_up)
    if positions:
        place = np.tile(np.arange(ids.shape[1]), ids.shape[0])
        one.hold_gradient(positions, scattered(len(one.weights[positions]), place, one.get("grad/embedding")))
    one.hold("norm", np.array([[math.sqrt(one.squares) / one.scale]]))


def main(golden, folder):
    given, meta = tensor_file.read(pathlib.Path(golden))
    try:
        dump, form, scale, bits = read_dump(folder)
        start = {name[6:]: round_to(t.astype(np.float32), form) for name, t in given.items() if name.startswith("start/")}
        count, passes = 0, 0
        while passes < len(given["ids"]):
            before = f"adamw/{passes + 1}/" if passes else ""
            if before + "act/embedding" not in dump:
                break
            at = f"adamw/{passes}/weight/"
            weights = start if not passes else {n[len(at):]: t for n, t in dump.items() if n.startswith(at)}
            one = Pass(dump, before, weights, form, scale, bits)
            run_pass(one, json.loads(meta["config"]), given["ids"][passes], given["labels"][passes])
            count, passes = count + one.count, passes + 1
    except Differs as what:
        print(f"differs: {what}")
        return 3
    named = "1 pass" if passes == 1 else f"{passes} passes"
    print(f"OK: {count} tensors of {named}, computed again from docs/checking/exact.md, have the stored bits")
    return 0


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    sys.exit(main(*sys.argv[1:]))
