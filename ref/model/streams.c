/* streams.c -- parallel streams: attention to their prefixes, and the weighted mean of their results.
 *
 * Source  M. Chen et al., "Parallel scaling law for language models", arXiv:2505.10475; what is not in the paper is as
 *         in its released code, QwenLM/ParScale, modeling_qwen2_parscale.py: prefix keys are not rotated, every token
 *         sees its stream's whole prefix, positions of tokens start at 0, the mean is taken after the final norm.  That
 *         code leaves a prefix's initial values open (torch.empty); here they are drawn as a matrix's are.
 *
 * The prefix is a part of the keys like any other: attention to it alone is merged with that to the tokens.
 */
#include "ref/model/transformer_parts.h"
#include <math.h>

/* ---- prefixes ---------------------------------------------------------------------------------------------------- */

/* Rows [first, first + n) of a matrix. */
static struct tensor rows_of(struct tensor t, int64_t first, int64_t n)
{
    t.data = (char *)t.data + (size_t)(first * tensor_cols(t)) * dtype_size(t.dtype);
    return first_rows(t, n);
}

/* One number for each query of each head, as operations on parts read it: [PBH,S]. */
static struct tensor by_head(const struct transformer *m, struct tensor t)
{
    return tensor_2d(t.data, t.dtype, tensor_count(t) / m->S, m->S);
}

/* Positions of the prefix and of the tokens that follow it. */
struct places { struct tensor prefix, tokens; struct attention a; };

static struct places places(const struct transformer *m, int layer)
{
    const int64_t T = m->config.streams.prefix;
    struct places p = { first_rows(m->prefix_at, T), m->prefix_at, attention_of(m, layer) };
    p.tokens.data = (int32_t *)m->prefix_at.data + T;
    p.tokens = first_rows(p.tokens, m->S);
    /* Queries of the tokens see prefix and tokens: positions T .. T + S - 1 behind 0 .. T - 1. */
    p.a.S += T;
    return p;
}

void prefix_forward(struct transformer *m, int layer)
{
    struct block_activations *a = &m->block[layer];
    const int64_t S = m->S, T = m->config.streams.prefix;
    const struct places p = places(m, layer);
    /* Sequence i is of stream i / B; its S queries attend to that stream's T prefix keys. */
    for (int64_t i = 0; i < m->config.streams.P * m->B; i++)
        m->ops->attention_part_forward(rows_of(m->prefix_out, i * S, S), rows_of(m->prefix_lse, i * S, S),
                                       rows_of(a->qkv, i * S, S), rows_of(W(PREFIX), i / m->B * T, T), p.tokens,
                                       p.prefix, p.a);
    /* Two partial results of a softmax become one: each weighs exp of its log-sum-exp. */
    m->ops->attention_merge(a->att, by_head(m, a->lse), m->prefix_out, by_head(m, m->prefix_lse),
                            attention_of(m, layer));
}

void prefix_backward(struct transformer *m, int layer)
{
    struct block_activations *a = &m->block[layer];
    const int64_t S = m->S, T = m->config.streams.prefix;
    const struct places p = places(m, layer);
    const struct tensor delta = m->prefix_lse;
    /* delta [rows,H] = dO . O, which backward of attention subtracts; prefix_lse is free to hold it. */
    m->ops->attention_delta(by_head(m, delta), m->d_attention, a->att, attention_of(m, layer));
    /* Adds to d_qkv the queries' gradients, and to G(PREFIX) those of the stream's keys and values. */
    for (int64_t i = 0; i < m->config.streams.P * m->B; i++)
        m->ops->attention_part_backward(rows_of(m->d_qkv, i * S, S), rows_of(G(PREFIX), i / m->B * T, T),
                                        rows_of(m->d_attention, i * S, S), rows_of(delta, i * S, S),
                                        rows_of(a->lse, i * S, S), rows_of(a->qkv, i * S, S),
                                        rows_of(W(PREFIX), i / m->B * T, T), p.tokens, p.prefix, p.a);
}

/* ---- the mean ---------------------------------------------------------------------------------------------------- */

enum { W1, B1, W2, B2 };

static struct tensor of_mean(const struct transformer *m, const struct tensor *list, int i)
{
    return list[param_of_mean(&m->config, i)];
}

void streams_mean_forward(struct transformer *m)
{
    const struct ops *op = m->ops;
    const struct model_config *c = &m->config;
    const int L = (int)c->L;
    /* beside [N,D P]: element d of stream i is number d P + i of a token's row. */
    op->streams_beside(m->beside, m->lnf);
    /* logits [N,P] = W2 silu(W1 beside + b1) + b2. */
    op->linear_forward(m->mean_up, m->beside, of_mean(m, m->w, W1), of_mean(m, m->w, B1));
    computed(m, "streams.up", L, m->mean_up, c->D * c->streams.P);
    op->silu_forward(m->mean_act, m->mean_up);
    computed(m, "streams.act", L, m->mean_act, 1);
    op->linear_forward(m->stream_logits, m->mean_act, of_mean(m, m->w, W2), of_mean(m, m->w, B2));
    computed(m, "streams.logits", L, m->stream_logits, c->D);
    /* mean [N,D] = sum over streams of p_i stream_i, p = (1 - smoothing) softmax(logits) + smoothing / P. */
    op->streams_mix_forward(m->mean, m->stream_weights, m->stream_logits, m->beside, c->streams.smoothing);
    computed(m, "streams.mean", L, m->mean, c->streams.P);
}

/* The magnitude of what a stream's product with dY adds up, of token n. */
static double magnitude_of(const struct transformer *m, struct tensor dY, int64_t n, int64_t stream)
{
    const int64_t D = tensor_cols(dY), P = m->config.streams.P;
    double sum = 0;
    for (int64_t d = 0; d < D; d++)
        sum += fabs(tensor_get(dY, n * D + d) * tensor_get(m->beside, (n * D + d) * P + stream));
    return sum;
}

/* Sums over gradients of logits: of their squares, and of squares of the magnitudes whose difference they are. */
struct squares { double gradients, magnitudes; };

static void add_token(const struct transformer *m, struct tensor dY, int64_t n, struct squares *sum)
{
    const int64_t P = m->config.streams.P;
    double mean = 0;
    for (int64_t i = 0; i < P; i++) mean += tensor_get(m->stream_weights, n * P + i) * magnitude_of(m, dY, n, i);
    for (int64_t i = 0; i < P; i++) {
        const double g = tensor_get(m->stream_logits, n * P + i), p = tensor_get(m->stream_weights, n * P + i);
        const double magnitude = (1 - m->config.streams.smoothing) * p * (magnitude_of(m, dY, n, i) + mean);
        sum->gradients += g * g, sum->magnitudes += magnitude * magnitude;
    }
}

/* An observer takes the rounding error of an element for that of `terms` products of the element's size.  A logit's
 * gradient is a stream's product with dY less the mean of all, which is nearly the same where streams are nearly equal.
 * So products count as often as their magnitudes exceed what is left of them, squared. */
static int64_t terms_of_logits(const struct transformer *m, struct tensor dY)
{
    const int64_t D = tensor_cols(dY);
    struct squares sum = { 0, 0 };
    for (int64_t n = 0; m->observer.see != NULL && n < tensor_rows(dY); n++) add_token(m, dY, n, &sum);
    const double times = sum.magnitudes / sum.gradients;
    return isfinite(times) && times > 1 && times < 1e12 ? (int64_t)(times * (double)D) : D;
}

/* Forward's tensors make room for their gradients once they have been read. */
void streams_mean_backward(struct transformer *m)
{
    const struct ops *op = m->ops;
    const struct model_config *c = &m->config;
    const int L = (int)c->L;
    const struct tensor dY = first_rows(m->d_branch, m->B * m->S), d_logits = m->stream_logits, d_act = m->mean,
                        mixed = tensor_2d(m->d_step.data, m->beside.dtype, tensor_rows(m->beside),
                                          tensor_cols(m->beside));
    computed_gradient(m, "streams.mean", L, dY, c->V);
    /* mixed [N,D P]: p_i dY for each stream;  d_logits [N,P], over the logits. */
    op->streams_mix_backward_input(mixed, d_logits, dY, m->stream_weights, m->beside, c->streams.smoothing);
    computed_gradient(m, "streams.logits", L, d_logits, terms_of_logits(m, dY));
    op->linear_backward_weight(of_mean(m, m->g, W2), of_mean(m, m->g, B2), d_logits, m->mean_act);
    op->linear_backward_input(d_act, d_logits, of_mean(m, m->w, W2));
    computed_gradient(m, "streams.act", L, d_act, c->streams.P);
    /* d mean_up = d_act silu'(mean_up), in place of mean_up. */
    op->silu_backward_input(m->mean_up, d_act, m->mean_up);
    computed_gradient(m, "streams.up", L, m->mean_up, 1);
    op->linear_backward_weight(of_mean(m, m->g, W1), of_mean(m, m->g, B1), m->mean_up, m->beside);
    /* d beside = mixed + d mean_up W1: streams reach the mean and the weights of the mean. */
    op->linear_backward_input(m->beside, m->mean_up, of_mean(m, m->w, W1));
    op->add(m->beside, mixed, m->beside);
    op->streams_beside_backward_input(m->d_branch, m->beside);
}
