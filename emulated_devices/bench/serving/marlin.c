/* marlin.c -- MARLIN's layout of 4-bit weights, and products by workers with runs of tiles.  marlin_claims.c calls.
 * Errors: ERR_USAGE of a shape, ERR_MEMORY. */
#include "emulated_devices/bench/serving/marlin.h"
#include "ref/numeric/float16.h"
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 16, BLOCK = 64, BLOCK_WORDS = 128, PER_WORD = 8, HALF = 8, TOP = 15 };

static float widen(uint16_t h) { return float_of_bits(fp16_widen(h)); }
static uint16_t narrow(float x) { return fp16_narrow(float_bits(x)); }

/* ---- the layout -------------------------------------------------------------------------------------------------- */

/* Place b of a word has fragment fragment_at[b]; fragment p is at place place_of[p]. */
static const int place_of[PER_WORD] = { 0, 4, 1, 5, 2, 6, 3, 7 };

/* The word of a weight, and its place in it: the layout's formula, solved for them. */
static int64_t word_of(const struct marlin *m, int64_t k, int64_t n, int *place)
{
    const int64_t row = k % ROWS, column = n % BLOCK, j = column / 16;
    const int64_t lane = 4 * (column % 8) + row % 8 / 2;
    const int fragment = (int)(4 * (column % 16 / 8) + 2 * (row / 8) + row % 2);
    *place = place_of[fragment];
    return k / ROWS * (2 * m->N) + n / BLOCK * BLOCK_WORDS + 4 * lane + j;
}

/* The place of a column's factor.  Groups: place 8 i + j of a block has column i + 8 j.  One group: of each 32 columns,
 * place 8 i + j has 2 i + 0 1 8 9 16 17 24 25 [j]. */
static int64_t scale_column(const struct marlin *m, int64_t n)
{
    const int64_t in = n % BLOCK, of = n % 32;
    if (m->group < m->K) return n - in + 8 * (in % 8) + in / 8;
    return n - of + 8 * (of % 8 / 2) + 2 * (of / 8) + of % 2;
}

int marlin_code(const struct marlin *m, int64_t k, int64_t n)
{
    int place;
    const int64_t word = word_of(m, k, n, &place);
    return (int)(m->B[word] >> 4 * place & TOP);
}

float marlin_scale(const struct marlin *m, int64_t k, int64_t n)
{
    return widen(m->scale[k / m->group * m->N + scale_column(m, n)]);
}

float marlin_weight(const struct marlin *m, int64_t k, int64_t n)
{
    return widen(narrow((float)(marlin_code(m, k, n) - HALF) * marlin_scale(m, k, n)));
}

int64_t marlin_bytes(const struct marlin *m)
{
    return m->K * m->N / 2 + m->K / m->group * m->N * (int64_t)sizeof *m->scale;
}

/* ---- packing ----------------------------------------------------------------------------------------------------- */

static int quantise(float w, float scale)
{
    const double q = scale == 0 ? HALF : rint((double)w / scale) + HALF;
    return q < 0 ? 0 : q > TOP ? TOP : (int)q;
}

enum error_code marlin_pack(struct marlin *m, const float *w, const float *scale, int64_t K, int64_t N, int64_t group,
                            struct error *err)
{
    *m = (struct marlin){ .K = K, .N = N, .group = group };
    if (K < 1 || N < 1 || K % MARLIN_K != 0 || N % MARLIN_N != 0 || (group != MARLIN_GROUP && group != K))
        return fail(err, ERR_USAGE, "%lld x %lld weights in groups of %lld: must be multiples of %d and %d, in groups "
                    "of %d or of all rows", (long long)K, (long long)N, (long long)group, MARLIN_K, MARLIN_N,
                    MARLIN_GROUP);
    m->B = calloc((size_t)(K / ROWS * 2 * N), sizeof *m->B);
    m->scale = malloc((size_t)(K / group * N) * sizeof *m->scale);
    if (m->B == NULL || m->scale == NULL) {
        marlin_free(m);
        return fail(err, ERR_MEMORY, "no memory for %lld x %lld weights", (long long)K, (long long)N);
    }
    for (int64_t g = 0; g < K / group; g++)
        for (int64_t n = 0; n < N; n++) m->scale[g * N + scale_column(m, n)] = narrow(scale[g * N + n]);
    for (int64_t k = 0; k < K; k++)
        for (int64_t n = 0; n < N; n++) {
            int place;
            const int64_t word = word_of(m, k, n, &place);
            m->B[word] |= (uint32_t)quantise(w[k * N + n], marlin_scale(m, k, n)) << 4 * place;
        }
    return OK;
}

void marlin_free(struct marlin *m)
{
    free(m->B), free(m->scale);
    *m = (struct marlin){ .B = NULL };
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

struct marlin_run marlin_run_of(const struct marlin *m, int64_t workers, int64_t worker)
{
    const int64_t tiles = m->K / MARLIN_TILE * (m->N / MARLIN_TILE), first = tiles * worker / workers;
    return (struct marlin_run){ first, tiles * (worker + 1) / workers - first };
}

/* Rows of one column of tiles, which a worker multiplies at once. */
struct marlin_part { int64_t column, first, count; };

static int64_t read_tile(const struct marlin *m, int64_t row, int64_t column, float *w)
{
    for (int64_t k = 0; k < MARLIN_TILE; k++)
        for (int64_t n = 0; n < MARLIN_TILE; n++)
            w[k * MARLIN_TILE + n] = marlin_weight(m, row * MARLIN_TILE + k, column * MARLIN_TILE + n);
    /* Its integers; its factors, those of one group for all only with the first row. */
    return MARLIN_TILE * MARLIN_TILE / 2 + (m->group == MARLIN_GROUP || row == 0 ? MARLIN_TILE * 2 : 0);
}

/* sum [M, 128] of a part, in the order of k. */
static void multiply_part(const struct marlin *m, const struct marlin_part *part, const float *x, int64_t M, float *w,
                          float *sum, struct marlin_counts *counts)
{
    memset(sum, 0, (size_t)(M * MARLIN_TILE) * sizeof *sum);
    for (int64_t row = part->first; row < part->first + part->count; row++) {
        counts->bytes += read_tile(m, row, part->column, w);
        for (int64_t i = 0; i < M; i++)
            for (int64_t k = 0; k < MARLIN_TILE; k++) {
                const float one = x[i * m->K + row * MARLIN_TILE + k];
                for (int64_t n = 0; n < MARLIN_TILE; n++)
                    sum[i * MARLIN_TILE + n] = fmaf(one, w[k * MARLIN_TILE + n], sum[i * MARLIN_TILE + n]);
            }
    }
}

/* The first part of a column is the output; the next ones are added to it. */
static void add_part(const struct marlin *m, const struct marlin_part *part, const float *sum, int64_t M, float *out,
                     struct marlin_counts *counts)
{
    counts->additions += part->first > 0;
    for (int64_t i = 0; i < M; i++)
        for (int64_t n = 0; n < MARLIN_TILE; n++) {
            float *const to = &out[i * m->N + part->column * MARLIN_TILE + n];
            *to = part->first > 0 ? *to + sum[i * MARLIN_TILE + n] : sum[i * MARLIN_TILE + n];
        }
}

enum error_code marlin_multiply(const struct marlin *m, const float *x, int64_t M, int64_t workers, float *out,
                                struct marlin_counts *counts, struct error *err)
{
    const int64_t down = m->K / MARLIN_TILE;
    float *const w = malloc(MARLIN_TILE * MARLIN_TILE * sizeof *w),
          *const sum = malloc((size_t)(M * MARLIN_TILE) * sizeof *sum + 1);
    *counts = (struct marlin_counts){ .least = INT64_MAX };
    for (int64_t worker = 0; worker < workers && w && sum; worker++) {
        const struct marlin_run run = marlin_run_of(m, workers, worker);
        if (run.count > counts->most) counts->most = run.count;
        if (run.count < counts->least) counts->least = run.count;
        for (int64_t t = run.first; t < run.first + run.count;) {
            const int64_t first = t % down, left = run.first + run.count - t, all = down - first;
            const struct marlin_part part = { t / down, first, left < all ? left : all };
            multiply_part(m, &part, x, M, w, sum, counts);
            add_part(m, &part, sum, M, out, counts);
            t += part.count;
        }
    }
    const bool ok = w && sum;
    free(w), free(sum);
    return ok ? OK : fail(err, ERR_MEMORY, "no memory for a tile of weights");
}
