/* graph.h -- a pass as a graph: nodes over slots.  A node is one operation, a slot an activation, or a number.
 *
 * Whoever knows a model's operations makes its graph; what can be recomputed follows from it (walk.c):
 *
 *   a slot's value        the forward pass of its maker
 *   a slot's gradient     the sum of what its readers contribute: an operation's backward pass for that input, or the
 *                         gradient that passes by, as of the stream past a branch
 *   a parameter's         the sum of what the nodes that have it contribute: a tied matrix is also the embedding
 *
 * A slot that programs do not show (`unseen`), such as a sum inside a sum, is computed from what its maker reads; its
 * gradient from those of its readers.
 * replay.c makes the graph of a model from its table.  A new operation has a file here, an entry below, and a row in
 * replay.c.
 */
#ifndef ORRERY_SINGLE_GRAPH_H
#define ORRERY_SINGLE_GRAPH_H

#include "emulated_devices/check/recompute/single.h"
#include "ref/model/operands.h"

enum { SINGLE_INPUTS = 3, SINGLE_WORDS = 64 };

/* A matrix: rows are tokens, or tokens of all streams; cols what the maker gives each. */
struct single_slot {
    char name[SINGLE_NAME];             /* as in golden files, without act/ or grad/ */
    int64_t rows, cols;
    int64_t head;                       /* columns of a head, if they are heads; else 0 */
    int maker;                          /* node */
    int route;                          /* -1; or logits: rows are the choices that they make and experts compute */
    bool unseen;                        /**< Programs do not show this activation. */
    bool number;                        /* a result of the whole batch, such as the loss: it has no gradient */
};

struct single;
struct single_node;

/* How a pass has ended: with a value, or because an input is missing, an operation is not recomputed, or memory or a
 * file has failed. */
enum single_status { SINGLE_DONE, SINGLE_LACKING, SINGLE_NOT_KNOWN, SINGLE_FAILED };

/* A value is what is computed, and how far it may be off before it is stored. */
struct single_value {
    enum single_status status;          /* not SINGLE_DONE: there are no tensors */
    struct tensor y, fused, steps;
    struct tensor absolute;             /* of a sum: its absolute terms, added; else tensor_none */
    bool stored;                        /* it has been rounded to the format, or is the program's own number */
    int64_t terms;                      /* additions that may be made one by one onto another sum; 0: one */
    int matrices;                       /* products that are stored, and added one by one, also onto another sum; 0:
                                         * one */
    bool number;                        /* a sum over all that programs often keep in more bits than the format has */
};

/* An operation: its passes, NULL for those that it does not have.  The words are of the results. */
typedef struct single_value single_pass(struct single *, const struct single_node *);
struct single_operation {
    const char *words;                  /**< Name of the result in messages. */
    single_pass *forward;               /**< Forward pass. */
    single_pass *stored;                /* forward, with what programs may keep of a row stored in the format: as near
                                         * the result as that can be; NULL: they keep nothing */
    const char *input_words;            /**< Name of the gradient of an input in messages. */
    single_pass *input[SINGLE_INPUTS];  /* what it contributes to the gradient of each input */
    const char *weight_words;           /**< Name of the weight's gradient in messages. */
    single_pass *weight;                /**< Gradient of the weight. */
    const char *bias_words;             /**< Name of the bias's gradient in messages. */
    single_pass *bias;                  /**< Gradient of the bias. */
    bool passes_on;                     /* its input passes only hand a gradient on */
    bool by_rows;                       /* a row of what these passes make comes from that row only, wherever it is */
    bool weight_by_rows;                /* the gradients of weight and bias are sums over rows, wherever these are */
    bool in_blocks;                     /* its weight's gradient can be computed some rows at a time */
};

struct single_node {
    const struct single_operation *operation;   /* NULL: it is not recomputed */
    char words[SINGLE_WORDS];           /* its name, if it is not */
    int in[SINGLE_INPUTS], out;         /* slots; -1: none, or the batch's tokens */
    int weight, bias;                   /* parameters in the model's list; -1: none */
    int layer;                          /* -1: before the blocks; L: after them */
    int experts, stride;                /* 0; or so many have a weight, and a bias, `stride` apart in the list */
    int logits;                         /* slot: of the router that chooses them */
    enum model_factor factor;           /* of a scale */
    double rate;                        /* of dropout */
    char mask[SINGLE_NAME];             /* its tensor: 1 where an element is kept; empty if the rate is 0 */
    int matrices;                       /* that other programs have in place of its one: queries, keys and values */
};

struct single_graph {
    struct single_slot *slot;           /**< Activations and numbers, [slots]. */
    struct single_node *node;           /* in order of execution */
    int slots, nodes;
};

/**
 * Recompute every operation of one pass whose result the program has.
 * @return OK, whatever the verdicts; ERR_MEMORY; errors of fetch.
 */
enum error_code single_check(const struct model_config *, const struct single_graph *, struct single_batch,
                             struct rounding, struct single_source, struct error *);

/* ---- the operations ---------------------------------------------------------------------------------------------- */

extern const struct single_operation single_embed, single_positions, single_norm, single_matrix, single_rotary,
                                     single_head_norm, single_attention, single_sink_attention,
                                     single_clamped_swiglu, single_prefixed_attention, single_gelu,
                                     single_exact_gelu, single_squared_relu,
                                     single_silu, single_swiglu, single_geglu, single_scale, single_soft_cap,
                                     single_gate, single_dropout, single_add, single_beside, single_mix, single_route,
                                     single_experts_up, single_experts_down, single_combine, single_loss,
                                     single_balance_loss, single_z_loss, single_latent_norm, single_join;

#endif
