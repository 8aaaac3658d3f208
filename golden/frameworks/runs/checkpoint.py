#!/usr/bin/env python3
"""transformers' Llama whose layers are checkpointed, on one process: all forward passes of two microbatches, then both backward passes.

--variant reentrant, plain: the two implementations of torch.utils.checkpoint; wrapped: CheckpointWrapper, whose prefix is in every name
"""
from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import CheckpointImpl, apply_activation_checkpointing, checkpoint_wrapper

import common
from orrery_dump import Recorder

MICROBATCHES = 2


def checkpointed(model, variant):
    layer = type(model.model.layers[0])
    if variant == "wrapped":
        wrap = lambda m: checkpoint_wrapper(m, checkpoint_impl=CheckpointImpl.NO_REENTRANT)
        apply_activation_checkpointing(model, checkpoint_wrapper_fn=wrap, check_fn=lambda m: isinstance(m, layer))
    else:
        model.gradient_checkpointing_enable({"use_reentrant": variant == "reentrant"})
        model.enable_input_require_grads()
    return model.train()


class Altered:
    """A module that computes something else the second time: as dropout does whose random numbers are not those of the first."""

    def __init__(self, module):
        self.times = 0
        module.register_forward_hook(self, prepend=True)

    def __call__(self, module, given, out):
        self.times += 1
        return out * 1.5 if self.times > MICROBATCHES else out


def run(golden, out, case):
    model = checkpointed(golden.model(common.DTYPES[case.dtype]), case.variant)
    if case.bug:
        Altered(next(m for n, m in model.named_modules() if n.endswith("1.mlp.gate_proj") or n.endswith("1._checkpoint_wrapped_module.mlp.gate_proj")))
    recorder = Recorder(model, None, out, batch=(golden.sequences, golden.tokens), dtype=case.dtype, golden=golden.path, parts=MICROBATCHES)
    recorder.start()

    def step_of(step):
        each, losses = golden.sequences // MICROBATCHES, []
        for m in range(MICROBATCHES):
            mine = slice(m * each, (m + 1) * each)
            if step == 0:
                recorder.microbatch(sequences=range(mine.start, mine.stop), number=m)
            losses.append(common.summed_loss(model(input_ids=golden.ids[step, mine]).logits, golden.labels[step, mine]) / golden.counted(step))
        for loss in losses:
            loss.backward()
        return sum(loss.detach() for loss in losses)

    common.train(golden, recorder, model, step_of, masters=case.dtype == "fp32" and not case.bug)


if __name__ == "__main__":
    common.alone(run, bugs=("recomputed-otherwise",), variants=("plain", "reentrant", "wrapped"))
