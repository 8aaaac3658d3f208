/* What progress lines say of the time that is left: nothing before it is known, whole units after. */
#include "ref/io/time_left.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>

static void test_time_left(void **state)
{
    static const struct { double gone, part; const char *text; } cases[] = {
        { 0.9, 0.5, "" }, { 50, 0.01, "" }, { NAN, 0.5, "" }, { 50, NAN, "" },         /* not known yet */
        { 1, 0.5, "1 s left" }, { 10, 0.1, "90 s left" }, { 10, 1, "0 s left" }, { 10, 1.5, "0 s left" },
        { 60, 0.25, "3 min left" }, { 600, 0.1, "90 min left" }, { 3600, 0.1, "9 h left" }, { 1e9, 0.02, "999 h left" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_string_equal(time_left_of(cases[i].gone, cases[i].part).text, cases[i].text);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_time_left) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
