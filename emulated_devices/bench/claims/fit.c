/* fit.c -- the constants of a cluster file that fit measured steps best.
 *
 * The misfit is the mean of |log(ours/measured)|, so that a few odd measurements do not decide, and a little for how
 * far each constant is from a value that data sheets and experience suggest: what the steps say nothing about stays
 * there.
 * A simplex (ref/numeric/simplex.h) searches for the logarithms of the constants.  cli/bench/published.c calls these
 * functions.  Errors: those of a quantity, and ERR_MEMORY.
 */
#include "emulated_devices/bench/claims/fit.h"
#include "emulated_devices/bench/claims/quantity.h"
#include "ref/numeric/simplex.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONSTANTS = FIT_CONSTANTS, EVALUATIONS = 900, NVLINK = 300000 };     /* 10^6 bytes a second, of the data sheet */

const char *const fit_constant_names[CONSTANTS] = {
    "matrix_permille", "half_depth", "memory_permille", "launch_ns", "issue_ns", "step_ns",
    "MB_per_second inside a node",
};
/* Usual value, and the factor by which it may well differ, as a logarithm. */
static const struct constant { double usual, spread; } constants[CONSTANTS] = {
    { 800, .15 }, { 100, .7 }, { 800, .15 }, { 5000, .3 }, { 60000, .7 }, { 20e6, .5 }, { 230000, .2 },
};

static void set_constants(struct cluster *cluster, const double x[CONSTANTS])
{
    cluster->kernels.matrix_permille = (int64_t)fmin(1000, lround(x[0]));
    cluster->kernels.half_depth = lround(x[1]);
    cluster->kernels.memory_permille = (int64_t)fmin(1000, lround(x[2]));
    cluster->kernels.launch = 1000 * lround(x[3]);
    cluster->kernels.issue = 1000 * lround(x[4]);
    cluster->kernels.step = 1000 * lround(x[5]);
    cluster->link[0].rate = lround(fmin(NVLINK, x[6]));
}

static void get_constants(const struct cluster *cluster, double x[CONSTANTS])
{
    const double all[CONSTANTS] = {
        (double)cluster->kernels.matrix_permille, (double)cluster->kernels.half_depth,
            (double)cluster->kernels.memory_permille,
        (double)cluster->kernels.launch / 1e3, (double)cluster->kernels.issue / 1e3,
            (double)cluster->kernels.step / 1e3,
        (double)cluster->link[0].rate,
    };
    memcpy(x, all, sizeof all);
}

/* ---- misfit ------------------------------------------------------------------------------------------------------ */

struct measured { struct megatron step; struct schedule schedule; double milliseconds; };
struct fit {
    struct cluster cluster;
    struct measured *measured;          /* [count] */
    int count;
    struct error *err;
    enum error_code e;
};

static double misfit_of(struct fit *fit, double *mean)
{
    double sum = 0;
    for (int i = 0; i < fit->count && !fit->e; i++) {
        const struct measured *measured = &fit->measured[i];
        picoseconds t = 0;
        fit->e = megatron_time(&t, &measured->step, &measured->schedule, &fit->cluster, fit->err);
        sum += fabs(log((double)t / 1e9 / measured->milliseconds));
    }
    return *mean = sum / fit->count;
}

static double misfit(void *context, const double *p)
{
    struct fit *f = context;
    double x[CONSTANTS], far = 0, mean;
    for (int i = 0; i < CONSTANTS; i++) x[i] = exp(p[i]);
    set_constants(&f->cluster, x);
    for (int i = 0; i < CONSTANTS; i++) far += pow((p[i] - log(constants[i].usual)) / constants[i].spread, 2);
    return misfit_of(f, &mean) + .001 * far / CONSTANTS;
}

static void fit_constants(struct fit *fit, double best[CONSTANTS])
{
    double p[CONSTANTS], spread[CONSTANTS];
    for (int i = 0; i < CONSTANTS; i++) p[i] = log(constants[i].usual), spread[i] = .7 * constants[i].spread;
    simplex_minimise(misfit, fit, CONSTANTS, p, spread, EVALUATIONS);
    for (int i = 0; i < CONSTANTS; i++) best[i] = exp(p[i]);
    set_constants(&fit->cluster, best);
    get_constants(&fit->cluster, best);
}

/* ---- the steps --------------------------------------------------------------------------------------------------- */

static enum error_code take_steps(struct fit *fit, struct claims_fit *out, const struct claims *claims)
{
    struct claim_step step;
    fit->measured = calloc((size_t)claims->count, sizeof *fit->measured);
    if (fit->measured == NULL) return fail(fit->err, ERR_MEMORY, "no memory for %d schedules", claims->count);
    for (int i = 0; i < claims->count; i++) {
        struct measured *measured = &fit->measured[i];
        enum error_code e = claim_step(&claims->claim[i], &step, fit->err);
        if (!e) e = megatron_schedule(&measured->schedule, &step.step, fit->err);
        if (e) return e;
        measured->step = step.step, measured->milliseconds = claims->claim[i].published;
        fit->cluster = step.cluster;
        fit->count++;
    }
    snprintf(out->cluster, sizeof out->cluster, "%s", fit->cluster.name);
    out->steps = fit->count;
    return OK;
}

static void fit_steps(struct fit *fit, struct claims_fit *out)
{
    get_constants(&fit->cluster, out->in_force);
    set_constants(&fit->cluster, out->in_force);
    misfit_of(fit, &out->before);
    fit_constants(fit, out->best);
    set_constants(&fit->cluster, out->best);
    misfit_of(fit, &out->after);
}

enum error_code claims_fit(struct claims_fit *out, const char *name, const char *folder, struct error *err)
{
    struct fit f = { .err = err };
    struct claims claims;
    enum error_code e = claims_find(&claims, name, folder, err);
    if (e) return e;
    e = take_steps(&f, out, &claims);
    if (!e) fit_steps(&f, out), e = f.e;
    for (int i = 0; i < f.count; i++) schedule_free(&f.measured[i].schedule);
    free(f.measured);
    claims_free(&claims);
    return e;
}
