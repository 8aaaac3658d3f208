/* precision.h -- lesson 14: what precision.c defines.  README.md explains it.
 *
 * A number of 16 bits lies in a uint16_t: bit 15 is its sign, then come the
 * bits of its exponent, and those of its fraction.
 *
 *            exponent   fraction   largest    smallest normal   smallest
 *     bf16   8 bits     7 bits     3.39e38    2^-126            2^-133
 *     fp16   5 bits     10 bits    65504      2^-14             2^-24
 *
 * The judge calls these functions through calls.c (`orrery learn`).
 */
#ifndef PRECISION_H
#define PRECISION_H

#include "course.h"

/* The 32 bits of a float, and back: sign, 8 bits of exponent, 23 of
 * fraction. */
static inline uint32_t bits_of(float x)
{
    uint32_t b;
    memcpy(&b, &x, sizeof b);
    return b;
}

static inline float float_of(uint32_t b)
{
    float x;
    memcpy(&x, &b, sizeof x);
    return x;
}

/** Numbers of 16 bits as floats.  Nothing is rounded: every one of them is a
 *  float. */
static inline float widen_bf16(uint16_t h)
{
    return float_of((uint32_t)h << 16);
}
static inline float widen_fp16(uint16_t h)
{
    const int exponent = h >> 10 & 31, fraction = h & 1023;
    const float size = exponent == 31 ? (fraction ? NAN : INFINITY)
                     : exponent == 0 ? ldexpf((float)fraction, -24)
                     : ldexpf((float)(1024 + fraction), exponent - 25);
    return h >> 15 ? -size : size;
}

/* ---- rounding ----------------------------------------------------------- */

/** The nearest number of 16 bits; in the middle between two, that whose last
 *  bit is 0.  What is nearer to the number that would follow the largest one
 *  becomes infinity, and so does its middle.  The sign stays, also that of 0.
 *  Any NaN becomes a NaN, of any bits. */
uint16_t narrow_bf16(float x);
uint16_t narrow_fp16(float x);

/* ---- a sum whose messages have 16 bits ---------------------------------- */

/**
 * On every device x[k] becomes the sum of all devices' x[k], n numbers in
 * {FORMAT: bf16|fp16}.  They are added as floats, from the first device to the
 * last, and their sum is rounded once.  Block b of x, block_of(n, W, b), is
 * added by device {OWNER: b|W-1-b}: the others send it theirs, and it sends
 * the sum to the others.
 *
 * Only messages, no collective: a device sends at most 2 (W-1), and no byte
 * twice.  Of an empty block a message of no bytes may be sent or not.
 * Allocates at most 6 ceil(n/W) bytes: room for a block of floats, and for one
 * of 16 bits.
 */
void half_all_reduce(const struct group *, uint16_t *x, int64_t n);

/* ---- a step ------------------------------------------------------------- */

/* SGD with momentum: v = beta v + gradient; master = master - rate v.  All in
 * float. */
struct optimizer { float rate, beta; };

/* The factor of the loss, a power of two; steps since it was changed; after
 * how many it grows. */
struct scaler { float scale; int good, grow_after; };

struct half_model {
    int64_t n;
    /* fp32: the weights that the optimizer changes, and their momentum */
    float *master, *v;
    /* fp16: those that forward and backward use */
    uint16_t *weights;
};

/**
 * A step of all devices, which hold the same model.
 * @param gradient this device's, n numbers in fp16: of its loss times
 * scaler->scale, with `weights`.
 *
 * The devices' gradients are added as floats, by one all_reduce.  If the sum
 * is finite everywhere, the optimizer takes each number of it, divided by
 * (scale W), and weights become those of master, rounded.  If not, nothing of
 * the model changes.  Then the scale, for the next step:
 *     after a step that was left out, scale is divided by {BACK: 2|4}, but is
 *     at least 1; good = 0;
 *     else good grows by 1; if it has reached grow_after, scale is doubled,
 *     but is at most 2^24, and good = 0.
 * Allocates at most 4 n bytes.
 * @return 1 if the model was changed, else 0: the same on all devices.
 */
int mixed_step(const struct group *, const struct optimizer *, struct scaler *,
               struct half_model *, const uint16_t *gradient);

#endif
