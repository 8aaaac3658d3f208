/* A replica's schedule: traces whose iterations were worked out by hand, blocks that are counted at every iteration,
 * prefixes from the cache, preemption, and drawn traces in which no sequence starves and no block is lost.
 * tier: check
 */
#include "emulated_devices/serve/scheduler.h"
#include "ref/numeric/philox.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct error err;

/* "A8 B6": the pieces of an iteration, by the letters of their sequences. */
static const char *pieces_of(const struct iteration *now)
{
    static char text[400];
    int used = 0;
    text[0] = '\0';
    for (int64_t i = 0; i < now->pieces; i++)
        used += snprintf(text + used, sizeof text - (size_t)used, "%s%c%d", i ? " " : "",
                         (char)('A' + now->piece[i].of->number), (int)now->piece[i].count);
    return text;
}

/* Sampled tokens are numbers that no prompt has. */
static void take(struct scheduler *s)
{
    int32_t token[64];
    for (int i = 0; i < 64; i++) token[i] = 1000 + (int32_t)s->counts.iterations * 64 + i;
    if (scheduler_take(s, token, &err) != OK) fail_msg("iteration %d: %s", (int)s->counts.iterations, err.text);
}

static struct sequence *add(struct scheduler *s, int number, const int32_t *prompt, int count, int most)
{
    struct sequence *const q = sequence_new(number, prompt, count, &(struct answer_end){ .most = most },
                                            s->limits.block_tokens);
    assert_non_null(q);
    scheduler_add(s, q);
    return q;
}

static void expect(struct scheduler *s, const char *pieces, int free)
{
    const struct iteration *const now = scheduler_plan(s);
    if (strcmp(pieces_of(now), pieces) != 0)
        fail_msg("iteration %d has %s; it must have %s", (int)s->counts.iterations, pieces_of(now), pieces);
    take(s);
    if (s->pool.free != free)
        fail_msg("after iteration %d %d blocks are free; there must be %d", (int)s->counts.iterations,
                 (int)s->pool.free, free);
}

static void fill(int32_t *token, int count, int first) { for (int i = 0; i < count; i++) token[i] = first + i; }

static struct serving_limits limits(int blocks, int tokens, bool shares)
{
    return (struct serving_limits){ .step_tokens = tokens, .running = 8, .blocks = blocks, .block_tokens = 4,
                                    .shares = shares };
}

/* Blocks of 4 tokens, 5 of them, 8 tokens an iteration: prompts of 10, 6 and 5 tokens, answers of 6, 6 and 2.  B loses
 * its blocks in iteration 5, and computes its prompt and three tokens of its answer again from iteration 8 on. */
static void test_preemption_by_hand(void **state)
{
    (void)state;
    static const struct { const char *pieces; int free; } by_hand[] = {
        { "A8", 3 }, { "A2 B6", 0 }, { "A1 B1", 0 }, { "A1 B1", 0 }, { "A1", 1 }, { "A1", 1 }, { "A1", 5 },
        { "B8", 3 }, { "B1 C5", 0 }, { "B1 C1", 2 }, { "B1", 5 },
    };
    struct scheduler s;
    struct sequence *q[3];
    const int prompt[] = { 10, 6, 5 }, answer[] = { 6, 6, 2 };
    int32_t token[16];
    const struct serving_limits l = limits(5, 8, false);
    assert_int_equal(scheduler_open(&s, &l, &err), OK);
    for (int i = 0; i < 3; i++) fill(token, prompt[i], 100 * i), q[i] = add(&s, i, token, prompt[i], answer[i]);
    for (size_t i = 0; i < sizeof by_hand / sizeof *by_hand; i++) expect(&s, by_hand[i].pieces, by_hand[i].free);
    assert_true(scheduler_idle(&s));
    for (int i = 0; i < 3; i++) assert_int_equal(q[i]->count, prompt[i] + answer[i]);
    assert_int_equal(q[1]->preempted, 1);
    assert_int_equal(s.counts.preemptions, 1);
    assert_int_equal(s.counts.most_blocks, 5);
    for (int i = 0; i < 3; i++) sequence_free(q[i]);
    scheduler_close(&s);
}

/* Three prompts with the same first 8 tokens: two are found in the cache while the first is still computed.  C is A's
 * prompt, and computes its last block again, because its last token's logits are wanted. */
static void test_prefixes_by_hand(void **state)
{
    (void)state;
    struct scheduler s;
    struct sequence *q[3];
    int32_t token[12];
    const struct serving_limits l = limits(11, 8, true);
    assert_int_equal(scheduler_open(&s, &l, &err), OK);
    fill(token, 12, 0);
    q[0] = add(&s, 0, token, 12, 2);
    token[8] = 50, token[9] = 51;
    q[1] = add(&s, 1, token, 10, 2);
    fill(token, 12, 0);
    q[2] = add(&s, 2, token, 12, 2);
    expect(&s, "A8", 9);
    expect(&s, "A4 B2 C2", 6);
    expect(&s, "A1 B1 C2", 8);
    expect(&s, "C1", 11);
    assert_int_equal(q[1]->shared, 8), assert_int_equal(q[2]->shared, 8);
    assert_int_equal(s.counts.shared_tokens, 16), assert_int_equal(s.counts.prompt_tokens, 34);
    /* Freed blocks stay, and are found again; a prompt that differs in its first token shares nothing. */
    for (int i = 0; i < 3; i++) sequence_free(q[i]);
    q[0] = add(&s, 0, token, 12, 1);
    token[0] = 99;
    q[1] = add(&s, 1, token, 12, 1);
    expect(&s, "A4 B4", 10);
    assert_int_equal(q[1]->shared, 0);
    for (int i = 0; i < 2; i++) sequence_free(q[i]);
    scheduler_close(&s);
}

/* Two prompts, [1 1 1 1 2 2 2 2 0] and [3 3 3 3 4 4 4 4 0], leave their blocks in the cache.  Of [1 1 1 1 4 4 4 4 0] it
 * has the first block alone: the second one's tokens are there, but behind others. */
static void test_equal_blocks_behind_others(void **state)
{
    (void)state;
    static const int32_t prompt[3][9] = { { 1, 1, 1, 1, 2, 2, 2, 2, 0 }, { 3, 3, 3, 3, 4, 4, 4, 4, 0 },
                                          { 1, 1, 1, 1, 4, 4, 4, 4, 0 } };
    struct scheduler s;
    struct sequence *q[3];
    const struct serving_limits l = limits(11, 20, true);
    assert_int_equal(scheduler_open(&s, &l, &err), OK);
    for (int i = 0; i < 2; i++) q[i] = add(&s, i, prompt[i], 9, 1);
    expect(&s, "A9 B9", 11);
    q[2] = add(&s, 2, prompt[2], 9, 1);
    expect(&s, "C5", 11);
    assert_int_equal(q[2]->shared, 4);
    for (int i = 0; i < 3; i++) sequence_free(q[i]);
    scheduler_close(&s);
}

/* A prompt waits until it fits whole; a chunk bounds what one sequence computes. */
static void test_chunks(void **state)
{
    (void)state;
    struct scheduler s;
    struct sequence *q[2];
    int32_t token[16];
    struct serving_limits l = limits(20, 8, false);
    l.whole_prompts = true;
    assert_int_equal(scheduler_open(&s, &l, &err), OK);
    fill(token, 16, 0);
    q[0] = add(&s, 0, token, 5, 2), q[1] = add(&s, 1, token, 7, 1);
    expect(&s, "A5", 18), expect(&s, "A1 B7", 20);
    for (int i = 0; i < 2; i++) sequence_free(q[i]);
    scheduler_close(&s);

    l.whole_prompts = false, l.chunk = 3;
    assert_int_equal(scheduler_open(&s, &l, &err), OK);
    q[0] = add(&s, 0, token, 7, 2), q[1] = add(&s, 1, token, 7, 1);
    expect(&s, "A3 B3", 18), expect(&s, "A3 B3", 16), expect(&s, "A1 B1", 18), expect(&s, "A1", 20);
    for (int i = 0; i < 2; i++) sequence_free(q[i]);
    scheduler_close(&s);
}

/* A stop token ends an answer, and belongs to it. */
static void test_stop(void **state)
{
    (void)state;
    struct scheduler s;
    const int32_t prompt[] = { 1, 2, 3 }, stop[] = { 7, 8 };
    const struct serving_limits l = limits(4, 8, true);
    assert_int_equal(scheduler_open(&s, &l, &err), OK);
    struct sequence *const q = sequence_new(0, prompt, 3, &(struct answer_end){ 9, stop, 2 }, 4);
    scheduler_add(&s, q);
    for (int32_t token = 6; !scheduler_idle(&s); token++) {
        scheduler_plan(&s);
        assert_int_equal(scheduler_take(&s, &token, &err), OK);
    }
    assert_int_equal(q->finish, FINISH_STOP), assert_int_equal(q->count, 5), assert_int_equal(q->token[4], 7);
    sequence_free(q);
    scheduler_close(&s);
}

static int64_t drawn(const char *what, int64_t i, int64_t most)
{
    return 1 + (int64_t)(random_uniform(11, random_stream(what), (uint64_t)i) * (double)most);
}

/* Prompts of few different tokens, so that prefixes meet; a small cache, so that sequences are preempted.  The
 * tokens depend on what is before them alone, as a model's do: an answer must not change by a preemption. */
static int32_t next_of(const struct sequence *q) { return (int32_t)((q->token[q->count - 1] * 5 + q->count) % 3); }

static void run_drawn(struct serving_limits l, int64_t *preempted, int64_t *shared)
{
    enum { SEQUENCES = 60 };
    struct sequence *q[SEQUENCES];
    struct scheduler s;
    int64_t came = 0, iterations = 0;
    assert_int_equal(scheduler_open(&s, &l, &err), OK);
    while (came < SEQUENCES || !scheduler_idle(&s)) {
        int32_t prompt[40], token[16];
        for (int n = 0; n < 2 && came < SEQUENCES; n++, came++) {
            const int64_t count = drawn("prompt", came, 20), most = drawn("answer", came, 12);
            for (int64_t i = 0; i < count; i++) prompt[i] = i < 6 ? 0 : (int32_t)drawn("token", came * 50 + i, 2);
            q[came] = add(&s, (int)came, prompt, (int)count, (int)most);
        }
        const struct iteration *const now = scheduler_plan(&s);
        assert_true(now->tokens > 0 && now->tokens <= l.step_tokens);
        for (int64_t i = 0, n = 0; i < now->pieces; i++)
            if (now->piece[i].samples) token[n++] = next_of(now->piece[i].of);
        assert_int_equal(scheduler_take(&s, token, &err), OK);
        if (++iterations > 20000) fail_msg("sequences starve");
    }
    for (int64_t i = 0; i < SEQUENCES; i++) {
        int32_t token = 0;
        assert_int_equal(q[i]->count, q[i]->prompt + q[i]->end.most);
        for (int64_t at = q[i]->prompt; at < q[i]->count; at++) {
            token = (int32_t)((q[i]->token[at - 1] * 5 + at) % 3);
            assert_int_equal(q[i]->token[at], token);
        }
        sequence_free(q[i]);
    }
    assert_int_equal(s.pool.free, l.blocks);
    *preempted += s.counts.preemptions, *shared += s.counts.shared_tokens;
    scheduler_close(&s);
}

static void test_drawn_traces(void **state)
{
    (void)state;
    int64_t preempted = 0, shared = 0;
    for (int shares = 0; shares < 2; shares++)
        for (int chunk = 0; chunk < 6; chunk += 5)
            for (int blocks = 9; blocks < 40; blocks += 10)
                for (int tokens = 7; tokens < 40; tokens += 16) {
                    struct serving_limits l = limits(blocks, tokens, shares);
                    l.chunk = chunk;
                    run_drawn(l, &preempted, &shared);
                }
    assert_true(preempted > 100);
    assert_true(shared > 100);
}

/* The checks see what is wrong: a block that is released twice, and one that nobody releases. */
static void test_checks_see(void **state)
{
    (void)state;
    struct scheduler s;
    int32_t token[12];
    const struct serving_limits l = limits(11, 8, true);
    assert_int_equal(scheduler_open(&s, &l, &err), OK);
    fill(token, 12, 0);
    struct sequence *const q = add(&s, 0, token, 12, 2);
    scheduler_plan(&s);
    assert_int_equal(scheduler_check(&s, &err), OK);
    blocks_release(&s.pool, q->block, 1);
    assert_int_equal(scheduler_check(&s, &err), ERR_INTERNAL);
    assert_non_null(strstr(err.text, "sequences have 2 blocks in their lists; the cache counts 1"));
    block_use(&s.pool, q->block[0]), block_use(&s.pool, q->block[0]);
    assert_int_equal(scheduler_check(&s, &err), ERR_INTERNAL);
    s.pool.users[q->block[0]]--, s.pool.uses--;
    s.pool.free++;
    assert_int_equal(scheduler_check(&s, &err), ERR_INTERNAL);
    assert_non_null(strstr(err.text, "the cache counts 10 free blocks"));
    s.pool.free--, s.pool.users[q->block[1]]++;
    assert_int_equal(scheduler_check(&s, &err), ERR_INTERNAL);
    assert_non_null(strstr(err.text, "sequences use blocks of the cache 3 times; it counts 2"));
    sequence_free(q);
    scheduler_close(&s);
}

/* Planned ahead, a sequence runs once more behind its stop token; not behind the last token that it asked for.  One
 * that loses its blocks meanwhile does not begin again. */
static void test_ahead_by_hand(void **state)
{
    (void)state;
    static const int32_t stop[] = { 9 }, told[][2] = { { 1, 1 }, { 9, 1 }, { 7, 9 }, { 5, 5 } };
    struct serving_limits l = limits(20, 30, false);
    struct scheduler s;
    struct sequence *q[2];
    int32_t prompt[8];
    fill(prompt, 8, 100);
    l.ahead = true;
    assert_int_equal(scheduler_open(&s, &l, &err), OK);
    for (int i = 0; i < 2; i++) {
        q[i] = sequence_new(i, prompt, 4, &(struct answer_end){ .most = i ? 3 : 6, .stop = stop, .stops = 1 }, 4);
        scheduler_add(&s, q[i]);
    }
    static const char *const pieces[] = { "A4 B4", "A1 B1", "A1 B1" };
    for (int i = 0; i < 3; i++) {
        const struct iteration *const now = scheduler_plan(&s);
        if (strcmp(pieces_of(now), pieces[i]) != 0) fail_msg("iteration %d has %s", i + 1, pieces_of(now));
        assert_int_equal(scheduler_take(&s, told[i], &err), OK);
        assert_int_equal(now->ends, i == 2 ? 2 : 0);
    }
    /* A has stopped with 9 and thrown 7 away; B's 9 is its last token in any case. */
    assert_int_equal(q[0]->count, 6), assert_int_equal(q[0]->token[5], 9), assert_int_equal(q[0]->finish, FINISH_STOP);
    assert_int_equal(q[1]->count, 7), assert_int_equal(s.counts.wasted, 1), assert_int_equal(s.pool.free, 20);
    sequence_free(q[0]), sequence_free(q[1]);
    scheduler_close(&s);
}

static void test_ahead_without_room(void **state)
{
    (void)state;
    static const int32_t stop[] = { 9 }, told[][2] = { { 1, 1 }, { 1, 9 }, { 1, 1 } };
    struct serving_limits l = limits(4, 30, false);
    struct scheduler s;
    struct sequence *q[2];
    int32_t prompt[8];
    fill(prompt, 8, 100);
    l.ahead = true, l.host_blocks = 4;
    assert_int_equal(scheduler_open(&s, &l, &err), OK);
    for (int i = 0; i < 2; i++) {
        q[i] = sequence_new(i, prompt, 7, &(struct answer_end){ .most = 6, .stop = stop, .stops = 1 }, 4);
        scheduler_add(&s, q[i]);
    }
    static const char *const pieces[] = { "A7 B7", "A1 B1", "A1" };
    for (int i = 0; i < 3; i++) {
        const struct iteration *const now = scheduler_plan(&s);
        if (strcmp(pieces_of(now), pieces[i]) != 0) fail_msg("iteration %d has %s", i + 1, pieces_of(now));
        if (scheduler_take(&s, told[i], &err) != OK) fail_msg("iteration %d: %s", i + 1, err.text);
        assert_int_equal(now->ends, i == 2);
    }
    assert_int_equal(q[1]->finish, FINISH_STOP), assert_int_equal(q[1]->count, 9);
    assert_int_equal(s.counts.wasted, 0), assert_null(s.waiting);
    assert_int_equal(s.counts.outs, 2);
    if (s.host.free != l.host_blocks)
        fail_msg("an answer that has ended has %d blocks of the host", (int)(l.host_blocks - s.host.free));
    sequence_free(q[0]), sequence_free(q[1]);
    scheduler_close(&s);
}

/* A request that nobody wants any more leaves its blocks, whether it runs, waits, or lies on the host. */
static void test_drop(void **state)
{
    struct serving_limits few = limits(4, 4, false);
    struct scheduler s;
    int32_t prompt[6];
    (void)state;
    few.host_blocks = 4;
    fill(prompt, 6, 0);
    assert_int_equal(scheduler_open(&s, &few, &err), OK);
    struct sequence *const a = add(&s, 0, prompt, 6, 8), *const b = add(&s, 1, prompt, 6, 8),
                    *const c = add(&s, 2, prompt, 6, 8);
    for (int i = 0; i < 8 && s.host.free == few.host_blocks; i++) scheduler_plan(&s), take(&s);
    if (s.host.free == few.host_blocks) fail_msg("nobody was sent to the host");
    scheduler_drop(&s, b), scheduler_drop(&s, c);
    if (scheduler_check(&s, &err) != OK || s.host.free != few.host_blocks) fail_msg("after two left: %s", err.text);
    scheduler_drop(&s, a);
    if (s.pool.free != few.blocks)
        fail_msg("%d blocks are free after a request was dropped; there must be %d", (int)s.pool.free, (int)few.blocks);
    if (!scheduler_idle(&s)) fail_msg("somebody waits");
    sequence_free(a), sequence_free(b), sequence_free(c);
    scheduler_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_preemption_by_hand), cmocka_unit_test(test_prefixes_by_hand),
        cmocka_unit_test(test_equal_blocks_behind_others),
        cmocka_unit_test(test_chunks), cmocka_unit_test(test_stop), cmocka_unit_test(test_drawn_traces),
        cmocka_unit_test(test_ahead_by_hand), cmocka_unit_test(test_ahead_without_room),
        cmocka_unit_test(test_checks_see), cmocka_unit_test(test_drop),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
