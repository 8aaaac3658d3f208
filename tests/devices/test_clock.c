/* The virtual clock: what computing and messages take, and closed forms of patterns, to the picosecond.
 * tier: check
 * ranks: 1 2 4 5 8
 *
 * The machine takes 10 us for a message and 20 ps for a byte (50 GB/s), so every time below is an exact integer.
 */
#include "tests/mpi_cmocka.h"
#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/device/trace.h"

enum { PER_BYTE = 20, BYTES = 4096 };
static const picoseconds ALPHA = 10000000, TAKES = BYTES * PER_BYTE, MESSAGE = 10000000 + BYTES * PER_BYTE;

/* The memory has no rate: it takes no time. */
static const struct cluster machine = {
    .name = "test", .flop_rate = { [F32] = 1000000 }, .levels = 1,
    .link = { { .level = "node", .latency = 10000000, .rate = 50000, .eager = ALWAYS_EAGER } },
};

static struct device device;
static struct comm comm;
static struct group group;

static void test_computing(void **state)
{
    const struct cluster m = { .flop_rate = { [F32] = 1000000, [F64] = 500000 }, .memory_rate = 100000, .levels = 1 };
    struct clock c;
    (void)state;
    clock_open(&c, &m, F32);
    clock_compute(&c, "x", (struct op_cost){ .flops = 100, .bytes = 1 });   /* 100 ps against 10 */
    assert_int_equal(c.now, 100);
    clock_compute(&c, "x", (struct op_cost){ .flops = 100, .bytes = 20 });  /* 100 ps against 200 */
    assert_int_equal(c.now, 300);
    clock_compute(&c, "x", (struct op_cost){ .flops = 0.5, .bytes = 0 });   /* rounded up */
    assert_int_equal(c.now, 301);
    assert_true(c.flops == 200.5);
    clock_open(&c, &m, F64);
    clock_compute(&c, "x", (struct op_cost){ .flops = 100, .bytes = 1 });
    assert_int_equal(c.now, 200);
}

/* ceil(units * 10^6 / rate), also where units * 10^6 does not fit: the quotient's digits are known. */
static void test_rates_are_fractions_rounded_once(void **state)
{
    (void)state;
    assert_int_equal(time_at_rate(0, 7), 0);
    assert_int_equal(time_at_rate(1, 7), 142858);                           /* 142857.1... */
    assert_int_equal(time_at_rate(7, 7), 1000000);
    assert_int_equal(time_at_rate(8, 7), 1142858);
    assert_int_equal(time_at_rate(1, 1000000000000), 1);
    assert_int_equal(time_at_rate(999999999999, 1000000000000), 1000000);
    assert_int_equal(time_at_rate(UINT64_C(1) << 60, 1 << 20), (INT64_C(1) << 40) * 1000000);
    assert_int_equal(time_at_rate((UINT64_C(1) << 60) + 1, 1 << 20), (INT64_C(1) << 40) * 1000000 + 1);
    assert_int_equal(time_at_rate(1000, 0), 0);                             /* no rate: takes no time */
}

static void test_streams_overlap_and_join(void **state)
{
    const struct cluster m = { .flop_rate = { [F32] = 1000000 }, .copy_rate = 1000000, .levels = 1 };
    const struct op_cost work = { .flops = 100 };
    struct clock c;
    (void)state;
    clock_open(&c, &m, F32);
    clock_compute(&c, "a", work);                                           /* compute 0..100 */
    clock_begin(&c, COMMUNICATION);                                         /* asked for at 100 */
    clock_compute(&c, "b", work);
    clock_compute(&c, "b", work);                                           /* communication 100..300 */
    assert_int_equal(c.now, 300);
    clock_end(&c);
    assert_int_equal(c.now, 100);
    assert_int_equal(clock_copy(&c, FETCH, c.now, 1000), 1100);
    assert_int_equal(clock_copy(&c, FETCH, 500, 1000), 2100);               /* after the one before */
    assert_int_equal(clock_copy(&c, FLUSH, 150, 1000), 1150);               /* the other way, beside them */
    assert_int_equal(clock_job(&c, HOST, "work", 1100, 300, 0), 1400);
    clock_compute(&c, "c", work);                                           /* beside both, 100..200 */
    assert_int_equal(c.now, 200);
    clock_begin(&c, COMMUNICATION);                                         /* asked for at 200, free at 300 */
    clock_compute(&c, "d", work);
    clock_end(&c);
    clock_join(&c, COMMUNICATION);
    assert_int_equal(c.now, 400);
    clock_join(&c, FLUSH);
    assert_int_equal(c.now, 1150);
    clock_wait(&c, 1400);
    assert_int_equal(c.now, 1400);
    clock_join(&c, FETCH);
    assert_int_equal(c.now, 2100);
    clock_join(&c, COMMUNICATION);                                          /* done long ago */
    assert_int_equal(c.now, 2100);
}

/* The clock alone, as the receiver: message of so many bytes whose last one can be there at the stamp. */
static void takes_in(struct clock *c, picoseconds stamp, uint64_t bytes)
{
    struct passage p = clock_post(c, 1, 0, bytes);
    p.stamp = stamp;
    clock_receive(c, &p);
}

static void test_ports(void **state)
{
    struct clock c;
    (void)state;
    clock_open(&c, &machine, F32);
    assert_int_equal(clock_send(&c, 0, 1, BYTES).stamp, MESSAGE);
    assert_int_equal(c.now, 0);                                             /* sends are asynchronous */
    assert_int_equal(clock_send(&c, 0, 1, BYTES).stamp, MESSAGE + TAKES);   /* the second one waits for the port */
    takes_in(&c, MESSAGE, BYTES);
    assert_int_equal(c.now, MESSAGE);
    takes_in(&c, MESSAGE, BYTES);                                   /* arrived together: taken in one after the other */
    assert_int_equal(c.now, MESSAGE + TAKES);
    takes_in(&c, 0, 0);                                                     /* came long ago */
    assert_int_equal(c.now, MESSAGE + TAKES);
}

/* A late message waited for first does not hold up an early one, and what comes in while another does takes turns: the
 * set is complete when a port that never idles would have taken it all in.  By hand, in units of one message's time d:
 * stamps 10, 3, 3, 11 and a double one at 12.  Busy from 2 to 4 (the two at 3), 9 to 11, and the double one, from 10
 * on: 11 to 13.  With the message of stamp 11 (from 10 on): 9 to 13 for four. */
static void test_arrivals_do_not_depend_on_the_order_of_waits(void **state)
{
    static const struct { int stamp, size; } message[] = { { 10, 1 }, { 3, 1 }, { 3, 1 }, { 11, 1 }, { 12, 2 } };
    (void)state;
    for (int first = 0; first < 5; first++) for (int step = 1; step < 5; step++) {
        struct clock c;
        clock_open(&c, &machine, F32);
        for (int k = 0; k < 5; k++) {
            const int i = (first + k * step) % 5;                           /* 5 is prime: every message once */
            takes_in(&c, message[i].stamp * TAKES, (uint64_t)message[i].size * BYTES);
        }
        assert_int_equal(c.now, 13 * TAKES);
        assert_int_equal(c.receive[0].count, 2);
        assert_int_equal(c.receive[0].busy[0].start, 2 * TAKES);
        assert_int_equal(c.receive[0].busy[0].end, 4 * TAKES);
        assert_int_equal(c.receive[0].busy[1].start, 9 * TAKES);
    }
}

/* Against a port that is simulated unit by unit, on messages that a small generator draws: the same busy units. */
static void test_ports_against_a_simulation(void **state)
{
    enum { UNITS = 4000 };
    static bool busy[UNITS];
    uint32_t random = 12345;
    /* 1 ps a byte */
    const struct cluster unit = { .levels = 1, .link = { { .rate = 1000000, .eager = ALWAYS_EAGER } } };
    struct clock c;
    (void)state;
    clock_open(&c, &unit, F32);
    for (int m = 0; m < 60; m++) {
        random = random * 1664525 + 1013904223;
        const int from = (int)(random >> 8) % 2000, length = 1 + (int)(random >> 24) % 30;
        int at = from, left = length;
        while (left > 0) {
            left -= !busy[at];
            busy[at++] = true;
        }
        c.now = 0;
        takes_in(&c, from + length, (uint64_t)length);
        assert_int_equal(c.now, at);
    }
    int at = 0;
    for (int i = 0; i < c.receive[0].count; i++) {
        while (at < UNITS && !busy[at]) at++;
        assert_int_equal(c.receive[0].busy[i].start, at);
        while (at < UNITS && busy[at]) at++;
        assert_int_equal(c.receive[0].busy[i].end, at);
    }
    while (at < UNITS) assert_false(busy[at++]);
}

static void test_old_business_is_forgotten(void **state)
{
    struct clock c;
    (void)state;
    clock_open(&c, &machine, F32);
    for (int i = 1; i <= 3 * PORT_MEMORY; i++) takes_in(&c, 2 * i * TAKES, BYTES);
    assert_int_equal(c.receive[0].count, PORT_MEMORY);
    assert_int_equal(c.now, 6 * PORT_MEMORY * TAKES);
    takes_in(&c, 6 * PORT_MEMORY * TAKES, BYTES);
    assert_int_equal(c.now, (6 * PORT_MEMORY + 1) * TAKES);
}

/* A port for each of three others: what goes to two of them leaves together, and comes in together; with one port each
 * way it is one after the other.  With two ports the far one and its neighbour upwards share. */
static void test_a_port_for_each_other_device(void **state)
{
    static const struct { int ports; int shared[4]; } mesh[] = { { 1, { 0, 0, 0, 0 } }, { 2, { 0, 0, 0, 1 } },
                                                                { 3, { 0, 0, 1, 2 } } };
    (void)state;
    for (int m = 0; m < 3; m++) for (int rank = 0; rank < 4; rank++) {
        struct cluster c = machine;
        struct clock clock;
        picoseconds sent[3] = { 0 };
        c.link[0].devices = 4, c.link[0].ports = mesh[m].ports;
        clock_open(&clock, &c, F32);
        for (int up = 1; up < 4; up++) {
            const struct passage p = clock_send(&clock, rank, (rank + up) % 4, BYTES);
            const int port = mesh[m].shared[up];
            assert_int_equal(p.port, port);
            assert_int_equal(p.stamp, ALPHA + (sent[port] += TAKES));
            assert_int_equal(clock_post(&clock, (rank + 4 - up) % 4, rank, BYTES).port, port);
        }
    }
    /* Ports of farther levels come behind; a unit begins anew. */
    const struct link link[] = { { .devices = 4, .ports = 3 }, { .devices = 0 } };
    assert_int_equal(link_first_port(link, 1), 3);
    assert_int_equal(link_port(link, 1, 0, 5), 3);
    assert_int_equal(link_port(link, 0, 7, 4), link_port(link, 0, 3, 0));
}

static void test_levels(void **state)
{
    const struct link link[] = { { .devices = 2 }, { .devices = 8 }, { .devices = 0 } };
    (void)state;
    assert_int_equal(link_between(link, 3, 0, 1), 0);
    assert_int_equal(link_between(link, 3, 1, 2), 1);
    assert_int_equal(link_between(link, 3, 7, 0), 1);
    assert_int_equal(link_between(link, 3, 7, 8), 2);
    assert_int_equal(link_between(link, 3, 9, 8), 0);
    assert_int_equal(link_between(link, 3, 5, 5), 0);
    assert_int_equal(link_between(link, 1, 0, 4000), 0);
}

static void test_a_trace_is_bounded(void **state)
{
    struct trace t = { .span = NULL };
    (void)state;
    for (int i = 0; i < TRACE_LIMIT; i++) trace_work(&t, 0, "x", (struct op_cost){ 0 }, i, i + 1);
    assert_false(t.full);
    trace_work(&t, 0, "x", (struct op_cost){ 0 }, 0, 1);
    assert_true(t.full);
    assert_int_equal(t.count, TRACE_LIMIT);
    trace_free(&t);
}

static void open_all(void)
{
    struct error err;
    assert_int_equal(device_open(&device, NULL, F32, 0, &err), OK);
    assert_int_equal(comm_open(&comm, &device, &err), OK);
    assert_int_equal(group_world(&group, &comm, &err), OK);
    clock_restart(&device.clock, &machine, F32);
}

static void close_all(void)
{
    group_close(&group);
    comm_close(&comm);
    device_close(&device);
}

/* Everybody to everybody: P-1 messages leave one after another, and the last one is P-1 messages' time behind. */
static void test_all_to_all_is_held_by_the_ports(void **state)
{
    enum { MOST = 16 };
    static char out[BYTES], in[MOST][BYTES];
    struct message sends[MOST], receives[MOST];
    struct error err;
    (void)state;
    open_all();
    const int P = group.size;
    struct exchange x = exchange_begin(&group, POINT_TO_POINT);
    for (int k = 1; k < P; k++) {
        receives[k] = message_receive(&x, (group.rank - k + P) % P, in[k], BYTES);
        sends[k] = message_send(&x, (group.rank + k) % P, out, BYTES);
    }
    bool good = true;
    for (int k = 1; k < P; k++) {
        good = message_wait(&comm, receives[k], &err) == OK && good;
        good = message_wait(&comm, sends[k], &err) == OK && good;
    }
    const picoseconds want = P == 1 ? 0 : ALPHA + (P - 1) * (picoseconds)BYTES * PER_BYTE;
    ASSERT_ALL(good && device.clock.now == want, "took %lld ps, want %lld", (long long)device.clock.now,
               (long long)want);
    close_all();
}

/* Everybody to device 0: its receive port takes them in one after another. */
static void test_incast_is_held_by_the_receiver(void **state)
{
    static char data[BYTES];
    struct error err;
    enum error_code code = OK;
    (void)state;
    open_all();
    struct exchange x = exchange_begin(&group, POINT_TO_POINT);
    if (group.rank > 0) code = exchange_both(&x, 0, data, BYTES, -1, NULL, 0, &err);
    else for (int r = 1; r < group.size && code == OK; r++) code = exchange_both(&x, -1, NULL, 0, r, data, BYTES, &err);
    const picoseconds want =
        group.rank > 0 || group.size == 1 ? 0 : ALPHA + (group.size - 1) * (picoseconds)BYTES * PER_BYTE;
    ASSERT_ALL(code == OK && device.clock.now == want, "took %lld ps, want %lld", (long long)device.clock.now,
               (long long)want);
    close_all();
}

/* 2(P-1) steps of one block each: the textbook time of the ring, since the additions take no time on this machine
 * (1 ps each, rounded up, for the P-1 of them, added back here from the rates). */
static void test_ring_takes_what_the_textbook_says(void **state)
{
    enum { BLOCK = 1024, MOST = 16 };
    static float x[BLOCK * MOST];
    struct error err;
    (void)state;
    open_all();
    const int P = group.size;
    const enum error_code code = allreduce(&group, x, (int64_t)BLOCK * P, F32, SUM, "ring", &err);
    const picoseconds adding = BLOCK;                                       /* 1024 additions at 1e12 a second */
    const picoseconds want = 2 * (P - 1) * (ALPHA + (picoseconds)BLOCK * 4 * PER_BYTE) + (P - 1) * adding;
    ASSERT_ALL(code == OK && device.clock.now == want, "took %lld ps, want %lld", (long long)device.clock.now,
               (long long)want);
    close_all();
}

static void test_agreement_takes_no_virtual_time(void **state)
{
    (void)state;
    open_all();
    comm_barrier(&comm);
    ASSERT_ALL(device.clock.now == 0, "a barrier of the emulation took %lld ps", (long long)device.clock.now);
    close_all();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_computing), MPI_TEST(test_rates_are_fractions_rounded_once),
            MPI_TEST(test_streams_overlap_and_join),
        MPI_TEST(test_ports), MPI_TEST(test_arrivals_do_not_depend_on_the_order_of_waits),
            MPI_TEST(test_ports_against_a_simulation),
        MPI_TEST(test_old_business_is_forgotten), MPI_TEST(test_levels),
        MPI_TEST(test_a_port_for_each_other_device), MPI_TEST(test_a_trace_is_bounded),
        MPI_TEST(test_all_to_all_is_held_by_the_ports),
        MPI_TEST(test_incast_is_held_by_the_receiver), MPI_TEST(test_ring_takes_what_the_textbook_says),
        MPI_TEST(test_agreement_takes_no_virtual_time),
    };
    return MPI_RUN("clock", tests);
}
