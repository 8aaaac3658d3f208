/* Experts that are read when they are chosen: each is one read, and the device waits for all of them, to the
 * picosecond.
 * ranks: 1 2
 */
#include "emulated_devices/schemes/data/data.h"
#include "ref/model/config.h"
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"

static const struct model_config even = {
    .name = "even", .S = 32, .D = 32, .H = 4, .K = 4, .A = 8, .F = 64, .L = 3, .V = 64, .norm = NORM_RMS,
    .family = &family_mixtral, .positions = POSITIONS_ROTARY, .rotary = { .theta = 10000 }, .mlp = MLP_MIXTURE,
    .mixture = { .E = 4, .k = 2 },
    .eps = 1e-5, .init_std = 0.2,
};

/* A flop a picosecond.  Memory takes no time.  Copies and the drive: each test. */
static struct cluster machine = {
    .name = "test", .flop_rate = { [F32] = 1000000 }, .levels = 1,
    .link = { { .level = "node", .latency = 1000000, .rate = 50000, .eager = ALWAYS_EAGER } },
};

static double part_flops(int part) { return part; }

#include "tests/devices/engine.h"

enum { EXPERT = 3 * 32 * 64 * 4 };              /* bytes of an expert in fp32 */

/* A read for each expert that is chosen, one after another, and the device waits for them. */
static void test_chosen(void **state)
{
    (void)state;
    machine.copy_rate = 50000;
    for (int chosen = 0; chosen < 16; chosen++) {
        int32_t counts[4];
        uint64_t n = 0;
        const struct use first = { .part = 1, .pass = PASS_FORWARD };
        open_engine((struct data_request){ .scheme = "ddp", .offload = 1 << PARAMETERS, .offload_experts = true,
                                           .chosen = true, .infers = true, .offload_slice = 32 });
        set_uses(&first, 1);
        for (int e = 0; e < 4; e++) counts[e] = chosen >> e & 1 ? 1 + e : 0, n += counts[e] > 0;
        ASSERT_ALL(data_acquire(&dp, 1, &err) == OK && data_read_experts(&dp, 1, counts, &err) == OK, "%s", err.text);
        const struct tier_traffic t = data_tier_traffic_so_far(&dp);
        const picoseconds want = (picoseconds)n * time_at_rate(EXPERT, machine.copy_rate);
        ASSERT_ALL(t.reads == n && t.bytes_read == n * EXPERT && device.clock.now == want,
                   "%llu experts are chosen: %llu reads of %llu bytes, at %lld, want %lld", (unsigned long long)n,
                   (unsigned long long)t.reads, (unsigned long long)t.bytes_read, (long long)device.clock.now,
                   (long long)want);
        data_release(&dp, 1);
        close_engine();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { MPI_TEST(test_chosen) };
    return MPI_RUN("chosen_time", tests);
}
