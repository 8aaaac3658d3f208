#!/usr/bin/env python3
"""transformers' Trainer on one process: two microbatches a step, its own loss, which shifts the labels, and clipping."""
import torch
import transformers

import common
from orrery_dump import Recorder

MICROBATCHES = 2


class Recorded(transformers.Trainer):
    def training_step(self, model, inputs, num_items_in_batch=None):
        step, number = divmod(self.passes, MICROBATCHES)
        self.passes += 1
        if step == 0:
            each = self.args.per_device_train_batch_size
            self.recorder.microbatch(sequences=range(number * each, (number + 1) * each), number=number)
        loss = super().training_step(model, inputs, num_items_in_batch)
        self.losses[step] += loss.item()
        return loss

    def _clip_grad_norm(self, model):
        step = self.state.global_step
        self.recorder.gradients("grad/" if step == 0 else f"adamw/{step + 1}/grad/")
        self.recorder.stop()
        self.norms.append(float(super()._clip_grad_norm(model)))
        return torch.tensor(self.norms[-1])

    def _get_train_sampler(self, *_):
        return torch.utils.data.SequentialSampler(self.train_dataset)


class AfterStep(transformers.TrainerCallback):
    def on_step_end(self, args, state, control, optimizer=None, **more):
        if self.masters:
            self.recorder.weights("adamw", optimizer, step=state.global_step, last=state.global_step == state.max_steps)


def run(golden, out, case):
    model, masters = golden.model(common.DTYPES[case.dtype]), case.dtype == "fp32"
    recorder = Recorder(model, None, out, batch=(golden.sequences, golden.tokens), dtype=case.dtype, parts=MICROBATCHES)
    recorder.start()
    labels = golden.labels.roll(1, 2)                               # transformers' stand at the token itself
    labels[:, :, 0] = common.IGNORED
    data = [dict(input_ids=i, labels=t) for i, t in zip(golden.ids.flatten(0, 1), labels.flatten(0, 1))]
    after, optimizer = AfterStep(), golden.adamw(model)
    settings = transformers.TrainingArguments(
        output_dir=str(out / "trainer"), use_cpu=True, per_device_train_batch_size=golden.sequences // MICROBATCHES, report_to=[], disable_tqdm=True,
        gradient_accumulation_steps=MICROBATCHES, max_steps=len(golden.ids) if masters else 1, max_grad_norm=golden.setting("adamw.clip"),
        save_strategy="no", logging_strategy="no")
    trainer = Recorded(model=model, args=settings, train_dataset=data, callbacks=[after],
                       optimizers=(optimizer, torch.optim.lr_scheduler.ConstantLR(optimizer, 1.0)))
    trainer.recorder, trainer.passes, trainer.losses, trainer.norms = recorder, 0, [0.0] * len(golden.ids), []
    after.recorder, after.masters = recorder, masters
    if case.bug == "mean-of-means":                                 # as before transformers 4.46: each microbatch has a mean of its own
        trainer.model_accepts_loss_kwargs = False
    trainer.train()
    recorder.number("loss", trainer.losses[0])
    recorder.number("norm", trainer.norms[0])
    if masters:
        recorder.numbers("adamw/loss", trainer.losses)
        recorder.numbers("adamw/norm", trainer.norms)
    recorder.save()


if __name__ == "__main__":
    common.alone(run, bugs=("mean-of-means",))
