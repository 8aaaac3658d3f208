/* placement.c -- distributes layers over stages of unequal speed.
 *
 * plan/check.c calls layers_by_speed if the user has given speeds of devices.  The greedy choice is exact there: a
 * layer given earlier never has to move.  bench/recovery.c calls layers_by_time.  Errors: ERR_PLAN, ERR_MEMORY.
 */
#include "emulated_devices/schemes/pipeline/placement.h"
#include <stdbool.h>
#include <stdlib.h>

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

/* ---- layers of unequal times ------------------------------------------------------------------------------------- */

enum { LARGEST = 1000000 };             /* time and speed: a product of a sum and a speed fits 64 bits */

/* The slowest stage of a cut: a time over a speed. */
struct slowest { int64_t time, speed; int cut; };

static bool is_faster(struct slowest a, struct slowest b) { return a.time * b.speed < b.time * a.speed; }

static enum error_code check_times(const int64_t *time, int layers, int stages, const int64_t *speed,
                                   struct error *err)
{
    if (stages < 1 || layers < stages || layers > LARGEST)
        return fail(err, ERR_PLAN, "layers=%d cannot be cut over stages=%d: each stage needs at least one", layers,
                    stages);
    for (int i = 0; i < layers; i++)
        if (time[i] < 1 || time[i] > LARGEST)
            return fail(err, ERR_PLAN, "layer %d: time=%lld must be 1..%d", i, (long long)time[i], LARGEST);
    for (int i = 0; i < stages; i++)
        if (speed[i] < 1 || speed[i] > LARGEST)
            return fail(err, ERR_PLAN, "stage %d: speed=%lld must be 1..%d", i, (long long)speed[i], LARGEST);
    return OK;
}

/* The best cut of the first i layers on the stages before and this one. */
static struct slowest cut_at_best(const struct slowest *before, const int64_t *sum, int i, int stage, int64_t speed)
{
    struct slowest best = { -1, 1, -1 };
    for (int j = stage; j < i; j++) {
        struct slowest own = { sum[i] - sum[j], speed, j };
        if (stage > 0 && is_faster(own, before[j])) own = (struct slowest){ before[j].time, before[j].speed, j };
        if (best.cut < 0 || is_faster(own, best)) best = own;
        if (stage == 0) break;
    }
    return best;
}

enum error_code layers_by_time(const int64_t *time, int layers, int stages, const int64_t *speed, int *count,
                               struct error *err)
{
    enum error_code e = check_times(time, layers, stages, speed, err);
    if (e) return e;
    const size_t row = (size_t)layers + 1;
    struct slowest *const best = calloc(row * (size_t)stages, sizeof *best);
    int64_t *const sum = calloc(row, sizeof *sum);
    if (best && sum) {
        for (int i = 0; i < layers; i++) sum[i + 1] = sum[i] + time[i];
        for (int k = 0; k < stages; k++)
            for (int i = k + 1; i <= layers; i++)
                best[(size_t)k * row + (size_t)i] =
                    cut_at_best(k > 0 ? best + (size_t)(k - 1) * row : NULL, sum, i, k, speed[k]);
        for (int k = stages - 1, end = layers; k >= 0; k--) {
            const int cut = best[(size_t)k * row + (size_t)end].cut;
            count[k] = end - cut, end = cut;
        }
    } else e = fail(err, ERR_MEMORY, "no memory to cut %d layers", layers);
    free(best), free(sum);
    return e;
}
