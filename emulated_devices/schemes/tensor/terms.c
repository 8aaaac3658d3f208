/* terms.c -- products whose terms lie on several devices, with sums that do not round (ref/exact/).
 *
 * The devices first agree on the largest size of each row of both operands, by a maximum: the grids on which numbers
 * become integers then do not depend on the cut.  Each device's partial sum is EXACT; the finished sum rounds once.
 *
 * Sends    forward          an all-reduce: maxima of the rows of X and of W, [N + O]; then [N, O] of 16 bytes
 *          backward input   maxima of the rows of dY and the columns of W, [N + I]; then [N, I] of 16 bytes
 *          backward weight  maxima of the rows of the operand whose columns are cut, [N]
 *          a partial sum is reduce-scattered where each device has rows of its own, else all-reduced; the second of
 *          two shots sends rounded rows
 *
 * All schemes of this folder multiply through this file where the device computes exactly.  All calls are collective
 * over the devices along `axes`.  Errors: ERR_MEMORY, ERR_COMM.
 */
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/tensor/terms.h"
#include <string.h>

static enum error_code tops_make(struct tensor_parallel *tp, struct tops *tops, int64_t rows, int64_t others,
                                 struct error *err)
{
    const struct tensor both = device_statistics(tp->device, BUFFERS, rows + others, 0);
    *tops = (struct tops){ both, tensor_1d(both.data, both.dtype, rows),
                           tensor_1d((char *)both.data + (size_t)rows * dtype_size(both.dtype), both.dtype, others) };
    return both.data ? OK : fail(err, ERR_MEMORY, "no memory for the largest sizes of %lld rows",
                                 (long long)(rows + others));
}

static enum error_code tops_agree(struct tensor_parallel *tp, unsigned axes, const struct tops *tops, struct error *err)
{
    return allreduce(&tp->along[axes], tops->both.data, tensor_count(tops->both), tops->both.dtype, MAX, tp->allreduce,
                     err);
}

enum error_code tops_of_forward(struct tensor_parallel *tp, unsigned axes, struct tops *tops, struct tensor X,
                                struct tensor W, struct error *err)
{
    const enum error_code e = tops_make(tp, tops, tensor_rows(X), tensor_rows(W), err);
    if (e) return e;
    dev_row_tops(tp->device, tops->rows, X), dev_row_tops(tp->device, tops->others, W);
    return tops_agree(tp, axes, tops, err);
}

enum error_code tops_of_input(struct tensor_parallel *tp, unsigned axes, struct tops *tops, struct tensor dY,
                              struct tensor W, struct error *err)
{
    const enum error_code e = tops_make(tp, tops, tensor_rows(dY), tensor_cols(W), err);
    if (e) return e;
    dev_row_tops(tp->device, tops->rows, dY), dev_column_tops(tp->device, tops->others, W);
    return tops_agree(tp, axes, tops, err);
}

void tops_drop(struct tensor_parallel *tp, struct tops *tops) { device_free(tp->device, tops->both); }

/* Memory for sums of a number of rows of Y. */
static enum error_code terms_make(struct tensor_parallel *tp, int64_t rows, int64_t cols, struct tensor *sum,
                                  struct error *err)
{
    *sum = device_tensor_in(tp->device, BUFFERS, EXACT, rows * cols);
    *sum = tensor_2d(sum->data, EXACT, rows, cols);
    return sum->data ? OK : fail(err, ERR_MEMORY, "no memory for a partial sum of %lld x %lld elements",
                                 (long long)rows, (long long)cols);
}

/* Y = the sum of all devices, rounded once: this device's rows. */
static enum error_code terms_finish_rows(struct tensor_parallel *tp, unsigned axes, const int64_t rows[],
                                         struct tensor Y, struct tensor sum, struct error *err)
{
    struct tensor own;
    enum error_code e = terms_make(tp, tensor_rows(Y), tensor_cols(Y), &own, err);
    if (!e) e = scatter_rows(tp, axes, rows, own, sum, err);
    if (!e) dev_round(tp->device, Y, own);
    device_free(tp->device, own);
    return e;
}

/* The elements of each device's rows. */
static void terms_share_out(const struct group *group, int64_t N, int64_t width, int64_t counts[])
{
    for (int i = 0; i < group->size; i++) counts[i] = block_at(N, group->size, i).count * width;
}

/* An all-reduce of two shots is a reduce-scatter and an all-gather: between them sums are rounded. */
static bool terms_round_between(const struct tensor_parallel *tp)
{
    return tp->allreduce == NULL || strcmp(tp->allreduce, "two_shot") == 0;
}

/* Each device finishes some rows, so that rounded rows travel on, and nobody rounds what another has rounded. */
static enum error_code terms_finish_shots(struct tensor_parallel *tp, unsigned axes, struct tensor Y, struct tensor sum,
                                          struct error *err)
{
    struct group *const group = &tp->along[axes];
    const struct interval block = block_at(tensor_rows(Y), group->size, group->rank);
    const size_t before = (size_t)(block.first * tensor_cols(Y)) * dtype_size(Y.dtype);
    const struct tensor rows = tensor_2d((char *)Y.data + before, Y.dtype, block.count, tensor_cols(Y));
    int64_t counts[MESH_MOST_LISTED];
    struct tensor own;
    terms_share_out(group, tensor_rows(Y), tensor_cols(Y), counts);
    enum error_code e = terms_make(tp, block.count, tensor_cols(Y), &own, err);
    if (!e) e = collective_run(group, REDUCE_SCATTER, "direct",
                               &(struct collective){ .in = sum.data, .out = own.data, .counts = counts, .dtype = EXACT,
                                                     .reduction = SUM }, err);
    if (!e) dev_round(tp->device, rows, own);
    device_free(tp->device, own);
    return e ? e : collective_run(group, ALLGATHER, "direct",
                                  &(struct collective){ .in = rows.data, .out = Y.data, .counts = counts,
                                                        .dtype = Y.dtype }, err);
}

/* Y = the sum of all devices, rounded once: all rows. */
static enum error_code terms_finish_all(struct tensor_parallel *tp, unsigned axes, struct tensor Y, struct tensor sum,
                                        struct error *err)
{
    if (terms_round_between(tp)) return terms_finish_shots(tp, axes, Y, sum, err);
    const enum error_code e = allreduce(&tp->along[axes], sum.data, tensor_count(sum), EXACT, SUM, tp->allreduce, err);
    if (!e) dev_round(tp->device, Y, sum);
    return e;
}

static enum error_code terms_finish(struct tensor_parallel *tp, unsigned axes, const int64_t rows[], struct tensor Y,
                                    struct tensor sum, struct error *err)
{
    return rows ? terms_finish_rows(tp, axes, rows, Y, sum, err) : terms_finish_all(tp, axes, Y, sum, err);
}

static void terms_drop(struct tensor_parallel *tp, struct tops *tops, struct tensor sum)
{
    device_free(tp->device, sum), tops_drop(tp, tops);
}

enum error_code terms_forward(struct tensor_parallel *tp, unsigned axes, const int64_t rows[], struct tensor Y,
                              struct tensor X, struct tensor W, struct tensor b, struct error *err)
{
    struct tops t;
    struct tensor sum = tensor_none;
    if (axes_size(tp, axes) == 1) return dev_linear_forward(tp->device, Y, X, W, b), OK;
    enum error_code e = tops_of_forward(tp, axes, &t, X, W, err);
    if (!e) e = terms_make(tp, tensor_rows(X), tensor_cols(Y), &sum, err);
    /* sum [N, O] = the terms of this device's columns of X and W. */
    if (!e) dev_linear_forward_part(tp->device, sum, X, t.rows, W, t.others, b);
    if (!e) e = terms_finish(tp, axes, rows, Y, sum, err);
    terms_drop(tp, &t, sum);
    return e;
}

enum error_code terms_input_part(struct tensor_parallel *tp, unsigned axes, struct tensor *sum, struct tensor dY,
                                 struct tensor W, struct error *err)
{
    struct tops t;
    *sum = tensor_none;
    enum error_code e = tops_of_input(tp, axes, &t, dY, W, err);
    if (!e) e = terms_make(tp, tensor_rows(dY), tensor_cols(W), sum, err);
    /* sum [N, I] = the terms of this device's columns of dY and rows of W. */
    if (!e) dev_linear_backward_input_part(tp->device, *sum, dY, t.rows, W, t.others);
    terms_drop(tp, &t, tensor_none);
    return e;
}

enum error_code terms_backward_input(struct tensor_parallel *tp, unsigned axes, const int64_t rows[], struct tensor dX,
                                     struct tensor dY, struct tensor W, struct error *err)
{
    struct tensor sum;
    if (axes_size(tp, axes) == 1) return dev_linear_backward_input(tp->device, dX, dY, W), OK;
    enum error_code e = terms_input_part(tp, axes, &sum, dY, W, err);
    if (!e) e = terms_finish(tp, axes, rows, dX, sum, err);
    device_free(tp->device, sum);
    return e;
}

enum error_code terms_backward_weight(struct tensor_parallel *tp, unsigned axes, bool cuts_dY, struct tensor dW,
                                      struct tensor db, struct tensor dY, struct tensor X, struct error *err)
{
    struct tops t;
    if (axes_size(tp, axes) == 1) return dev_linear_backward_weight(tp->device, dW, db, dY, X), OK;
    enum error_code e = tops_make(tp, &t, tensor_rows(X), 0, err);
    if (!e) {
        dev_row_tops(tp->device, t.rows, cuts_dY ? dY : X);
        e = tops_agree(tp, axes, &t, err);
    }
    if (!e) dev_linear_backward_weight_part(tp->device, dW, db, dY, cuts_dY ? t.rows : tensor_none, X,
                                            cuts_dY ? tensor_none : t.rows);
    terms_drop(tp, &t, tensor_none);
    return e;
}

enum error_code terms_row_tops(struct tensor_parallel *tp, unsigned axes, struct tensor *top, struct tensor X,
                               struct error *err)
{
    struct tops tops;
    enum error_code e = tops_make(tp, &tops, tensor_rows(X), 0, err);
    *top = tops.both;
    if (e) return e;
    dev_row_tops(tp->device, tops.rows, X);
    return tops_agree(tp, axes, &tops, err);
}

enum error_code terms_add_weight(struct tensor_parallel *tp, unsigned cut_dY, unsigned cut_X, struct tensor dW,
                                 struct tensor db, struct tensor dY, struct tensor X, struct error *err)
{
    struct tensor dy = tensor_none, x = tensor_none;
    enum error_code e = terms_row_tops(tp, cut_dY, &dy, dY, err);
    if (!e) e = terms_row_tops(tp, cut_X, &x, X, err);
    if (!e) dev_linear_backward_weight_part(tp->device, dW, db, dY, dy, X, x);
    device_free(tp->device, dy), device_free(tp->device, x);
    return e;
}

enum error_code terms_round(struct device *device, struct tensor to, struct tensor sums, struct error *err)
{
    if (to.dtype == F32) return dev_round(device, to, sums), OK;
    const struct tensor wide = device_statistics(device, BUFFERS, tensor_rows(sums), tensor_cols(sums));
    if (wide.data == NULL) return fail(err, ERR_MEMORY, "no memory to round %lld sums",
                                       (long long)tensor_count(sums));
    dev_round(device, wide, sums), dev_round(device, to, wide);
    if (device->ops) unrounded_move(to, wide.data);
    device_free(device, wide);
    return OK;
}

void forecast_terms(struct forecast *forecast, unsigned axes, int64_t N, int64_t others, const int64_t rows[],
                    int64_t width)
{
    const struct tensor_parallel *const tp = forecast->tp;
    const struct group *const group = &tp->along[axes];
    int64_t counts[MESH_MOST_LISTED];
    if (group->size == 1) return;
    forecast_statistics(forecast, axes, N + others);
    if (width == 0) return;
    terms_share_out(group, N, width, counts);
    for (int i = 0; i < group->size && rows; i++) counts[i] = rows[i] * width;
    if (rows)
        forecast_on(forecast, group, REDUCE_SCATTER, tp->scheme->rings ? "ring" : NULL,
                    (struct collective){ .counts = counts, .dtype = EXACT });
    else if (terms_round_between(tp)) {
        forecast_on(forecast, group, REDUCE_SCATTER, "direct", (struct collective){ .counts = counts, .dtype = EXACT });
        forecast_on(forecast, group, ALLGATHER, "direct",
                    (struct collective){ .counts = counts, .dtype = tp->device->dtype });
    } else
        forecast_on(forecast, group, ALLREDUCE, tp->allreduce,
                    (struct collective){ .count = N * width, .dtype = EXACT });
}
