/* An OLMo 2 on devices: norms of what attention and the feed-forward give, and of all queries and all keys together, on
 * every mesh without tp, which is refused.  As on one device.
 * ranks: 4
 * verify ranks: 1 2 3 5 6 8
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

static void test_tensor_parallelism_is_refused(void **state)
{
    (void)state;
    struct plan p = olmo2(1, test_size, 1);
    const enum error_code e = plan_check(&p, &err);
    ASSERT_ALL(test_size == 1 ? e == OK
                              : e == ERR_PLAN && strstr(err.text, "the norms of --model nasty olmo2 are over those of"),
               "on %d devices of tp: %s", test_size, e ? err.text : "accepted");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_every_mesh), MPI_TEST(test_every_data_scheme), MPI_TEST(test_every_attention_scheme),
        MPI_TEST(test_tensor_parallelism_is_refused),
    };
    return MPI_RUN("olmo2", tests);
}
