/* flops.c -- floating-point operations of a model's matrices and attention, in a forward pass and in a step. */
#include "ref/model/config.h"
#include "ref/ops/ops.h"

/* linear: of the forward pass; a step has as many again for the inputs and for the weights. */
struct flops { double linear, attention_forward, attention_backward, attention_whole; };

/* Attention's operations in all layers of one stream. */
static double attention_flops(const struct model_config *c, int64_t N, int64_t S,
                              struct op_cost (*cost)(int64_t, struct attention, enum dtype))
{
    struct attention a = { .S = S, .H = c->H, .K = c->K, .A = c->A };
    const double windowed = (double)model_windowed_layers(c), full = ((double)c->L - windowed) * cost(N, a, F32).flops;
    /* Layers with a window compute fewer pairs. */
    a.window = c->windows.size;
    return full + windowed * cost(N, a, F32).flops;
}

/* Two matrices, of which the first has `up` times as many rows. */
static double feed_flops(const struct model_config *c, int64_t rows, int64_t F, int64_t up)
{
    return linear_cost(rows, c->D, up * F, F32).flops + linear_cost(rows, F, c->D, F32).flops;
}

/* A router, its experts, if tokens are even on its columns, and those that all tokens go through. */
static double mixture_flops(const struct model_config *c, int64_t N)
{
    const struct mixture_config *m = &c->mixture;
    return feed_flops(c, N * m->k * m->E / mixture_columns(m), c->F, 2) + feed_flops(c, N, m->shared, 2) +
           linear_cost(N, c->D, mixture_columns(m), F32).flops +
           (m->shared > 0 && m->shared_gate ? linear_cost(N, c->D, 1, F32).flops : 0);
}

/* Operations of the feed-forwards, or mixtures, of all layers. */
static double feeds_flops(const struct model_config *c, int64_t N)
{
    const double mixtures = (double)mixture_layers(c), others = (double)c->L - mixtures;
    if (c->mlp != MLP_MIXTURE) return others * feed_flops(c, N, c->F, up_width(c) / c->F);
    return mixtures * (mixture_flops(c, N) + (c->shortcut ? 2 * feed_flops(c, N, c->F, 2) : 0)) +
           others * feed_flops(c, N, c->dense.F, 2);
}

/* The matrices from the stream to queries, keys and values. */
static double into_heads_flops(const struct model_config *c, int64_t N)
{
    const struct latent_config *l = &c->latent;
    if (!LATENT(c)) return linear_cost(N, c->D, qkv_width(c), F32).flops;
    return (l->q ? linear_cost(N, c->D, l->q, F32).flops : 0) +
           linear_cost(N, l->q ? l->q : c->D, heads_width(c), F32).flops +
           linear_cost(N, c->D, kv_latent_width(c), F32).flops +
           linear_cost(N, l->kv, c->H * expanded_width(c), F32).flops;
}

static struct flops flops_of(const struct model_config *c, int64_t B, int64_t S)
{
    const int64_t N = B * S;
    const struct attention a = { .S = S, .H = c->H, .K = c->K, .A = c->A };
    const double blocks = c->shortcut ? 2 : 1;                  /* of a layer */
    const double P = (double)STREAMS(c), L = (double)c->L * P, pairs = (double)(N * c->streams.prefix);
    const double heads = blocks * (into_heads_flops(c, N) + linear_cost(N, values_width(c), c->D, F32).flops);
    double ends = linear_cost(N, c->D, c->V, F32).flops;
    double whole = L * blocks * attention_part_forward_cost((double)N * (double)S, N, N, a, F32).flops,
           forward = P * blocks * attention_flops(c, N, S, attention_forward_cost),
           backward = P * blocks * attention_flops(c, N, S, attention_backward_cost);
    if (P > 1) {
        /* Parallel streams add two small layers that weigh them, and attention to the prefixes. */
        const int64_t D = c->D, keys = B * c->streams.prefix;
        ends += linear_cost(N, D * STREAMS(c), D, F32).flops + linear_cost(N, D, STREAMS(c), F32).flops;
        forward += L * attention_part_forward_cost(pairs, N, keys, a, F32).flops;
        whole += L * attention_part_forward_cost(pairs, N, keys, a, F32).flops;
        backward += L * attention_part_backward_cost(pairs, N, keys, a, F32).flops;
    }
    return (struct flops){ .linear = L * heads + P * feeds_flops(c, N) + ends, .attention_forward = forward,
                           .attention_backward = backward, .attention_whole = whole };
}

double model_step_flops(const struct model_config *c, int64_t B, int64_t S)
{
    const struct flops f = flops_of(c, B, S);
    return 3 * f.linear + f.attention_forward + f.attention_backward;
}

double model_forward_flops(const struct model_config *c, int64_t B, int64_t S)
{
    const struct flops f = flops_of(c, B, S);
    return f.linear + f.attention_forward;
}

double model_forward_flops_whole(const struct model_config *c, int64_t B, int64_t S)
{
    const struct flops f = flops_of(c, B, S);
    return f.linear + f.attention_whole;
}
