#!/usr/bin/env python3
"""Golden steps of GaLore with 8-bit states: galore-torch 1.0's AdamW8bit, on bitsandbytes 0.47.0.

    golden/make_galore_codes.py            write golden/galore_codes.safetensors and its line of golden/MANIFEST
    golden/make_galore_codes.py --check    make it again and compare

The optimizer, its projector, which tensors have codes, and the tables of values are the packages' own code.  Their kernels are CUDA's:
on a CPU these two functions stand in for them, written from csrc/kernels.cu with what a GPU rounds once (a product and a sum) and
without what it approximates (quotients and powers):

    kOptimizerStatic8bit2StateBlockwise<ADAM>, with quantize_2D      below: in_codes, code_of
    kOptimizer32bit2State<ADAM>                                      below: in_numbers
"""
import importlib.metadata
import pathlib
import sys

import numpy as np
import torch

import philox
import tensor_file

try:
    import bitsandbytes.functional as F
    from galore_torch import galore_projector
    from galore_torch.adamw8bit import AdamW8bit
except ImportError as missing:
    sys.exit(f"make_galore_codes.py: {missing}: pip install --no-deps galore-torch==1.0 bitsandbytes==0.47.0")

FILE = pathlib.Path(__file__).parent / "galore_codes.safetensors"
SEED, STEPS, BLOCK = 41, 3, 256
NUMBERS = {"rank": 8, "refresh": 2, "galore_scale": 0.3, "lr": 0.05, "weight_decay": 0.2, "beta1": 0.85, "beta2": 0.97, "eps": 1e-3}
# Projected: 8 x 530 and 520 x 8 numbers have codes, 8 x 30 have none although the matrix is larger than 4096.
MATRICES = {"wide": (12, 530), "tall": (520, 9), "few": (30, 140)}
REGULAR = {"vector": (4200,), "short": (4095,)}
one = np.float32


def drawn(name, shape):
    return philox.normal(SEED, name, int(np.prod(shape))).reshape(shape)


def gradient(name, shape, t):
    """Of very different sizes.  The vector has a block of zeros, and in its first step an infinity."""
    g = (drawn(f"{name}.gradient.{t}", shape) * 10 ** (1.5 * drawn(f"{name}.size.{t}", shape) - 2)).astype(one)
    if name == "vector":
        g[512:768] = 0
        if t == 1:
            g[100] = np.inf
    return torch.from_numpy(g)


def fused(a, b, c):
    """a b + c in fp32, rounded once: the exact sum of three doubles, rounded to odd, then to fp32."""
    p, c = a.astype(np.float64) * b.astype(np.float64), np.broadcast_to(c, a.shape).astype(np.float64)
    s = p + c
    z = s - p
    low = (p - (s - z)) + (c - z)
    bits = s.view(np.int64)
    odd = np.where((low != 0) & (bits % 2 == 0), np.nextafter(s, np.where(low > 0, np.inf, -np.inf)), s)
    return odd.astype(one)


def code_of(table, signed, x):
    """quantize_2D."""
    pivot, upper_pivot, lower_pivot, step = 127, 255, 0, 64
    upper, lower, value = one(1), one(-1 if signed else 0), table[127]
    while step > 0:
        if x > value:
            lower_pivot, lower = pivot, value
            pivot += step
        else:
            upper_pivot, upper = pivot, value
            pivot -= step
        value, step = table[pivot], step // 2
    if x > value:
        return upper_pivot if x > (upper + value) * one(0.5) else pivot
    return lower_pivot if x < (lower + value) * one(0.5) else pivot


def codes_of(table, signed, x):
    most = np.abs(x).max()
    with np.errstate(invalid="ignore"):
        codes = np.array([code_of(table, signed, q) for q in x / most])
    for i in range(len(x)):
        if signed and np.signbit(table[codes[i]]) != np.signbit(x[i]):
            codes[i] += 1 if x[i] > 0 else -1
    return codes.astype(np.uint8), most                         # -1 becomes 255


def corrections(beta1, beta2, step, lr):
    c1, c2 = one(1) - one(one(beta1) ** np.float64(step)), np.sqrt(one(1) - one(one(beta2) ** np.float64(step)))
    return c2, -one(lr) * c2 / c1


def moments(m, v, g, beta1, beta2):
    b1, b2 = np.full_like(g, beta1), np.full_like(g, beta2)
    return fused(m, b1, (one(1) - b1) * g), fused(v, b2, (one(1) - b2) * g * g)


def in_numbers(name, g, p, state1, beta1, eps, step, lr, state2, beta2, beta3, alpha, weight_decay, gnorm_scale, unorm_vec, **rest):
    assert name == "adam" and gnorm_scale == 1 and unorm_vec is None and not rest["skip_zeros"]
    m, v = moments(state1.numpy(), state2.numpy(), g.numpy(), beta1, beta2)
    c2, size = corrections(beta1, beta2, step, lr)
    w = p.data.numpy() + size * (m / (np.sqrt(v) + one(eps) * c2))
    p.data.copy_(torch.from_numpy(w * (one(1) - one(lr) * one(weight_decay)) if weight_decay > 0 else w))
    state1.copy_(torch.from_numpy(m)), state2.copy_(torch.from_numpy(v))


def in_codes(name, g, p, state1, state2, beta1, beta2, beta3, alpha, eps, step, lr, qmap1, qmap2, absmax1, absmax2, weight_decay, gnorm_scale,
             skip_zeros):
    assert name == "adam" and gnorm_scale == 1 and not skip_zeros
    tables = qmap1.numpy(), qmap2.numpy()
    G, W, C1, C2 = (x.reshape(-1).numpy() for x in (g, p.data, state1, state2))
    c2, size = corrections(beta1, beta2, step, lr)
    for b in range(len(absmax1)):
        at = slice(b * BLOCK, (b + 1) * BLOCK)
        good = np.isfinite(G[at])
        grad = np.where(good, G[at], one(0))
        m, v = moments(tables[0][C1[at]] * absmax1[b].numpy(), tables[1][C2[at]] * absmax2[b].numpy(), grad, beta1, beta2)
        m, v = np.where(good, m, one(0)), np.where(good, v, one(0))
        w = W[at] + size * (m / (np.sqrt(v) + c2 * one(eps)))
        if weight_decay > 0:
            w = w * (one(1) - one(lr) * one(weight_decay))
        W[at] = np.where(good, w, W[at])
        C1[at], most = codes_of(tables[0], True, m)
        absmax1[b] = float(most)
        C2[at], most = codes_of(tables[1], False, v)
        absmax2[b] = float(most)


F.optimizer_update_32bit, F.optimizer_update_8bit_blockwise = in_numbers, in_codes
torch.cuda.synchronize = lambda: None
THEIR_PROJECT = galore_projector.GaLoreProjector.project


def make():
    n, out, projected = NUMBERS, {}, {}

    def project(self, G, step):                                 # theirs; R is kept
        projected[G] = THEIR_PROJECT(self, G, step)
        return projected[G]

    galore_projector.GaLoreProjector.project = project
    W = {name: torch.nn.Parameter(torch.from_numpy(drawn(f"{name}.start", s).astype(one))) for name, s in {**MATRICES, **REGULAR}.items()}
    out.update({f"{name}.start": w.detach().clone() for name, w in W.items()})
    matrices = {"params": [W[x] for x in MATRICES], "rank": n["rank"], "update_proj_gap": n["refresh"], "scale": n["galore_scale"], "proj_type": "std"}
    optimizer = AdamW8bit([{"params": [W[x] for x in REGULAR]}, matrices], lr=n["lr"], betas=(n["beta1"], n["beta2"]), eps=n["eps"],
                          weight_decay=n["weight_decay"])
    for t in range(1, STEPS + 1):
        gradients = {name: gradient(name, w.shape, t) for name, w in W.items()}
        for name, w in W.items():
            w.grad = gradients[name]
        projected.clear()
        optimizer.step()
        for name, w in W.items():
            state = optimizer.state[w]
            out[f"{name}.g.{t}"] = projected[gradients[name]] if name in MATRICES else gradients[name]
            if name in MATRICES:
                P = state["projector"].ortho_matrix
                out[f"{name}.projection.{t}"] = P if w.shape[0] < w.shape[1] else P.T
            out.update({f"{name}.{key}.{t}": state[key].reshape(-1).clone() for key in ("state1", "state2", "absmax1", "absmax2") if key in state})
        out.update({f"{name}.weight.{t}": w.detach().clone() for name, w in W.items()})
    coded = sorted(x for x in W if "absmax1" in optimizer.state[W[x]])
    assert coded == ["tall", "vector", "wide"], coded
    out.update(signed=F.create_dynamic_map(signed=True), unsigned=F.create_dynamic_map(signed=False))
    metadata = {key: repr(x) for key, x in NUMBERS.items()}
    metadata.update(generator="golden/make_galore_codes.py", steps=str(STEPS), numpy=np.__version__, torch=torch.__version__,
                    galore_torch=importlib.metadata.version("galore-torch"), bitsandbytes=importlib.metadata.version("bitsandbytes"))
    return {key: x.contiguous().numpy().copy() for key, x in out.items()}, metadata


# Singular vectors are LAPACK's, in fp32; the rest follows from them.  What has no projection is the same bit for bit.
SAME = 1e-3


def check():
    new, old = make()[0], tensor_file.read(FILE)[0]
    wrong = sorted(set(new) ^ set(old))
    for key in sorted(set(new) & set(old)):
        x, y = new[key].astype(np.float64), old[key].astype(np.float64)
        finite = np.isfinite(y)
        apart = 0 if key.split(".")[0] in MATRICES and "state" in key else np.linalg.norm(x[finite] - y[finite]) / np.linalg.norm(y[finite])
        if not apart <= (SAME if key.split(".")[0] in MATRICES else 0):
            wrong.append(key)
    for key in wrong:
        print(f"  galore_codes: {key} differs")
    print(f"  galore_codes: {len(old)} tensors")
    return 1 if wrong else 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(tensor_file.command("Make the golden steps of GaLore with 8-bit states.", FILE, make, check))
