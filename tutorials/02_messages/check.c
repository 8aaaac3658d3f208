/* check.c -- judges lesson 02.  The student writes messages.c: shift, swap_pairs and running_sum move vectors
 * between W devices.  Each check compares results to the bit, and then bytes, peaks of memory or the virtual time.
 * With `meets` every message waits for its receiver, so that a wrong order deadlocks.
 * emulated_devices/course/judge.c runs each check in a process of its own; a failed check is a line for the
 * student. */
#include "emulated_devices/course/lesson.h"
#include <string.h>

enum { MOST = 1400 };                   /* elements */

/* Two lengths are tried on W devices: a single number, and more numbers than messages can guess. */
static int64_t length(struct judge *j, int i)
{
    static const int64_t usual[] = { 1, 1003 };
    return j->hidden ? judge_draw(j, 2, MOST) : usual[i];
}

/* Compare device d's buffer i with what `owner` was given.  A wrong owner is named, if the numbers are another
 * device's. */
static bool expect_of(struct trial *r, int d, int i, int owner, const float given[][MOST], int64_t n, const char *what)
{
    const float *got = r->device[d].buffer[i].data;
    for (int64_t e = 0; e < n; e++) {
        if (got[e] == given[owner][e]) continue;
        for (int o = 0; o < r->devices; o++)
            if (memcmp(got, given[o], sizeof *got * (size_t)n) == 0)
                return trial_fails(r, "device %d has the numbers of device %d in %s, and should have those of device "
                                   "%d", d, o, what, owner);
        return trial_expect_floats(r, d, i, given[owner], n, what);
    }
    return true;
}

static float given[WORKER_MOST_DEVICES][MOST];          /* what each device has at first */

/* Give device d a rough vector and keep a copy for the comparison. */
static void fill(struct judge *j, struct trial *r, int d, int i, int64_t n, enum buffer_way way)
{
    float *x = trial_buffer(r, d, i, sizeof *x * (uint64_t)n, way);
    judge_rough(j, x, n);
    memcpy(given[d], x, sizeof *x * (size_t)n);
    r->device[d].number[0] = n;
}

/* This is the remainder between 0 and P - 1, also of a negative number. */
static int modulo(int i, int P) { return (i % P + P) % P; }

/* Results are compared always; each check looks at one thing more.  AT_MEETS: every message waits for its receiver. */
enum look { AT_RESULTS, AT_MEETS, AT_SENT, AT_MEMORY, AT_TIME };

/* All messages of a call travel at the same time, so the call takes as long as one of them. */
static void expect_one_message(struct trial *r, int64_t n)
{
    trial_expect_time(r, n > 0 ? 10000000 + 80 * n : 0, n > 0 ? "all devices send at the same time, and none waits for "
                      "another's turn: 10 us + 4n/50 GB/s" : "nothing is sent");
}

/* ---- shift ------------------------------------------------------------------------------------------------------- */

/* Try many shifts; after each, look at the results, at what was sent, or at the time. */
static void try_shifts(struct judge *j)
{
    const enum look look = j->check->look;
    for (const int *W = COURSE_DEVICES; *W && !j->failed; W++) {
        /* Shifts of W, W + 2 and -1 find programs that do not take the remainder. */
        const int shifts[] = { 1, -1, *W, *W + 2, j->hidden ? (int)judge_draw(j, -20, 20) : 2 };
        for (int i = 0; i < 5 && !j->failed; i++) {
            const int k = shifts[i];
            const int64_t n = length(j, i % 2);
            struct trial *r = trial_open(j, "shift", *W, "n = %lld, k = %d", (long long)n, k);
            for (int d = 0; d < *W; d++) {
                fill(j, r, d, 0, n, BUFFER_IN);
                trial_buffer(r, d, 1, sizeof(float) * (uint64_t)n, BUFFER_OUT);
                r->device[d].number[1] = k;
            }
            if (look == AT_MEETS) trial_meets(r);
            if (trial_call(r)) {
                /* A shift by a multiple of W sends nothing. */
                const bool alone = modulo(k, *W) == 0;
                for (int d = 0; d < *W && !j->failed; d++) {
                    /* Device d receives from the device k before it. */
                    expect_of(r, d, 1, modulo(d - k, *W), (const float (*)[MOST])given, n, "out");
                    if (look == AT_SENT)
                        trial_expect_sent(r, d, alone ? 0 : 1, alone ? 0 : 4 * (uint64_t)n,
                                          alone ? "it has its own numbers" : "one message of 4n");
                }
                if (look == AT_TIME) expect_one_message(r, alone ? 0 : n);
            }
            trial_close(r);
        }
    }
}

/* ---- swap_pairs -------------------------------------------------------------------------------------------------- */

/* Devices 2i and 2i + 1 exchange their vectors; the last of an odd number keeps its own. */
static void try_swaps(struct judge *j)
{
    const enum look look = j->check->look;
    for (const int *W = COURSE_DEVICES; *W && !j->failed; W++)
        for (int i = 0; i < 2 && !j->failed; i++) {
            const int64_t n = length(j, i);
            struct trial *r = trial_open(j, "swap_pairs", *W, "n = %lld", (long long)n);
            /* Each device's vector x goes in and comes out: the exchange works in place. */
            for (int d = 0; d < *W; d++) fill(j, r, d, 0, n, BUFFER_BOTH);
            if (look == AT_MEETS) trial_meets(r);
            if (trial_call(r)) {
                for (int d = 0; d < *W && !j->failed; d++) {
                    /* d ^ 1 is the other device of a pair; a device without a partner keeps its own numbers. */
                    const int partner = (d ^ 1) < *W ? d ^ 1 : d;
                    expect_of(r, d, 0, partner, (const float (*)[MOST])given, n, "x");
                    if (look == AT_MEMORY) trial_expect_peak(r, d, 4 * (uint64_t)n, "4n");
                    if (look == AT_SENT)
                        trial_expect_sent(r, d, partner != d, partner != d ? 4 * (uint64_t)n : 0,
                                          partner != d ? "one message of 4n" : "it has no partner");
                }
                if (look == AT_TIME) expect_one_message(r, *W > 1 ? n : 0);
            }
            trial_close(r);
        }
}

/* ---- running_sum ------------------------------------------------------------------------------------------------- */

static float want[WORKER_MOST_DEVICES][MOST], other[WORKER_MOST_DEVICES][MOST];

/* Add along the line whose first device is 0 (step 1), or W-1 (step -1). */
static void sum_along(float sum[][MOST], int W, int64_t n, int step)
{
    for (int k = 0, d = step > 0 ? 0 : W - 1; k < W; d += step, k++)
        for (int64_t e = 0; e < n; e++) sum[d][e] = given[d][e] + (k > 0 ? sum[d - step][e] : 0);
}

/* The two most likely mistakes are named: the numbers of one device alone, and the sum from the other end. */
static void expect_sum(struct trial *r, int d, int64_t n, int step)
{
    const size_t bytes = sizeof(float) * (size_t)n;
    const float *got = r->device[d].buffer[0].data;
    const int low = step > 0 ? 0 : d, high = step > 0 ? d : r->devices - 1;
    if (memcmp(got, want[d], bytes) == 0) return;
    /* A device that has one device's numbers has added nothing. */
    for (int o = 0; o < r->devices; o++)
        if (memcmp(got, given[o], bytes) == 0)
            trial_fails(r, "device %d has the numbers of device %d alone in x, and should have the sum of devices %d "
                        "to %d", d, o, low, high);
    /* `other` has the sums from the other end of the line. */
    if (memcmp(got, other[d], bytes) == 0)
        trial_fails(r, "device %d has the sum of devices %d to %d in x, and should have that of devices %d to %d: at "
                    "which end does the line begin?", d, step > 0 ? d : 0, step > 0 ? r->devices - 1 : d, low, high);
    trial_expect_floats(r, d, 0, want[d], n, "x");
}

/* The course's variant LINE decides at which end the line begins. */
static void try_sums(struct judge *j)
{
    const enum look look = j->check->look;
    const int step = judge_choice(j, "LINE") == 0 ? 1 : -1;
    for (const int *W = COURSE_DEVICES; *W && !j->failed; W++)
        for (int i = 0; i < 2 && !j->failed; i++) {
            const int64_t n = length(j, i);
            const int last = step > 0 ? *W - 1 : 0;
            struct trial *r = trial_open(j, "running_sum", *W, "n = %lld", (long long)n);
            for (int d = 0; d < *W; d++) fill(j, r, d, 0, n, BUFFER_BOTH);
            /* Both directions are computed, so that the wrong one can be named. */
            sum_along(want, *W, n, step), sum_along(other, *W, n, -step);
            if (look == AT_MEETS) trial_meets(r);
            if (trial_call(r)) {
                for (int d = 0; d < *W && !j->failed; d++) {
                    expect_sum(r, d, n, step);
                    if (look == AT_SENT)
                        trial_expect_sent(r, d, d != last, d != last ? 4 * (uint64_t)n : 0,
                                          d != last ? "one message of 4n" : "it is the last");
                }
                /* Each device waits for the sum before it: W - 1 messages one after another. */
                if (look == AT_TIME)
                    trial_expect_time(r, (*W - 1) * (10000000 + 80 * n), "(W-1) messages one after another, 10 us + "
                                      "4n/50 GB/s each");
            }
            trial_close(r);
        }
}

static const char *const functions[] = { "shift", "swap_pairs", "running_sum", NULL };

extern const struct lesson lesson_02_messages;
const struct lesson lesson_02_messages = {
    .folder = "02_messages", .title = "Messages and deadlocks", .file = "messages.c", .functions = functions,
    .vary = { { "LINE", 2 } },
    .check = {
        { 1, "shift", "shift: everybody has the right numbers", 3, { try_shifts, AT_RESULTS },
          { "Device r sends to one device and receives from another.  Write both down for W = 4, k = 1.",
            "It sends to mod(rank + k, size), and receives from mod(rank - k, size).",
            "If that is the device itself nothing is sent: memcpy." }, { FITS(NEIGHBOUR) | FITS(SHIFTED) } },
        { 1, "shift-meets", "shift: no deadlock, even if every message waits", 2, { try_shifts, AT_MEETS },
          { "If everybody first waits until its message is received, who receives it?",
            "Start both messages, then wait for both: exchange_both does it." }, { FITS(DEADLOCK) } },
        { 1, "shift-sent", "shift: one message, or none", 1, { try_shifts, AT_SENT },
          { "What does a device do if k is 0, or W, or 2 W?" } },
        { 1, "shift-time", "shift: the time of one message", 1, { try_shifts, AT_TIME },
          { "Look at the drawing: which device sends only when it has received?",
            "Taking turns avoids a deadlock, but then one message waits for another.  exchange_both starts both." } },
        { 2, "swap", "swap_pairs: everybody has its partner's numbers", 2, { try_swaps, AT_RESULTS },
          { "The partner of 0 is 1, of 1 is 0, of 2 is 3: which operation on the bits of a number does that?",
            "rank ^ 1; of an odd number of devices the last one has no partner.",
            "Until message_wait x is what is sent, and must not change: theirs arrive in allocated memory." } },
        { 2, "swap-meets", "swap_pairs: no deadlock, even if every message waits", 1, { try_swaps, AT_MEETS },
          { "Where can their numbers arrive while yours are still being sent?",
            "allocate() an array for what arrives, exchange_both, memcpy, release()." }, { FITS(DEADLOCK) } },
        { 2, "swap-sent", "swap_pairs: one message", 1, { try_swaps, AT_SENT }, { "Only pairs exchange something." } },
        { 2, "swap-memory", "swap_pairs: memory for n numbers", 1, { try_swaps, AT_MEMORY },
          { "One array is enough: yours can be sent from where it is." } },
        { 2, "swap-time", "swap_pairs: the time of one message", 1, { try_swaps, AT_TIME },
          { "Look at the drawing: do both of a pair send at the same time?" } },
        { 3, "sum", "running_sum: the sums, to the bit", 3, { try_sums, AT_RESULTS },
          { "A device can only add when it has received, and only send when it has added.",
            "The first of the line receives nothing; the last sends nothing.",
            "messages.h says which device begins; the drawing shows who sends to whom." } },
        { 3, "sum-meets", "running_sum: no deadlock", 1, { try_sums, AT_MEETS }, { "Every send needs its receive." },
          { FITS(DEADLOCK) } },
        { 3, "sum-sent", "running_sum: one message to the next", 1, { try_sums, AT_SENT },
          { "Send the sum so far, not the numbers of all devices before." } },
        { 3, "sum-time", "running_sum: the time of W-1 messages", 1, { try_sums, AT_TIME },
          { "Look at the drawing: does a device wait for something that it does not need?" } },
    },
};
