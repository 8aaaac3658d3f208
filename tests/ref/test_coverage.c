/* Batches that cannot show something: each row of the table sees what it looks for and nothing else, and a drawn batch
 * has no gap where everything fits.
 */
#include "ref/golden/batch.h"
#include "ref/golden/cover.h"
#include "ref/golden/coverage.h"
#include "ref/golden/make.h"
#include "ref/ops/ops.h"
#include "tests/ref/scratch.h"
#include <stdlib.h>
#include <string.h>

enum { MOST_LINES = 32 };
static char line[MOST_LINES][1200];
static int lines;
static struct error err;

static void keep_line(void *context, const char *lack, const char *hides, const char *need)
{
    (void)context;
    assert_true(lines < MOST_LINES);
    snprintf(line[lines++], sizeof line[0], "%s | %s | %s", lack, hides, need);
}

static void look(const struct golden *golden, const struct replay *run)
{
    lines = 0;
    const struct coverage_listener listener = { NULL, keep_line };
    const int gaps = coverage_gaps(&(struct coverage_view){ golden, run }, &listener);
    assert_int_equal(gaps, lines);
}

static const char *line_with(const char *words)
{
    for (int i = 0; i < lines; i++)
        if (strstr(line[i], words)) return line[i];
    return NULL;
}

static void expect_only(const char *words, const char *rest)
{
    if (lines != 1 || line_with(words) == NULL || line_with(rest) == NULL)
        fail_msg("%d lines, expected one with \"%s\" and \"%s\": %s", lines, words, rest, lines ? line[0] : "none");
}

/* A batch of its own for a preset. */
static void draw_batch(struct golden *g, const char *model, int64_t steps, int64_t B, int64_t S, uint64_t seed)
{
    int64_t usual;
    *g = (struct golden){ .seed = seed, .steps = steps, .B = B, .S = S, .every_step = true };
    assert_int_equal(model_config_preset(&g->config, &usual, model, &err), OK);
    assert_int_equal(golden_take_conventions(g, NULL, &err), OK);
    assert_int_equal(batch_allocate(g, &err), OK);
    if (cover_draw(g, NULL, &err) != OK || batch_check(g, "drawn", &err) != OK) fail_msg("%s", err.text);
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

/* 61 words on 3 ranks: 21, 20 and 20 of them, or by torch.chunk 21, 21 and 19. */
static void test_borders(void **state)
{
    (void)state;
    static const int64_t of_3[] = { 20, 21, 41, 40, 42 };
    struct model_config c = { .V = 61, .H = 3 };
    int64_t token[COVERAGE_MOST_BORDERS], all[COVERAGE_ALL_BORDERS];
    assert_int_equal(coverage_borders(&c, 1, token), 2);
    assert_true(token[0] == 0 && token[1] == 60);
    assert_int_equal(coverage_borders(&c, 2, token), 2);
    assert_true(token[0] == 30 && token[1] == 31);
    assert_int_equal(coverage_borders(&c, 3, token), 5);
    for (int i = 0; i < 5; i++) {
        bool found = false;
        for (int k = 0; k < 5; k++) found = found || token[k] == of_3[i];
        assert_true(found);
    }
    assert_int_equal(coverage_all_borders(&c, all), 9);
    c.padding = 1;                          /* token 0 is no input */
    assert_int_equal(coverage_all_borders(&c, all), 8);
    c.V = 2, c.H = 8;
    assert_int_equal(coverage_most_ranks(&c), 2);
}

static void count_run(void *context, const struct replay *run)
{
    (void)context;
    look(run->golden, run);
}

/* With its run, of which experts and norms are. */
static void run_of(const struct golden *g, double clip)
{
    struct golden_request q = { .optimizers = 1, .path = scratch("made.safetensors"), .bound = 1e-9,
                                .computed = count_run };
    int tensors;
    assert_int_equal(optimizer_find(&q.optimizer[0], "adamw", &err), OK);
    q.hyper[0] = q.optimizer[0]->usual;
    q.hyper[0].clip = clip;
    if (golden_make(g, &q, &tensors, &err) != OK) fail_msg("%s", err.text);
}

static void test_a_drawn_batch_has_no_gaps(void **state)
{
    (void)state;
    static const char *const models[] = { "tiny", "phi3-tiny", "mixtral-tiny", "qwen3-moe-tiny", "mistral-tiny" };
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        struct golden g;
        draw_batch(&g, models[i], 2, 9, 31, 5);
        run_of(&g, 0);
        if (lines > 0) fail_msg("%s: %s", models[i], line[0]);
        golden_close(&g);
    }
}

/* A mistake that does not fit into the batch is named with the size that it needs; that size is enough. */
static void test_needed_sizes(void **state)
{
    (void)state;
    struct golden g;
    draw_batch(&g, "llama-tiny", 1, 2, 8, 5);
    look(&g, NULL);
    assert_non_null(line_with("no label is one of"));
    assert_non_null(line_with("| --sequences 9, or more tokens"));
    assert_non_null(line_with("| --sequences 33, or more tokens"));
    assert_non_null(line_with("| --tokens 7"));
    assert_non_null(line_with("| --steps 2 or more"));
    golden_close(&g);
    draw_batch(&g, "llama-tiny", 2, 33, 7, 5);
    look(&g, NULL);
    if (lines > 1 || !line_with("| --sequences 37")) fail_msg("%d lines: %s", lines, lines ? line[0] : "none");
    golden_close(&g);
    draw_batch(&g, "phi3-tiny", 2, 20, 15, 5);            /* its LongRoPE begins after 16 tokens */
    look(&g, NULL);
    expect_only("LongRoPE's original 16", "| --tokens 17 or more");
    golden_close(&g);
    draw_batch(&g, "mistral-tiny", 2, 30, 11, 5);
    look(&g, NULL);
    expect_only("a window of 12 tokens", "| --tokens 13 or more");
    golden_close(&g);
}

/* Every row by a change of a batch without gaps that makes this one gap. */
static void test_each_row(void **state)
{
    (void)state;
    struct golden g, was;
    draw_batch(&g, "tiny", 2, 9, 31, 5);
    draw_batch(&was, "tiny", 2, 9, 31, 5);
    const int64_t n = g.B * g.S;
    const size_t bytes = (size_t)(2 * n) * sizeof *g.ids;
    assert_memory_equal(g.ids, was.ids, bytes);             /* the seed decides */
    look(&g, NULL);
    assert_int_equal(lines, 0);

    for (int64_t i = 0; i < n; i++) if (g.labels[i] == 85) g.labels[i] = 84;
    look(&g, NULL);
    expect_only("no label is one of these tokens at borders of the vocabulary: 85 (tp=3), 85 (tp=6)", "label too many");
    memcpy(g.labels, was.labels, bytes);
    for (int64_t i = 0; i < n; i++) if (g.ids[i] == 255) g.ids[i] = 254;
    look(&g, NULL);
    expect_only("no input is one of these tokens at borders of the vocabulary: 255 (tp=1)", "embedding");
    memcpy(g.ids, was.ids, bytes);

    for (int64_t i = 0; i < n; i++) g.ids[i] = (int32_t)(i % 256);
    look(&g, NULL);
    expect_only("no token occurs twice", "overwrite");
    memcpy(g.ids, was.ids, bytes);
    memcpy(g.ids + 2 * g.S, g.ids, (size_t)g.S * sizeof *g.ids);
    look(&g, NULL);
    assert_non_null(line_with("sequences 0 and 2 have the same tokens"));
    memcpy(g.ids, was.ids, bytes);
    memcpy(g.ids + n, g.ids, (size_t)n * sizeof *g.ids);
    look(&g, NULL);
    expect_only("steps 1 and 2 have the same batch", "step before");
    memcpy(g.ids, was.ids, bytes);

    for (int64_t b = 0; b < g.B; b++) g.labels[b * g.S + g.S - 1] = IGNORE_LABEL;
    look(&g, NULL);
    assert_non_null(line_with("the last token of no sequence has a label"));
    memcpy(g.labels, was.labels, bytes);
    for (int64_t i = 0; i < n; i++) if (g.labels[i] == IGNORE_LABEL) g.labels[i] = 7;
    look(&g, NULL);
    assert_non_null(line_with("no label is ignored"));
    assert_non_null(line_with("along dp or in microbatches, at 3, each"));
    assert_null(line_with("bf16"));                         /* 279 is odd */
    /* As many ignored labels in every sequence: copies that have as many sequences have as many labels. */
    for (int64_t b = 0; b < g.B; b++) g.labels[b * g.S] = g.labels[b * g.S + 3] = IGNORE_LABEL;
    look(&g, NULL);
    assert_non_null(line_with("along dp or in microbatches, at 3, each"));
    golden_close(&g), golden_close(&was);
}

/* An expert without tokens, and none; clipping on one side of the norms. */
static void test_rows_of_the_run(void **state)
{
    (void)state;
    struct golden g;
    draw_batch(&g, "mixtral-tiny", 2, 9, 31, 5);
    for (int64_t i = 0; i < g.B * g.S; i++) g.ids[i] = 3;
    run_of(&g, 0);
    assert_non_null(line_with("no token goes to expert"));
    assert_null(line_with("every expert has a token in every step"));
    golden_close(&g);
    draw_batch(&g, "mixtral-tiny", 1, 9, 31, 5);
    run_of(&g, 1e9);
    assert_null(line_with("no token goes to expert"));
    assert_non_null(line_with("every expert has a token in every step"));
    assert_non_null(line_with("left out: no gradient, no step | --steps 2"));
    assert_non_null(line_with("never above the largest norm allowed, 1e+09"));
    run_of(&g, 1e-9);
    assert_non_null(line_with("never below the largest norm allowed, 1e-09"));
    golden_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_borders),
        cmocka_unit_test(test_a_drawn_batch_has_no_gaps),
        cmocka_unit_test(test_needed_sizes),
        cmocka_unit_test(test_each_row),
        cmocka_unit_test(test_rows_of_the_run),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
