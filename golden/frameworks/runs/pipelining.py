#!/usr/bin/env python3
"""torch.distributed.pipelining on two processes, four microbatches; --variant names the schedule."""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B, ScheduleZBVZeroBubble

import common
from orrery_dump import Recorder
from orrery_dump.names import llama

RANKS, MICROBATCHES = 2, 4
STAGES = {"1f1b": lambda r: [r], "interleaved": lambda r: [r, r + RANKS], "zbv": lambda r: [r, 2 * RANKS - 1 - r]}
SCHEDULES = {"1f1b": Schedule1F1B, "interleaved": ScheduleInterleaved1F1B, "zbv": ScheduleZBVZeroBubble}


class Stage(torch.nn.Module):
    """Some layers of a Llama; their names begin at 0 again."""

    def __init__(self, whole, layers, first, last):
        super().__init__()
        self.config, self.rotary = whole.config, whole.model.rotary_emb
        self.layers = torch.nn.ModuleList(whole.model.layers[i] for i in layers)
        self.embed_tokens = whole.model.embed_tokens if first else None
        self.norm, self.lm_head = (whole.model.norm, whole.lm_head) if last else (None, None)

    def forward(self, x):
        x = self.embed_tokens(x) if self.embed_tokens else x
        turns = self.rotary(x, torch.arange(x.shape[1])[None])
        for layer in self.layers:
            x = layer(x, position_embeddings=turns)
        return self.lm_head(self.norm(x)) if self.lm_head else x


def run(golden, out, case):
    rank, mesh = dist.get_rank(), init_device_mesh("cpu", (RANKS,), mesh_dim_names=("pp",))
    numbers, count = STAGES[case.variant](rank), len(STAGES[case.variant](rank)) * RANKS
    whole, layers = golden.model(common.DTYPES[case.dtype]), golden.config["num_hidden_layers"]
    stages, recorder, recorders = [], None, []
    for n in numbers:
        mine = range(n * layers // count, (n + 1) * layers // count)
        module = Stage(whole, mine, n == 0, n == count - 1)
        names = llama(golden.config, layers=mine, offset=mine.start, prefix="")
        recorder = Recorder(module, mesh, out, batch=(golden.sequences, golden.tokens), mode="pp", names=names, dtype=case.dtype, into=recorder,
                            parts=MICROBATCHES)
        recorder.start()
        recorders.append(recorder)
        stages.append(PipelineStage(module, n, count, torch.device("cpu")))
    for stage, own in zip(stages, recorders):
        stage.forward_one_chunk = announced(stage.forward_one_chunk, own, golden.sequences // MICROBATCHES)
    loss_of = lambda logits, labels: common.summed_loss(logits, labels) / golden.counted()
    schedule = SCHEDULES[case.variant](stages if len(stages) > 1 or case.variant != "1f1b" else stages[0], MICROBATCHES, loss_fn=loss_of, scale_grads=False)
    losses = []
    has = [s for s in stages if s.is_last]
    schedule.step(*([golden.ids[0]] if 0 in numbers else []), target=golden.labels[0] if has else None, losses=losses if has else None)
    for own in recorders:
        own.gradients()
    if has:
        recorder.number("loss", sum(losses))
    recorder.save()


def announced(forward, recorder, each):
    def forward_one_chunk(number, *args, **more):
        recorder.microbatch(sequences=range(number * each, (number + 1) * each), number=number)
        return forward(number, *args, **more)
    return forward_one_chunk


if __name__ == "__main__":
    common.launch(run, RANKS, variants=tuple(SCHEDULES))
