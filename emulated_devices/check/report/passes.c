/* passes.c -- runs our model from ACTUAL's own weights before each later step, and judges the step's gradients.
 * emulated_devices/cli/check.c calls passes_judge once for a dump.  Only reading and memory fail; verdicts are findings
 * of the result. */
#include "emulated_devices/check/report/passes.h"
#include "emulated_devices/check/report/checked_kinds.h"
#include "emulated_devices/check/report/choices.h"
#include "ref/numeric/distance.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A pass, and which of its results are judged again. */
struct later {
    const struct golden *golden;
    const struct actual *actual;
    enum dtype format;
    struct rounding rounding;
    const struct singles *singles;
    struct check_result *result;
    char optimizer[32];
    struct param_order *order;          /* [params] the parameters, sorted by name */
    int params;
    double *bias;                       /* [biases] corrections of routers before the step */
    size_t biases;
    int losses;                         /* in `result`: the losses of all steps; -1: they are not judged again */
    double *loss;                       /* [steps] of our passes; of the golden file in the first step */
    bool ran_first;                     /* our pass of the first step, too */
    double loss_bound;                  /* the largest of all steps; infinite: a step could not be run */
};

struct param_order { char name[PARAM_NAME]; int param; };

static int passes_compare_names(const void *a, const void *b)
{
    return strcmp(((const struct param_order *)a)->name, ((const struct param_order *)b)->name);
}

/* ---- what is judged again ---------------------------------------------------------------------------------------- */

/* A tensor that is right by itself needs no pass, unless it differs from the golden file: then a step before it has
 * done something else. */
static bool is_in_doubt(const struct later *later, const struct checked *checked)
{
    const struct single_result *alone = singles_find(later->singles, checked->name);
    const bool recomputed = alone && alone->verdict < SINGLE_WRONG;
    switch (checked->finding) {
    case DIFFERS:   return true;
    case ELSEWHERE:
    case OPEN:      return !recomputed;
    case HOLDS:     return !recomputed && checked->bound > LOOSE_BOUND;
    default:        return false;
    }
}

/* The parameter of "adamw/2/grad/NAME"; -1: the tensor is no gradient of this step. */
static int passes_param_of(const struct later *later, int64_t step, const char *tensor)
{
    char prefix[64];
    snprintf(prefix, sizeof prefix, "%s/%lld/grad/", later->optimizer, (long long)step + 1);
    const char *const begin = step == 0 ? "grad/" : prefix;
    const size_t n = strlen(begin);
    if (strncmp(tensor, begin, n) != 0) return -1;
    struct param_order key;
    snprintf(key.name, sizeof key.name, "%s", tensor + n);
    const struct param_order *found = bsearch(&key, later->order, (size_t)later->params, sizeof key,
                                              passes_compare_names);
    return found ? found->param : -1;
}

/* In the first step the golden file has our pass.  Only tokens that went elsewhere are a reason to run another. */
static bool passes_has(const struct later *later, int64_t step)
{
    return step > 0 || later->golden->config.mlp == MLP_MIXTURE;
}

/* Fill which entry of the result each parameter's gradient is; -1: it is not judged again.  @return how many are. */
static int passes_choose(const struct later *later, int64_t step, int entry[])
{
    int chosen = 0;
    for (int i = 0; i < later->params; i++) entry[i] = -1;
    for (int k = 0; k < later->result->count && passes_has(later, step); k++) {
        const int param = passes_param_of(later, step, later->result->all[k].name);
        if (param < 0 || !is_in_doubt(later, &later->result->all[k])) continue;
        entry[param] = k, chosen++;
    }
    return chosen;
}

/* Read the gradients that are judged; one that ACTUAL has not whole is not. */
static enum error_code passes_read(const struct later *later, const int entry[], struct own_pass *pass,
                                   struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < later->params && !e; i++) {
        if (entry[i] < 0) continue;
        const struct param_spec spec = model_param(&later->golden->config, i);
        bool there = false;
        pass->have[i] = malloc((size_t)(spec.dim[0] * (spec.ndim > 1 ? spec.dim[1] : 1)) * sizeof(double) + 1);
        if (pass->have[i] == NULL) return fail(err, ERR_MEMORY, "no memory to judge %s",
                                               later->result->all[entry[i]].name);
        e = own_tensor_read(later->actual, later->result->all[entry[i]].name, &spec, pass->have[i], &there, err);
        if (!there) free(pass->have[i]), pass->have[i] = NULL;
    }
    return e;
}

/* ---- bounds ------------------------------------------------------------------------------------------------------ */

/* Begin with the bounds of the first pass.  A gradient within a small one is right to that part of itself, whatever
 * rounding does to this pass.  A wide one says nothing: 0. */
static void passes_begin_bounds(const struct later *later, struct own_pass *pass)
{
    for (int k = 0; k < later->result->list.count; k++) {
        const struct golden_tensor *t = &later->result->list.all[k];
        const int param = passes_param_of(later, 0, t->name);
        if (param >= 0) pass->bound[param] = t->bound <= LOOSE_BOUND ? t->bound : 0;
        if (strcmp(t->name, "loss") == 0) pass->loss_bound = t->bound <= LOOSE_BOUND ? t->bound : 0;
    }
}

/* How far twins get before nothing more is expected of them: a bound that 8 twins have measured does not become 8
 * times as large with 64.  tests/devices/test_check_passes.c measures this. */
enum { TWINS_AT_LEAST = 8 };
static const double NO_TWIN_GETS_THERE = 8;

/* Whether more twins can change a verdict. */
static bool is_decided(const struct own_pass *pass, int twins)
{
    for (int i = 0; i < pass->params; i++) {
        if (pass->have[i] == NULL || pass->off[i] <= pass->bound[i]) continue;
        if (twins < TWINS_AT_LEAST || !(pass->off[i] > NO_TWIN_GETS_THERE * pass->bound[i])) return false;
    }
    return pass->loss_off <= pass->loss_bound
           || (twins >= TWINS_AT_LEAST && pass->loss_off > NO_TWIN_GETS_THERE * pass->loss_bound);
}

/* Twins with the same choices of experts measure what rounding does to this pass. */
static enum error_code passes_measure(const struct later *later, struct own_pass *pass, struct error *err)
{
    struct perturbation disturb = choices_twin(later->format, &later->rounding);
    struct replay twin;
    enum error_code e = replay_twin_open(&twin, &pass->plain, later->format, err);
    if (e) return e;
    for (int seed = 1; seed <= bound_twins(later->format) && !e && !is_decided(pass, seed - 1); seed++) {
        disturb.seed = (uint64_t)seed;
        e = replay_twin_run(&twin, &disturb, NULL, err);
        const bool same = twin.route == pass->plain.route;
        for (int i = 0; i < pass->params && !e; i++) {
            const double d = same ? own_pass_apart(pass, &twin, i, later->format) : INFINITY;
            if (pass->have[i] && exceeds(d, pass->bound[i])) pass->bound[i] = d;
        }
        const double d = same ? relative_when_stored(fabs(twin.loss - pass->plain.loss), fabs(pass->plain.loss), 1,
                                                     later->format) : INFINITY;
        if (!e && exceeds(d, pass->loss_bound)) pass->loss_bound = d;
    }
    replay_free(&twin);
    return e;
}

/* ---- one step ---------------------------------------------------------------------------------------------------- */

/* The bound that a distance is held to.  Where rounding explains much, a gradient that is near is right to that part of
 * itself all the same.  Tokens that may have gone elsewhere leave a gradient open from which some run with disturbed
 * choices is as far away. */
static double passes_bound(double off, double bound, double spread)
{
    if (off <= bound) return bound > LOOSE_BOUND && off <= LOOSE_BOUND ? LOOSE_BOUND : bound;
    return off <= spread ? INFINITY : fmax(bound, spread);
}

/* Compare with our pass in place of the golden file. */
static enum error_code passes_compare(const struct later *later, const int entry[], const struct own_pass *pass,
                                      struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < later->params && !e; i++) {
        if (pass->have[i] == NULL) continue;
        struct checked *c = &later->result->all[entry[i]];
        c->bound = passes_bound(pass->off[i], pass->bound[i], pass->spread[i]);
        e = checker_compare(later->golden, later->actual, pass->plain.model.g[i], c, later->format, err);
    }
    return e;
}

/* Run the pass, find what explains ACTUAL's gradients, and judge them. */
static enum error_code passes_judge_pass(struct later *later, int64_t step, const int entry[], struct own_pass *pass,
                                         struct error *err)
{
    enum error_code e = own_pass_run(pass, later->golden, err);
    if (e) return e;
    passes_begin_bounds(later, pass);
    const double theirs = later->loss[step];
    pass->loss_off = later->losses < 0 ? 0 : fabs(theirs - pass->plain.loss) / fabs(pass->plain.loss);
    if (!is_decided(pass, 0)) e = choices_explain(pass, later->golden, later->format, &later->rounding, err);
    if (!e) e = passes_measure(later, pass, err);
    if (!e) e = passes_compare(later, entry, pass, err);
    if (e) return e;
    later->loss[step] = pass->plain.loss;
    if (step == 0) later->ran_first = true;
    pass->loss_off = later->losses < 0 ? 0 : fabs(theirs - pass->plain.loss) / fabs(pass->plain.loss);
    later->loss_bound = fmax(later->loss_bound, passes_bound(pass->loss_off, pass->loss_bound, pass->loss_spread));
    if (later->golden->config.mlp != MLP_MIXTURE) return OK;
    /* The next step begins with corrections that follow from this step's choices. */
    transformer_move_biases(&pass->plain.model);
    memcpy(later->bias, pass->plain.model.router_bias, later->biases * sizeof *later->bias);
    return OK;
}

/* A step is run if one of its results is in doubt, or if routers' corrections of later steps follow from it. */
static enum error_code passes_judge_step(struct later *later, int64_t step, struct error *err)
{
    const struct model_config *c = &later->golden->config;
    const bool moves = c->mlp == MLP_MIXTURE && c->mixture.router.biased;
    struct own_weights own;
    struct own_pass pass;
    int *entry = malloc((size_t)later->params * sizeof *entry + 1);
    if (entry == NULL) return fail(err, ERR_MEMORY, "no memory to judge step %lld", (long long)step + 1);
    const int chosen = passes_choose(later, step, entry);
    if (!moves && chosen == 0 && (step == 0 || later->losses < 0)) {
        free(entry);
        return OK;
    }
    enum error_code e = own_weights_read(&own, later->golden, later->actual, later->optimizer, step, err);
    const bool read = !e, complete = read && own.complete;
    if (!e && !complete) later->loss_bound = INFINITY;
    if (!e && complete) e = own_pass_open(&pass, &own, later->golden, step, later->bias, err);
    const bool opened = !e && complete;
    if (opened) e = passes_read(later, entry, &pass, err);
    if (opened && !e) e = passes_judge_pass(later, step, entry, &pass, err);
    if (opened) own_pass_close(&pass);
    if (read) own_weights_free(&own);
    free(entry);
    return e;
}

/* ---- all steps of an optimizer ----------------------------------------------------------------------------------- */

/* Find the losses of all steps, if they are in doubt, and read ACTUAL's: passes then replace them by ours. */
static enum error_code passes_find_losses(struct later *later, struct error *err)
{
    char name[64];
    const int64_t steps = later->golden->steps, dim[2] = { steps, 1 };
    struct assembly all;
    snprintf(name, sizeof name, "%s/loss", later->optimizer);
    later->losses = -1, later->loss_bound = 0, later->ran_first = false;
    for (int k = 0; k < later->result->count; k++)
        if (strcmp(later->result->all[k].name, name) == 0 && is_in_doubt(later, &later->result->all[k]))
            later->losses = k;
    if (later->losses < 0) return OK;
    const enum error_code e = assembly_make(&all, later->actual, name, dim, later->loss, NULL, err);
    if (e == ERR_CHECK || (!e && (!all.any || all.missing > 0))) later->losses = -1;
    return e == ERR_CHECK ? OK : e;
}

/* Each number is within its own step's bound if the whole is within the largest; so the largest serves all. */
static enum error_code passes_compare_losses(struct later *later, struct error *err)
{
    if (later->losses < 0 || !isfinite(later->loss_bound)) return OK;
    struct checked *c = &later->result->all[later->losses];
    c->bound = later->loss_bound;
    return checker_compare(later->golden, later->actual, tensor_1d(later->loss, F64, later->golden->steps), c,
                           later->format, err);
}

/* The first step's loss is the golden file's: our pass from the same weights gives no other. */
static enum error_code passes_first_loss(struct later *later, struct error *err)
{
    if (later->losses < 0 || later->ran_first) return OK;
    later->loss_bound = golden_list_bound(&later->result->list, "loss");
    return golden_read(later->golden, "loss", F64, 1, later->loss, err);
}

static enum error_code passes_judge_steps(struct later *later, struct error *err)
{
    enum error_code e = golden_read_biases(later->golden, later->bias, err);
    if (!e) e = passes_find_losses(later, err);
    if (!e) e = passes_judge_step(later, 0, err);
    if (!e) e = passes_first_loss(later, err);
    for (int64_t step = 1; step < later->golden->steps && !e; step++) e = passes_judge_step(later, step, err);
    return e ? e : passes_compare_losses(later, err);
}

/* Make what all steps share.  After a failure the caller frees what there is. */
static enum error_code passes_open(struct later *later, struct error *err)
{
    const struct model_config *c = &later->golden->config;
    later->params = model_param_count(c);
    later->order = calloc((size_t)later->params, sizeof *later->order);
    later->biases = c->mlp == MLP_MIXTURE ? (size_t)(c->L * mixture_columns(&c->mixture)) : 0;
    later->bias = calloc(later->biases + 1, sizeof *later->bias);
    later->loss = calloc((size_t)later->golden->steps + 1, sizeof *later->loss);
    if (later->order == NULL || later->bias == NULL || later->loss == NULL)
        return fail(err, ERR_MEMORY, "no memory to judge later steps");
    for (int i = 0; i < later->params; i++) {
        memcpy(later->order[i].name, model_param(c, i).name, PARAM_NAME);
        later->order[i].param = i;
    }
    qsort(later->order, (size_t)later->params, sizeof *later->order, passes_compare_names);
    return OK;
}

enum error_code passes_judge(const struct golden *golden, const struct actual *actual, enum dtype format,
                             struct rounding rounding, const struct singles *singles, struct check_result *result,
                             struct error *err)
{
    struct later l = { .golden = golden, .actual = actual, .format = format, .rounding = rounding,
                       .singles = singles, .result = result };
    enum error_code e = golden->every_step ? passes_open(&l, err) : OK;
    for (const char *at = NULL; !e && golden->every_step
         && (at = golden_next_optimizer(golden, at, l.optimizer)) != NULL;)
        e = passes_judge_steps(&l, err);
    free(l.order), free(l.bias), free(l.loss);
    if (!e) check_result_count(result);
    return e;
}
