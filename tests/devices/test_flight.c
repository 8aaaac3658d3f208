/* What is in flight is poison until it is waited for, and sources are read late: messages, copies of the slow tier,
 * results of streams.
 * ranks: 1 2 3
 */
#include "tests/mpi_cmocka.h"
#include "emulated_devices/comm/transport.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/device/tier.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* A flop, and a byte copied, a picosecond. */
static const struct cluster machine = {
    .name = "test", .flop_rate = { [F64] = 1000000 }, .copy_rate = 1000000, .levels = 1,
    .link = { { .level = "node", .latency = 1000, .rate = 1000000, .eager = ALWAYS_EAGER } },
};

enum { N = 16, LONG = 5000 };                   /* of fp64: inside a message's head, and as a body of its own */
static struct device device;
static struct comm comm;
static struct clock *clock_;
static struct error err;

/* These tests touch memory when nobody may: another backend would stop them first. */
static void open_streams(enum flight_when when, uint64_t seed)
{
    ASSERT_ALL(device_open(&device, backend_find("cpu"), F64, 0, &err) == OK, "%s", err.text);
    clock_ = &device.clock;
    clock_open(clock_, &machine, F64);
    device.streams = (struct flight_mode){ when, seed };
    ASSERT_ALL(comm_open(&comm, &device, &err) == OK, "%s", err.text);
}

static void close_streams(void)
{
    comm_close(&comm);
    device_close(&device);
}

static struct tensor numbers(int64_t n, double first)
{
    struct tensor t = device_tensor_1d(&device, BUFFERS, n);
    for (int64_t i = 0; i < n; i++) tensor_set(t, i, first + (double)i);
    return t;
}

/* How many are first, first + 1, ..; -1: all of them are NaN. */
static int right(struct tensor t, double first)
{
    int same = 0, nan = 0;
    for (int64_t i = 0; i < tensor_count(t); i++)
        same += tensor_get(t, i) == first + (double)i, nan += isnan(tensor_get(t, i));
    return nan == tensor_count(t) ? -1 : same;
}

static void compute(double flops) { clock_compute(clock_, "work", (struct op_cost){ .flops = flops }); }

/* ---- results of a stream ----------------------------------------------------------------------------------------- */

/* The communication stream writes these numbers; @return when they are there. */
static picoseconds make(struct tensor t, double first)
{
    clock_begin(clock_, COMMUNICATION);
    for (int64_t i = 0; i < tensor_count(t); i++) tensor_set(t, i, first + (double)i);
    compute(100);
    clock_made(clock_, t.data, tensor_bytes(t));
    const picoseconds ready = clock_->now;
    clock_end(clock_);
    return ready;
}

static void test_results_come_when_they_are_waited_for(void **state)
{
    (void)state;
    open_streams(FLIGHT_LATEST, 0);
    struct tensor a = numbers(N, 0), b = numbers(N, 0);
    const picoseconds first = make(a, 10), second = make(b, 20);
    ASSERT_ALL(right(a, 10) == -1 && right(b, 20) == -1, "results are there before anybody has waited");
    compute(1000);                                                          /* time that has passed is no waiting */
    ASSERT_ALL(right(a, 10) == -1, "a result is there because time has passed");
    clock_wait(clock_, first - 1);
    ASSERT_ALL(right(a, 10) == -1, "a wait that is a picosecond short brings a result");
    clock_wait(clock_, first);
    ASSERT_ALL(right(a, 10) == N && right(b, 20) == -1,
               "a wait for the first result brings %d of %d of it, and %d of the second", right(a, 10), N,
               right(b, 20));
    clock_join(clock_, FLUSH);
    ASSERT_ALL(right(b, 20) == -1, "waiting for another stream brings a result");
    clock_join(clock_, COMMUNICATION);
    ASSERT_ALL(right(b, 20) == N && second > first, "waiting for the stream does not bring its result");
    close_streams();
}

/* It reads what it has written, and what it does not write again is there as early as before. */
static void test_a_stream_sees_its_own_results(void **state)
{
    (void)state;
    open_streams(FLIGHT_LATEST, 0);
    struct tensor a = numbers(N, 0), b = numbers(N, 0);
    const picoseconds first = make(a, 10);
    make(b, 20);
    clock_begin(clock_, COMMUNICATION);
    ASSERT_ALL(right(a, 10) == N && right(b, 20) == N, "a stream does not see what it has written");
    dev_add(&device, b, b, a);
    clock_made(clock_, b.data, tensor_bytes(b));
    clock_end(clock_);
    ASSERT_ALL(right(a, 10) == -1, "results are there since their stream has gone on");
    clock_wait(clock_, first);
    ASSERT_ALL(right(a, 10) == N && right(b, 0) == -1, "the first result cannot be waited for alone");
    clock_join(clock_, COMMUNICATION);
    ASSERT_ALL(tensor_get(b, 3) == 13 + 23, "the sum is %g", tensor_get(b, 3));
    close_streams();
}

/* What is written into a result before it is there is lost, and nothing follows memory that has been freed. */
static void test_early_additions_are_lost(void **state)
{
    (void)state;
    open_streams(FLIGHT_LATEST, 0);
    struct tensor a = numbers(N, 0), gone = numbers(N, 0);
    make(gone, 10);
    device_free(&device, gone);
    struct tensor again = numbers(N, 50);
    make(a, 10);
    tensor_set(a, 3, 5);
    clock_join(clock_, COMMUNICATION);
    ASSERT_ALL(right(a, 10) == N, "an addition that did not wait has come through");
    ASSERT_ALL(right(again, 50) == N, "a result came into memory that had been freed");
    close_streams();
}

static void test_a_source_that_is_changed_is_named(void **state)
{
    (void)state;
    open_streams(FLIGHT_LATEST, 0);
    struct tensor from = numbers(N, 0), to = numbers(N, 0);
    struct exchange x = exchange_begin(comm.everyone, ALLREDUCE);
    ASSERT_ALL(comm_agree(&comm, OK, &err) == OK, "%s", err.text);
    for (int changed = 0; changed < 2; changed++) {
        clock_begin(clock_, COMMUNICATION);
        reduce_local(&x, SUM, F64, to.data, from.data, N);
        clock_end(clock_);
        if (changed && comm.rank == comm.size - 1) tensor_set(from, 3, -1);
        clock_join(clock_, COMMUNICATION);
        tensor_set(from, 2, -1);                                            /* now it may be */
        const enum error_code e = comm_agree(&comm, OK, &err);
        if (!changed) ASSERT_ALL(e == OK, "%s", err.text);
        else
            ASSERT_ALL(e == ERR_CHECK &&
                           strstr(err.text,
                                  "128 bytes of buffers were changed while the communication stream still read them"),
                       "%d %s", e, err.text);
    }
    close_streams();
}

/* ---- copies of the slow tier ------------------------------------------------------------------------------------- */

static struct tier tier;

static struct tensor open_home(double first)
{
    ASSERT_ALL(tier_open(&tier, &device, NULL, tier_room(N * sizeof(double)), &err) == OK, "%s", err.text);
    struct tensor home = tier_place(&tier, F64, N);
    for (int64_t i = 0; i < N; i++) tensor_set(home, i, first + (double)i);
    return home;
}

static void close_home(void)
{
    tier_close(&tier);
    close_streams();
}

static void test_reads_come_when_they_are_waited_for(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++) {
        open_streams(late ? FLIGHT_LATEST : FLIGHT_EARLIEST, 0);
        struct tensor home = open_home(10), t = numbers(N, 0);
        picoseconds when = 0;
        assert_int_equal(tier_read(&tier, t, home, &when, &err), OK);
        ASSERT_ALL(right(t, 10) == (late ? -1 : N), "before the wait %d numbers are there", right(t, 10));
        tensor_set(home, 3, -1);
        clock_wait(clock_, when);
        ASSERT_ALL(tensor_get(t, 3) == (late ? -1 : 13) && tensor_get(t, 4) == 14, "read %g and %g", tensor_get(t, 3),
                   tensor_get(t, 4));
        close_home();
    }
}

static void test_writes_read_their_source_late(void **state)
{
    enum { KEPT, CHANGED, FREED, WAITED, CASES };
    (void)state;
    for (int c = 0; c < CASES; c++) {
        open_streams(FLIGHT_LATEST, 0);
        struct tensor home = open_home(0), t = numbers(N, 10);
        picoseconds when = 0;
        assert_int_equal(tier_write(&tier, home, t, &when, &err), OK);
        ASSERT_ALL(right(home, 10) == -1, "a write is there before anybody has waited");
        if (c == WAITED) clock_wait(clock_, when);
        if (c == CHANGED || c == WAITED) tensor_set(t, 3, -1);
        if (c == FREED) device_free(&device, t), t = numbers(N, 50);
        clock_join(clock_, FLUSH);
        ASSERT_ALL(right(home, 10) == (c == CHANGED ? N - 1 : N), "case %d: %d numbers are right", c, right(home, 10));
        close_home();
    }
}

/* An engine that begins when another has done its job needs no stream to wait. */
static void test_engines_wait_for_each_other(void **state)
{
    (void)state;
    for (int early = 0; early < 2; early++) {
        open_streams(FLIGHT_LATEST, 0);
        struct tensor home = open_home(0), t = numbers(N, 10), back = numbers(N, 0);
        picoseconds written = 0;
        assert_int_equal(tier_write(&tier, home, t, &written, &err), OK);
        picoseconds read = written - early;
        assert_int_equal(tier_read(&tier, back, home, &read, &err), OK);
        clock_join(clock_, FETCH);
        ASSERT_ALL(right(back, 10) == (early ? -1 : N), "%d numbers were read, %d ps too early", right(back, 10),
                   early);
        clock_join(clock_, FLUSH);
        close_home();
    }
}

/* Who waits for a copy that began when another had ended has waited for both. */
static void test_waiting_for_a_copy_is_waiting_for_what_it_waited_for(void **state)
{
    (void)state;
    open_streams(FLIGHT_LATEST, 0);
    struct tensor home = open_home(0), t = numbers(N, 10), half = tensor_1d(t.data, F64, N / 2);
    struct tensor first = tensor_1d(home.data, F64, N / 2), second = tensor_1d((double *)home.data + N / 2, F64, N / 2),
                  back = numbers(N / 2, 0);
    picoseconds when = 0;
    assert_int_equal(tier_write(&tier, first, half, &when, &err), OK);
    assert_int_equal(tier_read(&tier, back, second, &when, &err), OK);      /* of other memory */
    clock_wait(clock_, when);
    ASSERT_ALL(right(first, 10) == N / 2, "the copy that was waited for has not waited for the one before it");
    close_home();
}

/* The end of one stream's job says nothing of another stream, even if that is over too. */
static void test_waiting_for_one_stream_is_no_waiting_for_another(void **state)
{
    (void)state;
    open_streams(FLIGHT_LATEST, 0);
    struct tensor home = open_home(10), t = numbers(N, 0), a = numbers(N, 0);
    picoseconds when = 0;
    assert_int_equal(tier_read(&tier, t, home, &when, &err), OK);
    compute(1000);
    const picoseconds ready = make(a, 20);
    clock_wait(clock_, ready);
    ASSERT_ALL(when < ready && right(a, 20) == N && right(t, 10) == -1,
               "a copy is there because a later result was waited for");
    clock_wait(clock_, when);
    ASSERT_ALL(right(t, 10) == N, "a copy is not there though it was waited for");
    close_home();
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

/* Early receives, too: so what is read before its wait is never right by chance. */
static void test_received_buffers_are_poison_until_the_wait(void **state)
{
    (void)state;
    for (int c = 0; c < 4; c++) {
        const int64_t n = c % 2 ? LONG : N;
        open_streams(c / 2 ? FLIGHT_LATEST : FLIGHT_EARLIEST, 0);
        const int P = comm.size, left = (comm.rank + P - 1) % P, to = (comm.rank + 1) % P;
        struct tensor in = numbers(n, 0), out = numbers(n, comm.rank);
        struct exchange x = exchange_begin(comm.everyone, POINT_TO_POINT);
        struct message receive = message_receive(&x, left, in.data, tensor_bytes(in)),
                       send = message_send(&x, to, out.data, tensor_bytes(out));
        /* no talk of the harness in between: a neighbour's send waits until this device takes it */
        const bool sent = message_wait(&comm, send, &err) == OK;
        const int before = right(in, left);
        const bool received = message_wait(&comm, receive, &err) == OK;
        ASSERT_ALL(sent && received, "%s", err.text);
        ASSERT_ALL(before == -1, "%d of %lld numbers are there before the wait", before, (long long)n);
        ASSERT_ALL(right(in, left) == n, "%d of %lld numbers have come", right(in, left), (long long)n);
        close_streams();
    }
}

/* A send that is late sends what its buffer is used for next.  All devices hear who has changed it, late or not. */
static void test_sends_read_their_buffer_late(void **state)
{
    (void)state;
    for (int64_t n = N; n <= LONG; n += LONG - N)
        for (int late = 0; late < 2; late++) {
            open_streams(late ? FLIGHT_LATEST : FLIGHT_EARLIEST, 0);
            const int P = comm.size, left = (comm.rank + P - 1) % P, to = (comm.rank + 1) % P;
            struct tensor in = numbers(n, 0), out = numbers(n, 10);
            struct exchange x = exchange_begin(comm.everyone, ALLGATHER);
            struct message receive = message_receive(&x, left, in.data, tensor_bytes(in)),
                           send = message_send(&x, to, out.data, tensor_bytes(out));
            tensor_set(out, 3, -1);
            ASSERT_ALL(message_wait(&comm, receive, &err) == OK, "%s", err.text);
            if (late)
                ASSERT_ALL(right(in, 10) == n - 1 && tensor_get(in, 3) == -1,
                           "%d of %lld numbers are those before the change", right(in, 10), (long long)n);
            ASSERT_ALL(message_wait(&comm, send, &err) == OK, "%s", err.text);
            const enum error_code e = comm_agree(&comm, OK, &err);
            ASSERT_ALL(e == ERR_CHECK && strstr(err.text, "other allgather over") &&
                           strstr(err.text, "device 0 sends") && strstr(err.text, "changes them before message_wait"),
                       "%d %s", e, err.text);
            close_streams();
        }
}

/* ---- buffers that are used before their messages have been waited for -------------------------------------------- */

static struct tensor spare;

static void use_nothing(struct tensor t) { (void)t; }
static void use_set(struct tensor t) { tensor_set(t, 3, -1); }
static void use_zero(struct tensor t) { device_zero(&device, t); }
static void use_same_again(struct tensor t) { device_copy(&device, t.data, spare.data, tensor_bytes(t)); }
static void use_read(struct tensor t) { device_copy(&device, spare.data, t.data, tensor_bytes(t)); }
static void use_compute(struct tensor t) { dev_add(&device, spare, spare, t); }
static void use_free(struct tensor t) { device_free(&device, t); }
static void use_end(struct tensor t) { (void)t, messages_have_ended(&comm, "at the end of the test"); }

static const struct early {
    bool of_send;
    void (*use)(struct tensor);
    const char *says;                   /* NULL: it may be used so */
} early[] = {
    { true, use_nothing, NULL },
    { true, use_read, NULL },
    { true, use_compute, NULL },
    { true, use_same_again, NULL },
    { true, use_set, "and changes them before message_wait" },
    { true, use_zero, "and changes them before message_wait: a host view" },
    { true, use_free, "and frees them before message_wait" },
    { true, use_end, "and has not waited for the message at the end of the test" },
    { false, use_set, "and writes to them before message_wait" },
    { false, use_zero, "and writes to them before message_wait: a host view" },
    { false, use_same_again, "and writes to them before message_wait: a copy" },
    { false, use_read, "and reads them before message_wait: a copy" },
    { false, use_compute, "and computes with them before message_wait: add" },
    { false, use_free, "and frees them before message_wait" },
    { false, use_end, "and has not waited for the message at the end of the test" },
};

/* The last device uses a buffer early; then it waits, so that the others go on.  No talk of the harness in between: a
 * neighbour's send waits until this device takes it. */
static enum error_code use_early(const struct early *u, int64_t n)
{
    const int P = comm.size, left = (comm.rank + P - 1) % P, to = (comm.rank + 1) % P;
    struct tensor in = numbers(n, 0), out = numbers(n, 10);
    struct exchange x = exchange_begin(comm.everyone, POINT_TO_POINT);
    spare = numbers(n, 10);
    device.arena.doing = (struct doing){ .pass = "forward", .micro = 2 };
    struct message receive = message_receive(&x, left, in.data, tensor_bytes(in)),
                   send = message_send(&x, to, out.data, tensor_bytes(out));
    const bool only = u->use == use_end;                /* the message that is left is the only one */
    bool ok = true;
    if (only) ok = message_wait(&comm, u->of_send ? receive : send, &err) == OK;
    if (comm.rank == P - 1) u->use(u->of_send ? out : in);
    if (!only || !u->of_send) ok = message_wait(&comm, receive, &err) == OK && ok;
    if (!only || u->of_send) ok = message_wait(&comm, send, &err) == OK && ok;
    return ok ? comm_agree(&comm, OK, &err) : ERR_COMM;
}

static void test_early_uses_are_named(void **state)
{
    static const enum flight_when when[] = { FLIGHT_EARLIEST, FLIGHT_LATEST, FLIGHT_RANDOM };
    char who[200];
    (void)state;
    for (size_t i = 0; i < sizeof early / sizeof *early; i++)
        for (int c = 0; c < 6; c++) {
            const int64_t n = c % 2 ? LONG : N;
            const struct early *u = &early[i];
            open_streams(when[c / 2], 1);
            ASSERT_ALL(use_early(&(struct early){ true, use_nothing, NULL }, n) == OK, "%s", err.text);
            const enum error_code e = use_early(u, n);
            const int P = comm.size, last = P - 1, peer = u->of_send ? 0 : (last + P - 1) % P;
            snprintf(who, sizeof who,
                     "other send over all devices, exchange %u: device %d %s bytes 0 to %d of a block of %d (buffers) "
                     "%s device %d (forward of microbatch 2)",
                     (unsigned)comm.everyone->exchanges - 2, last, u->of_send ? "sends" : "receives", (int)n * 8 - 1,
                     (int)n * 8, u->of_send ? "to" : "from", peer);
            if (u->says == NULL) ASSERT_ALL(e == OK, "case %d: %s", (int)i, err.text);
            else
                ASSERT_ALL(e == ERR_CHECK && strstr(err.text, who) && strstr(err.text, u->says),
                           "case %d, %d: %s; not: %s %s", (int)i, c, err.text, who, u->says);
            ASSERT_ALL(comm_agree(&comm, OK, &err) == OK, "it is reported again: %s", err.text);
            close_streams();
        }
}

/* Memory that is still being sent is received into: as a ring does that does not wait for its sends. */
static void test_a_sent_buffer_is_not_received_into(void **state)
{
    (void)state;
    open_streams(FLIGHT_EARLIEST, 0);
    const int P = comm.size, left = (comm.rank + P - 1) % P, to = (comm.rank + 1) % P;
    struct tensor a = numbers(N, 0), b = numbers(N, 10);
    struct exchange x = exchange_begin(comm.everyone, POINT_TO_POINT);
    const struct message in = message_receive(&x, left, b.data, tensor_bytes(b)),
                         out = message_send(&x, to, a.data, tensor_bytes(a));
    bool ok = message_wait(&comm, in, &err) == OK;
    const struct message again = message_receive(&x, left, a.data, tensor_bytes(a)),
                         on = message_send(&x, to, b.data, tensor_bytes(b));
    ok = ok && message_wait(&comm, out, &err) == OK && message_wait(&comm, again, &err) == OK &&
         message_wait(&comm, on, &err) == OK;
    ASSERT_ALL(ok, "%s", err.text);
    const enum error_code e = comm_agree(&comm, OK, &err);
    ASSERT_ALL(e == ERR_CHECK && strstr(err.text, "device 0 sends bytes 0 to 127 of a block of 128") &&
                   strstr(err.text, "receives into them before message_wait"), "%d %s", e, err.text);
    close_streams();
}

static void test_a_group_is_closed_too_early(void **state)
{
    (void)state;
    struct group g;
    int members[3] = { 0, 1, 2 };
    open_streams(FLIGHT_RANDOM, 0);
    const int P = comm.size, left = (comm.rank + P - 1) % P, to = (comm.rank + 1) % P;
    ASSERT_ALL(group_of(&g, &comm, members, P, TRAFFIC_ATTENTION, AXIS_BIT(CP), &err) == OK, "%s", err.text);
    struct tensor a = numbers(N, 0), b = numbers(N, 10);
    struct exchange x = exchange_named(&g, POINT_TO_POINT, 7);
    const struct message in = message_receive(&x, left, b.data, tensor_bytes(b));
    message_send(&x, to, a.data, tensor_bytes(a));
    ASSERT_ALL(message_wait(&comm, in, &err) == OK, "%s", err.text);
    group_close(&g);
    const enum error_code e = comm_agree(&comm, OK, &err);
    ASSERT_ALL(e == ERR_CHECK && strstr(err.text, "attention send over cp, named 7: device 0 sends") &&
                   strstr(err.text, "has not waited for the message when its group is closed"), "%d %s", e, err.text);
    close_streams();
}

/* One word decides, wherever it is; and so does the length. */
static void test_every_word_is_hashed(void **state)
{
    enum { MOST = 100 };
    unsigned char data[MOST] = { 0 };
    (void)state;
    for (uint64_t bytes = 0; bytes <= MOST; bytes++) {
        const uint64_t hash = flight_hash(data, bytes);
        for (uint64_t i = 0; i < bytes; i++)
            for (int bit = 0; bit < 8; bit++) {
                data[i] ^= (unsigned char)(1 << bit);
                assert_true(flight_hash(data, bytes) != hash);
                data[i] ^= (unsigned char)(1 << bit);
            }
        assert_true(bytes == MOST || flight_hash(data, bytes + 1) != hash);
    }
}

/* ---- the mode ---------------------------------------------------------------------------------------------------- */

/* A stream sends its result and stops.  Its result is poison for other streams then, but the message is not: not even
 * if MPI reads it after that, while the device waits for another message. */
static void test_a_stream_sends_its_own_results(void **state)
{
    (void)state;
    for (uint64_t seed = 0; seed < 12; seed++)
        for (int64_t n = N; n <= LONG; n += LONG - N) {
            open_streams(FLIGHT_RANDOM, seed);
            const int to = (comm.rank + 1) % comm.size, left = (comm.rank + comm.size - 1) % comm.size;
            struct tensor out = numbers(n, 0), in = numbers(n, 0), word = numbers(1, 0), heard = numbers(1, 0);
            struct exchange named = exchange_named(comm.everyone, POINT_TO_POINT, 1);
            clock_begin(clock_, COMMUNICATION);
            for (int64_t i = 0; i < n; i++) tensor_set(out, i, 100 * comm.rank + (double)i);
            clock_made(clock_, out.data, tensor_bytes(out));
            const struct message send = message_send(&named, to, out.data, tensor_bytes(out));
            clock_end(clock_);
            struct exchange other = exchange_begin(comm.everyone, POINT_TO_POINT);
            ASSERT_ALL(exchange_both(&other, to, word.data, 8, left, heard.data, 8, &err) == OK, "%s", err.text);
            const struct message receive = message_receive(&named, left, in.data, tensor_bytes(in));
            ASSERT_ALL(message_wait(&comm, receive, &err) == OK, "%s", err.text);
            ASSERT_ALL(message_wait(&comm, send, &err) == OK, "%s", err.text);
            ASSERT_ALL(right(in, 100 * left) == n, "seed %d: of %lld numbers of device %d's result %d arrive (-1: NaN)",
                       (int)seed, (long long)n, left, right(in, 100 * left));
            close_streams();
        }
}

static void test_modes(void **state)
{
    static const char *const bad[] = { "", "late", "random", "random:", "random:x", "random:-1", "OFF", "latest " };
    struct flight_mode m = { FLIGHT_OFF, 7 };
    (void)state;
    assert_int_equal(flight_mode_parse(&m, "latest", &err), OK);
    assert_int_equal(m.when, FLIGHT_LATEST);
    assert_int_equal(flight_mode_parse(&m, "random:42", &err), OK);
    assert_true(m.when == FLIGHT_RANDOM && m.seed == 42);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(flight_mode_parse(&m, bad[i], &err), ERR_USAGE);
        assert_true(m.when == FLIGHT_RANDOM && m.seed == 42 && strstr(err.text, "ORRERY_STREAMS"));
    }
}

/* Half of the transfers are late, others with another seed, and always the same with the same. */
static void test_draws(void **state)
{
    enum { DRAWS = 1000, RUNS = 3 };
    uint64_t hash[RUNS] = { 0 };
    (void)state;
    for (int run = 0; run < RUNS; run++) {
        struct flight *f = flight_open((struct flight_mode){ FLIGHT_RANDOM, run == 2 }, 0, NULL);
        int late = 0;
        for (int i = 0; i < DRAWS; i++) {
            const bool this = flight_late(f);
            late += this;
            hash[run] = hash[run] * 31 + this;
        }
        assert_in_range(late, 400, 600);
        flight_close(f);
    }
    assert_true(hash[0] == hash[1] && hash[0] != hash[2]);
    assert_false(flight_late(NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_results_come_when_they_are_waited_for), MPI_TEST(test_a_stream_sees_its_own_results),
        MPI_TEST(test_early_additions_are_lost), MPI_TEST(test_a_source_that_is_changed_is_named),
        MPI_TEST(test_reads_come_when_they_are_waited_for), MPI_TEST(test_writes_read_their_source_late),
        MPI_TEST(test_engines_wait_for_each_other), MPI_TEST(test_waiting_for_a_copy_is_waiting_for_what_it_waited_for),
        MPI_TEST(test_waiting_for_one_stream_is_no_waiting_for_another),
        MPI_TEST(test_received_buffers_are_poison_until_the_wait),
        MPI_TEST(test_sends_read_their_buffer_late), MPI_TEST(test_early_uses_are_named),
        MPI_TEST(test_a_sent_buffer_is_not_received_into), MPI_TEST(test_a_group_is_closed_too_early),
        MPI_TEST(test_a_stream_sends_its_own_results), MPI_TEST(test_every_word_is_hashed), MPI_TEST(test_modes),
        MPI_TEST(test_draws),
    };
    unsetenv("ORRERY_STREAMS");
    return MPI_RUN("flight", tests);
}
