/* What a plan costs does not depend on its numbers: a backend that has none charges, sends and holds the same.
 * tier: check
 * ranks: 1 2 4
 */
#include "tests/mpi_cmocka.h"
#include "emulated_devices/verify/cases/case.h"

static struct error err;

struct spent {
    picoseconds time;
    uint64_t operations;
    struct op_cost done;
    struct arena_use peak;
    struct ledger sent;
};

static void fill(const void *context, int64_t step, int64_t first, int64_t count, int32_t *ids, int32_t *labels,
                 int32_t *within)
{
    (void)within;
    const struct plan *p = context;
    for (int64_t i = 0; i < count * p->S; i++) {
        ids[i] = (int32_t)(((first * p->S + i) * 7 + step) % p->model.V);
        labels[i] = (int32_t)((ids[i] + 1) % p->model.V);
    }
}

static enum error_code two_steps(struct trainer *t)
{
    struct step_result result;
    enum error_code e = OK;
    for (int step = 0; step < 2 && !e; step++) {
        e = trainer_gradients(t, &result, &err);
        if (!e) e = trainer_update(t, &result, &err);
    }
    return e;
}

static struct spent train(const char *backend, struct plan *p, enum flight_when when)
{
    static struct device device;
    static struct comm comm;
    static struct trainer trainer;
    struct spent s = { 0 };
    ASSERT_ALL(plan_check(p, &err) == OK && device_open(&device, backend_find(backend), p->dtype, 0, &err) == OK,
               "%s", err.text);
    device.streams.when = when;
    ASSERT_ALL(comm_open(&comm, &device, &err) == OK, "%s", err.text);
    ASSERT_ALL(trainer_open(&trainer, p, &comm, (struct batch_source){ fill, p }, &err) == OK, "%s", err.text);
    ASSERT_ALL(two_steps(&trainer) == OK, "%s: %s", backend, err.text);
    s.time = device.clock.now, s.operations = device.operations, s.done = device.done, s.peak = device.arena.peak;
    s.sent = comm.counted;
    trainer_close(&trainer);
    comm_close(&comm);
    device_close(&device);
    return s;
}

static void expect_the_same_costs(const char *what, struct plan *p)
{
    const struct spent want = train("cpu", p, FLIGHT_OFF), got = train("count", p, FLIGHT_OFF);
    ASSERT_ALL(want.operations > 100 && want.done.flops > 1e4 && want.done.bytes > 1e4 && want.time > 0,
               "%s costs nothing", what);
    ASSERT_ALL(got.operations == want.operations && got.done.flops == want.done.flops
               && got.done.bytes == want.done.bytes,
               "%s: %llu operations, %g FLOPs, %g bytes; with numbers %llu, %g, %g", what,
               (unsigned long long)got.operations, got.done.flops, got.done.bytes,
               (unsigned long long)want.operations, want.done.flops, want.done.bytes);
    ASSERT_ALL(got.time == want.time, "%s takes %lld ps, with numbers %lld", what, (long long)got.time,
               (long long)want.time);
    ASSERT_ALL(memcmp(&got.peak, &want.peak, sizeof want.peak) == 0, "%s: other peaks of memory than with numbers",
               what);
    ASSERT_ALL(memcmp(&got.sent, &want.sent, sizeof want.sent) == 0, "%s: other messages than with numbers", what);
}

/* Messages are watched on a device that has no bytes, too. */
static void expect_watched(struct plan *p)
{
    const struct spent plain = train("count", p, FLIGHT_OFF), watched = train("count", p, FLIGHT_LATEST);
    ASSERT_ALL(watched.time == plain.time, "watched messages take %lld ps, others %lld", (long long)watched.time,
               (long long)plain.time);
}

/* Data, tensor and pipeline parallelism, a slow tier. */
static void test_costs_without_numbers(void **state)
{
    static const int mesh[][4] = { { 1, 1, 1, 1 }, { 2, 2, 1, 1 }, { 2, 1, 2, 1 }, { 2, 1, 1, 2 }, { 4, 2, 2, 1 },
                                   { 4, 2, 1, 2 } };
    (void)state;
    for (size_t m = 0; m < sizeof mesh / sizeof *mesh; m++) {
        if (mesh[m][0] != test_size) continue;
        struct plan p = case_plan(mesh[m][1], mesh[m][2], mesh[m][3]);
        expect_the_same_costs("ddp", &p);
        expect_watched(&p);
        p.data.scheme = "zero3";
        if (mesh[m][1] > 1) expect_the_same_costs("zero3", &p);
        p.data.offload = 1u << PARAMETERS | 1u << GRADIENTS | 1u << OPTIMIZER, p.data.offload_slice = 100;
        if (mesh[m][2] == 1 && mesh[m][3] == 1) expect_the_same_costs("zero3, offloaded", &p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { MPI_TEST(test_costs_without_numbers) };
    return MPI_RUN("count", tests);
}
