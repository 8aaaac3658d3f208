"""Number formats, sums in several orders, and the operations of a transformer with their backward passes, in numpy alone.

program.py trains with these operations.  They follow the formulas of the papers and share nothing with Orrery or PyTorch.
A value is a float32 array whose numbers are some of the format; `stored` rounds to it.  How much of an operation is stored:

    fused    its result
    kernels  the result of each kernel, as PyTorch's eager mode does
    steps    the result of each scalar operation
"""
import numpy as np

F32 = np.float32


def to_bf16(x):
    """Round to nearest, ties to even, by the bits of float32."""
    bits = np.asarray(x, F32).view(np.uint32)
    return ((bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) & np.uint32(0xFFFF0000)).view(F32)


ROUND = {"fp32": lambda x: np.asarray(x, F32), "bf16": to_bf16, "fp16": lambda x: np.asarray(x, F32).astype(np.float16).astype(F32)}


def serial(a, b):
    """A product whose terms are added one by one."""
    y = np.zeros(np.broadcast_shapes(a.shape[:-2], b.shape[:-2]) + (a.shape[-2], b.shape[-1]), F32)
    for k in range(a.shape[-1]):
        y += a[..., :, k:k + 1] * b[..., k:k + 1, :]
    return y


def halves(a, b):
    """A product by halves: a tree of sums."""
    k = a.shape[-1]
    return serial(a, b) if k < 3 else halves(a[..., :k // 2], b[..., :k // 2, :]) + halves(a[..., k // 2:], b[..., k // 2:, :])


ORDERS = {
    "blas": lambda a, b: a @ b, "serial": serial, "reversed": lambda a, b: serial(a[..., ::-1], b[..., ::-1, :]), "halves": halves,
    "lanes": lambda a, b: sum((serial(a[..., i::4], b[..., i::4, :]) for i in range(1, 4)), serial(a[..., ::4], b[..., ::4, :])),
    "wide": lambda a, b: (a.astype(float) @ b.astype(float)).astype(F32),
}


class Numbers:
    """A format, an order of sums, and how much is stored.  parts: of each product that are stored and then added."""

    def __init__(self, dtype="fp32", order="blas", store="fused", parts=1):
        self.dtype, self.order, self.store, self.parts = dtype, ORDERS[order], store, parts
        self.stored = ROUND[dtype]

    def kernel(self, x):
        return x if self.store == "fused" else self.stored(x)

    def step(self, x):
        return self.stored(x) if self.store == "steps" else x

    def times(self, a, b):
        """a [.., n, k] times b [.., k, m], not stored unless in parts."""
        if self.parts == 1 or a.shape[-1] < self.parts:
            return self.order(a, b)
        cut = np.linspace(0, a.shape[-1], self.parts + 1).astype(int)
        return self.added([self.stored(self.order(a[..., i:j], b[..., i:j, :])) for i, j in zip(cut, cut[1:])])

    def added(self, terms):
        """One after another, each sum stored."""
        y = terms[0]
        for term in terms[1:]:
            y = self.stored(y + term)
        return y

    def rows_added(self, x):
        """The sum over rows."""
        return self.order(np.ones((1, len(x)), F32), x)[0]

    def mean(self, x):
        return self.order(x[..., None, :], np.ones((x.shape[-1], 1), F32))[..., 0, 0] / F32(x.shape[-1])

    # Each operation returns its result, and a function from the result's gradient to those of what it has read.

    def linear(self, x, w, b=None):
        y = self.times(x, w.T)
        if b is not None:
            y = self.kernel(y) + b if self.store == "steps" else y + b

        def back(dy):
            return self.stored(self.times(dy, w)), self.stored(self.times(dy.T, x)), self.stored(self.rows_added(dy))
        return self.stored(y), back

    def norm(self, x, w, b, eps):
        """A layernorm, or without b an rmsnorm, of the last dimension."""
        rms = b is None
        m = F32(0) if rms else self.mean(x)[..., None]
        r = 1 / np.sqrt(self.mean((x - m) ** 2)[..., None] + F32(eps))
        exact = (x - m) * r
        unit = self.kernel(exact) if rms else self.step(exact)
        y = unit * w if rms else self.step(unit * w) + b

        def back(dy):
            h, n, rr = dy * w, exact, r
            if self.store == "steps":
                n, rr = self.stored(self.stored(x - self.stored(m)) * self.stored(r)), self.stored(r)
            if rms:
                h = self.kernel(h)
            h, term = self.step(h), (self.kernel if rms else self.step)(dy * (unit if rms and self.store != "steps" else n))
            over = self.step(self.mean(self.step(h * n))[..., None])
            inner = h if rms else self.step(h - self.step(self.mean(h)[..., None]))
            dx = self.stored(rr * self.step(inner - self.step(n * over)))
            flat = lambda t: t.reshape(-1, t.shape[-1])
            return dx, self.stored(self.rows_added(flat(term))), None if rms else self.stored(self.rows_added(flat(dy)))
        return self.stored(y), back

    def sigmoid(self, x):
        with np.errstate(over="ignore"):
            return self.step(1 / self.step(1 + self.step(np.exp(-x))))

    def swiglu(self, up):
        f = up.shape[-1] // 2
        gate, x = up[..., :f], up[..., f:]
        g = self.sigmoid(gate)
        silu = self.kernel(gate * g)

        def back(dy):
            d, dx = self.kernel(dy * x), self.stored(dy * silu)
            if self.store == "steps":                               # autograd of gate * sigmoid(gate)
                dg = self.stored(self.stored(d * g) + self.stored(self.stored(d * gate) * self.stored(g * self.stored(1 - g))))
            else:
                dg = self.stored(d * (g * (1 + gate * (1 - g))))
            return np.concatenate([dg, dx], -1)
        return self.stored(silu * x), back

    def gelu(self, x):
        """The tanh form."""
        c, a, s = F32(np.sqrt(2 / np.pi)), F32(0.044715), self.step
        t = s(np.tanh(s(c * s(x + s(a * s(x * s(x * x)))))))
        half = s(F32(0.5) * x)

        def back(dy):
            of_x = s(F32(0.5) * s(dy * s(1 + t)))
            of_t = s(c * s(s(dy * half) * s(1 - s(t * t))))
            return self.stored(s(of_x + of_t) + s(s(of_t * a) * s(F32(3) * s(x * x))))
        return self.stored(half * s(1 + t)), back

    def turn(self, x, cos, sin, sign=1):
        """The first half of a head's numbers is turned with the second.  x [n, heads, A]"""
        half = x.shape[-1] // 2
        a, b, k = x[..., :half], x[..., half:], self.kernel
        cos, sin = k(cos)[:, None], k(sin)[:, None] * F32(sign)
        return self.stored(np.concatenate([k(a * cos) - k(b * sin), k(b * cos) + k(a * sin)], -1))

    def attention(self, q, k, v, scale):
        """Causal, of one sequence: q [H, S, A], k and v [K, S, A]."""
        groups, scale, swap = len(q) // len(k), F32(scale), lambda t: t.swapaxes(-1, -2)
        K, V = np.repeat(k, groups, 0), np.repeat(v, groups, 0)
        score = self.kernel(self.kernel(self.order(q, swap(K))) * scale)
        score = np.where(np.tril(np.ones(score.shape[-2:], bool)), score, -np.inf).astype(F32)
        e = np.exp(score - score.max(-1, keepdims=True))
        p = self.kernel(e / e.sum(-1, keepdims=True, dtype=F32))
        y = self.stored(self.order(p if self.store != "fused" else self.stored(p), V))

        def back(dy):
            dp = self.kernel(self.order(dy, swap(V)))
            d = (dy * y if self.store == "fused" else p * dp).sum(-1, keepdims=True, dtype=F32)
            ds = self.stored(self.kernel(p * (dp - d)) * scale)
            each = [self.kernel(self.order(swap(ds), q)), self.kernel(self.order(swap(self.kernel(p)), dy))]
            heads = [self.stored(t.reshape(len(k), groups, *t.shape[1:]).sum(1, dtype=F32)) for t in each]
            return self.stored(self.order(ds, K)), *heads
        return y, back

    def cross_entropy(self, x, labels, share, smoothing=0.0, others=False, z=0.0):
        """Losses of rows, and the gradient of `share` (of each row) times them, added up.  A label below 0 is ignored.

        smoothing: the part of a label's 1 that all words share, or the others; z: times log(sum exp)^2."""
        top, V = x.max(-1, keepdims=True), x.shape[-1]
        log_sum = np.log(np.exp(x - top).sum(-1, keepdims=True, dtype=F32))
        logp, log_z = self.step(x - top - log_sum), (top + log_sum)[:, 0]
        counts = labels >= 0
        rows, at = np.arange(len(x)), np.where(counts, labels, 0)
        losses = -logp[rows, at]
        other = F32(smoothing / (V - 1 if others else V))
        label = F32(1 - smoothing) if others else F32(1 - smoothing + smoothing / V)
        if smoothing:
            losses = (label - other) * losses - other * logp.sum(-1, dtype=F32)
        losses = losses + F32(z) * log_z * log_z
        share = self.step(F32(np.broadcast_to(share, len(x))))[:, None]
        dx = np.exp(logp) * share * (1 + 2 * F32(z) * log_z[:, None]) - other * share if smoothing or z else np.exp(logp) * share
        dx[rows, at] -= ((label - other) if smoothing else F32(1)) * share[:, 0]
        return np.where(counts, losses, 0).astype(F32), self.stored(np.where(counts[:, None], dx, 0))
