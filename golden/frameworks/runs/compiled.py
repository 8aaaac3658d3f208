#!/usr/bin/env python3
"""transformers' Llama under torch.compile, on one process.

--variant inside: the whole model; graphs end at each hook
--variant borders: each layer, as it is trained; what is inside a layer is not seen
"""
import torch

import common
from orrery_dump import Recorder


def break_gelu(model):
    """A compiled layer computes another function than the model says."""
    model.model.layers[2].mlp.act_fn = torch.nn.GELU()


def run(golden, out, case):
    model, shape = golden.model(common.DTYPES[case.dtype]), (golden.sequences, golden.tokens)
    if case.bug:
        break_gelu(model)
    if case.variant == "borders":
        for i, layer in enumerate(model.model.layers):
            model.model.layers[i] = torch.compile(layer, backend="aot_eager")
    else:
        model = torch.compile(model, backend="aot_eager")
    model(input_ids=golden.ids[0])                                  # as in a run that has begun before it is recorded
    recorder = Recorder(model, None, out, batch=shape, dtype=case.dtype, golden=golden.path, compiled=case.variant)
    recorder.start()

    def step_of(step):
        if step == 0:
            recorder.microbatch()
        loss = common.summed_loss(model(input_ids=golden.ids[step]).logits, golden.labels[step]) / golden.counted(step)
        loss.backward()
        return loss.detach()

    common.train(golden, recorder, model, step_of, masters=False)  # the first pass only: more steps are compiled once more


if __name__ == "__main__":
    common.alone(run, bugs=("other-activation",), variants=("inside", "borders"))
