#!/usr/bin/env python3
"""A small model of every family that transformers and Orrery have, on one process; its golden file gives the names.

    golden/frameworks/run.py mixtral qwen3_moe

run.py calls save() to make the model, and `orrery golden make` with it.
"""
import numpy
import torch
import transformers
from safetensors.numpy import save_file

import common
from orrery_dump import Recorder

SIZES = dict(vocab_size=29, hidden_size=16, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, intermediate_size=24,
             max_position_embeddings=32)
SIZES_OF_GPT2 = dict(vocab_size=29, n_embd=16, n_layer=2, n_head=4, n_positions=32, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0)
CHOSEN = dict(num_experts_per_tok=2, output_router_logits=True)
BESIDE = dict(num_experts_per_tok=2, moe_intermediate_size=12, n_shared_experts=1, first_k_dense_replace=1)
LATENT = dict(BESIDE, num_key_value_heads=4, kv_lora_rank=8, q_lora_rank=12, qk_rope_head_dim=4, qk_nope_head_dim=6, v_head_dim=5)

# family: its class, and what its config has besides SIZES
FAMILIES = {
    "mistral": ("MistralForCausalLM", dict(head_dim=4, sliding_window=5)),
    "qwen2": ("Qwen2ForCausalLM", {}),
    "qwen3": ("Qwen3ForCausalLM", dict(head_dim=6)),
    "phi3": ("Phi3ForCausalLM", {}),
    "gemma": ("GemmaForCausalLM", dict(head_dim=6)),
    "gemma2": ("Gemma2ForCausalLM", dict(head_dim=6, query_pre_attn_scalar=6, sliding_window=5)),
    "gemma3": ("Gemma3ForCausalLM", dict(head_dim=6, query_pre_attn_scalar=6, sliding_window=5)),
    "olmo2": ("Olmo2ForCausalLM", {}),
    "olmo3": ("Olmo3ForCausalLM", dict(sliding_window=5)),
    "granite": ("GraniteForCausalLM", dict(embedding_multiplier=2.0, residual_multiplier=0.5, attention_multiplier=0.3, logits_scaling=3.0)),
    "smollm3": ("SmolLM3ForCausalLM", {}),
    "starcoder2": ("Starcoder2ForCausalLM", {}),
    "nemotron": ("NemotronForCausalLM", dict(head_dim=4)),
    "gpt_neox": ("GPTNeoXForCausalLM", dict(hidden_size=32, num_key_value_heads=None)),
    "gptj": ("GPTJForCausalLM", dict(rotary_dim=2)),
    "mixtral": ("MixtralForCausalLM", dict(CHOSEN, num_local_experts=4)),
    "qwen3_moe": ("Qwen3MoeForCausalLM", dict(CHOSEN, num_experts=4, moe_intermediate_size=12, head_dim=4, num_hidden_layers=3, mlp_only_layers=[1])),
    "olmoe": ("OlmoeForCausalLM", dict(CHOSEN, num_experts=4)),
    "qwen2_moe": ("Qwen2MoeForCausalLM", dict(CHOSEN, num_experts=4, moe_intermediate_size=12, shared_expert_intermediate_size=12)),
    "deepseek_v2": ("DeepseekV2ForCausalLM", dict(LATENT, n_routed_experts=4, n_group=1, topk_group=1)),
    "deepseek_v3": ("DeepseekV3ForCausalLM", dict(LATENT, n_routed_experts=8, n_group=2, topk_group=1)),
    "glm4_moe": ("Glm4MoeForCausalLM", dict(BESIDE, n_routed_experts=4, n_group=1, topk_group=1, head_dim=4)),
}


def save(family, folder):
    """The family's model with random weights, folder/model, and three batches, folder/batch.safetensors."""
    torch.manual_seed(0)
    name, more = FAMILIES[family]
    kind, sizes = getattr(transformers, name), SIZES_OF_GPT2 if family == "gptj" else SIZES
    given = {k: v for k, v in {**sizes, **more}.items() if v is not None}
    model = kind(kind.config_class(**given, pad_token_id=None, bos_token_id=None, eos_token_id=None))
    for p in model.parameters():
        torch.nn.init.normal_(p, mean=0.0 if p.ndim > 1 else 1.0, std=0.2)
    model.save_pretrained(folder / "model")
    draw = numpy.random.default_rng(1)
    save_file({"ids": draw.integers(0, 29, (3, 4, 8)), "labels": draw.integers(0, 29, (3, 4, 8))}, folder / "batch.safetensors")


def run(golden, out, case):
    model = getattr(transformers, FAMILIES[case.variant][0]).from_pretrained(
        golden.path.parent / "model", dtype=torch.float32, attn_implementation="eager", experts_implementation="eager")
    model.config.use_cache = False
    for p in model.parameters():
        p.data = p.data.to(common.DTYPES[case.dtype])
    recorder = Recorder(model, None, out, batch=(golden.sequences, golden.tokens), dtype=case.dtype, golden=golden.path)
    recorder.start()
    routed = {"output_router_logits": True} if getattr(model.config, "output_router_logits", False) else {}

    def step_of(step):
        if step == 0:
            recorder.microbatch()
        result = model(input_ids=golden.ids[step], **routed)
        loss = common.summed_loss(result.logits, golden.labels[step]) / golden.counted(step)
        if routed:
            loss = loss + model.config.router_aux_loss_coef * result.aux_loss
            if step == 0:
                recorder.number("balance_loss", result.aux_loss.detach())
        loss.backward()
        return loss.detach()

    common.train(golden, recorder, model, step_of, masters=case.dtype == "fp32")


if __name__ == "__main__":
    common.alone(run, variants=tuple(FAMILIES))
