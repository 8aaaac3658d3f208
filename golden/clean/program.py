#!/usr/bin/env python3
"""A training program in numpy that has no known mistake: forward, backward written by hand, AdamW; GPT-2, Llama and mixtures.

    golden/clean/program.py GOLDEN FOLDER [--dtype bf16] [--dp 2] [--tp 2] [--micros 2] [--store kernels] ...

It trains on the batches of GOLDEN as ranks of a mesh would, each with its own shards, microbatches and sums, and writes FOLDER
with a file for each rank (docs/checking/dumps.md).  `orrery check GOLDEN FOLDER` must say OK.  campaign.py makes many.
"""
import argparse
import json

import numpy as np

from files import Dump, read, runs
from model import Pass, Shape
from operations import F32, ORDERS, ROUND, Numbers

# ---- the loss ----------------------------------------------------------------------------------------------------------

NAMED = {"torch-smoothing": "label-smoothing=0.1", "megatron-smoothing": "label-smoothing=0.1,smoothing-over=others", "palm-z-loss": "logits-z=1e-4",
         "megatron-aux-loss": "balance-over=microbatch,balance-layers=each,balance-choices=mean", "batch-aux-loss": "balance-over=batch",
         "megatron-seq-aux-loss": "balance-over=sequence,balance-layers=each,balance-choices=mean", "sequence-aux-loss": "balance-over=sequence",
         "deepspeed-aux-loss": "balance-over=microbatch,balance-layers=each,balance-choices=first", "transformers-aux-loss": "balance-over=microbatch",
         "megatron-global-aux-loss": "balance-over=batch,balance-layers=each,balance-choices=mean",
         "sequence-mean": "loss-mean=sequences", "row-mean": "loss-mean=rows", "loss-sum": "loss-mean=sum"}


class Loss:
    """The conventions of losses that a golden file's text has, as docs/checking/profiles.md says what they mean."""

    def __init__(self, text):
        words = ",".join(NAMED.get(w, w) for w in text.split(",")[1:])
        rows = dict(w.split("=") for w in words.split(",") if w)
        self.smoothing, self.z = float(rows.get("label-smoothing", 0)), float(rows.get("logits-z", 0))
        self.others = rows.get("smoothing-over", "others" if text.startswith("megatron") else "all") == "others"
        self.mean, self.parts, self.divisor = rows.get("loss-mean", "labels"), int(rows.get("loss-parts", 0)), float(rows.get("loss-divisor", 1))
        self.usual = self.mean == "labels" and self.divisor == 1
        self.over, self.each = rows.get("balance-over", "batch"), rows.get("balance-layers", "together") == "each"
        self.choices = rows.get("balance-choices", "all")

    def shares(self, labels, S):
        """What each row's loss is multiplied by, [B, S]."""
        B, counts = len(labels), labels >= 0
        one = {"labels": counts.sum(), "rows": B * S, "sum": 1}.get(self.mean)
        parts = [np.arange(B)] if one else np.array_split(np.arange(B), B if self.mean == "sequences" else self.parts)
        divisors = np.zeros((B, S))
        for part in parts:
            divisors[part] = one or len(parts) * max(1, counts[part].sum())
        return 1 / (divisors * self.divisor)

    def pulls(self, chosen, E, S, micros):
        """E f / rows of the batch, [L, B, E], for each probability.  chosen: [L, B, S, k]"""
        L, B, _, k = chosen.shape
        counted = 1 if self.choices == "first" and k <= 2 else k
        choices = np.stack([[np.bincount(b[:, :counted].ravel(), minlength=E) for b in layer] for layer in chosen])
        groups = {"batch": [np.arange(B)], "sequence": np.array_split(np.arange(B), B)}.get(self.over) or np.array_split(np.arange(B), micros)
        out, layers = np.zeros((L, B, E)), 1 if self.each else L
        for g in groups:
            for l in range(L):
                made = choices[l, g].sum(0) if self.each else choices[:, g].sum((0, 1))
                share = made / (len(g) * S * layers) / (1 if self.choices == "all" else counted)
                out[l, g] = E * share / (B * S * layers)
        return out


# ---- training ----------------------------------------------------------------------------------------------------------

class Training:
    """Some steps of AdamW with fp32 masters, of which the first pass is dumped whole."""

    def __init__(self, golden, case):
        self.meta, self.golden = golden
        self.case, self.shape, self.dump = case, Shape(json.loads(self.meta["config"])), Dump(case)
        self.n = Numbers(case.dtype, case.order, case.store, case.parts)
        self.master = {k[6:]: v.astype(F32) for k, v in self.golden.items() if k.startswith("start/")}
        self.states = {k: [np.zeros_like(v), np.zeros_like(v)] for k, v in self.master.items()}
        self.choices, self.loss = [], Loss(self.meta.get("as", "orrery"))

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
                if isinstance(x, list):                             # queries, and this rank's part of keys and values
                    self.keep_copied(full, (d, t), x[t], tokens, more)
                    continue
                part = np.array_split(np.arange(len(tokens)), c.tp)[t] if c.sp and kind is None else np.arange(len(tokens))
                y = x[part] if cols is None else x[np.ix_(part, cols)]
                if len(part):
                    self.dump.add(full, (d, t), y, (N, x.shape[1]), tokens[part], cols, **more)
        return kept

    def keep_copied(self, name, rank, x, tokens, more):
        """Dump a gradient of queries, keys and values: each head of keys and values is a part of a sum over the ranks that have it."""
        s, t, tp, of = self.shape, rank[1], self.case.tp, (self.golden["ids"][0].size, x.shape[1])
        block = lambda first, count: np.arange(first * s.A, (first + count) * s.A)
        q = block(t * s.H // tp, (t + 1) * s.H // tp - t * s.H // tp)
        self.dump.add(name, rank, x[:, q], of, tokens, q, **more)
        for k in s.keys(t, tp):
            cols = np.concatenate([block(s.H + k, 1), block(s.H + s.K + k, 1)])
            places = np.array([r for r in range(tp) if k in s.keys(r, tp)])
            self.dump.add(name, rank, x[:, cols], of, tokens, cols, partial={"tp": runs(places)}, **more)

    def pulls(self, ids, labels, weights):
        """The balance loss's slopes, times its coefficient, by the choices of the whole batch: a pass before the one that counts."""
        if not self.shape.moe or not self.shape.balance:
            return None
        chosen, S = np.zeros((self.shape.L, *ids.shape, self.shape.k), int), ids.shape[1]
        for _, _, mine in self.sequences():
            run = Pass(self.n, self.shape, weights, self.case, lambda *_, **__: None)
            run.run(ids[mine], labels[mine], 0)
            for l, experts in run.chosen.items():
                chosen[l, mine] = experts.reshape(len(mine), S, -1)
        return self.shape.balance * self.loss.pulls(chosen, self.shape.E, S, int(self.meta.get("microbatches", 1)))

    def pass_of(self, step, first):
        """@return loss, gradients of the whole batch in fp32, and as they are dumped"""
        c, ids, labels = self.case, self.golden["ids"][step], self.golden["labels"][step]
        weights, count, S = {k: self.n.stored(v) for k, v in self.master.items()}, int((labels >= 0).sum()), ids.shape[1]
        loss, ranks, shares = 0.0, {}, self.loss.shares(labels, S)
        pulls = self.pulls(ids, labels, weights)
        for d, m, mine in self.sequences():
            counted = int((labels[mine] >= 0).sum())
            mean = c.mean and counted > 0 and self.loss.usual       # each microbatch begins with a mean of its own
            share, part = c.scale / (counted if mean else count), (counted / count if mean else 1)
            tokens = (mine[:, None] * S + np.arange(S)).ravel()
            keep = self.keep(d, m, tokens, part / c.scale) if first else lambda *_, **__: None
            run = Pass(self.n, self.shape, weights, c, keep)
            run.loss = (self.loss.smoothing, self.loss.others, self.loss.z)
            run.pull = {l: F32(np.repeat(pulls[l, mine], S, 0) * (c.scale / part)) for l in range(self.shape.L)} if pulls is not None else {}
            losses = run.run(ids[mine], labels[mine], share if self.loss.usual else shares[mine].ravel() * c.scale)
            loss += float((losses * shares[mine].ravel()).sum(dtype=float))
            loss += sum(float((run.likely[l].astype(float) * np.repeat(pulls[l, mine], S, 0)).sum()) for l in run.pull)
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

    def overflowed(self):
        """Whether the loss scale was too large for the format, as a program with a dynamic scale finds out."""
        return not all(np.isfinite(x).all() for tensors, _ in self.dump.ranks.values() for _, x in tensors.values())


def trained(golden, case):
    """The dump of a training; as long as it overflows, once more with half the loss scale."""
    while True:
        training = Training(golden, case)
        with np.errstate(all="ignore"):
            dump = training.train()
        if not training.overflowed():
            return dump
        case.scale /= 2


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
    trained(read(case.golden), case).save(case.folder)


if __name__ == "__main__":
    main()
