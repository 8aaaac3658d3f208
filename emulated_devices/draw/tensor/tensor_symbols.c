/* tensor_symbols.c -- a backend that multiplies symbols instead of numbers.
 *
 * cli/show/tensor.c calls symbols_compute on every device before the passes.  A product that is wrong becomes NaN;
 * nothing returns an error.
 */
#include "emulated_devices/draw/tensor/tensor.h"
#include "ref/model/families/families.h"
#include <math.h>
#include <stdlib.h>

/* This counts the parts of a set. */
static int parts_in(unsigned set)
{
    int n = 0;
    for (; set; set &= set - 1) n++;
    return n;
}

/* number = place times its parts, then the set in the low bits: sums of numbers add both. */
double symbol_make(struct symbol symbol)
{
    /* place = (matrix SIDE + row) SIDE + column. */
    const int64_t place = ((int64_t)symbol.matrix * SHOW_TENSOR_SIDE + symbol.row) * SHOW_TENSOR_SIDE + symbol.col;
    return (double)((place * parts_in(symbol.parts) << SHOW_TENSOR_DEVICES) | symbol.parts);
}

struct symbol symbol_read(int64_t number)
{
    const unsigned parts = number < 0 ? 0 : (unsigned)(number & ((1 << SHOW_TENSOR_DEVICES) - 1));
    if (parts == 0 || (number >> SHOW_TENSOR_DEVICES) % parts_in(parts) != 0) return (struct symbol){ 0 };
    const int64_t place = (number >> SHOW_TENSOR_DEVICES) / parts_in(parts),
                  matrix = place / (SHOW_TENSOR_SIDE * SHOW_TENSOR_SIDE);
    if (matrix >= LINEAR_MATRIX_COUNT) return (struct symbol){ 0 };
    return (struct symbol){ (enum linear_matrix)matrix, place / SHOW_TENSOR_SIDE % SHOW_TENSOR_SIDE,
                            place % SHOW_TENSOR_SIDE, parts };
}

/* NaN marks an invalid element. */
int64_t symbol_number(double x) { return x >= 0 && x < 0x1p53 ? (int64_t)x : -1; }

void symbols_record(struct record *record, int what, picoseconds time, const double *symbols, int64_t count)
{
    record_event(record, what, time, count);
    for (int64_t i = 0; i < count; i++) record_number(record, symbol_number(symbols[i]));
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* Operations get only their tensors, so their context is global: a process is one device. */
static struct { const struct linear_layer *layer; struct record *record; struct ops ops; } here;

/* A factor; down: the inner dimension is its row index, otherwise its column index. */
struct factor { enum linear_matrix matrix; struct tensor t; bool down; };

/* The result is the symbol of a factor at an outer and an inner index. */
static struct symbol symbol_at(struct factor factor, int64_t outer, int64_t inner)
{
    const int64_t row = factor.down ? inner : outer, col = factor.down ? outer : inner;
    return symbol_read(symbol_number(((const double *)factor.t.data)[row * tensor_cols(factor.t) + col]));
}

static int64_t outer_index(struct factor factor, struct symbol symbol) { return factor.down ? symbol.col : symbol.row; }
static int64_t inner_index(struct factor factor, struct symbol symbol) { return factor.down ? symbol.row : symbol.col; }

/* An inner dimension has P parts.  The inner dimension of QKV has P parts in each of queries, keys and values: a
 * part is a head. */
static int tensor_symbols_part_of(struct factor factor, int64_t inner, int64_t *size)
{
    const struct linear_layer *l = here.layer;
    const int P = l->tp.devices;
    const int64_t whole = factor.down ? linear_rows(l, factor.matrix) : linear_cols(l, factor.matrix);
    const int64_t period = whole == l->O && l->role == ROLE_QKV ? whole / 3 : whole;
    *size = whole / P;
    return (int)(inner % period * P / period);
}

/* One element of a product: NaN if the factors' indices differ, a factor is not whole, or a part is incomplete. */
static double tensor_symbols_product(enum linear_matrix to, struct factor a, struct factor b, int64_t row, int64_t col)
{
    const unsigned whole = (1u << here.layer->tp.devices) - 1;
    int64_t there[SHOW_TENSOR_DEVICES] = { 0 }, size = 0;
    struct symbol made = { .matrix = to };
    const int64_t inner = a.down ? tensor_rows(a.t) : tensor_cols(a.t);
    /* Both factors must have the same inner index at k, and the same outer index all along. */
    for (int64_t k = 0; k < inner; k++) {
        const struct symbol x = symbol_at(a, row, k), y = symbol_at(b, col, k);
        if (x.matrix != a.matrix || y.matrix != b.matrix || x.parts != whole || y.parts != whole ||
            inner_index(a, x) != inner_index(b, y))
            return NAN;
        if (k > 0 && (outer_index(a, x) != made.row || outer_index(b, y) != made.col)) return NAN;
        made.row = outer_index(a, x), made.col = outer_index(b, y);
        const int part = tensor_symbols_part_of(a, inner_index(a, x), &size);
        there[part]++;
        made.parts |= 1u << part;
    }
    for (int p = 0; p < SHOW_TENSOR_DEVICES; p++)
        if (there[p] != 0 && there[p] != size) return NAN;
    return symbol_make(made);
}

/* to [rows, columns] = or += a b, element by element, in one round.  Three events tell both factors and what was
 * made. */
static void tensor_symbols_multiply(enum linear_matrix matrix, struct tensor to, bool add, struct factor a,
                                    struct factor b)
{
    struct clock *clock = &here.layer->tp.device->clock;
    double *y = to.data;
    clock->now += TENSOR_ROUND;
    symbols_record(here.record, FACTOR_LEFT, clock->now, a.t.data, tensor_count(a.t));
    symbols_record(here.record, FACTOR_RIGHT, clock->now, b.t.data, tensor_count(b.t));
    record_event(here.record, add ? PRODUCT_ADDED : PRODUCT_SET, clock->now, tensor_count(to));
    for (int64_t i = 0; i < tensor_count(to); i++) {
        const double made = tensor_symbols_product(matrix, a, b, i / tensor_cols(to), i % tensor_cols(to));
        y[i] = add ? y[i] + made : made;
        record_number(here.record, symbol_number(made));
    }
}

static void tensor_symbols_forward(struct tensor Y, struct tensor X, struct tensor W, struct tensor b)
{
    (void)b;
    tensor_symbols_multiply(LINEAR_Y, Y, false, (struct factor){ LINEAR_X, X, false },
                            (struct factor){ LINEAR_W, W, false });
}

static void forward_add(struct tensor Y, struct tensor X, struct tensor W)
{
    tensor_symbols_multiply(LINEAR_Y, Y, true, (struct factor){ LINEAR_X, X, false },
                            (struct factor){ LINEAR_W, W, false });
}

static void tensor_symbols_backward_input(struct tensor dX, struct tensor dY, struct tensor W)
{
    tensor_symbols_multiply(LINEAR_dX, dX, false, (struct factor){ LINEAR_dY, dY, false },
                            (struct factor){ LINEAR_W, W, true });
}

static void backward_weight(struct tensor dW, struct tensor db, struct tensor dY, struct tensor X)
{
    (void)db;
    tensor_symbols_multiply(LINEAR_dW, dW, true, (struct factor){ LINEAR_dY, dY, true },
                            (struct factor){ LINEAR_X, X, true });
}

void symbols_compute(const struct linear_layer *layer, struct record *record)
{
    /* The other operations of the device stay as they are. */
    here.layer = layer, here.record = record, here.ops = *layer->tp.device->ops;
    here.ops.linear_forward = tensor_symbols_forward, here.ops.linear_forward_add = forward_add;
    here.ops.linear_backward_input = tensor_symbols_backward_input, here.ops.linear_backward_weight = backward_weight;
    layer->tp.device->ops = &here.ops;
}

/* ---- a device of `orrery show` ----------------------------------------------------------------------------------- */

/* A cluster whose time counts rounds: a message occupies its ports for one round, and so does a product
 * (symbols_compute). */
static const struct cluster rounds = { .name = "rounds", .levels = 1,
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
    if (!e && world->rank == 0) e = show_tensor_draw(&t, &a->files, err);
    for (int pass = 0; pass < SHOW_TENSOR_PASSES; pass++) records_free(t.record[pass], world->size);
    e = comm_agree(world, e, err);
    linear_close(&l);
    return e;
}
