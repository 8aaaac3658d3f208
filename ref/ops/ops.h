/* ops.h -- all operations of the models, as one table per number format.  ops.def lists them.
 *
 * An operation has three functions: forward, backward for its inputs (dX from dY) and backward for its weights
 * (dW += ..., so that microbatches accumulate).  They are separate because zero-bubble pipelines run them at different
 * times.  Letters of shapes: docs/words.md; N = rows = tokens (B times S).
 *
 * Conventions of all operations:
 *   - outputs come first, then inputs; dX is the gradient of X and has its shape;
 *   - backward_input overwrites dX, backward_weight adds to dW;
 *   - outputs must not overlap inputs unless the operation allows it;
 *   - tensor_none stands for an optional tensor that is left out;
 *   - the caller guarantees shapes and dtypes (asserts check them in debug and sanitizer builds), so no function fails;
 *   - the order of every sum is fixed: the bits do not depend on the number of threads, except inside the BLAS.
 *
 * Each file ref/ops/NAME.c is compiled once for fp32 and once for fp64, with `real` as the type of its numbers;
 * ops_for() returns the table.
 *
 * bf16 and fp16 store tensors, and fp32 computes: the fp32 operation runs on the widened operands, and each element of
 * a result is rounded once more, to nearest even, when it is stored (widened.c).  So
 *   - |stored - exact| <= (bound of fp32) + u16 |result|, for any number of terms;
 *   - statistics, a few numbers per row, are fp32 tensors (dtype_wide() of 16 bits): mean, rstd, lse, top, total, hit;
 *   - dW and db may be fp32 or 16-bit tensors, in any format of the weights.  In fp32 they accumulate as usual.  In 16
 *     bits each call adds its whole sum in fp32 and rounds once, so each microbatch rounds once.
 *
 * Backends take a table by ops_for, and device/compute.h calls through the backend; ref/model/ calls a table itself.
 */
#ifndef ORRERY_OPS_H
#define ORRERY_OPS_H

#include "ref/each.h"
#include "ref/exact/rule.h"
#include "ref/numeric/tensor.h"

/* Dropout of a piece of a tensor.  The random number of an element depends on its (row, col) in the whole tensor, so
 * every mesh drops the same elements. */
struct dropout {
    double p;                   /* probability of dropping, 0 <= p < 1; 0: no dropout, the other fields are not read */
    uint64_t seed, stream;      /* as in philox.h; the caller mixes the training step into the seed */
    int64_t row0, col0;         /* start of the piece in the whole tensor */
    int64_t cols;               /* columns of the whole tensor */
};

/* Self-attention on a fused projection: row n of QKV is [H heads of Q | K heads of K | K heads of V], each with A
 * numbers. */
struct attention {
    int64_t S;                  /* tokens per sequence; the rows are B sequences of S */
    int64_t H, K, A;            /* query heads, key/value heads (query head h uses key head h / (H/K)), head width */
    double scale;               /* of the scores, usually 1/sqrt(A) */
    double cap;                 /* a score s becomes cap tanh(s / cap); 0: it stays as it is */
    bool neighbours;            /* rotary pairs are numbers 2i and 2i+1 of a head, not i and i + R/2 */
    bool normed_together;       /* norms of heads: all queries are one head of it, and all keys; else each its own */
    struct tensor mask;         /* none: causal, a query sees keys up to itself.  Or I32 [S,2R]: the row of a query's
                                 * position has R ranges of positions of keys that it sees, first and end, disjoint and
                                 * ascending (an empty one: first = end); or [BS,2R], for each sequence its own */
    int64_t window;             /* of what it would see, a query sees nothing before the last `window` positions up to
                                 * its own; 0: all */
    struct tensor sinks;        /* [H], or none: the logit of each head's sink, which a query sees beside its keys, and
                                 * which has no value.  Parts of the keys: of one of them alone */
    bool more;                  /* queries also see what is not among the keys of this sequence: a sink, a prefix */
    int64_t each;               /* tokens of each of several sequences that dropout numbers, if one of S holds them;
                                 * 0: S */
    double pairs;               /* with a mask, or in parts: pairs of a query and a key that it sees, for the cost */
    struct dropout drop;        /* of the probabilities: row = (b*heads + head)*S + query, col = key;  row0 = index of
                                 * the first local sequence, col0 = first local head, cols = heads of the whole model */
};

/* A swiglu whose gates are at most `limit`, and its gated values within +-limit: y = (u + 1) g sigmoid(alpha g). */
struct clamped { double alpha, limit; };

/* How a mixture's router chooses the experts of a token, and weighs them: ref/ops/route.c.  ref/routers has the
 * published rules. */
enum router_scores { SCORES_SOFTMAX, SCORES_SIGMOID, SCORES_NEAR };
enum bias_update { BIAS_BY_SIGN, BIAS_BY_SHARE };
enum { ROUTER_MOST_GROUPS = 64 };
struct router_rule {
    enum router_scores scores;  /* of an expert, from its logit: softmax over all E, or the sigmoid of each; or among
                                 * those that are not chosen before and nearly as good */
    bool normalized;            /* the chosen scores are divided by their sum */
    double scale;               /* factor on the weights, above 0 */
    bool biased;                /* a correction bias is added to the scores for the choice, but not in the weights */
    enum bias_update bias_update;               /* how each step moves it: ref/routers/bias.c */
    double bias_speed;                          /**< Rate at which the correction bias moves. */
    double active;              /* by share: experts of a token that compute, on average, where others do not; 0: the
                                 * part of k that they are of all columns */
    int64_t groups, kept;       /* experts in groups of neighbours: only those of the `kept` best groups can be chosen;
                                 * 0 or 1 groups: all can */
    double top_p;               /* only the fewest choices whose probabilities add up to this; 0: all k */
    double near;                /* for SCORES_NEAR: half of how far two logits may be apart, relative to the larger */
    bool sums_two;              /* a group is as good as the sum of its two best experts, else as its best one */
};

/* A token's choice in experts, I32 [N,k]: a column of the router.  The first E are experts that compute.  No expert
 * computes the others, and they are not sent: experts without computation, and negative ones, which are dropped, as the
 * expert that they were made for has no room.  choice_made: that expert.  CHOICE_NONE: fewer than k are chosen. */
enum { CHOICE_NONE = INT32_MIN };
static inline int32_t choice_dropped(int32_t expert) { return -1 - expert; }
static inline int32_t choice_made(int32_t choice)
{
    return choice < 0 && choice != CHOICE_NONE ? -1 - choice : choice;
}

/* Blocks of columns: block b of `times` is `count` wide and begins at y + b y_step of one tensor, x + b x_step of the
 * other. */
struct column_blocks { int64_t times, count, y, y_step, x, x_step; };

/* Whether a token's last choice has the same logit as an expert that it has not chosen: either may be taken. */
static inline bool choice_is_open(const double *x, int64_t columns, const int32_t *chosen, int64_t k)
{
    for (int64_t e = 0; e < columns; e++) {
        bool mine = false, equal = false;
        for (int64_t i = 0; i < k; i++)
            mine = mine || choice_made(chosen[i]) == e,
            equal = equal || (chosen[i] != CHOICE_NONE && x[choice_made(chosen[i])] == x[e]);
        if (!mine && equal) return true;
    }
    return false;
}

enum { IGNORE_LABEL = -1 };             /* label of tokens without loss and gradient */

/* The arguments of an operation of ops.def, as parameters; and their names. */
#define PARAMETER(item) PARAMETER_##item
#define PARAMETER_OUT(x, ...) struct tensor x
#define PARAMETER_INOUT PARAMETER_OUT
#define PARAMETER_IN PARAMETER_OUT
#define PARAMETER_SUM_OUT PARAMETER_OUT
#define PARAMETER_STAT_OUT PARAMETER_OUT
#define PARAMETER_STAT_INOUT PARAMETER_OUT
#define PARAMETER_STAT_IN PARAMETER_OUT
#define PARAMETER_INT_OUT PARAMETER_OUT
#define PARAMETER_INT_INOUT PARAMETER_OUT
#define PARAMETER_INT_IN PARAMETER_OUT
#define PARAMETER_ATTENTION(a) struct attention a
#define PARAMETER_WITH_SINKS PARAMETER_ATTENTION
#define PARAMETER_ARG(type, x, value) type x

#define ARGUMENT(item) ARGUMENT_##item
#define ARGUMENT_OUT(x, ...) x
#define ARGUMENT_INOUT ARGUMENT_OUT
#define ARGUMENT_IN ARGUMENT_OUT
#define ARGUMENT_SUM_OUT ARGUMENT_OUT
#define ARGUMENT_STAT_OUT ARGUMENT_OUT
#define ARGUMENT_STAT_INOUT ARGUMENT_OUT
#define ARGUMENT_STAT_IN ARGUMENT_OUT
#define ARGUMENT_INT_OUT ARGUMENT_OUT
#define ARGUMENT_INT_INOUT ARGUMENT_OUT
#define ARGUMENT_INT_IN ARGUMENT_OUT
#define ARGUMENT_ATTENTION ARGUMENT_OUT
#define ARGUMENT_WITH_SINKS ARGUMENT_OUT
#define ARGUMENT_ARG(type, x, value) x

/* The operations of a format: an entry for each row of ops.def, which says what it computes. */
struct ops {
    enum dtype dtype;           /**< Format of the operands. */
    enum dtype sums;            /* format of partial sums, and of gradients of weights that no plan stores narrower */
#define OPERATION(name, need, operands, cost) void (*name)(LIST_OF(PARAMETER, operands));
#include "ref/ops/ops.def"
};

/* The attention of a part: `pairs` of its queries and keys see each other, over all sequences. */
static inline struct attention attention_of_pairs(struct attention attention, double pairs)
{
    attention.pairs = pairs;
    return attention;
}

/* The pieces of a row that norms of heads norm: how many, the width of one, of queries or of keys, and of how many the
 * weights are those of the queries. */
struct normed_heads { int64_t count, queries, keys, first; };
static inline struct normed_heads normed_heads(struct attention attention)
{
    return attention.normed_together
           ? (struct normed_heads){ 2, attention.H * attention.A, attention.K * attention.A, 1 }
                             : (struct normed_heads){ attention.H + attention.K, attention.A, attention.A,
                                                     attention.H };
}

/** The sum of squares of a tensor's elements, by the operation of this name. */
static inline double ops_squares(const struct ops *ops, struct tensor X)
{
    double squares = 0;
    ops->sum_of_squares(&squares, X);
    return squares;
}

/** The operations of a floating-point format, or NULL if there are none. */
const struct ops *ops_for(enum dtype);

/** Those with exact sums (ref/exact/) by this rule, or NULL if there are none in this format. */
const struct ops *ops_exact(enum dtype, enum exact_rule);

/** The operations of an arithmetic. */
static inline const struct ops *ops_of(enum dtype dtype, enum exact_rule rule)
{
    return rule != SUMS_ROUND ? ops_exact(dtype, rule) : ops_for(dtype);
}

/* Costs of operations: floating-point operations, and bytes read or written once.  A multiply-add counts as two;
 * attention counts only the pairs of a query and a key that it sees. */
struct op_cost {
    double flops, bytes;
    int64_t rows, columns, depth;       /* of a matrix product's result, and the terms of each sum; else 0; of
                                         * attention no rows: keys of a sequence, and the width of a head */
    double seen;                        /* of attention: pairs of a query and a key that see each other, over all */
    bool grouped;                       /* products of the same columns and depth, with these rows together */
    bool running;                       /* part of a kernel that is running already, as sums of a collective are */
    bool exact;                         /* products of integers in fp64 (ref/exact/): that format's rate counts */
};

/* With exact sums a product is one of integers in fp64.  Each slice of an operand is multiplied, as so many times the
 * terms would be. */
static inline struct op_cost cost_exactly(struct op_cost product, enum exact_rule rule)
{
    const int slices = rule == SUMS_ROUND ? 1 : (int)rule;
    return product.exact = rule != SUMS_ROUND, product.flops *= slices, product.depth *= slices, product;
}

/* Forward; each of the two backward parts costs the same. */
struct op_cost linear_cost(int64_t N, int64_t I, int64_t O, enum dtype);
/* Pairs of a query and a key that it sees, of N rows of whole sequences; the mask must be in the host's memory. */
double attention_pairs(int64_t N, struct attention attention);
struct op_cost attention_forward_cost(int64_t N, struct attention attention, enum dtype);
struct op_cost attention_backward_cost(int64_t N, struct attention attention, enum dtype);
/* A part has pairs (query, key) that see each other, over all sequences; rows of queries and of keys. */
struct op_cost attention_part_forward_cost(double pairs, int64_t queries, int64_t keys,
                                           struct attention attention, enum dtype);
struct op_cost attention_part_top_cost(double pairs, int64_t queries, int64_t keys, struct attention attention,
                                       enum dtype dtype);
struct op_cost attention_part_backward_cost(double pairs, int64_t queries, int64_t keys, struct attention attention,
                                            enum dtype);
/* A product with stored scores, `scores` of them; rows of queries and of keys. */
struct op_cost attention_scores_cost(int64_t scores, int64_t queries, int64_t keys,
                                     struct attention attention, enum dtype);
struct op_cost elementwise_cost(int64_t elements, int tensors, double flops_each, enum dtype);

#endif
