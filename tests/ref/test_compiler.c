/* The compiler, with the flags of this tree, passes structs of constants as they are written.  gcc 12.2 for AVX-512
 * does not with -ftree-slp-vectorize: of { 1, 1, 1, 0, 0 } the fourth number arrives as 1.
 * tier: check
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

struct five { int64_t n[5]; };
struct five_doubles { double n[5]; };
struct nine { int64_t n[9]; };

/* Functions that are not inlined receive a struct as a caller of another file passes one. */
static __attribute__((noinline)) int64_t digits_five(struct five x)
{
    int64_t all = 0;
    for (int i = 0; i < 5; i++) all = 10 * all + x.n[i];
    return all;
}

static __attribute__((noinline)) int64_t digits_doubles(struct five_doubles x)
{
    int64_t all = 0;
    for (int i = 0; i < 5; i++) all = 10 * all + (int64_t)x.n[i];
    return all;
}

static __attribute__((noinline)) int64_t digits_nine(struct nine x)
{
    int64_t all = 0;
    for (int i = 0; i < 9; i++) all = 10 * all + x.n[i];
    return all;
}

static void constants_arrive(void **state)
{
    (void)state;
    assert_int_equal(digits_five((struct five){ { 1, 1, 1, 0, 0 } }), 11100);
    assert_int_equal(digits_five((struct five){ { 1, 1, 0, 0, 0 } }), 11000);
    assert_int_equal(digits_five((struct five){ { 5, 5, 5, 0, 1 } }), 55501);
    assert_int_equal(digits_five((struct five){ { 1, 2, 3, 4, 0 } }), 12340);
    assert_int_equal(digits_doubles((struct five_doubles){ { 1, 1, 1, 0, 0 } }), 11100);
    assert_int_equal(digits_nine((struct nine){ { 1, 1, 1, 1, 1, 1, 1, 0, 0 } }), 111111100);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(constants_arrive) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
