#!/usr/bin/env python3
"""Golden steps of GaLore by the authors' own optimizer (galore-torch 1.0, GaLoreAdamW), and of Natural GaLore.

    golden/make_galore.py            write golden/galore.safetensors and its line of golden/MANIFEST
    golden/make_galore.py --check    make it again and compare: drawn tensors bit for bit, computed ones to SAME, relative

The optimizer is used as the authors' script uses it (torchrun_main.py): one group of matrices with a rank, one group of all else,
and torch.nn.utils.clip_grad_norm_ over whole gradients before the step.  What is added to their code from outside, nothing in it:

  - A singular vector's element of largest size is made positive.  Their sign is LAPACK's, which differs from machine to machine.
  - They take singular vectors in fp32 whatever the gradient is in.  The stored run is in fp64 throughout: their projector is given a
    `torch` whose `float` is float64.  The script first runs the same steps without that, in fp32, and both must agree.
  - Natural GaLore is this optimizer with R' in place of R; R' solves the whole (lambda I + H H^T) x = R, as large as it is.
"""
import importlib
import importlib.metadata
import importlib.util
import pathlib
import sys
import types

import numpy as np
import torch

import philox
import tensor_file

FILE = pathlib.Path(__file__).parent / "galore.safetensors"
SEED = 12
STEPS = 5
NUMBERS = {"rank": 3, "refresh": 2, "galore_scale": 0.3, "history": 3, "damping": 0.05, "lr": 0.05, "weight_decay": 0.2,
           "beta1": 0.85, "beta2": 0.97, "eps": 1e-3}
CLIP = 20.0                     # the gradients' norm is about 27
MATRICES = {"wide": (12, 20), "tall": (20, 12), "square": (11, 11), "narrow": (2, 9)}       # the last has fewer rows than the rank
REGULAR = {"vector": (13,)}
# Of a Llama: separate nn.Linear, so that the authors' script gives the optimizer each by itself.  `orrery` has q, k and v in one
# parameter, and gate and up: their rows one below the other.
LLAMA = {"q": (12, 12), "k": (4, 12), "v": (4, 12), "gate": (19, 12), "up": (19, 12)}
LLAMA_REGULAR = {"norm": (12,)}
LEAST_GAP = 0.02                # between neighbouring singular values that count, relative to the largest


def drawn(name, *shape):
    return torch.from_numpy(philox.normal(SEED, name, int(np.prod(shape))).reshape(shape).copy())


def stand_in(name, **attributes):
    """A module that theirs imports and no matrix needs: a version check, and projections of tensors of three dimensions."""
    module = types.ModuleType(name)
    module.__dict__.update(attributes)
    sys.modules[name] = module


def released_code():
    """galore_torch.adamw and galore_torch.galore_projector, without what the package's other files import."""
    found = importlib.util.find_spec("galore_torch")
    if found is None:
        sys.exit("make_galore.py needs the authors' code: pip install --no-deps galore-torch==1.0")
    package = types.ModuleType("galore_torch")
    package.__path__ = list(found.submodule_search_locations)
    sys.modules["galore_torch"] = package
    stand_in("transformers", __path__=[])
    stand_in("transformers.utils", __path__=[])
    stand_in("transformers.utils.versions", require_version=lambda requirement: None)
    stand_in("galore_torch.galore_projector_tensor", GaLoreProjectorTensor=None)
    return importlib.import_module("galore_torch.adamw").AdamW, importlib.import_module("galore_torch.galore_projector")


AdamW, projector = released_code()
THEIR_DIRECTIONS = projector.GaLoreProjector.get_orthogonal_matrix
THEIR_PROJECT = projector.GaLoreProjector.project


class WideTorch:
    """torch, but for its `float`."""
    float = torch.float64

    def __getattr__(self, name):
        return getattr(torch, name)


def directions(self, G, rank, type):
    """Theirs, with signs; type 'right' gives rows, 'left' columns."""
    P = THEIR_DIRECTIONS(self, G, rank, type)
    along = 1 if type == "right" else 0
    S = torch.linalg.svdvals(G.double())
    assert ((S[:-1] - S[1:])[:rank] / S[0]).min() > LEAST_GAP, "two singular values are too near each other"
    return P * torch.sign(torch.gather(P, along, P.abs().argmax(along, keepdim=True)))


def natural(self, G, step):
    R = THEIR_PROJECT(self, G, step)
    self.history = [R.reshape(-1)] + getattr(self, "history", [])[:NUMBERS["history"] - 1]
    H = torch.stack(self.history, 1)
    return torch.linalg.solve(NUMBERS["damping"] * torch.eye(R.numel(), dtype=R.dtype) + H @ H.T, R.reshape(-1)).reshape(R.shape)


projector.GaLoreProjector.get_orthogonal_matrix = directions


def gradients(t, dtype, shapes):
    return {name: drawn(f"{name}.gradient.{t}", *shape).to(dtype) for name, shape in shapes.items()}


def run(matrices, regular, dtype, is_natural=False):
    """What all parameters are after each step, and the states after the last."""
    shapes = {**matrices, **regular}
    n, out = NUMBERS, {}
    projector.torch = WideTorch() if dtype == torch.float64 else torch
    projector.GaLoreProjector.project = natural if is_natural else THEIR_PROJECT
    W = {name: torch.nn.Parameter(drawn(f"{name}.start", *shape).to(dtype)) for name, shape in shapes.items()}
    projected = {"params": [W[x] for x in matrices], "rank": n["rank"], "update_proj_gap": n["refresh"], "scale": n["galore_scale"], "proj_type": "std"}
    optimizer = AdamW([{"params": [W[x] for x in regular]}, projected], lr=n["lr"], betas=(n["beta1"], n["beta2"]), eps=n["eps"],
                      weight_decay=n["weight_decay"], no_deprecation_warning=True)
    for t in range(1, STEPS + 1):
        for name, G in gradients(t, dtype, shapes).items():
            W[name].grad = G
        norm = torch.nn.utils.clip_grad_norm_(list(W.values()), CLIP)
        assert norm > CLIP
        optimizer.step()
        out.update({f"{name}.weight.{t}": w.detach().clone() for name, w in W.items()})
    for name, w in W.items():
        state = optimizer.state[w]
        out.update({f"{name}.exp_avg": state["exp_avg"], f"{name}.exp_avg_sq": state["exp_avg_sq"]})
        if name in matrices:
            P = state["projector"].ortho_matrix
            out[f"{name}.projection"] = P if W[name].shape[0] < W[name].shape[1] else P.T.contiguous()
    return out


def expect_unchanged_code_agrees(wide, matrices, regular):
    """In fp32, as they are, without the wider SVD: the same steps but for fp32's rounding, which the gaps and eps amplify."""
    for key, x in run(matrices, regular, torch.float32).items():
        apart = ((x.double() - wide[key]).norm() / wide[key].norm()).item()
        assert apart < 1e-4, f"{key}: fp32 and fp64 are {apart:.2g} apart"


def trained(matrices, regular):
    """What is drawn, and both optimizers' runs."""
    shapes = {**matrices, **regular}
    tensors = {f"{name}.start": drawn(f"{name}.start", *shape) for name, shape in shapes.items()}
    for t in range(1, STEPS + 1):
        tensors.update({f"{name}.gradient.{t}": G for name, G in gradients(t, torch.float64, shapes).items()})
    wide = run(matrices, regular, torch.float64)
    expect_unchanged_code_agrees(wide, matrices, regular)
    tensors.update({f"galore.{key}": x for key, x in wide.items()})
    tensors.update({f"natural-galore.{key}": x for key, x in run(matrices, regular, torch.float64, True).items()})
    return tensors


def make():
    tensors = {**trained(MATRICES, REGULAR), **trained(LLAMA, LLAMA_REGULAR)}
    metadata = {key: repr(x) for key, x in NUMBERS.items()}
    metadata.update(generator="golden/make_galore.py", steps=str(STEPS), clip=repr(CLIP), numpy=np.__version__, torch=torch.__version__,
                    galore_torch=importlib.metadata.version("galore-torch"))
    return {key: x.detach().numpy().copy() for key, x in tensors.items()}, metadata


# Singular vectors take rounding times 1/gap, 50 here, and the whole system its condition: of PyTorch 1.13 and 2.15, whose
# LAPACKs differ, the farthest tensors are 2e-13 apart.
SAME = 1e-11


def check():
    new, old = make()[0], tensor_file.read(FILE)[0]
    wrong, farthest = sorted(set(new) ^ set(old)), (0.0, "nothing")
    for key in sorted(set(new) & set(old)):
        apart = np.linalg.norm(new[key] - old[key]) / np.linalg.norm(old[key])
        farthest = max(farthest, (apart, key))
        if not apart <= (SAME if key.startswith(("galore.", "natural-galore.")) else 0):
            wrong.append(key)
    for key in wrong:
        print(f"  galore: {key} differs")
    print(f"  galore: {len(old)} tensors, the farthest is {farthest[1]}, by {farthest[0]:.2g}")
    return 1 if wrong else 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    sys.exit(tensor_file.command("Make the golden steps of GaLore with the authors' code.", FILE, make, check))
