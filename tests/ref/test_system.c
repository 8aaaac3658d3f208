/* test_system.c -- what the system does in its own way: the same promises hold of Linux's half and of the portable one.
 * `make check-portable` runs these tests with the second.
 * tier: check
 */
#define _DEFAULT_SOURCE
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include "ref/machine/measure.h"
#include "ref/machine/system.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const int64_t LONG = (int64_t)60 * 1000000000, SHORT = 20000000;

/* The exit status of a child; 255 for another end. */
static int status_of(pid_t child)
{
    int how = 0;
    return waitpid(child, &how, 0) == child && WIFEXITED(how) ? WEXITSTATUS(how) : 255;
}

static void a_wake_up_counts(void **state)
{
    struct system_wake *wake = system_pages(sizeof *wake, true);
    (void)state;
    assert_non_null(wake);
    assert_true(system_wake_open(wake));
    assert_false(system_wake_wait(wake, SHORT));
    system_wake_post(wake), system_wake_post(wake);
    assert_true(system_wake_wait(wake, SHORT));         /* nobody has to wait for what is there */
    assert_true(system_wake_wait(wake, SHORT));
    assert_false(system_wake_wait(wake, SHORT));
    munmap(wake, sizeof *wake);
}

/* The child sleeps first in some turns and comes too late in others; it must never miss a post. */
static void another_process_is_woken(void **state)
{
    enum { TURNS = 200 };
    struct system_wake *wake = system_pages(2 * sizeof *wake, true);
    (void)state;
    assert_non_null(wake);
    assert_true(system_wake_open(&wake[0]) && system_wake_open(&wake[1]));
    const double begin = measure_now();
    const pid_t child = fork();
    if (child == 0) {
        for (int i = 0; i < TURNS; i++) {
            if (!system_wake_wait(&wake[0], LONG)) _exit(1);
            system_wake_post(&wake[1]);
        }
        _exit(0);
    }
    for (int i = 0; i < TURNS; i++) {
        system_wake_post(&wake[0]);
        assert_true(system_wake_wait(&wake[1], LONG));
    }
    assert_int_equal(status_of(child), 0);
    assert_true(measure_now() - begin < 50);            /* no turn has waited for its limit */
    munmap(wake, 2 * sizeof *wake);
}

static void a_sleep_has_its_limit(void **state)
{
    struct system_wake wake;
    (void)state;
    assert_true(system_wake_open(&wake));
    const double begin = measure_now();
    assert_false(system_wake_wait(&wake, 1200000000));  /* more than a second: whole seconds are carried over */
    const double took = measure_now() - begin;
    assert_true(took > 1.1);
}

static void another_process_joins_memory_by_its_path(void **state)
{
    enum { BYTES = 1 << 16 };
    char path[SYSTEM_PATH];
    (void)state;
    const int file = system_memory_make(path);
    assert_true(file >= 0);
    assert_int_equal(ftruncate(file, BYTES), 0);
    assert_true(fcntl(file, F_GETFD) & FD_CLOEXEC);
    if (!system_memory_vanishes()) assert_true(strlen(path) <= 31);     /* macOS has no longer names */
    char *at = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    assert_true(at != MAP_FAILED);
    at[BYTES - 1] = 5;
    const pid_t child = fork();
    if (child == 0) {
        const int same = system_memory_join(path);
        char *there = same >= 0 ? mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, same, 0) : MAP_FAILED;
        if (there == MAP_FAILED) _exit(1);
        if (there[BYTES - 1] == 5) there[0] = 7;
        _exit(0);
    }
    assert_int_equal(status_of(child), 0);
    assert_int_equal(at[0], 7);
    system_memory_unname(path);
    close(file);
    assert_int_equal(system_memory_join(path), -1);     /* the name is gone, or was the descriptor's */
    munmap(at, BYTES);
}

static void two_files_in_memory_are_different(void **state)
{
    char path[2][SYSTEM_PATH];
    (void)state;
    const int file[2] = { system_memory_make(path[0]), system_memory_make(path[1]) };
    assert_true(file[0] >= 0 && file[1] >= 0);
    assert_string_not_equal(path[0], path[1]);
    for (int i = 0; i < 2; i++) system_memory_unname(path[i]), close(file[i]);
}

static void pages_are_shared_or_not(void **state)
{
    (void)state;
    for (int shared = 0; shared < 2; shared++) {
        char *at = system_pages(4096, shared);
        assert_non_null(at);
        const pid_t child = fork();
        if (child == 0) at[0] = 3, _exit(0);
        assert_int_equal(status_of(child), 0);
        assert_int_equal(at[0], shared ? 3 : 0);
        munmap(at, 4096);
    }
}

static void ends_close_at_exec(void **state)
{
    int ends[2];
    char got[3] = "";
    (void)state;
    for (int sockets = 0; sockets < 2; sockets++) {
        assert_true(sockets ? system_sockets(ends) : system_pipe(ends));
        for (int i = 0; i < 2; i++) assert_true(fcntl(ends[i], F_GETFD) & FD_CLOEXEC);
        assert_int_equal(write(ends[1], "ab", 2), 2);
        assert_int_equal(read(ends[0], got, 2), 2);
        assert_string_equal(got, "ab");
        close(ends[0]), close(ends[1]);
    }
}

static void a_change_has_its_time(void **state)
{
    struct stat before, after;
    FILE *f = tmpfile();
    (void)state;
    assert_non_null(f);
    assert_int_equal(fstat(fileno(f), &before), 0);
    assert_true(system_changed(&before).tv_sec >= time(NULL) - 100);
    const struct timespec times[2] = { { .tv_sec = 5 }, { .tv_sec = 7, .tv_nsec = 250000000 } };
    assert_int_equal(futimens(fileno(f), times), 0);
    assert_int_equal(fstat(fileno(f), &after), 0);
    assert_int_equal(system_changed(&after).tv_sec, 7);
    assert_int_equal(system_changed(&after).tv_nsec, 250000000);
    fclose(f);
}

static const char *called;              /* main's first word */

/* A program knows itself, also after it has changed its folder. */
static void the_program_knows_its_file(void **state)
{
    char path[4096], folder[4096];
    struct stat itself, told;
    (void)state;
    if (strchr(called, '/') == NULL) skip();            /* found in PATH, by whoever started it */
    system_started_as(called);
    assert_int_equal(stat(called, &itself), 0);
    assert_non_null(getcwd(folder, sizeof folder));
    assert_int_equal(chdir("/"), 0);
    assert_true(system_program(path, sizeof path));
    assert_int_equal(chdir(folder), 0);
    assert_int_equal(path[0], '/');
    assert_int_equal(stat(path, &told), 0);
    assert_true(itself.st_dev == told.st_dev && itself.st_ino == told.st_ino);
}

/* Nothing is said of processes where the system does not tell; else what is said must be right. */
static void processes_are_told_or_not(void **state)
{
    struct system_process process;
    int count, found = 0;
    long child[4];
    (void)state;
    long *pid = system_processes(&count);
    for (int i = 0; i < count; i++) found += pid[i] == (long)getpid();
    free(pid);
    assert_int_equal(found, system_tells_processes());
    assert_int_equal(system_process((long)getpid(), &process), system_tells_processes());
    if (!system_tells_processes()) {
        assert_int_equal(system_children((long)getpid(), child, 4), 0);
        assert_int_equal(system_process_memory((long)getpid()), 0);
        return;
    }
    assert_int_equal(process.parent, (long)getppid());
    assert_true(process.started > 0 && process.state == 'R');
    assert_true(system_process_memory((long)getpid()) > 100000);
    int ends[2];
    assert_true(system_pipe(ends));
    const pid_t waits = fork();
    char end;
    if (waits == 0) close(ends[1]), _exit(read(ends[0], &end, 1) != 0);
    assert_true(system_process((long)waits, &process));
    assert_int_equal(process.parent, (long)getpid());
    close(ends[1]);
    assert_int_equal(status_of(waits), 0);
    assert_false(system_process((long)waits, &process));
    close(ends[0]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_wake_up_counts),
        cmocka_unit_test(another_process_is_woken),
        cmocka_unit_test(a_sleep_has_its_limit),
        cmocka_unit_test(another_process_joins_memory_by_its_path),
        cmocka_unit_test(two_files_in_memory_are_different),
        cmocka_unit_test(pages_are_shared_or_not),
        cmocka_unit_test(ends_close_at_exec),
        cmocka_unit_test(a_change_has_its_time),
        cmocka_unit_test(the_program_knows_its_file),
        cmocka_unit_test(processes_are_told_or_not),
    };
    (void)argc;
    called = argv[0];
    return cmocka_run_group_tests(tests, NULL, NULL);
}
