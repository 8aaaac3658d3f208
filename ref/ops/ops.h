/* ops.h -- all operations of the models, as one table per number format.
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
 */
#ifndef ORRERY_OPS_H
#define ORRERY_OPS_H

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
    double pairs;               /* with a mask: attention_pairs, for the cost */
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
    double bias_speed;
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

struct ops {
    enum dtype dtype;

    /* Y[n,:] = W[ids[n] - first,:] where that row exists (first <= ids[n] < first + rows of W), else 0.
     * ids: I32 [N].  accumulate: Y += instead of Y =.  dW[ids[n] - first,:] += dY[n,:], in order of n. */
    void (*embedding_forward)(struct tensor Y, struct tensor ids, struct tensor W, int64_t first, bool accumulate);
    void (*embedding_backward_weight)(struct tensor dW, struct tensor dY, struct tensor ids, int64_t first);

    /* Y[n,:] = (X[n,:] - mean[n]) * rstd[n] * w + b,  rstd = 1/sqrt(var + eps).  X, Y [N,D]; mean, rstd [N];
     * w, b [D]. */
    void (*layernorm_forward)(struct tensor Y, struct tensor mean, struct tensor rstd, struct tensor X, struct tensor w,
                              struct tensor b, double eps);
    void (*layernorm_backward_input)(struct tensor dX, struct tensor dY, struct tensor X, struct tensor w,
                                     struct tensor mean, struct tensor rstd);
    void (*layernorm_backward_weight)(struct tensor dw, struct tensor db, struct tensor dY, struct tensor X,
                                      struct tensor mean, struct tensor rstd);

    /* Layernorm in pieces: devices that hold slices of the `width` columns add their sums between the pieces.
     *   row_sums:             sum[n] = sum of row n;  mean = (sum over all slices) / width
     *   row_centred_squares:  sum[n] = sum of (X[n,:] - mean[n])^2
     *   forward_part:         rstd: on entry the squares summed over all slices, on return 1/sqrt(rstd/width + eps);
     *                         Y as above, from base + w: an rmsnorm is computed so, with mean and b 0
     *   backward_sums:        sums[0,n], sums[1,n] = sums of g and of g xhat, g = dY (base + w)
     *   backward_part:        dX from the sums of all slices */
    void (*row_sums)(struct tensor sum, struct tensor X);
    void (*row_centred_squares)(struct tensor sum, struct tensor X, struct tensor mean);
    void (*layernorm_forward_part)(struct tensor Y, struct tensor rstd, struct tensor X, struct tensor w, double base,
                                   struct tensor b, struct tensor mean, int64_t width, double eps);
    void (*layernorm_backward_sums)(struct tensor sums, struct tensor dY, struct tensor X, struct tensor w, double base,
                                    struct tensor mean, struct tensor rstd);
    void (*layernorm_backward_part)(struct tensor dX, struct tensor dY, struct tensor X, struct tensor w, double base,
                                    struct tensor mean, struct tensor rstd, struct tensor sums, int64_t width);

    /* Y[n,:] = X[n,:] * rstd[n] * (base + w),  rstd = 1/sqrt(mean of squares + eps).  X, Y [N,D]; rstd [N]; w [D]. */
    void (*rmsnorm_forward)(struct tensor Y, struct tensor rstd, struct tensor X, struct tensor w, double base,
                            double eps);
    void (*rmsnorm_backward_input)(struct tensor dX, struct tensor dY, struct tensor X, struct tensor w, double base,
                                   struct tensor rstd);
    void (*rmsnorm_backward_weight)(struct tensor dw, struct tensor dY, struct tensor X, struct tensor rstd);

    /* The same for each head of queries and of keys.  X, Y [N,(H+2K)A]; w [2A]: of queries, of keys; rstd [N(H+K)].
     * Or for all queries and all keys: w [(H+K)A], rstd [2N].  Values are copied. */
    void (*head_norm_forward)(struct tensor Y, struct tensor rstd, struct tensor X, struct tensor w, double base,
                              struct attention a, double eps);
    void (*head_norm_backward_input)(struct tensor dX, struct tensor dY, struct tensor X, struct tensor w, double base,
                                     struct tensor rstd, struct attention a);
    void (*head_norm_backward_weight)(struct tensor dw, struct tensor dY, struct tensor X, struct tensor rstd,
                                      struct attention a);

    /* Y = X W^T + b.  X [N,I], W [O,I], b [O] or tensor_none, Y [N,O].  _add: Y += X W^T. */
    void (*linear_forward)(struct tensor Y, struct tensor X, struct tensor W, struct tensor b);
    void (*linear_forward_add)(struct tensor Y, struct tensor X, struct tensor W);
    void (*linear_backward_input)(struct tensor dX, struct tensor dY, struct tensor W);
    void (*column_sums)(struct tensor db, struct tensor dY);        /* db alone */
    void (*linear_backward_weight)(struct tensor dW, struct tensor db, struct tensor dY, struct tensor X);

    /* The same for some rows of a matrix, from row `first` on, which belong to the columns of Y or dY from `first` on.
     * The other columns are not changed or read.  dX = dY W, or dX += dY W if accumulate. */
    void (*linear_forward_columns)(struct tensor Y, int64_t first, struct tensor X, struct tensor W, struct tensor b);
    void (*linear_backward_input_columns)(struct tensor dX, struct tensor dY, int64_t first, struct tensor W,
                                          bool accumulate);
    void (*linear_backward_weight_columns)(struct tensor dW, struct tensor dY, int64_t first, struct tensor X);

    /* O [N, H*A] = softmax(scale Q K^T, causal) V;  lse [B,H,S] = log(sum of exp(scores)) of each query.
     * No S x S matrix is stored; backward recomputes the probabilities from lse.  dQKV has the shape of QKV.
     * A query that sees one key and nothing more (a.more) adds exactly 0 to gradients of queries and keys: the
     * probability of that key is 1, whatever their product is.
     * sinks_backward: dsinks [H] += the gradient of the sinks, from lse [BH,n] of all keys and the sink. */
    void (*attention_forward)(struct tensor O, struct tensor lse, struct tensor QKV, struct attention a);
    void (*attention_backward_input)(struct tensor dQKV, struct tensor dO, struct tensor O, struct tensor lse,
                                     struct tensor QKV, struct attention a);

    void (*attention_sinks_backward)(struct tensor dsinks, struct tensor dO, struct tensor O, struct tensor lse,
                                     struct attention a);

    /* Attention of some tokens with the keys of some, for sequences that are cut.  Q [BnQ, >=HA]: its first columns are
     * queries; KV [BnK, >=2KA]: its last columns are keys and values.  q_at, k_at: I32 [nQ], [nK], the positions of the
     * rows of each sequence, ascending.  S, mask and dropout are those of whole sequences.
     *   forward   O [BnQ,HA] and lse [B,H,nQ] over these keys alone; of a query that sees none O = 0, lse = -infinity
     *   merge     O, lse = those over the keys of both results
     *   delta     delta [B,H,nQ] = dO . O for each head of a row
     *   backward  dQ, dKV (columns as in Q and KV) += what these queries and keys contribute, given lse and delta of
     *             all keys */
    void (*attention_part_forward)(struct tensor O, struct tensor lse, struct tensor Q, struct tensor KV,
                                   struct tensor q_at, struct tensor k_at, struct attention a);
    void (*attention_merge)(struct tensor O, struct tensor lse, struct tensor O2, struct tensor lse2,
                            struct attention a);
    void (*attention_delta)(struct tensor delta, struct tensor dO, struct tensor O, struct attention a);
    void (*attention_part_backward)(struct tensor dQ, struct tensor dKV, struct tensor dO, struct tensor delta,
                                    struct tensor lse, struct tensor Q, struct tensor KV, struct tensor q_at,
                                    struct tensor k_at, struct attention a);

    /* Attention in steps that store the scores of n queries of each sequence with all its tokens: X, P [BHn,S].
     * q_at: I32 [n], the queries' positions; S, mask and dropout are those of whole sequences.  L [Bn, >=HA], Y
     * [Bn, >=HA]: the first columns are used.  R [Bk,KA]: keys or values of k tokens of each sequence, from position
     * `first` on; dR [BS,KA]: of all tokens.  m: the factors of a.drop.
     *   scores            X[:, first ..] = a.scale m (L R^T), capped by a.cap; no other column changes
     *   softmax           X = softmax of each row over the tokens that the query sees; 0 for others, without
     *                     sinks; lse [BHn] as above, or tensor_none
     *   softmax_backward  dX = P (dX - sum of P dX over the row), times the slopes of the cap, if there is one: at
     *                     the scores log(P) + lse
     *   times             Y += a.scale (m X[:, first ..]) R
     *   transposed        dR = a.scale (m X)^T L, summed over queries, and over heads that share a key head */
    void (*attention_scores)(struct tensor X, int64_t first, struct tensor L, struct tensor R, struct tensor q_at,
                             struct attention a);
    void (*attention_softmax)(struct tensor X, struct tensor lse, struct tensor q_at, struct attention a);
    void (*attention_softmax_backward)(struct tensor dX, struct tensor P, struct tensor lse, struct attention a);
    void (*attention_scores_times)(struct tensor Y, struct tensor X, int64_t first, struct tensor R,
                                   struct tensor q_at, struct attention a);
    void (*attention_scores_transposed)(struct tensor dR, struct tensor X, struct tensor L, struct tensor q_at,
                                        struct attention a);

    /* Rotate the first R numbers of the H query and K key heads of QKV by their positions, in place; backward rotates
     * dQKV back.  positions: I32 [N]; table [S,R]: row p holds cos of the R/2 angles at position p, then the sines. */
    void (*rotary_forward)(struct tensor QKV, struct tensor positions, struct tensor table, struct attention a);
    void (*rotary_backward_input)(struct tensor dQKV, struct tensor positions, struct tensor table, struct attention a);

    /* Y [N,F] = silu(first half of X) * second half.  X [N,2F]. */
    void (*swiglu_forward)(struct tensor Y, struct tensor X);
    void (*swiglu_backward_input)(struct tensor dX, struct tensor dY, struct tensor X);

    /* The same with gelu. */
    void (*geglu_forward)(struct tensor Y, struct tensor X);
    void (*geglu_backward_input)(struct tensor dX, struct tensor dY, struct tensor X);
    void (*clamped_swiglu_forward)(struct tensor Y, struct tensor X, struct clamped c);
    void (*clamped_swiglu_backward_input)(struct tensor dX, struct tensor dY, struct tensor X, struct clamped c);

    /* Y[n,:] = sigmoid(logits[n]) X[n,:].  logits, dlogits [N,1], in the wide format. */
    void (*gate_forward)(struct tensor Y, struct tensor X, struct tensor logits);
    void (*gate_backward_input)(struct tensor dX, struct tensor dlogits, struct tensor dY, struct tensor X,
                                struct tensor logits);

    /* Blocks of columns of X to places in Y, or added to what is there (columns.c). */
    void (*columns_move)(struct tensor Y, struct tensor X, struct column_blocks, bool add);

    /* Y = silu(X);  Y, dX and dY have the shape of X. */
    void (*silu_forward)(struct tensor Y, struct tensor X);
    void (*silu_backward_input)(struct tensor dX, struct tensor dY, struct tensor X);

    /* P parallel streams, H [PN,D]: the rows of stream 0, then of stream 1, ...
     *   beside   X [N,DP]: column dP + i is column d of stream i
     *   mix      Y [N,D] = sum of w_i H_i, of X; w = (1 - smoothing) p + smoothing/P,
     *            p [N,P] = softmax(logits [N,P]) */
    void (*streams_beside)(struct tensor X, struct tensor H);
    void (*streams_beside_backward_input)(struct tensor dH, struct tensor dX);
    void (*streams_mix_forward)(struct tensor Y, struct tensor p, struct tensor logits, struct tensor X,
                                double smoothing);
    void (*streams_mix_backward_input)(struct tensor dX, struct tensor dlogits, struct tensor dY, struct tensor p,
                                       struct tensor X, double smoothing);

    /* The k best experts of each row of logits [N,E] by a rule, best first (of equal ones the lower index first), and
     * their weights.  experts: I32 [N,k]; weights [N,k]; bias: [E] of a biased rule, in host memory; NULL: zeros.
     * route_weights: the weights alone, of experts that are given, in any order. */
    void (*route_forward)(struct tensor weights, struct tensor experts, struct tensor logits,
                          const struct router_rule *, const double *bias);
    void (*route_weights)(struct tensor weights, struct tensor experts, struct tensor logits,
                          const struct router_rule *);
    /* Of an expert's choices in each sequence of S rows keep `capacity`: the others are dropped, and their weights and
     * the gradients of these become 0.  by_weight: keep the largest, else those of the first rows.  All choices of
     * columns from E on are kept. */
    void (*route_drop)(struct tensor weights, struct tensor experts, int64_t S, int64_t E, int64_t capacity,
                       bool by_weight);
    void (*route_backward_input)(struct tensor dlogits, struct tensor dweights, struct tensor weights,
                                 struct tensor experts, struct tensor logits, const struct router_rule *);

    /* Before and after a mixture's experts.  order: I32 [R], the indices n k + i into experts [N,k], sorted by expert,
     * then by token, without choices of none of the E experts; counts: I32 [E], rows of each, R in all; order may have
     * room for more.  gather: rows[r] = X[order[r]/k].  combine: Y[n] = sum over
     * the rows r of token n of weights[order[r]] rows[r], in order.  Both accept a part of the order; the results of
     * all parts sum to the whole. */
    void (*expert_order)(struct tensor order, struct tensor counts, struct tensor experts);
    void (*gather_forward)(struct tensor rows, struct tensor X, struct tensor order, int64_t k);
    void (*gather_backward_input)(struct tensor dX, struct tensor drows, struct tensor order, int64_t k);
    void (*combine_forward)(struct tensor Y, struct tensor rows, struct tensor order, struct tensor weights);
    void (*combine_backward_input)(struct tensor drows, struct tensor dweights, struct tensor dY, struct tensor rows,
                                   struct tensor order, struct tensor weights);

    /* Experts that return what they get, columns E and above: Y[n] += sum over their choices of weights X[n]; the same
     * adds the gradient of X, by that of Y.  dweights = X[n] . dY[n] of their choices; others do not change. */
    void (*identity_forward)(struct tensor Y, struct tensor X, struct tensor experts, struct tensor weights, int64_t E);
    void (*identity_backward_weights)(struct tensor dweights, struct tensor dY, struct tensor X, struct tensor experts,
                                      int64_t E);

    /* The auxiliary losses of a router.  sums double [2E+1] += sum over rows of softmax(row), choices of each expert
     * among the first `counted` of a row, sum of logsumexp(row)^2.  dlogits += p (slope - slope . p) + z_slope p
     * logsumexp for each row. */
    void (*router_losses_forward)(double *sums, struct tensor logits, struct tensor experts, int64_t counted);
    void (*router_losses_backward_input)(struct tensor dlogits, struct tensor logits, const double *slope,
                                         double z_slope);

    /* The balance loss of each sequence of S rows.  Forward adds those of all sequences to sum; backward adds
     * slope times their gradient to dlogits.  whole: the choices [B S,k] of B sequences; the rows may be some of each,
     * as many of all: what their probabilities add to the sum. */
    void (*sequence_balance_forward)(double *sum, struct tensor logits, struct tensor experts, struct tensor whole,
                                     int64_t S, const struct router_rule *);
    void (*sequence_balance_backward_input)(struct tensor dlogits, struct tensor logits, struct tensor experts,
                                            struct tensor whole, int64_t S, const struct router_rule *, double slope);

    /* Y = gelu(X), tanh form.  dX = dY * gelu'(X);  dX may be dY. */
    void (*gelu_forward)(struct tensor Y, struct tensor X);
    void (*gelu_backward_input)(struct tensor dX, struct tensor dY, struct tensor X);

    /* Y = cap tanh(X / cap);  Y may be X.  dX from the result;  dX may be dY. */
    void (*soft_cap_forward)(struct tensor Y, struct tensor X, double cap);
    void (*soft_cap_backward_input)(struct tensor dX, struct tensor dY, struct tensor Y, double cap);

    /* Y = A + B;  Y may be A or B.  Its backward is the identity, twice. */
    void (*add)(struct tensor Y, struct tensor A, struct tensor B);

    /* Y = X where kept, scaled by 1/(1-p), else 0;  Y may be X.  Backward is the same function on dY. */
    void (*dropout)(struct tensor Y, struct tensor X, struct dropout d);

    /* Softmax cross-entropy in pieces: devices that hold slices of the vocabulary exchange results between the pieces.
     * logits [N,V'] are columns first .. first+V'-1 of the whole;  labels I32 [N];  per-token results [N].
     *   max:       top[n] = max over the slice (-infinity for an empty one)
     *   sums:      total[n] = sum exp(logits[n,:] - top[n]);
     *              hit[n] = logits[n, labels[n]] if the label is in the slice, else 0
     *   loss:      returns the sum of log(total[n]) + top[n] - hit[n] over n with labels[n] != ignore, in double
     *   backward:  dlogits = scale * (exp(logits - top)/total - [column is the label]), 0 in ignored rows;
     *              dlogits may be logits */
    void (*cross_entropy_max)(struct tensor top, struct tensor logits);
    void (*cross_entropy_sums)(struct tensor total, struct tensor hit, struct tensor logits, struct tensor top,
                               struct tensor labels, int64_t first);
    double (*cross_entropy_loss)(struct tensor total, struct tensor top, struct tensor hit, struct tensor labels,
                                 int ignore);
    void (*cross_entropy_backward)(struct tensor dlogits, struct tensor logits, struct tensor total, struct tensor top,
                                   struct tensor labels, int64_t first, int ignore, double scale);

    /* Sum of squares of all elements, in double, in blocks of fixed size: the order does not depend on threads. */
    double (*sum_of_squares)(struct tensor X);
    /* Y = a * Y */
    void (*scale)(struct tensor Y, double a);
};

/* The pieces of a row that norms of heads norm: how many, the width of one, of queries or of keys, and of how many the
 * weights are those of the queries. */
struct normed_heads { int64_t count, queries, keys, first; };
static inline struct normed_heads normed_heads(struct attention a)
{
    return a.normed_together ? (struct normed_heads){ 2, a.H * a.A, a.K * a.A, 1 }
                             : (struct normed_heads){ a.H + a.K, a.A, a.A, a.H };
}

/** The operations of a floating-point format, or NULL if there are none. */
const struct ops *ops_for(enum dtype);

/* Costs of operations: floating-point operations, and bytes read or written once.  A multiply-add counts as two;
 * attention counts only the pairs of a query and a key that it sees. */
struct op_cost {
    double flops, bytes;
    int64_t rows, columns, depth;       /* of a matrix product's result, and the terms of each sum; else 0; of
                                         * attention only depth: the width of a head */
    bool running;                       /* part of a kernel that is running already, as sums of a collective are */
};

/* Forward; each of the two backward parts costs the same. */
struct op_cost linear_cost(int64_t N, int64_t I, int64_t O, enum dtype);
/* Pairs of a query and a key that it sees, of N rows of whole sequences; the mask must be in the host's memory. */
double attention_pairs(int64_t N, struct attention a);
struct op_cost attention_forward_cost(int64_t N, struct attention a, enum dtype);
struct op_cost attention_backward_cost(int64_t N, struct attention a, enum dtype);
/* Of a part: pairs (query, key) that see each other, over all sequences; rows of queries and of keys. */
struct op_cost attention_part_forward_cost(double pairs, int64_t queries, int64_t keys, struct attention a, enum dtype);
struct op_cost attention_part_backward_cost(double pairs, int64_t queries, int64_t keys, struct attention a,
                                            enum dtype);
/* A product with stored scores, `scores` of them; rows of queries and of keys. */
struct op_cost attention_scores_cost(int64_t scores, int64_t queries, int64_t keys, struct attention a, enum dtype);
struct op_cost elementwise_cost(int64_t elements, int tensors, double flops_each, enum dtype);

#endif
