#!/usr/bin/env python3
"""DeepSpeed's ZeRO on two processes, two microbatches each; --variant names the stage.  bf16 has fp32 masters."""
import os

os.environ.update(DS_ACCELERATOR="cpu")
import common
import deepspeed
import torch
import torch.distributed as dist

from orrery_dump import Recorder

RANKS, MICROBATCHES = 2, 2


def run(golden, out, case):
    rank, stage, accumulated = dist.get_rank(), int(case.variant[-1]), 1 if case.bug == "manual-accumulation" else MICROBATCHES
    model = golden.model()
    engine, optimizer, _, _ = deepspeed.initialize(model=model, optimizer=golden.adamw(model), config={
        "train_micro_batch_size_per_gpu": golden.sequences // RANKS // MICROBATCHES, "gradient_accumulation_steps": accumulated,
        "zero_optimization": {"stage": stage}, "zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False,
        "bf16": {"enabled": case.dtype == "bf16"}, "gradient_clipping": golden.setting("adamw.clip"), "steps_per_print": 10 ** 9})
    recorder = Recorder(engine, ({"dp": RANKS}, {"dp": rank}), out, batch=(golden.sequences, golden.tokens), mode=case.variant, dtype=case.dtype,
                        parts=RANKS * MICROBATCHES)
    recorder.start()
    losses, norms = [], []
    for step in range(len(golden.ids)):
        total = 0
        for number in range(MICROBATCHES):
            b = rank * MICROBATCHES + number
            if step == 0:
                recorder.microbatch(sequences=[b], number=number, times=1 / RANKS)
            engine.set_gradient_accumulation_boundary(accumulated == 1 or number == MICROBATCHES - 1)
            loss = common.summed_loss(engine(input_ids=golden.ids[step, b:b + 1]).logits, golden.labels[step, b:b + 1]) / golden.counted(step)
            total += loss.detach()
            engine.backward(loss * RANKS, scale_wrt_gas=False)      # it divides by the number of processes
        losses.append(common.summed_over(total).item())
        recorder.gradients("grad/" if step == 0 else f"adamw/{step + 1}/grad/")
        recorder.stop()
        engine.step()
        norms.append(float(engine.get_global_grad_norm()))
        recorder.weights("adamw", step=step + 1, last=step + 1 == len(golden.ids))
    recorder.number("loss", losses[0])
    recorder.number("norm", norms[0])
    recorder.numbers("adamw/loss", losses)
    recorder.numbers("adamw/norm", norms)
    recorder.save()


if __name__ == "__main__":
    common.launch(run, RANKS, bugs=("manual-accumulation",), variants=("zero1", "zero2", "zero3"))
