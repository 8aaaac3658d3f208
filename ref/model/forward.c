/* forward.c -- the one-device model's loss. */
#include "ref/model/latent.h"
#include "ref/model/partial.h"
#include "ref/model/sample_mask.h"
#include "ref/model/transformer_parts.h"
#include <string.h>

/* Y = norm of X, with the weight and bias at these indices of the list. */
static void norm_forward(struct transformer *m, struct tensor Y, struct tensor mean, struct tensor rstd,
                         struct tensor X, int w, int b)
{
    if (m->config.norm == NORM_RMS) m->ops->rmsnorm_forward(Y, rstd, X, m->w[w], norm_base(&m->config), m->config.eps);
    else m->ops->layernorm_forward(Y, mean, rstd, X, m->w[w], m->w[b], m->config.eps);
}

static void first_norm(struct transformer *m, int layer, struct tensor X)
{
    const struct model_config *c = &m->config;
    struct block_activations *a = &m->block[layer];
    norm_forward(m, a->ln1, a->ln1_mean, a->ln1_rstd, X, param_of_block(c, layer, LN1_W),
                 param_of_block(c, layer, LN1_B));
    computed(m, "ln_1", layer, a->ln1, c->D);
}

static void second_norm(struct transformer *m, int layer, struct tensor X)
{
    const struct model_config *c = &m->config;
    struct block_activations *a = &m->block[layer];
    norm_forward(m, a->ln2, a->ln2_mean, a->ln2_rstd, X, param_of_block(c, layer, LN2_W),
                 param_of_block(c, layer, LN2_B));
    computed(m, "ln_2", layer, a->ln2, c->D);
}

static void attention_forward(struct transformer *m, int layer)
{
    const struct ops *op = m->ops;
    const struct model_config *c = &m->config;
    struct block_activations *a = &m->block[layer];

    /* ln1 [N,D] = norm(in); with norms after only, attention reads the stream itself. */
    if (c->norms_at != NORMS_AFTER) first_norm(m, layer, a->in);
    if (LATENT(c)) latent_forward(m, layer);
    else {
        /* qkv [N,(H+2K)A] = x W^T + b: queries of all heads, then keys, then values. */
        op->linear_forward(a->qkv, attention_input(m, layer), W(QKV_W), W(QKV_B));
        computed(m, "attn.qkv", layer, a->qkv, c->D);
    }
    if (c->head_norms) {
        /* normed = each head's A numbers of queries and keys, divided by their root mean square, times W. */
        op->head_norm_forward(a->normed, a->head_rstd, a->qkv, W(HEAD_NORM_W), norm_base(c), attention_of(m, layer),
                              c->eps);
        computed(m, "attn.normed", layer, a->normed, c->A);
    }
    if (c->positions == POSITIONS_ROTARY) {
        /* Pairs of numbers of queries and keys turn by angles that grow with the position. */
        op->rotary_forward(attended(m, layer), m->positions, rotary_of(m, layer), attention_of(m, layer));
        computed(m, "attn.rotated", layer, attended(m, layer), 2);
    }
    /* att [N,H A] = softmax(scale q k^T) v for each head; lse [N,H]: the log-sum-exp of a query's scores. */
    if (m->past) past_attention(m, layer);
    else op->attention_forward(a->att, a->lse, attended(m, layer), attention_of(m, layer));
    /* A stream's learned keys and values are merged in, by their log-sum-exp. */
    if (STREAMS(c) > 1) prefix_forward(m, layer);
    /* Values are v < A wide: only these columns of a head go to the output matrix. */
    if (LATENT(c)) op->columns_move(a->narrow, a->att, latent_moves_of(c, c->H).result, false);
    computed(m, "attn.heads", layer, result_of_heads(m, layer), c->A + c->streams.prefix + m->S);
    /* branch [N,D] = att W^T + b, the residual that the caller adds to the stream. */
    op->linear_forward(m->branch, result_of_heads(m, layer), W(PROJ_W), W(PROJ_B));
    computed(m, "attn.out", layer, m->branch, values_width(c));
}

static void feed_forward(struct transformer *m, int layer)
{
    const struct ops *op = m->ops;
    const struct model_config *c = &m->config;
    const struct feed f = feed_of(m, layer);

    /* up [N,F], or gate and gated half [N,2F]. */
    op->linear_forward(f.up, feed_input(m, layer), W(f.up_w), W(UP_B));
    computed(m, f.up_name, layer, f.up, c->D);
    /* act [N,F] = gelu(up), gelu(gate) up or silu(gate) up. */
    if (c->mlp == MLP_GELU) op->gelu_forward(f.act, f.up);
    else if (c->mlp == MLP_GEGLU) op->geglu_forward(f.act, f.up);
    else op->swiglu_forward(f.act, f.up);
    computed(m, f.act_name, layer, f.act, 1);
    /* branch [N,D] = act W^T + b. */
    op->linear_forward(m->branch, f.act, W(f.down_w), W(DOWN_B));
    computed(m, f.out_name, layer, m->branch, tensor_cols(f.act));
}

/* A parallel block: out = in + (attention + feed-forward), both from one norm. */
static void parallel_forward(struct transformer *m, int layer, struct tensor out)
{
    const struct ops *op = m->ops;
    struct block_activations *a = &m->block[layer];

    /* Both branches read ln1; mid [N,D] keeps attention's until the feed-forward's is there. */
    attention_forward(m, layer);
    op->dropout(a->mid, m->branch, residual_dropout(m, layer, "attention"));
    feed_forward(m, layer);
    op->dropout(m->branch, m->branch, residual_dropout(m, layer, "mlp"));
    op->add(a->mid, a->mid, m->branch);
    /* out = in + (attention + feed-forward): the sum of both branches is rounded first. */
    op->add(out, a->in, a->mid);
    computed(m, "out", layer, out, 1);
}

/* A block up to its second norm. */
static void upper_forward(struct transformer *m, int layer)
{
    const struct ops *op = m->ops;
    struct block_activations *a = &m->block[layer];

    attention_forward(m, layer);
    /* mid [N,D] = in + dropout(attention(norm(in))). */
    op->dropout(m->branch, m->branch, residual_dropout(m, layer, "attention"));
    op->add(a->mid, a->in, m->branch);
    computed(m, "mid", layer, a->mid, 1);
    second_norm(m, layer, a->mid);
}

/* Norm what attention, or the feed-forward, gave: m->branch. */
static void norm_after(struct transformer *m, int layer, bool feed)
{
    const struct after n = after_of(m, layer, feed);
    /* A dropout without a probability is a copy: backward needs the norm's input, and branch is overwritten. */
    m->ops->dropout(n.in, m->branch, (struct dropout){ 0 });
    norm_forward(m, n.out, tensor_none, n.rstd, n.in, n.w, -1);
    computed(m, n.name, layer, n.out, m->config.D);
    m->ops->dropout(m->branch, n.out, residual_dropout(m, layer, feed ? "mlp" : "attention"));
}

/* The results of attention and feed-forward are normed before they are added; NORMS_AROUND also norms their inputs. */
static void forward_with_norms_after(struct transformer *m, int layer, struct tensor out)
{
    const struct ops *op = m->ops;
    struct block_activations *a = &m->block[layer];

    /* mid = in + norm(attention(..)); out = mid + norm(feed-forward(..)). */
    attention_forward(m, layer);
    norm_after(m, layer, false);
    op->add(a->mid, a->in, m->branch);
    computed(m, "mid", layer, a->mid, 1);

    if (m->config.norms_at == NORMS_AROUND) second_norm(m, layer, a->mid);
    feed_forward(m, layer);
    norm_after(m, layer, true);
    op->add(out, a->mid, m->branch);
    computed(m, "out", layer, out, 1);
}

/* Two dense blocks; the mixture reads the first one's second norm, and is added last. */
static void shortcut_forward(struct transformer *m, int layer, struct tensor out)
{
    const struct ops *op = m->ops;
    const int second = (int)second_block(&m->config, layer);
    struct block_activations *a = &m->block[layer], *b = &m->block[second];

    /* The first block: mid, ln2 of it, and the mixture's result, which waits in `shortcut`. */
    upper_forward(m, layer);
    mixture_forward(m, layer);
    op->dropout(a->shortcut, m->branch, residual_dropout(m, layer, "mlp"));
    feed_forward(m, layer);
    op->dropout(m->branch, m->branch, residual_dropout(m, layer, "dense"));
    op->add(b->in, a->mid, m->branch);
    computed(m, "half", layer, b->in, 1);

    /* The second block adds attention and a dense feed-forward, then the mixture's result. */
    upper_forward(m, second);
    feed_forward(m, second);
    op->dropout(m->branch, m->branch, residual_dropout(m, second, "dense"));
    op->add(out, b->mid, m->branch);
    op->add(out, out, a->shortcut);
    computed(m, "out", layer, out, 1);
}

static void block_forward(struct transformer *m, int layer, struct tensor out)
{
    const struct ops *op = m->ops;
    struct block_activations *a = &m->block[layer];

    /* out [N,D] = mid + dropout(feed-forward(norm(mid))), mid = in + dropout(attention(norm(in))). */
    upper_forward(m, layer);
    if (is_mixture(m, layer)) mixture_forward(m, layer);
    else feed_forward(m, layer);
    op->dropout(m->branch, m->branch, residual_dropout(m, layer, "mlp"));
    op->add(out, a->mid, m->branch);
    computed(m, "out", layer, out, 1);
}

static enum error_code take_batch(struct transformer *m, const int32_t *ids, const int32_t *labels, struct error *err)
{
    int32_t *const id = m->ids.data, *const position = m->positions.data, *const label = m->labels.data;
    const int64_t before = m->past ? m->past->count : 0;
    m->counted = 0;
    for (int64_t n = 0; n < m->B * m->S; n++) {
        if (ids[n] < 0 || ids[n] >= m->config.V ||
            (labels[n] != IGNORE_LABEL && (labels[n] < 0 || labels[n] >= m->config.V)))
            return fail(err, ERR_USAGE, "token %lld of the batch is %d, its label %d; the vocabulary is 0 to %lld",
                        (long long)n, (int)ids[n], (int)labels[n], (long long)m->config.V - 1);
        id[n] = ids[n];
        /* A position counts from the beginning of its sample, or of the tokens in the cache of past keys. */
        position[n] = m->packed ? sample_position(m->packed[n]) : (int32_t)(before + n % m->S);
        label[n] = labels[n];
        m->counted += labels[n] != IGNORE_LABEL;
    }
    /* Parallel streams read the same tokens: rows N .. P N - 1 repeat the first N. */
    for (int64_t N = m->B * m->S, n = N; n < stream_rows(m); n++) id[n] = id[n - N], position[n] = position[n - N];
    return m->packed ? sample_mask(m->mask.data, m->packed, m->B, m->S, err) : OK;
}

static void copy_row(struct tensor to, int64_t at, struct tensor from, int64_t row)
{
    const size_t bytes = (size_t)tensor_cols(to) * dtype_size(to.dtype);
    memcpy((char *)to.data + (size_t)at * bytes, (const char *)from.data + (size_t)row * bytes, bytes);
}

static void embed(struct transformer *m)
{
    const struct model_config *c = &m->config;
    const struct tensor x = m->block[0].in;
    /* x [N,D] = table[ids]; a patch's row is then its encoder's output. */
    m->ops->embedding_forward(x, m->ids, m->w[PARAM_WTE], 0, false);
    for (int64_t n = 0; m->patch && n < m->B * m->S; n++)
        if (m->patch[n] >= 0) copy_row(x, n, m->patches, m->patch[n]);
    /* x += table of positions[position]. */
    if (c->positions == POSITIONS_LEARNED)
        m->ops->embedding_forward(x, m->positions, m->w[param_positions(c)], 0, true);
    if (c->scaled_embedding) m->ops->scale(x, embedding_factor(c, x.dtype));
    m->ops->dropout(x, x, dropout_at(c->dropout_embedding, m->seed, -1, "embedding", m->first * m->S, 0, c->D));
    computed(m, "embedding", -1, x, 1);
}

enum error_code transformer_forward(struct transformer *m, const int32_t *ids, const int32_t *labels, int64_t B,
                                    int64_t S, double *loss, struct error *err)
{
    const struct ops *op = m->ops;
    const struct model_config *c = &m->config;
    const int L = (int)c->L;
    if (B < 1 || S < 1 || S > c->S)
        return fail(err, ERR_USAGE, "%lld sequences of %lld tokens; model %s takes 1 to %lld tokens", (long long)B,
                    (long long)S, c->name, (long long)c->S);
    if (STREAMS(c) > 1 && (m->packed || m->passes_by))
        return fail(err, ERR_USAGE, "parallel streams run neither packed samples nor layers that sequences skip");
    enum error_code e = transformer_make_buffers(m, B, S, err);
    if (!e) e = take_batch(m, ids, labels, err);
    if (!e) e = router_losses_begin(m, err);
    if (e) return e;

    /* The residual stream [N,D] passes through all blocks; block l writes the input of block l + 1. */
    embed(m);
    for (int l = 0; l < L; l++) {
        const struct tensor out = l + 1 < L ? m->block[l + 1].in : m->last;
        if (c->parallel) parallel_forward(m, l, out);
        else if (c->shortcut) shortcut_forward(m, l, out);
        else if (c->norms_at != NORMS_BEFORE) forward_with_norms_after(m, l, out);
        else block_forward(m, l, out);
        partial_forward(m, l, out);
    }

    /* lnf [N,D] = norm(last), logits [N,V] = lnf W^T. */
    norm_forward(m, m->lnf, m->lnf_mean, m->lnf_rstd, m->last, param_final_norm(c), param_final_bias(c));
    computed(m, "ln_f", L, m->lnf, c->D);
    if (STREAMS(c) > 1) streams_mean_forward(m);
    op->linear_forward(m->logits, head_input(m), m->w[param_head(c)], pick(m->w, param_head_bias(c)));
    computed(m, "logits", L, m->logits, c->D);
    if (c->logit_cap > 0) {
        op->soft_cap_forward(m->capped, m->logits, c->logit_cap);
        computed(m, "capped", L, m->capped, 1);
    }
    /* Per row: top = max of logits, total = sum of exp(logit - top), hit = the label's logit. */
    op->cross_entropy_max(m->top, loss_input(m));
    op->cross_entropy_sums(m->total, m->hit, loss_input(m), m->top, m->labels, 0);
    /* loss = mean over counted labels of log(total) + top - hit; a batch without labels has 0. */
    op->cross_entropy_loss(loss, m->total, m->top, m->hit, m->labels, IGNORE_LABEL);
    *loss /= (double)(m->counted ? m->counted : 1);
    *loss += router_losses_end(m);
    return OK;
}
