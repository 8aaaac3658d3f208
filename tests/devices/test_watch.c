/* Which death was the first, whatever order the reports come in.
 * tier: check
 */
#include "emulated_devices/launch/launch.h"
#include "emulated_devices/launch/watch.h"
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

static void tell(struct watch *w, const char *line)
{
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    assert_int_equal(write(ends[1], line, strlen(line)), strlen(line));
    close(ends[1]);
    w->stream[1] = (struct stream){ .from = ends[0], .to = STDERR_FILENO };
    while (w->stream[1].from >= 0) watch_read(w, &w->stream[1]);
}

/* Of two hosts, the one of which no device tells its end; the numbers of processes of two hosts may be the same. */
static void test_lost_host(void **state)
{
    static const char *const start[] = { PROCESS_LINE "7 0 starting\n", HOST_LINE "0 alpha\n",
                                         PROCESS_LINE "8 1 starting\n",
                                         HOST_LINE "1 alpha\n", PROCESS_LINE "7 2 starting\n", HOST_LINE "2 beta\n",
                                         PROCESS_LINE "7 0 dp=0\n", PROCESS_LINE "7 2 dp=1\n" };
    struct process process[3] = { { 0 } };
    struct watch w = { .room = 3, .process = process, .lost_rank = -1 };
    char text[200];
    (void)state;
    for (size_t i = 0; i < sizeof start / sizeof *start; i++) tell(&w, start[i]);
    assert_int_equal(w.known, 3);
    assert_string_equal(watch_lost_hosts(&w, text, sizeof text), "");
    tell(&w, LOST_LINE "7 9 5.0 1 0\n");
    assert_string_equal(watch_lost_hosts(&w, text, sizeof text), "beta, with its devices 2");
    tell(&w, LOST_LINE "7 9 5.0 1 2\n");
    assert_string_equal(watch_lost_hosts(&w, text, sizeof text), "");
}

/* The last line of a run is read by the launcher alone, and not printed. */
static void test_the_end_of_a_run(void **state)
{
    (void)state;
    struct watch w = { .lost_rank = -1 };
    tell(&w, "bits    weights\n");
    assert_false(w.ended_well);
    tell(&w, END_LINE "3\n");
    assert_true(w.ended_well);
    assert_int_equal(w.status, 3);
}

/* Devices of alpha are killed by their proxy, and say that messages to beta break off: that follows from the loss of
 * beta.  If mpiexec reports a death, or a device has died of something else, that counts. */
static void test_what_follows_from_a_lost_proxy(void **state)
{
    (void)state;
    static const char failed[] = "[mpiexec@alpha] main (ui/mpich/mpiexec.c:325): process manager error waiting for "
                                 "completion\n", killed[] = LOST_LINE "11 9 5.0 0 0\n",
                      crashed[] = LOST_LINE "11 11 5.0 0 0\n", *const hosts[] = { "alpha", "alpha", "beta", "beta" },
                      message[] = "orrery: device 1: allreduce: device 1 could not receive from device 3: Other\n",
                      numbers[] = "orrery: device 1: loss is nan\n", frame[] = "==========\n= BAD TERMINATION\n=====\n";
    static const struct { const char *line[4]; bool follows; } cases[] = {
        { { failed, killed, NULL }, true },             { { killed, failed, NULL }, true },
        { { message, failed, killed, NULL }, true },    { { message, killed, NULL }, true },
        { { numbers, failed, killed, NULL }, false },   { { failed, crashed, NULL }, false },
        { { killed, NULL }, false },                    { { frame, failed, killed, NULL }, false },
        { { message, frame, killed, NULL }, false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct process room[4];
        struct watch w = { .room = 4, .process = room, .lost_rank = -1 };
        char line[80];
        for (int rank = 0; rank < 4; rank++) {
            snprintf(line, sizeof line, PROCESS_LINE "%d %d dp=%d\n", 11 + rank, rank, rank);
            tell(&w, line);
            snprintf(line, sizeof line, HOST_LINE "%d %s\n", rank, hosts[rank]);
            tell(&w, line);
        }
        for (int k = 0; k < 4 && cases[i].line[k]; k++) tell(&w, cases[i].line[k]);
        if (watch_lost_proxy(&w) != cases[i].follows)
            fail_msg("case %zu, \"%.60s\" first: it %s from the loss of a proxy", i, cases[i].line[0],
                     cases[i].follows ? "must follow" : "does not follow");
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_earliest_death_counts),
        cmocka_unit_test(test_an_abort_is_not_blamed_on_whom_it_ended),
        cmocka_unit_test(test_an_abort_is_blamed_on_the_death_before),
        cmocka_unit_test(test_lost_host), cmocka_unit_test(test_what_follows_from_a_lost_proxy),
        cmocka_unit_test(test_the_end_of_a_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
