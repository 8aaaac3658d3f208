/* transformer.h -- the one-device model: the truth that every plan is compared with.
 *
 * One model with the parts that its configuration names: GPT-2, Llama, Mixtral, GPT-J.  Built from ref/ops only, the
 * whole batch at once, in the plainest order.  Every tensor it computes is announced to an observer, in execution
 * order, forward and backward.
 *
 * Source  A. Radford et al., "Language models are unsupervised multitask learners", 2019; H. Touvron et al., "LLaMA",
 *         arXiv:2302.13971; A. Q. Jiang et al., "Mixtral of experts", arXiv:2401.04088; B. Wang and A. Komatsuzaki,
 *         "GPT-J-6B", 2021.  The block is pre-norm: x += attention(norm(x)), x += feed-forward(norm(x)); a GPT-J's
 *         is parallel: n = norm(x), x += attention(n) + feed-forward(n).  Held to PyTorch by tests/ref/test_golden.c.
 */
#ifndef ORRERY_TRANSFORMER_H
#define ORRERY_TRANSFORMER_H

#include "ref/model/config.h"
#include "ref/ops/ops.h"

/* Sees (and may change) each tensor just after it was computed. */
struct observer {
    /* name: "ln_1", "attn.qkv", ...; layer -1 before the blocks, L after; gradient: it is the gradient of that tensor;
     * terms: how many products each element sums, the n of its rounding error. */
    void (*see)(void *context, const char *name, int layer, bool gradient, struct tensor t, int64_t terms);
    void *context;
};

/* What one block keeps from forward for backward.  U = up_width(); R = rows of the feed-forward:
 * N, or N k of a mixture. */
struct block_activations {
    struct tensor in;                           /* [N,D] the residual stream that enters */
    struct tensor ln1_mean, ln1_rstd, ln1;      /* [N] (layernorm only), [N], [N,D] */
    struct tensor qkv, lse, att;                /* [N,(H+2K)A] (turned by rotary positions), [B,H,S], [N,D] */
    struct tensor mid;                   /* [N,D] after attention was added; in a parallel block, both branches added */
    struct tensor ln2_mean, ln2_rstd, ln2;
    struct tensor up, act;                      /* [R,U], [R,F] before and after gelu or swiglu */
    /* of a mixture: */
    struct tensor router, weights, experts;     /* [N,E] logits, [N,k], I32 [N,k] */
    struct tensor order, counts;                /* I32 [Nk], I32 [E]: see expert_order in ops.h */
    struct tensor rows, results;                /* [Nk,D] what the experts are given, and what they make of it */
};

struct transformer {
    struct model_config config;
    const struct ops *ops;
    int params;
    struct param_spec *spec;                    /* [params] */
    struct tensor *w, *g;                       /* [params] weights and gradients */
    struct observer observer;                   /* see == NULL: nobody */
    uint64_t seed;                              /* of dropout: the caller changes it every step */
    int64_t first;                              /* number that the batch's first sequence has for dropout; 0 at first */
    double loss_scale;                     /* gradients are those of so many times the loss: loss_scale.h; 1 at first */
    const bool *passes_by;                /* [L*B] whether a sequence leaves a layer out (partial.h); NULL: none does */

    int64_t B, S;                               /* what the buffers below are made for */
    struct tensor ids, positions, labels;       /* I32 [N] */
    struct tensor rotary;                       /* [S,R] the table of rotary positions */
    struct block_activations *block;            /* [L] */
    struct tensor last, lnf_mean, lnf_rstd, lnf, logits, top, total, hit;
    struct tensor d_stream, d_branch, d_qkv, d_attention, d_up, d_act;  /* scratch of backward: [N,D], [N,D], as qkv,
                                                                         * att, up, act */
    struct tensor d_norm;                       /* of a parallel block: [N,D] */
    struct tensor d_router, d_weights, d_rows;  /* of a mixture: [N,E], [N,k], [Nk,D] */
    struct tensor branch;                       /* scratch of forward, and of partial.h in backward: [N,D] */
    int64_t counted;                            /* labels of the batch that are not ignored */
    double *router_sums;                        /* [2E+1] over all layers: see router_losses_forward in ops.h */
    double *router_slope;                       /* [E] of the balance loss: by each row's probabilities */
    double balance_loss, z_loss;              /* of the last forward, without their coefficients; 0 without a mixture */
};

enum { IGNORE_LABEL = -1 };                     /* a label that counts neither in the loss nor in the gradient */

/** A model with initial weights drawn from the seed. @return OK, ERR_PLAN or ERR_MEMORY with nothing to close. */
enum error_code transformer_open(struct transformer *, const struct model_config *, enum dtype, uint64_t seed,
                                 struct error *);
void transformer_close(struct transformer *);

/**
 * Keep the gradients of the weights in another format than theirs: fp32 beside 16-bit weights.  They are zero
 * afterwards.
 * @return OK, or ERR_MEMORY with the model as it was, or with some gradients in either format.
 */
enum error_code transformer_keep_gradients_in(struct transformer *, enum dtype, struct error *);

/**
 * Mean loss over all labels of B sequences of S tokens; of a mixture, plus its routers' losses, each times its
 * coefficient.
 * @param ids, labels  int32 [B*S]; labels may hold IGNORE_LABEL.
 * @return OK, ERR_USAGE if a token is not in the vocabulary or S is too long, ERR_MEMORY.
 */
enum error_code transformer_forward(struct transformer *, const int32_t *ids, const int32_t *labels, int64_t B,
                                    int64_t S, double *loss, struct error *);

/** Gradients of that loss, times loss_scale, added to g.  Follows transformer_forward. */
void transformer_backward(struct transformer *);

void transformer_zero_gradients(struct transformer *);

/** sqrt of the sum of squares of all gradients, loss_scale still in them. */
double transformer_gradient_norm(const struct transformer *);

/** Initial values of elements [first, first + n) of a parameter: a pure function of (seed, name, element). */
void param_init(const struct param_spec *, uint64_t seed, enum dtype, int64_t first, int64_t n, void *out);

/** Attention of the model's kind on sequences of S tokens: all its heads, nothing dropped. */
struct attention attention_of_model(const struct model_config *, int64_t S);

/** The dropout at a place of the model, as every device must draw it.  where: "embedding", "attention", "mlp". */
struct dropout dropout_at(double p, uint64_t seed, int layer, const char *where, int64_t row0, int64_t col0,
                          int64_t cols);

#endif
