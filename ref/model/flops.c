/* flops.c -- floating-point operations of a model's matrices and attention, in a forward pass and in a step.
 * bench/step_measure.c, model/charged.c and train/dry_run/dry_run.c call model_step_flops.  model/charged.c,
 * plan/context.c and run/report/report_speed.c call model_forward_flops.
 * run/report/report_speed.c calls model_forward_flops_whole.  No function returns an error code. */
#include "ref/model/attention_mask.h"
#include "ref/model/kinds.h"
#include "ref/ops/ops.h"

/* linear: of the forward pass; a step has as many again for the inputs and for the weights. */
struct flops { double linear, attention_forward, attention_backward, attention_whole; };

/* seen_part returns how much the config's mask leaves of the pairs that a causal sequence has, at most 1. */
static double seen_part(const struct model_config *config, int64_t S)
{
    const struct attention_mask causal = { 0 };
    if (attention_mask_is_causal(&config->mask) || S < 1) return 1;
    return attention_mask_pairs(&config->mask, S) / attention_mask_pairs(&causal, S);
}

/* Attention's operations in all layers of one stream.  No model has both windows and a mask (plan/compose.c). */
static double attention_flops(const struct model_config *config, int64_t N, int64_t S,
                              struct op_cost (*cost)(int64_t, struct attention, enum dtype))
{
    struct attention a = { .S = S, .H = config->H, .K = config->K, .A = config->A };
    const double windowed = (double)model_windowed_layers(config),
        full = ((double)config->L - windowed) * cost(N, a, F32).flops;
    /* Layers with a window compute fewer pairs. */
    a.window = config->windows.size;
    return seen_part(config, S) * (full + windowed * cost(N, a, F32).flops);
}

/* Two matrices, of which the first has `up` times as many rows. */
static double feed_flops(const struct model_config *config, int64_t rows, int64_t F, int64_t up)
{
    return linear_cost(rows, config->D, up * F, F32).flops + linear_cost(rows, F, config->D, F32).flops;
}

/* A router, its experts, if tokens are even on its columns, and those that all tokens go through. */
static double mixture_flops(const struct model_config *config, int64_t N)
{
    const struct mixture_config *m = &config->mixture;
    return feed_flops(config, N * m->k * m->E / mixture_columns(m), config->F, 2) + feed_flops(config, N,
                                                                                               m->shared, 2) +
           linear_cost(N, config->D, mixture_columns(m), F32).flops +
           (m->shared > 0 && m->shared_gate ? linear_cost(N, config->D, 1, F32).flops : 0);
}

/* Operations of the feed-forwards, or mixtures, of all layers. */
static double feeds_flops(const struct model_config *config, int64_t N)
{
    const double mixtures = (double)mixture_layers(config), others = (double)config->L - mixtures;
    if (config->mlp != MLP_MIXTURE) return others * feed_flops(config, N, config->F, up_width(config) / config->F);
    return mixtures * (mixture_flops(config, N) + (config->shortcut ? 2 * feed_flops(config, N, config->F, 2) : 0)) +
           others * feed_flops(config, N, config->dense.F, 2);
}

/* The matrices from the stream to queries, keys and values. */
static double into_heads_flops(const struct model_config *config, int64_t N)
{
    const struct latent_config *l = &config->latent;
    if (!LATENT(config)) return linear_cost(N, config->D, qkv_width(config), F32).flops;
    return (l->q ? linear_cost(N, config->D, l->q, F32).flops : 0) +
           linear_cost(N, l->q ? l->q : config->D, heads_width(config), F32).flops +
           linear_cost(N, config->D, kv_latent_width(config), F32).flops +
           linear_cost(N, l->kv, config->H * expanded_width(config), F32).flops;
}

static struct flops flops_of(const struct model_config *config, int64_t B, int64_t S)
{
    const int64_t N = B * S;
    const struct attention a = { .S = S, .H = config->H, .K = config->K, .A = config->A };
    const double blocks = config->shortcut ? 2 : 1;                  /* of a layer */
    const double P = (double)STREAMS(config), L = (double)config->L * P, pairs = (double)(N * config->streams.prefix);
    const double heads = blocks * (into_heads_flops(config, N) + linear_cost(N, values_width(config),
                                                                             config->D, F32).flops);
    double ends = linear_cost(N, config->D, config->V, F32).flops;
    double whole = L * blocks * attention_part_forward_cost((double)N * (double)S, N, N, a, F32).flops,
           forward = P * blocks * attention_flops(config, N, S, attention_forward_cost),
           backward = P * blocks * attention_flops(config, N, S, attention_backward_cost);
    if (P > 1) {
        /* Parallel streams add two small layers that weigh them, and attention to the prefixes. */
        const int64_t D = config->D, keys = B * config->streams.prefix;
        ends += linear_cost(N, D * STREAMS(config), D, F32).flops + linear_cost(N, D, STREAMS(config), F32).flops;
        forward += L * attention_part_forward_cost(pairs, N, keys, a, F32).flops;
        whole += L * attention_part_forward_cost(pairs, N, keys, a, F32).flops;
        backward += L * attention_part_backward_cost(pairs, N, keys, a, F32).flops;
    }
    return (struct flops){ .linear = L * heads + P * feeds_flops(config, N) + ends, .attention_forward = forward,
                           .attention_backward = backward, .attention_whole = whole };
}

double model_step_flops(const struct model_config *config, int64_t B, int64_t S)
{
    const struct flops f = flops_of(config, B, S);
    return 3 * f.linear + f.attention_forward + f.attention_backward;
}

double model_forward_flops(const struct model_config *config, int64_t B, int64_t S)
{
    const struct flops f = flops_of(config, B, S);
    return f.linear + f.attention_forward;
}

double model_forward_flops_whole(const struct model_config *config, int64_t B, int64_t S)
{
    const struct flops f = flops_of(config, B, S);
    return f.linear + f.attention_whole;
}
