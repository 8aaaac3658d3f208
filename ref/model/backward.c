/* backward.c -- the gradients of the one-device model's loss. */
#include "ref/model/latent.h"
#include "ref/model/partial.h"
#include "ref/model/transformer_parts.h"
#include <string.h>

/* dX from dY, the gradient of norm(X); also adds the gradients of weight and bias. */
static void norm_backward(struct transformer *m, struct tensor dX, struct tensor dY, struct tensor X,
                          struct tensor mean, struct tensor rstd, int w, int b)
{
    if (m->config.norm == NORM_RMS) {
        m->ops->rmsnorm_backward_weight(m->g[w], dY, X, rstd);
        m->ops->rmsnorm_backward_input(dX, dY, X, m->w[w], norm_base(&m->config), rstd);
    } else {
        m->ops->layernorm_backward_weight(m->g[w], m->g[b], dY, X, mean, rstd);
        m->ops->layernorm_backward_input(dX, dY, X, m->w[w], mean, rstd);
    }
}

/* Scratch, which has room for the largest feed-forward of all layers, in the shape of this one's. */
static struct tensor of_shape(struct tensor scratch, struct tensor like)
{
    return tensor_2d(scratch.data, scratch.dtype, tensor_rows(like), tensor_cols(like));
}

/* m->d_branch: the gradient of the feed-forward's output.  dX: that of its input; may be d_branch. */
static void feed_backward(struct transformer *m, int layer, struct tensor dX)
{
    const struct ops *op = m->ops;
    const struct model_config *c = &m->config;
    const struct feed f = feed_of(m, layer);
    const struct tensor d_act = of_shape(m->d_act, f.act), d_up = of_shape(m->d_up, f.up);

    /* dW_down += d_branch^T act;  d_act [N,F] = d_branch W_down. */
    op->linear_backward_weight(G(f.down_w), G(DOWN_B), m->d_branch, f.act);
    op->linear_backward_input(d_act, m->d_branch, W(f.down_w));
    computed_gradient(m, f.act_name, layer, d_act, c->D);
    /* d_up = d_act times the activation's derivative at up; of a gated form [N,2F], both halves. */
    if (c->mlp == MLP_GELU) op->gelu_backward_input(d_up, d_act, f.up);
    else if (c->mlp == MLP_GEGLU) op->geglu_backward_input(d_up, d_act, f.up);
    else op->swiglu_backward_input(d_up, d_act, f.up);
    computed_gradient(m, f.up_name, layer, d_up, 1);
    /* dW_up += d_up^T x;  dX [N,D] = d_up W_up. */
    op->linear_backward_weight(G(f.up_w), G(UP_B), d_up, feed_input(m, layer));
    op->linear_backward_input(dX, d_up, W(f.up_w));
}

/* m->d_qkv: on entry the gradient of the normed heads, on return that of the heads before. */
static void head_norms_backward(struct transformer *m, int layer)
{
    const struct ops *op = m->ops;
    struct block_activations *a = &m->block[layer];
    const struct attention shape = attention_of(m, layer);

    computed_gradient(m, "attn.normed", layer, m->d_qkv, 2);
    op->head_norm_backward_weight(G(HEAD_NORM_W), m->d_qkv, a->qkv, a->head_rstd, shape);
    op->head_norm_backward_input(m->d_qkv, m->d_qkv, a->qkv, W(HEAD_NORM_W), norm_base(&m->config), a->head_rstd,
                                 shape);
}

/* The log-sum-exp has a row for each head of each sequence. */
static void sinks_backward(struct transformer *m, int layer)
{
    struct block_activations *a = &m->block[layer];
    const struct tensor by_head = tensor_2d(a->lse.data, a->lse.dtype, tensor_count(a->lse) / m->S, m->S);
    m->ops->attention_sinks_backward(G(SINKS), m->d_attention, a->att, by_head, attention_of(m, layer));
}

/* m->d_branch: on entry the gradient of attention's output, on return that of its input. */
static void attention_backward(struct transformer *m, int layer)
{
    const struct ops *op = m->ops;
    const struct model_config *c = &m->config;
    struct block_activations *a = &m->block[layer];

    const struct tensor d_heads = LATENT(c) ? m->d_narrow : m->d_attention;
    /* dW_proj += d_branch^T att;  d_heads [N,H A] = d_branch W_proj. */
    op->linear_backward_weight(G(PROJ_W), G(PROJ_B), m->d_branch, result_of_heads(m, layer));
    op->linear_backward_input(d_heads, m->d_branch, W(PROJ_W));
    computed_gradient(m, "attn.heads", layer, d_heads, c->D);
    if (LATENT(c)) {
        /* Attention has A numbers a head: the gradients of those behind the v values are zeros. */
        memset(m->d_attention.data, 0, tensor_bytes(m->d_attention));
        op->columns_move(m->d_attention, d_heads, moved_back(latent_moves_of(c, c->H).result), false);
    }
    /* d_qkv [N,(H+2K)A]; probabilities are computed again from scores and lse. */
    op->attention_backward_input(m->d_qkv, m->d_attention, a->att, a->lse, attended(m, layer), attention_of(m, layer));
    if (c->sinks) sinks_backward(m, layer);
    if (STREAMS(c) > 1) prefix_backward(m, layer);
    if (c->positions == POSITIONS_ROTARY) {
        /* Gradients turn back by the same angles: a rotation's transpose is its inverse. */
        computed_gradient(m, "attn.rotated", layer, m->d_qkv, c->A + m->S);
        op->rotary_backward_input(m->d_qkv, m->positions, rotary_of(m, layer), attention_of(m, layer));
        if (c->head_norms) head_norms_backward(m, layer);
        if (LATENT(c)) {
            latent_backward(m, layer);
            return;
        }
        computed_gradient(m, "attn.qkv", layer, m->d_qkv, c->head_norms ? c->A : 2);
    } else computed_gradient(m, "attn.qkv", layer, m->d_qkv, c->A + m->S);
    /* dW_qkv += d_qkv^T ln1;  d_ln1 [N,D] = d_qkv W_qkv. */
    op->linear_backward_weight(G(QKV_W), G(QKV_B), m->d_qkv, attention_input(m, layer));
    op->linear_backward_input(m->d_branch, m->d_qkv, W(QKV_W));
}

/* A block up to its second norm.  m->d_branch: the gradient of that norm; m->d_stream: on entry that of the stream
 * after the block, on return that before it. */
static void upper_backward(struct transformer *m, int layer)
{
    const struct ops *op = m->ops;
    const struct model_config *c = &m->config;
    struct block_activations *a = &m->block[layer];
    const struct tensor d = m->d_stream, branch = m->d_branch, step = m->d_step;

    computed_gradient(m, "ln_2", layer, branch, is_mixture(m, layer) ? up_width(c) : tensor_cols(feed_of(m, layer).up));
    /* d_mid = d_out + norm'(d_ln2): the stream's gradient passes the branch by. */
    norm_backward(m, step, branch, a->mid, a->ln2_mean, a->ln2_rstd, param_of_block(c, layer, LN2_W),
                  param_of_block(c, layer, LN2_B));
    op->add(d, d, step);
    computed_gradient(m, "mid", layer, d, c->D);

    /* Dropout draws the same mask again: same seed and place, so nothing was kept. */
    op->dropout(branch, d, residual_dropout(m, layer, "attention"));
    computed_gradient(m, "attn.out", layer, branch, 1);
    attention_backward(m, layer);
    computed_gradient(m, "ln_1", layer, branch, qkv_width(c));
    /* d_in = d_mid + norm'(d_ln1). */
    norm_backward(m, step, branch, a->in, a->ln1_mean, a->ln1_rstd, param_of_block(c, layer, LN1_W),
                  param_of_block(c, layer, LN1_B));
    op->add(d, d, step);
}

/* The stream's gradient before a layer. */
static void leave_layer(struct transformer *m, int layer)
{
    computed_gradient(m, layer == 0 ? "embedding" : "out", layer - 1, m->d_stream, m->config.D);
}

/* m->d_stream: on entry the gradient of the block's output, on return that of its input. */
static void block_backward(struct transformer *m, int layer)
{
    m->ops->dropout(m->d_branch, m->d_stream, residual_dropout(m, layer, "mlp"));
    computed_gradient(m, "mlp.out", layer, m->d_branch, 1);
    if (is_mixture(m, layer)) mixture_backward(m, layer);
    else feed_backward(m, layer, m->d_branch);
    upper_backward(m, layer);
    leave_layer(m, layer);
}

/* m->d_branch = the gradient of what attention, or the feed-forward, gave, from that of the stream. */
static void backward_of_norm_after(struct transformer *m, int layer, bool feed)
{
    const struct after n = after_of(m, layer, feed);
    /* The gradient behind the norm; norm' of it is that of attention's or the feed-forward's output. */
    m->ops->dropout(m->d_step, m->d_stream, residual_dropout(m, layer, feed ? "mlp" : "attention"));
    computed_gradient(m, n.name, layer, m->d_step, 1);
    norm_backward(m, m->d_branch, m->d_step, n.in, tensor_none, n.rstd, n.w, -1);
    computed_gradient(m, feed ? "mlp.out" : "attn.out", layer, m->d_branch, m->config.D);
}

/* block_backward for norms behind attention and feed-forward; NORMS_AROUND has norms before them, too. */
static void backward_with_norms_after(struct transformer *m, int layer)
{
    const struct model_config *c = &m->config;
    const bool before = c->norms_at == NORMS_AROUND;
    struct block_activations *a = &m->block[layer];
    const struct tensor d = m->d_stream, branch = m->d_branch, step = m->d_step;

    backward_of_norm_after(m, layer, true);
    feed_backward(m, layer, branch);
    if (before) {
        computed_gradient(m, "ln_2", layer, branch, up_width(c));
        norm_backward(m, step, branch, a->mid, a->ln2_mean, a->ln2_rstd, param_of_block(c, layer, LN2_W), -1);
    }
    m->ops->add(d, d, before ? step : branch);
    computed_gradient(m, "mid", layer, d, before ? c->D : up_width(c));

    backward_of_norm_after(m, layer, false);
    attention_backward(m, layer);
    if (before) {
        computed_gradient(m, "ln_1", layer, branch, qkv_width(c));
        norm_backward(m, step, branch, a->in, a->ln1_mean, a->ln1_rstd, param_of_block(c, layer, LN1_W), -1);
    }
    m->ops->add(d, d, before ? step : branch);
    leave_layer(m, layer);
}

/* block_backward for a layer with a shortcut: the gradient of the first block's second norm is the dense feed-forward's
 * plus the mixture's. */
static void shortcut_backward(struct transformer *m, int layer)
{
    const struct ops *op = m->ops;
    const int second = (int)second_block(&m->config, layer);

    /* The mixture's result was added last: its gradient is the stream's, kept until the first block. */
    op->dropout(m->d_shortcut, m->d_stream, residual_dropout(m, layer, "mlp"));
    computed_gradient(m, "mlp.out", layer, m->d_shortcut, 1);
    op->dropout(m->d_branch, m->d_stream, residual_dropout(m, second, "dense"));
    computed_gradient(m, "dense.out", second, m->d_branch, 1);
    feed_backward(m, second, m->d_branch);
    upper_backward(m, second);
    computed_gradient(m, "half", layer, m->d_stream, m->config.D);

    op->dropout(m->d_branch, m->d_stream, residual_dropout(m, layer, "dense"));
    computed_gradient(m, "dense.out", layer, m->d_branch, 1);
    /* d_norm: what the dense feed-forward gives to the gradient of ln2. */
    feed_backward(m, layer, m->d_norm);
    /* mixture_backward reads d_branch, and leaves its part of the gradient of ln2 there. */
    op->dropout(m->d_branch, m->d_shortcut, (struct dropout){ 0 });
    mixture_backward(m, layer);
    op->add(m->d_branch, m->d_norm, m->d_branch);
    upper_backward(m, layer);
    leave_layer(m, layer);
}

/* block_backward for a parallel block: the norm's gradient is the feed-forward's plus attention's, in this order. */
static void parallel_backward(struct transformer *m, int layer)
{
    const struct ops *op = m->ops;
    const struct model_config *c = &m->config;
    struct block_activations *a = &m->block[layer];
    const struct tensor d = m->d_stream, branch = m->d_branch, step = m->d_step;

    op->dropout(branch, d, residual_dropout(m, layer, "mlp"));
    computed_gradient(m, "mlp.out", layer, branch, 1);
    /* d_norm [N,D] = d of ln1 from the feed-forward, then plus that from attention. */
    feed_backward(m, layer, m->d_norm);
    op->dropout(branch, d, residual_dropout(m, layer, "attention"));
    computed_gradient(m, "attn.out", layer, branch, 1);
    attention_backward(m, layer);
    op->add(m->d_norm, m->d_norm, branch);
    computed_gradient(m, "ln_1", layer, m->d_norm, up_width(c) + qkv_width(c));
    norm_backward(m, step, m->d_norm, a->in, a->ln1_mean, a->ln1_rstd, param_of_block(c, layer, LN1_W),
                  param_of_block(c, layer, LN1_B));
    op->add(d, d, step);
    computed_gradient(m, layer == 0 ? "embedding" : "out", layer - 1, d, c->D);
}

/* Patches have no token: their rows go to their encoders, and not to the table. */
static void take_patches(struct transformer *m)
{
    const size_t bytes = (size_t)m->config.D * dtype_size(m->d_stream.dtype);
    for (int64_t n = 0; m->patch && n < m->B * m->S; n++) {
        if (m->patch[n] < 0) continue;
        char *const row = (char *)m->d_stream.data + (size_t)n * bytes;
        memcpy((char *)m->d_patches.data + (size_t)m->patch[n] * bytes, row, bytes);
        memset(row, 0, bytes);
    }
}

void transformer_backward(struct transformer *m)
{
    const struct ops *op = m->ops;
    const struct model_config *c = &m->config;
    const int L = (int)c->L, head = param_head(c);
    const double scale = m->loss_scale / (double)(m->counted ? m->counted : 1);
    const struct tensor d_logits = m->logits;

    /* d_logits [N,V] = (softmax(logits) - one at the label) scale, in the memory of the logits. */
    op->cross_entropy_backward(d_logits, loss_input(m), m->total, m->top, m->labels, 0, IGNORE_LABEL, scale);
    if (c->logit_cap > 0) {
        computed_gradient(m, "capped", L, d_logits, 1);
        op->soft_cap_backward_input(d_logits, d_logits, m->capped, c->logit_cap);
    }
    computed_gradient(m, "logits", L, d_logits, 1);
    /* dW_head += d_logits^T lnf;  d_lnf [N,D] = d_logits W_head; a tied head adds to the embedding's gradient. */
    op->linear_backward_weight(m->g[head], pick(m->g, param_head_bias(c)), d_logits, head_input(m));
    op->linear_backward_input(first_rows(m->d_branch, m->B * m->S), d_logits, m->w[head]);
    if (STREAMS(c) > 1) streams_mean_backward(m);
    computed_gradient(m, "ln_f", L, m->d_branch, c->V);
    norm_backward(m, m->d_stream, m->d_branch, m->last, m->lnf_mean, m->lnf_rstd, param_final_norm(c),
                  param_final_bias(c));
    computed_gradient(m, "out", L - 1, m->d_stream, c->D);
    for (int l = L - 1; l >= 0; l--) {
        /* Layer l: d_stream on entry is the gradient of its output, on return that of its input. */
        partial_backward_begin(m, l);
        if (c->parallel) parallel_backward(m, l);
        else if (c->shortcut) shortcut_backward(m, l);
        else if (c->norms_at != NORMS_BEFORE) backward_with_norms_after(m, l);
        else block_backward(m, l);
        partial_backward_end(m, l);
    }

    op->dropout(m->d_stream, m->d_stream,
                dropout_at(c->dropout_embedding, m->seed, -1, "embedding", m->first * m->S, 0, c->D));
    if (c->scaled_embedding) op->scale(m->d_stream, embedding_factor(c, m->d_stream.dtype));
    /* A row of a table gets the sum of the gradients of all tokens that have read it. */
    if (c->positions == POSITIONS_LEARNED)
        op->embedding_backward_weight(m->g[param_positions(c)], m->d_stream, m->positions, 0);
    take_patches(m);
    op->embedding_backward_weight(m->g[PARAM_WTE], m->d_stream, m->ids, 0);
    for (int i = 0; i < m->params; i++)
        computed_gradient(m, m->spec[i].name, m->spec[i].layer, m->g[i],
                          m->B * m->S * (m->spec[i].role == ROLE_HEAD_NORM ? c->H : 1));
}
