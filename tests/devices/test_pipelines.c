/* Every pipeline schedule trains a model as one device does by the same rule, whatever the number of microbatches, the
 * placement of layers and the steps inside the schedule; in fp64 to 1e-12, and with the memory and messages of its
 * formulas.
 * ranks: 3 4
 * verify ranks: 8
 */
#include "tests/devices/trained.h"
#include <string.h>

/* Every schedule there is computes what one device computes by the same rule; those that compute the same and add
 * weight gradients in the order of the microbatches, on one copy of each stage, end with the same bits. */
static void test_every_schedule(void **state)
{
    (void)state;
    enum { MOST = 8 };
    const int dp = test_size % 2 == 0 && test_size > 2 ? 2 : 1, pp = test_size / dp;
    struct { uint64_t key, bits; const char *schedule; } seen[MOST];
    int trained = 0, keys = 0, compared = 0;
    for (int i = 0; schedule_generator_at(i); i++) {
        struct plan p = case_plan(dp, 1, pp);
        uint64_t key;
        p.model.tied = false;
        if (case_take_schedule(&p, schedule_generator_at(i)->head.name, &err) != OK) continue;
        const struct outcome o = check(&p);
        ASSERT_ALL(case_bits_key(&p, &key, &err) == OK, "%s: %s", p.schedule, err.text);
        trained++;
        int k = 0;
        while (k < keys && seen[k].key != key) k++;
        if (key == 0 || (k == keys && keys == MOST)) continue;
        if (k == keys) seen[keys].key = key, seen[keys].bits = o.whole_hash, seen[keys++].schedule = p.schedule;
        else compared++;
        ASSERT_ALL(test_rank != 0 || seen[k].bits == o.whole_hash, "%s: weights have other bits than those of %s",
                   p.schedule, seen[k].schedule);
    }
    ASSERT_ALL(trained >= (pp % 2 ? 14 : 16), "only %d schedules could be trained with", trained);
    ASSERT_ALL(compared >= 8, "only %d schedules were held to another's bits", compared);
}

/* Any number of microbatches a schedule takes, multiples of the devices or not;
 * three devices, so that few things divide. */
static void test_every_number_of_microbatches(void **state)
{
    (void)state;
    if (test_size != 3) skip();
    for (int i = 0; schedule_generator_at(i); i++)
        for (int M = 1; M <= 5; M++) {
            if (tier_now() != TIER_VERIFY && (i % 2 != 0 || M != (i % 4 ? 1 : 5))) continue;
            struct plan p = case_plan(1, 1, test_size);
            p.schedule = schedule_generator_at(i)->head.name;
            p.micros = M;
            p.chunks = schedule_generator_at(i)->chunks ? schedule_generator_at(i)->chunks : 2;
            check_if_taken(p);
        }
}

/* Whether a device has the loss, which keeps more than a layer, or two neighbouring stages, which hand over a copy. */
static bool is_particular(const struct schedule *s, int device)
{
    bool found = false;
    for (int c = 0; c < s->chunks; c++) {
        const int stage = s->stage_of[device][c];
        found = found || stage == s->stages - 1;
        for (int m = 0; m < s->micros; m++) found = found || place_after(s, m, stage).device == device;
    }
    return found;
}

/* What the arena counts at most is what the schedule says: so many microbatches, each as large as one alone.  (That the
 * schedule says what its paper does, P-r for 1F1B and so on, is test_schedule.c's part.) */
static void test_activations_are_those_of_the_schedule(void **state)
{
    (void)state;
    if (test_size != 4) skip();
    enum { M = 8, EACH = 2 };
    struct plan p = case_plan(1, 1, test_size);
    p.model.L = 2 * test_size, p.B = EACH, p.micros = 1;
    const uint64_t one = check(&p).activations;
    for (int i = 0; schedule_generator_at(i); i += tier_now() == TIER_VERIFY ? 1 : 4) {
        struct schedule s;
        p = case_plan(1, 1, test_size);
        p.schedule = schedule_generator_at(i)->head.name, p.micros = M, p.B = EACH * M;
        p.chunks = schedule_generator_at(i)->chunks ? schedule_generator_at(i)->chunks : 2;
        p.model.L = 2 * test_size;
        const struct outcome o = check(&p);
        ASSERT_ALL(plan_schedule(&p, &s, &err) == OK, "%s", err.text);
        const uint64_t want = (uint64_t)schedule_peak(&s, test_rank) * one * (uint64_t)test_size / (uint64_t)s.stages;
        const bool good = is_particular(&s, test_rank) || o.activations == want;
        ASSERT_ALL(good, "%s: counted %llu bytes of activations, %d microbatches of a stage are %llu", s.name,
                   (unsigned long long)o.activations, schedule_peak(&s, test_rank), (unsigned long long)want);
        schedule_free(&s);
    }
}

/* Optimizer steps inside the schedule with two versions of the weights, over copies and parts of layers too: batches of
 * two and three microbatches, the last of which is shorter. */
static void test_updates_in_mid_stream(void **state)
{
    (void)state;
    if (test_size % 2) skip();
    for (int dp = 1; dp <= test_size / 2; dp++) {
        if (test_size / 2 % dp) continue;
        for (int every = 2; every <= 3; every++) {
            struct plan p = case_plan(dp, test_size / 2 / dp, 2);
            p.schedule = "pipedream-2bw";
            p.update_every = every;
            p.micros = CASE_BATCH / dp < 5 ? CASE_BATCH / dp : 5;
            const struct outcome o = check(&p);
            ASSERT_ALL(p.updates == (p.micros + every - 1) / every, "%d updates of %d microbatches, %d at a time",
                       p.updates, p.micros, every);
            p.update_every = p.micros;                  /* other steps, other weights: is the rule followed at all? */
            const struct outcome one = check(&p);
            ASSERT_ALL(test_rank != 0 || one.whole_hash != o.whole_hash, "one step and several end with the same bits");
        }
    }
}

static void test_updates_refuse_clipping(void **state)
{
    (void)state;
    struct plan p = case_plan(1, 1, test_size);
    p.schedule = "pipedream-2bw";
    p.micros = 2 * test_size;
    p.hyper.clip = 1;
    const enum error_code e = plan_check(&p, &err);
    ASSERT_ALL(e == ERR_PLAN && strstr(err.text, "--clip 1: ") && strstr(err.text, "--clip 0"),
               "clipping inside the schedule: %s", err.text);
}

/* Each number of stages that can be left out; other ones, other weights. */
static void test_partial_pipelines(void **state)
{
    (void)state;
    uint64_t bits = 0;
    if (test_size < 3) skip();
    for (int skip = 1; skip <= test_size - 2; skip++) {
        struct plan p = case_plan(1, 1, test_size);
        p.schedule = "skippipe";
        p.skip = skip;
        p.micros = 5;
        const struct outcome o = check(&p);
        ASSERT_ALL(test_rank != 0 || o.whole_hash != bits, "leaving out %d stages ends with the bits of %d", skip,
                   skip - 1);
        bits = o.whole_hash;
    }
}

/* Layers in proportion to the speed of places: other layers on a device, the same model, the same bits. */
static void test_layers_by_speed(void **state)
{
    (void)state;
    if (test_size < 2) skip();
    struct plan even = case_plan(1, 1, test_size), placed = even;
    case_take_speeds(&placed);
    const struct outcome a = check(&even), b = check(&placed);
    ASSERT_ALL(test_size == 3 || even.first_layer[1] < placed.first_layer[1],
               "the fast first place has %d layers, and %d among equals", placed.first_layer[1], even.first_layer[1]);
    ASSERT_ALL(test_rank != 0 || a.whole_hash == b.whole_hash, "layers placed by speed end with other bits");
}

/* Layers as --stage-layers says: the same model, the same bits, also with two stages on each device. */
static void test_layers_as_said(void **state)
{
    static const char *const said[] = { "3,..,1", "ends", "1,..,2" };
    (void)state;
    struct plan even = case_plan(1, 1, test_size);
    even.model.L = 2 * test_size + 2;
    const struct outcome want = check(&even);
    for (int i = 0; i < 3; i++) {
        struct plan p = even;
        p.stage_layers = said[i];
        const struct outcome o = check(&p);
        ASSERT_ALL(i == 1 || memcmp(p.first_layer, even.first_layer, sizeof p.first_layer) != 0, "%s cuts evenly",
                   said[i]);
        ASSERT_ALL(test_rank != 0 || o.whole_hash == want.whole_hash, "%s: other bits than even stages", said[i]);
    }
    struct plan twice = even;
    twice.schedule = "interleaved", twice.chunks = 2, twice.stage_layers = "2,..,1";
    twice.micros = test_size;
    (void)check(&twice);
    ASSERT_ALL(twice.first_layer[1] == 2 && twice.first_layer[2 * test_size - 1] == twice.model.L - 1,
               "stages of two chunks begin at %d and %d", twice.first_layer[1], twice.first_layer[2 * test_size - 1]);
    even.stage_layers = "1,1";
    ASSERT_ALL(plan_check(&even, &err) == ERR_PLAN && strstr(err.text, "--stage-layers 1,1"), "%s", err.text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_every_schedule),
        MPI_TEST(test_every_number_of_microbatches),
        MPI_TEST(test_activations_are_those_of_the_schedule),
        MPI_TEST(test_updates_in_mid_stream),
        MPI_TEST(test_updates_refuse_clipping),
        MPI_TEST(test_partial_pipelines),
        MPI_TEST(test_layers_by_speed),
        MPI_TEST(test_layers_as_said),
    };
    return MPI_RUN("pipelines", tests);
}
