#!/usr/bin/env python3
"""Megatron-Core's GPTModel on two processes: tensor and sequence parallelism, [s, b, h], interleaved queries, keys and values."""
import megatron_on_cpu
import torch
import torch.distributed as dist
from megatron.core import parallel_state
from megatron.core.distributed import DistributedDataParallelConfig
from megatron.core.distributed.finalize_model_grads import _allreduce_non_tensor_model_parallel_grads
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
from megatron.core.models.gpt.gpt_model import GPTModel
from megatron.core.transformer import TransformerConfig, transformer_block

import common
from orrery_dump import Recorder
from orrery_dump.names import megatron

RANKS = 2


def build(golden, dtype):
    c = golden.config
    heads = c["num_attention_heads"]
    config = TransformerConfig(
        num_layers=c["num_hidden_layers"], hidden_size=c["hidden_size"], num_attention_heads=heads, num_query_groups=c["num_key_value_heads"],
        kv_channels=c.get("head_dim") or c["hidden_size"] // heads, ffn_hidden_size=c["intermediate_size"], gated_linear_unit=True,
        activation_func=torch.nn.functional.silu, normalization="RMSNorm", add_bias_linear=False, layernorm_epsilon=c["rms_norm_eps"],
        use_cpu_initialization=True, tensor_model_parallel_size=RANKS, sequence_parallel=True, hidden_dropout=0.0, attention_dropout=0.0,
        params_dtype=dtype, bf16=dtype == torch.bfloat16, bias_activation_fusion=False, masked_softmax_fusion=False, apply_rope_fusion=False,
        gradient_accumulation_fusion=False, persist_layer_norm=False, pipeline_dtype=dtype)
    transformer_block.LayerNormImpl = megatron_on_cpu.Norm
    return GPTModel(config, get_gpt_layer_local_spec(normalization="RMSNorm"), vocab_size=c["vocab_size"], max_sequence_length=golden.tokens,
                    position_embedding_type="rope", rotary_base=c["rope_theta"], share_embeddings_and_output_weights=False), config


def run(golden, out, case):
    dtype, rank = common.DTYPES[case.dtype], dist.get_rank()
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=RANKS)
    model, config = build(golden, dtype)
    names = megatron(golden.config)
    recorder = Recorder(model, ({"tp": RANKS}, {"tp": rank}), out, batch=(golden.sequences, golden.tokens), mode=("tp", "sp"), names=names,
                        dtype=case.dtype)
    for name, p in model.named_parameters():                        # each process takes its part, where Megatron's attributes say it is
        place = names.parameters[name]
        (rows, cols), _, _ = recorder._cut_parameter(name, place, p, p)
        p.data = golden.part(place)[rows][:, cols].reshape(p.shape).to(dtype)
    recorder.start()
    for i, layer in enumerate(model.decoder.layers):                # queries, keys and values after rotary positions
        layer.self_attention.core_attention.register_forward_pre_hook(
            lambda _m, given, i=i: recorder.see(f"h.{i}.attn.rotated", heads=given[:3], order="sbhd"))
    recorder.microbatch()
    labels = golden.labels[0]
    losses = model(golden.ids[0], torch.arange(golden.tokens)[None], None, labels=labels.clamp(min=0))
    loss = (losses.float() * (labels != common.IGNORED)).sum() / golden.counted()
    loss.backward()
    if case.bug != "norm-gradients-not-summed":
        model.ddp_config = DistributedDataParallelConfig()
        _allreduce_non_tensor_model_parallel_grads([model], config, parallel_state.get_tensor_model_parallel_group())
    recorder.gradients()
    recorder.number("loss", loss)
    recorder.save()


if __name__ == "__main__":
    common.launch(run, RANKS, bugs=("norm-gradients-not-summed",))
