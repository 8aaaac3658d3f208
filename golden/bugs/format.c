/* format.c -- number formats, and how sums are added up. */
#include "program.h"
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static float to_bf16(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, 4);
    if (isfinite(x)) bits += 0x7fff + (bits >> 16 & 1), bits &= 0xffff0000u;
    memcpy(&x, &bits, 4);
    return x;
}

static float to_fp16(float x)
{
    int exponent;
    if (x == 0 || !isfinite(x)) return x;
    frexpf(x, &exponent);                               /* |x| in [2^(exponent-1), 2^exponent) */
    const int step = exponent < -13 ? -24 : exponent - 11;
    const float y = ldexpf(nearbyintf(ldexpf(x, -step)), step);
    return fabsf(y) > 65504 ? copysignf(INFINITY, x) : y;
}

float round_to(enum format f, float x) { return f == BF16 ? to_bf16(x) : f == FP16 ? to_fp16(x) : x; }
float stored(float x) { return round_to(set.format, x); }
float between(float x) { return set.steps ? stored(x) : x; }

static float sum_of(float *x, int n)
{
    float sum = 0, lane[8] = { 0 };
    if (set.order == PAIRWISE && n > 2) return sum_of(x, n / 2) + sum_of(x + n / 2, n - n / 2);
    if (set.order == BLOCKED) {
        for (int i = 0; i < n; i++) lane[i % 8] += x[i];
        for (int i = 0; i < 8; i++) sum += lane[i];
        return sum;
    }
    for (int i = 0; i < n; i++) sum += x[set.order == REVERSED ? n - 1 - i : i];
    return sum;
}

/* The same numbers have the same order on every rank: copies of what all ranks compute are equal; unless no two sums
 * have the same. */
static void shuffle(float *x, int n)
{
    static unsigned long long sums;
    unsigned long long state = set.seed * 2 + 1;
    if (set.order == APART) state += 2 * ++sums;
    for (int i = 0; i < n; i++) {
        uint32_t bits;
        memcpy(&bits, &x[i], 4);
        state = (state ^ bits) * 6364136223846793005ull;
    }
    for (int i = n - 1; i > 0; i--) {
        state = state * 6364136223846793005ull + 1442695040888963407ull;
        const int k = (int)((state >> 33) % (unsigned)(i + 1));
        const float swap = x[i];
        x[i] = x[k], x[k] = swap;
    }
}

float add_up(float *x, int n)
{
    if (set.order == SHUFFLED || set.order == APART) shuffle(x, n);
    float sum = 0;
    for (int p = 0; p < set.parts; p++) {
        const int from = p * n / set.parts, to = (p + 1) * n / set.parts;
        const float part = sum_of(x + from, to - from);
        sum = set.parts > 1 ? stored(sum + stored(part)) : part;
    }
    return sum;
}

float add_in_one_part(float *x, int n)
{
    const int parts = set.parts;
    set.parts = 1;
    const float sum = add_up(x, n);
    set.parts = parts;
    return sum;
}
