#!/usr/bin/env python3
"""peft's LoRA on a Llama of transformers, one process: A and B are trained, and nothing is merged."""
import peft
import torch

import common
from orrery_dump import Recorder


VARIANTS = {"plain": dict(r=2, target_modules=["q_proj", "v_proj", "down_proj"], modules_to_save=["lm_head"]),
            "rslora": dict(r=3, target_modules="all-linear", use_rslora=True)}


def adapted(golden, dtype, variant):
    """A base that gives the golden file's weights once its adapters are added, and adapters that are not zero."""
    model = peft.get_peft_model(golden.model(), peft.LoraConfig(lora_alpha=8, lora_dropout=0.0, **VARIANTS[variant]))
    for m in (m for m in model.modules() if hasattr(m, "lora_A") and hasattr(m, "base_layer")):
        torch.nn.init.normal_(m.lora_B["default"].weight, std=0.1)
        m.base_layer.weight.data -= m.get_delta_weight("default")
    for p in model.parameters():                                    # not model.to(): that rounds the frequencies of positions, too
        p.data = p.data.to(dtype)
    return model


def run(golden, out, case):
    model = adapted(golden, common.DTYPES[case.dtype], case.variant)
    for m in (m for m in model.modules() if case.bug == "wrong-scaling" and isinstance(getattr(m, "scaling", None), dict)):
        m.scaling["default"] = 8.0
    recorder = Recorder(model, None, out, batch=(golden.sequences, golden.tokens), golden=golden.path, dtype=case.dtype).start()

    def step_of(step):
        if step == 0:
            recorder.microbatch()
        loss = common.summed_loss(model(input_ids=golden.ids[step]).logits, golden.labels[step]) / golden.counted(step)
        loss.backward()
        for name, p in model.named_parameters():
            if case.bug == "gradient-transposed" and "layers.1.self_attn.q_proj.lora_A" in name:
                p.grad = p.grad.T.reshape(p.shape).contiguous()
            if case.bug == "gradient-lost" and "layers.1.self_attn.q_proj.lora_A" in name:
                p.grad.zero_()
            if case.bug == "base-moved" and step == 1 and name.endswith("layers.1.self_attn.o_proj.weight"):
                p.data *= 1 - 1e-4
        return loss.detach()

    common.train(golden, recorder, model, step_of, masters=case.dtype == "fp32" and case.bug in (None, "base-moved"))


if __name__ == "__main__":
    common.alone(run, bugs=("wrong-scaling", "gradient-transposed", "gradient-lost", "base-moved"), variants=tuple(VARIANTS))
