/* golden_bounds.h -- what a golden file holds, in order of execution, each tensor with its bound for a number format.
 *
 * Serial.  The bounds are those stored beside the file, or, if there are none, measured as they were (bounds.h).
 */
#ifndef ORRERY_GOLDEN_BOUNDS_H
#define ORRERY_GOLDEN_BOUNDS_H

#include "ref/golden/bounds.h"

/* What the file says of one tensor. */
struct golden_tensor {
    char name[RECORD_NAME];
    double bound;                       /* relative, norm over norm */
};

struct golden_list {
    int count;
    struct golden_tensor *all;          /* [count] in order of execution */
};

/** Everything the file holds that is computed, with bounds for what is computed in this format.
 *  @param parts, gradient_parts  of how many parts, each stored in 16 bits, a device's result and a gradient of weights
 *      may be the sum.
 *                                Stored bounds allow for BOUND_PARTS; for more they are measured.  @return OK;
 *                                ERR_CHECK if our model
 *  does not compute what is in the file, so that its bounds would be another's; ERR_FILE, ERR_FORMAT, ERR_MEMORY. */
enum error_code golden_measure(const struct golden *, enum dtype, int parts, int gradient_parts, struct golden_list *,
                               struct error *);
void golden_list_free(struct golden_list *);

/** The bound of this tensor, or 0 if there is none of this name. */
double golden_list_bound(const struct golden_list *, const char *name);

#endif
