/* A Llama with biases of all matrices of its blocks, on every mesh, equals the one-device model: those of the gate and
 * of what is gated are one parameter, of which each device along tp has two parts; those of attention's and the
 * feed-forward's outputs are added once.
 * ranks: 4
 * verify ranks: 1 2 3 5 6 8
 *
 * Loss, activations, gradients and weights of three SGD steps in fp64 to 1e-12; messages, bytes, additions and memory
 * peaks by formula.
 */
#include "tests/devices/trained.h"
#include "tests/tier.h"
#include <string.h>

static struct plan biased(int dp, int tp, int pp, const char *tensor)
{
    struct plan p = case_plan(dp, tp, pp);
    case_take_biased(&p);
    p.tensor = tensor;
    return p;
}

static bool in_verify(void) { return tier_now() == TIER_VERIFY; }

/* Only schemes that need a cube of devices need 8 of them; everything else `make verify` tries there too. */
static bool in_sample(void) { return in_verify() || test_size < 8; }

static void test_every_mesh(void **state)
{
    (void)state;
    for (int dp = 1; dp <= test_size && in_sample(); dp++)
        for (int pp = 1; dp * pp <= test_size; pp++) {
            if (test_size % (dp * pp) != 0) continue;
            struct plan p = biased(dp, test_size / (dp * pp), pp, "1d");
            if (plan_check(&p, &err) == OK) check(&p);
        }
}

static const char *const recompute[] = { "none", "selective", "full", "selective++" };

/* Each with and without tying, dropout, and the ways to recompute. */
static void test_every_tensor_scheme(void **state)
{
    (void)state;
    for (int i = 0; tensor_scheme_at(i); i++)
        for (int r = in_verify() ? 0 : i % 3; r < (in_verify() ? 4 : i % 3 + 1); r++) {
            struct plan p = biased(1, test_size, 1, tensor_scheme_at(i)->head.name);
            p.recompute = recompute[r];
            p.model.tied = r == 1;
            if (r == 2)
                p.model.dropout_embedding = 0.1, p.model.dropout_residual = 0.2, p.model.dropout_attention = 0.3;
            if (plan_check(&p, &err) == OK) check(&p);
        }
}

static void test_every_schedule(void **state)
{
    (void)state;
    for (int i = 0; schedule_generator_at(i) && in_verify() && (test_size == 2 || test_size == 4); i++) {
        struct plan p = biased(1, test_size / 2, 2, "1d");
        if (case_take_schedule(&p, schedule_generator_at(i)->head.name, &err) == OK) check(&p);
    }
}

static void test_every_data_scheme(void **state)
{
    (void)state;
    for (int i = 0; data_scheme_at(i) && in_verify() && (test_size == 3 || test_size == 4); i++) {
        struct plan p = test_size == 3 ? biased(3, 1, 1, "1d") : biased(2, 2, 1, "1d-sp");
        case_take_data(&p, data_scheme_at(i));
        if (plan_check(&p, &err) == OK) check(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_every_mesh),
        MPI_TEST(test_every_tensor_scheme),
        MPI_TEST(test_every_schedule),
        MPI_TEST(test_every_data_scheme),
    };
    return MPI_RUN("biased", tests);
}
