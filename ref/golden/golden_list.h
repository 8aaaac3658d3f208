/* golden_list.h -- the tensors of a golden file in order of execution, each with its bound for a number format.
 *
 * Serial.  The bounds are stored beside the file; if not, they are measured as in bounds.h.
 *
 * check/report/checker.c and verify/reference/ ask for the list and free it.
 */
#ifndef ORRERY_GOLDEN_LIST_H
#define ORRERY_GOLDEN_LIST_H

#include "ref/error.h"
#include "ref/exact/rule.h"
#include "ref/model/param.h"
#include "ref/numeric/dtype.h"

struct golden;

/* Room for the longest name of a tensor: "adamw/3/exp_avg_sq/" and a parameter's. */
enum { RECORD_NAME = PARAM_NAME + 32 };

/* One tensor of the file. */
struct golden_tensor {
    char name[RECORD_NAME];             /* as in the file */
    double bound;                       /* relative, norm over norm */
};

struct golden_list {
    int count;                          /* tensors of the file */
    struct golden_tensor *all;          /* [count] in order of execution */
};

/** All computed tensors of the file, with the bounds stored beside it for this format.  Nothing is computed.
 *  @return OK; ERR_FILE if there are none; ERR_FORMAT, ERR_MEMORY. */
enum error_code golden_stored(const struct golden *, enum dtype, struct golden_list *, struct error *);

/** All computed tensors of the file, with their bounds for this format.
 *  @param parts, gradient_parts  the number of summands, each stored in 16 bits, of a device's result and of a gradient
 *      of weights.  Stored bounds allow for BOUND_PARTS; for more they are measured.
 *  @return OK; ERR_CHECK if our model does not reproduce the file, so that its bounds would be meaningless; ERR_FILE,
 *      ERR_FORMAT, ERR_MEMORY. */
enum error_code golden_measure(const struct golden *, enum dtype, int parts, int gradient_parts, struct golden_list *,
                               struct error *);
/** Add to each bound what the grids of exact sums may do to the tensor: the farthest of twins whose rows are moved by
 *  their grids (perturb.h).  Stored bounds are those of sums that round.
 *  @return OK; ERR_CHECK if our model does not compute the tensors of the file; ERR_FORMAT, ERR_MEMORY. */
enum error_code golden_add_grids(const struct golden *, enum exact_rule, struct golden_list *, struct error *);
void golden_list_free(struct golden_list *);

/** The bound of this tensor, or 0 if there is none of this name. */
double golden_list_bound(const struct golden_list *, const char *name);

#endif
