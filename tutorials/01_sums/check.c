/* check.c -- judges lesson 01.  No messages yet: each of eight devices sums a vector of its own, of another length.
 * The student writes sums.c with the five functions of sums.h.  Four checks compare bits or numbers with sums made
 * here; `careful` allows a bound.  emulated_devices/course/judge.c runs each check in a process of its own. */
#include "emulated_devices/course/lesson.h"
#include "emulated_devices/device/interval.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { DEVICES = 8 };

/* These are the lengths of the vectors; hidden inputs have others.  The last device has the longest vector. */
static int length(struct judge *j, int device, int longest)
{
    static const int usual[DEVICES] = { 0, 1, 2, 3, 5, 8, 100, 0 };
    if (device == DEVICES - 1) return j->hidden ? (int)judge_draw(j, longest / 2, longest) : longest;
    return j->hidden && device > 2 ? (int)judge_draw(j, 2, 300) : usual[device];
}

/* These sums round to float after each addition, in the order that sums.h prescribes. */
static float forward(const float *x, int64_t n)
{
    float sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return sum;
}

/* Half by half: with first_is_longer the first half of an odd number is longer. */
static float pairs(const float *x, int64_t n, bool first_is_longer)
{
    const int64_t first = (n + first_is_longer) / 2;
    return n == 0 ? 0 : n == 1 ? x[0] : pairs(x, first, first_is_longer) + pairs(x + first, n - first, first_is_longer);
}

/* Add up block by block: the sum of `number` sums, from the first block or from the last. */
static float parts(const float *x, int64_t n, int number, bool from_last)
{
    float sum = 0;
    for (int i = 0; i < number; i++) {
        const struct interval b = block_at(n, number, from_last ? number - 1 - i : i);
        sum += forward(x + b.first, b.count);
    }
    return sum;
}

/* A sum in double is exact here: numbers of judge_rough are multiples of 2^-27, below 2^5. */
static double exact(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i];
    return sum;
}

/* Add up the absolute values, from which bounds follow. */
static double sizes(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += fabs((double)x[i]);
    return sum;
}

/* Call `function` on eight vectors.  @return NULL if it does not return; the check has failed then. */
static struct trial *sums(struct judge *j, const char *function, int parts, int longest)
{
    /* Only sum_parts has an argument beside the length; all other calls pass 0. */
    char more[32] = "";
    if (parts) snprintf(more, sizeof more, "parts = %d", parts);
    struct trial *r = trial_open(j, function, DEVICES, "%s", more);     /* "sum_parts with 8 devices, parts = 3" */
    /* Buffer 0 is the device's vector, and the result is the function's return value. */
    for (int d = 0; d < DEVICES; d++) {
        const int n = length(j, d, longest);
        r->device[d].number[0] = n, r->device[d].number[1] = parts;
        judge_rough(j, trial_buffer(r, d, 0, sizeof(float) * (uint64_t)n, BUFFER_IN), n);
    }
    if (trial_call(r)) return r;
    trial_close(r);
    return NULL;
}

/* Compare in double: a sum in double that is not rounded to float is another number. */
static void same(struct trial *r, int d, double want, const char *how)
{
    const double got = r->device[d].real;
    if (got == want) return;
    const long long n = r->device[d].number[0];
    trial_fails(r, "device %d: the sum of its %lld number%s is %.9g%s, and %s it should be %.9g; the difference is "
                "%.3g", d, n, n == 1 ? "" : "s", got, trial_meaning(got), how, want, got - want);
}

/* These name the inputs of device d inside its trial. */
#define VECTOR(r, d) ((const float *)(r)->device[d].buffer[0].data)
#define LENGTH(r, d) ((r)->device[d].number[0])

/* sum_forward must give the same bits on every device. */
static void check_forward(struct judge *j)
{
    struct trial *r = sums(j, "sum_forward", 0, 1003);
    for (int d = 0; r && d < DEVICES; d++)
        same(r, d, forward(VECTOR(r, d), LENGTH(r, d)), "from the first to the last");
    if (r) trial_close(r);
}

static void check_pairs(struct judge *j)
{
    const bool longer = judge_choice(j, "HALF") == 0;
    /* One vector may give equal bits by chance. */
    for (int i = 0; i < 3 && !j->failed; i++) {         /* two orders often have the same bits by chance */
        struct trial *r = sums(j, "sum_pairs", 0, 1003 + i);
        for (int d = 0; r && d < DEVICES; d++)
            same(r, d, pairs(VECTOR(r, d), LENGTH(r, d), longer), "half by half");
        if (r) trial_close(r);
    }
}

/* All numbers of parts are tried, also more parts than numbers. */
static void check_parts(struct judge *j)
{
    const bool from_last = judge_choice(j, "ORDER") == 1;
    for (const int *P = COURSE_DEVICES; *P && !j->failed; P++) {
        struct trial *r = sums(j, "sum_parts", *P, 1003);
        for (int d = 0; r && d < DEVICES; d++)
            same(r, d, parts(VECTOR(r, d), LENGTH(r, d), *P, from_last), "block by block");
        if (r) trial_close(r);
    }
}

/* sum_bound returns (n - 1) 2^-24 sum |x|, computed in double. */
static void check_bound(struct judge *j)
{
    struct trial *r = sums(j, "sum_bound", 0, 1003);
    for (int d = 0; r && d < DEVICES; d++) {
        const double n = (double)LENGTH(r, d), want = n > 0 ? (n - 1) * 0x1p-24 * sizes(VECTOR(r, d), LENGTH(r, d)) : 0;
        const double got = r->device[d].real;
        if (!(fabs(got - want) <= 1e-12 * want))
            trial_fails(r, "device %d: the bound of %.0f numbers is %.9g and should be %.9g", d, n, got, want);
    }
    if (r) trial_close(r);
}

/* A careful sum may be off by u |S| + (n u)^2 sum |x|. Ogita, Rump and Oishi prove this for their Sum2
 * (doi:10.1137/030601818).  The first term is taken twice, because it is computed from rounded numbers. */
static void check_errors(struct judge *j)
{
    struct trial *r = sums(j, "sum_careful", 0, 20000);
    for (int d = 0; r && d < DEVICES; d++) {
        /* S is the exact sum, and nu = n u. */
        const double S = exact(VECTOR(r, d), LENGTH(r, d)), nu = (double)LENGTH(r, d) * 0x1p-24;
        const double most = 2 * 0x1p-24 * fabs(S) + nu * nu * sizes(VECTOR(r, d), LENGTH(r, d));
        const double got = r->device[d].real;
        if (!(fabs(got - S) <= most))
            trial_fails(r, "device %d: the sum of its %lld number%s is %.9g, exactly it is %.9g; the difference is "
                      "%.3g, and may be %.3g (one after another gives %.3g)", d, (long long)LENGTH(r, d),
                        LENGTH(r, d) == 1 ? "" : "s", got, S, got - S, most,
                        (double)forward(VECTOR(r, d), LENGTH(r, d)) - S);
    }
    if (r) trial_close(r);
}

/* Whole numbers have 2^120 and its negative among them, in both orders.  Numbers added between these two are lost
 * in double, too. */
static void check_cancelling(struct judge *j)
{
    struct trial *r = trial_open(j, "sum_careful", DEVICES, "2^120 and -2^120 among whole numbers");
    double want[DEVICES] = { 0 };
    for (int d = 0; d < DEVICES; d++) {
        const int n = (int)judge_draw(j, 5, 300), high = n / 3, low = 2 * n / 3;
        float *x = trial_buffer(r, d, 0, sizeof(float) * (uint64_t)n, BUFFER_IN);
        judge_whole(j, x, n, 100);
        for (int i = 0; i < n; i++) want[d] += i == high || i == low ? 0 : (double)x[i];
        x[high] = d % 2 ? -0x1p120f : 0x1p120f, x[low] = -x[high];
        LENGTH(r, d) = n;
    }
    /* All devices are called once, at d = 0, and compared then. */
    for (int d = 0; d < DEVICES && (d > 0 || trial_call(r)); d++)
        if (!(r->device[d].real == want[d]))
            trial_fails(r, "device %d: the sum of its %lld numbers, %s2^120 first, is %.9g, exactly it is %.9g; what "
                        "is added to so large a number is lost, in double, too", d, (long long)LENGTH(r, d),
                        d % 2 ? "-" : "", r->device[d].real, want[d]);
    trial_close(r);
}

static void check_careful(struct judge *j)
{
    check_errors(j);
    if (!j->failed) check_cancelling(j);
}

static const char *const functions[] = { "sum_forward", "sum_pairs", "sum_parts", "sum_bound", "sum_careful", NULL };

extern const struct lesson lesson_01_sums;
const struct lesson lesson_01_sums = {
    .folder = "01_sums", .title = "Sums and rounding", .file = "sums.c", .functions = functions,
    .vary = { { "HALF", 2 }, { "ORDER", 2 } },
    .check = {
        { 1, "forward", "one after another: the same bits", 2, { check_forward },
          { "Which type has your sum while you add?  A double has other bits than a float.",
            "float sum = 0; then one addition for each number, in a loop from 0 to n-1." } },
        { 2, "pairs", "half by half: the same bits", 3, { check_pairs },
          { "A vector of one number is its own sum, and one of none has the sum 0.",
            "For the other lengths: split the vector in two, call sum_pairs for each, add the two results.",
            "Which half of 5 numbers has 3?  Look at sums.h, then try n = 3 on paper." } },
        { 3, "parts", "block by block: the same bits", 3, { check_parts },
          { "block_of(n, parts, i) has a start and a count, and some blocks are empty.",
            "Each device's sum is a float of its own, made by sum_forward; then these floats are added.",
            "In which order are the sums of the devices added?  sums.h says it." } },
        { 4, "bound", "the bound of the error", 2, { check_bound },
          { "Every term is a double: (double)x[i], before anything is added.",
            "The sizes are added, fabs of each number; what is added may not cancel.",
            "2^-24 is ldexp(1, -24): half the distance from 1 to the next float." } },
        { 5, "careful", "no more than one rounding is lost", 4, { check_careful },
          { "When s + x is rounded to t, what was lost can be computed: if |s| >= |x| it is exactly (s - t) + x.",
            "Keep a second float, the sum of what was lost; add it once, at the end.",
            "If |x| > |s| the roles change: (x - t) + s.  Test which of the two is larger in each step, by fabsf." } },
    },
};
