/* The mesh: ranks and coordinates, neighbours, descriptions, refusals.
 * tier: check
 */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#undef fail
#include "emulated_devices/comm/mesh.h"
#include <string.h>

static struct mesh make(int pp, int dp, int cp, int ep, int tp)
{
    const int size[AXIS_COUNT] = { [PP] = pp, [DP] = dp, [CP] = cp, [EP] = ep, [TP] = tp };
    struct mesh m;
    struct error err;
    assert_int_equal(mesh_make(&m, size, &err), OK);
    return m;
}

static void test_tp_varies_fastest_and_pp_slowest(void **state)
{
    const struct mesh m = make(2, 3, 1, 1, 4);
    (void)state;
    assert_int_equal(m.devices, 24);
    assert_int_equal(mesh_coordinate(&m, 0, TP), 0);
    assert_int_equal(mesh_coordinate(&m, 3, TP), 3);
    assert_int_equal(mesh_coordinate(&m, 4, TP), 0);
    assert_int_equal(mesh_coordinate(&m, 4, DP), 1);
    assert_int_equal(mesh_coordinate(&m, 11, PP), 0);
    assert_int_equal(mesh_coordinate(&m, 12, PP), 1);
}

static void test_coordinates_name_each_rank_once(void **state)
{
    const struct mesh m = make(2, 3, 2, 2, 3);
    (void)state;
    for (int rank = 0; rank < m.devices; rank++) {
        int again = 0;
        for (enum axis a = 0; a < AXIS_COUNT; a++) again = mesh_neighbour(&m, again, a, mesh_coordinate(&m, rank, a));
        assert_int_equal(again, rank);
    }
}

static void test_a_neighbour_differs_in_one_axis(void **state)
{
    const struct mesh m = make(2, 2, 3, 1, 2);
    (void)state;
    for (int rank = 0; rank < m.devices; rank++)
        for (enum axis a = 0; a < AXIS_COUNT; a++)
            for (int to = 0; to < m.size[a]; to++) {
                const int n = mesh_neighbour(&m, rank, a, to);
                assert_in_range(n, 0, m.devices - 1);
                for (enum axis b = 0; b < AXIS_COUNT; b++)
                    assert_int_equal(mesh_coordinate(&m, n, b), a == b ? to : mesh_coordinate(&m, rank, b));
            }
}

static void test_descriptions(void **state)
{
    char text[64];
    const struct mesh m = make(3, 2, 1, 1, 2), one = make(1, 1, 1, 1, 1);
    (void)state;
    assert_string_equal(mesh_describe(&m, 7, text, sizeof text), "pp=1 dp=1 tp=1");
    assert_string_equal(mesh_describe(&one, 0, text, sizeof text), "the only device");
    assert_string_equal(axes_describe(AXIS_BIT(DP) | AXIS_BIT(CP), text, sizeof text), "dp+cp");
    assert_string_equal(axes_describe(0, text, sizeof text), "all devices");
    assert_string_equal(mesh_describe(&m, 7, text, 8), "pp=1 dp");      /* cut, never overrun */
}

static void test_refusals(void **state)
{
    const int none[AXIS_COUNT] = { [PP] = 1, [DP] = 0, [CP] = 1, [EP] = 1, [TP] = 1 };
    const int many[AXIS_COUNT] = { [PP] = 1 << 16, [DP] = 1 << 16, [CP] = 1 << 16, [EP] = 1 << 16, [TP] = 1 };
    const int most[AXIS_COUNT] = { [PP] = 1, [DP] = 1 << 17, [CP] = 1, [EP] = 1, [TP] = 8 };
    const int listed[AXIS_COUNT] = { [PP] = 1, [DP] = 1, [CP] = 128, [EP] = 1, [TP] = 129 };
    const int stages[AXIS_COUNT] = { [PP] = 16385, [DP] = 1, [CP] = 1, [EP] = 1, [TP] = 1 };
    struct mesh m;
    struct error err;
    (void)state;
    assert_int_equal(mesh_make(&m, none, &err), ERR_PLAN);
    assert_string_equal(err.text, "--dp 0: an axis has at least 1 device");
    assert_int_equal(mesh_make(&m, many, &err), ERR_PLAN);
    assert_non_null(strstr(err.text, "larger than 1048576 devices"));
    assert_int_equal(mesh_make(&m, listed, &err), ERR_PLAN);
    assert_string_equal(err.text, "--tp 129: makes more than 16384 devices along cp and tp");
    assert_int_equal(mesh_make(&m, stages, &err), ERR_PLAN);
    assert_string_equal(err.text, "--pp 16385: a pipeline has at most 16384 stages");
    assert_int_equal(mesh_make(&m, most, &err), OK);
    assert_int_equal(m.devices, 1 << 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_tp_varies_fastest_and_pp_slowest), cmocka_unit_test(test_coordinates_name_each_rank_once),
        cmocka_unit_test(test_a_neighbour_differs_in_one_axis), cmocka_unit_test(test_descriptions),
            cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("mesh", tests, NULL, NULL) != 0;
}
