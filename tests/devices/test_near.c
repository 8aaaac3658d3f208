/* Devices of one machine: rings of letters, bodies that are copied once, and who waits for what.
 * tier: check
 * ranks: 2 3 5
 */
#include "tests/mpi_cmocka.h"
#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/comm/transport.h"
#include "emulated_devices/device/pool.h"
#include <time.h>

static struct device device;
static struct comm comm;
static struct group all;
static struct error err;

static int open_devices(void **state)
{
    assert_int_equal(device_open(&device, backend_find("cpu"), F32, 0, &err), OK);
    device.streams.when = FLIGHT_OFF;                   /* which sends copies of its own */
    assert_int_equal(comm_open(&comm, &device, &err), OK);
    assert_int_equal(group_world(&all, &comm, &err), OK);
    return harness_before(state);
}

static int close_devices(void **state)
{
    (void)state;
    group_close(&all);
    comm_close(&comm);
    device_close(&device);
    return 0;
}

/* On a system without such memory all messages go through MPI. */
static void need_a_pool(void)
{
    if (!pool_open()) skip();
}

static int right(void) { return (all.rank + 1) % all.size; }
static int left(void) { return (all.rank + all.size - 1) % all.size; }

static unsigned char pattern(int rank, int m, uint64_t i)
{
    return (unsigned char)(rank * 89 + m * 37 + (int)(i % 251));
}

static void fill(unsigned char *x, uint64_t n, int m)
{
    for (uint64_t i = 0; i < n; i++) x[i] = pattern(all.rank, m, i);
}

static int64_t first_wrong(const unsigned char *x, uint64_t n, int m)
{
    for (uint64_t i = 0; i < n; i++)
        if (x[i] != pattern(left(), m, i)) return (int64_t)i;
    return -1;
}

static void test_all_devices_of_a_machine_are_near(void **state)
{
    (void)state;
    need_a_pool();
    ASSERT_ALL(comm.transport->near.devices == comm.size, "%d of %d devices are near", comm.transport->near.devices,
               comm.size);
}

/* ---- rings ------------------------------------------------------------------------------------------------------- */

/* Each with its length takes a line, so that a letter too many, in the place of the first, leaves a ring that can be
 * read. */
static void takes_so_many_lines(void)
{
    enum { LINE = 64, LINES = RING_BYTES / LINE };
    const struct near *n = &comm.transport->near;
    const char letter[LINE - sizeof(uint64_t)] = "";
    int taken = 0;
    while (taken <= LINES && near_write(n, all.rank, letter, sizeof letter, NULL, 0)) taken++;
    for (int i = 0; i < taken; i++) near_drop(n, all.rank);
    ASSERT_ALL(taken == LINES, "a ring of %d lines took %d letters of one", LINES, taken);
}

/* Letters of many lengths, more than the ring holds, read in the order in which they were written. */
static void test_a_ring_keeps_order_and_says_when_it_is_full(void **state)
{
    enum { LETTERS = 3000 };
    const struct near *n = &comm.transport->near;
    static unsigned char out[RING_MOST], in[RING_MOST];
    int sent = 0, received = 0, full = 0, wrong = -1;
    (void)state;
    need_a_pool();
    takes_so_many_lines();
    while (received < LETTERS) {
        const size_t bytes = (size_t)(sent * 977 % (RING_MOST - 16)), half = bytes / 3;
        if (sent < LETTERS) fill(out, bytes + 8, sent);
        if (sent < LETTERS && near_write(n, all.rank, out, half + 8, out + half + 8, bytes - half)) sent++;
        else {
            size_t got;
            const void *letter = near_read(n, all.rank, &got);
            assert_non_null(letter);
            assert_int_equal((uintptr_t)letter % 8, 0);
            full += sent < LETTERS;
            memcpy(in, letter, got);
            near_drop(n, all.rank);
            for (size_t i = 0; i < got; i++)
                if (in[i] != pattern(all.rank, received, i)) wrong = received;
            if (got != (size_t)(received * 977 % (RING_MOST - 16)) + 8) wrong = received;
            received++;
        }
    }
    size_t none;
    ASSERT_ALL(wrong < 0, "letter %d is not what was written", wrong);
    ASSERT_ALL(full > 100, "the ring was full %d times", full);
    ASSERT_ALL(near_read(n, all.rank, &none) == NULL, "a letter more than was written");
}

/* A device looks only into the rings of those that have written since its last look. */
static void test_a_flag_says_who_has_written(void **state)
{
    const struct near *n = &comm.transport->near;
    const int word = all.rank / 64;
    const uint64_t own = (uint64_t)1 << all.rank % 64;
    const char letter[8] = "";
    size_t bytes;
    (void)state;
    need_a_pool();
    ASSERT_ALL(near_words(n) == 1, "%d words have the flags of %d devices", near_words(n), comm.size);
    (void)near_flags(n, word);
    assert_true(near_write(n, all.rank, letter, sizeof letter, NULL, 0));
    assert_true(near_write(n, all.rank, letter, sizeof letter, NULL, 0));
    const uint64_t first = near_flags(n, word), second = near_flags(n, word);
    ASSERT_ALL((first & own) != 0, "it has written to itself, and its flag is down");
    ASSERT_ALL((second & own) == 0, "a flag that has been seen is still up");
    while (near_read(n, all.rank, &bytes) != NULL) near_drop(n, all.rank);
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

/* Pass bytes to the right.  @return whether the sender made a copy of its own. */
static bool shift(unsigned char *out, unsigned char *in, uint64_t bytes, int m)
{
    struct exchange x = exchange_begin(&all, POINT_TO_POINT);
    fill(out, bytes, m);
    const struct message receive = message_receive(&x, left(), in, bytes), send = message_send(&x, right(), out, bytes);
    const bool copied = comm.transport->slot[send.slot].aside != NULL;
    const bool good = message_wait(&comm, receive, &err) == OK && message_wait(&comm, send, &err) == OK;
    const int64_t wrong = first_wrong(in, bytes, m);
    ASSERT_ALL(good && wrong < 0, "message %d: byte %lld is wrong; %s", m, (long long)wrong, err.text);
    return copied;
}

static void test_a_tensor_is_sent_without_a_copy_by_its_sender(void **state)
{
    enum { BYTES = 1 << 20 };
    struct device *d = &device;
    unsigned char *out = arena_alloc(&d->arena, BUFFERS, BYTES), *in = arena_alloc(&d->arena, BUFFERS, BYTES);
    (void)state;
    need_a_pool();
    bool copied = shift(out, in, BYTES, 1);
    ASSERT_ALL(!copied, "a block of the arena was copied to be sent");
    copied = shift(out + 1000, in + 4, BYTES / 3, 2);
    ASSERT_ALL(!copied, "a part of a block was copied to be sent");
    arena_free(&d->arena, out), arena_free(&d->arena, in);
}

static void test_other_memory_is_copied_into_the_pool(void **state)
{
    enum { BYTES = KEPT_ASIDE + (1 << 20) };
    unsigned char *out = malloc(BYTES), *in = malloc(BYTES);
    (void)state;
    need_a_pool();
    for (int m = 0; m < 3; m++) {
        const bool copied = shift(out, in, BYTES, m);
        ASSERT_ALL(copied, "memory of malloc was sent as if others could read it");
    }
    for (int i = 0; i < comm.transport->slots; i++) assert_true(comm.transport->slot[i].aside_room <= KEPT_ASIDE);
    free(out), free(in);
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

/* Everybody waits for its large send before it waits for its receive. */
static void test_sends_may_be_waited_for_first(void **state)
{
    enum { BYTES = 1 << 20, N = 5 };
    static unsigned char out[N][BYTES], in[N][BYTES];
    struct message sends[N], receives[N];
    struct exchange x = exchange_begin(&all, POINT_TO_POINT);
    int bad = -1;
    (void)state;
    need_a_pool();
    for (int m = 0; m < N; m++) {
        fill(out[m], BYTES, m);
        receives[m] = message_receive(&x, left(), in[m], BYTES);
        sends[m] = message_send(&x, right(), out[m], BYTES);
    }
    for (int m = 0; m < N; m++)
        if (message_wait(&comm, sends[m], &err) != OK) bad = m;
    for (int m = 0; m < N; m++)
        if (message_wait(&comm, receives[m], &err) != OK || first_wrong(in[m], BYTES, m) >= 0) bad = m;
    ASSERT_ALL(bad < 0, "message %d was not received", bad);
}

/* Every fourth is small, so that it would fit where the one before it did not. */
static uint64_t length_of(int m) { return m % 4 == 2 ? 40 : 3000; }

/* More than the ring holds is sent before anything is received; named messages are then received in another order. */
static void send_too_much(bool named)
{
    enum { N = 80, BYTES = 3000 };
    static unsigned char out[N][BYTES], in[N][BYTES];
    struct message sends[N];
    struct exchange x[N], one = exchange_begin(&all, POINT_TO_POINT);
    int bad = -1;
    for (int m = 0; m < N; m++) {
        x[m] = named ? exchange_named(&all, POINT_TO_POINT, (uint32_t)m) : one;
        fill(out[m], length_of(m), m);
        sends[m] = message_send(&x[m], right(), out[m], length_of(m));
        if (m % 4 == 3) letters_look(&comm);            /* what waits must not be overtaken */
    }
    comm_barrier(&comm);                                /* all have sent, so what a ring does not hold is aside */
    ASSERT_ALL(comm.transport->letters.waitings > 0 || comm.transport->letters.first != NULL, "%d messages fit in", N);
    for (int k = 0; k < N; k++) {
        const int m = named ? (k * 7 + 3) % N : k;
        const struct message receive = message_receive(&x[m], left(), in[m], length_of(m));
        if (message_wait(&comm, receive, &err) != OK || first_wrong(in[m], length_of(m), m) >= 0) bad = m;
    }
    for (int m = 0; m < N; m++)
        if (message_wait(&comm, sends[m], &err) != OK) bad = m;
    ASSERT_ALL(bad < 0, "message %d is not what was sent as such", bad);
    ASSERT_ALL(comm.transport->letters.first == NULL, "letters are left over");
}

static void test_messages_wait_for_room_and_for_receives(void **state)
{
    (void)state;
    need_a_pool();
    send_too_much(true);
    send_too_much(false);
}

/* A send is complete when its receiver has the body, not before: here it takes it late. */
static void test_a_send_waits_for_its_receiver(void **state)
{
    enum { BYTES = 1 << 20 };
    static unsigned char out[BYTES], in[BYTES];
    const int64_t start = patience_now(), late = 50 * 1000 * 1000;
    struct exchange x = exchange_begin(&all, POINT_TO_POINT);
    int64_t took = late;
    bool good = true;
    (void)state;
    need_a_pool();
    fill(out, BYTES, 1);
    if (all.rank == 0) {
        const struct message send = message_send(&x, 1, out, BYTES);
        good = message_wait(&comm, send, &err) == OK;
        memset(out, 0xee, BYTES);
        took = patience_now() - start;
    } else if (all.rank == 1) {
        nanosleep(&(struct timespec){ .tv_nsec = late }, NULL);
        good = message_wait(&comm, message_receive(&x, 0, in, BYTES), &err) == OK && first_wrong(in, BYTES, 1) < 0;
    }
    ASSERT_ALL(good, "what arrived is what its sender has written since");
    ASSERT_ALL(took >= late / 2, "a send was complete after %lld ns, before its receive", (long long)took);
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

enum { ADDED = 300007 };

/* Add what comes from the left; where a received body would be, nothing is written. */
static void add_once(float *out, float *into, float *scratch, const char *whose)
{
    struct exchange x = exchange_begin(&all, REDUCE_SCATTER);
    int64_t wrong = -1, written = -1;
    for (int64_t i = 0; i < ADDED; i++) out[i] = (float)(all.rank + i % 89), into[i] = (float)(i % 7), scratch[i] = -1;
    const bool good = exchange_reduce(&x, right(), out, sizeof *out * ADDED, left(), scratch, SUM, F32, into, ADDED,
                                      &err) == OK;
    memset(out, 0xff, sizeof *out * ADDED);             /* its receiver has read it */
    comm_barrier(&comm);
    for (int64_t i = 0; i < ADDED; i++) {
        if (!(into[i] == (float)(left() + i % 89) + (float)(i % 7))) wrong = i;
        if (scratch[i] != -1) written = i;
    }
    ASSERT_ALL(good && wrong < 0, "%s: element %lld of a sum is wrong; %s", whose, (long long)wrong, err.text);
    ASSERT_ALL(written < 0, "%s: what is added was copied first", whose);
}

static void test_sums_read_where_the_sender_has_it(void **state)
{
    struct device *d = &device;
    float *out = arena_alloc(&d->arena, BUFFERS, sizeof *out * ADDED), *into = calloc(ADDED, sizeof *into),
          *own = calloc(ADDED, sizeof *own), *scratch = calloc(ADDED, sizeof *scratch);
    (void)state;
    need_a_pool();
    add_once(out, into, scratch, "a tensor");
    add_once(own, into, scratch, "other memory");
    arena_free(&d->arena, out);
    free(own), free(into), free(scratch);
}

/* Device 1 knows where the numbers are, and reads them late. */
static void test_a_sender_waits_until_its_numbers_were_read(void **state)
{
    enum { BYTES = 1 << 20 };
    static unsigned char out[BYTES], in[BYTES];
    struct exchange x = exchange_begin(&all, POINT_TO_POINT);
    bool good = true;
    (void)state;
    need_a_pool();
    fill(out, BYTES, 1);
    if (all.rank == 0) {
        const struct message send = message_send(&x, 1, out, BYTES);
        good = message_wait(&comm, send, &err) == OK;
        const int slot = send.slot;
        if (comm.transport->slot[slot].aside != NULL) memset(comm.transport->slot[slot].aside, 0xee, BYTES);
    } else if (all.rank == 1) {
        const struct message receive = message_receive_to_look(&x, 0, in, BYTES);
        const unsigned char *there = message_look(&comm, receive);
        nanosleep(&(struct timespec){ .tv_nsec = 50 * 1000 * 1000 }, NULL);
        good = there != NULL && first_wrong(there, BYTES, 1) < 0;
        if (message_wait(&comm, receive, &err) != OK) good = false;
    }
    ASSERT_ALL(good, "a sender went on while its numbers were read");
}

/* Looked at in another order than they were sent; a small one is moved. */
static void test_messages_are_looked_at_in_any_order(void **state)
{
    enum { N = 6, BYTES = 1 << 18 };
    static unsigned char out[N][BYTES], in[N][BYTES];
    struct message sends[N], receives[N];
    struct exchange x = exchange_begin(&all, POINT_TO_POINT);
    int bad = -1;
    (void)state;
    for (int m = 0; m < N; m++) {
        const uint64_t bytes = m == 2 ? 100 : BYTES;
        fill(out[m], bytes, m);
        receives[m] = message_receive_to_look(&x, left(), in[m], bytes);
        sends[m] = message_send(&x, right(), out[m], bytes);
    }
    for (int m = N - 1; m >= 0; m--) {
        const unsigned char *there = message_look(&comm, receives[m]);
        if (there == NULL || first_wrong(there, m == 2 ? 100 : BYTES, m) >= 0) bad = m;
    }
    for (int m = 0; m < N; m++)
        if (message_wait(&comm, receives[m], &err) != OK || message_wait(&comm, sends[m], &err) != OK) bad = m;
    ASSERT_ALL(bad < 0, "message %d is not what was sent; %s", bad, err.text);
}

/* ---- several at once --------------------------------------------------------------------------------------------- */

/* Everybody sends to all others, each a little later; in the end also this device's own sends have left. */
static void test_a_meeting_waits_for_all_that_it_is_told(void **state)
{
    enum { BYTES = 1 << 18, MOST = 5 };
    static unsigned char out[BYTES], in[MOST][BYTES];
    struct message m[2 * MOST];
    struct exchange x = exchange_begin(&all, ALLGATHER);
    const int others = all.size - 1;
    int missing = 0, left_behind = 0;
    bool good = true;
    (void)state;
    need_a_pool();
    fill(out, BYTES, 1);
    for (int k = 0; k < others; k++)
        m[k] = message_receive(&x, (all.rank + k + 1) % all.size, in[k], BYTES);
    nanosleep(&(struct timespec){ .tv_nsec = all.rank * 10 * 1000 * 1000 }, NULL);
    for (int k = 0; k < others; k++) m[others + k] = message_send(&x, (all.rank + k + 1) % all.size, out, BYTES);
    messages_meet(&comm, m, 2 * others, false);
    for (int k = 0; k < others; k++) missing += !comm.transport->slot[m[k].slot].here;
    messages_meet(&comm, m, 2 * others, true);
    for (int k = others; k < 2 * others; k++)
        left_behind += atomic_load(&comm.transport->slot[m[k].slot].receipt->taken) == 0;
    for (int k = 0; k < 2 * others; k++) good = message_wait(&comm, m[k], &err) == OK && good;
    for (int k = 0; k < others; k++)
        for (uint64_t i = 0; i < BYTES; i++) good = good && in[k][i] == pattern((all.rank + k + 1) % all.size, 1, i);
    ASSERT_ALL(missing == 0, "after a meeting %d of %d messages are not here", missing, others);
    ASSERT_ALL(left_behind == 0, "after a meeting %d of %d messages have not left", left_behind, others);
    ASSERT_ALL(good, "a message is not what was sent; %s", err.text);
}

/* ---- the same results -------------------------------------------------------------------------------------------- */

enum { COUNT = 100003 };

struct sums {
    float *of;                          /* [room] */
    int64_t room, at;
    struct traffic counted[2];
    int64_t now;                        /* virtual time */
};

/* Of the same numbers, averages. */
static void sum_by(struct sums *s, const struct algorithm *a, float *x, float *y)
{
    const enum operation op = a->operation;
    int64_t ni, no;
    struct collective c = { .in = x, .out = y, .count = COUNT, .dtype = F32, .reduction = AVERAGE,
                            .nodes = group_nodes(&all) };
    if (algorithm_refuses(a, all.size, &c)) return;
    collective_extents(op, &c, all.rank, all.size, &ni, &no);
    if (op == REDUCE_SCATTER && y == x) c.out = y += block_start(COUNT, all.size, all.rank);
    for (int64_t k = 0; k < COUNT; k++) x[k] = 1.0f / (float)(k % 1013 + 7 * all.rank + 1);
    assert_true(s->at + no <= s->room);
    ASSERT_ALL(collective_run(&all, op, a->name, &c, &err) == OK, "%s", err.text);
    memcpy(s->of + s->at, y, sizeof *y * (size_t)no);
    s->at += no;
}

/* By every algorithm, in place and not. */
static struct sums sum_all_ways(void)
{
    struct sums s = { .room = 48 * COUNT };
    s.of = calloc((size_t)s.room, sizeof *s.of);
    float *x = arena_alloc(&device.arena, BUFFERS, sizeof *x * COUNT),
          *y = arena_alloc(&device.arena, BUFFERS, sizeof *y * COUNT);
    for (int i = 0; algorithms[i] != NULL; i++) {
        if (algorithms[i]->operation != ALLREDUCE && algorithms[i]->operation != REDUCE_SCATTER) continue;
        sum_by(&s, algorithms[i], x, x);
        sum_by(&s, algorithms[i], x, y);
    }
    s.counted[0] = comm.counted.of[TRAFFIC_OTHER].of[ALLREDUCE];
    s.counted[1] = comm.counted.of[TRAFFIC_OTHER].of[REDUCE_SCATTER];
    s.now = device.clock.now;
    arena_free(&device.arena, x), arena_free(&device.arena, y);
    return s;
}

static void test_results_counts_and_virtual_time_are_those_of_mpi(void **state)
{
    need_a_pool();
    const struct sums near = sum_all_ways();
    close_devices(state);
    setenv("ORRERY_MAPPED", "0", 1);
    open_devices(state);
    unsetenv("ORRERY_MAPPED");
    ASSERT_ALL(comm.transport->near.devices == 0, "near although told not to be");
    const struct sums far = sum_all_ways();
    ASSERT_ALL(near.at > 20 * COUNT && memcmp(near.of, far.of, sizeof *near.of * (size_t)near.room) == 0, "other sums");
    ASSERT_ALL(memcmp(near.counted, far.counted, sizeof near.counted) == 0, "other counts");
    ASSERT_ALL(near.now == far.now, "%lld ps, by MPI %lld", (long long)near.now, (long long)far.now);
    free(near.of), free(far.of);
}

#define ON_DEVICES(f) cmocka_unit_test_setup_teardown(f, open_devices, close_devices)

int main(void)
{
    const struct CMUnitTest tests[] = {
        ON_DEVICES(test_all_devices_of_a_machine_are_near),
        ON_DEVICES(test_a_ring_keeps_order_and_says_when_it_is_full), ON_DEVICES(test_a_flag_says_who_has_written),
        ON_DEVICES(test_a_tensor_is_sent_without_a_copy_by_its_sender),
        ON_DEVICES(test_other_memory_is_copied_into_the_pool), ON_DEVICES(test_sends_may_be_waited_for_first),
        ON_DEVICES(test_messages_wait_for_room_and_for_receives), ON_DEVICES(test_a_send_waits_for_its_receiver),
        ON_DEVICES(test_sums_read_where_the_sender_has_it), ON_DEVICES(test_messages_are_looked_at_in_any_order),
        ON_DEVICES(test_a_sender_waits_until_its_numbers_were_read),
        ON_DEVICES(test_a_meeting_waits_for_all_that_it_is_told),
        ON_DEVICES(test_results_counts_and_virtual_time_are_those_of_mpi),
    };
    return MPI_RUN("near", tests);
}
