#!/usr/bin/env python3
"""Right programs and `orrery check`: an alarm here is a mistake of the checker.

    golden/clean/campaign.py COUNT [--from N] [--seconds N] [--orrery ./orrery] [--place build/clean] [--programs numpy orrery transformers] [--losses]

Dump number i is of a model and of options drawn from i: by the numpy program of this folder, by `orrery train --dump`, and by
transformers where Python has torch.  Each must be OK.  A line for each that is not, then a table; what is only `open` is an alarm, too.
Exit status 1: there are alarms.
"""
import argparse
import collections
import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import sys
import time
import types

os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import files
import make_models
import model
import program
import transformers_model

LATER = re.compile(r"[a-z]+/([0-9]+/grad/.*|loss)")                 # gradients and losses of the steps after the first
TRAIN = {"dtype": ("fp32", "bf16", "fp16"), "dp": (1, 2, 3), "tp": (1, 2, 3), "micro": (1, 2), "scheme": ("ddp", "zero1", "zero3", "fsdp")}


def drawn(draw, options, always=("dtype", "order", "store")):
    """Half of the options have their usual value."""
    return types.SimpleNamespace(**{k: draw.choice(v) if k in always or draw.random() < 0.5 else v[0] for k, v in options.items()})


def by_numpy(golden, folder, draw, orrery, copies=False):
    case, read = drawn(draw, program.OPTIONS), files.read(golden)
    shape = model.Shape(json.loads(read[0]["config"]))
    case.parts = 2 if draw.random() < 0.15 else 1
    case.tp = draw.choice((2, 3, 4, 6)) if copies else case.tp
    while shape.F % case.tp or shape.H < case.tp or (shape.moe and case.tp > 1) or (shape.K % case.tp and not copies):
        case.tp = draw.choice((1, 2, 3, 4, 6) if copies else (1, 2, 3))
    case.dp = min(case.dp, read[1]["ids"].shape[1])
    case.mean = case.mean and not shape.moe
    program.trained(read, case).save(folder)
    return case, []


def by_numpy_with_copies(golden, folder, draw, orrery):
    """Also with more ranks than heads of keys and values."""
    return by_numpy(golden, folder, draw, orrery, copies=True)


def by_orrery(golden, folder, draw, orrery):
    case, read = drawn(draw, TRAIN), files.read(golden)
    shape, B = model.Shape(json.loads(read[0]["config"])), read[1]["ids"].shape[1]
    while shape.K % case.tp or shape.H % case.tp:
        case.tp = draw.choice((1, 2, 3))
    while B % (case.dp * case.micro):
        case.dp, case.micro = draw.choice(TRAIN["dp"]), draw.choice(TRAIN["micro"])
    done = subprocess.run([orrery, "train", "--check", golden, "--dump", f"{folder}/", "--dtype", case.dtype, "--dp", str(case.dp), "--tp", str(case.tp),
                           "--micro", str(case.micro), "--data-parallel", case.scheme, "--threads", "1"], capture_output=True, text=True)
    return case, [] if done.returncode in (0, 3) else [done.stderr.strip().splitlines()[-1]]


def by_transformers(golden, folder, draw, orrery):
    case = drawn(draw, transformers_model.OPTIONS, ("dtype", "attention"))
    transformers_model.dump(golden, folder, case)
    return case, []


PROGRAMS = {"numpy": by_numpy, "orrery": by_orrery, "copies": by_numpy_with_copies, "transformers": by_transformers}


class Tally:
    """What was said of dumps of one program and format."""

    def __init__(self):
        self.dumps = self.alarms = self.open = self.tensors = self.unjudged = 0


def judged(orrery, golden, folder):
    done = subprocess.run([orrery, "check", golden, folder, "--json", f"{folder}.json", "--threads", "1"], capture_output=True, text=True)
    if done.returncode not in (0, 3):
        return "FAILED", 0, [], done.stderr.strip()
    result = json.loads(pathlib.Path(f"{folder}.json").read_text())
    unjudged = [t["tensor"] for t in result["tensors"] if t["judged"] == "cannot be judged"]
    return result["verdict"], len(result["tensors"]), unjudged, (done.stderr.strip() or done.stdout.strip()).splitlines()[-1]


def main():
    arguments = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    arguments.add_argument("count", type=int)
    arguments.add_argument("--from", type=int, default=0, dest="first")
    arguments.add_argument("--seconds", type=float, default=float("inf"), help="make no further dump after so many")
    arguments.add_argument("--models", type=int, default=32, help="golden files that are made, and kept")
    arguments.add_argument("--losses", action="store_true", help="golden files with conventions of losses (--as), for numpy")
    arguments.add_argument("--orrery", type=lambda p: str(pathlib.Path(p).resolve()), default="./orrery")
    arguments.add_argument("--place", type=lambda p: pathlib.Path(p).resolve(), default="build/clean")
    arguments.add_argument("--programs", nargs="+", choices=PROGRAMS, default=list(PROGRAMS)[:2])
    given, tallies = arguments.parse_args(), collections.defaultdict(Tally)
    given.programs = ["numpy"] if given.losses else given.programs
    ends = time.monotonic() + given.seconds
    for i in range(given.first, given.first + given.count):
        if time.monotonic() > ends:
            print(f"no time for dump {i} and those after it")
            break
        draw = random.Random(i)
        name = given.programs[i % len(given.programs)]
        golden = make_models.make(given.place / ("losses" if given.losses else "models"), i // len(given.programs) % given.models, given.orrery, given.losses)
        if name == "transformers" and golden.stem.split("-", 1)[1] not in transformers_model.FAMILIES:
            continue
        folder = given.place / f"dump-{given.first}"
        shutil.rmtree(folder, ignore_errors=True)
        case, refused = PROGRAMS[name](golden, folder, draw, given.orrery)
        tally = tallies[name, case.dtype]
        verdict, tensors, unjudged, says = judged(given.orrery, golden, folder) if not refused else ("FAILED", 0, [], refused[0])
        tally.dumps, tally.tensors, tally.unjudged = tally.dumps + 1, tally.tensors + tensors, tally.unjudged + len(unjudged)
        if verdict == "OK":
            continue
        # A program may show only gradients of later steps: what these do not settle stays open.
        is_open = verdict == "NOT ENOUGH" and all(LATER.fullmatch(one) for one in unjudged)
        tally.open, tally.alarms = tally.open + is_open, tally.alarms + (not is_open)
        print(f"{'OPEN' if is_open else 'ALARM'} {i}: {name} {golden.name} {' '.join(f'{k}={v}' for k, v in vars(case).items())}: {says}", flush=True)
    print(f"{'program':13} {'format':6} {'dumps':>6} {'alarms':>7} {'open':>6} {'tensors':>8} {'unjudged':>9}")
    for (name, dtype), t in sorted(tallies.items()):
        print(f"{name:13} {dtype:6} {t.dumps:6} {t.alarms:7} {t.open:6} {t.tensors:8} {100 * t.unjudged / max(t.tensors, 1):8.1f}%")
    sys.exit(1 if any(t.alarms + t.open for t in tallies.values()) else 0)


if __name__ == "__main__":
    main()
