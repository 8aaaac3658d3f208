/* The AdamW of GaLore's 8-bit optimizer: moments are 8-bit codes (ref/numeric/dynamic_code.h).
 *
 * Source   galore-torch 1.0, galore_torch/adamw8bit.py, which calls bitsandbytes 0.47.0: optim/optimizer.py (tensors of
 *          fewer than 4096 elements keep fp32 numbers), csrc/kernels.cu, kOptimizerStatic8bit2StateBlockwise and
 *          kOptimizer32bit2State
 * Step t   m = beta1 m + (1 - beta1) g,  v = beta2 v + (1 - beta2) g g
 *          N = m / (sqrt(v) + eps sqrt(1 - beta2^t))
 *          W = W - rate N,  W = W - lr decay W,  rate = lr sqrt(1 - beta2^t) / (1 - beta1^t)
 *          m, v become the values of their codes: N has what they were before
 *          Of a projected matrix g is R; N goes on to galore_step.c.  Betas are fp32 numbers; a product and a sum are
 *          rounded once, as a GPU does.
 *          A gradient that is not finite makes its moments 0 and leaves its weight, where moments are codes
 * Memory   a byte a number and a factor a block, dynamic_code.h; factors have the masters' format.  Of fewer than
 *          GALORE_CODED_FROM numbers, the numbers.  Both are bytes, U8, in the state's tensor
 * Errors   none
 */
#include "ref/numeric/dynamic_code.h"
#include "ref/ops/real.h"
#include "ref/ops/reduce.h"
#include "ref/optim/table.h"
#include <string.h>

struct coded {
    real beta1, beta2, new1, new2, eps, scale;
    bool codes;
    struct dynamic_table first, second;
};

static struct coded coded_of(int64_t n, struct step step, real scale)
{
    const struct hyperparameters *h = step.hyper;
    const float beta1 = (float)h->beta1, beta2 = (float)h->beta2;
    const bool corrects = convention(&h->as, BIAS_CORRECTION) == CORRECTION_YES;
    /* N uses eps sqrt(1 - beta2^t): bitsandbytes puts the correction of v into eps and into the rate. */
    const double left = corrects ? 1 - pow(beta2, (double)step.t) : 1;
    return (struct coded){ .beta1 = beta1, .beta2 = beta2, .new1 = 1 - beta1, .new2 = 1 - beta2,
                           .eps = (real)((float)h->eps * sqrt(left)), .scale = scale, .codes = n >= GALORE_CODED_FROM,
                           .first = dynamic_table_of(true), .second = dynamic_table_of(false) };
}

/* A moment of n numbers as it is held: codes, and factors of blocks; or, without codes, the numbers. */
struct held { const struct dynamic_table *table; uint8_t *code; real *factor, *number; };

static struct held held_of(const struct dynamic_table *table, bool codes, struct tensor state, int64_t n)
{
    uint8_t *const at = state.data;
    if (!codes) return (struct held){ .number = state.data };
    return (struct held){ .table = table, .code = at, .factor = (real *)(void *)(at + dynamic_factors_at(n)) };
}

/* The n numbers of the block that begins at `at`. */
static void read_block(const struct held *held, int64_t at, int64_t n, real *x)
{
    for (int64_t i = 0; i < n; i++)
        x[i] = held->table ? held->table->value[held->code[at + i]] * held->factor[at / DYNAMIC_BLOCK]
            : held->number[at + i];
}

static void write_block(const struct held *held, int64_t at, int64_t n, const real *x)
{
    real most = 0;
    if (held->table == NULL) {
        memcpy(held->number + at, x, (size_t)n * sizeof *x);
        return;
    }
    /* A block's factor is its largest magnitude, so that quotients lie in -1 .. 1. */
    for (int64_t i = 0; i < n; i++) most = REAL_FN(fmax)(most, REAL_FN(fabs)(x[i]));
    for (int64_t i = 0; i < n; i++) held->code[at + i] = dynamic_code(held->table, x[i], x[i] / most);
    held->factor[at / DYNAMIC_BLOCK] = most;
}

/* Both moments of a tensor of n numbers. */
struct moments { struct held m, v; };

static struct moments moments_of(const struct coded *coded, const struct tensor state[], int64_t n)
{
    return (struct moments){ held_of(&coded->first, coded->codes, state[LOW_RANK_EXP_AVG], n),
                             held_of(&coded->second, coded->codes, state[LOW_RANK_EXP_AVG_SQ], n) };
}

/* N of a block of n numbers at `at`, and the moments after it.  N may be G. */
static void block_step(const struct coded *coded, real *N, const real *G, int64_t n,
                       const struct moments *held, int64_t at)
{
    real m[DYNAMIC_BLOCK], v[DYNAMIC_BLOCK];
    read_block(&held->m, at, n, m), read_block(&held->v, at, n, v);
    for (int64_t i = 0; i < n; i++) {
        const real g = G[i] * coded->scale, part = coded->new2 * g;
        /* With codes a gradient that is not finite gives moments and a step of 0. */
        const bool dropped = coded->codes && !isfinite(g);
        /* fma rounds a product and a sum once, as in the released kernel; N has m and v before they are coded. */
        m[i] = dropped ? 0 : REAL_FN(fma)(m[i], coded->beta1, coded->new1 * g);
        v[i] = dropped ? 0 : REAL_FN(fma)(v[i], coded->beta2, part * g);
        N[i] = dropped ? 0 : m[i] / (REAL_FN(sqrt)(v[i]) + coded->eps);
    }
    write_block(&held->m, at, n, m), write_block(&held->v, at, n, v);
}

static inline int64_t length_at(int64_t at, int64_t n) { return n - at < DYNAMIC_BLOCK ? n - at : DYNAMIC_BLOCK; }

void FN(galore_coded_read)(struct tensor x, struct tensor state, int k)
{
    const int64_t n = tensor_count(x);
    const struct dynamic_table t = dynamic_table_of(k == LOW_RANK_EXP_AVG);
    const struct held h = held_of(&t, n >= GALORE_CODED_FROM, state, n);
    for (int64_t at = 0; at < n; at += DYNAMIC_BLOCK) read_block(&h, at, length_at(at, n), DATA(x) + at);
}

void FN(galore_coded_moments)(struct tensor R, const struct tensor state[], struct step s)
{
    const int64_t n = tensor_count(R);
    const struct coded c = coded_of(n, s, 1);
    const struct moments held = moments_of(&c, state, n);
    real *N = DATA(R);

    #pragma omp parallel for schedule(static) if (parallel : n > PARALLEL_FROM)
    for (int64_t at = 0; at < n; at += DYNAMIC_BLOCK) block_step(&c, N + at, N + at, length_at(at, n), &held, at);
}

void FN(galore_coded_step)(struct tensor w, struct tensor g, const struct tensor state[], struct step s)
{
    const int64_t n = tensor_count(w);
    const struct coded c = coded_of(n, s, (real)s.gradient_scale);
    const struct moments held = moments_of(&c, state, n);
    const real *G = CONST_DATA(g), rate = (real)galore_rate(s), lost = (real)(s.lr * s.weight_decay);
    real *W = DATA(w);

    #pragma omp parallel for schedule(static) if (parallel : n > PARALLEL_FROM)
    for (int64_t at = 0; at < n; at += DYNAMIC_BLOCK) {
        real N[DYNAMIC_BLOCK];
        block_step(&c, N, G + at, length_at(at, n), &held, at);
        for (int64_t i = 0; i < length_at(at, n); i++) {
            /* Such an element does not move, and does not decay. */
            if (c.codes && !isfinite(G[at + i])) continue;
            W[at + i] -= rate * N[i];
            W[at + i] -= lost * W[at + i];
        }
    }
}
