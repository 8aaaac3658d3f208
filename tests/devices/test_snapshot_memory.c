/* Snapshots of devices in memory that outlives their process: a process is killed after every one of its actions, and
 * the latest step that all devices have is found, whole; after that the steps are written anew, and nothing old counts.
 */
#include "emulated_devices/run/survive/snapshot_memory.h"
#include "ref/machine/system.h"
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cmocka.h>

enum { DEVICES = 3, STEPS = 5, PIECES = 3 };
static const uint64_t bytes[DEVICES] = { 1000, 9000, 0 };

static struct snapshot_memory memory_of_test(void)
{
    struct snapshot_memory memory;
    struct error err = { OK, "" };
    if (!system_memory_vanishes()) skip();
    if (snapshot_memory_make(&memory, bytes, DEVICES, 0, STEPS, 2, &err)) fail_msg("%s", err.text);
    return memory;
}

/* The byte at a place of a device's state after so many steps, in the first process or in the second. */
static char state_at(int device, int64_t step, uint64_t at, int process)
{
    return (char)(at * 7 + (uint64_t)device * 31 + (uint64_t)step * 101 + (uint64_t)process * 13 + 1);
}

static void act(int *left)
{
    if ((*left)-- == 0) raise(SIGKILL);
}

/* Write the states of steps from `step` on, device by device, and be killed after so many actions. */
static void write_until_killed(struct snapshot_memory *memory, int64_t step, int process, int left)
{
    for (; step < STEPS; step++)
        for (int d = 0; d < DEVICES; d++) {
            char *const half = snapshot_memory_begin(memory, d, step);
            act(&left);
            for (int piece = 0; half && piece < PIECES; piece++) {
                const uint64_t from = (uint64_t)piece * bytes[d] / PIECES,
                    to = (uint64_t)(piece + 1) * bytes[d] / PIECES;
                for (uint64_t i = from; i < to; i++) half[i] = state_at(d, step, i, process);
                act(&left);
            }
            if (half) snapshot_memory_commit(memory, d, step);
            act(&left);
        }
    _exit(0);
}

/* @return whether it was killed. */
static bool run_process(struct snapshot_memory *memory, int64_t step, int process, int left)
{
    int how;
    const pid_t child = fork();
    if (child == 0) write_until_killed(memory, step, process, left);
    assert_int_equal(waitpid(child, &how, 0), child);
    return WIFSIGNALED(how);
}

static void expect_states(const struct snapshot_memory *memory, int64_t step, int process, int killed_after)
{
    for (int d = 0; d < DEVICES; d++) {
        const char *const state = snapshot_memory_find(memory, d, step);
        if (state == NULL)
            fail_msg("killed after %d actions: device %d has no state of step %d", killed_after, d, (int)step);
        for (uint64_t i = 0; i < bytes[d]; i++)
            if (state[i] != state_at(d, step, i, process))
                fail_msg("killed after %d actions: byte %d of device %d is not that of step %d", killed_after, (int)i,
                         d, (int)step);
    }
}

/* Each device has PIECES + 2 actions in a step; the last one follows its commit. */
static int64_t complete_after(int actions)
{
    return (actions + 1) / (DEVICES * (PIECES + 2)) - 1;
}

static void test_killed_after_every_action(void **state)
{
    (void)state;
    for (int killed_after = 0;; killed_after++) {
        struct snapshot_memory memory = memory_of_test();
        const bool killed = run_process(&memory, 0, 0, killed_after);
        const int64_t latest = snapshot_memory_latest(&memory);
        if (killed) assert_int_equal(latest, complete_after(killed_after));
        if (latest >= 0) expect_states(&memory, latest, 0, killed_after);
        snapshot_memory_close(&memory);
        if (!killed) break;
    }
}

/* The second process has other states, as a run has whose sums are not exact: none of the first's later ones may
 * count. */
static void test_begun_again_after_every_action(void **state)
{
    (void)state;
    for (int killed_after = DEVICES * (PIECES + 2); killed_after < 3 * DEVICES * (PIECES + 2); killed_after++) {
        struct snapshot_memory memory = memory_of_test();
        assert_true(run_process(&memory, 0, 0, killed_after));
        const int64_t from = snapshot_memory_latest(&memory);
        snapshot_memory_keep(&memory, from);
        const bool killed = run_process(&memory, from, 1, killed_after);
        const int64_t latest = snapshot_memory_latest(&memory);
        assert_true(latest >= from && (killed || latest == STEPS - 1));
        expect_states(&memory, latest, latest > from, killed_after);
        snapshot_memory_close(&memory);
    }
}

/* Who is killed by a fault may have written anywhere: the step before is taken. */
static void test_damage(void **state)
{
    (void)state;
    struct snapshot_memory memory = memory_of_test();
    assert_false(run_process(&memory, 0, 0, 1000));
    assert_int_equal(snapshot_memory_latest(&memory), STEPS - 1);
    ((char *)snapshot_memory_find(&memory, 1, STEPS - 1))[8999] ^= 1;
    assert_int_equal(snapshot_memory_latest(&memory), STEPS - 2);
    ((char *)snapshot_memory_find(&memory, 0, STEPS - 2))[0] ^= 1;
    assert_int_equal(snapshot_memory_latest(&memory), -1);
    snapshot_memory_close(&memory);
}

static void test_who_can_reach_it(void **state)
{
    (void)state;
    struct snapshot_memory memory = memory_of_test(), other;
    struct error err;
    assert_int_equal(snapshot_memory_join(&other, DEVICES, &err), OK);
    other.loss[STEPS - 1] = 3;
    assert_true(memory.loss[STEPS - 1] == 3);
    snapshot_memory_close(&other);
    assert_int_equal(snapshot_memory_join(&other, DEVICES + 1, &err), ERR_COMM);
    memory.front->token++;              /* as a file of another machine at the same path */
    assert_int_equal(snapshot_memory_join(&other, DEVICES, &err), ERR_COMM);
    snapshot_memory_close(&memory);
    assert_int_equal(snapshot_memory_join(&other, DEVICES, &err), ERR_COMM);
    assert_non_null(strstr(err.text, "all devices must be on one machine"));
}

static void test_its_size(void **state)
{
    (void)state;
    struct snapshot_memory memory = memory_of_test();
    assert_int_equal(memory.front->bytes, snapshot_memory_need(bytes, DEVICES, STEPS));
    const uint64_t large[1] = { (uint64_t)1 << 60 };
    struct snapshot_memory none;
    struct error err;
    assert_int_equal(snapshot_memory_make(&none, large, 1, 0, STEPS, 1, &err), ERR_MEMORY);
    assert_non_null(strstr(err.text, "--survive: the snapshots need "));
    snapshot_memory_close(&none);
    snapshot_memory_close(&memory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed_after_every_action), cmocka_unit_test(test_begun_again_after_every_action),
        cmocka_unit_test(test_damage), cmocka_unit_test(test_who_can_reach_it), cmocka_unit_test(test_its_size),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
