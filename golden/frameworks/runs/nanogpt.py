#!/usr/bin/env python3
"""A GPT in the manner of nanoGPT (own_models.py) on one process.  Its golden file is of the preset nanogpt-tiny, whose names are the model's."""
import dataclasses

import torch

import common
import own_models
from orrery_dump import Recorder


def run(golden, out, case):
    fields = {f.name for f in dataclasses.fields(own_models.GPTConfig)}
    model = own_models.GPT(own_models.GPTConfig(**{k: v for k, v in golden.config.items() if k in fields})).to(common.DTYPES[case.dtype])
    if case.bug == "tanh-gelu":
        for block in model.transformer.h:
            block.mlp.gelu = torch.nn.GELU(approximate="tanh")
    recorder = Recorder(model, None, out, batch=(golden.sequences, golden.tokens), golden=golden.path, dtype=case.dtype)
    recorder.load_start().start()

    def step_of(step):
        if step == 0:
            recorder.microbatch()
        loss = common.summed_loss(model(golden.ids[step]), golden.labels[step]) / golden.counted(step)
        loss.backward()
        return loss.detach()

    common.train(golden, recorder, model, step_of, masters=case.dtype == "fp32")


if __name__ == "__main__":
    common.alone(run, bugs=("tanh-gelu",))
