/* A GPT-OSS on every mesh equals the one-device model: sinks of the heads, which every scheme of attention adds once to
 * each row, windows in some layers, biases of experts, which one of those that share an expert adds.
 * ranks: 4
 * verify ranks: 1 2 3 5 6 8
 *
 * Loss, activations, gradients and weights of three SGD steps in fp64 to 1e-12; messages, bytes, additions and memory
 * peaks by formula.
 */
#include "tests/devices/trained.h"
#include <string.h>

static struct plan gpt_oss(int dp, int tp, int pp, const char *tensor)
{
    struct plan p = case_plan(dp, tp, pp);
    case_take_gpt_oss(&p);
    p.tensor = tensor;
    p.model.mixture.clamped.limit = 0.5;                /* which many numbers reach */
    return p;
}

static const char *const recompute[] = { "none", "selective", "full", "selective++" };

static void test_every_mesh(void **state)
{
    (void)state;
    FOR_MESHES(dp, tp, pp) {
        struct plan p = gpt_oss(dp, tp, pp, "1d");
        p.recompute = recompute[(dp + pp) % 4];
        p.model.dropout_attention = dp % 2 ? 0.3 : 0;
        if (in_verify() || dp * pp == 2) check_if_taken(p);
    }
}

/* Backward for the weights in a pass of its own: the gradient of the sinks waits for it. */
static void test_a_split_backward(void **state)
{
    (void)state;
    struct plan p = gpt_oss(1, 1, test_size, "1d");
    p.model.mixture.balance_coefficient = p.model.mixture.z_coefficient = 0;
    p.schedule = "zb-h1", p.micros = 3;
    if (in_verify() && plan_check(&p, &err) == OK) check(&p);
}

static void test_every_dispatch(void **state)
{
    (void)state;
    for (int i = in_verify() ? 0 : 1; expert_scheme_at(i) && test_size > 1; i += in_verify() ? 1 : 30)
        for (int tp = 1; tp <= 2 && test_size % tp == 0; tp++) {
            struct plan p = gpt_oss(test_size / tp, tp, 1, "1d");
            case_take_experts(&p, test_size % 4 == 0 ? 2 : test_size, expert_scheme_at(i)->head.name);
            if (test_size % 4 == 0) p.etp = 2;
            if (!in_verify() && tp == 1) continue;
            check_if_taken(p);
        }
}

static void test_every_data_scheme(void **state)
{
    (void)state;
    for (int i = in_verify() ? 0 : 3; data_scheme_at(i); i += in_verify() ? 1 : 20) {
        struct plan p = gpt_oss(test_size, 1, 1, "1d");
        case_take_data(&p, data_scheme_at(i));
        check_if_taken(p);
    }
}

/* Those that do not have sinks are refused by name. */
static void test_every_attention_scheme(void **state)
{
    static const char *const sample[] = { "ring-zigzag", "ulysses", "tokenring", "rsa", "hdp" };
    int refused = 0;
    (void)state;
    for (int i = 0; attention_scheme_at(i) && test_size > 1; i++) {
        const char *const name = attention_scheme_at(i)->head.name;
        bool sampled = in_verify();
        for (size_t k = 0; k < sizeof sample / sizeof *sample; k++) sampled = sampled || strcmp(name, sample[k]) == 0;
        struct plan p = gpt_oss(1, 1, 1, "1d");
        if (!sampled) continue;
        p.model.mixture.balance_coefficient = p.model.mixture.z_coefficient = 0;
        case_take_context(&p, test_size, name);
        if (strcmp(name, "hdp") == 0) p.model.windows = (struct windows){ 0 };
        const enum error_code e = plan_check(&p, &err);
        if (e == OK) check(&p);
        else refused += strstr(err.text, "sinks of --model nasty gpt-oss") != NULL;
    }
    ASSERT_ALL(test_size == 1 || refused >= 2, "%d schemes are refused by name", refused);
}

static void test_16_bits(void **state)
{
    static const enum dtype formats[] = { F32, BF16, F16 };
    (void)state;
    for (int i = 0; i < 3 && test_size <= 4; i++) {
        struct plan p = gpt_oss(1, test_size, 1, "1d");
        if (formats[i] != F32) p.model.mixture.clamped.limit = 7;
        p.dtype = formats[i], p.loss_scale = formats[i] == F16 ? 1024 : 0;
        if (!in_verify() && formats[i] != BF16) continue;
        check_if_taken(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_every_mesh), MPI_TEST(test_a_split_backward), MPI_TEST(test_every_dispatch),
        MPI_TEST(test_every_data_scheme), MPI_TEST(test_every_attention_scheme), MPI_TEST(test_16_bits),
    };
    return MPI_RUN("gpt-oss", tests);
}
