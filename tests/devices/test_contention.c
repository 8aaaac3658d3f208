/* A crew's events replayed in order of time, against closed forms: links that devices share, messages that slow
 * computing, devices that do not look after messages while they compute; and what a description of these must have.
 * tier: check
 */
#include "emulated_devices/collectives/collective.h"
#include "tests/devices/on_crew.h"
#include "emulated_devices/device/contention.h"
#include "tests/devices/own_ports.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { MOST = 64, N = 4 << 20 };        /* bytes of a vector */
static const double ALPHA = 10e6, PER_BYTE = 20;        /* picoseconds: 10 us, 50 GB/s */
static struct error err;
static char *room;                      /* of the last device: `count` reads and writes nothing */

/* One level: every device with every other. */
static struct cluster flat(void)
{
    return (struct cluster){ .name = "flat", .levels = 1,
                             .link = { { .level = "cluster", .latency = 10000000, .rate = 50000,
                                         .eager = ALWAYS_EAGER } } };
}

/* A link that all messages which leave a unit of some devices use. */
static struct cluster sharing(int devices, int64_t rate)
{
    struct cluster c = flat();
    c.shares = 1, c.shared[0] = (struct shared_link){ .name = "card", .devices = devices, .rate = rate };
    return c;
}

/* ---- devices that record ----------------------------------------------------------------------------------------- */

typedef enum error_code pattern(struct comm *, struct group *, struct error *);
struct job { const struct cluster *cluster; pattern *run; struct events *events; picoseconds alone[MOST]; };

static enum error_code record(struct comm *c, void *asked, struct error *e)
{
    struct job *j = asked;
    struct arena *a = &c->device->arena;
    struct group g;
    c->device->clock.events = &j->events[c->rank];
    enum error_code code = group_world(&g, c, e);
    void *own = arena_alloc(a, BUFFERS, 3 * (uint64_t)N);
    room = own;
    if (!code) code = j->run(c, &g, e);
    j->alone[c->rank] = c->device->clock.now;
    arena_free(a, own);
    if (!code) group_close(&g);
    return code;
}

static enum error_code run_recorded(struct job *j, int P)
{
    const struct crew_job all = { "count", F32, j->cluster, record, j };
    return crew_run(P, be_device, &all, &err);
}

static picoseconds end[MOST];

/* When the last of P devices is done. */
static double replayed(const struct cluster *c, int P, pattern *run)
{
    static struct events events[MOST];
    struct events *of[MOST];
    picoseconds most = 0;
    struct job j = { .cluster = c, .run = run, .events = events };
    for (int d = 0; d < P; d++) of[d] = &events[d];
    if (run_recorded(&j, P) || contention_replay(c, of, P, end, &err)) fail_msg("%s", err.text);
    for (int d = 0; d < P; d++) {
        most = end[d] > most ? end[d] : most;
        events_free(&events[d]);
    }
    return (double)most;
}

static double slowest_alone(const struct cluster *c, int P, pattern *run)
{
    static struct events events[MOST];
    picoseconds most = 0;
    struct job j = { .cluster = c, .run = run, .events = events };
    if (run_recorded(&j, P)) fail_msg("%s", err.text);
    for (int d = 0; d < P; d++) {
        most = j.alone[d] > most ? j.alone[d] : most;
        events_free(&events[d]);
    }
    return (double)most;
}

/* A picosecond for each rounding. */
static void near(const char *what, double got, double want)
{
    if (!(got >= want - 64 && got <= want + 64)) fail_msg("%s takes %.0f ps, expected %.0f", what, got, want);
}

/* ---- patterns ---------------------------------------------------------------------------------------------------- */

static enum error_code with(struct group *g, enum operation op, const char *name, int64_t count, struct error *e)
{
    struct collective call = { .in = room, .out = room + N, .count = count, .dtype = F32 };
    (void)e;
    return collective_run(g, op, name, &call, e);
}

static enum error_code ring(struct comm *c, struct group *g, struct error *e)
{
    (void)c;
    return with(g, ALLREDUCE, "ring", N / 4, e);
}

static enum error_code all_to_all(struct comm *c, struct group *g, struct error *e)
{
    (void)c;
    return with(g, ALLTOALL, "linear", N / 4 / g->size, e);
}

/* Every other device sends an eighth of N to device 0. */
static enum error_code incast(struct comm *c, struct group *g, struct error *e)
{
    struct exchange x = exchange_begin(g, POINT_TO_POINT);
    struct message m[MOST];
    enum error_code code = OK;
    for (int i = 1; i < g->size; i++)
        if (c->rank == 0) m[i] = message_receive(&x, i, room, N / 8);
        else if (c->rank == i) m[i] = message_send(&x, 0, room, N / 8);
    for (int i = 1; i < g->size && !code; i++)
        if (c->rank == 0 || c->rank == i) code = message_wait(c, m[i], e);
    return code;
}

/* The first half sends to the second, each device to one. */
static enum error_code across(struct comm *c, struct group *g, struct error *e)
{
    struct exchange x = exchange_begin(g, POINT_TO_POINT);
    const int half = g->size / 2;
    struct message m = c->rank < half ? message_send(&x, c->rank + half, room, N)
                                      : message_receive(&x, c->rank - half, room, N);
    return message_wait(c, m, e);
}

/* Two devices of the first half send to the second, each to its own. */
static enum error_code two_across(struct comm *c, struct group *g, int other, struct error *e)
{
    struct exchange x = exchange_begin(g, POINT_TO_POINT);
    const int half = g->size / 2, place = c->rank % half;
    if (place != 0 && place != other) return OK;
    return message_wait(c, c->rank < half ? message_send(&x, c->rank + half, room, N)
                                          : message_receive(&x, c->rank - half, room, N), e);
}

static enum error_code first_two_across(struct comm *c, struct group *g, struct error *e)
{
    return two_across(c, g, 1, e);
}

static enum error_code second_next_across(struct comm *c, struct group *g, struct error *e)
{
    return two_across(c, g, 2, e);
}

/* Neighbours exchange. */
static enum error_code pairs(struct comm *c, struct group *g, struct error *e)
{
    struct exchange x = exchange_begin(g, POINT_TO_POINT);
    const int peer = c->rank ^ 1;
    struct message out = message_send(&x, peer, room, N), in = message_receive(&x, peer, room + N, N);
    const enum error_code code = message_wait(c, out, e);
    return code ? code : message_wait(c, in, e);
}

/* A long message, then a short one, over the same card to different devices; device 1's has to itself what is left. */
static enum error_code long_and_short(struct comm *c, struct group *g, struct error *e)
{
    struct exchange x = exchange_begin(g, POINT_TO_POINT);
    struct message m;
    switch (c->rank) {
    case 0: m = message_send(&x, 2, room, 3 * (N / 4)); break;
    case 1: m = message_send(&x, 3, room, N / 4); break;
    case 2: m = message_receive(&x, 0, room, 3 * (N / 4)); break;
    default: m = message_receive(&x, 1, room, N / 4);
    }
    return message_wait(c, m, e);
}

/* Device 1's message comes while device 0's is under way, and device 0 then computes beyond both. */
static enum error_code one_comes_later(struct comm *c, struct group *g, struct error *e)
{
    struct exchange x = exchange_begin(g, POINT_TO_POINT);
    struct message m;
    if (c->rank == 1) device_charge(c->device, "work", (struct op_cost){ .flops = 50e6 });
    m = c->rank < 2 ? message_send(&x, c->rank + 2, room, N) : message_receive(&x, c->rank - 2, room, N);
    for (int i = 0; i < 2 && c->rank == 0; i++) device_charge(c->device, "work", (struct op_cost){ .flops = 100e6 });
    return message_wait(c, m, e);
}

enum { MOVES = 2500000 };              /* bytes of 50 us */

static void work(struct comm *c, double us) { device_charge(c->device, "work", (struct op_cost){ .flops = 1e6 * us }); }

/* Device 1 sends to device 0; then one computes 100 us and the other 30 us. */
static enum error_code sent_before_work(struct comm *c, struct group *g, struct error *e)
{
    struct exchange x = exchange_begin(g, POINT_TO_POINT);
    struct message m = c->rank == 0 ? message_receive(&x, 1, room, MOVES) : message_send(&x, 0, room, MOVES);
    work(c, c->rank == 0 ? 100 : 30);
    return message_wait(c, m, e);
}

/* Both send, and compute 100 us. */
static enum error_code both_before_work(struct comm *c, struct group *g, struct error *e)
{
    struct exchange x = exchange_begin(g, POINT_TO_POINT);
    struct message in = message_receive(&x, !c->rank, room, MOVES), out = message_send(&x, !c->rank, room + N, MOVES);
    work(c, 100);
    const enum error_code code = message_wait(c, in, e);
    return code ? code : message_wait(c, out, e);
}

/* Device 0 sends to device 1, works 40 us, waits for a short message of device 2 until 70 us, and works 50 us. */
static enum error_code a_call_between(struct comm *c, struct group *g, struct error *e)
{
    enum { SHORT = 1000 };
    struct exchange x = exchange_begin(g, POINT_TO_POINT);
    if (c->rank == 1) return message_wait(c, message_receive(&x, 0, room, MOVES), e);
    if (c->rank == 2) {
        work(c, 70 - 10 - SHORT * PER_BYTE * 1e-6);
        return message_wait(c, message_send(&x, 0, room, SHORT), e);
    }
    struct message out = message_send(&x, 1, room, MOVES), in = message_receive(&x, 2, room + N, SHORT);
    work(c, 40);
    const enum error_code code = message_wait(c, in, e);
    work(c, 50);
    return code ? code : message_wait(c, out, e);
}

/* A ring that another stream goes through while the device computes twice 50 us. */
static enum error_code ring_beside_work(struct comm *c, struct group *g, struct error *e)
{
    clock_begin(&c->device->clock, COMMUNICATION);
    const enum error_code code = with(g, ALLREDUCE, "ring", N / 4, e);
    clock_end(&c->device->clock);
    for (int i = 0; i < 2; i++) work(c, 50);
    clock_join(&c->device->clock, COMMUNICATION);
    return code;
}

static enum error_code swap_with_neighbour(struct comm *c, struct group *g, struct error *e)
{
    struct exchange x = exchange_begin(g, POINT_TO_POINT);
    return exchange_both(&x, c->rank ^ 1, room, MOVES, c->rank ^ 1, room + N, MOVES, e);
}

/* A pass of 20 us with an exchange of 60 us in the middle, and one of 70 us beside it, with another at its end. */
static enum error_code two_passes(struct comm *c, struct group *g, struct error *e)
{
    struct clock *clock = &c->device->clock;
    struct pass_work noted = { 0 };
    work(c, 3);
    clock_note(clock, &noted);
    work(c, 10);
    enum error_code code = swap_with_neighbour(c, g, e);
    work(c, 10);
    clock_beside(clock);
    work(c, 70);
    if (!code) code = swap_with_neighbour(c, g, e);
    clock_end(clock);
    clock_join(clock, BESIDE);
    free(noted.span);
    return code;
}

/* Device 0 sends N bytes to its neighbour and then `second`.  That waits for the message `needed`, works 150 us and
 * waits for the other. */
static enum error_code two_on_a_port(struct comm *c, struct group *g, uint64_t second, int needed, struct error *e)
{
    struct exchange x = exchange_begin(g, POINT_TO_POINT);
    const uint64_t bytes[2] = { N, second };
    struct message m[2];
    for (int i = 0; i < 2; i++)
        m[i] = c->rank == 0 ? message_send(&x, 1, room, bytes[i]) : message_receive(&x, 0, room + i * N, bytes[i]);
    enum error_code code = message_wait(c, m[needed], e);
    if (c->rank == 1) work(c, 150);
    return code ? code : message_wait(c, m[1 - needed], e);
}

static enum error_code short_one_behind(struct comm *c, struct group *g, struct error *e)
{
    return two_on_a_port(c, g, N / 8, 1, e);
}

static enum error_code first_is_needed(struct comm *c, struct group *g, struct error *e)
{
    return two_on_a_port(c, g, N, 0, e);
}

/* ---- ports of its own for each message --------------------------------------------------------------------------- */

static void check_bound(const char *what, const struct cluster *c, int P, pattern *run)
{
    static struct events events[MOST];
    struct events *of[MOST];
    picoseconds least[MOST];
    struct job j = { .cluster = c, .run = run, .events = events };
    for (int d = 0; d < P; d++) of[d] = &events[d];
    if (run_recorded(&j, P)) fail_msg("%s", err.text);
    with_own_ports(c, events, P, least);
    if (contention_replay(c, of, P, end, &err)) fail_msg("%s", err.text);
    for (int d = 0; d < P; d++) {
        if (end[d] < least[d] || j.alone[d] < least[d])
            fail_msg("%s: device %d is done after %lld ps in the replay and %lld by its clock; with ports of its own "
                     "for each message it would take %lld",
                     what, d, (long long)end[d], (long long)j.alone[d], (long long)least[d]);
        events_free(&events[d]);
    }
}

/* ---- closed forms ------------------------------------------------------------------------------------------------ */

/* With ports alone, what the clock itself says: the table of docs/plans/virtual_clock.md. */
static void test_ports(void **state)
{
    (void)state;
    for (int in_order = 0; in_order < 2; in_order++) {
        struct cluster c = flat();
        c.in_order = in_order;
        near("ring", replayed(&c, 8, ring), 14 * (ALPHA + N / 8 * PER_BYTE));
        near("all-to-all", replayed(&c, 8, all_to_all), ALPHA + 7 * (N / 8) * PER_BYTE);
        near("incast", replayed(&c, 8, incast), ALPHA + 7 * (N / 8) * PER_BYTE);
        near("all-to-all of 64", replayed(&c, 64, all_to_all), ALPHA + 63 * (N / 64) * PER_BYTE);
        near("ring by the clock", replayed(&c, 5, ring), slowest_alone(&c, 5, ring));
        c.link[0].eager = 1000, c.link[0].gap = 2000000;
        near("ring that waits, by the clock", replayed(&c, 8, ring), slowest_alone(&c, 8, ring));
    }
}

/* A card as fast as a port, for all devices of a unit of 4: four times as long.  Twice as fast: twice. */
static void test_a_card_for_a_node(void **state)
{
    (void)state;
    struct cluster c = sharing(4, 50000);
    near("four messages over a card", replayed(&c, 8, across), ALPHA + 4 * N * PER_BYTE);
    c.in_order = true;
    near("four, one after the other", replayed(&c, 8, across), ALPHA + 4 * N * PER_BYTE);
    c = sharing(4, 100000);
    near("four over one of twice the rate", replayed(&c, 8, across), ALPHA + 2 * N * PER_BYTE);
    near("inside a node", replayed(&c, 8, pairs), ALPHA + N * PER_BYTE);
    c = sharing(1, 50000);
    near("a card each", replayed(&c, 8, across), ALPHA + N * PER_BYTE);
    near("both ways", replayed(&c, 8, pairs), ALPHA + N * PER_BYTE);
    c.shared[0].half_duplex = true;
    near("both ways in turn", replayed(&c, 8, pairs), ALPHA + 2 * N * PER_BYTE);
}

/* Oversubscription: cards of nodes of 2, and an up-link for 4 devices with half of their cards' rate. */
static void test_an_up_link(void **state)
{
    (void)state;
    struct cluster c = sharing(2, 100000);
    c.shares = 2, c.shared[1] = (struct shared_link){ .name = "up", .devices = 4, .rate = 100000 };
    near("across the up-link", replayed(&c, 8, across), ALPHA + 2 * N * PER_BYTE);
    c.shared[1].rate = 200000;
    near("with all of it", replayed(&c, 8, across), ALPHA + N * PER_BYTE);
}

static void test_a_switch(void **state)
{
    (void)state;
    struct cluster c = sharing(8, 100000);
    c.shared[0].kind = SHARED_INSIDE;
    near("eight messages through a switch", replayed(&c, 8, pairs), ALPHA + 8 * N * PER_BYTE / 2);
}

/* Max-min: both have half until the short one is done; then the long one has all.  In order: the second waits. */
static void test_fair_and_in_order(void **state)
{
    (void)state;
    struct cluster c = sharing(2, 50000);
    near("the longer of two", replayed(&c, 4, long_and_short), ALPHA + N * PER_BYTE);
    near("the shorter of two", (double)end[3], ALPHA + 2 * (N / 4) * PER_BYTE);
    c.in_order = true;
    near("the later of two", replayed(&c, 4, long_and_short), ALPHA + N * PER_BYTE);
    near("the earlier of two", (double)end[2], ALPHA + 3 * (N / 4) * PER_BYTE);
    c.in_order = false;
    c.link[0].rate = 25000;                                 /* a port has half of the card: they do not meet */
    near("the longer of two by its port", replayed(&c, 4, long_and_short), ALPHA + 2 * (3 * (N / 4)) * PER_BYTE);
}

/* 50 us alone, then half; an operation takes a picosecond. */
static void test_order_of_time(void **state)
{
    (void)state;
    struct cluster c = sharing(2, 50000);
    c.flop_rate[F32] = 1000000;
    near("what device 0 computes", replayed(&c, 4, one_comes_later), 200e6);
    near("the later message", (double)end[3], ALPHA + 2 * N * PER_BYTE);
    near("the one before", (double)end[2], ALPHA + 50e6 + 2 * (N * PER_BYTE - 50e6));
}

/* A ring of 8 in one dimension: to the device opposite, 4 hops; each link up carries messages of 4 devices. */
/* Two messages on a port: the clock sends them in program order, the replay lets them share it.  So either can be the
 * shorter. */
static void test_neither_bounds_the_other(void **state)
{
    struct cluster c = flat();
    (void)state;
    c.flop_rate[F32] = 1000000;
    near("short, by the clock", slowest_alone(&c, 2, short_one_behind), ALPHA + 9 * (N / 8) * PER_BYTE + 150e6);
    near("short, replayed", replayed(&c, 2, short_one_behind), ALPHA + 2 * (N / 8) * PER_BYTE + 150e6);
    near("needed first, by the clock", slowest_alone(&c, 2, first_is_needed), ALPHA + N * PER_BYTE + 150e6);
    near("needed first, replayed", replayed(&c, 2, first_is_needed), ALPHA + 2 * N * PER_BYTE + 150e6);
}

/* What both are held by: messages on ports of their own. */
static void test_least_time(void **state)
{
    static const struct { const char *name; pattern *run; int P; } of[] = {
        { "ring", ring, 8 }, { "all-to-all", all_to_all, 8 }, { "incast", incast, 8 }, { "across", across, 8 },
        { "pairs", pairs, 8 }, { "short one behind", short_one_behind, 2 }, { "first is needed", first_is_needed, 2 },
        { "passes", two_passes, 2 }, { "ring beside work", ring_beside_work, 4 },
    };
    (void)state;
    for (int k = 0; k < 6; k++)
        for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
            struct cluster c = k % 2 ? sharing(2, 60000) : flat();
            if (k / 2 > 0) c.link[0].eager = 1000, c.link[0].gap = 2000000;
            c.no_progress = k / 2 == 2, c.flop_rate[F32] = 1000000;
            check_bound(of[i].name, &c, of[i].P, of[i].run);
        }
}

static void test_a_torus(void **state)
{
    (void)state;
    struct cluster c = sharing(1, 50000);
    c.shared[0].kind = SHARED_TORUS, c.shared[0].dimensions = 1, c.shared[0].size[0] = 8, c.shared[0].hop = 500000;
    near("opposite on a ring", replayed(&c, 8, across), ALPHA + 3 * 500000 + 4 * N * PER_BYTE);
    near("neighbours on a ring", replayed(&c, 8, pairs), ALPHA + N * PER_BYTE);
    near("a ring on a ring", replayed(&c, 8, ring), 14 * (ALPHA + N / 8 * PER_BYTE));
    c.shared[0].dimensions = 2, c.shared[0].size[0] = 2, c.shared[0].size[1] = 4;
    near("opposite on 2 x 4", replayed(&c, 8, across), ALPHA + 500000 + 2 * N * PER_BYTE);
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

/* Nodes of 2 devices: device 0 of each is on rail 0, device 1 on rail 1.  A block has 4 devices. */
static struct cluster rails(void)
{
    struct cluster c = sharing(4, 50000);
    c.levels = 2, c.link[1] = c.link[0], c.link[0].devices = 2;
    c.shared[0].stride = 2, c.shared[0].of_level = 2;
    return c;
}

static void test_rails(void **state)
{
    (void)state;
    struct cluster c = rails();
    near("two messages of a rail", replayed(&c, 8, second_next_across), ALPHA + 2 * N * PER_BYTE);
    near("two messages of two rails", replayed(&c, 8, first_two_across), ALPHA + N * PER_BYTE);
    near("messages inside nodes pass no rail", replayed(&c, 8, pairs), ALPHA + N * PER_BYTE);
    c.shared[0].hop = 3000000;
    near("what leaves a rail takes longer", replayed(&c, 8, first_two_across), ALPHA + 3e6 + N * PER_BYTE);
    near("what stays does not", replayed(&c, 4, first_two_across), ALPHA + N * PER_BYTE);
    c.shared[0].stride = 0;
    near("two messages of a block", replayed(&c, 8, first_two_across), ALPHA + 3e6 + 2 * N * PER_BYTE);
}

/* Leaves of 2 devices and pods of 4, with half and a quarter of their devices' rate. */
static void test_three_levels(void **state)
{
    (void)state;
    struct cluster c = sharing(2, 50000);
    c.shares = 2, c.shared[1] = c.shared[0], c.shared[1].devices = 4;
    near("inside leaves", replayed(&c, 8, pairs), ALPHA + N * PER_BYTE);
    near("between leaves of a pod", replayed(&c, 4, across), ALPHA + 2 * N * PER_BYTE);
    near("between pods", replayed(&c, 8, across), ALPHA + 4 * N * PER_BYTE);
}

/* By the hash of sender and receiver, computed apart from this program, the messages 0 -> 4, 1 -> 5 and 2 -> 6 take
 * path 0 of two, and 3 -> 7 takes path 1. */
static void test_paths(void **state)
{
    (void)state;
    struct cluster c = sharing(4, 50000);
    c.shared[0].paths = 2;
    near("three on a path", replayed(&c, 8, across), ALPHA + 3 * N * PER_BYTE);
    near("the one on the other path", (double)end[7], ALPHA + N * PER_BYTE);
    c.shared[0].by_receiver = true;
    near("two on each path", replayed(&c, 8, across), ALPHA + 2 * N * PER_BYTE);
    c.shared[0].paths = 4;
    near("one on each path", replayed(&c, 8, across), ALPHA + N * PER_BYTE);
}

/* Ports have 50 GB/s, each pair 10: five times the time of a byte. */
static void test_full_mesh(void **state)
{
    (void)state;
    struct cluster c = sharing(8, 10000);
    c.shared[0].kind = SHARED_PAIRS;
    near("both ways of a pair", replayed(&c, 8, pairs), ALPHA + 5 * N * PER_BYTE);
    near("all pairs of four", replayed(&c, 4, all_to_all), ALPHA + N / 4 * 5 * PER_BYTE);
    near("all pairs of eight fill the ports", replayed(&c, 8, all_to_all), ALPHA + 7 * (N / 8) * PER_BYTE);
    near("a ring on a mesh", replayed(&c, 8, ring), 14 * (ALPHA + N / 8 * 5 * PER_BYTE));
    c.shared[0].half_duplex = true;
    near("both ways in turn of a pair", replayed(&c, 8, pairs), ALPHA + 10 * N * PER_BYTE);
    c.shared[0].devices = 4;
    near("between two meshes", replayed(&c, 8, across), ALPHA + N * PER_BYTE);
}

/* Four messages leave at 200 GB/s and enter at 25, or the other way round. */
static void test_two_rates(void **state)
{
    (void)state;
    struct cluster c = sharing(4, 200000);
    near("as fast as the ports", replayed(&c, 8, across), ALPHA + N * PER_BYTE);
    c.shared[0].entering = 25000;
    near("slow where they enter", replayed(&c, 8, across), ALPHA + 8 * N * PER_BYTE);
    c.shared[0].entering = 200000, c.shared[0].rate = 25000;
    near("slow where they leave", replayed(&c, 8, across), ALPHA + 8 * N * PER_BYTE);
}

/* Two nodes of 4 devices, each a ring: messages between nodes pass neither. */
static void test_a_torus_in_each_node(void **state)
{
    (void)state;
    struct cluster c = sharing(1, 50000);
    c.levels = 2, c.link[1] = c.link[0], c.link[0].devices = 4;
    c.shared[0].kind = SHARED_TORUS, c.shared[0].dimensions = 1, c.shared[0].size[0] = 4, c.shared[0].of_level = 1;
    c.shared[0].hop = 500000;
    near("opposite on a node's ring", replayed(&c, 4, across), ALPHA + 500000 + 2 * N * PER_BYTE);
    near("from ring to ring", replayed(&c, 8, across), ALPHA + N * PER_BYTE);
    near("neighbours on both rings", replayed(&c, 8, pairs), ALPHA + N * PER_BYTE);
}

/* A message of 50 us is on its devices' ports from 10 to 60 us. */
static void test_messages_slow_computing(void **state)
{
    (void)state;
    struct cluster c = flat();
    c.flop_rate[F32] = 1000000;
    c.contention.compute_percent = 100;
    near("work that no message slows", replayed(&c, 2, sent_before_work), 100e6);
    c.contention.compute_percent = 125;
    near("what the receiver computes", replayed(&c, 2, sent_before_work), 10e6 + 50e6 + (100e6 - 10e6 - 50e6 / 1.25));
    near("what the sender computes", (double)end[1], 10e6 + 20e6 * 1.25);
    near("what it computes by its own clock", slowest_alone(&c, 2, sent_before_work), 100e6);
    c.contention.compute_percent = 200;
    near("with two messages at once", replayed(&c, 2, both_before_work), 10e6 + 50e6 + (100e6 - 10e6 - 50e6 / 2));
    near("nobody computes", replayed(&c, 8, all_to_all), ALPHA + 7 * (N / 8) * PER_BYTE);
}

static void test_nobody_looks_after_messages(void **state)
{
    (void)state;
    struct cluster c = flat();
    c.flop_rate[F32] = 1000000, c.link[0].eager = 0;
    near("sent and computed", replayed(&c, 2, sent_before_work), 100e6);
    c.no_progress = true;
    near("both compute", replayed(&c, 2, sent_before_work), 100e6 + 50e6);
    near("its sender", (double)end[1], 100e6 + 50e6 - ALPHA);
    c.link[0].eager = 1000;
    near("a call between", replayed(&c, 3, a_call_between), 120e6 + 20e6);
    near("a call between, its sender", (double)end[0], 120e6 + 20e6 - ALPHA);
    c.link[0].eager = ALWAYS_EAGER;
    near("an eager message", replayed(&c, 2, sent_before_work), 100e6);
    const double step = ALPHA + N / 2 * PER_BYTE, sum = N / 8;
    near("a ring that nobody looks after", replayed(&c, 2, ring_beside_work), 100e6 + sum + step);
    c.no_progress = false;
    near("a ring that goes on", replayed(&c, 2, ring_beside_work), step + sum + step);
    near("it by its own clock", slowest_alone(&c, 2, ring_beside_work), step + sum + step);
}

/* The second fills the 60 us and goes on after the first.  Messages of 50 us that take twice the time of what they
 * meet: beside the first exchange, from 23 to 73 us, 25 us are done, and 25 more begin later. */
static void test_passes_side_by_side(void **state)
{
    (void)state;
    struct cluster c = flat();
    c.flop_rate[F32] = 1000000;
    near("two passes by the clock", slowest_alone(&c, 2, two_passes), 3e6 + 90e6 + 60e6);
    near("two passes", replayed(&c, 2, two_passes), 3e6 + 90e6 + 60e6);
    c.contention.compute_percent = 200;
    near("two passes and what slows them", replayed(&c, 2, two_passes), 3e6 + 90e6 + 25e6 + 60e6);
}

/* Both: only what moves slows. */
static void test_slowed_and_without_progress(void **state)
{
    (void)state;
    struct cluster c = flat();
    c.flop_rate[F32] = 1000000, c.link[0].eager = 0, c.no_progress = true, c.contention.compute_percent = 200;
    near("a message that waits for both", replayed(&c, 2, sent_before_work), 100e6 + 50e6);
    c.link[0].eager = ALWAYS_EAGER;
    near("one that does not", replayed(&c, 2, sent_before_work), 10e6 + 50e6 + (100e6 - 10e6 - 50e6 / 2));
}

/* ---- descriptions ------------------------------------------------------------------------------------------------ */

static void test_descriptions(void **state)
{
    static const char frame[] =
        "{ \"name\": \"x\", \"description\": \"x\", \"device\": { \"source\": \"x\" },"
        " \"links\": [ { \"level\": \"cluster\", \"latency_ns\": 1, \"MB_per_second\": 1, \"source\": \"x\" } ], %s }";
    static const struct { const char *shared, *says; } bad[] = {
        { "\"sharing\": \"fair\"", "no \"shared\" says which" },
        { "\"shared\": []", "has 0 links" },
        { "\"shared\": [ { \"name\": \"card\" } ]", "either \"messages\" or \"torus\"" },
        { "\"shared\": [ { \"name\": \"card\", \"messages\": \"out\", \"devices\": 2, \"MB_per_second\": 1, "
          "\"source\": \"x\" } ]", "'out'; it must be leaving, inside or pairs" },
        { "\"shared\": [ { \"name\": \"card\", \"messages\": \"leaving\", \"devices\": 2, \"MB_per_second\": 0, "
          "\"source\": \"x\" } ]", "MB_per_second" },
        { "\"shared\": [ { \"name\": \"card\", \"messages\": \"leaving\", \"devices\": 0, \"MB_per_second\": 1, "
          "\"source\": \"x\" } ]", "devices" },
        { "\"shared\": [ { \"name\": \"t\", \"torus\": [2, 0], \"devices\": 1, \"MB_per_second\": 1, "
          "\"source\": \"x\" } ]", "torus[1]" },
        { "\"shared\": [ { \"name\": \"t\", \"torus\": [], \"devices\": 1, \"MB_per_second\": 1, \"source\": \"x\" } ]",
          "has 0 dimensions" },
        { "\"shared\": [ { \"name\": \"t\", \"torus\": [2], \"devices\": 1, \"MB_per_second\": 1, "
          "\"source\": \"x\" } ], \"sharing\": \"first\"", "'first'; it must be fair or in order" },
        { "\"shared\": [ { \"name\": \"c\", \"messages\": \"leaving\", \"devices\": 4, \"MB_per_second\": 1, "
          "\"stride\": 3, \"source\": \"x\" } ]",
          "\"devices\" is 4; it must be a multiple of the \"stride\", 3" },
        { "\"shared\": [ { \"name\": \"c\", \"messages\": \"leaving\", \"devices\": 4, \"MB_per_second\": 1, "
          "\"stride\": 0, \"source\": \"x\" } ]",
          "\"stride\"" },
        { "\"shared\": [ { \"name\": \"c\", \"torus\": [2, 2], \"devices\": 4, \"MB_per_second\": 1, "
          "\"stride\": 2, \"source\": \"x\" } ]",
          "a link of a torus has no \"stride\"" },
        { "\"shared\": [ { \"name\": \"c\", \"messages\": \"leaving\", \"devices\": 4, \"MB_per_second\": 1, "
          "\"level\": \"nodes\", \"source\": \"x\" } ]",
          "\"level\" is 'nodes'; no level of \"links\" has this name" },
        { "\"shared\": [ { \"name\": \"c\", \"messages\": \"leaving\", \"devices\": 4, \"MB_per_second\": 1, "
          "\"level\": \"clusters\", \"source\": \"x\" } ]",
          "did you mean \"cluster\"?" },
        { "\"shared\": [ { \"name\": \"c\", \"messages\": \"leaving\", \"devices\": 4, \"MB_per_second\": 1, "
          "\"paths\": 0, \"source\": \"x\" } ]",
          "\"paths\"" },
        { "\"shared\": [ { \"name\": \"c\", \"messages\": \"leaving\", \"devices\": 4, \"MB_per_second\": 1, "
          "\"paths\": 257, \"source\": \"x\" } ]",
          "\"paths\"" },
        { "\"shared\": [ { \"name\": \"c\", \"messages\": \"inside\", \"devices\": 4, \"MB_per_second\": 1, "
          "\"paths\": 2, \"source\": \"x\" } ]",
          "a link of messages that are inside has no \"paths\"" },
        { "\"shared\": [ { \"name\": \"c\", \"messages\": \"pairs\", \"devices\": 4, \"MB_per_second\": 1, "
          "\"paths\": 2, \"source\": \"x\" } ]",
          "a link of pairs has no \"paths\"" },
        { "\"shared\": [ { \"name\": \"c\", \"messages\": \"leaving\", \"devices\": 4, \"MB_per_second\": 1, "
          "\"path_by\": \"hash\", \"source\": \"x\" } ]",
          "no \"paths\" how many there are" },
        { "\"shared\": [ { \"name\": \"c\", \"messages\": \"leaving\", \"devices\": 4, \"MB_per_second\": 1, "
          "\"paths\": 2, \"path_by\": \"luck\", \"source\": \"x\" } ]",
          "'luck'; it must be hash or receiver" },
        { "\"shared\": [ { \"name\": \"c\", \"messages\": \"pairs\", \"devices\": 257, \"MB_per_second\": 1, "
          "\"source\": \"x\" } ]",
          "a mesh may have at most 256" },
        { "\"shared\": [ { \"name\": \"c\", \"messages\": \"leaving\", \"devices\": 4, \"MB_per_second\": 1, "
          "\"entering_MB_per_second\": 0, \"source\": \"x\" } ]",
          "\"entering_MB_per_second\"" },
        { "\"shared\": [ { \"name\": \"c\", \"messages\": \"inside\", \"devices\": 4, \"MB_per_second\": 1, "
          "\"entering_MB_per_second\": 2, \"source\": \"x\" } ]",
          "has no \"entering_MB_per_second\"" },
        { "\"shared\": [ { \"name\": \"c\", \"messages\": \"leaving\", \"devices\": 4, \"MB_per_second\": 1, "
          "\"half_duplex\": true, \"entering_MB_per_second\": 2, \"source\": \"x\" } ]",
          "one rate for both directions" },
        { "\"shared\": [ { \"name\": \"c\", \"messages\": \"inside\", \"devices\": 4, \"MB_per_second\": 1, "
          "\"half_duplex\": true, \"source\": \"x\" } ]",
          "a link of messages that are inside has no \"half_duplex\"" },
        { "\"shared\": [ { \"name\": \"c\", \"messages\": \"leaving\", \"devices\": 4, \"MB_per_second\": 1, "
          "\"hop_ns\": -1, \"source\": \"x\" } ]",
          "\"hop_ns\"" },
        { "\"contention\": 120", "contention" },
        { "\"contention\": { \"compute_percent\": -20, \"source\": \"x\" }", "compute_percent" },
        { "\"contention\": { \"compute_percent\": 99, \"source\": \"x\" }", "from 100 to 1000" },
        { "\"contention\": { \"compute_percent\": 120 }", "source" },
        { "\"contention\": { \"compute_percents\": 120, \"source\": \"x\" }", "did you mean \"compute_percent\"?" },
        { "\"costs\": { \"source\": \"x\" }", "it must have \"watts\" or \"cents_per_hour\"" },
        { "\"costs\": { \"watts\": 700 }", "source" },
        { "\"costs\": { \"watts\": -700, \"source\": \"x\" }", "from 0 to 1000000" },
        { "\"costs\": { \"dollars_per_hour\": 2.5, \"source\": \"x\" }", "dollars_per_hour" },
        { "\"progress\": \"never\"", "'never'; it must be always or none" },
        { "\"progress\": 0", "progress" },
        { "\"progress\": \"none\"", "no link has \"eager_bytes\"" },
    };
    struct cluster c;
    char text[1000];
    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        snprintf(text, sizeof text, frame, bad[i].shared);
        if (cluster_parse(&c, text, "x", &err) != ERR_FORMAT) fail_msg("read, expected: %s", bad[i].says);
        if (!strstr(err.text, bad[i].says)) fail_msg("%s, expected: %s", err.text, bad[i].says);
    }
    snprintf(text, sizeof text, frame, "\"shared\": [ { \"name\": \"t\", \"torus\": [2, 3], \"devices\": 2, "
             "\"MB_per_second\": 7, \"hop_ns\": 5, \"half_duplex\": true, \"source\": \"x\" } ], "
             "\"sharing\": \"in order\"");
    assert_int_equal(cluster_parse(&c, text, "x", &err), OK);
    assert_true(c.in_order && c.shares == 1 && c.shared[0].half_duplex && c.shared[0].hop == 5000);
    assert_int_equal(c.shared[0].of_level + c.shared[0].paths + (int)c.shared[0].entering, 0);
    assert_int_equal(cluster_check(&c, 12, F32, &err), OK);
    assert_int_equal(cluster_check(&c, 13, F32, &err), ERR_PLAN);
    assert_non_null(strstr(err.text, "12 devices; the mesh has 13"));
}

static void test_shapes_are_read(void **state)
{
    static const char text[] =
        "{ \"name\": \"x\", \"description\": \"x\", \"device\": { \"source\": \"x\" }, \"links\": ["
        "{ \"level\": \"node\", \"devices\": 4, \"latency_ns\": 1, \"MB_per_second\": 9, \"source\": \"x\" },"
        "{ \"level\": \"cluster\", \"latency_ns\": 2, \"MB_per_second\": 5, \"source\": \"x\" } ], \"shared\": ["
        "{ \"name\": \"r\", \"messages\": \"leaving\", \"level\": \"cluster\", \"devices\": 32, \"stride\": 4,"
        " \"paths\": 6, \"path_by\": \"receiver\", \"MB_per_second\": 3, \"entering_MB_per_second\": 2,"
        " \"hop_ns\": 7, \"source\": \"x\" },"
        "{ \"name\": \"m\", \"messages\": \"pairs\", \"devices\": 4, \"MB_per_second\": 8, \"source\": \"x\" },"
        "{ \"name\": \"t\", \"torus\": [2, 2], \"level\": \"node\", \"devices\": %d, \"MB_per_second\": 8,"
        " \"source\": \"x\" } ] }";
    char filled[1200];
    struct cluster c;
    (void)state;
    snprintf(filled, sizeof filled, text, 1);
    if (cluster_parse(&c, filled, "x", &err)) fail_msg("%s", err.text);
    const struct shared_link *s = c.shared;
    assert_true(s[0].kind == SHARED_LEAVING && s[0].of_level == 2 && s[0].devices == 32 && s[0].stride == 4);
    assert_true(s[0].paths == 6 && s[0].by_receiver && s[0].rate == 3 && s[0].entering == 2 && s[0].hop == 7000);
    assert_true(s[1].kind == SHARED_PAIRS && s[1].of_level == 0 && s[1].rate == 8 && s[1].paths <= 1);
    assert_true(s[2].kind == SHARED_TORUS && s[2].of_level == 1);
    assert_int_equal(cluster_check(&c, 64, F32, &err), OK);
    snprintf(filled, sizeof filled, text, 2);
    assert_int_equal(cluster_parse(&c, filled, "x", &err), ERR_FORMAT);
    assert_string_equal(err.text, "x: shared[2]: \"torus\" has places for 8 devices; a node has 4");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rails), cmocka_unit_test(test_three_levels), cmocka_unit_test(test_paths),
        cmocka_unit_test(test_full_mesh), cmocka_unit_test(test_two_rates),
        cmocka_unit_test(test_a_torus_in_each_node), cmocka_unit_test(test_shapes_are_read),
        cmocka_unit_test(test_ports), cmocka_unit_test(test_a_card_for_a_node), cmocka_unit_test(test_an_up_link),
        cmocka_unit_test(test_a_switch), cmocka_unit_test(test_fair_and_in_order), cmocka_unit_test(test_a_torus),
        cmocka_unit_test(test_order_of_time), cmocka_unit_test(test_neither_bounds_the_other),
        cmocka_unit_test(test_least_time), cmocka_unit_test(test_messages_slow_computing),
        cmocka_unit_test(test_nobody_looks_after_messages), cmocka_unit_test(test_slowed_and_without_progress),
        cmocka_unit_test(test_passes_side_by_side),
        cmocka_unit_test(test_descriptions),
    };
    return cmocka_run_group_tests_name("shared links", tests, NULL, NULL);
}
