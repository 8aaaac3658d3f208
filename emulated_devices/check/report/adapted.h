/* adapted.h -- holds a program that trains low-rank adapters to a golden file of the whole weights.
 *
 * The golden file's model has the weights W + s B A that the program begins with.  Activations, the loss and gradients
 * of activations of the first pass are then those of the file.  Gradients of A and B follow from the file's gradient of
 * W.  Frozen weights must stay.  All that comes after a step is the program's own: it is judged by its own inputs.
 * checker.c calls adapted_take for each golden tensor.
 */
#ifndef ORRERY_ADAPTED_H
#define ORRERY_ADAPTED_H

#include "emulated_devices/check/report/checker.h"

/** Check that the adapters of a dump are of matrices of the golden file's model.  @return OK, also without adapters;
 *  ERR_FORMAT. */
enum error_code adapted_check(const struct golden *, const struct actual *, struct error *);

/** How many tensors of a result a golden tensor may become. */
int adapted_most(const struct actual *);

/** Compare the weight that a program with adapters begins with: its base and s B A together.
 *  @param checked  its name is set.  @return as checker_compare; *is: whether the weight has adapters. */
enum error_code adapted_start(const struct golden *, const struct actual *, struct checked *checked, bool *is,
                              enum dtype, struct error *);

/** Hold the frozen weights that the program has after its steps to those that it began with.  They come first in the
 *  result: what has moved makes all that follows wrong.  @return OK; ERR_FILE, ERR_FORMAT, ERR_MEMORY. */
enum error_code adapted_frozen(const struct golden *, const struct actual *, struct check_result *, enum dtype,
                               struct error *);

/**
 * Judge what stands in the place of a golden tensor where there are adapters: gradients of A and B in the place of that
 * of W, and so on.
 * @param checked  its name and bound are those of the golden tensor.
 * @param[out] is  whether it is done: nothing else is to be compared for this golden tensor.
 * @return OK; ERR_FILE, ERR_FORMAT, ERR_MEMORY.
 */
enum error_code adapted_take(const struct golden *, const struct actual *, const struct checked *checked, bool *is,
                             struct check_result *, enum dtype, struct error *);

#endif
