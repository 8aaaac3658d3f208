#!/usr/bin/env python3
"""Golden tensors for ref/model/gpt2.c: what PyTorch's autograd makes of the GPT2LMHeadModel of Hugging Face transformers.

    golden/make_gpt2.py            write golden/gpt2-*.safetensors and golden/MANIFEST
    golden/make_gpt2.py --check    make them again, compare with the stored ones and name the tensors that differ

Needs numpy, PyTorch and transformers; the versions that made the files are in their metadata.  golden/README.md says what
is in a file.  Nothing here is shared with the C: weights are drawn by golden/philox.py, the model is that of transformers,
gradients are autograd's, steps are torch.optim's.
"""
import argparse
import hashlib
import os
import pathlib
import sys
import tempfile

# Set before PyTorch is imported: one thread, and the same kernels on every processor that has AVX2, so that bits repeat.
os.environ.update({"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "OPENBLAS_CORETYPE": "Haswell",
                   "ATEN_CPU_CAPABILITY": "avx2", "MKL_CBWR": "AVX2", "TRANSFORMERS_VERBOSITY": "error"})

try:
    import numpy as np
    import torch
    import transformers
except ImportError as missing:
    sys.exit(f"make_gpt2.py: {missing}; golden/README.md says what to install")

import philox
import tensor_file

HERE = pathlib.Path(__file__).resolve().parent
SEED = 20240229
STEPS = 3
IGNORE = -1                                     # a label that does not count
ROUNDING = 1e-13                                # relative: what another PyTorch or processor may change in a computed tensor

# Small and nasty: odd heads and head widths, widths that no vector register divides, a prime vocabulary, fewer tokens than
# positions, a batch that two does not divide.  `batch` sequences of `tokens`.
SHAPES = {
    "gpt2-minimal": dict(L=1, H=1, D=3, F=1, V=2, S=1, tied=True, batch=1, tokens=1),
    "gpt2-tied": dict(L=2, H=3, D=21, F=37, V=61, S=11, tied=True, batch=3, tokens=7),
    "gpt2-untied": dict(L=3, H=3, D=15, F=41, V=61, S=9, tied=False, batch=3, tokens=7),
}
EPS = 1e-5                                      # of layernorm
INIT_STD = 0.25                                 # ten times the usual: attention that is far from uniform
NUDGE = 0.3                                     # of biases and norms, which start at 0 and 1 and would hide mistakes there

# Clipping is at a norm below the gradient's.  AdamW's eps is large enough to matter where it stands in the formula, and so
# that it does not blow up the rounding noise in the gradient of the key biases, which is 0 but for rounding.
OPTIMIZERS = {
    "adamw": dict(lr=[0.03, 0.01, 0.02], beta1=0.8, beta2=0.9, eps=1e-4, weight_decay=0.1, clip=0.25),
    "sgd": dict(lr=[0.5, 0.2, 0.3], weight_decay=0.05, clip=0.0),
    "momentum": dict(lr=[0.5, 0.2, 0.3], momentum=0.7, weight_decay=0.0, clip=0.0),
}
STATES = {"adamw": ["exp_avg", "exp_avg_sq"], "sgd": [], "momentum": ["momentum_buffer"]}


# ---- the model and where it starts ---------------------------------------------------------------------------------

def parameters(c):
    """(name, shape, mean, std) of every parameter, names of transformers without "transformer.", matrices [out,in]."""
    D, F, into_residual = c["D"], c["F"], INIT_STD / float(np.sqrt(2.0 * c["L"]))
    yield "wte.weight", (c["V"], D), 0, INIT_STD
    yield "wpe.weight", (c["S"], D), 0, INIT_STD
    for layer in range(c["L"]):
        for name, shape, mean, std in (
            ("ln_1.weight", (D,), 1, 0), ("ln_1.bias", (D,), 0, 0),
            ("attn.c_attn.weight", (3 * D, D), 0, INIT_STD), ("attn.c_attn.bias", (3 * D,), 0, 0),
            ("attn.c_proj.weight", (D, D), 0, into_residual), ("attn.c_proj.bias", (D,), 0, 0),
            ("ln_2.weight", (D,), 1, 0), ("ln_2.bias", (D,), 0, 0),
            ("mlp.c_fc.weight", (F, D), 0, INIT_STD), ("mlp.c_fc.bias", (F,), 0, 0),
            ("mlp.c_proj.weight", (D, F), 0, into_residual), ("mlp.c_proj.bias", (D,), 0, 0),
        ):
            yield f"h.{layer}.{name}", shape, mean, std
    yield "ln_f.weight", (D,), 1, 0
    yield "ln_f.bias", (D,), 0, 0
    if not c["tied"]:
        yield "lm_head.weight", (c["V"], D), 0, INIT_STD


def initial_weights(c):
    """What a model of this seed starts with: drawn where std > 0, else constant."""
    return {name: mean + std * philox.normal(SEED, name, int(np.prod(shape))).reshape(shape)
            for name, shape, mean, std in parameters(c)}


def nudged(init):
    """Where the runs start: the drawn matrices as they are, biases and norms moved away from 0 and 1."""
    return {name: w if w.ndim == 2 else w + NUDGE * philox.normal(SEED, name + " nudge", w.size) for name, w in init.items()}


def batches(c):
    """ids and labels [STEPS,batch,tokens].  A fifth of the labels is ignored, never all; the first token comes twice."""
    shape = (STEPS, c["batch"], c["tokens"])
    count = int(np.prod(shape))
    ids = np.floor(c["V"] * philox.uniform(SEED, "ids", count)).astype("<i4").reshape(shape)
    labels = np.floor(c["V"] * philox.uniform(SEED, "labels", count)).astype("<i4").reshape(shape)
    labels[(philox.uniform(SEED, "ignored", count) < 0.2).reshape(shape)] = IGNORE
    if c["tokens"] > 1:
        ids[:, :, 1] = ids[:, :1, 0]
    labels[:, 0, -1] = c["V"] - 1
    return ids, labels


def is_transposed(name, w):
    """GPT-2's Conv1D layers keep their matrices [in,out]."""
    return name.startswith("h.") and w.ndim == 2


def full_name(name):
    return name if name == "lm_head.weight" else "transformer." + name


def make_model(c, weights):
    config = transformers.GPT2Config(
        vocab_size=c["V"], n_positions=c["S"], n_embd=c["D"], n_layer=c["L"], n_head=c["H"], n_inner=c["F"],
        activation_function="gelu_new", resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, layer_norm_epsilon=EPS,
        tie_word_embeddings=c["tied"], use_cache=False, bos_token_id=0, eos_token_id=0, attn_implementation="eager")
    model = transformers.GPT2LMHeadModel(config).double().train()
    named = dict(model.named_parameters())
    if set(named) != {full_name(name) for name in weights}:
        raise AssertionError(f"transformers has the parameters {sorted(named)}")
    with torch.no_grad():
        for name, w in weights.items():
            named[full_name(name)].copy_(torch.from_numpy(w.T if is_transposed(name, w) else w))
    return model, {name: named[full_name(name)] for name in weights}


# ---- one pass: every tensor on the way ------------------------------------------------------------------------------

def watch(model):
    """Hooks that keep every tensor that gpt2.c announces, under its name.  Returns the dictionary they fill."""
    seen = {}

    def keep(name, tensor):
        tensor.retain_grad()
        seen[name] = tensor

    def output_of(module, name):
        module.register_forward_hook(lambda _m, _i, out: keep(name, out[0] if isinstance(out, tuple) else out))

    def input_of(module, name):
        module.register_forward_pre_hook(lambda _m, inputs: keep(name, inputs[0]))

    transformer = model.transformer
    output_of(transformer.drop, "embedding")
    for layer, block in enumerate(transformer.h):
        at = f"h.{layer}."
        output_of(block.ln_1, at + "ln_1")
        output_of(block.attn.c_attn, at + "attn.qkv")
        input_of(block.attn.c_proj, at + "attn.heads")
        output_of(block.attn.c_proj, at + "attn.out")
        input_of(block.ln_2, at + "mid")
        output_of(block.ln_2, at + "ln_2")
        output_of(block.mlp.c_fc, at + "mlp.up")
        output_of(block.mlp.act, at + "mlp.act")
        output_of(block.mlp.c_proj, at + "mlp.out")
        output_of(block, at + "out")
    output_of(transformer.ln_f, "ln_f")
    output_of(model.lm_head, "logits")
    return seen


def loss_of(model, ids, labels):
    """Mean over the labels that count.  Labels stand beside their tokens; transformers' own argument would shift them."""
    logits = model(input_ids=torch.from_numpy(ids.astype(np.int64))).logits
    return torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]),
                                             torch.from_numpy(labels.reshape(-1).astype(np.int64)), ignore_index=IGNORE)


def norm_of(gradients):
    return float(torch.sqrt(sum((g * g).sum() for g in gradients)))


def array(name, tensor):
    """A parameter, its gradient or its state, [out,in]."""
    a = tensor.detach().numpy()
    return np.ascontiguousarray(a.T if is_transposed(name, a) else a, dtype="<f8")


def one_pass(c, start, ids, labels):
    model, weights = make_model(c, start)
    seen = watch(model)
    loss = loss_of(model, ids, labels)
    loss.backward()
    rows = c["batch"] * c["tokens"]
    out = {"loss": np.array(loss.item(), dtype="<f8"), "norm": np.array(norm_of(w.grad for w in weights.values()), dtype="<f8")}
    for name, t in seen.items():
        out["act/" + name] = t.detach().numpy().reshape(rows, -1)
        out["grad/" + name] = t.grad.numpy().reshape(rows, -1)
    for name, w in weights.items():
        out["grad/" + name] = array(name, w.grad)
    return out


# ---- three steps ------------------------------------------------------------------------------------------------------

def make_optimizer(kind, h, weights):
    """Decay on matrices alone.  For plain SGD PyTorch's decay, which goes through the gradient, is the decoupled one."""
    groups = [{"params": [w for w in weights.values() if w.ndim == 2], "weight_decay": h["weight_decay"]},
              {"params": [w for w in weights.values() if w.ndim != 2], "weight_decay": 0.0}]
    if kind == "adamw":
        return torch.optim.AdamW(groups, lr=1.0, betas=(h["beta1"], h["beta2"]), eps=h["eps"])
    return torch.optim.SGD(groups, lr=1.0, momentum=h.get("momentum", 0.0))


def clip(weights, norm, limit):
    """By limit/norm.  torch.nn.utils.clip_grad_norm_ adds 1e-6 to the norm, which is not what it says it does."""
    if 0 < limit < norm:
        for w in weights.values():
            w.grad.mul_(limit / norm)


def steps(kind, h, c, start, ids, labels):
    model, weights = make_model(c, start)
    optimizer = make_optimizer(kind, h, weights)
    losses, norms = [], []
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = h["lr"][step]
        optimizer.zero_grad()
        loss = loss_of(model, ids[step], labels[step])
        loss.backward()
        losses.append(loss.item())
        norms.append(norm_of(w.grad for w in weights.values()))
        clip(weights, norms[-1], h["clip"])
        optimizer.step()
    out = {f"{kind}/{key}": np.array(value, dtype="<f8") for key, value in (("lr", h["lr"]), ("loss", losses), ("norm", norms))}
    for name, w in weights.items():
        out[f"{kind}/weight/{name}"] = array(name, w)
        for state in STATES[kind]:
            out[f"{kind}/{state}/{name}"] = array(name, optimizer.state[w][state])
    return out


# ---- files --------------------------------------------------------------------------------------------------------------

def make(name):
    """The tensors and the metadata of one golden file."""
    c = SHAPES[name]
    ids, labels = batches(c)
    init = initial_weights(c)
    start = nudged(init)
    tensors = {"ids": ids, "labels": labels}
    tensors.update({"init/" + key: w for key, w in init.items()})
    tensors.update({"start/" + key: w for key, w in start.items()})
    tensors.update(one_pass(c, start, ids[0], labels[0]))
    metadata = {"generator": "golden/make_gpt2.py", "model": "transformers GPT2LMHeadModel", "seed": str(SEED), "eps": repr(EPS),
                "init_std": repr(INIT_STD), "optimizers": " ".join(OPTIMIZERS), "numpy": np.__version__,
                "torch": torch.__version__, "transformers": transformers.__version__}
    metadata.update({key: str(int(c[key])) for key in ("L", "H", "D", "F", "V", "S", "tied")})
    for kind, h in OPTIMIZERS.items():
        tensors.update(steps(kind, h, c, start, ids, labels))
        metadata.update({f"{kind}.{key}": repr(value) for key, value in h.items() if key != "lr"})
    return tensors, metadata


def write_all(folder):
    paths = [folder / f"{name}.safetensors" for name in SHAPES]
    for name, path in zip(SHAPES, paths):
        tensor_file.write(path, *make(name))
    tensor_file.note_checksums(paths)


def difference(a, b):
    """Relative, norm over norm of b; 0 only if the bits are equal; infinite if shapes are not or there is a NaN."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return float("inf")
    if a.tobytes() == b.tobytes():
        return 0.0
    size, apart = np.linalg.norm(b.astype(np.float64).ravel()), np.linalg.norm((a - b).astype(np.float64).ravel())
    return float(apart / size) if apart <= 1e300 and size > 0 else float("inf")


def is_input(name):
    """What is drawn or given, and so the same on every machine; all the rest is computed."""
    return name in ("ids", "labels") or name.startswith(("init/", "start/")) or name.endswith("/lr")


def compare_file(name, fresh, stored):
    """Print what differs.  Returns whether the stored file holds."""
    (new, new_meta), (old, old_meta) = tensor_file.read(fresh), tensor_file.read(stored)
    versions = ("numpy", "torch", "transformers")
    wrong = [f"{key}: in one of the two only" for key in sorted(set(new) ^ set(old))]
    wrong += [f"metadata {key}: {old_meta.get(key)} stored, {new_meta.get(key)} made"
              for key in sorted(set(new_meta) | set(old_meta)) if key not in versions and old_meta.get(key) != new_meta.get(key)]
    changed = {key: difference(new[key], old[key]) for key in old if key in new}
    changed = {key: d for key, d in changed.items() if d != 0}
    wrong += [f"{key}: differs by {d:.3g}, relative" for key, d in changed.items() if is_input(key) or not d <= ROUNDING]
    for line in wrong:
        print(f"  {name}: {line}")
    rounding = {key: d for key, d in changed.items() if not is_input(key) and d <= ROUNDING}
    if rounding:
        worst = max(rounding, key=rounding.get)
        made_by = ", ".join(f"{key} {old_meta[key]} (here {new_meta[key]})" for key in versions)
        print(f"  {name}: {len(rounding)} of {len(old)} tensors differ in rounding, at most {worst}, by {rounding[worst]:.3g}; made by {made_by}")
    if not wrong and not rounding:
        print(f"  {name}: {len(old)} tensors, every bit the same")
    return not wrong


def check(stored):
    """Whether the stored files are what this script makes."""
    good = True
    manifest = dict(reversed(line.split()) for line in (stored / "MANIFEST").read_text().splitlines())
    with tempfile.TemporaryDirectory() as folder:
        write_all(pathlib.Path(folder))
        for name in SHAPES:
            path = stored / f"{name}.safetensors"
            good &= compare_file(name, pathlib.Path(folder) / path.name, path)
            if hashlib.sha256(path.read_bytes()).hexdigest() != manifest.get(path.name):
                print(f"  {name}: MANIFEST has another checksum")
                good = False
    print("golden files hold" if good else "golden files do not hold")
    return good


def main():
    arguments = argparse.ArgumentParser(description="Make the golden tensors of GPT-2 with PyTorch and transformers.")
    arguments.add_argument("--check", action="store_true", help="compare with the stored files instead of writing them")
    torch.set_num_threads(1)
    philox.known_answers()
    if arguments.parse_args().check:
        return 0 if check(HERE) else 1
    write_all(HERE)
    return 0


if __name__ == "__main__":
    sys.exit(main())
