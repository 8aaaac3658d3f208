/* A Mixtral on devices equals the one-device model: over copies of the model, stages and microbatches, with weights in
 * shards.
 * ranks: 3 4
 * verify ranks: 1 2 5 6 8
 *
 * Loss, activations, gradients and weights of three SGD steps in fp64 to 1e-12; messages, bytes, additions and memory
 * peaks by formula.  A balance loss is of the tokens of a group in all layers, or in one: with those of another group,
 * copy or stage it would be another.
 */
#include "tests/devices/trained.h"
#include "emulated_devices/schemes/experts/experts.h"

static struct plan mixtral(int dp, int pp)
{
    struct plan p = case_plan(dp, 1, pp);
    case_take_mixtral(&p);
    return p;
}

static void test_every_mesh(void **state)
{
    (void)state;
    for (int dp = 1; dp <= test_size; dp++) {
        if (test_size % dp != 0) continue;
        struct plan p = mixtral(dp, test_size / dp);
        check_if_taken(p);
    }
}

/* Below `make verify` 6 devices have only meshes of two sizes. */
static bool in_sample(void) { return tier_now() == TIER_VERIFY || test_size < 6; }

/* F of every expert is cut; output, gradient of the input and gradient of the weights are then parts of sums. */
static void test_inside_experts(void **state)
{
    (void)state;
    for (int tp = 2; tp <= test_size; tp++)
        for (int other = 0; test_size % tp == 0 && other < 3; other++) {
            const int rest = test_size / tp;
            struct plan p = case_plan(other == 0 ? rest : 1, tp, other == 1 ? rest : 1);
            case_take_mixtral(&p);
            if (other == 2) case_take_context(&p, rest, rest > 1 ? "ulysses" : "whole");
            if ((other == 0 || rest > 1) && plan_check(&p, &err) == OK) check(&p);
        }
}

static void test_every_data_scheme(void **state)
{
    (void)state;
    for (int i = 0; data_scheme_at(i) && in_sample(); i++) {
        struct plan p = mixtral(test_size, 1);
        case_take_data(&p, data_scheme_at(i));
        check_if_taken(p);
    }
}

/* What was dropped is computed again, but its routers' losses are not added up again. */
static void test_recomputation(void **state)
{
    static const char *const choices[] = { "selective", "full" };
    (void)state;
    for (int i = 0; i < 2 && in_sample(); i++) {
        struct plan p = mixtral(test_size, 1);
        p.recompute = choices[i], p.model.tied = false;
        p.model.dropout_residual = 0.2;
        check(&p);
        /* weights' gradients after all those of inputs: what the next part was given is still needed */
        p = mixtral(1, test_size);
        p.schedule = "zb-h1", p.micros = 1, p.recompute = choices[i];
        check(&p);
    }
}

/* Balance losses of microbatches, sequences and the batch, of all layers together and of each. */
static const struct balance_rule rules[] = {
    { OVER_MICROBATCH, LAYERS_TOGETHER, CHOICES_ALL }, { OVER_MICROBATCH, LAYERS_EACH, CHOICES_MEAN },
    { OVER_SEQUENCE, LAYERS_TOGETHER, CHOICES_FIRST }, { OVER_SEQUENCE, LAYERS_EACH, CHOICES_ALL },
    { OVER_BATCH, LAYERS_EACH, CHOICES_FIRST }, { OVER_BATCH, LAYERS_TOGETHER, CHOICES_MEAN },
};

/* Every schedule of the registry; along pp stages differ in layers. */
static void test_every_schedule_and_scope(void **state)
{
    int checked = 0;
    (void)state;
    for (int i = 0; schedule_generator_at(i) && in_sample(); i++)
        for (size_t r = 0; r < sizeof rules / sizeof *rules; r++) {
            struct plan p = mixtral(1, test_size);
            const enum error_code e = case_take_schedule(&p, schedule_generator_at(i)->head.name, &err);
            p.model.mixture.balance = rules[r];
            if (!tier_takes(i + (int)r + test_size, 5)) continue;
            if (e == OK && plan_check(&p, &err) == OK) check(&p), checked++;
        }
    ASSERT_ALL(checked > 0 || !in_sample(), "no schedule takes a balance loss on %d devices", test_size);
}

/* Every schedule x balance loss x expert scheme, on two stages of the copies that share experts; below `make verify`
 * one in 83. */
static void test_every_schedule_scope_and_dispatch(void **state)
{
    const int copies = test_size / 2, step = tier_now() != TIER_VERIFY ? 83 : test_size > 4 ? 5 : 1;
    int n = 0;
    (void)state;
    for (int i = 0; schedule_generator_at(i) && test_size % 2 == 0 && copies > 1; i++)
        for (size_t r = 0; r < sizeof rules / sizeof *rules; r++)
            for (int d = 0; expert_scheme_at(d); d++) {
                struct plan p = mixtral(copies, 2);
                const enum error_code e = case_take_schedule(&p, schedule_generator_at(i)->head.name, &err);
                p.model.mixture.balance = rules[r];
                if (!expert_scheme_at(d)->cuts_experts || n++ % step != 0 || e) continue;
                case_take_experts(&p, copies, expert_scheme_at(d)->head.name);
                check_if_taken(p);
            }
}

/* Microbatches that leave out stages, on copies that share experts.  On three stages all leave out the middle one, so
 * its routers judge no row. */
static void test_stages_left_out(void **state)
{
    const int stages = test_size % 4 == 0 ? 4 : 3, copies = test_size / stages;
    int n = 0;
    (void)state;
    for (size_t r = 0; r < sizeof rules / sizeof *rules && test_size % stages == 0; r++)
        for (int d = 0; expert_scheme_at(d); d++) {
            const struct expert_scheme *const s = expert_scheme_at(d);
            struct plan p = mixtral(copies, stages);
            /* Rule 4 with one microbatch: a stage has no rows. */
            p.schedule = "skippipe", p.skip = 1, p.micros = r % 2 ? 3 : 1, p.B += copies;
            p.model.mixture.balance = rules[r], p.model.mixture.sequence_coefficient = 0.25;
            const bool sampled = tier_takes(n++, 5) || (r == 4 && d == 0);
            if (s->cuts_experts == (copies == 1) || !sampled) continue;
            if (s->cuts_experts) case_take_experts(&p, copies, s->head.name);
            check_if_taken(p);
        }
}

/* Optimizer steps inside the schedule, the last of fewer microbatches than the others. */
static void test_several_updates(void **state)
{
    (void)state;
    for (size_t r = 0; r < sizeof rules / sizeof *rules && test_size % 2 == 0; r++) {
        struct plan p = mixtral(test_size / 2, 2);
        if (!tier_takes((int)r + test_size / 2, 2)) continue;
        p.schedule = "pipedream-2bw", p.micros = 5, p.update_every = 2, p.B = 5 * test_size / 2 + 1;
        p.model.mixture.balance = rules[r], p.model.mixture.sequence_coefficient = 0.25;
        if (r % 2 && test_size > 2) case_take_experts(&p, test_size / 2, "alltoall");
        check_if_taken(p);
    }
}

/* Copies that train apart, of one device and of two that share experts. */
static void test_copies_apart(void **state)
{
    (void)state;
    for (int i = 0, n = 0; data_scheme_at(i) && test_size > 1; i++)
        for (size_t r = 0; r < sizeof rules / sizeof *rules; r++)
            for (int own = 1; own <= 2 && data_scheme_at(i)->outer.every > 0; own++) {
                struct plan p = mixtral(test_size, 1);
                case_take_data(&p, data_scheme_at(i));
                p.schedule = "gpipe", p.micros = 2, p.B = 2 * test_size + 1;
                p.model.mixture.balance = rules[r], p.model.mixture.sequence_coefficient = 0.25;
                p.data.group = own;
                if (own == 2) case_take_experts(&p, 2, expert_scheme_at(1 + n % 6)->head.name);
                if (!tier_takes(n++, 7)) continue;
                check_if_taken(p);
            }
}

/* Weights of the chosen experts that do not add up to 1; a single choice; no auxiliary loss. */
static void test_rules(void **state)
{
    (void)state;
    struct plan p = mixtral(test_size, 1);
    p.model.mixture.router.normalized = false;
    check(&p);
    p = mixtral(test_size, 1);
    p.model.mixture.k = 1, p.model.mixture.router.normalized = false;
    check(&p);
    p = mixtral(test_size, 1);
    p.model.mixture.balance_coefficient = 0, p.schedule = "1f1b";
    check(&p);
    p = mixtral(1, test_size);
    p.model.mixture.balance_coefficient = 0, p.schedule = "zb-h1";
    check_if_taken(p);
}

static void test_refusals(void **state)
{
    (void)state;
    struct plan p = mixtral(1, 1);
    const int two[AXIS_COUNT] = { [DP] = 1, [TP] = 2, [PP] = 1, [CP] = 1, [EP] = 1 };
    p.micros = 2, p.schedule = "1f1b", p.model.mixture.balance.over = OVER_BATCH;
    expect_refused(p, "use --balance-over microbatch, or --schedule gpipe");
    p.schedule = "gpipe", p.data.scheme = "zero3", p.data.tiles = 2;
    expect_refused(p, "--tiles 2");
    p = mixtral(1, 1);
    mesh_make(&p.mesh, two, NULL);
    p.tensor = "1d-sp";
    expect_refused(p, "--tensor 1d-sp: devices along tp have different rows");
    p = mixtral(1, 1);
    p.model.mixture.router.biased = true;
    p.schedule = "pipedream-2bw", p.micros = 4, p.update_every = 2;
    expect_refused(p, "--schedule pipedream-2bw with more than --micro 2");
    p.micros = 2;
    ASSERT_ALL(plan_check(&p, &err) == OK, "one optimizer step at the end moves biases, too: %s", err.text);
    p.schedule = "1f1b", p.update_every = 0, p.data.scheme = "diloco";
    expect_refused(p, "which no outer step averages");
    p = mixtral(1, 1);
    case_take_mezo(&p, 1);
    expect_refused(p, "--optimizer mezo");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_every_mesh), MPI_TEST(test_inside_experts), MPI_TEST(test_every_data_scheme),
            MPI_TEST(test_recomputation), MPI_TEST(test_every_schedule_and_scope), MPI_TEST(test_rules),
            MPI_TEST(test_every_schedule_scope_and_dispatch), MPI_TEST(test_stages_left_out),
            MPI_TEST(test_several_updates), MPI_TEST(test_copies_apart), MPI_TEST(test_refusals),
    };
    return MPI_RUN("mixture", tests);
}
