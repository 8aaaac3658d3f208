/* Messages whose memory is the device's: MPI gets its addresses (ORRERY_DIRECT), and nothing is copied beside; or they
 * go through the host's memory.  The data, what is counted and the virtual time are the same.
 * ranks: 2 3
 */
#include "tests/mpi_cmocka.h"
#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/comm/transport.h"
#include "emulated_devices/device/cuda/emulated/cuda_runtime_api.h"

static struct device device;
static struct comm comm;
static struct group all;
static struct error err;

static void open_as(const char *direct)
{
    setenv("ORRERY_DIRECT", direct, 1);
    assert_int_equal(device_open(&device, backend_find("cuda-emulated"), F32, 0, &err), OK);
    device.streams.when = FLIGHT_OFF;                   /* which sends copies of its own */
    ASSERT_ALL(comm_open(&comm, &device, &err) == OK, "%s", err.text);
    assert_int_equal(group_world(&all, &comm, &err), OK);
    unsetenv("ORRERY_DIRECT");
}

static void close_all(void)
{
    group_close(&all);
    comm_close(&comm);
    device_close(&device);
}

enum { SIZES = 6, LONGEST = 1 << 18 };
static const int64_t size[SIZES] = { 0, 1, 7, 2000, 3001, LONGEST };    /* around what would go with a head */

static float value(int rank, int64_t i) { return (float)((rank * 31 + i * 7) % 61 - 30); }

static void fill(struct tensor x, bool own)
{
    struct views v = views_of(&device);
    struct tensor seen = view_write(&v, x);
    for (int64_t i = 0; i < tensor_count(x); i++) ((float *)seen.data)[i] = own ? value(all.rank, i) : -1e9f;
    views_end(&v);
}

/* What has gone round: each device has what the one before it sent. */
static void check_received(struct tensor x, int64_t n)
{
    const int from = (all.rank + all.size - 1) % all.size;
    struct views v = views_of(&device);
    const float *got = view_read(&v, x).data;
    int64_t wrong = -1;
    for (int64_t i = 0; i < LONGEST && wrong < 0; i++)
        if (!(got[i] == (i < n ? value(from, i) : -1e9f))) wrong = i;
    const double what = wrong < 0 ? 0 : got[wrong];
    views_end(&v);
    ASSERT_ALL(wrong < 0, "of %lld: %g at %lld", (long long)n, what, (long long)wrong);
}

struct outcome {
    struct emulated_calls calls;
    struct traffic counted;
    int64_t now;
    float *sum;
    unsigned long long sum_copies;      /* of the all-reduce */
};

static struct outcome talk(const char *direct)
{
    struct outcome o = { .sum = malloc(sizeof *o.sum * LONGEST) };
    assert_non_null(o.sum);
    open_as(direct);
    const struct tensor out = device_tensor_1d(&device, BUFFERS, LONGEST);
    const struct tensor in = device_tensor_1d(&device, BUFFERS, LONGEST);
    const int right = (all.rank + 1) % all.size, left = (all.rank + all.size - 1) % all.size;
    fill(out, true);
    for (int k = 0; k < SIZES; k++) {
        fill(in, false);
        struct exchange x = exchange_begin(&all, POINT_TO_POINT);
        const uint64_t bytes = sizeof(float) * (uint64_t)size[k];
        const struct emulated_calls before = emulated_calls;
        ASSERT_ALL(exchange_both(&x, right, out.data, bytes, left, in.data, bytes, &err) == OK, "%s", err.text);
        o.calls.copies += emulated_calls.copies - before.copies;
        o.calls.waits += emulated_calls.waits - before.waits;
        check_received(in, size[k]);
    }
    const unsigned long long before_sum = emulated_calls.copies;
    ASSERT_ALL(allreduce(&all, out.data, LONGEST, F32, SUM, "ring", &err) == OK, "%s", err.text);
    o.sum_copies = emulated_calls.copies - before_sum;
    device_copy(&device, o.sum, out.data, sizeof *o.sum * LONGEST);
    o.counted = comm.counted.of[TRAFFIC_OTHER].of[POINT_TO_POINT];
    o.now = device.clock.now;
    device_free(&device, out), device_free(&device, in);
    close_all();
    return o;
}

static void test_nothing_is_copied_beside(void **state)
{
    (void)state;
    const struct outcome host = talk("no"), direct = talk("yes");
    ASSERT_ALL(host.calls.copies >= 2 * (SIZES - 1), "%llu copies by the host", host.calls.copies);
    /* A step of the ring that adds: what is sent, and what the sender has, to the device.  One that gathers: what is
     * sent, and a view to be written, there and back. */
    ASSERT_ALL(host.sum_copies == 5 * (unsigned)(all.size - 1), "%llu copies of an all-reduce", host.sum_copies);
    ASSERT_ALL(direct.calls.copies == 0, "%llu copies although MPI has the addresses", direct.calls.copies);
    ASSERT_ALL(direct.calls.waits == 2 * (SIZES - 1), "%llu waits: a send and a receive wait for what was computed",
               direct.calls.waits);
    ASSERT_ALL(memcmp(host.sum, direct.sum, sizeof *host.sum * LONGEST) == 0, "other sums");
    ASSERT_ALL(memcmp(&host.counted, &direct.counted, sizeof host.counted) == 0, "other counts");
    ASSERT_ALL(host.now == direct.now, "%lld ps; direct %lld", (long long)host.now, (long long)direct.now);
    free(host.sum), free(direct.sum);
}

/* MPI here knows no GPUs, so auto is no. */
static void test_auto_asks_mpi(void **state)
{
    (void)state;
    const struct outcome o = talk("auto");
    ASSERT_ALL(o.calls.copies > 0, "MPI got addresses that it does not know");
    free(o.sum);
}

static void refused(const char *direct, const char *backend, const char *words)
{
    setenv("ORRERY_DIRECT", direct, 1);
    assert_int_equal(device_open(&device, backend_find(backend), F32, 0, &err), OK);
    const enum error_code e = comm_open(&comm, &device, &err);
    unsetenv("ORRERY_DIRECT");
    ASSERT_ALL(e == ERR_USAGE && strstr(err.text, words) != NULL, "%s", err.text);
    device_close(&device);
}

static void test_what_is_refused(void **state)
{
    (void)state;
    refused("yes", "cpu", "--direct yes (ORRERY_DIRECT): MPI reads the memory of --backend cpu anyway");
    refused("perhaps", "cuda-emulated", "--direct perhaps (ORRERY_DIRECT): must be yes, no or auto");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_nothing_is_copied_beside), MPI_TEST(test_auto_asks_mpi), MPI_TEST(test_what_is_refused),
    };
    return MPI_RUN("direct", tests);
}
