/* choices.c -- tries other choices of experts until a pass of our model explains another program's gradients.
 * report/passes.c calls these functions.  A search that finds nothing is no error: the pass keeps our own choices. */
#include "emulated_devices/check/report/choices.h"
#include "ref/numeric/distance.h"
#include "ref/model/kinds.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* So many runs with disturbed roundings show which tokens are near a tie, and at most so many passes are tried. */
enum { DISTURBED_RUNS = 16, MOST_TRIALS = 256, MOST_SWEEPS = 3 };

/* A token of a layer that may choose otherwise: its row of the route, and the experts. */
struct alternative { int64_t row; int32_t *experts; };

struct choices {
    struct own_pass *pass;
    const struct golden *golden;
    enum dtype format;
    struct perturbation twin;
    int64_t N, k;
    struct alternative *all;            /* [count] */
    int count, trials;
};

/* A sum of P stored parts has 2 P - 1 roundings, but they are not all as large as the sum, nor all to one side.  The
 * terms of a product are a random walk: each part has 1 / P of the sum's square, a sum of k parts k / P.  All together
 * are (P + 3) / 2 - 1 / P of what a single part is, and the root of that is how much further off a clean run is.  A
 * twin of one part is disturbed as if it had BOUND_PARTS (ref/golden/bounds.h); so is that of P, times this root. */
static int choices_parts(int parts)
{
    const double walk = BOUND_PARTS * sqrt((parts + 3) / 2.0 - 1.0 / parts);
    return parts < walk ? parts : (int)ceil(walk);
}

struct perturbation choices_twin(enum dtype format, const struct rounding *rounding)
{
    struct perturbation twin = bound_twin(format);
    if (!dtype_is_narrow(format)) return twin;
    if (rounding->parts > twin.parts) twin.parts = choices_parts(rounding->parts);
    if (rounding->gradient_parts > twin.gradient_parts) twin.gradient_parts = rounding->gradient_parts;
    return twin;
}

/* ---- routes ------------------------------------------------------------------------------------------------------ */

/* Lay the choices of a run out as [L, N, k]; a run keeps those of layers with experts only.  NULL: no memory. */
static int32_t *choices_route(const struct choices *choices, const struct replay *replay)
{
    const struct model_config *c = &choices->golden->config;
    const int64_t n = choices->N * choices->k;
    int32_t *route = calloc((size_t)(c->L * n) + 1, sizeof *route);
    for (int64_t l = 0, from = 0; route && l < c->L; l++)
        if (layer_mlp(c, l) == MLP_MIXTURE) memcpy(route + l * n, replay->choice + from, (size_t)n * sizeof *route),
            from += n;
    return route;
}

/* Whether two tokens choose the same experts, in any order. */
static bool choices_same(const int32_t *a, const int32_t *b, int64_t k)
{
    for (int64_t i = 0; i < k; i++) {
        bool found = false;
        for (int64_t j = 0; j < k; j++) found = found || a[i] == b[j];
        if (!found) return false;
    }
    return true;
}

/* Add one way in which a token may choose, unless it is known. */
static enum error_code choices_add(struct choices *choices, int64_t row, const int32_t *experts, struct error *err)
{
    for (int i = 0; i < choices->count; i++)
        if (choices->all[i].row == row && choices_same(choices->all[i].experts, experts, choices->k)) return OK;
    struct alternative *more = realloc(choices->all, (size_t)(choices->count + 1) * sizeof *more);
    if (more) choices->all = more;
    int32_t *copy = malloc((size_t)choices->k * sizeof *copy + 1);
    if (more == NULL || copy == NULL) {
        free(copy);
        return fail(err, ERR_MEMORY, "no memory for choices of experts");
    }
    memcpy(copy, experts, (size_t)choices->k * sizeof *copy);
    choices->all[choices->count++] = (struct alternative){ row, copy };
    return OK;
}

/* ---- runs with disturbed roundings ------------------------------------------------------------------------------- */

/* Note how tokens choose that do not choose as in our pass. */
static enum error_code choices_note(struct choices *choices, const struct replay *run, struct error *err)
{
    const int64_t k = choices->k, rows = choices->golden->config.L * choices->N;
    int32_t *ours = choices_route(choices, &choices->pass->plain), *theirs = choices_route(choices, run);
    enum error_code e = ours && theirs ? OK : fail(err, ERR_MEMORY, "no memory for choices of experts");
    for (int64_t row = 0; row < rows && !e; row++)
        if (!choices_same(ours + row * k, theirs + row * k, k)) {
            e = choices_add(choices, row, ours + row * k, err);
            if (!e) e = choices_add(choices, row, theirs + row * k, err);
        }
    free(ours), free(theirs);
    return e;
}

/* How far the run's results are from our pass's: the largest of all runs is the spread. */
static void choices_spread(struct choices *choices, const struct replay *run)
{
    struct own_pass *p = choices->pass;
    for (int i = 0; i < p->count; i++) {
        struct own_result *r = &p->all[i];
        const double d = r->record < 0 ? 0 : own_result_apart(p, r, run, choices->format);
        if (exceeds(d, r->spread)) r->spread = d;
        if (r->record < 0 || r->factor) continue;
        const struct tensor other = run->record[r->record].values;
        const double share = own_share_of(r, squared_distance(other, p->plain.record[r->record].values),
                                          squared_distance(other, tensor_none), choices->format);
        if (exceeds(share, r->share.spread)) r->share.spread = share;
    }
}

/* Run the model with disturbed roundings, each token as its own router then chooses. */
static enum error_code choices_disturb(struct choices *choices, bool spread, struct error *err)
{
    struct replay_pass begins = choices->pass->begins;
    enum error_code e = OK;
    begins.route = NULL;
    for (int seed = 1; seed <= DISTURBED_RUNS && !e; seed++) {
        struct replay run;
        choices->twin.seed = (uint64_t)seed;
        e = replay_pass_run(&run, choices->golden, choices->format, &begins, &choices->twin, err);
        if (e) return e;
        if (spread) choices_spread(choices, &run);
        else e = choices_note(choices, &run, err);
        replay_free(&run);
    }
    return e;
}

/* ---- the search -------------------------------------------------------------------------------------------------- */

/* This is smaller the more is explained.  It is a sum of logarithms, so a gradient that no choice explains does not
 * outweigh others. */
static double choices_unexplained(const struct own_pass *pass)
{
    double sum = 0;
    for (int i = 0; i < pass->count; i++)
        if (pass->all[i].record >= 0) sum += log1p(pass->all[i].off / fmax(pass->all[i].bound, 1e-9));
    return sum;
}

/* Give a token another choice; keep it if more is explained.  A pass costs time, so trials are counted. */
static enum error_code choices_try(struct choices *choices, const struct alternative *alternative, double *least,
                                   bool *better, struct error *err)
{
    struct own_pass *p = choices->pass;
    const int64_t k = choices->k;
    int32_t *const at = p->route + alternative->row * k;
    int32_t *before = malloc((size_t)k * sizeof *before + 1);
    if (before == NULL) return fail(err, ERR_MEMORY, "no memory for choices of experts");
    memcpy(before, at, (size_t)k * sizeof *before);
    memcpy(at, alternative->experts, (size_t)k * sizeof *before);
    choices->trials++;
    enum error_code e = own_pass_run(p, choices->golden, err);
    const double now = e ? INFINITY : choices_unexplained(p);
    if (now < *least) *least = now, *better = true;
    else memcpy(at, before, (size_t)k * sizeof *before);
    free(before);
    return e;
}

/* One alternative after the other, until none explains more.  The pass is then that of the best route. */
static enum error_code choices_search(struct choices *choices, struct error *err)
{
    double least = choices_unexplained(choices->pass);
    enum error_code e = OK;
    bool better = true;
    if (choices->pass->route == NULL) choices->pass->route = choices_route(choices, &choices->pass->plain);
    if (choices->pass->route == NULL) return fail(err, ERR_MEMORY, "no memory for choices of experts");
    for (int sweep = 0; sweep < MOST_SWEEPS && better && !e; sweep++) {
        better = false;
        for (int i = 0; i < choices->count && choices->trials < MOST_TRIALS && !e; i++) {
            const struct alternative *a = &choices->all[i];
            if (!choices_same(choices->pass->route + a->row * choices->k, a->experts, choices->k))
                e = choices_try(choices, a, &least, &better, err);
        }
    }
    return e ? e : own_pass_run(choices->pass, choices->golden, err);
}

/* ---- choices that ACTUAL tells ----------------------------------------------------------------------------------- */

/* Choose by a layer's logits as the model does.  Choices that have no room are dropped as in the model. */
static enum error_code choices_by_logits(const struct golden *golden, const double *logits, const double *bias,
                                         int32_t *experts, struct error *err)
{
    const struct mixture_config *m = &golden->config.mixture;
    const struct ops *op = ops_for(F64);
    const int64_t N = golden->B * golden->S, E = mixture_columns(m);
    double *weights = malloc((size_t)(N * m->k) * sizeof *weights + 1);
    if (weights == NULL) return fail(err, ERR_MEMORY, "no memory for choices of experts");
    const struct tensor w = tensor_2d(weights, F64, N, m->k), x = tensor_2d(experts, I32, N, m->k);
    op->route_forward(w, x, tensor_2d((void *)(uintptr_t)logits, F64, N, E), &m->router, bias);
    if (m->capacity_factor > 0)
        op->route_drop(w, x, golden->S, E, mixture_capacity(m, golden->S), m->drops_by_weight);
    free(weights);
    return OK;
}

enum error_code choices_read(struct own_pass *pass, const struct golden *golden, const struct actual *actual,
                             const char *prefix, struct error *err)
{
    const struct model_config *c = &golden->config;
    const int64_t N = golden->B * golden->S, E = mixture_columns(&c->mixture), n = N * c->mixture.k;
    bool there = c->mlp == MLP_MIXTURE;
    if (!there) return OK;
    int32_t *route = calloc((size_t)(c->L * n) + 1, sizeof *route);
    double *logits = malloc((size_t)(N * E) * sizeof *logits + 1);
    enum error_code e = route && logits ? OK : fail(err, ERR_MEMORY, "no memory for choices of experts");
    for (int64_t l = 0; l < c->L && there && !e; l++) {
        char name[128];
        if (layer_mlp(c, l) != MLP_MIXTURE) continue;
        snprintf(name, sizeof name, "%.64sact/h.%lld.router.logits", prefix, (long long)l);
        e = own_tensor_read(actual, name, (int64_t[]){ N, E }, logits, &there, err);
        if (!e && there) e = choices_by_logits(golden, logits, c->mixture.router.biased ? pass->bias + l * E : NULL,
                                               route + l * n, err);
    }
    free(logits);
    if (e || !there) free(route);
    else pass->route = route;
    return e;
}

enum error_code choices_explain(struct own_pass *pass, const struct golden *golden, enum dtype format,
                                const struct rounding *rounding, struct error *err)
{
    struct choices c = { .pass = pass, .golden = golden, .format = format, .twin = choices_twin(format, rounding),
                         .N = golden->B * golden->S, .k = golden->config.mixture.k };
    if (golden->config.mlp != MLP_MIXTURE) return OK;
    enum error_code e = choices_disturb(&c, false, err);
    if (!e && c.count > 0) e = choices_search(&c, err);
    if (!e && c.count > 0) e = choices_disturb(&c, true, err);
    for (int i = 0; i < c.count; i++) free(c.all[i].experts);
    free(c.all);
    return e;
}
