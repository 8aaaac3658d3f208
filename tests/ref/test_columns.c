/* Tables: columns as wide as their widest cell; no line ends with a blank.
 * tier: check
 */
#include "ref/io/columns.h"
#include "tests/ref/scratch.h"

struct row { const char *name; int number; const char *note; };

static void print(FILE *f, const struct row *rows, int n)
{
    struct columns t = columns_start(f);
    do for (int i = 0; i < n; i++) {
        columns_add(&t, LEFT_ALIGNED, "%s", rows[i].name);
        columns_add(&t, RIGHT_ALIGNED, "n=%d", rows[i].number);
        columns_add(&t, LEFT_ALIGNED, "%s", rows[i].note);
        columns_end_row(&t);
    } while (columns_again(&t));
}

static void assert_table(const struct row *rows, int n, const char *wanted)
{
    char *text = NULL;
    size_t size = 0;
    FILE *f = open_memstream(&text, &size);
    assert_non_null(f);
    print(f, rows, n);
    fclose(f);
    assert_string_equal(text, wanted);
    free(text);
}

static void test_the_longest_makes_the_column(void **state)
{
    (void)state;
    assert_table((struct row[]){ { "a", 1, "x" }, { "exp_avg_sq of h.1.mlp.c_proj.weight", 10000, "y" } }, 2,
                 "  a                                        n=1  x\n"
                 "  exp_avg_sq of h.1.mlp.c_proj.weight  n=10000  y\n");
    assert_table((struct row[]){ { "a", 1, "x" }, { "b", 2, "y" } }, 2, "  a  n=1  x\n  b  n=2  y\n");
}

static void test_no_line_ends_with_a_blank(void **state)
{
    (void)state;
    assert_table((struct row[]){ { "a", 1, "" }, { "b", 22, "long" }, { "", 3, "z" } }, 3,
                 "  a   n=1\n  b  n=22  long\n      n=3  z\n");
    assert_table(NULL, 0, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_the_longest_makes_the_column),
                                        cmocka_unit_test(test_no_line_ends_with_a_blank) };
    return cmocka_run_group_tests_name("columns", tests, NULL, NULL);
}
