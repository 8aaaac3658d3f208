/* fit.c -- constants of a cluster file that come closest to measured times.
 *
 * The misfit is the mean of |log(clock / timed)|: relative errors count alike, and a few odd times do not decide.
 * Tiles are tried one after the other; of the rest a simplex (ref/numeric/simplex.h) searches the logarithms.
 * cli/calibrate/calibrate.c calls these functions.  ERR_CHECK names what took no measurable time, or was not timed.
 */
#include "emulated_devices/bench/calibrate/calibrate.h"
#include "ref/numeric/simplex.h"
#include "emulated_devices/device/kernel.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CALLS_OF_KERNELS = 400, CALLS_OF_LINK = 400 };

double work_time(const struct cluster *cluster, enum dtype dtype, const struct work *work)
{
    picoseconds sum = 0;
    for (int i = 0; i < work->calls; i++) sum += kernel_time(cluster, dtype, work->call[i].name, work->call[i].cost);
    return 1e-12 * (double)sum;
}

double volley_time(const struct link *link, const struct volley *volley)
{
    return 1e-12 * (double)(link->latency + volley->messages * (link->gap + time_at_rate(volley->bytes, link->rate)));
}

/* ---- kernels ----------------------------------------------------------------------------------------------------- */

static double misfit_of(const struct calibration *calibration, const struct cluster *cluster, enum work_kind kind)
{
    double sum = 0;
    int n = 0;
    for (int i = 0; i < calibration->works; i++)
        if (calibration->work[i].kind == kind)
            sum += fabs(log(work_time(cluster, calibration->dtype, &calibration->work[i])
                            / calibration->work[i].took.least)), n++;
    return sum / n;
}

/* Operations and bytes a second that one kind of work has reached at best. */
static double best_rate(const struct calibration *calibration, enum work_kind kind, bool bytes)
{
    double best = 0;
    for (int i = 0; i < calibration->works; i++) {
        const struct work *w = &calibration->work[i];
        double sum = 0;
        for (int k = 0; k < w->calls; k++) sum += bytes ? w->call[k].cost.bytes : w->call[k].cost.flops;
        if (w->kind == kind && sum / w->took.least > best) best = sum / w->took.least;
    }
    return best;
}

static int64_t at_least_one(double x) { return x > 1 ? (int64_t)llround(x) : 1; }
static int64_t permille(double part, double whole)
{
    const int64_t n = at_least_one(1000 * part / whole);
    return n < 1000 ? n : 1000;
}

/* Depths are counted from 1, so that a logarithm has a place for none. */
static int64_t depth(double p) { return at_least_one(fmin(exp(p), 1 << 20)) - 1; }

struct kernels_fit { const struct calibration *m; struct cluster c; double reached; };     /* reached: by products */

/* Products: the rate is a whole number of GFLOP/s and a share of it. */
enum { RATE, DEPTH, LAUNCH, PRODUCT_CONSTANTS };

static double products_misfit(void *context, const double *p)
{
    struct kernels_fit *f = context;
    struct kernels *k = &f->c.kernels;
    const int64_t giga = at_least_one(ceil(exp(p[RATE]) / 1e9));
    f->c.flop_rate[f->m->dtype] = 1000 * giga;
    k->matrix_permille = permille(exp(p[RATE]), 1e9 * (double)giga);
    k->half_depth = depth(p[DEPTH]), k->launch = 1000 * llround(1e9 * exp(p[LAUNCH]));
    return misfit_of(f->m, &f->c, WORK_PRODUCT);
}

static void fit_products(const struct calibration *calibration, struct cluster *cluster)
{
    static const int sides[] = { 1, 2, 4, 8, 16, 32, 64 };
    enum { SIDES = sizeof sides / sizeof *sides };
    struct kernels_fit f = { .m = calibration, .c = *cluster };
    const double first[PRODUCT_CONSTANTS] = { log(best_rate(calibration, WORK_PRODUCT, false)), log(9), log(1e-6) };
    const double spread[PRODUCT_CONSTANTS] = { .2, 1, 1 };
    double least = INFINITY;
    for (int i = 0; i < SIDES * SIDES; i++) {
        double p[PRODUCT_CONSTANTS];
        memcpy(p, first, sizeof p);
        f.c.kernels.units = 1, f.c.kernels.tile_rows = sides[i / SIDES], f.c.kernels.tile_columns = sides[i % SIDES];
        const double misfit = simplex_minimise(products_misfit, &f, PRODUCT_CONSTANTS, p, spread, CALLS_OF_KERNELS);
        if (!(misfit < .999 * least)) continue;         /* of tiles that are as good the smallest */
        least = misfit;
        products_misfit(&f, p);
        *cluster = f.c;
    }
}

/* Attention: a share of that rate, or more of it than products reach, and then the rate is larger. */
enum { OTHER, OTHER_DEPTH, ATTENTION_CONSTANTS };

static double attention_misfit(void *context, const double *p)
{
    struct kernels_fit *f = context;
    struct kernels *k = &f->c.kernels;
    int64_t *rate = &f->c.flop_rate[f->m->dtype];
    const int64_t giga = at_least_one(ceil(fmax(f->reached, exp(p[OTHER])) / 1e9));
    *rate = 1000 * giga;
    k->matrix_permille = permille(f->reached, 1e9 * (double)giga);
    k->other_permille = permille(exp(p[OTHER]), 1e9 * (double)giga), k->other_half_depth = depth(p[OTHER_DEPTH]);
    return misfit_of(f->m, &f->c, WORK_ATTENTION);
}

static void fit_attention(const struct calibration *calibration, struct cluster *cluster)
{
    const double reached = 1e3 * (double)cluster->flop_rate[calibration->dtype]
        * (double)cluster->kernels.matrix_permille;
    struct kernels_fit f = { .m = calibration, .c = *cluster, .reached = reached };
    const double spread[ATTENTION_CONSTANTS] = { .5, 1 };
    double p[ATTENTION_CONSTANTS] = { log(best_rate(calibration, WORK_ATTENTION, false)), log(33) };
    simplex_minimise(attention_misfit, &f, ATTENTION_CONSTANTS, p, spread, CALLS_OF_KERNELS);
    attention_misfit(&f, p);
    *cluster = f.c;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static int by_value(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

/* The middle share of the memory's rate that the works with this operation reach.  What starts them is not counted, but
 * at most half of their time. */
static int64_t share_reached(const struct calibration *calibration, const struct cluster *cluster, const char *what)
{
    int64_t reached[WORK_MOST];
    int n = 0;
    for (int i = 0; i < calibration->works; i++) {
        const struct work *w = &calibration->work[i];
        const double took = w->took.least - fmin(1e-12 * (double)cluster->kernels.launch, w->took.least / 2);
        if (w->kind == WORK_MEMORY && strcmp(w->call[0].name, what) == 0)
            reached[n++] = permille(w->call[0].cost.bytes / took, 1e6 * (double)cluster->memory_rate);
    }
    qsort(reached, (size_t)n, sizeof *reached, by_value);
    return (reached[(n - 1) / 2] + reached[n / 2]) / 2;
}

static bool is_named(const struct kernels *kernels, const char *what)
{
    for (int i = 0; i < kernels->named; i++)
        if (strcmp(kernels->share[i].name, what) == 0) return true;
    return false;
}

static void fit_memory(const struct calibration *calibration, struct cluster *cluster)
{
    struct kernels *k = &cluster->kernels;
    for (int i = 0; i < calibration->works; i++) {
        const char *what = calibration->work[i].call[0].name;
        if (calibration->work[i].kind != WORK_MEMORY || is_named(k, what) || k->named == CLUSTER_MOST_NAMED) continue;
        struct named_share *s = &k->share[k->named++];
        snprintf(s->name, sizeof s->name, "%s", what);
        s->permille = share_reached(calibration, cluster, what);
    }
}

/* ---- the link ---------------------------------------------------------------------------------------------------- */

enum { LATENCY, GAP, BANDWIDTH, LINK_CONSTANTS };

struct link_fit { const struct calibration *m; struct link l; };

static double link_misfit(void *context, const double *p)
{
    struct link_fit *f = context;
    double sum = 0;
    f->l.latency = 1000 * llround(1e9 * exp(p[LATENCY]));
    f->l.gap = 1000 * llround(1e9 * exp(p[GAP]));
    f->l.rate = at_least_one(exp(p[BANDWIDTH]) / 1e6);
    for (int i = 0; i < f->m->volleys; i++)
        sum += fabs(log(volley_time(&f->l, &f->m->volley[i]) / f->m->volley[i].took.least));
    return sum / f->m->volleys;
}

static void fit_link(const struct calibration *calibration, struct link *link)
{
    struct link_fit f = { .m = calibration, .l = *link };
    const double spread[LINK_CONSTANTS] = { 1, 1, .5 };
    double p[LINK_CONSTANTS] = { log(1e-6), log(1e-7), log(1e8) };
    for (int i = 0; i < calibration->volleys; i++) {
        const struct volley *v = &calibration->volley[i];
        p[BANDWIDTH] = fmax(p[BANDWIDTH], log((double)v->bytes * v->messages / v->took.least));
    }
    for (int i = 0; i < calibration->volleys; i++)
        p[LATENCY] = fmax(p[LATENCY], log(calibration->volley[i].took.least / 100));
    simplex_minimise(link_misfit, &f, LINK_CONSTANTS, p, spread, CALLS_OF_LINK);
    link_misfit(&f, p);
    *link = f.l;
}

/* ---- both -------------------------------------------------------------------------------------------------------- */

static enum error_code fit_check(const struct calibration *calibration, struct error *err)
{
    int of[WORK_MEMORY + 1] = { 0 };
    for (int i = 0; i < calibration->works; i++) {
        of[calibration->work[i].kind]++;
        if (!(calibration->work[i].took.least > 0 && calibration->work[i].took.least < 1e6))
            return fail(err, ERR_CHECK, "%s took %g seconds: this machine's clock cannot time it",
                        calibration->work[i].name, calibration->work[i].took.least);
    }
    for (int i = 0; i < calibration->volleys; i++)
        if (!(calibration->volley[i].took.least > 0 && calibration->volley[i].took.least < 1e6))
            return fail(err, ERR_CHECK, "messages of %llu bytes took %g seconds: this machine's clock cannot time them",
                        (unsigned long long)calibration->volley[i].bytes, calibration->volley[i].took.least);
    return of[WORK_PRODUCT] && of[WORK_ATTENTION] && of[WORK_MEMORY]
               ? OK : fail(err, ERR_CHECK, "a kind of work was not timed");
}

enum error_code calibration_fit(const struct calibration *calibration, struct cluster *cluster, struct misfit *far,
                                struct error *err)
{
    *cluster = (struct cluster){ .levels = 1 };
    *far = (struct misfit){ .volleys = 0 };
    cluster->link[0] = (struct link){ .devices = calibration->devices, .rate = 1, .eager = ALWAYS_EAGER };
    for (int t = 0; t < DTYPE_COUNT; t++) cluster->flop_rate[t] = -1;
    const enum error_code e = fit_check(calibration, err);
    if (e) return e;
    cluster->memory_rate = at_least_one(ceil(best_rate(calibration, WORK_MEMORY, true) / 1e6)),
        cluster->kernels.memory_permille = 1000;
    fit_products(calibration, cluster);
    fit_attention(calibration, cluster);
    fit_memory(calibration, cluster);
    if (calibration->volleys > 0) fit_link(calibration, &cluster->link[0]);
    for (enum work_kind k = 0; k <= WORK_MEMORY; k++) far->kind[k] = misfit_of(calibration, cluster, k);
    for (int i = 0; i < calibration->volleys; i++)
        far->volleys += fabs(log(volley_time(&cluster->link[0], &calibration->volley[i])
                                 / calibration->volley[i].took.least)) / calibration->volleys;
    return OK;
}
