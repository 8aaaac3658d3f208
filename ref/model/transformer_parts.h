/* transformer_parts.h -- shared by the files of the one-device model.  Inside ref/model only.  forward.c, backward.c
 * and other files of ref/model/ call these functions. */
#ifndef ORRERY_TRANSFORMER_PARTS_H
#define ORRERY_TRANSFORMER_PARTS_H

#include "ref/model/attention_mask.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "ref/model/past.h"
#include "ref/model/transformer.h"
#include <stdio.h>

/* A parameter's tensor by its index; tensor_none for -1. */
static inline struct tensor pick(const struct tensor *list, int i) { return i < 0 ? tensor_none : list[i]; }

/* Rows of the residual stream: those of all tokens of stream 0, then of stream 1, ... */
static inline int64_t stream_rows(const struct transformer *model)
{
    return STREAMS(&model->config) * model->B * model->S;
}

#define W(p) pick(model->w, param_of_block(&model->config, layer, p))
#define G(p) pick(model->g, param_of_block(&model->config, layer, p))

/* The queries, keys and values that attention reads. */
static inline struct tensor attended(const struct transformer *model, int layer)
{
    return model->config.head_norms ? model->block[layer].normed : model->block[layer].qkv;
}

/* The table of rotary positions of a layer. */
static inline struct tensor rotary_of(const struct transformer *model, int layer)
{
    return model_is_local(&model->config, layer) ? model->local_rotary : model->rotary;
}

/* The norm of what attention gives, or the feed-forward: its input and output, its weight, and its output's name. */
struct after { struct tensor in, out, rstd; int w; const char *name; };

static inline struct after after_of(const struct transformer *model, int layer, bool feed)
{
    const struct block_activations *a = &model->block[layer];
    const bool around = model->config.norms_at == NORMS_AROUND;
    const enum block_param p = feed ? (around ? AFTER2_W : LN2_W) : around ? AFTER1_W : LN1_W;
    const char *const name[] = { "ln_1", "ln_2", "post_1", "post_2" };
    return (struct after){ feed ? a->feed_out : a->attention_out, feed ? a->after2 : a->after1,
                           feed ? a->after2_rstd : a->after1_rstd, param_of_block(&model->config, layer, p),
                           name[2 * around + feed] };
}

/* The input of attention. */
static inline struct tensor attention_input(const struct transformer *model, int layer)
{
    return model->config.norms_at == NORMS_AFTER ? model->block[layer].in : model->block[layer].ln1;
}

/* The input of attention's output matrix. */
static inline struct tensor result_of_heads(const struct transformer *model, int layer)
{
    return LATENT(&model->config) ? model->block[layer].narrow : model->block[layer].att;
}

/* The input of the feed-forward. */
static inline struct tensor feed_input(const struct transformer *model, int layer)
{
    const struct block_activations *a = &model->block[layer];
    const bool shared = model->config.parallel && !model->config.two_norms;
    return model->config.norms_at == NORMS_AFTER ? a->mid : shared ? a->ln1 : a->ln2;
}

/* A dense feed-forward's activations, parameters and names: in a layer with a shortcut it is beside a mixture, in a
 * dense layer in its place. */
struct feed { struct tensor up, act; enum block_param up_w, down_w; const char *up_name, *act_name, *out_name; };

static inline struct feed feed_of(const struct transformer *model, int layer)
{
    const struct block_activations *a = &model->block[layer];
    if (layer_set_has(&model->config.dense.at, layer))
        return (struct feed){ a->up, a->act, UP_W, DOWN_W, "dense.up", "dense.act", "mlp.out" };
    return model->config.shortcut ? (struct feed){ a->dense_up, a->dense_act, DENSE_UP_W, DENSE_DOWN_W, "dense.up",
                                               "dense.act", "dense.out" }
                              : (struct feed){ a->up, a->act, UP_W, DOWN_W, "mlp.up", "mlp.act", "mlp.out" };
}

/* Announce a tensor that was just computed; each element sums `terms` products.  Those of a layer's second block have
 * names of their own. */
static inline void announce(const struct transformer *model, const char *name, int layer, bool gradient,
                            struct tensor t, int64_t terms)
{
    const bool second = layer > model->config.L;
    char full[PARAM_NAME + 16];
    if (model->observer.see == NULL) return;
    snprintf(full, sizeof full, "%s%s", second ? "second." : "", name);
    model->observer.see(model->observer.context, full,
                        second ? layer - (int)second_block(&model->config, 0) : layer, gradient, t, terms);
}

static inline void computed(struct transformer *model, const char *name, int layer, struct tensor t, int64_t terms)
{
    announce(model, name, layer, false, t, terms);
}

static inline void computed_gradient(struct transformer *model, const char *name, int layer, struct tensor t,
                                     int64_t terms)
{
    announce(model, name, layer, true, t, terms);
}

/* Whether attention takes ranges: without them a token sees its whole sequence up to itself. */
static inline bool transformer_is_masked(const struct transformer *model)
{
    return model->packed != NULL || !attention_mask_is_causal(&model->config.mask);
}

static inline struct attention attention_of(const struct transformer *model, int layer)
{
    const struct model_config *c = &model->config;
    struct attention a = attention_of_layer(c, layer, model->S);
    if (transformer_is_masked(model)) a.mask = model->mask;
    a.sinks = W(SINKS);
    a.drop = dropout_at(c->dropout_attention, model->seed, layer, "probabilities", model->first, 0, c->H);
    return a;
}

static inline struct dropout residual_dropout(const struct transformer *model, int layer, const char *where)
{
    return dropout_at(model->config.dropout_residual, model->seed, layer, where, model->first * model->S, 0,
                      model->config.D);
}

/* Allocate the buffers for a batch of B sequences of S tokens.  @return OK or ERR_MEMORY. */
enum error_code transformer_make_buffers(struct transformer *, int64_t B, int64_t S, struct error *);

/* ---- streams.c: parallel streams --------------------------------------------------------------------------------- */

/* Add each stream's prefix to the attention of a layer: to its result, and to its gradients. */
void prefix_forward(struct transformer *, int layer);
void prefix_backward(struct transformer *, int layer);

/* m->mean = the weighted mean of m->lnf's streams.  Backward: m->d_branch, on entry the gradient of m->mean, in the
 * first rows; on return that of m->lnf. */
void streams_mean_forward(struct transformer *);
void streams_mean_backward(struct transformer *);

/* The logits [N,V] that the loss reads: capped, if the model caps them. */
static inline struct tensor loss_input(const struct transformer *model)
{
    return model->config.logit_cap > 0 ? model->capped : model->logits;
}

/* The input of the output matrix. */
static inline struct tensor head_input(const struct transformer *model)
{
    return STREAMS(&model->config) > 1 ? model->mean : model->lnf;
}

/* The first n rows. */
static inline struct tensor first_rows(struct tensor t, int64_t n)
{
    t.dim[0] = n;
    return t;
}

/* ---- past.c ------------------------------------------------------------------------------------------------------ */

/* Attention of the new tokens of a layer to them and those that are kept. */
void past_attention(struct transformer *, int layer);

/* ---- latent.c: latent attention ---------------------------------------------------------------------------------- */

void latent_forward(struct transformer *, int layer);
void latent_backward(struct transformer *, int layer);

/* ---- mixture.c: the feed-forward of a mixture, and its routers' losses ------------------------------------------- */

static inline bool is_mixture(const struct transformer *model, int64_t layer)
{
    return layer_mlp(&model->config, layer) == MLP_MIXTURE;
}

/* m->branch = the mixture of the block's ln2. */
void mixture_forward(struct transformer *, int layer);

/* m->d_branch: on entry the gradient of the mixture's output, on return that of its input, with `beside`, what another
 * block that reads the same input gives to it; or none. */
void mixture_backward(struct transformer *, int layer, struct tensor beside);

/* shared.c: m->branch += the shared experts' result; m->d_shared = the gradient of their input, from m->d_branch. */
void shared_forward(struct transformer *, int layer);
void shared_backward(struct transformer *, int layer);

/* Make room for the sums of this batch's groups and set them to zero, before a forward pass.
 * @return OK or ERR_MEMORY. */
enum error_code router_losses_begin(struct transformer *, struct error *);

/* The routers' losses, each times its coefficient.  Call it after all blocks. */
double router_losses_end(struct transformer *);

#endif
