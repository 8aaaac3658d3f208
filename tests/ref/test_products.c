/* Products of the BLAS are right here, and one wrong number of a product is named.
 * tier: check
 */
#include "tests/ref/scratch.h"
#include "ref/machine/products.h"

static void test_products_of_this_machine(void **state)
{
    char text[300];
    (void)state;
    if (!products_check(text, sizeof text)) fail_msg("%s", text);
    assert_non_null(strstr(text, "72 products"));
}

/* C = A B of 2 x 3 and 3 x 2, stored as each of the four ways has them. */
static void test_one_wrong_number(void **state)
{
    static const int shape[3] = { 2, 2, 3 };
    static const double A[] = { 1, 2, 3, 4, 5, 6 }, A_across[] = { 1, 4, 2, 5, 3, 6 };
    static const double B[] = { 7, 8, 9, 10, 11, 12 }, B_across[] = { 7, 9, 11, 8, 10, 12 };
    double C[] = { 58, 64, 139, 154 };
    char text[300] = "";
    (void)state;
    for (int way = 0; way < 4; way++)
        if (!products_hold_fp64(C, way & 1 ? A_across : A, way & 2 ? B_across : B, shape, way & 1, way & 2, text,
                                sizeof text))
            fail_msg("way %d: %s", way, text);
    C[2] = 139.0000001;
    assert_false(products_hold_fp64(C, A, B, shape, false, false, text, sizeof text));
    assert_non_null(strstr(text, "[1,0] is 139.0000001, not 139"));
    C[2] = 139, C[1] = 0.0 / 0.0;                       /* a number that was never written */
    assert_false(products_hold_fp64(C, A, B, shape, false, false, text, sizeof text));
    assert_non_null(strstr(text, "[0,1] is"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_products_of_this_machine),
        cmocka_unit_test(test_one_wrong_number),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
