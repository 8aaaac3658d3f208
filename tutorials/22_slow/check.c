/* check.c -- judges lesson 22.  The student writes slow.c: four functions that name a slow device, a slow link, or a
 * device that hangs.  emulated_devices/course/judge.c runs each check in a process of its own; a failed check is a line
 * for the student. */
#include "emulated_devices/course/lesson.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 12, RUNS = 12 };

/* Small numbers of devices come first. */
static int devices_of(struct judge *j, int run) { return j->hidden ? (int)judge_draw(j, 3, MOST) : 3 + run % 6; }

/* ---- waits ------------------------------------------------------------------------------------------------------- */

/* A device waits less than the share of each other, exactly the share of one, or not so little. */
enum wait_case { WAITS_LEAST, WAITS_THE_SHARE, WAITS_MORE, WAIT_CASES };

static void try_waits(struct judge *j, bool found)
{
    const int times = judge_choice(j, "LESS") == 0 ? 2 : 3;
    for (int i = 0; i < RUNS && !j->failed; i++) {
        const int W = devices_of(j, i), slow = (int)judge_draw(j, 0, W - 1);
        const enum wait_case kind = found ? WAITS_LEAST : i % 2 ? WAITS_MORE : WAITS_THE_SHARE;
        double waits[MOST];
        for (int d = 0; d < W; d++) waits[d] = (double)judge_draw(j, 60, 90);
        waits[(slow + 1) % W] = 60;
        waits[slow] = kind == WAITS_LEAST ? 60 / times - 1 - (double)judge_draw(j, 0, 9)
                    : kind == WAITS_THE_SHARE ? 60 / times : 60 / times + 7;
        struct trial *r = trial_open(j, "slow_outside", 1, "%d waits", W);
        memcpy(trial_buffer(r, 0, 0, (uint64_t)W * sizeof(double), BUFFER_IN), waits, (size_t)W * sizeof(double));
        r->device[0].number[0] = W;
        const int want = kind == WAITS_LEAST ? slow : -1;
        if (trial_call(r) && r->device[0].result != want)
            trial_fails(r, "it returned %d; device %d waits %.0f, and the least of the others is 60: it should return "
                        "%d", (int)r->device[0].result, slow, waits[slow], want);
        trial_close(r);
    }
}

static void check_waits(struct judge *j) { try_waits(j, true); }
static void check_waits_none(struct judge *j) { try_waits(j, false); }

/* ---- delays ------------------------------------------------------------------------------------------------------ */

static double *cell(struct judge *j, double *delay, int W, int from, int to)
{
    return &delay[judge_choice(j, "ROWS") == 0 ? from * W + to : to * W + from];
}

/* Usual delays, of 100 to 140, for pairs that send; each device sends to at least two others. */
static void fill(struct judge *j, double *delay, int W)
{
    memset(delay, 0, sizeof *delay * (size_t)(W * W));
    for (int from = 0; from < W; from++)
        for (int to = 0; to < W; to++) {
            const int step = (to - from + W) % W;
            if (step > 0 && (step < 3 || judge_draw(j, 0, 2) > 0))
                *cell(j, delay, W, from, to) = (double)judge_draw(j, 100, 140);
        }
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median_of(const double *delay, int W)
{
    double found[MOST * MOST];
    int count = 0;
    for (int link = 0; link < W * W; link++)
        if (delay[link] > 0) found[count++] = delay[link];
    qsort(found, (size_t)count, sizeof *found, by_size);
    return count == 0 ? 0 : found[(count - 1) / 2];
}

static struct trial *open_delays(struct judge *j, const char *function, const double *delay, int W, const char *what)
{
    struct trial *const r = trial_open(j, function, 1, "delays of %d devices, %s", W, what);
    memcpy(trial_buffer(r, 0, 0, (uint64_t)(W * W) * sizeof(double), BUFFER_IN), delay,
           (size_t)(W * W) * sizeof(double));
    r->device[0].number[0] = W;
    return r;
}

static void check_usual(struct judge *j)
{
    for (int i = 0; i < RUNS && !j->failed; i++) {
        double delay[MOST * MOST];
        const int W = devices_of(j, i);
        fill(j, delay, W);
        if (i == RUNS - 1) memset(delay, 0, sizeof delay);
        struct trial *r = open_delays(j, "usual_delay", delay, W,
                                      i == RUNS - 1 ? "no messages" : "some without messages");
        const double want = median_of(delay, W), got = trial_call(r) ? r->device[0].real : want;
        if (fabs(got - want) > 0) trial_fails(r, "it returned %g; the median of cells with messages is %g", got, want);
        trial_close(r);
    }
}

/* A run has nothing that is slow, or one link, or one way of a card.  slow.h has the same numbers. */
enum slow_kind { IS_NOTHING, IS_LINK, IS_SENDER, IS_RECEIVER };

static void expect_part(struct judge *j, struct trial *r, enum slow_kind kind, int from, int to)
{
    static const char *const name[] = { "NO_PART", "LINK", "SENDER", "RECEIVER" };
    const int got = (int)r->device[0].result;
    const int32_t *const which = r->device[0].buffer[1].data;
    const int first = kind == IS_RECEIVER ? to : from;
    if (got != (int)kind)
        trial_fails(r, "it returned %s, and should return %s", got >= 0 && got <= 3 ? name[got] : "another number",
                    name[kind]);
    else if (kind == IS_NOTHING && (which[0] != -7 || which[1] != -7))
        trial_fails(r, "nothing is slow, but which has changed");
    else if (kind != IS_NOTHING && (which[0] != first || (kind == IS_LINK && which[1] != to)))
        trial_fails(r, "%s: which[0] is %d, and should be %d%s", name[kind], which[0], first,
                    kind == IS_LINK ? "; [1] is its receiver" : "");
    (void)j;
}

static void try_part(struct judge *j, enum slow_kind kind)
{
    static const char *const what[] = { "nothing is slow", "a link is slow", "a sender is slow", "a receiver is slow" };
    for (int i = 0; i < RUNS && !j->failed; i++) {
        double delay[MOST * MOST];
        const int W = devices_of(j, i) + 1 > MOST ? MOST : devices_of(j, i) + 1;
        const int from = (int)judge_draw(j, 0, W - 1), to = (from + 1 + (int)judge_draw(j, 0, 1)) % W;
        fill(j, delay, W);
        const double usual = median_of(delay, W);
        for (int a = 0; a < W; a++)
            for (int b = 0; b < W; b++) {
                double *const at = cell(j, delay, W, a, b);
                const bool hot = (kind == IS_LINK && a == from && b == to) || (kind == IS_SENDER && a == from)
                              || (kind == IS_RECEIVER && b == to);
                if (*at > 0 && hot) *at = 4 * usual;
            }
        struct trial *r = open_delays(j, "slow_part", delay, W, what[kind]);
        int32_t *const which = trial_buffer(r, 0, 1, 2 * sizeof *which, BUFFER_BOTH);
        which[0] = which[1] = -7;
        if (trial_call(r)) expect_part(j, r, kind, from, to);
        trial_close(r);
    }
}

static void check_link(struct judge *j) { try_part(j, IS_LINK); }
static void check_sender(struct judge *j) { try_part(j, IS_SENDER); }
static void check_receiver(struct judge *j) { try_part(j, IS_RECEIVER); }
static void check_nothing(struct judge *j) { try_part(j, IS_NOTHING); }

/* ---- hangs ------------------------------------------------------------------------------------------------------- */

static void try_hangs(struct judge *j, bool ring)
{
    for (int i = 0; i < RUNS && !j->failed; i++) {
        const int W = devices_of(j, i), begin = (int)judge_draw(j, 0, W - 1), length = (int)judge_draw(j, 1, W - 1);
        int32_t waits[MOST];
        int at = begin;
        for (int d = 0; d < W; d++) waits[d] = -1;
        /* A chain from `begin` over `length` waits; a ring closes it at one of its devices. */
        for (int k = 0; k < length; k++) waits[at] = (int32_t)((at + 1) % W), at = (at + 1) % W;
        if (ring) waits[at] = (int32_t)((begin + (int)judge_draw(j, 0, length - 1)) % W);
        struct trial *r = trial_open(j, "who_hangs", 1, "%d devices, %d waits%s", W, length, ring ? ", a ring" : "");
        memcpy(trial_buffer(r, 0, 0, (uint64_t)W * sizeof *waits, BUFFER_IN), waits, (size_t)W * sizeof *waits);
        r->device[0].number[0] = W, r->device[0].number[1] = i == 0 && !ring ? at : begin;
        const int want = ring ? -1 : at;
        if (trial_call(r) && r->device[0].result != want)
            trial_fails(r, "it returned %d, and should return %d, from device %d on", (int)r->device[0].result, want,
                        (int)r->device[0].number[1]);
        trial_close(r);
    }
}

static void check_hangs(struct judge *j) { try_hangs(j, false); }
static void check_ring(struct judge *j) { try_hangs(j, true); }

static const char *const functions[] = { "slow_outside", "usual_delay", "slow_part", "who_hangs", NULL };

extern const struct lesson lesson_22_slow;
const struct lesson lesson_22_slow = {
    .folder = "22_slow", .title = "Finding the slow device", .file = "slow.c", .functions = functions,
    .vary = { { "LESS", 2 }, { "ROWS", 2 } },
    .check = {
        { 1, "waits", "the device that waits least is named", 3, { check_waits },
          { "Who is late is waited for.  So who waits least?" } },
        { 1, "waits-none", "no device is named if none waits that little", 2, { check_waits_none },
          { "Compare with each other device, not with the mean.",
            "'Less than' does not hold for exactly the share." } },
        { 2, "usual", "the usual delay is a median", 3, { check_usual },
          { "Cells without messages are no short delays.", "Sort; of n numbers take the one at (n-1)/2." } },
        { 3, "link", "one hot cell is a link", 2, { check_link },
          { "Is a cell hot?  1.5 times the usual delay.", "Which index is the sender?  Look at slow.h." } },
        { 3, "sender", "hot cells of one sender are its card", 2, { check_sender },
          { "Look at whole rows and columns before single cells." } },
        { 3, "receiver", "hot cells of one receiver are its card", 2, { check_receiver },
          { "Cells without messages are neither hot nor not." } },
        { 3, "nothing", "noise is no fault", 2, { check_nothing },
          { "Delays differ by up to 40 percent here." } },
        { 4, "hangs", "the end of the waits is named", 3, { check_hangs },
          { "Whom does the device wait for, whom does that one wait for, and so on?" } },
        { 4, "ring", "a ring of waits is noticed", 1, { check_ring },
          { "After W waits a device has come twice.", "The ring need not have the device at which you begin." } },
    },
};
