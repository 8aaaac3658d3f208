/* judgement.h -- what an error beside its bound means, in all checks.
 *
 * Serial.  Error and bound are relative: norm over norm.  A bound is what rounding alone may do.  Where it is 1 or
 * more, even a tensor of zeros is within it: rounding explains anything, and nothing can be judged.  Where it is above
 * WIDE_BOUND, a difference inside is right, but a reader is warned; a difference outside is too near to what rounding
 * does to be called wrong.  verify/reference/comparison.c calls these functions.
 */
#ifndef ORRERY_JUDGEMENT_H
#define ORRERY_JUDGEMENT_H

#include <stdbool.h>

/* A relative bound above a tenth still judges, but the report warns of the bound. */
#define WIDE_BOUND 0.1

enum judgement { JUDGED_RIGHT, JUDGED_WRONG, CANNOT_BE_JUDGED };

/** Judge an error by its bound.  What is equal is right, whatever the bound is.  What is not finite is wrong: rounding
 *  does not make it. */
enum judgement judge_error(double error, double bound);

/** Whether a reader is warned of a bound by which something was judged right. */
bool bound_is_wide(double bound);

#endif
