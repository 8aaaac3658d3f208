/* Segments of pipelined collectives: near the best of all lengths, the same for all members, and no change of bits.
 *
 * Whole calls, on crews of devices: with numbers where bits are compared, else without.
 */
#include "emulated_devices/collectives/collective.h"
#include "tests/devices/against_best.h"
#include "tests/devices/on_crew.h"
#include "tests/tier.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MOST = 16, LONGEST = 300007, WAITS = 2097169 };      /* the last: longer than every limit of eager messages */
static struct error err;

/* One call on devices 0 .. P-1, and what they see. */
struct job {
    const struct cluster *cluster;
    const struct algorithm *algorithm;
    const char *backend;
    int64_t count;
    uint64_t segment;                   /* 0: collective_run chooses */
    int P;
    picoseconds end[MOST];
    uint64_t chosen[MOST];
    struct traffic counted[MOST], expected[MOST];       /* expected: of the chosen segments */
    float *out;                         /* [P, count], or NULL */
};

static void fill(float *x, int64_t n, int rank)
{
    uint32_t state = 2654435761u * (uint32_t)(rank + 1);
    for (int64_t i = 0; i < n; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)(int32_t)state * 1e-7f;
    }
}

static enum error_code call(struct comm *c, void *asked, struct error *e)
{
    struct job *j = asked;
    struct group g;
    struct arena *a = &c->device->arena;
    const enum operation op = j->algorithm->operation;
    const uint64_t bytes = 4 * (uint64_t)j->count;
    enum error_code code = group_world(&g, c, e);
    if (code) return code;
    void *in = arena_alloc(a, BUFFERS, bytes), *out = arena_alloc(a, BUFFERS, bytes);
    const struct collective args = { .in = in, .out = out, .count = j->count, .dtype = F32, .segment = j->segment };
    if (j->out) fill(in, j->count, c->rank), memset(out, 0, bytes);
    clock_reset(&c->device->clock);
    code = collective_run(&g, op, j->algorithm->name, &args, e);
    j->end[c->rank] = c->device->clock.now;
    j->chosen[c->rank] = group_segment(&g, j->algorithm, &args);
    j->counted[c->rank] = c->counted.of[g.kind].of[op];
    if (j->segment == 0) j->expected[c->rank] = group_cost(&g, op, j->algorithm->name, &args).of[op];
    if (j->out) memcpy(j->out + c->rank * j->count, out, bytes);
    arena_free(a, in), arena_free(a, out);
    group_close(&g);
    return code;
}

/* @return when the last is done. */
static picoseconds run(struct job *j)
{
    picoseconds last = 0;
    const struct crew_job all = { j->backend, F32, j->cluster, call, j };
    if (crew_run(j->P, be_device, &all, &err)) fail_msg("%s: %s", j->algorithm->name, err.text);
    for (int r = 0; r < j->P; r++) last = j->end[r] > last ? j->end[r] : last;
    return last;
}

/* ---- the choice -------------------------------------------------------------------------------------------------- */

static void check_members_agree(const struct job *j)
{
    for (int r = 0; r < j->P; r++)
        if (j->chosen[r] != j->chosen[0] || j->counted[r].messages_sent != j->expected[r].messages_sent ||
            j->counted[r].bytes_sent != j->expected[r].bytes_sent)
            fail_msg("%s %s of %lld on %d devices of %s: member %d has segments of %llu bytes, member 0 of %llu; it "
                     "sent %llu messages, predicted are %llu",
                     operation_name(j->algorithm->operation), j->algorithm->name, (long long)j->count, j->P,
                     j->cluster->name, r, (unsigned long long)j->chosen[r], (unsigned long long)j->chosen[0],
                     (unsigned long long)j->counted[r].messages_sent, (unsigned long long)j->expected[r].messages_sent);
}

/* All numbers of segments up to 16, and then each one a part larger than the one before; more than 128 for each device
 * gain less than a hundredth. */
static void check_choice(const struct cluster *m, const struct algorithm *a, int P, int64_t count,
                         struct against_best *sum)
{
    const int part = tier_now() == TIER_VERIFY ? 8 : 4;
    const struct collective c = { .count = count, .dtype = F32 };
    const int64_t n = a->pipelined(P, &c);
    char what[300];
    struct job j = { .cluster = m, .algorithm = a, .backend = "count", .count = count, .P = P };
    const picoseconds took = run(&j);
    check_members_agree(&j);
    const uint64_t chosen = j.chosen[0];
    uint64_t best = chosen;
    picoseconds least = took;
    for (int64_t S = 1; S <= n && S <= 128 * P; S += 1 + S / part) {
        j.segment = 4 * (uint64_t)((n + S - 1) / S);
        const picoseconds other = run(&j);
        if (other < least) least = other, best = j.segment;
        sum->calls++;
    }
    snprintf(what, sizeof what, "%s %s of %lld on %d devices of %s: the chosen segments of %llu bytes take %.3f us, "
             "segments of %llu take %.3f",
             operation_name(a->operation), a->name, (long long)count, P, m->name, (unsigned long long)chosen,
             (double)took * 1e-6, (unsigned long long)best, (double)least * 1e-6);
    compare_with_best(sum, took, least, what);
}

static void check_cluster(const struct cluster *m, struct against_best *sum)
{
    static const int64_t counts[] = { 33, 4099, LONGEST, WAITS, 65537 };
    const bool all = tier_now() == TIER_VERIFY;
    const int last = m->link[m->levels - 1].devices > 0 ? m->link[m->levels - 1].devices : MOST;
    for (int i = 0; algorithms[i]; i++)
        for (int P = all ? 2 : 6; P <= (all ? MOST : 6) && P <= last && algorithms[i]->pipelined; P++)
            for (size_t n = all ? 0 : 4; n < (all ? 4 : 5); n++) check_choice(m, algorithms[i], P, counts[n], sum);
}

static void test_shipped_clusters(void **state)
{
    (void)state;
    sweep_clusters(check_cluster);
}

/* ---- in numbers -------------------------------------------------------------------------------------------------- */

#define FLAT(alpha, gap_, limit) { .name = "flat", .levels = 1, \
    .link = { { .latency = alpha, .gap = gap_, .rate = 1000, .eager = limit } } }
static const struct cluster eager = FLAT(1000000, 500000, ALWAYS_EAGER), meeting = FLAT(1000000, 500000, 1024);

/* Of a chain of 2^16 bytes on 5 devices, by hand.  Eager: 4 alpha + (S + 3) (gap + n / (1000 S)) us, least at S =
 * root(3 * 65.536 / 0.5) = 19.8; S = 16 is within a hundredth: 4 + 19 (0.5 + 4.096) = 91.324 us, and 20 segments, of
 * 3280 bytes and one shorter, take 4 + 23 (0.5 + 3.28) - 0.064. */
static void test_chain_by_hand(void **state)
{
    const struct algorithm *chain = algorithm_find(BROADCAST, "chain");
    struct job j = { .cluster = &eager, .algorithm = chain, .backend = "count", .count = 1 << 14, .P = 5 };
    (void)state;
    const picoseconds took = run(&j);
    j.segment = 4096;
    assert_int_equal(run(&j), 91324000);
    assert_true(took <= 91324000 && took >= 90876000);
    assert_true(j.chosen[0] >= 3280 && j.chosen[0] <= 4096);
    const struct collective c = { .count = 1 << 14, .dtype = F32, .segment = 4096 };
    assert_int_equal(collective_time(chain, 5, &c, &eager), 91324000);
}

/* What waits for its receivers has a latency for each segment, so that there are fewer. */
static void test_fewer_that_wait(void **state)
{
    const struct collective c = { .count = 1 << 14, .dtype = F32 };
    const struct algorithm *chain = algorithm_find(BROADCAST, "chain");
    (void)state;
    const uint64_t free = segment_choose(chain, 5, &c, &eager), waits = segment_choose(chain, 5, &c, &meeting);
    if (waits <= free)
        fail_msg("segments that wait for their receivers have %llu bytes, eager ones %llu", (unsigned long long)waits,
                 (unsigned long long)free);
}

static void test_others_have_none(void **state)
{
    const struct collective c = { .count = 1 << 14, .dtype = F32 };
    (void)state;
    assert_int_equal(segment_choose(algorithm_find(ALLREDUCE, "ring"), 5, &c, &eager), 0);
}

/* ---- bits -------------------------------------------------------------------------------------------------------- */

static void test_bits_do_not_change(void **state)
{
    enum { N = 10007, P = 5 };
    static float chosen[P * N], other[P * N];
    static const uint64_t lengths[] = { 4, 52, 4096, 32768, 1 << 20 };
    (void)state;
    for (int i = 0; algorithms[i]; i++) {
        struct job j = { .cluster = &eager, .algorithm = algorithms[i], .backend = "cpu", .count = N, .P = P,
                         .out = chosen };
        if (!algorithms[i]->pipelined) continue;
        run(&j);
        j.out = other;
        for (size_t k = 0; k < sizeof lengths / sizeof *lengths; k++) {
            j.segment = lengths[k];
            run(&j);
            if (memcmp(chosen, other, sizeof chosen) != 0)
                fail_msg("%s %s: with segments of %llu bytes the result has other bits",
                         operation_name(j.algorithm->operation), j.algorithm->name, (unsigned long long)lengths[k]);
        }
    }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shipped_clusters), cmocka_unit_test(test_chain_by_hand),
        cmocka_unit_test(test_fewer_that_wait), cmocka_unit_test(test_others_have_none),
        cmocka_unit_test(test_bits_do_not_change),
    };
    take_clusters(argc, argv);
    return cmocka_run_group_tests_name("segments", tests, NULL, NULL);
}
