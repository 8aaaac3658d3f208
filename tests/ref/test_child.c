/* Processes that a process starts: they end when it ends, however it ends.
 * tier: check
 *
 * A parent that is killed, or stopped by a signal, is a process that this test starts; its child holds the writing end
 * of a pipe, so the pipe says when that has ended.
 */
#include "ref/io/child.h"
#include "ref/machine/system.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { LIMIT = 60 };                    /* seconds, for what takes milliseconds */

static void sleep_for_ever(void)
{
    for (;;) pause();
}

/* ---- its end ----------------------------------------------------------------------------------------------------- */

static void test_status(void **state)
{
    struct child_end end;
    (void)state;
    pid_t child = child_start();
    if (child == 0) _exit(7);
    assert_true(child > 0);
    assert_true(child_wait(child, 0, &end));
    assert_true(WIFEXITED(end.how) && WEXITSTATUS(end.how) == 7);
    child = child_start();
    if (child == 0) {
        while (clock() < CLOCKS_PER_SEC / 20) continue;
        _exit(0);
    }
    assert_true(child_wait(child, LIMIT, &end));
    assert_true(WIFEXITED(end.how) && WEXITSTATUS(end.how) == 0);
    assert_true(end.used.ru_utime.tv_usec + end.used.ru_stime.tv_usec > 20000);
}

static void test_limit(void **state)
{
    struct child_end end;
    (void)state;
    const pid_t child = child_start();
    if (child == 0) sleep_for_ever();
    assert_false(child_wait(child, 0.05, &end));
    assert_int_equal(kill(child, 0), 0);
    child_stop(child, &end);
    assert_true(WIFSIGNALED(end.how) && WTERMSIG(end.how) == SIGTERM);
    assert_true(kill(child, 0) != 0);
}

static void test_nobody_to_wait_for(void **state)
{
    struct child_end end;
    (void)state;
    const pid_t child = child_start();
    if (child == 0) _exit(0);
    int how;
    assert_int_equal(waitpid(child, &how, 0), child);           /* by somebody else */
    assert_true(child_wait(child, 0, &end));
    assert_true(WIFEXITED(end.how) && WEXITSTATUS(end.how) == 127);
}

/* ---- its parent's end -------------------------------------------------------------------------------------------- */

static int held[2], ready[2];           /* held by the child while it lives; a byte when it is there */

static void say_ready(void)
{
    if (write(ready[1], "", 1) != 1) _exit(99);
}

static void stopped(int number) { _exit(number); }
static void keep_on(int number) { (void)number; }

/* What a parent does in its own process; child: what its child does. */
struct parent { void (*stopped)(int); void (*child)(void); };

static void be_a_parent(const struct parent *p)
{
    struct child_end end;
    child_take_signals(p->stopped);
    const pid_t child = child_start();
    if (child == 0) {
        p->child();
        sleep_for_ever();
    }
    close(held[1]);
    child_wait(child, 0, &end);
    _exit(WIFSIGNALED(end.how) ? 100 + WTERMSIG(end.how) : 90);
}

static pid_t start_parent(const struct parent *p)
{
    char byte;
    assert_int_equal(pipe(held), 0);
    assert_int_equal(pipe(ready), 0);
    const pid_t parent = fork();
    if (parent == 0) be_a_parent(p);
    close(held[1]), close(ready[1]);
    assert_int_equal(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    return parent;
}

static int wait_for(pid_t parent)
{
    const struct timespec moment = { .tv_nsec = 1000000 };
    int how = 0;
    pid_t got;
    for (int64_t i = 0; (got = waitpid(parent, &how, WNOHANG)) == 0; i++) {
        if (i > 1000 * LIMIT) {
            kill(parent, SIGKILL);
            fail_msg("the parent has not ended in %d s", LIMIT);
        }
        nanosleep(&moment, NULL);
    }
    assert_int_equal(got, parent);
    return how;
}

/* @return the parent's status, when its child has ended too. */
static int end_of(pid_t parent)
{
    const int how = wait_for(parent);
    struct pollfd p = { .fd = held[0], .events = POLLIN };
    if (poll(&p, 1, 1000 * LIMIT) != 1) fail_msg("the child has outlived its parent");
    close(held[0]);
    return how;
}

static void test_parent_is_killed(void **state)
{
    (void)state;
#if defined(SYSTEM_LINUX)
    const pid_t parent = start_parent(&(struct parent){ stopped, say_ready });
    kill(parent, SIGKILL);
    const int how = end_of(parent);
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGKILL);
#endif
}

static void test_parent_is_stopped(void **state)
{
    static const int all[] = { SIGINT, SIGTERM, SIGHUP };
    (void)state;
    for (int i = 0; i < 3; i++) {
        pid_t parent = start_parent(&(struct parent){ stopped, say_ready });
        kill(parent, all[i]);
        int how = end_of(parent);
        assert_true(WIFEXITED(how) && WEXITSTATUS(how) == all[i]);      /* of `stopped` */
        parent = start_parent(&(struct parent){ keep_on, say_ready });
        kill(parent, all[i]);
        how = end_of(parent);
        assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 100 + all[i]);        /* its child had the same signal */
    }
}

static void ignore_signals(void)
{
    signal(SIGTERM, SIG_IGN);
    say_ready();
}

/* Its alarm comes after CHILD_PATIENCE seconds, or from here. */
static void test_a_child_that_does_not_want_to_end(void **state)
{
    (void)state;
    const pid_t parent = start_parent(&(struct parent){ keep_on, ignore_signals });
    kill(parent, SIGTERM);
    nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
    assert_int_equal(waitpid(parent, NULL, WNOHANG), 0);
    kill(parent, SIGALRM);
    const int how = end_of(parent);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == 100 + SIGKILL);
}

/* What a child has started has its signals, too: a compiler's passes. */
static void start_another(void)
{
    if (fork() == 0) {
        say_ready();
        sleep_for_ever();
    }
}

static void test_grandchildren(void **state)
{
    (void)state;
    const pid_t parent = start_parent(&(struct parent){ stopped, start_another });
    kill(parent, SIGTERM);
    const int how = end_of(parent);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == SIGTERM);
}

/* Under nohup. */
static void test_what_is_ignored_stays_ignored(void **state)
{
    (void)state;
    signal(SIGHUP, SIG_IGN);
    const pid_t parent = start_parent(&(struct parent){ stopped, say_ready });
    kill(parent, SIGHUP);
    nanosleep(&(struct timespec){ .tv_nsec = 50000000 }, NULL);
    assert_int_equal(waitpid(parent, NULL, WNOHANG), 0);
    kill(parent, SIGINT);
    const int how = end_of(parent);
    assert_true(WIFEXITED(how) && WEXITSTATUS(how) == SIGINT);
    signal(SIGHUP, SIG_DFL);
}

/* A program that has no child is stopped as if there were no such thing. */
static void test_signals_are_given_back(void **state)
{
    struct sigaction now;
    struct child_end end;
    (void)state;
    child_take_signals(stopped);
    const pid_t child = child_start();
    if (child == 0) _exit(0);
    sigaction(SIGTERM, NULL, &now);
    assert_true(now.sa_handler != SIG_DFL);
    child_wait(child, 0, &end);
    sigaction(SIGTERM, NULL, &now);
    assert_true(now.sa_handler == SIG_DFL);
    child_take_signals(NULL);
}

int main(void)
{
    static const int usual[] = { SIGINT, SIGTERM, SIGHUP };             /* nohup, or a shell's &, may ignore them */
    for (int i = 0; i < 3; i++) signal(usual[i], SIG_DFL);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_status), cmocka_unit_test(test_limit), cmocka_unit_test(test_nobody_to_wait_for),
        cmocka_unit_test(test_parent_is_killed), cmocka_unit_test(test_parent_is_stopped),
        cmocka_unit_test(test_a_child_that_does_not_want_to_end), cmocka_unit_test(test_grandchildren),
        cmocka_unit_test(test_what_is_ignored_stays_ignored), cmocka_unit_test(test_signals_are_given_back),
    };
    return cmocka_run_group_tests_name("child", tests, NULL, NULL);
}
