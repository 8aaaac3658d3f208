/* Attention over sequences that are cut over cp equals the one-device model, under every scheme of the registry.
 * ranks: 1 3 4
 * verify ranks: 2 5 6 8
 *
 * Loss, activations, gradients and weights of three SGD steps in fp64 to 1e-12; messages, bytes, additions and memory
 * peaks by formula.  The seven tokens of a sequence, its heads and the batch divide by nothing.
 */
#include "tests/devices/trained.h"
#include <string.h>

/* Below `make verify` a sixth, on more than 3 devices a twelfth: each scheme is on several numbers of devices, with one
 * of dp, tp and pp beside cp.  In `make verify` all on up to 4 devices.  On more each of the four tests has every mesh,
 * with a quarter of the schemes, and together they have every scheme on every mesh. */
enum { TESTS = 4 };
static bool chosen(int scheme, int mesh, int cp, int other, int test)
{
    if (tier_now() == TIER_VERIFY) return test_size <= 4 || (scheme + mesh + test) % TESTS == 0;
    if (test_size == 1) return true;
    const int part = test_size > 3 ? 12 : 6;
    return cp > 1 && (scheme + cp + 3 * test + test_size) % part == 0
        && (test_size == cp || (scheme + test) % 3 == other);
}

/* Of cp, dp, tp and pp, all that make the job. */
static void each(int test, void (*f)(struct plan))
{
    for (int i = 0; attention_scheme_at(i); i++)
        for (int cp = 1, mesh = 0; cp <= test_size; cp++)
            for (int other = 0; test_size % cp == 0 && other < 3; other++) {
                const int rest = test_size / cp;
                if ((rest == 1 && other > 0) || !chosen(i, mesh++, cp, other, test)) continue;
                struct plan p = case_plan(other == 0 ? rest : 1, other == 1 ? rest : 1, other == 2 ? rest : 1);
                case_take_context(&p, cp, attention_scheme_at(i)->head.name);
                f(p);
            }
}

static void plain(struct plan p) { check_if_taken(p); }
static void test_every_mesh(void **state) { (void)state; each(0, plain); }

static void llama(struct plan p)
{
    case_take_llama(&p);
    check_if_taken(p);
}
static void test_grouped_queries(void **state) { (void)state; each(1, llama); }

/* Every mask is that of the one-device run, whatever rows and heads a device has of it;
 * what is dropped is computed again. */
static void dropped(struct plan p)
{
    case_take_dropout(&p);
    p.recompute = p.mesh.size[DP] > 1 ? "full" : "selective";
    check_if_taken(p);
}
static void test_dropout(void **state) { (void)state; each(2, dropped); }

/* Several samples in a sequence, each cut where its tokens happen to lie. */
static void packed(struct plan p)
{
    p.packed = true;
    if (p.mesh.size[TP] > 1) case_take_llama(&p);
    check_if_taken(p);
}
static void test_packed_samples(void **state) { (void)state; each(3, packed); }

/* Devices along cp share weights, gradients and optimizer state as those along dp do. */
static void test_every_data_scheme(void **state)
{
    (void)state;
    for (int i = 0; data_scheme_at(i) && test_size % 2 == 0; i++) {
        if (!tier_takes(i + test_size / 2, 2)) continue;
        struct plan p = case_plan(test_size / 2, 1, 1);
        case_take_data(&p, data_scheme_at(i));
        case_take_context(&p, 2, "ulysses");
        check_if_taken(p);
    }
}

static void test_every_tensor_scheme(void **state)
{
    (void)state;
    for (int i = 0; tensor_scheme_at(i) && test_size % 2 == 0; i++) {
        if (!tier_takes(i + test_size / 2, 2)) continue;
        struct plan p = case_plan(1, test_size / 2, 1);
        p.tensor = tensor_scheme_at(i)->head.name;
        case_take_context(&p, 2, "ulysses");
        check_if_taken(p);
    }
}

static void test_refusals(void **state)
{
    (void)state;
    struct plan p = case_plan(1, 1, 1);
    case_take_context(&p, 2, "whole");
    expect_refused(p, "--cp 2: --attention whole needs");
    case_take_context(&p, 8, "ulysses");
    expect_refused(p, "--cp 8: --attention ulysses needs");
    case_take_context(&p, 2, "ulises");
    ASSERT_ALL(plan_check(&p, &err) == ERR_USAGE && strstr(err.text, "ulysses"), "%s", err.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_every_mesh), MPI_TEST(test_grouped_queries), MPI_TEST(test_dropout),
            MPI_TEST(test_packed_samples),
            MPI_TEST(test_every_data_scheme),
        MPI_TEST(test_every_tensor_scheme), MPI_TEST(test_refusals),
    };
    return MPI_RUN("attention", tests);
}
