/* The sphere (ref/sphere): beside torch-harmonics and makani (golden/spatial.safetensors), and by its properties.
 * tier: check
 */
#include "ref/io/safetensors.h"
#include "ref/sphere/convolution.h"
#include "ref/sphere/crps.h"
#include "ref/sphere/harmonics.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { NLAT = 13, NLON = 24, RADIAL = 3, ANGULAR = 3, BATCH = 2, IN = 2, OUT = 3, MEMBERS = 3, CHANNELS = 2 };

/* Sums of at most a few hundred products, whose order differs. */
#define LIMIT 1e-12
/* The released code takes angles by arccos: of 1 - 1e-16, for a point seen from itself, that is 1.5e-8 instead of 0. */
#define LIMIT_OF_ANGLES 2e-7

static const double pi = 3.14159265358979323846;
static struct error err;

#define MUST(call) do { if (call) fail_msg("%s", err.text); } while (0)

static double *room(int64_t n)
{
    double *const x = calloc((size_t)n + 1, sizeof *x);
    assert_non_null(x);
    return x;
}

/* Numbers between -1 and 1. */
static double *some(int64_t n, int seed)
{
    double *const x = room(n);
    for (int64_t i = 0; i < n; i++) x[i] = sin((double)(i * 37 + seed) * 1.7 + (double)(i % 11));
    return x;
}

static double dot(int64_t n, const double *a, const double *b)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

/* Over the largest. */
static double apart(int64_t n, const double *got, const double *want)
{
    double most = 0, largest = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!(fabs(got[i] - want[i]) <= most)) most = fabs(got[i] - want[i]);
        if (fabs(want[i]) > largest) largest = fabs(want[i]);
    }
    return most / largest;
}

/* ---- beside the released code ------------------------------------------------------------------------------------ */

static struct safetensors file;

static double *stored(const char *of, const char *what, int64_t n)
{
    char name[64];
    snprintf(name, sizeof name, "%s/%s", of, what);
    const struct safetensors_entry *const entry = safetensors_find(&file, name);
    if (entry == NULL || entry->count != n) fail_msg("%s: not there, or not of %lld numbers", name, (long long)n);
    double *const x = room(n);
    MUST(safetensors_read(&file, entry, F64, x, &err));
    return x;
}

static void hold(const char *of, const char *what, int64_t n, double *got, double limit)
{
    double *const want = stored(of, what, n), off = apart(n, got, want);
    if (!(off <= limit)) fail_msg("%s/%s is off by %.3g, more than %.3g", of, what, off, limit);
    free(want), free(got);
}

static void transforms(const char *grid, enum sphere_grid g, int64_t degrees)
{
    struct harmonics h;
    char name[64];
    MUST(harmonics_open(&h, g, NLAT, NLON, degrees, &err));
    const int64_t n = NLAT * NLON, k = h.degrees * h.degrees * 2;
    for (enum transform t = ANALYSIS; t <= SYNTHESIS; t++) {
        snprintf(name, sizeof name, "%s/%s", grid, t == ANALYSIS ? "analysis" : "synthesis");
        const bool to_spectrum = t == ANALYSIS;
        double *const in = stored(name, "in", to_spectrum ? n : k);
        double *const d_out = stored(name, "d_out", to_spectrum ? k : n);
        double *const spectrum = room(k), *const field = room(n);
        MUST(harmonics_to_spectrum(&h, t, 1, to_spectrum ? in : d_out, spectrum, &err));
        MUST(harmonics_to_grid(&h, t, 1, to_spectrum ? d_out : in, field, &err));
        hold(name, to_spectrum ? "out" : "d_in", k, spectrum, LIMIT);
        hold(name, to_spectrum ? "d_in" : "out", n, field, LIMIT);
        free(in), free(d_out);
    }
    harmonics_close(&h);
}

static void released_transforms(void **state)
{
    (void)state;
    transforms("equiangular", EQUIANGULAR, 0);
    transforms("cut", EQUIANGULAR, 5);
    transforms("legendre-gauss", LEGENDRE_GAUSS, 0);
}

static struct filter a_filter(int64_t nlat, int64_t nlon)
{
    struct filter f;
    MUST(filter_open(&f, EQUIANGULAR, nlat, nlon, RADIAL, ANGULAR, (RADIAL + 1) * 0.5 * pi / (double)(nlat - 1), &err));
    return f;
}

static void released_convolution(void **state)
{
    (void)state;
    struct filter f = a_filter(NLAT, NLON);
    const struct range all = { 0, NLAT };
    const int64_t n = NLAT * NLON, weights = OUT * IN * f.K;
    const struct mixing m = { BATCH, IN, OUT, f.K, n, 1 };
    double *const x = stored("convolution", "in", BATCH * IN * n), *const w = stored("convolution", "weight", weights),
           *const d_out = stored("convolution", "d_out", BATCH * OUT * n);
    double *const y = room(BATCH * IN * f.K * n), *const d_y = room(BATCH * IN * f.K * n), *const d_w = room(weights),
           *const out = room(BATCH * OUT * n), *const d_x = room(BATCH * IN * n);
    filter_apply(&f, BATCH * IN, all, x, all, y);
    mixing_forward(m, y, w, out);
    mixing_backward(m, y, w, d_out, d_y, d_w);
    filter_apply_transposed(&f, BATCH * IN, all, d_x, all, d_y);
    hold("convolution", "out", BATCH * OUT * n, out, LIMIT_OF_ANGLES);
    hold("convolution", "d_in", BATCH * IN * n, d_x, LIMIT_OF_ANGLES);
    hold("convolution", "d_weight", weights, d_w, LIMIT_OF_ANGLES);
    free(x), free(w), free(d_out), free(y), free(d_y);
    filter_close(&f);
}

/* The quadrature's weights of points, in the mean over the sphere. */
static double *areas(void)
{
    double cosine[NLAT], weight[NLAT], *const area = room(NLAT * NLON);
    MUST(sphere_rows(EQUIANGULAR, NLAT, cosine, weight, &err));
    for (int i = 0; i < NLAT * NLON; i++) area[i] = weight[i / NLON] / NLON / 2;
    return area;
}

static void released_score(void **state)
{
    (void)state;
    const struct crps c = { MEMBERS, CHANNELS, NLAT * NLON, atof(safetensors_metadata(&file, "alpha")) };
    const int64_t n = c.channels * c.points;
    double *const f = stored("crps", "in", c.members * n), *const o = stored("crps", "observed", n);
    double *const area = areas(), *const d_out = stored("crps", "d_out", c.channels), *const loss = room(c.channels);
    double *const d = room(c.members * n);
    for (int64_t i = 0; i < n; i++)
        if (o[i] == 1e300) o[i] = NAN;
    crps_forward(c, f, o, area, loss);
    crps_backward(c, f, o, area, d_out, d);
    hold("crps", "out", c.channels, loss, LIMIT);
    hold("crps", "d_in", c.members * n, d, LIMIT);
    free(f), free(o), free(area), free(d_out);
}

static int open_file(void **state)
{
    (void)state;
    return safetensors_open(&file, "golden/spatial.safetensors", &err) != OK;
}

static int close_file(void **state)
{
    (void)state;
    safetensors_close(&file);
    return 0;
}

/* ---- by its properties ------------------------------------------------------------------------------------------- */

/* What a synthesis made has no degrees that an analysis cannot tell apart. */
static void analysis_undoes_synthesis(void **state)
{
    (void)state;
    for (enum sphere_grid g = EQUIANGULAR; g <= LEGENDRE_GAUSS; g++) {
        struct harmonics h;
        MUST(harmonics_open(&h, g, 11, 23, 0, &err));
        const int64_t k = h.degrees * h.degrees * 2;
        double *const c = some(k, 1), *const x = room(h.nlat * h.nlon), *const back = room(k);
        for (int64_t i = 0; i < k; i++) {
            const int64_t l = i / 2 / h.degrees, m = i / 2 % h.degrees;
            if (m > l || (m == 0 && i % 2) || (2 * m == h.nlon && i % 2)) c[i] = 0;
        }
        MUST(harmonics_to_grid(&h, SYNTHESIS, 1, c, x, &err));
        MUST(harmonics_to_spectrum(&h, ANALYSIS, 1, x, back, &err));
        const double off = apart(k, back, c);
        if (!(off <= LIMIT)) fail_msg("grid %d: coefficients come back off by %.3g", (int)g, off);
        free(c), free(x), free(back);
        harmonics_close(&h);
    }
}

static void weights_sum_to_two(void **state)
{
    (void)state;
    for (int n = 2; n < 30; n++)
        for (enum sphere_grid g = EQUIANGULAR; g <= LEGENDRE_GAUSS; g++) {
            double cosine[30], weight[30], sum = 0, first = 0;
            MUST(sphere_rows(g, n, cosine, weight, &err));
            for (int k = 0; k < n; k++) sum += weight[k], first += weight[k] * cosine[k];
            if (!(fabs(sum - 2) < LIMIT && fabs(first) < LIMIT)) fail_msg("%d rows: sum %.17g, %.3g", n, sum, first);
        }
    double one[1];
    assert_int_equal(sphere_rows(EQUIANGULAR, 1, one, one, &err), ERR_USAGE);
}

/* <A x, y> = <x, A' y>. */
static void transforms_are_transposed(void **state)
{
    (void)state;
    struct harmonics h;
    MUST(harmonics_open(&h, EQUIANGULAR, 12, 9, 0, &err));
    const int64_t n = 2 * h.nlat * h.nlon, k = 2 * h.degrees * h.degrees * 2;
    double *const x = some(n, 1), *const c = some(k, 2), *const spectrum = room(k), *const field = room(n);
    for (enum transform t = ANALYSIS; t <= SYNTHESIS; t++) {
        MUST(harmonics_to_spectrum(&h, t, 2, x, spectrum, &err));
        MUST(harmonics_to_grid(&h, t, 2, c, field, &err));
        const double one = dot(k, spectrum, c), other = dot(n, x, field);
        if (!(fabs(one - other) <= LIMIT * fabs(one))) fail_msg("transform %d: %.17g, %.17g", (int)t, one, other);
    }
    free(x), free(c), free(spectrum), free(field);
    harmonics_close(&h);
}

static void convolution_is_transposed(void **state)
{
    (void)state;
    struct filter f = a_filter(9, 10);
    const struct range inputs = { 2, 5 }, outputs = { 0, 7 };
    const int64_t n = 2 * inputs.count * f.nlon, k = 2 * f.K * outputs.count * f.nlon;
    double *const x = some(n, 1), *const y = some(k, 2), *const Ax = room(k), *const Ay = room(n);
    filter_apply(&f, 2, inputs, x, outputs, Ax);
    filter_apply_transposed(&f, 2, inputs, Ay, outputs, y);
    const double one = dot(k, Ax, y), other = dot(n, x, Ay);
    if (!(fabs(one - other) <= LIMIT * fabs(one))) fail_msg("%.17g, transposed %.17g", one, other);
    assert_int_equal(f.reach, 2);
    free(x), free(y), free(Ax), free(Ay);
    filter_close(&f);
}

/* Over both orders of each pair. */
static double brute_crps(struct crps c, const double *f, double o, int64_t at)
{
    double skill = 0, spread = 0;
    const int64_t E = c.members, pitch = c.channels * c.points;
    for (int64_t e = 0; e < E; e++) {
        skill += fabs(f[e * pitch + at] - o) / (double)E;
        for (int64_t g = 0; g < E; g++) spread += fabs(f[e * pitch + at] - f[g * pitch + at]);
    }
    return E > 1 ? skill - spread * ((double)E - 1 + c.alpha) / (double)(2 * E * E * (E - 1)) : skill;
}

static void score_of_all_pairs(void **state)
{
    (void)state;
    for (int64_t E = 1; E <= 5; E++) {
        const struct crps c = { E, 2, 7, 0.3 };
        double *const f = some(E * 14, 3), *const o = some(14, 4), *const w = some(7, 5), *const d = room(E * 14);
        const double slope[2] = { 1.5, -2 };
        double loss[2], moved[2];
        if (E > 1) f[14] = f[0];
        crps_forward(c, f, o, w, loss);
        for (int n = 0; n < 2; n++) {
            double want = 0;
            for (int p = 0; p < 7; p++) want += w[p] * brute_crps(c, f, o[n * 7 + p], n * 7 + p);
            if (!(fabs(loss[n] - want) < LIMIT)) fail_msg("%d members: %.17g, not %.17g", (int)E, loss[n], want);
        }
        crps_backward(c, f, o, w, slope, d);
        const double step = 1e-6;
        for (int64_t i = 1; i < E * 14; i++) {
            if (i == 14) continue;                                          /* at the kink */
            f[i] += step;
            crps_forward(c, f, o, w, moved);
            f[i] -= step;
            const double got = (slope[0] * (moved[0] - loss[0]) + slope[1] * (moved[1] - loss[1])) / step;
            if (!(fabs(got - d[i]) < 1e-7))
                fail_msg("%d members, element %d: slope %g, not %g", (int)E, (int)i, got, d[i]);
        }
        free(f), free(o), free(w), free(d);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(released_transforms),       cmocka_unit_test(released_convolution),
        cmocka_unit_test(released_score),            cmocka_unit_test(analysis_undoes_synthesis),
        cmocka_unit_test(weights_sum_to_two),        cmocka_unit_test(transforms_are_transposed),
        cmocka_unit_test(convolution_is_transposed), cmocka_unit_test(score_of_all_pairs),
    };
    return cmocka_run_group_tests_name("the sphere", tests, open_file, close_file);
}
