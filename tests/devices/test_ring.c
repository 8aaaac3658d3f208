/* Ring memory: with --ring K the weights of K parts of the model are on the device; what comes from the slow tier comes
 * while earlier parts compute.
 * ranks: 1 2
 *
 * The engine alone, in virtual time to the picosecond, and by its counters: in inference each part is read once a pass,
 * and K - 1 more before the first.
 */
#include "emulated_devices/schemes/data/data.h"
#include "ref/model/config.h"
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"

/* All parts but the first and the last have equal weights. */
static const struct model_config even = {
    .name = "even", .S = 32, .D = 32, .H = 4, .K = 4, .A = 8, .F = 64, .L = 6, .V = 64, .norm = NORM_RMS,
    .family = &family_llama, .positions = POSITIONS_ROTARY, .rotary = { .theta = 10000 }, .mlp = MLP_SWIGLU,
    .eps = 1e-5, .init_std = 0.2,
};

/* A flop a picosecond; messages and memory take next to no time; the copy engine 20 ps a byte. */
static const struct cluster machine = {
    .name = "test", .flop_rate = { [F32] = 1000000 }, .levels = 1, .copy_rate = 50000,
    .link = { { .level = "node", .rate = 1000000000000, .eager = ALWAYS_EAGER } },
};

static picoseconds computing[2];                /* of layers 0, 2, 4, and of layers 1, 3, 5 */
static double part_flops(int part) { return (double)computing[(part - 1) % 2]; }

#include "tests/devices/engine.h"

enum { LAYERS = 6, PASSES = 4 };

static uint64_t layer_bytes(void)
{
    return (uint64_t)dp.unit[UNIT_BLOCKS].padded / (uint64_t)world.size * sizeof(float);
}

/* Several passes over the layers.  @return how long the last one takes. */
static picoseconds run_passes(int ring)
{
    struct use list[LAYERS];
    picoseconds before = 0;
    open_engine((struct data_request){ .scheme = "zero3", .offload = 1 << PARAMETERS, .offload_slice = 32,
                                       .infers = true, .ring = ring });
    for (int i = 0; i < LAYERS; i++) list[i] = (struct use){ .part = 1 + i, .pass = PASS_FORWARD };
    set_uses(list, LAYERS);
    for (int p = 0; p < PASSES; p++) {
        before = device.clock.now;
        for (int i = 0; i < LAYERS; i++) use(1 + i, PASS_FORWARD);
    }
    return device.clock.now - before;
}

/* ---- what is read, and what is on the device --------------------------------------------------------------------- */

static void test_each_part_is_read_once_a_pass(void **state)
{
    (void)state;
    for (int ring = 2; ring < LAYERS; ring++) {
        run_passes(ring);
        const struct tier_traffic t = data_tier_traffic_so_far(&dp), each = data_tier_traffic(&dp),
                                  first = data_first_moves(&dp);
        ASSERT_ALL(t.reads == (uint64_t)(PASSES * LAYERS + ring - 1) && t.bytes_read == t.reads * layer_bytes(),
                   "ring of %d: %llu reads of %llu bytes, want %d layers a pass and %d before", ring,
                   (unsigned long long)t.reads, (unsigned long long)t.bytes_read, LAYERS, ring - 1);
        ASSERT_ALL(each.reads == LAYERS && first.reads == (uint64_t)ring - 1, "ring of %d: predicted %llu and %llu",
                   ring, (unsigned long long)each.reads, (unsigned long long)first.reads);
        close_engine();
    }
}

/* On one device: K layers, and while the next is placed one of them twice. */
static void test_memory(void **state)
{
    (void)state;
    for (int ring = 2; ring < LAYERS && test_size == 1; ring++) {
        run_passes(ring);
        const uint64_t peak = device.arena.peak.tag[PARAMETERS], want = (uint64_t)(ring + (ring == 2)) * layer_bytes();
        const struct model_state predicted = data_peak(&dp);
        ASSERT_ALL(peak == want && peak == predicted.weights,
                   "ring of %d: %llu bytes of weights, predicted %llu, want %llu", ring, (unsigned long long)peak,
                   (unsigned long long)predicted.weights, (unsigned long long)want);
        close_engine();
    }
}

/* ---- when it comes ----------------------------------------------------------------------------------------------- */

/* Equal layers: the slower of computing and the link. */
static void test_equal_layers(void **state)
{
    (void)state;
    for (int ring = 2; ring < LAYERS; ring++)
        for (int slow = 0; slow < 2; slow++) {
            computing[0] = computing[1] = slow ? 1000000000 : 1000;
            const picoseconds took = run_passes(ring), link = time_at_rate(layer_bytes(), machine.copy_rate),
                              want = LAYERS * (slow ? computing[0] : link);
            ASSERT_ALL(took >= want && took < want + want / 1000, "ring of %d: a pass takes %lld, want %lld", ring,
                       (long long)took, (long long)want);
            close_engine();
        }
}

/* Every other layer computes for as long as two reads, the others hardly at all: with two layers on the device the read
 * that no computing hides shows; with three it has begun earlier. */
static void test_a_longer_ring_evens_out(void **state)
{
    (void)state;
    computing[0] = computing[1] = 0;
    run_passes(2);
    const picoseconds link = time_at_rate(layer_bytes(), machine.copy_rate);
    close_engine();
    computing[0] = 2 * link + link / 100, computing[1] = 0;
    for (int ring = 2; ring < LAYERS; ring++) {
        const picoseconds took = run_passes(ring),
                          want = LAYERS / 2 * (computing[0] + (ring == 2 ? link : 0));
        ASSERT_ALL(took >= want && took < want + want / 1000, "ring of %d: a pass takes %lld, want %lld", ring,
                   (long long)took, (long long)want);
        close_engine();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_each_part_is_read_once_a_pass),
        MPI_TEST(test_memory),
        MPI_TEST(test_equal_layers),
        MPI_TEST(test_a_longer_ring_evens_out),
    };
    return MPI_RUN("ring", tests);
}
