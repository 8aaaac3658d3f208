/* exact_sum.c -- sums of squares as long fixed-point numbers, without rounding.
 *
 * model/trainer.c and schemes/data/ call this file for the norm of gradients, so that every mesh gets the same bits.
 * No function here can fail.
 */
#include "ref/numeric/exact_bins.h"
#include "ref/numeric/convert.h"
#include "ref/numeric/fixed_sum.h"
#include <math.h>

enum { LIMB_BITS = 32, LOWEST = 1074 };         /* the last bit of limb 0 is 2^-LOWEST */
#define LIMB_MASK 0xffffffffu

/* Add v 2^power, v < 2^63, to three limbs; each grows by less than 2^33. */
static void add_at(struct exact_sum *exact_sum, uint64_t v, int power)
{
    /* Bit 0 of v has the weight 2^power; it is bit `shift` of limb i. */
    const int at = power + LOWEST, i = at / LIMB_BITS, shift = at % LIMB_BITS;
    const uint64_t low = (v & LIMB_MASK) << shift, high = (v >> LIMB_BITS) << shift;
    exact_sum->limb[i] += (int64_t)(low & LIMB_MASK);
    exact_sum->limb[i + 1] += (int64_t)((low >> LIMB_BITS) + (high & LIMB_MASK));
    exact_sum->limb[i + 2] += (int64_t)(high >> LIMB_BITS);
}

/* Carries move up, so that each limb but the last has 32 bits again. */
static void carry(struct exact_sum *exact_sum)
{
    for (int i = 0; i + 1 < EXACT_LIMBS; i++) {
        /* Bits above the low 32 go on to the next limb, with the sign. */
        exact_sum->limb[i + 1] += exact_sum->limb[i] >> LIMB_BITS;
        exact_sum->limb[i] &= LIMB_MASK;
    }
}

/* s += t; carries follow at once, since limbs have room for few additions only. */
void exact_add(struct exact_sum *s, const struct exact_sum *t)
{
    for (int i = 0; i < EXACT_LIMBS; i++) s->limb[i] += t->limb[i];
    s->infinite += t->infinite;
    carry(s);
}

/* ---- terms ------------------------------------------------------------------------------------------------------- */

/* The square of a 24-bit fraction has 48 bits, so the sum of AT_ONCE squares of one exponent fits into 63 bits.  WAYS
 * sums per exponent: consecutive terms with the same exponent do not depend on each other. */
enum { AT_ONCE = 1 << 15, EXPONENTS = 256, WAYS = 4 };

static void add_floats(struct exact_sum *exact_sum, const float *x, int64_t n)
{
    uint64_t sum[EXPONENTS][WAYS] = { { 0 } };
    for (int64_t i = 0; i < n; i++) {
        /* x = fraction 2^(max(e, 1) - 150): squares of one exponent are added as integers, without rounding. */
        const uint32_t bits = float_bits(x[i]), e = bits >> 23 & 255;
        const uint64_t fraction = (bits & 0x7fffff) | (uint32_t)(e > 0) << 23;
        sum[e][i % WAYS] += fraction * fraction;
    }
    /* The limbs take one addition for each exponent, not for each number. */
    for (int e = 0; e < EXPONENTS - 1; e++) {
        const uint64_t v = sum[e][0] + sum[e][1] + sum[e][2] + sum[e][3];
        if (v > 0) add_at(exact_sum, v, 2 * ((e > 0 ? e : 1) - 150));
    }
    /* The last exponent is that of infinities and NaNs: their squares are added apart. */
    const uint64_t *odd = sum[EXPONENTS - 1];
    for (int64_t i = 0; i < n && (odd[0] | odd[1] | odd[2] | odd[3]); i++)
        if (!isfinite(x[i])) exact_sum->infinite += (double)x[i] * (double)x[i];
}

/* The GPU's kernel has added squares by exponents; low and high are two halves of those sums. */
void exact_add_bins(struct exact_sum *exact_sum, const uint64_t *low, const uint64_t *high)
{
    for (int e = 0; e < EXACT_BINS - 1; e++) {
        const int power = 2 * ((e > 0 ? e : 1) - 150);
        if (low[e] > 0) add_at(exact_sum, low[e], power);
        if (high[e] > 0) add_at(exact_sum, high[e], power + 32);
    }
    carry(exact_sum);
}

static void add_doubles(struct exact_sum *exact_sum, const double *x, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        /* A square of an fp64 number is rounded once here; only the sum is exact. */
        const double square = x[i] * x[i];
        const uint64_t bits = double_bits(square);
        const int e = (int)(bits >> 52 & 2047);
        const uint64_t fraction = (bits & 0xfffffffffffffu) | (uint64_t)(e > 0) << 52;
        if (e == 2047) exact_sum->infinite += square;
        else add_at(exact_sum, fraction, (e > 0 ? e : 1) - 1075);
    }
}

/* A block of one format: 16-bit numbers are widened first, which is exact. */
static void add_block(struct exact_sum *exact_sum, struct tensor x, int64_t first, int64_t n)
{
    const char *data = (const char *)x.data + (size_t)first * dtype_size(x.dtype);
    if (x.dtype == F64) add_doubles(exact_sum, (const double *)(const void *)data, n);
    else if (x.dtype == F32) add_floats(exact_sum, (const float *)(const void *)data, n);
    else for (int64_t done = 0, part; done < n; done += part) {
        float wide[4096];
        part = n - done < 4096 ? n - done : 4096;
        convert_numbers(wide, F32, data + (size_t)done * dtype_size(x.dtype), x.dtype, part);
        add_floats(exact_sum, wide, part);
    }
    carry(exact_sum);
}

/* The sum grows by the squares of all elements of x. */
void exact_add_squares(struct exact_sum *exact_sum, struct tensor x)
{
    const int64_t n = tensor_count(x), blocks = (n + AT_ONCE - 1) / AT_ONCE;

    #pragma omp parallel if (blocks > 8)
    {
        /* Each thread has a sum of its own; exact sums can be added in any order. */
        struct exact_sum own = { .infinite = 0 };
        #pragma omp for schedule(static)
        for (int64_t b = 0; b < blocks; b++)
            /* Blocks of AT_ONCE numbers keep the sums of an exponent below 2^63. */
            add_block(&own, x, b * AT_ONCE, n - b * AT_ONCE < AT_ONCE ? n - b * AT_ONCE : AT_ONCE);
#pragma omp critical (exact_sum)
        exact_add(exact_sum, &own);
    }
}

/* ---- values ------------------------------------------------------------------------------------------------------ */

/* The highest limb and the two below have more bits than fp64.  A last bit of 1 stands for all limbs below, so one
 * conversion rounds the sum. */
double exact_value(const struct exact_sum *exact_sum)
{
    const int64_t *const limb = exact_sum->limb;
    int top = EXACT_LIMBS - 1;
    bool more = false;
    while (top > 2 && limb[top] == 0) top--;
    for (int i = 0; i < top - 2; i++) more |= limb[i] != 0;
    fixed_bits m = 0;
    for (int i = top; i >= top - 2; i--) m = m << LIMB_BITS | (uint64_t)limb[i];
    if (exact_sum->infinite != 0) return exact_sum->infinite;
    return ldexp((double)(m | more), LIMB_BITS * (top - 2) - LOWEST);
}

/* The last number carries terms that are not finite. */
void exact_to_numbers(const struct exact_sum *exact_sum, double number[])
{
    for (int i = 0; i < EXACT_LIMBS; i++) number[i] = (double)exact_sum->limb[i];
    number[EXACT_LIMBS - 1] += exact_sum->infinite;
}

/* The numbers are sums over devices of what exact_to_numbers gave. */
void exact_from_numbers(struct exact_sum *exact_sum, const double number[])
{
    /* A last number that is not finite carried the infinities; the limb behind it is lost. */
    const double last = number[EXACT_LIMBS - 1];
    exact_sum->infinite = isfinite(last) ? 0 : last;
    for (int i = 0; i < EXACT_LIMBS; i++)
        exact_sum->limb[i] = i == EXACT_LIMBS - 1 && !isfinite(last) ? 0 : (int64_t)number[i];
    carry(exact_sum);
}
