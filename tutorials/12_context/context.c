/* context.c -- lesson 12: context parallelism.  README.md says what to do,
 * context.h what each function must do. */
#include "context.h"

int64_t tokens_of(int64_t S, int W, int r)
{
/*SOLUTION*/
    return /*CUT*/block_of(S, 2 * W, r).count + block_of(S, 2 * W, 2 * W - 1 - r).count/*|(S - r + W - 1) / W*/;
/*SKELETON
    // your code
    return 0;
*/
}

int64_t token_of(int64_t S, int W, int r, int64_t i)
{
/*SOLUTION*/
    /*CUT*/const struct block early = block_of(S, 2 * W, r), late = block_of(S, 2 * W, 2 * W - 1 - r);
    return i < early.count ? early.start + i : late.start + i - early.count;/*|return r + i * W;*/
/*SKELETON
    // your code
    return 0;
*/
}

void attend(int64_t S, int W, int r, int s, const float *q, const float *k,
            const float *v, int64_t A, int64_t stride, struct sofar *so)
{
/*SOLUTION*/
    double pairs = 0;
    for (int64_t i = 0; i < tokens_of(S, W, r); i++)
        for (int64_t j = 0; j < tokens_of(S, W, s); j++) {
            if (token_of(S, W, s, j) > token_of(S, W, r, i)) break;
            float score = 0;
            for (int64_t a = 0; a < A; a++) score += q[i * stride + a] * k[j * stride + a];
            score /= sqrtf((float)A);
            const float max = fmaxf(so->max[i], score), old = expf(so->max[i] - max), new = expf(score - max);
            so->sum[i] = so->sum[i] * old + new;
            for (int64_t a = 0; a < A; a++)
                so->out[i * stride + a] = so->out[i * stride + a] * old + new * v[j * stride + a];
            so->max[i] = max;
            pairs++;
        }
    work(4.0 * (double)A * pairs, 0);
/*SKELETON
    // your code: what happens to the sums so far, if a larger score comes?
*/
}

/*SOLUTION*/
/* Queries that have met nobody. */
static void begin(struct sofar *so, int64_t n, int64_t A, int64_t stride)
{
    for (int64_t i = 0; i < n; i++) {
        so->max[i] = -INFINITY, so->sum[i] = 0;
        for (int64_t a = 0; a < A; a++) so->out[i * stride + a] = 0;
    }
}

/* Queries that have met all. */
static void finish(struct sofar *so, int64_t n, int64_t A, int64_t stride)
{
    for (int64_t i = 0; i < n; i++)
        for (int64_t a = 0; a < A; a++) so->out[i * stride + a] /= so->sum[i];
}
/*SKELETON
// functions of your own must be static: what is to be done before the first key, and after the last?
*/

void ring_attention(const struct group *g, const float *q, const float *k,
                    const float *v, int64_t S, int64_t A, float *out)
{
/*SOLUTION*/
    const int W = g->size, r = g->rank, to = mod(r /*RING*/+ 1/*|- 1*/, W), from = mod(r /*RING*/- 1/*|+ 1*/, W);
    const int64_t n = tokens_of(S, W, r), block = (S + 2 * W - 1) / (2 * W) * 2 * A;
    float *more = allocate(sizeof *more * (size_t)(2 * n)), *room = allocate(sizeof *room * (size_t)(4 * block));
    struct sofar so = { more, more + n, out };
    begin(&so, n, A, A);
    for (int step = 0; step < W; step++) {
        const int s = mod(r /*RING*/-/*|+*/ step, W), next = mod(r /*RING*/-/*|+*/ (step + 1), W);
        const size_t leaves = sizeof *k * (size_t)(tokens_of(S, W, s) * A);
        const size_t comes = sizeof *k * (size_t)(tokens_of(S, W, next) * A);
        float *place = room + step % 2 * 2 * block;
        struct message m[4];
        if (step < W - 1) {
            m[0] = message_send(g, to, k, leaves), m[1] = message_send(g, to, v, leaves);
            m[2] = message_receive(g, from, place, comes), m[3] = message_receive(g, from, place + block, comes);
        }
        attend(S, W, r, s, q, k, v, A, A, &so);
        for (int i = 0; step < W - 1 && i < 4; i++) message_wait(m[i]);
        k = place, v = place + block;
    }
    finish(&so, n, A, A);
    release(room);
    release(more);
/*SKELETON
    // your code: start to send and to receive, compute with what is there, then wait
*/
}

/*SOLUTION*/
/* Rows of all heads, from or to blocks for each device: its heads of all these
 * rows. */
static void pack(int W, float *rows, float *blocks, int64_t n, int64_t heads,
                 int64_t A, int back)
{
    for (int d = 0; d < W; d++) {
        const struct block own = block_of(heads, W, d);
        const size_t bytes = sizeof *rows * (size_t)(own.count * A);
        for (int64_t t = 0; t < n; t++, blocks += own.count * A) {
            float *at = rows + (t * heads + own.start) * A;
            memcpy(back ? at : blocks, back ? blocks : at, bytes);
        }
    }
}

static void counts(const struct group *g, int64_t S, int64_t heads, int64_t A,
                   int64_t *there, int64_t *here)
{
    for (int d = 0; d < g->size; d++) {
        there[d] = block_of(S, g->size, g->rank).count * block_of(heads, g->size, d).count * A;
        here[d] = block_of(S, g->size, d).count * block_of(heads, g->size, g->rank).count * A;
    }
}
/*SKELETON
// an all_to_all gives device d one run of memory: which numbers of a row belong in it?
*/

void ulysses_attention(const struct group *g, const float *q, const float *k,
                       const float *v, int64_t S, int64_t heads, int64_t A,
                       float *out)
{
/*SOLUTION*/
    const int64_t n = block_of(S, g->size, g->rank).count, own = block_of(heads, g->size, g->rank).count;
    const float *const whole[3] = { q, k, v };
    int64_t there[8], here[8];
    float *blocks = allocate(sizeof *blocks * (size_t)(n * heads * A));
    float *sums = allocate(sizeof *sums * (size_t)(2 * S));
    float *all = allocate(sizeof *all * (size_t)(4 * S * own * A)), *part[4];
    for (int i = 0; i < 4; i++) part[i] = all + i * S * own * A;
    counts(g, S, heads, A, there, here);
    for (int i = 0; i < 3; i++) {
        pack(g->size, (float *)(uintptr_t)whole[i], blocks, n, heads, A, 0);
        all_to_all(g, blocks, there, part[i], here);
    }
    for (int64_t h = 0; h < own; h++) {
        struct sofar so = { sums, sums + S, part[3] + h * A };
        begin(&so, S, A, own * A);
        attend(S, 1, 0, 0, part[0] + h * A, part[1] + h * A, part[2] + h * A, A, own * A, &so);
        finish(&so, S, A, own * A);
    }
    all_to_all(g, part[3], here, blocks, there);
    pack(g->size, out, blocks, n, heads, A, 1);
    release(all), release(sums), release(blocks);
/*SKELETON
    // your code: there, all heads of this device, and back
*/
}
