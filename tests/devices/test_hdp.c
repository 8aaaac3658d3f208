/* The plans of hdp: as many devices as a sample needs, balanced work, and bytes by formula.
 * tier: check
 *
 * Source  ByteScale, arXiv:2502.21231: with room for 8K tokens on a device, a sample of 1M tokens is on 128 devices,
 *         and one of 768K on 96, beside 32 samples of 8K on a device each.
 */
#include "emulated_devices/schemes/attention/planned.h"
#include "emulated_devices/schemes/scheme.h"
#include "ref/numeric/philox.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

enum { K = 1024, MOST = 4096 };

static struct error err;

static struct context_load load_of(const int64_t length[], int samples, int devices)
{
    struct context_load l = { .length = length, .samples = samples, .devices = devices, .node = devices,
                              .query_width = 1, .key_width = 2, .per_pair = 4, .per_token = 24 * 64 };
    for (int i = 0; i < samples; i++) l.tokens += length[i];
    return l;
}

static struct context_plan plan_of(const struct context_load *l)
{
    const struct attention_scheme *s;
    struct context_plan p;
    assert_int_equal(attention_scheme_find(&s, "hdp", &err), OK);
    if (s->plan(&p, l, &err) != OK) fail_msg("hdp does not plan: %s", err.text);
    return p;
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
    struct context_load l = load_of(length, 1, 128);
    struct context_plan p = plan_of(&l);
    assert_int_equal(devices_of(&p, 0, 1024 * K), 128);
    context_plan_free(&p);

    length[0] = 768 * K;
    for (int i = 1; i < 33; i++) length[i] = 8 * K;
    l = load_of(length, 33, 128);
    p = plan_of(&l);
    assert_int_equal(devices_of(&p, 0, 768 * K), 96);
    for (int i = 0; i < 32; i++) assert_int_equal(devices_of(&p, (768 + 8 * i) * K, 8 * K), 1);
    for (int d = 0; d < 128; d++) {
        struct intervals tokens = { 0 };
        context_plan_tokens(&tokens, &p, d);
        assert_int_equal(intervals_total(&tokens), 8 * K);
        intervals_free(&tokens);
    }
    context_plan_free(&p);
}

/* Lengths with a long tail, as many as fill `tokens`. */
static int lognormal(int64_t length[], int64_t tokens, uint64_t seed)
{
    double normal[MOST];
    int n = 0;
    random_normals(normal, MOST, seed, 1, 0);
    for (int64_t left = tokens; left > 0; left -= length[n++]) {
        const int64_t s = (int64_t)(48 * exp(1.2 * normal[n]));
        length[n] = s < 1 ? 1 : s > left ? left : s;
    }
    return n;
}

/* The bytes of a plan are its moves' tokens times 2 K A; on a ring of D each token's keys go to D-1 devices. */
static void test_volume(void **state)
{
    (void)state;
    int64_t length[MOST];
    for (uint64_t seed = 1; seed <= 20; seed++) {
        const int P = 8, samples = lognormal(length, 4096, seed);
        const struct context_load l = load_of(length, samples, P);
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

/* The busiest device, in operations of attention, over the mean. */
static double imbalance(const struct context_plan *p)
{
    double most = 0, sum = 0;
    for (int d = 0; d < p->devices; d++) {
        const double pairs = context_device_pairs(p, d);
        most = pairs > most ? pairs : most, sum += pairs;
    }
    return most * p->devices / sum;
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
    int64_t length[MOST];
    double planned = 0, by_tokens = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        const int samples = lognormal(length, 4096, seed);
        const struct context_load l = load_of(length, samples, 8);
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
    const struct context_load l = load_of(length, 1, 5);
    struct context_plan p = plan_of(&l);
    for (int d = 0; d < 5; d++) assert_true(context_device_pairs(&p, d) == 960.0 * 961 / 2 / 5);
    context_plan_free(&p);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_published_examples), cmocka_unit_test(test_volume),
                                        cmocka_unit_test(test_balance), cmocka_unit_test(test_equal_shares) };
    return cmocka_run_group_tests_name("hdp", tests, NULL, NULL);
}
