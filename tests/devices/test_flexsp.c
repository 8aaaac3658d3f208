/* The plans of flexsp: exact for few samples, better than groups of one size for many, and bytes by formula.
 * tier: check
 */
#include "tests/devices/planning.h"
#include "emulated_devices/schemes/attention/planned/buckets.h"
#include "emulated_devices/schemes/attention/planned/flexsp_plan.h"
#include "ref/model/config.h"
#include <stdlib.h>

enum { P = 8, MANY = 256 };

/* Sending a number takes as long as 3000 operations. */
static struct context_load timed(const int64_t length[], int samples, int devices)
{
    struct context_load l = load_of(length, samples, devices, devices);
    l.heads = 64, l.query_width = 64, l.key_width = 128, l.per_pair = 256, l.per_token = 24 * 64 * 64;
    l.per_element = 3000, l.per_far_element = 27000;
    return l;
}

static struct context_plan plan_of(const struct context_load *l) { return plan_by("flexsp", l); }

/* ---- times, written again ---------------------------------------------------------------------------------------- */

static double sample_time(const struct context_load *l, int64_t s, int d)
{
    const double each = (double)(2 * l->query_width + l->key_width) * (double)s / d / d;
    const int near = d < l->node ? d : l->node;
    return l->per_pair * (double)s * (double)(s + 1) / 2 / d + l->per_token * (double)s / d +
           each * (near - 1) * l->per_element + each * (d - near) * l->per_far_element;
}

static double plan_time(const struct context_load *l, const struct context_plan *p)
{
    double busy[MANY] = { 0 }, most = 0;
    int64_t first = 0;
    for (int i = 0; i < l->samples; first += l->length[i++]) {
        int b = 0;
        while (p->block[b].tokens[0].first != first) b++;
        const int g = context_group_of(p, p->block[b].home);
        busy[g] += sample_time(l, l->length[i], p->group[g].devices);
        if (busy[g] > most) most = busy[g];
    }
    return most;
}

/* Groups of one size; the longest sample first, into the group that is first free. */
static double time_of_equal_groups(const struct context_load *l, int d)
{
    double busy[MANY] = { 0 }, most = 0;
    struct interval *sample = context_samples(l);
    for (int i = 0; i < l->samples; i++) {
        int g = 0;
        for (int k = 1; k < l->devices / d; k++)
            if (busy[k] < busy[g]) g = k;
        busy[g] += sample_time(l, sample[i].count, d);
        most = fmax(most, busy[g]);
    }
    free(sample);
    return most;
}

/* The least time over every assignment to every cut; `most_tokens` on a device. */
static double brute(const struct context_load *l, const int size[], int groups, int64_t most_tokens)
{
    double least = INFINITY;
    int in[9] = { 0 };
    for (bool more = true; more;) {
        double busy[P] = { 0 }, most = 0;
        int64_t tokens[P] = { 0 };
        bool fits = true;
        for (int i = 0; i < l->samples; i++)
            busy[in[i]] += sample_time(l, l->length[i], size[in[i]]), tokens[in[i]] += l->length[i];
        for (int g = 0; g < groups; g++) {
            most = fmax(most, busy[g]);
            fits = fits && (tokens[g] + size[g] - 1) / size[g] <= most_tokens;
        }
        if (fits) least = fmin(least, most);
        int i = 0;
        while (i < l->samples && ++in[i] == groups) in[i++] = 0;
        more = i < l->samples;
    }
    return least;
}

/* The ways to cut four devices. */
static const int cuts[][5] = { { 4 }, { 2, 2 }, { 2, 1, 1 }, { 1, 1, 1, 1 } };

static int groups_of(int cut)
{
    int groups = 0;
    while (cuts[cut][groups] > 0) groups++;
    return groups;
}

static double best_time(const struct context_load *l)
{
    double least = INFINITY;
    for (int c = 0; c < 4; c++) least = fmin(least, brute(l, cuts[c], groups_of(c), 2 * ((l->tokens + 3) / 4)));
    return least;
}

/* @return the plan's time over that of the best plan of all, less 1. */
static double slower_than_best(int samples, int buckets, uint64_t seed)
{
    int64_t length[9];
    for (int i = 0; i < samples; i++) length[i] = 1 + (int64_t)(400 * pow(random_uniform(seed, 1, (uint64_t)i), 3));
    const struct context_load l = timed(length, samples, 4);
    struct context_plan p;
    struct interval *const sample = context_samples(&l);
    if (flexsp_plan(&p, &l, sample, samples, buckets, &err) != OK) fail_msg("flexsp does not plan: %s", err.text);
    free(sample);
    const double time = plan_time(&l, &p);
    context_plan_free(&p);
    return time / best_time(&l) - 1;
}

static void test_few_samples_exactly(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 40; seed++) {
        const double more = slower_than_best(6, USUAL_BUCKETS, seed);
        if (fabs(more) > 1e-12) fail_msg("seed %d: the plan takes %.3g more time than the best", (int)seed, more);
    }
}

/* With fewer buckets than lengths the plan is nearly the best one. */
static void test_buckets(void **state)
{
    (void)state;
    double worst = 0;
    for (uint64_t seed = 0; seed < 20; seed++) worst = fmax(worst, slower_than_best(9, 3, seed));
    if (worst > 0.005) fail_msg("the plan takes %.4f more time than the best", worst);
}

/* The least time over all numbers of each length in each group; n: left of each. */
static double brute_by_numbers(const struct context_load *l, const int size[], int groups, const int64_t kind[2], int a,
                               int b, double slowest)
{
    double least = INFINITY;
    if (groups == 0) return a + b == 0 ? slowest : INFINITY;
    for (int i = 0; i <= a; i++)
        for (int k = 0; k <= b; k++) {
            const double busy = i * sample_time(l, kind[0], size[0]) + k * sample_time(l, kind[1], size[0]);
            const int64_t tokens = i * kind[0] + k * kind[1];
            if ((tokens + size[0] - 1) / size[0] <= 2 * ((l->tokens + 3) / 4))
                least = fmin(least, brute_by_numbers(l, size + 1, groups - 1, kind, a - i, b - k, fmax(slowest, busy)));
        }
    return least;
}

/* Many samples of two lengths: only their numbers matter, and the plan is the best one. */
static void test_many_alike(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++) {
        const int64_t kind[] = { 300 + (int64_t)(300 * random_uniform(seed, 2, 0)),
                                 100 + (int64_t)(150 * random_uniform(seed, 2, 1)) };
        const int a = 5 + (int)seed % 4, b = 9 + (int)seed % 3;
        int64_t length[32];
        for (int i = 0; i < a + b; i++) length[i] = kind[i >= a];
        const struct context_load l = timed(length, a + b, 4);
        double least = INFINITY;
        for (int c = 0; c < 4; c++) least = fmin(least, brute_by_numbers(&l, cuts[c], groups_of(c), kind, a, b, 0));
        struct context_plan p = plan_of(&l);
        const double time = plan_time(&l, &p);
        if (fabs(time / least - 1) > 1e-12)
            fail_msg("seed %d: %d and %d samples take %.9g, at best %.9g", (int)seed, a, b, time, least);
        context_plan_free(&p);
    }
}

static void test_better_than_equal_groups(void **state)
{
    (void)state;
    double saved = 0;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        int64_t length[MOST_LENGTHS];
        const int samples = lognormal(length, 8192, seed);
        const struct context_load l = timed(length, samples, P);
        struct context_plan p = plan_of(&l);
        double best = INFINITY;
        for (int d = 1; d <= P; d *= 2) best = fmin(best, time_of_equal_groups(&l, d));
        const double time = plan_time(&l, &p);
        if (time > best)
            fail_msg("seed %llu: the plan takes %.9g, groups of one size %.9g", (unsigned long long)seed, time, best);
        saved += (best / time - 1) / 20;
        context_plan_free(&p);
    }
    if (saved < 0.05) fail_msg("groups of different sizes are only %.1f %% faster than the best of one", 100 * saved);
}

/* On 32 nodes of 8, whose links are slower between nodes: groups of several sizes, faster than the best of one. */
static void test_many_devices(void **state)
{
    (void)state;
    int faster = 0;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        int64_t length[MOST_LENGTHS];
        const int samples = lognormal(length, 256 * 256, seed);
        struct context_load l = timed(length, samples, MANY);
        l.node = 8;
        struct context_plan p = plan_of(&l);
        double best = INFINITY;
        for (int d = 1; d <= 64; d *= 2) best = fmin(best, time_of_equal_groups(&l, d));
        const double time = plan_time(&l, &p);
        if (time > best) fail_msg("seed %d: the plan takes %.9g, groups of one size %.9g", (int)seed, time, best);
        faster += time < 0.98 * best;
        context_plan_free(&p);
    }
    /* Where the longest sample alone takes as long as all groups, no cut is faster. */
    if (faster < 2) fail_msg("groups of different sizes are faster for %d of 4 batches", faster);
}

/* No larger than the heads, and in the paper's way at multiples of their size. */
static void test_groups(void **state)
{
    (void)state;
    const int64_t length[] = { 4000, 3, 5, 8 };
    for (int devices = 1; devices <= P; devices++)
        for (int64_t heads = 1; heads <= 8; heads++) {
            struct context_load l = timed(length, 4, devices);
            l.heads = heads;
            struct context_plan p = plan_of(&l);
            for (int i = 0; i < p.groups; i++) {
                const int d = p.group[i].devices;
                assert_true((d & (d - 1)) == 0 && d <= heads && p.group[i].first % d == 0);
            }
            context_plan_free(&p);
        }
}

/* The pairs of all groups are those of all samples, under a causal mask and under one that hides more. */
static void test_pairs_of_groups(void **state)
{
    static const int64_t length[] = { 40, 3, 17, 9, 1, 26, 5, 12 };
    (void)state;
    for (int masked = 0; masked < 2; masked++) {
        struct context_load l = timed(length, 8, 4);
        struct attention_mask mask;
        double want = 0, pairs = 0;
        assert_int_equal(attention_mask_parse(&mask, masked ? "lambda:1,4" : "causal", &err), OK);
        assert_int_equal(context_load_mask(&l, &mask, &err), OK);
        struct context_plan p = plan_of(&l);
        /* A token sees the tokens before it and itself: with the mask the first of its sample and its window. */
        for (int i = 0; i < l.samples; i++)
            for (int64_t t = 1; t <= length[i]; t++) want += (double)(masked && t > 5 ? 5 : t);
        for (int g = 0; g < p.groups; g++) pairs += p.pairs[g];
        if (!(p.groups > 1 && pairs == want)) fail_msg("%d groups have %g pairs, not %g", p.groups, pairs, want);
        context_plan_free(&p);
        free(l.made);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_few_samples_exactly),
                                        cmocka_unit_test(test_better_than_equal_groups),
                                        cmocka_unit_test(test_buckets), cmocka_unit_test(test_many_alike),
                                        cmocka_unit_test(test_groups), cmocka_unit_test(test_many_devices),
                                        cmocka_unit_test(test_pairs_of_groups) };
    return cmocka_run_group_tests_name("flexsp", tests, NULL, NULL);
}
