/* transformer.h -- the one-device model: the reference that every plan is compared with.
 *
 * One model whose configuration chooses its parts: GPT-2, Llama, Qwen2, Qwen3, Qwen3-MoE, Gemma, GPT-OSS, Mixtral,
 * GPT-J, ScMoE.  It uses only ref/ops, and computes the whole batch at once, in the simplest order.  Every computed
 * tensor is announced to an observer, in execution order, forward and backward.
 *
 * Source  A. Radford et al., "Language models are unsupervised multitask learners", 2019; H. Touvron et al., "LLaMA",
 *         arXiv:2302.13971; A. Q. Jiang et al., "Mixtral of experts", arXiv:2401.04088; B. Wang and A. Komatsuzaki,
 *         "GPT-J-6B", 2021.  The block is pre-norm: x += attention(norm(x)), x += feed-forward(norm(x)); a GPT-J's
 *         is parallel: n = norm(x), x += attention(n) + feed-forward(n); forward.c has
 *         that with a shortcut.  tests/ref/test_golden.c compares it with PyTorch.
 *
 * verify/reference/, check/mistakes/, ref/golden/, ref/text/, bench/ and subcommands run this model.  transformer_open
 * also returns ERR_USAGE, for a number format without operations.
 */
#ifndef ORRERY_TRANSFORMER_H
#define ORRERY_TRANSFORMER_H

#include "ref/model/config.h"
#include "ref/model/observer.h"
#include "ref/model/operands.h"
#include "ref/model/param.h"
#include "ref/model/row_loss.h"
#include "ref/ops/ops.h"

/* Tensors that a block keeps from forward for backward.  U = up_width(); R = rows of the feed-forward: N; of a
 * mixture N k. */
struct block_activations {
    struct tensor in;                           /* [N,D] the block's input */
    struct tensor ln1_mean, ln1_rstd, ln1;      /* [N] (layernorm only), [N], [N,D] */
    struct tensor qkv, lse, att;                /* [N,(H+2K)A] (turned by rotary positions), [B,H,S], [N,HA] */
    struct tensor normed, head_rstd;            /* with norms of heads: [N,(H+2K)A] (turned instead), [N,H+K] */
    struct tensor attention_out, feed_out;      /* with norms after: [N,D] what they norm, */
    struct tensor after1, after1_rstd, after2, after2_rstd;     /* and what they give: [N,D], [N] */
    /* of latent attention, which attention reads as qkv and whose result is narrow, [N,Hv]: */
    struct tensor q_latent, q_rstd, q_normed, queries;          /* [N,q], [N], [N,q], [N,HA] */
    struct tensor kv_latent, kv_only, kv_rstd, kv_normed, expanded, narrow;
    struct tensor mid;                          /* [N,D] in + attention; in a parallel block the sum of both branches */
    struct tensor ln2_mean, ln2_rstd, ln2;
    struct tensor up, act;                      /* [R,U], [R,F] before and after gelu, swiglu or geglu */
    /* of a mixture: */
    struct tensor router, weights, experts;     /* [N,E] logits, [N,k], I32 [N,k] */
    struct tensor order, counts;                /* I32 [Nk], I32 [E]: see expert_order in ops.h */
    struct tensor rows, results;                /* [Nk,D] inputs and outputs of the experts */
    struct tensor shared_up, shared_act, shared;        /* [N,2F'], [N,F'], [N,D] of the shared experts, F' wide */
    struct tensor gate;                         /* [N,1] logits of their gate */
    /* of a layer with a shortcut: */
    struct tensor dense_up, dense_act;          /* [N,U], [N,F] */
    struct tensor shortcut;                     /* [N,D] the mixture's result */
};

struct transformer {
    struct model_config config;                 /* a copy; fixed after transformer_open */
    const struct ops *ops;                      /* operations of ref/ops in the model's format */
    int params;                                 /* logical parameters: entries of spec, w and g */
    struct param_spec *spec;                    /* [params] */
    struct tensor *w, *g;                       /* [params] weights and gradients */
    struct observer observer;                   /* see == NULL: none */
    uint64_t seed;                              /* of dropout; the caller changes it every step */
    int64_t first;                              /* number of the batch's first sequence, for dropout; initially 0 */
    double loss_scale;                          /* factor on the loss in gradients (loss_scale.h); initially 1 */
    const int32_t *packed;                      /* [B*S] of packed samples, the position of each token in its sample,
                                                 * and what is padding (sample_mask.h); NULL: a sequence is one
                                                 * sample */
    const int32_t *micro_of;                    /* [B*S] the microbatch of each token, 0, 1, ..., for a balance loss of
                                                 * each; or TOKEN_NOT_JUDGED.  NULL: the batch is one */
    const double *divisors;                     /* [B*S] of rows, where the loss is not the usual one (loss_rule.h), in
                                                 * place of those of this batch; NULL: these */
    const struct row_loss *row_loss;            /* losses of rows; NULL: cross entropy, or the config's loss */
    const bool *passes_by;                      /* [L*B] whether a sequence skips a layer (partial.h); NULL: none */

    struct past *past;                          /* keys and values of the tokens before the batch's (past.h); NULL:
                                                 * there are none */
    const int32_t *route;                       /* [L,N,k] the experts of each token, and which choices are dropped; an
                                                 * observer of the layer's router.logits may still change it.  NULL: by
                                                 * the router's rule and the capacity */

    const int32_t *patch;                       /* [N] of each token that is a patch its number, else -1; NULL: none
                                                 * is */
    struct tensor patches, d_patches;           /* [patches,D] in place of their tokens' embeddings (modality.h);
                                                 * backward writes the gradients */

    int64_t B, S;                               /* batch that the buffers below are allocated for */
    struct tensor ids, positions, labels;       /* I32 [N] */
    struct tensor mask;                         /* I32 [N,2 ranges] of packed samples, or of the config's mask: what
                                                 * each token sees */
    struct tensor rotary, local_rotary;         /* [S,R] the tables of rotary positions; the second of layers with a
                                                 * window, if they have positions of their own */
    struct block_activations *block;            /* [L], and by second_block() */
    struct tensor last, lnf_mean, lnf_rstd, lnf, logits, top, total, hit;       /* last block's stream [M,D], final norm
                                                 * [M], [M], [M,D], M = N x streams; logits [N,V], and per row [N]
                                                 * their maximum, sum of exponentials, and label's logit */
    struct tensor capped;                       /* [N,V] the logits' soft caps, if they have them */
    struct tensor d_stream, d_branch, d_step;   /* scratch of backward: [N,D] each */
    struct tensor d_qkv, d_attention, d_up, d_act;      /* the shapes of qkv, att, up, act */
    struct tensor prefix_at;                    /* of parallel streams: I32 [prefix + S] 0, 1, ... */
    struct tensor prefix_out, prefix_lse;       /* attention to the prefixes alone: the shapes of att and lse */
    struct tensor prefix_sums;                  /* with exact sums: d_qkv while gradients are added to it */
    struct tensor beside, mean_up, mean_act, stream_logits, stream_weights, mean;      /* streams.c: [N,DP], [N,D],
                                                 * [N,D], [N,P], [N,P], [N,D], N = B S; other rows are P N */
    struct tensor d_norm, d_shortcut;           /* of a parallel block, or with a shortcut: [N,D]; [N,D] */
    struct tensor d_q_latent, d_q_normed, d_queries, d_kv_latent, d_kv_only, d_kv_normed, d_expanded, d_narrow;
                                                /* of latent attention */
    struct tensor d_shared_up, d_shared_act, d_shared, d_gate;  /* of shared experts: as up, act, [N,D], [N,1] */
    struct tensor d_router, d_weights, d_rows;  /* of a mixture: [N,E], [N,k], [Nk,D] */
    struct tensor branch;                       /* scratch of forward, and of partial.h in backward: [N,D] */
    void **apart;                               /* [params] of a matrix with an adapter: the memory of its merged form,
                                                 * or during a pass its own (adapters.h); NULL: no adapters */
    double *own_divisors;                       /* [B*S] of the batch, by the config's loss rule; NULL: the usual one */
    int64_t counted;                            /* labels of the batch that are not ignored */
    int64_t balance_groups;                     /* of the last forward: balance.h; its losses are groups x those of a
                                                 * group */
    double *router_sums;                        /* [losses,2E+1]: see router_losses_forward in ops.h; the last number
                                                 * counts rows */
    double *router_rows, *router_sequences;     /* [L] that are judged by a layer's router */
    double *router_z, *router_own;              /* [L] sums over them: of the z loss; of the losses of sequences by
                                                 * themselves */
    double *router_slope;                       /* [losses,E] derivative of the balance loss by a row's probabilities,
                                                 * times its coefficient and loss_scale */
    double *router_bias;                        /* [L,E] corrections of a biased router; zeros at first */
    double *router_choices;                     /* [L,E] of the last forward: how often each expert was chosen */
    double balance_loss, z_loss, sequence_loss; /* of the last forward, without coefficients; 0 without a mixture, or
                                                 * without a balance coefficient */
};

enum { TOKEN_NOT_JUDGED = -1 };                 /* in micro_of: a mixture's losses are not of this token's sequence */

/** A model with initial weights drawn from the seed. @return OK, ERR_PLAN or ERR_MEMORY with nothing to close. */
enum error_code transformer_open(struct transformer *, const struct model_config *, enum dtype, uint64_t seed,
                                 struct error *);
void transformer_close(struct transformer *);

/**
 * Store the gradients of the weights in another format than the weights: fp32 for 16-bit weights.  They are zero
 * afterwards.
 * @return OK, or ERR_MEMORY: some gradients may have the new format, the others the old one.
 */
enum error_code transformer_keep_gradients_in(struct transformer *, enum dtype, struct error *);

/**
 * Mean loss over all labels of B sequences of S tokens, or the config's loss of them (loss_rule.h); of a mixture,
 * plus its routers' losses, each times its coefficient.
 * @param ids, labels  int32 [B*S]; labels may hold IGNORE_LABEL.
 * @return OK, ERR_USAGE if a token is not in the vocabulary, S is too long or positions of packed samples have a hole,
 *     ERR_MEMORY.
 */
enum error_code transformer_forward(struct transformer *, const int32_t *ids, const int32_t *labels, int64_t B,
                                    int64_t S, double *loss, struct error *);

/** Add the gradients of that loss, times loss_scale, to g.  Call it after transformer_forward. */
void transformer_backward(struct transformer *);

void transformer_zero_gradients(struct transformer *);

/* The correction bias [E] of a layer's router. */
static inline double *transformer_router_bias(const struct transformer *model, int layer)
{
    return model->router_bias + layer * mixture_columns(&model->config.mixture);
}

/** Whether the losses of a layer's router are of a token: the layer computes it, and it counts here.  Pure. */
bool transformer_judges(const struct transformer *, int layer, int64_t token);

/** After an optimizer's step: move the correction biases of biased routers by the last forward's choices. */
void transformer_move_biases(struct transformer *);

/** The square root of the sum of squares of all gradients, including loss_scale. */
double transformer_gradient_norm(const struct transformer *);

/** Likewise, of the gradients of all parameters and of tensors beside them, such as those of encoders. */
double transformer_norm_with(const struct transformer *, const struct tensor beside[], int count);

#endif
