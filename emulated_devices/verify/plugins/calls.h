/* calls.h -- calls of collectives whose right result every member can compute, in every format and reduction.
 *
 * Inputs are small whole numbers that depend on (member, index) alone, so every sum is exact in any order.
 * collective.c and collective_sums.c call these functions, which keep no state and report no error.
 */
#ifndef ORRERY_LAW_CALLS_H
#define ORRERY_LAW_CALLS_H

#include "emulated_devices/collectives/collective.h"

/* One call of one of P members. */
struct law_call {
    enum operation operation;           /* which collective */
    int P, rank;                        /* members; which one this is */
    struct collective args;             /* as the algorithm gets them */
};

/* With operation_has_blocks of algorithm.h: the smaller buffer is a block of the larger one. */
bool call_reduces(enum operation);
bool call_has_root(enum operation);
bool call_has_blocks(enum operation);

/** Elements that an all-to-all with counts moves from one member to another. */
int64_t call_between(const struct law_call *, int from, int to);

/** Elements before block b of a vector of blocks. */
int64_t call_block_start(const struct law_call *, int b);

/** Elements of this member's input and output. */
int64_t call_in_length(const struct law_call *);
int64_t call_out_length(const struct law_call *);

/** Write or read an element of an array of any format. */
void call_put(enum dtype, void *array, int64_t i, double x);
double call_get(enum dtype, const void *array, int64_t i);

/** The number of a member at an index: what an all-reduce adds. */
double call_value(const struct collective *, int member, int64_t i);

/** Element i of this member's input; the right values of its whole output, in the call's format, written to `out`. */
double call_input(const struct law_call *, int64_t i);
void call_write_output(const struct law_call *, void *out);

#endif
