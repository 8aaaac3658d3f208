/* padding.c -- arithmetic of a padded vocabulary.  run/words/take.c and bench/plan_speed.c call.  The function is pure,
 * and cannot fail. */
#include "emulated_devices/plan/padding.h"

int64_t padded_vocabulary(int64_t V, int n, int tp)
{
    const int64_t multiple = (int64_t)n * tp;
    return multiple == 0 ? V : (V + multiple - 1) / multiple * multiple;
}
