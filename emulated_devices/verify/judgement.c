/* judgement.c -- the verdict of one error beside its bound, for verify/ and for its reports.  The functions are
 * pure: they keep no state and report no error. */
#include "emulated_devices/verify/judgement.h"
#include <math.h>

enum judgement judge_error(double error, double bound)
{
    /* The order of the tests matters: an infinite error is wrong even where the bound would explain everything. */
    if (!isfinite(error)) return JUDGED_WRONG;
    if (error == 0) return JUDGED_RIGHT;
    if (!(bound < 1)) return CANNOT_BE_JUDGED;
    if (error <= bound) return JUDGED_RIGHT;
    return bound > WIDE_BOUND ? CANNOT_BE_JUDGED : JUDGED_WRONG;
}

bool bound_is_wide(double bound) { return bound > WIDE_BOUND; }
