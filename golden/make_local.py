#!/usr/bin/env python3
"""Golden tensors for ref/model/local.h: replicas that train apart, by PyTorch.

    golden/make_local.py            write golden/local.safetensors and its line of golden/MANIFEST
    golden/make_local.py --check    make it again, compare with the stored one and name the tensors that differ

Three copies of a small GPT-2 of transformers take torch.optim's inner steps, each on its own sequences, of which one has fewer than
the others; after every second step torch.optim.SGD takes the outer step, with the mean of anchor - replica as the gradient: with
Nesterov's momentum, as DiLoCo does (arXiv:2311.08105), and as plain averaging, local SGD (arXiv:1805.09767).

SlowMo (arXiv:1910.00643) is its authors' optimizer, SlowMomentumOptimizer of pytorch/torchdistx at 7c40109, in a process for each copy with
PyTorch's own averager.  It is one file, in pure Python: SLOWMO_OPTIMIZER says where, if torchdistx is not installed.  Nothing in it is
changed.  From outside: torch.cuda.current_device() is the CPU; and its counter of steps begins at 1, not at 0.  From 0 it averages the
copies after the first step as well, without a slow step, and rounds end after steps 1 + k EVERY; from 1 after steps k EVERY, as in the
paper.  The rate of the inner steps has a course, so that it is another one in each round.

golden/README.md says what is in the file.
"""
import hashlib
import importlib.util
import json
import math
import multiprocessing
import os
import pathlib
import sys
import tempfile

import make_golden
from make_golden import np, torch
import philox
import tensor_file

HERE = pathlib.Path(__file__).resolve().parent
FILE = HERE / "local.safetensors"
SHAPE = dict(L=1, H=3, D=9, F=11, V=31, S=7, tied=True, batch=5, tokens=5)
FIRST = [0, 1, 3, 5]                            # replica r has the sequences FIRST[r] .. FIRST[r + 1] - 1
STEPS, EVERY = 7, 2                             # three rounds, and a step of the fourth
SLOWMO_SHA256 = "0e21dadb4d1f01d40d6d3dbcd3d9db1b2c21b2f771c65e924efb80ff6f381708"
RUNS = {
    "diloco": dict(inner="adamw", outer_lr=0.7, outer_momentum=0.9, lr=0.03, beta1=0.8, beta2=0.9, eps=1e-4, weight_decay=0.1, clip=0.25),
    "local-sgd": dict(inner="sgd", outer_lr=1.0, outer_momentum=0.0, lr=0.4, weight_decay=0.05, clip=0.0),
    "slowmo": dict(inner="momentum", outer_lr=0.8, outer_momentum=0.6, lr=0.3, min_lr=0.02, warmup=3, steps=8, momentum=0.7, weight_decay=0.0,
                   clip=0.3),
}


class Small(make_golden.Case):
    def __init__(self):
        self.c = SHAPE
        self.family = make_golden.FAMILIES["gpt2"]
        self.list = list(self.family.parameters(self.c))


def batches():
    """ids and labels [STEPS,batch,tokens]; a fifth of the labels is ignored, never all of a sequence."""
    shape = (STEPS, SHAPE["batch"], SHAPE["tokens"])
    count = int(np.prod(shape))
    ids, labels = (np.floor(SHAPE["V"] * philox.uniform(make_golden.SEED, name, count)).astype("<i4").reshape(shape) for name in ("ids", "labels"))
    labels[(philox.uniform(make_golden.SEED, "ignored", count) < 0.2).reshape(shape)] = make_golden.IGNORE
    labels[:, :, -1] = ids[:, :, 0]
    return ids, labels


def rate(h, t):
    """Of step t, from 1: ref/optim/optimizer.h."""
    if t <= h.get("warmup", 0):
        return h["lr"] * t / h["warmup"]
    if "steps" not in h:
        return h["lr"]
    x = (t - h["warmup"]) / (h["steps"] - h["warmup"])
    return h["min_lr"] + (h["lr"] - h["min_lr"]) * (1 + math.cos(math.pi * min(x, 1))) / 2


def released_slowmo():
    """SlowMomentumOptimizer, of the package or of the file, which must be the one that was used."""
    path = os.environ.get("SLOWMO_OPTIMIZER")
    if path is None and importlib.util.find_spec("torchdistx"):
        path = pathlib.Path(importlib.util.find_spec("torchdistx").origin).parent / "slowmo" / "slowmo_optimizer.py"
    if path is None:
        sys.exit("make_local.py needs the authors' code: SLOWMO_OPTIMIZER=FILE, src/python/torchdistx/slowmo/slowmo_optimizer.py of "
                 "pytorch/torchdistx at 7c40109")
    if hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest() != SLOWMO_SHA256:
        sys.exit(f"{path}: is another slowmo_optimizer.py than that of pytorch/torchdistx at 7c40109")
    spec = importlib.util.spec_from_file_location("slowmo_optimizer", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.SlowMomentumOptimizer


def slowmo_copy(r, folder, answer, h, case, start, ids, labels):
    """One copy, in a process of its own."""
    torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=r, world_size=len(FIRST) - 1)
    torch.cuda.current_device = lambda: "cpu"
    model, named = case.make_model(start)
    inner = make_golden.make_optimizer(h["inner"], h, named)
    slow = released_slowmo()(inner, slowmo_freq=EVERY, slowmo_factor=h["outer_momentum"], slowmo_lr=h["outer_lr"])
    slow.averager.step = 1
    losses, norms = np.zeros((2, STEPS))
    for step in range(STEPS):
        for group in inner.param_groups:
            group["lr"] = rate(h, step + 1)
        own = slice(FIRST[r], FIRST[r + 1])
        loss, _ = case.loss(model, ids[step, own], labels[step, own])
        losses[step], norms[step] = loss.item(), make_golden.backward(loss, named)
        make_golden.clip(named, norms[step], h["clip"])
        slow.step()
    order = [id(w) for group in inner.param_groups for w in group["params"]]
    previous = {name: slow._prev_parameters[order.index(id(w))] for name, w in named.items()}
    kept = {"anchor": previous, "momentum": {name: slow.state[w]["slow_momentum"] for name, w in named.items()}, f"replica{r}": named}
    answer.put((r, losses, norms, {f"{what}/{name}": w for what, of in kept.items()
                                   for name, w in case.logical(lambda part: of[part])}))


def run_slowmo(kind, h, case, start, ids, labels):
    fork = multiprocessing.get_context("fork")
    answer = fork.Queue()
    released_slowmo()                           # complains here, before there are processes
    with tempfile.TemporaryDirectory() as folder:
        copies = [fork.Process(target=slowmo_copy, args=(r, folder, answer, h, case, start, ids, labels)) for r in range(len(FIRST) - 1)]
        for copy in copies:
            copy.start()
        answers = sorted((answer.get(timeout=120) for _ in copies), key=lambda a: a[0])
        for copy in copies:
            copy.join()
    out = {f"{kind}/loss": np.stack([a[1] for a in answers], 1), f"{kind}/norm": np.stack([a[2] for a in answers], 1)}
    for _, _, _, tensors in answers:
        for name, w in tensors.items():
            assert np.array_equal(out.setdefault(f"{kind}/{name}", w), w), name         # what copies have in common
    return out


def run(kind, h, case, start, ids, labels):
    replicas = [case.make_model(start) for _ in FIRST[1:]]
    inner = [make_golden.make_optimizer(h["inner"], h, named) for _, named in replicas]
    for optimizer in inner:
        for group in optimizer.param_groups:
            group["lr"] = h["lr"]
    _, anchor = case.make_model(start)
    momentum = dict(momentum=h["outer_momentum"], nesterov=True) if h["outer_momentum"] else {}
    outer = torch.optim.SGD(anchor.values(), lr=h["outer_lr"], **momentum)
    losses, norms = np.zeros((2, STEPS, len(replicas)))
    for step in range(STEPS):
        for r, (model, named) in enumerate(replicas):
            own = slice(FIRST[r], FIRST[r + 1])
            loss, _ = case.loss(model, ids[step, own], labels[step, own])
            losses[step, r], norms[step, r] = loss.item(), make_golden.backward(loss, named)
            make_golden.clip(named, norms[step, r], h["clip"])
            inner[r].step()
        if (step + 1) % EVERY == 0:
            for name, w in anchor.items():
                w.grad = torch.stack([w.detach() - named[name].detach() for _, named in replicas]).mean(0)
            outer.step()
            with torch.no_grad():
                for _, named in replicas:
                    for name, w in named.items():
                        w.copy_(anchor[name])
    out = {f"{kind}/loss": losses, f"{kind}/norm": norms}
    out.update({f"{kind}/anchor/{name}": w for name, w in case.logical(lambda part: anchor[part])})
    if momentum:
        out.update({f"{kind}/momentum/{name}": w for name, w in case.logical(lambda part: outer.state[anchor[part]]["momentum_buffer"])})
    for r, (_, named) in enumerate(replicas):
        out.update({f"{kind}/replica{r}/{name}": w for name, w in case.logical(lambda part: named[part])})
    return out


def make():
    case = Small()
    ids, labels = batches()
    start = make_golden.nudged(case.initial_weights())
    tensors = {"ids": ids, "labels": labels, **{"start/" + name: w for name, w in start.items()}}
    metadata = {"generator": "golden/make_local.py", "model": "gpt2", "config": json.dumps(case.family.config(case.c)), "seed": str(make_golden.SEED),
                "first": json.dumps(FIRST), "every": str(EVERY), "numpy": np.__version__, "torch": torch.__version__,
                "transformers": make_golden.transformers.__version__}
    for kind, h in RUNS.items():
        tensors.update((run_slowmo if kind == "slowmo" else run)(kind, h, case, start, ids, labels))
        metadata.update({f"{kind}.{key}": value if key == "inner" else repr(value) for key, value in h.items()})
    return tensors, metadata


def check():
    with tempfile.TemporaryDirectory() as folder:
        fresh = pathlib.Path(folder) / FILE.name
        tensor_file.write(fresh, *make())
        good = make_golden.compare_file("local", fresh, FILE)
    if not tensor_file.checksum_holds(HERE, FILE):
        print("  local: MANIFEST has another checksum")
        good = False
    return 0 if good else 1


if __name__ == "__main__":
    torch.set_num_threads(1)
    make_golden.families.widen()
    philox.known_answers()
    sys.exit(tensor_file.command("Make the golden tensors of replicas that train apart.", FILE, make, check))
