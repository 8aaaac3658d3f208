/* Where experts are in a step: both algorithms against a search through all placements, where rows go, and the moving
 * average, by hand.
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include "emulated_devices/device/interval.h"
#include "emulated_devices/schemes/experts/placement.h"

enum { MOST = 64 };

static int held_by(const bool held[], int devices)
{
    int n = 0;
    for (int d = 0; d < devices; d++) n += held[d];
    return n;
}

/* The most load that a device computes if each expert's is spread evenly: times 60, so that it is whole. */
static int64_t heaviest(const struct expert_room *r, const int64_t load[], const bool held[])
{
    int64_t most = 0;
    for (int64_t e = 0; e < r->E; e++) {
        const int64_t each = 60 * load[e] / held_by(held + e * r->devices, r->devices);
        if (each > most) most = each;
    }
    return most;
}

static void spread_owners(const struct expert_room *r, int32_t owner[])
{
    for (int d = 0; d < r->devices; d++) {
        const struct interval own = block_at(r->E, r->devices, d);
        for (int64_t e = own.first; e < interval_end(own); e++) owner[e] = d;
    }
}

/* ---- algorithm 1 ------------------------------------------------------------------------------------------------- */

/* The least that the heaviest expert of a device can be, over all ways to fill slots from this one on. */
static int64_t search(const struct expert_room *r, const int64_t load[], bool held[], int slot)
{
    if (slot == r->devices * r->slots) return heaviest(r, load, held);
    const int device = slot / r->slots;
    int64_t best = search(r, load, held, slot + 1);
    for (int64_t e = 0; e < r->E; e++) {
        bool *at = &held[e * r->devices + device];
        if (*at) continue;
        *at = true;
        const int64_t found = search(r, load, held, slot + 1);
        *at = false;
        if (found < best) best = found;
    }
    return best;
}

static void test_slots_in_proportion(void **state)
{
    (void)state;
    static const struct { struct expert_room room; int64_t load[6]; } cases[] = {
        { { .E = 4, .devices = 4, .slots = 1, .degree = -1 }, { 100, 10, 5, 1 } },
        { { .E = 3, .devices = 3, .slots = 1, .degree = -1 }, { 7, 7, 1 } },
        { { .E = 6, .devices = 3, .slots = 1, .degree = -1 }, { 3, 1, 4, 1, 5, 9 } },
        { { .E = 3, .devices = 2, .slots = 2, .degree = -1 }, { 6, 2, 8 } },
        { { .E = 4, .devices = 4, .node = 2, .slots = 1, .degree = 2 }, { 1, 2, 3, 30 } },
        { { .E = 2, .devices = 4, .slots = 1, .degree = -1 }, { 9, 4 } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct expert_room *r = &cases[i].room;
        bool held[MOST], owned[MOST] = { false };
        int32_t owner[MOST];
        spread_owners(r, owner);
        for (int64_t e = 0; e < r->E; e++) owned[e * r->devices + owner[e]] = true;
        expert_materialise(r, cases[i].load, owner, held);
        for (int d = 0; d < r->devices; d++) {
            int replicas = 0;
            for (int64_t e = 0; e < r->E; e++) replicas += held[e * r->devices + d] && owner[e] != d;
            assert_true(replicas <= r->slots);
        }
        for (int64_t e = 0; e < r->E; e++) assert_true(held[e * r->devices + owner[e]]);
        assert_int_equal(heaviest(r, cases[i].load, held), search(r, cases[i].load, owned, 0));
    }
}

static void test_top_experts_to_all(void **state)
{
    (void)state;
    const struct expert_room r = { .E = 5, .devices = 3, .slots = 2, .degree = 2 };
    const int64_t load[] = { 4, 9, 0, 9, 4 };           /* experts 1 and 3 */
    const int32_t owner[] = { 0, 0, 1, 1, 2 };
    static const char *const want[] = { "x..", "xxx", ".x.", "xxx", "..x" };
    bool held[15];
    expert_materialise(&r, load, owner, held);
    for (int e = 0; e < 5; e++)
        for (int d = 0; d < 3; d++) assert_int_equal(held[e * 3 + d], want[e][d] == 'x');
}

/* Before a step has ended no load is expected, and nothing is copied, whatever the degree. */
static void test_no_load_no_replicas(void **state)
{
    (void)state;
    const int64_t load[4] = { 0 };
    const int32_t owner[] = { 0, 0, 1, 1 };
    for (int degree = -1; degree <= 3; degree++) {
        const struct expert_room r = { .E = 4, .devices = 2, .slots = 2, .degree = degree };
        bool held[8];
        expert_materialise(&r, load, owner, held);
        for (int e = 0; e < 4; e++) assert_int_equal(held_by(held + e * 2, 2), 1);
    }
}

/* The second replica goes to the other node, which has more free slots. */
static void test_free_nodes_first(void **state)
{
    (void)state;
    const struct expert_room r = { .E = 4, .devices = 4, .node = 2, .slots = 1, .degree = -1 };
    const int64_t load[] = { 8, 0, 0, 0 };
    const int32_t owner[] = { 0, 1, 2, 3 };
    bool held[16];
    expert_materialise(&r, load, owner, held);
    for (int d = 0; d < 4; d++) assert_true(held[d]);
    const struct expert_room two = { .E = 2, .devices = 4, .node = 2, .slots = 1, .degree = -1 };
    const int64_t loads[] = { 8, 7 };
    const int32_t owners[] = { 0, 3 };
    expert_materialise(&two, loads, owners, held);      /* expert 0: 1, 2 or 3 are free; then 1's node is fuller */
    static const char *const want[] = { "xx.x", "x.xx" };
    for (int e = 0; e < 2; e++)
        for (int d = 0; d < 4; d++) assert_int_equal(held[e * 4 + d], want[e][d] == 'x');
}

/* ---- algorithm 2 ------------------------------------------------------------------------------------------------- */

/* The sum over layers of the load of the fullest device, without each layer's top experts. */
static int64_t fullest(const struct expert_room *r, int64_t layers, const int64_t load[], const int32_t owner[],
                       const bool top[])
{
    int64_t sum = 0;
    for (int64_t l = 0; l < layers; l++) {
        int64_t most = 0;
        for (int d = 0; d < r->devices; d++) {
            int64_t here = 0;
            for (int64_t e = l * r->E; e < (l + 1) * r->E; e++) here += owner[e] == d && !top[e] ? load[e] : 0;
            if (here > most) most = here;
        }
        sum += most;
    }
    return sum;
}

static int64_t search_owners(const struct expert_room *r, int64_t layers, const int64_t load[], int32_t owner[],
                             const bool top[], int64_t at, int64_t room[])
{
    if (at == layers * r->E) return fullest(r, layers, load, owner, top);
    int64_t best = INT64_MAX;
    for (int d = 0; d < r->devices; d++) {
        if (room[d] == 0) continue;
        owner[at] = d, room[d]--;
        const int64_t found = search_owners(r, layers, load, owner, top, at + 1, room);
        room[d]++;
        if (found < best) best = found;
    }
    return best;
}

static void test_owners_near_the_best(void **state)
{
    (void)state;
    static const struct { struct expert_room room; int64_t load[8]; bool top[8]; } cases[] = {
        { { .E = 4, .devices = 2, .degree = 0 }, { 9, 7, 2, 1, 1, 1, 1, 9 }, { false } },
        { { .E = 4, .devices = 2, .degree = 1 }, { 90, 7, 2, 5, 1, 3, 3, 99 }, { [0] = true, [7] = true } },
        { { .E = 4, .devices = 3, .degree = 0 }, { 5, 5, 5, 5, 8, 1, 1, 1 }, { false } },
        { { .E = 4, .devices = 4, .node = 2, .degree = -1 }, { 4, 3, 2, 1, 1, 2, 3, 4 }, { false } },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct expert_room *r = &cases[i].room;
        int32_t owner[8], other[8];
        int64_t count[4] = { 0 }, room[4];
        expert_shard(r, 2, cases[i].load, owner);
        for (int e = 0; e < 8; e++) assert_in_range(owner[e], 0, (uintmax_t)r->devices - 1), count[owner[e]]++;
        for (int d = 0; d < r->devices; d++) {
            room[d] = block_at(8, r->devices, d).count;
            assert_int_equal(count[d], room[d]);
        }
        const int64_t ours = fullest(r, 2, cases[i].load, owner, cases[i].top),
                      best = search_owners(r, 2, cases[i].load, other, cases[i].top, 0, room);
        assert_true(best > 0 && 3 * ours <= 4 * best);  /* as the longest first elsewhere: 4/3 of the best */
    }
}

/* ---- where rows go ----------------------------------------------------------------------------------------------- */

static void test_rows_look_near_first(void **state)
{
    (void)state;
    const struct expert_room r = { .E = 1, .devices = 6, .node = 2 };
    const bool held[] = { true, false, false, true, true, false };
    static const struct { int from; int64_t to[6]; } want[] = {
        { 0, { 10, 0, 0, 0, 0, 0 } },                   /* here */
        { 1, { 10, 0, 0, 0, 0, 0 } },                   /* on its node */
        { 2, { 0, 0, 0, 10, 0, 0 } },
        { 5, { 0, 0, 0, 0, 10, 0 } },
    };
    for (size_t i = 0; i < sizeof want / sizeof *want; i++)
        for (int to = 0; to < 6; to++)
            assert_int_equal(expert_rows_to(&r, held, 0, 10, want[i].from, to), want[i].to[to]);
    const bool far[] = { true, false, false, true, false, true };
    for (int64_t rows = 0; rows < 9; rows++)
        for (int expert = 0; expert < 4; expert++) {
            const struct expert_room flat = { .E = 4, .devices = 6 };
            int64_t sum = 0;
            for (int to = 0; to < 6; to++) {
                const int64_t n = expert_rows_to(&flat, far, expert, rows, 1, to);
                assert_true(far[to] ? n >= rows / 3 && n <= (rows + 2) / 3 : n == 0);
                sum += n;
                assert_int_equal(expert_rows_to(&flat, far, expert, rows, 3, to), to == 3 ? rows : 0);
            }
            assert_int_equal(sum, rows);
        }
}

/* ---- loads ------------------------------------------------------------------------------------------------------- */

static void test_mean_of_last_steps(void **state)
{
    (void)state;
    struct expert_loads l;
    int64_t load[2];
    assert_true(expert_loads_open(&l, 2));
    for (int step = 1; step <= 8; step++) {
        expert_loads_predict(&l, load);
        int64_t want = 0;                               /* of steps before this: 2^step each */
        for (int s = step - 1; s >= 1 && s >= step - LOAD_WINDOW; s--) want += 1 << s;
        assert_int_equal(load[0], want);
        assert_int_equal(load[1], 3 * want);
        expert_loads_add(&l, 0, (1 << step) - 1), expert_loads_add(&l, 0, 1);
        expert_loads_add(&l, 1, 3 << step);
        expert_loads_turn(&l);
    }
    expert_loads_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_slots_in_proportion),
        cmocka_unit_test(test_top_experts_to_all),
        cmocka_unit_test(test_no_load_no_replicas),
        cmocka_unit_test(test_free_nodes_first),
        cmocka_unit_test(test_owners_near_the_best),
        cmocka_unit_test(test_rows_look_near_first),
        cmocka_unit_test(test_mean_of_last_steps),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
