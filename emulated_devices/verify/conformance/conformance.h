/* conformance.h -- whether a backend computes each operation of the table as ref/ does: one suite for all of them.
 *
 * Each operation runs in four formats, at odd sizes, few rows and none, on operands that begin at odd places, and is
 * held to the same operation of ref/ in fp64 on the same operands.  Rows of operations.h are the operations; those of
 * variants.h have other arguments: masks, windows, groups of heads, wider rows, slices, results in place.
 *
 * Bound, norm over norm: 10 sqrt(n) u + 2 u16.  n is the length of the longest sum, u the unit of the format of sums,
 * u16 that of 16-bit storage, 0 for a result in fp32: docs/checking/checking.md, "What is allowed".  A backend without
 * numbers must have the same costs.  cli/kernel.c and course/compile/kernel_file.c call these functions.
 */
#ifndef ORRERY_CONFORMANCE_H
#define ORRERY_CONFORMANCE_H

#include "emulated_devices/device/backend.h"

enum { CONFORMANCE_SIZES = 8, CONFORMANCE_QUICK = 3 };

/* A row was tried on a backend. */
struct conforms {
    int cases;                          /* sizes times formats */
    int wrong;                          /* of them: above the bound, other costs, or elements written outside */
    double worst;                       /* the largest error over its bound */
};

/* Gets a line for each thing that is wrong. */
typedef void conformance_says(void *to, const char *line);

/** The number of rows. */
int conformance_rows(void);

/** A row's operation, and what differs from the usual call: "attention_forward, masked". */
const char *conformance_row(int row);

/** Try a row on a backend, at the first `sizes` of CONFORMANCE_SIZES; says may be NULL.  Not for several threads.
 *  @return OK, also if the backend does not conform; ERR_DEVICE, ERR_MEMORY: it could not be tried. */
enum error_code conformance_try(struct conforms *, const struct backend *, int row, int sizes, conformance_says *says,
                                void *to, struct error *err);

#endif
