/* The plans of hdp: as many devices as a sample needs, balanced work, and bytes by formula.
 * tier: check
 *
 * Source  ByteScale, arXiv:2502.21231: with room for 8K tokens on a device, a sample of 1M tokens is on 128 devices,
 *         and one of 768K on 96, beside 32 samples of 8K on a device each.
 */
#include "tests/devices/planning.h"

enum { K = 1024 };

static struct context_plan plan_of(const struct context_load *l)
{
    const struct attention_scheme *s;
    assert_int_equal(attention_scheme_find(&s, "hdp", &err), OK);
    assert_true(s->plans_steps);
    return plan_by("hdp", l);
}

/* The devices that have tokens of the sample that begins at a token. */
static int devices_of(const struct context_plan *p, int64_t first, int64_t count)
{
    int n = 0;
    for (int b = 0; b < p->blocks; b++) {
        const int64_t token = p->block[b].tokens[0].first;
        n += token >= first && token < first + count;
    }
    return n;
}

static void test_published_examples(void **state)
{
    (void)state;
    int64_t length[33] = { 1024 * K };
    struct context_load l = load_of(length, 1, 128, 128);
    struct context_plan p = plan_of(&l);
    assert_int_equal(devices_of(&p, 0, 1024 * K), 128);
    context_plan_free(&p);

    length[0] = 768 * K;
    for (int i = 1; i < 33; i++) length[i] = 8 * K;
    l = load_of(length, 33, 128, 128);
    p = plan_of(&l);
    assert_int_equal(devices_of(&p, 0, 768 * K), 96);
    for (int i = 0; i < 32; i++) assert_int_equal(devices_of(&p, (768 + 8 * i) * K, 8 * K), 1);
    for (int d = 0; d < 128; d++) assert_int_equal(tokens_on(&p, d), 8 * K);
    context_plan_free(&p);
}

/* Of 32 layers 30 leave while the next one computes: with room for 2 layers of 16 times the tokens, 8 devices have 1M
 * of them.  Where a link to the host is slower than computing, half of the 30 leave: D = ceil((2 + 15)/32 * 128).  With
 * no time at all to copy, or where the sample has room on one device, nothing leaves. */
static void test_selective_offloading(void **state)
{
    static const struct { double overlapped, away; int devices; } cases[] = {
        { 3, 1, 8 }, { 0.51, 0.5, 68 }, { 1. / 31, 0, 128 },
    };
    (void)state;
    int64_t length[128] = { 1024 * K };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct context_load l = load_of(length, 1, 128, 128);
        const double layer = l.per_pair * (double)(1024 * K + 1) / 2 + l.per_token;     /* operations for a token */
        l.layers = 32, l.per_kept = layer / cases[i].overlapped;
        struct context_plan p = plan_of(&l);
        assert_int_equal(devices_of(&p, 0, 1024 * K), cases[i].devices);
        for (int d = 0; d < 128; d++)
            assert_true(fabs(p.away[d] - (d < cases[i].devices ? cases[i].away : 0)) < 1e-12);
        context_plan_free(&p);
    }
    for (int i = 0; i < 128; i++) length[i] = 8 * K;
    struct context_load l = load_of(length, 128, 128, 128);
    l.layers = 32, l.per_kept = 1e-3;
    struct context_plan p = plan_of(&l);
    for (int d = 0; d < 128; d++) assert_true(p.away[d] == 0);
    context_plan_free(&p);
}

/* With 20K tokens, 12 of 32 layers have room on one device with room for 8K, so 20 leave and not 30.  Of 9K tokens one
 * layer could be copied in time, which saves no device, so none leaves. */
static void test_least_that_leaves(void **state)
{
    (void)state;
    int64_t length[128] = { 20 * K, 4 * K };
    for (int i = 2; i < 127; i++) length[i] = 8 * K;
    struct context_load l = load_of(length, 127, 128, 128);
    l.layers = 32, l.per_kept = 1e-3;
    struct context_plan p = plan_of(&l);
    double most = 0;
    assert_int_equal(devices_of(&p, 0, 20 * K), 1);
    for (int d = 0; d < 128; d++) most = fmax(most, p.away[d]);
    if (fabs(most - 20. / 30) > 1e-12) fail_msg("%g of the layers leave", most);
    context_plan_free(&p);

    length[0] = 9 * K, length[1] = 7 * K;
    for (int i = 2; i < 128; i++) length[i] = 8 * K;
    l = load_of(length, 128, 128, 128);
    l.layers = 32, l.per_kept = (l.per_pair * (double)(9 * K + 1) / 2 + l.per_token) / (1.5 / 30);
    p = plan_of(&l);
    assert_int_equal(devices_of(&p, 0, 9 * K), 2);
    for (int d = 0; d < 128; d++)
        if (p.away[d] > 0) fail_msg("%g of the layers leave, which saves no device", p.away[d]);
    context_plan_free(&p);
}

/* The bytes of a plan are its moves' tokens times 2 K A; on a ring of D each token's keys go to D-1 devices. */
static void test_volume(void **state)
{
    (void)state;
    int64_t length[MOST_LENGTHS];
    for (uint64_t seed = 1; seed <= 20; seed++) {
        const int P = 8, samples = lognormal(length, 4096, seed);
        const struct context_load l = load_of(length, samples, P, P);
        struct context_plan p = plan_of(&l);
        int64_t moved = 0, formula = 0, statically = 0;
        for (int i = 0; i < p.moves; i++) moved += context_block_tokens(&p.block[p.move[i].block]);
        for (int64_t i = 0, C = (l.tokens + P - 1) / P; i < samples; i++)
            formula += length[i] * ((length[i] + C - 1) / C - 1), statically += length[i] * (P - 1);
        assert_int_equal(moved, formula);
        if (2 * moved > statically)
            fail_msg("seed %llu: %lld tokens' keys are moved, %lld on rings of all devices: not half as many",
                     (unsigned long long)seed, (long long)moved, (long long)statically);
        context_plan_free(&p);
    }
}

/* Whole samples on the device with the fewest tokens: what data parallelism does with packed rows. */
static double imbalance_by_tokens(const int64_t length[], int samples, int P)
{
    double pairs[16] = { 0 }, most = 0, sum = 0;
    int64_t tokens[16] = { 0 };
    for (int i = 0; i < samples; i++) {
        int d = 0;
        for (int k = 1; k < P; k++)
            if (tokens[k] < tokens[d]) d = k;
        tokens[d] += length[i], pairs[d] += (double)length[i] * (double)(length[i] + 1) / 2;
    }
    for (int d = 0; d < P; d++) most = fmax(most, pairs[d]), sum += pairs[d];
    return most * P / sum;
}

static void test_balance(void **state)
{
    (void)state;
    int64_t length[MOST_LENGTHS];
    double planned = 0, by_tokens = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        const int samples = lognormal(length, 4096, seed);
        const struct context_load l = load_of(length, samples, 8, 8);
        struct context_plan p = plan_of(&l);
        planned += imbalance(&p) / 20, by_tokens += imbalance_by_tokens(length, samples, 8) / 20;
        context_plan_free(&p);
    }
    if (planned > 0.75 * by_tokens)
        fail_msg("the busiest device has %.2f times the mean pairs; by tokens alone %.2f", planned, by_tokens);
}

/* Every device of a sample does the same work, to one part's rounding. */
static void test_equal_shares(void **state)
{
    (void)state;
    const int64_t length[] = { 960 };
    const struct context_load l = load_of(length, 1, 5, 5);
    struct context_plan p = plan_of(&l);
    for (int d = 0; d < 5; d++) assert_true(context_device_pairs(&p, d) == 960.0 * 961 / 2 / 5);
    context_plan_free(&p);
}

/* Samples of D to 2D tokens on D devices, some of which have one part. */
static void test_few_tokens(void **state)
{
    (void)state;
    for (int D = 1; D <= 8; D++)
        for (int64_t s = D; s <= 2 * D; s++) {
            const struct context_load l = load_of(&s, 1, D, D);
            struct context_plan p = plan_of(&l);
            double pairs = 0;
            for (int d = 0; d < D; d++) pairs += context_device_pairs(&p, d);
            assert_true(pairs == (double)(s * (s + 1) / 2));
            context_plan_free(&p);
        }
}

/* ---- the microbatches of a step ---------------------------------------------------------------------------------- */

enum { P = 8, M = 4 };

/* What a device does in a step: operations, and microbatches in which it has tokens. */
struct done { double busy[P]; int used[P]; };

/* Add a microbatch's plan, which is freed.  @return the most tokens of a device in it. */
static int64_t add_microbatch(struct done *s, const struct context_load *l, struct context_plan *p)
{
    int64_t most = 0;
    for (int d = 0; d < l->devices; d++) {
        const int64_t n = tokens_on(p, d);
        s->busy[d] += l->per_pair * context_device_pairs(p, d) + l->per_token * (double)n;
        s->used[d] += n > 0, most = n > most ? n : most;
    }
    context_plan_free(p);
    return most;
}

static double busiest_over_mean(const struct done *s)
{
    double most = 0, sum = 0;
    for (int d = 0; d < P; d++) most = fmax(most, s->busy[d]), sum += s->busy[d];
    return most * P / sum;
}

/* Each microbatch planned by itself, with the samples in the order of the data: as many tokens as a sample allows. */
static double one_by_one(const int64_t length[], const struct context_load *step)
{
    struct done s = { { 0 }, { 0 } };
    for (int m = 0, first = 0, end; m < M; m++, first = end) {
        int64_t tokens = 0;
        for (end = first; end < step->samples && (tokens < step->tokens / M || m == M - 1); end++)
            tokens += length[end];
        const struct context_load l = load_of(length + first, end - first, P, P);
        if (l.samples == 0) continue;
        struct context_plan p = plan_of(&l);
        add_microbatch(&s, &l, &p);
    }
    return busiest_over_mean(&s);
}

/* A step's samples are spread over its microbatches: each is in one, and the busiest device has less to do than if each
 * microbatch is planned by itself. */
static void test_microbatches(void **state)
{
    (void)state;
    double together = 0, alone = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        int64_t length[MOST_LENGTHS], tokens = 0;
        struct context_load l = load_of(length, lognormal(length, 8192, seed), P, P);
        struct done s = { { 0 }, { 0 } };
        l.micros = M;
        for (l.micro = 0; l.micro < M; l.micro++) {
            struct context_plan p = plan_of(&l);
            for (int b = 0; b < p.blocks; b++) tokens += context_block_tokens(&p.block[b]);
            const int64_t most = add_microbatch(&s, &l, &p), C = (l.tokens + P * M - 1) / (P * M);
            if (most > 3 * C) fail_msg("seed %d: %lld tokens on a device, C is %lld", (int)seed, (long long)most,
                                       (long long)C);
        }
        if (tokens != l.tokens) fail_msg("seed %d: %lld tokens of %lld", (int)seed, (long long)tokens,
                                         (long long)l.tokens);
        together += busiest_over_mean(&s) / 20, alone += one_by_one(length, &l) / 20;
    }
    if (together > 1.01 || together > alone)
        fail_msg("the busiest device does %.3f times the mean, %.3f if microbatches are planned one by one", together,
                 alone);
}

/* Devices run different numbers of microbatches: where attention is most of the work, samples on five and on three
 * devices leave the five little room for short ones.  Then all do the same, to a sample. */
static void test_different_numbers_of_microbatches(void **state)
{
    (void)state;
    int64_t length[34] = { 500, 300 };
    for (int i = 2; i < 34; i++) length[i] = 50;
    struct context_load l = load_of(length, 34, P, P);
    struct done s = { { 0 }, { 0 } };
    l.micros = 3, l.per_token = 0;
    for (l.micro = 0; l.micro < l.micros; l.micro++) {
        struct context_plan p = plan_of(&l);
        add_microbatch(&s, &l, &p);
    }
    int devices[4] = { 0 };
    for (int d = 0; d < P; d++) devices[s.used[d]]++;
    if (devices[3] != 3 || devices[2] != 5)
        fail_msg("%d devices use 3 microbatches and %d use 2, not 3 and 5", devices[3], devices[2]);
    if (busiest_over_mean(&s) > 1.01) fail_msg("the busiest device does %.3f times the mean", busiest_over_mean(&s));
}

/* Three sequences with two samples each, in three microbatches; tests/cli/test_packing.sh trains such a step. */
static void test_small_step(void **state)
{
    (void)state;
    const int64_t length[] = { 18, 14, 18, 14, 18, 14 };
    struct context_load l = load_of(length, 6, 4, 4);
    struct done s = { { 0 }, { 0 } };
    l.micros = 3;
    for (l.micro = 0; l.micro < l.micros; l.micro++) {
        struct context_plan p = plan_of(&l);
        add_microbatch(&s, &l, &p);
    }
    const int used[] = { 2, 3, 3, 2 };
    for (int d = 0; d < 4; d++) assert_int_equal(s.used[d], used[d]);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_published_examples),
        cmocka_unit_test(test_selective_offloading),
                                        cmocka_unit_test(test_least_that_leaves), cmocka_unit_test(test_volume),
                                        cmocka_unit_test(test_balance), cmocka_unit_test(test_equal_shares),
                                        cmocka_unit_test(test_few_tokens), cmocka_unit_test(test_microbatches),
                                        cmocka_unit_test(test_different_numbers_of_microbatches),
                                        cmocka_unit_test(test_small_step) };
    return cmocka_run_group_tests_name("hdp", tests, NULL, NULL);
}
