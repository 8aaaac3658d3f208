/* A Qwen3-MoE on every mesh equals the one-device model: layers of one model have tables of their own, one dense and
 * the others with experts, on whichever device and stage of a pipeline they lie.
 * ranks: 1 3
 * verify ranks: 2 4 5 6 8
 *
 * Loss, activations, gradients and weights of three SGD steps in fp64 to 1e-12; messages, bytes, additions and memory
 * peaks by formula.  The width of the dense layer is another than the experts', and no number of devices divides it.
 */
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "tests/devices/trained.h"
#include <string.h>

static struct plan qwen3_moe(int dp, int tp, int pp, const char *tensor)
{
    struct plan p = case_plan(dp, tp, pp);
    case_take_qwen3_moe(&p);
    p.tensor = tensor;
    return p;
}

static void test_the_table_follows_the_layer(void **state)
{
    const struct plan p = qwen3_moe(1, 1, 1, "1d");
    const struct model_config *c = &p.model;
    (void)state;
    ASSERT_ALL(c->L > 2 && mixture_layers(c) == c->L - 1, "%d layers", (int)c->L);
    ASSERT_ALL(param_of_block(c, 1, ROUTER_W) == -1 && param_of_block(c, 0, ROUTER_W) >= 0, "the router is elsewhere");
    const struct param_spec up = model_param(c, param_of_block(c, 1, UP_W)),
                            expert = model_param(c, param_of_expert(c, 2, 1, DOWN_W));
    ASSERT_ALL(strcmp(up.name, "model.layers.1.mlp.gate_up_proj.weight") == 0 && up.dim[0] == 2 * c->dense.F &&
                   up.role == ROLE_DENSE_UP,
               "%s", up.name);
    ASSERT_ALL(strcmp(expert.name, "model.layers.2.mlp.experts.1.down_proj.weight") == 0 && expert.dim[1] == c->F, "%s",
               expert.name);
    for (int i = 0; i < model_param_count(c); i++)
        ASSERT_ALL(model_param(c, i).layer >= (i > 0 ? model_param(c, i - 1).layer : -1), "parameter %d", i);
}

static void test_every_mesh(void **state)
{
    (void)state;
    FOR_MESHES(dp, tp, pp) check_if_taken(qwen3_moe(dp, tp, pp, "1d"));
}

static const char *const recompute[] = { "none", "selective", "full", "selective++" };

/* Each with and without tying, dropout, and the ways to recompute. */
static void test_every_tensor_scheme(void **state)
{
    (void)state;
    for (int i = 0; tensor_scheme_at(i) && (test_size > 1 || in_verify()); i++)
        for (int r = in_verify() ? 0 : i % 4; r < (in_verify() ? 4 : i % 4 + 1); r++) {
            struct plan p = qwen3_moe(1, test_size, 1, tensor_scheme_at(i)->head.name);
            p.recompute = recompute[r];
            p.model.tied = r == 1;
            if (r == 2)
                p.model.dropout_embedding = 0.1, p.model.dropout_residual = 0.2, p.model.dropout_attention = 0.3;
            check_if_taken(p);
        }
}

static void test_every_dispatch(void **state)
{
    (void)state;
    const int step = in_verify() ? 1 : 3;
    for (int i = 0; expert_scheme_at(i) && test_size > 1; i += step) {
        struct plan p = qwen3_moe(test_size, 1, 1, "1d");
        case_take_experts(&p, test_size % 2 == 0 ? 2 : test_size, expert_scheme_at(i)->head.name);
        check_if_taken(p);
    }
}

static void test_every_data_scheme(void **state)
{
    (void)state;
    for (int i = 0; data_scheme_at(i) && (test_size == 3 || in_verify()); i += in_verify() ? 1 : 3) {
        struct plan p = qwen3_moe(test_size, 1, 1, "1d");
        case_take_data(&p, data_scheme_at(i));
        check_if_taken(p);
    }
}

static void test_every_attention_scheme(void **state)
{
    (void)state;
    for (int i = 0; attention_scheme_at(i) && (test_size == 3 || in_verify()); i += in_verify() ? 1 : 3) {
        struct plan p = qwen3_moe(1, 1, 1, "1d");
        case_take_context(&p, test_size, attention_scheme_at(i)->head.name);
        check_if_taken(p);
    }
}

/* Biases of routers move in the layers that have one. */
static void test_a_biased_router(void **state)
{
    (void)state;
    for (int r = 0; routers[r]; r++) {
        struct plan p = qwen3_moe(test_size, 1, 1, "1d");
        if (!routers[r]->rule.biased) continue;
        case_take_router(&p, routers[r]);
        check_if_taken(p);
    }
}

static void test_16_bits(void **state)
{
    static const enum dtype formats[] = { F32, BF16, F16 };
    (void)state;
    for (int i = 0; i < 3 && test_size <= 4 && in_verify(); i++) {
        struct plan p = qwen3_moe(1, test_size, 1, "1d-sp");
        p.dtype = formats[i], p.loss_scale = formats[i] == F16 ? 1024 : 0;
        check_if_taken(p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_the_table_follows_the_layer),
        MPI_TEST(test_every_mesh),
        MPI_TEST(test_every_tensor_scheme),
        MPI_TEST(test_every_dispatch),
        MPI_TEST(test_every_data_scheme),
        MPI_TEST(test_every_attention_scheme),
        MPI_TEST(test_a_biased_router),
        MPI_TEST(test_16_bits),
    };
    return MPI_RUN("qwen3-moe", tests);
}
