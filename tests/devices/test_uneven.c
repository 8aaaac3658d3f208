/* After a loss stages have the copies that are whole, with their devices in order, and layers are cut as the best of
 * all cuts would be; also after a second loss, when a stage goes, and where devices are not equally fast.
 */
#include "emulated_devices/model/collection/collection.h"
#include "emulated_devices/run/elastic/uneven.h"
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <cmocka.h>

enum { LAYERS = 9, SEQUENCES = 13, MICROS = 3, STAGES_MOST = 4, SLOW = 40 };

static struct error err;
static struct cluster cluster;

static struct plan make_plan(int pp, int dp, int tp)
{
    const int size[AXIS_COUNT] = { [PP] = pp, [DP] = dp, [CP] = 1, [EP] = 1, [TP] = tp };
    struct plan plan = { .B = SEQUENCES, .micros = MICROS, .chunks = 1, .cluster = &cluster };
    plan.model.L = LAYERS;
    assert_int_equal(mesh_make(&plan.mesh, size, &err), OK);
    return plan;
}

/* The most rows of a copy: the first microbatch has 5 of 13 sequences. */
static int most_rows(int copies) { return (5 + copies - 1) / copies; }

/* The time of the slowest stage, by its devices and rows. */
static double slowest_stage(const struct uneven *u, const int64_t *layers)
{
    double slowest = 0;
    for (int s = 0; s < u->sections.count && s < STAGES_MOST; s++) {
        const struct mesh *const mesh = &u->sections.at[s].mesh;
        int percent = 100;
        for (int r = mesh->first; r < mesh->first + mesh->devices; r++) {
            const int own = cluster_percent(&cluster, u->process[r]);
            percent = own < percent ? own : percent;
        }
        slowest = fmax(slowest, (double)layers[s] * most_rows(mesh->size[DP]) * 100 / percent);
    }
    return slowest;
}

static double best_cut(const struct uneven *u, int stage, int64_t left, int64_t *layers)
{
    double best = INFINITY;
    if (stage >= STAGES_MOST) return best;
    if (stage == u->sections.count - 1) {
        layers[stage] = left;
        return slowest_stage(u, layers);
    }
    for (int64_t own = 1; own < left; own++) {
        layers[stage] = own;
        best = fmin(best, best_cut(u, stage + 1, left - own, layers));
    }
    return best;
}

/* Layers follow each other, and no cut is faster.  Speeds are rounded to whole numbers, times to a thousandth. */
static void expect_best(const struct uneven *u, const char *mesh)
{
    int64_t own[STAGES_MOST], tried[STAGES_MOST], next = 0;
    for (int s = 0; s < u->sections.count && s < STAGES_MOST; s++) {
        own[s] = u->sections.at[s].layers.count;
        if (u->sections.at[s].layers.first != next || own[s] < 1)
            fail_msg("%s: stage %d has %lld layers from layer %lld on", mesh, s, (long long)own[s],
                     (long long)u->sections.at[s].layers.first);
        next += own[s];
    }
    assert_int_equal(next, LAYERS);
    const double best = best_cut(u, 0, LAYERS, tried), found = slowest_stage(u, own);
    if (found > best * 1.001) fail_msg("%s: the slowest stage takes %g, and in the best cut %g", mesh, found, best);
}

/* Whether the device of a plain mesh belongs to the copy of a stage that has lost one. */
static bool is_broken(const struct mesh *mesh, int rank, int lost)
{
    return mesh_coordinate(mesh, rank, PP) == mesh_coordinate(mesh, lost, PP)
        && mesh_coordinate(mesh, rank, DP) == mesh_coordinate(mesh, lost, DP);
}

static void try_loss(int pp, int dp, int tp, int lost)
{
    const struct plan plan = make_plan(pp, dp, tp);
    const struct losses gone = { 1, { lost } };
    struct uneven u;
    char mesh[80];
    snprintf(mesh, sizeof mesh, "pp %d, dp %d, tp %d without device %d", pp, dp, tp, lost);
    assert_int_equal(uneven_open(&u, &plan, NULL, &gone, &err), OK);
    if (u.devices != plan.mesh.devices - tp) fail_msg("%s: %d devices are left", mesh, u.devices);
    for (int rank = 0, at = 0; rank < plan.mesh.devices; rank++)
        if (!is_broken(&plan.mesh, rank, lost) && u.process[at++] != rank)
            fail_msg("%s: rank %d is device %d, not %d", mesh, at - 1, u.process[at - 1], rank);
    for (int s = 0, first = 0; s < pp; s++) {
        const struct mesh *const own = &u.sections.at[s].mesh;
        const int copies = dp - (s == mesh_coordinate(&plan.mesh, lost, PP));
        if (own->size[DP] != copies || own->size[TP] != tp || own->first != first || own->devices != copies * tp)
            fail_msg("%s: stage %d has %d copies of %d devices from rank %d on, not %d of %d from %d on", mesh, s,
                     own->size[DP], own->size[TP], own->first, copies, tp, first);
        first += own->devices;
    }
    expect_best(&u, mesh);
    uneven_close(&u);
}

static void test_each_device_of_each_mesh(void **state)
{
    (void)state;
    cluster = (struct cluster){ .levels = 1 };
    for (int pp = 2; pp <= STAGES_MOST; pp++)
        for (int dp = 2; dp <= 4; dp++)
            for (int tp = 1; tp <= 2; tp++)
                for (int lost = 0; lost < pp * dp * tp; lost++) try_loss(pp, dp, tp, lost);
}

/* Every third device has 40 % of the others' rates. */
static void test_devices_that_are_slow(void **state)
{
    (void)state;
    cluster = (struct cluster){ .levels = 1, .speeds = 3, .percent = { 100, 100, SLOW } };
    for (int lost = 0; lost < 9; lost++) try_loss(3, 3, 1, lost);
}

/* Another loss in a stage that has one copy left takes the stage away; its device numbers are those of the job. */
static void test_a_second_loss(void **state)
{
    (void)state;
    cluster = (struct cluster){ .levels = 1 };
    struct plan plan = make_plan(3, 2, 1);
    const struct losses first = { 1, { 2 } }, both = { 2, { 2, 3 } }, others = { 2, { 2, 5 } };
    static const int without_stage[] = { 0, 1, 4, 5 }, without_both[] = { 0, 1, 3, 4 };
    struct uneven once, twice;
    assert_int_equal(uneven_open(&once, &plan, NULL, &first, &err), OK);
    plan.sections = &once.sections;
    /* The test completes the sections as sections_check does. */
    once.sections.stages = 3, plan.mesh.devices = once.devices;
    for (int s = 0; s < 3; s++) once.sections.stage[s] = s, once.sections.first[s] = once.sections.at[s].mesh.first;
    assert_int_equal(uneven_open(&twice, &plan, once.process, &both, &err), OK);
    assert_int_equal(twice.sections.count, 2);
    assert_int_equal(twice.devices, 4);
    assert_memory_equal(twice.process, without_stage, sizeof without_stage);
    expect_best(&twice, "a stage that goes");
    uneven_close(&twice);
    assert_int_equal(uneven_open(&twice, &plan, once.process, &others, &err), OK);
    assert_int_equal(twice.sections.count, 3);
    assert_memory_equal(twice.process, without_both, sizeof without_both);
    expect_best(&twice, "two stages with one copy");
    uneven_close(&twice);
    uneven_close(&once);
}

static void test_what_has_no_uneven_mesh(void **state)
{
    (void)state;
    cluster = (struct cluster){ .levels = 1 };
    const struct losses gone = { 1, { 0 } }, all = { 4, { 0, 1, 2, 3 } };
    struct uneven u;
    struct plan plan = make_plan(1, 4, 1);
    assert_int_equal(uneven_open(&u, &plan, NULL, &gone, &err), ERR_PLAN);
    plan = make_plan(4, 1, 1);
    assert_int_equal(uneven_open(&u, &plan, NULL, &gone, &err), ERR_PLAN);
    plan = make_plan(2, 2, 1);
    assert_int_equal(uneven_open(&u, &plan, NULL, &all, &err), ERR_PLAN);
    assert_string_equal(err.text, "no stage has a copy that is whole");
    plan.chunks = 2;
    assert_int_equal(uneven_open(&u, &plan, NULL, &gone, &err), ERR_PLAN);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_device_of_each_mesh), cmocka_unit_test(test_devices_that_are_slow),
        cmocka_unit_test(test_a_second_loss), cmocka_unit_test(test_what_has_no_uneven_mesh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
