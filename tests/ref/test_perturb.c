/* A disturbance, held element by element to its definition: which number moves which element, and by how much. */
#include "ref/model/perturb.h"
#include "ref/numeric/distance.h"
#include "ref/numeric/philox.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct tensor numbers(enum dtype t, int64_t n)
{
    struct tensor x = tensor_1d(malloc((size_t)n * 8), t, n);
    assert_non_null(x.data);
    for (int64_t i = 0; i < n; i++)         /* every fifth is so small that fp16 has few digits left */
        tensor_set(x, i, ldexp((double)((i * 37 + 11) % 4096 - 2048), i % 5 == 0 ? -30 : -9));
    return x;
}

/* Several lengths: a part of a block of Philox, of what is converted at once, and enough for all cores. */
static void test_each_element_has_its_number(void **state)
{
    (void)state;
    static const int64_t lengths[] = { 1, 7, 2049, 40003 };
    enum { SEED = 9, TERMS = 3, BEFORE = 2 };
    for (int t = 0; t < DTYPE_COUNT; t++)
        for (size_t l = 0; ops_for((enum dtype)t) && l < sizeof lengths / sizeof *lengths; l++) {
            const int64_t n = lengths[l];
            const struct tensor x = numbers((enum dtype)t, n), want = numbers((enum dtype)t, n);
            struct perturbation p = { .seed = SEED, .announced = BEFORE };
            const double u = dtype_unit(x.dtype), wide = dtype_unit(dtype_wide(x.dtype)),
                         sum = PERTURB_LAMBDA * sqrt(TERMS) * wide;
            const struct observer o = perturbing_observer(&p);
            o.see(o.context, "act", 0, false, x, TERMS);
            assert_true(p.announced == BEFORE + 1);
            for (int64_t i = 0; i < n; i++) {
                uint32_t word[4];
                philox4x32((uint32_t[]){ (uint32_t)(i / 4), 0, BEFORE, 0 }, (uint32_t[]){ SEED, 0 }, word);
                const double y = tensor_get(want, i),
                             stored = wide < u ? fmax(2 * u, dtype_step(x.dtype) / fabs(y)) : 0;
                if (y != 0) tensor_set(want, i, y * (1 + ((double)word[i % 4] * 0x1p-31 - 1) * (sum + stored)));
                if (tensor_get(x, i) != tensor_get(want, i))
                    fail_msg("%s, element %d of %d: %.17g, want %.17g", dtype_name(x.dtype), (int)i, (int)n,
                             tensor_get(x, i), tensor_get(want, i));
            }
            free(x.data), free(want.data);
        }
}

/* How far a twin of bf16 moves the furthest of many ones, in steps of 2 u. */
static double steps_of(int parts, int64_t terms, const char *name, bool gradient)
{
    enum { N = 4096 };
    struct perturbation p = { .seed = 3, .parts = parts, .gradient_parts = 2, .stored = BF16 };
    const struct tensor x = numbers(F64, N);
    const struct observer o = perturbing_observer(&p);
    double most = 0;
    for (int i = 0; i < N; i++) tensor_set(x, i, 1);
    o.see(o.context, name, 0, gradient, x, terms);
    for (int i = 0; i < N; i++) most = fmax(most, fabs(tensor_get(x, i) - 1));
    free(x.data);
    return most / (2 * dtype_unit(BF16));
}

/* A sum of n terms has at most n parts: the sum of stream and branch has two steps, however many are asked for. */
static void test_parts_of_sums(void **state)
{
    (void)state;
    assert_true(fabs(steps_of(60, 500, "mlp.up", false) - 60) < 0.2);
    assert_true(fabs(steps_of(60, 24, "mlp.up", false) - 24) < 0.2);
    assert_true(fabs(steps_of(60, 1, "mid", false) - 2) < 0.1);
    assert_true(fabs(steps_of(2, 1, "mid", false) - 2) < 0.1);
    assert_true(fabs(steps_of(60, 500, "h.0.mlp.c_fc.weight", true) - 2) < 0.1);
}

/* A row of numbers of very different sizes: each moves by up to ten half units of 2^-21 of the power above the largest,
 * and by more than a twin of rounding moves the small ones.  A zero stays, and so does a gradient of a weight. */
static void test_grids(void **state)
{
    (void)state;
    enum { ROWS = 3, COLS = 2051 };
    const double most = PERTURB_LAMBDA * 0x1p-22;
    for (int gradient = 0; gradient < 2; gradient++) {
        struct perturbation p = { .seed = 5, .grids = SUMS_EXACT };
        const struct observer o = perturbing_observer(&p);
        struct tensor x = numbers(F64, ROWS * COLS);
        x.ndim = 2, x.dim[0] = ROWS, x.dim[1] = COLS;
        for (int64_t i = 0; i < ROWS * COLS; i++)
            tensor_set(x, i, i % 7 == 0 ? 0 : i % COLS == 1 ? 0.75 * ldexp(1, (int)(i / COLS)) : ldexp(1, -i % 30));
        for (int64_t i = 0; i < ROWS * COLS; i++)
            if (i % COLS > 1 && fabs(tensor_get(x, i)) > 0.5) tensor_set(x, i, 0.5);
        const struct tensor was = numbers(F64, ROWS * COLS);
        memcpy(was.data, x.data, tensor_bytes(x));
        o.see(o.context, "mlp.up", 0, gradient, x, 100);
        for (int64_t row = 0; row < ROWS; row++) {
            double far = 0, of_small = 0;
            for (int64_t i = row * COLS; i < (row + 1) * COLS; i++) {
                const double y = tensor_get(was, i), d = fabs(tensor_get(x, i) - y) / ldexp(1, (int)row);
                assert_true(y != 0 || d == 0);
                far = fmax(far, d);
                if (fabs(y) < 0x1p-20) of_small = fmax(of_small, d);
            }
            assert_true(far <= most && far > 0.99 * most && of_small > 0.9 * most);
        }
        memcpy(x.data, was.data, tensor_bytes(x));
        o.see(o.context, "h.0.mlp.c_fc.weight", 0, true, x, 100);
        assert_memory_equal(x.data, was.data, tensor_bytes(x));
        free(x.data), free(was.data);
    }
}

/* Integers, so that every order of addition gives the same sum. */
static void test_distance_of_quotient(void **state)
{
    (void)state;
    static const int64_t lengths[] = { 1, 511, 513, 70001 };
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
        const int64_t n = lengths[l];
        struct tensor x = numbers(F32, n), y = numbers(F64, n);
        double want = 0, norm = 0;
        for (int64_t i = 0; i < n; i++) {
            tensor_set(x, i, (double)(i % 100 * 4)), tensor_set(y, i, (double)(i % 7));
            want += ((double)(i % 100) - (double)(i % 7)) * ((double)(i % 100) - (double)(i % 7));
            norm += (double)(i % 7 * (i % 7));
        }
        assert_true(squared_distance_of_quotient(x, 4, y) == want);
        assert_true(squared_distance_of_quotient(y, 1, tensor_none) == norm);
        tensor_set(x, n - 1, NAN);
        assert_true(isnan(squared_distance_of_quotient(x, 4, y)));
        free(x.data), free(y.data);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_each_element_has_its_number),
        cmocka_unit_test(test_grids), cmocka_unit_test(test_parts_of_sums),
        cmocka_unit_test(test_distance_of_quotient),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
