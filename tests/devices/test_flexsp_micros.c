/* The microbatches of flexsp: cuts by the paper's definition, their number, and a step worked by hand.
 * tier: check
 *
 * Source  FlexSP, arXiv:2412.01523, section 4.2; the code of the paper cuts the samples of `by_hand` alike
 */
#include "tests/devices/planning.h"
#include "emulated_devices/schemes/attention/planned/buckets.h"
#include "emulated_devices/schemes/attention/planned/flexsp_micros.h"
#include "emulated_devices/schemes/attention/planned/flexsp_plan.h"
#include <stdlib.h>
#include <string.h>

static const int64_t by_hand[] = { 4, 1, 8, 3, 6, 1, 5, 2 };    /* 8 6 5 4 3 2 1 1 */
enum { BY_HAND = sizeof by_hand / sizeof *by_hand, MANY = 40 };

static void sort_samples(struct interval sample[], const int64_t length[], int n)
{
    struct context_load l = load_of(length, n, 2, 2);
    struct interval *const all = context_samples(&l);
    for (int i = 0; i < n; i++) sample[i] = all[i];
    free(all);
}

static void test_cuts_by_hand(void **state)
{
    static const struct { int micros, most, first[6]; } cases[] = {
        { 1, 30, { 0, 8 } }, { 2, 16, { 0, 2, 8 } }, { 3, 11, { 0, 1, 3, 8 } }, { 4, 9, { 0, 1, 2, 4, 8 } },
        { 5, 8, { 0, 1, 2, 3, 4, 8 } },
    };
    struct interval sample[BY_HAND];
    (void)state;
    sort_samples(sample, by_hand, BY_HAND);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int first[BY_HAND + 1];
        assert_int_equal(flexsp_cut(first, sample, BY_HAND, cases[i].micros), cases[i].most);
        for (int m = 0; m <= cases[i].micros; m++)
            if (first[m] != cases[i].first[m])
                fail_msg("of %d ranges number %d begins at sample %d, not %d", cases[i].micros, m, first[m],
                         cases[i].first[m]);
    }
    assert_int_equal(flexsp_least_micros(sample, BY_HAND, 30), 1);
    /* Two microbatches would do for 30 tokens, but not for these samples. */
    assert_int_equal(flexsp_least_micros(sample, BY_HAND, 15), 3);
    assert_int_equal(flexsp_least_micros(sample, BY_HAND, 12), 3);
    assert_int_equal(flexsp_least_micros(sample, BY_HAND, 10), 4);
    assert_int_equal(flexsp_least_micros(sample, BY_HAND, 8), 5);
    assert_int_equal(flexsp_least_micros(sample, BY_HAND, 7), BY_HAND + 1);
}

/* least[i][k] = min over j of max(least[j][k-1], tokens j to i-1), and of equal ones the first j. */
static int64_t cut_slowly(int first[], const struct interval sample[], int n, int micros)
{
    static int64_t least[MANY + 1][MANY + 1];
    static int from[MANY + 1][MANY + 1];
    for (int i = 0; i <= n; i++)
        for (int k = 0; k <= micros; k++) least[i][k] = i == 0 && k == 0 ? 0 : INT64_MAX;
    for (int k = 1; k <= micros; k++)
        for (int i = k; i <= n; i++)
            for (int j = k - 1; j < i; j++) {
                int64_t last = 0;
                for (int s = j; s < i; s++) last += sample[s].count;
                const int64_t most = least[j][k - 1] > last ? least[j][k - 1] : last;
                if (most < least[i][k]) least[i][k] = most, from[i][k] = j;
            }
    first[micros] = n;
    for (int k = micros; k > 0; k--) first[k - 1] = from[first[k]][k];
    return least[n][micros];
}

/* In any order, with many equal lengths, so that cuts are not unique. */
static void test_cuts_by_definition(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 60; seed++) {
        const int n = 1 + (int)(seed * 7 % MANY);
        struct interval sample[MANY];
        for (int i = 0; i < n; i++) {
            const double u = random_uniform(seed, 3, (uint64_t)i);
            sample[i] = (struct interval){ i, 1 + (int64_t)((seed % 2 ? 4 : 300) * u * u) };
        }
        for (int micros = 1; micros <= n; micros++) {
            int first[MANY + 1], want[MANY + 1];
            const int64_t most = flexsp_cut(first, sample, n, micros), least = cut_slowly(want, sample, n, micros);
            if (most != least || memcmp(first, want, ((size_t)micros + 1) * sizeof *first) != 0)
                fail_msg("seed %d, %d samples in %d ranges: %d tokens, by definition %d, or another cut", (int)seed, n,
                         micros, (int)most, (int)least);
        }
    }
}

/* 4 devices with room for 3 tokens each hold 12 together, so M_min is 3; work is proportional to pairs. */
static struct context_load hand_load(void)
{
    struct context_load l = load_of(by_hand, BY_HAND, 4, 4);
    l.heads = 4, l.per_token = 0, l.micros = 8, l.room = 3;
    return l;
}

/* The time of a number of microbatches of sorted samples, planned here one by one; infinite: one has no room. */
static double sorted_time(const struct context_load *l, int micros)
{
    struct interval sample[MANY];
    int first[MANY + 1];
    double sum = 0, time;
    sort_samples(sample, l->length, l->samples);
    assert_true(flexsp_cut(first, sample, l->samples, micros) > 0);
    for (int m = 0; m < micros; m++) {
        const int n = first[m + 1] - first[m];
        assert_int_equal(flexsp_plan_time(l, sample + first[m], n, USUAL_BUCKETS, &time, &err), OK);
        sum += fmax(time, l->per_micro);
    }
    return sum;
}

static void test_number_by_hand(void **state)
{
    struct flexsp_micros micros;
    struct context_load l = hand_load();
    (void)state;
    /* Nothing is sent and each microbatch may be split evenly, so all numbers take as long but for what does not
     * divide; a constant for each microbatch makes the fewest the best. */
    l.per_micro = 1e6;
    assert_int_equal(flexsp_micros_choose(&micros, &l, USUAL_BUCKETS, &err), OK);
    if (micros.count != 3 || micros.time != 3e6)
        fail_msg("%d microbatches in a time of %g, not 3 in 3e6", micros.count, micros.time);
    flexsp_micros_free(&micros);
    /* Without it the least time is taken, of 3 to 7 microbatches and two orders. */
    l.per_micro = 0, l.per_element = 100;
    assert_int_equal(flexsp_micros_choose(&micros, &l, USUAL_BUCKETS, &err), OK);
    for (int n = 3; n < 3 + FLEXSP_OPTIONS; n++)
        if (micros.time > sorted_time(&l, n))
            fail_msg("%d microbatches take %g, %d take %g", micros.count, micros.time, n, sorted_time(&l, n));
    flexsp_micros_free(&micros);
}

/* All microbatches of a step together have each sample once, no device has too many tokens, and only the first ones
 * are empty. */
static void check_step(const struct context_load *load, uint64_t seed)
{
    int seen[MOST_LENGTHS] = { 0 };
    bool begun = false;
    for (int m = 0; m < load->micros; m++) {
        struct context_load l = *load;
        l.micro = m;
        struct context_plan p = plan_by("flexsp", &l);
        if (begun && p.tokens == 0)
            fail_msg("seed %d: microbatch %d is empty, and one before has samples", (int)seed, m);
        begun = begun || p.tokens > 0;
        for (int d = 0; d < l.devices; d++)
            if (l.room > 0 && tokens_on(&p, d) > l.room)
                fail_msg("seed %d: device %d has %d tokens in microbatch %d, room for %d", (int)seed, d,
                         (int)tokens_on(&p, d), m, (int)l.room);
        int64_t first = 0;
        for (int i = 0; i < l.samples; first += l.length[i++])
            for (int b = 0; b < p.blocks; b++) seen[i] += p.block[b].tokens[0].first == first;
        context_plan_free(&p);
    }
    for (int i = 0; i < load->samples; i++)
        if (seen[i] != 1) fail_msg("seed %d: sample %d is in %d microbatches", (int)seed, i, seen[i]);
}

static void test_steps(void **state)
{
    (void)state;
    for (uint64_t seed = 1; seed <= 4; seed++) {
        int64_t length[MOST_LENGTHS];
        const int samples = lognormal(length, 2048, seed);
        struct context_load l = load_of(length, samples, 8, 4);
        l.heads = 8, l.query_width = 64, l.key_width = 128, l.per_pair = 256, l.per_token = 24 * 64 * 64;
        l.per_element = 3000, l.per_far_element = 27000, l.micros = 3;
        check_step(&l, seed);
        l.micros = 24, l.room = 160;
        check_step(&l, seed);
    }
}

/* Where few long samples leave devices idle in a microbatch of their own, samples as they come are faster, and such a
 * cut is taken; never is a cut slower than that of sorted samples. */
static void test_as_they_come(void **state)
{
    int faster = 0;
    (void)state;
    for (uint64_t seed = 0; seed < 100; seed++) {
        int64_t length[9];
        struct flexsp_micros micros;
        for (int i = 0; i < 9; i++) length[i] = 1 + (int64_t)(100 * random_uniform(seed, 5, (uint64_t)i));
        struct context_load l = load_of(length, 9, 4, 4);
        l.heads = 1, l.per_pair = 1, l.per_token = 1, l.micros = 2;
        assert_int_equal(flexsp_micros_choose(&micros, &l, USUAL_BUCKETS, &err), OK);
        const double sorted = sorted_time(&l, 2);
        if (micros.time > sorted) fail_msg("seed %d: the step takes %g, sorted %g", (int)seed, micros.time, sorted);
        faster += micros.time < sorted;
        flexsp_micros_free(&micros);
    }
    if (faster == 0 || faster == 100) fail_msg("samples as they come are faster in %d of 100 steps", faster);
}

static void test_refusals(void **state)
{
    struct context_load l = hand_load();
    struct flexsp_micros micros;
    (void)state;
    l.micros = 2;
    assert_int_equal(flexsp_micros_choose(&micros, &l, USUAL_BUCKETS, &err), ERR_PLAN);
    assert_string_equal(err.text, "--micro-tokens 3: 8 samples of 30 tokens do not fit into 2 microbatches on 4 "
                        "devices; --micro allows more");
    l.micros = 8, l.heads = 2;
    assert_int_equal(flexsp_micros_choose(&micros, &l, USUAL_BUCKETS, &err), ERR_PLAN);
    assert_string_equal(err.text, "--micro-tokens 3: a sample of 8 tokens is on at most 2 devices, by the heads and "
                        "--cp; it needs 4");
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_cuts_by_hand), cmocka_unit_test(test_cuts_by_definition),
                                        cmocka_unit_test(test_number_by_hand), cmocka_unit_test(test_steps),
                                        cmocka_unit_test(test_as_they_come), cmocka_unit_test(test_refusals) };
    return cmocka_run_group_tests_name("flexsp_micros", tests, NULL, NULL);
}
