/* operands.c -- what operations get that follows from a config alone.  Files of check/, model/, ref/model/, verify/
 * and other rooms call these functions.  No function returns an error code. */
#include "ref/model/operands.h"
#include "ref/exact/scalars.h"
#include "ref/model/config.h"
#include "ref/model/kinds.h"
#include "ref/numeric/philox.h"
#include <math.h>
#include <stdio.h>

/* sqrt(D) rounded to the format, as transformers multiplies with a tensor of that format. */
static double root_of_width(const struct model_config *config, enum dtype dtype)
{
    double rounded = 1;
    const struct tensor one = tensor_1d(&rounded, dtype, 1);
    tensor_set(one, 0, sqrt((double)config->D));
    return tensor_get(one, 0);
}

bool model_has_factor(const struct model_config *config, enum model_factor which)
{
    const struct multipliers *m = &config->multipliers;
    return which == FACTOR_EMBEDDING ? config->scaled_embedding || m->embedding > 0
         : which == FACTOR_RESIDUAL  ? m->residual > 0 : m->logit_divisor > 0;
}

double model_factor(const struct model_config *config, enum model_factor which, enum dtype dtype)
{
    const struct multipliers *m = &config->multipliers;
    if (!model_has_factor(config, which)) return 1;
    if (which == FACTOR_EMBEDDING) return config->scaled_embedding ? root_of_width(config, dtype) : m->embedding;
    return which == FACTOR_RESIDUAL ? m->residual : 1 / m->logit_divisor;
}

double attention_scale(const struct model_config *config)
{
    const struct rotary *r = &config->rotary;
    if (config->multipliers.scores > 0) return config->multipliers.scores;
    /* YaRN of latent attention enlarges scores by the square of mscale. */
    const double more = LATENT(config) && r->scaling == SCALING_YARN && r->factor > 1 && r->all_dim > 0
                            ? 0.1 * r->all_dim * scalar_log(r->factor) + 1 : 1;
    return more * more / sqrt(config->score_width > 0 ? config->score_width : (double)config->A);
}

struct attention attention_of_layer(const struct model_config *config, int64_t layer, int64_t S)
{
    return (struct attention){ .S = S, .H = config->H, .K = config->K, .A = config->A, .scale = attention_scale(config),
                               .cap = config->score_cap,
                               .neighbours = config->rotary.neighbours, .normed_together = config->normed_together,
                               .window = model_window(config, layer), .more = config->sinks
                                   || config->streams.prefix > 0 };
}

uint64_t dropout_seed(uint64_t seed, int64_t step) { return seed + 0x9E3779B97F4A7C15u * ((uint64_t)step + 1); }

struct dropout dropout_at(double p, uint64_t seed, int layer, const char *where, int64_t row0, int64_t col0,
                          int64_t cols)
{
    char name[64];
    snprintf(name, sizeof name, "dropout.%d.%s", layer, where);
    return (struct dropout){
        .p = p, .seed = seed, .stream = random_stream(name), .row0 = row0, .col0 = col0, .cols = cols
    };
}
