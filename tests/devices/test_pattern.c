/* Names of tensors with *, as maps of dumps have them: as if every way had been tried, and as fast as a line is read.
 * tier: check
 */
#include "emulated_devices/check/dump/actual.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

/* What the rule says, tried in every way: the first * takes as little as it can, then the second, ... */
static bool naive(const char *pattern, const char *text, const char *starts[], int lengths[])
{
    if (*pattern == '*') {
        for (const char *end = text;; end++) {
            starts[0] = text, lengths[0] = (int)(end - text);
            if (naive(pattern + 1, end, starts + 1, lengths + 1)) return true;
            if (*end == '\0') return false;
        }
    }
    return *pattern == *text && (*pattern == '\0' || naive(pattern + 1, text + 1, starts, lengths));
}

static void same_as_naive(const char *pattern, const char *text)
{
    enum { MOST = 6 };
    const char *starts[2][MOST] = { { NULL } };
    int lengths[2][MOST] = { { 0 } }, stars = 0;
    for (const char *c = pattern; *c; c++) stars += *c == '*';
    const bool wanted = naive(pattern, text, starts[0], lengths[0]),
               found = pattern_match(pattern, text, starts[1], lengths[1], stars);
    if (wanted != found) print_error("\"%s\" on \"%s\": %d, not %d\n", pattern, text, found, wanted);
    assert_int_equal(wanted, found);
    assert_int_equal(wanted, pattern_match(pattern, text, NULL, NULL, 0));
    for (int i = 0; i < stars && wanted; i++) {
        const bool same = starts[0][i] == starts[1][i] && lengths[0][i] == lengths[1][i];
        if (!same)
            print_error("\"%s\" on \"%s\": * number %d takes %d characters, not %d\n", pattern, text, i, lengths[1][i],
                        lengths[0][i]);
        assert_true(same);
    }
}

/* The next word of so many letters; false after the last. */
static bool next_word(char *word, int n, char first, char last)
{
    for (int i = n - 1; i >= 0; i--) {
        if (word[i] != last) { word[i] = word[i] == '*' ? 'a' : (char)(word[i] + 1); return true; }
        word[i] = first;
    }
    return false;
}

static void test_every_short_pattern(void **state)
{
    (void)state;
    for (int p = 0; p <= 5; p++)
        for (int t = 0; t <= 5; t++) {
            char pattern[8] = "", text[8] = "";
            memset(pattern, '*', (size_t)p);
            do {
                memset(text, 'a', (size_t)t);
                do same_as_naive(pattern, text);
                while (next_word(text, t, 'a', 'b'));
            } while (next_word(pattern, p, '*', 'b'));
        }
}

/* Trying every way would take longer than there is. */
static void test_many_stars_take_no_time(void **state)
{
    char pattern[2001], text[4001];
    (void)state;
    for (int i = 0; i < 2000; i++) pattern[i] = i % 2 ? 'a' : '*';
    memset(text, 'a', 4000);
    pattern[2000] = text[4000] = '\0';
    assert_false(pattern_match(pattern, text, NULL, NULL, 0) && pattern_match("*b", text, NULL, NULL, 0));
    pattern[1999] = 'b';
    assert_false(pattern_match(pattern, text, NULL, NULL, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_short_pattern),
        cmocka_unit_test(test_many_stars_take_no_time),
    };
    return cmocka_run_group_tests_name("pattern", tests, NULL, NULL);
}
