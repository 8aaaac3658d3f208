/* What the tensor schemes' headers and the list claim in closed form, against the exact cost functions, where
 * everything divides.
 * tier: check
 *
 * The cost functions themselves are held to what was counted, by test_tensor.c.  Here: elements that all devices
 * together send for one layer of one microbatch, and elements that one device keeps of it.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include "emulated_devices/model/link/link_cost.h"
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include <cmocka.h>

static const struct model_config model = {
    .name = "even", .S = 6, .D = 72, .H = 18, .K = 18, .A = 4, .F = 288, .L = 1, .V = 90, .family = &family_gpt2,
    .biases = BIASES_BLOCK
};
/* Copies of key/value heads from 4 parts on, and nothing divides. */
static const struct model_config grouped = {
    .name = "grouped", .S = 6, .D = 54, .H = 27, .K = 3, .A = 2, .F = 71, .L = 1, .V = 61, .norm = NORM_RMS,
    .positions = POSITIONS_ROTARY, .family = &family_llama, .mlp = MLP_SWIGLU,
};
/* One norm, and no second room for what it makes. */
static const struct model_config side_by_side = {
    .name = "parallel", .S = 6, .D = 72, .H = 18, .K = 18, .A = 4, .F = 288, .L = 1, .V = 90,
    .positions = POSITIONS_ROTARY,
    .rotary = { .theta = 100, .turned = 2, .neighbours = true }, .parallel = true, .family = &family_gptj,
    .biases = BIASES_FEED | HAS_BIAS(ROLE_HEAD),
};
enum { B = 36, N = B * 6, D = 72, F = 4 * D, H = 18 };

static struct comm comm;
static struct device device;
static int members[MESH_MOST_LISTED];

static struct tensor_parallel of(const struct model_config *c, const char *name, int P, int rank)
{
    struct tensor_parallel tp = { .config = c, .device = &device, .S = c->S };
    assert_int_equal(tensor_scheme_find(&tp.scheme, name, NULL), OK);
    tensor_share(&tp, P, rank);
    for (unsigned axes = 0; axes < TENSOR_AXIS_SETS; axes++)
        tp.along[axes] = (struct group){
            .comm = &comm, .member = members, .process = members, .size = axes_size(&tp, axes),
            .rank = axes_index(&tp, axes)
        };
    tp.copies = (struct group){ .comm = &comm, .member = members, .process = members, .size = tp.heads.copies,
                                .rank = tp.heads.copy };
    return tp;
}

/* Of what the functions below speak. */
static const struct model_config *shape = &model;

static int64_t layer_sends(const char *name, int P, int rank)
{
    const struct tensor_parallel tp = of(shape, name, P, rank);
    const struct traffic c = block_cost(&tp, N);
    return (int64_t)(c.bytes_sent / sizeof(double));
}

static int64_t all_send(const char *name, int P)
{
    int64_t sum = 0;
    for (int r = 0; r < P; r++) sum += layer_sends(name, P, r);
    return sum;
}

static int64_t layer_keeps(const char *name, int P)
{
    struct tensor_parallel tp = of(shape, name, P, P - 1);
    struct linked block;
    const struct seams alone = seams_alone(&tp);
    assert_int_equal(link_layer(&block, shape, &alone, 0, NULL, false, NULL), OK);
    return (int64_t)(linked_keeps(&block, &alone, N) / sizeof(double));
}

static void test_1d(void **state)
{
    (void)state;
    for (int P = 1; P <= 9; P++) {
        if (H % P != 0) continue;
        for (int r = 0; r < P; r++) {
            const int64_t pairs = 8 * N * D / P * (P - 1), norms = 8 * D * (P - 1) / P;
            assert_int_equal(layer_sends("1d", P, r), pairs);
            assert_int_equal(layer_sends("1d-sp-keep", P, r), pairs + norms);
            assert_int_equal(layer_sends("1d-sp", P, r), pairs + norms + 2 * N * D / P * (P - 1));
            assert_int_equal(layer_sends("1d-sp-overlap", P, r), layer_sends("1d-sp", P, r));
        }
        assert_int_equal(layer_keeps("1d", P), 4 * N * D + (4 * D + 2 * F + H) * N / P + 4 * N);
        assert_int_equal(layer_keeps("1d-sp", P), (8 * D + 2 * F + H + 4) * N / P);
        assert_int_equal(layer_keeps("1d-sp-overlap", P), layer_keeps("1d-sp", P));
        assert_int_equal(layer_keeps("1d-sp-keep", P), 2 * N * D + (6 * D + 2 * F + H + 4) * N / P);
    }
}

/* Products; statistics of the norms; vectors, each gathered and dealt out among all devices with the same columns. */
static void check_grid(const char *name, int d, int q)
{
    const int P = d * q * q;
    const int64_t products = (q - 1) * (21 * N * D + 36 * d * D * D) + 24 * (d - 1) * D * D;
    assert_int_equal(all_send(name, P), products + 16 * N * (q - 1) + 28 * D * (d * q - 1));
    assert_int_equal(layer_keeps(name, P), (8 * D + 2 * F + H) * N / P + 4 * N / (d * q));
}

static void test_2d(void **state)
{
    (void)state;
    for (int q = 1; q <= 3; q++) check_grid("2d", 1, q);
}

static void test_2_5d(void **state)
{
    (void)state;
    for (int q = 1; q <= 3; q++)
        for (int d = 1; d <= q; d++) check_grid("2.5d", d, q);
}

static void test_3d(void **state)
{
    (void)state;
    for (int p = 1; p <= 3; p++) {
        const int P = p * p * p;
        const int64_t products = 3 * (p - 1) * (16 * N * D + 12 * D * D);
        assert_int_equal(all_send("3d", P), products + 16 * N * (p - 1) + 28 * D * (p * p - 1));
        assert_int_equal(layer_keeps("3d", P), (8 * D + 2 * F + H) * N / P + 4 * N / (p * p));
    }
}

/* Two matrices of a pair are all-reduced each way; beyond K devices the rows of keys and values
 * too, among their copies. */
static void test_llama(void **state)
{
    static const int sizes[] = { 1, 3, 9, 27 };
    const int64_t D1 = grouped.D, A1 = grouped.A, F1 = grouped.F;
    (void)state;
    shape = &grouped;
    for (int i = 0; i < 4; i++) {
        const int P = sizes[i], copies = P > 3 ? P / 3 : 1;
        const int64_t h = 27 / P, k = P > 3 ? 1 : 3 / P, f = block_start(F1, P, P) - block_start(F1, P, P - 1);
        assert_int_equal(all_send("1d", P), 8 * N * D1 * (P - 1) + 2 * 2 * A1 * D1 * (copies - 1) * (P / copies));
        assert_int_equal(layer_keeps("1d", P), 4 * N * D1 + (2 * h + 2 * k) * A1 * N + 3 * f * N + h * N + 2 * N);
    }
    shape = &model;
}

/* Each of the two matrices that read the norm gathers it, and sums its gradient, by itself. */
static void test_gptj(void **state)
{
    (void)state;
    shape = &side_by_side;
    for (int P = 1; P <= 9; P++) {
        if (H % P != 0) continue;
        const int64_t pairs = 8 * N * D / P * (P - 1), norm = 4 * D * (P - 1) / P;
        assert_int_equal(layer_sends("1d", P, P - 1), pairs);
        assert_int_equal(layer_sends("1d-sp-keep", P, P - 1), pairs + norm);
        assert_int_equal(layer_sends("1d-sp", P, P - 1), pairs + norm + 2 * N * D / P * (P - 1));
        assert_int_equal(layer_keeps("1d", P), 2 * N * D + (4 * D + 2 * F + H) * N / P + 2 * N);
        assert_int_equal(layer_keeps("1d-sp", P), (6 * D + 2 * F + H + 2) * N / P);
        assert_int_equal(layer_keeps("1d-sp-keep", P), N * D + (5 * D + 2 * F + H + 2) * N / P);
    }
    shape = &model;
}

/* Every element of every matrix and vector is on some device, and counted in the norm of the gradient once. */
static void check_layouts(const struct model_config *c)
{
    static const int sizes[] = { 1, 2, 3, 4, 6, 8, 9, 18, 27 };
    for (int i = 0; tensor_scheme_at(i); i++)
        for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
            if (tensor_check(tensor_scheme_at(i), c, sizes[s], NULL) != OK) continue;
            for (int p = 0; p < model_param_count(c); p++) {
                const struct param_spec spec = model_param(c, p);
                int64_t first = 0;
                for (int r = 0; r < sizes[s]; r++) {
                    const struct tensor_parallel tp = of(c, tensor_scheme_at(i)->head.name, sizes[s], r);
                    first += tensor_counted(&tp, &spec);
                }
                assert_int_equal(first, spec.dim[0] * (spec.ndim == 2 ? spec.dim[1] : 1));
            }
        }
}

static void test_layouts(void **state) { (void)state; check_layouts(&model); }
static void test_layouts_with_copies(void **state) { (void)state; check_layouts(&grouped); }
static void test_layouts_with_a_biased_head(void **state) { (void)state; check_layouts(&side_by_side); }

static void test_refusals(void **state)
{
    (void)state;
    static const struct { const char *name; int P; enum error_code code; } cases[] = {
        { "2d", 4, OK }, { "2d", 5, ERR_PLAN }, { "2d", 8, ERR_PLAN }, { "2.5d", 8, OK }, { "2.5d", 4, OK },
        { "2.5d", 12, ERR_PLAN },
        { "2.5d", 2, ERR_PLAN }, { "2.5d", 18, OK }, { "3d", 8, OK }, { "3d", 9, ERR_PLAN }, { "3d", 27, OK },
        { "1d", 18, OK }, { "1d", 19, ERR_PLAN },
        { "1d-sp", 19, ERR_PLAN },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct tensor_scheme *s;
        struct error err;
        assert_int_equal(tensor_scheme_find(&s, cases[i].name, &err), OK);
        assert_int_equal(tensor_check(s, &model, cases[i].P, &err), cases[i].code);
    }
}

/* Devices without columns of the shared experts would have a tensor of another shape. */
static void test_narrow_shared_experts(void **state)
{
    (void)state;
    struct model_config c = grouped;
    struct error err = { OK, "" };
    const struct tensor_scheme *s;
    c.family = &family_mixtral, c.mlp = MLP_MIXTURE, c.mixture.shared = 2;
    assert_int_equal(tensor_scheme_find(&s, "1d", NULL), OK);
    assert_int_equal(tensor_check(s, &c, 2, &err), OK);
    assert_int_equal(tensor_check(s, &c, 3, &err), ERR_PLAN);
    assert_string_equal(err.text,
                        "--tp 3: the model has 2 feed-forward columns in shared experts; tp can be at most that");
}

int main(void)
{
    if (device_open(&device, NULL, F64, 0, NULL) != OK) return 1;
    comm.device = &device;
    for (int i = 0; i < MESH_MOST_LISTED; i++) members[i] = i;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_1d), cmocka_unit_test(test_2d), cmocka_unit_test(test_2_5d), cmocka_unit_test(test_3d),
        cmocka_unit_test(test_llama), cmocka_unit_test(test_narrow_shared_experts), cmocka_unit_test(test_layouts),
        cmocka_unit_test(test_layouts_with_copies),
        cmocka_unit_test(test_gptj), cmocka_unit_test(test_layouts_with_a_biased_head), cmocka_unit_test(test_refusals),
    };
    return cmocka_run_group_tests_name("tensor cost", tests, NULL, NULL);
}
