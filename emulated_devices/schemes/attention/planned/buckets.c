/* buckets.c -- the buckets of buckets.h by dynamic programming, O(q n log n) steps for q buckets of n lengths.
 * flexsp_plan.c calls it; the result is -1 if there is no memory.  No function returns an error code. */
#include "emulated_devices/schemes/attention/planned/buckets.h"
#include <stdlib.h>

/* The least that is added to the first k lengths: with some buckets, and with one more. */
struct table {
    const int64_t *length, *before;     /* [n], [n + 1] sums of the lengths before */
    int64_t *fewer, *now;               /* [n + 1] */
    int *from;                          /* [n + 1] where the last of the buckets begins */
};

/* The tokens that one bucket adds to lengths j to k-1. */
static int64_t added(const struct table *table, int j, int k)
{
    return table->length[j] * (k - j) - (table->before[k] - table->before[j]);
}

/* Set now[low .. high]; their last buckets begin at first .. last.  That of a larger k does not begin earlier: if a
 * longer bucket gets worse, then by more. */
static void buckets_fill(const struct table *table, int low, int high, int first, int last)
{
    if (low > high) return;
    const int k = low + (high - low) / 2;
    int best = first;
    table->now[k] = INT64_MAX;
    for (int j = first; j <= last && j < k; j++) {
        const int64_t sum = table->fewer[j] == INT64_MAX ? INT64_MAX : table->fewer[j] + added(table, j, k);
        if (sum < table->now[k]) table->now[k] = sum, best = j;
    }
    table->from[k] = best;
    /* The best start for k bounds the starts on both sides, so a table takes O(n log n) steps. */
    buckets_fill(table, low, k - 1, first, best);
    buckets_fill(table, k + 1, high, best, last);
}

int64_t bucket_lengths(int64_t bucketed[], const int64_t length[], int n, int most)
{
    /* More buckets than lengths would be empty. */
    const size_t entries = (size_t)n + 1;
    const int buckets = most < n ? most : n;
    int64_t *const room = malloc(3 * entries * sizeof *room), sum = -1;
    int *const from = calloc(((size_t)buckets + 1) * entries, sizeof *from);
    if (room && from) {
        struct table t = { .length = length, .before = room, .fewer = room + entries, .now = room + 2 * entries };
        room[0] = 0;
        for (int i = 0; i < n; i++) room[i + 1] = room[i] + length[i];
        for (int k = 0; k <= n; k++) t.fewer[k] = k == 0 ? 0 : INT64_MAX;
        /* Each round allows one bucket more: now[k] = min_j fewer[j] + added(j, k). */
        for (int q = 0; q < buckets; q++) {
            int64_t *const done = t.now;
            t.from = from + (size_t)q * entries, t.now[0] = INT64_MAX;
            buckets_fill(&t, 1, n, 0, n - 1);
            t.now = t.fewer, t.fewer = done;
        }
        sum = t.fewer[n];
        /* The last bucket is read first; its start is the end of the one before. */
        for (int q = buckets - 1, end = n, first; q >= 0; q--, end = first) {
            first = from[(size_t)q * entries + (size_t)end];
            /* Lengths fall, so the first of a bucket is its longest. */
            for (int i = first; i < end; i++) bucketed[i] = length[first];
        }
    }
    free(room), free(from);
    return sum;
}
