/* Prefetch in two dimensions, in virtual time to the picosecond: while a layer computes, the next one's dense weights
 * are gathered over the network, and experts come from the drive to the host and from there to the device.  What is
 * not hidden is max(0, the slowest of the three - computing).
 * ranks: 1 2 4
 */
#include "emulated_devices/schemes/data/data.h"
#include "ref/model/families/families.h"
#include "ref/model/config.h"
#include "ref/model/kinds.h"

static const struct model_config even = {
    .name = "even", .S = 32, .D = 32, .H = 4, .K = 4, .A = 8, .F = 64, .L = 3, .V = 64, .norm = NORM_RMS,
    .family = &family_mixtral, .positions = POSITIONS_ROTARY, .rotary = { .theta = 10000 }, .mlp = MLP_MIXTURE,
    .mixture = { .E = 4, .k = 2 },
    .eps = 1e-5, .init_std = 0.2,
};

/* A flop a picosecond; messages 1 us and 20 ps a byte.  Memory takes no time.  Copies and the drive: each test. */
static struct cluster machine = {
    .name = "test", .flop_rate = { [F32] = 1000000 }, .levels = 1,
    .link = { { .level = "node", .latency = 1000000, .rate = 50000, .eager = ALWAYS_EAGER } },
};

static picoseconds computing;
static double part_flops(int part) { return part == 0 ? 0 : (double)computing; }

#include "tests/devices/engine.h"
#include "ref/io/output.h"

enum { ALL = 1 << PARAMETERS | 1 << GRADIENTS | 1 << OPTIMIZER };
enum { LAYERS = 3, PASSES = 6 };

static picoseconds larger(picoseconds a, picoseconds b) { return a > b ? a : b; }

/* How long gathering a layer's dense weights takes by itself. */
static picoseconds gathering(void)
{
    const int64_t count = dp.unit[UNIT_BLOCKS].padded;
    float *x = calloc((size_t)count, sizeof *x);
    assert_non_null(x);
    const picoseconds before = device.clock.now;
    const struct collective c = { .in = x + count / world.size * world.rank, .out = x, .count = count, .dtype = F32 };
    ASSERT_ALL(collective_run(&world, ALLGATHER, NULL, &c, &err) == OK, "%s", err.text);
    const picoseconds t = device.clock.now - before;
    device.clock.now = before;
    for (int l = 0; l < CLUSTER_LEVELS; l++) device.clock.send[l].count = device.clock.receive[l].count = 0;
    free(x);
    return t;
}

static uint64_t expert_bytes(void) { return 4 * 4 * 3 * 32 * 64; }              /* of a layer, in fp32 */

/* Layer after layer, several passes: in the steady state the time from one to the next. */
static void check_period(bool file, bool late)
{
    struct use list[LAYERS * PASSES];
    open_engine((struct data_request){ .scheme = "zero3", .offload = ALL, .offload_experts = true, .offload_slice = 32,
                                       .no_prefetch = late, .offload_to = file ? temporary_folder() : NULL });
    for (int i = 0; i < LAYERS * PASSES; i++) list[i] = (struct use){ .part = 1 + i % LAYERS, .pass = PASS_FORWARD };
    set_uses(list, LAYERS * PASSES);
    const picoseconds network = gathering(), link = time_at_rate(expert_bytes(), machine.copy_rate),
                      drive = file ? time_at_rate(expert_bytes(), machine.host.drive_rate) : 0;
    const picoseconds slowest = larger(network, larger(link, drive)), exposed = larger(0, slowest - computing);
    picoseconds before = 0;
    for (int i = 0; i < LAYERS * PASSES - 4; i++) {
        use(list[i].part, PASS_FORWARD);
        const picoseconds took = device.clock.now - before;
        const picoseconds want = computing + (late ? larger(network, drive + link) : exposed);
        before = device.clock.now;
        if (i < LAYERS) continue;                       /* the pipeline fills */
        ASSERT_ALL(took == want, "%s, prefetch %d, computing %lld, network %lld, link %lld, drive %lld: a layer takes "
                   "%lld, want %lld", file ? "file" : "host", !late, (long long)computing, (long long)network,
                   (long long)link, (long long)drive, (long long)took, (long long)want);
    }
    close_engine();
}

static void test_what_is_not_hidden(void **state)
{
    static const struct { int64_t copy_rate, drive_rate; picoseconds computing; } cases[] = {
        { 50000, 20000, 10000000 },             /* computing hides all */
        { 50000, 20000, 3000000 },              /* the drive shows, if there is one */
        { 50000, 20000, 300000 },               /* the link to the host, or the drive */
        { 10000000, 10000000, 300000 },         /* the network, if there is one */
    };
    (void)state;
    own_experts = true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int file = 0; file < 2; file++) {
            machine.copy_rate = cases[i].copy_rate, machine.host.drive_rate = cases[i].drive_rate;
            computing = cases[i].computing;
            check_period(file, false);
            check_period(file, true);
        }
    own_experts = false;
}

/* A layer's experts are one message and one read, however many there are; dense weights are another message. */
static void test_slices_are_fused(void **state)
{
    (void)state;
    struct use list[LAYERS];
    open_engine((struct data_request){ .scheme = "zero3", .offload = ALL, .offload_experts = true,
                                       .offload_slice = 32 });
    for (int i = 0; i < LAYERS; i++) list[i] = (struct use){ .part = 1 + i, .pass = PASS_FORWARD };
    set_uses(list, LAYERS);
    const uint32_t before = device.clock.sent;
    for (int i = 0; i < LAYERS; i++) use(1 + i, PASS_FORWARD);
    const struct tier_traffic t = data_tier_traffic_so_far(&dp);
    const uint32_t sent = device.clock.sent - before, each = (uint32_t)(world.size > 1 ? world.size - 1 : 0);
    ASSERT_ALL(sent == 2 * LAYERS * each, "%u messages for %d layers, want 2 all-gathers of %u each", sent, LAYERS,
               each);
    ASSERT_ALL(t.reads == LAYERS && t.bytes_read == LAYERS * expert_bytes() / (uint64_t)world.size,
               "%llu reads of %llu bytes, want one a layer, of its experts", (unsigned long long)t.reads,
               (unsigned long long)t.bytes_read);
    close_engine();
}

/* A step reads the weights of S numbers of experts for two passes and the update, gradients once, two states once, and
 * writes all of them once: 1/P on each device; and nothing else. */
static void test_only_experts_move(void **state)
{
    (void)state;
    open_engine((struct data_request){ .scheme = "zero3", .offload = ALL, .offload_experts = true,
                                       .offload_slice = 1 << 16 });
    step_of(1);
    const struct tier_traffic t = data_tier_traffic_so_far(&dp), want = data_tier_traffic(&dp);
    const uint64_t S = LAYERS * expert_bytes() / (uint64_t)world.size;
    ASSERT_ALL(t.bytes_read == (2 + 1 + 1 + 2) * S && t.bytes_written == (1 + 1 + 2) * S,
               "read %llu bytes, written %llu, want 6 and 4 times %llu", (unsigned long long)t.bytes_read,
               (unsigned long long)t.bytes_written, (unsigned long long)S);
    ASSERT_ALL(memcmp(&t, &want, sizeof t) == 0, "counted differs from data_tier_traffic");
    close_engine();
}

/* The drive's bytes of two steps: as many as the device moves if the host keeps nothing; if it keeps all, each block is
 * read once, and only gradients are written, once, before they are asked for; in between, each byte of a request that
 * is no hit.  A block is what a device has of one expert's weights, gradients or states. */
static void test_the_drive_rests(void **state)
{
    const uint64_t all = LAYERS * expert_bytes() / (uint64_t)test_size * 4;      /* weights, gradients, two states */
    uint64_t read = UINT64_MAX;
    picoseconds took = INT64_MAX;
    (void)state;
    computing = 1000000, machine.copy_rate = 1000000, machine.host.drive_rate = 20000;
    for (int part = 0; part <= 4; part++) {
        open_engine((struct data_request){ .scheme = "zero3", .offload = ALL, .offload_experts = true,
                                           .offload_slice = 1 << 16, .offload_to = temporary_folder(),
                                           .host_cache = all / 4 * (uint64_t)part });
        for (int step = 0; step < 2; step++) step_of(1);
        const struct drive_use d = data_drive_use(&dp);
        const struct tier_traffic t = data_tier_traffic_so_far(&dp);
        const struct model_state away = data_offloaded(&dp);
        const uint64_t block = all / 4 / LAYERS / 4, on_drive = away.weights + away.gradients + away.optimizer;
        ASSERT_ALL(on_drive == all, "%llu bytes are on the drive, want 4 numbers of each of an expert's: %llu",
                   (unsigned long long)on_drive, (unsigned long long)all);
        if (part == 0)
            ASSERT_ALL(d.requests == 0 && memcmp(&d.moved, &t, sizeof t) == 0,
                       "nothing kept: the drive reads %llu bytes, the device %llu",
                       (unsigned long long)d.moved.bytes_read, (unsigned long long)t.bytes_read);
        else
            ASSERT_ALL(test_size != 1 || d.moved.bytes_read == (d.requests - d.hits) * block,
                       "the drive reads %llu bytes, want %llu requests without the %llu hits, of %llu each",
                       (unsigned long long)d.moved.bytes_read, (unsigned long long)d.requests,
                       (unsigned long long)d.hits, (unsigned long long)block);
        if (part == 4)
            ASSERT_ALL(d.moved.bytes_read == all && d.moved.bytes_written == all / 4,
                       "all kept: the drive reads %llu bytes and writes %llu, want %llu and a quarter of that",
                       (unsigned long long)d.moved.bytes_read, (unsigned long long)d.moved.bytes_written,
                       (unsigned long long)all);
        ASSERT_ALL(d.moved.bytes_read < read && device.clock.now < took,
                   "%d quarters kept: the drive reads %llu bytes, two steps take %lld; with less kept %llu and %lld",
                   part, (unsigned long long)d.moved.bytes_read, (long long)device.clock.now,
                   (unsigned long long)read, (long long)took);
        read = d.moved.bytes_read, took = device.clock.now;
        close_engine();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_what_is_not_hidden),
        MPI_TEST(test_slices_are_fused),
        MPI_TEST(test_only_experts_move),
        MPI_TEST(test_the_drive_rests),
    };
    return MPI_RUN("offload_experts_time", tests);
}
