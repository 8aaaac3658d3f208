/* On every shipped cluster, for odd sizes and groups with gaps: no algorithm takes less time than auto's choice.
 *
 * Whole calls, on crews of the cluster's own devices: auto itself tries algorithms without a call around them, on
 * devices that it numbers anew.
 */
#include "emulated_devices/collectives/collective.h"
#include "tests/devices/against_best.h"
#include "tests/devices/on_crew.h"
#include "tests/tier.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <cmocka.h>

enum { MOST = 32, LONGEST = 300007, WAITS = 2097169 };      /* the last: longer than every limit of eager messages */
static struct error err;

struct job {
    const struct cluster *cluster;
    const struct algorithm *algorithm;
    int64_t count;
    int P, apart, root;                 /* members: 0, apart, 2 apart, .. */
    picoseconds end[MOST];
};

static enum error_code call(struct comm *c, void *asked, struct error *e)
{
    struct job *j = asked;
    int member[MOST];
    struct group g;
    for (int i = 0; i < j->P; i++) member[i] = i * j->apart;
    if (c->rank % j->apart != 0) return OK;
    enum error_code code = group_of(&g, c, member, j->P, TRAFFIC_OTHER, 0, e);
    if (code) return code;
    struct arena *a = &c->device->arena;
    const uint64_t bytes = 4 * (uint64_t)(j->algorithm->operation == ALLTOALL ? j->count * j->P : j->count) + 4;
    void *in = arena_alloc(a, BUFFERS, bytes), *out = arena_alloc(a, BUFFERS, bytes);
    clock_reset(&c->device->clock);
    const struct collective args = { .in = in, .out = out, .count = j->count, .dtype = F32, .root = j->root };
    code = collective_run(&g, j->algorithm->operation, j->algorithm->name, &args, e);
    j->end[c->rank] = c->device->clock.now;
    arena_free(a, in), arena_free(a, out);
    group_close(&g);
    return code;
}

static picoseconds time_of(struct job j)
{
    picoseconds last = 0;
    const struct crew_job all = { "count", F32, j.cluster, call, &j };
    if (crew_run(j.P * j.apart, be_device, &all, &err)) fail_msg("%s: %s", j.algorithm->name, err.text);
    for (int r = 0; r < j.P; r++) last = j.end[r * j.apart] > last ? j.end[r * j.apart] : last;
    return last;
}

/* Another member for each count. */
static int root_of(enum operation op, int P, int64_t count)
{
    return op == BROADCAST || op == REDUCE || op == SCATTER || op == GATHER ? (int)(count / 2 % P) : 0;
}

static void check(const struct cluster *m, enum operation op, int P, int apart, int64_t count, struct against_best *a)
{
    int member[MOST];
    char what[300];
    struct collective c = { .count = op == ALLTOALL ? count / P : count, .dtype = F32, .root = root_of(op, P, count),
                            .nodes.member = member };
    for (int i = 0; i < P; i++) member[i] = i * apart;
    const struct algorithm *chosen = algorithm_choose(op, P, &c, m), *best = chosen;
    struct job j = { .cluster = m, .algorithm = chosen, .count = c.count, .P = P, .apart = apart, .root = c.root };
    const picoseconds took = time_of(j);
    picoseconds least = took;
    c.nodes = nodes_on(m, member, P);
    for (int i = 0; algorithms[i]; i++) {
        if (algorithms[i]->operation != op || algorithm_refuses(algorithms[i], P, &c)) continue;
        j.algorithm = algorithms[i];
        const picoseconds other = time_of(j);
        if (other < least) least = other, best = algorithms[i];
        a->calls++;
    }
    snprintf(what, sizeof what, "%s of %lld on %d devices of %s, %d apart: auto's %s takes %.3f us, %s takes %.3f",
             operation_name(op), (long long)count, P, m->name, apart, chosen->name, (double)took * 1e-6, best->name,
             (double)least * 1e-6);
    compare_with_best(a, took, least, what);
}

static void check_cluster(const struct cluster *m, struct against_best *a)
{
    static const int64_t counts[] = { 1, 33, 4099, LONGEST, WAITS };
    const bool all = tier_now() == TIER_VERIFY;
    const int most = m->link[m->levels - 1].devices > 0 ? m->link[m->levels - 1].devices : MOST;
    for (int P = all ? 2 : 3; P <= (all ? 16 : 8) && P <= most; P += all ? 1 : 5)
        for (enum operation op = BROADCAST; op < CONTROL; op++)
            for (size_t n = all ? 0 : P == 8 ? 3 : 1; n < sizeof counts / sizeof *counts; n += all ? 1 : 5) {
                check(m, op, P, 1, counts[n], a);
                if (all && 2 * P <= most) check(m, op, P, 2, counts[n], a);
            }
    if (most >= 15) check(m, ALLREDUCE, 5, 3, LONGEST, a);
}

static void test_shipped_clusters(void **state)
{
    (void)state;
    sweep_clusters(check_cluster);
}

/* Devices of different speed see one cluster: otherwise members would choose differently. */
static void test_slow_members_choose_alike(void **state)
{
    struct cluster m;
    (void)state;
    assert_int_equal(cluster_find(&m, "two-generations", &err), OK);
    for (enum operation op = BROADCAST; op < CONTROL; op++)
        for (int64_t count = 16; count < 1 << 22; count *= 8) {
            const struct collective c = { .count = count, .dtype = F32 };
            const struct cluster fast = cluster_of_rank(&m, 0), slow = cluster_of_rank(&m, 3);
            assert_true(slow.memory_rate < fast.memory_rate);
            assert_ptr_equal(algorithm_choose(op, 8, &c, &fast), algorithm_choose(op, 8, &c, &slow));
        }
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_shipped_clusters),
                                        cmocka_unit_test(test_slow_members_choose_alike) };
    take_clusters(argc, argv);
    return cmocka_run_group_tests_name("auto on clusters", tests, NULL, NULL);
}
