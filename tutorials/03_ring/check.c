/* check.c -- judges lesson 03.  The student writes ring.c: a reduce-scatter, an all-gather and an all-reduce on a
 * ring of W devices.  The variants RING and OWNER say in which direction messages go and which block a device
 * finishes.  Sums are compared to the bit, so the order round the ring matters.  emulated_devices/course/judge.c runs
 * each check in a process of its own; a failed check is a line for the student. */
#include "emulated_devices/course/lesson.h"
#include "emulated_devices/device/interval.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST = 2100, SIZES = 5 };        /* elements; sizes tried */

static float given[WORKER_MOST_DEVICES][MOST], want[MOST];

static int modulo(int i, int P) { return (i % P + P) % P; }

/* This is the neighbour to which a device sends: 1 is the next rank, -1 the rank before. */
static int direction(const struct judge *j) { return judge_choice(j, "RING") == 0 ? 1 : -1; }
static int owned(const struct judge *j, int rank, int W) { return modulo(rank + judge_choice(j, "OWNER"), W); }

/* Short vectors come first, since they can be shown whole; then one that W does not divide. */
static int64_t length(struct judge *j, int i, int W)
{
    const int64_t usual[SIZES] = { W, W + 1, 0, W - 1, 1003 };
    return j->hidden && i != 2 ? judge_draw(j, 2, MOST) : usual[i];
}

/* Add block by block as a ring does.  A block begins at the device that sends it first, and ends where it is
 * finished. */
static void sum_round_the_ring(const struct judge *j, int W, int64_t n)
{
    const int dir = direction(j);
    for (int b = 0; b < W; b++) {
        const struct interval block = block_at(n, W, b);
        const int last = modulo(b - judge_choice(j, "OWNER"), W);
        for (int64_t e = block.first; e < interval_end(block); e++) {
            float sum = given[modulo(last + dir, W)][e];
            /* The last device of the block's way is known; the first is one step behind it in the ring's
             * direction. */
            for (int k = 2; k <= W; k++) sum += given[modulo(last + k * dir, W)][e];
            want[e] = sum;
        }
    }
}

/* ---- what is tried ----------------------------------------------------------------------------------------------- */

enum what { SCATTER, GATHER, REDUCE };
enum look { AT_RESULTS, AT_MEETS, AT_SENT, AT_MEMORY, AT_TIME };

/* No input is this number, so a block that has not arrived shows. */
#define UNFINISHED -1e30f

/* Fill a device's vector: its own numbers, or for the gather its finished block and nothing else.  The skew moves
 * the array in memory, so that no alignment may be assumed. */
static void fill(struct judge *j, struct trial *r, enum what what, int d, int64_t n, int i)
{
    float *x = trial_buffer(r, d, 0, sizeof *x * (uint64_t)n, BUFFER_BOTH);
    judge_rough(j, x, n);
    memcpy(given[d], x, sizeof *x * (size_t)n);
    r->device[d].number[0] = n;
    r->device[d].buffer[0].skew = 4 * (uint32_t)(i % 3);
    if (what != GATHER) return;
    const struct interval own = block_at(n, r->devices, owned(j, d, r->devices));
    for (int64_t e = own.first; e < interval_end(own); e++) want[e] = x[e];
    for (int64_t e = 0; e < n; e++)
        if (e < own.first || e >= interval_end(own)) x[e] = UNFINISHED;
}

/* Whether a block is the sum of some devices' numbers, but for rounding.  some: a bit for each device. */
static bool is_sum_of(const float *got, struct interval block, int W, unsigned some)
{
    for (int64_t e = block.first; e < interval_end(block); e++) {
        double sum = 0, sizes = 0;
        for (int d = 0; d < W; d++) {
            if (some >> d & 1) sum += (double)given[d][e];
            sizes += fabs((double)given[d][e]);
        }
        if (!(fabs((double)got[e] - sum) <= 0x1p-20 * sizes)) return false;
    }
    return true;
}

/* Write ", with the numbers of device 0 1 alone", as the page's picture has them; an empty text if no such sum
 * fits.  All 2^W sets of devices are tried. */
static void name_devices(const float *got, struct interval block, int W, char *to, size_t size)
{
    const unsigned all = (1u << W) - 1;
    size_t used = 0;
    to[0] = 0;
    /* Each bit of `some` is a device; the first set whose sum fits is named. */
    for (unsigned some = 1; some < all; some++) {
        if (!is_sum_of(got, block, W, some)) continue;
        used = (size_t)snprintf(to, size, ", with the numbers of device");
        for (int d = 0; d < W; d++)
            if (some >> d & 1) used += (size_t)snprintf(to + used, size - used, " %d", d);
        snprintf(to + used, size - used, " alone");
        return;
    }
    /* A sum of all devices in another order differs only by rounding. */
    if (is_sum_of(got, block, W, all)) snprintf(to, size, ", the sum of all devices, but added in another order");
}

/* Write that messages go round the ring in the other direction, if one does. */
static void name_side(struct trial *r, char *to, size_t size)
{
    for (int i = 0; i < r->events; i++) {
        const struct event *e = &r->event[i];
        const int next = modulo(e->device + direction(r->judge), r->devices);
        if (e->kind != EVENT_SEND || e->peer == next) continue;
        r->judge->mistake = MISTAKE_NEIGHBOUR;
        snprintf(to, size, ": device %d sends to device %d; in this ring it sends only to device %d", e->device,
                 e->peer, next);
        return;
    }
}

/* Find the first wrong element of block b, and say what is in it instead. */
static bool expect_block(struct trial *r, int d, int b, int64_t n, bool sums)
{
    const struct interval block = block_at(n, r->devices, b);
    const float *got = (const float *)r->device[d].buffer[0].data;
    char what[120] = "", why[300];
    double wanted[MOST];
    /* The first element with other bits is the one that the message shows. */
    int64_t e = block.first;
    while (e < interval_end(block) && memcmp(&got[e], &want[e], sizeof *got) == 0) e++;
    if (e == interval_end(block)) return true;
    /* Sums are explained by the devices that were added; a gather by blocks that have not come. */
    if (sums) name_devices(got, block, r->devices, what, sizeof what);
    else if (got[e] == UNFINISHED) snprintf(what, sizeof what, ", and has not arrived");
    for (int64_t k = 0; k < block.count; k++) wanted[k] = (double)want[block.first + k];
    const struct wrong wrong = { .got = got + block.first, .want = wanted, .first = block.first, .count = block.count,
                                 .device = d, .exact = true };
    trial_explain(r, &wrong, "x", why, sizeof why);
    if (what[0] == '\0' && why[0] == '\0') name_side(r, why, sizeof why);
    return trial_fails(r, "device %d: block %d (elements %lld to %lld) is wrong%s: x[%lld] is %.9g%s and should be %.9g"
                       "%s", d, b, (long long)block.first, (long long)interval_end(block) - 1, what, (long long)e,
                       (double)got[e], trial_meaning((double)got[e]), (double)want[e], what[0] ? "" : why);
}

/* A reduce-scatter leaves one block on each device; the other two leave all. */
static void expect_results(struct judge *j, struct trial *r, enum what what, int64_t n)
{
    for (int d = 0; d < r->devices && !j->failed; d++)
        for (int b = 0; b < r->devices && !j->failed; b++)
            if (what != SCATTER || b == owned(j, d, r->devices)) expect_block(r, d, b, n, what != GATHER);
}

/* Check neighbours, messages and bytes.  In each half every block but one leaves a device. */
static void expect_sent(struct judge *j, struct trial *r, enum what what, int64_t n)
{
    static const char *const formula[] = { "W-1 messages, all blocks but the one that it finishes",
                                           "W-1 messages, all blocks but the last to arrive",
                                           "2(W-1) messages, in each half all blocks but one" };
    const int W = r->devices;
    for (int i = 0; i < r->events && !j->failed; i++) {
        const struct event *e = &r->event[i];
        const int next = modulo(e->device + direction(j), W);
        if (e->kind == EVENT_SEND && e->peer != next)
            trial_fails(r, "device %d sends to device %d; in this ring it sends only to device %d", e->device, e->peer,
                        next);
    }
    for (int d = 0; d < W && !j->failed; d++) {
        /* The numbers that a device sends in each half: all but a block. */
        const int64_t first = n - block_at(n, W, owned(j, d, W)).count;
        const int64_t second = n - block_at(n, W, modulo(owned(j, d, W) + direction(j), W)).count;
        const int64_t elements = what == SCATTER ? first : what == GATHER ? second : first + second;
        trial_expect_sent(r, d, (uint64_t)(what == REDUCE ? 2 : 1) * (uint64_t)(W - 1), 4 * (uint64_t)elements,
                          formula[what]);
    }
}

static void expect_memory(struct judge *j, struct trial *r, enum what what, int64_t n)
{
    for (int d = 0; d < r->devices && !j->failed; d++)
        trial_expect_peak(r, d, what == GATHER ? 0 : 4 * (uint64_t)block_at(n, r->devices, 0).count,
                          what == GATHER ? "blocks can be received where they belong" : "4 ceil(n/W)");
}

/* One function with one look: all devices, and all lengths where nothing but results is compared. */
static void try_ring(struct judge *j)
{
    const enum look look = j->check->look;
    const enum what what = j->check->what;
    static const char *const names[] = { "ring_reduce_scatter", "ring_all_gather", "ring_all_reduce" };
    for (const int *W = COURSE_DEVICES; *W && !j->failed; W++)
        for (int i = 0; i < (look != AT_TIME && look != AT_MEETS ? SIZES : 1) && !j->failed; i++) {
            /* With lengths that W divides all steps take the same time. */
            const int64_t n = look == AT_TIME ? *W * 100 : length(j, i, *W);
            struct trial *r = trial_open(j, names[what], *W, "n = %lld", (long long)n);
            for (int d = 0; d < *W; d++) fill(j, r, what, d, n, i);
            if (what != GATHER) sum_round_the_ring(j, *W, n);
            if (look == AT_MEETS) trial_meets(r);
            if (trial_call(r)) {
                expect_results(j, r, what, n);
                if (look == AT_SENT) expect_sent(j, r, what, n);
                if (look == AT_MEMORY) expect_memory(j, r, what, n);
                if (look == AT_TIME)
                    trial_expect_time(r, 2 * (*W - 1) * (10000000 + 80 * (n / *W)), "2(W-1) steps of 10 us + 4 n/W "
                                      "bytes at 50 GB/s");
            }
            trial_close(r);
        }
}

static const char *const functions[] = { "ring_reduce_scatter", "ring_all_gather", "ring_all_reduce", NULL };

extern const struct lesson lesson_03_ring;
const struct lesson lesson_03_ring = {
    .folder = "03_ring", .title = "Ring all-reduce", .file = "ring.c", .functions = functions,
    .vary = { { "RING", 2 }, { "OWNER", 2 } },
    .check = {
        { 1, "scatter", "reduce-scatter: one block of sums on each device", 6, { try_ring, AT_RESULTS, SCATTER },
          { "Draw three devices with three blocks each.  Which block must be the last to arrive at device 0?",
            "What arrives in a step is passed on in the next one: give of step s+1 is take of step s.",
            "Count back from the last step: the block that a device finishes is the one that arrives last.",
            "ring.h says to which side devices send, and which block device r finishes: not as in the picture." },
          { [1] = FITS(TWICE), [2] = FITS(MISSING) | FITS(UNCHANGED) | FITS(SHIFTED), [3] = FITS(NEIGHBOUR) } },
        { 1, "scatter-sent", "reduce-scatter: W-1 messages, every block but one", 3, { try_ring, AT_SENT, SCATTER },
          { "Each message is one block; blocks can differ by one element: block_of(n, W, i).count." } },
        { 1, "scatter-memory", "reduce-scatter: memory for one block", 2, { try_ring, AT_MEMORY, SCATTER },
          { "What arrives has to wait for its addition somewhere, but only one block at a time.",
            "The longest block is block_of(n, W, 0)." } },
        { 2, "gather", "all-gather: all blocks on all devices", 4, { try_ring, AT_RESULTS, GATHER },
          { "In the first step a device gives the only block that it has.",
            "Then it gives what has just arrived: give of step s+1 is take of step s." },
          { [1] = FITS(UNCHANGED) | FITS(SHIFTED) } },
        { 2, "gather-sent", "all-gather: W-1 messages, every block but one", 2, { try_ring, AT_SENT, GATHER },
          { "Which block would a device give in step W?  The one that arrived last, which its neighbour has." } },
        { 2, "gather-memory", "all-gather: no memory", 1, { try_ring, AT_MEMORY, GATHER },
          { "A block can be received at its place in x." } },
        { 3, "reduce", "all-reduce: the sums, the same bits on all devices", 3, { try_ring, AT_RESULTS, REDUCE },
          { "The two functions one after the other: what the first leaves is what the second begins with." } },
        { 3, "reduce-meets", "all-reduce: no deadlock, even if every message waits", 2, { try_ring, AT_MEETS, REDUCE },
          { "exchange_both starts both messages before it waits for one." }, { FITS(DEADLOCK) } },
        { 3, "reduce-sent", "all-reduce: 2(W-1) messages", 2, { try_ring, AT_SENT, REDUCE },
          { "About 2n numbers a device, however many devices there are." } },
        { 3, "reduce-time", "all-reduce: the time of 2(W-1) steps", 3, { try_ring, AT_TIME, REDUCE },
          { "Look at the drawing: in every step all devices send at the same time." } },
    },
};
