/* The cores of a machine, shared out among devices that are bound to some of them.
 * tier: check
 * ranks: 1 2 5
 */
#if defined(__linux__)
#define _GNU_SOURCE                     /* sched_setaffinity */
#endif
#include "tests/mpi_cmocka.h"
#include "emulated_devices/comm/sharing.h"
#include "ref/machine/cores.h"
#include "ref/machine/system.h"
#include <sched.h>

enum { USABLE = 12 };                   /* what each device says that it may use */

#if defined(SYSTEM_LINUX)
/* The first cores of this machine that the process may use, at most two. */
static int find_cores(int core[2])
{
    struct cores all;
    int n = 0;
    cores_bound(&all);
    for (int i = 0; i < CORES_MOST && n < 2; i++)
        if (cores_has(&all, i)) core[n++] = i;
    return n;
}
#endif

/* As sharing_find finds it while this device is bound to one core; a negative one: as it was before. */
static struct sharing share(int core)
{
    struct place *room = sharing_make(test_size);
    assert_non_null(room);
    (void)core;
#if defined(SYSTEM_LINUX)
    cpu_set_t before, one;
    CPU_ZERO(&one);
    CPU_SET(core < 0 ? 0 : (size_t)core, &one);
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    if (core >= 0) assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
#endif
    const struct sharing s = sharing_find(room, USABLE, MPI_COMM_WORLD);
#if defined(SYSTEM_LINUX)
    sched_setaffinity(0, sizeof before, &before);
#endif
    free(room);
    return s;
}

static void check(const char *what, struct sharing s, int sharers)
{
    const int want = USABLE / sharers;
    ASSERT_ALL(s.cores == want && s.crowd == 1, "%s: %d cores each, not %d%s", what, s.cores, want,
               s.crowd > 1 ? ", and a crowd" : "");
}

static void test_devices_of_all_cores_share_them(void **state)
{
    (void)state;
    check("not bound", share(-1), test_size);
}

/* Device 0 is alone on one core, all others are on another.  All take the least, so that they have the same. */
static void test_only_those_on_the_same_cores_share(void **state)
{
    int core[2];
    (void)state;
#if defined(SYSTEM_LINUX)
    const int found = find_cores(core);
    check("all on one core", share(core[0]), test_size);
    if (found < 2) return;
    check("on two cores", share(core[test_rank > 0]), test_size > 1 ? test_size - 1 : 1);
#else
    (void)core;
#endif
}

static void test_a_crowd(void **state)
{
    (void)state;
    struct place *room = sharing_make(test_size);
    assert_non_null(room);
    const struct sharing s = sharing_find(room, 2, MPI_COMM_WORLD);
    free(room);
    ASSERT_ALL(s.crowd == (test_size + 1) / 2, "%d devices on 2 cores are %d on each", test_size, s.crowd);
    ASSERT_ALL(s.cores == (test_size > 1 ? 1 : 2), "%d cores each", s.cores);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_devices_of_all_cores_share_them), MPI_TEST(test_only_those_on_the_same_cores_share),
        MPI_TEST(test_a_crowd),
    };
    return MPI_RUN("sharing", tests);
}
