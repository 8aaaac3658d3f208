#!/usr/bin/env python3
"""Golden steps of MeZO: what PyTorch makes of two losses on either side of the weights (arXiv:2305.17333, algorithm 1).

    golden/make_mezo.py            write golden/mezo.safetensors and its line of golden/MANIFEST
    golden/make_mezo.py --check    make it again, compare with the stored file and name the tensors that differ

The models, where they start and their batches are those of make_golden.py; losses are the models' of transformers, in fp64; directions
are drawn by philox.py.  golden/README.md says what is in the file.
"""
import sys

import make_golden as golden                    # first: it sets what must be set before PyTorch is imported
import families
import numpy as np
import philox
import tensor_file
import torch
import transformers

FILE = golden.HERE / "mezo.safetensors"
CASES = ("gpt2-tied", "llama-grouped")
RATES = (0.02, 0.01, 0.015)
DISTANCE = 0.01                                 # eps
DECAY = 0.05                                    # of matrices, decoupled
DRAWN = 16                                      # elements of each direction that are kept, to tell a wrong one from a wrong loss
# Another PyTorch may round a loss by make_golden's ROUNDING; a slope is the difference of two of them over 2 eps.
ROUNDING = golden.ROUNDING / DISTANCE


def direction(step, name, shape):
    key = (golden.SEED + 0x9E3779B97F4A7C15 * (step + 1)) & philox.MASK64
    return philox.normal(key, "mezo." + name, int(np.prod(shape))).reshape(shape)


def loss_of(case, weights, ids, labels):
    model, _ = case.make_model(weights)
    with torch.no_grad():
        return case.loss(model, ids, labels)[0].item()


def steps(name):
    case = golden.Case(name)
    ids, labels = golden.batches(case.c)
    weights = golden.nudged(case.initial_weights())
    losses, slopes, drawn = [], [], {}
    for step, rate in enumerate(RATES):
        z = {key: direction(step, key, w.shape) for key, w in weights.items()}
        sides = [loss_of(case, {key: w + along * z[key] for key, w in weights.items()}, ids[step], labels[step]) for along in (DISTANCE, -DISTANCE)]
        losses.append(sides)
        slopes.append((sides[0] - sides[1]) / (2 * DISTANCE))
        weights = {key: (1 - rate * DECAY if w.ndim == 2 else 1) * w - rate * slopes[-1] * z[key] for key, w in weights.items()}
        drawn = drawn or {f"{name}/z/{key}": np.ascontiguousarray(x.ravel()[:DRAWN]) for key, x in z.items()}
    return {f"{name}/lr": golden.number(RATES), f"{name}/loss": golden.number(losses), f"{name}/slope": golden.number(slopes), **drawn,
            **{f"{name}/weight/{key}": np.ascontiguousarray(w, dtype="<f8") for key, w in weights.items()}}


def make():
    tensors = {}
    for name in CASES:
        tensors.update(steps(name))
    metadata = {"generator": "golden/make_mezo.py", "cases": " ".join(CASES), "distance": repr(DISTANCE), "weight_decay": repr(DECAY),
                "numpy": np.__version__, "torch": torch.__version__, "transformers": transformers.__version__}
    return tensors, metadata


def check():
    new, old = make()[0], tensor_file.read(FILE)[0]
    wrong = [f"{key}: in one of the two only" for key in sorted(set(new) ^ set(old))]
    for key in (key for key in old if key in new):
        apart, given = golden.difference(new[key], old[key]), "/z/" in key or key.endswith("/lr")
        if apart != 0 and (given or not apart <= ROUNDING):
            wrong.append(f"{key}: differs by {apart:.3g}, relative")
    for line in wrong:
        print(f"  mezo: {line}")
    if not wrong:
        print(f"  mezo: {len(old)} tensors hold")
    return 1 if wrong else 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    families.widen()
    philox.known_answers()
    sys.exit(tensor_file.command("Make the golden steps of MeZO with PyTorch.", FILE, make, check))
