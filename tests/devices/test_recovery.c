/* This test holds the cost of a lost device: layers cut by the minimax program are the best of all cuts; connections
 * are those of the rings before and after; interleaved slices load the busiest link less by the number of copies.
 * tier: check
 */
#include "emulated_devices/bench/recovery.h"
#include "emulated_devices/schemes/pipeline/placement.h"
#include "ref/numeric/philox.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdlib.h>
#include <cmocka.h>

enum { LAYERS = 9, STAGES = 4, DRAWS = 300 };
static struct error err;

static double slowest_of(const int64_t *time, const int *count, int stages, const int64_t *speed)
{
    double slowest = 0;
    for (int k = 0, at = 0; k < stages; k++) {
        int64_t own = 0;
        for (int i = 0; i < count[k]; i++) own += time[at++];
        slowest = (double)own / (double)speed[k] > slowest ? (double)own / (double)speed[k] : slowest;
    }
    return slowest;
}

/* Every cut: layers of the stages from `stage` on, of those that are left. */
static double best_of_all(const int64_t *time, int left, int stage, int stages, const int64_t *speed, int *count)
{
    double best = -1;
    if (stage == stages - 1) {
        count[stage] = left;
        return slowest_of(time, count, stages, speed);
    }
    for (count[stage] = 1; count[stage] <= left - (stages - stage - 1);) {
        const int own = count[stage];
        const double one = best_of_all(time, left - own, stage + 1, stages, speed, count);
        if (best < 0 || one < best) best = one;
        count[stage] = own + 1;
    }
    return best;
}

static void test_minimax_is_the_best_cut(void **state)
{
    (void)state;
    const uint64_t stream = random_stream("minimax");
    uint64_t drawn = 0;
    for (int draw = 0; draw < DRAWS; draw++) {
        int64_t time[LAYERS], speed[STAGES];
        int count[STAGES], tried[STAGES], sum = 0;
        const int stages = 1 + draw % STAGES, layers = stages + draw / STAGES % (LAYERS - STAGES + 1);
        for (int i = 0; i < layers; i++) time[i] = 1 + (int64_t)(9 * random_uniform(1, stream, drawn++));
        for (int k = 0; k < stages; k++) speed[k] = 1 + (int64_t)(5 * random_uniform(1, stream, drawn++));
        assert_int_equal(layers_by_time(time, layers, stages, speed, count, &err), OK);
        for (int k = 0; k < stages; k++) {
            assert_true(count[k] >= 1);
            sum += count[k];
        }
        assert_int_equal(sum, layers);
        const double own = slowest_of(time, count, stages, speed),
            best = best_of_all(time, layers, 0, stages, speed, tried);
        if (own != best) fail_msg("draw %d: the slowest stage takes %g, and the best cut %g", draw, own, best);
    }
}

static void test_what_cannot_be_cut(void **state)
{
    (void)state;
    const int64_t one[3] = { 1, 1, 1 }, none[3] = { 1, 0, 1 };
    int count[3];
    assert_int_equal(layers_by_time(one, 2, 3, one, count, &err), ERR_PLAN);
    assert_int_equal(layers_by_time(none, 3, 3, one, count, &err), ERR_PLAN);
    assert_int_equal(layers_by_time(one, 3, 3, none, count, &err), ERR_PLAN);
}

/* A ring of the ranks of a group: whether two of them are neighbours. */
static bool are_neighbours(const int *member, int members, int a, int b)
{
    for (int i = 0; i < members; i++) {
        const int x = member[i], y = member[(i + 1) % members];
        if (members > 1 && ((x == a && y == b) || (x == b && y == a))) return true;
    }
    return false;
}

/* Connections that are there after the loss and were not before, pair by pair, over all groups. */
static int64_t new_edges(const int size[RECOVERY_AXES], int lost)
{
    const int devices = size[0] * size[1] * size[2];
    int64_t edges = 0;
    for (int axis = 0, stride = 1; axis < RECOVERY_AXES; stride *= size[axis++])
        for (int first = 0; first < devices; first++) {
            int before[8], after[8], left = 0;
            if (first / stride % size[axis] != 0) continue;
            for (int i = 0; i < size[axis]; i++) {
                before[i] = first + i * stride;
                if (before[i] != lost) after[left++] = before[i];
            }
            for (int a = 0; a < left; a++)
                for (int b = 0; b < a; b++)
                    edges += are_neighbours(after, left, after[a], after[b])
                        && !are_neighbours(before, size[axis], after[a], after[b]);
        }
    return edges;
}

static void test_in_place_opens_what_is_missing(void **state)
{
    (void)state;
    static const int sizes[][RECOVERY_AXES] = { { 4, 1, 1 }, { 5, 2, 3 }, { 4, 4, 6 }, { 2, 3, 5 }, { 1, 8, 1 } };
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++)
        for (int lost = 0; lost < sizes[s][0] * sizes[s][1] * sizes[s][2]; lost++) {
            struct rebuild_count in_place, partial, full;
            assert_int_equal(recovery_rebuild(sizes[s], lost, REBUILD_IN_PLACE, &in_place, &err), OK);
            assert_int_equal(recovery_rebuild(sizes[s], lost, REBUILD_PARTIAL, &partial, &err), OK);
            assert_int_equal(recovery_rebuild(sizes[s], lost, REBUILD_FULL, &full, &err), OK);
            if (in_place.connections != new_edges(sizes[s], lost))
                fail_msg("mesh %d x %d x %d without %d: %d connections in place, not %d", sizes[s][0], sizes[s][1],
                         sizes[s][2], lost, (int)in_place.connections, (int)new_edges(sizes[s], lost));
            assert_true(in_place.busiest <= 1 && partial.connections >= in_place.connections);
            assert_true(full.connections > partial.connections);
        }
}

/* 4 x 4 x 6 without device 37, counted by hand: groups of 3, 3 and 5 are left.  In each the first member accepts the
 * others, and a ring of 3 or 5 has as many connections. */
static void test_counted_by_hand(void **state)
{
    (void)state;
    static const int size[RECOVERY_AXES] = { 4, 4, 6 };
    struct rebuild_count count;
    assert_int_equal(recovery_rebuild(size, 37, REBUILD_PARTIAL, &count, &err), OK);
    assert_int_equal(count.connections, 2 + 3 + 2 + 3 + 4 + 5);
    assert_int_equal(count.busiest, 4 + 2);
    assert_int_equal(recovery_rebuild(size, 37, REBUILD_IN_PLACE, &count, &err), OK);
    assert_int_equal(count.connections, 3);
    assert_int_equal(recovery_rebuild(size, 37, REBUILD_FULL, &count, &err), OK);
    assert_int_equal(count.busiest, 94 + 3 + 2 + 3 + 2 + 5 + 2);
}

static void test_pace(void **state)
{
    (void)state;
    const struct recovery_pipeline p = { 12, 3, 4, 1000000, 1, 20 };
    double r[PACE_COUNT];
    int count[3];
    for (int pace = 0; pace < PACE_COUNT; pace++)
        assert_int_equal(recovery_pace(&p, (enum pace)pace, &r[pace], count, &err), OK);
    /* Long pipelines: the slowest stage alone decides.  12 layers on speeds 4, 3, 4 are 4, 3, 5 or 5, 3, 4. */
    assert_float_equal(r[PACE_DROPPED], 4.0 / 3, 1e-4);
    assert_float_equal(r[PACE_SHARED], 4.0 / 3, 1e-4);
    assert_float_equal(r[PACE_MOVED], 5.0 / 4, 1e-4);
    assert_float_equal(r[PACE_RAISED], 4.0 / 3.6, 1e-4);        /* 4, 4, 4 */
    assert_int_equal(count[0] + count[1] + count[2], 12);
    const struct recovery_pipeline alone = { 12, 3, 1, 8, 1, 20 };
    assert_int_equal(recovery_pace(&alone, PACE_SHARED, &r[0], NULL, &err), ERR_PLAN);
}

/* 8 GB from a drive of 2 GB/s, a memory of 40 GB/s, and a link of 25 GB/s and 3 us. */
static void test_restoring(void **state)
{
    (void)state;
    struct cluster cluster = { .levels = 1, .host = { .memory_rate = 40000, .drive_rate = 2000 } };
    cluster.link[0] = (struct link){ .rate = 25000, .latency = 3000000 };
    const struct recovery_state s = { 8000000000, 50 };
    static const struct { picoseconds time; double lost; enum rebuild rebuild; } want[RESTORE_COUNT] = {
        { INT64_C(4000000000000), 25, REBUILD_FULL }, { INT64_C(200000000000), 0.5, REBUILD_FULL },
        { INT64_C(320003000000), 0.5, REBUILD_PARTIAL }, { INT64_C(320003000000), 0.5, REBUILD_IN_PLACE },
    };
    for (int way = 0; way < RESTORE_COUNT; way++) {
        const struct restore_cost got = recovery_restore(&s, &cluster, (enum restore)way);
        if (got.restoring != want[way].time || got.lost > want[way].lost || got.lost < want[way].lost)
            fail_msg("way %d: %lld ps and %g steps, not %lld and %g", way, (long long)got.restoring, got.lost,
                     (long long)want[way].time, want[way].lost);
        assert_int_equal(recovery_rebuild_of((enum restore)way), want[way].rebuild);
    }
}

static void test_slices(void **state)
{
    (void)state;
    enum { BYTES = 960 };
    for (int layers = 2; layers <= 6; layers++)
        for (int copies = 2; copies <= 8; copies *= 2) {
            uint64_t busiest[2], moved[2];
            for (int interleaved = 0; interleaved < 2; interleaved++)
                assert_int_equal(recovery_slices(layers, copies, BYTES, interleaved, &busiest[interleaved],
                                                 &moved[interleaved], &err), OK);
            assert_int_equal(moved[1], BYTES);
            assert_int_equal(busiest[1], BYTES / copies);
            assert_true(moved[0] >= moved[1] && busiest[0] > busiest[1]);
            if (layers < copies) continue;
            /* The layer goes from the last copy to the first one, and each of dp - 1 cuts of both stages shifts by
             * k / dp of a layer. */
            assert_int_equal(busiest[0], BYTES);
            assert_int_equal(moved[0], copies * BYTES);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_minimax_is_the_best_cut), cmocka_unit_test(test_what_cannot_be_cut),
        cmocka_unit_test(test_in_place_opens_what_is_missing), cmocka_unit_test(test_counted_by_hand),
        cmocka_unit_test(test_pace), cmocka_unit_test(test_restoring), cmocka_unit_test(test_slices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
