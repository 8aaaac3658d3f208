/* tensor.h -- between the files of `orrery show tensor NAME`: what happened while a linear layer was multiplied.
 *
 * The devices work on symbols.  An element of a matrix is a double that is a whole number: its low bits say which of
 * the P parts of an inner dimension are in it, and the rest is its place (matrix, row, column), once for each such
 * part.  Adding two partial sums of the same element adds both: the parts are different, so their sum is their union,
 * and the place is the rest / parts.  An element with all parts is whole, as all those of X, W and dY are.  A backend
 * of its own multiplies symbols: it looks whether the factors belong together and which parts their product has.
 */
#ifndef ORRERY_DRAW_TENSOR_H
#define ORRERY_DRAW_TENSOR_H

#include "emulated_devices/draw/record.h"
#include "emulated_devices/verify/linear.h"

enum { SHOW_TENSOR_DEVICES = 9, SHOW_TENSOR_PASSES = 3, SHOW_TENSOR_SIDE = 64 };
enum { TENSOR_ROUND = 1000000 };        /* picoseconds of a step: of a message, or of a product */

struct symbol { enum linear_matrix matrix; int64_t row, col; unsigned parts; };     /* parts 0: it is none */
double symbol_make(struct symbol);
struct symbol symbol_read(int64_t number);
/* An element as it is written down; -1: what cannot be, a product of what does not belong together. */
int64_t symbol_number(double element);

/* What an event is, if not a message. */
enum { SUM_MADE = -1, FACTOR_LEFT = -2, FACTOR_RIGHT = -3, PRODUCT_SET = -4, PRODUCT_ADDED = -5 };

/** Write symbols down as an event. */
void symbols_record(struct record *, int what, picoseconds time, const double *symbols, int64_t count);

/** Let the layer's device multiply symbols from now on, each product a round, and write them down. */
void symbols_compute(const struct linear_layer *, struct record *);

/* One pass on one device. */
struct pass_outcome {
    uint64_t messages, bytes, additions;
    bool as_cost, whole;                /* these are the cost function's; the result is there, every part of it once */
    int64_t got, want;                  /* of the first element that is not */
};

struct tensor_trace {
    const struct linear_layer *layer;
    const char *role;
    int P;
    struct record record[SHOW_TENSOR_PASSES][SHOW_TENSOR_DEVICES];
    struct pass_outcome outcome[SHOW_TENSOR_PASSES][SHOW_TENSOR_DEVICES];
};

/** Draw it to stdout in 100 columns.  @return OK, or ERR_CHECK if a device did not send what its cost function says or
 *  has not its piece of a result. */
enum error_code show_tensor_draw(const struct tensor_trace *, struct error *);

#endif
