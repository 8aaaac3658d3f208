/* precision.c -- lesson 14: numbers of 16 bits.  README.md says what to do,
 * precision.h what each function must do. */
#include "precision.h"

/*SOLUTION*/
/* b without its last bits: to nearest, ties to even.  A carry into the
 * exponent is right: the next number begins there. */
static uint32_t drop(uint32_t b, int bits)
{
    const uint32_t kept = b >> bits, rest = b & ((1u << bits) - 1), half = 1u << (bits - 1);
    return kept + (rest > half || (rest == half && kept % 2 == 1));
}
/*SKELETON
// a function that drops so many bits of a uint32_t, and rounds, serves both formats; it must be static
*/

uint16_t narrow_bf16(float x)
{
/*SOLUTION*/
    if (x != x) return 0x7fc0;
    return (uint16_t)drop(bits_of(x), 16);
/*SKELETON
    // your code
    return 1;
*/
}

uint16_t narrow_fp16(float x)
{
/*SOLUTION*/
    const uint32_t size = bits_of(x) & 0x7fffffff, sign = bits_of(x) >> 16 & 0x8000;
    if (x != x) return 0x7e00;
    if (fabsf(x) >= 65520) return (uint16_t)(sign + 0x7c00);
    if (fabsf(x) < 0x1p-14f) return (uint16_t)(sign + (uint32_t)rintf(fabsf(x) * 0x1p24f));
    return (uint16_t)(sign + drop(size - (112u << 23), 13));
/*SKELETON
    // your code: the exponent's offset is 127 in a float, and 15 here; numbers below 2^-14 are another case
    return 1;
*/
}

/*SOLUTION*/
static float widen(uint16_t h) { return /*FORMAT*/widen_bf16(h)/*|widen_fp16(h)*/; }
static uint16_t narrow(float x) { return /*FORMAT*/narrow_bf16(x)/*|narrow_fp16(x)*/; }

/* The block that device d adds. */
static struct block block_of_device(const struct group *g, int64_t n, int d)
{
    return block_of(n, g->size, /*OWNER*/d/*|g->size - 1 - d*/);
}
/*SKELETON
// which block does device d add?
*/

void half_all_reduce(const struct group *g, uint16_t *x, int64_t n)
{
/*SOLUTION*/
    const struct block own = block_of_device(g, n, g->rank);
    float *sum = allocate(sizeof *sum * (size_t)own.count);
    uint16_t *in = allocate(sizeof *in * (size_t)own.count);
    struct message out[64];
    for (int d = 0; d < g->size; d++) {
        const struct block b = block_of_device(g, n, d);
        if (d != g->rank) out[d] = message_send(g, d, x + b.start, sizeof *x * (size_t)b.count);
    }
    for (int64_t k = 0; k < own.count; k++) sum[k] = 0;
    for (int d = 0; d < g->size; d++) {
        if (d != g->rank) message_wait(message_receive(g, d, in, sizeof *in * (size_t)own.count));
        for (int64_t k = 0; k < own.count; k++) sum[k] += widen(d == g->rank ? x[own.start + k] : in[k]);
    }
    for (int d = 0; d < g->size; d++)
        if (d != g->rank) message_wait(out[d]);
    for (int64_t k = 0; k < own.count; k++) x[own.start + k] = narrow(sum[k]);
    for (int d = 0; d < g->size; d++)
        if (d != g->rank) out[d] = message_send(g, d, x + own.start, sizeof *x * (size_t)own.count);
    for (int d = 0; d < g->size; d++) {
        const struct block b = block_of_device(g, n, d);
        if (d != g->rank) message_wait(message_receive(g, d, x + b.start, sizeof *x * (size_t)b.count));
    }
    for (int d = 0; d < g->size; d++)
        if (d != g->rank) message_wait(out[d]);
    release(in);
    release(sum);
/*SKELETON
    // your code: blocks to those who add them, sums, sums to all
*/
}

int mixed_step(const struct group *g, const struct optimizer *o,
               struct scaler *s, struct half_model *m, const uint16_t *gradient)
{
/*SOLUTION*/
    float *sum = allocate(sizeof *sum * (size_t)m->n);
    int finite = 1;
    for (int64_t k = 0; k < m->n; k++) sum[k] = widen_fp16(gradient[k]);
    all_reduce(g, sum, m->n);
    for (int64_t k = 0; k < m->n; k++) finite &= fabsf(sum[k]) < INFINITY;
    for (int64_t k = 0; finite && k < m->n; k++) {
        m->v[k] = o->beta * m->v[k] + sum[k] / (s->scale * (float)g->size);
        m->master[k] = m->master[k] - o->rate * m->v[k];
        m->weights[k] = narrow_fp16(m->master[k]);
    }
    release(sum);
    if (!finite) {
        s->scale = fmaxf(s->scale / /*BACK*/2/*|4*/, 1);
        s->good = 0;
    } else if (++s->good == s->grow_after) {
        s->scale = fminf(s->scale * 2, 0x1p24f);
        s->good = 0;
    }
    return finite;
/*SKELETON
    // your code: the sum, what the optimizer makes of it, the scale of the next step
    return -1;
*/
}
