/* The emulated NCCL: ranks that do not agree on a call end with a line that has both; those that do get their numbers.
 *
 * Each rank is a process that this test starts.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdbool.h>
#include <stdint.h>
#include <cmocka.h>
#include "emulated_devices/device/cuda/emulated/nccl.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RANKS = 2, COUNT = 70000, MOST = 4000 };         /* longer than a piece of the emulated NCCL */

/* What a rank does with its vectors of the device, of RANKS * COUNT numbers.  @return its exit status. */
typedef int rank_does(int rank, ncclComm_t, float *in, float *out);

static ncclResult_t ended(ncclResult_t e)
{
    while (e == ncclSuccess && cudaStreamQuery(NULL) == cudaErrorNotReady) { }
    return e;
}

/* What a rank gives at i; small integers, so that sums are exact. */
static float value(int rank, size_t i) { return (float)((rank * 31 + (int)(i % 1000) * 7) % 61 - 30); }

/* Ranks of one host have one GPU here; so each is a host of its own, unless this is false. */
static bool hosts = true;

static void be_a_host(int rank)
{
    char name[16];
    snprintf(name, sizeof name, "host%d", rank);
    if (hosts) setenv("NCCL_HOSTID", name, 1);
    else unsetenv("NCCL_HOSTID");
}

static int be_rank(rank_does *does, ncclUniqueId id, int rank)
{
    ncclComm_t comm;
    float *in, *out, *here = malloc(sizeof *here * RANKS * COUNT);
    be_a_host(rank);
    const ncclResult_t e = ncclCommInitRank(&comm, RANKS, id, rank);
    if (here == NULL || e != ncclSuccess) return 90 + (int)e;
    if (cudaMalloc((void **)&in, sizeof *in * RANKS * COUNT) || cudaMalloc((void **)&out, sizeof *out * RANKS * COUNT))
        return 99;
    for (size_t i = 0; i < RANKS * COUNT; i++) here[i] = value(rank, i);
    cudaMemcpy(in, here, sizeof *in * RANKS * COUNT, cudaMemcpyHostToDevice);
    memset(here, 0xff, sizeof *here * RANKS * COUNT);
    cudaMemcpy(out, here, sizeof *out * RANKS * COUNT, cudaMemcpyHostToDevice);
    return does(rank, comm, in, out);
}

/* Run all ranks.  When one ends with an error, those that wait for it are ended.
 * @param[out] said  what they wrote to stderr.  @return the exit status of the first that failed, or 0. */
static int run(rank_does *does, char *said)
{
    int ends[2], first = 0;
    pid_t child[RANKS];
    ncclUniqueId id;
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
    fflush(NULL);
    for (int r = 0; r < RANKS; r++) {
        child[r] = fork();
        if (child[r] != 0) continue;
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]), close(ends[1]);
        alarm(120);
        const int status = be_rank(does, id, r);
        fflush(NULL);
        _exit(status);
    }
    close(ends[1]);
    for (int ended_ones = 0; ended_ones < RANKS; ended_ones++) {
        int status;
        assert_true(wait(&status) > 0);
        if (status == 0 || first != 0) continue;
        first = WIFEXITED(status) ? WEXITSTATUS(status) : 99;
        for (int r = 0; r < RANKS; r++) kill(child[r], SIGKILL);
    }
    const ssize_t n = read(ends[0], said, MOST - 1);            /* a pipe has room for all that they say */
    said[n > 0 ? n : 0] = '\0';
    close(ends[0]);
    return first;
}

static void complains(rank_does *does, const char *first, const char *second)
{
    char said[MOST];
    const int status = run(does, said);
    if (status != 3 || !strstr(said, first) || !strstr(said, second))
        print_message("status %d, wanted 3 with \"%s\" and \"%s\": %s\n", status, first, second, said);
    assert_int_equal(status, 3);
    assert_non_null(strstr(said, first));
    assert_non_null(strstr(said, second));
}

/* ---- right calls ------------------------------------------------------------------------------------------------- */

static int wrong_at(const char *what, int rank, size_t i, float got, float want)
{
    fprintf(stderr, "%s: rank %d has %g at %zu; it must be %g\n", what, rank, (double)got, i, (double)want);
    return 1;
}

static float all_of(size_t i)
{
    float sum = 0;
    for (int r = 0; r < RANKS; r++) sum += value(r, i);
    return sum;
}

static int agree(int rank, ncclComm_t c, float *in, float *out)
{
    static float here[RANKS * COUNT];
    const size_t own = (size_t)rank * COUNT;
    if (ended(ncclAllReduce(in, out, COUNT, ncclFloat32, ncclSum, c, NULL))) return 2;
    cudaMemcpy(here, out, sizeof *out * COUNT, cudaMemcpyDeviceToHost);
    for (size_t i = 0; i < COUNT; i++)
        if (!(here[i] == all_of(i))) return wrong_at("allreduce", rank, i, here[i], all_of(i));
    if (ended(ncclReduceScatter(in, out, COUNT, ncclFloat32, ncclSum, c, NULL))) return 2;
    cudaMemcpy(here, out, sizeof *out * COUNT, cudaMemcpyDeviceToHost);
    for (size_t i = 0; i < COUNT; i++)
        if (!(here[i] == all_of(own + i))) return wrong_at("reduce-scatter", rank, i, here[i], all_of(own + i));
    if (ended(ncclAllGather(in, out, COUNT, ncclFloat32, c, NULL))) return 2;
    cudaMemcpy(here, out, sizeof here, cudaMemcpyDeviceToHost);
    for (size_t i = 0; i < RANKS * COUNT; i++)
        if (!(here[i] == value((int)(i / COUNT), i % COUNT)))
            return wrong_at("allgather", rank, i, here[i], value((int)(i / COUNT), i % COUNT));
    return 0;
}

/* Both send first; a piece of a message waits until the other receives. */
static int exchange(int rank, ncclComm_t c, float *in, float *out)
{
    static float here[COUNT];
    const int other = 1 - rank;
    ncclGroupStart();
    if (ncclSend(in, COUNT, ncclFloat32, other, c, NULL) || ncclRecv(out, COUNT, ncclFloat32, other, c, NULL)) return 2;
    if (ended(ncclGroupEnd())) return 2;
    cudaMemcpy(here, out, sizeof here, cudaMemcpyDeviceToHost);
    for (size_t i = 0; i < COUNT; i++)
        if (!(here[i] == value(other, i))) return wrong_at("send", rank, i, here[i], value(other, i));
    return 0;
}

static void test_numbers(void **state)
{
    char said[MOST];
    (void)state;
    if (run(agree, said) != 0) fail_msg("%s", said);
    if (run(exchange, said) != 0) fail_msg("%s", said);
}

/* ---- calls that do not agree ------------------------------------------------------------------------------------- */

static int other_count(int rank, ncclComm_t c, float *in, float *out)
{
    return ended(ncclAllReduce(in, out, rank == 0 ? 13 : 14, ncclFloat32, ncclSum, c, NULL));
}

static int none_on_one(int rank, ncclComm_t c, float *in, float *out)
{
    return ended(ncclAllReduce(in, out, rank == 0 ? 13 : 0, ncclFloat32, ncclSum, c, NULL));
}

static int other_format(int rank, ncclComm_t c, float *in, float *out)
{
    return ended(ncclAllReduce(in, out, 13, rank == 0 ? ncclFloat16 : ncclBfloat16, ncclSum, c, NULL));
}

static int other_reduction(int rank, ncclComm_t c, float *in, float *out)
{
    return ended(ncclReduceScatter(in, out, 13, ncclFloat32, rank == 0 ? ncclMax : ncclSum, c, NULL));
}

static int other_root(int rank, ncclComm_t c, float *in, float *out)
{
    (void)out;
    return ended(ncclBroadcast(in, in, 13, ncclFloat32, rank, c, NULL));
}

static int other_order(int rank, ncclComm_t c, float *in, float *out)
{
    ncclGroupStart();
    if (rank == 0 && ncclAllGather(in, out, 5, ncclFloat32, c, NULL)) return 2;
    if (ncclAllReduce(in, out, 13, ncclFloat32, ncclSum, c, NULL)) return 2;
    if (rank == 1 && ncclAllGather(in, out, 5, ncclFloat32, c, NULL)) return 2;
    return ended(ncclGroupEnd());
}

static int shorter_message(int rank, ncclComm_t c, float *in, float *out)
{
    return ended(rank == 0 ? ncclSend(in, 8, ncclFloat32, 1, c, NULL) : ncclRecv(out, 9, ncclFloat32, 0, c, NULL));
}

static int one_call_less(int rank, ncclComm_t c, float *in, float *out)
{
    setenv("ORRERY_WAIT_LIMIT", "1", 1);
    if (ended(ncclAllReduce(in, out, 4, ncclFloat32, ncclSum, c, NULL))) return 2;
    return rank == 0 ? ended(ncclAllReduce(in, out, 4, ncclFloat32, ncclSum, c, NULL)) : 0;
}

static int both_send_alone(int rank, ncclComm_t c, float *in, float *out)
{
    setenv("ORRERY_WAIT_LIMIT", "1", 1);
    if (ended(ncclSend(in, COUNT, ncclFloat32, 1 - rank, c, NULL))) return 2;
    return ended(ncclRecv(out, COUNT, ncclFloat32, 1 - rank, c, NULL));
}

static int idle(int rank, ncclComm_t c, float *in, float *out) { return (void)rank, (void)c, (void)in, (void)out, 0; }

static void test_two_ranks_of_a_host_with_one_gpu(void **state)
{
    char said[MOST];
    (void)state;
    assert_int_equal(run(idle, said), 0);
    hosts = false;
    assert_int_equal(run(idle, said), 90 + ncclInvalidUsage);
    hosts = true;
}

static void test_ranks_that_do_not_agree(void **state)
{
    (void)state;
    complains(other_count, "rank 0 calls ncclAllReduce of 13 float32, sum", "rank 1 calls ncclAllReduce of 14 float32");
    complains(none_on_one, "rank 0 calls ncclAllReduce of 13 float32", "rank 1 calls ncclAllReduce of 0 float32");
    complains(other_format, "rank 0 calls ncclAllReduce of 13 float16", "rank 1 calls ncclAllReduce of 13 bfloat16");
    complains(other_reduction, "ncclReduceScatter of 13 float32, max", "ncclReduceScatter of 13 float32, sum");
    complains(other_root, "ncclBroadcast of 13 float32, root 0", "ncclBroadcast of 13 float32, root 1");
    complains(other_order, "rank 0 calls ncclAllGather of 5 float32", "rank 1 calls ncclAllReduce of 13 float32, sum");
    complains(shorter_message, "rank 0 calls ncclSend of 8 float32 to 1", "rank 1 calls ncclRecv of 9 float32 from 0");
}

static void test_ranks_that_wait(void **state)
{
    (void)state;
    complains(one_call_less, "rank 0 waits in ncclAllReduce of 4 float32, sum", "rank 1 has begun only 1");
    complains(both_send_alone, "waits in ncclSend of 70000 float32", "does not come");
}

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

static int buffer_of_the_host(int rank, ncclComm_t c, float *in, float *out)
{
    static float here[8];
    return ended(ncclAllReduce(rank == 1 ? here : in, out, 8, ncclFloat32, ncclSum, c, NULL));
}

static int buffers_overlap(int rank, ncclComm_t c, float *in, float *out)
{
    (void)out;
    return ended(ncclAllReduce(in, in + (rank == 0), 8, ncclFloat32, ncclSum, c, NULL));
}

static int in_another_place(int rank, ncclComm_t c, float *in, float *out)
{
    (void)rank, (void)out;
    return ended(ncclAllGather(in, in, 8, ncclFloat32, c, NULL));
}

static void test_buffers(void **state)
{
    (void)state;
    complains(buffer_of_the_host, "rank 1: ncclAllReduce of 8 float32, sum: the send buffer is not", "device's memory");
    complains(buffers_overlap, "rank 0: ncclAllReduce of 8 float32, sum: the buffers overlap", "not in place");
    complains(in_another_place, "rank 1: ncclAllGather of 8 float32: the buffers overlap", "not in place");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_numbers), cmocka_unit_test(test_two_ranks_of_a_host_with_one_gpu),
        cmocka_unit_test(test_ranks_that_do_not_agree),
        cmocka_unit_test(test_ranks_that_wait), cmocka_unit_test(test_buffers),
    };
    return cmocka_run_group_tests_name("nccl calls", tests, NULL, NULL) != 0;
}
