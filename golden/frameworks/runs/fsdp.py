#!/usr/bin/env python3
"""PyTorch's FSDP on two processes, bf16 with fp32 masters; --variant fsdp2: fully_shard, cut by rows; fsdp1: flat shards of each layer."""
import functools

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy

import common
from orrery_dump import Recorder

RANKS = 2


def sharded(model, mesh, dtype, variant):
    if variant == "fsdp1":
        wrap = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={type(model.model.layers[0])})
        return FullyShardedDataParallel(model, auto_wrap_policy=wrap, use_orig_params=True, device_id=torch.device("cpu"),
                                        mixed_precision=MixedPrecision(param_dtype=dtype, reduce_dtype=torch.float32))
    policy = MixedPrecisionPolicy(param_dtype=dtype, reduce_dtype=torch.float32)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh, mp_policy=policy)
    return fully_shard(model, mesh=mesh, mp_policy=policy)


def run(golden, out, case):
    rank, mesh = dist.get_rank(), init_device_mesh("cpu", (RANKS,), mesh_dim_names=("dp",))
    model = sharded(golden.model(), mesh, common.DTYPES[case.dtype], case.variant)
    recorder = Recorder(model, mesh, out, batch=(golden.sequences, golden.tokens), mode=case.variant, dtype=case.dtype)
    recorder.start(computed_in=common.DTYPES[case.dtype])
    mine = slice(rank * golden.sequences // RANKS, (rank + 1) * golden.sequences // RANKS)

    def step_of(step):
        if step == 0:
            recorder.microbatch(sequences=range(mine.start, mine.stop), times=1 / RANKS)
        loss = common.summed_loss(model(input_ids=golden.ids[step, mine]).logits, golden.labels[step, mine]) / golden.counted(step)
        (loss * RANKS).backward()                                   # FSDP divides gradients by the number of processes
        return common.summed_over(loss)

    clip = (lambda _, limit: model.clip_grad_norm_(limit)) if case.variant == "fsdp1" else torch.nn.utils.clip_grad_norm_
    common.train(golden, recorder, model, step_of, clip)


if __name__ == "__main__":
    common.launch(run, RANKS, variants=("fsdp2", "fsdp1"))
