/* rest.c -- takes the directions out of gradients in which rounding moves them by much, and measures what is left.
 * report/passes.c calls rest_measure.  A result without a rest is no error: the caller cannot judge it. */
#include "emulated_devices/check/report/rest.h"
#include "ref/numeric/distance.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Directions are taken out until runs move what is left by less than this part of itself.  There are at most half as
 * many as numbers.  A gradient of zeros must leave at least a quarter of ours. */
static const double MOVES_LITTLE = 0.1, IS_LEFT = 0.25;
enum { NUMBERS_OF_DIRECTION = 2 };

/* All runs of all results take 8 REST_RUNS bytes for each number: 75 MB. */
enum { MOST_NUMBERS = 1 << 18 };

/* ---- directions -------------------------------------------------------------------------------------------------- */

static double rest_product(const double *a, const double *b, int64_t count)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) sum += a[i] * b[i];
    return sum;
}

static double rest_norm(const double *x, int64_t count) { return sqrt(rest_product(x, x, count)); }

/* Take out of x its part in a direction of norm 1. */
static void rest_remove(double *x, const double *direction, int64_t count)
{
    const double part = rest_product(x, direction, count);
    for (int64_t i = 0; i < count; i++) x[i] -= part * direction[i];
}

/* All numbers of the parts, each part over the norm of ours. */
struct rests_of {
    double *const *apart;               /* [REST_RUNS]; those that were taken out are directions of norm 1 */
    double *difference;                 /* ACTUAL's from ours */
    int64_t numbers;
    bool taken[REST_SHOWN];
};

/* The run among those that show directions that is furthest from ours; -1: all are near, or taken. */
static int rest_furthest(const struct rests_of *of, double near)
{
    int furthest = -1;
    double most = near;
    for (int k = 0; k < REST_SHOWN; k++) {
        const double norm = of->taken[k] ? 0 : rest_norm(of->apart[k], of->numbers);
        if (norm > most) most = norm, furthest = k;
    }
    return furthest;
}

/* Take the directions out of all runs, and of ACTUAL's difference: the furthest run's first. */
static void rest_take_out(struct rests_of *of, int parts)
{
    const double near = MOVES_LITTLE * sqrt((double)parts);
    for (int64_t taken = 0; taken < of->numbers / NUMBERS_OF_DIRECTION; taken++) {
        const int k = rest_furthest(of, near);
        if (k < 0) return;
        double *const direction = of->apart[k];
        const double norm = rest_norm(direction, of->numbers);
        for (int64_t i = 0; i < of->numbers; i++) direction[i] /= norm;
        of->taken[k] = true;
        for (int other = 0; other < REST_RUNS; other++)
            if (other >= REST_SHOWN || !of->taken[other]) rest_remove(of->apart[other], direction, of->numbers);
        rest_remove(of->difference, direction, of->numbers);
    }
}

/* ---- one part ---------------------------------------------------------------------------------------------------- */

/* If ACTUAL had zeros in a part, and what is right elsewhere, so much of the difference would be left, over the norm of
 * ours.  `scaled`: [count] ours over its norm. */
static double rest_of_zeros(const struct rests_of *of, int64_t at, int64_t count, const double *scaled, double *left)
{
    memcpy(left, scaled, (size_t)count * sizeof *left);
    for (int k = 0; k < REST_SHOWN; k++) {
        if (!of->taken[k]) continue;
        const double *const direction = of->apart[k] + at, part = rest_product(scaled, direction, count);
        for (int64_t i = 0; i < count; i++) left[i] -= part * direction[i];
    }
    return rest_norm(left, count);
}

/* @param scratch  [2 count]. */
static enum error_code rest_judge(const struct rests_of *of, const struct rest_part *part, int64_t at, double *scratch,
                                  struct error *err)
{
    const int64_t n = part->count;
    const double size = rest_norm(part->ours, n);
    double bound = 0;
    for (int64_t i = 0; i < n; i++) scratch[i] = part->ours[i] / size;
    const double of_zeros = rest_of_zeros(of, at, n, scratch, scratch + n);
    for (int k = REST_SHOWN; k < REST_RUNS; k++) bound = fmax(bound, rest_norm(of->apart[k] + at, n));
    if (!(of_zeros >= IS_LEFT && bound < of_zeros)) return OK;
    double *const truth = malloc((size_t)n * sizeof *truth + 1);
    if (truth == NULL) return fail(err, ERR_MEMORY, "no memory for the rest of a gradient");
    for (int64_t i = 0; i < n; i++) truth[i] = part->have[i] - of->difference[at + i] * size;
    const double all = rest_norm(truth, n) / size;
    *part->out = (struct own_rest){ truth, rest_norm(of->difference + at, n) / all, bound / all };
    return OK;
}

enum error_code rest_find(const struct rest_part *part, int parts, double *const apart[], struct error *err)
{
    struct rests_of of = { .apart = apart };
    for (int p = 0; p < parts; p++) of.numbers += part[p].count, *part[p].out = (struct own_rest){ 0 };
    of.difference = malloc((size_t)(3 * of.numbers) * sizeof *of.difference + 1);
    if (of.difference == NULL) return fail(err, ERR_MEMORY, "no memory for the rests of %d gradients", parts);
    for (int64_t p = 0, at = 0; p < parts; at += part[p++].count) {
        const double size = rest_norm(part[p].ours, part[p].count);
        for (int64_t i = 0; i < part[p].count; i++) {
            of.difference[at + i] = (part[p].have[i] - part[p].ours[i]) / size;
            for (int k = 0; k < REST_RUNS; k++) apart[k][at + i] /= size;
        }
    }
    rest_take_out(&of, parts);
    enum error_code e = OK;
    for (int64_t p = 0, at = 0; p < parts && !e; at += part[p++].count)
        e = rest_judge(&of, &part[p], at, of.difference + of.numbers, err);
    for (int p = 0; p < parts && e; p++) free(part[p].out->truth), part[p].out->truth = NULL;
    free(of.difference);
    return e;
}

/* ---- all results of a pass --------------------------------------------------------------------------------------- */

/* The results that are asked for, and how far each run is from each of them. */
struct rests {
    const struct own_pass *pass;
    struct rest_part *part;             /* [count] */
    int *record;                        /* [count] of the pass */
    int count;
    int64_t numbers;                    /* of all of them together */
    double *apart;                      /* [REST_RUNS, numbers] */
};

/* Add the results that are asked for, or those that are not.  A gradient of zeros has no parts that may be off. */
static void rests_choose(struct rests *rests, struct rest_wanted wanted, bool asked_for)
{
    for (int i = 0; i < rests->pass->count; i++) {
        struct own_result *const r = &rests->pass->all[i];
        if (r->record < 0 || r->factor || r->size == 0 || rests->numbers + r->count > MOST_NUMBERS) continue;
        if (wanted.is(wanted.context, r) != asked_for) continue;
        rests->record[rests->count] = r->record, rests->numbers += r->count;
        rests->part[rests->count++] = (struct rest_part){ rests->pass->plain.record[r->record].values.data, r->have,
                                                          r->count, &r->rest };
    }
}

/* A result that is judged already needs no rest. */
static void rests_forget(const struct rests *rests, int first)
{
    for (int p = first; p < rests->count; p++) {
        free(rests->part[p].out->truth);
        *rests->part[p].out = (struct own_rest){ 0 };
    }
}

/* Note how far a run's results are from ours. */
static void rests_note(const struct rests *rests, const struct replay *run, double *apart)
{
    for (int p = 0; p < rests->count; p++) {
        const struct tensor theirs = run->record[rests->record[p]].values;
        for (int64_t i = 0; i < rests->part[p].count; i++) *apart++ = tensor_get(theirs, i) - rests->part[p].ours[i];
    }
}

static enum error_code rests_run(const struct rests *rests, enum dtype format, struct perturbation twin,
                                 struct error *err)
{
    double *apart[REST_RUNS];
    for (int k = 0; k < REST_RUNS; k++) {
        struct replay run;
        twin.seed = (uint64_t)k + 1;
        apart[k] = rests->apart + k * rests->numbers;
        const enum error_code e = replay_following(&run, &rests->pass->plain, format, &twin, err);
        if (e) return e;
        rests_note(rests, &run, apart[k]);
        replay_free(&run);
    }
    return rest_find(rests->part, rests->count, apart, err);
}

enum error_code rest_measure(struct own_pass *pass, enum dtype format, struct perturbation twin,
                             struct rest_wanted wanted, struct error *err)
{
    const size_t results = (size_t)pass->count;
    struct rests rests = { .pass = pass, .part = malloc(results * sizeof *rests.part + 1),
                           .record = malloc(results * sizeof *rests.record + 1) };
    enum error_code e = rests.part && rests.record ? OK : fail(err, ERR_MEMORY, "no memory for rests of gradients");
    if (!e) rests_choose(&rests, wanted, true);
    const int asked_for = rests.count;
    /* The others, too, show what a token does. */
    if (asked_for > 0) rests_choose(&rests, wanted, false);
    if (!e && rests.count > 0) rests.apart = malloc((size_t)(REST_RUNS * rests.numbers) * sizeof *rests.apart + 1);
    if (!e && rests.count > 0 && rests.apart == NULL)
        e = fail(err, ERR_MEMORY, "no memory for the rests of %d gradients", rests.count);
    if (!e && rests.count > 0) e = rests_run(&rests, format, twin, err);
    if (!e) rests_forget(&rests, asked_for);
    free(rests.part), free(rests.record), free(rests.apart);
    return e;
}
