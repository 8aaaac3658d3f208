/* check.c -- judges lesson 21.  The student writes exact.c: the grid of some numbers, their sum in integers, its
 * rounding, and a sum of several devices whose bits do not depend on how the numbers are cut.  All checks compare bits
 * with sums made here.  emulated_devices/course/judge.c runs each check in a process of its own; a failed check is a
 * line for the student. */
#include "emulated_devices/course/lesson.h"
#include "emulated_devices/device/interval.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DEVICES = 8, MOST = 4096 };

static int bits_of_integers(const struct judge *j) { return judge_choice(j, "BITS") == 0 ? 40 : 38; }

/* ---- what is right ----------------------------------------------------------------------------------------------- */

static int grid(const float *x, int64_t n, int bits)
{
    int exponent = 0;
    float top = 0;
    for (int64_t i = 0; i < n; i++) top = fabsf(x[i]) > top ? fabsf(x[i]) : top;
    if (top > 0) (void)frexpf(top, &exponent);
    return exponent - bits;
}

/* The nearest integer, ties to even, without the library's rint: a whole part and what is left. */
static int64_t nearest(double x)
{
    const double whole = floor(x), rest = x - whole;
    const int64_t low = (int64_t)whole;
    return rest > 0.5 || (rest == 0.5 && low % 2 != 0) ? low + 1 : low;
}

static int64_t sum_on(const float *x, int64_t n, int g)
{
    int64_t sum = 0;
    for (int64_t i = 0; i < n; i++) sum += nearest(ldexp((double)x[i], -g));
    return sum;
}

/* All bits behind the 24th decide together: the half, and whether anything is behind it. */
static float rounded(int64_t sum, int g)
{
    const uint64_t size = sum < 0 ? -(uint64_t)sum : (uint64_t)sum;
    int lost = 0;
    while (size >> lost >= (uint64_t)1 << 24) lost++;
    uint64_t kept = size >> lost;
    const uint64_t rest = size - (kept << lost), half = lost ? (uint64_t)1 << (lost - 1) : 0;
    if (lost && (rest > half || (rest == half && kept % 2))) kept++;
    const float x = ldexpf((float)kept, lost + g);
    return sum < 0 ? -x : x;
}

/* ---- the checks -------------------------------------------------------------------------------------------------- */

/* Numbers of very different sizes. */
static void draw_wide(struct judge *j, float *x, int64_t n)
{
    judge_rough(j, x, n);
    for (int64_t i = 0; i < n; i++) x[i] = ldexpf(x[i], -(int)judge_draw(j, 0, 36));
}

static int length(struct judge *j, int device)
{
    static const int usual[DEVICES] = { 0, 1, 2, 3, 5, 8, 100, 1000 };
    return j->hidden && device > 2 ? (int)judge_draw(j, 2, 1500) : usual[device];
}

/* These devices have numbers whose largest is an exact power of two, negative, or 0. */
static void check_exponent(struct judge *j)
{
    const int bits = bits_of_integers(j);
    struct trial *r = trial_open(j, "grid_exponent", DEVICES, "%s", "");
    for (int d = 0; d < DEVICES; d++) {
        const int n = length(j, d);
        float *const x = trial_buffer(r, d, 0, sizeof *x * (uint64_t)n, BUFFER_IN);
        draw_wide(j, x, n);
        if (d == 1) x[0] = 0;
        if (d == 2) x[1] = -1024;
        if (d == 3) x[0] = 0.25f, x[1] = x[2] = 0.125f;
        if (d == 4) x[2] = -nextafterf(4096, 0);
        r->device[d].number[0] = n;
    }
    if (trial_call(r))
        for (int d = 0; d < DEVICES; d++) {
            const float *const x = r->device[d].buffer[0].data;
            const int want = grid(x, r->device[d].number[0], bits);
            if (r->device[d].result != want)
                trial_fails(r, "device %d: the grid of its %lld numbers has the exponent %lld; 2^(g + %d) must be "
                            "above their largest size and g the least such number: %d", d,
                            (long long)r->device[d].number[0], (long long)r->device[d].result, bits, want);
        }
    trial_close(r);
}

/* On a coarse grid many numbers lie in the middle between two integers. */
static void check_sum(struct judge *j)
{
    struct trial *r = trial_open(j, "grid_sum", DEVICES, "%s", "");
    for (int d = 0; d < DEVICES; d++) {
        const int n = length(j, d), g = d % 2 ? -4 : -30;
        float *const x = trial_buffer(r, d, 0, sizeof *x * (uint64_t)n, BUFFER_IN);
        if (d % 2) judge_whole(j, x, n, 999);
        else draw_wide(j, x, n);
        for (int i = 0; i < n && d % 2; i++) x[i] /= 32;
        r->device[d].number[0] = n, r->device[d].number[1] = g;
    }
    if (trial_call(r))
        for (int d = 0; d < DEVICES; d++) {
            const float *const x = r->device[d].buffer[0].data;
            const int64_t n = r->device[d].number[0], want = sum_on(x, n, (int)r->device[d].number[1]);
            if (r->device[d].result != want)
                trial_fails(r, "device %d: the sum of its %lld integers on the grid 2^%lld is %lld and should be %lld",
                            d, (long long)n, (long long)r->device[d].number[1], (long long)r->device[d].result,
                            (long long)want);
        }
    trial_close(r);
}

/* Some sums lie next to the middle between two floats, by less than a double shows. */
static void check_round(struct judge *j)
{
    const int64_t odd = ((int64_t)1 << 23) + 2 * judge_draw(j, 1, 1000) + 1, middle = (2 * odd + 1) << 35,
                  even = (2 * (odd - 1) + 1) << 35,
                  sums[DEVICES] = { 0, odd, -(2 * odd + 1), middle, even, even + 1, -(even + 1), middle - 1 };
    struct trial *r = trial_open(j, "grid_round", DEVICES, "%s", "");
    for (int d = 0; d < DEVICES; d++)
        r->device[d].number[0] = sums[d], r->device[d].number[1] = -40 + (int)judge_draw(j, 0, 20);
    if (trial_call(r))
        for (int d = 0; d < DEVICES; d++) {
            const int g = (int)r->device[d].number[1];
            const float want = rounded(sums[d], g);
            if (r->device[d].real != (double)want)
                trial_fails(r, "device %d: %lld 2^%d rounded once is %.9g, not %.9g: %s", d, (long long)sums[d], g,
                            (double)want, r->device[d].real,
                            d < 3 ? "24 bits or one more" : "look at the bits behind the 24th, all of them");
        }
    trial_close(r);
}

/* Two large numbers that cancel, and small ones whose last bits the grid cuts: the result shows the grid. */
static void draw_cancelling(struct judge *j, float *x, int n)
{
    draw_wide(j, x, n);
    for (int i = 0; i < n; i++) x[i] = ldexpf(x[i], -14);
    if (n > 2) x[n - 2] = 1024, x[n - 1] = -1024;
}

static void check_parts(struct judge *j)
{
    const int bits = bits_of_integers(j);
    for (const int *P = COURSE_DEVICES; *P && !j->failed; P++) {
        struct trial *r = trial_open(j, "exact_parts", DEVICES, "parts = %d", *P);
        for (int d = 0; d < DEVICES; d++) {
            const int n = length(j, d);
            float *const x = trial_buffer(r, d, 0, sizeof *x * (uint64_t)n, BUFFER_IN);
            if (d % 2) draw_cancelling(j, x, n);
            else draw_wide(j, x, n);
            r->device[d].number[0] = n, r->device[d].number[1] = *P;
        }
        if (trial_call(r))
            for (int d = 0; d < DEVICES; d++) {
                const float *const x = r->device[d].buffer[0].data;
                const int64_t n = r->device[d].number[0];
                const int g = grid(x, n, bits);
                const float want = rounded(sum_on(x, n, g), g);
                if (r->device[d].real != (double)want)
                    trial_fails(r, "device %d: in %d part%s the sum of its %lld numbers is %.9g, and in one part it is "
                                "%.9g%s", d, *P, *P == 1 ? "" : "s", (long long)n, r->device[d].real, (double)want,
                                trial_meaning(r->device[d].real));
            }
        trial_close(r);
    }
}

static const char *const functions[] = { "grid_exponent", "grid_sum", "grid_round", "exact_parts", NULL };

extern const struct lesson lesson_21_exact;
const struct lesson lesson_21_exact = {
    .folder = "21_exact", .title = "Sums without an order", .file = "exact.c", .functions = functions,
    .vary = { { "BITS", 2 } },
    .check = {
        { 1, "exponent", "the grid of the largest number", 3, { check_exponent },
          { "Only the largest size decides.  Which function gives the size of a negative number?",
            "frexpf(top, &e) returns top / 2^e, which is at least 0.5 and below 1.  So top < 2^e.",
            "1024 is not below 2^10: its e is 11.  And frexpf of 0 says nothing useful." } },
        { 2, "sum", "the sum of nearest integers", 4, { check_sum },
          { "Each number becomes an integer first; only integers are added.",
            "x / 2^g is ldexp((double)x, -g), without rounding.  Then rint, not a cast: a cast cuts off.",
            "round() goes away from 0 in the middle, floor(x + 0.5) goes up.  rint() takes the even one." } },
        { 3, "round", "the finished sum is rounded once", 3, { check_round },
          { "A sum may have more than 53 bits.  What does a conversion to double do then?",
            "A conversion from int64_t to float rounds once, from all bits: (float)sum.",
            "ldexpf by g does not round: it moves the exponent." } },
        { 4, "parts", "the same bits for every number of devices", 4, { check_parts },
          { "Which numbers must be known before the first device can make an integer?",
            "The grid is that of all n numbers: devices agree on their largest, and a maximum has no order.",
            "Nothing is rounded before the sums of all devices are added, as int64_t." } },
    },
};
