/* encoders_open.c -- opens and closes encoders of inputs other than text; what they hold and send, by formula.
 * model/trainer_open.c opens and closes them, model/trainer_cost.c and train/dry_run/plan_memory.c ask for formulas.
 * Errors: ERR_MEMORY, and ERR_PLAN of a data scheme that does not fit the devices of an encoder. */
#include "emulated_devices/device/layout.h"
#include "emulated_devices/model/trainer.h"
#include "emulated_devices/plan/recompute.h"
#include "ref/model/kinds.h"
#include <stdlib.h>
#include <string.h>

static enum error_code no_memory(struct error *err) { return fail(err, ERR_MEMORY, "no memory for encoders"); }

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* All parameters of an encoder, whole, in the unit of one part of a model without blocks. */
static enum error_code list_parameters(struct trainer *trainer, int m, struct error *err)
{
    struct parameters *const list = &trainer->encoders.of[m].parameters;
    list->all = calloc(ENCODER_PARAMS, sizeof *list->all);
    if (list->all == NULL) return no_memory(err);
    for (enum encoder_param p = 0; p < ENCODER_PARAMS; p++) {
        struct parameter *const one = &list->all[list->count++];
        one->spec = encoder_spec(&modalities[m], trainer->plan.model.D, p);
        one->index = p, one->holders = 1;
        one->layout = layout_whole(one->spec.ndim, one->spec.dim);
        one->counted = layout_count(&one->layout);
    }
    for (int turn = 0; turn < PARAMETER_TURNS; turn++) list->end[turn] = list->count;
    return OK;
}

/* An encoder runs once forward and once backward in a step.  In between its gathered weights are dropped. */
static enum error_code list_uses(struct data_parallel *data, struct error *err)
{
    static const struct use of_step[] = {
        { .part = ENCODER_PART, .pass = PASS_FORWARD }, { .part = ENCODER_REST, .pass = PASS_FORWARD },
        { .part = ENCODER_PART, .pass = PASS_BACKWARD_INPUT }, { .part = ENCODER_PART, .pass = PASS_BACKWARD_WEIGHT },
    };
    struct use *const use = malloc(sizeof of_step);
    if (use == NULL) return no_memory(err);
    memcpy(use, of_step, sizeof of_step);
    data_set_uses(data, use, sizeof of_step / sizeof *of_step);
    return OK;
}

static enum error_code open_data(struct trainer *trainer, int m, struct error *err)
{
    struct encoders *const x = &trainer->encoders;
    struct data_parallel *const d = &x->of[m].data;
    *d = (struct data_parallel){
        .scheme = trainer->data.scheme, .request = plan_encoder_data(&trainer->plan), .config = &x->config,
        .device = trainer->device, .group = &x->of[m].with, .parameters = &x->of[m].parameters,
        .optimizer = trainer->plan.optimizer, .hyper = &trainer->plan.hyper, .allreduce = trainer->plan.allreduce,
        .versions = 1,
    };
    const enum error_code e = data_outline(d, err);
    return e ? e : list_uses(d, err);
}

static enum error_code outline_encoder(struct trainer *trainer, int m, struct error *err)
{
    struct encoders *const x = &trainer->encoders;
    const int devices = trainer->comm->size;
    int member[MESH_MOST_LISTED], n = 0;
    for (int d = 0; d < devices; d++)
        if (encoder_is_on(x->request, devices, m, d)) member[n++] = d;
    if (!encoder_is_on(x->request, devices, m, trainer->comm->rank)) return OK;
    enum error_code e = group_of(&x->of[m].with, trainer->comm, member, n, TRAFFIC_ENCODERS, 0, err);
    if (!e) e = list_parameters(trainer, m, err);
    if (e) return e;
    x->of[m].here = true;
    return open_data(trainer, m, err);
}

static enum error_code outline_world(struct trainer *trainer, struct error *err)
{
    int member[MESH_MOST_LISTED];
    for (int d = 0; d < trainer->comm->size; d++) member[d] = d;
    return group_of(&trainer->encoders.world, trainer->comm, member, trainer->comm->size, TRAFFIC_ENCODERS, 0, err);
}

enum error_code encoders_outline(struct trainer *trainer, struct error *err)
{
    struct encoders *const x = &trainer->encoders;
    *x = (struct encoders){ .request = &trainer->plan.encoders,
                             .config = { .mlp = MLP_GELU, .trains = trainer->plan.model.trains } };
    if (x->request->kinds == 0) return OK;
    x->needs = calloc((size_t)trainer->comm->size, sizeof *x->needs);
    enum error_code e = x->needs ? outline_world(trainer, err) : no_memory(err);
    for (int m = 0; m < x->request->kinds && !e; m++) e = outline_encoder(trainer, m, err);
    return e;
}

enum error_code encoders_fill(struct trainer *trainer, struct error *err)
{
    enum error_code e = OK;
    for (int m = 0; m < trainer->plan.encoders.kinds && !e; m++)
        if (trainer->encoders.of[m].here) e = data_fill(&trainer->encoders.of[m].data, trainer->plan.seed, err);
    return e;
}

void encoders_close(struct trainer *trainer)
{
    struct encoders *const x = &trainer->encoders;
    if (x->request == NULL || x->request->kinds == 0) return;
    encoders_drop_batch(trainer);
    free(x->needs);
    for (int m = 0; m < MODALITIES; m++) {
        if (x->of[m].here) data_close(&x->of[m].data);
        free(x->of[m].parameters.all);
        group_close(&x->of[m].with);
    }
    group_close(&x->world);
    *x = (struct encoders){ 0 };
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

bool encoders_recompute(const struct plan *plan)
{
    /* The layers' choice: an encoder stands before layer 0. */
    const enum recompute of = recompute_of(plan->recompute, 0);
    return of == RECOMPUTE_FULL || of == RECOMPUTE_BUT_ATTENTION;
}

/* Rows of all modalities that a device has in a step, in numbers: those that are kept, and those of one tensor. */
struct rows { int64_t x, inner, D; };

static struct rows rows_of(const struct trainer *trainer, int m)
{
    const int64_t n = trainer->encoders.of[m].here ? encoder_own_patches(trainer, m) : 0;
    return (struct rows){ n * modalities[m].C, n * modalities[m].F, n * trainer->plan.model.D };
}

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

struct encoders_held encoders_activations(const struct trainer *trainer)
{
    const struct encoders *const x = &trainer->encoders;
    const bool again = encoders_recompute(&trainer->plan);
    int64_t now = 0, peak = 0, d_out = 0;
    if (x->request == NULL || x->request->kinds == 0 || x->device == NULL) return (struct encoders_held){ 0 };
    for (int m = 0; m < x->request->kinds; m++) {
        const struct rows r = rows_of(trainer, m);
        now += r.x + 2 * r.inner + r.D, d_out += r.D;
        peak = most(peak, now);
        if (again) now -= 2 * r.inner;
    }
    /* Both sides of the bridge: embeddings, which are freed then, and rows of the stream with room for gradients. */
    const int64_t places = 2 * x->needs[trainer->comm->rank].count * trainer->plan.model.D;
    now += places, peak = most(peak, now);
    now -= d_out;
    const int64_t during = now;
    now += d_out, peak = most(peak, now);
    now -= places;
    for (int m = 0; m < x->request->kinds; m++) {
        const struct rows r = rows_of(trainer, m);
        peak = most(peak, now + 2 * r.inner + (again ? 2 * r.inner : 0));
        now -= r.x + r.D + (again ? 0 : 2 * r.inner);
    }
    const uint64_t size = dtype_size(trainer->plan.dtype);
    return (struct encoders_held){ (uint64_t)during * size, (uint64_t)peak * size };
}

struct model_state encoders_resident(const struct trainer *trainer)
{
    struct model_state sum = { 0 };
    for (int m = 0; m < trainer->plan.encoders.kinds; m++) {
        if (!trainer->encoders.of[m].here) continue;
        const struct model_state one = data_resident(&trainer->encoders.of[m].data);
        sum.weights += one.weights, sum.gradients += one.gradients, sum.optimizer += one.optimizer;
    }
    return sum;
}

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

/* Encoders run one after another, so the largest counts; but weights that stay from forward to backward add up. */
struct model_state encoders_passing(const struct trainer *trainer)
{
    struct model_state all = { 0 };
    for (int m = 0; m < trainer->plan.encoders.kinds; m++) {
        if (!trainer->encoders.of[m].here) continue;
        const struct data_parallel *const d = &trainer->encoders.of[m].data;
        const struct model_state kept = data_resident(d), peak = data_peak(d);
        const uint64_t weights = peak.weights - kept.weights;
        all.weights = d->shards.once ? all.weights + weights : larger(all.weights, weights);
        all.gradients = larger(all.gradients, peak.gradients - kept.gradients);
        all.optimizer = larger(all.optimizer, peak.optimizer - kept.optimizer);
    }
    return all;
}

/* ---- messages, and sums over the devices ------------------------------------------------------------------------- */

struct account encoders_cost(const struct trainer *trainer, int64_t steps, int64_t skipped)
{
    struct account sum = { 0 };
    for (int m = 0; m < trainer->plan.encoders.kinds; m++) {
        if (!trainer->encoders.of[m].here) continue;
        account_add(&sum, data_cost(&trainer->encoders.of[m].data), steps);
        account_add(&sum, data_renewal_cost(&trainer->encoders.of[m].data), -skipped);
    }
    return sum;
}

void encoders_norm_part(struct trainer *trainer, struct exact_sum *sum)
{
    for (int m = 0; m < trainer->plan.encoders.kinds; m++) {
        struct exact_sum one;
        if (!trainer->encoders.of[m].here) continue;
        data_norm_part(&trainer->encoders.of[m].data, &one);
        exact_add(sum, &one);
    }
}

uint64_t encoders_fingerprint_part(struct trainer *trainer)
{
    uint64_t sum = 0;
    for (int m = 0; m < trainer->plan.encoders.kinds; m++)
        if (trainer->encoders.of[m].here) sum += data_fingerprint_part(&trainer->encoders.of[m].data);
    return sum;
}
