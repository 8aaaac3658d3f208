/* block_quantise.c -- codes of 8 or 4 bits with a scale for each block, and bounds of their errors.
 *
 * collectives/ and generic.c call this file for quantised messages.  No function here can fail; formats that do not
 * exist are mistakes that assert() finds.
 */
#include "ref/numeric/block_quantise.h"
#include "ref/numeric/convert.h"
#include <assert.h>
#include <math.h>

enum { CHUNK = 512, PARALLEL_FROM = 1 << 14 };          /* even: no byte belongs to two chunks */

static int64_t block_quantise_blocks_of(struct block_format format, int64_t n)
{
    return (n + format.block - 1) / format.block;
}
static int64_t code_bytes(struct block_format format, int64_t n) { return (n * format.bits + 7) / 8; }

int64_t block_quantised_bytes(struct block_format format, int64_t n)
{
    /* The bytes are an fp32 scale for each block, the codes of whole blocks, and those of the last, shorter one. */
    return 4 * block_quantise_blocks_of(format, n) + n / format.block * code_bytes(format, format.block)
           + code_bytes(format, n % format.block);
}

/* Elements first .. first+n-1 as fp32: in place, or converted into `room`. */
static const float *floats(struct tensor X, int64_t first, int64_t n, float room[CHUNK])
{
    if (X.dtype == F32) return (const float *)X.data + first;
    convert_numbers(room, F32, (const char *)X.data + (size_t)first * dtype_size(X.dtype), X.dtype, n);
    return room;
}

/* The largest |x| as bits without the sign: these order like the numbers, then infinity, then NaN. */
static uint32_t block_quantise_largest(const float *x, int64_t n)
{
    uint32_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        const uint32_t b = float_bits(x[i]) & 0x7fffffff;
        most = b > most ? b : most;
    }
    return most;
}

/* The largest code of b bits is 2^(b-1) - 1; the least is one further away from 0. */
static int largest_code(int bits) { return (1 << (bits - 1)) - 1; }

/* DeepSpeed's 2^b / (2 max), but without doubling max, which could overflow. */
static float factor_of(uint32_t largest_bits, int bits)
{
    if (largest_bits == 0) return 1;
    if (largest_bits >= 0x7f800000) return NAN;
    const float factor = (float)(1 << (bits - 1)) / float_of_bits(largest_bits);
    return factor < 0x1p126f ? factor : 0x1p126f;
}

/* Codes of n numbers with one factor. */
static void block_quantise_encode(uint8_t *code, const float *x, int64_t n, float factor, int bits)
{
    int8_t q[CHUNK + 1];
    const float most = (float)largest_code(bits), least = -most - 1;
    for (int64_t i = 0; i < n; i++) {
        /* q = round(x factor), clipped to -2^(b-1) .. 2^(b-1)-1; only numbers near the largest can reach 2^(b-1). */
        const float v = rintf(x[i] * factor);
        q[i] = (int8_t)(v > most ? most : v < least ? least : v);
    }
    q[n] = 0;
    /* Two codes share a byte, the first in the upper half. */
    if (bits == 8) memcpy(code, q, (size_t)n);
    else for (int64_t i = 0; i < n; i += 2) code[i / 2] = (uint8_t)((unsigned)q[i] << 4 | (q[i + 1] & 15));
}

/* A block is read twice: for its largest magnitude, and for its codes. */
static void quantise_one(float *scale, uint8_t *code, struct tensor X, struct block_format format,
                         int64_t first, int64_t n)
{
    float room[CHUNK];
    uint32_t most = 0;
    for (int64_t i = 0; i < n; i += CHUNK) {
        const int64_t length = n - i < CHUNK ? n - i : CHUNK;
        /* The first reading finds the block's largest magnitude, a chunk at a time. */
        const uint32_t here = block_quantise_largest(floats(X, first + i, length, room), length);
        most = here > most ? here : most;
    }
    const float factor = factor_of(most, format.bits);
    /* A NaN scale marks a block with a number that is not finite; its codes are zeros. */
    *scale = 1 / factor;
    for (int64_t i = 0; i < n; i += CHUNK) {
        /* The second reading makes codes with the one factor of the block. */
        const int64_t length = n - i < CHUNK ? n - i : CHUNK;
        if (isnan(factor)) memset(code + code_bytes(format, i), 0, (size_t)code_bytes(format, length));
        else block_quantise_encode(code + code_bytes(format, i), floats(X, first + i, length, room), length, factor,
                                   format.bits);
    }
}

/* Blocks are independent, so threads share them. */
void block_quantise(void *code, struct tensor X, struct block_format format)
{
    const int64_t n = tensor_count(X), blocks = block_quantise_blocks_of(format, n);
    float *const scale = code;
    uint8_t *const codes = (uint8_t *)(scale + blocks);
    assert((format.bits == 8 || format.bits == 4) && format.block >= 1 && dtype_unit(X.dtype) > 0);

    #pragma omp parallel for schedule(static) if (n > PARALLEL_FROM)
    for (int64_t b = 0; b < blocks; b++) {
        /* Block b: scale[b] and codes of X[first .. first + block). */
        const int64_t first = b * format.block, left = n - first;
        quantise_one(&scale[b], codes + b * code_bytes(format, format.block), X, format, first,
                     left < format.block ? left : format.block);
    }
}

/* Four bits as a signed number: xor and subtraction move 8..15 to -8..-1. */
static int code_at(const uint8_t *code, int64_t i, int bits)
{
    return bits == 8 ? (int8_t)code[i] : ((code[i / 2] >> (i % 2 ? 0 : 4) & 15) ^ 8) - 8;
}

static void decode(float *x, const uint8_t *code, int64_t n, float scale, int bits)
{
    for (int64_t i = 0; i < n; i++) x[i] = (float)code_at(code, i, bits) * scale;
}

/* Y = codes times scales, block by block. */
void block_dequantise(struct tensor Y, const void *code, struct block_format format)
{
    const int64_t n = tensor_count(Y), blocks = block_quantise_blocks_of(format, n);
    const float *const scale = code;
    const uint8_t *const codes = (const uint8_t *)(scale + blocks);
    const size_t size = dtype_size(Y.dtype);
    assert((format.bits == 8 || format.bits == 4) && format.block >= 1 && dtype_unit(Y.dtype) > 0);

    #pragma omp parallel for schedule(static) if (n > PARALLEL_FROM)
    for (int64_t b = 0; b < blocks; b++)
        for (int64_t i = 0; i < format.block && b * format.block + i < n; i += CHUNK) {
            const int64_t at = b * format.block + i, in_block = format.block - i < n - at ? format.block - i : n - at;
            const int64_t length = in_block < CHUNK ? in_block : CHUNK;
            float x[CHUNK];
            /* Y[at ..] = code scale[b], in fp32, then rounded to the format of Y. */
            decode(x, codes + b * code_bytes(format, format.block) + code_bytes(format, i), length, scale[b],
                   format.bits);
            convert_numbers((char *)Y.data + (size_t)at * size, Y.dtype, x, F32, length);
        }
}

/* ---- error bounds ------------------------------------------------------------------------------------------------ */

/* A block whose scale is 1 may also have numbers, so its codes are looked at. */
static bool all_zero(const uint8_t *code, int64_t n, int bits)
{
    for (int64_t i = 0; i < n; i++)
        if (code_at(code, i, bits) != 0) return false;
    return true;
}

/* bound[i] grows by the largest error that element i can have. */
void block_add_bounds(double *bound, const void *code, struct block_format format, int64_t n)
{
    const int64_t blocks = block_quantise_blocks_of(format, n);
    const float *const scale = code;
    const uint8_t *const codes = (const uint8_t *)(scale + blocks);
    const double rounding = ldexp(1, format.bits - 22);
    for (int64_t b = 0; b < blocks; b++) {
        const int64_t first = b * format.block, length = format.block < n - first ? format.block : n - first;
        const uint8_t *const here = codes + b * code_bytes(format, format.block);
        /* A block of zeros is exact: its scale is 1. */
        if (scale[b] == 1 && all_zero(here, length, format.bits)) continue;
        for (int64_t i = 0; i < length; i++)
            /* The bound is half a step; a whole one for the largest code, which may be clipped; and fp32's rounding. */
            bound[first + i] +=
                (double)scale[b] * ((code_at(here, i, format.bits) == largest_code(format.bits) ? 1 : 0.5) + rounding);
    }
}
