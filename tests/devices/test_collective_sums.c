/* Sums that round: the same bits on all devices, within the bound of summation, in the order of which struct algorithm
 * speaks.
 * tier: check
 * ranks: 1 2 3 5 8
 * verify ranks: 7 9 13 16
 */
#include "tests/devices/collective_devices.h"

/* ---- sums that round: all members of an allreduce hold the same bits, within the bound of summation -------------- */

static void test_same_bits_everywhere(void **state)
{
    enum { N = 103 };
    (void)state;
    for (int a = 0; algorithms[a] != NULL; a++) {
        float x[N];
        struct error err;
        struct collective c = { .in = x, .out = x, .count = N, .dtype = F32 };
        if (algorithms[a]->operation != ALLREDUCE || !selected(algorithms[a])) continue;
        if (algorithm_refuses(algorithms[a], group.size, &c) != NULL) continue;
        for (int i = 0; i < N; i++) x[i] = (float)rounded_value(group.rank, i);
        const enum error_code code = collective_run(&group, ALLREDUCE, algorithms[a]->name, &c, &err);
        ASSERT_ALL(code == OK, "allreduce %s: %s", algorithms[a]->name, err.text);
        ASSERT_ALL(same_everywhere(hash_of(x, sizeof x)), "allreduce %s: the members hold different bits",
                   algorithms[a]->name);

        /* A sum of P terms in any order: |error| <= (P-1) u sum|x|, to first order in u; 1.01 covers the rest. */
        int bad = -1;
        double sum = 0, bound = 0;
        for (int i = 0; i < N && bad < 0; i++) {
            sum = bound = 0;
            for (int r = 0; r < group.size; r++) {
                sum += rounded_value(r, i);
                bound += fabs(rounded_value(r, i)) * 1.01 * (group.size - 1) * dtype_unit(F32);
            }
            if (!(fabs(x[i] - sum) <= bound)) bad = i;
        }
        ASSERT_ALL(bad < 0, "allreduce %s: x[%d] = %.9g, want %.9g within %.3g", algorithms[a]->name, bad,
                   x[bad < 0 ? 0 : bad], sum, bound);

        /* The larger of 0 and -0 is whichever is the left operand: members that disagree about the order show here. */
        c.reduction = MAX;
        for (int i = 0; i < N; i++) x[i] = (group.rank + i) % 3 == 0 ? 0.0f : -0.0f;
        const enum error_code again = collective_run(&group, ALLREDUCE, algorithms[a]->name, &c, &err);
        ASSERT_ALL(again == OK, "allreduce %s: %s", algorithms[a]->name, err.text);
        ASSERT_ALL(same_everywhere(hash_of(x, sizeof x)), "allreduce %s: the members hold different zeros",
                   algorithms[a]->name);
    }
}

/* ---- the order of additions: what struct algorithm says of it, held to what sums that round show ----------------- */

enum { ORDER_TRIALS = 8 };

/* A trial's number of a device, in the format; the same for every element, so that only the order
 * can make elements differ. */
static double order_value(enum dtype t, int rank, int trial)
{
    _Alignas(8) char number[8];
    put(t, number, 0, sin((double)(rank * 97 + trial * 1009 + 1) * 12.9898) * ((rank + trial) % 3 == 0 ? 50 : 1));
    return get(t, number, 0);
}

/* ((x0 + x1) + x2) + .. + x(last-1), rounded to the format after each addition. */
static double folded(enum dtype t, int last, int trial)
{
    _Alignas(8) char sum[8], next[8];
    struct exchange none = { .group = &group, .operation = CONTROL };
    put(t, sum, 0, order_value(t, 0, trial));
    for (int r = 1; r < last; r++) {
        put(t, next, 0, order_value(t, r, trial));
        reduce_local(&none, SUM, t, sum, next, 1);
    }
    return get(t, sum, 0);
}

/* Of all members' elements in one trial; as maxima, so that one call over the members finds those of all trials. */
struct order_seen { double minus_lowest, highest, not_the_fold; };

/* One call: what this member's elements are. */
static struct order_seen see_order(const struct algorithm *a, struct collective c, int trial, bool in_place,
                                   enum error_code *code, struct error *err)
{
    const enum operation op = a->operation;
    const int64_t ni = in_length(op, &c, group.rank), no = out_length(op, &c, group.rank), n = ni > no ? ni : no;
    struct buffer in = buffer_make(dtype_size(c.dtype) * (size_t)n), out = buffer_make(dtype_size(c.dtype) * (size_t)n);
    const int64_t shift = in_place && has_blocks(op) ? first(&c, group.rank) : 0;
    c.in = in.data, c.out = in_place ? in.data + (size_t)shift * dtype_size(c.dtype) : out.data;
    for (int64_t i = 0; i < ni; i++) put(c.dtype, in.data, i, order_value(c.dtype, group.rank, trial));
    *code = collective_run(&group, op, a->name, &c, err);

    struct order_seen seen = { -INFINITY, -INFINITY, 0 };
    const double want = folded(c.dtype, op == SCAN ? group.rank + 1 : group.size, trial);
    for (int64_t i = 0; i < no; i++) {
        const double x = get(c.dtype, c.out, i);
        seen.minus_lowest = -x > seen.minus_lowest ? -x : seen.minus_lowest;
        seen.highest = x > seen.highest ? x : seen.highest;
        if (!(x == want)) seen.not_the_fold = 1;
    }
    /* A scan's members have different sums: only their own elements can be alike. */
    if (op == SCAN) seen.minus_lowest = no > 0 ? seen.minus_lowest + seen.highest : 0, seen.highest = 0;
    free(in.memory), free(out.memory);
    return seen;
}

static void expect_order(const struct algorithm *a, struct collective c, bool in_place, bool *unlike, bool *unfolded)
{
    struct order_seen mine[ORDER_TRIALS] = { 0 }, all[ORDER_TRIALS];
    struct error err;
    enum error_code code = OK;
    c.nodes = group_nodes(&group);
    if (algorithm_refuses(a, group.size, &c) != NULL) return;
    for (int trial = 0; trial < ORDER_TRIALS && !code; trial++)
        mine[trial] = see_order(a, c, trial, in_place, &code, &err);
    ASSERT_ALL(code == OK, "%s: %s", describe(a, &c, in_place), err.text);

    MPI_Request request;
    MPI_Iallreduce(mine, all, 3 * ORDER_TRIALS, MPI_DOUBLE, MPI_MAX, harness, &request);
    patience_meet(&request);
    for (int trial = 0; trial < ORDER_TRIALS; trial++) {
        const bool alike = -all[trial].minus_lowest == all[trial].highest, by_rank = all[trial].not_the_fold == 0;
        if (!alike && a->order != BY_POSITION)
            ASSERT_ALL(false, "%s: elements with the same terms have different sums, but it says that it adds %s",
                       describe(a, &c, in_place), adding_order_name(a->order));
        if (!by_rank && a->order == BY_RANK)
            ASSERT_ALL(false, "%s: a sum is not the fold in the order of ranks, but it says that it adds %s",
                       describe(a, &c, in_place), adding_order_name(a->order));
        *unlike = *unlike || !alike;
        *unfolded = *unfolded || !by_rank;
    }
}

/* An order that depends on the place, but not with so many devices:
 * a hypercube's sums are one tree for all its corners. */
static bool alike_here(const struct algorithm *a, int P)
{
    static const struct { enum operation op; const char *name; int P; } hypercube[] = {
        { ALLREDUCE, "swing", 7 }, { REDUCE_SCATTER, "circulant", 8 },
    };
    for (size_t i = 0; i < sizeof hypercube / sizeof *hypercube; i++)
        if (a->operation == hypercube[i].op && P == hypercube[i].P && strcmp(a->name, hypercube[i].name) == 0)
            return true;
    return false;
}

/* What says that all elements have one order has, in every format, at uneven counts and in place.  The other way round,
 * 7 and 8 devices are enough: what says that the order depends on the place, or is not that of
 * ranks, shows it there. */
static void test_order_of_additions(void **state)
{
    static const enum dtype formats[] = { F32, F64, BF16, F16 };
    (void)state;
    const int P = group.size;
    int64_t uneven[MAX_P];
    struct complaint bad_here = { "" }, *bad = &bad_here;
    for (int b = 0; b < P; b++) uneven[b] = (b * 5 + 1) % 4;
    for (int i = 0; algorithms[i] != NULL; i++) {
        const struct algorithm *a = algorithms[i];
        const struct collective one = { .count = 1 };
        bool unlike = false, unfolded = false;        /* in any case */
        if (reduces(a->operation) != (a->order != ADDS_NOTHING))
            COMPLAIN("%s %s: adds %s", operation_name(a->operation), a->name, adding_order_name(a->order));
        if (!reduces(a->operation) || !selected(a) || algorithm_refuses(a, P, &one) != NULL) continue;
        for (int k = 0; k < 8; k++) {
            struct collective c = { .count = 2 * P + 3,
                                    .dtype = formats[k / 2],
                                    .root = a->operation == REDUCE ? P - 1 : 0 };
            expect_order(a, c, k % 2, &unlike, &unfolded);
            c.counts = uneven;
            if (a->operation == REDUCE_SCATTER) expect_order(a, c, k % 2, &unlike, &unfolded);
        }
        if ((P == 7 || P == 8) && a->order == BY_POSITION && !unlike != alike_here(a, P))
            COMPLAIN("%s %s: P=%d, all elements are%s alike, and it says that it adds %s", operation_name(a->operation),
                     a->name, P, unlike ? " not" : "", adding_order_name(a->order));
        if (P == 8 && a->order == BY_TREE && !unfolded)
            COMPLAIN("%s %s: P=%d, all sums are folds in the order of ranks, and it says that it adds %s",
                     operation_name(a->operation), a->name, P, adding_order_name(a->order));
    }
    ASSERT_ALL(bad->text[0] == '\0', "%s", bad->text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_DEVICES(test_same_bits_everywhere),
        ON_DEVICES(test_order_of_additions),
    };
    return MPI_RUN("sums of collectives", tests);
}
