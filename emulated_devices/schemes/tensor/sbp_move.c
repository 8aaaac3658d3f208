/* sbp_move.c -- boxing along tp: from one signature of a matrix of tokens to another.
 *
 * Source  the table: OneFlow, arXiv:2110.15032, table 2
 * Sends       to B             to S(0)             to S(1)
 * Errors  ERR_MEMORY, ERR_COMM
 *   from B    -                its rows: nothing   its columns: nothing
 *   S(0)      all-gather       -                   all-to-all
 *   S(1)      all-gather       all-to-all          -
 *   P         all-reduce       reduce-scatter      reduce-scatter
 *
 * Columns are those of heads, of gate and gated half: not side by side.  So they are packed, part after part, before
 * they are scattered, and unpacked when they have been gathered.
 *
 * tensor_sbp.c calls sbp_move for each operand and result of a product.  All moves are collective over tp, except
 * from B. After an error the contents of the new tensor are undefined.
 */
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/tensor/tensor_sbp.h"

#define ALL MESH_AXIS(2)

static const struct sbp B = ON_B, P = ON_P, S0 = ON_S(0), S1 = ON_S(1);

static bool is(struct sbp from, struct sbp a, struct sbp to, struct sbp b)
{
    return sbp_equal(from, a) && sbp_equal(to, b);
}

/* These are the columns of a part, with up to three runs: queries, keys and values. */
static struct runs sbp_move_columns_of(const struct tensor_parallel *tp, struct sbp_matrix matrix, int part)
{
    return tensor_runs(tp->config, matrix.role, matrix.output, tp->devices, part);
}

static int64_t whole_width(const struct tensor_parallel *tp, struct sbp_matrix matrix)
{
    return tensor_width(tp, matrix.role, matrix.output, 0, 1);
}

static int64_t width_at(const struct tensor_parallel *tp, struct sbp_matrix matrix, int part)
{
    return tensor_width(tp, matrix.role, matrix.output, part, tp->devices);
}

/* S(0) has this device's rows and all columns.  S(1) has all N rows and this device's columns.  B and P have all rows
 * and all columns. */
struct tensor sbp_piece(const struct tensor_parallel *tp, struct sbp_matrix matrix, struct sbp sbp, enum dtype dtype)
{
    int64_t rows[MESH_MOST_LISTED];
    tensor_row_counts(tp, ALL, ALL, matrix.N, rows);
    return tensor_2d(NULL, dtype, sbp_equal(sbp, S0) ? rows[tp->rank] : matrix.N,
                     sbp_equal(sbp, S1) ? width_at(tp, matrix, tp->rank) : whole_width(tp, matrix));
}

/* ---- columns ----------------------------------------------------------------------------------------------------- */

/* Rows of exact sums as rows of `each` times as many numbers; others as they are. */
static struct tensor as_numbers(struct tensor t, int64_t each)
{
    return each > 1 ? tensor_2d(t.data, F32, tensor_rows(t), tensor_cols(t) * each) : t;
}

/* Some columns of a tensor, side by side in another.  A bias may have the gradients' format, which the backend's
 * operations do not know. */
static void copy_columns(struct device *device, struct tensor to, int64_t y, struct tensor from, int64_t x,
                         int64_t count)
{
    const size_t element = dtype_size(from.dtype);
    if (count == 0 || tensor_rows(from) == 0) return;
    if (tensor_rows(from) == 1)
        device_copy(device, (char *)to.data + (size_t)y * element, (const char *)from.data + (size_t)x * element,
                    (uint64_t)count * element);
    else {
        /* An exact sum is as long as four numbers of fp32. */
        const int64_t each = from.dtype == EXACT ? (int64_t)(element / sizeof(float)) : 1;
        const struct column_blocks at = { 1, count * each, y * each, count * each, x * each, count * each };
        dev_columns_move(device, as_numbers(to, each), as_numbers(from, each), at, false);
    }
}

/* The columns of a part, from all columns to a block of their own, or back. */
static void move_part(struct tensor_parallel *tp, struct sbp_matrix matrix, int part, struct tensor all,
                      struct tensor block, bool pack)
{
    const struct runs r = sbp_move_columns_of(tp, matrix, part);
    int64_t at = 0;
    for (int i = 0; i < r.count; at += r.at[i++].count) {
        /* Runs lie one after another in the block. */
        if (pack) copy_columns(tp->device, block, at, all, r.at[i].first, r.at[i].count);
        else copy_columns(tp->device, all, r.at[i].first, block, at, r.at[i].count);
    }
}

/* Blocks of these rows, one for each part, one after another. */
static void move_parts(struct tensor_parallel *tp, struct sbp_matrix matrix, int64_t rows, struct tensor all,
                       struct tensor blocks, bool pack)
{
    char *at = blocks.data;
    for (int i = 0; i < tp->devices; i++) {
        const int64_t cols = width_at(tp, matrix, i);
        move_part(tp, matrix, i, all, tensor_2d(at, all.dtype, rows, cols), pack);
        at += (size_t)(rows * cols) * dtype_size(all.dtype);
    }
}

/* Elements of the parts' columns in so many rows.  @return their sum. */
static int64_t column_counts(const struct tensor_parallel *tp, struct sbp_matrix matrix, int64_t rows, int64_t counts[])
{
    int64_t sum = 0;
    for (int i = 0; i < tp->devices; i++) sum += counts[i] = rows * width_at(tp, matrix, i);
    return sum;
}

static enum error_code make_blocks(struct tensor_parallel *tp, struct tensor *tensor, enum dtype dtype, int64_t n,
                                   struct error *err)
{
    *tensor = device_tensor_in(tp->device, BUFFERS, dtype, n);
    return tensor->data ? OK
                   : fail(err, ERR_MEMORY, "no memory to pack %lld elements on their way between devices",
                          (long long)n);
}

void sbp_among_zeros(struct tensor_parallel *tp, struct sbp_matrix matrix, struct tensor piece, struct tensor whole)
{
    device_zero(tp->device, whole);
    move_part(tp, matrix, tp->rank, whole, piece, false);
}

/* ---- collectives ------------------------------------------------------------------------------------------------- */

/* P to S(1): every device gets its own columns of the sum. */
static enum error_code scatter_columns(struct tensor_parallel *tp, struct sbp_matrix matrix, struct tensor old,
                                       struct tensor new, struct error *err)
{
    int64_t counts[MESH_MOST_LISTED];
    struct tensor packed;
    enum error_code e = make_blocks(tp, &packed, old.dtype, column_counts(tp, matrix, matrix.N, counts), err);
    if (e) return e;
    move_parts(tp, matrix, matrix.N, old, packed, true);
    /* packed = P blocks [N, columns of part i]; new [N, own columns] = the sum over devices of block `rank`. */
    const struct collective c = { .in = packed.data, .out = new.data, .counts = counts, .dtype = old.dtype,
                                  .reduction = SUM };
    e = collective_run(&tp->along[ALL], REDUCE_SCATTER, NULL, &c, err);
    device_free(tp->device, packed);
    return e;
}

/* S(1) to B: every device gets the columns of all devices. */
static enum error_code gather_columns(struct tensor_parallel *tp, struct sbp_matrix matrix, struct tensor old,
                                      struct tensor new, struct error *err)
{
    int64_t counts[MESH_MOST_LISTED];
    struct tensor packed;
    enum error_code e = make_blocks(tp, &packed, old.dtype, column_counts(tp, matrix, matrix.N, counts), err);
    if (e) return e;
    /* packed = P blocks [N, columns of part i], which are then laid at their columns of new [N, width]. */
    const struct collective c = { .in = old.data, .out = packed.data, .counts = counts, .dtype = old.dtype };
    e = collective_run(&tp->along[ALL], ALLGATHER, NULL, &c, err);
    if (!e) move_parts(tp, matrix, matrix.N, new, packed, false);
    device_free(tp->device, packed);
    return e;
}

/* An exchanged counts the elements that this device sends to each other device, and gets back.  An element belongs to
 * a part of the rows and a part of the columns. */
struct exchanged { int64_t by_rows[MESH_MOST_LISTED], by_columns[MESH_MOST_LISTED]; };

/* @return the elements of this device's rows. */
static int64_t exchanged_of(const struct tensor_parallel *tp, struct sbp_matrix matrix, struct exchanged *exchanged)
{
    int64_t rows[MESH_MOST_LISTED];
    tensor_row_counts(tp, ALL, ALL, matrix.N, rows);
    for (int i = 0; i < tp->devices; i++) exchanged->by_rows[i] = rows[i] * width_at(tp, matrix, tp->rank);
    return column_counts(tp, matrix, rows[tp->rank], exchanged->by_columns);
}

/* S(0) to S(1), or back.  On the side of the columns a part's rows are side by side. */
static enum error_code sbp_move_exchange(struct tensor_parallel *tp, struct sbp_matrix matrix, bool to_columns,
                                         struct tensor old, struct tensor new, struct error *err)
{
    struct exchanged x;
    struct tensor packed;
    const struct tensor rows = to_columns ? old : new;
    enum error_code e = make_blocks(tp, &packed, old.dtype, exchanged_of(tp, matrix, &x), err);
    if (e) return e;
    if (to_columns) move_parts(tp, matrix, tensor_rows(rows), rows, packed, true);
    /* To S(1) this device sends [own rows, columns of i] to device i.  To S(0) this device sends [rows of i, own
     * columns]. */
    const struct collective c = {
        .in = to_columns ? packed.data : old.data, .out = to_columns ? new.data : packed.data,
        .counts = to_columns ? x.by_columns : x.by_rows, .recvcounts = to_columns ? x.by_rows : x.by_columns,
        .dtype = old.dtype
    };
    e = collective_run(&tp->along[ALL], ALLTOALL, NULL, &c, err);
    if (!e && !to_columns) move_parts(tp, matrix, tensor_rows(rows), rows, packed, false);
    device_free(tp->device, packed);
    return e;
}

/* P to B: every device gets the sum [N, width]; old and new may be the same memory. */
static enum error_code sum_all(struct tensor_parallel *tp, struct tensor old, struct tensor new, struct error *err)
{
    if (new.data != old.data) device_copy(tp->device, new.data, old.data, tensor_bytes(old));
    return allreduce(&tp->along[ALL], new.data, tensor_count(new), new.dtype, SUM, tp->allreduce, err);
}

/* B to S(0): the device copies its own rows, and nothing is sent. */
static enum error_code own_rows(struct tensor_parallel *tp, struct sbp_matrix matrix, struct tensor old,
                                struct tensor new)
{
    int64_t rows[MESH_MOST_LISTED], before = 0;
    tensor_row_counts(tp, ALL, ALL, matrix.N, rows);
    for (int i = 0; i < tp->rank; i++) before += rows[i];
    device_copy(tp->device, new.data, tensor_rows_of(old, before, rows[tp->rank]).data, tensor_bytes(new));
    return OK;
}

enum error_code sbp_move(struct tensor_parallel *tp, struct sbp_matrix matrix, struct sbp from, struct sbp to,
                         struct tensor old, struct tensor new, struct error *err)
{
    int64_t rows[MESH_MOST_LISTED];
    tensor_row_counts(tp, ALL, ALL, matrix.N, rows);
    /* Each line is a cell of the table in the head comment. */
    if (is(from, B, to, S0)) return own_rows(tp, matrix, old, new);
    if (is(from, B, to, S1)) return move_part(tp, matrix, tp->rank, old, new, true), OK;
    if (is(from, S0, to, B)) return gather_rows(tp, ALL, rows, new, old, err);
    if (is(from, S1, to, B)) return gather_columns(tp, matrix, old, new, err);
    if (is(from, P, to, B)) return sum_all(tp, old, new, err);
    if (is(from, P, to, S0)) return scatter_rows(tp, ALL, rows, new, old, err);
    if (is(from, P, to, S1)) return scatter_columns(tp, matrix, old, new, err);
    return sbp_move_exchange(tp, matrix, sbp_equal(to, S1), old, new, err);
}

/* ---- cost -------------------------------------------------------------------------------------------------------- */

static void forecast_exchange(struct forecast *forecast, struct sbp_matrix matrix, bool to_columns)
{
    struct exchanged x;
    exchanged_of(forecast->tp, matrix, &x);
    forecast_on(forecast, &forecast->tp->along[ALL], ALLTOALL, NULL,
                (struct collective){ .counts = to_columns ? x.by_columns : x.by_rows,
                                     .recvcounts = to_columns ? x.by_rows : x.by_columns,
                                     .dtype = forecast->tp->device->dtype });
}

void forecast_sums(struct forecast *forecast, struct sbp_matrix matrix, struct sbp to)
{
    const struct tensor_parallel *tp = forecast->tp;
    int64_t counts[MESH_MOST_LISTED], rows[MESH_MOST_LISTED];
    const int64_t width = whole_width(tp, matrix);
    tensor_row_counts(tp, ALL, ALL, matrix.N, rows);
    if (sbp_equal(to, S1)) column_counts(tp, matrix, matrix.N, counts);
    for (int i = 0; i < tp->devices && !sbp_equal(to, S1); i++) counts[i] = rows[i] * width;
    if (sbp_equal(to, B))
        forecast_on(forecast, &tp->along[ALL], ALLREDUCE, tp->allreduce,
                    (struct collective){ .count = matrix.N * width, .dtype = EXACT });
    else forecast_on(forecast, &tp->along[ALL], REDUCE_SCATTER, NULL,
                     (struct collective){ .counts = counts, .dtype = EXACT });
}

void forecast_move(struct forecast *forecast, struct sbp_matrix matrix, struct sbp from, struct sbp to)
{
    const struct tensor_parallel *tp = forecast->tp;
    int64_t rows[MESH_MOST_LISTED], widths[MESH_MOST_LISTED];
    tensor_row_counts(tp, ALL, ALL, matrix.N, rows);
    column_counts(tp, matrix, 1, widths);
    /* From B each device has everything already, so nothing is sent. */
    if (sbp_equal(from, to) || sbp_equal(from, B)) return;
    if (is(from, S0, to, B)) forecast_allgather(forecast, ALL, rows, whole_width(tp, matrix));
    else if (is(from, S1, to, B)) forecast_allgather(forecast, ALL, widths, matrix.N);
    else if (is(from, P, to, B)) forecast_allreduce(forecast, ALL, matrix.N * whole_width(tp, matrix));
    else if (is(from, P, to, S0)) forecast_reduce_scatter(forecast, ALL, rows, whole_width(tp, matrix));
    else if (is(from, P, to, S1)) forecast_reduce_scatter(forecast, ALL, widths, matrix.N);
    else forecast_exchange(forecast, matrix, sbp_equal(to, S1));
}
