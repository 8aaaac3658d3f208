/* kernels.h -- what launches the kernels: plain C, so that the backend is C.
 *
 * One function for each operation of ref/ops/ops.h, with its arguments in the same order, and its sizes.  All pointers
 * are to memory of the device.  t: the format of numbers; g: of what may have another one (a gradient of weights, a
 * table, logits), t's own or fp32.  Statistics are in the wide format of t.  device/cuda/backend.c,
 * emulated/judge/alone.c, device/cuda/gpu.c and device/cuda/operations.c call these functions.  No function returns
 * an error code.
 */
#ifndef ORRERY_CUDA_KERNELS_H
#define ORRERY_CUDA_KERNELS_H

#include "ref/numeric/dtype.h"
#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* struct dropout of ref/ops as plain numbers: probability p, the random stream, and the place of this part (first
 * row, first head, heads of the whole) in the whole matrix. */
struct cuda_dropout { double p; uint64_t seed, stream; int64_t row0, col0, cols; };

struct cuda_attention {
    int64_t S, H, K, A, window, each, ranges;   /* tokens, heads, key/value heads, head width; keys that a query sees,
                                         * 0: all; tokens of a piece that dropout numbers apart; ranges of keys per
                                         * row of `mask` */
    double scale, cap;                  /* of scores: factor, soft cap or 0 */
    const int32_t *mask;                /* NULL: causal */
    bool mask_each;                     /* a mask for each sequence */
    bool more;                          /* queries also see what is not among these keys: a prefix */
    const void *sinks;                  /* [H], in the format of numbers; NULL: none */
    struct cuda_dropout drop;           /* dropout of probabilities */
};

/* How logits become weights, as struct router_rule: softmax or sigmoid scores, a common factor. `near`: a choice's
 * weight is a softmax among experts that are not chosen before it and whose logits are within 2 near_by,
 * relatively. */
struct cuda_router { double scale, near_by; bool sigmoid, normalized, near; };

enum cuda_activation { CUDA_GELU, CUDA_EXACT_GELU, CUDA_SQUARED_RELU, CUDA_SILU, CUDA_GEGLU, CUDA_SWIGLU };
enum cuda_reduction { CUDA_SUM, CUDA_PRODUCT, CUDA_MAX, CUDA_MIN };
enum cuda_optimizer { CUDA_SGD, CUDA_MOMENTUM, CUDA_ADAMW };
struct cuda_step {
    double scale, lr, keep, coupled, momentum;  /* factor on gradients (clipping); of sgd: struct sgd_factors */
    double beta1, beta2, new1, new2, rate, root, eps, before, after;    /* AdamW: struct adam_factors */
};

/* rows.cuh */
void cuda_rmsnorm_forward(enum dtype t, void *Y, void *rstd, const void *X, const void *w, int64_t N, int64_t D,
                          double base, double eps);
void cuda_rmsnorm_backward_input(enum dtype t, void *dX, const void *dY, const void *X, const void *w, const void *rstd,
                                 int64_t N, int64_t D, double base);
void cuda_rmsnorm_backward_weight(enum dtype t, enum dtype g, void *dw, const void *dY, const void *X, const void *rstd,
                                  int64_t N, int64_t D);
void cuda_layernorm_forward(enum dtype t, void *Y, void *mean, void *rstd, const void *X, const void *w, const void *b,
                            int64_t N, int64_t D, double base, double eps);
void cuda_layernorm_backward_input(enum dtype t, void *dX, const void *dY, const void *X, const void *w,
                                   const void *mean, const void *rstd, int64_t N, int64_t D, double base);
void cuda_layernorm_backward_weight(enum dtype t, enum dtype g, void *dw, void *db, const void *dY, const void *X,
                                    const void *mean, const void *rstd, int64_t N, int64_t D);
void cuda_column_sums(enum dtype t, enum dtype g, void *db, const void *dY, int64_t N, int64_t D);
void cuda_gate_forward(enum dtype t, void *Y, const void *X, const void *logits, int64_t N, int64_t D);
void cuda_gate_backward_input(enum dtype t, void *dX, void *dlogits, const void *dY, const void *X, const void *logits,
                              int64_t N, int64_t D);

/* The rows of Y are b. */
void cuda_fill_rows(enum dtype t, void *Y, const void *b, int64_t N, int64_t D);

void cuda_attention_forward(enum dtype t, void *O, void *lse, const void *QKV, struct cuda_attention, int64_t B);
/* delta: room for B S H numbers of the wide format. */
void cuda_attention_backward_input(enum dtype t, void *dQKV, void *delta, const void *dO, const void *O,
                                   const void *lse, const void *QKV, struct cuda_attention, int64_t B);
void cuda_rotary(enum dtype t, enum dtype g, void *QKV, const int32_t *positions, const void *table, int64_t N,
                 int64_t ld, int64_t heads, int64_t A, int64_t R, bool neighbours, int direction);

void cuda_embedding_forward(enum dtype t, void *Y, const int32_t *ids, const void *W, int64_t N, int64_t D,
                            int64_t rows, int64_t first, bool accumulate);
/* links: room for 2N numbers. */
void cuda_embedding_backward_weight(enum dtype t, enum dtype g, void *dW, const void *dY, const int32_t *ids,
                                    int32_t *links, int64_t N, int64_t D, int64_t rows, int64_t first);

void cuda_cross_entropy_max(enum dtype t, void *top, const void *logits, int64_t N, int64_t V);
void cuda_cross_entropy_sums(enum dtype t, void *total, void *hit, const void *logits, const void *top,
                             const int32_t *labels, int64_t N, int64_t V, int64_t first);
void cuda_cross_entropy_loss(enum dtype t, double *loss, const void *total, const void *top, const void *hit,
                             const int32_t *labels, int64_t N, int ignore);
void cuda_cross_entropy_backward(enum dtype t, void *dlogits, const void *logits, const void *total, const void *top,
                                 const int32_t *labels, int64_t N, int64_t V, int64_t first, int ignore, double scale);

/* F: half of a row of X, where it is gated. */
void cuda_activation_forward(enum dtype t, enum cuda_activation, void *Y, const void *X, int64_t n, int64_t F);
void cuda_activation_backward(enum dtype t, enum cuda_activation, void *dX, const void *dY, const void *X, int64_t n,
                              int64_t F);
void cuda_add(enum dtype t, void *Y, const void *A, const void *B, int64_t n);
void cuda_dropout(enum dtype t, void *Y, const void *X, int64_t rows, int64_t cols, struct cuda_dropout);
struct cuda_blocks { int64_t times, count, y, y_step, x, x_step; };
void cuda_columns_move(enum dtype t, void *Y, const void *X, int64_t N, int64_t to, int64_t from, struct cuda_blocks,
                       bool add);
void cuda_scale(enum dtype t, void *Y, const void *X, int64_t n, double a);

/* bins, [2][256], of zeros at first: of the squares of the numbers with exponent e, the sum of their low 32 bits and of
 * what is above (ref/numeric/exact_bins.h).  t: not fp64. */
void cuda_exact_squares(enum dtype t, unsigned long long *bins, const void *X, int64_t n);

/* sums: a number for each CUDA_SQUARES_SPAN elements. */
enum { CUDA_SQUARES_SPAN = 4096 };
void cuda_sum_of_squares(enum dtype t, double *sums, const void *X, int64_t n);

void cuda_streams_beside(enum dtype t, void *X, const void *H, int64_t N, int64_t D, int64_t P, bool back);
void cuda_streams_mix_forward(enum dtype t, enum dtype g, void *Y, void *p, const void *logits, const void *X,
                              int64_t N, int64_t D, int64_t P, double smoothing);
/* products: room for N P numbers of the wide format. */
void cuda_streams_mix_backward_input(enum dtype t, enum dtype g, void *dX, void *dlogits, void *products,
                                     const void *dY, const void *p, const void *X, int64_t N, int64_t D, int64_t P,
                                     double smoothing);

void cuda_route_weights(enum dtype t, enum dtype g, void *weights, const int32_t *experts, const void *logits,
                        int64_t N, int64_t E, int64_t k, struct cuda_router);

/* Whether any kernel runs. */
void cuda_probe(void);

/* On any tensors. */
void cuda_convert(enum dtype to, void *y, enum dtype from, const void *x, int64_t n);
void cuda_reduce(enum dtype t, enum cuda_reduction, void *into, const void *from, int64_t n);
void cuda_divide(enum dtype t, void *x, int64_t n, int by);
void cuda_optimizer_step(enum dtype t, enum dtype g, enum cuda_optimizer, void *w, const void *grad, void *m, void *v,
                         int64_t n, struct cuda_step);

#ifdef __cplusplus
}
#endif
#endif
