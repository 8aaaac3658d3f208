/* FourCastNet 3 on one device (ref/weather): beside makani and torch-harmonics (golden/weather.safetensors), and by its
 * properties. */
#include "ref/io/safetensors.h"
#include "ref/weather/serial.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* As golden/make_weather.py has them. */
enum { BATCH = 2, MEMBERS = 3 };

/* Sums of a few thousand products, whose order differs. */
#define LIMIT 1e-12
/* The released code takes angles by arccos: its psi differs as much, and all that follows. */
#define LIMIT_OF_ANGLES 2e-7

static struct error err;
static struct safetensors file;

#define MUST(call) do { if (call) fail_msg("%s", err.text); } while (0)

static int open_file(void **state)
{
    (void)state;
    if (safetensors_open(&file, "golden/weather.safetensors", &err) == OK) return 0;
    printf("%s\n", err.text);
    return -1;
}

static int close_file(void **state)
{
    (void)state;
    safetensors_close(&file);
    return 0;
}

static double *room(int64_t n)
{
    double *const x = calloc((size_t)n + 1, sizeof *x);
    assert_non_null(x);
    return x;
}

static double *stored(const char *of, const char *what, int64_t n)
{
    char name[96];
    snprintf(name, sizeof name, "%s%s", of, what);
    const struct safetensors_entry *const entry = safetensors_find(&file, name);
    if (entry == NULL || entry->count != n)
        fail_msg("%s: %lld numbers, not %lld", name, entry ? (long long)entry->count : 0, (long long)n);
    double *const x = room(n);
    MUST(safetensors_read(&file, entry, F64, x, &err));
    return x;
}

/* The largest difference, over the largest number. */
static void hold(const char *of, const char *what, int64_t n, const double *got, double limit)
{
    double *const want = stored(of, what, n), most = 0, largest = 0;
    for (int64_t i = 0; i < n; i++) {
        if (!(fabs(got[i] - want[i]) <= most)) most = fabs(got[i] - want[i]);
        if (fabs(want[i]) > largest) largest = fabs(want[i]);
    }
    if (!(most <= limit * largest)) fail_msg("%s%s is off by %.3g, more than %.3g", of, what, most / largest, limit);
    free(want);
}

/* ---- beside the released code ------------------------------------------------------------------------------------ */

static void with_score(const struct weather_network *network, const char *score, double alpha, double limit)
{
    struct weather_run run;
    char of[24];
    double loss;
    const int64_t points = weather_points(&network->shape), channels = weather_channels(&network->shape);
    MUST(weather_run_open(&run, network, BATCH, MEMBERS, alpha, 1, &err));
    for (int i = 0; i < network->params; i++) {
        double *const w = stored("weight/", network->param[i].name, network->param[i].count);
        memcpy(run.weights + network->param[i].at, w, (size_t)network->param[i].count * sizeof *w);
        free(w);
    }
    double *const state = stored("state", "", BATCH * channels * points),
           *const next = stored("next", "", BATCH * channels * points),
           *const noise = stored("noise", "", MEMBERS * BATCH * network->shape.noise * points);
    const struct weather_batch batch = { state, noise, next };
    MUST(weather_run_pass(&run, &batch, &loss, &err));
    hold("forecast", "", MEMBERS * BATCH * channels * points, run.slot[network->output], limit);
    snprintf(of, sizeof of, "%s/", score);
    hold(of, "loss", 1, &loss, limit);
    snprintf(of, sizeof of, "%s/d/", score);
    for (int i = 0; i < network->params; i++)
        hold(of, network->param[i].name, network->param[i].count, run.gradients + network->param[i].at, limit);
    free(state), free(next), free(noise);
    weather_run_close(&run);
}

static struct weather_network a_network(const char *name)
{
    struct weather_network network;
    assert_non_null(weather_shape_find(name));
    MUST(weather_open(&network, weather_shape_find(name), &err));
    return network;
}

static void released_model(void **state)
{
    (void)state;
    struct weather_network network = a_network("fourcastnet-tiny");
    with_score(&network, "fair", 1, LIMIT_OF_ANGLES);
    with_score(&network, "biased", 0, LIMIT_OF_ANGLES);
    weather_close(&network);
}

/* With the released psi nothing is left that differs by more than rounding. */
static void released_model_with_its_angles(void **state)
{
    (void)state;
    struct weather_network network = a_network("fourcastnet-tiny");
    static const char *const name[WEATHER_FILTER_COUNT] = { "ends", "blocks" };
    for (int i = 0; i < WEATHER_FILTER_COUNT; i++) {
        struct filter *const f = &network.filter[i];
        const int64_t n = f->first[f->nlat] * f->K;
        hold("psi/", name[i], n, f->psi, LIMIT_OF_ANGLES);
        double *const psi = stored("psi/", name[i], n);
        memcpy(f->psi, psi, (size_t)n * sizeof *psi);
        free(psi);
    }
    with_score(&network, "fair", 1, LIMIT);
    with_score(&network, "biased", 0, LIMIT);
    weather_close(&network);
}

/* ---- properties -------------------------------------------------------------------------------------------------- */

/* Parameters stand in one vector, by share, and none of them overlaps another. */
static void parameters_fill_the_vector(void **state)
{
    (void)state;
    for (const struct weather_shape *s = weather_shapes(); s->name; s++) {
        struct weather_network network = a_network(s->name);
        bool *const seen = calloc((size_t)network.share_at[WEATHER_SHARES] + 1, sizeof *seen);
        for (int i = 0; i < network.params; i++)
            for (int64_t k = 0; k < network.param[i].count; k++) {
                const int64_t at = network.param[i].at + k;
                if (seen[at] || at < network.share_at[network.param[i].share]
                    || at >= network.share_at[network.param[i].share + 1])
                    fail_msg("%s: number %lld is not its own", network.param[i].name, (long long)k);
                seen[at] = true;
            }
        for (int64_t i = 0; i < network.share_at[WEATHER_SHARES]; i++)
            if (!seen[i]) fail_msg("%s: number %lld is no parameter's", s->name, (long long)i);
        free(seen);
        weather_close(&network);
    }
}

/* The waves turn about the axis: their mean over each row stays, and so does their variance on the sphere. */
static void waves_keep_their_energy(void **state)
{
    (void)state;
    struct weather_network network = a_network("fourcastnet-tiny");
    const int64_t nlat = network.shape.nlat, nlon = network.shape.nlon,
        n = weather_channels(&network.shape) * nlat * nlon;
    double *const now = room(n), *const next = room(n), energy[2] = { 0 }, apart = 0, row = 0;
    MUST(weather_wave(&network, 3, 1, 2, now, next, &err));
    for (int64_t i = 0; i < n; i++) {
        const double w = network.harmonics.weight[i / nlon % nlat];
        energy[0] += w * now[i] * now[i], energy[1] += w * next[i] * next[i];
        apart = fmax(apart, fabs(now[i] - next[i])), row += now[i] - next[i];
        if (i % nlon == nlon - 1) {
            if (fabs(row) > 1e-12) fail_msg("the mean of row %lld moves by %g", (long long)(i / nlon), row);
            row = 0;
        }
    }
    if (!(fabs(energy[0] / energy[1] - 1) < LIMIT) || apart < 0.1)
        fail_msg("energies %.17g, %.17g; largest step %g", energy[0], energy[1], apart);
    free(now), free(next);
    weather_close(&network);
}

/* Gradients that follow the loss downhill teach the waves. */
static void loss_falls(void **state)
{
    (void)state;
    struct weather_network network = a_network("fourcastnet-tiny");
    struct weather_run run;
    const int64_t points = weather_points(&network.shape), n = weather_channels(&network.shape) * points;
    double *const now = room(2 * n), *const next = room(2 * n), *const noise = room(4 * network.shape.noise * points);
    double loss, first = 0;
    MUST(weather_run_open(&run, &network, 2, 2, 1, 7, &err));
    for (int i = 0; i < 2; i++) MUST(weather_wave(&network, 3, 0, i, now + i * n, next + i * n, &err));
    for (int i = 0; i < 4; i++)
        MUST(weather_noise(&network, 3, 0, i % 2, i / 2, noise + i * network.shape.noise * points, &err));
    const struct weather_batch batch = { now, noise, next };
    for (int step = 0; step < 6; step++) {
        MUST(weather_run_pass(&run, &batch, &loss, &err));
        if (step == 0) first = loss;
        for (int64_t i = 0; i < network.share_at[WEATHER_SHARES]; i++) run.weights[i] -= 0.3 * run.gradients[i];
    }
    if (!(loss < 0.9 * first)) fail_msg("the loss goes from %g to %g", first, loss);
    free(now), free(next), free(noise);
    weather_run_close(&run);
    weather_close(&network);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(released_model),             cmocka_unit_test(released_model_with_its_angles),
        cmocka_unit_test(parameters_fill_the_vector), cmocka_unit_test(waves_keep_their_energy),
        cmocka_unit_test(loss_falls),
    };
    return cmocka_run_group_tests_name("a weather model", tests, open_file, close_file);
}
