/* backward.c -- computes the gradients of the one-device model's loss, after forward.c.  Files of check/, bench/,
 * verify/, ref/golden/ and other rooms call transformer_backward().  No function returns an error code. */
#include "ref/model/adapters.h"
#include "ref/model/kinds.h"
#include "ref/model/latent.h"
#include "ref/model/loss_rule.h"
#include "ref/model/params.h"
#include "ref/model/partial.h"
#include "ref/model/trained.h"
#include "ref/model/transformer_parts.h"
#include <string.h>

/* dX from dY, the gradient of norm(X); also adds the gradients of weight and bias. */
static void norm_backward(struct transformer *model, struct tensor dX, struct tensor dY, struct tensor X,
                          struct tensor mean, struct tensor rstd, int w, int b)
{
    if (model->config.norm == NORM_RMS) {
        model->ops->rmsnorm_backward_weight(model->g[w], dY, X, rstd);
        model->ops->rmsnorm_backward_input(dX, dY, X, model->w[w], norm_base(&model->config), rstd);
    } else {
        model->ops->layernorm_backward_weight(model->g[w], pick(model->g, b), dY, X, mean, rstd);
        model->ops->layernorm_backward_input(dX, dY, X, model->w[w], norm_base(&model->config), mean, rstd);
    }
}

/* Scratch, which has room for the largest feed-forward of all layers, in the shape of this one's. */
static struct tensor of_shape(struct tensor scratch, struct tensor like)
{
    return tensor_2d(scratch.data, scratch.dtype, tensor_rows(like), tensor_cols(like));
}

/* dX = dY times the activation's derivative at X. */
static void activation_backward(struct transformer *model, struct tensor dX, struct tensor dY, struct tensor X)
{
    if (model->config.activation == ACTIVATION_EXACT_GELU) model->ops->exact_gelu_backward_input(dX, dY, X);
    else if (model->config.activation == ACTIVATION_SQUARED_RELU) model->ops->squared_relu_backward_input(dX, dY, X);
    else model->ops->gelu_backward_input(dX, dY, X);
}

/* model->d_branch: the gradient of the feed-forward's output.  dX: that of its input; may be d_branch. */
static void feed_backward(struct transformer *model, int layer, struct tensor dX)
{
    const struct ops *op = model->ops;
    const struct model_config *c = &model->config;
    const struct feed f = feed_of(model, layer);
    const struct tensor d_act = of_shape(model->d_act, f.act), d_up = of_shape(model->d_up, f.up);

    /* dW_down += d_branch^T act;  d_act [N,F] = d_branch W_down. */
    op->linear_backward_weight(G(f.down_w), G(DOWN_B), model->d_branch, f.act);
    op->linear_backward_input(d_act, model->d_branch, W(f.down_w));
    computed_gradient(model, f.act_name, layer, d_act, c->D);
    /* d_up = d_act times the activation's derivative at up; of a gated form [N,2F], both halves. */
    if (c->mlp == MLP_GELU) activation_backward(model, d_up, d_act, f.up);
    else if (c->mlp == MLP_GEGLU) op->geglu_backward_input(d_up, d_act, f.up);
    else op->swiglu_backward_input(d_up, d_act, f.up);
    computed_gradient(model, f.up_name, layer, d_up, 1);
    /* dW_up += d_up^T x;  dX [N,D] = d_up W_up. */
    op->linear_backward_weight(G(f.up_w), G(UP_B), d_up, feed_input(model, layer));
    op->linear_backward_input(dX, d_up, W(f.up_w));
}

/* model->d_qkv: on entry the gradient of the normed heads, on return that of the heads before. */
static void head_norms_backward(struct transformer *model, int layer)
{
    const struct ops *op = model->ops;
    struct block_activations *a = &model->block[layer];
    const struct attention shape = attention_of(model, layer);

    computed_gradient(model, "attn.normed", layer, model->d_qkv,
                      model_turns(&model->config, layer) ? 2 : model->config.A + model->S);
    op->head_norm_backward_weight(G(HEAD_NORM_W), model->d_qkv, a->qkv, a->head_rstd, shape);
    op->head_norm_backward_input(model->d_qkv, model->d_qkv, a->qkv, W(HEAD_NORM_W), norm_base(&model->config),
                                 a->head_rstd, shape);
}

/* The log-sum-exp has a row for each head of each sequence. */
static void sinks_backward(struct transformer *model, int layer)
{
    struct block_activations *a = &model->block[layer];
    const struct tensor by_head = tensor_2d(a->lse.data, a->lse.dtype, tensor_count(a->lse) / model->S, model->S);
    model->ops->attention_sinks_backward(G(SINKS), model->d_attention, a->att, by_head, attention_of(model, layer));
}

/* model->d_branch: on entry the gradient of attention's output, on return that of its input. */
static void attention_backward(struct transformer *model, int layer)
{
    const struct ops *op = model->ops;
    const struct model_config *c = &model->config;
    struct block_activations *a = &model->block[layer];

    const struct tensor d_heads = LATENT(c) ? model->d_narrow : model->d_attention;
    /* dW_proj += d_branch^T att;  d_heads [N,H A] = d_branch W_proj. */
    op->linear_backward_weight(G(PROJ_W), G(PROJ_B), model->d_branch, result_of_heads(model, layer));
    op->linear_backward_input(d_heads, model->d_branch, W(PROJ_W));
    computed_gradient(model, "attn.heads", layer, d_heads, c->D);
    if (LATENT(c)) {
        /* Attention has A numbers a head: the gradients of those behind the v values are zeros. */
        memset(model->d_attention.data, 0, tensor_bytes(model->d_attention));
        op->columns_move(model->d_attention, d_heads, moved_back(latent_moves_of(c, c->H).result), false);
    }
    /* d_qkv [N,(H+2K)A]; probabilities are computed again from scores and lse. */
    op->attention_backward_input(model->d_qkv, model->d_attention, a->att, a->lse, attended(model, layer),
                                 attention_of(model, layer));
    if (c->sinks) sinks_backward(model, layer);
    if (STREAMS(c) > 1) prefix_backward(model, layer);
    if (model_turns(c, layer)) {
        /* Gradients turn back by the same angles: a rotation's transpose is its inverse. */
        computed_gradient(model, "attn.rotated", layer, model->d_qkv, c->A + model->S);
        op->rotary_backward_input(model->d_qkv, model->positions, rotary_of(model, layer), attention_of(model, layer));
    }
    if (c->head_norms) head_norms_backward(model, layer);
    if (LATENT(c)) {
        latent_backward(model, layer);
        return;
    }
    computed_gradient(model, "attn.qkv", layer, model->d_qkv,
                      c->head_norms ? c->A : model_turns(c, layer) ? 2 : c->A + model->S);
    /* dW_qkv += d_qkv^T ln1;  d_ln1 [N,D] = d_qkv W_qkv. */
    op->linear_backward_weight(G(QKV_W), G(QKV_B), model->d_qkv, attention_input(model, layer));
    op->linear_backward_input(model->d_branch, model->d_qkv, W(QKV_W));
}

/* model->d_branch: the gradient of what attention, or the feed-forward, gave, from that of the stream after it. */
static void begin_branch(struct transformer *model, int layer, const char *where)
{
    const double factor = model_factor(&model->config, FACTOR_RESIDUAL, model->d_branch.dtype);
    /* Dropout draws the same mask again: same seed and place, so nothing was kept. */
    model->ops->dropout(model->d_branch, model->d_stream, residual_dropout(model, layer, where));
    if (model_has_factor(&model->config, FACTOR_RESIDUAL)) model->ops->scale(model->d_branch, model->d_branch, factor);
}

/* A block up to its second norm.  model->d_branch: the gradient of that norm; model->d_stream: on entry that of
 * the stream after the block, on return that before it. */
static void upper_backward(struct transformer *model, int layer)
{
    const struct ops *op = model->ops;
    const struct model_config *c = &model->config;
    struct block_activations *a = &model->block[layer];
    const struct tensor d = model->d_stream, branch = model->d_branch, step = model->d_step;

    computed_gradient(model, "ln_2", layer, branch,
                      is_mixture(model, layer) ? up_width(c) : tensor_cols(feed_of(model, layer).up));
    /* d_mid = d_out + norm'(d_ln2): the stream's gradient passes the branch by. */
    norm_backward(model, step, branch, a->mid, a->ln2_mean, a->ln2_rstd, param_of_block(c, layer, LN2_W),
                  param_of_block(c, layer, LN2_B));
    op->add(d, d, step);
    computed_gradient(model, "mid", layer, d, c->D);

    begin_branch(model, layer, "attention");
    computed_gradient(model, "attn.out", layer, branch, 1);
    attention_backward(model, layer);
    computed_gradient(model, "ln_1", layer, branch, qkv_width(c));
    /* d_in = d_mid + norm'(d_ln1). */
    norm_backward(model, step, branch, a->in, a->ln1_mean, a->ln1_rstd, param_of_block(c, layer, LN1_W),
                  param_of_block(c, layer, LN1_B));
    op->add(d, d, step);
}

/* The stream's gradient before a layer. */
static void leave_layer(struct transformer *model, int layer)
{
    computed_gradient(model, layer == 0 ? "embedding" : "out", layer - 1, model->d_stream, model->config.D);
}

/* model->d_stream: on entry the gradient of the block's output, on return that of its input. */
static void block_backward(struct transformer *model, int layer)
{
    begin_branch(model, layer, "mlp");
    computed_gradient(model, "mlp.out", layer, model->d_branch, 1);
    if (is_mixture(model, layer)) mixture_backward(model, layer, tensor_none);
    else feed_backward(model, layer, model->d_branch);
    upper_backward(model, layer);
    leave_layer(model, layer);
}

/* model->d_branch = the gradient of what attention, or the feed-forward, gave, from that of the stream. */
static void backward_of_norm_after(struct transformer *model, int layer, bool feed)
{
    const struct after n = after_of(model, layer, feed);
    /* The gradient behind the norm; norm' of it is that of attention's or the feed-forward's output. */
    model->ops->dropout(model->d_step, model->d_stream, residual_dropout(model, layer, feed ? "mlp" : "attention"));
    computed_gradient(model, n.name, layer, model->d_step, 1);
    norm_backward(model, model->d_branch, model->d_step, n.in, tensor_none, n.rstd, n.w, -1);
    computed_gradient(model, feed ? "mlp.out" : "attn.out", layer, model->d_branch, model->config.D);
}

/* block_backward for norms behind attention and feed-forward; NORMS_AROUND has norms before them, too. */
static void backward_with_norms_after(struct transformer *model, int layer)
{
    const struct model_config *c = &model->config;
    const bool before = c->norms_at == NORMS_AROUND;
    struct block_activations *a = &model->block[layer];
    const struct tensor d = model->d_stream, branch = model->d_branch, step = model->d_step;

    backward_of_norm_after(model, layer, true);
    feed_backward(model, layer, branch);
    if (before) {
        computed_gradient(model, "ln_2", layer, branch, up_width(c));
        norm_backward(model, step, branch, a->mid, a->ln2_mean, a->ln2_rstd, param_of_block(c, layer, LN2_W), -1);
    }
    model->ops->add(d, d, before ? step : branch);
    computed_gradient(model, "mid", layer, d, before ? c->D : up_width(c));

    backward_of_norm_after(model, layer, false);
    attention_backward(model, layer);
    if (before) {
        computed_gradient(model, "ln_1", layer, branch, qkv_width(c));
        norm_backward(model, step, branch, a->in, a->ln1_mean, a->ln1_rstd, param_of_block(c, layer, LN1_W), -1);
    }
    model->ops->add(d, d, before ? step : branch);
    leave_layer(model, layer);
}

/* block_backward for a layer with a shortcut: the gradient of the first block's second norm is the dense feed-forward's
 * plus the mixture's. */
static void shortcut_backward(struct transformer *model, int layer)
{
    const struct ops *op = model->ops;
    const int second = (int)second_block(&model->config, layer);

    /* The mixture's result was added last: its gradient is the stream's, kept until the first block. */
    op->dropout(model->d_shortcut, model->d_stream, residual_dropout(model, layer, "mlp"));
    computed_gradient(model, "mlp.out", layer, model->d_shortcut, 1);
    op->dropout(model->d_branch, model->d_stream, residual_dropout(model, second, "dense"));
    computed_gradient(model, "dense.out", second, model->d_branch, 1);
    feed_backward(model, second, model->d_branch);
    upper_backward(model, second);
    computed_gradient(model, "half", layer, model->d_stream, model->config.D);

    op->dropout(model->d_branch, model->d_stream, residual_dropout(model, layer, "dense"));
    computed_gradient(model, "dense.out", layer, model->d_branch, 1);
    /* d_norm: what the dense feed-forward gives to the gradient of ln2. */
    feed_backward(model, layer, model->d_norm);
    /* mixture_backward reads d_branch, and leaves the gradient of ln2 there. */
    op->dropout(model->d_branch, model->d_shortcut, (struct dropout){ 0 });
    mixture_backward(model, layer, model->d_norm);
    upper_backward(model, layer);
    leave_layer(model, layer);
}

/* model->d_stream += the gradients of the two norms that branches read: the second's, of model->d_norm, then the
 * first's, of model->d_branch. */
static void two_norms_backward(struct transformer *model, int layer)
{
    const struct model_config *c = &model->config;
    struct block_activations *a = &model->block[layer];
    const struct tensor d = model->d_stream, step = model->d_step;

    computed_gradient(model, "ln_1", layer, model->d_branch, qkv_width(c));
    norm_backward(model, step, model->d_branch, a->in, a->ln1_mean, a->ln1_rstd, param_of_block(c, layer, LN1_W),
                  param_of_block(c, layer, LN1_B));
    model->ops->add(d, d, step);
    norm_backward(model, step, model->d_norm, a->in, a->ln2_mean, a->ln2_rstd, param_of_block(c, layer, LN2_W),
                  param_of_block(c, layer, LN2_B));
    model->ops->add(d, d, step);
}

/* Do the same of the one norm that both branches read: its gradient is the feed-forward's plus attention's. */
static void one_norm_backward(struct transformer *model, int layer)
{
    const struct model_config *c = &model->config;
    struct block_activations *a = &model->block[layer];

    model->ops->add(model->d_norm, model->d_norm, model->d_branch);
    computed_gradient(model, "ln_1", layer, model->d_norm, up_width(c) + qkv_width(c));
    norm_backward(model, model->d_step, model->d_norm, a->in, a->ln1_mean, a->ln1_rstd, param_of_block(c, layer, LN1_W),
                  param_of_block(c, layer, LN1_B));
    model->ops->add(model->d_stream, model->d_stream, model->d_step);
}

/* block_backward for a parallel block: the feed-forward's gradients, then attention's. */
static void parallel_backward(struct transformer *model, int layer)
{
    const struct ops *op = model->ops;

    op->dropout(model->d_branch, model->d_stream, residual_dropout(model, layer, "mlp"));
    computed_gradient(model, "mlp.out", layer, model->d_branch, 1);
    /* d_norm [N,D] = the gradient of what the feed-forward reads; d_branch becomes that of what attention reads. */
    feed_backward(model, layer, model->d_norm);
    if (model->config.two_norms) computed_gradient(model, "ln_2", layer, model->d_norm, up_width(&model->config));
    op->dropout(model->d_branch, model->d_stream, residual_dropout(model, layer, "attention"));
    computed_gradient(model, "attn.out", layer, model->d_branch, 1);
    attention_backward(model, layer);
    if (model->config.two_norms) two_norms_backward(model, layer);
    else one_norm_backward(model, layer);
    leave_layer(model, layer);
}

/* Patches have no token: their rows go to their encoders, and not to the table. */
static void take_patches(struct transformer *model)
{
    const size_t bytes = (size_t)model->config.D * dtype_size(model->d_stream.dtype);
    for (int64_t n = 0; model->patch && n < model->B * model->S; n++) {
        if (model->patch[n] < 0) continue;
        char *const row = (char *)model->d_stream.data + (size_t)n * bytes;
        memcpy((char *)model->d_patches.data + (size_t)model->patch[n] * bytes, row, bytes);
        memset(row, 0, bytes);
    }
}

void transformer_backward(struct transformer *model)
{
    const struct ops *op = model->ops;
    const struct model_config *c = &model->config;
    const int L = (int)c->L, head = param_head(c);
    const double scale = model->loss_scale / (double)(model->counted ? model->counted : 1);
    const struct tensor d_logits = model->logits;

    /* d_logits [N,V] = (softmax(logits) - one at the label) scale, in the memory of the logits. */
    if (loss_rule_is_usual(&c->loss))
        op->cross_entropy_backward(d_logits, loss_input(model), model->total, model->top, model->labels, 0,
                                   IGNORE_LABEL, scale);
    else loss_rule_backward(&c->loss, d_logits, loss_input(model), model->labels.data,
                       model->divisors ? model->divisors : model->own_divisors, model->loss_scale);
    if (model->row_loss)
        row_loss_backward(model->row_loss, d_logits, &(struct row_sums){ model->top, model->total, model->hit },
                          model->labels.data, 0, model->B * model->S, model->first * model->S, 0, scale);
    if (c->logit_cap > 0) {
        computed_gradient(model, "capped", L, d_logits, 1);
        op->soft_cap_backward_input(d_logits, d_logits, model->capped, c->logit_cap);
    }
    if (model_has_factor(c, FACTOR_LOGITS)) {
        computed_gradient(model, "scaled", L, d_logits, 1);
        op->scale(d_logits, d_logits, model_factor(c, FACTOR_LOGITS, d_logits.dtype));
    }
    computed_gradient(model, "logits", L, d_logits, 1);
    adapters_merge(model);
    /* dW_head += d_logits^T lnf;  d_lnf [N,D] = d_logits W_head; a tied head adds to the embedding's gradient. */
    op->linear_backward_weight(model->g[head], pick(model->g, param_head_bias(c)), d_logits, head_input(model));
    op->linear_backward_input(first_rows(model->d_branch, model->B * model->S), d_logits, model->w[head]);
    if (STREAMS(c) > 1) streams_mean_backward(model);
    computed_gradient(model, "ln_f", L, model->d_branch, c->V);
    norm_backward(model, model->d_stream, model->d_branch, model->last, model->lnf_mean, model->lnf_rstd,
                  param_final_norm(c), param_final_bias(c));
    computed_gradient(model, "out", L - 1, model->d_stream, c->D);
    for (int l = L - 1; l >= 0; l--) {
        /* Layer l: d_stream on entry is the gradient of its output, on return that of its input. */
        partial_backward_begin(model, l);
        if (c->parallel) parallel_backward(model, l);
        else if (c->shortcut) shortcut_backward(model, l);
        else if (c->norms_at != NORMS_BEFORE) backward_with_norms_after(model, l);
        else block_backward(model, l);
        partial_backward_end(model, l);
    }

    op->dropout(model->d_stream, model->d_stream,
                dropout_at(c->dropout_embedding, model->seed, -1, "embedding", model->first * model->S, 0, c->D));
    if (model_has_factor(c, FACTOR_EMBEDDING))
        op->scale(model->d_stream, model->d_stream, model_factor(c, FACTOR_EMBEDDING, model->d_stream.dtype));
    /* A row of a table gets the sum of the gradients of all tokens that have read it. */
    if (c->positions == POSITIONS_LEARNED)
        op->embedding_backward_weight(model->g[param_positions(c)], model->d_stream, model->positions, 0);
    take_patches(model);
    op->embedding_backward_weight(model->g[PARAM_WTE], model->d_stream, model->ids, 0);
    adapters_split(model);
    adapters_fold(model);
    for (int i = 0; i < model->params; i++)
        if (param_trains(c, &model->spec[i]))
            computed_gradient(model, model->spec[i].name, model->spec[i].layer, model->g[i],
                              model->B * model->S * (model->spec[i].role == ROLE_HEAD_NORM ? c->H : 1));
}
