/* A model with its mixture on a shortcut equals the one-device model: on every mesh, with every dispatch scheme, with
 * each way to recompute, and with dropout, which draws other numbers in the two blocks of a layer.
 * ranks: 2
 * verify ranks: 1 3 4 6 8
 *
 * Loss, activations, gradients and weights of three SGD steps in fp64 to 1e-12; messages, bytes, additions and memory
 * peaks by formula.
 */
#include "tests/devices/trained.h"
#include <string.h>

static struct plan scmoe(int dp, int tp, int pp, const char *tensor)
{
    struct plan p = case_plan(dp, tp, pp);
    case_take_scmoe(&p);
    p.tensor = tensor;
    return p;
}

static void test_every_mesh(void **state)
{
    (void)state;
    FOR_MESHES(dp, tp, pp) {
        struct plan p = scmoe(dp, tp, pp, "1d");
        if (dp > 1) case_take_dropout(&p);
        if (in_verify() || dp == test_size) check_if_taken(p);
    }
}

/* With sequence parallelism the first block's second norm has rows of all devices for its feed-forward, and its own
 * for the router and the experts. */
static void test_every_dispatch(void **state)
{
    static const char *const recompute[] = { "none", "selective", "full", "selective++" };
    (void)state;
    for (int i = 0; expert_scheme_at(i) && test_size > 1; i++)
        for (int sp = 0; sp < 2; sp++) {
            if (!in_verify() && (sp == 0 || strcmp(expert_scheme_at(i)->head.name, "alltoall") != 0)) continue;
            struct plan p = scmoe(1, test_size, 1, sp ? "1d-sp" : "1d");
            if (expert_scheme_at(i)->cuts_experts) case_take_experts(&p, test_size, expert_scheme_at(i)->head.name);
            p.recompute = recompute[i % 4];
            check_if_taken(p);
        }
}

static void test_every_tensor_scheme(void **state)
{
    (void)state;
    for (int i = 0; tensor_scheme_at(i) && in_verify() && test_size > 1; i++) {
        struct plan p = scmoe(1, test_size, 1, tensor_scheme_at(i)->head.name);
        case_take_experts(&p, test_size, "alltoall");
        check_if_taken(p);
    }
}

static void test_every_data_scheme(void **state)
{
    (void)state;
    for (int i = 0; data_scheme_at(i) && in_verify() && (test_size == 3 || test_size == 4); i++) {
        struct plan p = test_size == 3 ? scmoe(3, 1, 1, "1d") : scmoe(2, 2, 1, "1d");
        case_take_data(&p, data_scheme_at(i));
        check_if_taken(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_every_mesh),
        MPI_TEST(test_every_dispatch),
        MPI_TEST(test_every_tensor_scheme),
        MPI_TEST(test_every_data_scheme),
    };
    return MPI_RUN("shortcut", tests);
}
