/* published_calibrate.c -- the constants of a cluster file that fit measured steps best.
 *
 * The misfit is the mean of |log(ours/measured)|, so that a few odd measurements do not decide, and a little for how
 * far each constant is from a value that data sheets and experience suggest: what the steps say nothing about stays
 * there.
 * A simplex (cli/simplex.h) searches for the logarithms of the constants.
 */
#include "emulated_devices/cli/bench/published/published.h"
#include "emulated_devices/cli/simplex.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CONSTANTS = 7, EVALUATIONS = 900, NVLINK = 300000 };     /* 10^6 bytes a second, of the data sheet */

/* Usual value, and the factor by which it may well differ, as a logarithm. */
static const struct constant { const char *name; double usual, spread; } constants[CONSTANTS] = {
    { "matrix_permille", 800, .15 }, { "half_depth", 100, .7 }, { "memory_permille", 800, .15 },
    { "launch_ns", 5000, .3 },       { "issue_ns", 60000, .7 }, { "step_ns", 20e6, .5 },
    { "MB_per_second inside a node", 230000, .2 },
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

struct fit {
    struct cluster cluster;
    struct measured_list list;
    struct schedule *schedule;          /* [list.count] */
    enum megatron_recompute recompute;
    struct error *err;
    enum error_code e;
};

static double misfit_of(struct fit *fit, double *mean)
{
    double sum = 0;
    for (int i = 0; i < fit->list.count && !fit->e; i++) {
        struct megatron m = fit->list.row[i].step;
        picoseconds t = 0;
        m.recompute = fit->recompute;
        fit->e = megatron_time(&t, &m, &fit->schedule[i], &fit->cluster, fit->err);
        sum += fabs(log((double)t / 1e9 / fit->list.row[i].number[0]));
    }
    return *mean = sum / fit->list.count;
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

/* ---- the report -------------------------------------------------------------------------------------------------- */

static void calibrate_report(struct fit *fit, const struct measured_on *on, double in_force[CONSTANTS])
{
    double best[CONSTANTS], before, after;
    set_constants(&fit->cluster, in_force);
    misfit_of(fit, &before);
    fit_constants(fit, best);
    set_constants(&fit->cluster, best);
    misfit_of(fit, &after);
    printf("%s, calibrated on %d steps of %s\n\n  %-28s %12s %12s\n", on->cluster, fit->list.count, on->file, "",
           "best", "in the file");
    for (int i = 0; i < CONSTANTS; i++) printf("  %-28s %12.0f %12.0f\n", constants[i].name, best[i], in_force[i]);
    printf("  %-28s %10.2f %% %10.2f %%\n\n", "mean error", 100 * after, 100 * before);
}

enum error_code measured_cluster(struct cluster *cluster, const struct measured_on *on, struct error *err)
{
    const enum error_code e = cluster_find(cluster, on->cluster, err);
    if (!e && on->card_rate > 0) cluster->link[cluster->levels - 1].rate = on->card_rate;
    return e;
}

enum error_code published_calibrate(const struct measured_on *on, const char *folder, struct error *err)
{
    struct fit f = { .recompute = on->recompute, .err = err };
    char path[1000];
    double in_force[CONSTANTS];
    int made = 0;
    snprintf(path, sizeof path, "%s/%s", folder, on->file);
    enum error_code e = measured_cluster(&f.cluster, on, err);
    if (!e) e = measured_read(&f.list, path, false, 1, err);
    if (e) return e;
    f.schedule = calloc((size_t)f.list.count, sizeof *f.schedule);
    if (f.schedule == NULL) e = fail(err, ERR_MEMORY, "no memory for %d schedules", f.list.count);
    for (; made < f.list.count && !e; made++) e = megatron_schedule(&f.schedule[made], &f.list.row[made].step, err);
    get_constants(&f.cluster, in_force);
    if (!e) calibrate_report(&f, on, in_force), e = f.e;
    while (made-- > 0) schedule_free(&f.schedule[made]);
    free(f.schedule);
    measured_free(&f.list);
    return e;
}
