#!/usr/bin/env python3
"""FSDP2 over tensor and sequence parallelism on 2 x 2 processes: a weight is cut by tp, then each part by dp (_StridedShard)."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import common
from orrery_dump import Recorder
from tp_sp import parallel

RANKS = 4


def run(golden, out, case):
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    model = parallel(golden.model(), mesh["tp"])
    policy = MixedPrecisionPolicy(param_dtype=common.DTYPES[case.dtype], reduce_dtype=torch.float32)
    for layer in model.model.layers:
        fully_shard(layer, mesh=mesh["dp"], mp_policy=policy)
    fully_shard(model, mesh=mesh["dp"], mp_policy=policy)
    recorder = Recorder(model, mesh, out, batch=(golden.sequences, golden.tokens), mode=("fsdp2", "tp", "sp"), dtype=case.dtype)
    recorder.start(computed_in=common.DTYPES[case.dtype])
    at, half = mesh.get_coordinate()[0], golden.sequences // 2
    mine, positions = slice(at * half, (at + 1) * half), torch.arange(golden.tokens)[None]

    def step_of(step):
        if step == 0:
            recorder.microbatch(sequences=range(mine.start, mine.stop), times=1 / 2)
        logits = model(input_ids=golden.ids[step, mine], position_ids=positions).logits
        loss = common.summed_loss(logits, golden.labels[step, mine]) / golden.counted(step)
        (loss * 2).backward()                                       # FSDP2 divides gradients by the size of dp
        return common.summed_over(loss, mesh["dp"].get_group())

    common.train(golden, recorder, model, step_of)


if __name__ == "__main__":
    common.launch(run, RANKS)
