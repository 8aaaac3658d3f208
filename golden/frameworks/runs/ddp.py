#!/usr/bin/env python3
"""PyTorch's DistributedDataParallel on two processes: each has two of the four sequences, one after the other."""
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.nn.parallel import DistributedDataParallel

import common
from orrery_dump import Recorder

RANKS = 2


def run(golden, out, case):
    rank, mesh = dist.get_rank(), init_device_mesh("cpu", (RANKS,), mesh_dim_names=("dp",))
    model = DistributedDataParallel(golden.model(common.DTYPES[case.dtype], whole=case.bug == "rounded-rotary"))
    each = golden.sequences // RANKS
    recorder = Recorder(model, mesh, out, batch=(golden.sequences, golden.tokens), mode="ddp", dtype=case.dtype, before=("dp",), parts=RANKS * each)
    recorder.start()

    def step_of(step):
        total = 0
        for number in range(each):
            b = rank * each + number
            labels = golden.labels[step, b:b + 1]
            counted = golden.counted(step)
            if case.bug == "mean-of-means":                              # each process, and each microbatch, takes its own mean
                counted = int((labels != common.IGNORED).sum()) * golden.sequences
            if step == 0:
                recorder.microbatch(sequences=[b], number=number, times=1 / RANKS)
            model.require_backward_grad_sync = number == each - 1
            loss = common.summed_loss(model(input_ids=golden.ids[step, b:b + 1]).logits, labels) / counted
            (loss * RANKS).backward()                               # DDP divides gradients by the number of processes
            total += loss
        return common.summed_over(total)

    common.train(golden, recorder, model, step_of, masters=case.dtype == "fp32")


if __name__ == "__main__":
    common.launch(run, RANKS, bugs=("mean-of-means", "rounded-rotary"))
