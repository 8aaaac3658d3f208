/* tensor_symbols.c -- a backend that multiplies symbols instead of numbers.
 *
 * cli/show/tensor.c calls symbols_compute on every device before the passes.  A product that is wrong becomes NaN;
 * nothing returns an error.
 */
#include "emulated_devices/draw/tensor.h"
#include <math.h>

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
