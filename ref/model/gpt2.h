/* gpt2.h -- the one-device GPT-2: the truth that every plan is compared with.
 *
 * Built from ref/ops only, the whole batch at once, in the plainest order.  Every tensor it computes is announced to an
 * observer, in execution order, forward and backward.
 *
 * Source  A. Radford et al., "Language models are unsupervised multitask learners", 2019; the block is pre-norm:
 *         x += attention(layernorm(x)), x += mlp(layernorm(x)).  Held to PyTorch by tests/ref/test_golden.c.
 */
#ifndef ORRERY_GPT2_H
#define ORRERY_GPT2_H

#include "ref/model/config.h"
#include "ref/ops/ops.h"

/* Sees (and may change) each tensor just after it was computed. */
struct observer {
    /* name: "ln_1", "attn.qkv", ...; layer -1 before the blocks, L after; gradient: it is the gradient of that tensor;
     * terms: how many products each element sums, the n of its rounding error. */
    void (*see)(void *context, const char *name, int layer, bool gradient, struct tensor t, int64_t terms);
    void *context;
};

/* What one block keeps from forward for backward. */
struct block_activations {
    struct tensor in;                           /* [N,D] the residual stream that enters */
    struct tensor ln1_mean, ln1_rstd, ln1;      /* [N], [N], [N,D] */
    struct tensor qkv, lse, att;                /* [N,3D], [B,H,S], [N,D] */
    struct tensor mid;                          /* [N,D] after attention was added */
    struct tensor ln2_mean, ln2_rstd, ln2;
    struct tensor up, act;                      /* [N,F] before and after gelu */
};

struct gpt2 {
    struct model_config config;
    const struct ops *ops;
    int params;
    struct param_spec *spec;                    /* [params] */
    struct tensor *w, *g;                       /* [params] weights and gradients */
    struct observer observer;                   /* see == NULL: nobody */
    uint64_t seed;                              /* of dropout: the caller changes it every step */
    const bool *passes_by;                      /* [L*B] whether a sequence leaves a layer out (partial.h); NULL: none does */

    int64_t B, S;                               /* what the buffers below are made for */
    struct tensor ids, positions, labels;       /* I32 [N] */
    struct block_activations *block;            /* [L] */
    struct tensor last, lnf_mean, lnf_rstd, lnf, logits, top, total, hit;
    struct tensor d_stream, d_branch, d_wide, d_attention;      /* scratch of backward: [N,D], [N,D], [N,max(3D,F)], [N,D] */
    struct tensor branch;                       /* scratch of forward, and of partial.h in backward: [N,D] */
    int64_t counted;                            /* labels of the batch that are not ignored */
};

enum { IGNORE_LABEL = -1 };                     /* a label that counts neither in the loss nor in the gradient */

/** A model with initial weights drawn from the seed. @return OK, ERR_PLAN or ERR_MEMORY with nothing to close. */
enum error_code gpt2_open(struct gpt2 *, const struct model_config *, enum dtype, uint64_t seed, struct error *);
void gpt2_close(struct gpt2 *);

/**
 * Mean loss over all labels of B sequences of S tokens.
 * @param ids, labels  int32 [B*S]; labels may hold IGNORE_LABEL.
 * @return OK, ERR_USAGE if a token is not in the vocabulary or S is too long, ERR_MEMORY.
 */
enum error_code gpt2_forward(struct gpt2 *, const int32_t *ids, const int32_t *labels, int64_t B, int64_t S, double *loss,
                             struct error *);

/** Gradients of that loss, added to g.  Follows gpt2_forward. */
void gpt2_backward(struct gpt2 *);

void gpt2_zero_gradients(struct gpt2 *);

/** sqrt of the sum of squares of all gradients. */
double gpt2_gradient_norm(const struct gpt2 *);

/** Initial values of elements [first, first + n) of a parameter: a pure function of (seed, name, element). */
void param_init(const struct param_spec *, uint64_t seed, enum dtype, int64_t first, int64_t n, void *out);

/** The dropout at a place of the model, as every device must draw it.  where: "embedding", "attention", "mlp". */
struct dropout dropout_at(double p, uint64_t seed, int layer, const char *where, int64_t row0, int64_t col0, int64_t cols);

#endif
