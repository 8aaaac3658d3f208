/* The sequences behind wrong gradients: cuts of a batch, words for what stands where, and the fit.
 */
#include "emulated_devices/check/mistakes/sequences.h"
#include "emulated_devices/check/mistakes/whose.h"
#include "emulated_devices/verify/cases/case.h"
#include "ref/golden/batch.h"
#include "ref/golden/make.h"
#include "tests/ref/scratch.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <string.h>

static struct error err;

/* ---- cuts -------------------------------------------------------------------------------------------------------- */

/* The parts of five sequences of two tokens, by their owners. */
static struct batch_cuts stated(const int parts[5], const struct single_owner owner[], int count)
{
    int32_t part[10];
    for (int i = 0; i < 10; i++) part[i] = parts[i / 2];
    return cuts_of(5, 2, part, owner, count, 2);
}

static void expect_cut(const struct batch_cut *cut, const char *of, bool known, const int part[5])
{
    assert_string_equal(cut->of, of);
    assert_int_equal(cut->known, known);
    for (int s = 0; s < 5; s++) assert_int_equal(cut->part[s], part[s]);
}

static void cuts_are_those_of_the_layout(void **state)
{
    (void)state;
    /* Rank 0 has 0, 2, 4 in two microbatches, rank 1 has 1, 3. */
    const struct single_owner owner[] = { { 0, 0, 0 }, { 0, 0, 1 }, { 1, 0, 0 }, { 1, 0, 1 } };
    const struct batch_cuts cuts = stated((int[]){ 0, 2, 0, 3, 1 }, owner, 4);
    expect_cut(&cuts.all[0], "dp rank", true, (int[]){ 0, 1, 0, 1, 0 });
    expect_cut(&cuts.all[1], "microbatch", true, (int[]){ 0, 0, 0, 1, 1 });
    expect_cut(&cuts.all[2], "dp rank's microbatch", true, (int[]){ 0, 2, 0, 3, 1 });
    assert_int_equal(cuts.all[2].within, 0);
    assert_ptr_equal(cuts_of_ranks(&cuts), &cuts.all[0]);
    /* The next rank's 1, 3, then on to its own 0; the last goes on with the first's. */
    const int turned[] = { 1, 0, 3, 2, 0 };
    for (int s = 0; s < 5; s++) assert_int_equal(cut_turned(&cuts, &cuts.all[0], 1, s), turned[s]);
}

static void cuts_are_usual_where_nothing_is_stated(void **state)
{
    (void)state;
    const struct batch_cuts cuts = cuts_of(5, 2, NULL, NULL, 0, 2), alone = cuts_of(5, 2, NULL, NULL, 0, 1);
    expect_cut(&cuts.all[0], "dp rank", true, (int[]){ 0, 0, 0, 1, 1 });
    expect_cut(&cuts.all[1], "dp rank", true, (int[]){ 0, 1, 0, 1, 0 });
    expect_cut(&cuts.all[2], "part of the batch", false, (int[]){ 0, 0, 1, 1, 2 });
    expect_cut(&alone.all[0], "part of the batch", false, (int[]){ 0, 0, 0, 1, 1 });
    assert_null(cuts_of_ranks(&alone));
    assert_int_equal(cuts_of(CUT_SEQUENCES + 1, 2, NULL, NULL, 0, 2).count, 0);
}

/* Ranks along cp have halves of each sequence: they cut no batch. */
static void ranks_along_cp_share_their_sequences(void **state)
{
    int32_t part[10];
    (void)state;
    for (int i = 0; i < 10; i++) part[i] = i % 2;
    const struct single_owner owner[] = { { 0, 0, -1 }, { 0, 1, -1 } };
    const struct batch_cuts cuts = cuts_of(5, 2, part, owner, 2, 1);
    assert_false(cuts.all[0].known);
}

/* ---- words ------------------------------------------------------------------------------------------------------- */

/* Own sequences count so often, after those of the step before, before those of the next, and those that a resumed
 * program reads again. */
static void sequences_that_count_have_words(void **state)
{
    static const struct { int times[BATCHES][5]; bool strided; const char *words; } cases[] = {
        { { { 0 }, { 1, 1, 1, 1, 1 }, { 0 } }, false, "" },
        { { { 0 }, { 1, 1, 1, 2, 0 }, { 0 } }, false,
          "sequence 3 counts twice and sequence 4 not at all: dp rank 1 has sequence 3 again" },
        { { { 0 }, { 1, 2, 1, 0, 1 }, { 0 } }, true,
          "sequence 1 counts twice and sequence 3 not at all: dp rank 1 has sequence 1 again" },
        { { { 0 }, { 1, 2, 1, 0, 1 }, { 0 } }, false, "sequence 1 counts twice and sequence 3 not at all" },
        { { { 0 }, { 1, 1, 1, 0, 0 }, { 0 } }, false, "without sequences 3, 4: those of dp rank 1" },
        { { { 0 }, { 1, 0, 1, 0, 1 }, { 0 } }, true, "without sequences 1, 3: those of dp rank 1" },
        { { { 0 }, { 1, 1, 0, 1, 1 }, { 0 } }, false, "without sequence 2" },
        { { { 0 }, { 1, 1, 1, 2, 2 }, { 0 } }, false, "sequences 3, 4 count twice" },
        { { { 0 }, { 2, 2, 1, 0, 0 }, { 0 } }, false, "every dp rank has the sequences of dp rank 0" },
        { { { 1, 1, 1, 1, 1 }, { 0 }, { 0 } }, false, "stale: it is what the batch of step 1 gives" },
        { { { 0 }, { 0 }, { 1, 1, 1, 1, 1 } }, false, "it is what the batch of step 3 gives" },
        { { { 0 }, { 0, 0, 1, 1, 1 }, { 1, 1, 0, 0, 0 } }, true,
          "the batch begins 2 sequences late: with 2 of step 3" },
        { { { 0, 1, 0, 1, 0 }, { 1, 0, 1, 0, 1 }, { 0 } }, true, "dp rank 1 has its sequences of step 1" },
        { { { 0, 0, 0, 1, 1 }, { 1, 1, 1, 0, 0 }, { 0 } }, false,
          "dp rank 1 has its sequences of step 1, or the batch begins 2 sequences early: with 2 of step 1" },
        { { { 0, 0, 1, 0, 0 }, { 1, 1, 1, 0, 1 }, { 0 } }, false,
          "sequence 2 of step 1 counts and sequence 3 not at all" },
        { { { 0 }, { 0 }, { 0 }, { 1, 1, 1, 1, 1 } }, false,
          "it is what the batch of step 1 gives: the data have started again" },
        { { { 0 }, { 1, 1, 1, 0, 0 }, { 0 }, { 0, 0, 0, 1, 1 } }, false,
          "dp rank 1 has its sequences of step 1: the data have started again" },
        { { { 0 }, { 1, 1, 1, 0, 1 }, { 0 }, { 0, 0, 1, 0, 0 } }, false,
          "sequence 2 of step 1 counts and sequence 3 not at all" },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct single_owner owner[] = { { 0, 0, -1 }, { 1, 0, -1 } };
        const struct batch_cuts cuts =
            stated(cases[i].strided ? (int[]){ 0, 1, 0, 1, 0 } : (int[]){ 0, 0, 0, 1, 1 }, owner, 2);
        int times[BATCHES][CUT_SEQUENCES] = { { 0 } };
        char words[240];
        for (int b = 0; b < BATCHES; b++) memcpy(times[b], cases[i].times[b], sizeof cases[i].times[b]);
        int again = 0;
        for (int s = 0; s < 5; s++) again += cases[i].times[BATCH_AGAIN][s];
        const struct whose_step step = again ? (struct whose_step){ 2, 3, 2, 0 }
            : (struct whose_step){ 1, 3, 0, 0 };
        assert_string_equal(whose_say_counts(words, sizeof words, &cuts, times, &step), cases[i].words);
    }
}

/* A batch that is in the list already is no other one. */
static void batches_are_of_different_steps(void **state)
{
    static const struct { struct whose_step step; int of[BATCHES]; } cases[] = {
        { { 0, 3, 0, 0 }, { -1, 0, 1, -1, -1 } }, { { 2, 3, 0, 0 }, { 1, 2, -1, -1, -1 } },
        { { 1, 3, 1, 0 }, { 0, 1, 2, -1, -1 } }, { { 2, 4, 2, 0 }, { 1, 2, 3, 0, -1 } },
        { { 3, 4, 2, 0 }, { 2, 3, -1, 1, -1 } }, { { 0, 0, 0, 0 }, { -1, 0, -1, -1, -1 } },
        { { 0, 5, 0, 4 }, { -1, 0, 1, -1, 3 } },
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int b = 0; b < BATCHES; b++) assert_int_equal(whose_step_of(&cases[i].step, b), cases[i].of[b]);
}

/* ---- the fit ----------------------------------------------------------------------------------------------------- */

enum { STEPS = 3, SEQUENCES = 4 };

/* A mixture has routers with corrections that move. */
static struct model_config a_model(bool mixture)
{
    struct plan p = case_plan(1, 1, 1);
    if (mixture) case_take_deepseek_v3(&p), p.model.mixture.shared = p.model.F;
    return p.model;
}

/* A change of the second step's batch: what a place has, in sequences from its own; whose labels are all ignored. */
struct change { int place, of, ignored; bool labels_shifted; };

static void make(const char *path, bool mixture, const struct change *change)
{
    struct golden g = { .config = a_model(mixture), .seed = 5, .steps = STEPS, .B = SEQUENCES, .every_step = true };
    struct golden_request q = { .optimizers = 1, .path = path, .bound = 1e-9 };
    int tensors;
    g.S = g.config.S;
    assert_int_equal(batch_allocate(&g, &err), OK);
    for (int64_t i = 0; i < g.steps * g.B * g.S; i++) {
        g.ids[i] = (int32_t)((i * i * 37 + i / g.S) % g.config.V);
        g.labels[i] = i % g.S < i / g.S % g.B ? IGNORE_LABEL : (int32_t)((i * 61 + i / g.S) % g.config.V);
    }
    const int64_t to = (g.B + change->place) * g.S, from = (g.B + change->place + change->of) * g.S;
    if (change->of != 0) {
        memcpy(g.ids + to, g.ids + from, (size_t)g.S * sizeof *g.ids);
        memcpy(g.labels + to, g.labels + from, (size_t)g.S * sizeof *g.labels);
    }
    for (int64_t i = 0; i < g.S && change->ignored; i++) g.labels[to + i] = IGNORE_LABEL;
    for (int64_t i = 0; i < g.B * g.S && change->labels_shifted; i++)
        g.labels[g.B * g.S + i] = (g.labels[g.B * g.S + i] + 1) % (int)g.config.V;
    assert_int_equal(optimizer_find(&q.optimizer[0], "sgd", &err), OK);
    q.hyper[0] = (struct hyperparameters){ .lr = 0.25 };
    if (golden_make(&g, &q, &tensors, &err) != OK) fail_msg("%s", err.text);
    golden_close(&g);
}

/* Describe the second step's gradients of a program that trained on a changed batch. */
static void describe(bool mixture, const struct change *change, char *text, size_t size)
{
    struct golden golden;
    struct actual actual;
    struct wrong_gradient all[128];
    int count = 0;
    char path[2][1024];
    snprintf(path[0], sizeof path[0], "%s", scratch("right.safetensors"));
    snprintf(path[1], sizeof path[1], "%s", scratch("changed.safetensors"));
    make(path[0], mixture, &(struct change){ 0 }), make(path[1], mixture, change);
    if (golden_open(&golden, path[0], &err) != OK) fail_msg("%s", err.text);
    if (actual_open(&actual, path[1], NULL, &err) != OK) fail_msg("%s", err.text);
    const struct batch_cuts cuts = cuts_of(SEQUENCES, golden.S, NULL, NULL, 0, 2);
    for (int i = 0; i < golden.file.count && count < 128; i++)
        if (strncmp(golden.file.entry[i].name, "sgd/2/grad/", 11) == 0)
            all[count++] = (struct wrong_gradient){ golden.file.entry[i].name, 1e-7 };
    assert_true(count > 10);
    sequences_describe(text, size, &golden, &actual, &cuts, all, count);
    actual_close(&actual), golden_close(&golden);
}

static void gradients_are_sums_over_sequences(void **state)
{
    static const struct { struct change change; const char *words; } cases[] = {
        { { .place = 3, .of = -1 },
          "sequence 2 counts twice and sequence 3 not at all: dp rank 1 has sequence 2 again" },
        { { .place = 1, .of = -SEQUENCES }, "sequence 1 of step 1 counts and sequence 1 not at all" },
        { { .place = 2, .of = SEQUENCES }, "sequence 2 of step 3 counts and sequence 2 not at all" },
        { { .place = 0, .ignored = 1 }, "without sequence 0" },
        { { .labels_shifted = true }, "" },
        { { 0 }, "" },
    };
    char text[300];
    (void)state;
    for (int mixture = 0; mixture < 2; mixture++)
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
            describe(mixture, &cases[i].change, text, sizeof text);
            assert_string_equal(text, cases[i].words);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cuts_are_those_of_the_layout),
        cmocka_unit_test(cuts_are_usual_where_nothing_is_stated),
        cmocka_unit_test(ranks_along_cp_share_their_sequences),
        cmocka_unit_test(sequences_that_count_have_words),
        cmocka_unit_test(batches_are_of_different_steps),
        cmocka_unit_test(gradients_are_sums_over_sequences),
    };
    return cmocka_run_group_tests_name("sequences", tests, scratch_make, scratch_remove);
}
