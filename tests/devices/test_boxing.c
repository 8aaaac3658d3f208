/* The boxing of the residual stream between drawn sections: each element reaches a device once, from itself if it has
 * the element, and both ends list the same rectangles.
 * tier: check
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail
#include "emulated_devices/model/sections/boxing.h"
#include "emulated_devices/verify/cases/sectioned.h"
#include <stdlib.h>
#include <string.h>

static struct error err;

/* How often each element of the stream is in a part, or in a list of rectangles. */
static void count_part(int *count, const struct part *part, int64_t D)
{
    for (int i = 0; i < part->rows.count; i++)
        for (int64_t row = part->rows.at[i].first; row < interval_end(part->rows.at[i]); row++)
            for (int k = 0; k < part->cols.count; k++)
                for (int64_t col = part->cols.at[k].first; col < interval_end(part->cols.at[k]); col++)
                    count[row * D + col]++;
}

static void count_transfer(int *count, const struct boxing_transfer *transfer, int64_t D)
{
    for (int i = 0; i < transfer->count; i++)
        for (int64_t row = transfer->at[i].rows.first; row < interval_end(transfer->at[i].rows); row++)
            for (int64_t col = transfer->at[i].cols.first; col < interval_end(transfer->at[i].cols); col++)
                count[row * D + col]++;
}

/* A device gets what it needs, once; what it has itself is not sent. */
static void check_receiver(const struct boxing *boxing, int64_t elements, int64_t D, int *counts)
{
    int *const need = counts, *const got = counts + elements, *const has = counts + 2 * elements;
    memset(counts, 0, 3 * (size_t)elements * sizeof *counts);
    count_part(need, &boxing->to, D), count_part(has, &boxing->from, D);
    count_transfer(got, &boxing->own, D);
    for (int64_t i = 0; i < elements; i++) assert_int_equal(got[i], need[i] && has[i]);
    for (int i = 0; i < boxing->receives; i++) count_transfer(got, &boxing->receive[i], D);
    for (int64_t i = 0; i < elements; i++) assert_int_equal(got[i], need[i]);
}

static const struct boxing_transfer *transfer_to(const struct boxing_transfer *list, int count, int peer)
{
    for (int i = 0; i < count; i++)
        if (list[i].peer == peer) return &list[i];
    return NULL;
}

/* A device sends what the receiver expects, in one order. */
static void check_ends(const struct boxing *all, int devices)
{
    for (int a = 0; a < devices; a++)
        for (int i = 0; i < all[a].sends; i++) {
            const struct boxing_transfer *const sent = &all[a].send[i];
            const struct boxing_transfer *const due = transfer_to(all[sent->peer].receive, all[sent->peer].receives, a);
            assert_non_null(due);
            assert_int_equal(sent->elements, due->elements);
            assert_int_equal(sent->count, due->count);
            assert_memory_equal(sent->at, due->at, (size_t)sent->count * sizeof *sent->at);
        }
}

static void check_boundary(const struct plan *from, const struct plan *to, int devices, int micro, bool gradient)
{
    struct boxing all[8];
    const int64_t D = from->model.D, elements = plan_stream_rows(from) * D;
    int *const counts = calloc(3 * (size_t)elements, sizeof *counts);
    int sent = 0, received = 0;
    assert_non_null(counts);
    for (int rank = 0; rank < devices; rank++) {
        assert_int_equal(boxing_make(&all[rank], from, to, rank, micro, gradient, &err), OK);
        if (mesh_has(&to->mesh, rank)) check_receiver(&all[rank], elements, D, counts);
        sent += all[rank].sends, received += all[rank].receives;
    }
    check_ends(all, devices);
    assert_int_equal(sent, received);
    for (int rank = 0; rank < devices; rank++) boxing_free(&all[rank]);
    free(counts);
}

static void test_drawn(void **state)
{
    int boundaries = 0;
    (void)state;
    for (int devices = 3; devices <= 8; devices++)
        for (int draw = 0; draw < 8; draw++) {
            struct plan plan;
            struct sections sections;
            assert_int_equal(case_draw_sections(&plan, &sections, devices, draw, SUMS_ROUND, &err), OK);
            for (int s = 1; s < sections.count; s++) {
                const struct plan *const before = &sections.at[s - 1], *const after = &sections.at[s];
                check_boundary(before, after, devices, plan.micros - 1, false);
                check_boundary(after, before, devices, 0, true);
                boundaries++;
            }
            sections_free(&sections);
        }
    assert_true(boundaries > 100);
}

/* Neighbours ask different devices, where several have equal parts: four copies send to four receivers, one each. */
static void test_spread(void **state)
{
    struct plan plan = case_plan(1, 1, 1);
    struct sections sections;
    (void)state;
    plan.model.L = 2, plan.model.tied = false, plan.micros = 1;
    case_take_llama(&plan);
    assert_int_equal(sections_open(&sections, &plan, 2, &err), OK);
    for (int s = 0; s < 2; s++) {
        const int size[AXIS_COUNT] = { [PP] = 1, [DP] = 1, [CP] = 1, [EP] = 1, [TP] = 4 };
        assert_int_equal(mesh_make(&sections.at[s].mesh, size, &err), OK);
        sections.at[s].mesh.first = 4 * s, sections.at[s].layers = (struct interval){ s, 1 };
    }
    plan.sections = &sections;
    assert_int_equal(plan_check(&plan, &err), OK);
    for (int rank = 0; rank < 4; rank++) {
        struct boxing boxing;
        assert_int_equal(boxing_make(&boxing, &sections.at[0], &sections.at[1], rank, 0, false, &err), OK);
        assert_int_equal(boxing.sends, 1);
        assert_int_equal(boxing.send[0].peer, 4 + rank);
        boxing_free(&boxing);
    }
    sections_free(&sections);
}

/* Elements of one column: device i of a side has so many from a first one on. */
static void give(struct boxing_side *side, const struct plan *plan, const int64_t (*has)[2])
{
    assert_int_equal(boxing_side_open(side, plan, &err), OK);
    for (int i = 0; i < plan->mesh.devices; i++) {
        intervals_add(&side->part[i].rows, (struct interval){ has[i][0], has[i][1] });
        intervals_add(&side->part[i].cols, (struct interval){ 0, 1 });
    }
}

/* Two parts of each side are alike if turning both leaves any devices as many elements in common. */
static void test_sides_alike(void **state)
{
    enum { ALL = 16 };
    static const struct { const char *what; int one, other; int64_t has[2][4][2]; bool alike; } of[] = {
        { "tp 2, dp 2 in shards at both ends", 4, 4,
          { { { 0, 4 }, { 8, 4 }, { 4, 4 }, { 12, 4 } }, { { 0, 4 }, { 8, 4 }, { 4, 4 }, { 12, 4 } } }, true },
        { "shards of tp 2 at one end, all at the other", 4, 2,
          { { { 0, 4 }, { 8, 4 }, { 4, 4 }, { 12, 4 } }, { { 0, ALL }, { 0, ALL } } }, true },
        { "shards of tp 2 at one end, of tp 1 at the other", 4, 2,
          { { { 0, 4 }, { 8, 4 }, { 4, 4 }, { 12, 4 } }, { { 0, 8 }, { 8, 8 } } }, false },
        { "parts of other sizes", 2, 2, { { { 0, 9 }, { 9, 7 } }, { { 0, ALL }, { 0, ALL } } }, false },
    };
    (void)state;
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        struct plan plan[2] = { case_plan(1, 1, 1), case_plan(1, 1, 1) };
        struct boxing_side side[2];
        plan[0].mesh.devices = of[i].one, plan[1].mesh.devices = of[i].other;
        for (int s = 0; s < 2; s++) give(&side[s], &plan[s], of[i].has[s]);
        for (int s = 0; s < 2; s++)
            if (boxing_sides_alike(&side[s], &side[1 - s], 2) != of[i].alike) {
                print_error("%s: %s\n", of[i].what, of[i].alike ? "not alike" : "alike");
                assert_true(false);
            }
        for (int s = 0; s < 2; s++) boxing_side_close(&side[s]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_drawn), cmocka_unit_test(test_spread),
                                        cmocka_unit_test(test_sides_alike) };
    return cmocka_run_group_tests_name("boxing", tests, NULL, NULL);
}
