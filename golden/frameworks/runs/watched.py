#!/usr/bin/env python3
"""PyTorch's DistributedDataParallel under torchrun, watched while it trains: each step has its file, and the next step begins when this one is judged.

    torchrun --nproc-per-node 2 golden/frameworks/runs/watched.py GOLDEN FOLDER [--bug states-lost]

Beside it runs `orrery check GOLDEN FOLDER/fp32 --watch`.  Who reads its lines makes FOLDER/judgedK when step K is judged.
"""
import time

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import common
from orrery_dump import Recorder


def wait_for(path, seconds=300):
    """Until somebody has made a file."""
    began = time.monotonic()
    while not path.exists():
        if time.monotonic() - began > seconds:
            raise TimeoutError(f"{path} is not there after {seconds} s")
        time.sleep(0.05)


def train(golden, case):
    rank, ranks = dist.get_rank(), dist.get_world_size()
    mesh = init_device_mesh("cpu", (ranks,), mesh_dim_names=("dp",))
    model = DistributedDataParallel(golden.model())
    each = golden.sequences // ranks
    mine = slice(rank * each, (rank + 1) * each)
    recorder = Recorder(model, mesh, case.out / "fp32", batch=(golden.sequences, golden.tokens), mode="ddp", dtype="fp32")
    optimizer = golden.adamw(model, recorder.names.parameters)
    recorder.start()
    for step, rate in enumerate(golden.optimizers["adamw"], start=1):
        of = "" if step == 1 else f"adamw/{step}/"
        if step == 1:
            recorder.microbatch(sequences=range(rank * each, (rank + 1) * each), times=1 / ranks)
        logits = model(input_ids=golden.ids[step - 1, mine]).logits
        loss = common.summed_loss(logits, golden.labels[step - 1, mine]) / golden.counted(step - 1)
        (loss * ranks).backward()                                       # DDP divides gradients by the number of processes
        recorder.stop()
        recorder.gradients(of + "grad/")
        recorder.number(of + "loss", common.summed_over(loss))
        recorder.number(of + "norm", torch.nn.utils.clip_grad_norm_(model.parameters(), golden.setting("adamw.clip")))
        if case.bug == "states-lost" and step == 2:                     # as after a checkpoint without the optimizer
            optimizer.state.clear()
        for group in optimizer.param_groups:
            group["lr"] = rate
        optimizer.step()
        optimizer.zero_grad()
        recorder.weights("adamw", optimizer, step=step, last=step == len(golden.ids))
        recorder.save(step)
        wait_for(case.out / f"judged{step}")
    dist.barrier()
    if rank == 0:
        (case.out / "fp32" / "done").touch()


if __name__ == "__main__":
    given = common.arguments(bugs=("states-lost",))
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    train(given.golden, given)
    dist.destroy_process_group()
