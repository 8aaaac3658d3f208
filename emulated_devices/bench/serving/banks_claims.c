/* banks_claims.c -- PIM-GPT's claims, as counters.  claims.c calls.  No errors. */
#include "emulated_devices/bench/serving/banks.h"
#include "emulated_devices/bench/serving/claims.h"
#include <math.h>
#include <stdio.h>

enum error_code banks_claims(const struct serving_claims *claims, struct error *err)
{
    static const struct { int N, K; const char *published; int packed, padded; } shapes[] = {
        { 1024, 1024, "8, 8", 8, 8 }, { 1024, 1536, "12, 16", 12, 16 }, { 4096, 1024, "32, 32", 32, 32 },
        { 1000, 1600, "13, 16", 13, 16 },
    };
    (void)err;
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
        const struct banks_counts packed = banks_multiply(shapes[i].N, shapes[i].K, BANKS_PACKED),
                                  padded = banks_multiply(shapes[i].N, shapes[i].K, BANKS_PADDED);
        char claim[100];
        snprintf(claim, sizeof claim, "%d x %d over 128 banks: rows that a bank opens, packed and padded", shapes[i].N,
                 shapes[i].K);
        serving_claim(claims, "PIM-GPT", claim, shapes[i].published, packed.activations == shapes[i].packed &&
                      padded.activations == shapes[i].padded, "%d, %d", (int)packed.activations,
                      (int)padded.activations);
    }
    const struct banks_counts all = banks_multiply(4096, 1024, BANKS_PACKED),
                              naive = banks_multiply(4096, 1024, BANKS_NAIVE);
    serving_claim(claims, "PIM-GPT", "4096 x 1024, not mapped: each of a bank's 32 outputs opens its 32 rows", "1024",
                  naive.activations == banks_formula(4096, 1024, BANKS_NAIVE) && naive.activations == 1024, "%d",
                  (int)naive.activations);
    serving_claim(claims, "PIM-GPT", "bursts of 32 bytes that find their row of 2 KB open, 63 of 64, in %", "98.4",
                  fabs(banks_hit_rate(&all) - 63. / 64) < 1e-12, "%.1f", 100 * banks_hit_rate(&all));
    return OK;
}
