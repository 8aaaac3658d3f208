/* operands.c -- what operations get that follows from a config alone. */
#include "ref/model/operands.h"
#include "ref/model/config.h"
#include "ref/numeric/philox.h"
#include <math.h>
#include <stdio.h>

double embedding_factor(const struct model_config *config, enum dtype dtype)
{
    double rounded = 1;
    const struct tensor one = tensor_1d(&rounded, dtype, 1);
    if (!config->scaled_embedding) return 1;
    /* The factor is sqrt(D) rounded to the format, as transformers multiplies with a tensor of that format. */
    tensor_set(one, 0, sqrt((double)config->D));
    return tensor_get(one, 0);
}

double attention_scale(const struct model_config *config)
{
    const struct rotary *r = &config->rotary;
    /* YaRN of latent attention enlarges scores by the square of mscale. */
    const double more = LATENT(config) && r->scaling == SCALING_YARN && r->factor > 1 && r->all_dim > 0
                            ? 0.1 * r->all_dim * log(r->factor) + 1 : 1;
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
