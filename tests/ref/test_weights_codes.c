/* Weights in fp8, e4m3 in blocks of 128 x 128: codes, factors and numbers of PyTorch and transformers
 * (golden/make_fp8.py), bit for bit, in boxes that begin anywhere; and what is refused. */
#include "ref/model/weights.h"
#include "ref/model/weights_codes.h"
#include "ref/numeric/float8.h"
#include "tests/ref/scratch.h"

static const char FILE_NAME[] = "golden/fp8.safetensors";

static struct param_spec matrix(const char *name, int64_t rows, int64_t cols)
{
    struct param_spec s = { .ndim = 2, .dim = { rows, cols }, .parts = 1 };
    snprintf(s.name, sizeof s.name, "%s.weight", name);
    s.part[0] = (struct param_part){ .rows = rows, .rows_apart = 1 };
    snprintf(s.part[0].name, sizeof s.part[0].name, "%s.weight", name);
    return s;
}

static const struct { const char *name; int64_t rows, cols; } cases[] = {
    { "whole", 256, 128 }, { "cut", 131, 130 }, { "every", 16, 16 }
};

static bool same(float a, float b) { return a != a ? b != b : a == b && signbit(a) == signbit(b); }

static void boxes_are_those_of_pytorch(void **state)
{
    struct weights w;
    struct error err;
    (void)state;
    if (weights_open_file(&w, FILE_NAME, &err) != OK) fail_msg("%s", err.text);
    for (int i = 0; i < 3; i++) {
        const int64_t rows = cases[i].rows, cols = cases[i].cols, box[3][4] = {
            { 0, 0, rows, cols }, { rows - 5, 3, 5, cols - 3 }, { rows / 2 - 2, cols / 2 + 1, 6, 7 } };
        const struct param_spec s = matrix(cases[i].name, rows, cols);
        const size_t bytes = (size_t)(rows * cols) * sizeof(float);
        float *want = malloc(bytes), *have = malloc(bytes);
        char name[32];
        assert_true(want && have);
        snprintf(name, sizeof name, "want/%s", cases[i].name);
        if (safetensors_read(&w.file[0], safetensors_find(&w.file[0], name), F32, want, &err) != OK)
            fail_msg("%s", err.text);
        for (int b = 0; b < 3; b++) {
            const int64_t *at = box[b];
            if (weights_read_box(&w, &s, "", at, at + 2, F32, have, &err) != OK) fail_msg("%s", err.text);
            for (int64_t k = 0; k < at[2] * at[3]; k++) {
                const int64_t r = at[0] + k / at[3], c = at[1] + k % at[3];
                if (!same(have[k], want[r * cols + c]))
                    fail_msg("%s, row %lld, column %lld: %.9g, not %.9g", cases[i].name, (long long)r, (long long)c,
                             have[k], want[r * cols + c]);
            }
        }
        free(want), free(have);
    }
    weights_close(&w);
}

static void known_codes(void **state)
{
    (void)state;
    assert_true(e4m3_to_double(0x7e) == 448 && e4m3_to_double(0x01) == 0x1p-9 && e4m3_to_double(0xb8) == -1);
    assert_true(isnan(e4m3_to_double(0x7f)) && isnan(e4m3_to_double(0xff)));
    assert_true(e4m3_to_double(0x80) == 0 && signbit(e4m3_to_double(0x80)));
}

/* A file with a matrix of codes [3,200], and factors of this shape under this name. */
static void expect_refused(const char *factors, int64_t rows, int64_t cols, const char *words)
{
    struct safetensors_entry tensors[] = {
        { .name = "m.weight", .dtype = "F8_E4M3", .ndim = 2, .dim = { 3, 200 } },
        { .name = factors, .dtype = "F32", .ndim = 2, .dim = { rows, cols } },
    };
    const int64_t start[2] = { 0, 0 };
    const struct param_spec s = matrix("m", 3, 200);
    struct safetensors_writer writer;
    struct weights w;
    struct error err;
    float out[600];
    assert_int_equal(safetensors_create(&writer, scratch("codes"), tensors, 2, NULL, 0, &err), OK);
    assert_int_equal(safetensors_commit(&writer, &err), OK);
    assert_int_equal(weights_open_file(&w, scratch("codes"), &err), OK);
    assert_int_equal(weights_read_box(&w, &s, "", start, s.dim, F32, out, &err), ERR_FORMAT);
    assert_says(words, err.text, words);
    weights_close(&w);
}

static void other_factors_are_refused(void **state)
{
    (void)state;
    expect_refused("m.scale", 1, 2, "m.weight has fp8 codes, but there is no tensor m.weight_scale_inv");
    expect_refused("m.weight_scale_inv", 2, 1,
                   "m.weight_scale_inv must be 1 x 2, a factor for each block of 128 x 128");
    expect_refused("m.weight_scale_inv", 1, 1, "m.weight_scale_inv must be 1 x 2");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(boxes_are_those_of_pytorch), cmocka_unit_test(known_codes),
        cmocka_unit_test(other_factors_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
