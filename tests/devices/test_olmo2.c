/* An OLMo 2 on devices: norms of what attention and the feed-forward give, and of all queries and all keys together, on
 * every mesh.  As on one device.
 * ranks: 4 6
 * verify ranks: 1 2 3 5 8
 *
 * Loss, activations, gradients and weights of three SGD steps in fp64 to 1e-12; messages, bytes, additions and memory
 * peaks by formula.
 */
#include "tests/devices/trained.h"
#include "tests/tier.h"
#include <string.h>

static struct plan olmo2(int dp, int tp, int pp)
{
    struct plan p = case_plan(dp, tp, pp);
    case_take_olmo2(&p);
    return p;
}

static bool in_verify(void) { return tier_now() == TIER_VERIFY; }

static const char *const recompute[] = { "none", "selective", "full", "selective++" };

static void test_every_mesh(void **state)
{
    (void)state;
    for (int dp = 1; dp <= test_size; dp++) {
        struct plan p = olmo2(dp, 1, test_size / dp);
        p.recompute = recompute[dp % 4];
        p.model.dropout_residual = dp % 2 ? 0.2 : 0;
        if (test_size % dp == 0 && plan_check(&p, &err) == OK) check(&p);
    }
}

static void test_every_data_scheme(void **state)
{
    (void)state;
    for (int i = in_verify() ? 0 : 2; data_scheme_at(i); i += in_verify() ? 1 : 5) {
        struct plan p = olmo2(test_size, 1, 1);
        case_take_data(&p, data_scheme_at(i));
        if (plan_check(&p, &err) == OK) check(&p);
    }
}

static void test_every_attention_scheme(void **state)
{
    (void)state;
    for (int i = in_verify() ? 0 : 1; attention_scheme_at(i) && test_size > 1; i += in_verify() ? 1 : 20) {
        struct plan p = olmo2(1, 1, 1);
        case_take_context(&p, test_size, attention_scheme_at(i)->head.name);
        if (plan_check(&p, &err) == OK) check(&p);
    }
}

static bool fits(int tp) { return test_size % tp == 0; }

/* K = 3 key heads of H = 9, cut unevenly; with more devices along tp than key heads, copies of them. */
static void test_every_tensor_scheme(void **state)
{
    (void)state;
    for (int i = 0; tensor_scheme_at(i); i++)
        for (int tp = 2; tp <= test_size; tp++) {
            struct plan p = olmo2(1, tp, test_size / tp);
            p.tensor = tensor_scheme_at(i)->head.name;
            p.recompute = recompute[(i + tp) % 4];
            if (fits(tp) && (i == 0 || tp == test_size || in_verify()) && plan_check(&p, &err) == OK) check(&p);
        }
}

/* Parts along tp, and copies along dp: 2 x 2, 2 x 3, 3 x 2. */
static void test_copies(void **state)
{
    (void)state;
    for (int tp = 2; tp < test_size; tp++) {
        struct plan p = olmo2(test_size / tp, tp, 1);
        p.data.scheme = data_scheme_at(tp % 3)->head.name;
        if (fits(tp) && plan_check(&p, &err) == OK) check(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_every_mesh), MPI_TEST(test_every_data_scheme), MPI_TEST(test_every_attention_scheme),
        MPI_TEST(test_every_tensor_scheme), MPI_TEST(test_copies),
    };
    return MPI_RUN("olmo2", tests);
}
