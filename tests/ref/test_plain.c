/* Text from outside in messages: control characters are replaced; visible UTF-8 is not.
 * tier: check
 */
#include "ref/error.h"
#include "ref/io/output.h"
#include "ref/io/plain.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <cmocka.h>
#undef fail                             /* cmocka's macro; ref/error.h has a function of that name */

static void becomes(const char *text, const char *wanted)
{
    char copy[64];
    strcpy(copy, text);
    plain_text(copy);
    assert_string_equal(copy, wanted);
}

static void test_what_a_terminal_obeys(void **state)
{
    (void)state;
    becomes("\033[31mred\033[0m", "?[31mred?[0m");
    becomes("one\ntwo\r\t\b\177", "one?two????");
    becomes("\xc2\x9b" "31m", "??31m");                         /* CSI, as one character */
    becomes("\xe2\x80\xae" "txt.exe", "???txt.exe");            /* written from right to left */
    becomes("\xe2\x80\xa8", "???");                             /* a line separator */
}

static void test_utf8_stays(void **state)
{
    (void)state;
    becomes("", "");
    becomes("stra\xc3\x9f"
            "e \xe2\x82\xac \xf0\x9d\x84\x9e \xe6\xa8\xa1",
            "stra\xc3\x9f"
            "e \xe2\x82\xac \xf0\x9d\x84\x9e \xe6\xa8\xa1");
    becomes("\xc2\xa0\xef\xbf\xbd\xf4\x8f\xbf\xbf", "\xc2\xa0\xef\xbf\xbd\xf4\x8f\xbf\xbf");
}

static void test_what_is_no_utf8(void **state)
{
    (void)state;
    becomes("\xff\xfe\x80", "???");
    becomes("\xc3", "?");                                       /* cut short */
    becomes("\xe2\x82x", "??x");
    becomes("\xc0\xaf", "??");                                  /* longer than need be */
    becomes("\xe0\x80\xaf\xf0\x80\x80\xaf", "???????");
    becomes("\xed\xa0\x80", "???");                             /* half of a pair of UTF-16 */
    becomes("\xf4\x90\x80\x80\xf8\x88\x80\x80\x80", "?????????");
}

static void test_every_failure_is_plain(void **state)
{
    struct error err;
    (void)state;
    assert_int_equal(fail(&err, ERR_FORMAT, "%s:%d: %.4s", "a\nb", 3, "x\033yz"), ERR_FORMAT);
    assert_string_equal(err.text, "a?b:3: x?yz");
    fail(&err, ERR_FORMAT, "%.3s...", "ab\xc3\x9f");            /* cut in the midst of a character */
    assert_string_equal(err.text, "ab?...");
    fail_about(&err, ERR_FORMAT, "--\033");
    assert_string_equal(err.text, "--? ab?...");
    assert_string_equal(printable("\033\xc3\x9f").text, "?\xc3\x9f");
    assert_string_equal(printable_path("a/\xff").text, "a/?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_what_a_terminal_obeys), cmocka_unit_test(test_utf8_stays),
            cmocka_unit_test(test_what_is_no_utf8),
        cmocka_unit_test(test_every_failure_is_plain),
    };
    return cmocka_run_group_tests_name("plain", tests, NULL, NULL);
}
