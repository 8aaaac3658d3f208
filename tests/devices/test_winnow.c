/* Fingerprints of texts in C: every common sequence of 19 tokens is found, none shorter than 12, whatever names,
 * numbers, comments and blanks are; and any bytes can be read. */
#include "emulated_devices/course/class/winnow.h"
#include "ref/numeric/philox.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SURE = WINNOW_TOKENS + WINNOW_WINDOW - 1, BYTES = 8000 };

static uint64_t drawn;
static int draw(int most) { return (int)(random_uniform(11, 2, drawn++) * most); }

/* Append random tokens that are told apart, so that nothing is common by chance. */
static void add_tokens(char *text, int count)
{
    for (; count > 0; count--) {
        const size_t n = strlen(text);
        snprintf(text + n, BYTES - n, "%c ", "+-*/%&|^<>=!?:;,.(){}[]~"[draw(24)]);
    }
}

static struct winnowed read(const char *text, size_t size, const struct winnowed *known, bool every)
{
    struct winnowed w;
    assert_int_equal(winnow(&w, WINNOW_C, text, size, known, every, NULL), OK);
    return w;
}

/* Tokens of a that b has, too. */
static int common(const char *a, const char *b, bool every)
{
    struct winnowed x = read(a, strlen(a), NULL, every), y = read(b, strlen(b), NULL, every);
    bool *mark = calloc((size_t)x.tokens + 1, sizeof *mark);
    const int n = winnow_common(&x, &y, mark);
    int marked = 0;
    for (int t = 0; t < x.tokens; t++) marked += mark[t];
    assert_int_equal(n, marked);
    free(mark);
    winnow_free(&x), winnow_free(&y);
    return n;
}

static void test_sequences(void **state)
{
    (void)state;
    for (int i = 0; i < 300; i++) {
        static char a[BYTES], b[BYTES], same[BYTES];
        const int length = i % 40;
        a[0] = b[0] = same[0] = '\0';
        add_tokens(same, length), add_tokens(a, draw(60)), add_tokens(b, draw(60));
        strcat(a, same), strcat(b, same);
        add_tokens(a, draw(60)), add_tokens(b, draw(60));
        const int n = common(a, b, false);
        if (length >= SURE && n < WINNOW_TOKENS) fail_msg("%d tokens in common are not found", length);
        /* A token on either side may be the same by chance, and seldom three. */
        if (length + 6 < WINNOW_TOKENS && n > 0) fail_msg("of %d tokens in common %d are found", length, n);
    }
}

static void test_what_does_not_count(void **state)
{
    static const char one[] = "float sum = 0;\nfor (int i = 0; i < n; i++) { sum += x[i] * 2.5f; } say(\"one\");\n"
                              "if (sum > 3) return sum; else return -sum;\n";
    static const char other[] = "/* mine */ #define NOTHING\n#define A \\\n int b;\nfloat total=1; // x\n\n "
                                "for(int k=7;k<count;k++){total+=y[k]*1e3;}tell(\"two, \\\" \" );if(total>0x4)return "
                                "total;\n\n else return-total;";
    (void)state;
    struct winnowed w = read(one, strlen(one), NULL, false);
    const int tokens = w.tokens;
    assert_int_equal(w.line[0], 1);
    assert_int_equal(w.line[tokens - 1], 3);
    winnow_free(&w);
    assert_int_equal(common(one, other, true), tokens);
    /* Winnowing may leave out less than a window at both ends. */
    assert_in_range(common(one, other, false), tokens - 2 * (WINNOW_WINDOW - 1), tokens);
    /* Another type is another text. */
    assert_true(common("int int int int int int int int int int int int int",
                       "char char char char char char char char char char char char char", false) == 0);
    /* In Python # begins a comment in any place. */
    static const char python[] = "def f(x):\n    return sum(x)  # all of them\n#end";
    assert_int_equal(winnow(&w, WINNOW_PYTHON, python, strlen(python), NULL, false, NULL), OK);
    assert_int_equal(w.tokens, 11);
    winnow_free(&w);
    /* Both students began with this text, so it is no evidence. */
    struct winnowed known = read(one, strlen(one), NULL, true), left = read(one, strlen(one), &known, false);
    assert_int_equal(left.prints, 0);
    winnow_free(&known), winnow_free(&left);
}

/* Any bytes: quotes and comments without an end, escapes at the end, zeros. */
static void test_any_bytes(void **state)
{
    static const char *const ends[] = { "", "/", "/*", "/* *", "//", "#", "# \\", "\"", "\"\\", "'", "'\\", "a", "1.",
                                        "\\", "\n", "\xff\xfe", "/*/" };
    (void)state;
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t n = strlen(ends[i]);
        char *exact = malloc(n + 1);            /* no byte behind the text may be read: a sanitizer would say so */
        memcpy(exact, ends[i], n);
        struct winnowed w = read(exact, n, NULL, false);
        winnow_free(&w);
        free(exact);
    }
    for (int i = 0; i < 300; i++) {
        const int n = draw(400);
        char *bytes = malloc((size_t)n + 1);
        for (int k = 0; k < n; k++) bytes[k] = (char)(i % 2 ? draw(256) : "/*\"'\\\n#a1 "[draw(11)]);
        struct winnowed w = read(bytes, (size_t)n, NULL, i % 3 == 0);
        for (int t = 0; t < w.tokens; t++) assert_in_range(w.line[t], 1, n + 1);
        winnow_free(&w);
        free(bytes);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_sequences), cmocka_unit_test(test_what_does_not_count),
                                        cmocka_unit_test(test_any_bytes) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
