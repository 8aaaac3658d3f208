/* A DeepSeek-V2 or V3 on every mesh equals the one-device model: along tp each device has whole latents and some heads,
 * and the gradient of the key that all heads share is a sum over all devices.
 * ranks: 1 3
 * verify ranks: 2 4 5 6 8
 *
 * Loss, activations, gradients and weights of three SGD steps in fp64 to 1e-12; messages, bytes, additions and memory
 * peaks by formula.  Values are narrower than keys, and the latents' widths are odd.
 */
#include "tests/devices/trained.h"
#include <string.h>

static struct plan deepseek(int dp, int tp, int pp)
{
    struct plan p = case_plan(dp, tp, pp);
    case_take_deepseek(&p);
    return p;
}

static struct plan deepseek_v3(int dp, int tp, int pp)
{
    struct plan p = case_plan(dp, tp, pp);
    case_take_deepseek_v3(&p);
    return p;
}

static void test_every_mesh(void **state)
{
    (void)state;
    FOR_MESHES(dp, tp, pp) check_if_taken(deepseek(dp, tp, pp));
}

/* The same of a DeepSeek-V3, whose bias moves after each step; in the quick tests without meshes of two axes. */
static void test_v3_on_every_mesh(void **state)
{
    (void)state;
    FOR_MESHES(dp, tp, pp) {
        struct plan p = deepseek_v3(dp, tp, pp);
        if (dp > 1) case_take_experts(&p, dp, expert_scheme_at(0)->head.name);
        check_if_taken(p);
    }
}

static void test_v3_with_shards(void **state)
{
    (void)state;
    if (test_size == 1 || (test_size != 3 && !in_verify())) return;
    struct plan p = deepseek_v3(test_size, 1, 1);
    p.data.scheme = "zero3", p.model.latent.q = 0, p.model.tied = false;
    check(&p);
}

/* Queries from the stream, each way to recompute, with and without tying and dropout. */
static void test_along_tp(void **state)
{
    static const char *const recompute[] = { "none", "selective", "full", "selective++" };
    (void)state;
    for (int r = 0; r < 4 && test_size <= (in_verify() ? 6 : 3); r += in_verify() ? 1 : 2) {
        struct plan p = deepseek(1, test_size, 1);
        p.recompute = recompute[r];
        p.model.latent.q = r % 2 ? 7 : 0;
        p.model.tied = r == 1;
        if (r == 2) p.model.dropout_embedding = 0.1, p.model.dropout_residual = 0.2, p.model.dropout_attention = 0.3;
        check_if_taken(p);
    }
}

static void test_schemes_that_cut_the_stream_are_refused(void **state)
{
    int refused = 0;
    (void)state;
    for (int i = 0; tensor_scheme_at(i) && test_size == 4; i++) {
        struct plan p = deepseek(1, 4, 1);
        p.tensor = tensor_scheme_at(i)->head.name;
        if (strcmp(p.tensor, "1d") == 0) continue;
        ASSERT_ALL(plan_check(&p, &err) != OK, "--tensor %s is accepted", p.tensor);
        refused += strstr(err.text, "latent attention needs") != NULL;
    }
    ASSERT_ALL(refused > 2 || test_size != 4, "%d refused by name", refused);
}

static void test_every_dispatch(void **state)
{
    (void)state;
    for (int i = 0; expert_scheme_at(i) && test_size > 1; i += in_verify() ? 1 : 7) {
        struct plan p = deepseek(test_size, 1, 1);
        case_take_experts(&p, test_size % 2 == 0 ? 2 : test_size, expert_scheme_at(i)->head.name);
        check_if_taken(p);
    }
}

static void test_every_data_scheme(void **state)
{
    (void)state;
    for (int i = 0; data_scheme_at(i) && (test_size == 3 || in_verify()); i += in_verify() ? 1 : 7) {
        struct plan p = deepseek(test_size, 1, 1);
        case_take_data(&p, data_scheme_at(i));
        check_if_taken(p);
    }
}

static void test_every_attention_scheme(void **state)
{
    (void)state;
    for (int i = 0; attention_scheme_at(i) && (test_size == 3 || in_verify()); i += in_verify() ? 1 : 7) {
        struct plan p = deepseek(1, 1, 1);
        p.model.mixture.sequence_coefficient = 0;
        case_take_context(&p, test_size, attention_scheme_at(i)->head.name);
        check_if_taken(p);
    }
}

/* What attention makes is not kept where its scheme has a copy in heads: before backward it is computed again, as what
 * follows it reads it. */
static void test_recomputed_attention(void **state)
{
    static const char *const what[] = { "full", "selective++", "selective" };
    static const char *const schemes[] = { "ulysses", "usp", "whole" };
    (void)state;
    for (int i = 0; i < (in_verify() ? 9 : 2); i++) {
        struct plan p = deepseek(1, 1, 1);
        p.model.mixture.sequence_coefficient = 0, p.recompute = what[i % 3];
        if (test_size > 1 || i / 3 == 0) case_take_context(&p, test_size, schemes[i / 3]);
        check_if_taken(p);
    }
}

static void test_16_bits(void **state)
{
    static const enum dtype formats[] = { F32, BF16, F16 };
    (void)state;
    for (int i = 0; i < 3 && test_size <= 4 && in_verify(); i++) {
        struct plan p = deepseek(1, test_size, 1);
        p.dtype = formats[i], p.loss_scale = formats[i] == F16 ? 1024 : 0;
        check(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_every_mesh),
        MPI_TEST(test_v3_on_every_mesh),
        MPI_TEST(test_v3_with_shards),
        MPI_TEST(test_along_tp),
        MPI_TEST(test_schemes_that_cut_the_stream_are_refused),
        MPI_TEST(test_every_dispatch),
        MPI_TEST(test_every_data_scheme),
        MPI_TEST(test_every_attention_scheme),
        MPI_TEST(test_recomputed_attention),
        MPI_TEST(test_16_bits),
    };
    return MPI_RUN("deepseek", tests);
}
