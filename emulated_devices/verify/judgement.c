#include "emulated_devices/verify/judgement.h"
#include <math.h>

enum judgement judge_error(double error, double bound)
{
    if (!isfinite(error)) return JUDGED_WRONG;
    if (error == 0) return JUDGED_RIGHT;
    if (!(bound < 1)) return CANNOT_BE_JUDGED;
    if (error <= bound) return JUDGED_RIGHT;
    return bound > WIDE_BOUND ? CANNOT_BE_JUDGED : JUDGED_WRONG;
}

bool bound_is_wide(double bound) { return bound > WIDE_BOUND; }
