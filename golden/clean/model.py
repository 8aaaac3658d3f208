"""Forward and backward pass of a GPT-2, a Llama, a Qwen2 or 3, or a mixture, cut over ranks along tp; program.py trains with it."""
import numpy as np

from operations import F32


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
        self.normalized, self.balance = c.get("norm_topk_prob", True), float(c.get("router_aux_loss_coef") or 0)
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

    def keys(self, t, tp):
        """The heads of keys and values that the query heads of rank t of tp use: several ranks may have copies."""
        group = self.H // self.K
        return range(t * self.H // tp // group, ((t + 1) * self.H // tp - 1) // group + 1)

    def copies(self, tp):
        """Whether ranks have copies of keys and values."""
        return any(self.keys(t, tp).start < self.keys(t - 1, tp).stop for t in range(1, tp))

    def cuts(self, t, tp):
        """Which columns of queries, keys and values, of heads, and of the feed-forward rank t of tp has."""
        part = lambda n, width=1: np.arange(t * n // tp * width, (t + 1) * n // tp * width)
        keys = self.keys(t, tp)
        q, k, f = part(self.H, self.A), np.arange(keys.start * self.A, keys.stop * self.A), part(self.F)
        return (np.concatenate([q, self.H * self.A + k, (self.H + self.K) * self.A + k]), q, f if self.gpt else np.concatenate([f, self.F + f]), f)


class Pass:
    """Forward and backward of one microbatch of a rank along dp, on all ranks along tp."""

    def __init__(self, n, shape, weights, case, keep):
        self.n, self.s, self.w, self.case, self.keep, self.grads = n, shape, weights, case, keep, {}
        self.loss = ()                                              # smoothing, whether the others share it, and z
        self.chosen, self.likely, self.pull = {}, {}, {}            # of layers: choices [N, k] and probabilities [N, E]; the balance
                                                                    # loss's slope by each probability, [N, E] of a layer
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
            for t, (r, (_, of)) in enumerate(zip(cut, made)):
                own = dy[t] if isinstance(dy, list) else dy         # a rank may have a part of it
                _, dw, db = of(own[:, r])
                self.grad(name + ".weight", dw, rows=r), self.grad(name + ".bias", None if b is None else db, rows=r)
                dx.append(self.backward_of(name, own[:, r], w[r]))
            return self.over_tp(dx)
        return y, back

    def backward_of(self, name, dy, w):
        """dy w; of queries, keys and values, or of gate and up, that are matrices of their own, the sum of stored products."""
        one = 3 if "qkv" in name else 2 if "up" in name else 0
        if not self.case.separate or not one or self.s.gpt or (one == 3 and self.s.copies(self.case.tp)):
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
            if s.copies(self.case.tp):                              # each rank has what its query heads give
                ranks = [np.isin(np.arange(H), np.arange(t * H // self.case.tp, (t + 1) * H // self.case.tp)) for t in range(self.case.tp)]
                parts = [np.concatenate([np.concatenate(m[1](one * has[:, None, None]), 0).swapaxes(0, 1) for m, one in zip(made, d)]) for has in ranks]
            else:
                parts = [np.concatenate([np.concatenate(m[1](one), 0).swapaxes(0, 1) for m, one in zip(made, d)])]
            shown = lambda: [p.reshape(N, -1) for p in parts] if len(parts) > 1 else parts[0].reshape(N, -1)
            if s.theta:
                self.keep(f"h.{i}.attn.rotated", shown(), "qkv", True)
            for before, of in reversed(undo):
                parts = [of(p) for p in parts]
                if before:
                    self.keep(before, shown(), "qkv", True)
            return shown()
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
        self.chosen[i], self.likely[i] = chosen, p
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
            dp += self.pull.get(i, F32(0))
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
        losses, d = n.cross_entropy(logits, labels.ravel(), share, *self.loss)
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
