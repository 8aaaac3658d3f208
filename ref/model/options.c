/* options.c -- which options a model has, and whether its family has them.  model/program.c, ref/golden/names.c and
 * ref/model/families/families.c call model_has.  cli/show/sbp.c and ref/model/families/families.c call family_allows.
 * config.c calls model_options_check.  ERR_PLAN names the option that the model's family does not have, or always
 * has. */
#include "ref/model/options.h"
#include "ref/model/config_json/config_json.h"
#include "ref/model/family.h"
#include "ref/model/kinds.h"

static unsigned biases_among(const struct model_config *config, unsigned roles) { return config->biases & roles; }

static bool has_some(int64_t n, int64_t all) { return n > 0 && n < all; }

static bool has_latent_biases(const struct model_config *config)
{
    return biases_among(config, BIASES_LATENT_ATTENTION | BIASES_ATTENTION) == BIASES_LATENT_ATTENTION;
}

static bool has_multipliers(const struct model_config *config)
{
    const struct multipliers *m = &config->multipliers;
    return m->embedding > 0 || m->residual > 0 || m->scores > 0 || m->logit_divisor > 0;
}

/* Whether dense layers are not the first ones. */
static bool has_later_dense(const struct model_config *config)
{
    const int64_t n = layer_set_count(&config->dense.at, config->L);
    return layer_set_count(&config->dense.at, n) != n;
}

/* Biases that are no set of options.def: the feed-forward has them in one matrix, attention in its output alone, .. */
static bool has_other_biases(const struct model_config *config)
{
    const unsigned attention = biases_among(config, BIASES_LATENT_ATTENTION | BIASES_ATTENTION),
                   feed = biases_among(config, BIASES_FEED),
                   known = BIASES_LATENT_ATTENTION | BIASES_ATTENTION | BIASES_FEED | HAS_BIAS(ROLE_ROUTER)
                           | HAS_BIAS(ROLE_HEAD);
    return (config->biases & ~known) || (feed && feed != BIASES_FEED)
           || (attention && attention != BIASES_ATTENTION && attention != HAS_BIAS(ROLE_QKV)
               && attention != BIASES_LATENT_ATTENTION);
}

bool model_has(const struct model_config *config, enum model_option option)
{
    switch (option) {
    case HAS_NOTHING: return true;
#define OPTION(name, words, condition) case HAS_##name: return condition;
#include "ref/model/options.def"
#undef OPTION
    case MODEL_OPTIONS: break;
    }
    return false;
}

static bool has_option(const enum model_option *list, enum model_option option)
{
    while (*list != HAS_NOTHING && *list != option) list++;
    return *list == option;
}

/* Whether all models of a family have an option. */
static bool family_has(const struct family *family, enum model_option option)
{
    return model_has(&family->defaults->c, option) || has_option(family->must, option);
}

bool family_allows(const struct family *family, enum model_option option)
{
    return has_option(family->may, option) || family_has(family, option);
}

enum error_code model_options_check(const struct model_config *config, struct error *err)
{
    static const char *const words[MODEL_OPTIONS] = {
#define OPTION(name, words, condition) [HAS_##name] = words,
#include "ref/model/options.def"
#undef OPTION
    };
    if (config->family == NULL)
        return fail(err, ERR_PLAN, "model: it names no family; there are %s", families_text().text);
    for (enum model_option o = HAS_NOTHING + 1; o < MODEL_OPTIONS; o++) {
        const bool has = model_has(config, o), always = family_has(config->family, o)
            && !has_option(config->family->may, o);
        if (has && !family_allows(config->family, o))
            return fail(err, ERR_PLAN, "model: %s in %s, which has none", words[o], config->family->title);
        if (!has && always)
            return fail(err, ERR_PLAN, "model: no %s in %s, which always has", words[o], config->family->title);
    }
    return OK;
}
