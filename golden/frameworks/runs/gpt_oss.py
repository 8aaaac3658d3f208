#!/usr/bin/env python3
"""GPT-OSS of transformers on one process, with what its experts compute; each of its tensors of all experts is many of ours.

    golden/frameworks/runs/gpt_oss.py golden/gptoss-windows.safetensors dump && ./orrery check golden/gptoss-windows.safetensors dump/fp32
"""
import common
import torch
import transformers

from orrery_dump import Recorder, names


def model_of(golden, dtype):
    config = {k: v for k, v in golden.config.items() if k not in ("architectures", "model_type", "router_z_loss_coef")}
    rope = dict(config.pop("rope_scaling"), rope_theta=config.pop("rope_theta"))
    model = transformers.GptOssForCausalLM(transformers.GptOssConfig(**config, rope_parameters=rope, use_cache=False, attn_implementation="eager"))
    model.config._experts_implementation = "eager"
    return golden.started(model, names.of_config(golden.config).parameters, dtype)


def run(golden, out, case):
    model = model_of(golden, common.DTYPES[case.dtype])
    recorder = Recorder(model, None, out, batch=(golden.sequences, golden.tokens), dtype=case.dtype)
    recorder.start()
    recorder.microbatch()

    def step_of(step):
        result = model(input_ids=golden.ids[step], output_router_logits=True)
        z = (torch.logsumexp(torch.cat([x.reshape(-1, x.shape[-1]) for x in result.router_logits]), -1) ** 2).mean()
        loss = common.summed_loss(result.logits, golden.labels[step]) / golden.counted(step)
        loss = loss + golden.config["router_aux_loss_coef"] * result.aux_loss + golden.config["router_z_loss_coef"] * z
        loss.backward()
        if step == 0:
            recorder.number("balance_loss", result.aux_loss.detach())
            recorder.number("z_loss", z.detach())
        return loss.detach()

    common.train(golden, recorder, model, step_of, masters=case.dtype == "fp32")


if __name__ == "__main__":
    common.alone(run)
