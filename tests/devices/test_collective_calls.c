/* Calls of collectives that are wrong, or differ between devices, are refused and change nothing.
 * tier: check
 * ranks: 1 2 3 5 8
 */
#include "tests/devices/collective_devices.h"

/* ---- arguments --------------------------------------------------------------------------------------------------- */

static void expect_refusal(enum operation op, const char *name, struct collective c, const char *text)
{
    struct error err = { .code = OK, .text = "" };
    const enum error_code code = collective_run(&group, op, name, &c, &err);
    ASSERT_ALL(code == ERR_USAGE && strstr(err.text, text) != NULL, "%s: got code %d, \"%s\"; want \"%s\"",
               operation_name(op), (int)code, err.text, text);
}

static void test_wrong_arguments(void **state)
{
    float x[4] = { 7, 7, 7, 7 };
    const struct collective good = { .in = x, .out = x, .count = 4, .dtype = F32 };
    struct collective c;
    (void)state;
    expect_refusal(ALLREDUCE, "no-such", good, "allreduce no-such: must be one of auto, two_shot");
    c = good; c.count = -1;             expect_refusal(ALLREDUCE, NULL, c, "count -1 is negative");
    c = good; c.dtype = DTYPE_COUNT;    expect_refusal(ALLREDUCE, NULL, c, "dtype 8 does not exist");
    c = good; c.reduction = 99;         expect_refusal(ALLREDUCE, NULL, c, "reduction 99 does not exist");
    if (group.size > 1)
        expect_refusal(ALLREDUCE, "two_level", good,
                       "allreduce two_level needs a group on several nodes of the cluster; this group has P=");
    if (group.size == 5) {
        const struct cluster m = nodes_of(2);
        clock_restart(&device.clock, &m, F32);
        expect_refusal(ALLREDUCE, "torus_2d", good,
                       "allreduce torus_2d needs as many members on every node of the cluster; this group has P=5");
    }
    c = good; c.root = group.size;      expect_refusal(BROADCAST, NULL, c, "is not in a group of");
    ASSERT_ALL(x[0] == 7 && x[3] == 7, "a refused call changed data");
}

/* Where calls are checked, what one member alone does wrong is everybody's error: here what the first does. */
static void test_wrong_buffers(void **state)
{
    int64_t counts[MAX_P], others[MAX_P];
    const int P = group.size, r = group.rank;
    float *x = malloc(sizeof *x * (size_t)(8 * P)), *y = malloc(sizeof *y * (size_t)(8 * P));
    (void)state;
    assert_true(x != NULL && y != NULL);
    for (int i = 0; i < 8 * P; i++) x[i] = y[i] = 7;
    for (int b = 0; b < P; b++) counts[b] = others[b] = 2;
    const struct collective good = { .in = x, .out = y, .count = 2 * P, .dtype = F32 };
    struct collective c;
    comm.checks_calls = true;
    c = good; c.in = r == 0 ? NULL : x;         expect_refusal(ALLREDUCE, NULL, c, "in is NULL for ");
    c = good;
    c.out = r == 0 ? x + 1 : y;
    expect_refusal(ALLREDUCE, NULL, c, "allreduce: in and out overlap on device ");
    expect_refusal(BROADCAST, NULL, c, "in place is in == out");
    expect_refusal(REDUCE_SCATTER, NULL, c, "in place is out as block 0 of in");
    expect_refusal(SCATTER, NULL, c, "in place is out as block 0 of in");
    expect_refusal(SCAN, NULL, c, "scan: in and out overlap on device ");
    c.count = 2;
    expect_refusal(ALLTOALL, NULL, c, "alltoall: in and out overlap on device ");
    c = good; c.in = r == 0 ? y + 1 : x;        expect_refusal(ALLGATHER, NULL, c, "in place is in as block 0 of out");
                                                expect_refusal(GATHER, NULL, c, "in place is in as block 0 of out");
    c = good; c.counts = counts, c.recvcounts = others;
    others[0] = r == 0 ? 3 : 2;
    expect_refusal(ALLTOALL, NULL, c, "alltoall: counts[0] = 2, but recvcounts[0] = 3 on device ");
    others[0] = r == 0 ? -1 : 2;                expect_refusal(ALLTOALL, NULL, c, "recvcounts[0] = -1 is negative");
    others[0] = 2, others[P - 1] = r == 0 ? 1 : 2;
    c.in = r == 0 ? y : x;                      expect_refusal(ALLTOALL, NULL, c, "alltoall in place: counts[");
    for (int i = 0; i < 8 * P; i++) ASSERT_ALL(x[i] == 7 && y[i] == 7, "a refused call changed element %d", i);
    free(x), free(y);
}

/* ---- calls that differ between members, where the job checks them ------------------------------------------------ */

static void expect_difference(enum operation op, const char *name, struct collective c, const char *text)
{
    struct error err = { .code = OK, .text = "" };
    const enum error_code code = collective_run(&group, op, name, &c, &err);
    ASSERT_ALL(code == ERR_USAGE && strstr(err.text, text) != NULL, "got code %d, \"%s\"; want \"%s\"", (int)code,
               err.text, text);
}

static void test_calls_that_differ(void **state)
{
    float x[300] = { 7 };
    int64_t counts[MAX_P] = { 0 };
    const struct collective good = { .in = x, .out = x, .count = 4, .dtype = F32 };
    const bool last = group.rank == group.size - 1;                 /* which is device 0 */
    struct collective c;
    char text[200];
    (void)state;
    if (group.size == 1) skip();
    comm.checks_calls = true;
    snprintf(text, sizeof text, "allreduce over all devices: count is 4 on device %d, but 5 on device 0",
             group.size - 1);
    c = good; c.count += last;                          expect_difference(ALLREDUCE, "ring", c, text);
    c = good; c.dtype = last ? F64 : F32;               expect_difference(ALLREDUCE, NULL, c, "but fp64 on device 0");
    c = good; c.reduction = last ? MAX : SUM;           expect_difference(ALLREDUCE, "auto", c, "reduction is sum");
    c = good; c.root = last;                            expect_difference(BROADCAST, NULL, c, "root is 0");
    c = good;
    c.counts = counts;
    counts[0] = last;
    expect_difference(REDUCE_SCATTER, NULL, c, "the sum of counts is 0");
    c = good;
    expect_difference(ALLREDUCE, last ? "doubling" : "ring", c, "but doubling on device 0");
    c = good;
    expect_difference(last ? REDUCE : ALLREDUCE, NULL, c, "but reduce on device 0");
    ASSERT_ALL(x[0] == 7, "a refused call changed data");
    struct error err;
    const enum error_code code = collective_run(&group, ALLREDUCE, NULL, &good, &err);
    ASSERT_ALL(code == OK && x[0] == 7 * (float)group.size, "after all that, a right call gives %g", x[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_DEVICES(test_wrong_arguments),
        ON_DEVICES(test_wrong_buffers),
        ON_DEVICES(test_calls_that_differ),
    };
    return MPI_RUN("calls of collectives", tests);
}
