/* A Qwen3 on every mesh equals the one-device model: each head of queries and keys has a norm, whose weights all heads
 * of all devices share, and heads are wider than D/H, so the projection back is not square.
 * ranks: 1 3 4
 * verify ranks: 2 5 6 8
 *
 * Loss, activations, gradients and weights of three SGD steps in fp64 to 1e-12; messages, bytes, additions and memory
 * peaks by formula.  From 4 devices along tp on, devices have copies of keys: each has a part of the gradient of the
 * keys' norm.
 */
#include "tests/devices/trained.h"
#include "tests/tier.h"
#include <string.h>

static struct plan qwen3(int dp, int tp, int pp, const char *tensor)
{
    struct plan p = case_plan(dp, tp, pp);
    case_take_qwen3(&p);
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
            struct plan p = qwen3(dp, test_size / (dp * pp), pp, "1d");
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
            struct plan p = qwen3(1, test_size, 1, tensor_scheme_at(i)->head.name);
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
    for (int i = 0; schedule_generator_at(i) && (test_size == 2 || test_size == 4); i += in_verify() ? 1 : 3) {
        struct plan p = qwen3(1, test_size / 2, 2, "1d");
        if (case_take_schedule(&p, schedule_generator_at(i)->head.name, &err) == OK) check(&p);
    }
}

static void test_every_data_scheme(void **state)
{
    (void)state;
    for (int i = 0; data_scheme_at(i) && (test_size == 3 || (test_size == 4 && in_verify())); i++) {
        struct plan p = test_size == 3 ? qwen3(3, 1, 1, "1d") : qwen3(2, 2, 1, "1d-sp");
        case_take_data(&p, data_scheme_at(i));
        if (plan_check(&p, &err) == OK) check(&p);
    }
}

static void test_every_attention_scheme(void **state)
{
    (void)state;
    for (int i = 0; attention_scheme_at(i) && test_size == 4; i++) {
        struct plan p = qwen3(1, 2, 1, "1d");
        case_take_context(&p, 2, attention_scheme_at(i)->head.name);
        if (plan_check(&p, &err) == OK) check(&p);
    }
}

static void test_tiles(void **state)
{
    (void)state;
    for (int zero = 0; zero < 2 && test_size <= 3; zero++) {
        struct plan p = qwen3(test_size, 1, 1, "1d");
        p.data.scheme = zero ? "zero3" : "ddp", p.data.tiles = 3;
        if (plan_check(&p, &err) == OK) check(&p);
    }
}

static void test_16_bits(void **state)
{
    static const enum dtype formats[] = { F32, BF16, F16 };
    (void)state;
    for (int i = 0; i < 3 && test_size <= 4; i++) {
        struct plan p = qwen3(1, test_size, 1, "1d-sp");
        p.dtype = formats[i], p.loss_scale = formats[i] == F16 ? 1024 : 0;
        p.model.L = 1, p.model.tied = false;
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
        MPI_TEST(test_every_attention_scheme),
        MPI_TEST(test_tiles),
        MPI_TEST(test_16_bits),
    };
    return MPI_RUN("qwen3", tests);
}
