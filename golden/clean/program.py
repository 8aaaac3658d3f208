#!/usr/bin/env python3
"""A training program in numpy that has no known mistake: forward, backward written by hand, AdamW; GPT-2, Llama and mixtures.

    golden/clean/program.py GOLDEN FOLDER [--dtype bf16] [--dp 2] [--tp 2] [--micros 2] [--store kernels] ...

It trains on the batches of GOLDEN as ranks of a mesh would, each with its own shards, microbatches and sums, and writes FOLDER
with a file for each rank (docs/checking/dumps.md).  `orrery check GOLDEN FOLDER` must say OK.  campaign.py makes many.
"""
import argparse
import json
import pathlib

import numpy as np

from numbers_of import F32, ORDERS, ROUND, Numbers

# ---- files -------------------------------------------------------------------------------------------------------------

KINDS = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "I32": np.int32, "I64": np.int64}


def read(path):
    """@return metadata, {name: array}"""
    data = pathlib.Path(path).read_bytes()
    begin = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:begin])
    meta = header.pop("__metadata__", {})
    return meta, {n: np.frombuffer(data[begin + t["data_offsets"][0]:begin + t["data_offsets"][1]], KINDS[t["dtype"]]).reshape(t["shape"])
                  for n, t in header.items()}


def write(path, tensors, meta):
    """tensors: {name: (kind, array)}; of kind BF16 an array has the rounded numbers in float32."""
    header, blobs, at = {"__metadata__": meta}, [], 0
    for name, (kind, x) in tensors.items():
        x = np.ascontiguousarray(x)
        blobs.append((x.view(np.uint32) >> 16).astype(np.uint16).tobytes() if kind == "BF16" else x.astype(KINDS[kind]).tobytes())
        header[name] = {"dtype": kind, "shape": list(x.shape), "data_offsets": [at, at + len(blobs[-1])]}
        at += len(blobs[-1])
    text = json.dumps(header).encode()
    pathlib.Path(path).write_bytes(len(text).to_bytes(8, "little") + text + b"".join(blobs))


def runs(index):
    """[[begin, count], ...] of an array of indices."""
    cut = np.split(index, np.flatnonzero(np.diff(index) != 1) + 1)
    return [[int(c[0]), len(c)] for c in cut if len(c)]


class Dump:
    """What every rank has: pieces of tensors, each with its place in the whole."""

    def __init__(self, case):
        self.case, self.ranks = case, {(d, t): ({}, {}) for d in range(case.dp) for t in range(case.tp)}

    def add(self, name, rank, x, of, rows=None, cols=None, kind=None, **more):
        tensors, layout = self.ranks[rank]
        entry = {"of": [int(n) for n in of], **{k: v for k, v in more.items() if v is not None}}
        entry.update({k: runs(i) for k, i in (("rows", rows), ("cols", cols)) if i is not None})
        key = f"{name}#{len(tensors)}"
        tensors[key] = (kind or {"fp32": "F32", "bf16": "BF16", "fp16": "F16"}[self.case.dtype], x)
        layout[key] = entry

    def numbers(self, name, values):
        for tensors, _ in self.ranks.values():
            tensors[name] = ("F64", np.asarray(values, float))

    def save(self, folder):
        folder = pathlib.Path(folder)
        folder.mkdir(parents=True, exist_ok=True)
        for number, ((d, t), (tensors, layout)) in enumerate(self.ranks.items()):
            meta = {"orrery_dump": "1", "rank": str(number), "mesh": json.dumps({"dp": self.case.dp, "tp": self.case.tp}),
                    "dtype": self.case.dtype, "program": "golden/clean/program.py", "layout": json.dumps(layout)}
            if self.case.parts > 1:                                 # a product's parts on each rank
                meta["parts"] = str(self.case.parts * self.case.tp * self.case.dp * self.case.micros)
            write(folder / f"rank{number}.safetensors", tensors, meta)


# ---- the model ---------------------------------------------------------------------------------------------------------

class Shape:
    """Sizes and names of a model, from the config of transformers."""

    def __init__(self, c):
        first = lambda *keys: next((c[k] for k in keys if c.get(k) is not None), None)
        self.gpt, self.moe = c["model_type"] == "gpt2", c["model_type"] in ("mixtral", "qwen3_moe")
        self.D, self.L, self.H = first("n_embd", "hidden_size"), first("n_layer", "num_hidden_layers"), first("n_head", "num_attention_heads")
        self.K, self.A = first("num_key_value_heads") or self.H, first("head_dim") or self.D // self.H
        self.F, self.V = first("moe_intermediate_size", "intermediate_size", "n_inner") or 4 * self.D, c["vocab_size"]
        self.eps, self.theta = first("layer_norm_epsilon", "rms_norm_eps"), first("rope_theta") or (c.get("rope_parameters") or {}).get("rope_theta")
        self.tied, self.E, self.k = bool(c.get("tie_word_embeddings", self.gpt)), first("num_experts", "num_local_experts"), first("num_experts_per_tok")
        self.normalized = c.get("norm_topk_prob", True)
        self.embed, self.head = ("wte.weight", "lm_head.weight") if self.gpt else ("model.embed_tokens.weight", "lm_head.weight")
        self.head = self.embed if self.tied else self.head
        mixtral = c["model_type"] == "mixtral"
        self.names = {k: (f"h.{{}}.{a}" if self.gpt else f"model.layers.{{}}.{b}") for k, a, b in (
            ("ln_1", "ln_1", "input_layernorm"), ("qkv", "attn.c_attn", "self_attn.qkv_proj"), ("qk", "", "self_attn.qk_norm"),
            ("o", "attn.c_proj", "self_attn.o_proj"), ("ln_2", "ln_2", "post_attention_layernorm"),
            ("up", "mlp.c_fc", "mlp.gate_up_proj"), ("down", "mlp.c_proj", "mlp.down_proj"),
            ("gate", "", "block_sparse_moe.gate" if mixtral else "mlp.gate"),
            ("up_of", "", "block_sparse_moe.experts.{}.w13" if mixtral else "mlp.experts.{}.gate_up_proj"),
            ("down_of", "", "block_sparse_moe.experts.{}.w2" if mixtral else "mlp.experts.{}.down_proj"))}

    def cuts(self, t, tp):
        """Which columns of queries, keys and values, of heads, and of the feed-forward rank t of tp has."""
        part = lambda n, width=1: np.arange(t * n // tp * width, (t + 1) * n // tp * width)
        q, k, f = part(self.H, self.A), part(self.K, self.A), part(self.F)
        return (np.concatenate([q, self.H * self.A + k, (self.H + self.K) * self.A + k]), q, f if self.gpt else np.concatenate([f, self.F + f]), f)


class Pass:
    """Forward and backward of one microbatch of a rank along dp, on all ranks along tp."""

    def __init__(self, n, shape, weights, case, keep):
        self.n, self.s, self.w, self.case, self.keep, self.grads = n, shape, weights, case, keep, {}
        self.cuts = [shape.cuts(t, case.tp) for t in range(case.tp)]

    def grad(self, name, g, rows=None, cols=None):
        """Add to a parameter's gradient, or to a part of it; each sum is stored."""
        if g is None:
            return
        whole = self.grads.setdefault(name, np.zeros(self.w[name].shape, F32))
        at = np.ix_(rows, np.arange(whole.shape[1]) if cols is None else cols) if rows is not None and whole.ndim == 2 else \
            (slice(None), cols) if cols is not None else rows if rows is not None else slice(None)
        whole[at] = self.n.stored(whole[at] + g)

    def over_tp(self, parts):
        """The sum of what the ranks have."""
        return self.n.added([self.n.stored(p) for p in parts]) if self.case.reduce == "stored" else self.n.stored(sum(parts[1:], parts[0]))

    def norm(self, x, name):
        bias = self.w.get(name + ".bias")
        w = self.w[name + ".weight"]
        y, back = self.n.norm(x, w, bias, self.s.eps)

        def of(dy):
            if not self.case.sp or self.case.tp == 1:
                dx, dw, db = back(dy)
                self.grad(name + ".weight", dw), self.grad(name + ".bias", db)
                return dx
            cut, dx = np.linspace(0, len(x), self.case.tp + 1).astype(int), []
            for i, j in zip(cut, cut[1:]):                          # each rank along tp has some of the tokens
                if i < j:
                    one, dw, db = self.n.norm(x[i:j], w, bias, self.s.eps)[1](dy[i:j])
                    dx.append(one), self.grad(name + ".weight", dw), self.grad(name + ".bias", db)
            return np.concatenate(dx)
        return y, of

    def columns(self, x, name, cut):
        """A product whose columns are cut along tp: each rank has its rows of the matrix."""
        w, b = self.w[name + ".weight"], self.w.get(name + ".bias")
        made = [self.n.linear(x, w[r], None if b is None else b[r]) for r in cut]
        y = np.zeros((len(x), len(w)), F32)
        for r, (one, _) in zip(cut, made):
            y[:, r] = one

        def back(dy):
            dx = []
            for r, (_, of) in zip(cut, made):
                _, dw, db = of(dy[:, r])
                self.grad(name + ".weight", dw, rows=r), self.grad(name + ".bias", None if b is None else db, rows=r)
                dx.append(self.backward_of(name, dy[:, r], w[r]))
            return self.over_tp(dx)
        return y, back

    def backward_of(self, name, dy, w):
        """dy w; of queries, keys and values, or of gate and up, that are matrices of their own, the sum of stored products."""
        one = 3 if "qkv" in name else 2 if "up" in name else 0
        if not self.case.separate or not one or self.s.gpt:
            return self.n.times(dy, w)
        widths = np.cumsum([len(w) * p // sum(r) for r in [(self.s.H, self.s.K, self.s.K) if one == 3 else (1, 1)] for p in r])[:-1]
        return self.n.added([self.n.stored(self.n.times(d, m)) for d, m in zip(np.split(dy, widths, 1), np.split(w, widths, 0))])

    def rows(self, x, name, cut):
        """A product whose terms are cut along tp: each rank has its columns of the matrix, and a part of the sum."""
        w, b = self.w[name + ".weight"], self.w.get(name + ".bias")
        parts = [self.n.times(x[:, c], w[:, c].T) for c in cut]
        if b is not None and self.case.tp == 1 and self.n.store != "steps":
            y = self.n.stored(parts[0] + b)
        else:
            y = self.over_tp(parts)
            y = y if b is None else self.n.stored(y + b)

        def back(dy):
            dx = np.zeros_like(x)
            for c in cut:
                dx[:, c] = self.n.stored(self.n.times(dy, w[:, c]))
                self.grad(name + ".weight", self.n.stored(self.n.times(dy.T, x[:, c])), rows=np.arange(len(w)), cols=c)
            self.grad(name + ".bias", None if b is None else self.n.stored(self.n.rows_added(dy)))
            return dx
        return y, back

    def attend(self, x, i, B, S):
        """Heads of queries, keys and values: normed if the model does, turned, and attended to."""
        n, s, name = self.n, self.s, self.s.names["qk"].format(i) + ".weight"
        H, K, A, N = s.H, s.K, s.A, len(x)
        heads, undo = x.reshape(N, H + 2 * K, A), []
        if name in self.w:
            w = self.w[name]
            normal = [n.norm(heads[:, a:b], w[c:c + A], None, s.eps) for a, b, c in ((0, H, 0), (H, H + K, A))]
            heads = np.concatenate([normal[0][0], normal[1][0], heads[:, H + K:]], 1)
            self.keep(f"h.{i}.attn.normed", heads.reshape(N, -1), "qkv")

            def normed(d):
                dq, wq, _ = normal[0][1](d[:, :H])
                dk, wk, _ = normal[1][1](d[:, H:H + K])
                self.grad(name, np.concatenate([wq, wk]))
                return np.concatenate([dq, dk, d[:, H + K:]], 1)
            undo.append((None, normed))
        if s.theta:
            angle = np.outer(np.tile(np.arange(S), B), s.theta ** (-np.arange(0, A, 2) / A))
            cos, sin = np.cos(angle).astype(F32), np.sin(angle).astype(F32)
            turned = lambda h, sign: np.concatenate([n.turn(h[:, :H + K], cos, sin, sign), h[:, H + K:]], 1)
            heads = turned(heads, 1)
            self.keep(f"h.{i}.attn.rotated", heads.reshape(N, -1), "qkv")
            undo.append((f"h.{i}.attn.normed" if undo else None, lambda d: turned(d, -1)))
        cut = lambda a, b: [heads[r * S:(r + 1) * S, a:b].swapaxes(0, 1) for r in range(B)]
        made = [n.attention(q, k, v, A ** -0.5) for q, k, v in zip(cut(0, H), cut(H, H + K), cut(H + K, H + 2 * K))]
        y = np.concatenate([m[0].swapaxes(0, 1).reshape(S, H * A) for m in made])

        def back(dy):
            d = dy.reshape(B, S, H, A).swapaxes(1, 2)
            d = np.concatenate([np.concatenate(m[1](one), 0).swapaxes(0, 1) for m, one in zip(made, d)])
            if s.theta:
                self.keep(f"h.{i}.attn.rotated", d.reshape(N, -1), "qkv", True)
            for before, of in reversed(undo):
                d = of(d)
                if before:
                    self.keep(before, d.reshape(N, -1), "qkv", True)
            return d.reshape(N, -1)
        return y, back

    def feed(self, x, i):
        """The feed-forward of one device, or of an expert in a mixture."""
        n, s = self.n, self.s
        if s.moe:
            return self.mixture(x, i)
        up, back_up = self.columns(x, s.names["up"].format(i), [c[2] for c in self.cuts])
        act, back_act = n.gelu(up) if s.gpt else n.swiglu(up)
        out, back_out = self.rows(act, s.names["down"].format(i), [c[3] for c in self.cuts])
        self.keep(f"h.{i}.mlp.up", up, "up"), self.keep(f"h.{i}.mlp.act", act, "act"), self.keep(f"h.{i}.mlp.out", out)

        def back(dy):
            self.keep(f"h.{i}.mlp.out", dy, None, True)
            d = back_out(dy)
            self.keep(f"h.{i}.mlp.act", d, "act", True)
            d = back_act(d)
            self.keep(f"h.{i}.mlp.up", d, "up", True)
            return back_up(d)
        return out, back

    def mixture(self, x, i):
        """Each token goes to k experts; a weight times what each makes is added up, sorted by expert."""
        n, s, names = self.n, self.s, self.s.names
        logits, back_logits = n.linear(x, self.w[names["gate"].format(i) + ".weight"])
        p = np.exp(logits - logits.max(1, keepdims=True))
        p /= p.sum(1, keepdims=True, dtype=F32)
        chosen = np.argsort(-p, 1, kind="stable")[:, :s.k]
        top = np.take_along_axis(p, chosen, 1)
        total = top.sum(1, keepdims=True, dtype=F32) if s.normalized else F32(1)
        weights = n.stored(top / total)
        self.keep(f"h.{i}.router.logits", logits), self.keep(f"h.{i}.router.weights", weights)
        expert, slot, made = [], [], []
        y = np.zeros_like(x)
        for e in range(s.E):
            token, place = np.nonzero(chosen == e)
            expert.append(token), slot.append(place)
            if not len(token):
                made.append(None)
                continue
            up, back_up = n.linear(x[token], self.w[names["up_of"].format(i, e) + ".weight"])
            act, back_act = n.swiglu(up)
            out, back_out = n.linear(act, self.w[names["down_of"].format(i, e) + ".weight"])
            made.append((up, act, out, back_up, back_act, back_out))
            y[token] = n.stored(y[token] + n.kernel(out * weights[token, place][:, None]))
        joined = lambda k: np.concatenate([m[k] for m in made if m])
        choices = np.concatenate([np.stack([np.full(len(t), e), t], 1) for e, t in enumerate(expert)])
        for k, name in enumerate(("mlp.up", "mlp.act", "experts.out")):
            self.keep(f"h.{i}.{name}", joined(k), choices=choices)
        self.keep(f"h.{i}.mlp.out", y)

        def back(dy):
            self.keep(f"h.{i}.mlp.out", dy, None, True)
            dw, into, seen = np.zeros_like(weights), [], []
            for e, m in enumerate(made):
                if m is None:
                    continue
                token, place = expert[e], slot[e]
                dw[token, place] = n.stored(n.kernel(m[2] * dy[token]).sum(1, dtype=F32))
                dout = n.stored(dy[token] * weights[token, place][:, None])
                dact, g, _ = m[5](dout)
                dup = m[4](dact)
                dx, h, _ = m[3](dup)
                self.grad(names["down_of"].format(i, e) + ".weight", g), self.grad(names["up_of"].format(i, e) + ".weight", h)
                into.append((token, dx)), seen.append((dup, dact, dout))
            for k, name in enumerate(("mlp.up", "mlp.act", "experts.out")):
                self.keep(f"h.{i}.{name}", np.concatenate([t[k] for t in seen]), None, True, choices)
            self.keep(f"h.{i}.router.weights", dw, None, True)
            dtop = (dw - (dw * (top / total)).sum(1, keepdims=True, dtype=F32) * s.normalized) / total
            dp = np.zeros_like(p)
            np.put_along_axis(dp, chosen, dtop, 1)
            dlogits = n.stored(p * (dp - (p * dp).sum(1, keepdims=True, dtype=F32)))
            self.keep(f"h.{i}.router.logits", dlogits, None, True)
            d, g, _ = back_logits(dlogits)
            self.grad(names["gate"].format(i) + ".weight", g)
            sums = np.zeros_like(x)
            for token, dx in into:
                sums[token] = n.stored(sums[token] + dx)
            return n.stored(d + sums)
        return y, back

    def run(self, ids, labels, share):
        """@return the losses of all tokens; gradients are then in self.grads"""
        n, s, keep = self.n, self.s, self.keep
        B, S = ids.shape
        x = self.w[s.embed][ids.ravel()]
        if s.gpt:
            x = n.stored(x + np.tile(self.w["wpe.weight"][:S], (B, 1)))
        keep("embedding", x)
        backs = []
        for i in range(s.L):
            one, back_one = self.norm(x, s.names["ln_1"].format(i))
            qkv, back_qkv = self.columns(one, s.names["qkv"].format(i), [c[0] for c in self.cuts])
            keep(f"h.{i}.ln_1", one), keep(f"h.{i}.attn.qkv", qkv, "qkv")
            heads, back_heads = self.attend(qkv, i, B, S)
            out, back_out = self.rows(heads, s.names["o"].format(i), [c[1] for c in self.cuts])
            mid = n.stored(x + out)
            two, back_two = self.norm(mid, s.names["ln_2"].format(i))
            keep(f"h.{i}.attn.heads", heads, "heads"), keep(f"h.{i}.attn.out", out), keep(f"h.{i}.mid", mid), keep(f"h.{i}.ln_2", two)
            branch, back_branch = self.feed(two, i)
            x = n.stored(mid + branch)
            keep(f"h.{i}.out", x)
            backs.append((back_one, back_qkv, back_heads, back_out, back_two, back_branch))
        last, back_last = self.norm(x, "ln_f" if s.gpt else "model.norm")
        vocabulary = np.array_split(np.arange(s.V), self.case.tp if self.case.vocabulary else 1)
        logits, back_logits = self.columns(last, s.head[:-len(".weight")], vocabulary)
        keep("ln_f", last), keep("logits", logits, "vocabulary")
        losses, d = n.cross_entropy(logits, labels.ravel(), share)
        keep("logits", d, "vocabulary", True)
        d = back_logits(d)
        keep("ln_f", d, None, True)
        d = back_last(d)
        for i in reversed(range(s.L)):
            back_one, back_qkv, back_heads, back_out, back_two, back_branch = backs[i]
            keep(f"h.{i}.out", d, None, True)
            two = back_branch(d)
            keep(f"h.{i}.ln_2", two, None, True)
            d = n.stored(d + back_two(two))
            keep(f"h.{i}.mid", d, None, True), keep(f"h.{i}.attn.out", d, None, True)
            heads = back_out(d)
            keep(f"h.{i}.attn.heads", heads, "heads", True)
            qkv = back_heads(heads)
            keep(f"h.{i}.attn.qkv", qkv, "qkv", True)
            one = back_qkv(qkv)
            keep(f"h.{i}.ln_1", one, None, True)
            d = n.stored(d + back_one(one))
        keep("embedding", d, None, True)
        rows = np.zeros_like(self.w[s.embed])
        for token, row in zip(ids.ravel(), d):                      # in steps each sum is stored
            rows[token] = n.step(rows[token] + row)
        self.grad(s.embed, n.stored(rows))
        if s.gpt:
            places = np.zeros_like(self.w["wpe.weight"])
            for at, row in zip(np.tile(np.arange(S), B), d):
                places[at] = n.step(places[at] + row)
            self.grad("wpe.weight", n.stored(places))
        return losses


# ---- training ----------------------------------------------------------------------------------------------------------

class Training:
    """Some steps of AdamW with fp32 masters, of which the first pass is dumped whole."""

    def __init__(self, golden, case):
        self.meta, self.golden = golden
        self.case, self.shape, self.dump = case, Shape(json.loads(self.meta["config"])), Dump(case)
        self.n = Numbers(case.dtype, case.order, case.store, case.parts)
        self.master = {k[6:]: v.astype(F32) for k, v in self.golden.items() if k.startswith("start/")}
        self.states = {k: [np.zeros_like(v), np.zeros_like(v)] for k, v in self.master.items()}
        self.choices = []

    def sequences(self):
        """(d, m, sequences) of all microbatches of all ranks along dp: blocks, or in turn."""
        B, c = self.golden["ids"].shape[1], self.case
        parts = [np.arange(B)[i::c.dp] for i in range(c.dp)] if c.stride else np.array_split(np.arange(B), c.dp)
        return [(d, m, p) for d in range(c.dp) for m, p in enumerate(np.array_split(parts[d], c.micros)) if len(p)]

    def keep(self, d, m, tokens, times):
        """A function that dumps an activation or its gradient of a microbatch.  kind: how tp cuts its columns"""
        c, s, N = self.case, self.shape, self.golden["ids"][0].size

        def kept(name, x, kind=None, gradient=False, choices=None):
            full = ("grad/" if gradient else "act/") + name
            for t in range(c.tp):
                cuts = dict(zip(("qkv", "heads", "up", "act"), s.cuts(t, c.tp)))
                cuts["vocabulary"] = np.array_split(np.arange(s.V), c.tp)[t] if c.vocabulary else None
                cols, more = cuts.get(kind), {"micro": m, "times": times if gradient and times != 1 else None}
                if choices is not None:                             # their rows are known when all have chosen
                    self.choices.append((full, (d, t), x, np.stack([choices[:, 0], tokens[choices[:, 1]]], 1), more))
                    continue
                part = np.array_split(np.arange(len(tokens)), c.tp)[t] if c.sp and kind is None else np.arange(len(tokens))
                y = x[part] if cols is None else x[np.ix_(part, cols)]
                if len(part):
                    self.dump.add(full, (d, t), y, (N, x.shape[1]), tokens[part], cols, **more)
        return kept

    def pass_of(self, step, first):
        """@return loss, gradients of the whole batch in fp32, and as they are dumped"""
        c, ids, labels = self.case, self.golden["ids"][step], self.golden["labels"][step]
        weights, count, S = {k: self.n.stored(v) for k, v in self.master.items()}, int((labels >= 0).sum()), ids.shape[1]
        loss, ranks = 0.0, {}
        for d, m, mine in self.sequences():
            counted = int((labels[mine] >= 0).sum())
            mean = c.mean and counted > 0                           # each microbatch begins with a mean of its own
            share, part = c.scale / (counted if mean else count), (counted / count if mean else 1)
            tokens = (mine[:, None] * S + np.arange(S)).ravel()
            keep = self.keep(d, m, tokens, part / c.scale) if first else lambda *_, **__: None
            run = Pass(self.n, self.shape, weights, c, keep)
            loss += float(run.run(ids[mine], labels[mine], share).sum(dtype=float)) / count
            total = ranks.setdefault(d, {k: np.zeros_like(v) for k, v in weights.items()})
            for k, g in run.grads.items():
                total[k] = total[k] + F32(part) * g if c.gradients == "fp32" else self.n.stored(total[k] + self.n.stored(F32(part) * g))
        sums = {}
        for k in weights:
            terms = [r[k] for r in ranks.values()]
            sums[k] = self.n.added(terms) if c.gradients == "stored" else sum(terms[1:], terms[0])
        return loss, {k: g / F32(c.scale) for k, g in sums.items()}, sums

    def place(self, rank, name, x, kind, times=None, flat=False):
        """Dump a rank's shard of a parameter, or of its gradient or state."""
        (d, t), c, s = rank, self.case, self.shape
        end, of = name.split(".weight")[0].split(".bias")[0], (x.shape[0], x.shape[1] if x.ndim > 1 else 1)
        qkv, heads, up, act = s.cuts(t, c.tp)
        is_of = lambda key: s.names[key] and end.split(".", 2 if s.gpt else 3)[-1] == s.names[key].split(".", 2 if s.gpt else 3)[-1]
        layer = end.startswith(("h.", "model.layers."))
        rows = qkv if layer and is_of("qkv") else up if layer and is_of("up") and not s.moe else None
        cols = heads if layer and is_of("o") else act if layer and is_of("down") and not s.moe else None
        if name.endswith(".bias") and cols is not None:
            cols = None
        if name == s.head and not s.tied and c.vocabulary:
            rows = np.array_split(np.arange(s.V), c.tp)[t]
        if flat and c.tp == 1:                                      # as ZeRO: elements, padded
            each = -(-x.size // c.dp)
            begin, y = d * each, x.ravel()[d * each:(d + 1) * each]
            if len(y):
                tensors, layout = self.dump.ranks[rank]
                key = f"{self.name}#{len(tensors)}"
                tensors[key] = (kind, np.pad(y, (0, each - len(y))))
                layout[key] = {"of": list(of), "flat": [begin, len(y)], **({"times": times} if times else {})}
            return
        y = x if rows is None else x[rows]
        y = y if cols is None else y[:, cols]
        self.dump.add(self.name, rank, y, of, rows, cols, kind, times=times)

    def dumped(self, name, param, x, kind, times=None, flat=False):
        self.name = name
        for rank in self.dump.ranks:
            self.place(rank, param, x, kind, times, flat)

    def step(self, k, gradients, norm):
        of = lambda name: float(self.meta["adamw." + name])
        b1, b2, clip, lr = F32(of("beta1")), F32(of("beta2")), of("clip"), self.golden["adamw/lr"][k]
        times, t = F32(min(1, clip / norm) if clip and norm > 0 else 1), k + 1
        for name, w in self.master.items():
            g, (m, v) = gradients[name] * times, self.states[name]
            m, v = b1 * m + (1 - b1) * g, b2 * v + (1 - b2) * g * g
            decay = of("weight_decay") if w.ndim > 1 else 0
            w = w * F32(1 - lr * decay) - F32(lr / (1 - of("beta1") ** t)) * m / (np.sqrt(v) / F32(np.sqrt(1 - of("beta2") ** t)) + F32(of("eps")))
            self.master[name], self.states[name] = w, [m, v]

    def train(self, steps=None):
        c, kind = self.case, {"fp32": "F32", "bf16": "BF16", "fp16": "F16"}[self.case.dtype]
        steps, losses, norms = steps or len(self.golden["ids"]), [], []
        for k in range(steps):
            loss, gradients, sums = self.pass_of(k, k == 0)
            norm = float(np.sqrt(sum((g.astype(float) ** 2).sum() for g in gradients.values())))
            losses.append(loss), norms.append(norm)
            for name in gradients:
                as_stored = c.gradients == "stored"
                self.dumped(f"grad/{name}" if k == 0 else f"adamw/{k + 1}/grad/{name}", name, sums[name] if as_stored else gradients[name],
                            kind if as_stored else "F32", 1 / c.scale if as_stored and c.scale != 1 else None, c.flat)
            self.step(k, gradients, norm)
            for name in self.master:
                for what, x in (("weight", self.master[name]), ("exp_avg", self.states[name][0]), ("exp_avg_sq", self.states[name][1])):
                    shown = self.n.stored(x) if c.rounded else x
                    self.dumped(f"adamw/{what}/{name}" if k + 1 == steps else f"adamw/{k + 1}/{what}/{name}", name, shown,
                                kind if c.rounded else "F32", None, c.flat)
        for name, rank, x, choices, more in self.choices:
            every = np.unique(np.concatenate([h[3] for h in self.choices if h[0] == name and h[1][1] == rank[1]]), axis=0)
            rows = np.array([np.flatnonzero((every == one).all(1))[0] for one in choices])
            order = np.argsort(rows)
            self.dump.add(name, rank, x[order], (len(every), x.shape[1]), rows[order], None, **more)
        self.dump.numbers("loss", [losses[0]]), self.dump.numbers("norm", [norms[0]])
        self.dump.numbers("adamw/loss", losses), self.dump.numbers("adamw/norm", norms)
        return self.dump


# option: its values, the usual first
OPTIONS = {"dtype": tuple(ROUND), "order": tuple(ORDERS), "store": ("fused", "kernels", "steps"), "reduce": ("fp32", "stored"),
           "gradients": ("fp32", "stored"), "parts": (1, 2), "dp": (1, 2, 3), "tp": (1, 2, 3), "micros": (1, 2, 3),
           "scale": (1.0, 1024.0, 65536.0), "separate": (0, 1), "vocabulary": (0, 1), "sp": (0, 1), "stride": (0, 1), "mean": (0, 1),
           "flat": (0, 1), "rounded": (0, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("golden")
    parser.add_argument("folder")
    for name, values in OPTIONS.items():
        parser.add_argument("--" + name, type=type(values[0]), default=values[0], choices=values)
    case = parser.parse_args()
    Training(read(case.golden), case).train().save(case.folder)


if __name__ == "__main__":
    main()
