/* How many communication streams a device has: what is in line and what is not, by hand; that no time grows with their
 * number where ports are never busy, and that one may where they are.
 * tier: check
 */
#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/device/streams.h"
#include "tests/devices/on_crew.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <cmocka.h>

enum { MOST = 4, BYTES = 1 << 20 };
static const picoseconds ALPHA = 10000000, PER_BYTE = 20, US = 1000000;
static struct error err;

/* One level, of 50 GB/s, or where messages take their latency alone. */
static struct cluster flat(bool ports)
{
    return (struct cluster){ .name = "flat", .levels = 1,
                             .flop_rate = { [F32] = 1000000 },          /* an operation takes a picosecond */
                             .link = { { .level = "cluster", .latency = ALPHA, .rate = ports ? 50000 : 0,
                                         .eager = ALWAYS_EAGER } } };
}

/* ---- devices ----------------------------------------------------------------------------------------------------- */

struct world { struct comm *comm; struct group group, pair; struct clock *clock; char *memory; };
typedef enum error_code pattern(struct world *, unsigned seed, struct error *);
struct job { struct cluster cluster; int streams; pattern *run; unsigned seed; picoseconds end[MOST]; };

static enum error_code run_on(struct comm *c, void *asked, struct error *e)
{
    struct job *j = asked;
    const int pair[] = { c->rank / 2 * 2, c->rank / 2 * 2 + 1 };
    struct arena *a = &c->device->arena;
    struct world w = { .comm = c, .clock = &c->device->clock, .memory = arena_alloc(a, BUFFERS, (MOST + 1) * BYTES) };
    w.clock->comm_streams = j->streams;
    enum error_code code = group_world(&w.group, c, e);
    if (!code) code = group_of(&w.pair, c, pair, 2, TRAFFIC_OTHER, 0, e);
    if (!code) code = j->run(&w, j->seed, e);
    j->end[c->rank] = w.clock->now;
    if (!code) group_close(&w.pair), group_close(&w.group);
    arena_free(a, w.memory);
    return code;
}

/* Runs a pattern on P devices; in j->end, when each is done. */
static void run(struct job *j, int P)
{
    const struct crew_job all = { "count", F32, &j->cluster, run_on, j };
    if (crew_run(P, be_device, &all, &err)) fail_msg("%d streams: %s", j->streams, err.text);
}

static void charge(struct world *w, picoseconds time)
{
    device_charge(w->comm->device, "work", (struct op_cost){ .flops = (double)time });
}

/* All-gather: of two devices, each has the other's bytes after their latency and their time on the port. */
static enum error_code gather(struct world *w, struct group *g, int64_t bytes, struct error *e)
{
    const struct collective c = { .in = w->memory, .out = w->memory + BYTES, .count = g->size * bytes / 4,
                                  .dtype = F32 };
    return collective_run(g, ALLGATHER, "ring", &c, e);
}

/* Sends in a stream, as schemes do.  @return when it is done, by its stream. */
static picoseconds send(struct world *w, struct group *g, enum sending what, int64_t bytes, struct error *e)
{
    clock_begin(w->clock, sending_stream(w->clock, what));
    if (gather(w, g, bytes, e)) comm_give_up(w->comm, e);
    const picoseconds done = w->clock->now;
    clock_end(w->clock);
    return done;
}

static void wait_for_all(struct world *w)
{
    for (enum sending s = SENDS_WEIGHTS; s < SENDINGS; s++) clock_join(w->clock, sending_stream(w->clock, s));
}

/* ---- by hand ----------------------------------------------------------------------------------------------------- */

/* What two kinds of sending take together; SENDS_AND_WAITS is a collective that is simply called. */
static enum sending first, second;
static enum error_code two_sendings(struct world *w, unsigned seed, struct error *e)
{
    enum error_code code = OK;
    (void)seed;
    send(w, &w->group, first, BYTES, e);
    if (second == SENDS_AND_WAITS) code = gather(w, &w->group, BYTES, e);
    else send(w, &w->group, second, BYTES, e);
    charge(w, 5 * US);
    wait_for_all(w);
    return code;
}

/* In line: one after the other, and computing is hidden.  Apart: both messages have their latency at once, and each has
 * half of the port, so that the second is done when the port has moved both; what is waited for at once is before the
 * computing. */
static picoseconds by_hand(bool in_line, bool waits)
{
    const picoseconds bytes = BYTES * PER_BYTE;
    if (in_line) return 2 * (ALPHA + bytes) + (waits ? 5 * US : 0);
    return ALPHA + 2 * bytes + (waits ? 5 * US : 0);
}

/* The streams with which two kinds are no longer in line. */
static void test_two_sendings(void **state)
{
    static const struct { enum sending first, second; int apart_from; } pairs[] = {
        { SENDS_WEIGHTS, SENDS_WEIGHTS, 5 }, { SENDS_WEIGHTS, SENDS_GRADIENTS, 3 }, { SENDS_WEIGHTS, SENDS_SUMS, 4 },
        { SENDS_GRADIENTS, SENDS_SUMS, 3 }, { SENDS_WEIGHTS, SENDS_ROWS, 2 }, { SENDS_GRADIENTS, SENDS_ROWS, 2 },
        { SENDS_SUMS, SENDS_ROWS, 2 }, { SENDS_WEIGHTS, SENDS_AND_WAITS, 2 }, { SENDS_ROWS, SENDS_AND_WAITS, 2 },
    };
    (void)state;
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        for (int n = 1; n <= MOST_COMM_STREAMS; n++) {
            struct job j = { .cluster = flat(true), .streams = n, .run = two_sendings };
            first = pairs[i].first, second = pairs[i].second;
            run(&j, 2);
            const picoseconds want = by_hand(n < pairs[i].apart_from, second == SENDS_AND_WAITS);
            if (j.end[1] != want)
                fail_msg("sendings %d and %d with %d streams take %lld ps, want %lld", (int)first, (int)second, n,
                         (long long)j.end[1], (long long)want);
        }
}

/* Weights, gradients behind them, and a collective for which the device waits and then computes.  With two streams the
 * collective has half of the port, since the weights have the other half; with three the gradients have a third,
 * too. */
static enum error_code needed_last(struct world *w, unsigned seed, struct error *e)
{
    (void)seed;
    send(w, &w->group, SENDS_WEIGHTS, BYTES, e);
    send(w, &w->group, SENDS_GRADIENTS, BYTES, e);
    const enum error_code code = gather(w, &w->group, 4096, e);
    charge(w, 500 * US);
    wait_for_all(w);
    return code;
}

static void test_ports_can_make_more_streams_slower(void **state)
{
    const picoseconds few = 4096 * PER_BYTE;
    (void)state;
    for (int n = 2; n <= 3; n++) {
        struct job j = { .cluster = flat(true), .streams = n, .run = needed_last };
        run(&j, 2);
        assert_int_equal(j.end[1], ALPHA + n * few + 500 * US);
    }
}

/* ---- no port is ever busy ---------------------------------------------------------------------------------------- */

static unsigned draw(unsigned *at, unsigned below)
{
    *at = *at * 1664525u + 1013904223u;
    return (*at >> 16) % below;
}

/* All devices draw the same calls, and different computing. */
static enum error_code at_random(struct world *w, unsigned seed, struct error *e)
{
    enum { KEPT = 3, CALLS = 24 };
    picoseconds done[KEPT] = { 0 };
    unsigned at = seed, own = seed * 16 + (unsigned)w->comm->rank;
    enum error_code code = OK;
    for (int i = 0; i < CALLS && !code; i++) {
        struct group *g = draw(&at, 2) ? &w->group : &w->pair;
        const unsigned what = draw(&at, SENDINGS + 2), slot = draw(&at, KEPT);
        if (what < SENDS_AND_WAITS) done[slot] = send(w, g, what, 4096, e);
        else if (what == SENDS_AND_WAITS) code = allreduce(g, w->memory + BYTES, 64, F32, SUM, NULL, e);
        else if (what == SENDINGS) charge(w, draw(&own, 40) * US);
        else clock_wait(w->clock, done[slot]);
    }
    wait_for_all(w);
    return code;
}

/* Then a time is the longest of chains of work, latencies and waits; and fewer streams only add waits. */
static void test_without_ports_more_streams_are_not_slower(void **state)
{
    int gained[MOST_COMM_STREAMS] = { 0 };
    (void)state;
    for (unsigned seed = 1; seed <= 200; seed++) {
        struct job j[MOST_COMM_STREAMS];
        for (int n = 0; n < MOST_COMM_STREAMS; n++) {
            j[n] = (struct job){ .cluster = flat(false), .streams = n + 1, .run = at_random, .seed = seed };
            run(&j[n], MOST);
            for (int d = 0; d < MOST && n > 0; d++) {
                gained[n] += j[n].end[d] < j[n - 1].end[d];
                if (j[n].end[d] > j[n - 1].end[d])
                    fail_msg("seed %u, device %d: %d streams take %lld ps, %d take %lld", seed, d, n + 1,
                             (long long)j[n].end[d], n, (long long)j[n - 1].end[d]);
            }
        }
    }
    for (int n = 1; n < MOST_COMM_STREAMS; n++)
        if (gained[n] == 0) fail_msg("%d streams are never faster than %d", n + 1, n);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_two_sendings), cmocka_unit_test(test_ports_can_make_more_streams_slower),
        cmocka_unit_test(test_without_ports_more_streams_are_not_slower),
    };
    return cmocka_run_group_tests_name("comm_streams", tests, NULL, NULL);
}
