/* streams.c -- parallel streams: attention to their prefixes, and the weighted mean of their results.
 *
 * Source  M. Chen et al., "Parallel scaling law for language models", arXiv:2505.10475; what is not in the paper is as
 *         in its released code, QwenLM/ParScale, modeling_qwen2_parscale.py: prefix keys are not rotated, every token
 *         sees its stream's whole prefix, positions of tokens start at 0, the mean is taken after the final norm.  That
 *         code leaves a prefix's initial values open (torch.empty); here they are drawn as a matrix's are.
 * Called  backward.c and forward.c call these functions.  No function returns an error code.
 *
 * The prefix is a part of the keys like any other: attention to it alone is merged with that to the tokens.
 */
#include "ref/exact/unrounded.h"
#include "ref/model/params.h"
#include "ref/model/transformer_parts.h"
#include "ref/numeric/convert.h"
#include <math.h>

/* ---- prefixes ---------------------------------------------------------------------------------------------------- */

/* Rows [first, first + n) of a matrix. */
static struct tensor streams_rows_of(struct tensor t, int64_t first, int64_t n)
{
    t.data = (char *)t.data + (size_t)(first * tensor_cols(t)) * dtype_size(t.dtype);
    return first_rows(t, n);
}

/* One number for each query of each head, as operations on parts read it: [PBH,S]. */
static struct tensor by_head(const struct transformer *model, struct tensor t)
{
    return tensor_2d(t.data, t.dtype, tensor_count(t) / model->S, model->S);
}

/* Positions of the prefix and of the tokens that follow it. */
struct places { struct tensor prefix, tokens; struct attention a; };

static struct places places(const struct transformer *model, int layer)
{
    const int64_t T = model->config.streams.prefix;
    struct places p = { first_rows(model->prefix_at, T), model->prefix_at, attention_of(model, layer) };
    p.tokens.data = (int32_t *)model->prefix_at.data + T;
    p.tokens = first_rows(p.tokens, model->S);
    /* Queries of the tokens see prefix and tokens: positions T .. T + S - 1 behind 0 .. T - 1. */
    p.a.S += T;
    return p;
}

void prefix_forward(struct transformer *model, int layer)
{
    struct block_activations *a = &model->block[layer];
    const int64_t S = model->S, T = model->config.streams.prefix;
    const struct places p = places(model, layer);
    /* Sequence i is of stream i / B; its S queries attend to that stream's T prefix keys. */
    for (int64_t i = 0; i < model->config.streams.P * model->B; i++)
        model->ops->attention_part_forward(streams_rows_of(model->prefix_out, i * S, S),
                                           streams_rows_of(model->prefix_lse, i * S, S),
                                           streams_rows_of(a->qkv, i * S, S),
                                           streams_rows_of(W(PREFIX), i / model->B * T, T), p.tokens,
                                           p.prefix, p.a);
    /* Two partial results of a softmax become one: each weighs exp of its log-sum-exp. */
    model->ops->attention_merge(a->att, by_head(model, a->lse), model->prefix_out, by_head(model, model->prefix_lse),
                                attention_of(model, layer));
}

void prefix_backward(struct transformer *model, int layer)
{
    struct block_activations *a = &model->block[layer];
    const int64_t S = model->S, T = model->config.streams.prefix;
    const struct places p = places(model, layer);
    const struct tensor delta = model->prefix_lse;
    /* delta [rows,H] = dO . O, which backward of attention subtracts; prefix_lse is free to hold it. */
    model->ops->attention_delta(by_head(model, delta), model->d_attention, a->att, attention_of(model, layer));
    /* With exact sums what d_qkv has so far is a term of the sum, which rounds once more. */
    const bool exact = model->config.exact != SUMS_ROUND;
    const struct tensor d_qkv = exact ? model->prefix_sums : model->d_qkv;
    if (exact) tensor_convert(d_qkv, model->d_qkv);
    /* Adds to d_qkv the queries' gradients, and to G(PREFIX) those of the stream's keys and values. */
    for (int64_t i = 0; i < model->config.streams.P * model->B; i++)
        model->ops->attention_part_backward(streams_rows_of(d_qkv, i * S, S),
                                            streams_rows_of(G(PREFIX), i / model->B * T, T),
                                            streams_rows_of(model->d_attention, i * S, S),
                                            streams_rows_of(delta, i * S, S),
                                            streams_rows_of(a->lse, i * S, S), streams_rows_of(a->qkv, i * S, S),
                                            streams_rows_of(W(PREFIX), i / model->B * T, T), p.tokens, p.prefix, p.a);
    if (!exact) return;
    tensor_convert(model->d_qkv, d_qkv);
    unrounded_note(model->d_qkv, d_qkv);
}

/* ---- the mean ---------------------------------------------------------------------------------------------------- */

enum { W1, B1, W2, B2 };

static struct tensor of_mean(const struct transformer *model, const struct tensor *list, int i)
{
    return list[param_of_mean(&model->config, i)];
}

void streams_mean_forward(struct transformer *model)
{
    const struct ops *op = model->ops;
    const struct model_config *c = &model->config;
    const int L = (int)c->L;
    /* beside [N,D P]: element d of stream i is number d P + i of a token's row. */
    op->streams_beside(model->beside, model->lnf);
    /* logits [N,P] = W2 silu(W1 beside + b1) + b2. */
    op->linear_forward(model->mean_up, model->beside, of_mean(model, model->w, W1), of_mean(model, model->w, B1));
    computed(model, "streams.up", L, model->mean_up, c->D * c->streams.P);
    op->silu_forward(model->mean_act, model->mean_up);
    computed(model, "streams.act", L, model->mean_act, 1);
    op->linear_forward(model->stream_logits, model->mean_act, of_mean(model, model->w, W2),
                       of_mean(model, model->w, B2));
    computed(model, "streams.logits", L, model->stream_logits, c->D);
    /* mean [N,D] = sum over streams of p_i stream_i, p = (1 - smoothing) softmax(logits) + smoothing / P. */
    op->streams_mix_forward(model->mean, model->stream_weights, model->stream_logits, model->beside,
                            c->streams.smoothing);
    computed(model, "streams.mean", L, model->mean, c->streams.P);
}

/* The magnitude of what a stream's product with dY adds up, of token n. */
static double magnitude_of(const struct transformer *model, struct tensor dY, int64_t n, int64_t stream)
{
    const int64_t D = tensor_cols(dY), P = model->config.streams.P;
    double sum = 0;
    for (int64_t d = 0; d < D; d++)
        sum += fabs(tensor_get(dY, n * D + d) * tensor_get(model->beside, (n * D + d) * P + stream));
    return sum;
}

/* Sums over gradients of logits: of their squares, and of squares of the magnitudes whose difference they are. */
struct squares { double gradients, magnitudes; };

static void add_token(const struct transformer *model, struct tensor dY, int64_t n, struct squares *sum)
{
    const int64_t P = model->config.streams.P;
    double mean = 0;
    for (int64_t i = 0; i < P; i++)
        mean += tensor_get(model->stream_weights, n * P + i) * magnitude_of(model, dY, n, i);
    for (int64_t i = 0; i < P; i++) {
        const double g = tensor_get(model->stream_logits, n * P + i), p = tensor_get(model->stream_weights, n * P + i);
        const double magnitude = (1 - model->config.streams.smoothing) * p * (magnitude_of(model, dY, n, i) + mean);
        sum->gradients += g * g, sum->magnitudes += magnitude * magnitude;
    }
}

/* An observer takes the rounding error of an element for that of `terms` products of the element's size.  A logit's
 * gradient is a stream's product with dY less the mean of all, which is nearly the same where streams are nearly equal.
 * So products count as often as their magnitudes exceed what is left of them, squared. */
static int64_t terms_of_logits(const struct transformer *model, struct tensor dY)
{
    const int64_t D = tensor_cols(dY);
    struct squares sum = { 0, 0 };
    for (int64_t n = 0; model->observer.see != NULL && n < tensor_rows(dY); n++) add_token(model, dY, n, &sum);
    const double times = sum.magnitudes / sum.gradients;
    return isfinite(times) && times > 1 && times < 1e12 ? (int64_t)(times * (double)D) : D;
}

/* Forward's tensors make room for their gradients once they have been read. */
void streams_mean_backward(struct transformer *model)
{
    const struct ops *op = model->ops;
    const struct model_config *c = &model->config;
    const int L = (int)c->L;
    const struct tensor dY = first_rows(model->d_branch, model->B * model->S), d_logits = model->stream_logits,
        d_act = model->mean,
                        mixed = tensor_2d(model->d_step.data, model->beside.dtype, tensor_rows(model->beside),
                                          tensor_cols(model->beside));
    computed_gradient(model, "streams.mean", L, dY, c->V);
    /* mixed [N,D P]: p_i dY for each stream;  d_logits [N,P], over the logits. */
    op->streams_mix_backward_input(mixed, d_logits, dY, model->stream_weights, model->beside, c->streams.smoothing);
    computed_gradient(model, "streams.logits", L, d_logits, terms_of_logits(model, dY));
    op->linear_backward_weight(of_mean(model, model->g, W2), of_mean(model, model->g, B2), d_logits, model->mean_act);
    op->linear_backward_input(d_act, d_logits, of_mean(model, model->w, W2));
    computed_gradient(model, "streams.act", L, d_act, c->streams.P);
    /* d mean_up = d_act silu'(mean_up), in place of mean_up. */
    op->silu_backward_input(model->mean_up, d_act, model->mean_up);
    computed_gradient(model, "streams.up", L, model->mean_up, 1);
    op->linear_backward_weight(of_mean(model, model->g, W1), of_mean(model, model->g, B1), model->mean_up,
                               model->beside);
    /* d beside = mixed + d mean_up W1: streams reach the mean and the weights of the mean. */
    op->linear_backward_input(model->beside, model->mean_up, of_mean(model, model->w, W1));
    op->add(model->beside, mixed, model->beside);
    op->streams_beside_backward_input(model->d_branch, model->beside);
}
