/* placement.c -- distributes layers over stages of unequal speed.
 *
 * plan/check.c calls layers_by_speed if the user has given speeds of devices.  The greedy choice is exact here: a
 * layer given earlier never has to move.  The only error is ERR_PLAN.
 */
#include "emulated_devices/schemes/pipeline/placement.h"

enum { FASTEST = 1000000000, MOST_LAYERS = 1000000000 };

enum error_code layers_by_speed(int layers, int stages, const int64_t *speed, int *count, struct error *err)
{
    /* With both limits at 1e9 the products in the loop below stay under 1e18 and fit 64 bits. */
    if (stages < 1 || layers < stages || layers > MOST_LAYERS)
        return fail(err, ERR_PLAN, "layers=%d cannot be cut over stages=%d: each stage needs at least one", layers,
                    stages);
    for (int i = 0; i < stages; i++) {
        if (speed[i] < 1 || speed[i] > FASTEST)
            return fail(err, ERR_PLAN, "stage %d: speed=%lld must be 1..%d", i, (long long)speed[i], FASTEST);
        count[i] = 1;
    }
    /* The loop gives out the layers beyond the first of each stage.  At the end count sums up to `layers`. */
    for (int given = stages; given < layers; given++) {
        /* Each further layer goes to the stage that then still ends first. */
        int best = 0;
        for (int i = 1; i < stages; i++)                /* (count+1)/speed without division; below 1e18 */
            if ((count[i] + 1) * speed[best] < (count[best] + 1) * speed[i]) best = i;
        count[best]++;
    }
    return OK;
}
