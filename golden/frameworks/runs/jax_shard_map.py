#!/usr/bin/env python3
"""JAX on eight host devices: a Llama by shard_map, one of four sequences on each of dp=4, heads and feed-forward over tp=2."""
import os

os.environ.update(XLA_FLAGS="--xla_force_host_platform_device_count=8", JAX_PLATFORMS="cpu")
import common
import jax
import jax.numpy as jnp
from jax.sharding import NamedSharding, PartitionSpec as P

from orrery_dump.tap import Taps

# Parts of our fused matrices are matrices of their own.
NAMES = {"q": "self_attn.qkv_proj", "k": "self_attn.qkv_proj", "v": "self_attn.qkv_proj", "o": "self_attn.o_proj", "gate": "mlp.gate_up_proj",
         "up": "mlp.gate_up_proj", "down": "mlp.down_proj", "ln_1": "input_layernorm", "ln_2": "post_attention_layernorm"}
CUT = {**dict.fromkeys(("q", "k", "v", "gate", "up"), P("tp", None)), **dict.fromkeys(("o", "down"), P(None, "tp"))}


def norm(x, w, eps):
    y = x.astype(jnp.float32)
    return w * (y * jax.lax.rsqrt((y * y).mean(-1, keepdims=True) + eps)).astype(x.dtype)


def turned(x, theta):
    A, angle = x.shape[3], jnp.arange(x.shape[1])[:, None] * theta ** (-jnp.arange(0, x.shape[3], 2) / x.shape[3])
    cos, sin = (jnp.concatenate([f(angle)] * 2, -1)[None, :, None, :] for f in (jnp.cos, jnp.sin))
    return (x * cos + jnp.concatenate([-x[..., A // 2:], x[..., :A // 2]], -1) * sin).astype(x.dtype)


def run(golden, out, case):
    c, dtype = golden.config, {"fp32": jnp.float32, "bf16": jnp.bfloat16}[case.dtype]
    D, H, K, F, eps = c["hidden_size"], c["num_attention_heads"], c["num_key_value_heads"], c["intermediate_size"], c["rms_norm_eps"]
    A, B, S = c.get("head_dim") or D // H, golden.sequences, golden.tokens
    mesh = jax.make_mesh((4, 2), ("dp", "tp"), axis_types=(jax.sharding.AxisType.Auto,) * 2)
    layers, Q = range(c["num_hidden_layers"]), (H + 2 * K) * A
    widths = {f"h.{i}.{n}": w for i in layers for n, w in {"ln_1": D, "attn.qkv": Q, "attn.rotated": Q, "attn.heads": H * A, "attn.out": D, "mid": D,
              "ln_2": D, "mlp.up": 2 * F, "mlp.act": F, "mlp.out": D, "out": D}.items()}
    tap = Taps(mesh, out, widths={**widths, "embedding": D, "ln_f": D, "logits": c["vocab_size"]}, batch=(B, S), dtype=case.dtype)
    begin = {"q": (0, H * A), "k": (H * A, K * A), "v": ((H + K) * A, K * A), "gate": (0, F), "up": (F, F)}
    weights, spec, place = {}, {}, {}
    for key, name in [("wte", "model.embed_tokens"), ("ln_f", "model.norm"), ("head", "lm_head")] + [
            (f"{i}.{part}", f"model.layers.{i}.{name}") for i in layers for part, name in NAMES.items()]:
        whole, part = golden.start[name + ".weight"], key.split(".")[-1]
        start, count = begin.get(part, (0, whole.shape[0]))
        spec[key], place[key] = CUT.get(part, P()), (name, dict(of=(*whole.shape, 1)[:2], start=start, piece=part if part in begin else ""))
        weights[key] = jax.device_put(jnp.asarray(whole[start:start + count].float().numpy(), dtype), NamedSharding(mesh, spec[key]))
        tap.array(f"start/{name}.weight", weights[key], **place[key][1])

    def beside(x, name, parts):                                     # columns of one of ours
        return [tap(t, name, parts=(count,), start=start, piece=piece) for t, (piece, start, count) in zip(x, parts)]

    def loss_here(w, ids, labels):
        x, qkv = tap(w["wte"][ids], "embedding"), [(n, *begin[n]) for n in "qkv"]
        for i in layers:
            at, row = f"h.{i}.", lambda x, part: jax.lax.psum(x @ w[f"{i}.{part}"].T, "tp")
            a = tap(norm(x, w[f"{i}.ln_1"], eps), at + "ln_1")
            q, k, v = (t.reshape(*t.shape[:2], -1, A) for t in beside([a @ w[f"{i}.{n}"].T for n in "qkv"], at + "attn.qkv", qkv))
            flat = [t.reshape(*t.shape[:2], -1) for t in (turned(q, c["rope_theta"]), turned(k, c["rope_theta"]), v)]
            q, k, v = (t.reshape(*t.shape[:2], -1, A) for t in beside(flat, at + "attn.rotated", qkv))
            heads = jax.nn.dot_product_attention(q, k, v, is_causal=True).reshape(*x.shape[:2], -1)
            mid = tap(x + tap(row(tap(heads, at + "attn.heads", parts=(H * A,)), "o"), at + "attn.out"), at + "mid")
            b = tap(norm(mid, w[f"{i}.ln_2"], eps), at + "ln_2")
            gate, up = beside([b @ w[f"{i}.{n}"].T for n in ("gate", "up")], at + "mlp.up", [(n, *begin[n]) for n in ("gate", "up")])
            act = tap(jax.nn.silu(gate) * up, at + "mlp.act", parts=(F,))
            x = tap(mid + tap(row(act, "down"), at + "mlp.out"), at + "out")
        logits = tap(tap(norm(x, w["ln_f"], eps), "ln_f") @ w["head"].T, "logits").astype(jnp.float32)
        right = jnp.take_along_axis(jax.nn.log_softmax(logits), jnp.maximum(labels, 0)[..., None], -1)[..., 0]
        return jax.lax.psum(-(right * (labels >= 0)).sum(), "dp") / golden.counted()

    loss = jax.shard_map(loss_here, mesh=mesh, in_specs=(spec, P("dp"), P("dp")), out_specs=P())
    value, gradients = jax.jit(jax.value_and_grad(loss))(weights, golden.ids[0].numpy(), golden.labels[0].numpy())
    for key, g in gradients.items():
        tap.array(f"grad/{place[key][0]}.weight", g, **place[key][1])
    tap.number("loss", value)
    tap.save()


if __name__ == "__main__":
    common.alone(run)
