/* latent.c -- latent attention (MLA): queries, keys and values of all heads come from normed latents of a token, and
 * all heads share one key with rotary positions.
 *
 * Attention reads them as of any model, side by side in m->block[].qkv.  There a head of queries and keys has its T
 * numbers with positions first, then those without, and a head of values has zeros after its own numbers:
 *
 *   queries  [ with positions T | without A-T ]     of q_b_proj, whose heads are [ without | with ]
 *   keys     [ the shared key T | without A-T ]     of the latent's end, of kv_b_proj's heads [ without | value ]
 *   values   [ value v | zeros A-v ]
 *
 * Source  DeepSeek-AI, "DeepSeek-V2", arXiv:2405.04434, section 2.1; class DeepseekV2Attention of transformers
 * Called  check/recompute/latent.c, model/run/run_latent.c, backward.c and forward.c call these functions.  No
 *         function returns an error code.
 */
#include "ref/model/latent.h"
#include "ref/model/params.h"
#include "ref/model/transformer_parts.h"
#include <string.h>

struct latent_moves latent_moves_of(const struct model_config *config, int64_t H)
{
    const int64_t A = config->A, T = config->rotary.turned, nope = nope_width(config), both = expanded_width(config),
        v = config->latent.v;
    return (struct latent_moves){
        .query = { H, nope, .y = T, .y_step = A, .x = 0, .x_step = A },
        .turned_query = { H, T, .y = 0, .y_step = A, .x = nope, .x_step = A },
        .key = { H, nope, .y = H * A + T, .y_step = A, .x = 0, .x_step = both },
        .shared_key = { H, T, .y = H * A, .y_step = A, .x = config->latent.kv, .x_step = 0 },
        .value = { H, v, .y = 2 * H * A, .y_step = A, .x = nope, .x_step = both },
        .result = { H, v, .y = 0, .y_step = v, .x = 0, .x_step = A },
        .latent = { 1, config->latent.kv, .y = 0, .x = 0 },
    };
}

struct column_blocks moved_back(struct column_blocks blocks)
{
    return (struct column_blocks){ blocks.times, blocks.count, blocks.x, blocks.x_step, blocks.y, blocks.y_step };
}

static void zero(struct tensor t) { memset(t.data, 0, tensor_bytes(t)); }

void latent_forward(struct transformer *model, int layer)
{
    const struct ops *op = model->ops;
    const struct model_config *c = &model->config;
    const struct latent_moves at = latent_moves_of(c, c->H);
    struct block_activations *a = &model->block[layer];
    struct tensor from = a->ln1;

    if (c->latent.q > 0) {
        /* q_normed [N,q] = rmsnorm(ln1 W^T). */
        op->linear_forward(a->q_latent, a->ln1, W(Q_LATENT_W), W(Q_LATENT_B));
        computed(model, "attn.q_latent", layer, a->q_latent, c->D);
        op->rmsnorm_forward(a->q_normed, a->q_rstd, a->q_latent, W(Q_NORM_W), norm_base(c), LATENT_EPS);
        computed(model, "attn.q_normed", layer, a->q_normed, c->latent.q);
        from = a->q_normed;
    }
    /* queries [N,H A]: of each head first `nope` numbers, then those with positions. */
    op->linear_forward(a->queries, from, W(QUERIES_W), tensor_none);
    computed(model, "attn.q", layer, a->queries, tensor_cols(from));
    /* kv_latent [N,kv + T]: the latent, and one key with positions that all heads share. */
    op->linear_forward(a->kv_latent, a->ln1, W(KV_LATENT_W), W(KV_LATENT_B));
    computed(model, "attn.kv_latent", layer, a->kv_latent, c->D);
    op->columns_move(a->kv_only, a->kv_latent, at.latent, false);
    op->rmsnorm_forward(a->kv_normed, a->kv_rstd, a->kv_only, W(KV_NORM_W), norm_base(c), LATENT_EPS);
    computed(model, "attn.kv_normed", layer, a->kv_normed, c->latent.kv);
    /* expanded [N,H (nope + v)]: of each head a key without positions, then a value. */
    op->linear_forward(a->expanded, a->kv_normed, W(KEYS_VALUES_W), tensor_none);
    computed(model, "attn.kv", layer, a->expanded, c->latent.kv);

    /* qkv [N,3 H A], positions first in a head; a value's last A - v numbers stay 0. */
    zero(a->qkv);
    op->columns_move(a->qkv, a->queries, at.turned_query, false);
    op->columns_move(a->qkv, a->queries, at.query, false);
    op->columns_move(a->qkv, a->kv_latent, at.shared_key, false);
    op->columns_move(a->qkv, a->expanded, at.key, false);
    op->columns_move(a->qkv, a->expanded, at.value, false);
}

/* model->d_qkv: the gradient of a->qkv; model->d_branch: on return that of a->ln1. */
void latent_backward(struct transformer *model, int layer)
{
    const struct ops *op = model->ops;
    const struct model_config *c = &model->config;
    const struct latent_moves at = latent_moves_of(c, c->H);
    struct block_activations *a = &model->block[layer];
    const struct tensor d_latent = model->d_kv_latent, d_ln1 = model->d_branch;

    /* The columns go back to where forward took them from. */
    op->columns_move(model->d_expanded, model->d_qkv, moved_back(at.key), false);
    op->columns_move(model->d_expanded, model->d_qkv, moved_back(at.value), false);
    computed_gradient(model, "attn.kv", layer, model->d_expanded, c->A + model->S);
    op->linear_backward_weight(G(KEYS_VALUES_W), tensor_none, model->d_expanded, a->kv_normed);
    op->linear_backward_input(model->d_kv_normed, model->d_expanded, W(KEYS_VALUES_W));
    computed_gradient(model, "attn.kv_normed", layer, model->d_kv_normed, c->H * expanded_width(c));
    op->rmsnorm_backward_weight(G(KV_NORM_W), model->d_kv_normed, a->kv_only, a->kv_rstd);
    op->rmsnorm_backward_input(model->d_kv_only, model->d_kv_normed, a->kv_only, W(KV_NORM_W),
                               norm_base(c), a->kv_rstd);
    zero(d_latent);
    op->columns_move(d_latent, model->d_kv_only, moved_back(at.latent), false);
    /* All heads have read the shared key: its gradient is the sum over heads. */
    op->columns_move(d_latent, model->d_qkv, moved_back(at.shared_key), true);
    computed_gradient(model, "attn.kv_latent", layer, d_latent, c->H * (c->A + model->S));
    op->linear_backward_weight(G(KV_LATENT_W), G(KV_LATENT_B), d_latent, a->ln1);

    op->columns_move(model->d_queries, model->d_qkv, moved_back(at.turned_query), false);
    op->columns_move(model->d_queries, model->d_qkv, moved_back(at.query), false);
    computed_gradient(model, "attn.q", layer, model->d_queries, c->A + model->S);
    op->linear_backward_weight(G(QUERIES_W), tensor_none, model->d_queries, c->latent.q > 0 ? a->q_normed : a->ln1);
    if (c->latent.q > 0) {
        op->linear_backward_input(model->d_q_normed, model->d_queries, W(QUERIES_W));
        computed_gradient(model, "attn.q_normed", layer, model->d_q_normed, heads_width(c));
        op->rmsnorm_backward_weight(G(Q_NORM_W), model->d_q_normed, a->q_latent, a->q_rstd);
        op->rmsnorm_backward_input(model->d_q_latent, model->d_q_normed, a->q_latent, W(Q_NORM_W),
                                   norm_base(c), a->q_rstd);
        computed_gradient(model, "attn.q_latent", layer, model->d_q_latent, c->latent.q);
        op->linear_backward_weight(G(Q_LATENT_W), G(Q_LATENT_B), model->d_q_latent, a->ln1);
        op->linear_backward_input(d_ln1, model->d_q_latent, W(Q_LATENT_W));
    } else op->linear_backward_input(d_ln1, model->d_queries, W(QUERIES_W));
    /* d ln1 = what the queries gave + d_latent W_kv. */
    op->linear_backward_input(model->d_step, d_latent, W(KV_LATENT_W));             /* free at this time */
    op->add(d_ln1, model->d_step, d_ln1);
}
