/* The virtual clock: what computing and messages take, and closed forms of patterns, to the picosecond.
 * ranks: 1 2 4 5 8
 *
 * The machine takes 10 us for a message and 20 ps for a byte (50 GB/s), so every time below is an exact integer.
 */
#include "tests/mpi_cmocka.h"
#include "emulated_devices/collectives/collective.h"

static const struct machine machine = {
    .name = "test", .source = "made up", .flops_per_second = 1e12, .memory_bytes_per_second = 1e300,
    .latency = 10000000, .link_bytes_per_second = 50e9,
};
enum { PER_BYTE = 20, BYTES = 4096 };
static const picoseconds ALPHA = 10000000, MESSAGE = 10000000 + BYTES * PER_BYTE;

static struct device device;
static struct comm comm;
static struct group group;

static void test_computing(void **state)
{
    const struct machine m = { .flops_per_second = 1e12, .memory_bytes_per_second = 1e11 };
    struct clock c;
    (void)state;
    clock_open(&c, &m);
    clock_compute(&c, (struct op_cost){ .flops = 100, .bytes = 1 });        /* 100 ps against 10 */
    assert_int_equal(c.now, 100);
    clock_compute(&c, (struct op_cost){ .flops = 100, .bytes = 20 });       /* 100 ps against 200 */
    assert_int_equal(c.now, 300);
    clock_compute(&c, (struct op_cost){ .flops = 0.5, .bytes = 0 });        /* rounded up */
    assert_int_equal(c.now, 301);
    assert_true(c.flops == 200.5);
}

static void test_ports(void **state)
{
    struct clock c;
    (void)state;
    clock_open(&c, &machine);
    assert_int_equal(clock_send(&c, BYTES), MESSAGE);
    assert_int_equal(c.now, 0);                                             /* sends are asynchronous */
    assert_int_equal(clock_send(&c, BYTES), MESSAGE + BYTES * PER_BYTE);    /* the second one waits for the port */
    clock_receive(&c, MESSAGE, BYTES);
    assert_int_equal(c.now, MESSAGE);
    clock_receive(&c, MESSAGE, BYTES);                                      /* arrived together: taken in one after the other */
    assert_int_equal(c.now, MESSAGE + BYTES * PER_BYTE);
    clock_receive(&c, 0, 0);                                                /* came long ago */
    assert_int_equal(c.now, MESSAGE + BYTES * PER_BYTE);
}

static void open_all(void)
{
    struct error err;
    assert_int_equal(device_open(&device, F32, 0, &err), OK);
    assert_int_equal(comm_open(&comm, &device, &err), OK);
    assert_int_equal(group_world(&group, &comm, &err), OK);
    clock_open(&device.clock, &machine);
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
    ASSERT_ALL(good && device.clock.now == want, "took %lld ps, want %lld", (long long)device.clock.now, (long long)want);
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
    const picoseconds want = group.rank > 0 || group.size == 1 ? 0 : ALPHA + (group.size - 1) * (picoseconds)BYTES * PER_BYTE;
    ASSERT_ALL(code == OK && device.clock.now == want, "took %lld ps, want %lld", (long long)device.clock.now, (long long)want);
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
    ASSERT_ALL(code == OK && device.clock.now == want, "took %lld ps, want %lld", (long long)device.clock.now, (long long)want);
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
        MPI_TEST(test_computing), MPI_TEST(test_ports), MPI_TEST(test_all_to_all_is_held_by_the_ports),
        MPI_TEST(test_incast_is_held_by_the_receiver), MPI_TEST(test_ring_takes_what_the_textbook_says),
        MPI_TEST(test_agreement_takes_no_virtual_time),
    };
    return MPI_RUN("clock", tests);
}
