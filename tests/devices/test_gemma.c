/* Gemmas on every mesh equal the one-device model: embeddings are scaled, norms' factors are 1 + their weights, which
 * devices may have in slices, the feed-forward is a geglu, and heads are wider than D/H.  A Gemma 2 has norms around
 * each branch, caps and windows; a Gemma 3 norms of heads, and rotary positions of two kinds.
 * ranks: 3 4
 * verify ranks: 1 2 5 6 8
 *
 * Loss, activations, gradients and weights of three SGD steps in fp64 to 1e-12; messages, bytes, additions and memory
 * peaks by formula.  In `make test` every 19th plan runs.
 */
#include "tests/devices/trained.h"
#include "tests/tier.h"
#include <string.h>

static void (*const families[])(struct plan *) = { case_take_gemma, case_take_gemma2, case_take_gemma3 };
enum { FAMILIES = sizeof families / sizeof *families };

static bool in_verify(void) { return tier_now() == TIER_VERIFY; }

static int made;                                /* plans, of those that were checked and those that were not */

static struct plan gemma(int family, int dp, int tp, int pp, const char *tensor)
{
    struct plan p = case_plan(dp, tp, pp);
    families[family](&p);
    p.tensor = tensor;
    return p;
}

/* Check it, if it is a plan, and this tier runs it. */
static void try(struct plan *p)
{
    if (plan_check(p, &err) != OK) return;
    if (in_verify() || made++ % 19 == 0) check(p);
}

static void test_every_mesh(void **state)
{
    (void)state;
    for (int f = 0; f < FAMILIES; f++)
        for (int dp = 1; dp <= test_size; dp++)
            for (int pp = 1; dp * pp <= test_size; pp++) {
                if (test_size % (dp * pp) != 0) continue;
                struct plan p = gemma(f, dp, test_size / (dp * pp), pp, "1d");
                try(&p);
            }
}

static const char *const recompute[] = { "none", "selective", "full", "selective++" };

/* Each with and without tying, dropout, and the ways to recompute. */
static void test_every_tensor_scheme(void **state)
{
    (void)state;
    for (int f = 0; f < FAMILIES; f++)
        for (int i = 0; tensor_scheme_at(i); i++)
            for (int r = in_verify() ? 0 : i % 3; r < (in_verify() ? 4 : i % 3 + 1); r++) {
                struct plan p = gemma(f, 1, test_size, 1, tensor_scheme_at(i)->head.name);
                p.recompute = recompute[r];
                p.model.tied = r == 1;
                if (r == 2)
                    p.model.dropout_embedding = 0.1, p.model.dropout_residual = 0.2, p.model.dropout_attention = 0.3;
                try(&p);
            }
}

static void test_every_schedule(void **state)
{
    (void)state;
    for (int f = 0; f < FAMILIES && in_verify() && (test_size == 2 || test_size == 4); f++)
        for (int i = 0; schedule_generator_at(i); i++) {
            struct plan p = gemma(f, 1, test_size / 2, 2, "1d");
            if (case_take_schedule(&p, schedule_generator_at(i)->head.name, &err) == OK) try(&p);
        }
}

static void test_every_data_scheme(void **state)
{
    (void)state;
    for (int f = 0; f < FAMILIES && (test_size == 3 || test_size == 4); f++)
        for (int i = 0; data_scheme_at(i); i++) {
            struct plan p = test_size == 3 ? gemma(f, 3, 1, 1, "1d") : gemma(f, 2, 2, 1, "1d-sp");
            case_take_data(&p, data_scheme_at(i));
            try(&p);
        }
}

/* Along cp alone, and beside devices that have other heads. */
static void test_every_attention_scheme(void **state)
{
    (void)state;
    for (int f = 0; f < FAMILIES; f++)
        for (int i = 0; attention_scheme_at(i); i++)
            for (int tp = 1; tp <= 2; tp++) {
                if (test_size % (2 * tp) != 0) continue;
                struct plan p = gemma(f, 1, tp, 1, "1d");
                case_take_context(&p, test_size / tp, attention_scheme_at(i)->head.name);
                try(&p);
            }
}

static void test_tiles(void **state)
{
    (void)state;
    for (int f = 0; f < FAMILIES && test_size <= 3; f++)
        for (int zero = 0; zero < 2; zero++) {
            struct plan p = gemma(f, test_size, 1, 1, "1d");
            p.data.scheme = zero ? "zero3" : "ddp", p.data.tiles = 3;
            try(&p);
        }
}

static void test_16_bits(void **state)
{
    static const enum dtype formats[] = { F32, BF16, F16 };
    (void)state;
    for (int f = 0; f < FAMILIES && test_size <= 4; f++)
        for (int i = 0; i < 3; i++) {
            struct plan p = gemma(f, 1, test_size, 1, "1d-sp");
            p.dtype = formats[i], p.loss_scale = formats[i] == F16 ? 1024 : 0;
            p.model.L = 1, p.model.tied = false;
            try(&p);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_every_mesh),
        MPI_TEST(test_every_tensor_scheme),
        MPI_TEST(test_every_schedule),
        MPI_TEST(test_every_data_scheme),
        MPI_TEST(test_every_attention_scheme),
        MPI_TEST(test_tiles),
        MPI_TEST(test_16_bits),
    };
    return MPI_RUN("gemma", tests);
}
