/* check.c -- judges lesson 19.  Kernels run on this machine's cores (course/kernel.h).  The student writes scan.cu:
 * prefix sums of one block, then of all blocks.  Threads are scheduled in several orders, and the judge watches
 * reads and writes for races.  Sums of whole numbers are exact, so every order must give the same bits.
 * emulated_devices/course/judge.c runs each check in a process of its own; a failed check is a line for the
 * student. */
#include "emulated_devices/course/kernel.h"
#include <stdlib.h>

enum { THREADS = 128, BLOCK = 1, ALL = 2, SIZES = 6 };

/* Hidden inputs have a full block and one number, too.  The most numbers have a block for each of THREADS totals. */
static int size(struct judge *j, int which, int i)
{
    static const int usual[3][SIZES] = { [BLOCK] = { 1, 2, 33, 64, 100, THREADS },
                                         [ALL] = { 1, THREADS, THREADS + 1, THREADS * THREADS, 700, 1300 } };
    const int n = usual[which][i];
    const int least = n == THREADS * THREADS ? n - THREADS + 1 : n / 2 + 1;
    return j->hidden && i > 0 && i < SIZES - 1 ? (int)judge_draw(j, least, n) : n;
}

/* Compare every number.  The variants END and OWN let the sum end at the end, or leave the own number out. */
static bool same(struct judge *j, const struct kernel_trial *t)
{
    const int last = judge_choice(j, "END"), without = judge_choice(j, "OWN");
    float sum = 0;
    for (int k = 0; k < t->n; k++) {
        /* The sum goes from one end to the other. */
        const int i = last ? t->n - 1 - k : k;
        const float want = without ? sum : sum + t->x[i];
        sum += t->x[i];
        if (!(t->y[i] == want))
            return kernel_fails(j, t, "%s with n = %d, threads in the order %s: y[%d] is %g%s, and must be %g",
                                t->which == BLOCK ? "scan_block" : "scan_all", t->n, t->order, i, (double)t->y[i],
                                kernel_meaning(t->y[i]), (double)want);
    }
    return true;
}

/* Each of log2 n steps has 4 accesses of a thread or less; one thread that adds all has 2 n. */
enum { ACCESSES = 72 };

/* Sums that are right, but of one thread alone, fail here. */
static bool same_by_all(struct judge *j, const struct kernel_trial *t)
{
    if (!same(j, t)) return false;
    return t->accesses <= ACCESSES ||
           kernel_fails(j, t, "%s with n = %d: the sums are right, but a thread reads and writes %ld times, and may "
                        "at most %d times: do all threads of a block add, in log2 n steps?",
                        t->which == BLOCK ? "scan_block" : "scan_all", t->n, t->accesses, ACCESSES);
}

/* Fail if the judge has found races or accesses out of bounds. */
static bool clean(struct judge *j, const struct kernel_trial *t)
{
    if (t->reports == 0) return true;
    return judge_fails(j, "%s with n = %d: %s%s", t->which == BLOCK ? "scan_block" : "scan_all", t->n, t->report,
                       t->reports > 1 ? "; and more" : "");
}

/* Try the sizes from `from` on in one order of threads; `holds` must be true of every run. */
static bool run(struct judge *j, int which, int from, const char *order,
                bool (*holds)(struct judge *, const struct kernel_trial *))
{
    static struct kernel_trial t;
    static float x[2 * THREADS * THREADS];
    for (int i = from; i < SIZES; i++) {
        t = (struct kernel_trial){ .which = which, .order = order, .x = x };
        t.n = t.m = size(j, which, i);
        judge_whole(j, x, t.n, 100);
        if (!kernel_try(j, &t) || !holds(j, &t)) return false;
    }
    return true;
}

/* In this order a thread reads its neighbour before that one has written again. */
#define KIND_ORDER "reverse"

enum look { AT_VALUES, AT_ORDERS, AT_REPORTS };

/* All sizes in one order; the larger ones, of which the judge reports nothing; or the largest in five orders: forward,
 * backward, and three that are drawn. */
static void try_scan(struct judge *j)
{
    static const char *const orders[] = { "forward", "reverse", "1", "2", "3", NULL };
    const int which = j->check->what;
    if (j->check->look == AT_VALUES) run(j, which, 0, KIND_ORDER, same_by_all);
    if (j->check->look == AT_REPORTS) run(j, which, SIZES / 2, KIND_ORDER, clean);
    for (int i = 0; j->check->look == AT_ORDERS && orders[i]; i++)
        if (!run(j, which, SIZES - 1, orders[i], same)) return;
}

const struct lesson lesson_19_scan = {
    .folder = "19_scan", .title = "Kernels: prefix sums, and a race unseen by tests", .file = "scan.cu",
    .given = { "scan.h" },
    .vary = { { "END", 2 }, { "OWN", 2 } },
    .check = {
        { 1, "values", "one block: the sums, in one order of threads", 2, { try_scan, AT_VALUES, BLOCK },
          { "With n = 4 on paper: what is in s after the step by 1, and after the step by 2?",
            "After the step by 2^k thread t has the sum of up to 2^(k+1) numbers that end at t.",
            "Threads from n on must give something, too: zeros." } },
        { 1, "orders", "one block: the same in every order of threads", 2, { try_scan, AT_ORDERS, BLOCK },
          { "A barrier says: all before it, then all after it.  Nothing else says anything about order.",
            "s[t] += s[t - by] reads and writes.  Who reads s[t], and when?",
            "Read into a variable, barrier, then write, barrier." } },
        { 1, "judge", "one block: no race, and nothing out of bounds", 4, { try_scan, AT_REPORTS, BLOCK },
          { "The report names both accesses, with their lines.  Which barrier stands between them?",
            "A barrier orders nothing of a thread that has returned before it.",
            "x has n numbers, and the block THREADS threads." } },
        { 2, "all-values", "all blocks: the sums, in one order of threads", 3, { try_scan, AT_VALUES, ALL },
          { "Each block can sum its part as in part 1.  What is missing in block 5?",
            "The sums of the blocks before.  There are at most THREADS of them: one block can sum those.",
            "Three launches: blocks, totals of blocks, add." } },
        { 2, "all-orders", "all blocks: the same in every order of threads", 1, { try_scan, AT_ORDERS, ALL },
          { "Between two launches everything is ordered, inside one only what a barrier orders, in its block." } },
        { 2, "all-judge", "all blocks: no race, and nothing out of bounds", 3, { try_scan, AT_REPORTS, ALL },
          { "Blocks of one launch run in any order: who reads what another block writes races with it.",
            "room holds nothing at first; only the totals that were stored can be read." } },
    },
};
