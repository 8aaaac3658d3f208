/* The algorithm that "auto" stands for: the same on all members, and the best there is; and predictions, which decide
 * where trying is too much.
 * ranks: 1 2
 * verify ranks: 3 5 8
 */
#include "tests/mpi_cmocka.h"
#include "emulated_devices/collectives/collective.h"

/* Clusters that put the weight elsewhere: on latency, on each message's use of a port, on bytes. */
#define FLAT(title, flops, memory, alpha, port, bytes) { .name = title, .levels = 1, \
    .flop_rate = { [F32] = flops }, .memory_rate = memory, \
    .link = { { .latency = alpha, .gap = port, .rate = bytes, .eager = ALWAYS_EAGER } } }
static const struct cluster h100 = FLAT("h100", 989000000, 3350000, 2000000, 0, 450000);
static const struct cluster slow_start = FLAT("slow start", 1000000000, 3000000, 100000000, 0, 400000);
static const struct cluster busy_port = FLAT("busy port", 1000000000, 3000000, 1000000, 1000000, 400000);
static const struct cluster thin_link = FLAT("thin link", 1000000000, 3000000, 1000000, 100000, 1000);
/* As h100, but segments wait for their receivers; and without what a prediction leaves out. */
#define MEETING(title, memory) { .name = title, .flop_rate = { [F32] = 989000000 }, .memory_rate = memory, \
                                 .levels = 1, \
                                 .link = { { .latency = 2000000, .rate = 500000, .eager = 1024 } } }
static const struct cluster meeting = MEETING("meeting", 3350000), meeting_alone = MEETING("meeting alone", 0);
/* Nodes of 2 with NVLink, InfiniBand between them. */
static const struct cluster two_levels = {
    .name = "two levels",
    .flop_rate = { [F32] = 989000000 },
    .memory_rate = 3350000,
    .levels = 2,
    .link = { { .devices = 2, .latency = 2000000, .rate = 450000, .eager = ALWAYS_EAGER },
              { .latency = 3000000, .rate = 50000, .eager = ALWAYS_EAGER } }
};
#define DEVICE_FORMAT F32
#define DEVICE_CLUSTER (&h100)
#include "tests/devices/on_devices.h"

static const struct cluster *const machines[] = { &h100, &slow_start, &busy_port, &thin_link };
enum { MACHINES = sizeof machines / sizeof machines[0] };

static const int64_t counts[] = { 0, 1, 24, 1000, 30030, 300300 };
enum { COUNTS = sizeof counts / sizeof counts[0], LONGEST = 300300 };
static float in[LONGEST], out[LONGEST];

/* An all-to-all's count is for each other device; here all operations move about the same. */
static struct collective call_of(enum operation op, int64_t count)
{
    return (
        struct collective){ .in = in, .out = out, .count = op == ALLTOALL ? count / comm.size : count, .dtype = F32 };
}

static bool refuses(const struct algorithm *a, const struct collective *c)
{
    return algorithm_refuses(a, comm.size, c) != NULL;
}

static int64_t most(int64_t mine)
{
    int64_t all;
    MPI_Request request;
    MPI_Iallreduce(&mine, &all, 1, MPI_INT64_T, MPI_MAX, harness, &request);
    patience_meet(&request);
    return all;
}

/* The virtual time of one call: that of the last device to finish. */
static picoseconds time_of(const struct algorithm *a, const struct cluster *m, struct collective c)
{
    struct error err = { OK, "" };
    clock_restart(&device.clock, m, F32);
    const enum error_code code = collective_run(comm.everyone, a->operation, a->name, &c, &err);
    ASSERT_ALL(code == OK, "%s %s: %s", operation_name(a->operation), a->name, err.text);
    return most(device.clock.now);
}

/* What the prediction leaves out or bounds from above: copies into order, rounds of devices that have no partner, how
 * sums wait for one another along a chain.  Measured: 0.58 (bruck's all-to-all, which copies) to 1.5 (trees, P = 6). */
static void test_prediction_is_near(void **state)
{
    (void)state;
    if (comm.size == 1) skip();
    for (int i = 0; algorithms[i] != NULL; i++)
        for (int n = 1; n < COUNTS; n++) {
            const struct collective c = call_of(algorithms[i]->operation, counts[n]);
            if (refuses(algorithms[i], &c)) continue;
            const picoseconds said = collective_time(algorithms[i], comm.size, &c, &h100),
                              took = time_of(algorithms[i], &h100, c);
            ASSERT_ALL(2 * said >= took && said <= 2 * took, "%s %s of %lld: %.3f us predicted, %.3f taken",
                       operation_name(algorithms[i]->operation), algorithms[i]->name, (long long)c.count,
                       (double)said * 1e-6, (double)took * 1e-6);
        }
}

static void check_segments(const struct algorithm *a, const struct cluster *m)
{
    for (int n = 1; n < COUNTS; n++) {
        const struct collective c = call_of(a->operation, counts[n]);
        if (collective_cost(a, 0, comm.size, &c).met == 0 || refuses(a, &c)) continue;
        const picoseconds said = collective_time(a, comm.size, &c, m), took = time_of(a, m, c);
        ASSERT_ALL(5 * said >= 4 * took && said <= 4 * took, "%s %s of %lld: %.3f us predicted, %.3f taken",
                   operation_name(a->operation), a->name, (long long)c.count, (double)said * 1e-6, (double)took * 1e-6);
    }
}

/* Segments that wait for their receivers follow each other a latency apart, and a chain takes up to twenty times as
 * long as with eager ones.  Measured: 0.97 to 1.3; of the circulant graph, whose receivers are
 * ready for many, up to 3.8. */
static void test_prediction_knows_rendezvous(void **state)
{
    (void)state;
    if (comm.size == 1) skip();
    for (int i = 0; algorithms[i] != NULL; i++) check_segments(algorithms[i], &meeting);
}

/* On a chain of equal segments, to the picosecond; and auto knows better. */
static void test_chain_of_rendezvous(void **state)
{
    enum { SEGMENTS = 12, SEGMENT = 8192 };
    struct collective c = call_of(BROADCAST, SEGMENTS * SEGMENT);
    const struct algorithm *chain = algorithm_find(BROADCAST, "chain");
    (void)state;
    if (comm.size == 1) skip();
    c.segment = 4 * SEGMENT;
    const picoseconds said = collective_time(chain, comm.size, &c, &meeting_alone),
                      took = time_of(chain, &meeting_alone, c);
    ASSERT_ALL(said == took, "chain of %d: %lld ps predicted, %lld taken", SEGMENTS, (long long)said, (long long)took);
    ASSERT_ALL(algorithm_choose(BROADCAST, comm.size, &c, &meeting_alone) != chain,
               "auto takes a chain whose segments wait");
}

/* Of algorithms shaped by nodes, what they do inside nodes is predicted on the links inside. */
static void test_prediction_knows_nodes(void **state)
{
    int checked = 0;
    (void)state;
    if (comm.size < 4) skip();
    for (int i = 0; algorithms[i] != NULL; i++)
        for (int n = 1; n < COUNTS && algorithms[i]->by_nodes; n++) {
            struct collective c = call_of(algorithms[i]->operation, counts[n]);
            c.nodes = nodes_on(&two_levels, NULL, comm.size);
            if (refuses(algorithms[i], &c)) continue;
            const picoseconds said = collective_time(algorithms[i], comm.size, &c, &two_levels),
                              took = time_of(algorithms[i], &two_levels, c);
            ASSERT_ALL(2 * said >= took && said <= 2 * took, "%s %s of %lld: %.3f us predicted, %.3f taken",
                       operation_name(algorithms[i]->operation), algorithms[i]->name, (long long)c.count,
                       (double)said * 1e-6, (double)took * 1e-6);
            checked++;
        }
    assert_true(checked >= 2 * (COUNTS - 1));                   /* uneven nodes: only those with leaders */
}

/* With nodes, auto is the best of all, those that are shaped by them too. */
static void test_choice_knows_nodes(void **state)
{
    const struct collective c = call_of(ALLREDUCE, 300300);
    (void)state;
    if (comm.size != 8) skip();
    const struct algorithm *a = algorithm_choose(ALLREDUCE, comm.size, &c, &two_levels);
    const picoseconds took = time_of(a, &two_levels, c);
    for (int i = 0; algorithms[i] != NULL; i++) {
        struct collective on = c;
        on.nodes = nodes_on(&two_levels, NULL, comm.size);
        if (algorithms[i]->operation != ALLREDUCE || refuses(algorithms[i], &on)) continue;
        const picoseconds other = time_of(algorithms[i], &two_levels, c);
        ASSERT_ALL((double)took <= 1.02 * (double)other, "auto's %s takes %.3f us, %s takes %.3f", a->name,
                   (double)took * 1e-6, algorithms[i]->name, (double)other * 1e-6);
    }
}

/* How far auto's choice is from the best, over all that test_choice_is_good tries; what `orrery list` and
 * docs/plans/virtual_clock.md say. */
static struct { double ratio; char text[160]; } furthest = { 1, "none" };

static void note_choice(double ratio, enum operation op, const struct cluster *m, const char *chosen,
                        const char *better, int64_t count)
{
    if (ratio <= furthest.ratio) return;
    furthest.ratio = ratio;
    snprintf(furthest.text, sizeof furthest.text, "%s of %lld on %s, %s for %s", operation_name(op), (long long)count,
             m->name, chosen, better);
}

/* No algorithm is faster than auto's. */
static void check_choice(enum operation op, const struct cluster *m, struct collective c)
{
    const struct algorithm *chosen = algorithm_choose(op, comm.size, &c, m);
    const picoseconds took = time_of(chosen, m, c);
    for (int i = 0; algorithms[i] != NULL; i++) {
        if (algorithms[i]->operation != op || refuses(algorithms[i], &c)) continue;
        const picoseconds other = time_of(algorithms[i], m, c);
        if (other > 0) note_choice((double)took / (double)other, op, m, chosen->name, algorithms[i]->name, c.count);
        ASSERT_ALL((double)took <= 1.02 * (double)other, "%s of %lld on %s: auto's %s takes %.3f us, %s takes %.3f",
                   operation_name(op), (long long)c.count, m->name, chosen->name, (double)took * 1e-6,
                   algorithms[i]->name, (double)other * 1e-6);
    }
}

static void test_choice_is_good(void **state)
{
    (void)state;
    for (enum operation op = BROADCAST; op < CONTROL; op++)
        for (int m = 0; m < MACHINES; m++)
            for (int n = 0; n < COUNTS; n += 2) check_choice(op, machines[m], call_of(op, counts[n]));
    print_message("%d devices: auto's choice takes at most %.3f times what the best algorithm takes: %s\n", comm.size,
                  furthest.ratio, furthest.text);
}

static void test_members_choose_alike(void **state)
{
    (void)state;
    for (enum operation op = BROADCAST; op < CONTROL; op++)
        for (int n = 0; n < COUNTS; n++) {
            const struct collective c = call_of(op, counts[n]);
            const struct algorithm *a = algorithm_choose(op, comm.size, &c, &h100);
            int64_t which = 0;
            while (algorithms[which] != a) which++;
            ASSERT_ALL(most(which) == -most(-which), "%s of %lld: members choose different algorithms",
                       operation_name(op), (long long)counts[n]);
            ASSERT_ALL(a == algorithm_for(comm.everyone, op, "auto", &c), "%s: algorithm_for finds another",
                       operation_name(op));
        }
}

/* Run under the name, it counts what the chosen one costs; uneven counts, and an all-to-all
 * whose members know different ones. */
static void test_runs_by_name(void **state)
{
    const int P = comm.size, r = comm.rank;
    int64_t uneven[64], sent[64], received[64];
    struct error err = { OK, "" };
    (void)state;
    for (int i = 0; i < P; i++) uneven[i] = i * 3 % 5, sent[i] = (r + 2 * i) % 4, received[i] = (i + 2 * r) % 4;
    for (enum operation op = BROADCAST; op < CONTROL; op++) {
        struct collective c = call_of(op, 1000);
        if (op == ALLGATHER || op == REDUCE_SCATTER || op == GATHER || op == SCATTER ||
            op == SPARSE_ALLGATHER || op == SPARSE_REDUCE_SCATTER) c.counts = uneven;
        if (op == ALLTOALL) c.counts = sent, c.recvcounts = received;
        const struct traffic before = comm.counted.of[TRAFFIC_OTHER].of[op];
        const enum error_code code = collective_run(comm.everyone, op, "auto", &c, &err);
        const struct algorithm *chosen = algorithm_for(comm.everyone, op, "auto", &c);
        c.segment = group_segment(comm.everyone, chosen, &c);
        const struct collective_cost want = collective_cost(chosen, r, P, &c);
        ASSERT_ALL(code == OK, "%s auto: %s", operation_name(op), err.text);
        ASSERT_ALL(comm.counted.of[TRAFFIC_OTHER].of[op].bytes_sent - before.bytes_sent == want.bytes &&
                       comm.counted.of[TRAFFIC_OTHER].of[op].messages_sent - before.messages_sent == want.messages,
                   "%s auto: counted something else than its choice costs", operation_name(op));
    }
    float x = 1;
    const enum error_code code = allreduce(comm.everyone, &x, 1, F32, SUM, "auto", &err);
    ASSERT_ALL(code == OK && x == (float)P, "allreduce auto of 1: got %g, want %d", x, P);
}

static void test_unknown_name_is_refused(void **state)
{
    float x = 7;
    struct error err = { OK, "" };
    (void)state;
    const enum error_code code = allreduce(comm.everyone, &x, 1, F32, SUM, "rign", &err);
    ASSERT_ALL(code == ERR_USAGE &&
                   strcmp(err.text, "allreduce rign: there is no such choice; did you mean ring?") == 0 && x == 7,
               "got code %d, \"%s\"", (int)code, err.text);
}

/* Where messages wait for their receivers, devices answer each other: that is settled as they meet. */
static int open_meeting(void **state) { return open_on(state, &meeting); }

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_DEVICES(test_prediction_is_near), ON_DEVICES(test_prediction_knows_nodes),
            ON_DEVICES(test_choice_knows_nodes),
        ON_DEVICES(test_choice_is_good), ON_DEVICES(test_members_choose_alike),
        cmocka_unit_test_setup_teardown(test_prediction_knows_rendezvous, open_meeting, close_devices),
        cmocka_unit_test_setup_teardown(test_chain_of_rendezvous, open_meeting, close_devices),
        ON_DEVICES(test_runs_by_name), ON_DEVICES(test_unknown_name_is_refused),
    };
    return MPI_RUN("auto", tests);
}
