/* The plans of dcp: what they send is the formula of the paper, work is balanced, and less is sent than on a ring.
 * tier: check
 *
 * Source  DCP, arXiv:2510.10620: formula of section 4.2, figure 5
 */
#include "tests/devices/planning.h"
#include <string.h>

/* Keys as wide as queries. */
static struct context_load narrow(const int64_t length[], int samples, int devices, int node)
{
    struct context_load l = load_of(length, samples, devices, node);
    l.key_width = 1;
    return l;
}

static struct context_plan plan_of(const struct context_load *l) { return plan_by("dcp", l); }

static int64_t size_of(const struct context_plan *p, const struct context_load *l, enum context_data data, int block)
{
    return context_block_tokens(&p->block[block]) * (data == CONTEXT_KEYS ? l->key_width : l->query_width);
}

/* What is sent: moves, and results to the home of their queries. */
static int64_t sent(const struct context_plan *p, const struct context_load *l)
{
    int64_t sum = 0;
    for (int i = 0; i < p->moves; i++) sum += size_of(p, l, p->move[i].data, p->move[i].block);
    for (int b = 0; b < p->blocks; b++)
        for (int d = 0; d < p->devices; d++)
            if (d != p->block[b].home && context_works_with(p, CONTEXT_QUERIES, b, d))
                sum += size_of(p, l, CONTEXT_QUERIES, b);
    return sum;
}

/* Sum over the data of blocks of cost times (devices - 1). */
static int64_t formula(const struct context_plan *p, const struct context_load *l)
{
    int64_t sum = 0;
    for (int b = 0; b < p->blocks; b++)
        for (enum context_data data = CONTEXT_QUERIES; data <= CONTEXT_KEYS; data++) {
            int devices = 0;
            for (int d = 0; d < p->devices; d++) devices += d == p->block[b].home || context_works_with(p, data, b, d);
            sum += size_of(p, l, data, b) * (data == CONTEXT_QUERIES ? 2 : 1) * (devices - 1);
        }
    return sum;
}

/* With few and with many key heads; never more than keys around a ring of all devices, all in all not half. */
static void test_volume(void **state)
{
    (void)state;
    int64_t length[MOST_LENGTHS], all = 0, all_ring = 0;
    for (uint64_t seed = 1; seed <= 12; seed++) {
        const int P = 2 + (int)seed % 7;
        struct context_load l = narrow(length, lognormal(length, 2048, seed), P, P);
        l.key_width = 1 + seed % 2;
        struct context_plan p = plan_of(&l);
        const int64_t here = sent(&p, &l), ring = l.tokens * l.key_width * (P - 1);
        if (here != formula(&p, &l) || here > ring)
            fail_msg("seed %d: %lld numbers are sent; by formula %lld, on a ring %lld", (int)seed, (long long)here,
                     (long long)formula(&p, &l), (long long)ring);
        all += here, all_ring += ring;
        context_plan_free(&p);
    }
    if (2 * all > all_ring) fail_msg("%lld numbers of %lld of a ring", (long long)all, (long long)all_ring);
}

/* One sample that all devices share. */
static void test_one_long_sample(void **state)
{
    (void)state;
    const int64_t length[] = { 4000 };
    for (int P = 2; P <= 8; P++) {
        const struct context_load l = narrow(length, 1, P, P);
        struct context_plan p = plan_of(&l);
        if (sent(&p, &l) > 4000 * (P - 1))
            fail_msg("%d devices: %lld numbers are sent, on a ring %d", P, (long long)sent(&p, &l), 4000 * (P - 1));
        context_plan_free(&p);
    }
}

static double most_pairs(const struct context_plan *p)
{
    double most = 0;
    for (int d = 0; d < p->devices; d++) most = fmax(most, context_device_pairs(p, d));
    return most;
}

/* The pairs of the largest work. */
static double longest_work(const struct context_plan *p)
{
    double most = 0;
    for (int i = 0; i < p->works; i++) most = fmax(most, context_work_pairs(p, &p->work[i]));
    return most;
}

/* Of work and of tokens a device has its share, and 1/20 of it or one vertex more, for each of two levels. */
static void test_balance(void **state)
{
    (void)state;
    int64_t length[MOST_LENGTHS];
    for (uint64_t seed = 1; seed <= 12; seed++) {
        const int P = 8, node = seed % 2 ? 8 : 4, levels = seed % 2 ? 1 : 2;
        const struct context_load l = narrow(length, lognormal(length, 2048, seed), P, node);
        struct context_plan p = plan_of(&l);
        double pairs = 0, longest = 0;
        for (int i = 0; i < p.works; i++) pairs += context_work_pairs(&p, &p.work[i]);
        for (int b = 0; b < p.blocks; b++) longest = fmax(longest, (double)context_block_tokens(&p.block[b]));
        if (most_pairs(&p) > pairs / P * pow(1.05, levels) + levels * longest_work(&p))
            fail_msg("seed %d: %.0f pairs on a device, the mean is %.0f", (int)seed, most_pairs(&p), pairs / P);
        for (int d = 0; d < P; d++) {
            struct intervals tokens = { 0 };
            context_plan_tokens(&tokens, &p, d);
            assert_true((double)intervals_total(&tokens) <= 2048.0 / P * pow(1.05, levels) + levels * longest);
            intervals_free(&tokens);
        }
        context_plan_free(&p);
    }
}

/* On many devices blocks are as small for a device as on few, though a division sees many of them as one. */
static void test_many_devices(void **state)
{
    (void)state;
    enum { P = 128, TOKENS = 1 << 17 };
    int64_t length[MOST_LENGTHS];
    const struct context_load l = narrow(length, lognormal(length, TOKENS, 7), P, 8);
    struct context_plan p = plan_of(&l);
    double pairs = 0;
    int64_t most_tokens = 0;
    for (int i = 0; i < p.works; i++) pairs += context_work_pairs(&p, &p.work[i]);
    for (int d = 0; d < P; d++) {
        struct intervals tokens = { 0 };
        context_plan_tokens(&tokens, &p, d);
        if (intervals_total(&tokens) > most_tokens) most_tokens = intervals_total(&tokens);
        intervals_free(&tokens);
    }
    if (most_pairs(&p) > 1.5 * pairs / P || most_tokens > 1.5 * TOKENS / P)
        fail_msg("of %d devices one has %.2f of the mean pairs, and one %.2f of the mean tokens", P,
                 most_pairs(&p) * P / pairs, (double)most_tokens * P / TOKENS);
    context_plan_free(&p);
}

/* What is sent between nodes counts most. */
static void test_nodes(void **state)
{
    (void)state;
    int64_t length[MOST_LENGTHS], all[2] = { 0 };
    for (uint64_t seed = 1; seed <= 8; seed++)
        for (int known = 0; known < 2; known++) {
            const struct context_load l = narrow(length, lognormal(length, 2048, seed), 8, known ? 4 : 8);
            struct context_plan p = plan_of(&l);
            for (int i = 0; i < p.blocks; i++)
                for (enum context_data data = CONTEXT_QUERIES; data <= CONTEXT_KEYS; data++) {
                    bool other = false;
                    for (int d = 0; d < 8; d++)
                        other |= d / 4 != p.block[i].home / 4 && context_works_with(&p, data, i, d);
                    all[known] += other * size_of(&p, &l, data, i) * (data == CONTEXT_QUERIES ? 2 : 1);
                }
            context_plan_free(&p);
        }
    if (all[1] >= all[0])
        fail_msg("between nodes %lld numbers, without nodes %lld", (long long)all[1], (long long)all[0]);
}

/* Of what a device sends another, a third in each of three divisions, to one block. */
static void test_divisions(void **state)
{
    (void)state;
    const int64_t length[] = { 3000, 700 };
    const struct context_load l = narrow(length, 2, 4, 4);
    struct context_plan p = plan_of(&l);
    int64_t longest = 0;
    for (int b = 0; b < p.blocks; b++)
        if (context_block_tokens(&p.block[b]) > longest) longest = context_block_tokens(&p.block[b]);
    for (int pair = 0; pair < 16; pair++) {
        int64_t in[4] = { 0 }, all = 0;
        for (int i = 0; i < p.moves; i++) {
            if (p.move[i].from != pair / 4 || p.move[i].to != pair % 4) continue;
            in[p.move[i].division] += size_of(&p, &l, p.move[i].data, p.move[i].block);
            all += size_of(&p, &l, p.move[i].data, p.move[i].block);
        }
        for (int d = 0; d < 4; d++)
            if (in[d] > all / 3 + longest)
                fail_msg("device %d sends device %d %lld numbers in division %d, of %lld", pair / 4, pair % 4,
                         (long long)in[d], d, (long long)all);
    }
    assert_int_equal(p.divisions, 4);
    for (int i = 0; i < p.works; i++) {
        const struct context_work *w = &p.work[i];
        if (p.block[w->query].home == w->device && p.block[w->key].home == w->device)
            assert_int_equal(w->division, 0);
    }
    context_plan_free(&p);
}

/* Figure 5: sequences of 1, 1 and 2 blocks of four, on two devices.  A block unit is a token's keys here. */
static void test_published_figure(void **state)
{
    (void)state;
    const int64_t length[] = { 4, 4, 8 };
    const struct interval sample[] = { { 0, 4 }, { 4, 4 }, { 8, 8 } };
    const int device[] = { 0, 1 }, first[3][3] = { { 0, 0, 0 }, { 0, 1, 0 }, { 0, 0, 1 } };
    const int devices[3][3] = { { 2, 2, 2 }, { 1, 1, 2 }, { 1, 1, 1 } };
    const int volume[] = { 16, 8, 0 }, pairs[][2] = { { 28, 28 }, { 28, 28 }, { 20, 36 } };
    const struct context_load l = narrow(length, 3, 2, 2);
    for (int i = 0; i < 3; i++) {
        struct context_plan p = { .devices = 2, .tokens = 16 };
        for (int k = 0; k < 3; k++) context_add_ring(&p, &l, sample[k], device + first[i][k], devices[i][k], 0);
        assert_int_equal(context_plan_finish(&p, &l, &err), OK);
        assert_int_equal(sent(&p, &l), volume[i]);
        for (int d = 0; d < 2; d++) assert_int_equal((int)context_device_pairs(&p, d), pairs[i][d]);
        context_plan_free(&p);
    }
    struct context_plan p = plan_of(&l);
    if (sent(&p, &l) > 8) fail_msg("%lld block units are moved, by hand 8", (long long)sent(&p, &l));
    assert_true(most_pairs(&p) <= 28 + 1);
    context_plan_free(&p);
}

/* The same numbers, the same plan; samples in another order, the same work and volume. */
static void test_same_plan(void **state)
{
    (void)state;
    const int64_t length[] = { 700, 90, 41, 5, 300 }, turned[] = { 5, 300, 700, 41, 90 };
    const struct context_load l = narrow(length, 5, 4, 2), t = narrow(turned, 5, 4, 2);
    struct context_plan p = plan_of(&l), again = plan_of(&l), q = plan_of(&t);
    assert_string_equal(p.digest.text, again.digest.text);
    assert_string_not_equal(p.digest.text, q.digest.text);
    assert_int_equal(sent(&p, &l), sent(&q, &t));
    for (int d = 0; d < 4; d++) assert_true(context_device_pairs(&p, d) == context_device_pairs(&q, d));
    context_plan_free(&p), context_plan_free(&again), context_plan_free(&q);
}

/* Fewer tokens than devices, one device, many samples of one token. */
static void test_small_plans(void **state)
{
    (void)state;
    int64_t length[300];
    for (int i = 0; i < 300; i++) length[i] = 1;
    for (int P = 1; P <= 5; P++)
        for (int samples = 1; samples <= 300; samples = 3 * samples + 1) {
            const struct context_load l = narrow(length, samples, P, 1);
            struct context_plan p = plan_of(&l);
            assert_int_equal(sent(&p, &l), 0);
            assert_int_equal(p.divisions, 1);
            context_plan_free(&p);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_volume),           cmocka_unit_test(test_one_long_sample), cmocka_unit_test(test_balance),
        cmocka_unit_test(test_nodes),            cmocka_unit_test(test_divisions), cmocka_unit_test(test_many_devices),
        cmocka_unit_test(test_published_figure), cmocka_unit_test(test_same_plan),
        cmocka_unit_test(test_small_plans),
    };
    return cmocka_run_group_tests_name("dcp", tests, NULL, NULL);
}
