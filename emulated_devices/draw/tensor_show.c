/* tensor_show.c -- runs one linear layer forward and backward on symbols, under a tensor scheme, and collects the
 * events on rank 0.  cli/show/tensor.c starts tensor_show on every device. */
#include "emulated_devices/draw/tensor.h"
#include "ref/model/families/families.h"
#include <stdlib.h>

/* A cluster whose time counts rounds: a message occupies its ports for one round, and so does a product
 * (symbols_compute). */
static const struct cluster rounds = { .name = "rounds",
                                       .levels = 1,
                                       .link = { { .gap = TENSOR_ROUND, .eager = ALWAYS_EAGER } } };

static void note_received(void *record, const struct exchange *exchange, int from, const void *data, uint64_t bytes)
{
    struct device *d = exchange->group->comm->device;
    const double *seen = host_read(d, data, bytes);
    symbols_record(record, exchange->group->member[from], d->clock.received, seen, (int64_t)(bytes / sizeof *seen));
    host_done(d, seen);
}

static void note_reduced(void *record, const struct exchange *exchange, enum dtype dtype, const void *into,
                         int64_t count)
{
    struct device *d = exchange->group->comm->device;
    const double *seen = host_read(d, into, (uint64_t)count * dtype_size(dtype));
    symbols_record(record, SUM_MADE, d->clock.now, seen, count);
    host_done(d, seen);
}

/* For every element of this device's piece of a matrix: set its symbol, or check it. */
struct naming {
    enum linear_matrix matrix;
    int64_t cols;
    unsigned whole;
    double *piece;
    bool give, wrong;
    double got, want;
};

static void name_run(void *context, struct run run)
{
    struct naming *n = context;
    for (int64_t i = 0; i < run.length; i++) {
        const double name =
            symbol_make((struct symbol){ n->matrix, (run.whole + i) / n->cols, (run.whole + i) % n->cols, n->whole });
        if (n->give) n->piece[run.piece + i] = name;
        if (n->wrong || n->piece[run.piece + i] == name) continue;
        n->wrong = true, n->got = n->piece[run.piece + i], n->want = name;
    }
}

static struct naming names(const struct linear_layer *layer, enum linear_matrix matrix, bool give)
{
    struct views v = views_of(layer->tp.device);
    struct naming n = { .matrix = matrix, .cols = linear_cols(layer, matrix), .whole = (1u << layer->tp.devices) - 1,
                       .give = give };
    n.piece = view_write(&v, linear_own(layer, matrix)).data;
    struct part p = linear_part(layer, layer->tp.rank, matrix);
    part_each_run(&p, name_run, &n);
    part_free(&p);
    views_end(&v);
    return n;
}

static enum error_code run_pass(struct comm *world, struct linear_layer *layer, enum tensor_pass pass,
                                struct record *record, struct pass_outcome *outcome, struct error *err)
{
    static const enum linear_matrix result[] = { LINEAR_Y, LINEAR_dX, LINEAR_dW };
    const struct listener listener = { record, note_received, note_reduced };
    const struct traffic cost = linear_pass_cost(layer, pass);
    clock_restart(&world->device->clock, &rounds, F64);
    symbols_compute(layer, record);
    world->listener = &listener;
    enum error_code e = linear_pass(layer, pass, err);
    world->listener = NULL;
    for (int op = 0; op < CONTROL; op++) {
        struct traffic *t = &world->counted.of[TRAFFIC_TENSOR].of[op];
        outcome->messages += t->messages_sent, outcome->bytes += t->bytes_sent, outcome->additions += t->additions;
        *t = (struct traffic){ 0 };
    }
    outcome->as_cost = outcome->messages == cost.messages_sent && outcome->bytes == cost.bytes_sent
        && outcome->additions == cost.additions;
    const struct naming n = names(layer, result[pass], false);
    outcome->whole = !n.wrong, outcome->got = symbol_number(n.got), outcome->want = symbol_number(n.want);
    return comm_agree(world, e ? e : record_check(record, err), err);
}

enum error_code tensor_show(struct comm *world, const void *shown, struct error *err)
{
    const struct tensor_shown *a = shown;
    struct linear_layer l;
    struct tensor_trace t = { .layer = &l, .role = a->role, .P = world->size };
    const int P = world->size;              /* divides all sizes */
    const struct model_config even = { .family = &family_gpt2, .S = 1, .D = 2 * P, .H = P, .K = P, .A = 2,
                                       .F = 4 * P, .L = 1, .V = 3 * P };
    enum error_code e = record_check_devices(world, a->devices, err);
    if (e) return e;
    e = linear_shape(&l, a->scheme, a->matrix, P, &even, 2 * P, err);
    if (!e) e = comm_agree(world, linear_open(&l, world->everyone, err), err);
    if (!e) names(&l, LINEAR_X, true), names(&l, LINEAR_W, true), names(&l, LINEAR_dY, true);
    for (enum tensor_pass pass = FORWARD_PASS; pass <= WEIGHT_PASS && !e; pass++) {
        struct record own = { 0 };
        struct pass_outcome outcome = { 0 };
        e = run_pass(world, &l, pass, &own, &outcome, err);
        if (!e) e = record_bring(world, &own, t.record[pass], err);
        if (!e) e = comm_bring(world, &outcome, sizeof outcome, t.outcome[pass], err);
        free(own.number);
    }
    if (!e && world->rank == 0) e = show_tensor_draw(&t, err);
    for (int pass = 0; pass < SHOW_TENSOR_PASSES; pass++) records_free(t.record[pass], world->size);
    e = comm_agree(world, e, err);
    linear_close(&l);
    return e;
}
