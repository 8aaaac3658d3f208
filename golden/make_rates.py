#!/usr/bin/env python3
"""Golden learning rates for ref/optim/rates.h: the schedules of transformers and of PyTorch.

    golden/make_rates.py            write golden/rates.txt
    golden/make_rates.py --check    make it again, and compare with the stored one

A line is: schedule lr min_lr warmup steps decay, then the rate of each step from 1 to steps, in hexadecimal.  What a scheduler sets
before its optimizer's step number t, counted from 0, is the rate of our step t: transformers' first step has the rate 0, ours is its
second.  PyTorch has no warm-up of its own that is alike: its lines have none.
"""
import pathlib
import sys
import warnings

import torch
import transformers

FILE = pathlib.Path(__file__).resolve().parent / "rates.txt"
warnings.filterwarnings("ignore", message=".*lr_scheduler.step.*")


def course(lr, steps, make):
    """The rates 1 .. steps of a scheduler of an optimizer with one weight."""
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=lr)
    scheduler = make(optimizer)
    rates = []
    for _ in range(steps):
        optimizer.step()
        scheduler.step()
        rates.append(optimizer.param_groups[0]["lr"])
    return rates


def of_transformers(schedule, lr, min_lr, warmup, steps, decay):
    import transformers.optimization as t
    falls = {"wsd": "linear", "wsd-cosine": "cosine", "wsd-sqrt": "1-sqrt"}
    if schedule == "constant":
        return course(lr, steps, lambda o: t.get_constant_schedule_with_warmup(o, warmup))
    if schedule == "linear":
        return course(lr, steps, lambda o: t.get_linear_schedule_with_warmup(o, warmup, steps))
    if schedule == "cosine":
        return course(lr, steps, lambda o: t.get_cosine_with_min_lr_schedule_with_warmup(o, warmup, steps, min_lr=min_lr))
    return course(lr, steps, lambda o: t.get_wsd_schedule(o, num_warmup_steps=warmup, num_decay_steps=decay, num_training_steps=steps,
                                                          decay_type=falls[schedule], min_lr_ratio=min_lr / lr))


def of_torch(schedule, lr, min_lr, steps):
    s = torch.optim.lr_scheduler
    if schedule == "constant":
        return course(lr, steps, lambda o: s.ConstantLR(o, factor=1))
    if schedule == "linear":
        return course(lr, steps, lambda o: s.LinearLR(o, start_factor=1, end_factor=min_lr / lr, total_iters=steps))
    return course(lr, steps, lambda o: s.CosineAnnealingLR(o, T_max=steps, eta_min=min_lr))


def lines():
    yield f"# transformers {transformers.__version__}, torch {torch.__version__.split('+')[0]}; golden/make_rates.py"
    for name, lr, min_lr, warmup, steps, decay in [
            ("constant", 0.3, 0, 4, 9, 0), ("constant", 1e-3, 0, 0, 5, 0), ("linear", 3e-4, 0, 5, 23, 0), ("linear", 0.7, 0, 0, 11, 0),
            ("cosine", 3e-4, 3e-5, 5, 23, 0), ("cosine", 0.7, 0, 0, 11, 0), ("wsd", 1e-3, 0, 3, 20, 7), ("wsd", 0.5, 0.05, 0, 13, 13),
            ("wsd-cosine", 1e-3, 0, 3, 20, 7), ("wsd-cosine", 0.2, 0.02, 0, 12, 5), ("wsd-sqrt", 1e-3, 0, 3, 20, 7),
            ("wsd-sqrt", 0.2, 0.02, 0, 12, 5)]:
        yield line(name, lr, min_lr, warmup, steps, decay, of_transformers(name, lr, min_lr, warmup, steps, decay))
    for name, lr, min_lr, steps in [("constant", 0.25, 0, 7), ("linear", 0.25, 0.05, 17), ("cosine", 0.25, 0.05, 17)]:
        yield line(name, lr, min_lr, 0, steps, 0, of_torch(name, lr, min_lr, steps))


def line(name, lr, min_lr, warmup, steps, decay, rates):
    return " ".join([name, float(lr).hex(), float(min_lr).hex(), str(warmup), str(steps), str(decay)] + [float(r).hex() for r in rates])


def main():
    text = "".join(l + "\n" for l in lines())
    if "--check" not in sys.argv:
        FILE.write_text(text)
        return
    stored = FILE.read_text().splitlines()
    wrong = [i + 1 for i, (a, b) in enumerate(zip(stored[1:], text.splitlines()[1:])) if a != b]
    if wrong or len(stored) != len(text.splitlines()):
        sys.exit(f"{FILE}: lines {wrong or 'missing'}: not what these versions give")
    print(f"{FILE.name}: {len(stored) - 1} schedules are as stored")


if __name__ == "__main__":
    main()
