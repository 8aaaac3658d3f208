/* Weights gathered and gradients reduced once a step: zero1-overlap and fsdp-once, by the engine alone.  Virtual time
 * by recurrence to the picosecond, bytes and memory by formula, and which weights count between steps.
 * tier: check
 * ranks: 1 2 3 4 5
 * verify ranks: 6 8
 */
#include "emulated_devices/schemes/data/stages/stage.h"
#include "ref/model/config.h"
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include <string.h>

static const struct model_config even = {
    .name = "even", .S = 8, .D = 16, .H = 4, .K = 4, .A = 4, .F = 32, .L = 3, .V = 40, .family = &family_gpt2,
    .biases = BIASES_BLOCK, .eps = 1e-5, .init_std = 0.2,
};

/* A flop a picosecond; 1 us and 20 ps a byte: some gatherings take longer than a part computes, and some do not. */
static const struct cluster machine = {
    .name = "test", .flop_rate = { [F32] = 1000000 }, .levels = 1,
    .link = { { .level = "cluster", .latency = 1000000, .rate = 50000, .eager = ALWAYS_EAGER } },
};

static double part_flops(int part) { return 1e7 * (3 + part * 7 % 5); }

#include "tests/devices/engine.h"

static picoseconds part_time(int part) { return 10000000 * (3 + part * 7 % 5); }
static picoseconds larger(picoseconds a, picoseconds b) { return a > b ? a : b; }

/* How long an all-gather takes by itself: all devices begin at once. */
static picoseconds alone(int64_t count)
{
    float *x = calloc((size_t)count, sizeof *x);
    assert_non_null(x);
    const picoseconds before = device.clock.now;
    const struct collective c = { .in = x + count / world.size * world.rank, .out = x, .count = count, .dtype = F32 };
    ASSERT_ALL(collective_run(&world, ALLGATHER, "ring", &c, &err) == OK, "%s", err.text);
    const picoseconds t = device.clock.now - before;
    device.clock.now = before;
    device.clock.send[0].count = device.clock.receive[0].count = 0;
    free(x);
    return t;
}

static uint64_t bytes_sent(void) { return ledger_level(&comm.counted, 0).bytes; }

static int64_t padded_elements(void)
{
    int64_t n = 0;
    for (int u = 0; u < dp.units; u++) n += dp.unit[u].padded;
    return n;
}

/* ---- time -------------------------------------------------------------------------------------------------------- */

/* Part i starts when the part before has computed and its weights are there; then the next unit's gathering starts.
 * A second microbatch and backward passes find whole weights. */
static void test_gathering_beside_the_forward_pass(void **state)
{
    picoseconds took[2];
    (void)state;
    for (int at_use = 0; at_use < 2; at_use++) {
        open_engine((struct data_request){ .scheme = "zero1-overlap", .bucket = 1, .no_prefetch = at_use });
        struct use list[3 * PARTS];
        picoseconds gather[PARTS] = { 0 }, end = 0;
        for (int i = 0; i < 3 * PARTS; i++)
            list[i] = (struct use){ .part = i < 2 * PARTS ? i % PARTS : 3 * PARTS - 1 - i,
                                    .pass = i < 2 * PARTS ? PASS_FORWARD : PASS_BACKWARD_INPUT };
        set_uses(list, 3 * PARTS);
        for (int i = 0; i < PARTS; i++) {
            int unit[2];
            for (int k = 0, units = data_units_of(&even, i, unit); k < units; k++)
                gather[i] += test_size > 1 ? alone(dp.unit[unit[k]].padded) : 0;
        }
        picoseconds here = gather[0];
        for (int i = 0; i < 3 * PARTS; i++) {
            use(list[i].part, list[i].pass);
            if (at_use && i > 0 && i < PARTS) here = end + gather[i];
            const picoseconds start = i < PARTS ? larger(end, here) : end;
            end = start + part_time(list[i].part);
            if (!at_use && i + 1 < PARTS) here = start + gather[i + 1];
            ASSERT_ALL(i > 0 || device.clock.now >= end, "the first pass began before its weights had come: it ends at "
                       "%lld, want %lld", (long long)device.clock.now, (long long)end);
            ASSERT_ALL(device.clock.now == end, "prefetch %d, pass %d: ends at %lld, want %lld", !at_use, i,
                       (long long)device.clock.now, (long long)end);
        }
        took[at_use] = end;
        close_engine();
    }
    ASSERT_ALL(test_size == 1 || took[0] < took[1], "prefetching takes %lld, not prefetching %lld", (long long)took[0],
               (long long)took[1]);
}

/* With the same buckets, a second step of zero1-overlap takes no longer than one of zero1, and less where it can hide
 * what zero1 sends after the step. */
static void test_later_is_faster(void **state)
{
    static const char *const schemes[] = { "zero1", "zero1-overlap" };
    picoseconds took[2];
    (void)state;
    for (int s = 0; s < 2; s++) {
        open_engine((struct data_request){ .scheme = schemes[s], .bucket = 1 });
        step_of(2);
        const picoseconds before = device.clock.now;
        step_of(2);
        took[s] = device.clock.now - before;
        close_engine();
    }
    ASSERT_ALL(test_size == 1 ? took[1] == took[0] : took[1] < took[0], "zero1-overlap takes %lld, zero1 %lld",
               (long long)took[1], (long long)took[0]);
}

/* ---- messages and memory ----------------------------------------------------------------------------------------- */

/* One all-gather and one reduce-scatter of everything, whatever the number of microbatches and the bucket. */
static void test_once_a_step(void **state)
{
    static const char *const schemes[] = { "zero1-overlap", "fsdp-once" };
    static const int64_t buckets[] = { 1, 3000, 1 << 20 };
    (void)state;
    for (int s = 0; s < 2; s++) for (int b = 0; b < 3; b++) for (int micros = 1; micros <= 2; micros++) {
        open_engine((struct data_request){ .scheme = schemes[s], .bucket = buckets[b] * (int64_t)sizeof(float) });
        const uint64_t each = (uint64_t)(2 * padded_elements() / test_size * (test_size - 1)) * sizeof(float);
        struct account cost = { 0 };
        for (uint64_t step = 1; step <= 3; step++) {
            step_of(micros);
            ASSERT_ALL(bytes_sent() == step * each, "%s, %d microbatches: sent %llu bytes, want %llu", schemes[s],
                       micros, (unsigned long long)bytes_sent(), (unsigned long long)(step * each));
            /* Setting the list again adds to the predictions of the reduction, so those of the first step count. */
            if (step == 1) cost = data_cost(&dp);
            const struct traffic formula = account_total(&cost);
            const struct sent counted = ledger_level(&comm.counted, 0);
            ASSERT_ALL(formula.bytes_sent == each && step * formula.messages_sent == counted.messages,
                       "%s, bucket %d, %d microbatches, step %d: the formula says %llu bytes in %llu messages a step, "
                       "sent were %llu in %llu", schemes[s], b, micros, (int)step,
                       (unsigned long long)formula.bytes_sent, (unsigned long long)formula.messages_sent,
                       (unsigned long long)counted.bytes, (unsigned long long)counted.messages);
        }
        close_engine();
    }
}

static void expect_peak(const char *what, enum arena_tag tag, uint64_t formula, int64_t elements)
{
    ASSERT_ALL(device.arena.peak.tag[tag] == formula && formula == (uint64_t)elements * sizeof(float),
               "%s: %s take %llu bytes, by the formula %llu, want %lld", dp.request.scheme, what,
               (unsigned long long)device.arena.peak.tag[tag], (unsigned long long)formula,
               (long long)elements * (long long)sizeof(float));
}

/* zero1-overlap has whole weights and gradients; fsdp-once has them besides its shards. */
static void test_memory(void **state)
{
    static const char *const schemes[] = { "zero1-overlap", "fsdp-once" };
    (void)state;
    for (int s = 0; s < 2; s++) {
        open_engine((struct data_request){ .scheme = schemes[s], .bucket = 1 });
        const int64_t padded = padded_elements(), n = s == 1 && test_size > 1 ? model_elements(&even) : 0;
        const bool shards = s == 1 && test_size > 1;
        step_of(2);
        const struct model_state peak = data_peak(&dp);
        const int64_t want = shards ? n + padded / test_size : padded;
        expect_peak("weights", PARAMETERS, peak.weights, want);
        expect_peak("gradients", GRADIENTS, peak.gradients, want);
        close_engine();
    }
}

/* ---- which weights count ----------------------------------------------------------------------------------------- */

/* The bits of all whole weights of a unit. */
static uint64_t bits_of_unit(int unit)
{
    const unsigned char *const at = dp.unit[unit].own_w.data;
    uint64_t h = 14695981039346656037u;
    for (size_t i = 0; i < tensor_bytes(dp.unit[unit].own_w); i++) h = (h ^ at[i]) * 1099511628211u;
    return h;
}

/* After a step only the stepped part is kept; when a unit is used again, the whole is what zero1 has.  A step that is
 * skipped changes nothing, and the next one gathers as any other. */
static void test_weights_between_steps(void **state)
{
    enum { UNIT = UNIT_BLOCKS + 1, PART = 2 };
    (void)state;
    open_engine((struct data_request){ .scheme = "zero1", .bucket = 1 });
    const uint64_t drawn = bits_of_unit(UNIT);
    step_of(1);
    const uint64_t want = bits_of_unit(UNIT);
    const struct unit *u = &dp.unit[UNIT];
    ASSERT_ALL(want != drawn && data_kept(&u->over->shards, u, KIND_WEIGHT).count == u->padded,
               "a step changes nothing");
    close_engine();

    open_engine((struct data_request){ .scheme = "zero1-overlap", .bucket = 1 });
    u = &dp.unit[UNIT];
    step_of(1);
    ASSERT_ALL(data_kept(&u->over->shards, u, KIND_WEIGHT).count == u->padded / test_size
               && tensor_count(data_kept_tensor(&dp, u, KIND_WEIGHT)) == u->padded / test_size,
               "a device keeps more new weights than it has stepped");
    ASSERT_ALL(test_size == 1 || bits_of_unit(UNIT) != want, "new weights are here before they are gathered");
    struct use list[2] = { { .part = PART, .pass = PASS_FORWARD }, { .part = PART, .pass = PASS_FORWARD } };
    set_uses(list, 2);
    use(PART, PASS_FORWARD);
    ASSERT_ALL(bits_of_unit(UNIT) == want, "gathered weights are not those of zero1");
    const uint64_t sent = bytes_sent();
    use(PART, PASS_FORWARD);
    ASSERT_ALL(bytes_sent() == sent, "a second use gathers again");
    data_skip_step(&dp);
    set_uses(list, 2);
    use(PART, PASS_FORWARD);
    ASSERT_ALL(bits_of_unit(UNIT) == want && (test_size == 1 || bytes_sent() > sent), "a skipped step breaks the next");
    close_engine();

    open_engine((struct data_request){ .scheme = "zero1-overlap", .bucket = 1, .infers = true });
    ASSERT_ALL(!dp.shards.late && data_keeps_weights(&dp, PART), "inference, which has no step, gathers late");
    close_engine();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        MPI_TEST(test_gathering_beside_the_forward_pass),
        MPI_TEST(test_later_is_faster),
        MPI_TEST(test_once_a_step),
        MPI_TEST(test_memory),
        MPI_TEST(test_weights_between_steps),
    };
    return MPI_RUN("late", tests);
}
