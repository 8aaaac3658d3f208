#!/usr/bin/env python3
"""GPT-2 of transformers on one process, as it is or with one gradient broken: a program under test, for trying `orrery check`.

    golden/frameworks/runs/gpt2.py golden/gpt2-tied.safetensors dump && ./orrery check golden/gpt2-tied.safetensors dump/fp32
    golden/frameworks/runs/gpt2.py golden/gpt2-tied.safetensors dump --dtype bf16 --break h.1.attn.heads --factor 1.1
"""
import common

from orrery_dump import Recorder


def options(parser):
    parser.add_argument("--break", dest="broken", metavar="NAME", help="the activation whose gradient is to be wrong")
    parser.add_argument("--factor", type=float, default=2.0, help="by which factor")


def break_gradient(recorder, name, factor):
    """The gradient of this tensor comes out times a factor, for all before it in the model."""
    watch = next(w for w in recorder.names.watches if w.name == name)
    module = recorder.modules[watch.module]
    hook = lambda t: (t[0] if isinstance(t, tuple) else t).register_hook(lambda g: factor * g)
    if watch.side == "output":
        module.register_forward_hook(lambda _m, _i, out: hook(out) and None, prepend=True)
    else:
        module.register_forward_pre_hook(lambda _m, given: hook(given) and None, prepend=True)


def run(golden, out, case):
    model = golden.model(common.DTYPES[case.dtype])
    recorder = Recorder(model, None, out, batch=(golden.sequences, golden.tokens), dtype=case.dtype)
    if case.broken:
        break_gradient(recorder, case.broken, case.factor)
    recorder.start()

    def step_of(step):
        if step == 0:
            recorder.microbatch()
        loss = common.summed_loss(model(input_ids=golden.ids[step]).logits, golden.labels[step]) / golden.counted(step)
        loss.backward()
        return loss.detach()

    common.train(golden, recorder, model, step_of, masters=case.dtype == "fp32" and not case.broken)


if __name__ == "__main__":
    common.alone(run, more=options)
