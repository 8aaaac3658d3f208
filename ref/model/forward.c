/* forward.c -- computes the one-device model's loss from ids and labels.  Files of ref/model/, check/, ref/golden/,
 * bench/ and other rooms call transformer_forward().  ERR_USAGE is for a token outside the vocabulary, or sequences
 * that the model does not take; ERR_MEMORY of the buffers. */
#include "ref/model/adapters.h"
#include "ref/model/kinds.h"
#include "ref/model/latent.h"
#include "ref/model/loss_rule.h"
#include "ref/model/params.h"
#include "ref/model/partial.h"
#include "ref/model/sample_mask.h"
#include "ref/model/transformer_parts.h"
#include <stdlib.h>
#include <string.h>

/* Y = norm of X, with the weight and bias at these indices of the list. */
static void forward_norm_forward(struct transformer *model, struct tensor Y, struct tensor mean, struct tensor rstd,
                                 struct tensor X, int w, int b)
{
    if (model->config.norm == NORM_RMS)
        model->ops->rmsnorm_forward(Y, rstd, X, model->w[w], norm_base(&model->config), model->config.eps);
    else model->ops->layernorm_forward(Y, mean, rstd, X, model->w[w], norm_base(&model->config), pick(model->w, b),
                                       model->config.eps);
}

static void first_norm(struct transformer *model, int layer, struct tensor X)
{
    const struct model_config *c = &model->config;
    struct block_activations *a = &model->block[layer];
    forward_norm_forward(model, a->ln1, a->ln1_mean, a->ln1_rstd, X, param_of_block(c, layer, LN1_W),
                         param_of_block(c, layer, LN1_B));
    computed(model, "ln_1", layer, a->ln1, c->D);
}

static void second_norm(struct transformer *model, int layer, struct tensor X)
{
    const struct model_config *c = &model->config;
    struct block_activations *a = &model->block[layer];
    forward_norm_forward(model, a->ln2, a->ln2_mean, a->ln2_rstd, X, param_of_block(c, layer, LN2_W),
                         param_of_block(c, layer, LN2_B));
    computed(model, "ln_2", layer, a->ln2, c->D);
}

static void forward_attention_forward(struct transformer *model, int layer)
{
    const struct ops *op = model->ops;
    const struct model_config *c = &model->config;
    struct block_activations *a = &model->block[layer];

    /* ln1 [N,D] = norm(in); with norms after only, attention reads the stream itself. */
    if (c->norms_at != NORMS_AFTER) first_norm(model, layer, a->in);
    if (LATENT(c)) latent_forward(model, layer);
    else {
        /* qkv [N,(H+2K)A] = x W^T + b: queries of all heads, then keys, then values. */
        op->linear_forward(a->qkv, attention_input(model, layer), W(QKV_W), W(QKV_B));
        computed(model, "attn.qkv", layer, a->qkv, c->D);
    }
    if (c->head_norms) {
        /* normed = each head's A numbers of queries and keys, divided by their root mean square, times W. */
        op->head_norm_forward(a->normed, a->head_rstd, a->qkv, W(HEAD_NORM_W), norm_base(c), attention_of(model, layer),
                              c->eps);
        computed(model, "attn.normed", layer, a->normed, c->A);
    }
    if (model_turns(c, layer)) {
        /* Pairs of numbers of queries and keys turn by angles that grow with the position. */
        op->rotary_forward(attended(model, layer), model->positions, rotary_of(model, layer),
                           attention_of(model, layer));
        computed(model, "attn.rotated", layer, attended(model, layer), 2);
    }
    /* att [N,H A] = softmax(scale q k^T) v for each head; lse [N,H]: the log-sum-exp of a query's scores. */
    if (model->past) past_attention(model, layer);
    else op->attention_forward(a->att, a->lse, attended(model, layer), attention_of(model, layer));
    /* A stream's learned keys and values are merged in, by their log-sum-exp. */
    if (STREAMS(c) > 1) prefix_forward(model, layer);
    /* Values are v < A wide: only these columns of a head go to the output matrix. */
    if (LATENT(c)) op->columns_move(a->narrow, a->att, latent_moves_of(c, c->H).result, false);
    computed(model, "attn.heads", layer, result_of_heads(model, layer), c->A + c->streams.prefix + model->S);
    /* branch [N,D] = att W^T + b, the residual that the caller adds to the stream. */
    op->linear_forward(model->branch, result_of_heads(model, layer), W(PROJ_W), W(PROJ_B));
    computed(model, "attn.out", layer, model->branch, values_width(c));
}

/* Y = the activation of X, of a feed-forward without a gate. */
static void activation_forward(struct transformer *model, struct tensor Y, struct tensor X)
{
    if (model->config.activation == ACTIVATION_EXACT_GELU) model->ops->exact_gelu_forward(Y, X);
    else if (model->config.activation == ACTIVATION_SQUARED_RELU) model->ops->squared_relu_forward(Y, X);
    else model->ops->gelu_forward(Y, X);
}

static void feed_forward(struct transformer *model, int layer)
{
    const struct ops *op = model->ops;
    const struct model_config *c = &model->config;
    const struct feed f = feed_of(model, layer);

    /* up [N,F], or gate and gated half [N,2F]. */
    op->linear_forward(f.up, feed_input(model, layer), W(f.up_w), W(UP_B));
    computed(model, f.up_name, layer, f.up, c->D);
    /* act [N,F] = the activation of up, gelu(gate) up or silu(gate) up. */
    if (c->mlp == MLP_GELU) activation_forward(model, f.act, f.up);
    else if (c->mlp == MLP_GEGLU) op->geglu_forward(f.act, f.up);
    else op->swiglu_forward(f.act, f.up);
    computed(model, f.act_name, layer, f.act, 1);
    /* branch [N,D] = act W^T + b. */
    op->linear_forward(model->branch, f.act, W(f.down_w), W(DOWN_B));
    computed(model, f.out_name, layer, model->branch, tensor_cols(f.act));
}

/* A parallel block: out = in + (attention + feed-forward), both from one norm, or each from its own. */
static void parallel_forward(struct transformer *model, int layer, struct tensor out)
{
    const struct ops *op = model->ops;
    struct block_activations *a = &model->block[layer];

    if (model->config.two_norms) second_norm(model, layer, a->in);
    /* mid [N,D] keeps attention's result until the feed-forward's is there. */
    forward_attention_forward(model, layer);
    op->dropout(a->mid, model->branch, residual_dropout(model, layer, "attention"));
    feed_forward(model, layer);
    op->dropout(model->branch, model->branch, residual_dropout(model, layer, "mlp"));
    op->add(a->mid, a->mid, model->branch);
    /* out = in + (attention + feed-forward): the sum of both branches is rounded first. */
    op->add(out, a->in, a->mid);
    computed(model, "out", layer, out, 1);
}

/* model->branch = dropout of what attention, or the feed-forward, gave, times the model's factor of branches. */
static void end_branch(struct transformer *model, int layer, const char *where)
{
    const double factor = model_factor(&model->config, FACTOR_RESIDUAL, model->branch.dtype);
    if (model_has_factor(&model->config, FACTOR_RESIDUAL)) model->ops->scale(model->branch, model->branch, factor);
    model->ops->dropout(model->branch, model->branch, residual_dropout(model, layer, where));
}

/* A block up to its second norm. */
static void upper_forward(struct transformer *model, int layer)
{
    const struct ops *op = model->ops;
    struct block_activations *a = &model->block[layer];

    forward_attention_forward(model, layer);
    /* mid [N,D] = in + dropout(attention(norm(in))). */
    end_branch(model, layer, "attention");
    op->add(a->mid, a->in, model->branch);
    computed(model, "mid", layer, a->mid, 1);
    second_norm(model, layer, a->mid);
}

/* Norm what attention, or the feed-forward, gave: model->branch. */
static void norm_after(struct transformer *model, int layer, bool feed)
{
    const struct after n = after_of(model, layer, feed);
    /* A dropout without a probability is a copy: backward needs the norm's input, and branch is overwritten. */
    model->ops->dropout(n.in, model->branch, (struct dropout){ 0 });
    forward_norm_forward(model, n.out, tensor_none, n.rstd, n.in, n.w, -1);
    computed(model, n.name, layer, n.out, model->config.D);
    model->ops->dropout(model->branch, n.out, residual_dropout(model, layer, feed ? "mlp" : "attention"));
}

/* The results of attention and feed-forward are normed before they are added; NORMS_AROUND also norms their inputs. */
static void forward_with_norms_after(struct transformer *model, int layer, struct tensor out)
{
    const struct ops *op = model->ops;
    struct block_activations *a = &model->block[layer];

    /* mid = in + norm(attention(..)); out = mid + norm(feed-forward(..)). */
    forward_attention_forward(model, layer);
    norm_after(model, layer, false);
    op->add(a->mid, a->in, model->branch);
    computed(model, "mid", layer, a->mid, 1);

    if (model->config.norms_at == NORMS_AROUND) second_norm(model, layer, a->mid);
    feed_forward(model, layer);
    norm_after(model, layer, true);
    op->add(out, a->mid, model->branch);
    computed(model, "out", layer, out, 1);
}

/* Two dense blocks; the mixture reads the first one's second norm, and is added last. */
static void shortcut_forward(struct transformer *model, int layer, struct tensor out)
{
    const struct ops *op = model->ops;
    const int second = (int)second_block(&model->config, layer);
    struct block_activations *a = &model->block[layer], *b = &model->block[second];

    /* The first block: mid, ln2 of it, and the mixture's result, which waits in `shortcut`. */
    upper_forward(model, layer);
    mixture_forward(model, layer);
    op->dropout(a->shortcut, model->branch, residual_dropout(model, layer, "mlp"));
    feed_forward(model, layer);
    op->dropout(model->branch, model->branch, residual_dropout(model, layer, "dense"));
    op->add(b->in, a->mid, model->branch);
    computed(model, "half", layer, b->in, 1);

    /* The second block adds attention and a dense feed-forward, then the mixture's result. */
    upper_forward(model, second);
    feed_forward(model, second);
    op->dropout(model->branch, model->branch, residual_dropout(model, second, "dense"));
    op->add(out, b->mid, model->branch);
    op->add(out, out, a->shortcut);
    computed(model, "out", layer, out, 1);
}

static void block_forward(struct transformer *model, int layer, struct tensor out)
{
    const struct ops *op = model->ops;
    struct block_activations *a = &model->block[layer];

    /* out [N,D] = mid + dropout(feed-forward(norm(mid))), mid = in + dropout(attention(norm(in))). */
    upper_forward(model, layer);
    if (is_mixture(model, layer)) mixture_forward(model, layer);
    else feed_forward(model, layer);
    end_branch(model, layer, "mlp");
    op->add(out, a->mid, model->branch);
    computed(model, "out", layer, out, 1);
}

static enum error_code take_batch(struct transformer *model, const int32_t *ids, const int32_t *labels,
                                  struct error *err)
{
    int32_t *const id = model->ids.data, *const position = model->positions.data, *const label = model->labels.data;
    const int64_t before = model->past ? model->past->count : 0;
    model->counted = 0;
    for (int64_t n = 0; n < model->B * model->S; n++) {
        if (ids[n] < 0 || ids[n] >= model->config.V ||
            (labels[n] != IGNORE_LABEL && (labels[n] < 0 || labels[n] >= model->config.V)))
            return fail(err, ERR_USAGE, "token %lld of the batch is %d, its label %d; the vocabulary is 0 to %lld",
                        (long long)n, (int)ids[n], (int)labels[n], (long long)model->config.V - 1);
        id[n] = ids[n];
        /* A position counts from the beginning of its sample, or of the tokens in the cache of past keys. */
        position[n] = model->packed ? sample_position(model->packed[n]) : (int32_t)(before + n % model->S);
        label[n] = labels[n];
        model->counted += labels[n] != IGNORE_LABEL;
    }
    /* Parallel streams read the same tokens: rows N .. P N - 1 repeat the first N. */
    for (int64_t N = model->B * model->S, n = N; n < stream_rows(model); n++)
        id[n] = id[n - N], position[n] = position[n - N];
    if (!transformer_is_masked(model)) return OK;
    return sample_mask(model->mask.data, &model->config.mask, model->packed, model->B, model->S, err);
}

/* The divisors of this batch's rows, where the loss is not the usual mean over labels. */
static enum error_code take_divisors(struct transformer *model, struct error *err)
{
    const struct loss_rule *rule = &model->config.loss;
    if (loss_rule_is_usual(rule)) return OK;
    double *own = realloc(model->own_divisors, (size_t)(model->B * model->S) * sizeof *own + 1);
    if (own == NULL) return fail(err, ERR_MEMORY, "no memory for the divisors of %lld rows",
                                 (long long)(model->B * model->S));
    model->own_divisors = own;
    loss_divisors(rule, model->labels.data, model->B, model->S, own);
    return OK;
}

/* The loss of logits, with top, total and hit of each row [N]. */
static double forward_loss(struct transformer *model)
{
    const struct ops *op = model->ops;
    double loss;
    /* Per row: top = max of logits, total = sum of exp(logit - top), hit = the label's logit. */
    op->cross_entropy_max(model->top, loss_input(model));
    op->cross_entropy_sums(model->total, model->hit, loss_input(model), model->top, model->labels, 0);
    if (model->row_loss)
        return row_loss_forward(model->row_loss, &(struct row_sums){ model->top, model->total, model->hit },
                                model->labels.data, 0, model->B * model->S, model->first * model->S,
                                model->config.exact != SUMS_ROUND) / (double)(model->counted ? model->counted : 1);
    if (!loss_rule_is_usual(&model->config.loss))
        return loss_rule_forward(&model->config.loss, loss_input(model), model->labels.data,
                            model->divisors ? model->divisors : model->own_divisors);
    /* loss = mean over counted labels of log(total) + top - hit; a batch without labels has 0. */
    op->cross_entropy_loss(&loss, model->total, model->top, model->hit, model->labels, IGNORE_LABEL);
    return loss / (double)(model->counted ? model->counted : 1);
}

static void copy_row(struct tensor to, int64_t at, struct tensor from, int64_t row)
{
    const size_t bytes = (size_t)tensor_cols(to) * dtype_size(to.dtype);
    memcpy((char *)to.data + (size_t)at * bytes, (const char *)from.data + (size_t)row * bytes, bytes);
}

static void embed(struct transformer *model)
{
    const struct model_config *c = &model->config;
    const struct tensor x = model->block[0].in;
    /* x [N,D] = table[ids]; a patch's row is then its encoder's output. */
    model->ops->embedding_forward(x, model->ids, model->w[PARAM_WTE], 0, false);
    for (int64_t n = 0; model->patch && n < model->B * model->S; n++)
        if (model->patch[n] >= 0) copy_row(x, n, model->patches, model->patch[n]);
    /* x += table of positions[position]. */
    if (c->positions == POSITIONS_LEARNED)
        model->ops->embedding_forward(x, model->positions, model->w[param_positions(c)], 0, true);
    if (model_has_factor(c, FACTOR_EMBEDDING)) model->ops->scale(x, x, model_factor(c, FACTOR_EMBEDDING, x.dtype));
    model->ops->dropout(x, x, dropout_at(c->dropout_embedding, model->seed, -1, "embedding",
                                         model->first * model->S, 0, c->D));
    computed(model, "embedding", -1, x, 1);
}

enum error_code transformer_forward(struct transformer *model, const int32_t *ids, const int32_t *labels, int64_t B,
                                    int64_t S, double *loss, struct error *err)
{
    const struct ops *op = model->ops;
    const struct model_config *c = &model->config;
    const int L = (int)c->L;
    if (B < 1 || S < 1 || S > c->S)
        return fail(err, ERR_USAGE, "%lld sequences of %lld tokens; model %s takes 1 to %lld tokens", (long long)B,
                    (long long)S, c->name, (long long)c->S);
    if (STREAMS(c) > 1 && (model->packed || model->passes_by))
        return fail(err, ERR_USAGE, "parallel streams run neither packed samples nor layers that sequences skip");
    if (!attention_mask_is_causal(&c->mask) && (STREAMS(c) > 1 || model->past))
        return fail(err, ERR_USAGE, "attention under --mask %s runs neither parallel streams nor a cache of past keys",
                    attention_mask_text(&c->mask).text);
    enum error_code e = transformer_make_buffers(model, B, S, err);
    if (!e) e = take_batch(model, ids, labels, err);
    if (!e) e = take_divisors(model, err);
    if (!e) e = router_losses_begin(model, err);
    if (e) return e;

    /* A matrix with an adapter is W + s B A during the passes. */
    adapters_merge(model);
    /* The residual stream [N,D] passes through all blocks; block l writes the input of block l + 1. */
    embed(model);
    for (int l = 0; l < L; l++) {
        const struct tensor out = l + 1 < L ? model->block[l + 1].in : model->last;
        if (c->parallel) parallel_forward(model, l, out);
        else if (c->shortcut) shortcut_forward(model, l, out);
        else if (c->norms_at != NORMS_BEFORE) forward_with_norms_after(model, l, out);
        else block_forward(model, l, out);
        partial_forward(model, l, out);
    }

    /* lnf [N,D] = norm(last), logits [N,V] = lnf W^T. */
    forward_norm_forward(model, model->lnf, model->lnf_mean, model->lnf_rstd, model->last, param_final_norm(c),
                         param_final_bias(c));
    computed(model, "ln_f", L, model->lnf, c->D);
    if (STREAMS(c) > 1) streams_mean_forward(model);
    op->linear_forward(model->logits, head_input(model), model->w[param_head(c)], pick(model->w, param_head_bias(c)));
    computed(model, "logits", L, model->logits, c->D);
    if (model_has_factor(c, FACTOR_LOGITS)) {
        op->scale(model->logits, model->logits, model_factor(c, FACTOR_LOGITS, model->logits.dtype));
        computed(model, "scaled", L, model->logits, 1);
    }
    if (c->logit_cap > 0) {
        op->soft_cap_forward(model->capped, model->logits, c->logit_cap);
        computed(model, "capped", L, model->capped, 1);
    }
    adapters_split(model);
    *loss = forward_loss(model);
    *loss += router_losses_end(model);
    return OK;
}
