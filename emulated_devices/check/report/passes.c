/* passes.c -- runs our model from ACTUAL's own weights before each later step, and judges the step's gradients.
 * emulated_devices/cli/check_judged.c calls passes_judge once for a dump.  Only reading and memory fail; verdicts are
 * findings of the result. */
#include "emulated_devices/check/report/passes.h"
#include "emulated_devices/check/report/checked_kinds.h"
#include "emulated_devices/check/report/biases.h"
#include "emulated_devices/check/report/choices.h"
#include "emulated_devices/check/report/rest.h"
#include "ref/numeric/distance.h"
#include "ref/model/kinds.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* All passes of an optimizer's steps. */
struct later {
    const struct golden *golden;
    const struct actual *actual;
    enum dtype format;
    struct rounding rounding;
    const struct singles *singles;
    struct check_result *result;
    char optimizer[32];
    double *bias;                       /* [biases] corrections of routers before the step */
    bool begins_known;                  /* those of the first pass are known */
    size_t biases;
    int losses;                         /* in `result`: the losses of all steps; -1: they are not judged again */
    double *loss;                       /* [steps] ACTUAL's; of the steps that were run, ours */
    double loss_bound;                  /* the largest of all steps; infinite: a step could not be run */
    bool known_wrong;                   /* an operation of the first pass is wrong */
    double loss_scale;                  /* of a program in fp16 */
};

/* In the result the losses of all steps are one tensor, which is judged at the end. */
enum { LOSS_OF_STEP = -1 };

/* ---- what is judged again ---------------------------------------------------------------------------------------- */

/* A tensor that was recomputed needs no pass, unless it differs from the golden file: then a step before it may have
 * done something else. */
static bool is_in_doubt(const struct later *later, const struct checked *checked)
{
    const struct single_result *alone = singles_find(later->singles, checked->name);
    const bool recomputed = alone && alone->verdict <= SINGLE_WRONG;
    switch (checked->finding) {
    case DIFFERS:   return true;
    case ALONE:
    case ELSEWHERE:
    case OPEN:      return !recomputed;
    case HOLDS:     return !recomputed && checked->bound > LOOSE_BOUND;
    default:        return false;
    }
}

/* A pass has this before its names: nothing in the first. */
struct pass_prefix { char text[64]; };

static struct pass_prefix passes_prefix(const struct later *later, int64_t step)
{
    struct pass_prefix prefix = { "" };
    if (step > 0) snprintf(prefix.text, sizeof prefix.text, "%s/%lld/", later->optimizer, (long long)step + 1);
    return prefix;
}

/* The name that "adamw/2/grad/NAME" has in the first pass; NULL: it is no result of this pass. */
static const char *passes_first_name(const char *tensor, const struct pass_prefix *prefix)
{
    const size_t n = strlen(prefix->text);
    if (strncmp(tensor, prefix->text, n) != 0) return NULL;
    const char *const rest = tensor + n;
    const bool of_pass = strncmp(rest, "grad/", 5) == 0 || strncmp(rest, "act/", 4) == 0 || strchr(rest, '/') == NULL;
    return of_pass ? rest : NULL;
}

/* In the first step the golden file has our pass.  Only a mixture runs another: its tokens may have gone elsewhere. */
static bool passes_runs(const struct later *later, int64_t step)
{
    return step > 0 || later->golden->config.mlp == MLP_MIXTURE;
}

/* Add the results of a step that are in doubt. */
static enum error_code passes_choose(const struct later *later, int64_t step, struct own_pass *pass, struct error *err)
{
    const struct pass_prefix prefix = passes_prefix(later, step);
    enum error_code e = OK;
    if (!passes_runs(later, step)) return OK;
    for (int k = 0; k < later->result->count && !e; k++) {
        const struct checked *c = &later->result->all[k];
        const char *const first = passes_first_name(c->name, &prefix);
        if (first == NULL || !is_in_doubt(later, c)) continue;
        if (adapter_is_name(c->name))
            e = own_pass_add_factor(pass, later->golden, later->actual, later->optimizer, c->name, k, err);
        else e = own_pass_add(pass, later->golden, later->actual, first, c->name, k, err);
    }
    if (!e && later->losses >= 0)
        e = own_pass_add_number(pass, "loss", later->loss[step], LOSS_OF_STEP, err);
    return e;
}

/* ---- bounds ------------------------------------------------------------------------------------------------------ */

/* Begin with the bounds of the first pass.  A result within a small one is right to that part of itself, whatever
 * rounding does to this pass.  A wide one says nothing: 0. */
static void passes_begin_bounds(const struct later *later, struct own_pass *pass)
{
    for (int k = 0; k < later->result->list.count; k++) {
        const struct golden_tensor *t = &later->result->list.all[k];
        for (struct own_result *r = own_pass_find(pass, t->name); r; r = own_pass_next(pass, r))
            r->bound = t->bound <= LOOSE_BOUND ? t->bound : 0;
    }
}

/* A result is wrong, whatever more twins measure, if it is off by so many times the bound of so many twins: a right
 * program is off by a quarter of a twin.  tests/devices/test_passes.c computes how seldom it gets there. */
static const struct { int twins; double times; } enough_twins[] = { { 8, 5 }, { 16, 1.75 }, { 36, 1 } };

bool passes_is_settled(double off, double bound, int twins)
{
    if (off <= bound) return true;
    for (size_t i = 0; i < sizeof enough_twins / sizeof *enough_twins; i++)
        if (twins >= enough_twins[i].twins && off > enough_twins[i].times * bound) return true;
    return false;
}

/* A result that is near ours is right to that part of itself.  One that is not is held to its share, too, since the
 * bound of the whole may be wide. */
static bool share_counts(const struct own_result *result) { return !result->factor && result->off > LOOSE_BOUND; }

/* Behind a wrong operation of the first pass all else follows from it.  So few twins are run, and no choices of experts
 * are searched: what these do not settle stays open, and the check takes about as long as that of a right program. */
static const int FEW_TWINS = 8;

static int passes_twins(const struct later *later)
{
    const int most = bound_twins(later->format);
    return later->known_wrong && most > FEW_TWINS ? FEW_TWINS : most;
}

/* Whether a result is settled by few twins.  Without a search nobody knows the choices of experts that a dump does not
 * show. */
static bool is_settled_by_few(const struct later *later, const struct own_pass *pass, const struct own_result *result)
{
    const bool own_choices = later->golden->config.mlp == MLP_MIXTURE && pass->route == NULL;
    const int twins = passes_twins(later);
    return (result->off <= result->bound || !own_choices) && passes_is_settled(result->off, result->bound, twins) &&
           (!share_counts(result) || passes_is_settled(result->share.off, result->share.bound, twins));
}

/* Whether more twins can change a verdict. */
static bool is_decided(const struct own_pass *pass, int twins)
{
    for (int i = 0; i < pass->count; i++) {
        const struct own_result *r = &pass->all[i];
        if (r->record < 0) continue;
        if (!passes_is_settled(r->off, r->bound, twins)) return false;
        if (share_counts(r) && !passes_is_settled(r->share.off, r->share.bound, twins)) return false;
    }
    return true;
}

/* Twins with the same choices of experts measure what rounding does to this pass. */
static enum error_code passes_measure(const struct later *later, struct own_pass *pass, struct error *err)
{
    struct perturbation disturb = choices_twin(later->format, &later->rounding);
    struct replay twin;
    double *apart = malloc((size_t)(2 * pass->plain.records) * sizeof *apart + 1);
    if (apart == NULL) return fail(err, ERR_MEMORY, "no memory for the distances of a twin");
    enum error_code e = replay_twin_open(&twin, &pass->plain, later->format, err);
    const bool opened = !e;
    for (int seed = 1; seed <= passes_twins(later) && !e && !is_decided(pass, seed - 1); seed++) {
        disturb.seed = (uint64_t)seed;
        e = replay_twin_run(&twin, &disturb, apart, apart + pass->plain.records, err);
        for (int i = 0; i < pass->count && !e; i++) {
            struct own_result *r = &pass->all[i];
            if (r->record < 0) continue;
            const double d = relative_when_stored(sqrt(apart[r->record]), r->size, r->count, later->format);
            const double share = own_share_of(r, apart[r->record], apart[pass->plain.records + r->record],
                                              later->format);
            if (exceeds(d, r->bound)) r->bound = d;
            if (exceeds(share, r->share.bound)) r->share.bound = share;
        }
    }
    if (opened) replay_free(&twin);
    free(apart);
    return e;
}

/* Two sums of the same distance, in doubles. */
static const double SAME_DISTANCE = 1 + 1e-9;

/* A result that is nearer to ours than this is right to that part of itself, however far rounding may move it: its
 * half, its double and zeros are further off.  Its share is off by at most half as much: that of its half is 0.5. */
static const double NEAR = 0.5;

static bool passes_is_near(const struct own_result *result)
{
    return !result->factor && result->off <= NEAR && result->share.off <= NEAR / 2;
}

/* This bound follows from the share where the whole says less.  The whole of a gradient that is nearly zero may move by
 * more than itself, in all directions: zeros would be within its bound.  Its share tells whether it is one like ours.
 * @return 0: the share says nothing. */
static double share_bound(const struct own_result *result)
{
    const struct own_share *const s = &result->share;
    if (!share_counts(result)) return 0;
    if (s->off > fmax(s->bound, s->spread)) return fmax(s->bound, s->spread);               /* it is wrong */
    /* The comparison adds up the same distance in another order. */
    return result->off <= result->bound && !bound_decides(result->bound)
               ? fmax(s->bound, result->off * SAME_DISTANCE) : 0;
}

/* The bound that a distance is held to.  Where rounding explains much, a result that is near is right to that part of
 * itself all the same.  Tokens that may have gone elsewhere leave a result open from which some run with disturbed
 * choices is as far away. */
static double passes_bound(const struct later *later, const struct own_pass *pass, const struct own_result *result)
{
    const double of_share = share_bound(result);
    if (later->known_wrong && !is_settled_by_few(later, pass, result)) return INFINITY;
    if (of_share > 0 && (bound_decides(of_share) || result->off > of_share)) return of_share;
    if (result->off <= result->bound && !bound_decides(result->bound) && passes_is_near(result)) return NEAR;
    if (of_share > 0) return of_share;
    if (result->off <= result->bound)
        return result->bound > LOOSE_BOUND && result->off <= LOOSE_BOUND ? LOOSE_BOUND : result->bound;
    if (result->off <= result->spread) return result->off <= LOOSE_BOUND ? LOOSE_BOUND : INFINITY;
    return fmax(result->bound, result->spread);
}

/* Only what cannot be judged as a whole is judged by its rest. */
struct passes_of { const struct later *later; const struct own_pass *pass; };

static bool passes_leaves_open(const void *context, const struct own_result *result)
{
    const struct passes_of *const of = context;
    return result->entry != LOSS_OF_STEP && !bound_decides(passes_bound(of->later, of->pass, result)) &&
           result->off <= result->bound;
}

/* A rest is wrong if it is off by as much as few twins would settle: a direction that no run has shown is none of a
 * right program's, or a seldom one. */
static double rest_bound(const struct own_rest *rest)
{
    return passes_is_settled(rest->off, rest->bound, FEW_TWINS) ? rest->bound : INFINITY;
}

static enum error_code passes_measure_rests(const struct later *later, struct own_pass *pass, struct error *err)
{
    const struct passes_of of = { later, pass };
    if (later->known_wrong) return OK;
    return rest_measure(pass, later->format, choices_twin(later->format, &later->rounding),
                        (struct rest_wanted){ passes_leaves_open, &of }, err);
}

/* ---- one step ---------------------------------------------------------------------------------------------------- */

/* The gradient of A or B has the bound of the weight's gradient, times what A or B make of it. */
static enum error_code passes_compare_factor(const struct later *later, const struct own_result *result,
                                             struct tensor ours, struct checked *checked, struct error *err)
{
    double *const made = malloc((size_t)result->count * sizeof *made + 1);
    if (made == NULL) return fail(err, ERR_MEMORY, "no memory to judge %s", checked->name);
    own_factor_make(result->factor, ours, made);
    const struct tensor truth = tensor_2d(made, F64, result->dim[0], result->dim[1]);
    checked->bound = relative_or_absolute(checked->bound * result->factor->size * result->size,
                                          sqrt(squared_distance(truth, tensor_none)), result->count, later->format);
    const enum error_code e = checker_compare(later->golden, later->actual, truth, checked, later->format, err);
    free(made);
    return e;
}

/* Compare with our pass in place of the golden file. */
static enum error_code passes_compare(struct later *later, int64_t step, const struct own_pass *pass,
                                      struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < pass->count && !e; i++) {
        const struct own_result *r = &pass->all[i];
        if (r->record < 0) continue;
        const struct tensor ours = pass->plain.record[r->record].values;
        if (r->entry == LOSS_OF_STEP) {
            later->loss[step] = tensor_get(ours, 0);
            later->loss_bound = fmax(later->loss_bound, passes_bound(later, pass, r));
            continue;
        }
        struct checked *c = &later->result->all[r->entry];
        c->bound = r->rest.truth ? rest_bound(&r->rest) : passes_bound(later, pass, r);
        const struct tensor truth = r->rest.truth ? tensor_2d(r->rest.truth, F64, r->dim[0], r->dim[1]) : ours;
        if (r->factor) e = passes_compare_factor(later, r, ours, c, err);
        else e = checker_compare(later->golden, later->actual, truth, c, later->format, err);
    }
    return e;
}

/* Run the pass, find what explains ACTUAL's results, and judge them. */
static enum error_code passes_judge_pass(struct later *later, int64_t step, struct own_pass *pass, struct error *err)
{
    const struct pass_prefix prefix = passes_prefix(later, step);
    enum error_code e = choices_read(pass, later->golden, later->actual, prefix.text, err);
    if (!e) e = own_pass_run(pass, later->golden, err);
    if (e) return e;
    passes_begin_bounds(later, pass);
    if (!later->known_wrong && !is_decided(pass, 0))
        e = choices_explain(pass, later->golden, later->format, &later->rounding, err);
    if (!e) e = passes_measure(later, pass, err);
    if (!e) e = passes_measure_rests(later, pass, err);
    if (!e) e = passes_compare(later, step, pass, err);
    if (e || later->biases == 0) return e;
    /* The next step begins with corrections that follow from this step's choices, or with the program's own. */
    return biases_judge(later->golden, later->actual, later->optimizer, step, pass, later->format, later->result,
                        later->bias, err);
}

/* A step is run if one of its results is in doubt, or if routers' corrections of later steps follow from it. */
static enum error_code passes_judge_step(struct later *later, int64_t step, struct error *err)
{
    const struct model_config *c = &later->golden->config;
    const bool moves = c->mlp == MLP_MIXTURE && c->mixture.router.biased;
    struct own_weights own = { 0 };
    struct own_pass pass;
    enum error_code e = own_pass_open(&pass, &own, later->golden, step, later->bias, err);
    if (e) return e;
    pass.begins.loss_scale = later->loss_scale;
    e = passes_choose(later, step, &pass, err);
    const bool needed = !e && (pass.count > 0 || moves);
    if (needed) e = own_weights_read(&own, later->golden, later->actual, later->optimizer, step, err);
    pass.begins.weights = own.all;
    if (needed && !e && own.complete && later->begins_known) e = passes_judge_pass(later, step, &pass, err);
    else if (needed && !e) later->loss_bound = INFINITY;
    own_pass_close(&pass);
    own_weights_free(&own);
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
    later->losses = -1, later->loss_bound = 0;
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

/* Where the first pass is not run, its loss is the golden file's: our pass from the same weights gives no other. */
static enum error_code passes_first_loss(struct later *later, struct error *err)
{
    if (later->losses < 0 || passes_runs(later, 0)) return OK;
    later->loss_bound = golden_list_bound(&later->result->list, "loss");
    return golden_read(later->golden, "loss", F64, 1, later->loss, err);
}

static enum error_code passes_judge_steps(struct later *later, struct error *err)
{
    const int64_t begins = later->actual->begins;
    enum error_code e = golden_read_biases(later->golden, later->bias, err);
    later->begins_known = true;
    if (!e && begins > 0 && later->golden->config.mixture.router.bias_speed != 0)
        e = own_biases_read(later->golden, later->actual, later->optimizer, begins, later->bias, &later->begins_known,
                            err);
    if (!e) e = passes_find_losses(later, err);
    if (!e && begins == 0) e = passes_judge_step(later, 0, err);
    if (!e && begins == 0) e = passes_first_loss(later, err);
    for (int64_t step = begins > 0 ? begins : 1; step < later->golden->steps && !e; step++)
        e = passes_judge_step(later, step, err);
    return e ? e : passes_compare_losses(later, err);
}

/* Make what all steps share.  After a failure the caller frees what there is. */
static enum error_code passes_open(struct later *later, struct error *err)
{
    const struct model_config *c = &later->golden->config;
    later->biases = c->mlp == MLP_MIXTURE ? (size_t)(c->L * mixture_columns(&c->mixture)) : 0;
    later->bias = calloc(later->biases + 1, sizeof *later->bias);
    later->loss = calloc((size_t)later->golden->steps + 1, sizeof *later->loss);
    if (later->bias == NULL || later->loss == NULL) return fail(err, ERR_MEMORY, "no memory to judge later steps");
    return OK;
}

/* The loss scale of a program in fp16, by which gradients are multiplied that a dump stores in 16 bits.  Where it is
 * less than ours they are subnormal sooner.  A dump that stores none does not tell. */
static double passes_loss_scale(const struct actual *actual)
{
    double least = REPLAY_LOSS_SCALE;
    for (int i = 0; i < actual->entries; i++) {
        const struct actual_entry *const one = &actual->entry[i];
        const cJSON *const times = cJSON_GetObjectItemCaseSensitive(one->layout, "times");
        if (strcmp(one->stored->dtype, dtype_file_name(F16)) != 0 || !strstr(one->stored->name, "grad/")) continue;
        const double scale = cJSON_IsNumber(times) ? 1 / fabs(times->valuedouble) : 1;
        if (scale > 0 && scale < least) least = scale;
    }
    return actual->loss_scale > 0 ? fmin(least, actual->loss_scale) : least;
}

/* A number, such as the loss, may be wrong where nothing else is. */
static bool passes_known_wrong(const struct singles *singles)
{
    for (int i = 0; i < singles->count; i++) {
        const struct single_result *r = &singles->all[i];
        const bool of_first = strncmp(r->name, "act/", 4) == 0 || strncmp(r->name, "grad/", 5) == 0;
        if (of_first && r->verdict == SINGLE_WRONG && r->rows * r->cols > 1) return true;
    }
    return false;
}

enum error_code passes_judge(const struct golden *golden, const struct actual *actual, enum dtype format,
                             struct rounding rounding, const struct singles *singles, struct check_result *result,
                             struct error *err)
{
    struct later l = { .golden = golden, .actual = actual, .format = format, .rounding = rounding,
                       .singles = singles, .result = result, .known_wrong = passes_known_wrong(singles),
                       .loss_scale = passes_loss_scale(actual) };
    enum error_code e = golden->every_step ? passes_open(&l, err) : OK;
    for (const char *at = NULL; !e && golden->every_step
         && (at = golden_next_optimizer(golden, at, l.optimizer)) != NULL;)
        e = passes_judge_steps(&l, err);
    free(l.bias), free(l.loss);
    if (!e) check_result_count(result);
    return e;
}
