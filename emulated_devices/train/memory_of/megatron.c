/* megatron.c -- the memory profile of Megatron-Core: bf16 weights, fp32 gradients in one buffer, a distributed
 * optimizer with --data-parallel zero1.
 *
 * The backward pass of a matrix adds to the fp32 buffer itself.  The cross-entropy of a cut vocabulary makes one fp32
 * copy of the logits, which becomes their gradient.  Sequence parallelism saves a device's own rows and gathers again.
 *
 * Source  NVIDIA/Megatron-LM, megatron/core: tensor_parallel/cross_entropy.py (_VocabParallelCrossEntropy),
 *         tensor_parallel/layers.py (gradient_accumulation_fusion), distributed/param_and_grad_buffer.py,
 *         optimizer/distrib_optimizer.py; cross_entropy.py at 00611e6.  Assumed: fused norms and flash attention save
 *         their inputs, and what their papers say.
 * Called  registry.c lists the profile.
 */
#include "emulated_devices/train/memory_of/rules.h"

static const struct memory_rule rules[] = {
    { .op = OP_NORM,      .saves_input = true, .forward = { MAKE('y', 0, 0), MAKE('a', PER_TOKEN, 4) } },
    { .op = OP_MATRIX,    .saves_input = true },
    { .op = OP_ROTARY },
    { .op = OP_ATTENTION, .saves_input = true, .saves_output = true,
      .forward = { MAKE('y', 0, 0), MAKE('a', PER_HEAD, 4) } },
    { .op = OP_SWIGLU,    .saves_input = true },
    { .op = OP_GELU,      .saves_input = true },
    { .op = OP_ADD,       .passes = true },
    { .op = OP_DROPOUT,   .forward = { MAKE('y', 0, 0), MAKE('a', AS_OUTPUT, 1) } },
    { .op = OP_EMBED },
    { .op = OP_LOSS,
      .forward = { MAKE('b', AS_INPUT, 4) },
      .backward = { MAKE('d', 0, 0), DROP('b') } },
    { .op = OP_END }
};

const struct memory_profile memory_megatron = {
    .name = "megatron", .title = "Megatron-Core: fused kernels, bf16 weights, fp32 gradients in one buffer",
    .source = "NVIDIA/Megatron-LM, megatron/core",
    .prints = "allocated (\"max allocated\" of --log-memory-to-tensorboard)",
    .rules = rules,
    .formats = { .weight = 2, .gradient = 4, .master = 4, .state = 4 },
    .life = ADDED_AT_ONCE, .fused = true, .keeps_gradients = true,
};
