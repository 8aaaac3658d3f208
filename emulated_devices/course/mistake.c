/* mistake.c -- tries usual mistakes on a wrong array, one after another, until one explains all its wrong numbers.
 *
 * Each trial of a mistake computes what the mistake would give, and compares it with what came back.  Inputs are drawn
 * at random, so numbers that fit in all places do so by chance in no run.  trial.c and lessons call mistake_explain.
 * The least-squares factor is that of `orrery check` (check/report/diagnose.h).  Nothing fails here.
 */
#include "emulated_devices/course/mistake.h"
#include "emulated_devices/check/report/diagnose.h"
#include "emulated_devices/course/trial.h"
#include "emulated_devices/device/interval.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Relative tolerance of what a mistake would give: sums of floats in any order differ by less. */
static const double SAME = 0x1p-18;
/* Relative tolerance of rounding alone: eight terms of 2^-24 each, and a few steps of them. */
static const double ROUNDING = 0x1p-20;

static const struct { const char *name, *advice; } mistakes[MISTAKES] = {
    [MISTAKE_UNKNOWN] = { "", NULL },
    [MISTAKE_TOO_LARGE] = { "too large", "A sum over W devices is W times their mean.  Where is it divided by W?" },
    [MISTAKE_TOO_SMALL] = { "too small", "Is a sum asked for, and not a mean?  Or is something divided by W twice?" },
    [MISTAKE_UNWRITTEN] = { "never written", "allocate() gives memory with undefined content.  Which line should have "
                            "written this element, and does that line run?" },
    [MISTAKE_UNCHANGED] = { "unchanged", "Nothing has changed these numbers.  Which line should have, and does it run "
                            "on this device?" },
    [MISTAKE_STALE] = { "stale", "This is the result of the step before.  What is computed from old values, or is "
                        "updated too late?" },
    [MISTAKE_BYTES] = { "bytes", "Messages and allocate() count bytes: n numbers are n * sizeof(float) of them." },
    [MISTAKE_NEIGHBOUR] = { "another device's", "Who is the neighbour?  Compare (rank + 1) mod W and (rank - 1) mod W "
                            "with the page, for sending and for receiving." },
    [MISTAKE_MISSING] = { "missing", "Follow the missing numbers from their device on: in which step should they be "
                          "added, and where?" },
    [MISTAKE_TWICE] = { "twice", "Which step adds these numbers a second time?  Perhaps there is a step too many." },
    [MISTAKE_TRANSPOSED] = { "transposed", "Row i, column j of [rows, columns] is element i * columns + j." },
    [MISTAKE_SHIFTED] = { "shifted", "The numbers are right and their place is wrong: where does each block begin?  "
                          "block_of() says it." },
    [MISTAKE_ORDER] = { "order", "Only rounding differs.  In which order does the contract add these numbers?" },
    [MISTAKE_DEADLOCK] = { "deadlock", "Find in the drawing who waits for whom.  Which of them could go first?" },
    [MISTAKE_LEAK] = { "leak", "Each allocate() needs a release(), on every way out of a function; --sanitize names "
                       "the line." },
};

const char *mistake_advice(enum mistake mistake) { return mistakes[mistake].advice; }
const char *mistake_name(enum mistake mistake) { return mistakes[mistake].name; }

/* ---- comparing --------------------------------------------------------------------------------------------------- */

/* This is the largest size in the right numbers: differences are measured by it. */
static double largest(const struct wrong *wrong)
{
    double most = 0;
    for (int64_t e = 0; e < wrong->count; e++) most = fmax(most, fabs(wrong->want[e]));
    return most;
}

/* Whether a number is what a mistake would give. */
static bool mistake_fits(double got, double made, double scale)
{
    return fabs(got - made) <= SAME * fmax(fabs(made), 0x1p-6 * scale);
}

static bool is_right(const struct wrong *wrong, int64_t e)
{
    return wrong->exact ? (float)wrong->want[e] == wrong->got[e]
                        : mistake_fits((double)wrong->got[e], wrong->want[e], largest(wrong));
}

/* Find what device d had in this part of the buffer before the call; NULL: nothing, or another number of elements. */
static const float *had(const struct trial *trial, const struct wrong *wrong, int d)
{
    const float *before = trial->device[d].buffer[wrong->buffer].before;
    const uint64_t end = 4 * (uint64_t)(wrong->first + wrong->count);
    return before && trial->device[d].buffer[wrong->buffer].bytes >= end ? before + wrong->first : NULL;
}

/* Whether all wrong numbers are those that a device had before, bit by bit. */
static bool are_what_was(const struct trial *trial, const struct wrong *wrong, int d)
{
    const float *before = had(trial, wrong, d);
    int64_t differ = 0;
    if (before == NULL) return false;
    for (int64_t e = 0; e < wrong->count; e++) {
        if (is_right(wrong, e)) continue;
        if (memcmp(&before[e], &wrong->got[e], sizeof *before) != 0) return false;
        differ++;
    }
    return differ > 0;
}

/* ---- the mistakes ------------------------------------------------------------------------------------------------ */

/* A message of as many bytes as there are numbers in the array, or in one of its blocks. */
static bool counts_bytes(const struct trial *trial, const struct wrong *wrong, char *to, size_t size)
{
    for (int i = 0; i < trial->events; i++) {
        const struct event *e = &trial->event[i];
        if (e->bytes == 0 || (e->kind != EVENT_SEND && e->kind != EVENT_RECEIVE)) continue;
        bool numbers = e->bytes == (uint64_t)wrong->count, bytes = e->bytes == 4 * (uint64_t)wrong->count;
        for (int b = 0; b < trial->devices; b++) {
            const uint64_t block = (uint64_t)block_at(wrong->count, trial->devices, b).count;
            numbers |= e->bytes == block, bytes |= e->bytes == 4 * block;
        }
        if (!numbers || bytes) continue;
        snprintf(to, size, ": a message has %llu B, a quarter of %llu B: as many bytes as it should have numbers",
                 (unsigned long long)e->bytes, 4 * (unsigned long long)e->bytes);
        return true;
    }
    return false;
}

/* Numbers that were left as they were, or that are another device's. */
static enum mistake try_devices(const struct trial *trial, const struct wrong *wrong, char *to, size_t size)
{
    const int W = trial->devices;
    if (are_what_was(trial, wrong, wrong->device)) {
        snprintf(to, size, ": these numbers are as they were before the call");
        return MISTAKE_UNCHANGED;
    }
    for (int d = 0; d < W; d++) {
        if (d == wrong->device || !are_what_was(trial, wrong, d)) continue;
        const bool before = (d + 1) % W == wrong->device, behind = (wrong->device + 1) % W == d;
        snprintf(to, size, ": this is what device %d had before the call%s", d, W == 2 || before == behind ? "" :
                 before ? ", the neighbour with the lower number" : ", the neighbour with the higher number");
        return MISTAKE_NEIGHBOUR;
    }
    return MISTAKE_UNKNOWN;
}

/* The factor of what came back to what is right, both without `from`; NaN if no factor explains it. */
static double mistake_factor(const struct wrong *wrong, const float *from)
{
    double actual = 0, product = 0, truth = 0;
    for (int64_t e = 0; e < wrong->count; e++) {
        const double zero = from ? (double)from[e] : 0;
        const double got = (double)wrong->got[e] - zero, want = wrong->want[e] - zero;
        actual += got * got, product += got * want, truth += want * want;
    }
    const struct scale scale = scale_of(actual, product, truth);
    /* One number is a multiple of any other, so only exact factors count there, too. */
    return scale.residual <= (from ? 0x1p-14 : SAME) ? scale.factor : NAN;
}

static bool is_factor(double factor, double wanted) { return fabs(factor - wanted) <= 0x1p-12 * wanted; }

/* A number of devices too many or too few, of the numbers or of their change. */
static enum mistake try_factor(const struct trial *trial, const struct wrong *wrong, char *to, size_t size)
{
    const int W = trial->devices;
    for (int change = 0; change < 2; change++) {
        const float *from = change ? had(trial, wrong, wrong->device) : NULL;
        const char *what = change ? "the change is " : "";
        if (change && from == NULL) break;
        const double factor = mistake_factor(wrong, from);
        if (W > 1 && is_factor(factor, W)) {
            snprintf(to, size, ": %sexactly W = %d times too large, a sum where a mean is asked for?", what, W);
            return MISTAKE_TOO_LARGE;
        }
        if (W > 1 && is_factor(factor, 1.0 / W)) {
            snprintf(to, size, ": %sexactly W = %d times too small, a mean where a sum is asked for, or divided twice?",
                     what, W);
            return MISTAKE_TOO_SMALL;
        }
        if (W > 1 && is_factor(factor, 1.0 / W / W)) {
            snprintf(to, size, ": %sexactly W^2 = %d times too small: it is divided by W twice", what, W * W);
            return MISTAKE_TOO_SMALL;
        }
        if (is_factor(-factor, 1)) {
            snprintf(to, size, ": %sright but for its sign", what);
            return MISTAKE_UNKNOWN;
        }
    }
    return MISTAKE_UNKNOWN;
}

/* Whether all numbers are those of a sum: device d's numbers times weight[d]. */
static bool are_sum(const struct trial *trial, const struct wrong *wrong, const double *weight, bool of_want)
{
    for (int64_t e = 0; e < wrong->count; e++) {
        double sum = 0, sizes = 0;
        for (int d = 0; d < trial->devices; d++) {
            const double x = (double)had(trial, wrong, d)[e] * weight[d];
            sum += x, sizes += fabs(x);
        }
        if (!(fabs((of_want ? wrong->want[e] : (double)wrong->got[e]) - sum) <= ROUNDING * sizes)) return false;
    }
    return true;
}

/* Sums over the devices without some of them, or with one of them twice.  All sets of eight devices are 255. */
static enum mistake try_sums(const struct trial *trial, const struct wrong *wrong, char *to, size_t size)
{
    const int W = trial->devices;
    double weight[WORKER_MOST_DEVICES], share = 1;
    for (int d = 0; d < W; d++) {
        weight[d] = 1;
        if (had(trial, wrong, d) == NULL) return MISTAKE_UNKNOWN;
    }
    if (W == 1 || wrong->count == 0) return MISTAKE_UNKNOWN;
    if (!are_sum(trial, wrong, weight, true)) share = 1.0 / W;
    for (int d = 0; d < W; d++) weight[d] = share;
    if (!are_sum(trial, wrong, weight, true)) return MISTAKE_UNKNOWN;
    if (wrong->exact && are_sum(trial, wrong, weight, false)) {
        snprintf(to, size, ": the right numbers were added, in another order");
        return MISTAKE_ORDER;
    }
    for (int twice = 0; twice < W; twice++) {
        weight[twice] = 2 * share;
        if (are_sum(trial, wrong, weight, false)) {
            snprintf(to, size, ": the numbers of device %d%s are in it twice", twice,
                     twice == wrong->device ? ", its own," : "");
            return MISTAKE_TWICE;
        }
        weight[twice] = share;
    }
    for (unsigned some = 1; some + 1 < 1u << W; some++) {
        size_t used = (size_t)snprintf(to, size, ": the numbers of device");
        for (int d = 0; d < W; d++) weight[d] = some >> d & 1 ? share : 0;
        if (!are_sum(trial, wrong, weight, false)) continue;
        for (int d = 0; d < W && used < size; d++)
            if (!(some >> d & 1))
                used += (size_t)snprintf(to + used, size - used, " %d%s", d, d == wrong->device ? " (its own)" : "");
        if (used < size) snprintf(to + used, size - used, " are missing in the sum");
        return MISTAKE_MISSING;
    }
    to[0] = '\0';
    return MISTAKE_UNKNOWN;
}

/* Rows for columns: every pair of sizes whose product is the number of elements is tried. */
static bool is_transposed(const struct wrong *wrong, char *to, size_t size)
{
    const double scale = largest(wrong);
    for (int64_t rows = 2; rows * 2 <= wrong->count; rows++) {
        if (wrong->count % rows != 0) continue;
        const int64_t columns = wrong->count / rows;
        bool fits = true;
        for (int64_t i = 0; i < rows && fits; i++)
            for (int64_t j = 0; j < columns && fits; j++)
                fits = mistake_fits((double)wrong->got[j * rows + i], wrong->want[i * columns + j], scale);
        if (!fits) continue;
        snprintf(to, size, ": these are the numbers of [%lld, %lld] stored as [%lld, %lld], rows for columns",
                 (long long)rows, (long long)columns, (long long)columns, (long long)rows);
        return true;
    }
    return false;
}

/* Blocks of right numbers in the place of others; or all numbers some places further on. */
static bool is_shifted(const struct trial *trial, const struct wrong *wrong, char *to, size_t size)
{
    const int W = trial->devices;
    const double scale = largest(wrong);
    const int64_t n = wrong->count;
    for (int b = 0; b < W && W > 1 && n >= W; b++)
        for (int other = 0; other < W; other++) {
            const struct interval at = block_at(n, W, b), from = block_at(n, W, other);
            bool fits = b != other && !is_right(wrong, at.first);
            for (int64_t k = 0; k < at.count && k < from.count && fits; k++)
                fits = mistake_fits((double)wrong->got[at.first + k], wrong->want[from.first + k], scale);
            if (!fits) continue;
            snprintf(to, size, ": block %d has the numbers of block %d", b, other);
            return true;
        }
    for (int64_t by = 1; by < n && n > 2; by++) {
        bool fits = true;
        for (int64_t e = 0; e < n && fits; e++)
            fits = mistake_fits((double)wrong->got[e], wrong->want[(e + by) % n], scale);
        if (!fits) continue;
        snprintf(to, size, ": the numbers are right, but %lld place%s too far to the %s",
                 (long long)(by <= n / 2 ? by : n - by), by == 1 || by == n - 1 ? "" : "s",
                 by <= n / 2 ? "front" : "back");
        return true;
    }
    return false;
}

/* Numbers that the check has named as what a mistake gives. */
static enum mistake try_suspects(const struct trial *trial, const struct wrong *wrong, char *to, size_t size)
{
    const double scale = largest(wrong);
    for (int s = 0; s < trial->suspects; s++) {
        const struct trial_suspect *suspect = &trial->suspect[s];
        bool fits = suspect->buffer == wrong->buffer && suspect->count >= wrong->first + wrong->count;
        for (int64_t e = 0; e < wrong->count && fits; e++)
            fits = mistake_fits((double)wrong->got[e], (double)suspect->values[wrong->first + e], scale);
        if (!fits) continue;
        snprintf(to, size, ": %s", suspect->text);
        return suspect->mistake;
    }
    return MISTAKE_UNKNOWN;
}

/* Only the last bits differ. */
static bool is_rounding(const struct wrong *wrong)
{
    const double scale = largest(wrong);
    for (int64_t e = 0; e < wrong->count; e++)
        if (!(fabs((double)wrong->got[e] - wrong->want[e]) <= ROUNDING * fmax(fabs(wrong->want[e]), 0x1p-3 * scale)))
            return false;
    return wrong->exact;
}

enum mistake mistake_explain(const struct trial *trial, const struct wrong *wrong, char *to, size_t size)
{
    to[0] = '\0';
    if (counts_bytes(trial, wrong, to, size)) return MISTAKE_BYTES;
    for (int64_t e = 0; e < wrong->count; e++)          /* sums of infinities and poison have no factor */
        if (!(fabs((double)wrong->got[e]) < 1e30)) return MISTAKE_UNWRITTEN;
    enum mistake found = try_suspects(trial, wrong, to, size);
    if (!found) found = try_devices(trial, wrong, to, size);
    if (!found) found = try_sums(trial, wrong, to, size);
    if (!found && to[0] == '\0') found = try_factor(trial, wrong, to, size);
    if (found || to[0]) return found;
    if (is_transposed(wrong, to, size)) return MISTAKE_TRANSPOSED;
    if (is_shifted(trial, wrong, to, size)) return MISTAKE_SHIFTED;
    if (!is_rounding(wrong)) return MISTAKE_UNKNOWN;
    snprintf(to, size, ": only the last bits differ, as after additions in another order");
    return MISTAKE_ORDER;
}
