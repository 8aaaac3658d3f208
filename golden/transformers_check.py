#!/usr/bin/env python3
"""Orrery and Hugging Face transformers on the same folder: do they read each other's files, and agree on loss, logits and gradients?

    golden/transformers_check.py            random models of transformers, in one file and in several
    golden/transformers_check.py DIR ...    also folders written by `orrery train --save DIR` or `orrery dump --save DIR`

Needs numpy, PyTorch and transformers (see golden/README.md), and ./orrery, which `make` builds.  transformers writes models of
all families with random weights, of shapes that no golden file has.  `orrery dump` loads each folder and computes a batch
in fp64; autograd does the same on what transformers loads from it.  Then transformers loads what orrery saved.  A GPT-2 is also
trained a step by `orrery train`.  The status is 0 if everything agrees within rounding, else 1.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import numpy as np
    import torch
    import transformers
except ImportError as missing:
    sys.exit(f"transformers_check.py: {missing}; golden/README.md says what to install")

import families
import tensor_file

ROOT = pathlib.Path(__file__).resolve().parent.parent
SEED, SEQUENCES, TOKENS = 5, 3, 17
ROUNDING = 1e-12                                # relative, norm over norm: what fp64 may do to a loss, a gradient, the logits
FAMILIES = {"gpt2": families.GPT2(), "llama": families.Llama(), "mixtral": families.Mixtral(), "gptj": families.GPTJ(),
            "qwen2": families.Qwen2(), "qwen3": families.Qwen3(), "gemma": families.Gemma(), "gemma2": families.Gemma2(), "gemma3_text": families.Gemma3(),
            "mistral": families.Mistral(), "qwen3_moe": families.Qwen3Moe(),
            "phi3": families.Phi3(), "olmo2": families.Olmo2(), "deepseek_v2": families.DeepseekV2(),
            "deepseek_v3": families.DeepseekV3(), "gpt_oss": families.GptOss(),
            "olmoe": families.Olmoe(), "qwen2_moe": families.Qwen2Moe(), "glm4_moe": families.Glm4Moe(), "olmo3": families.Olmo3(),
            "granite": families.Granite(), "smollm3": families.SmolLM3(), "starcoder2": families.Starcoder2(), "nemotron": families.Nemotron(),
            "gpt_neox": families.GPTNeoX()}
VERSION = tuple(int(number) for number in transformers.__version__.split(".")[:2])
LONG = dict(type="longrope", short_factor=[1.0, 1.25, 1.5], long_factor=[1.0, 3.5, 9.25])
LLAMA3 = dict(rope_type="llama3", factor=4.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=16)


# ---- what this version can ----------------------------------------------------------------------------------------------

GROUPED, ROTARY, SCALING, MIXTURE, LLAMA3_SCALING, PARAMETERS = (4, 31), (4, 33), (4, 31), (4, 36), (4, 43), (5, 0)
BIASES, WIDE_HEADS, QWEN3, LAYER_TYPES, PHI3, GEMMA, OLMO2, GEMMA2, GEMMA3 = (4, 41), (4, 46), (4, 51), (4, 53), (4, 49), (4, 39), (4, 47), (4, 53), (4, 53)


def written(model, folder, largest):
    """transformers 5 writes safetensors only, and has no word for it."""
    safe = {} if VERSION >= (5, 0) else dict(safe_serialization=True)
    model.save_pretrained(folder, max_shard_size=largest, **safe)


def how_to_load():
    """In fp64, each operation by itself: the fused ones round otherwise, or know fp32 only."""
    eager = {"attn_implementation": "eager"} if VERSION >= (4, 36) else {}
    if VERSION >= (5, 0):
        return dict(eager, dtype=torch.float64, experts_implementation="eager")
    return dict(eager, torch_dtype=torch.float64)


# ---- random models -------------------------------------------------------------------------------------------------------

def gpt2(tied):
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=259, n_positions=32, n_embd=30, n_layer=3, n_head=5, n_inner=77, initializer_range=0.2, tie_word_embeddings=tied,
        bos_token_id=0, eos_token_id=0))


def llama(tied, **more):
    grouped = dict(num_key_value_heads=5) if VERSION >= GROUPED else {}
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(
        vocab_size=259, max_position_embeddings=32, hidden_size=40, num_hidden_layers=3, num_attention_heads=10, **grouped,
        intermediate_size=77, initializer_range=0.2, rms_norm_eps=1e-5, tie_word_embeddings=tied, **more))


def mixtral(tied, **more):
    return transformers.MixtralForCausalLM(transformers.MixtralConfig(
        vocab_size=259, max_position_embeddings=32, hidden_size=28, num_hidden_layers=2, num_attention_heads=7, num_key_value_heads=1,
        intermediate_size=45, num_local_experts=6, num_experts_per_tok=2, initializer_range=0.2, tie_word_embeddings=tied,
        output_router_logits=True, router_aux_loss_coef=0.03, **more))


def mistral(tied, **more):
    return transformers.MistralForCausalLM(transformers.MistralConfig(
        vocab_size=259, max_position_embeddings=32, hidden_size=40, num_hidden_layers=3, num_attention_heads=10, num_key_value_heads=5,
        head_dim=6, intermediate_size=77, initializer_range=0.2, tie_word_embeddings=tied, **more))


def olmo2(tied, **more):
    return transformers.Olmo2ForCausalLM(transformers.Olmo2Config(
        vocab_size=259, max_position_embeddings=32, hidden_size=40, num_hidden_layers=2, num_attention_heads=10, num_key_value_heads=5,
        intermediate_size=77, initializer_range=0.2, tie_word_embeddings=tied, pad_token_id=None, eos_token_id=2, **more))


def phi3(tied, **more):
    return transformers.Phi3ForCausalLM(transformers.Phi3Config(
        vocab_size=259, hidden_size=60, num_hidden_layers=2, num_attention_heads=10, num_key_value_heads=5, intermediate_size=77,
        initializer_range=0.2, tie_word_embeddings=tied, pad_token_id=None, bos_token_id=1, eos_token_id=2, **more))


def qwen2(tied, **more):
    return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(
        vocab_size=259, max_position_embeddings=32, hidden_size=40, num_hidden_layers=3, num_attention_heads=10, num_key_value_heads=5,
        intermediate_size=77, initializer_range=0.2, tie_word_embeddings=tied, **more))


def qwen3(tied, **more):
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(
        vocab_size=259, max_position_embeddings=32, hidden_size=40, num_hidden_layers=3, num_attention_heads=10, num_key_value_heads=5,
        head_dim=6, intermediate_size=77, initializer_range=0.2, rms_norm_eps=1e-5, tie_word_embeddings=tied, **more))


def qwen3_moe(tied, **more):
    return transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(
        vocab_size=259, max_position_embeddings=32, hidden_size=40, num_hidden_layers=3, num_attention_heads=10, num_key_value_heads=5,
        head_dim=6, intermediate_size=77, moe_intermediate_size=23, num_experts=6, num_experts_per_tok=2, initializer_range=0.2,
        rms_norm_eps=1e-5, tie_word_embeddings=tied, output_router_logits=True, router_aux_loss_coef=0.03, **more))


def olmoe(tied, **more):
    return transformers.OlmoeForCausalLM(transformers.OlmoeConfig(
        vocab_size=259, max_position_embeddings=32, hidden_size=40, num_hidden_layers=2, num_attention_heads=10, num_key_value_heads=5,
        intermediate_size=23, num_experts=6, num_experts_per_tok=2, initializer_range=0.2, tie_word_embeddings=tied, pad_token_id=None,
        eos_token_id=2, output_router_logits=True, router_aux_loss_coef=0.03, **more))


def qwen2_moe(tied, **more):
    return transformers.Qwen2MoeForCausalLM(transformers.Qwen2MoeConfig(
        vocab_size=259, max_position_embeddings=32, hidden_size=40, num_hidden_layers=3, num_attention_heads=10, num_key_value_heads=5,
        intermediate_size=77, moe_intermediate_size=23, shared_expert_intermediate_size=31, num_experts=6, num_experts_per_tok=2,
        initializer_range=0.2, tie_word_embeddings=tied, output_router_logits=True, router_aux_loss_coef=0.03, **more))


def glm4_moe(tied, **more):
    model = transformers.Glm4MoeForCausalLM(transformers.Glm4MoeConfig(
        vocab_size=259, max_position_embeddings=32, hidden_size=40, num_hidden_layers=3, num_attention_heads=10, num_key_value_heads=5, head_dim=8,
        intermediate_size=77, moe_intermediate_size=23, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2, initializer_range=0.2,
        tie_word_embeddings=tied, first_k_dense_replace=1, num_mtp_layers=0, **more))
    for layer in model.model.layers[1:]:
        layer.mlp.gate.e_score_correction_bias.copy_(0.1 * torch.randn(6))
    return model


def olmo3(tied, **more):
    return transformers.Olmo3ForCausalLM(transformers.Olmo3Config(
        vocab_size=259, max_position_embeddings=32, hidden_size=40, num_hidden_layers=4, num_attention_heads=10, num_key_value_heads=5,
        intermediate_size=77, initializer_range=0.2, sliding_window=5, tie_word_embeddings=tied, pad_token_id=None, eos_token_id=2, **more))


def granite(tied, **more):
    return transformers.GraniteForCausalLM(transformers.GraniteConfig(
        vocab_size=259, max_position_embeddings=32, hidden_size=40, num_hidden_layers=3, num_attention_heads=10, num_key_value_heads=5,
        intermediate_size=77, initializer_range=0.2, tie_word_embeddings=tied, pad_token_id=None, **more))


def smollm3(tied, **more):
    return transformers.SmolLM3ForCausalLM(transformers.SmolLM3Config(
        vocab_size=259, max_position_embeddings=32, hidden_size=40, num_hidden_layers=4, num_attention_heads=10, num_key_value_heads=5,
        intermediate_size=77, initializer_range=0.2, tie_word_embeddings=tied, pad_token_id=None, bos_token_id=1, eos_token_id=2, **more))


def starcoder2(tied, **more):
    return transformers.Starcoder2ForCausalLM(transformers.Starcoder2Config(
        vocab_size=259, max_position_embeddings=32, hidden_size=40, num_hidden_layers=3, num_attention_heads=10, num_key_value_heads=5,
        intermediate_size=77, initializer_range=0.2, tie_word_embeddings=tied, bos_token_id=1, eos_token_id=2, **more))


def nemotron(tied, **more):
    return transformers.NemotronForCausalLM(transformers.NemotronConfig(
        vocab_size=259, max_position_embeddings=32, hidden_size=40, num_hidden_layers=3, num_attention_heads=10, num_key_value_heads=5, head_dim=8,
        intermediate_size=77, initializer_range=0.2, tie_word_embeddings=tied, **more))


def gpt_neox(tied, **more):
    return transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(
        vocab_size=259, max_position_embeddings=32, hidden_size=40, num_hidden_layers=3, num_attention_heads=5, intermediate_size=77,
        initializer_range=0.2, tie_word_embeddings=tied, bos_token_id=0, eos_token_id=0, **more))


def gemma(**more):
    return transformers.GemmaForCausalLM(transformers.GemmaConfig(
        vocab_size=259, max_position_embeddings=32, hidden_size=40, num_hidden_layers=3, num_attention_heads=10, num_key_value_heads=5,
        head_dim=6, intermediate_size=77, initializer_range=0.2, rms_norm_eps=1e-5, **more))


def deepseek_v2(tied, **more):
    return transformers.DeepseekV2ForCausalLM(transformers.DeepseekV2Config(
        vocab_size=259, max_position_embeddings=32, hidden_size=40, num_hidden_layers=3, num_attention_heads=5, intermediate_size=77,
        moe_intermediate_size=23, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2, kv_lora_rank=10, qk_nope_head_dim=6,
        qk_rope_head_dim=4, v_head_dim=7, initializer_range=0.2, rms_norm_eps=1e-5, tie_word_embeddings=tied, first_k_dense_replace=1,
        **more))


def gemma2(**more):
    return transformers.Gemma2ForCausalLM(transformers.Gemma2Config(
        vocab_size=259, max_position_embeddings=32, hidden_size=40, num_hidden_layers=3, num_attention_heads=10, num_key_value_heads=5,
        head_dim=6, intermediate_size=77, initializer_range=0.2, sliding_window=5, pad_token_id=None, **more))


def gemma3(**more):
    return transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(
        vocab_size=259, max_position_embeddings=32, hidden_size=40, num_hidden_layers=3, num_attention_heads=10, num_key_value_heads=5,
        head_dim=6, intermediate_size=77, initializer_range=0.2, sliding_window=5, pad_token_id=None, **more))


def deepseek_v3(tied, **more):
    model = transformers.DeepseekV3ForCausalLM(transformers.DeepseekV3Config(
        vocab_size=259, max_position_embeddings=32, hidden_size=40, num_hidden_layers=3, num_attention_heads=5, num_key_value_heads=5, intermediate_size=77,
        moe_intermediate_size=23, n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2, kv_lora_rank=10, qk_nope_head_dim=6,
        qk_rope_head_dim=4, v_head_dim=7, initializer_range=0.2, rms_norm_eps=1e-5, tie_word_embeddings=tied, first_k_dense_replace=1,
        bos_token_id=None, eos_token_id=None, **more))
    with torch.no_grad():
        for name, bias in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                bias.normal_(0, 0.1)
    return model


def gpt_oss(tied, **more):
    return transformers.GptOssForCausalLM(transformers.GptOssConfig(
        vocab_size=259, max_position_embeddings=64, hidden_size=40, num_hidden_layers=3, num_attention_heads=10, num_key_value_heads=5, head_dim=6,
        intermediate_size=23, num_local_experts=6, num_experts_per_tok=2, initializer_range=0.2, sliding_window=5, tie_word_embeddings=tied,
        output_router_logits=True, router_aux_loss_coef=0.03, pad_token_id=None, eos_token_id=2, **more))


def gptj(**more):
    return transformers.GPTJForCausalLM(transformers.GPTJConfig(
        vocab_size=259, n_positions=32, n_embd=40, n_layer=3, n_head=5, rotary_dim=6, initializer_range=0.2, bos_token_id=0,
        eos_token_id=0, **more))


CASES = {                                       # what: the first version that can, how it is made, the largest file, its numbers
    "GPT-2, tied": ((4, 0), lambda: gpt2(True), "1GB", torch.float32),
    "GPT-2, untied, several files": ((4, 0), lambda: gpt2(False), "60KB", torch.float32),
    "GPT-2 in fp16": ((4, 0), lambda: gpt2(True), "1GB", torch.float16),
    "Llama, untied": ((4, 28), lambda: llama(False), "1GB", torch.float32),
    "Llama, tied, bf16, several files": ((4, 28), lambda: llama(True), "30KB", torch.bfloat16),
    "Llama, another theta": (ROTARY, lambda: llama(False, rope_theta=50.0), "1GB", torch.float32),
    "Llama, linear scaling": (SCALING, lambda: llama(False, rope_scaling=dict(type="linear", factor=2.5)), "1GB", torch.float32),
    "Llama, dynamic scaling": (SCALING, lambda: llama(False, rope_scaling=dict(type="dynamic", factor=2.5)), "1GB", torch.float32),
    "Llama, Llama-3 scaling": (LLAMA3_SCALING, lambda: llama(False, rope_theta=500.0, rope_scaling=LLAMA3), "1GB", torch.float32),
    "Llama, rope_parameters": (PARAMETERS, lambda: llama(False, rope_parameters=dict(rope_theta=50.0, rope_type="linear", factor=1.5)),
                               "1GB", torch.float32),
    "Mixtral, untied, several files": (MIXTURE, lambda: mixtral(False), "60KB", torch.float32),
    "Mixtral, tied, another theta": (MIXTURE, lambda: mixtral(True, rope_theta=50.0), "1GB", torch.float64),
    "Llama, wide heads": (WIDE_HEADS, lambda: llama(False, head_dim=6), "1GB", torch.float32),
    "Llama, biases": (BIASES, lambda: llama(False, attention_bias=True, mlp_bias=True), "30KB", torch.float32),
    "Qwen3, biases of attention": (QWEN3, lambda: qwen3(False, attention_bias=True), "1GB", torch.float32),
    "Qwen3, untied, several files": (QWEN3, lambda: qwen3(False), "30KB", torch.float32),
    "Qwen3, tied, bf16": (QWEN3, lambda: qwen3(True), "1GB", torch.bfloat16),
    "Mistral, windows, several files": (WIDE_HEADS, lambda: mistral(False, sliding_window=5), "30KB", torch.float32),
    "Mistral, no windows, tied": (WIDE_HEADS, lambda: mistral(True, sliding_window=None), "1GB", torch.float32),
    "Mixtral, windows": (MIXTURE, lambda: mixtral(True, sliding_window=7), "1GB", torch.float32),
    "Qwen2, windows from a layer on": (LAYER_TYPES, lambda: qwen2(True, use_sliding_window=True, sliding_window=4, max_window_layers=2),
                                       "1GB", torch.float32),
    "Qwen3, windows by a list": (LAYER_TYPES, lambda: qwen3(False, use_sliding_window=True, sliding_window=6, layer_types=[
        "sliding_attention", "full_attention", "sliding_attention"]), "1GB", torch.float32),
    "Qwen3-MoE, the second layer dense, several files": (PARAMETERS, lambda: qwen3_moe(False, mlp_only_layers=[1]), "60KB", torch.float32),
    "Qwen3-MoE, tied, normalized, biases of attention": (PARAMETERS, lambda: qwen3_moe(
        True, norm_topk_prob=True, decoder_sparse_step=2, attention_bias=True), "1GB", torch.bfloat16),
    "OLMo 2, several files": (OLMO2, lambda: olmo2(False), "60KB", torch.float32),
    "OLMo 2, tied, biases of attention, wide heads": (OLMO2, lambda: olmo2(True, attention_bias=True, head_dim=6), "1GB", torch.bfloat16),
    "Phi-3, part of a head turned": (PHI3, lambda: phi3(False, max_position_embeddings=32, partial_rotary_factor=0.67, sliding_window=9), "60KB",
                                     torch.float32),
    "Phi-3, LongRoPE, short": (PHI3, lambda: phi3(True, max_position_embeddings=96, original_max_position_embeddings=24, rope_scaling=LONG), "1GB",
                               torch.float32),
    "Phi-3, LongRoPE, long": (PHI3, lambda: phi3(False, max_position_embeddings=96, original_max_position_embeddings=12, rope_scaling=LONG), "1GB",
                              torch.bfloat16),
    "Llama, LongRoPE": (PARAMETERS, lambda: llama(False, head_dim=6, rope_parameters=dict(
        rope_type="longrope", rope_theta=300.0, short_factor=[1.0, 1.2, 1.4], long_factor=[1.0, 2.2, 4.4], attention_factor=1.3,
        original_max_position_embeddings=12)), "1GB", torch.float32),
    "Gemma, tied, several files": (GEMMA, lambda: gemma(pad_token_id=None), "30KB", torch.float32),
    "Gemma, untied, bf16, biases of attention": (GEMMA, lambda: gemma(pad_token_id=None, tie_word_embeddings=False, attention_bias=True),
                                                 "1GB", torch.bfloat16),
    "Gemma 2, tied, capped, several files": (GEMMA2, lambda: gemma2(
        query_pre_attn_scalar=7, attn_logit_softcapping=1.5, final_logit_softcapping=2.5), "60KB", torch.float32),
    "Gemma 2, untied, not capped, bf16, biases of attention": (GEMMA2, lambda: gemma2(
        attn_logit_softcapping=None, final_logit_softcapping=None, tie_word_embeddings=False, attention_bias=True), "1GB", torch.bfloat16),
    "Gemma 3, tied, linear scaling, several files": (GEMMA3, lambda: gemma3(
        query_pre_attn_scalar=7, sliding_window_pattern=3, rope_theta=700.0, rope_local_base_freq=30.0,
        rope_scaling=dict(rope_type="linear", factor=3.0)), "60KB", torch.float32),
    "Gemma 3, untied, capped logits, bf16": (GEMMA3, lambda: gemma3(
        final_logit_softcapping=2.5, sliding_window_pattern=2, tie_word_embeddings=False), "1GB", torch.bfloat16),
    "DeepSeek-V2, groups, several files": (PARAMETERS, lambda: deepseek_v2(
        False, q_lora_rank=14, topk_method="group_limited_greedy", n_group=3, topk_group=2, routed_scaling_factor=2.5), "60KB", torch.float32),
    "DeepSeek-V2, no latent of queries, tied, YaRN, bf16": (PARAMETERS, lambda: deepseek_v2(True, q_lora_rank=None, rope_parameters=dict(
        rope_type="yarn", rope_theta=50.0, factor=8.0, original_max_position_embeddings=16, mscale=0.7, mscale_all_dim=0.9)), "1GB", torch.bfloat16),
    "DeepSeek-V3, groups, several files": (PARAMETERS, lambda: deepseek_v3(False, q_lora_rank=14, n_group=3, topk_group=2), "60KB", torch.float32),
    "DeepSeek-V3, no latent of queries, tied, YaRN, bf16": (PARAMETERS, lambda: deepseek_v3(
        True, q_lora_rank=None, n_group=1, topk_group=1, norm_topk_prob=False, rope_parameters=dict(
            rope_type="yarn", rope_theta=50.0, factor=8.0, original_max_position_embeddings=16, mscale=0.7, mscale_all_dim=0.9)), "1GB", torch.bfloat16),
    "GPT-OSS, every second layer with a window, several files": (PARAMETERS, lambda: gpt_oss(False, swiglu_limit=0.7), "60KB", torch.float32),
    "GPT-OSS, tied, plain positions, windows by a list, bf16": (PARAMETERS, lambda: gpt_oss(
        True, layer_types=["full_attention", "sliding_attention", "sliding_attention"],
        rope_parameters=dict(rope_type="default", rope_theta=50.0)), "1GB", torch.bfloat16),
    "OLMoE, several files": (PARAMETERS, lambda: olmoe(False), "60KB", torch.float32),
    "OLMoE, tied, normalized, biases of attention, bf16": (PARAMETERS, lambda: olmoe(True, norm_topk_prob=True, attention_bias=True), "1GB",
                                                            torch.bfloat16),
    "Qwen2-MoE, the second layer dense, several files": (PARAMETERS, lambda: qwen2_moe(False, mlp_only_layers=[1]), "60KB", torch.float32),
    "Qwen2-MoE, tied, normalized, without biases, bf16": (PARAMETERS, lambda: qwen2_moe(True, norm_topk_prob=True, qkv_bias=False), "1GB",
                                                          torch.bfloat16),
    "GLM-4.5, groups, norms of heads, several files": (PARAMETERS, lambda: glm4_moe(
        False, n_group=3, topk_group=2, use_qk_norm=True, routed_scaling_factor=1.5), "60KB", torch.float32),
    "GLM-4.5, tied, biases, a whole head turned, bf16": (PARAMETERS, lambda: glm4_moe(
        True, attention_bias=True, norm_topk_prob=False, partial_rotary_factor=1.0), "1GB", torch.bfloat16),
    "OLMo 3, several files": (PARAMETERS, lambda: olmo3(False), "60KB", torch.float32),
    "OLMo 3, tied, biases of attention, YaRN, bf16": (PARAMETERS, lambda: olmo3(True, attention_bias=True, rope_parameters=dict(
        full_attention=dict(rope_type="yarn", rope_theta=300.0, factor=4.0, original_max_position_embeddings=16),
        sliding_attention=dict(rope_type="default", rope_theta=300.0))), "1GB", torch.bfloat16),
    "Granite, factors, several files": (PARAMETERS, lambda: granite(
        False, embedding_multiplier=3.0, attention_multiplier=0.4, residual_multiplier=0.3, logits_scaling=1.7), "60KB", torch.float32),
    "Granite, tied, biases, bf16": (PARAMETERS, lambda: granite(True, attention_bias=True, mlp_bias=True), "1GB", torch.bfloat16),
    "SmolLM3, a layer without positions, several files": (PARAMETERS, lambda: smollm3(False), "60KB", torch.float32),
    "SmolLM3, tied, windows, bf16": (PARAMETERS, lambda: smollm3(True, no_rope_layers=[0, 1, 0, 1], use_sliding_window=True, sliding_window=5),
                                     "1GB", torch.bfloat16),
    "StarCoder2, windows, tied": (PARAMETERS, lambda: starcoder2(True, sliding_window=5), "1GB", torch.float32),
    "StarCoder2, without biases, bf16, several files": (PARAMETERS, lambda: starcoder2(False, use_bias=False), "30KB", torch.bfloat16),
    "Nemotron, half of a head turned, several files": (PARAMETERS, lambda: nemotron(False), "60KB", torch.float32),
    "Nemotron, tied, biases, bf16": (PARAMETERS, lambda: nemotron(True, attention_bias=True, mlp_bias=True), "1GB", torch.bfloat16),
    "GPT-NeoX, several files": (PARAMETERS, lambda: gpt_neox(False), "60KB", torch.float32),
    "GPT-NeoX, tied, in sequence, bf16": (PARAMETERS, lambda: gpt_neox(True, use_parallel_residual=False, attention_bias=False, rope_parameters=dict(
        rope_type="default", rope_theta=50.0, partial_rotary_factor=0.5)), "1GB", torch.bfloat16),
    "GPT-J, part of a head turned": ((4, 11), lambda: gptj(n_inner=77), "1GB", torch.float32),
    "GPT-J, tied, bf16, several files": ((4, 11), lambda: gptj(tie_word_embeddings=True), "30KB", torch.bfloat16),
    "Mixtral, rope_parameters": (PARAMETERS, lambda: mixtral(False, rope_parameters=dict(LLAMA3, rope_theta=500.0)), "1GB", torch.float32),
}


def random_folder(folder, make, largest, dtype):
    torch.manual_seed(SEED)
    model = make()
    for w in model.parameters():                # biases and norms away from 0 and 1, where mistakes could hide
        w.data += 0.1 * torch.randn_like(w)
    written(model.to(dtype), folder, largest)


# ---- both sides ------------------------------------------------------------------------------------------------------------

def batch(config, tokens):
    """Random tokens; a quarter of the labels is ignored.  No padding: transformers gives its row of the embedding no gradient."""
    random = np.random.default_rng(SEED)
    ids, labels = random.integers(0, config.vocab_size, (2, SEQUENCES, tokens), dtype=np.int32)
    if config.pad_token_id is not None:
        ids[ids == config.pad_token_id] = (config.pad_token_id + 1) % config.vocab_size
    labels[random.random(labels.shape) < 0.25] = families.IGNORE
    return ids, labels


ANGLES = "rotary_emb.inv_freq"                  # a Llama's before 4.33 are in its files, rounded to their format


def make_angles(model):
    """Where they were read from a file: as exact as they are in later versions."""
    if not any(name.endswith(ANGLES) for name in model.state_dict()):
        return
    for layer in model.model.layers:
        attention = layer.self_attn
        attention.rotary_emb = type(attention.rotary_emb)(attention.head_dim, max_position_embeddings=model.config.max_position_embeddings)


def load(folder):
    """A model as transformers reads it; nothing may be missing or left over."""
    model, info = transformers.AutoModelForCausalLM.from_pretrained(folder, output_loading_info=True, **how_to_load())
    for what in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        names = [name for name in info.get(what, []) if not str(name).endswith(ANGLES)]
        if model.config.tie_word_embeddings:                                    # old versions miss what they tie
            names = [name for name in names if name not in ("lm_head.weight", "embed_out.weight")]
        if names:
            raise SystemExit(f"{folder}: transformers reports {what} {names}")
    make_angles(model)
    return model.eval()


def shape_of(config):
    """What the loss of a mixture needs to know."""
    if config.model_type == "deepseek_v2":
        groups = dict(groups=config.n_group, kept=config.topk_group) if config.topk_method != "greedy" else {}
        return dict(groups, margin=1e-9, E=config.n_routed_experts, k=config.num_experts_per_tok)
    if config.model_type in ("deepseek_v3", "glm4_moe"):
        groups = dict(groups=config.n_group, kept=config.topk_group) if config.n_group > 1 else {}
        return dict(groups, margin=1e-9, E=config.n_routed_experts, k=config.num_experts_per_tok)
    if config.model_type not in ("mixtral", "qwen3_moe", "gpt_oss", "olmoe", "qwen2_moe"):
        return {}
    return dict(margin=1e-9, E=getattr(config, "num_local_experts", None) or config.num_experts, k=config.num_experts_per_tok, z=getattr(config, "router_z_loss_coef", 0.0),
                balance=config.router_aux_loss_coef if config.output_router_logits else 0.0)


def run(*command):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()}")


def apart(a, b, least=0):
    """Relative difference, norm over norm of b, or over `least` if that is more."""
    size = max(np.linalg.norm(b), least)
    return float(np.linalg.norm(a - b) / size) if size > 0 else float(np.linalg.norm(a - b))


# Ours, and how many matrices of this height there are from this one to the last; None: it is the first.
FUSED = {"q_proj": ("qkv_proj", None), "k_proj": ("qkv_proj", 2), "v_proj": ("qkv_proj", 1), "gate_proj": ("gate_up_proj", None),
         "q_norm": ("qk_norm", None), "k_norm": ("qk_norm", 1), "up_proj": ("gate_up_proj", 1), "w1": ("w13", None), "w3": ("w13", 1)}


def of_gpt_oss(name, ours):
    """Our gradients of a GPT-OSS's experts, whose matrices are [in,out] there, and whose gates and gated values take turns."""
    at, _, which = name.partition("mlp.experts.")
    part, bias = which.removesuffix("_bias"), which.endswith("_bias")
    before, last = f"grad/{at}mlp.experts.", f".{part}.{'bias' if bias else 'weight'}"
    names = [n for n in ours if n.startswith(before) and n.endswith(last)]
    all_experts = []
    for w in (ours[n] for n in sorted(names, key=lambda n: int(n[len(before):].split(".")[0]))):
        if part == "gate_up_proj":
            w = w.reshape(2, len(w) // 2, -1).swapaxes(0, 1).reshape(w.shape)
        all_experts.append(w if bias else w.T)
    return np.stack(all_experts)


def of_experts(name, ours, family):
    """Our gradients of what transformers 5 has as one tensor of all experts, [E,rows,columns]; None of any other tensor."""
    at, _, which = name.partition("mlp.experts.")
    if which and family == "gpt_oss":
        return of_gpt_oss(name, ours)
    if which not in ("gate_up_proj", "down_proj"):
        return None
    before, last = f"grad/{at}mlp.experts.", f".{which}.weight"
    if not any(n.startswith(before) for n in ours):             # a Mixtral's
        before, last = f"grad/{at}block_sparse_moe.experts.", {"gate_up_proj": ".w13.weight", "down_proj": ".w2.weight"}[which]
    names = [n for n in ours if n.startswith(before) and n.endswith(last)]
    return np.stack([ours[n] for n in sorted(names, key=lambda n: int(n[len(before):].split(".")[0]))])


def of_gpt_neox(name, ours, heads):
    """Our gradient of a GPT-NeoX's parameter; in its fused ones the queries, keys and values of a head are neighbours."""
    w = ours["grad/" + name.removeprefix("gpt_neox.").replace("embed_out.", "lm_head.")]
    return w.reshape(3, heads, -1, *w.shape[1:]).swapaxes(0, 1).reshape(w.shape) if "query_key_value" in name else w


def gradients(model, ours):
    """(name, ours, theirs) of every parameter of transformers; ours has those of one input as one matrix, cut here."""
    for name, w in model.named_parameters():
        gradient = (torch.zeros_like(w) if w.grad is None else w.grad).numpy()
        logical = name.removeprefix("transformer.")
        if model.config.model_type == "gpt2":
            yield name, ours["grad/" + logical].T if logical.startswith("h.") and gradient.ndim == 2 else ours["grad/" + logical], gradient
            continue
        if model.config.model_type == "gpt_neox":
            yield name, of_gpt_neox(name, ours, model.config.num_attention_heads), gradient
            continue
        experts = of_experts(name, ours, model.config.model_type)
        if experts is not None:
            yield name, experts, gradient
            continue
        if name.endswith("self_attn.sinks"):
            yield name, ours[f"grad/{name}.weight"], gradient
            continue
        last = name.split(".")[-2]
        fused, left = (last, None) if "grad/" + logical in ours else FUSED.get(last, (last, None))
        place = "grad/" + logical.replace(last, fused)
        whole = ours[place if place in ours else place.replace("mlp.gate.weight", "block_sparse_moe.gate.weight")]
        first = 0 if left is None else len(whole) - left * len(gradient)
        yield name, whole[first:first + len(gradient)], gradient


def compare(orrery, folder, model, ids, labels, least=0):
    """(what, relative difference) of all that both compute from this folder, and of what orrery saves.  least: a gradient below this
    part of the largest one is held to that."""
    family = FAMILIES[model.config.model_type]
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        tensor_file.write(scratch / "batch", {"ids": ids, "labels": labels}, {})
        run(orrery, "dump", scratch / "out", "--batch", scratch / "batch", "--model", folder, "--dtype", "fp64", "--save", scratch / "saved")
        ours, _ = tensor_file.read(scratch / "out")
        logits = model(input_ids=families.tokens(ids)).logits.detach().numpy()
        loss, _ = family.loss(model, shape_of(model.config), ids, labels)
        loss.backward()
        saved = load(scratch / "saved")
        again = saved(input_ids=families.tokens(ids)).logits.detach().numpy()
        loss_again, _ = family.loss(saved, shape_of(saved.config), ids, labels)
    both = list(gradients(model, ours))
    least *= max(np.linalg.norm(g) for _, _, g in both)
    loss = loss.item()
    return [(f"loss {loss:.12f}", abs(float(ours["loss"][0]) - loss) / abs(loss)),
            ("logits", apart(next(ours["act/" + last] for last in ("capped", "scaled", "logits") if "act/" + last in ours), logits.reshape(-1, logits.shape[-1]))),
            ("logits of what orrery saved", apart(again, logits)), ("loss of what orrery saved", abs(loss_again.item() - loss) / abs(loss)),
            *(("gradient of " + name, apart(mine, theirs, least)) for name, mine, theirs in both)]


def check(orrery, folder, what):
    """Print how far orrery and transformers are apart on this folder; returns whether that is rounding."""
    model = load(folder)
    found = compare(orrery, folder, model, *batch(model.config, min(TOKENS, model.config.max_position_embeddings)))
    wrong = [f"  {name} differs by {d:.3g}, relative" for name, d in found if not d <= ROUNDING]
    worst = max(found, key=lambda f: f[1])
    print(f"{what}: {len(found)} compared; {found[0][0]}; logits {found[1][1]:.2g} apart; furthest {worst[0]}, {worst[1]:.2g}", *wrong, sep="\n")
    return not wrong


def check_training(orrery):
    """One step of plain SGD at rate 1 without decay takes the gradient away, on the devices as well: --check ref."""
    with tempfile.TemporaryDirectory() as scratch:
        scratch = pathlib.Path(scratch)
        random_folder(scratch / "model", *CASES["GPT-2, untied, several files"][1:])
        (scratch / "text").write_bytes((ROOT / "golden" / "README.md").read_bytes())
        run(orrery, "train", "--model", scratch / "model", "--data", scratch / "text", "--dtype", "fp64", "--dropout", "0", "--steps", "1", "--seq", "16",
            "--batch", "4", "--dp", "2", "--tp", "2", "--check", "ref", "--save", scratch / "saved", "--json", scratch / "report")
        load(scratch / "saved")
        loss = json.loads((scratch / "report").read_text())["steps"][0]["loss"]
    print(f"orrery train on 4 devices, from a folder in several files: loss {loss:.6f}, checked by itself; transformers loads the result")


def main():
    arguments = argparse.ArgumentParser(description="Compare orrery with Hugging Face transformers.")
    arguments.add_argument("folders", nargs="*", metavar="DIR", help="saved by `orrery train --save DIR` or `orrery dump --save DIR`")
    arguments.add_argument("--orrery", default=str(ROOT / "orrery"), help="the program; default ./orrery")
    given = arguments.parse_args()
    print(f"torch {torch.__version__}, transformers {transformers.__version__}")
    transformers.utils.logging.disable_progress_bar()
    families.widen()
    holds = True
    for what, (first, *how) in CASES.items():
        if VERSION < first:
            print(f"{what}: transformers {transformers.__version__} cannot")
            continue
        with tempfile.TemporaryDirectory() as folder:
            random_folder(folder, *how)
            holds &= check(given.orrery, folder, what)
    for folder in given.folders:
        holds &= check(given.orrery, folder, folder)
    check_training(given.orrery)
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
