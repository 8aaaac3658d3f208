/* Proposed tokens by themselves: both rules keep the model's distribution, by sums over all cases and by drawing; the
 * chance of being taken by its formulas; n-grams, and a replica's schedule with proposals, worked out by hand.
 * tier: check
 */
#include "emulated_devices/serve/proposer.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static struct error err;

enum { V = 4, DRAWS = 40000 };

static const double p[V] = { 0.5, 0.3, 0.15, 0.05 }, q[V] = { 0.2, 0.5, 0.2, 0.1 };
static const enum proposal_rule rules[] = { RULE_SAME, RULE_RATIO };

#define near(a, b) assert_true(fabs((a) - (b)) < 1e-12)

/* ---- rules ------------------------------------------------------------------------------------------------------- */

/* sum min(p, q) = 0.2 + 0.3 + 0.15 + 0.05.  Parts of [0,1): p has 0, 0.5, 0.8, 0.95, 1 and q 0, 0.2, 0.7, 0.9, 1; they
 * overlap in 0.2, 0.2, 0.1 and 0.05. */
static void test_chances_by_hand(void **state)
{
    (void)state;
    near(proposal_chance(RULE_RATIO, p, V, (struct proposal){ 0, q }), 0.7);
    near(proposal_chance(RULE_SAME, p, V, (struct proposal){ 0, q }), 0.55);
    near(proposal_chance(RULE_SAME, p, V, (struct proposal){ 2, p }), 1);
    near(proposal_chance(RULE_RATIO, p, V, (struct proposal){ 2, NULL }), 0.15);
    near(proposal_chance(RULE_SAME, p, V, (struct proposal){ 1, NULL }), 0.3);
    /* (1 - a^(g+1)) / (1 - a) */
    near(proposal_tokens(0.6, 1), 1.6), near(proposal_tokens(0.7, 3), 2.533), near(proposal_tokens(0.8, 4), 3.3616);
    near(proposal_tokens(0.9, 2), 2.71), near(proposal_tokens(1, 5), 6), near(proposal_tokens(0, 5), 1);
}

/* Only token 0 is more probable to the model than to the proposer: it stands where a proposal is refused. */
static void test_the_rest_by_hand(void **state)
{
    (void)state;
    double room[V];
    const struct { int32_t x; double take, draw; int32_t token; } cases[] = {
        { 1, 0.59, 0.99, 1 }, { 1, 0.61, 0.99, 0 }, { 3, 0.49, 0.0, 3 }, { 3, 0.51, 0.99, 0 }, { 0, 0.9999, 0.5, 0 },
        { NO_PROPOSAL, 0, 0.79, 1 }, { NO_PROPOSAL, 0, 0.81, 2 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct place_numbers u = { cases[i].draw, cases[i].take, 0 };
        assert_int_equal(proposal_settle(RULE_RATIO, p, V, (struct proposal){ cases[i].x, q }, &u, room),
                         cases[i].token);
    }
    /* A certain proposal 1 is taken with 0.3; else tokens 0, 2 and 3 stand there with 5/7, 1.5/7 and 0.5/7. */
    const struct place_numbers taken = { 0.2, 0.29, 0 }, refused = { 5. / 7 + 1e-9, 0.31, 0 };
    assert_int_equal(proposal_settle(RULE_RATIO, p, V, (struct proposal){ 1, NULL }, &taken, room), 1);
    assert_int_equal(proposal_settle(RULE_RATIO, p, V, (struct proposal){ 1, NULL }, &refused, room), 2);
    /* Equal distributions leave nothing; a number that rounding has put beyond 1 takes the proposal. */
    const struct place_numbers beyond = { 0.5, 1, 0 };
    assert_int_equal(proposal_settle(RULE_RATIO, p, V, (struct proposal){ 2, p }, &beyond, room), 2);
}

/* How often each token stands at a place, over many seeds, and how often the proposal was taken. */
static void draw_many(enum proposal_rule rule, bool certain, int64_t place, int64_t count[V], int64_t *taken)
{
    double room[V];
    memset(count, 0, V * sizeof *count);
    *taken = 0;
    for (uint64_t seed = 0; seed < DRAWS; seed++) {
        const struct place_numbers u = place_numbers_of(seed, place);
        const struct proposal x = { certain ? 1 : sampling_draw(q, V, proposal_number(rule, &u)), certain ? NULL : q };
        const int32_t token = proposal_settle(rule, p, V, x, &u, room);
        count[token]++, *taken += token == x.token;
        if (rule == RULE_SAME) assert_int_equal(token, sampling_draw(p, V, u.draw));
    }
}

/* Pearson's statistic has 3 degrees of freedom: it is above 21.1 once in 10,000 times. */
static void test_the_distribution_stays(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        const enum proposal_rule rule = rules[i % 2];
        const bool certain = i >= 2;
        int64_t count[V], taken;
        double statistic = 0;
        draw_many(rule, certain, i, count, &taken);
        for (int v = 0; v < V; v++) {
            const double expected = DRAWS * p[v], off = (double)count[v] - expected;
            statistic += off * off / expected;
        }
        if (statistic > 21.1) fail_msg("rule %d: tokens are not the model's: chi-square %.1f", (int)rule, statistic);
        const double chance = proposal_chance(rule, p, V, (struct proposal){ 1, certain ? NULL : q });
        const double deviation = sqrt(DRAWS * chance * (1 - chance)), off = (double)taken - DRAWS * chance;
        if (fabs(off) > 4 * deviation)
            fail_msg("rule %d: %d of %d proposals were taken; the formula says %.1f +- %.1f", (int)rule, (int)taken,
                     DRAWS, DRAWS * chance, deviation);
    }
}

/* ---- n-grams ----------------------------------------------------------------------------------------------------- */

static int64_t find(const char *text, int64_t longest, int64_t *place)
{
    int32_t token[32];
    const int64_t n = (int64_t)strlen(text);
    for (int64_t i = 0; i < n; i++) token[i] = text[i];
    return ngram_find(token, n, longest, place);
}

static void test_ngrams_by_hand(void **state)
{
    (void)state;
    static const struct { const char *text; int longest, place; } cases[] = {
        { "abcdab", 3, 2 },             /* cdab follow ab */
        { "abxcbyab", 2, 2 },           /* ab at 0, not the nearer b at 4 */
        { "abxcbyab", 1, 5 },           /* of one token alone the nearer b */
        { "abab", 3, 2 },               /* a run that overlaps its own end */
        { "aaaa", 3, 3 },
        { "abc", 3, 3 },                /* c is new */
        { "a", 3, 1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int64_t place;
        const int64_t found = find(cases[i].text, cases[i].longest, &place);
        if (place != cases[i].place || found != (int64_t)strlen(cases[i].text) - place)
            fail_msg("in %s, %d tokens: place %d, not %d", cases[i].text, cases[i].longest, (int)place, cases[i].place);
    }
}

/* ---- the schedule ------------------------------------------------------------------------------------------------ */

static void expect(struct scheduler *s, const char *pieces)
{
    const struct iteration *const now = scheduler_plan(s);
    char text[200] = "";
    int used = 0;
    for (int64_t i = 0; i < now->pieces; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%s%c%d/%d", i ? " " : "",
                         (char)('A' + now->piece[i].of->number), (int)now->piece[i].count,
                         (int)now->piece[i].proposals);
    if (strcmp(text, pieces) != 0)
        fail_msg("iteration %d has %s; it must have %s", (int)s->counts.iterations, text, pieces);
}

static void take(struct scheduler *s, const struct taken_tokens *taken)
{
    if (scheduler_take_proposed(s, taken, &err) != OK)
        fail_msg("iteration %d: %s", (int)s->counts.iterations, err.text);
}

/* Blocks of 4 tokens, 5 of them, 9 tokens an iteration.  Refused proposals are computed again; nobody loses a block for
 * a proposal; a stop token among those taken ends the answer. */
static void test_schedule_by_hand(void **state)
{
    (void)state;
    static const int32_t prompt[] = { 1, 2, 3, 4, 5 }, x[] = { 10, 11, 12, 13 }, y[] = { 20, 21, 9, 22 },
                         stop[] = { 9 };
    const struct serving_limits limits = { .step_tokens = 9, .running = 4, .shares = true, .blocks = 5,
                                           .block_tokens = 4 };
    struct scheduler s;
    struct sequence *const a = sequence_new(0, prompt, 5, &(struct answer_end){ .most = 8 }, 4),
                    *const b = sequence_new(1, x, 3, &(struct answer_end){ .most = 8, .stop = stop, .stops = 1 }, 4);
    assert_int_equal(scheduler_open(&s, &limits, &err), OK);
    scheduler_add(&s, a);
    expect(&s, "A5/0");
    take(&s, &(struct taken_tokens){ x, 1, x + 1, 3 });
    expect(&s, "A4/3");                                 /* places 5 to 8: three blocks */
    assert_int_equal(s.pool.free, 2);
    take(&s, &(struct taken_tokens){ x + 1, 2, x, 2 });         /* one of three was taken */
    assert_int_equal(a->count, 8), assert_int_equal(a->computed, 7);
    assert_int_equal(a->token[6], 11), assert_int_equal(a->token[7], 12);
    scheduler_add(&s, b);
    expect(&s, "A3/2 B3/0");
    take(&s, (struct taken_tokens[]){ { y, 1, x, 4 }, { y, 1, y + 1, 3 } });
    assert_int_equal(a->computed, 8);
    /* Places 8 to 12 need a fourth block: A has it.  B needs a second for its proposals, and has it not. */
    expect(&s, "A5/4 B1/0");
    assert_int_equal(s.pool.free, 0), assert_int_equal(s.counts.preemptions, 0);
    take(&s, (struct taken_tokens[]){ { x, 4, NULL, 0 }, { y + 1, 1, y + 2, 2 } });
    assert_int_equal(a->finish, FINISH_LENGTH), assert_int_equal(a->count, 13);
    expect(&s, "B3/2");
    take(&s, &(struct taken_tokens){ y + 2, 2, NULL, 0 });
    assert_int_equal(b->finish, FINISH_STOP), assert_int_equal(b->count, 6), assert_int_equal(b->token[5], 9);
    assert_int_equal(s.pool.free, 5);
    sequence_free(a), sequence_free(b);
    scheduler_close(&s);
}

/* A block with a proposal cannot be found: another token may come to stand there. */
static void test_proposals_are_not_shared(void **state)
{
    (void)state;
    static const int32_t prompt[] = { 1, 2, 3 }, next[] = { 4, 5, 6, 7, 8 }, same[] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };
    const struct serving_limits limits = { .step_tokens = 20, .running = 4, .shares = true, .blocks = 9,
                                           .block_tokens = 4 };
    struct scheduler s;
    struct sequence *const a = sequence_new(0, prompt, 3, &(struct answer_end){ .most = 9 }, 4),
                    *const b = sequence_new(1, same, 9, &(struct answer_end){ .most = 1 }, 4);
    assert_int_equal(scheduler_open(&s, &limits, &err), OK);
    scheduler_add(&s, a);
    expect(&s, "A3/0");
    take(&s, &(struct taken_tokens){ next, 1, next + 1, 4 });
    scheduler_add(&s, b);
    /* Tokens 1 to 4 are A's own; 5 to 8 are proposed. */
    expect(&s, "A5/4 B5/0");
    sequence_free(a), sequence_free(b);
    scheduler_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_chances_by_hand), cmocka_unit_test(test_the_rest_by_hand),
        cmocka_unit_test(test_the_distribution_stays), cmocka_unit_test(test_ngrams_by_hand),
        cmocka_unit_test(test_schedule_by_hand), cmocka_unit_test(test_proposals_are_not_shared),
    };
    return cmocka_run_group_tests_name("proposals", tests, NULL, NULL);
}
