/* One linear layer under every tensor-parallel scheme, on numbers whose sums are exact in any order: Y, dX and dW are
 * those of one device, bit for bit, and messages, bytes and additions those of the scheme's cost function.
 * tier: check
 * ranks: 1 2 3 4
 * verify ranks: 9
 *
 * On such numbers no output of any scheme may differ: what reassociates does so without rounding.  A block in the wrong
 * place, a missing or doubled partial sum shows as what it is.
 */
#include "tests/devices/exact_linear.h"

static void check_shape(const struct model_config *c, int64_t N)
{
    static const char *const roles[] = { "qkv", "out", "up", "down", "head" };
    for (int s = 0; tensor_scheme_at(s); s++)
        for (int i = 0; i < 5; i++) {
            struct linear_layer l;
            enum param_role role;
            assert_int_equal(linear_role(&role, roles[i], &err), OK);
            if (linear_shape(&l, tensor_scheme_at(s), role, test_size, c, N, &err) == OK)
                check_exact_layer(&l, roles[i]);
        }
}

static void test_everything_divides(void **state)
{
    const int P = test_size;
    const struct model_config c = { .S = 1, .D = 6 * P, .H = P, .K = P, .A = 6, .F = 12 * P, .L = 1, .V = 9 * P };
    (void)state;
    check_shape(&c, 6 * P);
}

/* With more devices than rows, too: some have none. */
static void test_nothing_divides(void **state)
{
    const int P = test_size, H = P + 1;
    const struct model_config c = {
        .S = 1, .D = 3 * H, .H = H, .K = H, .A = 3, .F = 4 * P + 3, .L = 1, .V = 2 * P + 1
    };
    (void)state;
    check_shape(&c, 2 * P + 1);
    check_shape(&c, P > 1 ? P - 1 : 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = { MPI_TEST(test_everything_divides), MPI_TEST(test_nothing_divides) };
    return MPI_RUN("tensor exact", tests);
}
