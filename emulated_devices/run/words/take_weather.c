/* take_weather.c -- the words of a run whose model has fields on a globe in place of tokens: which options there are
 * for such models, and the job that they ask for.
 *
 * cli/train/options/options.c calls these functions.  Errors: ERR_USAGE names the flag, ERR_PLAN what cannot be;
 * ERR_MEMORY.
 */
#include "emulated_devices/run/words/words.h"
#include "emulated_devices/weather/learner.h"
#include "ref/optim/rates.h"
#include <stdlib.h>
#include <string.h>

enum { USUAL_SAMPLES = 4, USUAL_MEMBERS = 2 };

#define OF_FIELDS "--polar", "--azimuth", "--ensemble", "--members", "--fairness", "--convolution"

static const char *const only_of_fields[] = { OF_FIELDS, NULL };

/* Options that a model of fields has, beside its own. */
static const char *const of_fields[] = {
    OF_FIELDS, "--model", "--dp", "--batch", "--steps", "--optimizer", "--lr", "--lr-schedule", "--lr-decay", "--min-lr",
    "--warmup", "--lr-steps", "--clip", "--weight-decay", "--beta1", "--beta2", "--eps", "--seed", "--dtype",
    "--cluster", "--kernels-of", "--check", "--json", "--config", "--print-config", "--backend", "--direct",
    "--wait-limit", "--threads", "--memory", NULL
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
        return fail(err, ERR_USAGE, "--optimizer %s: is for models of tokens; --model %s takes adamw, sgd and others that "
                    "step element by element", p->optimizer->name, words->model);
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
        .seed = options->plan.seed, .optimizer = options->plan.optimizer, .hyper = options->plan.hyper,
    };
    return weather_check(job, err);
}

enum error_code train_take_weather(struct train_options *options, struct train_words *words,
                                   const struct option *table, struct error *err)
{
    enum error_code e = refuse_others(words, table, err);
    if (!e && options->check && strcmp(options->check, "ref") != 0)
        e = fail(err, ERR_USAGE, "--check %s: golden files are of models of tokens; --check ref compares with one device",
                 printable(options->check).text);
    if (!e && options_given(words->argc, words->argv, "--dtype") && strcmp(words->dtype, "fp64") != 0)
        e = fail(err, ERR_USAGE, "--dtype %s: fields have fp64 numbers", words->dtype);
    if (!e) e = take_backend(options, words, err);
    options->plan.dtype = F64, options->steps = words->steps;
    if (!e) e = take_optimizer(options, words, err);
    if (!e) train_set_rates(&options->plan.hyper, options, 0);
    if (!e) e = cluster_find(&options->cluster, words->cluster, err);
    if (!e && words->kernels) e = kernel_set_choose(&options->cluster, words->kernels, err);
    if (!e) e = take_job(options, words, err);
    return e ? e : cluster_check(&options->cluster, weather_devices(options->weather), F64, err);
}
