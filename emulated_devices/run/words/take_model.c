/* take_model.c -- changes a model as options of a run say, and makes the job of a model with fields on a globe.  take.c
 * calls take_changes, cli/train/options/options.c the functions for fields.  ERR_USAGE names an option that the model
 * does not have, ERR_PLAN what cannot be; ERR_MEMORY. */
#include "emulated_devices/run/words/words.h"
#include "emulated_devices/weather/saved.h"
#include "ref/io/output.h"
#include "ref/model/adapters.h"
#include "ref/model/family.h"
#include "ref/model/kinds.h"
#include "ref/model/trained.h"
#include "ref/optim/rates.h"
#include "ref/routers/router.h"
#include <stdlib.h>
#include <string.h>

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

/* ---- models with fields on a globe ------------------------------------------------------------------------------- */

enum { USUAL_SAMPLES = 4, USUAL_MEMBERS = 2 };

static const char *const only_of_fields[] = { WEATHER_OPTIONS, NULL };

/* Options that a model of fields has, beside its own. */
static const char *const of_fields[] = {
    WEATHER_OPTIONS, "--model", "--dp", "--batch", "--steps", "--optimizer", "--lr", "--lr-schedule", "--lr-decay",
    "--min-lr", "--warmup", "--lr-steps", "--clip", "--weight-decay", "--beta1", "--beta2", "--eps", "--seed",
    "--dtype", "--cluster", "--kernels-of", "--check", "--json", "--config", "--print-config", "--backend", "--direct",
    "--wait-limit", "--threads", "--memory", "--dry-run", "--save",
    "--resume", "--zero", NULL
};

static bool is_of(const char *const *names, const char *name)
{
    for (; *names && name; names++)
        if (strcmp(*names, name) == 0) return true;
    return false;
}

/* Refuse by name the first option that is given and not for such a model. */
static enum error_code refuse_others(const struct train_words *words, const struct option *table, struct error *err)
{
    for (const struct option *o = table; o->kind != OPTION_END; o++)
        if (o->name && !is_of(of_fields, o->name) && options_given(words->argc, words->argv, o->name))
            return fail(err, ERR_USAGE, "%s: is for models of tokens; --model %s has fields on a globe "
                        "(docs/parallelism/spatial.md)", o->name, words->model);
    return OK;
}

enum error_code train_refuse_fields(const struct train_words *words, struct error *err)
{
    for (const char *const *name = only_of_fields; *name; name++)
        if (options_given(words->argc, words->argv, *name))
            return fail(err, ERR_USAGE, "%s: is for models with fields on a globe, such as --model %s, not for tokens",
                        *name, weather_shapes()[0].name);
    return OK;
}

/* The numbers of the optimizer, as for every model. */
static enum error_code take_optimizer(struct train_options *options, const struct train_words *words, struct error *err)
{
    struct plan *const p = &options->plan;
    enum error_code e = optimizer_find(&p->optimizer, words->optimizer, err);
    if (e) return e;
    if (p->optimizer->low_rank || p->optimizer->forward_only)
        return fail(err, ERR_USAGE, "--optimizer %s: is for models of tokens; --model %s takes adamw, sgd and others "
                    "that step element by element", p->optimizer->name, words->model);
    p->hyper = optimizer_usual(p->optimizer, &(struct conventions){ 0 });
    p->updates = 1;
    return take_numbers(options, words, err);
}

static enum error_code take_job(struct train_options *options, const struct train_words *words, struct error *err)
{
    const struct field_flags *const f = &words->fields;
    struct weather_job *const job = options->weather = calloc(1, sizeof *job);
    if (job == NULL) return fail(err, ERR_MEMORY, "no memory for a job");
    *job = (struct weather_job){
        .shape = weather_shape_find(words->model),
        .size = { [SAMPLES] = words->size[DP], [ENSEMBLE] = f->ensemble, [POLAR] = f->polar, [AZIMUTH] = f->azimuth },
        .samples = words->batch ? words->batch : USUAL_SAMPLES, .members = f->members ? f->members : USUAL_MEMBERS,
        .alpha = f->fairness, .form = strcmp(f->convolution, "halo") == 0 ? HALO : SCATTERED,
        .zero = words->data.zero > 0 ? words->data.zero : 0,
        .seed = options->plan.seed, .optimizer = options->plan.optimizer, .hyper = options->plan.hyper,
    };
    return weather_check(job, err);
}

enum error_code train_take_weather(struct train_options *options, struct train_words *words,
                                   const struct option *table, struct error *err)
{
    struct weather_saved saved = { .step = 0 };
    bool opened = false;
    enum error_code e = refuse_others(words, table, err);
    if (!e && options->check && strcmp(options->check, "ref") != 0)
        e = fail(err, ERR_USAGE, "--check %s: golden files are of models of tokens; --check ref compares with one "
                 "device", printable(options->check).text);
    if (!e && words->data.zero > 1)
        e = fail(err, ERR_USAGE, "--zero %d: devices of a weather model have all of their weights and gradients at "
                 "once; give 0 or 1", words->data.zero);
    if (!e && options_given(words->argc, words->argv, "--dtype") && strcmp(words->dtype, "fp64") != 0)
        e = fail(err, ERR_USAGE, "--dtype %s: fields have fp64 numbers", words->dtype);
    if (!e) e = take_backend(options, words, err);
    options->plan.dtype = F64, options->steps = words->steps;
    if (!e) e = take_optimizer(options, words, err);
    if (!e && options->resume) e = weather_saved_open(&saved, options->resume, err), opened = !e;
    if (!e) train_set_rates(&options->plan.hyper, options, saved.step);
    if (!e) e = cluster_find(&options->cluster, words->cluster, err);
    if (!e && words->kernels) e = kernel_set_choose(&options->cluster, words->kernels, err);
    if (!e) e = take_job(options, words, err);
    if (!e && opened) e = weather_saved_check(&saved, options->weather, options->resume, err);
    if (opened) weather_saved_close(&saved);
    return e ? e : cluster_check(&options->cluster, weather_devices(options->weather), F64, err);
}
