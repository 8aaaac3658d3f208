/* take_model.c -- changes a model as options of a run say.  take.c calls take_changes.  ERR_USAGE names an option
 * that the model does not have. */
#include "emulated_devices/run/words/words.h"
#include "ref/io/output.h"
#include "ref/model/adapters.h"
#include "ref/model/family.h"
#include "ref/model/kinds.h"
#include "ref/model/trained.h"
#include "ref/routers/router.h"

/* Another rule for a mixture's router; of a folder's model, its files' rule is replaced.  Experts without computation
 * return what that rule's do. */
static enum error_code take_router(struct model_config *config, const struct model_flags *flags, struct error *err)
{
    const struct router *r = NULL;
    if (flags->router && config->mlp != MLP_MIXTURE)
        return fail(err, ERR_USAGE, "--router %s: is for mixtures of experts; model %s has none",
                    printable(flags->router).text, config->name);
    if (flags->zero > 0 && config->mlp != MLP_MIXTURE)
        return fail(err, ERR_USAGE, "--zero-experts %d: is for mixtures of experts; model %s has none", flags->zero,
                    config->name);
    const enum error_code e = flags->router ? router_find(&r, flags->router, err) : OK;
    if (e) return e;
    if (flags->zero > 0) config->mixture.zero = flags->zero;
    if (r) config->mixture.router = router_fit(r, config->mixture.E, config->mixture.k);
    if (r && config->mixture.zero > 0) config->mixture.zero_is_null = r->zero_is_null;
    if (flags->top_p > 0) config->mixture.router.top_p = flags->top_p;
    if (flags->top_p > 0 && config->mlp != MLP_MIXTURE)
        return fail(err, ERR_USAGE, "--top-p %g: is for mixtures of experts; model %s has none", flags->top_p,
                    config->name);
    /* as released: no other limit */
    if (r && r->rule.top_p > 0) config->mixture.k = mixture_columns(&config->mixture);
    if (flags->speed >= 0 && !config->mixture.router.biased)
        return fail(err, ERR_USAGE, "--router-speed %g: is for routers with a bias: noaux-tc, longcat", flags->speed);
    if (flags->speed >= 0) config->mixture.router.bias_speed = flags->speed;
    if (flags->z_loss >= 0 && config->mlp != MLP_MIXTURE)
        return fail(err, ERR_USAGE, "--z-loss %g: is for mixtures of experts; model %s has none", flags->z_loss,
                    config->name);
    if (flags->z_loss >= 0) config->mixture.z_coefficient = flags->z_loss;
    return OK;
}

/* Shared experts for a mixture, each as wide as one of its experts; of a folder's model, its files' are replaced. */
static enum error_code take_shared(struct model_config *config, int experts, bool gate, struct error *err)
{
    if ((experts >= 0 || gate) && config->mlp != MLP_MIXTURE)
        return fail(err, ERR_USAGE, "--shared-%s: is for mixtures of experts; model %s has none",
                    gate ? "gate" : "experts", config->name);
    if (experts >= 0) config->mixture.shared = experts * config->F, config->mixture.shared_gate = false;
    if (gate && config->mixture.shared == 0)
        return fail(err, ERR_USAGE, "--shared-gate: there are no shared experts; --shared-experts N makes some");
    if (gate) config->mixture.shared_gate = true;
    return OK;
}

enum { USUAL_PREFIX = 8 };
#define USUAL_SMOOTHING 0.01            /* as released */

/* Parallel streams; one is a model without any. */
static enum error_code take_streams(struct model_config *config, const struct model_flags *flags, struct error *err)
{
    if (flags->streams == 0 && flags->prefix == 0) return OK;
    if (config->family->streamed == NULL)
        return fail(err, ERR_USAGE, "--%s: only a Qwen2 has parallel streams; model %s is no Qwen2",
                    flags->streams ? "streams" : "prefix", config->name);
    if (flags->streams) model_set_streams(config, flags->streams);
    if (STREAMS(config) == 1 && flags->prefix)
        return fail(err, ERR_USAGE, "--prefix %d: one stream has no prefix; --streams P makes several", flags->prefix);
    if (config->streams.prefix == 0) config->streams.prefix = USUAL_PREFIX, config->streams.smoothing = USUAL_SMOOTHING;
    if (flags->prefix) config->streams.prefix = flags->prefix;
    return OK;
}

#define USUAL_ALPHA 2.0                 /* times the rank: as Uni-MoE's scripts, and most of peft's examples */

/* Adapters, and which parameters train: with adapters these alone, if --train-only says no more. */
static enum error_code take_trained(struct model_config *config, const struct model_flags *flags, struct error *err)
{
    const bool mixture = config->mlp == MLP_MIXTURE,
               dense = !mixture || layer_set_count(&config->dense.at, config->L) > 0;
    struct adapters_config *const a = &config->adapters;
    enum error_code e = OK;
    if (flags->rank == 0 && (flags->alpha > 0 || flags->adapted))
        return fail(err, ERR_USAGE, "--lora-%s: needs --lora RANK", flags->alpha > 0 ? "alpha" : "of");
    if (flags->rank > 0)
        *a = (struct adapters_config){ flags->rank, flags->alpha > 0 ? flags->alpha : USUAL_ALPHA * flags->rank,
                                       LOW_ON_ATTENTION | (mixture ? LOW_ON_EXPERTS : 0) | (dense ? LOW_ON_FEED : 0) };
    if (flags->rank > 0 && flags->adapted) e = adapted_read(&a->of, flags->adapted, err);
    config->trains = flags->rank > 0 ? 1u << CLASS_ADAPTERS : 0;
    if (!e && flags->trained) e = fail_about(err, trained_read(&config->trains, flags->trained, err), "--train-only");
    return e ? e : adapters_check(config, err);
}

enum error_code take_changes(struct model_config *config, const struct model_flags *flags, struct error *err)
{
    enum error_code e = take_router(config, flags, err);
    if (!e) e = take_shared(config, flags->shared, flags->shared_gate, err);
    if (!e) e = take_streams(config, flags, err);
    return e ? e : take_trained(config, flags, err);
}
