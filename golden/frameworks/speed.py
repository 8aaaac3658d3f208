#!/usr/bin/env python3
"""How long a training step takes, beside PyTorch and JAX on the same cores: a GPT-2 in fp32, forward, backward, clipped AdamW.

    golden/frameworks/speed.py [--orrery ./orrery] [--model 11m] [--batch 8] [--rounds 7] [--threads N]

All take turns, round by round, so that whatever else the machine does slows all of them.  A ratio is of one round, and its median
over rounds is shown.  Needs Python with torch and transformers; without jax its row is left out, and said.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import time


def sizes(orrery, model):
    """L, H, D, F, V, S of a preset, by `orrery list`."""
    listed = json.loads(subprocess.run([orrery, "list", model, "--json", "-"], capture_output=True, text=True, check=True).stdout)
    fields = next(e["fields"] for e in listed["tables"]["entries"] if e["part"] == "models")
    return {k: int(v) for k, v in re.findall(r"([LHDFVS])=(\d+)", fields[0])}


class Orrery:
    """One device of ref/, and one emulated device, as `orrery bench step` times them."""
    def __init__(self, a, c):
        self.words = [a.orrery, "bench", "step", "--model", a.model, "--batch", str(a.batch), "--devices", "1", "--rounds", "1", "--runs", str(a.steps),
                      "--threads", str(a.threads), "--json", "-"]
        planned = json.loads(subprocess.run([a.orrery, "plan", "--model", a.model, "--json", "-"], capture_output=True, text=True, check=True).stdout)
        self.parameters = planned["model"]["parameters"]

    def step(self):
        rows = json.loads(subprocess.run(self.words, capture_output=True, text=True, check=True).stdout)["rows"]
        return {"one device, ref/": rows[0]["median_seconds"], "one emulated device": rows[-1]["median_seconds"]}


def number_of(c):
    """Parameters of a GPT-2 whose head is its embedding."""
    block = 4 * c["D"] * c["D"] + 2 * c["D"] * c["F"] + 4 * c["D"] + c["D"] + c["F"] + 4 * c["D"]
    return (c["V"] + c["S"]) * c["D"] + c["L"] * block + 2 * c["D"]


class Torch:
    def __init__(self, a, c, compiled):
        import torch
        from transformers import GPT2Config, GPT2LMHeadModel
        torch.set_num_threads(a.threads)
        torch.manual_seed(0)
        config = GPT2Config(n_layer=c["L"], n_head=c["H"], n_embd=c["D"], n_inner=c["F"], vocab_size=c["V"], n_positions=c["S"], resid_pdrop=0,
                            embd_pdrop=0, attn_pdrop=0, attn_implementation="sdpa", use_cache=False, bos_token_id=None, eos_token_id=None)
        self.model = GPT2LMHeadModel(config)
        self.parameters = sum(p.numel() for p in self.model.parameters())
        self.call = torch.compile(self.model) if compiled else self.model
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, fused=True)
        self.ids = torch.randint(c["V"], (a.batch, c["S"]))
        self.clip, self.steps, self.name = torch.nn.utils.clip_grad_norm_, a.steps, f"PyTorch {torch.__version__.split('+')[0]}, " + ("compiled" if compiled else "eager")

    def once(self):
        start = time.perf_counter()
        self.call(input_ids=self.ids, labels=self.ids).loss.backward()
        self.clip(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return time.perf_counter() - start

    def step(self):
        return {self.name: statistics.median(self.once() for _ in range(self.steps))}


class Jax:
    """The same model, as one function that XLA compiles with its optimizer."""
    def __init__(self, a, c):
        os.environ["JAX_PLATFORMS"] = "cpu"
        os.environ["XLA_FLAGS"] = f"--xla_cpu_multi_thread_eigen=true intra_op_parallelism_threads={a.threads}"
        import jax
        import jax.numpy as jnp
        L, H, D, F, V, S = (c[k] for k in "LHDFVS")
        keys = iter(jax.random.split(jax.random.key(0), 4 * L + 2))
        draw = lambda *shape: 0.02 * jax.random.normal(next(keys), shape, jnp.float32)
        block = lambda: {"n1": jnp.ones(D), "b1": jnp.zeros(D), "qkv": draw(D, 3 * D), "bqkv": jnp.zeros(3 * D), "out": draw(D, D), "bout": jnp.zeros(D),
                         "n2": jnp.ones(D), "b2": jnp.zeros(D), "up": draw(D, F), "bup": jnp.zeros(F), "down": draw(F, D), "bdown": jnp.zeros(D)}
        weights = {"wte": draw(V, D), "wpe": draw(S, D), "h": [block() for _ in range(L)], "nf": jnp.ones(D), "bf": jnp.zeros(D)}

        def norm(x, w, b):
            x = x - x.mean(-1, keepdims=True)
            return x * jax.lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w + b

        def loss(w, ids):
            x = w["wte"][ids] + w["wpe"]
            for h in w["h"]:
                q, k, v = (t.reshape(*t.shape[:2], H, D // H) for t in jnp.split(norm(x, h["n1"], h["b1"]) @ h["qkv"] + h["bqkv"], 3, -1))
                x = x + jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(x.shape) @ h["out"] + h["bout"]
                x = x + jax.nn.gelu(norm(x, h["n2"], h["b2"]) @ h["up"] + h["bup"]) @ h["down"] + h["bdown"]
            logits = norm(x, w["nf"], w["bf"])[:, :-1] @ w["wte"].T
            return -jnp.take_along_axis(jax.nn.log_softmax(logits), ids[:, 1:, None], -1).mean()

        def train(w, m, v, t, ids):
            g = jax.grad(loss)(w, ids)
            total = jnp.sqrt(sum((x * x).sum() for x in jax.tree.leaves(g)))
            g = jax.tree.map(lambda x: x * jnp.minimum(1, 1 / (total + 1e-6)), g)
            m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, g)
            v = jax.tree.map(lambda v, g: 0.95 * v + 0.05 * g * g, v, g)
            moved = lambda w, m, v: w - 1e-3 * (m / (1 - 0.9 ** t) / (jnp.sqrt(v / (1 - 0.95 ** t)) + 1e-8) + 0.1 * w)
            return jax.tree.map(moved, w, m, v), m, v

        self.parameters = sum(x.size for x in jax.tree.leaves(weights))
        self.state = [weights, jax.tree.map(jnp.zeros_like, weights), jax.tree.map(jnp.zeros_like, weights)]
        self.train, self.wait = jax.jit(train, donate_argnums=(0, 1, 2)), jax.block_until_ready
        self.ids, self.t, self.steps, self.name = jax.random.randint(jax.random.key(1), (a.batch, S), 0, V), 0, a.steps, f"JAX {jax.__version__}"

    def once(self):
        start, self.t = time.perf_counter(), self.t + 1
        self.state = self.wait(self.train(*self.state, float(self.t), self.ids))
        return time.perf_counter() - start

    def step(self):
        return {self.name: statistics.median(self.once() for _ in range(self.steps))}


def programs(a, c):
    yield Orrery(a, c)
    for compiled in (False, True):
        yield Torch(a, c, compiled)
    try:
        yield Jax(a, c)
    except ImportError:
        print("no jax: its row is left out", file=sys.stderr)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--orrery", default="./orrery")
    p.add_argument("--model", default="11m")
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--rounds", type=int, default=7)
    p.add_argument("--steps", type=int, default=3)
    p.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
    a = p.parse_args()
    os.environ["OMP_NUM_THREADS"] = str(a.threads)
    c = sizes(a.orrery, a.model)
    all = list(programs(a, c))
    for one in all:
        if one.parameters != number_of(c):
            sys.exit(f"{type(one).__name__} has {one.parameters} parameters, not {number_of(c)}: not the same model")
    for one in all:
        one.step()                                                  # compiles, and warms up
    rounds = []
    for _ in range(a.rounds):
        rounds.append({name: s for one in all for name, s in one.step().items()})
    first = next(iter(rounds[0]))
    print(f"GPT-2 of {number_of(c) / 1e6:.1f}M parameters, fp32, {a.batch} x {c['S']} tokens, {a.threads} threads; medians of {a.rounds} rounds")
    print(f"  {'a step of':28} {'ms':>8}  {'x ' + first:>18}")
    for name in rounds[0]:
        ratio = statistics.median(r[name] / r[first] for r in rounds)
        print(f"  {name:28} {1e3 * statistics.median(r[name] for r in rounds):8.1f}  {ratio:18.2f}")


if __name__ == "__main__":
    main()
