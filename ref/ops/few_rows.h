/* few_rows.h -- the product of few rows with the rows of a matrix, which is read once, where it lies.  A BLAS copies
 * the matrix into an order of its own first.  For a handful of rows, such as those of an iteration of serving, this
 * copy takes longer than the product.
 *
 * A matrix of a 16-bit format is read where it lies, too: TILE_W of its rows are widened at a time, in the cache, and
 * all rows of X are multiplied with them.  Memory is read once, and the bits are those of a matrix widened before.
 *
 * Each element is FN(dot) of a row of X and a row of W (reduce.h).  So its bits depend neither on the other rows, nor
 * on threads, nor on the processor.
 *
 * linear.c and widened.c call these functions.  No function returns an error code; without memory for the widened rows
 * the program is aborted, as in the BLAS.
 */
#ifndef ORRERY_FEW_ROWS_H
#define ORRERY_FEW_ROWS_H

#include "ref/numeric/convert.h"
#include "ref/ops/reduce.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    FEW_FROM = 1 << 18,         /* elements of a matrix; a BLAS copies a smaller one within the cache */
    CACHE_LINE = 64,            /* bytes */
};

/* A tile of rows of X and of W has its sums in registers.  Of FEW_ROWS, gpt2's products take at most 0.8 of OpenBLAS's
 * time, and of one row half of it, on a Zen 4. */
#if defined __AVX512F__
enum { VECTOR_BYTES = 64, TILE_X = 4, TILE_W = 4, FEW_ROWS = 24 };
#elif defined __AVX__
enum { VECTOR_BYTES = 32, TILE_X = 3, TILE_W = 2, FEW_ROWS = 8 };
#elif defined __aarch64__
enum { VECTOR_BYTES = 16, TILE_X = 2, TILE_W = 3, FEW_ROWS = 8 };
#else
enum { VECTOR_BYTES = 16, TILE_X = 1, TILE_W = 3, FEW_ROWS = 8 };
#endif

/* gcc 12 would load a vector again for each product with it. */
#if defined __x86_64__
#define HOLD(vector) __asm__("" : "+v"(vector))
#elif defined __aarch64__
#define HOLD(vector) __asm__("" : "+w"(vector))
#else
#define HOLD(vector) ((void)0)
#endif

#define VECTOR FN(vector)
enum { FN(VECTORS) = LANES * (int)sizeof(real) / VECTOR_BYTES };
typedef real VECTOR __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(real)), may_alias));

/* Whether N rows are multiplied with a matrix [O,I] in less time than by a BLAS. */
static inline bool FN(few_rows_suit)(int64_t N, int64_t O, int64_t I) { return N <= FEW_ROWS && O * I >= FEW_FROM; }

/* A tile, and what comes into the cache while the tile is computed: some lines for each LANES of its columns. */
struct FN(few_tile) { int64_t I; const real *x, *w; bool add; real *y; int64_t ldy; const char *next; int lines; };

/* The dot products of `rows` rows of X and `cols` rows of W, which the caller knows at compile time. */
static inline __attribute__((always_inline)) void FN(few_tile)(const struct FN(few_tile) *t, int rows, int cols)
{
    VECTOR sum[TILE_X][TILE_W][FN(VECTORS)] = { 0 };
    const int64_t I = t->I;
    int64_t i = 0;
    for (; i + LANES <= I; i += LANES) {
        for (int l = 0; l < t->lines; l++) __builtin_prefetch(t->next + (i / LANES * t->lines + l) * CACHE_LINE);
        for (int v = 0; v < FN(VECTORS); v++) {
            const int64_t at = i + v * (LANES / FN(VECTORS));
            VECTOR b[TILE_W];
            for (int c = 0; c < cols; c++) {
                b[c] = *(const VECTOR *)(t->w + c * I + at);
                HOLD(b[c]);
            }
            for (int r = 0; r < rows; r++) {
                VECTOR a = *(const VECTOR *)(t->x + r * I + at);
                HOLD(a);
                for (int c = 0; c < cols; c++) sum[r][c][v] += a * b[c];
            }
        }
    }
    for (int r = 0; r < rows; r++)
        for (int c = 0; c < cols; c++) {
            real lane[LANES], *const y = t->y + r * t->ldy + c;
            memcpy(lane, sum[r][c], sizeof lane);
            for (int64_t l = 0; i + l < I; l++) lane[l] += t->x[r * I + i + l] * t->w[c * I + i + l];
            const real dot = FN(fold)(lane);
            *y = t->add ? *y + dot : dot;
        }
}

/* At the ends of X and W, where a tile is not whole, the function computes one row of X at a time. */
static inline void FN(few_tiles)(struct FN(few_tile) t, int rows, int cols)
{
    if (rows == TILE_X && cols == TILE_W) {
        FN(few_tile)(&t, TILE_X, TILE_W);
        return;
    }
    const struct FN(few_tile) first = t;
    for (int r = 0; r < rows; r++) {
        t.x = first.x + r * t.I, t.w = first.w, t.y = first.y + r * t.ldy;
        if (cols == TILE_W) FN(few_tile)(&t, 1, TILE_W);
        else for (int c = 0; c < cols; c++, t.w += t.I, t.y++) FN(few_tile)(&t, 1, 1);
        t.lines = 0;
    }
}

/* A matrix, [O,I] in any format of numbers, and room for some of its rows where that is not `real`. */
struct FN(few_matrix) { const char *data; enum dtype format; int64_t O, I; };

static inline const char *FN(few_at)(const struct FN(few_matrix) *W, int64_t o)
{
    return W->data + (size_t)(o * W->I) * dtype_size(W->format);
}

/* Room for the rows of a tile, for one thread; NULL: the matrix has reals already. */
static inline real *FN(few_room)(const struct FN(few_matrix) *W)
{
    if (W->format == REAL_DTYPE) return NULL;
    const size_t bytes = (size_t)(TILE_W * W->I) * sizeof(real);
    real *const room = aligned_alloc(CACHE_LINE, (bytes + CACHE_LINE) / CACHE_LINE * CACHE_LINE);
    if (room == NULL) fprintf(stderr, "orrery: no memory for %zu bytes of widened rows\n", bytes), abort();
    return room;
}

/* All rows of X and the TILE_W rows of W from o on.  Meanwhile the next ones come into the cache, in equal parts beside
 * each tile. */
static inline void FN(few_strip)(const struct FN(few_matrix) *W, int64_t o, real *room, int64_t N, const real *X,
                                 bool add, real *Y, int64_t ldy)
{
    const int64_t I = W->I, tiles = (N + TILE_X - 1) / TILE_X, steps = I / LANES;
    const int64_t strip = TILE_W * I * (int64_t)dtype_size(W->format) / CACHE_LINE,
                  lines = strip / (tiles * steps + 1) + 1;
    const int cols = W->O - o < TILE_W ? (int)(W->O - o) : TILE_W;
    if (room) convert_numbers(room, REAL_DTYPE, FN(few_at)(W, o), W->format, cols * I);
    const real *const w = room ? room : (const real *)FN(few_at)(W, o);
    for (int64_t n = 0, loaded = 0; n < N; n += TILE_X, loaded += lines * steps) {
        const struct FN(few_tile) t = {
            I, X + n * I, w, add, Y + n * ldy + o, ldy, FN(few_at)(W, o + TILE_W) + loaded * CACHE_LINE,
            loaded < strip && o + 2 * TILE_W <= W->O ? (int)lines : 0 };
        FN(few_tiles)(t, N - n < TILE_X ? (int)(N - n) : TILE_X, cols);
    }
}

/* Y [N,O] = X [N,I] W [O,I]^T, or Y += that; ldy is the distance of Y's rows. */
static inline void FN(few_rows)(const struct FN(few_matrix) *W, int64_t N, const real *X, bool add, real *Y,
                                int64_t ldy)
{
    #pragma omp parallel
    {
        real *const room = FN(few_room)(W);
        #pragma omp for schedule(static)
        for (int64_t o = 0; o < W->O; o += TILE_W) FN(few_strip)(W, o, room, N, X, add, Y, ldy);
        free(room);
    }
}

#endif
