#!/usr/bin/env python3
"""Random small models of every family: do Orrery and Hugging Face transformers read the same model from the same folder, and from what Orrery writes?

    golden/transformers_fuzz.py [FAMILY ...] [--first N] [--count N] [--mesh] [--keep DIR]

Needs what transformers_check.py needs, with transformers 5.  Each number is a folder of random_configs.py.  What transformers loads from it
is the truth: orrery must compute its loss, logits and gradients, and write a folder that is the same model, or refuse the file, by name.
--mesh also takes a step of SGD on a random mesh: what `orrery train --save` leaves must be the weights less autograd's gradients.  Refusals
are counted, and whoever reads them judges.
"""
import argparse
import collections
import math
import pathlib
import re
import shutil
import sys
import tempfile

import families
import numpy as np
import torch
import transformers
import transformers_check as check
from random_configs import Unfit, draw

BOUND = 1e-9            # relative, norm over norm: far above fp64's rounding, which badly conditioned draws magnify, and far below any mistake
SMALL = 1e-5            # a gradient that nearly cancels is held to this part of the largest one's norm


# ---- both sides ----------------------------------------------------------------------------------------------------------

def batch(r, c, sequences, tokens):
    """Tokens, and the next ones as labels; without padding, which transformers treats apart."""
    t = np.random.default_rng(r.getrandbits(32)).integers(0, c.vocab_size, sequences * tokens + 1, dtype=np.int32)
    t[t == (-1 if c.pad_token_id is None else c.pad_token_id)] = ((c.pad_token_id or 0) + 1) % c.vocab_size
    return t, t[:-1].reshape(sequences, tokens), t[1:].reshape(sequences, tokens).copy()


def mesh(r, mixture):
    """Options of `orrery train`, and how many sequences its batch is a multiple of."""
    axis = dict(dp=r.choice([1, 1, 2]), tp=r.choice([1, 1, 2, 3]), pp=r.choice([1, 1, 2]), cp=r.choice([1, 1, 2]), ep=r.choice([1, 2, 3]) if mixture else 1)
    axis["micro"] = 1 if axis["pp"] == 1 else 2
    words = [word for key, n in axis.items() for word in (f"--{key}", n)] + ["--zero", r.randint(0, 3)]
    words += ["--attention", r.choice("ulysses rsa ring ring-zigzag allgather-kv tokenring usp".split())] if axis["cp"] > 1 else []
    words += ["--tensor", r.choice("1d 1d-sp 1d-sp-overlap sbp:megatron".split())] if axis["tp"] > 1 else []
    words += ["--schedule", "gpipe" if mixture else r.choice("1f1b gpipe bfs zb-h1 zb-2p".split())] if axis["pp"] > 1 else []
    words += ["--dispatch", r.choice("alltoall allgather two-step".split())] if axis["ep"] > 1 else []
    words += ["--recompute", r.choice(["full", "selective"])] if r.random() < 0.4 else []
    return (words, axis["dp"] * axis["micro"] * axis["ep"]) if 1 < math.prod(axis.values()) // axis["micro"] <= 4 else mesh(r, mixture)


def step(orrery, r, model, folder, scratch):
    """Differences of a step on a mesh; the first mesh of five that is not refused."""
    c, shape, rate = model.config, check.shape_of(model.config), 0.125
    S = r.randint(1, min(c.max_position_embeddings, 20))
    for _ in range(5):
        words, least = mesh(r, bool(shape))
        t, ids, labels = batch(r, c, least * r.randint(1, 2), S)
        (scratch / "t.bin").write_bytes(t.astype("<u2").tobytes())
        try:
            check.run(orrery, "train", "--model", folder, "--data", scratch / "t.bin", "--eval-data", scratch / "t.bin", "--dtype", "fp64", "--steps", 1, "--seq", S,
                      "--batch", len(ids), "--optimizer", "sgd", "--lr", rate, "--lr-schedule", "constant", "--warmup", 0, "--clip", 0, "--weight-decay", 0,
                      "--dropout", 0, "--check", "ref", "--quiet", "--save", scratch / "trained", *words)
            break
        except SystemExit as e:
            if "ended with 2:" not in str(e):
                raise
    else:
        return []
    model.zero_grad()
    try:
        check.FAMILIES[c.model_type].loss(model, shape, ids, labels)[0].backward()
    except AssertionError:                      # two experts nearly alike
        return []
    after = check.load(scratch / "trained").parameters()
    pairs = [(name, w, a, torch.zeros_like(w) if w.grad is None else w.grad) for (name, w), a in zip(model.named_parameters(), after)]
    most = max(g.norm().item() for *_, g in pairs)
    return [(f"the step of {name} with {' '.join(map(str, words))}", check.apart(((w - a) / rate).detach().numpy(), g.numpy(), SMALL * max(most, w.norm().item())))
            for name, w, a, g in pairs]


def one(given, family, number, scratch):
    """A verdict and what it rests on."""
    try:
        r, model = draw(family, number, scratch / "model")
        _, ids, labels = batch(r, model.config, r.randint(1, 3), r.randint(1, min(model.config.max_position_embeddings, 24)))
        labels[np.random.default_rng(number).random(labels.shape) < 0.25] = families.IGNORE
        labels[0, -1] = ids[0, 0]
        model(input_ids=families.tokens(ids))
        check.FAMILIES[family].loss(model, check.shape_of(model.config), ids, labels)
    except Unfit as e:
        return "no model", str(e)
    except Exception as e:
        return "not run by transformers", str(e)
    try:
        found = check.compare(given.orrery, scratch / "model", model, ids, labels, SMALL)
    except SystemExit as e:
        refusal = re.search(r"ended with [12]: (.*)", str(e).replace(str(scratch), "DIR"))
        return ("refused", refusal[1]) if refusal else ("WRONG", str(e))
    try:
        found += step(given.orrery, r, model, scratch / "model", scratch) if given.mesh else []
    except SystemExit as e:
        return "WRONG", str(e)
    wrong = [f"{name} differs by {d:.2g}" for name, d in found if not d <= BOUND]
    return ("WRONG", "; ".join(wrong[:5])) if wrong else ("agree", "")


def main():
    arguments = argparse.ArgumentParser(description="Compare orrery with Hugging Face transformers on random models.")
    arguments.add_argument("families", nargs="*", metavar="FAMILY", help="model_type; default: all")
    arguments.add_argument("--first", type=int, default=1, help="the first number [1]")
    arguments.add_argument("--count", type=int, default=20, help="models of each family [20]")
    arguments.add_argument("--mesh", action="store_true", help="also train a step on a random mesh")
    arguments.add_argument("--keep", metavar="DIR", type=pathlib.Path, help="keep folders that are wrong")
    arguments.add_argument("--orrery", default=str(check.ROOT / "orrery"), help="the program; default ./orrery")
    given = arguments.parse_args()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    families.widen()
    torch.set_num_threads(1)                    # the models are small
    reasons, wrong = collections.Counter(), 0
    for family in given.families or check.FAMILIES:
        seen = collections.Counter()
        for number in range(given.first, given.first + given.count):
            with tempfile.TemporaryDirectory() as scratch:
                verdict, why = one(given, family, number, pathlib.Path(scratch))
                seen[verdict] += 1
                reasons[f"{family} {verdict}: {why}"[:200]] += verdict == "refused"
                if verdict == "WRONG":
                    print(f"{family} {number}: {why}", flush=True)
                    if given.keep:
                        shutil.copytree(scratch, given.keep / f"{family}-{number}")
        print(f"{family}: " + ", ".join(f"{n} {verdict}" for verdict, n in sorted(seen.items())), flush=True)
        wrong += seen["WRONG"]
    print(*(f"{n:4} {reason}" for reason, n in sorted(reasons.items()) if n), sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
