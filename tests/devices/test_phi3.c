/* A Phi-3 on devices: part of each head is turned, by LongRoPE, in sequences that are longer than its original length,
 * and as long; residual dropout.  As on one device.
 * ranks: 4
 * verify ranks: 1 2 3 5 6 8
 *
 * Loss, activations, gradients and weights of three SGD steps in fp64 to 1e-12; messages, bytes, additions and memory
 * peaks by formula.  With cp a device's part is shorter than the original length, and its sequences are longer.
 */
#include "tests/devices/trained.h"

static struct plan phi3(int dp, int tp, int pp, bool longer)
{
    struct plan p = case_plan(dp, tp, pp);
    case_take_phi3(&p);
    p.model.dropout_residual = 0.2;
    if (!longer) p.model.rotary.original_positions = p.S;
    return p;
}

static void test_every_mesh(void **state)
{
    (void)state;
    FOR_MESHES(dp, tp, pp)
        if (in_verify() || pp < 3) check_if_taken(phi3(dp, tp, pp, (dp + pp) % 2));
}

static void test_cut_sequences(void **state)
{
    static const char *const names[] = { "ring-zigzag", "ulysses", "hdp" };
    (void)state;
    for (int i = 1; i < 6 && test_size > 1; i += in_verify() ? 1 : 2) {
        struct plan p = phi3(1, 1, 1, i % 2);
        case_take_context(&p, test_size, names[i / 2]);
        check_if_taken(p);
    }
}

/* The angles of the short and of the long list are other models. */
static void test_the_length_matters(void **state)
{
    (void)state;
    struct plan a = phi3(1, test_size, 1, false), b = phi3(1, test_size, 1, true);
    if (plan_check(&a, &err) != OK) return;
    const struct outcome shorter = check(&a), longer = check(&b);
    ASSERT_ALL(shorter.hash != longer.hash, "the same weights by both lists of LongRoPE");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_every_mesh), MPI_TEST(test_cut_sequences), MPI_TEST(test_the_length_matters),
    };
    return MPI_RUN("phi3", tests);
}
