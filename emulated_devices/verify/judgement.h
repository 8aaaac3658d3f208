/* judgement.h -- what an error beside its bound means, in all checks.
 *
 * Serial.  Error and bound are relative: norm over norm.  A bound is what rounding alone may do.  Where it is 1 or more,
 * even a tensor of zeros is within it: rounding explains anything, and nothing can be judged.  Where it is above
 * WIDE_BOUND, a difference inside is right, but a reader is warned; a difference outside is too near to what rounding
 * does to be called wrong.
 */
#ifndef ORRERY_JUDGEMENT_H
#define ORRERY_JUDGEMENT_H

#include <math.h>
#include <stdbool.h>

#define WIDE_BOUND 0.1

enum judgement { JUDGED_RIGHT, JUDGED_WRONG, CANNOT_BE_JUDGED };

/** Judge an error by its bound.  What is equal is right, whatever the bound is; what is not finite is wrong: rounding does
 *  not make it. */
static inline enum judgement judge_error(double error, double bound)
{
    if (!isfinite(error)) return JUDGED_WRONG;
    if (error == 0) return JUDGED_RIGHT;
    if (!(bound < 1)) return CANNOT_BE_JUDGED;
    if (error <= bound) return JUDGED_RIGHT;
    return bound > WIDE_BOUND ? CANNOT_BE_JUDGED : JUDGED_WRONG;
}

/** Whether a reader is warned of a bound by which something was judged right. */
static inline bool bound_is_wide(double bound) { return bound > WIDE_BOUND; }

#endif
