/* The one-device model compared with PyTorch: every tensor of the files in golden/, in execution order.
 *
 * golden/README.md describes the files; golden/make_golden.py made them and shares no code with the code under test.
 * The test names only the first wrong tensor, because later ones depend on it.
 */
#include "ref/golden/bounds.h"
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <glob.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void for_each_golden(void (*test)(const struct golden *))
{
    enum { LEAST = 15 };
    glob_t found;
    const int status = glob("golden/*-*.safetensors", 0, NULL, &found);
    if (status != 0 || found.gl_pathc < LEAST)
        fail_msg("%d files golden/*-*.safetensors, at least %d wanted; tests run from the repository's root",
                 status ? 0 : (int)found.gl_pathc, LEAST);
    for (size_t i = 0; i < found.gl_pathc; i++) {
        struct golden g;
        struct error err;
        if (golden_open(&g, found.gl_pathv[i], &err) != OK) fail_msg("%s", err.text);
        test(&g);
        golden_close(&g);
    }
    globfree(&found);
}

static void run(struct replay *r, const struct golden *g, enum dtype t)
{
    struct error err;
    if (replay_run(r, g, t, NULL, &err) != OK) fail_msg("%s", err.text);
}

/* Our records in order, each held to its bound; returns the largest error / bound, and its name. */
static double compare(const struct replay *r, const double *bound, const char **worst)
{
    const struct golden *g = r->golden;
    double largest = 0;
    for (int i = 0; i < r->records; i++) {
        const struct record *k = &r->record[i];
        struct tensor want;
        struct apart a;
        struct error err;
        if (replay_compare(r, i, &a, &want, &err) != OK) fail_msg("%s", err.text);
        if (isfinite(bound[i]) && !(a.relative <= bound[i]))
            fail_msg("%s: in %s the first wrong tensor is %s: relative error %.3g, bound %.3g; element (%lld,%lld) is "
                     "%.17g, PyTorch has %.17g",
                     g->file.path, dtype_name(r->model.ops->dtype), k->name, a.relative, bound[i],
                     (long long)(a.worst / tensor_cols(want)), (long long)(a.worst % tensor_cols(want)),
                     tensor_get(k->values, a.worst), tensor_get(want, a.worst));
        if (a.relative > largest * bound[i]) largest = a.relative / bound[i], *worst = k->name;
        free(want.data);
    }
    return largest;
}

/* ---- tests ------------------------------------------------------------------------------------------------------- */

static void initial_weights_of(const struct golden *g)
{
    struct transformer m;
    struct error err;
    if (transformer_open(&m, &g->config, F64, g->seed, &err) != OK) fail_msg("%s", err.text);
    for (int i = 0; i < m.params; i++) {
        char name[RECORD_NAME];
        const int64_t n = tensor_count(m.w[i]);
        double *want = malloc((size_t)n * sizeof *want);
        assert_non_null(want);
        snprintf(name, sizeof name, "init/%s", m.spec[i].name);
        if (golden_read(g, name, F64, n, want, &err) != OK) fail_msg("%s", err.text);
        for (int64_t j = 0; j < n; j++)
            if (!(tensor_get(m.w[i], j) == want[j]))
                fail_msg("%s: %s element %lld: drawn %a, golden %a", g->file.path, name, (long long)j,
                         tensor_get(m.w[i], j), want[j]);
        free(want);
    }
    transformer_close(&m);
}

static void initial_weights_bit_for_bit(void **state)
{
    (void)state;
    for_each_golden(initial_weights_of);
}

/* Two correct programs differ by rounding alone.  Sums here have at most 111 terms, and a few hundred of them follow
 * one another; 1e-12 is 9000 rounding units, and every mistake of formula, index or order of factors
 * is far above it. */
static void in_double_of(const struct golden *g)
{
    struct replay r;
    struct error err;
    run(&r, g, F64);
    double *bound = calloc((size_t)r.records, sizeof *bound);
    const char *worst = "nothing";
    assert_non_null(bound);
    for (int i = 0; i < r.records; i++) bound[i] = 1e-12;
    const double largest = compare(&r, bound, &worst);
    if (replay_covers(&r, &err) != OK) fail_msg("%s", err.text);
    print_message("%s: fp64, %d tensors, largest error/bound %.2g, of %s\n", g->file.path, r.records, largest, worst);
    free(bound);
    replay_free(&r);
}

static void in_double(void **state)
{
    (void)state;
    for_each_golden(in_double_of);
}

/* Held to half of what is stored, which is what can be measured here.  Another BLAS may round otherwise, and so move
 * the furthest of a few twins; a bound that is out of date is off by a factor. */
static void in_single_of(const struct golden *g)
{
    struct replay r;
    struct error err;
    run(&r, g, F32);
    double *bound = calloc((size_t)r.records, sizeof *bound), *measured = calloc((size_t)r.records, sizeof *measured);
    const char *worst = "nothing";
    assert_true(bound && measured);
    if (bounds_read(&r, F32, bound, &err) != OK || bounds_measure(&r, F32, bound_twin(F32), measured, NULL, &err) != OK)
        fail_msg("%s", err.text);
    for (int i = 0; i < r.records; i++) {
        if (!(fabs(measured[i] / bound[i] - 1) <= 0.25))
            fail_msg("%s: the bound stored for %s is %g, measured %g; `orrery golden --measure` writes it anew",
                     g->file.path, r.record[i].name, bound[i], measured[i]);
        bound[i] /= 2;
    }
    const double largest = compare(&r, bound, &worst);
    if (replay_covers(&r, &err) != OK) fail_msg("%s", err.text);
    print_message("%s: fp32, %d tensors, largest error/bound %.2g, of %s\n", g->file.path, r.records, largest / 2,
                  worst);
    free(bound), free(measured);
    replay_free(&r);
}

static void in_single(void **state)
{
    (void)state;
    for_each_golden(in_single_of);
}

/* In 16 bits rounding itself is what there is to allow for, so that an undisturbed run shows that the bounds are not
 * too small.  That they are those of this program is tried on the smallest files: 64 twins each take a while. */
static void in_16_bits_of(const struct golden *g, enum dtype t)
{
    struct replay r, truth;
    struct error err;
    run(&truth, g, F64);
    if (replay_following(&r, &truth, t, NULL, &err) != OK) fail_msg("%s", err.text);
    double *bound = calloc((size_t)r.records, sizeof *bound), *measured = calloc((size_t)r.records, sizeof *measured);
    const char *worst = "nothing";
    assert_true(bound && measured);
    if (bounds_read(&r, t, bound, &err) != OK) fail_msg("%s", err.text);
    if (strstr(g->file.path, "minimal") && bounds_measure(&truth, t, bound_twin(t), measured, NULL, &err) != OK)
        fail_msg("%s", err.text);
    for (int i = 0; i < r.records; i++) {
        if (strstr(g->file.path, "minimal") && !(fabs(measured[i] / bound[i] - 1) <= 0.25))
            fail_msg("%s: in %s the bound stored for %s is %g, measured %g; `orrery golden --measure` writes it anew",
                     g->file.path, dtype_name(t), r.record[i].name, bound[i], measured[i]);
        bound[i] /= 2;
    }
    const double largest = compare(&r, bound, &worst);
    if (replay_covers(&r, &err) != OK) fail_msg("%s", err.text);
    print_message("%s: %s, %d tensors, largest error/bound %.2g, of %s\n", g->file.path, dtype_name(t), r.records,
                  largest / 2, worst);
    free(bound), free(measured);
    replay_free(&truth);
    replay_free(&r);
}

static void in_bf16_of(const struct golden *g) { in_16_bits_of(g, BF16); }
static void in_fp16_of(const struct golden *g) { in_16_bits_of(g, F16); }

static void in_bf16(void **state)
{
    (void)state;
    for_each_golden(in_bf16_of);
}

static void in_fp16(void **state)
{
    (void)state;
    for_each_golden(in_fp16_of);
}

/* The element that is named is the first that is no number, not the last element. */
static void a_nan_is_the_worst(void **state)
{
    double got[6] = { 1, 2, 9, NAN, 5, NAN }, want[6] = { 1, 2, 3, 4, 5, 6 };
    (void)state;
    const struct apart apart = tensor_apart(tensor_1d(got, F64, 6), tensor_1d(want, F64, 6));
    assert_true(isnan(apart.relative));
    assert_int_equal(apart.worst, 3);
    got[3] = 4, got[5] = 6;
    assert_int_equal(tensor_apart(tensor_1d(got, F64, 6), tensor_1d(want, F64, 6)).worst, 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(initial_weights_bit_for_bit),
        cmocka_unit_test(in_double),
        cmocka_unit_test(in_single),
        cmocka_unit_test(in_bf16),
        cmocka_unit_test(in_fp16),
        cmocka_unit_test(a_nan_is_the_worst),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
