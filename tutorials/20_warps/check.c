/* check.c -- judges lesson 20.  Kernels run on this machine's cores (course/kernel.h).  The student writes warps.cu:
 * sums of rows and a softmax, with a warp of 32 lanes for a row.  Sums must have the prescribed bits, a softmax its
 * bound.  Threads run in several orders, and the judge watches accesses.  emulated_devices/course/judge.c runs each
 * check in a process of its own; a failed check is a line for the student. */
#include "emulated_devices/course/kernel.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SUMS = 1, SOFTMAX = 2, SIZES = 7, LANES = 32 };
static const char *const names[] = { "", "row_sums", "softmax" };

/* Rows and columns, also of no rows, and of rows that are no multiple of a warp. */
static const int sizes[SIZES][2] = { { 1, 1 }, { 100, 32 }, { 3, 31 }, { 5, 33 }, { 0, 7 }, { 9, 300 }, { 6, 257 } };

/* The first five sizes are the same for open and hidden inputs. */
static void size(struct judge *j, int i, int *rows, int *cols)
{
    *rows = j->hidden && i > 4 ? (int)judge_draw(j, 5, 20) : sizes[i][0];
    *cols = j->hidden && i > 4 ? (int)judge_draw(j, 2, 300) : sizes[i][1];
}

/* Name a matrix in words, for a message. */
struct shape_text { char text[48]; };
static struct shape_text shape_text(const struct kernel_trial *t)
{
    struct shape_text s;
    snprintf(s.text, sizeof s.text, "%d row%s and %d column%s", t->number[0], t->number[0] == 1 ? "" : "s",
             t->number[1], t->number[1] == 1 ? "" : "s");
    return s;
}

/* ---- what must come out ------------------------------------------------------------------------------------------ */

/* Add a row as warps.h prescribes: lane by lane, then in a tree.  The variant TREE goes up or down. */
static float row_sum(const struct judge *j, const float *x, int cols)
{
    float lane[LANES] = { 0 }, next[LANES];
    const bool up = judge_choice(j, "TREE") == 1;
    /* Lane l adds every 32nd column from l on. */
    for (int i = 0; i < cols; i++) lane[i % LANES] += x[i];
    /* The lanes are added in pairs, five times. */
    for (int by = up ? 1 : LANES / 2; by > 0 && by < LANES; by = up ? by * 2 : by / 2) {
        for (int l = 0; l < LANES; l++) next[l] = lane[l] + lane[l ^ by];
        for (int l = 0; l < LANES; l++) lane[l] = next[l];
    }
    return lane[0];
}

/* Sums must have the bits of this order; another order is another number. */
static bool same_sums(struct judge *j, const struct kernel_trial *t)
{
    for (int r = 0; r < t->number[0]; r++) {
        const float want = row_sum(j, t->x + r * t->number[1], t->number[1]);
        if (!(t->y[r] == want))
            return kernel_fails(j, t, "row_sums of %s: the sum of row %d is %.9g%s, and must be %.9g, to the bit",
                                shape_text(t).text, r, (double)t->y[r], kernel_meaning(t->y[r]), (double)want);
    }
    return true;
}

/* Bound of a softmax, u = 2^-24: exp is off by 2 u, and its argument by u of its size.  Sums of up to 300 positive
 * numbers are off by less than 15 u. */
static bool near_softmax(struct judge *j, const struct kernel_trial *t)
{
    const int cols = t->number[1];
    for (int r = 0; r < t->number[0]; r++) {
        const float *x = t->x + r * cols;
        double most = -INFINITY, sum = 0;
        /* The softmax is computed in double: exp(x - most) / sum. */
        for (int i = 0; i < cols; i++) most = x[i] > most ? x[i] : most;
        for (int i = 0; i < cols; i++) sum += exp(x[i] - most);
        for (int i = 0; i < cols; i++) {
            const double want = exp(x[i] - most) / sum, got = t->y[r * cols + i];
            const double bound = want * (40 + 2 * fabs(x[i] - most)) * 0x1p-24 + 0x1p-126;
            if (!(fabs(got - want) <= bound))
                return kernel_fails(j, t, "softmax of %s: y[%d,%d] is %.7g%s, and must be %.7g; its bound is %.1e",
                                    shape_text(t).text, r, i, got, kernel_meaning((float)got), want, bound);
        }
    }
    return true;
}

/* A lane may read a 32nd of the columns, three times for a softmax, and write it once.  What lanes hand each other
 * by memory may be as much as by shuffles. */
static bool by_lanes(struct judge *j, const struct kernel_trial *t)
{
    const long most = 4 * ((t->number[1] + LANES - 1) / LANES) + 32;
    return t->accesses <= most ||
           kernel_fails(j, t, "%s of %s: the numbers are right, but a thread reads and writes %ld times, and may at "
                        "most %ld times: a row is the work of a warp, a 32nd of its columns that of a lane",
                        names[t->which], shape_text(t).text, t->accesses, most);
}

static bool same_by_lanes(struct judge *j, const struct kernel_trial *t) { return same_sums(j, t) && by_lanes(j, t); }
static bool near_by_lanes(struct judge *j, const struct kernel_trial *t)
{
    return near_softmax(j, t) && by_lanes(j, t);
}

static bool clean(struct judge *j, const struct kernel_trial *t)
{
    if (t->reports == 0) return true;
    return judge_fails(j, "%s of %s: %s%s", names[t->which], shape_text(t).text, t->report,
                       t->reports > 1 ? "; and more" : "");
}

/* ---- checks ------------------------------------------------------------------------------------------------------ */

/* Try sizes from `first` on of numbers around `middle`, or around it and its negative in turn.  `holds` must be
 * true of every run. */
static bool run(struct judge *j, int which, int first, float middle, bool both, const char *order,
                bool (*holds)(struct judge *, const struct kernel_trial *))
{
    static struct kernel_trial t;
    static float x[KERNEL_MOST];
    for (int i = first; i < SIZES; i++) {
        int rows, cols;
        size(j, i, &rows, &cols);
        t = (struct kernel_trial){ .which = which, .number = { rows, cols }, .order = order, .x = x, .n = rows * cols };
        t.m = which == SUMS ? rows : rows * cols;
        judge_rough(j, x, t.n);
        /* With `both` the numbers lie around -middle and middle in turn. */
        for (int k = 0; k < t.n; k++) x[k] += both && k % 2 == 0 ? -middle : middle;
        if (!kernel_try(j, &t) || !holds(j, &t)) return false;
    }
    return true;
}

/* Each kernel has a check of values, of the judge's reports, and of orders or large numbers. */
static void check_sums(struct judge *j) { run(j, SUMS, 0, 0, false, "forward", same_by_lanes); }
static void check_sums_judge(struct judge *j) { run(j, SUMS, 3, 0, false, "forward", clean); }
static void check_sums_orders(struct judge *j)
{
    if (run(j, SUMS, SIZES - 2, 0, false, "reverse", same_sums)) run(j, SUMS, SIZES - 1, 0, false, "7", same_sums);
}
static void check_softmax(struct judge *j) { run(j, SOFTMAX, 0, 0, false, "forward", near_by_lanes); }
static void check_softmax_large(struct judge *j)
{
    if (run(j, SOFTMAX, SIZES - 2, 1000, false, "reverse", near_softmax) &&
        run(j, SOFTMAX, SIZES - 1, -1000, false, "7", near_softmax))
        run(j, SOFTMAX, SIZES - 1, 1000, true, "forward", near_softmax);
}
static void check_softmax_judge(struct judge *j) { run(j, SOFTMAX, 3, 0, false, "forward", clean); }

const struct lesson lesson_20_warps = {
    .folder = "20_warps", .title = "Kernels: a warp a row, shuffles and their masks", .file = "warps.cu",
    .given = { "warps.h" },
    .vary = { { "TREE", 2 } },
    .check = {
        { 1, "sums", "sums of rows: with the prescribed bits", 3, { check_sums },
          { "A row has 257 numbers, and a warp 32 lanes: which columns are lane 3's?",
            "__shfl_xor_sync(mask, sum, by) gives the sum that lane (lane xor by) has.",
            "warps.h says in which order the lanes are put together; another one has other bits.",
            "A lane that is not in its own mask, or has returned, gives nothing: who asks it gets its own number "
            "back." } },
        { 1, "sums-orders", "sums of rows: in every order of threads", 1, { check_sums_orders },
          { "Nothing may depend on which lane comes first: a warp is in step only where a function with a mask says "
            "so." } },
        { 1, "sums-judge", "sums of rows: masks name who comes, and nothing is out of bounds", 4, { check_sums_judge },
          { "The mask of a shuffle names all lanes that call it, and each of these must call it.",
            "With 5 rows the second block has warps without a row.  May they read x?",
            "A race in shared memory: shuffles and votes order no memory, __syncwarp() does.",
            "All lanes of a warp have the same row, so they can return together." } },
        { 2, "softmax", "softmax: within its bound", 3, { check_softmax },
          { "First the largest number of the row, then the sum, then the quotients.",
            "Every lane needs the largest number and the sum: what does a xor-shuffle leave in lane 5?",
            "A lane that is not in its own mask gets its own number back.  Do all 32 stand in it?" } },
        { 2, "softmax-large", "softmax: of numbers around 1000 and -1000, also in one row", 2, { check_softmax_large },
          { "exp(1000) is no float.  exp(x - most) / sum of exp(x - most) is the same quotient.",
            "What is the largest number of a row that is all below zero?  And of a lane without a column?",
            "Another number of the row in the place of the largest: exp of what is far above it is no float." } },
        { 2, "softmax-judge", "softmax: nothing that the judge sees", 3, { check_softmax_judge },
          { "Its report names the line, and the lane." } },
    },
};
