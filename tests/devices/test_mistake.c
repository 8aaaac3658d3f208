/* mistake.c names the usual mistake that explains a wrong array: each is made here on purpose, on several numbers of
 * devices and lengths; and arrays that no mistake explains are not explained. */
#include "emulated_devices/course/mistake.h"
#include "emulated_devices/course/trial.h"
#include "emulated_devices/device/interval.h"
#include "ref/numeric/philox.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 64 };

/* A run of W devices that had these numbers in buffer 0, and what device 1 got and should have got. */
static struct trial *trial;
static float before[WORKER_MOST_DEVICES][MOST], got[MOST];
static double want[MOST];
static uint64_t drawn;

static float draw(void) { return (float)(2 * random_uniform(7, 1, drawn++) - 1); }

/* Begin with the sum of all devices' numbers, which is right. */
static void begin(int W, int n)
{
    memset(trial, 0, sizeof *trial);
    trial->devices = W;
    for (int d = 0; d < W; d++) {
        for (int e = 0; e < n; e++) before[d][e] = draw();
        trial->device[d].buffer[0].before = before[d];
        trial->device[d].buffer[0].bytes = 4 * (uint64_t)n;
    }
    for (int e = 0; e < n; e++) {
        float sum = 0;
        for (int d = 0; d < W; d++) sum += before[d][e];
        got[e] = sum, want[e] = (double)sum;
    }
}

static void expect(int n, int device, enum mistake mistake, const char *words)
{
    char text[300];
    const struct wrong wrong = { .got = got, .want = want, .count = n, .device = device, .exact = true };
    const enum mistake found = mistake_explain(trial, &wrong, text, sizeof text);
    if (found != mistake || strstr(text, words) == NULL)
        fail_msg("%d devices, %d numbers: \"%s\" is found (%s), not \"%s\" with \"%s\"", trial->devices, n,
                 mistake_name(found), text, mistake_name(mistake), words);
}

static void test_factors(void **state)
{
    (void)state;
    for (int W = 2; W <= 8; W++)
        for (int n = 2; n <= 20; n += 3) {
            char words[60];
            begin(W, n);
            for (int e = 0; e < n; e++) got[e] = (float)(want[e] * W);
            snprintf(words, sizeof words, "exactly W = %d times too large", W);
            expect(n, 1, MISTAKE_TOO_LARGE, words);
            for (int e = 0; e < n; e++) got[e] = (float)(want[e] / W);
            expect(n, 1, MISTAKE_TOO_SMALL, "times too small");
            for (int e = 0; e < n; e++) got[e] = (float)(want[e] / W / W);
            expect(n, 1, MISTAKE_TOO_SMALL, "twice");
            /* The change of a weight is W times too large, not the weight. */
            for (int e = 0; e < n; e++) {
                want[e] = (double)before[1][e] + 0.3 * (double)draw();
                got[e] = (float)((double)before[1][e] + W * (want[e] - (double)before[1][e]));
            }
            snprintf(words, sizeof words, "the change is exactly W = %d times", W);
            expect(n, 1, MISTAKE_TOO_LARGE, words);
        }
}

static void test_devices(void **state)
{
    (void)state;
    for (int W = 3; W <= 8; W++)
        for (int n = 1; n <= 20; n += 3) {
            char words[60];
            begin(W, n);
            memcpy(got, before[1], sizeof got);
            expect(n, 1, MISTAKE_UNCHANGED, "as they were before the call");
            memcpy(got, before[2], sizeof got);
            expect(n, 1, MISTAKE_NEIGHBOUR, "what device 2 had before the call");
            for (int missing = 0; missing < W; missing++) {
                begin(W, n);
                for (int e = 0; e < n; e++) got[e] -= before[missing][e];
                snprintf(words, sizeof words, "of device %d%s are missing", missing, missing == 1 ? " (its own)" : "");
                expect(n, 1, MISTAKE_MISSING, words);
                begin(W, n);
                for (int e = 0; e < n; e++) got[e] += before[missing][e];
                snprintf(words, sizeof words, "of device %d%s are in it twice", missing,
                         missing == 1 ? ", its own," : "");
                expect(n, 1, MISTAKE_TWICE, words);
            }
        }
}

static void test_places(void **state)
{
    (void)state;
    for (int W = 1; W <= 4; W++) {
        begin(W, 12);
        for (int i = 0; i < 3; i++)
            for (int k = 0; k < 4; k++) got[k * 3 + i] = (float)want[i * 4 + k];
        expect(12, 0, MISTAKE_TRANSPOSED, "[3, 4] stored as [4, 3]");
        for (int e = 0; e < 12; e++) got[e] = (float)want[(e + 11) % 12];
        if (W == 1) expect(12, 0, MISTAKE_SHIFTED, "1 place too far to the back");
        if (W == 1) continue;
        const struct interval from = block_at(12, W, 1);
        for (int e = 0; e < 12; e++) got[e] = (float)want[e];
        for (int k = 0; k < from.count; k++) got[k] = (float)want[from.first + k];
        expect(12, 0, MISTAKE_SHIFTED, "block 0 has the numbers of block 1");
    }
}

static void test_others(void **state)
{
    static float old[MOST];
    (void)state;
    begin(4, 10);
    for (int e = 0; e < 10; e++) old[e] = got[e] = draw();
    trial->suspect[trial->suspects++] = (struct trial_suspect){ MISTAKE_STALE, "the step before", old, 10, 0 };
    expect(10, 1, MISTAKE_STALE, ": the step before");
    begin(4, 10);
    got[3] = 3.39617428e38f;
    expect(10, 1, MISTAKE_UNWRITTEN, "");
    got[3] = NAN;
    expect(10, 1, MISTAKE_UNWRITTEN, "");
    begin(4, 10);
    for (int e = 0; e < 10; e++) got[e] = nextafterf(got[e], 9);
    expect(10, 1, MISTAKE_ORDER, "another order");
    begin(4, 12);
    got[1] = 5;
    trial->event[trial->events++] = (struct event){ .kind = EVENT_SEND, .bytes = 3 };
    expect(12, 1, MISTAKE_BYTES, "3 B, a quarter of 12 B");
    /* Twelve bytes are a block of three numbers: nothing is wrong with that message. */
    trial->event[0].bytes = 12;
    expect(12, 1, MISTAKE_UNKNOWN, "");
}

/* Wrong numbers that no mistake made: an explanation would lead a student astray. */
static void test_nothing_is_made_up(void **state)
{
    char text[300];
    (void)state;
    for (int i = 0; i < 2000; i++) {
        const int W = 1 + i % 8, n = 2 + i / 8 % 20;
        begin(W, n);
        if (i % 3 == 0) for (int e = 0; e < n; e++) got[e] = draw();
        else if (i % 3 == 1) got[0] = before[i % W][0], got[n - 1] = draw();    /* one is explained, and one is not */
        else got[i % n] += 0.5f + draw() / 4;
        const struct wrong wrong = { .got = got, .want = want, .count = n, .device = i % W, .exact = i % 2 };
        const enum mistake found = mistake_explain(trial, &wrong, text, sizeof text);
        if (found || text[0]) fail_msg("run %d, %d devices, %d numbers: it says \"%s\"", i, W, n, text);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_factors), cmocka_unit_test(test_devices), cmocka_unit_test(test_places),
        cmocka_unit_test(test_others), cmocka_unit_test(test_nothing_is_made_up),
    };
    trial = calloc(1, sizeof *trial);
    return trial ? cmocka_run_group_tests(tests, NULL, NULL) : 1;
}
