/* products.c -- matrix products whose sums are exact: the bits do not depend on how rows, columns or terms are cut.
 *
 * Source    K. Ozaki, T. Ogita, S. Oishi, S. M. Rump, "Error-free transformations of matrix multiplication",
 *           doi:10.1007/s11075-011-9478-1; the rule, bit by bit: docs/checking/exact.md
 * Shapes    as ref/ops/linear.c;  tops [N] of rows, [I] or [O] of columns
 * Forward   Y = X W^T + b:    each row of X and of W becomes integers of some bits on a grid of its own
 * Backward  dX = dY W:        rows of dY, columns of W
 *           dW += dY^T X:     rows of dY and X, one grid for each token; tokens whose grids lie near each other are
 *                             multiplied together, the fewer the wider apart they lie; dW, db are EXACT
 * Slices    X, or dY, is cut into SLICES, each of which is multiplied by the whole other operand; how leaves no trace
 * Rounding  operands once, to their grids; then nothing until the sum is finished: it rounds once to the format of Y
 *           or dX, or stays EXACT
 * Called    ref/ops/ops.def lists the operations; ops_exact returns them.  If there is no memory for the integers, the
 *           program is aborted, as in the BLAS.
 */
#include "ref/exact/grid.h"
#include "ref/exact/unrounded.h"
#include "ref/numeric/convert.h"
#include "ref/ops/real.h"
#include "ref/ops/reduce.h"
#include "ref/ops/table.h"
#include <cblas.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#undef I

enum { ROWS_AT_ONCE = 128 };            /* of a result: what lies between two passes stays in the cache */

/* Bits of operands, and of all slices of an operand behind the first. */
#define BITS exact_bits_of(RULE)
#define CUT (BITS.operand / SLICES * (SLICES - 1))

static void *products_take(int64_t count, size_t size)
{
    void *p = malloc((size_t)(count > 0 ? count : 1) * size);
    if (p == NULL) fprintf(stderr, "orrery: no memory for %lld integers of a product\n", (long long)count), abort();
    return p;
}

/* ---- tops -------------------------------------------------------------------------------------------------------- */

/* Without their signs, numbers have the order of their bits, and NaNs are the largest: the loops take integers. */
static inline uint32_t size_bits(const float *x)
{
    uint32_t bits;
    memcpy(&bits, x, sizeof bits);
    return bits & 0x7fffffff;
}

void FN(row_tops)(struct tensor top, struct tensor X)
{
    const int64_t N = tensor_count(top), D = tensor_cols(X);
    #pragma omp parallel for schedule(static) if (N * D > PARALLEL_FROM)
    for (int64_t n = 0; n < N; n++) {
        const real *const x = CONST_DATA(X) + n * D;
        uint32_t most = 0;
        for (int64_t d = 0; d < D; d++) most = size_bits(x + d) > most ? size_bits(x + d) : most;
        memcpy(DATA(top) + n, &most, sizeof most);
    }
}

void FN(column_tops)(struct tensor top, struct tensor X)
{
    const int64_t N = tensor_rows(X), D = tensor_cols(X);
    #pragma omp parallel for schedule(static) if (N * D > PARALLEL_FROM)
    for (int64_t d0 = 0; d0 < D; d0 += COLUMN_BLOCK) {
        const int64_t width = D - d0 < COLUMN_BLOCK ? D - d0 : COLUMN_BLOCK;
        uint32_t most[COLUMN_BLOCK] = { 0 };
        for (int64_t n = 0; n < N; n++) {
            const real *const x = CONST_DATA(X) + n * D + d0;
            for (int64_t d = 0; d < width; d++) most[d] = size_bits(x + d) > most[d] ? size_bits(x + d) : most[d];
        }
        memcpy(DATA(top) + d0, most, (size_t)width * sizeof *most);
    }
}

/* ---- operands as integers ---------------------------------------------------------------------------------------- */

/* The grids of an operand's rows, or of its columns: by the tops of the whole, or by its own. */
static int *products_grids(struct tensor X, struct tensor whole, bool columns, int bits, int finest)
{
    const int64_t count = columns ? tensor_cols(X) : tensor_rows(X);
    int *const grid = products_take(count, sizeof *grid);
    struct tensor top = whole;
    if (!tensor_present(whole)) {
        top = tensor_1d(products_take(count, sizeof(real)), REAL_DTYPE, count);
        if (columns) FN(column_tops)(top, X);
        else FN(row_tops)(top, X);
    }
    for (int64_t i = 0; i < count; i++) grid[i] = grid_of((double)CONST_DATA(top)[i], bits, finest);
    if (!tensor_present(whole)) free(top.data);
    return grid;
}

static inline double unit_of(int grid) { return grid == GRID_ZERO || grid == GRID_NONE ? 0 : fixed_power(-grid); }

/* The upper slice of an integer, and what is left: integers of half the bits each, and a sign. */
static inline double slice_take(double *integer)
{
    const double high = grid_round(*integer * fixed_power(-CUT));
    *integer -= high * fixed_power(CUT);
    return high;
}

/* q [rows, D] = X / grid of each row, rounded; rows without a grid become 0.  With two slices q [2 rows, D] has the
 * upper ones, and the lower ones below. */
static void quantise_slices(double *q, const real *x, int64_t rows, int64_t D, const int *grid)
{
    #pragma omp parallel for schedule(static) if (rows * D > PARALLEL_FROM)
    for (int64_t n = 0; n < rows; n++) {
        const double unit = unit_of(grid[n]);
        for (int64_t d = 0; d < D; d++) {
            double integer = unit > 0 ? grid_round((double)x[n * D + d] * unit) : 0;
            if (SLICES == 2) q[n * D + d] = slice_take(&integer);
            q[((SLICES - 1) * rows + n) * D + d] = integer;
        }
    }
}

/* q [rows, D] = X / grid of each row, as whole integers. */
static void quantise_rows(double *q, const real *x, int64_t rows, int64_t D, const int *grid)
{
    #pragma omp parallel for schedule(static) if (rows * D > PARALLEL_FROM)
    for (int64_t n = 0; n < rows; n++) {
        const double unit = unit_of(grid[n]);
        for (int64_t d = 0; d < D; d++)
            q[n * D + d] = unit > 0 ? grid_round((double)x[n * D + d] * unit) : 0;
    }
}

/* q [rows, D] = X / grid of each column; columns without a grid become 0. */
static void quantise_columns(double *q, const real *x, int64_t rows, int64_t D, const int *grid)
{
    double *const unit = products_take(D, sizeof *unit);
    bool lost = false;
    for (int64_t d = 0; d < D; d++) unit[d] = unit_of(grid[d]), lost |= grid[d] == GRID_NONE;
    #pragma omp parallel for schedule(static) if (rows * D > PARALLEL_FROM)
    for (int64_t n = 0; n < rows; n++) {
        double *restrict const to = q + n * D;
        for (int64_t d = 0; d < D; d++) to[d] = grid_round((double)x[n * D + d] * unit[d]);
        /* A number that is not finite, times 0, is a NaN. */
        for (int64_t d = 0; d < D && lost; d++) to[d] = unit[d] > 0 ? to[d] : 0;
    }
    free(unit);
}

/* ---- products whose rows belong to one token: Y = X W^T + b, dX = dY W ------------------------------------------- */

/* The operands of one call.  B has its integers: rows [n,k] where it is transposed, else [k,n]. */
struct exact_product {
    const real *a;
    int64_t m, n, k;
    const int *row_grid, *column_grid;          /* of a [m]; of the result's columns, from B [n] */
    const double *b;
    bool transposed;
    const real *bias;                           /* [n], or NULL */
    struct tensor to;                           /* the result, in any format */
    int64_t first, ld;                          /* its first column here, and the distance of its rows */
    bool add;                                   /* to what is there */
};

/* Products of the slices of some rows of a result [rows, n], `apart` behind each other: of few terms in `few`, of more
 * in `many`. */
struct slice_products { const double *few; const int64_t *many; int64_t apart; };

static int64_t product_of(struct slice_products c, int64_t at, int slice)
{
    return c.many ? c.many[slice * c.apart + at] : (int64_t)c.few[slice * c.apart + at];
}

/* The integer of an element whose products are below 2^53: that of the upper slice first. */
static inline fixed_sum integer_of(const double *c, int64_t apart)
{
    const fixed_bits first = (fixed_bits)(fixed_sum)(int64_t)c[0];
    return (fixed_sum)(SLICES == 2 ? (first << CUT) + (fixed_bits)(fixed_sum)(int64_t)c[apart] : first);
}

/* The sum of an element: the integer times both grids, plus the bias. */
static fixed_sum sum_of(const struct exact_product *p, int64_t row, int64_t column, struct slice_products c, int64_t at)
{
    const int a = p->row_grid[row], b = p->column_grid[column];
    fixed_sum sum = 0;
    for (int slice = 0; slice < SLICES; slice++) {
        const int64_t integer = product_of(c, at, slice);
        if (a != GRID_NONE && b != GRID_NONE && integer != 0)
            sum = fixed_add(sum, fixed_scaled(integer, a + b + (slice < SLICES - 1 ? CUT : 0)));
    }
    if (a == GRID_NONE || b == GRID_NONE) sum = fixed_lose(FIXED_NOT_FINITE);
    return p->bias != NULL ? fixed_add(sum, fixed_of((double)p->bias[column])) : sum;
}

/* An element: its sum, plus what is there, rounded once. */
static void put_element(const struct exact_product *p, int64_t row, int64_t column, struct slice_products c, int64_t i)
{
    const int64_t at = row * p->ld + p->first + column;
    const fixed_sum sum = sum_of(p, row, column, c, i);
    if (p->to.dtype == EXACT) fixed_put(p->to.data, at, p->add ? fixed_add(sum, fixed_at(p->to.data, at)) : sum);
    else tensor_set(p->to, at, fixed_to_odd(p->add ? fixed_add(sum, fixed_of(tensor_get(p->to, at))) : sum));
}

/* a + b, its last bit 1 where bits below are lost, so that one more rounding to fewer bits rounds the sum once. */
static inline double add_to_odd(double a, double b)
{
    const double sum = a + b, part = sum - a, lost = (a - (sum - part)) + (b - part);
    int64_t bits;
    memcpy(&bits, &sum, sizeof bits);
    /* Either the nearest number is odd, or its neighbour on the side of what is lost. */
    bits += lost != 0 && (bits & 1) == 0 ? ((lost > 0) == (sum > 0) ? 1 : -1) : 0;
    double odd;
    memcpy(&odd, &bits, sizeof odd);
    return odd;
}

/* A third number is added, too.  Either the first two lose bits that are far below the last bit of all three, or the
 * third sum loses none. */
static inline double add_three_to_odd(double a, double b, double c)
{
    const double two = a + b, part = two - a, lost = (a - (two - part)) + (b - part);
    const double sum = two + c, rest = sum - two, more = (two - (sum - rest)) + (c - rest);
    return add_to_odd(sum, add_to_odd(lost, more));
}

/* A number that rounds as the sum of an element does: fp64 holds the product of one slice and its scaled sum, so one
 * conversion rounds.  Of several numbers the sum is rounded to odd before. */
static inline double quick_number(const double *c, int64_t apart, double unit, const real *bias)
{
    const double upper = *c * (unit * fixed_power(CUT)), lower = SLICES == 2 ? c[apart] * unit : 0;
    if (SLICES == 2) return bias ? add_three_to_odd(upper, lower, (double)*bias) : add_to_odd(upper, lower);
    return bias ? add_to_odd(upper, (double)*bias) : upper;
}

/* A row of the result, at once where its products are below 2^53. */
static void put_row_quickly(const struct exact_product *p, int64_t row, const double *c, int64_t apart,
                            const double *scale)
{
    const double unit = fixed_power(p->row_grid[row]);
    const int64_t at = row * p->ld + p->first;
    if (p->to.dtype == REAL_DTYPE && p->bias == NULL)
        for (int64_t j = 0; j < p->n; j++)
            DATA(p->to)[at + j] = (float)quick_number(c + j, apart, unit * scale[j], NULL);
    else if (p->to.dtype == REAL_DTYPE)
        for (int64_t j = 0; j < p->n; j++)
            DATA(p->to)[at + j] = (float)quick_number(c + j, apart, unit * scale[j], p->bias + j);
    else for (int64_t j = 0; j < p->n; j++)
        tensor_set(p->to, at + j, quick_number(c + j, apart, unit * scale[j], p->bias ? p->bias + j : NULL));
}

/* A row of sums that are not finished: the integers, moved to the unit of such sums. */
static void put_sums_quickly(const struct exact_product *p, int64_t row, const double *c, int64_t apart)
{
    const int up = p->row_grid[row] - FIXED_UNIT;
    const int *const grid = p->column_grid;
    const real *const bias = p->bias;
    char *restrict const to = (char *)p->to.data + (row * p->ld + p->first) * (int64_t)sizeof(fixed_sum);
    for (int64_t j = 0; j < p->n; j++) {
        const fixed_bits integer = (fixed_bits)integer_of(c + j, apart);
        const fixed_sum sum = grid[j] == GRID_ZERO ? 0 : (fixed_sum)(integer << (up + grid[j]));
        fixed_put(to, j, bias == NULL ? sum : fixed_add(sum, fixed_of((double)bias[j])));
    }
}

/* Whether the two above give the bits of put_element: the row has a grid, and no sum can reach the end of the window of
 * fixed_sum.h. */
static bool row_is_quick(const struct exact_product *p, int64_t row, int widest)
{
    const int grid = p->row_grid[row];
    return !p->add && p->k <= BITS.terms && grid != GRID_NONE && grid != GRID_ZERO && widest != GRID_NONE &&
           (widest == GRID_ZERO || grid + widest + 53 + CUT + SLICES - 1 < 26);
}

/* Whether biases are numbers that such a row takes: 0, or so large that their last bits are above the window's unit,
 * and smaller than half of the window. */
static bool biases_are_quick(const struct exact_product *p)
{
    for (int64_t j = 0; j < p->n && p->bias != NULL; j++) {
        const double size = fabs((double)p->bias[j]);
        if (size != 0 && !(size >= 0x1p-76 && size < 0x1p26)) return false;
    }
    return true;
}

static int widest_of(const int *grid, int64_t n)
{
    int widest = GRID_ZERO;
    for (int64_t j = 0; j < n; j++) widest = grid[j] > widest ? grid[j] : widest;
    return widest;
}

static void exact_product_run(const struct exact_product *p)
{
    const int64_t terms = BITS.terms;
    double *const a = products_take(SLICES * ROWS_AT_ONCE * p->k, sizeof *a),
           *const c = products_take(SLICES * ROWS_AT_ONCE * p->n, sizeof *c),
           *const scale = products_take(p->n, sizeof *scale);
    int64_t *const sum = products_take(p->k > terms ? SLICES * ROWS_AT_ONCE * p->n : 0, sizeof *sum);
    const int widest = widest_of(p->column_grid, p->n);
    /* For a check: the sums of a result that this call computes as a whole. */
    fixed_sum *const kept = p->to.dtype != EXACT && !p->add && p->n == p->ld ? unrounded_room(p->to, 0, NULL) : NULL;
    const bool quick = biases_are_quick(p);
    for (int64_t j = 0; j < p->n; j++)
        scale[j] = p->column_grid[j] == GRID_ZERO || p->column_grid[j] == GRID_NONE ? 0
            : fixed_power(p->column_grid[j]);

    for (int64_t first = 0; first < p->m; first += ROWS_AT_ONCE) {
        const int64_t rows = p->m - first < ROWS_AT_ONCE ? p->m - first : ROWS_AT_ONCE, apart = rows * p->n;
        const struct slice_products products = { c, p->k > terms ? sum : NULL, apart };
        quantise_slices(a, p->a + first * p->k, rows, p->k, p->row_grid + first);
        /* c [SLICES rows, n] = the integers of so many terms; sum: of all terms before. */
        for (int64_t k0 = 0; k0 < p->k || k0 == 0; k0 += terms) {
            const int64_t k = p->k - k0 < terms ? p->k - k0 : terms;
            if (k > 0)
                cblas_dgemm(CblasRowMajor, CblasNoTrans, p->transposed ? CblasTrans : CblasNoTrans,
                            (int)(SLICES * rows), (int)p->n, (int)k, 1, a + k0, (int)p->k,
                            p->transposed ? p->b + k0 : p->b + k0 * p->n, (int)(p->transposed ? p->k : p->n), 0, c,
                            (int)p->n);
            else for (int64_t i = 0; i < SLICES * apart; i++) c[i] = 0;
            if (p->k <= terms) break;
            #pragma omp parallel for schedule(static) if (apart > PARALLEL_FROM)
            for (int64_t i = 0; i < SLICES * apart; i++) sum[i] = (k0 == 0 ? 0 : sum[i]) + (int64_t)c[i];
        }
        #pragma omp parallel for schedule(static) if (apart > PARALLEL_FROM)
        for (int64_t i = 0; i < rows; i++) {
            for (int64_t j = 0; j < p->n && kept; j++)
                kept[(first + i) * p->n + j] = sum_of(p, first + i, j, products, i * p->n + j);
            const bool row_quick = quick && row_is_quick(p, first + i, widest);
            if (row_quick && p->to.dtype == EXACT) put_sums_quickly(p, first + i, c + i * p->n, apart);
            else if (row_quick) put_row_quickly(p, first + i, c + i * p->n, apart, scale);
            else for (int64_t j = 0; j < p->n; j++) put_element(p, first + i, j, products, i * p->n + j);
        }
    }
    free(a), free(c), free(scale), free(sum);
}

static void products_forward(struct tensor Y, int64_t first, struct tensor X, struct tensor x_top, struct tensor W,
                             struct tensor w_top, struct tensor b, bool add)
{
    const int64_t N = tensor_rows(X), D = tensor_cols(X), O = tensor_rows(W);
    if (N == 0 || O == 0) return;
    int *const rows = products_grids(X, x_top, false, BITS.operand, GRID_FORWARD),
        *const columns = products_grids(W, w_top, false, BITS.operand, GRID_FORWARD);
    double *const q = products_take(O * D, sizeof *q);
    quantise_rows(q, CONST_DATA(W), O, D, columns);
    exact_product_run(&(struct exact_product){ .a = CONST_DATA(X), .m = N, .n = O, .k = D, .row_grid = rows,
                                               .column_grid = columns, .b = q, .transposed = true,
                                               .bias = tensor_present(b) ? CONST_DATA(b) : NULL, .to = Y,
                                               .first = first, .ld = tensor_cols(Y), .add = add });
    free(q), free(rows), free(columns);
}

void FN(linear_forward)(struct tensor Y, struct tensor X, struct tensor W, struct tensor b)
{
    products_forward(Y, 0, X, tensor_none, W, tensor_none, b, false);
}

void FN(linear_forward_add)(struct tensor Y, struct tensor X, struct tensor W)
{
    products_forward(Y, 0, X, tensor_none, W, tensor_none, tensor_none, true);
}

void FN(linear_forward_columns)(struct tensor Y, int64_t first, struct tensor X, struct tensor W, struct tensor b)
{
    products_forward(Y, first, X, tensor_none, W, tensor_none, b, false);
}

void FN(linear_forward_part)(struct tensor Y, struct tensor X, struct tensor x_top, struct tensor W,
                             struct tensor w_top, struct tensor b)
{
    products_forward(Y, 0, X, x_top, W, w_top, b, false);
}

void FN(linear_backward_input_part)(struct tensor dX, struct tensor dY, struct tensor dy_top, struct tensor W,
                                    struct tensor w_top)
{
    const int64_t N = tensor_rows(dY), O = tensor_cols(dY), D = tensor_cols(W);
    if (N == 0 || D == 0) return;
    int *const rows = products_grids(dY, dy_top, false, BITS.operand, GRID_GRADIENT),
        *const columns = products_grids(W, w_top, true, BITS.operand, GRID_BESIDE_GRADIENT);
    double *const q = products_take(O * D, sizeof *q);
    quantise_columns(q, CONST_DATA(W), O, D, columns);
    exact_product_run(&(struct exact_product){ .a = CONST_DATA(dY), .m = N, .n = D, .k = O, .row_grid = rows,
                                               .column_grid = columns, .b = q, .to = dX, .ld = D });
    free(q), free(rows), free(columns);
}

void FN(linear_backward_input)(struct tensor dX, struct tensor dY, struct tensor W)
{
    FN(linear_backward_input_part)(dX, dY, tensor_none, W, tensor_none);
}

/* ---- products that add over tokens: dW += dY^T X ----------------------------------------------------------------- */

/* Tokens with the exponent of both of their grids together, above that of a sum's unit, and sorted by it; and by how
 * much the exponent is above the group's. */
struct token { int64_t n; int exponent, up; };

static int by_exponent(const void *a, const void *b)
{
    const struct token *x = a, *y = b;
    return x->exponent != y->exponent ? (x->exponent < y->exponent ? -1 : 1) : (x->n > y->n) - (x->n < y->n);
}

/* A token whose dY or X is 0 adds nothing, and is left out.  @return how many are left; -1: one is not finite. */
static int64_t list_tokens(struct token *token, int64_t N, const int *dy, const int *x)
{
    int64_t count = 0;
    for (int64_t n = 0; n < N; n++) {
        if (dy[n] == GRID_NONE || x[n] == GRID_NONE) return -1;
        if (dy[n] == GRID_ZERO || x[n] == GRID_ZERO) continue;
        token[count++] = (struct token){ n, dy[n] + x[n] - FIXED_UNIT, 0 };     /* >= 0: the finest grids are those */
    }
    qsort(token, (size_t)count, sizeof *token, by_exponent);
    return count;
}

/* q [tokens, D] = rows of these tokens on their grids, whole integers.  Those of dY are cut into slices, q [SLICES,
 * tokens, D], each times 2^up. */
static void quantise_tokens(double *q, struct tensor X, const int *grid, const struct token *token, int64_t tokens,
                            bool raised)
{
    const int64_t D = tensor_cols(X), slices = raised ? SLICES : 1;
    #pragma omp parallel for schedule(static) if (tokens * D > PARALLEL_FROM)
    for (int64_t t = 0; t < tokens; t++) {
        const double unit = unit_of(grid[token[t].n]), up = raised ? (double)(1 << token[t].up) : 1;
        const real *const x = CONST_DATA(X) + token[t].n * D;
        for (int64_t d = 0; d < D; d++) {
            double integer = grid_round((double)x[d] * unit);
            if (slices == 2) q[t * D + d] = slice_take(&integer) * up;
            q[((slices - 1) * tokens + t) * D + d] = integer * up;
        }
    }
}

/* Tokens whose integers fp64 adds without rounding: rows of both operands, and the sum's exponent. */
struct token_group { int64_t first, tokens; int exponent; };
/* Integers of so many tokens and groups are held at once; of fewer tokens where the result is wide. */
enum { TOKENS_AT_ONCE = 1024, TOKENS_OF_WIDE = 256, WIDE_RESULT = 16384, GROUPS_AT_ONCE = 8 };

/* Take tokens from `first` on, at most `most`, and none whose integers, 2^up times larger, could make a sum of more
 * than 53 bits. */
static struct token_group token_group_from(struct token *token, int64_t first, int64_t count, int64_t most)
{
    const int lowest = token[first].exponent;
    int64_t tokens = 0, sum = 0;
    while (tokens < most && first + tokens < count) {
        const int up = token[first + tokens].exponent - lowest;
        if (up > BITS.spare || sum + (1 << up) > 1 << BITS.spare) break;
        sum += 1 << up, token[first + tokens++].up = up;
    }
    return (struct token_group){ first, tokens, lowest + FIXED_UNIT };
}

/* Rows of dW += those of c [SLICES, count], times 2^exponent; c has integers below 2^53. */
static void add_rows(struct tensor dW, int64_t first, int64_t count, const double *c, int exponent)
{
    const int up = exponent - FIXED_UNIT;
    #pragma omp parallel for schedule(static) if (count > PARALLEL_FROM)
    for (int64_t i = 0; i < count; i++) {
        fixed_sum term;
        if (up < 127 - 53 - CUT - SLICES + 1) term = (fixed_sum)((fixed_bits)integer_of(c + i, count) << up);
        else if (SLICES == 1) term = fixed_scaled((int64_t)c[i], exponent);
        else term = fixed_add(fixed_scaled((int64_t)c[i], exponent + CUT), fixed_scaled((int64_t)c[count + i],
                                                                                        exponent));
        fixed_put(dW.data, first + i, fixed_add(fixed_at(dW.data, first + i), term));
    }
}

/* dW [O, D] += the integers of some groups: all groups of some rows of dW in turn, which stay in the cache.  Slices of
 * dy lie `apart`. */
static void add_groups(struct tensor dW, const double *dy, int64_t apart, int64_t O, const double *x, int64_t D,
                       const struct token_group *group, int groups, double *c)
{
    for (int64_t first = 0; first < O; first += ROWS_AT_ONCE) {
        const int64_t rows = O - first < ROWS_AT_ONCE ? O - first : ROWS_AT_ONCE;
        for (const struct token_group *g = group; g < group + groups; g++) {
            const int64_t at = g->first - group->first;
            for (int slice = 0; slice < SLICES; slice++)
                cblas_dgemm(CblasRowMajor, CblasTrans, CblasNoTrans, (int)rows, (int)D, (int)g->tokens, 1,
                            dy + slice * apart + at * O + first, (int)O, x + at * D, (int)D, 0, c + slice * rows * D,
                            (int)D);
            add_rows(dW, first * D, rows * D, c, g->exponent);
        }
    }
}

static void products_spoil(struct tensor dW)
{
    for (int64_t i = 0; i < tensor_count(dW); i++) fixed_put(dW.data, i, fixed_lose(FIXED_NOT_FINITE));
}

static void products_backward_weight(struct tensor dW, struct tensor dY, struct tensor dy_top, struct tensor X,
                                     struct tensor x_top)
{
    const int64_t N = tensor_rows(X), D = tensor_cols(X), O = tensor_cols(dY);
    assert(dW.dtype == EXACT && tensor_rows(dW) == O && tensor_cols(dW) == D);
    if (N == 0 || O == 0 || D == 0) return;
    int *const dy_grid = products_grids(dY, dy_top, false, BITS.token, GRID_GRADIENT),
        *const x_grid = products_grids(X, x_top, false, BITS.token, GRID_BESIDE_GRADIENT);
    struct token *const token = products_take(N, sizeof *token);
    const int64_t count = list_tokens(token, N, dy_grid, x_grid);
    const int64_t most = O > WIDE_RESULT ? TOKENS_OF_WIDE : TOKENS_AT_ONCE, held = most < N ? most : N;
    double *const dy = products_take(SLICES * held * O, sizeof *dy), *const x = products_take(held * D, sizeof *x),
           *const c = products_take(SLICES * ROWS_AT_ONCE * D, sizeof *c);
    if (count < 0) products_spoil(dW);
    for (int64_t first = 0; first < count;) {
        struct token_group group[GROUPS_AT_ONCE];
        int groups = 0;
        const int64_t begin = first;
        for (; groups < GROUPS_AT_ONCE && first < count && first - begin < held; groups++) {
            group[groups] = token_group_from(token, first, count, held - (first - begin));
            first += group[groups].tokens;
        }
        quantise_tokens(dy, dY, dy_grid, token + begin, first - begin, true);
        quantise_tokens(x, X, x_grid, token + begin, first - begin, false);
        add_groups(dW, dy, (first - begin) * O, O, x, D, group, groups, c);
    }
    free(dy), free(x), free(c), free(token), free(dy_grid), free(x_grid);
}

void FN(linear_backward_weight_part)(struct tensor dW, struct tensor db, struct tensor dY, struct tensor dy_top,
                                     struct tensor X, struct tensor x_top)
{
    products_backward_weight(dW, dY, dy_top, X, x_top);
    if (tensor_present(db)) FN(column_sums)(db, dY);
}

void FN(linear_backward_weight)(struct tensor dW, struct tensor db, struct tensor dY, struct tensor X)
{
    FN(linear_backward_weight_part)(dW, db, dY, tensor_none, X, tensor_none);
}

/* ---- tiles of a matrix: no plan uses them with exact sums -------------------------------------------------------- */

void FN(linear_backward_input_columns)(struct tensor dX, struct tensor dY, int64_t first, struct tensor W,
                                       bool accumulate)
{
    const int64_t N = tensor_rows(dY), O = tensor_cols(dY), D = tensor_cols(W), width = tensor_rows(W);
    const struct tensor part = tensor_2d(products_take(N * width, sizeof(real)), REAL_DTYPE, N, width),
                        sums = tensor_2d(products_take(N * D, sizeof(fixed_sum)), EXACT, N, D);
    for (int64_t n = 0; n < N; n++)
        for (int64_t o = 0; o < width; o++) DATA(part)[n * width + o] = CONST_DATA(dY)[n * O + first + o];
    FN(linear_backward_input_part)(sums, part, tensor_none, W, tensor_none);
    for (int64_t i = 0; i < N * D; i++) {
        const fixed_sum sum = accumulate ? fixed_add(fixed_at(sums.data, i), fixed_of((double)DATA(dX)[i]))
                                         : fixed_at(sums.data, i);
        DATA(dX)[i] = (float)fixed_to_odd(sum);
    }
    free(part.data), free(sums.data);
}

void FN(linear_backward_weight_columns)(struct tensor dW, struct tensor dY, int64_t first, struct tensor X)
{
    const int64_t N = tensor_rows(dY), O = tensor_cols(dY), width = tensor_rows(dW);
    const struct tensor part = tensor_2d(products_take(N * width, sizeof(real)), REAL_DTYPE, N, width);
    for (int64_t n = 0; n < N; n++)
        for (int64_t o = 0; o < width; o++) DATA(part)[n * width + o] = CONST_DATA(dY)[n * O + first + o];
    products_backward_weight(dW, part, tensor_none, X, tensor_none);
    free(part.data);
}
