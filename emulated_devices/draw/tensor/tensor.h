/* tensor.h -- the events during the products of a linear layer; shared by the files of `orrery show tensor NAME`.
 *
 * The devices work on symbols.  An element of a matrix is a double with an integer value.  Its low bits are the set of
 * those of the P parts of an inner dimension that are in it.  The rest is the sum of its place (matrix, row, column),
 * once for each such part, so the place is rest / parts.  Adding two partial sums of the same element adds both: the
 * parts are different, so the sum of the bits is their union.  An element with all parts is whole, as those of X, W and
 * dY.  A special backend multiplies symbols: it checks that the factors fit, and finds the parts of their product.
 *
 * tensor_symbols.c runs three passes on the devices, judges each piece, and draws on rank 0. Doubles hold symbols
 * exactly below 2^53, which limits devices and sides.  cli/show/tensor.c starts tensor_show on every device.
 */
#ifndef ORRERY_DRAW_TENSOR_H
#define ORRERY_DRAW_TENSOR_H

#include "emulated_devices/draw/picture_files.h"
#include "emulated_devices/draw/record.h"
#include "emulated_devices/verify/cases/linear.h"

enum { SHOW_TENSOR_DEVICES = 9, SHOW_TENSOR_PASSES = 3, SHOW_TENSOR_SIDE = 64 };
enum { TENSOR_ROUND = 1000000 };        /* picoseconds of a step: of a message, or of a product */

struct symbol { enum linear_matrix matrix; int64_t row, col; unsigned parts; };     /* parts 0: it is none */
double symbol_make(struct symbol);
struct symbol symbol_read(int64_t number);
/* An element as it is recorded; -1: an invalid product, of factors that do not fit. */
int64_t symbol_number(double element);

/* Kinds of events that are not messages. */
enum { SUM_MADE = -1, FACTOR_LEFT = -2, FACTOR_RIGHT = -3, PRODUCT_SET = -4, PRODUCT_ADDED = -5 };

/** Record symbols as an event. */
void symbols_record(struct record *, int what, picoseconds time, const double *symbols, int64_t count);

/** From now on the layer's device multiplies symbols, one round per product, and records them. */
void symbols_compute(const struct linear_layer *, struct record *);

/* An outcome is of one pass on one device. */
struct pass_outcome {
    uint64_t messages, bytes, additions;        /* by the device, as counted */
    bool as_cost, whole;                /* these equal the cost function; the result has every part exactly once */
    int64_t got, want;                  /* the first wrong element */
};

struct tensor_trace {
    const struct linear_layer *layer;   /* that was run */
    const char *role;                   /* name of its matrix: "qkv" */
    int P;                              /* devices */
    struct record record[SHOW_TENSOR_PASSES][SHOW_TENSOR_DEVICES]; /**< Records by pass and device. */
    struct pass_outcome outcome[SHOW_TENSOR_PASSES][SHOW_TENSOR_DEVICES]; /**< Outcomes by pass and device. */
};

/* This says which layer is shown. */
struct tensor_shown {
    const struct tensor_scheme *scheme;                                   /**< Scheme that is shown. */
    const char *role;                   /* the name of the matrix */
    enum param_role matrix;             /* its role in a block */
    int devices;                        /* of the tp group */
    struct picture_files files;         /* also draw to these */
};

/** Be one device: run three passes, judge each piece, and draw on rank 0.  Collective over all devices.
 *  @param shown  a struct tensor_shown.  @return as show_tensor_draw, or why a pass cannot run. */
enum error_code tensor_show(struct comm *, const void *shown, struct error *);

/** Draw the passes to stdout in 100 columns, and to files.  @return OK, ERR_FILE, or ERR_CHECK if
 *  a device's messages differ from its cost function, or its piece of a result is wrong. */
enum error_code show_tensor_draw(const struct tensor_trace *, const struct picture_files *, struct error *);

#endif
