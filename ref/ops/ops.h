/* ops.h -- every operation a model is made of, as one table per number format.
 *
 * An operation is three functions: forward, backward for its inputs (dX from dY) and backward for its weights
 * (dW += ..., so that microbatches accumulate).  They are separate because zero-bubble pipelines run them at different
 * times.  Shapes travel in the tensors; the letters are those of docs/words.md, N = rows = tokens (B times S).
 *
 * Conventions, for all of them:
 *   - outputs come first, then inputs; dX is the gradient of X and has its shape;
 *   - backward_input overwrites dX, backward_weight adds to dW;
 *   - outputs do not overlap inputs unless the operation says so;
 *   - an optional tensor left out is tensor_none;
 *   - shapes and dtypes are the caller's contract (checked by assert in debug and sanitizer builds), so nothing here
 *     fails;
 *   - the order of every sum is fixed: same inputs, same thread count or not, same bits, except inside BLAS.
 *
 * Each file ref/ops/NAME.c is compiled once for fp32 and once for fp64 with `real` as its number; ops_for() picks the
 * table.
 *
 * bf16 and fp16 store tensors, and fp32 computes: an operation of theirs is that of fp32 on the widened operands, sums
 * and all, and each element of a result is rounded once more, to nearest even, when it is stored (widened.c).  So
 *   - |stored - exact| <= (fp32's own bound) + u16 |result|, whatever the number of terms;
 *   - statistics, a few numbers a row, are fp32 tensors, dtype_wide() of 16 bits: mean, rstd, lse, top, total, hit;
 *   - dW and db may be fp32 or 16-bit tensors, whatever the weights are.  In fp32 they accumulate as usual; in 16 bits
 *     each call adds its whole sum to what is there in fp32 and rounds once, so that microbatches round once each.
 */
#ifndef ORRERY_OPS_H
#define ORRERY_OPS_H

#include "ref/numeric/tensor.h"

/* Which random numbers decide what is dropped: element (row, col) of the whole tensor, so every mesh drops the same. */
struct dropout {
    double p;                   /* probability of dropping, 0 <= p < 1; 0: nothing is dropped and the rest is unread */
    uint64_t seed, stream;      /* as in philox.h; the caller folds the training step into the seed */
    int64_t row0, col0;         /* where the given piece starts in the whole tensor */
    int64_t cols;               /* columns of the whole tensor */
};

/* Causal self-attention on a fused projection: row n of QKV is [H heads of Q | K heads of K | K
 * heads of V], each A wide. */
struct attention {
    int64_t S;                  /* tokens per sequence; the rows are B sequences of S */
    int64_t H, K, A;        /* query heads, key/value heads (H % K == 0: query head h uses key head h / (H/K)), width */
    double scale;               /* of the scores, usually 1/sqrt(A) */
    bool neighbours;            /* rotary positions turn numbers 2i and 2i+1 of a head, not i and i + R/2 */
    struct dropout drop; /* of the probabilities: row = (b*heads + head)*S + query, col = key;  row0 = index of the
                                   first local sequence, col0 = of the first local head, cols = heads
                                   in the whole model */
};

struct ops {
    enum dtype dtype;

    /* Y[n,:] = W[ids[n] - first,:] where that row exists (first <= ids[n] < first + rows of W), else 0.
     * ids: I32 [N].  accumulate: Y += instead.  dW[ids[n] - first,:] += dY[n,:], in order of n. */
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

    /* Layernorm in pieces, so that devices holding slices of the columns of `width` can talk in between.
     *   row_sums:             sum[n] = sum of row n                      mean = that of all slices / width
     *   row_centred_squares:  sum[n] = sum of (X[n,:] - mean[n])^2
     *   forward_part:         rstd, the sum of squares of all slices, becomes 1/sqrt(rstd/width + eps);  Y as above
     *   backward_sums:        sums[0,n], sums[1,n] = sums of g and of g xhat, g = dY w;  backward_part:
     *   dX from those of all slices */
    void (*row_sums)(struct tensor sum, struct tensor X);
    void (*row_centred_squares)(struct tensor sum, struct tensor X, struct tensor mean);
    void (*layernorm_forward_part)(struct tensor Y, struct tensor rstd, struct tensor X, struct tensor w,
                                   struct tensor b, struct tensor mean, int64_t width, double eps);
    void (*layernorm_backward_sums)(struct tensor sums, struct tensor dY, struct tensor X, struct tensor w,
                                    struct tensor mean, struct tensor rstd);
    void (*layernorm_backward_part)(struct tensor dX, struct tensor dY, struct tensor X, struct tensor w,
                                    struct tensor mean, struct tensor rstd, struct tensor sums, int64_t width);

    /* Y[n,:] = X[n,:] * rstd[n] * w,  rstd = 1/sqrt(mean of squares + eps).  X, Y [N,D]; rstd [N]; w [D]. */
    void (*rmsnorm_forward)(struct tensor Y, struct tensor rstd, struct tensor X, struct tensor w, double eps);
    void (*rmsnorm_backward_input)(struct tensor dX, struct tensor dY, struct tensor X, struct tensor w,
                                   struct tensor rstd);
    void (*rmsnorm_backward_weight)(struct tensor dw, struct tensor dY, struct tensor X, struct tensor rstd);

    /* Y = X W^T + b.  X [N,I], W [O,I], b [O] or tensor_none, Y [N,O].  _add: Y += X W^T. */
    void (*linear_forward)(struct tensor Y, struct tensor X, struct tensor W, struct tensor b);
    void (*linear_forward_add)(struct tensor Y, struct tensor X, struct tensor W);
    void (*linear_backward_input)(struct tensor dX, struct tensor dY, struct tensor W);
    void (*column_sums)(struct tensor db, struct tensor dY);        /* db alone */
    void (*linear_backward_weight)(struct tensor dW, struct tensor db, struct tensor dY, struct tensor X);

    /* Some rows of a matrix, `first` .., with their columns of Y or dY; the other columns stay, or are not read.
     * dX = or += dY W. */
    void (*linear_forward_columns)(struct tensor Y, int64_t first, struct tensor X, struct tensor W, struct tensor b);
    void (*linear_backward_input_columns)(struct tensor dX, struct tensor dY, int64_t first, struct tensor W,
                                          bool accumulate);
    void (*linear_backward_weight_columns)(struct tensor dW, struct tensor dY, int64_t first, struct tensor X);

    /* O [N, H*A] = softmax(scale Q K^T, causal) V;  lse [B,H,S] = log of each softmax's denominator (maximum included).
     * No S x S matrix is ever stored; backward recomputes the probabilities from lse.  dQKV has the shape of QKV. */
    void (*attention_forward)(struct tensor O, struct tensor lse, struct tensor QKV, struct attention a);
    void (*attention_backward_input)(struct tensor dQKV, struct tensor dO, struct tensor O, struct tensor lse,
                                     struct tensor QKV, struct attention a);

    /* Turn the first R numbers of the H query and K key heads of QKV by their positions, in place; backward turns dQKV
     * back.  positions: I32 [N]; table [S,R]: row p holds cos of the R/2 angles at position p, then their sines. */
    void (*rotary_forward)(struct tensor QKV, struct tensor positions, struct tensor table, struct attention a);
    void (*rotary_backward_input)(struct tensor dQKV, struct tensor positions, struct tensor table, struct attention a);

    /* Y [N,F] = silu(first half of X) * second half.  X [N,2F]. */
    void (*swiglu_forward)(struct tensor Y, struct tensor X);
    void (*swiglu_backward_input)(struct tensor dX, struct tensor dY, struct tensor X);

    /* Of each row of logits [N,E] the k largest, largest first (equal ones: the lower index first), and their weights:
     * the softmax over the whole row or, normalized, over the chosen.  experts: I32 [N,k]; weights [N,k]. */
    void (*route_forward)(struct tensor weights, struct tensor experts, struct tensor logits, bool normalized);
    void (*route_backward_input)(struct tensor dlogits, struct tensor dweights, struct tensor weights,
                                 struct tensor experts, struct tensor logits, bool normalized);

    /* Round a mixture's experts.  order: I32 [R], the places n k + i of experts [N,k] sorted by expert, then by token;
     * counts: I32 [E].  gather: rows[r] = X[order[r]/k].  combine: Y[n] = sum over n's rows of weights[order[r]]
     * rows[r], in order.  Both may be given a part of the order; parts sum to the whole. */
    void (*expert_order)(struct tensor order, struct tensor counts, struct tensor experts);
    void (*gather_forward)(struct tensor rows, struct tensor X, struct tensor order, int64_t k);
    void (*gather_backward_input)(struct tensor dX, struct tensor drows, struct tensor order, int64_t k);
    void (*combine_forward)(struct tensor Y, struct tensor rows, struct tensor order, struct tensor weights);
    void (*combine_backward_input)(struct tensor drows, struct tensor dweights, struct tensor dY, struct tensor rows,
                                   struct tensor order, struct tensor weights);

    /* The auxiliary losses of a router.  sums double [2E+1] += sum over rows of softmax(row), choices of each expert,
     * sum of logsumexp(row)^2.  dlogits += p (slope - slope . p) + z_slope logsumexp p for each row. */
    void (*router_losses_forward)(double *sums, struct tensor logits, struct tensor experts);
    void (*router_losses_backward_input)(struct tensor dlogits, struct tensor logits, const double *slope,
                                         double z_slope);

    /* Y = gelu(X), tanh form.  dX = dY * gelu'(X);  dX may be dY. */
    void (*gelu_forward)(struct tensor Y, struct tensor X);
    void (*gelu_backward_input)(struct tensor dX, struct tensor dY, struct tensor X);

    /* Y = A + B;  Y may be A or B.  Its backward is the identity, twice. */
    void (*add)(struct tensor Y, struct tensor A, struct tensor B);

    /* Y = X where kept, scaled by 1/(1-p), else 0;  Y may be X.  Backward is the same function on dY. */
    void (*dropout)(struct tensor Y, struct tensor X, struct dropout d);

    /* Softmax cross-entropy in three pieces, so that devices holding slices of the vocabulary can talk in between.
     * logits [N,V'] are columns first .. first+V'-1 of the whole;  labels I32 [N];  per-token results [N].
     *   max:   top[n] = max over the slice (-infinity for an empty one)
     *   sums:  total[n] = sum exp(logits[n,:] - top[n]);  hit[n] = logits[n, labels[n]] if the label is in the slice,
     *   else 0 loss (no logits needed):  returns sum over n with labels[n] != ignore of log(total[n]) + top[n] -
     *   hit[n], in double backward: dlogits = scale * (exp(logits - top)/total - [column is the label]), 0 for ignored
     *   rows;  dlogits may be logits */
    void (*cross_entropy_max)(struct tensor top, struct tensor logits);
    void (*cross_entropy_sums)(struct tensor total, struct tensor hit, struct tensor logits, struct tensor top,
                               struct tensor labels, int64_t first);
    double (*cross_entropy_loss)(struct tensor total, struct tensor top, struct tensor hit, struct tensor labels,
                                 int ignore);
    void (*cross_entropy_backward)(struct tensor dlogits, struct tensor logits, struct tensor total, struct tensor top,
                                   struct tensor labels, int64_t first, int ignore, double scale);

    /* sum of squares of all elements, in double, in blocks of fixed size: the order does not depend on threads. */
    double (*sum_of_squares)(struct tensor X);
    /* Y = a * Y */
    void (*scale)(struct tensor Y, double a);
};

/** The operations for this floating-point format, or NULL if there are none. */
const struct ops *ops_for(enum dtype);

/* What each operation costs a device: floating-point operations, and bytes read and written once.  Multiply-adds count
 * two; attention counts the causal half only, which is what is computed. */
struct op_cost { double flops, bytes; };

/* forward; each backward part costs the same */
struct op_cost linear_cost(int64_t N, int64_t I, int64_t O, enum dtype);
struct op_cost attention_forward_cost(int64_t N, struct attention a, enum dtype);
struct op_cost attention_backward_cost(int64_t N, struct attention a, enum dtype);
struct op_cost elementwise_cost(int64_t elements, int tensors, double flops_each, enum dtype);

#endif
