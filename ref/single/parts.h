/* parts.h -- shared by the files of ref/single.  Inside ref/single only.
 *
 * An operation reads:
 *
 *     struct tensor have;
 *     if (!single_begin(s, "act/h.0.mid", "the sum", N, D)) return;     the program does not have the result
 *     const struct tensor a = single_input(s, "act/embedding", N, D), b = ...;
 *     if (!single_ready(s)) return;                                           an input is missing: noted
 *     ... compute Y and its two bounds, elements of tensors of single_new() ...
 *     single_end(s, Y, fused, stepwise);                                      compares, and frees all
 */
#ifndef ORRERY_SINGLE_PARTS_H
#define ORRERY_SINGLE_PARTS_H

#include "ref/ops/ops.h"
#include "ref/single/single.h"
#include <math.h>

enum { SINGLE_SCRATCH = 48 };

struct single {
    const struct model_config *config;
    const struct ops *ops;                      /* F64 */
    struct single_batch batch;
    int64_t N;                                  /* rows: tokens of the batch */
    struct rounding rounding;
    struct single_source source;
    struct error *err;
    enum error_code failed;                     /* the first failure: everything that follows does nothing */
    struct single_result now;
    struct tensor have;                         /* the program's result */
    void *scratch[SINGLE_SCRATCH];              /* of the current operation */
    int used;
};

/* A tensor's name. */
struct single_name { char text[SINGLE_NAME]; };

/* "act", 1, "mid": act/h.1.mid; layer -1: act/embedding, whatever the name; L: act/ln_f. */
struct single_name single_act(const char *kind, int64_t layer, const char *name);

/* "grad", i: grad/wte.weight of parameter i. */
struct single_name single_param(const struct single *, const char *kind, int i);

bool single_begin(struct single *, struct single_name, const char *made_by, int64_t rows, int64_t cols);
struct tensor single_input(struct single *, struct single_name, int64_t rows, int64_t cols);
bool single_ready(struct single *);

/* An F64 matrix of zeros that lives until the operation ends; tensor_none, with the failure noted, if there is no
 * memory. */
struct tensor single_new(struct single *, int64_t rows, int64_t cols);
/* End the matrices after the first `used`. */
void single_release(struct single *, int used);

void single_end(struct single *, struct tensor want, struct tensor fused, struct tensor stepwise);

static inline double *numbers(struct tensor t) { return t.data; }

/* ---- the operations ---------------------------------------------------------------------------------------------- */

/* A matrix of the model, [out,in], and its bias: indices of parameters, bias -1 for none.  groups: how many rows belong
 * to each of the matrices that other programs have instead of one; groups[0] = 0: it is one. */
struct single_matrix { int weight, bias; int64_t out, in, groups[3]; };

void single_matrix_forward(struct single *, struct single_name y, struct single_name x, struct single_matrix);
/* dx = the sum over one or two matrices, each with the gradient of its result. */
void single_matrix_input(struct single *, struct single_name dx, const struct single_name dy[],
                         const struct single_matrix *, int count);
/* The gradients of matrix and bias.  `also`: the embedding's gradient is added, because the matrix is tied to it. */
void single_matrix_weight(struct single *, struct single_name dy, struct single_name x, struct single_matrix,
                          bool also);

/* A norm's weight and bias, -1 for none. */
struct single_norm { int weight, bias; };
void single_norm_forward(struct single *, struct single_name y, struct single_name x, struct single_norm);
/* dx = dy through the norm, + beside, the gradient that passes by; beside.text empty: none. */
void single_norm_input(struct single *, struct single_name dx, struct single_name dy, struct single_name x,
                       struct single_name beside, struct single_norm);
void single_norm_weight(struct single *, struct single_name dy, struct single_name x, struct single_norm);

void single_attention_forward(struct single *, struct single_name y, struct single_name qkv);
void single_attention_input(struct single *, struct single_name dqkv, struct single_name dy, struct single_name y,
                            struct single_name qkv);
/* Backward: the rotation back. */
void single_rotary(struct single *, struct single_name y, struct single_name x, bool backward);

void single_embedding_forward(struct single *);
void single_embedding_weight(struct single *);
/* y = the sum of up to three. */
void single_add(struct single *, struct single_name y, const struct single_name x[], int count);
void single_activation_forward(struct single *, struct single_name y, struct single_name x);
void single_activation_input(struct single *, struct single_name dx, struct single_name dy, struct single_name x);

void single_loss_forward(struct single *);
void single_loss_input(struct single *);
void single_gradient_norm(struct single *);

#endif
