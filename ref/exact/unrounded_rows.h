/* unrounded_rows.h -- kept sums of a result of which this device has rounded some rows, and others the rest.
 *
 * unrounded.c keeps these sums as those of a result of their own.  verify/reference/ reads them, on each device.
 */
#ifndef ORRERY_UNROUNDED_ROWS_H
#define ORRERY_UNROUNDED_ROWS_H

#include "ref/numeric/tensor.h"

/** Take the sums of a result as unrounded_take does, or else those of some elements of it.
 *  @param[out] first  the first of these elements.
 *  @return an EXACT tensor, whose data are for free(): the result's shape, or a vector; none if nothing is kept. */
struct tensor unrounded_take_rows(struct tensor result, int64_t *first);

#endif
