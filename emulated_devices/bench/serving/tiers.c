/* tiers.c -- counts what moves between the memories of SN40L.  tiers_claims.c calls.  No errors. */
#include "emulated_devices/bench/serving/tiers.h"

/* The place of the model to take out: of those in HBM. */
static int victim_of(const int *model, int64_t requests, int64_t now, const int *held, int room, bool optimum)
{
    int worst = 0;
    int64_t farthest = -1;
    for (int i = 0; i < room; i++) {
        int64_t at = now;
        if (optimum) do at++; while (at < requests && model[at] != held[i]);
        else do at--; while (at >= 0 && model[at] != held[i]);
        const int64_t distance = optimum ? at - now : now - at;
        if (distance > farthest) farthest = distance, worst = i;
    }
    return worst;
}

struct tiers_counts tiers_serve(const int *model, int64_t requests, int room, int64_t bytes, bool optimum)
{
    struct tiers_counts c = { 0, 0, 0 };
    int held[TIERS_MODELS], count = 0;
    for (int64_t i = 0; i < requests; i++) {
        int at = 0;
        while (at < count && held[at] != model[i]) at++;
        if (at < count) {
            c.hits++;
            continue;
        }
        c.misses++, c.bytes += bytes;
        held[count < room ? count++ : victim_of(model, requests, i, held, room, optimum)] = model[i];
    }
    return c;
}

int64_t tiers_chain(int operations, int64_t tensor, int64_t weights, bool fused)
{
    int64_t moved = 0;
    for (int i = 0; i < operations; i++) {
        const bool reads = !fused || i == 0, writes = !fused || i == operations - 1;
        moved += weights + (reads ? tensor : 0) + (writes ? tensor : 0);
    }
    return moved;
}
