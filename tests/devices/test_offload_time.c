/* Offload tiers in virtual time, to the picosecond: three uses of prefetch, slices through three buffers, strides, and
 * loading in parts against loading by one owner; and what is read and written, by hand.
 * tier: check
 * ranks: 1 4
 */
#include "emulated_devices/schemes/data/data.h"
#include "ref/model/families/families.h"
#include "ref/model/config.h"
#include "emulated_devices/schemes/data/stages/load.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"

/* Everything is a multiple of 32. */
static const struct model_config even = {
    .name = "even", .S = 32, .D = 32, .H = 4, .K = 4, .A = 8, .F = 64, .L = 3, .V = 64, .family = &family_gpt2,
    .biases = BIASES_BLOCK,
    .eps = 1e-5, .init_std = 0.2,
};

/* A flop a picosecond on a device, 0.4 on its host; copies 1 ps a byte, a drive 3; messages 1 us and 20 ps a byte.
 * Memory takes no time. */
static const struct cluster machine = {
    .name = "test", .flop_rate = { [F32] = 1000000 }, .copy_rate = 1000000, .levels = 1,
    .host = { .flop_rate = { [F32] = 2500000, [F64] = 2500000 }, .drive_rate = 333333 },
    .link = { { .level = "node", .latency = 1000000, .rate = 50000, .eager = ALWAYS_EAGER } },
};

static picoseconds larger(picoseconds a, picoseconds b) { return a > b ? a : b; }
static picoseconds compute_time(int part) { return 20000 * (3 + part * 7 % 5); }
static double part_flops(int part) { return (double)compute_time(part); }

#include "tests/devices/engine.h"
#include "ref/io/output.h"

enum { W = 1 << PARAMETERS, G = 1 << GRADIENTS, O = 1 << OPTIMIZER };

/* ---- what is read and written, by hand --------------------------------------------------------------------------- */

static uint64_t block_elements(void)
{
    uint64_t n = 0;
    for (int i = 0; i < model_param_count(&even); i++) {
        const struct param_spec s = model_param(&even, i);
        if (s.layer >= 0 && s.layer < even.L) n += (uint64_t)(s.dim[0] * (s.ndim == 2 ? s.dim[1] : 1));
    }
    return n;
}

/* Of n elements: weights are read for two passes over the blocks and one over the rest, and by the step, and written by
 * it; gradients are written and read; two states read and written.  Each device 1/P of all that. */
static void test_reads_and_writes(void **state)
{
    const uint64_t n = (uint64_t)model_elements(&even), blocks = block_elements(), P = (uint64_t)test_size;
    const struct { unsigned offload; int stride; uint64_t read, written; } c[] = {
        { W, 0, (blocks + n) + n, n }, { G, 0, n, n }, { O, 0, 2 * n, 2 * n },
        { W | G | O, 0, (blocks + n) + n + n + 2 * n, n + n + 2 * n },
        { W | G | O, 1 << 20, blocks + n, n },                          /* the host steps all: nothing of it travels */
    };
    (void)state;
    for (size_t i = 0; i < sizeof c / sizeof *c; i++) {
        open_engine((struct data_request){
            .scheme = "zero3", .offload = c[i].offload, .offload_slice = 32, .offload_stride = c[i].stride });
        step_of(1);
        const struct tier_traffic so_far = data_tier_traffic_so_far(&dp), *t = &so_far;
        ASSERT_ALL(t->bytes_read == 4 * c[i].read / P && t->bytes_written == 4 * c[i].written / P,
                   "offload %u stride %d: read %llu bytes, written %llu, want %llu and %llu", c[i].offload, c[i].stride,
                   (unsigned long long)t->bytes_read, (unsigned long long)t->bytes_written,
                   (unsigned long long)(4 * c[i].read / P), (unsigned long long)(4 * c[i].written / P));
        const struct tier_traffic want = data_tier_traffic(&dp);
        ASSERT_ALL(memcmp(t, &want, sizeof want) == 0, "offload %u stride %d: counted differs from data_tier_traffic",
                   c[i].offload, c[i].stride);
        close_engine();
    }
}

/* ---- prefetch ---------------------------------------------------------------------------------------------------- */

/* How long a collective takes by itself: all devices begin at once. */
static picoseconds alone(struct group *g, enum operation op, int64_t count)
{
    float *x = calloc((size_t)count, sizeof *x);
    assert_non_null(x);
    const picoseconds before = device.clock.now;
    const struct collective c = {
        .in = op == ALLGATHER ? x + count / g->size * g->rank : x, .out = x, .count = count, .dtype = F32
    };
    ASSERT_ALL(collective_run(g, op, NULL, &c, &err) == OK, "%s", err.text);
    const picoseconds t = device.clock.now - before;
    device.clock.now = before;
    for (int l = 0; l < CLUSTER_LEVELS; l++) device.clock.send[l].count = device.clock.receive[l].count = 0;
    free(x);
    return t;
}

/* The engines as the prefetch of weights keeps them busy: a forward pass, each part's weights in `units` units. */
struct expected {
    picoseconds now, drive, copy, gather, brought[8], here[8], ready[8];
    bool asked[8], fetched[8], gathered[8];
};

static picoseconds shard_time(int u, int64_t rate)
{
    return time_at_rate(4 * (uint64_t)(dp.unit[u].padded / world.size), rate);
}

static void expect_brought(struct expected *x, int u, bool file)
{
    if (x->asked[u] || x->fetched[u] || x->gathered[u]) return;
    x->asked[u] = true;
    x->brought[u] = x->now;
    if (file) x->brought[u] = x->drive = larger(x->drive, x->now) + shard_time(u, machine.host.drive_rate);
}

static void expect_fetched(struct expected *x, int u, bool file)
{
    if (x->fetched[u] || x->gathered[u]) return;
    expect_brought(x, u, file);
    x->fetched[u] = true;
    x->here[u] = x->copy = larger(x->copy, larger(x->brought[u], x->now)) + shard_time(u, machine.copy_rate);
}

static void expect_gathered(struct expected *x, int u, bool file, picoseconds takes)
{
    if (x->gathered[u]) return;
    expect_fetched(x, u, file);
    x->gathered[u] = true;
    x->ready[u] = x->gather = larger(larger(x->gather, x->now), x->here[u]) + takes;
}

static void expect_part(struct expected *x, int part, int stage, bool file, const picoseconds takes[8])
{
    int unit[2];
    for (int k = 0, n = part < PARTS ? data_units_of(&even, part, unit) : 0; k < n; k++) {
        if (stage == 2) expect_brought(x, unit[k], file);
        if (stage == 1) expect_fetched(x, unit[k], file);
        if (stage == 0) expect_gathered(x, unit[k], file, takes[unit[k]]);
    }
}

/* While part i computes, part i+1 is gathered, i+2 copied to the device, i+3 read from the drive. */
static void test_prefetch_three_deep(void **state)
{
    (void)state;
    picoseconds took[4];
    for (int way = 0; way < 4; way++) {
        const bool file = way & 1, late = way & 2;
        open_engine((struct data_request){ .scheme = "zero3",
                                           .offload = W,
                                           .offload_slice = 32,
                                           .no_prefetch = late,
                                           .offload_to = file ? temporary_folder() : NULL });
        struct use list[PARTS];
        struct expected x = { 0 };
        picoseconds takes[8];
        for (int i = 0; i < PARTS; i++) list[i] = (struct use){ .part = i, .pass = PASS_FORWARD };
        set_uses(list, PARTS);
        for (int u = 0; u < dp.units; u++) takes[u] = alone(&world, ALLGATHER, dp.unit[u].padded);
        for (int i = 0; i < PARTS; i++) {
            int unit[2];
            expect_part(&x, i, 0, file, takes);
            for (int k = 0, n = data_units_of(&even, i, unit); k < n; k++) x.now = larger(x.now, x.ready[unit[k]]);
            for (int ahead = 1; ahead <= 3 && !late; ahead++) expect_part(&x, i + ahead, ahead - 1, file, takes);
            x.now += compute_time(i);
            use(i, PASS_FORWARD);
            ASSERT_ALL(device.clock.now == x.now, "%s, prefetch %d, part %d: ends at %lld, want %lld",
                       file ? "file" : "host", !late, i, (long long)device.clock.now, (long long)x.now);
        }
        took[way] = x.now;
        close_engine();
    }
    ASSERT_ALL(took[0] < took[2] && took[1] < took[3], "prefetching takes %lld and %lld, not prefetching %lld and %lld",
               (long long)took[0], (long long)took[1], (long long)took[2], (long long)took[3]);
}

/* ---- the update -------------------------------------------------------------------------------------------------- */

enum { SLICE = 8 };
static const picoseconds read_time = SLICE * (4 + 4 + 4 + 4), write_time = SLICE * (4 + 4 + 4), step_time = SLICE * 15,
                         host_time = SLICE * 6;

/* The recurrences of slices.c, of n equal slices. */
static picoseconds update_time(int n, int k)
{
    picoseconds read = 0, stepped = 0, written = 0, host = 0;
    const int own = n / k;
    picoseconds filled[own + 1], emptied[own + 1];
    for (int q = 0; q < own; q++) {                  /* in each round: the next read, the host's slices, the device's */
        for (int r = q == 0 ? 0 : q + 1; r <= q + 1 && r < own; r++)
            filled[r] = read = larger(read, r < 3 ? 0 : emptied[r - 3]) + read_time;
        host += (k - 1) * host_time;
        stepped = larger(stepped, filled[q]) + step_time;
        emptied[q] = written = larger(written, stepped) + write_time;
    }
    host += (n - own * k) * host_time;
    return larger(larger(stepped, written), host);
}

static picoseconds updated_in(int stride)
{
    open_engine((struct data_request){
        .scheme = "zero3", .offload = W | G | O, .offload_slice = SLICE, .offload_stride = stride });
    set_uses(NULL, 0);
    const picoseconds before = device.clock.now;
    ASSERT_ALL(data_step(&dp, 1, 1, &err) == OK, "%s", err.text);
    const picoseconds took = device.clock.now - before, want = update_time(data_slices(&dp), stride);
    ASSERT_ALL(took == want, "stride %d: the update takes %lld, want %lld", stride, (long long)took, (long long)want);
    close_engine();
    return took;
}

/* Too small a stride waits for the copies, too large a one for the host:
 * in between is the least, where the formula says. */
static void test_strides(void **state)
{
    enum { MOST = 10 };
    picoseconds took[MOST + 1];
    int best = 1;
    (void)state;
    for (int k = 1; k <= MOST; k++) {
        took[k] = updated_in(k);
        if (took[k] < took[best]) best = k;
    }
    const int formula = data_balanced_stride(host_time, read_time);
    ASSERT_ALL(best == formula && best == 4, "the least is at stride %d, by the formula at %d, by hand at 4", best,
               formula);
    for (int k = 2; k <= MOST; k++)
        ASSERT_ALL(k <= best ? took[k] < took[k - 1] : took[k] > took[k - 1], "stride %d takes %lld, %d %lld", k,
                   (long long)took[k], k - 1, (long long)took[k - 1]);
    ASSERT_ALL(took[best] < updated_in(1 << 20), "the host alone is faster");
}

static void test_balanced_stride(void **state)
{
    (void)state;
    for (picoseconds host = 1; host < 40; host++)
        for (picoseconds moved = 1; moved < 200; moved += 7) {
            int best = 1;
            for (int k = 2; k < 300; k++)                          /* max((k-1) host, device) / k, without a fraction */
                if (larger((k - 1) * host, moved) * best < larger((best - 1) * host, moved) * k) best = k;
            const int formula = data_balanced_stride(host, moved);
            assert_int_equal(larger((formula - 1) * host, moved) * best, larger((best - 1) * host, moved) * formula);
        }
}

/* ---- loading ----------------------------------------------------------------------------------------------------- */

/* P links read in 1/P of the time, to the picosecond; and both ways bring the same. */
static void test_parts_against_an_owner(void **state)
{
    enum { N = 1 << 12 };
    (void)state;
    picoseconds read[2], took[2];
    static float whole[2][N];
    const int P = test_size;
    for (int by_owner = 0; by_owner < 2; by_owner++) {
        struct tier tier;
        assert_int_equal(device_open(&device, NULL, F32, 0, &err), OK);
        clock_open(&device.clock, &machine, F32);
        assert_int_equal(comm_open(&comm, &device, &err), OK);
        assert_int_equal(group_world(&world, &comm, &err), OK);
        const int64_t n = by_owner ? (comm.rank == 0 ? N : 0) : N / P;
        assert_int_equal(tier_open(&tier, &device, NULL, tier_room((uint64_t)n * 4), &err), OK);
        struct load l = { .group = &world,
                          .tier = &tier,
                          .home = tier_place(&tier, F32, n),
                          .whole = tensor_1d(whole[by_owner], F32, N) };
        for (int64_t i = 0; i < n; i++) tensor_set(l.home, i, (double)(by_owner ? i : comm.rank * n + i));
        const picoseconds then = alone(&world, by_owner ? BROADCAST : ALLGATHER, N);
        ASSERT_ALL((by_owner ? load_by_owner(&l, 0, &err) : load_in_parts(&l, &err)) == OK, "%s", err.text);
        read[by_owner] = l.read, took[by_owner] = device.clock.now;
        const picoseconds reading = by_owner ? 4 * N : 4 * N / P;
        ASSERT_ALL(took[by_owner] == reading + then, "%s: %lld, want %lld to read and %lld to spread",
                   by_owner ? "by its owner" : "in parts", (long long)took[by_owner], (long long)reading,
                   (long long)then);
        tier_close(&tier);
        group_close(&world);
        comm_close(&comm);
        device_close(&device);
    }
    int wrong = -1;
    for (int i = 0; i < N && wrong < 0; i++)
        if (!(whole[0][i] == (float)i && whole[1][i] == (float)i)) wrong = i;
    ASSERT_ALL(wrong < 0, "element %d: %g in parts, %g by its owner", wrong, (double)whole[0][wrong < 0 ? 0 : wrong],
               (double)whole[1][wrong < 0 ? 0 : wrong]);
    ASSERT_ALL(test_rank != 0 || read[1] == P * read[0], "the owner reads for %lld, each of %d devices for %lld",
               (long long)read[1], P, (long long)read[0]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_reads_and_writes),
        MPI_TEST(test_prefetch_three_deep),
        MPI_TEST(test_strides),
        MPI_TEST(test_balanced_stride),
        MPI_TEST(test_parts_against_an_owner),
    };
    return MPI_RUN("offload in time", tests);
}
