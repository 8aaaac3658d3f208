/* Virtual time of patterns between devices, to the picosecond, from formulas written out here; and that it does not
 * depend on what really comes first.
 * tier: check
 * ranks: 1 2 4 8
 *
 * On the textbook cluster: alpha = 10 us, 20 ps for a byte, computing free.  With P devices and n = 4 MiB, messages of
 * n/P bytes, the times that a network simulator (SimGrid SMPI, clean settings) finds within 20 ns at P = 8:
 *
 *   ring all-reduce   2(P-1)(alpha + n/P beta)        286.801 us
 *   all-to-all        alpha + (P-1) n/P beta           83.400 us
 *   incast            alpha + (P-1) n/P beta           83.400 us
 *   1F1B                              14252.429 us with eager messages, 14286.361 us with rendezvous
 *
 * 1F1B: 16 microbatches of 64 KiB, F = 200 us, B = 400 us; (M+P-1)(F+B) and the messages on the critical path: hops[]
 * below.
 */
#include "tests/mpi_cmocka.h"
#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/schemes/pipeline/execute.h"

enum { N = 4 << 20, PER_BYTE = 20 };
static const picoseconds ALPHA = 10000000;

static struct device device;
static struct comm comm;
static struct group group;
static struct error err;
static char *memory, *other;                            /* N bytes each */

static struct cluster textbook(uint64_t eager)
{
    struct cluster c;
    assert_int_equal(cluster_find(&c, "textbook", &err), OK);
    c.link[0].eager = eager;
    return c;
}

static void open_on(const struct cluster *c)
{
    assert_int_equal(device_open(&device, NULL, F32, 0, &err), OK);
    clock_open(&device.clock, c, F32);
    assert_int_equal(comm_open(&comm, &device, &err), OK);
    assert_int_equal(group_world(&group, &comm, &err), OK);
}

static void close_all(void)
{
    group_close(&group);
    comm_close(&comm);
    device_close(&device);
}

static void took(picoseconds want, const char *what)
{
    ASSERT_ALL(device.clock.now == want, "%s took %lld ps, want %lld", what, (long long)device.clock.now,
               (long long)want);
}

static enum error_code collective(enum operation op, const char *algorithm, int64_t count)
{
    struct collective c = {
        .in = memory, .out = op == ALLTOALL ? other : memory, .count = count, .dtype = F32, .reduction = SUM
    };
    return collective_run(&group, op, algorithm, &c, &err);
}

/* ---- the textbook's patterns ------------------------------------------------------------------------------------- */

static void test_ring(void **state)
{
    (void)state;
    const struct cluster c = textbook(ALWAYS_EAGER);
    open_on(&c);
    const int P = group.size;
    ASSERT_ALL(collective(ALLREDUCE, "ring", N / 4) == OK, "%s", err.text);
    took(2 * (P - 1) * (ALPHA + (picoseconds)N / P * PER_BYTE), "ring all-reduce");
    if (P == 8) took(286800640, "ring all-reduce of 4 MiB");
    close_all();
}

static void test_all_to_all(void **state)
{
    (void)state;
    const struct cluster c = textbook(ALWAYS_EAGER);
    open_on(&c);
    const int P = group.size;
    ASSERT_ALL(collective(ALLTOALL, "linear", N / 4 / P) == OK, "%s", err.text);
    took(P == 1 ? 0 : ALPHA + (P - 1) * ((picoseconds)N / P) * PER_BYTE, "all-to-all");
    if (P == 8) took(83400320, "all-to-all of 4 MiB");
    close_all();
}

static bool incast(bool backwards)
{
    const int P = group.size;
    struct exchange x = exchange_begin(&group, POINT_TO_POINT);
    struct message m[16];
    bool good = true;
    if (group.rank > 0) return message_wait(&comm, message_send(&x, 0, memory, N / (uint64_t)P), &err) == OK;
    for (int r = 1; r < P; r++) m[r] = message_receive(&x, r, memory + N / P * r, N / (uint64_t)P);
    for (int k = 1; k < P; k++) good = message_wait(&comm, m[backwards ? P - k : k], &err) == OK && good;
    return good;
}

static void test_incast(void **state)
{
    (void)state;
    const struct cluster c = textbook(ALWAYS_EAGER);
    for (int backwards = 0; backwards < 2; backwards++) {
        open_on(&c);
        const int P = group.size;
        ASSERT_ALL(incast(backwards), "%s", err.text);
        took(P == 1 || group.rank > 0 ? 0 : ALPHA + (P - 1) * ((picoseconds)N / P) * PER_BYTE, "incast");
        if (P == 8) took(group.rank > 0 ? 0 : 83400320, "incast of 4 MiB");
        close_all();
    }
}

/* From one to all: its send port lets them out one after another; member r's is the r-th. */
static void test_outcast(void **state)
{
    (void)state;
    const struct cluster c = textbook(ALWAYS_EAGER);
    open_on(&c);
    ASSERT_ALL(collective(BROADCAST, "flat", N / 4) == OK, "%s", err.text);
    took(group.rank == 0 ? 0 : ALPHA + group.rank * (picoseconds)N * PER_BYTE, "flat broadcast");
    close_all();
}

/* ---- levels ------------------------------------------------------------------------------------------------------ */

/* A shift by one device, and by half the world, on a cluster of pairs, nodes of 4 and a network. */
static void test_levels_have_their_own_times(void **state)
{
    enum { BYTES = 1000 };
    struct cluster c = { .levels = 3,
                         .link = { { "pair", 2, 1000, 0, 1000000, 0, ALWAYS_EAGER, "" },
                                   { "node", 4, 20000, 0, 100000, 0, ALWAYS_EAGER, "" },
                                   { "cluster", 0, 300000, 50, 10000, 0, ALWAYS_EAGER, "" } } };
    static const picoseconds want[] = { 1000 + 1000, 20000 + 10000, 300000 + 50 + 100000 };
    (void)state;
    open_on(&c);
    const int P = group.size, r = group.rank;
    struct exchange x = exchange_begin(&group, POINT_TO_POINT);
    if (P > 1) {
        ASSERT_ALL(exchange_both(&x, r ^ 1, memory, BYTES, r ^ 1, other, BYTES, &err) == OK, "%s", err.text);
        took(want[0], "a message within a pair");
    }
    for (int far = 2; far < P; far *= 2) {
        device.clock.now = 0;
        ASSERT_ALL(exchange_both(&x, r ^ far, memory, BYTES, r ^ far, other, BYTES, &err) == OK, "%s", err.text);
        took(want[far / 2], far == 2 ? "a message within a node" : "a message between nodes");
    }
    close_all();
}

/* ---- rendezvous -------------------------------------------------------------------------------------------------- */

static void work(picoseconds t) { device.clock.now += t; }

/* Device 0 sends after `send_at`, device 1 posts its receive after `receive_at` and waits for it at once; device 0
 * waits at its end.  The transfer begins when both are there. */
static void one_rendezvous(picoseconds send_at, picoseconds receive_at, uint64_t bytes)
{
    const struct cluster c = textbook(65536);
    const picoseconds transfer = (picoseconds)bytes * PER_BYTE;
    const bool eager = bytes <= 65536;
    bool good = true;
    open_on(&c);
    struct exchange x = exchange_begin(&group, POINT_TO_POINT);
    if (group.rank == 0) {
        work(send_at);
        good = message_wait(&comm, message_send(&x, 1, memory, bytes), &err) == OK;
    } else if (group.rank == 1) {
        work(receive_at);
        good = message_wait(&comm, message_receive(&x, 0, memory, bytes), &err) == OK;
    }
    ASSERT_ALL(good, "%s", err.text);
    const picoseconds begin = eager || send_at > receive_at ? send_at : receive_at, there = begin + transfer + ALPHA;
    const picoseconds sender = eager ? send_at : begin + transfer, receiver = there > receive_at ? there : receive_at;
    took(group.rank == 0 ? sender : group.rank == 1 ? receiver : 0, eager ? "an eager message" : "a rendezvous");
    close_all();
}

static void test_rendezvous_begins_when_both_are_there(void **state)
{
    (void)state;
    if (test_size < 2) return;
    static const uint64_t bytes[] = { 65536, 65537, 1 << 20 };
    for (int i = 0; i < 3; i++) {
        one_rendezvous(0, 0, bytes[i]);
        one_rendezvous(5000, 90000000, bytes[i]);
        one_rendezvous(90000000, 5000, bytes[i]);
    }
}

/* Receivers that are ready find the sender's port serialised as if all were eager;
 * so do patterns in which all post first. */
static void test_patterns_with_ready_receivers_take_the_same(void **state)
{
    (void)state;
    const struct cluster c = textbook(0);
    open_on(&c);
    const int P = group.size;
    ASSERT_ALL(collective(ALLTOALL, "linear", N / 4 / P) == OK, "%s", err.text);
    took(P == 1 ? 0 : ALPHA + (P - 1) * ((picoseconds)N / P) * PER_BYTE, "all-to-all");
    device.clock.now = 0;
    close_all();
    open_on(&c);
    ASSERT_ALL(collective(ALLREDUCE, "ring", N / 4) == OK, "%s", err.text);
    took(2 * (P - 1) * (ALPHA + (picoseconds)N / P * PER_BYTE), "ring all-reduce");
    close_all();
}

/* One side thinks it a rendezvous, the other not: the error is that of any wrong length, and nobody waits for ever. */
static void wrong_length(uint64_t sent, uint64_t expected)
{
    const int P = group.size, right = (group.rank + 1) % P, left = (group.rank + P - 1) % P;
    struct exchange x = exchange_begin(&group, ALLGATHER);
    const enum error_code e = exchange_both(&x, right, memory, sent, left, other, expected, &err);
    ASSERT_ALL(e == ERR_COMM && strstr(err.text, "expected") != NULL, "%llu for %llu bytes: code %d, %s",
               (unsigned long long)sent, (unsigned long long)expected, (int)e, err.text);
    x = exchange_begin(&group, ALLGATHER);
    ASSERT_ALL(exchange_both(&x, right, memory, 5000, left, other, 5000, &err) == OK, "%s", err.text);
}

static void test_wrong_lengths_of_rendezvous(void **state)
{
    (void)state;
    const struct cluster c = textbook(1000);
    open_on(&c);
    wrong_length(100, 2000);
    wrong_length(2000, 100);
    wrong_length(2000, 3000);
    wrong_length(100000, 900);
    wrong_length(900, 100000);
    close_all();
}

/* ---- a pipeline -------------------------------------------------------------------------------------------------- */

enum { MICROS = 16, ACTIVATION = 65536, F_TIME = 200000000, B_TIME = 400000000 };

static enum error_code stage_compute(void *context, enum action_kind kind, int chunk, int micro, struct error *e)
{
    (void)context, (void)chunk, (void)micro, (void)e;
    work(kind == FORWARD ? F_TIME : B_TIME);
    return OK;
}

static struct tensor stage_tensor(void *context, int chunk, int micro)
{
    (void)context, (void)chunk, (void)micro;
    return device_tensor_1d(&device, BUFFERS, ACTIVATION / 4);
}

static const struct stage_operations stage = { .compute = stage_compute,
                                               .input = stage_tensor,
                                               .output_gradient = stage_tensor,
                                               .take_output = stage_tensor,
                                               .take_input_gradient = stage_tensor };

/* The same lists, played by one process that keeps every device's time: an action runs as soon as its device has come
 * to it and what it needs is known.  eager: a message leaves when it is sent;
 * else when its receive is posted as well: where it is reached, or, with n receives ahead, the k-th when the (k-n)-th
 * is done. */
static picoseconds played(const struct schedule *s, bool eager, picoseconds *end)
{
    static picoseconds sent[2][MICROS][16], done[16][2 * MICROS];
    int receives[16] = { 0 };
    const picoseconds hop = ALPHA + (picoseconds)ACTIVATION * PER_BYTE;
    int at[16] = { 0 };
    picoseconds makespan = 0;
    memset(sent, 0xff, sizeof sent);                            /* -1: not yet */
    for (int d = 0; d < s->devices; d++) end[d] = 0;
    for (bool moved = true; moved; ) {
        moved = false;
        for (int d = 0; d < s->devices; d++) while (at[d] < s->count[d]) {
            const struct action *a = &s->actions[d][at[d]];
            const bool gradient = a->kind == SEND_GRADIENT || a->kind == RECEIVE_GRADIENT;
            const bool sends = a->kind == SEND_ACTIVATION || a->kind == SEND_GRADIENT;
            picoseconds *m = action_is_message(a->kind) ? &sent[gradient][a->micro][sends ? d : a->peer] : NULL;
            if (m == NULL) end[d] += a->kind == FORWARD ? F_TIME : B_TIME;
            else if (sends) *m = end[d];
            else if (*m < 0) break;
            else {
                const int k = receives[d]++, n = s->receives_ahead;
                const picoseconds posted = n == 0 ? end[d] : k < n ? 0 : done[d][k - n];
                const picoseconds begin = !eager && posted > *m ? posted : *m;
                if (begin + hop > end[d]) end[d] = begin + hop;
                done[d][k] = end[d];
            }
            at[d]++;
            moved = true;
        }
    }
    for (int d = 0; d < s->devices; d++) if (end[d] > makespan) makespan = end[d];
    return makespan;
}

static void run_1f1b(bool eager, int ahead, picoseconds *makespan)
{
    const struct cluster c = textbook(eager ? ALWAYS_EAGER : 0);
    struct schedule s;
    picoseconds want[16];
    open_on(&c);
    assert_int_equal(
        schedule_make(&s, "1f1b", &(struct schedule_request){ .devices = group.size, .micros = MICROS }, &err), OK);
    s.receives_ahead = ahead;
    *makespan = played(&s, eager, want);
    ASSERT_ALL(schedule_execute(&s, &group, &stage, NULL, NULL, &err) == OK, "%s", err.text);
    if (eager) took(want[group.rank], "1F1B");
    else {                                      /* at its end a device waits until its last messages have left */
        const bool good = device.clock.now >= want[group.rank] && device.clock.now <= *makespan;
        ASSERT_ALL(good, "1F1B with rendezvous took %lld ps; its last action ended at %lld",
                   (long long)device.clock.now, (long long)want[group.rank]);
        if (group.rank == 0) assert_true(device.clock.now == *makespan);
    }
    schedule_free(&s);
    close_all();
}

static void test_1f1b(void **state)
{
    const picoseconds hop = ALPHA + (picoseconds)ACTIVATION * PER_BYTE;
    picoseconds eager, early, rendezvous, one, two;
    (void)state;
    run_1f1b(true, 0, &eager);
    run_1f1b(true, 2, &early);
    run_1f1b(false, 0, &rendezvous);
    run_1f1b(false, 1, &one);
    run_1f1b(false, 2, &two);
    assert_int_equal(early, eager);                             /* an eager message waits for no receive */
    static const struct {
        int P, eager, rendezvous, one, two;
    } hops[] = { { 1, 0, 0, 0, 0 }, { 2, 16, 17, 16, 16 }, { 4, 28, 35, 28, 28 }, { 8, 40, 43, 40, 40 } };
    const picoseconds work_alone = (MICROS + test_size - 1) * (picoseconds)(F_TIME + B_TIME);
    for (size_t i = 0; i < sizeof hops / sizeof *hops; i++) {
        if (hops[i].P != test_size) continue;
        assert_int_equal(eager, work_alone + hops[i].eager * hop);
        assert_int_equal(rendezvous, work_alone + hops[i].rendezvous * hop);
        assert_int_equal(one, work_alone + hops[i].one * hop);
        assert_int_equal(two, work_alone + hops[i].two * hop);
    }
    if (test_size == 8) assert_int_equal(eager, 14252428800);
    if (test_size == 8) assert_int_equal(rendezvous, 14286360960);
}

/* ---- two streams that send, and a pass beside another ------------------------------------------------------------ */

enum { HOP_BYTES = 4096 };

static bool swap_with_neighbour(void)
{
    struct exchange x = exchange_begin(&group, POINT_TO_POINT);
    const int peer = group.rank ^ 1;
    return exchange_both(&x, peer, memory, HOP_BYTES, peer, other, HOP_BYTES, &err) == OK;
}

static void charge(double us) { device_charge(&device, "work", (struct op_cost){ .flops = 1e6 * us }); }

static struct cluster computing(void)
{
    struct cluster c = textbook(ALWAYS_EAGER);
    c.flop_rate[F32] = 1000000;                                 /* an operation takes a picosecond */
    return c;
}

/* Both messages have their latency at once, and share the port: one stream would take two hops. */
static void test_two_streams_that_send(void **state)
{
    const struct cluster c = computing();
    (void)state;
    if (test_size < 2) return;
    for (int apart = 0; apart < 2; apart++) {
        bool good = true;
        open_on(&c);
        for (int i = 0; i < 2; i++) {
            clock_begin(&device.clock, apart && i ? REDUCTION : COMMUNICATION);
            good = swap_with_neighbour() && good;
            clock_end(&device.clock);
        }
        charge(5);
        clock_join(&device.clock, COMMUNICATION);
        clock_join(&device.clock, REDUCTION);
        ASSERT_ALL(good, "%s", err.text);
        took(apart ? ALPHA + 2 * HOP_BYTES * PER_BYTE : 2 * (ALPHA + HOP_BYTES * PER_BYTE),
             apart ? "a stream each" : "one stream");
        close_all();
    }
}

/* The first pass computes 10 us, exchanges, and computes 10 us; the second computes `us`, and exchanges. */
static void two_passes(double us, bool beside)
{
    struct pass_work noted = { 0 };
    charge(3);
    if (beside) clock_note(&device.clock, &noted);
    charge(10);
    bool good = swap_with_neighbour();
    charge(10);
    if (beside) clock_beside(&device.clock);
    charge(us);
    good = swap_with_neighbour() && good;
    if (beside) clock_end(&device.clock), clock_join(&device.clock, BESIDE);
    ASSERT_ALL(good, "%s", err.text);
    free(noted.span);
}

/* The second fills the hop of the first, and then goes on after it; or it is done before. */
static void test_a_pass_beside_another(void **state)
{
    const picoseconds hop = ALPHA + (picoseconds)HOP_BYTES * PER_BYTE, us = 1000000;
    const struct cluster c = computing();
    (void)state;
    if (test_size < 2) return;
    static const double works[] = { 25, 4, 0 };
    for (int i = 0; i < 3; i++)
        for (int beside = 0; beside < 2; beside++) {
            const picoseconds second = (picoseconds)works[i] * us, first = 20 * us + hop;
            const picoseconds both = i == 0 ? 20 * us + second + hop : first;
            open_on(&c);
            two_passes(works[i], beside);
            took(3 * us + (beside ? both : first + second + hop), beside ? "two passes side by side" : "two passes");
            close_all();
        }
}

/* ---- what really comes first ------------------------------------------------------------------------------------- */

/* A checksum of everything a mixture of work leaves behind: FNV-1a over results and times. */
static void mix(uint64_t *sum, const void *data, size_t n)
{
    for (size_t i = 0; i < n; i++) *sum = (*sum ^ ((const unsigned char *)data)[i]) * 0x100000001b3u;
}

static uint64_t mixture(uint64_t eager)
{
    static const struct { enum operation op; const char *name; } run[] = {
        { ALLREDUCE, "ring" }, { ALLREDUCE, "two_shot" }, { ALLREDUCE, "tree" }, { ALLTOALL, "linear" },
        { BROADCAST, "binomial" },
        { ALLREDUCE, "double_tree" }, { ALLREDUCE, "bidirectional_ring" },
    };
    enum { COUNT = 6000 };
    struct cluster c;
    uint64_t sum = 0xcbf29ce484222325u;
    assert_int_equal(cluster_find(&c, "a100-ethernet", &err), OK);
    for (int l = 0; l < c.levels; l++) c.link[l].eager = eager;
    open_on(&c);
    for (int i = 0; i < 16 * COUNT; i++) ((float *)memory)[i] = (float)((i * 7 + group.rank * 131) % 1000) / 3;
    for (size_t i = 0; i < sizeof run / sizeof *run; i++) {
        work(1000 * group.rank);                                /* devices come at different times */
        const enum error_code e = collective(run[i].op, run[i].name, run[i].op == ALLTOALL ? COUNT / 8 : COUNT);
        ASSERT_ALL(e == OK, "%s", err.text);
        mix(&sum, &device.clock.now, sizeof device.clock.now);
    }
    mix(&sum, memory, COUNT * sizeof(float));
    mix(&sum, other, COUNT * sizeof(float));
    close_all();
    return sum;
}

static void test_times_and_results_do_not_depend_on_what_comes_first(void **state)
{
    static const struct {
        const char *name, *value;
    } disturbance[] = { { "ORRERY_DELAY", "100" }, { "ORRERY_DELAY", "400" }, { "ORRERY_SYNCHRONOUS", "1" } };
    static const uint64_t eager[] = { ALWAYS_EAGER, 0, 2000 };
    (void)state;
    for (int e = 0; e < 3; e++) {
        const uint64_t quiet = mixture(eager[e]);
        for (int d = 0; d < 3; d++) {
            setenv(disturbance[d].name, disturbance[d].value, 1);
            const uint64_t disturbed = mixture(eager[e]);
            unsetenv(disturbance[d].name);
            ASSERT_ALL(disturbed == quiet, "eager up to %llu: %s=%s changes a time or a result",
                       (unsigned long long)eager[e], disturbance[d].name, disturbance[d].value);
        }
    }
}

int main(void)
{
    memory = calloc(1, N), other = calloc(1, N);
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_ring), MPI_TEST(test_all_to_all), MPI_TEST(test_incast), MPI_TEST(test_outcast),
            MPI_TEST(test_levels_have_their_own_times),
        MPI_TEST(test_rendezvous_begins_when_both_are_there),
            MPI_TEST(test_patterns_with_ready_receivers_take_the_same),
        MPI_TEST(test_wrong_lengths_of_rendezvous), MPI_TEST(test_1f1b), MPI_TEST(test_two_streams_that_send),
            MPI_TEST(test_a_pass_beside_another),
            MPI_TEST(test_times_and_results_do_not_depend_on_what_comes_first),
    };
    const int status = memory && other ? MPI_RUN("virtual_time", tests) : 1;
    free(memory), free(other);
    return status;
}
