/* int8 and int4 in blocks: codes, scales and values of DeepSpeed (golden/make_quantised.py), the bytes of hand-made
 * blocks, the exact error bound, and blocks without a scale.
 */
#include "ref/io/safetensors.h"
#include "ref/numeric/block_quantise.h"
#include "tests/ref/test_ops.h"

enum { GUARD_BYTE = 0x5a };

/* The code of X between guard bytes; the caller frees code - 64. */
static unsigned char *code_of(struct tensor X, struct block_format f)
{
    const size_t bytes = (size_t)block_quantised_bytes(f, tensor_count(X));
    unsigned char *room = aligned_alloc(64, (bytes + 128 + 63) / 64 * 64);
    assert_non_null(room);
    memset(room, GUARD_BYTE, bytes + 128);
    block_quantise(room + 64, X, f);
    for (int i = 0; i < 64; i++)
        if (room[i] != GUARD_BYTE || room[64 + bytes + (size_t)i] != GUARD_BYTE)
            fail_msg("%s: wrote outside the %zu bytes", case_name, bytes);
    return room + 64;
}

static void bytes_by_hand(void **state)
{
    (void)state;
    const struct block_format int8 = { 8, 64 }, int4 = { 4, 64 }, odd = { 4, 3 }, one = { 4, 1 };
    assert_int_equal(block_quantised_bytes(int8, 0), 0);
    assert_int_equal(block_quantised_bytes(int8, 64), 4 + 64);
    assert_int_equal(block_quantised_bytes(int8, 65), 4 + 64 + 4 + 1);
    assert_int_equal(block_quantised_bytes(int4, 128), 8 + 64);
    assert_int_equal(block_quantised_bytes(int4, 63), 4 + 32);
    assert_int_equal(block_quantised_bytes(odd, 7), 12 + 2 + 2 + 1);
    assert_int_equal(block_quantised_bytes(one, 5), 20 + 5);
}

/* Scales 1 and 2, and every rounding: up, down, both ties; the largest positive element is
 * clamped, the largest negative one is not. */
static void codes_by_hand(void **state)
{
    (void)state;
    static const float x[] = { 8, -8, 0.5f, 1.5f, -2.5f,   16, -4, 4.2f, -0.9f, 1.1f,   -8 };
    float back[11];
    static const unsigned char want[] = { 0x78, 0x02, 0xe0,   0x7e, 0x20, 0x10,   0x80 };
    static const float value[] = { 7, -8, 0, 2, -2,   14, -4, 4, 0, 2,   -8 };
    const struct block_format f = { 4, 5 };
    CASE("int4 by hand");
    unsigned char *code = code_of(tensor_1d((void *)x, F32, 11), f);
    float scale[3];
    memcpy(scale, code, sizeof scale);
    assert_true(scale[0] == 1 && scale[1] == 2 && scale[2] == 1);
    assert_memory_equal(code + 12, want, sizeof want);
    block_dequantise(tensor_1d(back, F32, 11), code, f);
    for (int i = 0; i < 11; i++)
        if (!(back[i] == value[i])) fail_msg("element %d comes back as %g, want %g", i, back[i], value[i]);
    free(code - 64);

    static const float y[] = { 128, -128, 126.5f, 125.5f, -0.5f, 3.4f };
    static const signed char codes[] = { 127, -128, 126, 126, 0, 3 };
    CASE("int8 by hand");
    code = code_of(tensor_1d((void *)y, F32, 6), (struct block_format){ 8, 6 });
    assert_memory_equal(code + 4, codes, 6);
    free(code - 64);
}

static int code_at(const unsigned char *code, struct block_format f, int64_t n, int64_t i)
{
    const int64_t blocks = (n + f.block - 1) / f.block, each = (f.block * f.bits + 7) / 8, at = i % f.block;
    const unsigned char *block = code + 4 * blocks + i / f.block * each;
    if (f.bits == 8) return (signed char)block[at];
    const int nibble = at % 2 ? block[at / 2] % 16 : block[at / 2] / 16;
    return nibble > 7 ? nibble - 16 : nibble;
}

/* What block_quantise.h says, once more. */
static float factor_of(float most, int bits)
{
    return most == 0 ? 1 : fminf((float)(bits == 8 ? 128 : 8) / most, 0x1p126f);
}

static double bound_of(int q, float scale, int bits)
{
    return scale * ((q == (bits == 8 ? 127 : 7) ? 1 : 0.5) + ldexp(1, bits - 22));
}

static float largest_in_block(struct tensor X, int64_t block, int64_t i)
{
    const int64_t first = i / block * block, n = tensor_count(X), end = first + block < n ? first + block : n;
    float most = 0;
    for (int64_t j = first; j < end; j++) most = fmaxf(most, fabsf((float)tensor_get(X, j)));
    return most;
}

/* All products here have few enough bits to be exact in long double, so the bound is compared with nothing added. */
static void expect_bound(struct tensor X, struct block_format f)
{
    const int64_t n = tensor_count(X);
    const int Q = f.bits == 8 ? 127 : 7;
    unsigned char *code = code_of(X, f);
    const enum dtype formats[] = { F32, F64, BF16, F16 };
    struct tensor bound = fill_with(vector(F64, n), 0);
    block_add_bounds(bound.data, code, f, n);
    for (int64_t i = 0; i < n; i++) {
        float scale;
        memcpy(&scale, code + 4 * (i / f.block), sizeof scale);
        const float x = (float)tensor_get(X, i), most = largest_in_block(X, f.block, i),
                    want = 1 / factor_of(most, f.bits);
        const int q = code_at(code, f, n, i);
        const double allowed = most == 0 ? 0 : bound_of(q, scale, f.bits);
        const long double off = fabsl((long double)x - (long double)((float)q * scale));
        if (!(scale == want))
            fail_msg("%s: scale of element %lld is %a, want %a", case_name, (long long)i, (double)scale, (double)want);
        if (q < -Q - 1 || q > Q) fail_msg("%s: element %lld has code %d", case_name, (long long)i, q);
        if (!(tensor_get(bound, i) == allowed) || !(off <= allowed))
            fail_msg("%s: element %lld = %a has code %d of scale %a: off by %.17Lg, may be by %.17g, and "
                     "block_add_bounds says %.17g",
                     case_name, (long long)i, (double)x, q, (double)scale, off, allowed, tensor_get(bound, i));
    }
    for (int k = 0; k < 4; k++) {
        struct tensor Y = vector(formats[k], n), exact_value = vector(formats[k], n);
        block_dequantise(Y, code, f);
        for (int64_t i = 0; i < n; i++) {
            float scale;
            memcpy(&scale, code + 4 * (i / f.block), sizeof scale);
            tensor_set(exact_value, i, (float)code_at(code, f, n, i) * scale);
        }
        expect_same_bits("dequantised", Y, exact_value);
    }
    free(code - 64);
}

static void error_is_within_its_bound(void **state)
{
    (void)state;
    const enum dtype formats[] = { F32, F64, BF16, F16 };
    const int64_t blocks[] = { 1, 3, 64, 513, 2048 }, lengths[] = { 0, 1, 2, 63, 64, 65, 1030, 5003 };
    const double sizes[] = { 1, 0x1p-30, 0x1p-131, 0x1p+100 };
    for (int bits = 4; bits <= 8; bits += 4)
        for (int b = 0; b < 5; b++)
            for (int l = 0; l < 8; l++)
                for (int t = 0; t < 4; t++)
                    for (int s = 0; s < (l < 7 && formats[t] != F16 ? 4 : 1); s++) {
                        CASE("int%d, blocks of %d, %d elements of %s, size %g", bits, (int)blocks[b], (int)lengths[l],
                             dtype_name(formats[t]), sizes[s]);
                        expect_bound(fill(vector(formats[t], lengths[l]), sizes[s], "x"),
                                     (struct block_format){ bits, blocks[b] });
                        check_guards_and_free();
                    }
}

/* Numbers one fp32 step beside every tie of a scale that is no power of two: the product in fp32 takes some for ties,
 * which the bound allows. */
static void beside_every_tie(void **state)
{
    (void)state;
    for (int bits = 4; bits <= 8; bits += 4)
        for (int trial = 0; trial < 50; trial++) {
            const int Q = bits == 8 ? 128 : 8;
            const float most = (float)(1 + random_uniform(5, 6, (uint64_t)trial)), scale = most / (float)Q;
            CASE("int%d beside ties, trial %d", bits, trial);
            struct tensor X = vector(F32, 3 * Q + 1);
            tensor_set(X, 0, most);
            for (int k = 0; k < Q; k++) {
                const float tie = (float)((k + 0.5) * scale);
                tensor_set(X, 3 * k + 1, tie), tensor_set(X, 3 * k + 2, nextafterf(tie, 0)),
                    tensor_set(X, 3 * k + 3, -nextafterf(tie, 9));
            }
            for (int i = 1; i < 3 * Q + 1; i++) if (fabs(tensor_get(X, i)) > most) tensor_set(X, i, most);
            expect_bound(X, (struct block_format){ bits, 3 * Q + 1 });
            check_guards_and_free();
        }
}

static void zeros_and_what_is_not_finite(void **state)
{
    (void)state;
    const double bad[] = { NAN, INFINITY, -INFINITY };
    for (int bits = 4; bits <= 8; bits += 4)
        for (int k = 0; k < 3; k++) {
            const struct block_format f = { bits, 4 };
            CASE("int%d with %g", bits, bad[k]);
            struct tensor X = fill(vector(F32, 12), 1, "x"), Y = vector(F32, 12);
            for (int i = 0; i < 4; i++) tensor_set(X, i, i % 2 ? 0.0 : -0.0);
            tensor_set(X, 6, bad[k]);
            unsigned char *code = code_of(X, f);
            block_dequantise(Y, code, f);
            for (int i = 0; i < 4; i++) assert_true(tensor_get(Y, i) == 0);
            for (int i = 4; i < 8; i++) assert_true(isnan(tensor_get(Y, i)));
            for (int i = 8; i < 12; i++) assert_true(isfinite(tensor_get(Y, i)));
            free(code - 64);
            check_guards_and_free();
        }
}

/* ---- DeepSpeed --------------------------------------------------------------------------------------------------- */

static struct tensor stored(const struct safetensors *f, const char *name, enum dtype t)
{
    const struct safetensors_entry *e = safetensors_find(f, name);
    struct error err;
    if (e == NULL) fail_msg("%s: no %s", f->path, name);
    struct tensor x = vector(t, e->dim[0]);
    if (safetensors_read(f, e, t, x.data, &err) != OK) fail_msg("%s", err.text);
    return x;
}

/* As they are, and from fp32 numbers that fp16 holds. */
static void expect_deepspeed(const struct safetensors *file, int bits, enum dtype t)
{
    char name[32];
    const struct block_format f = { bits, 16 };
    const struct tensor x = stored(file, "x", t);
    const int64_t n = tensor_count(x);
    unsigned char *code = code_of(x, f);
    snprintf(name, sizeof name, "int%d.codes", bits);
    const struct safetensors_entry *e = safetensors_find(file, name);
    struct error err;
    assert_true(e != NULL && e->dim[0] == n * bits / 8);
    unsigned char *theirs = calloc(1, (size_t)block_quantised_bytes(f, n));
    assert_non_null(theirs);
    assert_int_equal(safetensors_read(file, e, U8, theirs + 4 * (n / f.block), &err), OK);
    for (int64_t i = 0; i < n; i++) {
        const int got = code_at(code, f, n, i), want = code_at(theirs, f, n, i);
        if (got != want) fail_msg("int%d: code %d is %d, DeepSpeed's is %d", bits, (int)i, got, want);
    }
    assert_memory_equal(code + 4 * (n / f.block), theirs + 4 * (n / f.block), (size_t)(n * bits / 8));
    free(theirs);
    snprintf(name, sizeof name, "int%d.scales", bits);
    CASE("int%d of %s numbers", bits, dtype_name(t));
    expect_same_bits("scales", tensor_1d(code, F32, n / f.block), stored(file, name, F32));
    snprintf(name, sizeof name, "int%d.values", bits);
    struct tensor y = vector(F16, n);
    block_dequantise(y, code, f);
    expect_same_bits("values", y, stored(file, name, F16));
    free(code - 64);
}

static void codes_are_deepspeeds(void **state)
{
    struct safetensors file;
    struct error err;
    (void)state;
    if (safetensors_open(&file, "golden/quantised.safetensors", &err) != OK) fail_msg("%s", err.text);
    for (int bits = 4; bits <= 8; bits += 4) expect_deepspeed(&file, bits, F16), expect_deepspeed(&file, bits, F32);
    safetensors_close(&file);
    check_guards_and_free();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(codes_are_deepspeeds), cmocka_unit_test(bytes_by_hand), cmocka_unit_test(codes_by_hand),
            cmocka_unit_test(error_is_within_its_bound),
        cmocka_unit_test(beside_every_tie), cmocka_unit_test(zeros_and_what_is_not_finite),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
