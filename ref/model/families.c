/* families.c -- finds the family of a shape. */
#include "ref/model/config.h"
#include <stdio.h>
#include <string.h>

/* Biases that a model has all or none of. */
enum {
    OF_ATTENTION = BIASES_ATTENTION, OF_LATENTS = BIASES_LATENT_ATTENTION,
    OF_FEED = HAS_BIAS(ROLE_UP) | HAS_BIAS(ROLE_DOWN)
};

/* The parts of a family. */
static const struct family {
    const char *name;
    enum norm_kind norm;
    enum position_kind positions;
    enum mlp_kind mlp;
    unsigned biases;
    unsigned may;               /* further biases, which models of the family have or not */
    bool grouped;               /* K may be below H */
    bool parallel, neighbours, shortcut;
    bool any_pairs;             /* rotary pairs are neighbours or not */
    bool streams;               /* several */
    bool head_norms, normed_together;
    enum norm_places norms_at;
    bool latent;                /* attention */
    enum { NO_LAYERS, ALL_LAYERS, ANY_LAYERS } windows;         /* which may have one */
    enum model_family alike;
    bool from_one;              /* norms; and embeddings are scaled */
    bool sinks;                 /* and its experts are clamped */
    bool scores, capped;        /* its files have a width of scores and a cap of logits; a cap of scores */
    bool local;                 /* layers with a window have a rotary theta of their own */
} families[FAMILY_COUNT] = {
    [FAMILY_GPT2]    = { "gpt2", NORM_LAYER, POSITIONS_LEARNED, MLP_GELU, BIASES_GPT2, .grouped = false },
    [FAMILY_LLAMA]   = { "llama", NORM_RMS, POSITIONS_ROTARY, MLP_SWIGLU, BIASES_NONE, OF_ATTENTION | OF_FEED,
                         .grouped = true },
    [FAMILY_MIXTRAL] = { "mixtral", NORM_RMS, POSITIONS_ROTARY, MLP_MIXTURE, BIASES_NONE, .grouped = true,
                         .windows = ALL_LAYERS },
    [FAMILY_GPTJ]    = { "gptj", NORM_LAYER, POSITIONS_ROTARY, MLP_GELU, BIASES_GPTJ, .parallel = true,
                         .neighbours = true },
    [FAMILY_QWEN2]   = { "qwen2", NORM_RMS, POSITIONS_ROTARY, MLP_SWIGLU, BIASES_QWEN2, .grouped = true,
                         .windows = ANY_LAYERS },
    [FAMILY_PARSCALE] = { "qwen2_parscale", NORM_RMS, POSITIONS_ROTARY, MLP_SWIGLU, BIASES_QWEN2, .grouped = true,
                          .streams = true },
    [FAMILY_SCMOE]   = { "scmoe", NORM_RMS, POSITIONS_ROTARY, MLP_MIXTURE, BIASES_NONE, .grouped = true,
                         .shortcut = true },
    [FAMILY_QWEN3]   = { "qwen3", NORM_RMS, POSITIONS_ROTARY, MLP_SWIGLU, BIASES_NONE, OF_ATTENTION, .grouped = true,
                         .head_norms = true, .windows = ANY_LAYERS },
    [FAMILY_MISTRAL] = { "mistral", NORM_RMS, POSITIONS_ROTARY, MLP_SWIGLU, BIASES_NONE, .grouped = true,
                         .windows = ALL_LAYERS, .alike = FAMILY_MISTRAL },
    [FAMILY_QWEN3_MOE] = { "qwen3_moe", NORM_RMS, POSITIONS_ROTARY, MLP_MIXTURE, BIASES_NONE, OF_ATTENTION,
                           .grouped = true, .head_norms = true },
    [FAMILY_OLMO2]   = { "olmo2", NORM_RMS, POSITIONS_ROTARY, MLP_SWIGLU, BIASES_NONE, OF_ATTENTION, .grouped = true,
                         .head_norms = true, .normed_together = true, .norms_at = NORMS_AFTER },
    [FAMILY_PHI3]    = { "phi3", NORM_RMS, POSITIONS_ROTARY, MLP_SWIGLU, BIASES_NONE, .grouped = true,
                         .windows = ALL_LAYERS, .alike = FAMILY_PHI3 },
    [FAMILY_GPT_OSS] = { "gpt_oss", NORM_RMS, POSITIONS_ROTARY, MLP_MIXTURE, BIASES_GPT_OSS, OF_ATTENTION,
                         .grouped = true, .windows = ANY_LAYERS, .sinks = true },
    [FAMILY_GEMMA]   = { "gemma", NORM_RMS, POSITIONS_ROTARY, MLP_GEGLU, BIASES_NONE, OF_ATTENTION, .grouped = true,
                         .from_one = true },
    [FAMILY_GEMMA2]  = { "gemma2", NORM_RMS, POSITIONS_ROTARY, MLP_GEGLU, BIASES_NONE, OF_ATTENTION, .grouped = true,
                         .norms_at = NORMS_AROUND, .windows = ANY_LAYERS, .from_one = true, .scores = true,
                         .capped = true },
    [FAMILY_GEMMA3]  = { "gemma3_text", NORM_RMS, POSITIONS_ROTARY, MLP_GEGLU, BIASES_NONE, OF_ATTENTION,
                         .grouped = true, .head_norms = true, .norms_at = NORMS_AROUND, .windows = ANY_LAYERS,
                         .from_one = true, .scores = true, .local = true },
    [FAMILY_DEEPSEEK_V2] = { "deepseek_v2", NORM_RMS, POSITIONS_ROTARY, MLP_MIXTURE, BIASES_NONE, OF_LATENTS,
                             .neighbours = true, .latent = true },
    [FAMILY_DEEPSEEK_V3] = { "deepseek_v3", NORM_RMS, POSITIONS_ROTARY, MLP_MIXTURE, BIASES_NONE, OF_LATENTS,
                             .any_pairs = true, .latent = true, .alike = FAMILY_DEEPSEEK_V3 },
};

static bool has_biases_of(const struct model_config *config, const struct family *family)
{
    const unsigned more = config->biases & ~family->biases, feed = more & OF_FEED, attention = more & ~OF_FEED;
    return (config->biases & family->biases) == family->biases && (more & ~family->may) == 0
           && (feed == 0 || feed == OF_FEED) && (attention == 0 || attention == (family->may & ~OF_FEED));
}

/* n: of its layers have windows. */
static bool has_windows_of(const struct model_config *config, const struct family *family, int64_t n)
{
    return n == 0 || family->windows == ANY_LAYERS || (family->windows == ALL_LAYERS && n == config->L);
}

static bool has_own_scores(const struct model_config *config)
{
    return config->score_width > 0 || config->logit_cap > 0;
}

static bool is_of(const struct model_config *config, const struct family *family, int64_t windowed)
{
    return config->norm == family->norm && config->positions == family->positions && config->mlp == family->mlp
           && has_biases_of(config, family)
           && config->parallel == family->parallel && !config->two_norms && config->shortcut == family->shortcut
           && (family->any_pairs || config->rotary.neighbours == family->neighbours)
           && config->head_norms == family->head_norms && config->normed_together == family->normed_together
           && config->norms_at == family->norms_at && LATENT(config) == family->latent
           && (family->grouped || config->K == config->H) && family->streams == (STREAMS(config) > 1)
           && has_windows_of(config, family, windowed) && config->alike == family->alike
               && config->norms_from_one == family->from_one
           && config->scaled_embedding == family->from_one && config->sinks == family->sinks
           && (config->mixture.clamped.limit > 0) == family->sinks
           && (family->scores || !has_own_scores(config))
           && (family->capped || config->score_cap == 0)
           && family->local == (config->local_theta > 0);
}

enum model_family model_family(const struct model_config *config)
{
    const int64_t windowed = model_windowed_layers(config);
    for (int f = FAMILY_NONE + 1; f < FAMILY_COUNT; f++)
        if (is_of(config, &families[f], windowed)) return (enum model_family)f;
    return FAMILY_NONE;
}

const char *model_family_name(enum model_family family)
{
    return family == FAMILY_NONE ? "none" : families[family].name;
}

struct family_names model_family_names(void)
{
    struct family_names all = { "" };
    for (int f = FAMILY_NONE + 1; f < FAMILY_COUNT; f++) {
        const char *before = f == FAMILY_NONE + 1 ? "" : f + 1 < FAMILY_COUNT ? ", " : " and ";
        const size_t used = strlen(all.text);
        snprintf(all.text + used, sizeof all.text - used, "%s%s", before, families[f].name);
    }
    return all;
}
