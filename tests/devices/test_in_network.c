/* An all-reduce that switches add: the bits of the order of ranks, a latency and n bytes from when the last member
 * comes, one message and n bytes counted; and where it is refused.
 * tier: check
 */
#include "emulated_devices/collectives/collective.h"
#include "tests/devices/on_crew.h"
#include "emulated_devices/device/contention.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MOST = 8, N = 4 << 20, FEW = 1003 };
static struct error err;

/* 10 us, 50 GB/s, and switches that add. */
static struct cluster adding(void)
{
    return (struct cluster){ .name = "adding", .levels = 1,
                             .link = { { .level = "cluster", .latency = 10000000, .rate = 50000,
                                         .eager = ALWAYS_EAGER, .reduces = true } } };
}

struct job {
    const struct cluster *cluster;
    struct events *events;
    int late;                           /* this device computes for 50 us first; -1: none does */
    picoseconds end[MOST];
    struct traffic sent[MOST];
};

static enum error_code reduce(struct comm *c, void *asked, struct error *e)
{
    struct job *j = asked;
    struct group g;
    c->device->clock.events = &j->events[c->rank];
    enum error_code code = group_world(&g, c, e);
    void *room = arena_alloc(&c->device->arena, BUFFERS, N);
    struct collective call = { .in = room, .out = room, .count = N / 4, .dtype = F32 };
    if (!code && c->rank == j->late) device_charge(c->device, "work", (struct op_cost){ .flops = 50e6 });
    if (!code) code = collective_run(&g, ALLREDUCE, "in_network", &call, e);
    j->end[c->rank] = c->device->clock.now;
    j->sent[c->rank] = c->counted.of[g.kind].of[ALLREDUCE];
    arena_free(&c->device->arena, room);
    if (!code) group_close(&g);
    return code;
}

/* All devices end then, by their clocks and in the replay. */
static void ends(const char *what, const struct cluster *cluster, int P, int late, picoseconds want,
                 picoseconds want_replayed)
{
    static struct events events[MOST];
    struct events *of[MOST];
    picoseconds replayed[MOST];
    struct job j = { .cluster = cluster, .events = events, .late = late };
    const struct crew_job all = { "count", F32, cluster, reduce, &j };
    for (int d = 0; d < P; d++) of[d] = &events[d];
    if (crew_run(P, be_device, &all, &err) || contention_replay(cluster, of, P, replayed, &err))
        fail_msg("%s: %s", what, err.text);
    for (int d = 0; d < P; d++) {
        if (j.end[d] != want || replayed[d] != want_replayed)
            fail_msg("%s: device %d ends after %lld ps by its clock, %lld replayed, expected %lld", what, d,
                     (long long)j.end[d], (long long)replayed[d], (long long)want_replayed);
        assert_int_equal(j.sent[d].messages_sent, 1);
        assert_int_equal(j.sent[d].bytes_sent, N);
        assert_int_equal(j.sent[d].additions, 0);
        events_free(&events[d]);
    }
}

/* 10 us + 4 MiB at 20 ps a byte = 93.886080 us, however many devices there are; 50 us more if one comes so late. */
static void test_once_up_and_once_down(void **state)
{
    (void)state;
    struct cluster c = adding();
    for (int P = 2; P <= MOST; P++) ends("all together", &c, P, -1, 93886080, 93886080);
    c.flop_rate[F32] = 1000000;
    for (int late = 0; late < 5; late++) ends("one comes later", &c, 5, late, 143886080, 143886080);
    c.link[0].eager = 0;
    ends("with a rendezvous", &c, 5, 2, 143886080, 143886080);
    /* An up-link of 4 devices has each vector's sum once in each direction. */
    c.shares = 1, c.shared[0] = (struct shared_link){ .name = "up", .devices = 4, .rate = 50000 };
    ends("over up-links", &c, 8, -1, 93886080, 93886080);
    c.shared[0].rate = 25000;
    ends("at the pace of the slowest", &c, 8, -1, 93886080, 10000000 + 2 * 83886080);
}

/* Numbers whose sum depends on the order. */
static enum error_code same_bits(struct comm *c, void *asked, struct error *e)
{
    struct group g;
    struct arena *a = &c->device->arena;
    enum error_code code = group_world(&g, c, e);
    float *in = arena_alloc(a, BUFFERS, sizeof(float) * FEW), *one = arena_alloc(a, BUFFERS, sizeof(float) * FEW),
          *two = arena_alloc(a, BUFFERS, sizeof(float) * FEW);
    const enum reduction *how = asked;
    for (int i = 0; i < FEW; i++) in[i] = two[i] = 1.0f / (float)(3 + i + 17 * c->rank) * (c->rank % 2 ? 1e4f : 1);
    struct collective call = { .in = in, .out = one, .count = FEW, .dtype = F32, .reduction = *how };
    if (!code) code = collective_run(&g, ALLREDUCE, "star", &call, e);
    call.in = call.out = two;
    if (!code) code = collective_run(&g, ALLREDUCE, "in_network", &call, e);
    if (!code) assert_memory_equal(one, two, sizeof(float) * FEW);
    arena_free(a, in), arena_free(a, one), arena_free(a, two);
    if (!code) group_close(&g);
    return code;
}

static void test_the_order_of_ranks(void **state)
{
    const struct cluster c = adding();
    (void)state;
    for (enum reduction how = 0; how < REDUCTION_COUNT; how++)
        for (int P = 2; P <= MOST; P++) {
            const struct crew_job all = { "cpu", F32, &c, same_bits, &how };
            if (crew_run(P, be_device, &all, &err)) fail_msg("%d devices: %s", P, err.text);
        }
}

static void test_refusals(void **state)
{
    const struct algorithm *a = algorithm_find(ALLREDUCE, "in_network");
    struct cluster c = adding();
    (void)state;
    assert_non_null(a);
    c.levels = 2, c.link[1] = c.link[0], c.link[0].devices = 2, c.link[0].reduces = false;
    const int apart[] = { 0, 2, 4 }, together[] = { 0, 1, 2 };
    struct collective call = { .count = 8, .dtype = F32, .nodes = nodes_on(&c, apart, 3) };
    assert_null(algorithm_refuses(a, 3, &call));
    call.nodes = nodes_on(&c, together, 3);
    assert_non_null(algorithm_refuses(a, 3, &call));
    c.link[1].reduces = false, call.nodes = nodes_on(&c, apart, 3);
    assert_non_null(algorithm_refuses(a, 3, &call));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_once_up_and_once_down), cmocka_unit_test(test_the_order_of_ranks),
        cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("in network", tests, NULL, NULL);
}
