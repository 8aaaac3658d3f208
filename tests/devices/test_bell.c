/* Bells: a ring ends a sleep, none is lost, none is kept for who did not listen, and nothing stays behind.
 * tier: check
 * ranks: 1 2 5
 *
 * Device 0 sleeps, all others ring.  Limits are far above what anything takes; only sleeping too short is told by a
 * clock.
 */
#include "tests/mpi_cmocka.h"
#include "emulated_devices/comm/transport.h"
#include "ref/machine/cores.h"
#include <glob.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static const int64_t MILLISECOND = 1000000, HALF_A_MINUTE = 30000000000;

static struct device device;
static struct comm comm;
static struct bells bells;              /* not the transport's, which ring for its messages */
static struct error err;

static int open_bells(void **state)
{
    (void)state;
    assert_int_equal(device_open(&device, NULL, F32, 0, &err), OK);
    assert_int_equal(comm_open(&comm, &device, &err), OK);
    bells_open(&bells, MPI_COMM_WORLD);
    return harness_before(state);
}

static int close_bells(void **state)
{
    (void)state;
    bells_close(&bells);
    comm_close(&comm);
    device_close(&device);
    return 0;
}

static int64_t sleep_at_most(int64_t nanoseconds)
{
    const int64_t start = patience_now();
    bells_wait(&bells, nanoseconds);
    return patience_now() - start;
}

/* Everybody else rings for device 0, after so long. */
static void ring_after(int64_t nanoseconds)
{
    if (comm.rank == 0) return;
    nanosleep(&(struct timespec){ .tv_nsec = (long)nanoseconds }, NULL);
    bells_ring(&bells, 0);
}

static void test_more_than_one_device_has_bells(void **state)
{
    (void)state;
    ASSERT_ALL((bells.bell != NULL) == (comm.size > 1), "bells on %d devices: %s", comm.size,
               bells.bell != NULL ? "yes" : "no");
}

static void test_a_ring_ends_a_sleep(void **state)
{
    int64_t slept = 0;
    (void)state;
    if (comm.size == 1) return;
    if (comm.rank == 0) bells_listen(&bells, 1);
    comm_barrier(&comm);
    ring_after(20 * MILLISECOND);
    if (comm.rank == 0) slept = sleep_at_most(HALF_A_MINUTE);
    ASSERT_ALL(slept < HALF_A_MINUTE, "rung for, it slept %lld ns", (long long)slept);
}

static void test_a_ring_before_the_sleep_is_not_lost(void **state)
{
    int64_t slept = 0;
    (void)state;
    if (comm.size == 1) return;
    if (comm.rank == 0) bells_listen(&bells, 1);
    comm_barrier(&comm);
    ring_after(0);
    comm_barrier(&comm);
    if (comm.rank == 0) slept = sleep_at_most(HALF_A_MINUTE);
    ASSERT_ALL(slept < HALF_A_MINUTE, "rung for before, it slept %lld ns", (long long)slept);
}

/* And of several rings one is kept. */
static void test_who_does_not_listen_is_not_woken_later(void **state)
{
    int64_t first = 0, second = 5 * MILLISECOND;
    (void)state;
    if (comm.size == 1) return;
    ring_after(0);
    comm_barrier(&comm);
    if (comm.rank == 0) bells_listen(&bells, 1);
    comm_barrier(&comm);
    ring_after(0);
    comm_barrier(&comm);
    if (comm.rank == 0) first = sleep_at_most(HALF_A_MINUTE), second = sleep_at_most(5 * MILLISECOND);
    ASSERT_ALL(first < HALF_A_MINUTE, "rung for, it slept %lld ns", (long long)first);
    ASSERT_ALL(second >= 4 * MILLISECOND, "woken again after %lld ns by rings for which it did not listen",
               (long long)second);
}

/* Whoever waits for all others is not woken by the first of them. */
static void test_who_listens_for_several_rings_sleeps_until_the_last(void **state)
{
    int64_t early = 5 * MILLISECOND, slept = 0;
    (void)state;
    if (comm.size < 3) return;
    if (comm.rank == 0) bells_listen(&bells, comm.size - 1);
    comm_barrier(&comm);
    if (comm.rank == 1) bells_ring(&bells, 0);
    comm_barrier(&comm);
    if (comm.rank == 0) early = sleep_at_most(5 * MILLISECOND);
    comm_barrier(&comm);
    if (comm.rank > 1) ring_after(20 * MILLISECOND);
    if (comm.rank == 0) slept = sleep_at_most(HALF_A_MINUTE);
    ASSERT_ALL(early >= 4 * MILLISECOND, "woken after %lld ns by the first of %d rings", (long long)early,
               comm.size - 1);
    ASSERT_ALL(slept < HALF_A_MINUTE, "rung for by all, it slept %lld ns", (long long)slept);
}

/* A yield passes the core on to nobody where each device is a session: launchers make it one. */
static void test_where_cores_are_shared_a_wait_soon_sleeps(void **state)
{
    const struct near *near = &comm.transport->near;
    const int cores = cores_usable(), crowd = near->devices == comm.size ? (comm.size + cores - 1) / cores : 1;
    struct bells ours = bells;
    struct patience p = { .bells = &ours, .since = patience_now() - MILLISECOND / 10 };
    (void)state;
    ASSERT_ALL(comm.transport->bells.crowd == crowd,
               "%d devices, %d of them near, on %d cores: waits are those of %d on a core", comm.size, near->devices,
               cores, comm.transport->bells.crowd);
    if (comm.size == 1) return;
    ours.crowd = 2;
    p.last = patience_now();
    patience_pause(&p);
    ASSERT_ALL(p.sleep > 0, "after 0.1 ms of yielding a device of a crowd yields again");
    p.sleep = tempo_crowded.longest;
    bells_listen(&ours, 1);
    patience_pause(&p);
    ASSERT_ALL(p.sleep > tempo_crowded.longest, "with two devices on a core it sleeps no longer than with one");
    patience_hurry(&p);
    ASSERT_ALL(p.sleep == tempo_crowded.first, "it waits for room in a ring, and sleeps %lld ns", (long long)p.sleep);
}

static void test_nothing_stays_behind(void **state)
{
    char mine[64];
    glob_t found;
    (void)state;
    snprintf(mine, sizeof mine, "/dev/shm/orrery-%ld-*", (long)getpid());
    const int none = glob(mine, 0, NULL, &found);
    ASSERT_ALL(none == GLOB_NOMATCH, "%s is there while devices run: killed, they would leave it",
               none == 0 ? found.gl_pathv[0] : mine);
    if (none == 0) globfree(&found);
}

#define WITH_BELLS(f) cmocka_unit_test_setup_teardown(f, open_bells, close_bells)

int main(void)
{
    const struct CMUnitTest tests[] = {
        WITH_BELLS(test_more_than_one_device_has_bells), WITH_BELLS(test_a_ring_ends_a_sleep),
        WITH_BELLS(test_a_ring_before_the_sleep_is_not_lost), WITH_BELLS(test_who_does_not_listen_is_not_woken_later),
        WITH_BELLS(test_who_listens_for_several_rings_sleeps_until_the_last),
        WITH_BELLS(test_where_cores_are_shared_a_wait_soon_sleeps), WITH_BELLS(test_nothing_stays_behind),
    };
    return MPI_RUN("bell", tests);
}
