/* safetensors: files are written and read back, in every format and for any box.
 * tier: check
 */
#include "tests/ref/safetensors_model.h"
#include <math.h>

static void reads_what_it_wrote(void **state)
{
    (void)state;
    write_model(scratch("model"));
    struct safetensors st = open_good(scratch("model"));
    struct error err;
    double got[DEEP * ROWS * COLS];
    int64_t whole[3];
    assert_int_equal(st.count, MODEL);
    assert_string_equal(safetensors_metadata(&st, "seed"), "1234");
    assert_null(safetensors_metadata(&st, "Seed"));
    assert_null(safetensors_find(&st, "w"));
    for (int i = 0; i < MODEL; i++) {
        const struct safetensors_entry *t = safetensors_find(&st, model[i].name);
        assert_non_null(t);
        assert_string_equal(t->dtype, model[i].dtype);
        assert_int_equal(t->ndim, model[i].ndim);
        assert_memory_equal(t->dim, model[i].dim, sizeof t->dim);
        if (t->count > 0) assert_int_equal(t->offset % (t->bytes / t->count), 0);       /* aligned */
    }
    assert_int_equal(safetensors_read(&st, safetensors_find(&st, "T"), F64, got, &err), OK);
    assert_memory_equal(got, T, sizeof T);
    assert_int_equal(safetensors_read(&st, safetensors_find(&st, "W"), F64, got, &err), OK);
    for (int i = 0; i < ROWS * COLS; i++) assert_true(got[i] == W[i]);
    assert_int_equal(safetensors_read(&st, safetensors_find(&st, "scalar"), F64, got, &err), OK);
    assert_true(got[0] == scalar);
    assert_int_equal(safetensors_read(&st, safetensors_find(&st, model[5].name), I64, whole, &err), OK);
    assert_true(whole[0] == INT64_MIN && whole[1] == INT64_MAX);
    assert_int_equal(safetensors_read(&st, safetensors_find(&st, "ids"), I64, whole, &err), OK);
    assert_true(whole[0] == 0 && whole[1] == 128 && whole[2] == 255);
    got[0] = -1;
    assert_int_equal(safetensors_read(&st, safetensors_find(&st, "empty"), F64, got, &err), OK);
    assert_true(got[0] == -1);
    safetensors_close(&st);
    assert_int_equal(scratch_count(".tmp."), 0);
}

/* Every format, its bytes, and the numbers they are. */
static void converts_exactly(void **state)
{
    (void)state;
    static const struct { const char *dtype; enum dtype want; uint64_t bits; double value; } cases[] = {
        { "F64", F64, 0x3ff8000000000000, 1.5 }, { "F64", F32, 0x3ff0000010000001, 0x1.000002p0 },  /* to nearest */
        { "F64", F32, 0x3ff0000010000000, 1.0 },                                                    /* a tie, to even */
        { "F32", F64, 0x3fc00000, 1.5 }, { "F32", F32, 0x80000001, -0x1p-149 }, { "F32", F64, 0xff800000, -INFINITY },
        { "F16", F32, 0x3c00, 1.0 }, { "F16", F64, 0x0001, 0x1p-24 }, { "F16", F64, 0x83ff, -0x3ffp-24 },
        { "F16", F64, 0x7bff, 65504 }, { "F16", F32, 0xfc00, -INFINITY }, { "F16", F64, 0x7e00, NAN },
        { "F16", F64, 0x0400, 0x1p-14 }, { "BF16", F32, 0x3f80, 1.0 }, { "BF16", F64, 0xc049, -3.140625 },
        { "BF16", F64, 0x7f80, INFINITY }, { "BF16", F32, 0x0001, 0x1p-133 }, { "BF16", F32, 0x7fc0, NAN },
        { "I32", I32, 0x80000000, -2147483648.0 }, { "I32", I64, 0xffffffff, -1 },
        { "U32", I64, 0xffffffff, 4294967295.0 }, { "I16", I32, 0x8000, -32768 }, { "U16", I32, 0x8000, 32768 },
        { "I8", I64, 0x80, -128 }, { "U8", I32, 0x80, 128 }, { "BOOL", U8, 2, 1 }, { "BOOL", I32, 0, 0 },
        { "U8", U8, 255, 255 }, { "I64", I64, 0xffffffffffffffff, -1 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct safetensors_entry one = { .name = "x", .dtype = cases[i].dtype, .ndim = 1, .dim = { 1 } };
        struct safetensors_writer w;
        struct error err;
        union { float f; double d; int32_t i; int64_t l; uint8_t b; } got = { .l = -99 };
        assert_int_equal(safetensors_create(&w, scratch("one"), &one, 1, NULL, 0, &err), OK);
        assert_int_equal(safetensors_write(&w, 0, &cases[i].bits, &err), OK);
        assert_int_equal(safetensors_commit(&w, &err), OK);
        struct safetensors st = open_good(scratch("one"));
        assert_int_equal(safetensors_read(&st, st.entry, cases[i].want, &got, &err), OK);
        const double x = cases[i].want == F32 ? got.f : cases[i].want == F64 ? got.d : cases[i].want == I32 ? got.i
                       : cases[i].want == I64 ? (double)got.l : got.b;
        if (!(x == cases[i].value || (isnan(x) && isnan(cases[i].value))))
            fail_msg("%s %llx: got %a, want %a", cases[i].dtype, (unsigned long long)cases[i].bits, x, cases[i].value);
        safetensors_close(&st);
    }
}

static void every_half_comes_back(void **state)
{
    (void)state;
    enum { ALL = 1 << 16 };
    static uint16_t bits[ALL];
    static double got[ALL];
    const struct safetensors_entry all = { .name = "x", .dtype = "F16", .ndim = 1, .dim = { ALL } };
    struct safetensors_writer w;
    struct error err;
    for (int i = 0; i < ALL; i++) bits[i] = (uint16_t)i;
    assert_int_equal(safetensors_create(&w, scratch("half"), &all, 1, NULL, 0, &err), OK);
    assert_int_equal(safetensors_write(&w, 0, bits, &err), OK);
    assert_int_equal(safetensors_commit(&w, &err), OK);
    struct safetensors st = open_good(scratch("half"));
    assert_int_equal(safetensors_read(&st, st.entry, F64, got, &err), OK);
    safetensors_close(&st);
    for (int i = 0; i < 0x7c00; i++) {                  /* positive and finite: growing, evenly spaced in each binade */
        assert_true(got[i] == -got[i | 0x8000]);
        const double step = ldexp(1, (i >> 10 > 1 ? (i >> 10) - 1 : 0) - 24);
        if (i + 1 < 0x7c00) assert_true(got[i + 1] - got[i] == step);
    }
}

/* ---- boxes ------------------------------------------------------------------------------------------------------- */

/* All boxes of a [ROWS,COLS] matrix, straight and transposed, as F32 (moved as bytes) and F64 (converted). */
static void reads_every_box(void **state)
{
    (void)state;
    write_model(scratch("model"));
    struct safetensors st = open_good(scratch("model"));
    const struct safetensors_entry *t = safetensors_find(&st, "W");
    struct error err;
    for (int r = 0; r <= ROWS; r++) for (int nr = 0; r + nr <= ROWS; nr++)
    for (int c = 0; c <= COLS; c++) for (int nc = 0; c + nc <= COLS; nc++)
        for (int turned = 0; turned < 2; turned++) {
            const int64_t start[2] = { turned ? c : r, turned ? r : c };
            const int64_t extent[2] = { turned ? nc : nr, turned ? nr : nc };
            float f[ROWS * COLS + 1];
            double d[ROWS * COLS + 1];
            f[nr * nc] = -1, d[nr * nc] = -1;
            assert_int_equal(safetensors_read_box(&st, t, start, extent, turned, F32, f, &err), OK);
            assert_int_equal(safetensors_read_box(&st, t, start, extent, turned, F64, d, &err), OK);
            for (int i = 0; i < extent[0]; i++)
                for (int j = 0; j < extent[1]; j++) {
                    const float want = turned ? W[(r + j) * COLS + c + i] : W[(r + i) * COLS + c + j];
                    assert_true(f[i * extent[1] + j] == want && d[i * extent[1] + j] == want);
                }
            assert_true(f[nr * nc] == -1 && d[nr * nc] == -1);
        }
    safetensors_close(&st);
}

static void reads_boxes_of_three_dimensions(void **state)
{
    (void)state;
    write_model(scratch("model"));
    struct safetensors st = open_good(scratch("model"));
    const struct safetensors_entry *t = safetensors_find(&st, "T");
    static const int64_t boxes[][6] = { { 0, 0, 0, 3, 5, 7 }, { 1, 0, 0, 2, 5, 7 }, { 0, 2, 0, 3, 2, 7 },
                                        { 2, 4, 6, 1, 1, 1 }, { 0, 1, 2, 3, 3, 3 }, { 1, 1, 0, 1, 2, 7 },
                                        { 0, 0, 3, 3, 5, 1 } };
    for (size_t b = 0; b < sizeof boxes / sizeof *boxes; b++) {
        const int64_t *s = boxes[b], *n = boxes[b] + 3;
        double got[DEEP * ROWS * COLS];
        int at = 0;
        struct error err;
        assert_int_equal(safetensors_read_box(&st, t, s, n, false, F64, got, &err), OK);
        for (int64_t i = s[0]; i < s[0] + n[0]; i++)
            for (int64_t j = s[1]; j < s[1] + n[1]; j++)
                for (int64_t k = s[2]; k < s[2] + n[2]; k++)
                    assert_true(got[at++] == T[(i * ROWS + j) * COLS + k]);
    }
    safetensors_close(&st);
}

/* Rows longer than one chunk of the conversion or of a transpose, so that the pieces must meet: "tall" is [C,R] in the
 * file and "wide" [R,C], both written from their transposes. */
static void long_rows_are_whole(void **state)
{
    (void)state;
    enum { R = 3, C = 10007 };
    static float x[R * C], y[C * R];
    static double got[R * C];
    const struct safetensors_entry both[] = { { .name = "tall", .dtype = "F32", .ndim = 2, .dim = { C, R } },
                                              { .name = "wide", .dtype = "F32", .ndim = 2, .dim = { R, C } } };
    struct safetensors_writer w;
    struct error err;
    for (int i = 0; i < R * C; i++) x[i] = (float)i, y[i % C * R + i / C] = (float)i;
    assert_int_equal(safetensors_create(&w, scratch("long"), both, 2, NULL, 0, &err), OK);
    assert_int_equal(safetensors_write_box(&w, 0, NULL, NULL, true, x, &err), OK);
    assert_int_equal(safetensors_write_box(&w, 1, NULL, NULL, true, y, &err), OK);
    assert_int_equal(safetensors_commit(&w, &err), OK);
    struct safetensors st = open_good(scratch("long"));
    for (int wide = 0; wide < 2; wide++)
        for (int turned = 0; turned < 2; turned++) {
            const struct safetensors_entry *t = safetensors_find(&st, both[wide].name);
            const float *want = wide == turned ? y : x;
            assert_int_equal(safetensors_read_box(&st, t, NULL, NULL, turned, F64, got, &err), OK);
            for (int i = 0; i < R * C; i++) assert_true(got[i] == want[i]);
        }
    safetensors_close(&st);
}

static void refuses_bad_requests(void **state)
{
    (void)state;
    static const struct safetensors_entry tensors[] = {
        { .name = "f", .dtype = "F32", .ndim = 2, .dim = { 4, 6 } },
        { .name = "i", .dtype = "I64", .ndim = 1, .dim = { 2 } },
        { .name = "e", .dtype = "F8_E5M2", .ndim = 1, .dim = { 2 } },
    };
    struct safetensors_writer w;
    struct error err;
    double out[24];
    const int64_t zero[2] = { 0, 0 }, far[2] = { 0, 5 }, two[2] = { 1, 2 }, minus[2] = { -1, 0 };
    const int64_t huge[2] = { INT64_MAX, 1 };
    assert_int_equal(safetensors_create(&w, scratch("bad"), tensors, 3, NULL, 0, &err), OK);
    assert_int_equal(safetensors_commit(&w, &err), OK);
    struct safetensors st = open_good(scratch("bad"));
    const struct safetensors_entry *f = safetensors_find(&st, "f"), *i = safetensors_find(&st, "i");
    assert_int_equal(safetensors_read_box(&st, f, far, two, false, F64, out, &err), ERR_USAGE);
    assert_says("outside", err.text, "/bad: tensor \"f\": 2 elements from 5 are outside dimension 1, of 6");
    assert_int_equal(safetensors_read_box(&st, f, minus, two, false, F64, out, &err), ERR_USAGE);
    assert_int_equal(safetensors_read_box(&st, f, zero, huge, false, F64, out, &err), ERR_USAGE);
    assert_int_equal(safetensors_read_box(&st, f, two, huge, false, F64, out, &err), ERR_USAGE);
    assert_int_equal(safetensors_read_box(&st, f, far, two, true, F64, out, &err), ERR_USAGE);
    assert_int_equal(safetensors_read_box(&st, i, NULL, NULL, true, I64, out, &err), ERR_USAGE);
    assert_says("turned", err.text, "tensor \"i\" has 1 dimensions; only a matrix can be transposed");
    assert_int_equal(safetensors_read(&st, i, F64, out, &err), ERR_FORMAT);
    assert_says("integers", err.text, "tensor \"i\" has dtype I64, which cannot be read as fp64");
    assert_int_equal(safetensors_read(&st, i, I32, out, &err), ERR_FORMAT);
    assert_int_equal(safetensors_read(&st, safetensors_find(&st, "e"), F32, out, &err), ERR_FORMAT);
    assert_says("fp8", err.text, "tensor \"e\" has dtype F8_E5M2, which cannot be read as fp32");
    assert_int_equal(truncate(scratch("bad"), 120), 0); /* cut under our feet, after the check */
    assert_int_equal(safetensors_read(&st, f, F64, out, &err), ERR_FILE);
    assert_says("cut", err.text, "/bad: ends at byte ");
    safetensors_close(&st);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_it_wrote),
        cmocka_unit_test(converts_exactly),
        cmocka_unit_test(every_half_comes_back),
        cmocka_unit_test(reads_every_box),
        cmocka_unit_test(reads_boxes_of_three_dimensions),
        cmocka_unit_test(long_rows_are_whole),
        cmocka_unit_test(refuses_bad_requests),
    };
    return cmocka_run_group_tests(tests, scratch_make, scratch_remove);
}
