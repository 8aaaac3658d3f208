/* Plans of a microbatch: good ones are accepted, each mistake is refused with its line, and digests tell them apart.
 * tier: check
 */
#include "emulated_devices/schemes/attention/planned/context_plan.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>
#include <cmocka.h>

static struct error err;

/* Two samples, of 6 and 2 tokens, on two devices. */
static const int64_t length[] = { 6, 2 };
static const struct context_load load = { .length = length, .samples = 2, .tokens = 8, .devices = 2, .node = 2,
                                          .query_width = 1, .key_width = 2 };

/* Blocks 0 and 1 of the first sample on a device each, block 2 the second sample; device 1 gets keys of block 0. */
static struct context_plan good(void)
{
    struct context_plan p = { .devices = 2, .divisions = 3, .tokens = 8 };
    context_add_block(&p, (struct interval){ 0, 2 }, (struct interval){ 5, 1 }, 0);
    context_add_block(&p, (struct interval){ 2, 3 }, (struct interval){ 0, 0 }, 1);
    context_add_block(&p, (struct interval){ 6, 2 }, (struct interval){ 0, 0 }, 1);
    context_add_work(&p, (struct context_work){ 0, 0, 0, 0 });
    context_add_work(&p, (struct context_work){ 1, 1, 1, 0 });
    context_add_work(&p, (struct context_work){ 2, 2, 1, 0 });
    context_add_work(&p, (struct context_work){ 1, 0, 1, 1 });
    context_add_work(&p, (struct context_work){ 0, 1, 0, 2 });
    context_add_move(&p, (struct context_move){ CONTEXT_KEYS, 0, 0, 1, 0 });
    context_add_move(&p, (struct context_move){ CONTEXT_KEYS, 1, 1, 0, 1 });
    return p;
}

static void test_good_plan(void **state)
{
    (void)state;
    struct context_plan p = good();
    if (context_plan_finish(&p, &load, &err) != OK) fail_msg("refused: %s", err.text);
    assert_true(context_device_pairs(&p, 0) == 6 + 3);                     /* its own; token 5 with 2, 3, 4 */
    assert_true(context_device_pairs(&p, 1) == 6 + 3 + 6);                 /* its own; tokens 2, 3, 4 with 0, 1 */
    context_plan_free(&p);
}

/* ---- mistakes ---------------------------------------------------------------------------------------------------- */

static void no_block(struct context_plan *p) { p->block[1].tokens[0] = (struct interval){ 3, 2 }; }
static void no_last_block(struct context_plan *p) { p->block[2].tokens[0].count = 1; }
static void two_blocks(struct context_plan *p) { p->block[1].tokens[0] = (struct interval){ 2, 4 }; }
static void two_samples(struct context_plan *p)
{
    p->block[0].tokens[1].count = 2, p->block[2].tokens[0] = (struct interval){ 7, 1 };
}
static void interleave(struct context_plan *p) { p->block[1].home = 0; }
static void no_tokens(struct context_plan *p) { p->block[2].tokens[0].count = 0; }
static void no_home(struct context_plan *p) { p->block[2].home = 2; }
static void twice(struct context_plan *p) { context_add_work(p, (struct context_work){ 1, 0, 1, 2 }); }
static void missing(struct context_plan *p) { p->works--; }
static void no_pair(struct context_plan *p) { context_add_work(p, (struct context_work){ 2, 1, 1, 2 }); }
static void too_early(struct context_plan *p) { p->work[3].division = 0; }
static void other_device(struct context_plan *p) { p->work[1].device = 0; }
static void never_moved(struct context_plan *p) { p->moves--; }
static void no_device(struct context_plan *p) { p->work[4].device = 2; }
static void after_the_last(struct context_plan *p) { p->work[4].division = 3; }
static void sent_from_nowhere(struct context_plan *p) { p->move[0].from = 1, p->move[0].to = 0; }
static void sent_to_its_home(struct context_plan *p)
{
    context_add_move(p, (struct context_move){ CONTEXT_QUERIES, 0, 0, 0, 0 });
}
static void sent_twice(struct context_plan *p)
{
    context_add_move(p, (struct context_move){ CONTEXT_KEYS, 0, 0, 1, 2 });
}
static void sent_after_the_last(struct context_plan *p)
{
    context_add_move(p, (struct context_move){ CONTEXT_QUERIES, 0, 0, 1, 3 });
}
static void sent_to_no_device(struct context_plan *p)
{
    context_add_move(p, (struct context_move){ CONTEXT_QUERIES, 0, 0, -1, 0 });
}
static void sent_no_block(struct context_plan *p)
{
    context_add_move(p, (struct context_move){ CONTEXT_KEYS, 1 << 20, 0, 1, 0 });
}
static void sent_no_data(struct context_plan *p)
{
    context_add_move(p, (struct context_move){ (enum context_data)(1 << 20), 0, 0, 1, 0 });
}
static void no_query(struct context_plan *p) { p->work[4].query = -1048576; }
static void no_key(struct context_plan *p) { p->work[4].key = 1 << 20; }

static const struct { void (*change)(struct context_plan *); const char *says; } mistakes[] = {
    { no_block, "token 2 of the plan is in no block" },
    { no_last_block, "token 7 of the plan is in no block" },
    { two_blocks, "token 5 of the plan is in two blocks" },
    { two_samples, "block 0 of the plan is on no device, empty or of two samples" },
    { interleave, "blocks 0 and 1 of the plan interleave on device 0" },
    { no_tokens, "is on no device, empty or of two samples" },
    { no_home, "block 2 of the plan is on no device, empty or of two samples" },
    { twice, "the plan computes blocks 1 and 0 twice, or without a pair" },
    { missing, "the plan has 4 works of 5" },
    { no_pair, "the plan computes blocks 2 and 1 twice, or without a pair" },
    { too_early, "device 1 of the plan does not have blocks 1 and 0 in division 0" },
    { other_device, "device 0 of the plan does not have blocks 1 and 1 in division 0" },
    { never_moved, "device 0 of the plan does not have blocks 0 and 1 in division 2" },
    { no_device, "device 2 of the plan does not have blocks 0 and 1" },
    { after_the_last, "device 0 of the plan does not have blocks 0 and 1 in division 3" },
    { sent_from_nowhere, "sends block 0 from device 1, which does not have it, or to device 0, which does" },
    { sent_to_its_home, "sends block 0 from device 0, which does not have it, or to device 0, which does" },
    { sent_twice, "sends block 0 from device 0, which does not have it, or to device 1, which does, in division 2" },
    { sent_after_the_last, "sends block 0 from device 0, which does not have it, or to device 1, which does, in" },
    { sent_to_no_device, "or to device -1, which does, in division 0" },
    { sent_no_block, "sends block 1048576 from device 0, which does not have it" },
    { sent_no_data, "sends block 0 from device 0, which does not have it, or to device 1, which does, in division 0" },
    { no_query, "does not have blocks -1048576 and" },
    { no_key, "and 1048576 in division" },
};

static void test_mistakes(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof mistakes / sizeof *mistakes; i++) {
        struct context_plan p = good();
        mistakes[i].change(&p);
        const enum error_code e = context_plan_finish(&p, &load, &err);
        if (e != ERR_PLAN || !strstr(err.text, mistakes[i].says))
            fail_msg("mistake %d: \"%s\" instead of \"%s\"", (int)i, e ? err.text : "accepted", mistakes[i].says);
        assert_null(p.block);
    }
}

/* ---- groups and rows --------------------------------------------------------------------------------------------- */

/* Three devices; the first two exchange heads for the first sample, the third has the second. */
static struct context_plan grouped(void)
{
    struct context_plan p = { .devices = 3, .divisions = 1, .tokens = 8 };
    context_add_block(&p, (struct interval){ 0, 3 }, (struct interval){ 0, 0 }, 0);
    context_add_block(&p, (struct interval){ 3, 3 }, (struct interval){ 0, 0 }, 1);
    context_add_block(&p, (struct interval){ 6, 2 }, (struct interval){ 0, 0 }, 2);
    context_add_group(&p, 0, 2), context_add_group(&p, 2, 1);
    return p;
}

static void overlap(struct context_plan *p) { p->group[1].first = 1; }
static void empty_group(struct context_plan *p) { p->group[1].devices = 0; }
static void too_few(struct context_plan *p) { p->group[0].devices = 1, p->group[1].first = 1; }
static void work_beside(struct context_plan *p) { context_add_work(p, (struct context_work){ 0, 0, 0, 0 }); }
static void two_groups(struct context_plan *p)
{
    p->group[0].devices = 1, p->group[1] = (struct context_group){ 1, 2 };
}

static const struct { void (*change)(struct context_plan *); const char *says; } wrong_groups[] = {
    { overlap, "group 1 of the plan does not begin at device 2" },
    { empty_group, "group 1 of the plan does not begin at device 2" },
    { too_few, "the plan's groups have 2 devices of 3, or work beside them" },
    { work_beside, "the plan's groups have 3 devices of 3, or work beside them" },
    { two_groups, "blocks 0 and 1 of the plan are one sample's, in two groups" },
};

static void hold_refused(struct context_plan p, const struct context_load *l, const char *says)
{
    const enum error_code e = context_plan_finish(&p, l, &err);
    if (e != ERR_PLAN || !strstr(err.text, says)) fail_msg("\"%s\" instead of \"%s\"", e ? err.text : "accepted", says);
}

static void test_groups(void **state)
{
    struct context_load l = load;
    struct context_plan p = grouped();
    (void)state;
    l.devices = 3;
    if (context_plan_finish(&p, &l, &err) != OK) fail_msg("refused: %s", err.text);
    for (int d = 0; d < 3; d++) assert_int_equal(context_group_of(&p, d), d / 2);
    context_plan_free(&p);
    for (size_t i = 0; i < sizeof wrong_groups / sizeof *wrong_groups; i++) {
        p = grouped();
        wrong_groups[i].change(&p);
        hold_refused(p, &l, wrong_groups[i].says);
    }
}

/* Device 1 has five tokens in attention; four rows on each outside. */
static void add_rows(struct context_plan *p)
{
    context_add_rows(p, (struct interval){ 5, 3 }, 0), context_add_rows(p, (struct interval){ 0, 1 }, 0);
    context_add_rows(p, (struct interval){ 1, 4 }, 1);
}

static void row_twice(struct context_plan *p) { p->row[1].tokens.count = 2; }
static void row_nowhere(struct context_plan *p) { p->row[0].tokens.count = 4; }
static void row_of_none(struct context_plan *p) { p->row[2].device = 2; }
static void row_missing(struct context_plan *p) { p->row[2].tokens.count = 3; }

static const struct { void (*change)(struct context_plan *); const char *says; } wrong_rows[] = {
    { row_twice, "rows of token 1 of the plan are on device 1 of 2, twice or in no block" },
    { row_nowhere, "rows of token 5 of the plan are on device 0 of 2, twice or in no block" },
    { row_of_none, "rows of token 1 of the plan are on device 2 of 2, twice or in no block" },
    { row_missing, "1 tokens of the plan have no row outside attention" },
};

static void test_rows(void **state)
{
    struct context_plan p = good();
    struct intervals own = { 0 };
    (void)state;
    add_rows(&p);
    if (context_plan_finish(&p, &load, &err) != OK) fail_msg("refused: %s", err.text);
    context_plan_tokens(&own, &p, 0);
    assert_int_equal(own.count, 2);
    assert_true(interval_equal(own.at[0], (struct interval){ 0, 1 }));
    assert_true(interval_equal(own.at[1], (struct interval){ 5, 3 }));
    intervals_free(&own), context_plan_free(&p);
    for (size_t i = 0; i < sizeof wrong_rows / sizeof *wrong_rows; i++) {
        p = good();
        add_rows(&p);
        wrong_rows[i].change(&p);
        hold_refused(p, &load, wrong_rows[i].says);
    }
}

/* What is passed on is there when it has come, not before. */
static void test_passing_on(void **state)
{
    const int64_t one[] = { 3 };
    const struct context_load l = { .length = one, .samples = 1, .tokens = 3, .devices = 3, .node = 3 };
    (void)state;
    for (int division = 0; division < 2; division++) {
        struct context_plan p = { .devices = 3, .divisions = 3, .tokens = 3 };
        context_add_block(&p, (struct interval){ 0, 3 }, (struct interval){ 0, 0 }, 0);
        for (enum context_data data = CONTEXT_QUERIES; data <= CONTEXT_KEYS; data++) {
            context_add_move(&p, (struct context_move){ data, 0, 0, 1, 0 });
            context_add_move(&p, (struct context_move){ data, 0, 1, 2, division });
        }
        context_add_work(&p, (struct context_work){ 0, 0, 2, 2 });
        assert_int_equal(context_plan_finish(&p, &l, &err), division ? OK : ERR_PLAN);
        context_plan_free(&p);
    }
}

/* ---- pairs ------------------------------------------------------------------------------------------------------- */

static bool has(const struct context_block *b, int64_t token)
{
    for (int i = 0; i < 2; i++)
        if (token >= b->tokens[i].first && token < interval_end(b->tokens[i])) return true;
    return false;
}

/* Every block of two ranges with every other, token by token. */
static void test_pairs(void **state)
{
    enum { N = 6, MOST = 200 };
    struct context_block block[MOST];
    int blocks = 0;
    (void)state;
    for (int64_t a = 0; a < N; a++)
        for (int64_t n = 1; a + n <= N; n++)
            for (int64_t b = a + n; b <= N; b++)
                for (int64_t m = b < N; b + m <= N && blocks < MOST; m++)
                    block[blocks++] = (struct context_block){ { { a, n }, { m ? b : 0, m } }, 0 };
    for (int q = 0; q < blocks; q++)
        for (int k = 0; k < blocks; k++) {
            int pairs = 0;
            for (int64_t i = 0; i < N; i++)
                for (int64_t j = 0; j <= i; j++) pairs += has(&block[q], i) && has(&block[k], j);
            if (context_pairs(&load, &block[q], &block[k]) != pairs)
                fail_msg("blocks %d and %d: not %d pairs", q, k, pairs);
        }
}

/* ---- digests ----------------------------------------------------------------------------------------------------- */

static struct sha256_text digest(struct context_plan p, const struct context_load *l)
{
    if (context_plan_finish(&p, l, &err) != OK) fail_msg("refused: %s", err.text);
    const struct sha256_text text = p.digest;
    context_plan_free(&p);
    return text;
}

/* Blocks, works and moves added from the last to the first. */
static void test_order(void **state)
{
    struct context_plan p = { .devices = 2, .divisions = 3, .tokens = 8 }, a = good();
    (void)state;
    for (int i = a.blocks - 1; i >= 0; i--)
        context_add_block(&p, a.block[i].tokens[0], a.block[i].tokens[1], a.block[i].home);
    for (int i = a.works - 1; i >= 0; i--) {
        const struct context_work w = a.work[i];
        context_add_work(&p, (struct context_work){ 2 - w.query, 2 - w.key, w.device, w.division });
    }
    for (int i = a.moves - 1; i >= 0; i--) {
        struct context_move m = a.move[i];
        m.block = 2 - m.block;
        context_add_move(&p, m);
    }
    assert_string_equal(digest(p, &load).text, digest(a, &load).text);
}

static void later(struct context_plan *p) { p->work[3].division = 2; }
static void moved_later(struct context_plan *p) { p->move[0].division = 1, p->work[3].division = 2; }
static void more_divisions(struct context_plan *p) { p->divisions = 4; }
static void more_moves(struct context_plan *p)
{
    context_add_move(p, (struct context_move){ CONTEXT_QUERIES, 2, 1, 0, 0 });
}
static void other_data(struct context_plan *p)
{
    context_add_move(p, (struct context_move){ CONTEXT_KEYS, 2, 1, 0, 0 });
}
static void by_proxies(struct context_plan *p) { p->proxies = 1; }
static void other_home(struct context_plan *p) { p->block[2].home = 0, p->work[2].device = 0; }
static void other_cut(struct context_plan *p)
{
    p->block[0].tokens[0].count = 3, p->block[1].tokens[0] = (struct interval){ 3, 2 };
}

/* Valid plans that differ in one number each. */
static void test_digests(void **state)
{
    void (*const change[])(struct context_plan *) = { NULL, later, moved_later, more_divisions, more_moves, other_data,
                                                      other_home, other_cut, add_rows, by_proxies };
    enum { N = sizeof change / sizeof *change };
    struct sha256_text text[N];
    (void)state;
    for (int i = 0; i < N; i++) {
        struct context_plan p = good();
        if (change[i]) change[i](&p);
        text[i] = digest(p, &load);
        for (int k = 0; k < i; k++)
            if (strcmp(text[i].text, text[k].text) == 0) fail_msg("plans %d and %d have one digest", k, i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_good_plan), cmocka_unit_test(test_mistakes),
                                        cmocka_unit_test(test_groups), cmocka_unit_test(test_rows),
                                        cmocka_unit_test(test_passing_on), cmocka_unit_test(test_pairs),
                                        cmocka_unit_test(test_order), cmocka_unit_test(test_digests) };
    return cmocka_run_group_tests_name("context_plan", tests, NULL, NULL);
}
