/* serial.c -- the nodes of a network on the whole globe, forward and backward.
 *
 * emulated_devices/weather/ and tests call this file.  Errors: ERR_MEMORY.
 */
#include "ref/weather/serial.h"
#include "ref/sphere/crps.h"
#include "ref/weather/pointwise.h"
#include <stdlib.h>
#include <string.h>

enum error_code weather_run_open(struct weather_run *run, const struct weather_network *network, int64_t samples,
                                 int64_t members, double alpha, uint64_t seed, struct error *err)
{
    const int64_t numbers = network->share_at[WEATHER_SHARES];
    *run = (struct weather_run){ .network = network, .samples = samples, .members = members, .alpha = alpha };
    run->weights = calloc((size_t)numbers, sizeof(double)), run->gradients = calloc((size_t)numbers, sizeof(double));
    run->slot = calloc((size_t)network->slots, sizeof *run->slot);
    run->slope = calloc((size_t)network->slots, sizeof *run->slope);
    run->kept = calloc((size_t)network->nodes, sizeof *run->kept);
    if (!run->weights || !run->gradients || !run->slot || !run->slope || !run->kept)
        return fail(err, ERR_MEMORY, "no memory for %lld weights on one device", (long long)numbers);
    for (int i = 0; i < network->params; i++)
        for (int64_t k = 0; k < network->param[i].count; k++)
            run->weights[network->param[i].at + k] = weather_initial(&network->param[i], seed, k);
    return OK;
}

/* Free the fields of a pass. */
static void weather_run_drop(struct weather_run *run)
{
    for (int i = 0; i < run->network->slots && run->slot && run->slope; i++) {
        free(run->slot[i]), free(run->slope[i]);
        run->slot[i] = run->slope[i] = NULL;
    }
    for (int i = 0; i < run->network->nodes && run->kept; i++) free(run->kept[i]), run->kept[i] = NULL;
}

void weather_run_close(struct weather_run *run)
{
    weather_run_drop(run);
    free(run->weights), free(run->gradients), free(run->slot), free(run->slope), free(run->kept);
    *run = (struct weather_run){ 0 };
}

/* ---- nodes ------------------------------------------------------------------------------------------------------- */

static int64_t fields(const struct weather_run *run) { return run->samples * run->members; }

/* Make zeros for n numbers. */
static double *weather_run_room(int64_t n, enum error_code *e, struct error *err)
{
    double *const x = *e ? NULL : calloc((size_t)n + 1, sizeof *x);
    if (x == NULL && !*e) *e = fail(err, ERR_MEMORY, "no memory for %lld numbers of the globe", (long long)n);
    return x;
}

static double *weight_of(const struct weather_run *run, int param)
{
    return param < 0 ? NULL : run->weights + run->network->param[param].at;
}
static double *gradient_of(const struct weather_run *run, int param)
{
    return param < 0 ? NULL : run->gradients + run->network->param[param].at;
}

/* Fields and channels of a node's input and output. */
static struct points points_of(const struct weather_run *run, const struct weather_node *node)
{
    const struct weather_network *const n = run->network;
    return (struct points){ fields(run), n->channels[node->in], n->channels[node->out], weather_points(&n->shape) };
}

/* The convolution mixes the channels of each part by itself. */
static struct mixing mixing_of(const struct weather_network *network, const struct weather_node *node, struct points p)
{
    return (struct mixing){ p.N * node->parts, p.in / node->parts, p.out / node->parts, network->filter[node->filter].K,
                            p.count, node->groups };
}

static int64_t numbers_of_spectrum(const struct weather_network *network, int64_t fields)
{
    return fields * network->harmonics.degrees * network->harmonics.degrees * 2;
}

static struct spectra spectra_of(const struct weather_network *network, struct points p)
{
    return (struct spectra){ p.N, p.in, p.out, network->harmonics.degrees, network->harmonics.degrees };
}

/* Analysis, product for each degree, synthesis.  The spectrum of the input is kept. */
static enum error_code global_forward(struct weather_run *run, int i, struct points p, const double *x, double *y,
                                      struct error *err)
{
    const struct weather_network *const n = run->network;
    enum error_code e = OK;
    run->kept[i] = weather_run_room(numbers_of_spectrum(n, p.N * p.in), &e, err);
    double *const product = weather_run_room(numbers_of_spectrum(n, p.N * p.out), &e, err);
    if (!e) e = harmonics_to_spectrum(&n->harmonics, ANALYSIS, p.N * p.in, x, run->kept[i], err);
    if (!e) spectra_contract(spectra_of(n, p), weight_of(run, n->node[i].weight), run->kept[i], product);
    if (!e) e = harmonics_to_grid(&n->harmonics, SYNTHESIS, p.N * p.out, product, y, err);
    free(product);
    return e;
}

/* The transposes of both transforms, with the spectrum that was kept. */
static enum error_code global_backward(struct weather_run *run, int i, struct points p, const double *d_y, double *d_x,
                                       struct error *err)
{
    const struct weather_network *const n = run->network;
    enum error_code e = OK;
    double *const slope = weather_run_room(numbers_of_spectrum(n, p.N * p.out), &e, err);
    double *const back = weather_run_room(numbers_of_spectrum(n, p.N * p.in), &e, err);
    double *const add = weather_run_room(p.N * p.in * p.count, &e, err);
    if (!e) e = harmonics_to_spectrum(&n->harmonics, SYNTHESIS, p.N * p.out, d_y, slope, err);
    if (!e) spectra_contract_backward(spectra_of(n, p), weight_of(run, n->node[i].weight), run->kept[i], slope, back,
                                      gradient_of(run, n->node[i].weight));
    if (!e) e = harmonics_to_grid(&n->harmonics, ANALYSIS, p.N * p.in, back, add, err);
    for (int64_t k = 0; k < p.N * p.in * p.count && !e; k++) d_x[k] += add[k];
    free(slope), free(back), free(add);
    return e;
}

static enum error_code local_forward(struct weather_run *run, int i, struct points p, const double *x, double *y,
                                     struct error *err)
{
    const struct weather_node *const node = &run->network->node[i];
    const struct filter *const f = &run->network->filter[node->filter];
    const struct range all = { 0, f->nlat };
    enum error_code e = OK;
    run->kept[i] = weather_run_room(p.N * p.in * f->K * p.count, &e, err);
    if (e) return e;
    filter_apply(f, p.N * p.in, all, x, all, run->kept[i]);
    mixing_forward(mixing_of(run->network, node, p), run->kept[i], weight_of(run, node->weight), y);
    return OK;
}

/* A given input has no gradient. */
static enum error_code local_backward(struct weather_run *run, int i, struct points p, const double *d_y, double *d_x,
                                      struct error *err)
{
    const struct weather_node *const node = &run->network->node[i];
    const struct filter *const f = &run->network->filter[node->filter];
    const struct range all = { 0, f->nlat };
    enum error_code e = OK;
    double *const slope = weather_run_room(p.N * p.in * f->K * p.count, &e, err);
    double *const add = weather_run_room(p.N * p.in * p.count, &e, err);
    if (!e) {
        mixing_backward(mixing_of(run->network, node, p), run->kept[i], weight_of(run, node->weight), d_y, slope,
                        gradient_of(run, node->weight));
        if (!node->given) filter_apply_transposed(f, p.N * p.in, all, add, all, slope);
        for (int64_t k = 0; k < p.N * p.in * p.count && !node->given; k++) d_x[k] += add[k];
    }
    free(slope), free(add);
    return e;
}

static enum error_code node_forward(struct weather_run *run, int i, struct error *err)
{
    const struct weather_network *const n = run->network;
    const struct weather_node *const node = &n->node[i];
    const struct points p = points_of(run, node);
    enum error_code e = OK;
    const double *const x = run->slot[node->in], *const more = node->more < 0 ? NULL : run->slot[node->more];
    double *const y = run->slot[node->out] = weather_run_room(p.N * p.out * p.count, &e, err);
    if (e) return e;
    switch (node->op) {
    case WEATHER_TAKE: points_take(p, node->first, x, y); break;
    case WEATHER_JOIN:
        points_give((struct points){ p.N, p.out, p.in, p.count }, 0, x, y);
        points_give((struct points){ p.N, p.out, p.out - p.in, p.count }, p.in, more, y);
        break;
    case WEATHER_LOCAL: e = local_forward(run, i, p, x, y, err); break;
    case WEATHER_GLOBAL: e = global_forward(run, i, p, x, y, err); break;
    case WEATHER_LINEAR: points_linear(p, weight_of(run, node->weight), weight_of(run, node->bias), x, y); break;
    case WEATHER_GELU: points_gelu(p.N * p.in * p.count, x, y); break;
    case WEATHER_RESIDUAL: points_residual(p, weight_of(run, node->weight), x, more, y); break;
    }
    return e;
}

/* Gradients of inputs are added up, as several nodes may read a slot. */
static enum error_code node_backward(struct weather_run *run, int i, struct error *err)
{
    const struct weather_network *const n = run->network;
    const struct weather_node *const node = &n->node[i];
    const struct points p = points_of(run, node);
    const double *const d_y = run->slope[node->out], *const x = run->slot[node->in];
    double *const d_x = run->slope[node->in], *const d_more = node->more < 0 ? NULL : run->slope[node->more];
    switch (node->op) {
    case WEATHER_TAKE: if (!node->given) points_give(p, node->first, d_y, d_x); break;
    case WEATHER_JOIN:
        points_back((struct points){ p.N, p.out, p.in, p.count }, 0, d_y, d_x);
        points_back((struct points){ p.N, p.out, p.out - p.in, p.count }, p.in, d_y, d_more);
        break;
    case WEATHER_LOCAL: return local_backward(run, i, p, d_y, d_x, err);
    case WEATHER_GLOBAL: return global_backward(run, i, p, d_y, d_x, err);
    case WEATHER_LINEAR:
        points_linear_backward(p, weight_of(run, node->weight), x, d_y, d_x, gradient_of(run, node->weight),
                               gradient_of(run, node->bias));
        break;
    case WEATHER_GELU: points_gelu_backward(p.N * p.in * p.count, x, d_y, d_x); break;
    case WEATHER_RESIDUAL:
        points_residual_backward(p, weight_of(run, node->weight), run->slot[node->more], d_y, d_x, d_more,
                                 gradient_of(run, node->weight));
        break;
    }
    return OK;
}

/* ---- a pass ------------------------------------------------------------------------------------------------------ */

/* The score of all members at every point, and its slope by the forecast [members, samples channels, points]. */
static enum error_code score(struct weather_run *run, const double *next, double *loss, struct error *err)
{
    const struct weather_network *const n = run->network;
    const int64_t scores = run->samples * weather_channels(&n->shape), points = weather_points(&n->shape);
    const struct crps crps = { run->members, scores, points, run->alpha };
    enum error_code e = OK;
    double *const area = weather_run_room(points, &e, err), *const each = weather_run_room(scores, &e, err);
    double *const slope = weather_run_room(scores, &e, err);
    if (!e) {
        for (int64_t p = 0; p < points; p++)
            area[p] = n->harmonics.weight[p / n->shape.nlon] / (double)n->shape.nlon / 2;
        for (int64_t s = 0; s < scores; s++) slope[s] = 1.0 / (double)scores;
        crps_forward(crps, run->slot[n->output], next, area, each);
        crps_backward(crps, run->slot[n->output], next, area, slope, run->slope[n->output]);
        *loss = 0;
        for (int64_t s = 0; s < scores; s++) *loss += each[s] / (double)scores;
    }
    free(area), free(each), free(slope);
    return e;
}

enum error_code weather_run_pass(struct weather_run *run, const struct weather_batch *batch, double *loss,
                                 struct error *err)
{
    const struct weather_network *const n = run->network;
    const int64_t points = weather_points(&n->shape), state = run->samples * n->channels[SLOT_STATE] * points,
        noise = n->channels[SLOT_NOISE] * fields(run) * points;
    enum error_code e = OK;
    weather_run_drop(run);
    run->slot[SLOT_STATE] = weather_run_room(state * run->members, &e, err);
    run->slot[SLOT_NOISE] = weather_run_room(noise, &e, err);
    /* Every member begins with the same states. */
    for (int64_t m = 0; m < run->members && !e; m++)
        memcpy(run->slot[SLOT_STATE] + m * state, batch->state, (size_t)state * sizeof(double));
    if (!e) memcpy(run->slot[SLOT_NOISE], batch->noise, (size_t)noise * sizeof(double));
    for (int i = 0; i < n->nodes && !e; i++) e = node_forward(run, i, err);
    for (int i = 0; i < n->slots && !e; i++)
        run->slope[i] = weather_run_room(fields(run) * n->channels[i] * points, &e, err);
    if (!e) e = score(run, batch->next, loss, err);
    for (int i = n->nodes - 1; i >= 0 && !e; i--) e = node_backward(run, i, err);
    return e;
}
