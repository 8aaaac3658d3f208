#!/usr/bin/env python3
"""A training script as others write one, with the four lines that record it: those marked below, which frameworks.md shows."""
import torch

import common
from orrery_dump import Recorder                                                                    # 1


def train(model, batches, optimizer, golden, folder, bug):
    recorder = Recorder(model, None, folder, batch=batches[0][0].shape, golden=golden).start()      # 2
    for ids, labels in batches:
        recorder.microbatch()                                                                       # 3
        logits = model(input_ids=ids).logits
        if bug == "labels-shifted-twice":
            logits, labels = logits[:, :-1], labels[:, 1:]
        loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten())
        loss.backward()
        recorder.finish(loss)                                                                       # 4
        optimizer.step()
        optimizer.zero_grad()


def run(golden, out, case):
    model = golden.model(common.DTYPES[case.dtype])
    train(model, list(zip(golden.ids, golden.labels)), golden.adamw(model), golden.path, out, case.bug)


if __name__ == "__main__":
    common.alone(run, bugs=("labels-shifted-twice",))
