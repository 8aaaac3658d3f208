/* nanotron.c -- the memory profile of nanotron: eager modules, bf16 weights, gradients accumulated in fp32.
 *
 * The cross-entropy of a cut vocabulary: the logits become fp32, a second fp32 tensor has them without their maximum,
 * then its exponentials, and is the gradient in the end.  Norms are Triton's, rotary positions and attention
 * flash-attn's; keys and values are put beside each other, and copied to another order of dimensions.
 *
 * Its columns' products save gathered rows with --tensor 1d-sp-keep (tp_linear_async_communication: false), and gather
 * them again with 1d-sp (true).  AdamW is fused (torch_adam_is_fused), so its step makes no lists.
 *
 * Source  huggingface/nanotron at f1adf520: models/llama.py, parallel/tensor_parallel/functional.py
 *         (_ShardedCrossEntropy, _ColumnLinearAsyncCommunication), optim/gradient_accumulator.py, nn/layer_norm.py.
 * Called  registry.c lists the profile.
 */
#include "emulated_devices/train/memory_of/rules.h"

static const struct memory_rule rules[] = {
    { .op = OP_NORM,      .saves_input = true, .forward = { MAKE('y', 0, 0), MAKE('a', PER_TOKEN, 4) } },
    { .op = OP_MATRIX,    .saves_input = true },
    /* Queries, keys and values in another order, which queries turned in place keep alive; then keys and values beside
     * each other, and once more in the order of flash-attn. */
    { .op = OP_ROTARY,    .forward = { MAKE('y', 0, 0), MAKE('c', AS_KEYS, 2), MAKE('a', AS_KEYS, 2), DROP('c') } },
    { .op = OP_ATTENTION, .saves_input = true, .saves_output = true,
      .forward = { MAKE('y', 0, 0), MAKE('a', PER_HEAD, 4) } },
    { .op = OP_SWIGLU,    .saves_input = true, .forward = { MAKE('a', AS_OUTPUT, 2), MAKE('y', 0, 0) },
      .backward = { MAKE('c', AS_OUTPUT, 2), MAKE('e', AS_OUTPUT, 2), MAKE('d', 0, 0), DROP('c'), DROP('e') } },
    { .op = OP_GELU,      .saves_input = true },
    { .op = OP_ADD,       .passes = true },
    { .op = OP_EMBED },
    { .op = OP_LOSS,
      .forward = { MAKE('a', AS_INPUT, 4), DROP('x'), MAKE('b', AS_INPUT, 4), DROP('a') },
      .backward = { MAKE('d', 0, 0), DROP('b') } },
    { .op = OP_END }
};

const struct memory_profile memory_nanotron = {
    .name = "nanotron", .title = "nanotron: eager modules, bf16 weights, fp32 gradients kept whole",
    .source = "huggingface/nanotron at f1adf520",
    .prints = "reserved (\"cuda_max_memory_reserved\")",
    .rules = rules,
    .formats = { .weight = 2, .made = 2, .gradient = 4, .master = 4, .state = 4 },
    .life = UNTIL_PASS_ENDS, .fused = true, .keeps_gradients = true, .keeps_sent = true,
    .bucket = INT64_MAX,                /* DistributedDataParallel's buckets have all gradients */
};
