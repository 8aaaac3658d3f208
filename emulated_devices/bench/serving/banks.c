/* banks.c -- reads the bursts of a product in memory, one by one, and counts the rows that open.  banks_claims.c calls.
 * No errors. */
#include "emulated_devices/bench/serving/banks.h"

static int64_t upward(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Where number k of output i of a bank is, in bytes. */
static int64_t place_of_number(int64_t i, int64_t k, int64_t outputs, int64_t K, enum banks_mapping mapping)
{
    const int64_t bytes = K * BANKS_NUMBER;
    if (mapping == BANKS_NAIVE) return (k * outputs + i) * BANKS_NUMBER;
    return (mapping == BANKS_PACKED ? i * bytes : i * upward(bytes, BANKS_ROW) * BANKS_ROW) + k * BANKS_NUMBER;
}

/* A bank reads its outputs, number by number; a burst may hold the end of one output and the beginning of the next. */
static void read_bank(struct banks_counts *counts, int64_t outputs, int64_t K, enum banks_mapping mapping)
{
    int64_t open = -1, last = -1, activations = 0, bursts = 0;
    for (int64_t i = 0; i < outputs; i++) {
        for (int64_t k = 0; k < K; k++) {
            const int64_t burst = place_of_number(i, k, outputs, K, mapping) / BANKS_BURST;
            if (burst == last) continue;
            last = burst, bursts++;
            if (burst * BANKS_BURST / BANKS_ROW == open) continue;
            open = burst * BANKS_BURST / BANKS_ROW, activations++;
        }
        counts->products += K;
    }
    if (activations > counts->activations) counts->activations = activations, counts->bursts = bursts;
    counts->all_activations += activations, counts->all_bursts += bursts;
}

struct banks_counts banks_multiply(int64_t N, int64_t K, enum banks_mapping mapping)
{
    struct banks_counts c = { .channel_bytes = BANKS_CHANNELS * K * BANKS_NUMBER + N * BANKS_NUMBER };
    for (int64_t bank = 0; bank < BANKS; bank++) read_bank(&c, (N - bank + BANKS - 1) / BANKS, K, mapping);
    return c;
}

int64_t banks_formula(int64_t N, int64_t K, enum banks_mapping mapping)
{
    const int64_t outputs = upward(N, BANKS), bytes = K * BANKS_NUMBER;
    const int64_t rows = upward(outputs * bytes, BANKS_ROW);
    if (mapping == BANKS_PADDED) return outputs * upward(bytes, BANKS_ROW);
    return mapping == BANKS_PACKED || rows == 1 ? rows : outputs * rows;
}

double banks_hit_rate(const struct banks_counts *counts)
{
    return 1 - (double)counts->all_activations / (double)counts->all_bursts;
}
