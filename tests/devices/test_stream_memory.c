/* STREAM's loops: by loops and by tasks each element is what the loop says, for pieces that do not divide; bytes.
 * tier: check
 */
#include "emulated_devices/bench/calibrate/stream.h"
#include "ref/machine/threads.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { MOST = 41 };

static void test_each_element(void **state)
{
    (void)state;
    threads_set(3);
    for (int way = 0; way < STREAM_WAYS; way++)
        for (int loop = 0; loop < STREAM_LOOPS; loop++)
            for (int n = 1; n <= MOST; n += 8)
                for (int tasks = 1; tasks <= 7; tasks++) {
                    double a[MOST], b[MOST], c[MOST];
                    for (int i = 0; i < MOST; i++) a[i] = i, b[i] = 100 + i, c[i] = 1000 + i;
                    stream_run((enum stream_way)way, (enum stream_loop)loop, a, b, c, n, tasks);
                    for (int i = 0; i < MOST; i++) {
                        double A = i, B = 100 + i, C = 1000 + i;
                        if (i < n && loop == STREAM_COPY) C = A;
                        if (i < n && loop == STREAM_SCALE) B = 3 * C;
                        if (i < n && loop == STREAM_ADD) C = A + B;
                        if (i < n && loop == STREAM_TRIAD) A = B + 3 * C;
                        if (a[i] != A || b[i] != B || c[i] != C)
                            fail_msg("%s by %s, %d elements in %d pieces: element %d is %g, %g, %g, expected %g, %g, "
                                     "%g", stream_loop_name[loop], way == STREAM_BY_TASKS ? "tasks" : "loops", n,
                                     tasks, i, a[i], b[i], c[i], A, B, C);
                    }
                }
}

static void test_bytes_and_rates(void **state)
{
    (void)state;
    struct stream_rates rates;
    struct error err;
    assert_true(stream_bytes(STREAM_COPY, 10) == 160 && stream_bytes(STREAM_SCALE, 10) == 160);
    assert_true(stream_bytes(STREAM_ADD, 10) == 240 && stream_bytes(STREAM_TRIAD, 10) == 240);
    assert_int_equal(stream_measure(&(struct stream_asked){ 1000, 5, 7 }, &rates, &err), OK);
    for (int way = 0; way < STREAM_WAYS; way++)
        for (int loop = 0; loop < STREAM_LOOPS; loop++) assert_true(rates.rate[way][loop] > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_element),
        cmocka_unit_test(test_bytes_and_rates),
    };
    return cmocka_run_group_tests_name("stream", tests, NULL, NULL);
}
