#!/usr/bin/env python3
"""PyTorch's fully_shard (FSDP2) on two processes: weights, gradients and states are cut by rows; bf16 has fp32 masters."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import common
from orrery_dump import Recorder

RANKS = 2


def run(golden, out, case):
    rank, mesh = dist.get_rank(), init_device_mesh("cpu", (RANKS,), mesh_dim_names=("dp",))
    model = golden.model()
    policy = MixedPrecisionPolicy(param_dtype=common.DTYPES[case.dtype], reduce_dtype=torch.float32)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)
    recorder = Recorder(model, mesh, out, batch=(golden.sequences, golden.tokens), mode="fsdp2", dtype=case.dtype)
    recorder.start(computed_in=common.DTYPES[case.dtype])
    mine = slice(rank * golden.sequences // RANKS, (rank + 1) * golden.sequences // RANKS)

    def step_of(step):
        if step == 0:
            recorder.microbatch(sequences=range(mine.start, mine.stop), times=1 / RANKS)
        loss = common.summed_loss(model(input_ids=golden.ids[step, mine]).logits, golden.labels[step, mine]) / golden.counted(step)
        (loss * RANKS).backward()                                   # FSDP2 divides gradients by the number of processes
        return common.summed_over(loss)

    common.train(golden, recorder, model, step_of)


if __name__ == "__main__":
    common.launch(run, RANKS)
