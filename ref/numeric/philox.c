/* philox.c -- random numbers as functions of seed, stream and index.
 *
 * Initial weights, dropout, batches and sampling draw here, on one device and on many.  No function here can fail.
 * Files of ref/model/, bench/, schemes/, verify/ and other rooms call these functions.
 */
#include "ref/numeric/philox.h"

/* Ten rounds, as the paper recommends; the key changes from round to round. */
void philox4x32(const uint32_t counter[4], const uint32_t key[2], uint32_t out[4])
{
    uint32_t c0 = counter[0], c1 = counter[1], c2 = counter[2], c3 = counter[3];
    uint32_t k0 = key[0], k1 = key[1];
    for (int round = 0; round < 10; round++) {
        /* Two words are multiplied to 64 bits; the high halves meet the other two words and the key. */
        uint64_t p0 = (uint64_t)0xD2511F53u * c0, p1 = (uint64_t)0xCD9E8D57u * c2;
        c0 = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
        c1 = (uint32_t)p1;
        c2 = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
        c3 = (uint32_t)p0;
        k0 += 0x9E3779B9u;                  /* golden ratio */
        k1 += 0xBB67AE85u;                  /* sqrt(3) - 1 */
    }
    out[0] = c0, out[1] = c1, out[2] = c2, out[3] = c3;
}

uint64_t random_stream(const char *name)
{
    /* The hash is FNV-1a over the bytes of the name. */
    uint64_t h = 0xcbf29ce484222325u;
    for (; *name; name++) h = (h ^ (unsigned char)*name) * 0x100000001b3u;
    return h;
}

static void block(uint64_t seed, uint64_t stream, uint64_t index, uint32_t out[4])
{
    /* Index and stream are the counter, the seed is the key, so no number needs those before it. */
    const uint32_t counter[4] = { (uint32_t)index, (uint32_t)(index >> 32), (uint32_t)stream,
                                  (uint32_t)(stream >> 32) };
    const uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
    philox4x32(counter, key, out);
}

/* n blocks of four words, in a loop that becomes vector instructions. */
void random_words(uint32_t *restrict w, int64_t n, uint64_t seed, uint64_t stream, uint64_t first)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t one[4];
        block(seed, stream, first + (uint64_t)i, one);
        for (int k = 0; k < 4; k++) w[4 * i + k] = one[k];
    }
}

double random_uniform(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t w[4];
    block(seed, stream, index, w);
    /* fp32 holds 24 bits exactly, so random_uniforms gives the same numbers. */
    return (w[0] >> 8) * 0x1p-24;
}

void random_uniforms(float *restrict x, int64_t n, uint64_t seed, uint64_t stream, uint64_t first)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t w[4];
        block(seed, stream, first + (uint64_t)i, w);
        x[i] = (float)(int32_t)(w[0] >> 8) * 0x1p-24f;
    }
}

/* Each half is uniform on 0..65535: mean 65535/2, variance (65536^2 - 1)/12.  Eight of them: scale 1/sqrt(8 var). */
static inline double normal_of(const uint32_t w[4])
{
    int32_t sum = 0;
    for (int i = 0; i < 4; i++) sum += (int32_t)((w[i] & 0xffff) + (w[i] >> 16));
    return (double)(2 * sum - 8 * 65535) * 0x1.3988e1412ed76p-17;
}

double random_normal(uint64_t seed, uint64_t stream, uint64_t index)
{
    uint32_t w[4];
    block(seed, stream, index, w);
    return normal_of(w);
}

void random_normals(double *restrict x, int64_t n, uint64_t seed, uint64_t stream, uint64_t first)
{
    for (int64_t i = 0; i < n; i++) {
        uint32_t w[4];
        block(seed, stream, first + (uint64_t)i, w);
        x[i] = normal_of(w);
    }
}
