/* deepspeed.c -- the memory profile of a transformers model under DeepSpeed ZeRO: eager modules, bf16 weights.
 *
 * The loss is PyTorch's: fp32 logits, log_softmax and two gradients.  An eager RMSNorm makes an fp32 copy of its input,
 * which it saves, and a normed one; rotary positions make turned copies.  ZeRO reduces buckets of 5e8 elements in the
 * model's format and keeps the optimizer's shard in fp32.
 *
 * Source  deepspeedai/DeepSpeed: runtime/zero/config.py (reduce_bucket_size 5e8), runtime/zero/stage_1_and_2.py;
 *         huggingface/transformers: models/llama/modeling_llama.py (LlamaRMSNorm, LlamaMLP, apply_rotary_pos_emb).
 *         Assumed: gradients live in the model's format until the step; attention is SDPA's flash kernel.
 * Called  registry.c lists the profile.
 */
#include "emulated_devices/train/memory_of/rules.h"

static const struct memory_rule rules[] = {
    { .op = OP_NORM,
      .forward = { MAKE('a', AS_INPUT, 4), MAKE('b', PER_TOKEN, 4), MAKE('c', AS_INPUT, 4), MAKE('e', AS_INPUT, 2),
                   DROP('c'), MAKE('y', 0, 0) },
      .backward = { MAKE('f', AS_INPUT, 4), MAKE('g', AS_INPUT, 4), MAKE('d', 0, 0), DROP('f'), DROP('g') } },
    { .op = OP_MATRIX,    .saves_input = true },
    { .op = OP_ROTARY,    .forward = { MAKE('a', AS_INPUT, 2), MAKE('y', 0, 0), DROP('a') } },
    { .op = OP_ATTENTION, .saves_input = true, .saves_output = true,
      .forward = { MAKE('b', AS_REPEATED, 2), MAKE('y', 0, 0), MAKE('a', PER_HEAD, 4) },
      .backward = { MAKE('c', AS_REPEATED, 2), MAKE('d', 0, 0) } },
    { .op = OP_SWIGLU,    .saves_input = true, .forward = { MAKE('a', AS_OUTPUT, 2), MAKE('y', 0, 0) },
      .backward = { MAKE('c', AS_OUTPUT, 2), MAKE('d', 0, 0), DROP('c') } },
    { .op = OP_GELU,      .saves_input = true },
    { .op = OP_ADD,       .passes = true },
    { .op = OP_DROPOUT,   .forward = { MAKE('y', 0, 0), MAKE('a', AS_OUTPUT, 1) } },
    { .op = OP_EMBED },
    { .op = OP_LOSS,
      .forward = { MAKE('a', AS_INPUT, 4), MAKE('b', AS_INPUT, 4) },
      .backward = { MAKE('c', AS_INPUT, 4), MAKE('e', AS_INPUT, 4), DROP('c'), DROP('b'), MAKE('d', 0, 0), DROP('e'),
                    DROP('a') } },
    { .op = OP_END }
};

const struct memory_profile memory_deepspeed = {
    .name = "deepspeed", .title = "a transformers model under DeepSpeed ZeRO: eager modules, bf16 weights",
    .source = "deepspeedai/DeepSpeed, runtime/zero; huggingface/transformers, modeling_llama.py",
    .prints = "allocated (see_memory_usage: \"MaxMemAllocated\")",
    .rules = rules,
    .formats = { .weight = 2, .gathered = 2, .made = 2, .gradient = 2, .reduced = 2, .master = 4, .state = 4,
                 .step = 4 },
    .life = UNTIL_PART_ENDS, .keeps_sent = true, .bucket = 500000000,
};
