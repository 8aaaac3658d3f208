/* matrix.c -- products with matrices.
 *
 * Y = X W^T + b.  The error of a sum in one format is rounding_of_sum() times |X| |W|^T + |b|; the result is stored.
 *
 * A product in P parts (rounding.parts, of a gradient rounding.gradient_parts; by steps also the parts of a matrix:
 * queries, keys, values) stores each part
 * and each sum of parts.  A product that is subnormal, and a stored part that is, are off by half the smallest step.
 * Where it is not known which terms are in which part, their sizes are estimated: a sum of some of
 * the terms is a random walk, and seldom larger than |y| + 3 sqrt(sum of squared terms); all P parts together than
 * |y| + 3 sqrt(P sum of squares).  Terms of a gradient of weights are no random walk where tokens are alike.  A dump's
 * layout says whose each token is (single_source.part), so there the parts themselves are added up.
 * walk.c runs the passes; experts.c uses products.h.  A matrix larger than a block is read some rows at a time.
 */
#include "emulated_devices/check/recompute/products.h"
#include "ref/model/params.h"
#include <string.h>

/* Begin sums of a product.  Squares are needed only if parts are stored: `parts` is the most of them. */
static struct product_sum adding_new(struct single *single, int64_t rows, int64_t cols, int parts)
{
    struct product_sum a = { .sum = single_new(single, rows, cols), .absolute = single_new(single, rows, cols) };
    if (parts > 1) a.square = single_new(single, rows, cols);
    return a;
}

/* This is the size of P stored parts and of the sums of the first of them.  Sizes are estimated as of a random
 * walk, and never above the sum of absolute terms. */
static double parts_stored(double y, double absolute, double square, int parts)
{
    const double walk = 3 * sqrt(square), all = fabs(y) + sqrt(parts) * walk + (parts - 2) * (fabs(y) + walk),
                 most = (parts - 1) * absolute;
    return all < most ? all : most;
}

/* This is the size of known parts of element i, and of the sums of some of them, in any order. */
static double known_parts_stored(const struct single *single, const struct product_sum *product_sum, int64_t i)
{
    const int parts = single->context->source.parts_of_batch, stored = 1 + single->context->source.parts_are_scaled;
    const int64_t count = tensor_count(product_sum->sum);
    double size[2] = { 0, 0 };                                      /* of the negative parts, and of the others */
    for (int p = 0; p < parts; p++) {
        const double part = numbers(product_sum->each)[p * count + i];
        size[part >= 0] += fabs(part);
    }
    return stored * (size[0] + size[1]) + (parts - 2) * fmax(size[0], size[1]);
}

/* This is the size of all that is stored on the way to element i. */
static double parts_of_element(const struct single *single, const struct product_sum *product_sum, int64_t i,
                               int parts)
{
    const double known = tensor_present(product_sum->each) ? known_parts_stored(single, product_sum, i) : 0;
    /* The program may store more parts than its layout shows. */
    if (parts < 2 || (known > 0 && parts == single->context->source.parts_of_batch)) return known;
    return fmax(known, parts_stored(numbers(product_sum->sum)[i], numbers(product_sum->absolute)[i],
                                    numbers(product_sum->square)[i], parts));
}

/* b = how far each element is off: by its sum, by stored parts, and by a sum stored before the bias. */
static void bound(struct single *single, const struct product_sum *product_sum, int64_t terms, int parts, bool stored,
                  struct tensor b)
{
    const struct rounding *r = &single->rounding;
    stored = stored && tensor_present(product_sum->stored);
    const double sum = rounding_of_sum(r->sum, terms),
                 tiny = tiny_terms(r->sum_tiny, terms) + (parts > 1 ? 2 * parts * r->tiny : 0) + (stored ? r->tiny : 0);
    #pragma omp parallel for schedule(static) if (tensor_count(b) > SINGLE_PARALLEL_FROM)
    for (int64_t i = 0; i < (single->failed ? 0 : tensor_count(b)); i++) {
        const double on_the_way = parts_of_element(single, product_sum, i, parts) +
                                  (stored ? numbers(product_sum->stored)[i] : 0);
        numbers(b)[i] = sum * numbers(product_sum->absolute)[i] + r->store * on_the_way + tiny;
    }
}

/* A way to multiply: to += left right^T, left right, or left^T right.  W is [out, in]. */
typedef void multiply_fn(const struct single *, struct tensor to, struct tensor left, struct tensor right);

static void by_transpose(const struct single *single, struct tensor Y, struct tensor X, struct tensor W)
{
    single->context->ops->linear_forward_add(Y, X, W);
}

static void as_it_is(const struct single *single, struct tensor dX, struct tensor dY, struct tensor W)
{
    single->context->ops->linear_backward_input_columns(dX, dY, 0, W, true);
}

static void over_rows(const struct single *single, struct tensor dW, struct tensor dY, struct tensor X)
{
    single->context->ops->linear_backward_weight(dW, tensor_none, dY, X);
}

/* to = |t|, or its squares. */
static void matrix_map(struct tensor to, struct tensor t, bool squared)
{
    double *out = numbers(to);
    const double *x = numbers(t);
    #pragma omp parallel for schedule(static) if (tensor_count(t) > SINGLE_PARALLEL_FROM)
    for (int64_t i = 0; i < tensor_count(t); i++) out[i] = squared ? x[i] * x[i] : fabs(x[i]);
}

/* Add a product to the sums: itself, with absolute values, and with squares if parts are stored.  Each is the same
 * multiplication. */
static void add_product(struct single *single, struct product_sum *sum, multiply_fn *multiply, struct tensor left,
                        struct tensor right)
{
    const int used = single->memory.used;
    const struct tensor l = single_new(single, tensor_rows(left), tensor_cols(left)),
                        r = single_new(single, tensor_rows(right), tensor_cols(right));
    if (single->failed) return;
    multiply(single, sum->sum, left, right);
    /* The second product takes absolute values, the third one squares of both matrices. */
    matrix_map(l, left, false), matrix_map(r, right, false);
    multiply(single, sum->absolute, l, r);
    if (tensor_present(sum->square)) {
        matrix_map(l, left, true), matrix_map(r, right, true);
        multiply(single, sum->square, l, r);
    }
    single_release(single, used);
}

/* A bias is a term more of each sum. */
static void matrix_add_bias(struct product_sum *sum, struct tensor bias)
{
    const int64_t cols = tensor_cols(sum->sum);
    for (int64_t i = 0; i < tensor_count(sum->sum); i++) {
        const double b = numbers(bias)[i % cols];
        numbers(sum->sum)[i] += b, numbers(sum->absolute)[i] += fabs(b);
    }
}

/* Make the value and both bounds.  matrices: other programs multiply with so many one by one and add the results. */
static struct single_value matrix_finish(struct single *single, const struct product_sum *sum, int64_t terms, int parts,
                                         int matrices)
{
    const int64_t rows = tensor_rows(sum->sum), cols = tensor_cols(sum->sum);
    const struct single_value v = { .y = sum->sum, .fused = single_new(single, rows, cols),
                                    .steps = single_new(single, rows, cols), .matrices = matrices };
    bound(single, sum, terms, parts, false, v.fused);
    bound(single, sum, terms, parts * matrices, true, v.steps);
    return v;
}

/* The product has been stored before the bias is added. */
static void add_stored(struct single *single, struct product_sum *sum)
{
    sum->stored = single_new(single, tensor_rows(sum->sum), tensor_cols(sum->sum));
    for (int64_t i = 0; !single->failed && i < tensor_count(sum->sum); i++)
        numbers(sum->stored)[i] = fabs(numbers(sum->sum)[i]);
}

/* Y = X W^T + b.  Each element is a sum of as many terms as W has columns, and a bias. */
struct single_value product(struct single *single, struct tensor X, struct tensor W, struct tensor b)
{
    struct product_sum a = adding_new(single, tensor_rows(X), tensor_rows(W), single->rounding.parts);
    const bool biased = tensor_present(b);
    add_product(single, &a, by_transpose, X, W);
    if (!single->failed && biased) add_stored(single, &a);
    if (!single->failed && biased) matrix_add_bias(&a, b);
    return matrix_finish(single, &a, tensor_cols(W) + biased, single->rounding.parts, 1);
}

/* dX = dY W. */
struct single_value product_input(struct single *single, struct tensor dY, struct tensor W, int matrices)
{
    struct product_sum a = adding_new(single, tensor_rows(dY), tensor_cols(W), single->rounding.parts * matrices);
    add_product(single, &a, as_it_is, dY, W);
    return matrix_finish(single, &a, tensor_rows(W), single->rounding.parts, matrices);
}

/* This takes some columns of a matrix, or some numbers of a vector. */
static struct tensor matrix_columns_of(struct single *single, struct tensor t, struct single_block of)
{
    if (!tensor_present(t) || of.rows == tensor_cols(t)) return t;
    const struct tensor some = single_new(single, tensor_rows(t), of.rows);
    for (int64_t i = 0; !single->failed && i < tensor_rows(t); i++)
        memcpy(numbers(some) + i * of.rows, numbers(t) + i * tensor_cols(t) + of.first,
               (size_t)of.rows * sizeof(double));
    return some;
}

/* Write columns from `first` on. */
static void put_columns(struct tensor to, struct tensor from, int64_t first)
{
    for (int64_t i = 0; i < tensor_rows(from); i++)
        memcpy(numbers(to) + i * tensor_cols(to) + first, numbers(from) + i * tensor_cols(from),
               (size_t)tensor_cols(from) * sizeof(double));
}

/* Go to the next block of a matrix's rows.  @return whether there is a further one and nothing has failed. */
static bool next_block(const struct single *single, struct param_spec spec, struct single_block *block)
{
    const int64_t first = block->first + block->rows, left = spec.dim[0] - first,
        most = single_block(single, spec.dim[1]);
    *block = (struct single_block){ first, left < most ? left : most };
    return left > 0 && single_going(single);
}

/* Add to both bounds of a product.  The product with the base alone is stored before that of an adapter is added to it.
 * off: tensor_none adds nothing. */
static void matrix_widen(const struct single *single, struct single_value value, struct tensor off)
{
    for (int64_t i = 0; tensor_present(off) && i < tensor_count(off); i++) {
        const double stored = single->rounding.store * fabs(numbers(value.y)[i]),
                     more = numbers(off)[i] > 0 ? numbers(off)[i] + stored : 0;
        numbers(value.fused)[i] += more, numbers(value.steps)[i] += more;
    }
}

/* A block of rows of W gives the same columns of Y [N, out]. */
static struct single_value recompute_matrix_forward(struct single *single, const struct single_node *node)
{
    const struct param_spec p = single_spec(single, node->weight);
    const struct tensor X = single_act(single, node->in[0]), b = single_param(single, node->bias);
    if (!single_going(single)) return single_stop(single);
    const struct single_value v = single_value_new(single, tensor_rows(X), p.dim[0]);
    const int used = single->memory.used;
    for (struct single_block block = { 0, 0 }; next_block(single, p, &block);) {
        /* Y [N, block] = X [N, in] W[block]^T + b[block]. */
        const struct tensor W = single_param_block(single, node->weight, block);
        const struct single_value one =
            single_going(single) ? product(single, X, W, matrix_columns_of(single, b, block)) : single_stop(single);
        if (single_going(single) && single->context->source.adapters)
            matrix_widen(single, one, single_adapter_off(single, node->weight, block, X, false));
        if (single_going(single)) put_columns(v.y, one.y, block.first), put_columns(v.fused, one.fused, block.first);
        if (single_going(single)) put_columns(v.steps, one.steps, block.first);
        single_release(single, used);
    }
    return single_going(single) ? v : single_stop(single);
}

/* dX [N, in] is the sum over blocks of W's rows, each with its columns of dY. */
static struct single_value recompute_matrix_input(struct single *single, const struct single_node *node)
{
    const struct param_spec p = single_spec(single, node->weight);
    const struct tensor dY = single_grad(single, node->out);
    if (!single_going(single)) return single_stop(single);
    struct product_sum a = adding_new(single, tensor_rows(dY), p.dim[1], single->rounding.parts * node->matrices);
    const struct tensor off = single->context->source.adapters
        ? single_adapter_off(single, node->weight, (struct single_block){ 0, p.dim[0] }, dY, true) : tensor_none;
    const int used = single->memory.used;
    for (struct single_block block = { 0, 0 }; next_block(single, p, &block);) {
        /* dX [N, in] += dY[, block] [N, block] W[block] [block, in]. */
        const struct tensor W = single_param_block(single, node->weight, block),
            dy = matrix_columns_of(single, dY, block);
        if (single_going(single)) add_product(single, &a, as_it_is, dy, W);
        single_release(single, used);
    }
    if (!single_going(single)) return single_stop(single);
    const struct single_value v = matrix_finish(single, &a, p.dim[0], single->rounding.parts, node->matrices);
    if (single_going(single)) matrix_widen(single, v, off);
    return single_going(single) ? v : single_stop(single);
}

/* ---- gradients: sums over rows ----------------------------------------------------------------------------------- */

/* These functions build a gradient from any rows in any order; walk.c's tiles and experts.c need that.  The parts of
 * the batch take as many matrices, so a block of a large matrix is first held to the estimate. */
struct product_sum product_weight_begin(struct single *single, int64_t out, int64_t in)
{
    const int parts = single->rounding.gradient_parts;
    struct product_sum a = adding_new(single, out, in, parts);
    if (single_knows_parts(single) && single->cursor.block.rows == 0) a.each = single_new(single, parts * out, in);
    return a;
}

struct product_sum product_bias_begin(struct single *single, int64_t out)
{
    return product_weight_begin(single, 1, out);
}

/* This is the part of the batch that a row's token is in. */
static int32_t part_of_row(const struct single *single, struct tensor tokens, int64_t row)
{
    const int64_t token = tensor_present(tokens) ? (int64_t)numbers(tokens)[row] : row % single->cursor.N;
    return single->context->source.part[single->cursor.first + token];
}

/* Take the rows of one part of the batch. */
static struct tensor rows_of_part(struct single *single, struct tensor t, struct tensor tokens, int32_t part)
{
    const int64_t cols = tensor_cols(t);
    struct tensor some = single_new(single, tensor_rows(t), cols);
    int64_t n = 0;
    for (int64_t row = 0; !single->failed && row < tensor_rows(t); row++)
        if (part_of_row(single, tokens, row) == part)
            memcpy(numbers(some) + n++ * cols, numbers(t) + row * cols, (size_t)cols * sizeof(double));
    return single->failed ? some : tensor_rows_of(some, 0, n);
}

/* Add each part's product to that part's own sum. */
static void add_each(struct single *single, struct product_sum *sum, struct tensor dY, struct tensor X,
                     struct tensor tokens)
{
    const int64_t out = tensor_rows(sum->sum);
    for (int32_t p = 0; p < single->context->source.parts_of_batch && !single->failed; p++) {
        const int used = single->memory.used;
        const struct tensor dy = rows_of_part(single, dY, tokens, p), x = rows_of_part(single, X, tokens, p);
        if (!single->failed && tensor_rows(dy) > 0) over_rows(single, tensor_rows_of(sum->each, p * out, out), dy, x);
        single_release(single, used);
    }
}

void product_weight_add(struct single *single, struct product_sum *sum, struct tensor dY, struct tensor X,
                        struct tensor tokens)
{
    add_product(single, sum, over_rows, dY, X);
    if (tensor_present(sum->each)) add_each(single, sum, dY, X, tokens);
    sum->terms += tensor_rows(dY);
}

void product_bias_add(struct single *single, struct product_sum *sum, struct tensor dY, struct tensor tokens)
{
    const int64_t cols = tensor_cols(dY);
    sum->terms += tensor_rows(dY);
    for (int64_t i = 0; !single->failed && i < tensor_count(dY); i++) {
        const double y = numbers(dY)[i];
        numbers(sum->sum)[i % cols] += y, numbers(sum->absolute)[i % cols] += fabs(y);
        if (tensor_present(sum->square)) numbers(sum->square)[i % cols] += y * y;
        if (tensor_present(sum->each)) numbers(sum->each)[part_of_row(single, tokens, i / cols) * cols + i % cols] += y;
    }
}

struct single_value product_weight_end(struct single *single, const struct product_sum *sum)
{
    return matrix_finish(single, sum, sum->terms, single->rounding.gradient_parts, 1);
}

/* dW [out, in] = dY^T X and its bounds, or some rows of dW, tile after tile. */
static struct single_value matrix_weight(struct single *single, const struct single_node *node)
{
    const struct param_spec p = single_spec(single, node->weight);
    const struct single_block block = single_block_of(single, p.dim[0]);
    struct product_sum a = product_weight_begin(single, block.rows, p.dim[1]);
    const int used = single->memory.used;
    for (struct single_tiles t = single_tiles_weight(single, node);
         single_going(single) && single_next_tile(single, &t);) {
        const struct tensor dY = single_grad(single, node->out), X = single_act(single, node->in[0]);
        if (single_going(single))
            product_weight_add(single, &a, matrix_columns_of(single, dY, block), X, tensor_none);
        single_release(single, used);
    }
    /* The cursor is on the whole batch again before anybody else reads. */
    single_take_all(single);
    return single_going(single) ? product_weight_end(single, &a) : single_stop(single);
}

/* db [out] = the sum over rows of dY, tile after tile. */
static struct single_value matrix_bias(struct single *single, const struct single_node *node)
{
    struct product_sum a = product_bias_begin(single, single_slot(single, node->out)->cols);
    const int used = single->memory.used;
    for (struct single_tiles t = single_tiles_weight(single, node);
         single_going(single) && single_next_tile(single, &t);) {
        const struct tensor dY = single_grad(single, node->out);
        if (single_going(single)) product_bias_add(single, &a, dY, tensor_none);
        single_release(single, used);
    }
    single_take_all(single);
    return single_going(single) ? product_weight_end(single, &a) : single_stop(single);
}

const struct single_operation single_matrix = {
    .words = "the product with its matrix",
    .forward = recompute_matrix_forward,
    .input_words = "the backward pass of a matrix for its input",
    .input = { recompute_matrix_input },
    .weight_words = "the backward pass of a matrix for its weight",
    .weight = matrix_weight,
    .bias_words = "the backward pass of a matrix for its bias",
    .bias = matrix_bias,
    .by_rows = true,
    .weight_by_rows = true,
    .in_blocks = true,
};
