/* tiers_claims.c -- SN40L's claims, as counters.  claims.c calls.  No errors. */
#include "emulated_devices/bench/serving/claims.h"
#include "emulated_devices/bench/serving/tiers.h"

enum error_code tiers_claims(const struct serving_claims *claims, struct error *err)
{
    static const int trace[] = { 0, 1, 2, 0, 3, 1, 0, 2, 4, 0 };        /* ABCADBACEA */
    enum { REQUESTS = sizeof trace / sizeof *trace };
    int64_t lru[3], best[3];
    (void)err;
    for (int room = 2; room <= 4; room++) {
        lru[room - 2] = tiers_serve(trace, REQUESTS, room, 1, false).hits;
        best[room - 2] = tiers_serve(trace, REQUESTS, room, 1, true).hits;
    }
    serving_claim(claims, "SN40L", "ABCADBACEA with 2, 3, 4 models in HBM: hits of LRU, of the offline optimum",
                  "0 3 5, 3 4 5", lru[0] == 0 && lru[1] == 3 && lru[2] == 5 && best[0] == 3 && best[1] == 4 &&
                  best[2] == 5, "%d %d %d, %d %d %d", (int)lru[0], (int)lru[1], (int)lru[2], (int)best[0], (int)best[1],
                  (int)best[2]);
    /* 150 experts of 7 billion parameters in 16 bits: one at a time in HBM, in place of all. */
    const int64_t model = (int64_t)14e9, apart = tiers_chain(8, 1 << 20, 0, false),
                  fused = tiers_chain(8, 1 << 20, 0, true);
    serving_claim(claims, "SN40L", "bytes that a switch moves, of 150 experts of 7B that take 2.1 TB", "14 GB",
                  tiers_serve(trace, 1, 1, model, false).bytes == model, "%.0f GB", 1e-9 * (double)model);
    serving_claim(claims, "SN40L", "8 operations fused: tensors between them that never reach HBM", "7",
                  apart - fused == 2 * 7 * (1 << 20), "%d, written and read", (int)((apart - fused) / (2 << 20)));
    return OK;
}
