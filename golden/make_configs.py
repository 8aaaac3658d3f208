#!/usr/bin/env python3
"""config.json of small models, as the installed transformers writes them: tests/ref/configs/transformers-VERSION/NAME.json.

    golden/make_configs.py

tests/ref/test_config_files.c reads those of every version, and knows what must come of each NAME.  The values are not those
that a class has by itself, so that a key that is passed over shows.
"""
import pathlib
import shutil
import tempfile

import transformers

HERE = pathlib.Path(__file__).resolve().parent
LLAMA = dict(vocab_size=61, max_position_embeddings=48, hidden_size=24, intermediate_size=37, num_hidden_layers=2,
             num_attention_heads=6, rms_norm_eps=1e-4, initializer_range=0.03)
LINEAR = dict(type="linear", factor=2.5)
LLAMA3 = dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0, original_max_position_embeddings=32)


def version():
    return tuple(int(number) for number in transformers.__version__.split(".")[:2])


def gpt2(**more):
    return transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=61, n_positions=48, n_embd=21, n_layer=2, n_head=3, layer_norm_epsilon=1e-4, initializer_range=0.03, resid_pdrop=0.2,
        embd_pdrop=0.3, attn_pdrop=0.4, bos_token_id=0, eos_token_id=0, **more))


def llama(**more):
    return transformers.LlamaForCausalLM(transformers.LlamaConfig(**LLAMA, **more))


def mixtral(**more):
    return transformers.MixtralForCausalLM(transformers.MixtralConfig(
        **LLAMA, num_key_value_heads=2, num_local_experts=5, num_experts_per_tok=3, **more))


def gptj(**more):
    return transformers.GPTJForCausalLM(transformers.GPTJConfig(
        vocab_size=61, n_positions=48, n_embd=21, n_layer=2, n_head=3, layer_norm_epsilon=1e-4, initializer_range=0.03, resid_pdrop=0.2,
        embd_pdrop=0.3, attn_pdrop=0.4, rotary_dim=4, bos_token_id=0, eos_token_id=0, **more))


def qwen2(**more):
    return transformers.Qwen2ForCausalLM(transformers.Qwen2Config(**LLAMA, num_key_value_heads=2, rope_theta=500.0, **more))


def qwen3(**more):
    return transformers.Qwen3ForCausalLM(transformers.Qwen3Config(
        **LLAMA, num_key_value_heads=2, head_dim=8, rope_theta=500.0, **more))


def mistral(**more):
    return transformers.MistralForCausalLM(transformers.MistralConfig(**LLAMA, num_key_value_heads=2, head_dim=8, rope_theta=500.0, **more))


def qwen3_moe(**more):
    return transformers.Qwen3MoeForCausalLM(transformers.Qwen3MoeConfig(
        **LLAMA, num_key_value_heads=2, head_dim=8, rope_theta=500.0, moe_intermediate_size=13, num_experts=5, num_experts_per_tok=3,
        norm_topk_prob=True, **more))


def phi3(**more):
    return transformers.Phi3ForCausalLM(transformers.Phi3Config(
        **LLAMA, num_key_value_heads=2, rope_theta=500.0, original_max_position_embeddings=16, resid_pdrop=0.2, pad_token_id=None, bos_token_id=1,
        eos_token_id=2, **more))


def gemma(**more):
    return transformers.GemmaForCausalLM(transformers.GemmaConfig(**LLAMA, num_key_value_heads=2, head_dim=8, rope_theta=500.0, **more))


def gemma2(**more):
    return transformers.Gemma2ForCausalLM(transformers.Gemma2Config(
        **LLAMA, num_key_value_heads=2, head_dim=8, rope_theta=500.0, query_pre_attn_scalar=8, attn_logit_softcapping=20.0,
        final_logit_softcapping=None, sliding_window=20, **more))


def gemma3(**more):
    return transformers.Gemma3ForCausalLM(transformers.Gemma3TextConfig(
        **LLAMA, num_key_value_heads=2, head_dim=8, rope_theta=500.0, rope_scaling=dict(rope_type="linear", factor=2.0), rope_local_base_freq=20.0,
        final_logit_softcapping=15.0, sliding_window=20, sliding_window_pattern=2, **more))


def olmo2(**more):
    return transformers.Olmo2ForCausalLM(transformers.Olmo2Config(
        **LLAMA, num_key_value_heads=2, rope_theta=500.0, pad_token_id=None, eos_token_id=2, **more))


def deepseek_v2(**more):
    return transformers.DeepseekV2ForCausalLM(transformers.DeepseekV2Config(
        **LLAMA, num_key_value_heads=6, q_lora_rank=None, kv_lora_rank=10, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=7, moe_intermediate_size=13,
        n_routed_experts=6, num_experts_per_tok=3, n_shared_experts=2, first_k_dense_replace=1, topk_method="group_limited_greedy", n_group=3,
        topk_group=2, routed_scaling_factor=2.5, **more))


def deepseek_v3(**more):
    return transformers.DeepseekV3ForCausalLM(transformers.DeepseekV3Config(
        **LLAMA, num_key_value_heads=6, q_lora_rank=9, kv_lora_rank=10, qk_nope_head_dim=6, qk_rope_head_dim=4, v_head_dim=7, moe_intermediate_size=13,
        n_routed_experts=6, num_experts_per_tok=3, n_shared_experts=2, first_k_dense_replace=1, n_group=3, topk_group=2, routed_scaling_factor=1.5, **more))


def gpt_oss(**more):
    return transformers.GptOssForCausalLM(transformers.GptOssConfig(
        **LLAMA, num_key_value_heads=2, head_dim=8, num_local_experts=5, num_experts_per_tok=3, sliding_window=20, swiglu_limit=3.0, **more))


WITHOUT_RMS = {key: value for key, value in LLAMA.items() if key != "rms_norm_eps"}


def half_turned(part="partial_rotary_factor", theta="rope_theta"):
    """Version 4 has keys for it, which differ by class."""
    if version() >= (5, 0):
        return dict(rope_parameters=dict(rope_type="default", rope_theta=500.0, partial_rotary_factor=0.5))
    return {part: 0.5, theta: 500.0}


def gpt_neox(**more):
    return transformers.GPTNeoXForCausalLM(transformers.GPTNeoXConfig(
        **WITHOUT_RMS, **half_turned("rotary_pct", "rotary_emb_base"), layer_norm_eps=1e-4, hidden_dropout=0.2, attention_dropout=0.4, **more))


def nemotron(**more):
    return transformers.NemotronForCausalLM(transformers.NemotronConfig(
        **WITHOUT_RMS, num_key_value_heads=2, head_dim=8, norm_eps=1e-4, **half_turned(), **more))


def starcoder2(**more):
    return transformers.Starcoder2ForCausalLM(transformers.Starcoder2Config(
        **WITHOUT_RMS, num_key_value_heads=2, norm_epsilon=1e-4, rope_theta=500.0, residual_dropout=0.2, embedding_dropout=0.3, attention_dropout=0.4,
        **more))


def granite(**more):
    return transformers.GraniteForCausalLM(transformers.GraniteConfig(
        **LLAMA, num_key_value_heads=2, rope_theta=500.0, embedding_multiplier=12.0, attention_multiplier=0.3, residual_multiplier=0.22,
        logits_scaling=8.0, pad_token_id=None, **more))


def smollm3(**more):
    return transformers.SmolLM3ForCausalLM(transformers.SmolLM3Config(
        **LLAMA, num_key_value_heads=2, rope_theta=500.0, pad_token_id=None, bos_token_id=1, eos_token_id=2, **more))


def olmo3(**more):
    return transformers.Olmo3ForCausalLM(transformers.Olmo3Config(
        **LLAMA, num_key_value_heads=2, rope_theta=500000.0, sliding_window=20, layer_types=["full_attention", "sliding_attention"], pad_token_id=None,
        eos_token_id=2, **more))


def olmoe(**more):
    return transformers.OlmoeForCausalLM(transformers.OlmoeConfig(
        **LLAMA, num_key_value_heads=2, rope_theta=500.0, num_experts=5, num_experts_per_tok=3, pad_token_id=None, eos_token_id=2, **more))


def qwen2_moe(**more):
    return transformers.Qwen2MoeForCausalLM(transformers.Qwen2MoeConfig(
        **LLAMA, num_key_value_heads=2, rope_theta=500.0, moe_intermediate_size=13, shared_expert_intermediate_size=17, num_experts=5,
        num_experts_per_tok=3, **more))


def glm4_moe(**more):
    return transformers.Glm4MoeForCausalLM(transformers.Glm4MoeConfig(
        **LLAMA, num_key_value_heads=2, head_dim=8, rope_theta=500.0, moe_intermediate_size=13, n_routed_experts=6, num_experts_per_tok=3,
        n_shared_experts=2, n_group=3, topk_group=2, routed_scaling_factor=1.5, use_qk_norm=True, **more))


MODELS = {                                      # NAME: the first version that can, and how
    "gpt2": ((4, 0), lambda: gpt2()),
    "gpt2-untied": ((4, 0), lambda: gpt2(n_inner=37, tie_word_embeddings=False)),
    "llama": ((4, 28), lambda: llama()),
    "llama-tied": ((4, 31), lambda: llama(num_key_value_heads=2, tie_word_embeddings=True)),
    "llama-linear": ((4, 33), lambda: llama(num_key_value_heads=2, rope_theta=500.0, rope_scaling=LINEAR)),
    "llama-llama3": ((4, 43), lambda: llama(num_key_value_heads=2, rope_theta=500.0, rope_scaling=LLAMA3)),
    "mixtral": ((4, 36), lambda: mixtral()),
    "mixtral-balanced": ((4, 36), lambda: mixtral(rope_theta=500.0, output_router_logits=True, router_aux_loss_coef=0.03)),
    "qwen2": ((4, 37), lambda: qwen2()),
    "qwen3": ((4, 51), lambda: qwen3()),
    "qwen2-windows": ((4, 53), lambda: qwen2(use_sliding_window=True, sliding_window=20, max_window_layers=1)),
    "mistral": ((4, 46), lambda: mistral(sliding_window=20)),
    "mistral-full": ((4, 46), lambda: mistral(sliding_window=None)),
    "qwen3-moe": ((4, 51), lambda: qwen3_moe(mlp_only_layers=[0])),
    "olmo2": ((4, 47), lambda: olmo2(attention_bias=True)),
    "phi3": ((4, 49), lambda: phi3(sliding_window=20)),
    "phi3-long": ((4, 49), lambda: phi3(rope_scaling=dict(type="longrope", short_factor=[1.0, 1.5], long_factor=[2.5, 4.0]))),
    "gpt-oss": ((4, 55), lambda: gpt_oss()),
    "gemma": ((4, 38), lambda: gemma()),
    "gemma2": ((4, 42), lambda: gemma2()),
    "gemma3": ((4, 50), lambda: gemma3()),
    "deepseek-v2": ((4, 54), lambda: deepseek_v2()),
    "deepseek-v3": ((4, 51), lambda: deepseek_v3()),
    "gpt2-exact": ((4, 0), lambda: gpt2(activation_function="gelu")),
    "gpt-neox": ((4, 36), lambda: gpt_neox()),
    "gpt-neox-sequence": ((4, 36), lambda: gpt_neox(use_parallel_residual=False, tie_word_embeddings=True)),
    "nemotron": ((4, 45), lambda: nemotron(attention_bias=True)),
    "starcoder2": ((4, 39), lambda: starcoder2(sliding_window=20)),
    "starcoder2-unbiased": ((4, 39), lambda: starcoder2(use_bias=False, sliding_window=None, tie_word_embeddings=False)),
    "granite": ((4, 45), lambda: granite(mlp_bias=True)),
    "smollm3": ((4, 53), lambda: smollm3(no_rope_layers=[0, 1])),
    "olmo3": ((4, 57), lambda: olmo3()),
    "olmoe": ((4, 45), lambda: olmoe(norm_topk_prob=True)),
    "qwen2-moe": ((4, 40), lambda: qwen2_moe(mlp_only_layers=[1])),
    "glm4-moe": ((4, 54), lambda: glm4_moe()),
    "gptj": ((4, 11), lambda: gptj()),
    "gptj-tied": ((4, 11), lambda: gptj(n_inner=37, tie_word_embeddings=True)),
}


def main():
    out = HERE.parent / "tests" / "ref" / "configs" / f"transformers-{transformers.__version__}"
    out.mkdir(parents=True, exist_ok=True)
    for name, (first, make) in MODELS.items():
        if version() >= first:
            with tempfile.TemporaryDirectory() as folder:
                make().save_pretrained(folder)
                shutil.copyfile(pathlib.Path(folder) / "config.json", out / f"{name}.json")


if __name__ == "__main__":
    main()
