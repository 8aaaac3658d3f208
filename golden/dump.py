#!/usr/bin/env python3
"""An example of a program under test: dump what a PyTorch model computes, for `orrery check GOLDEN DUMP`.

    golden/dump.py golden/gpt2-tied.safetensors dump.safetensors                      one device
    golden/dump.py GOLDEN dump.safetensors --dtype bf16                               in another format
    golden/dump.py GOLDEN FOLDER --ranks 2 --how tensor|fsdp|zigzag                   a file for each rank, and FOLDER/map.json
    golden/dump.py GOLDEN dump.safetensors --break h.1.attn.qkv --factor 0.5          a wrong gradient from there on

The model is GPT2LMHeadModel of transformers; what matters is watch(), which is all that another model needs too.  With
--ranks the tensors are cut as programs of that kind hold them.
"""
import argparse
import json
import pathlib

import numpy as np
import torch
import transformers
from safetensors.torch import load_file, safe_open, save_file

DTYPES = {"fp64": torch.float64, "fp32": torch.float32, "bf16": torch.bfloat16}


def watch(modules):
    """modules: golden name -> (module, "input" or "output").  Returns {"act/NAME": .., "grad/NAME": ..}, filled as the model runs."""
    seen = {}

    def keep(name, t):
        t = t[0] if isinstance(t, tuple) else t
        seen["act/" + name] = t.detach().clone()
        t.register_hook(lambda g: seen.__setitem__("grad/" + name, g.detach().clone()))

    for name, (module, side) in modules.items():
        if side == "output":
            module.register_forward_hook(lambda _m, _i, out, name=name: keep(name, out))
        else:
            module.register_forward_pre_hook(lambda _m, given, name=name: keep(name, given))
    return seen


def gpt2_modules(model):
    found = {"embedding": (model.transformer.drop, "output"), "ln_f": (model.transformer.ln_f, "output"), "logits": (model.lm_head, "output")}
    for i, block in enumerate(model.transformer.h):
        found.update({f"h.{i}.{name}": where for name, where in {
            "ln_1": (block.ln_1, "output"), "attn.qkv": (block.attn.c_attn, "output"), "attn.heads": (block.attn.c_proj, "input"),
            "attn.out": (block.attn.c_proj, "output"), "mid": (block.ln_2, "input"), "ln_2": (block.ln_2, "output"),
            "mlp.up": (block.mlp.c_fc, "output"), "mlp.act": (block.mlp.c_proj, "input"), "mlp.out": (block.mlp.c_proj, "output"),
            "out": (block, "output")}.items()})
    return found


# ---- GPT-2 of transformers, started where the golden run starts -------------------------------------------------------

def theirs(name):
    return name if name.startswith("lm_head") else "transformer." + name


def transposed(name, t):
    return name.startswith("h.") and t.ndim == 2            # GPT-2's Conv1D keeps its matrices [in,out]


def load_model(golden, meta, dtype):
    config = transformers.GPT2Config(**json.loads(meta["config"]))
    config.resid_pdrop = config.embd_pdrop = config.attn_pdrop = 0.0
    model = transformers.GPT2LMHeadModel(config)
    model.to(dtype)
    named = dict(model.named_parameters())
    weights = {key[len("start/"):]: t for key, t in golden.items() if key.startswith("start/")}
    with torch.no_grad():
        for name, t in weights.items():
            named[theirs(name)].copy_(t.T if transposed(name, t) else t)
    return model, {name: named[theirs(name)] for name in weights}


def break_gradient(model, name, factor):
    """A mistake to look for: the gradient of this tensor comes out times a factor."""
    module, side = gpt2_modules(model)[name]
    hook = lambda t: (t[0] if isinstance(t, tuple) else t).register_hook(lambda g: factor * g)
    if side == "output":
        module.register_forward_hook(lambda _m, _i, out: hook(out) and None)
    else:
        module.register_forward_pre_hook(lambda _m, given: hook(given) and None)


def dump(path, dtype, broken, factor):
    golden = load_file(path)
    with safe_open(path, "pt") as f:
        meta = f.metadata()
    model, weights = load_model(golden, meta, dtype)
    if broken:
        break_gradient(model, broken, factor)
    out = watch(gpt2_modules(model))
    ids, labels = golden["ids"][0].long(), golden["labels"][0].long()
    logits = model(input_ids=ids).logits
    loss = torch.nn.functional.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.reshape(-1), ignore_index=-1)
    loss.backward()
    out["loss"] = loss.detach()
    for name, w in weights.items():
        out["grad/" + name] = w.grad.T if transposed(name, w) else w.grad
    return {name: t.contiguous() for name, t in out.items()}, ids.shape


# ---- as several ranks hold it ---------------------------------------------------------------------------------------------

def columns(t, rank, ranks, parts=1):
    return torch.cat([part.tensor_split(ranks, -1)[rank] for part in t.chunk(parts, -1)], -1)


def as_tensor_parallel(name, t, rank, ranks):
    """Heads and feed-forward columns are cut; weights by rows (columns of their output) where the output is."""
    inner = name.split(".", 2)[-1] if ".h." in "." + name.replace("/", ".") else name.split("/")[-1]
    if inner == "attn.qkv":
        return columns(t, rank, ranks, 3)
    if inner in ("mlp.up", "mlp.act"):
        return columns(t, rank, ranks)
    if inner == "mlp.c_fc.weight":
        return t.tensor_split(ranks, 0)[rank]
    if inner == "mlp.c_proj.weight":
        return columns(t, rank, ranks)
    return t


TENSOR_LAYOUT = [
    {"tensors": "*attn.qkv", "split": "columns", "over": "tp", "parts": 3},
    {"tensors": "*mlp.up", "split": "columns", "over": "tp"}, {"tensors": "*mlp.act", "split": "columns", "over": "tp"},
    {"tensors": "*mlp.c_fc.weight", "split": "rows", "over": "tp"}, {"tensors": "*mlp.c_proj.weight", "split": "columns", "over": "tp"},
]


def as_fsdp(name, t, rank, ranks):
    """Parameters flat, in equal chunks, the last one padded; activations of the rank's own sequences."""
    if name == "loss":
        return t
    if name.endswith((".weight", ".bias")):
        each = -(-t.numel() // ranks)
        return torch.nn.functional.pad(t.flatten(), (0, each * ranks - t.numel()))[rank * each:(rank + 1) * each]
    return t.tensor_split(ranks, 0)[rank]


FSDP_LAYOUT = [{"tensors": "grad/*.weight", "split": "flat", "over": "dp"}, {"tensors": "grad/*.bias", "split": "flat", "over": "dp"},
               {"tensors": "act/*", "split": "rows", "over": "dp"}, {"tensors": "grad/*", "split": "rows", "over": "dp"}]


def as_zigzag(name, t, rank, ranks):
    """Of 2n chunks of a sequence this rank has the r-th from the front and from the back; weights whole."""
    if t.ndim != 3:
        return t
    n, length = 2 * ranks, t.shape[1]
    cuts = [i * (length // n) + min(i, length % n) for i in range(n + 1)]
    return torch.cat([t[:, cuts[i]:cuts[i + 1]] for i in (rank, n - 1 - rank)], 1)


HOW = {"tensor": (as_tensor_parallel, "tp", TENSOR_LAYOUT), "fsdp": (as_fsdp, "dp", FSDP_LAYOUT), "zigzag": (as_zigzag, "cp", None)}


def write_ranks(folder, tensors, ranks, how, batch):
    cut, axis, layout = HOW[how]
    folder.mkdir(parents=True, exist_ok=True)
    if layout is None:
        layout = [{"tensors": kind + name, "split": "zigzag", "over": axis, "sequences": batch}
                  for kind in ("act/", "grad/") for name in ("embedding", "ln_f", "logits", "h.*.ln_1", "h.*.ln_2", "h.*.mid", "h.*.out", "h.*.attn.out",
                                                             "h.*.attn.qkv", "h.*.attn.heads", "h.*.mlp.up", "h.*.mlp.act", "h.*.mlp.out")]
    names = [f"rank{r}.safetensors" for r in range(ranks)]
    for r, name in enumerate(names):
        save_file({key: cut(key, t, r, ranks).contiguous() for key, t in tensors.items()}, folder / name)
    (folder / "map.json").write_text(json.dumps({"ranks": names, "mesh": {axis: ranks}, "layout": layout}, indent=1))


def main():
    arguments = argparse.ArgumentParser(description="Dump what a PyTorch GPT-2 computes, under golden names.")
    arguments.add_argument("golden")
    arguments.add_argument("out", type=pathlib.Path)
    arguments.add_argument("--dtype", choices=DTYPES, default="fp32")
    arguments.add_argument("--ranks", type=int, default=1)
    arguments.add_argument("--how", choices=HOW, default="tensor")
    arguments.add_argument("--break", dest="broken", metavar="NAME", help="whose gradient is to be wrong")
    arguments.add_argument("--factor", type=float, default=2.0, help="by which factor")
    given = arguments.parse_args()
    torch.manual_seed(0)
    tensors, (batch, _tokens) = dump(given.golden, DTYPES[given.dtype], given.broken, given.factor)
    if given.ranks == 1:
        save_file(tensors, given.out)
    else:
        write_ranks(given.out, tensors, given.ranks, given.how, batch)


if __name__ == "__main__":
    main()
