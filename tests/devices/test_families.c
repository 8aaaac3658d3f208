/* Every family of models, on every mesh and under every scheme of each kind, trains as one device does.
 * ranks: 1 3 4
 * verify ranks: 2 5 6 8
 *
 * Loss, activations, gradients and weights of three SGD steps in fp64 to 1e-12; messages, bytes, additions and memory
 * peaks by formula.  The models are those of `orrery verify`: a new one is tried here without a line.
 *
 * `make test` takes every 101st of these plans, `make verify` every 5th; `test_families olmo2` takes all of one model.
 */
#include "ref/model/kinds.h"
#include "tests/devices/trained.h"
#include <string.h>

static const char *only;                /* the model on the command line; NULL: all, thinned */
static int made;                        /* plans so far */

static void try(struct plan *p)
{
    const int every = only ? 1 : tier_now() == TIER_VERIFY ? 5 : 199;
    if (plan_check(p, &err) == OK && made++ % every == 0) check(p);
}

/* The same without the losses of a router that some schemes do not take: of a sequence's or of all tokens' balance. */
static void try_without_balance(struct plan p)
{
    struct mixture_config *m = &p.model.mixture;
    if (plan_check(&p, &err) == ERR_PLAN) m->balance_coefficient = m->sequence_coefficient = m->z_coefficient = 0;
    try(&p);
}

static struct plan sized(const struct case_model *m, int dp, int tp, int pp, int64_t layers)
{
    struct plan p = case_plan(dp, tp, pp);
    p.model.L = layers;
    m->take(&p);
    return p;
}

static struct plan plan_of(const struct case_model *m, int dp, int tp, int pp)
{
    return sized(m, dp, tp, pp, 2 * pp + 1);
}

static void every_mesh(const struct case_model *m)
{
    FOR_MESHES(dp, tp, pp) {
        struct plan p = plan_of(m, dp, tp, pp);
        try(&p);
    }
}

static const char *const recompute[] = { "none", "selective", "full", "selective++" };

/* Each with and without tying, dropout, and the ways to recompute. */
static void every_tensor_scheme(const struct case_model *m)
{
    for (int i = 0; tensor_scheme_at(i); i++)
        for (int r = 0; r < 4; r++) {
            struct plan p = plan_of(m, 1, test_size, 1);
            p.tensor = tensor_scheme_at(i)->head.name;
            p.recompute = recompute[r];
            p.model.tied = r == 1;
            if (r == 2)
                p.model.dropout_embedding = 0.1, p.model.dropout_residual = 0.2, p.model.dropout_attention = 0.3;
            try(&p);
        }
}

static void every_schedule(const struct case_model *m)
{
    for (int i = 0; schedule_generator_at(i) && test_size % 2 == 0; i++) {
        struct plan p = plan_of(m, 1, test_size / 2, 2);
        if (p.model.mlp == MLP_MIXTURE) p.model.mixture.balance_coefficient = p.model.mixture.sequence_coefficient = 0;
        if (case_take_schedule(&p, schedule_generator_at(i)->head.name, &err) == OK) try(&p);
    }
}

/* Over all devices, and where each copy is cut along tp: 2 x 2, 2 x 3, 3 x 2. */
static void every_data_scheme(const struct case_model *m)
{
    for (int i = 0; data_scheme_at(i); i++)
        for (int tp = 1; tp < test_size; tp++) {
            struct plan p = plan_of(m, test_size / tp, tp, 1);
            if (test_size % tp != 0 || tp > 3) continue;
            if (tp > 1) p.tensor = "1d-sp";
            case_take_data(&p, data_scheme_at(i));
            try(&p);
        }
}

/* Along cp alone, and beside devices that have other heads. */
static void every_attention_scheme(const struct case_model *m)
{
    for (int i = 0; attention_scheme_at(i); i++)
        for (int tp = 1; tp <= 2; tp++) {
            if (test_size % tp != 0 || test_size / tp < 2) continue;
            struct plan p = plan_of(m, 1, tp, 1);
            case_take_context(&p, test_size / tp, attention_scheme_at(i)->head.name);
            try_without_balance(p);
        }
}

static void every_expert_scheme(const struct case_model *m)
{
    for (int i = 0; expert_scheme_at(i) && test_size > 1; i++) {
        struct plan p = plan_of(m, test_size, 1, 1);
        if (p.model.mlp != MLP_MIXTURE) return;
        case_take_experts(&p, test_size % 2 == 0 ? 2 : test_size, expert_scheme_at(i)->head.name);
        try_without_balance(p);
    }
}

static void tiles(const struct case_model *m)
{
    for (int zero = 0; zero < 2; zero++) {
        struct plan p = plan_of(m, test_size, 1, 1);
        p.data.scheme = zero ? "zero3" : "ddp", p.data.tiles = 3;
        try(&p);
    }
}

static void fewer_bits(const struct case_model *m)
{
    static const enum dtype formats[] = { F32, BF16, F16 };
    for (int i = 0; i < 3 && test_size <= 4; i++) {
        struct plan p = sized(m, 1, test_size, 1, 1);
        p.tensor = i % 2 ? "1d" : "1d-sp";
        p.dtype = formats[i], p.loss_scale = formats[i] == F16 ? 1024 : 0;
        p.model.tied = false;
        try(&p);
    }
}

static void each(void (*f)(const struct case_model *))
{
    for (int i = 0; case_model_at(i); i++)
        if (only == NULL || strcmp(only, case_model_at(i)->name) == 0) f(case_model_at(i));
}

static void test_every_mesh(void **state) { (void)state; each(every_mesh); }
static void test_every_tensor_scheme(void **state) { (void)state; each(every_tensor_scheme); }
static void test_every_schedule(void **state) { (void)state; each(every_schedule); }
static void test_every_data_scheme(void **state) { (void)state; each(every_data_scheme); }
static void test_every_attention_scheme(void **state) { (void)state; each(every_attention_scheme); }
static void test_every_expert_scheme(void **state) { (void)state; each(every_expert_scheme); }
static void test_tiles(void **state) { (void)state; each(tiles); }
static void test_fewer_bits(void **state) { (void)state; each(fewer_bits); }

/* A name that no model has would try nothing. */
static void test_something_was_tried(void **state)
{
    (void)state;
    ASSERT_ALL(made > 0, "no plan of a model %s", only ? only : "");
}

int main(int argc, char **argv)
{
    only = argc > 1 ? argv[1] : NULL;
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_every_mesh),
        MPI_TEST(test_every_tensor_scheme),
        MPI_TEST(test_every_schedule),
        MPI_TEST(test_every_data_scheme),
        MPI_TEST(test_every_attention_scheme),
        MPI_TEST(test_every_expert_scheme),
        MPI_TEST(test_tiles),
        MPI_TEST(test_fewer_bits),
        MPI_TEST(test_something_was_tried),
    };
    return MPI_RUN("families", tests);
}
