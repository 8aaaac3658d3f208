/* torch.c -- the memory profile of PyTorch with FSDP2, as torchtitan trains: compiled blocks, an eager loss.
 *
 * The loss: the logits become fp32, log_softmax writes a second fp32 tensor and saves it, backward writes two more.
 * With the vocabulary cut (loss_parallel) backward adds and multiplies tensors of that size out of place.
 * FSDP2 keeps fp32 shards, gathers bf16 copies layer by layer, and reduce-scatters gradients in fp32.
 *
 * Source  pytorch/torchtitan at 9dec370: train.py (loss_fn, not compiled; del pred), parallelize_llama.py (apply_fsdp,
 *         apply_compile, _save_list of selective checkpointing), models/llama/model.py (repeat_kv), models/norms.py;
 *         pytorch/pytorch: torch/distributed/tensor/parallel/loss.py at 02eef6b; torch/optim/adamw.py (foreach: the
 *         roots of the second moments are a list of new tensors); torch/distributed/_functional_collectives.py
 *         (all_gather_tensor and reduce_scatter_tensor of a dimension other than 0: chunk, then cat).
 * Called  registry.c lists the profile.
 */
#include "emulated_devices/train/memory_of/rules.h"

static const struct memory_rule rules[] = {
    { .op = OP_NORM,      .saves_input = true, .again = true, .forward = { MAKE('y', 0, 0), MAKE('a', PER_TOKEN, 4) } },
    { .op = OP_HEAD_NORM, .saves_input = true, .again = true, .forward = { MAKE('y', 0, 0), MAKE('a', PER_HEAD, 4) } },
    { .op = OP_MATRIX,    .saves_input = true },
    { .op = OP_ROTARY },
    { .op = OP_ATTENTION, .saves_input = true, .saves_output = true,
      .forward = { MAKE('b', AS_REPEATED, 2), MAKE('y', 0, 0), MAKE('a', PER_HEAD, 4) },
      .backward = { MAKE('c', AS_REPEATED, 2), MAKE('d', 0, 0) } },
    { .op = OP_SWIGLU,    .saves_input = true, .again = true },
    { .op = OP_GEGLU,     .saves_input = true, .again = true },
    { .op = OP_GELU,      .saves_input = true, .again = true },
    { .op = OP_SILU,      .saves_input = true, .again = true },
    { .op = OP_ADD,       .passes = true },
    { .op = OP_DROPOUT,   .forward = { MAKE('y', 0, 0), MAKE('a', AS_OUTPUT, 1) } },
    { .op = OP_SCALE },
    { .op = OP_EMBED },
    { .op = OP_LOSS,
      .forward = { MAKE('a', AS_INPUT, 4), MAKE('b', AS_INPUT, 4), DROP('a') },
      .backward = { MAKE('c', AS_INPUT, 4), MAKE('e', AS_INPUT, 4), DROP('c'), DROP('b'),
                    MAKE('d', 0, 0), DROP('e') } },
    { .op = OP_END }
};

/* The last norm is in no block, so nobody compiles it: it saves an fp32 copy of its input, and the normed one. */
static const struct memory_rule last_rules[] = {
    { .op = OP_NORM,
      .forward = { MAKE('a', AS_INPUT, 4), MAKE('c', AS_INPUT, 4), DROP('c'), MAKE('b', PER_TOKEN, 4),
                   MAKE('c', AS_INPUT, 4), MAKE('e', AS_INPUT, 2), DROP('c'), MAKE('y', 0, 0) },
      .backward = { MAKE('f', AS_INPUT, 2), MAKE('g', AS_INPUT, 4), DROP('f'), MAKE('h', AS_INPUT, 4),
                    MAKE('d', 0, 0), DROP('g'), DROP('h') } },
    { .op = OP_END }
};

static const struct memory_rule cut_loss = {
    .op = OP_LOSS,
    .forward = { MAKE('a', AS_INPUT, 4), MAKE('c', AS_INPUT, 4), MAKE('e', AS_INPUT, 4), DROP('e'),
                 MAKE('b', AS_INPUT, 4), DROP('c'), DROP('a') },
    .backward = { MAKE('c', AS_INPUT, 4), MAKE('e', AS_INPUT, 4), MAKE('f', AS_INPUT, 4), DROP('e'),
                  MAKE('g', AS_INPUT, 4), DROP('f'), DROP('c'), DROP('b'), MAKE('d', 0, 0), DROP('g') },
};

const struct memory_profile memory_torch = {
    .name = "torch", .title = "PyTorch with FSDP2, as torchtitan trains: compiled blocks, fp32 shards",
    .source = "pytorch/torchtitan at 9dec370; pytorch/pytorch, loss.py at 02eef6b",
    .prints = "reserved (torchtitan's \"memory\")",
    .rules = rules, .last_rules = last_rules, .cut_loss = &cut_loss,
    .formats = { .weight = 4, .gathered = 2, .made = 2, .gradient = 4, .reduced = 4, .state = 4, .step = 4 },
    .life = UNTIL_PART_ENDS, .expandable = true, .saves_gathered = true, .copies_gathered = true,
    .saves_matrices = true, .root_stays = true,
    .keeps_sent = true, .receives_apart = true,
};
