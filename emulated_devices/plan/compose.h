/* compose.h -- which features cannot be combined: a table of features, and a table of pairs that clash.
 *
 * A feature is something that a plan may have: a flag, or a property of its optimizer, scheme, schedule or format.
 * Two features that cannot be combined are a row of the table in compose.c, with the reason and an alternative.
 * To allow the combination, delete the row.  Limits of a single flag (a range, a divisor, the groups that an algorithm
 * accepts) are not clashes: the code that reads the flag checks them.
 *
 * Callers: check.c refuses a plan by the table, cli/list/ lists the table.
 */
#ifndef ORRERY_PLAN_COMPOSE_H
#define ORRERY_PLAN_COMPOSE_H

#include "emulated_devices/plan/plan.h"

/* A plan's features are read from these inputs. */
struct facts {
    const struct plan *plan;            /* stages, chunks and updates are set */
    const struct shards *shards;        /* of the data scheme */
    const struct schedule *schedule;    /* of the pipeline */
};

/* X(id, name in `orrery list clashes`: the flag, or the most common example).
 * For a plan that has the feature, features.c gives the flag and value that were typed. */
#define FEATURES(X)                                                                                 \
    X(tp,                     "--tp P")                                                             \
    X(tp_cuts_columns,        "--tensor 2d, 2.5d or 3d")                                            \
    X(tp_cuts_rows,           "--tensor 1d-sp")                                                     \
    X(tp_keeps_inputs,        "--tensor 1d-sp-keep")                                                \
    X(norms_after,            "a model whose matrices read the residual stream, as OLMo 2's")      \
    X(tp_uneven,               "--tp P")                                                            \
    X(tp_moves_weights,       "--tensor 1d-sp-overlap, 2d, 2.5d or 3d")                             \
    X(tp_copies_keys,         "--tp P with fewer key/value heads")                                  \
    X(tp_copies_biases,       "--tp P with fewer key/value heads, which have biases")               \
    X(cp,                      "--cp P")                                                            \
    X(split_cp,                "--head-parallel or --context-first")                                \
    X(context_plan,            "--attention hdp")                                                    \
    X(plans_steps,             "--attention hdp or flexsp with several microbatches")                \
    X(windows,                 "a model whose attention has windows")                               \
    X(sinks,                   "a model whose attention has sinks")                                 \
    X(stored_scores,           "--attention rsa")                                                   \
    X(biased_experts,         "a model whose experts have biases")                                \
    X(long_rotary,             "a model with LongRoPE, beyond its original length")                 \
    X(tp_cuts_sequences,       "--tensor 2d, 2.5d or 3d")                                           \
    X(ring_window,             "--ring-window")                                                     \
    X(one_dimension,           "--attention ring")                                                  \
    X(one_ring,                "--attention usp")                                                   \
    X(tiles,                  "--tiles T")                                                          \
    X(quantized_weights,      "--quantize-weights")                                                 \
    X(quantized_gradients,    "--quantize-gradients")                                               \
    X(offload,                "--offload")                                                          \
    X(offload_activations,    "--offload activations")                                              \
    X(offload_experts,        "--offload experts")                                                  \
    X(few_layers,             "at most two layers for each stage")                                  \
    X(offload_weights,        "--offload weights")                                                  \
    X(offload_gradients,      "--offload gradients")                                                \
    X(offload_state_alone,    "--offload optimizer")                                                \
    X(chosen_experts,         "--chosen-experts")                                                   \
    X(trains,                 "--optimizer adamw or mezo")                                          \
    X(experts_in_shards,      "--ep 2 --zero 3")                                                    \
    X(moves_experts,          "--dispatch tutel or fssdp")                                          \
    X(host_steps,             "--offload-stride K")                                                 \
    X(offload_to_folder,      "--offload-to DIR")                                                   \
    X(step_needs_gradients,    "gradients or optimizer state on the device")                        \
    X(step_needs_weights,      "weights, gradients or optimizer state on the device")               \
    X(keep_gathered,          "--reshard-after-forward no")                                         \
    X(reduce_scatter,         "--reduce-scatter")                                                   \
    X(scattered_by_place,      "--reduce-scatter ring")                                             \
    X(reduced_by_place,        "--allreduce ring")                                                  \
    X(reduced_by_nodes,        "--allreduce auto or two_level")                                     \
    X(weights_shared,          "--data-parallel zero3")                                             \
    X(weights_whole,           "--data-parallel ddp")                                               \
    X(state_shared,            "--data-parallel zero1")                                             \
    X(nothing_shared,          "--data-parallel ddp")                                               \
    X(state_shared_further,    "--data-parallel zero1")                                             \
    X(weights_late,            "--data-parallel zero1-overlap")                                     \
    X(gathers_once,            "--data-parallel fsdp-once")                                         \
    X(allreduces_whole,        "--data-parallel ddp")                                               \
    X(apart,                  "--data-parallel local-sgd")                                          \
    X(apart_in_two_stages,     "--data-parallel local-sgd or diloco")                               \
    X(reduces_every_step,      "--data-parallel ddp")                                               \
    X(averages,               "--data-parallel local-sgd")                                          \
    X(outer_momentum,          "--outer-momentum")                                                  \
    X(outer_numbers,           "--local-steps, --outer-lr, --outer-momentum")                       \
    X(two_versions,            "--schedule pipedream-2bw")                                          \
    X(mid_stream,              "--schedule pipedream-2bw")                                          \
    X(several_steps,           "--schedule pipedream-2bw")                                          \
    X(batches,                "--batches FILE")                                                     \
    X(several_stages,          "several stages on a device")                                        \
    X(backward_before_last,    "--schedule 1f1b")                                                   \
    X(skips_stages,            "--schedule skippipe")                                               \
    X(low_rank,               "--optimizer galore or natural-galore")                               \
    X(forward_only,           "--optimizer mezo")                                                   \
    X(draws,                  "--optimizer mezo")                                                   \
    X(has_gradients,           "--optimizer adamw")                                                 \
    X(stateless,               "--optimizer sgd")                                                   \
    X(both_sides,             "--perturb 2")                                                        \
    X(clip,                   "--clip")                                                             \
    X(recompute,              "--recompute")                                                        \
    X(loss_scale,             "--loss-scale")                                                       \
    X(needs_loss_scale,       "--dtype fp16")                                                       \
    X(needs_no_loss_scale,     "--dtype bf16, fp32 or fp64")                                        \
    X(narrow_gradients,        "--grad-dtype of 16 bits")                                           \
    X(mixture,                 "a mixture of experts")                                              \
    X(biased_router,           "a router with a correction bias")                                   \
    X(no_mixture,              "a model without experts")                                           \
    X(balance_of_batch,        "--balance-over batch")                                              \
    X(balance_of_sequence,     "--balance-over sequence")                                           \
    X(balance_of_microbatch,   "--balance-over microbatch")                                         \
    X(by_sequence,             "a capacity or a balance loss of each sequence")                                   \
    X(streams,                 "--streams P")                                                       \
    X(packed,                  "--pack FILE")                                                       \
    X(mask,                    "--mask lambda, shared-question or blockwise")                                 \
    X(experts_predicted,       "--dispatch speculative")                                           \
    X(experts_here,            "--dispatch here")                                                  \
    X(experts_apart,           "--dispatch alltoall")                                               \
    X(exact,                   "--arithmetic exact")                                                \
    X(adds_by_layout,          "--tensor of a plug-in")                                             \
    X(adds_choices,            "--dispatch of a plug-in")                                           \
    X(cuts_attention,          "--attention of a plug-in")                                          \
    X(loss_by_rule,            "--as with a loss of its own")                                       \
    X(fp64,                    "--dtype fp64")                                                      \
    X(sections,                "--plan FILE")                                                          \
    X(wide_vocabulary,         "a vocabulary of more than 2^19 tokens")                             \
    X(many_tokens,             "a --batch whose losses add up to 2^25")                            \
    X(freezes,                 "--train-only or --lora")                                           \
    X(adapters,                "--lora")                                                           \
    X(narrow,                  "--dtype bf16 or fp16")

enum feature {
#define X(id, name) HAS_##id,
    FEATURES(X)
#undef X
    FEATURE_COUNT
};

/* Flag and value, as on the command line. */
struct typed { char text[160]; };

/** Whether a plan has a feature; if so, typed gets the flag and value that select it.  typed may be NULL. */
bool feature_of(const struct facts *, enum feature, struct typed *);
const char *feature_name(enum feature);

/* A clash is between two features.  In reason, @ stands for the second one. */
struct clash {
    enum feature one, other;            /* the error message names the first */
    const char *reason;                 /* the message after "FLAG VALUE: " */
    const char *takes;                  /* the alternative: what the first can be combined with */
};

/** All pairs, in the order in which they are checked.  @return NULL after the last. */
const struct clash *clash_at(int place);

/** The first clash of a plan at this place of the table or later.  @return NULL if there is none. */
const struct clash *clash_of(const struct facts *, int place);

/** The text of a row, without a plan, for a list that is grouped by the first feature: "reason; use ..". */
void clash_describe(const struct clash *, char *text, size_t size);

/** Part of plan_check.  @return OK, or ERR_PLAN with the first clash: "FLAG VALUE: reason; use ..". */
enum error_code plan_check_compose(const struct facts *, struct error *);

#endif
