/* What comes from mpiexec and the devices: what is passed on, what is learnt from it. */
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/cli/launch/watch.h"
#include <string.h>
#include <unistd.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

static struct watch watch;
static char passed[LINE];

/* All of a stream.  Leaves what was passed on. */
static void hear(const char *text)
{
    int in[2], out[2];
    assert_int_equal(pipe(in) | pipe(out), 0);
    watch = (struct watch){ .stream = { { .from = in[0], .to = out[1] } } };
    assert_int_equal(write(in[1], text, strlen(text)), strlen(text));
    close(in[1]);
    while (watch.stream[0].from >= 0) watch_read(&watch, &watch.stream[0]);
    close(out[1]);
    const ssize_t n = read(out[0], passed, sizeof passed - 1);
    assert_true(n >= 0);
    passed[n] = '\0';
    close(out[0]);
}

static void test_what_a_program_says(void **state)
{
    (void)state;
    hear("step 1\n\n[a] b\nthe end");
    assert_string_equal(passed, "step 1\n\n[a] b\nthe end");
    assert_string_equal(watch.noise, "");
}

static void test_what_mpich_says_without_its_proxy(void **state)
{
    (void)state;
    hear("step 1\n[cli_1]: readline failed\n[cli_2]: Error reading initack on 17\nError on readline:: Connection reset "
         "by peer\n"
         "[cli_0]: write_line error; fd=9 buf=:cmd=abort exitcode=1\n:\nsystem msg for write_line failure : Broken "
         "pipe\n");
    assert_string_equal(passed, "step 1\n:\n");
    assert_string_equal(watch.noise, "readline failed");
}

/* Between the beginning of a line and its end. */
static void test_witness_within_a_line(void **state)
{
    (void)state;
    hear("[cli_2]: " LOST_LINE "5712 9 3153.061 1\nreadline failed\n");
    assert_true(watch.orphaned);
    assert_int_equal(watch.lost_pid, 0);
    hear("[cli_2]: " LOST_LINE "5712 9 3153.061 0\n");
    assert_int_equal(watch.lost_pid, 5712);
    assert_int_equal(watch.lost_signal, 9);
    assert_string_equal(passed, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_program_says), cmocka_unit_test(test_what_mpich_says_without_its_proxy),
        cmocka_unit_test(test_witness_within_a_line),
    };
    return cmocka_run_group_tests_name("watch", tests, NULL, NULL);
}
