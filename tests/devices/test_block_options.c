/* Options of a model's blocks, on every mesh and under every tensor scheme, train as one device does.
 * ranks: 1 4
 * verify ranks: 3 6
 *
 * Models are those of `orrery verify`, for each option a family that has it.
 */
#include "ref/model/families/shared.h"
#include "tests/devices/trained.h"

static struct plan plan_of(int dp, int tp, int pp, void (*take)(struct plan *))
{
    struct plan p = case_plan(dp, tp, pp);
    p.model.L = 2 * pp + 1;
    take(&p);
    return p;
}

static void take_named(struct plan *p, const char *name)
{
    for (int i = 0; case_model_at(i); i++)
        if (strcmp(case_model_at(i)->name, name) == 0) case_model_at(i)->take(p);
}

static void take_exact(struct plan *p) { take_named(p, "nanogpt"); }

/* A Nemotron: the squared relu, and layernorms whose weights are kept from 1. */
static void take_from_one(struct plan *p) { take_named(p, "nemotron"); }

static void take_multiplied(struct plan *p) { take_named(p, "granite"); }

/* A SmolLM3: some layers have no positions. */
static void take_unturned(struct plan *p) { take_named(p, "smollm3"); }

/* A GPT-NeoX: branches in parallel, each with a norm of its own. */
static void take_two_norms(struct plan *p) { take_named(p, "gpt-neox"); }

/* This is such a model with branches in sequence. */
static void take_sequence(struct plan *p)
{
    take_two_norms(p);
    p->model.parallel = p->model.two_norms = false;
}

static void (*const options[])(struct plan *) = { take_exact, take_from_one, take_multiplied, take_unturned,
                                                   take_two_norms, take_sequence };
enum { OPTIONS = sizeof options / sizeof *options };

static void test_every_mesh(void **state)
{
    (void)state;
    for (int i = 0, n = test_size; i < OPTIONS; i++)
        for (int pp = 1; pp <= test_size; pp++)
            for (int dp = 1; dp * pp <= test_size; dp++) {
                if (test_size % (dp * pp) != 0 || !tier_takes(n++, 2)) continue;
                struct plan p = plan_of(dp, test_size / (dp * pp), pp, options[i]);
                check(&p);
            }
}

static void test_every_tensor_scheme(void **state)
{
    static const char *const recompute[] = { "none", "selective", "full", "selective++" };
    (void)state;
    for (int i = 0; i < OPTIONS; i++)
        for (int s = 0; tensor_scheme_at(s); s++) {
            struct plan p = plan_of(1, test_size, 1, options[i]);
            if (!tier_takes(i + s + test_size, 3)) continue;
            p.tensor = tensor_scheme_at(s)->head.name;
            p.recompute = recompute[(i + s) % 4];
            if (s % 2) p.model.dropout_embedding = 0.1, p.model.dropout_residual = 0.2, p.model.dropout_attention = 0.3;
            check_if_taken(p);
        }
}

static void test_fewer_bits(void **state)
{
    static const enum dtype formats[] = { F32, BF16, F16 };
    (void)state;
    for (int i = 0; i < OPTIONS * 3 && test_size <= 4; i++) {
        struct plan p = plan_of(1, test_size, 1, options[i / 3]);
        if (!tier_takes(i / 3 + i + test_size, 3)) continue;
        p.tensor = i % 2 ? "1d" : "1d-sp";
        p.dtype = formats[i % 3], p.loss_scale = p.dtype == F16 ? 1024 : 0;
        p.model.L = 1, p.model.tied = false;
        if (options[i / 3] == take_unturned) p.model.unturned = (struct layer_set){ { 1 } };
        check_if_taken(p);
    }
}

/* Along cp, whose schemes move keys that are turned before, or not at all. */
static void test_attention_schemes(void **state)
{
    (void)state;
    for (int s = 0; attention_scheme_at(s) && test_size > 1; s++) {
        for (int i = 0; i < 2; i++) {
            struct plan p = plan_of(1, 1, 1, i ? take_unturned : take_multiplied);
            if (!tier_takes(i + s + test_size, 2)) continue;
            case_take_context(&p, test_size, attention_scheme_at(s)->head.name);
            check_if_taken(p);
        }
    }
}

/* A family whose table has no place for a factor is refused, not run without. */
static void test_refusals(void **state)
{
    (void)state;
    struct plan p = plan_of(test_size, 1, 1, take_multiplied);
    struct family without = *p.model.family;
    without.program[0].loss = gemma2_loss;
    p.model.family = &without;
    struct outcome o;
    enum error_code e = plan_check(&p, &err);
    if (!e) e = case_run(&p, &o, &err);
    ASSERT_ALL(e == ERR_PLAN && strstr(err.text, "a model of this family has no multiplier of logits"), "%s", err.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_every_mesh), MPI_TEST(test_every_tensor_scheme), MPI_TEST(test_fewer_bits),
        MPI_TEST(test_attention_schemes), MPI_TEST(test_refusals),
    };
    return MPI_RUN("block options", tests);
}
