/* Which death was the first, whatever order the reports come in.
 * tier: check
 */
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/cli/launch/watch.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

/* What is learnt from these lines of the standard error. */
static void expect_lost(const char *const lines[], long pid, int number)
{
    struct watch w = { .stream = { { .from = -1 }, { .to = STDERR_FILENO } } };
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    for (int i = 0; lines[i]; i++) assert_int_equal(write(ends[1], lines[i], strlen(lines[i])), strlen(lines[i]));
    close(ends[1]);
    w.stream[1].from = ends[0];
    while (w.stream[1].from >= 0) watch_read(&w, &w.stream[1]);
    if (w.lost_pid != pid || w.lost_signal != number)
        fail_msg("\"%s\" first: process %ld, signal %d; it must be %ld, %d", lines[0], w.lost_pid, w.lost_signal, pid,
                 number);
}

static void test_the_earliest_death_counts(void **state)
{
    (void)state;
    expect_lost((const char *[]){ LOST_LINE "11 9 5.0 0\n", LOST_LINE "12 9 4.9 0\n", NULL }, 12, 9);
    expect_lost((const char *[]){ LOST_LINE "12 9 4.9 0\n", LOST_LINE "11 11 5.0 0\n", NULL }, 12, 9);
}

/* mpiexec kills the others when the aborted device has ended, a linger later. */
static void test_an_abort_is_not_blamed_on_whom_it_ended(void **state)
{
    (void)state;
    expect_lost((const char *[]){ LOST_LINE "11 6 5.0 0\n", LOST_LINE "12 9 6.001 0\n", NULL }, 11, 6);
    expect_lost((const char *[]){ LOST_LINE "12 9 6.001 0\n", LOST_LINE "11 6 5.0 0\n", NULL }, 11, 6);
}

/* MPICH aborts a device that reads from a dead one. */
static void test_an_abort_is_blamed_on_the_death_before(void **state)
{
    (void)state;
    expect_lost((const char *[]){ LOST_LINE "11 6 5.0 0\n", LOST_LINE "12 9 5.2 0\n", NULL }, 12, 9);
    expect_lost((const char *[]){ LOST_LINE "12 9 5.2 0\n", LOST_LINE "11 6 5.0 0\n", NULL }, 12, 9);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_earliest_death_counts),
        cmocka_unit_test(test_an_abort_is_not_blamed_on_whom_it_ended),
        cmocka_unit_test(test_an_abort_is_blamed_on_the_death_before),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
