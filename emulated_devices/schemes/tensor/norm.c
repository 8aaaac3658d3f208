/* norm.c -- layernorm or rmsnorm of the stream, whose columns or rows may be cut over several devices.
 *
 * Source   Q. Xu et al., "An efficient 2D method for training super-large deep learning models" (Optimus),
 *          arXiv:2104.05343, section 3: statistics of a row are reduced over the devices that have a part of it.  The
 *          paper sends the sums of x and of x^2 together; here the sum is sent first, then the sum of squared
 *          differences from the mean, which has no cancellation.  An rmsnorm with cut columns is computed as a
 *          layernorm whose means and bias are 0.
 * Sends    if columns are cut, over the devices with the same rows, n rows each: layernorm forward all-reduce of n,
 *          twice, backward for the input all-reduce of 2n; rmsnorm all-reduce of n either way.  Weights and their
 *          gradients: shared.c
 * Called   model/run/run_node.c calls these functions.  Errors: ERR_MEMORY, and ERR_COMM of a sum over devices; the
 *          step cannot go on then.
 */
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/tensor/tensor.h"
#include "ref/model/config.h"
#include "ref/model/kinds.h"

static bool is_rms(const struct tensor_parallel *tp) { return tp->config->norm == NORM_RMS; }

/* The group has the devices with the same rows and other columns; its size is 1 where rows are whole. */
static struct group *tensor_norm_columns(struct tensor_parallel *tp) { return &tp->along[tp->scheme->stream.columns]; }

static enum error_code sum_columns(struct tensor_parallel *tp, struct tensor t, struct error *err)
{
    return allreduce(tensor_norm_columns(tp), t.data, tensor_count(t), t.dtype, SUM, tp->allreduce, err);
}

enum error_code statistics_begin(struct tensor_parallel *tp, struct tensor *part, struct tensor sums, struct error *err)
{
    *part = sums;
    if (!tp->device->exact) return OK;
    *part = tensor_1d(device_tensor_in(tp->device, BUFFERS, EXACT, tensor_count(sums)).data, EXACT, tensor_count(sums));
    return part->data ? OK : fail(err, ERR_MEMORY, "no memory for the sums of %lld rows",
                                  (long long)tensor_count(sums));
}

void statistics_end(struct tensor_parallel *tp, struct tensor sums, struct tensor part)
{
    if (part.data == sums.data) return;
    if (part.data) dev_round(tp->device, sums, part), device_free(tp->device, part);
}

/* n zeroes: the means, or the bias, of an rmsnorm with cut columns. */
static enum error_code zeroes(struct tensor_parallel *tp, struct tensor *tensor, enum dtype dtype, int64_t n,
                              struct error *err)
{
    *tensor = tensor_1d(NULL, dtype, n);
    tensor->data = arena_alloc(&tp->device->arena, BUFFERS, tensor_bytes(*tensor));
    if (tensor->data == NULL) return fail(err, ERR_MEMORY, "no memory for %lld zeroes", (long long)n);
    device_zero(tp->device, *tensor);
    return OK;
}

/* sums [N] = sum of squared distances from the mean over all columns. */
static enum error_code row_squares_of(struct tensor_parallel *tp, struct tensor sums, struct tensor X,
                                      struct tensor mean, struct error *err)
{
    struct tensor part;
    enum error_code e = statistics_begin(tp, &part, sums, err);
    if (!e) dev_row_centred_squares(tp->device, part, X, mean);
    if (!e) e = sum_columns(tp, part, err);
    statistics_end(tp, sums, part);
    return e;
}

/* Y = X / rms(X) (base + w), with rms over all D columns of a row. */
static enum error_code rms_forward(struct tensor_parallel *tp, struct tensor Y, struct tensor rstd, struct tensor X,
                                   struct tensor w, double eps, struct error *err)
{
    struct tensor mean = tensor_none, bias = tensor_none;
    if (tensor_norm_columns(tp)->size == 1) {
        dev_rmsnorm_forward(tp->device, Y, rstd, X, w, norm_base(tp->config), eps);
        return OK;
    }
    enum error_code e = zeroes(tp, &mean, rstd.dtype, tensor_rows(X), err);
    if (!e) e = zeroes(tp, &bias, w.dtype, tensor_cols(X), err);
    /* rstd [N]: sum of squares of this device's columns, then of all D. */
    if (!e) e = row_squares_of(tp, rstd, X, mean, err);
    if (!e) dev_layernorm_forward_part(tp->device, Y, rstd, X, w, norm_base(tp->config), bias, mean,
                                      tp->config->D, eps);
    device_free(tp->device, bias);
    device_free(tp->device, mean);
    return e;
}

/* Y from whole rows, or from this device's columns of them. */
static enum error_code schemes_tensor_forward(struct tensor_parallel *tp, struct tensor Y, struct tensor mean,
                                              struct tensor rstd,
                                              struct tensor X, struct tensor w, struct tensor b, double eps,
                                              struct error *err)
{
    struct device *d = tp->device;
    if (tensor_norm_columns(tp)->size == 1) {
        dev_layernorm_forward(d, Y, mean, rstd, X, w, norm_base(tp->config), b, eps);
        return OK;
    }
    struct tensor part;
    /* mean [N] = sum over all columns / D; then rstd from the squares of distances from it: two all-reduces. */
    enum error_code e = statistics_begin(tp, &part, mean, err);
    if (!e) dev_row_sums(d, part, X);
    if (!e) e = sum_columns(tp, part, err);
    statistics_end(tp, mean, part);
    if (e) return e;
    dev_scale(d, mean, mean, 1 / (double)tp->config->D);
    e = row_squares_of(tp, rstd, X, mean, err);
    if (!e) dev_layernorm_forward_part(d, Y, rstd, X, w, norm_base(tp->config), b, mean, tp->config->D, eps);
    return e;
}

/* Where vectors are cut, each device keeps only a part of weight and bias, so both are gathered first. */
enum error_code tensor_norm_forward(struct tensor_parallel *tp, struct tensor Y, struct tensor mean, struct tensor rstd,
                                    struct tensor X, struct tensor w, struct tensor b, double eps, struct error *err)
{
    const struct tensor_cut cut = tp->scheme->stream;
    struct shared weight = { 0 }, bias = { 0 };
    enum error_code e = shared_take(tp, cut, w, tp->channels.count, &weight, err);
    if (!e) e = shared_take(tp, cut, b, tp->channels.count, &bias, err);
    if (!e && is_rms(tp)) e = rms_forward(tp, Y, rstd, X, weight.taken, eps, err);
    else if (!e) e = schemes_tensor_forward(tp, Y, mean, rstd, X, weight.taken, bias.taken, eps, err);
    shared_release(tp, &bias);
    shared_release(tp, &weight);
    return e;
}

/* With cut columns: two sums of each row are reduced; an rmsnorm has only the second. */
static enum error_code backward_in_parts(struct tensor_parallel *tp, struct tensor dX, struct tensor dY,
                                         struct tensor X, struct tensor w, struct tensor mean, struct tensor rstd,
                                         struct error *err)
{
    struct tensor sums, part = tensor_none;
    const int64_t n = tensor_rows(X);
    enum error_code e = zeroes(tp, &sums, dtype_wide(tp->device->dtype), 2 * n, err);
    if (!e) e = statistics_begin(tp, &part, sums, err);
    if (e) return device_free(tp->device, sums), e;
    const struct tensor second = tensor_1d((char *)part.data + (size_t)n * dtype_size(part.dtype), part.dtype, n);
    /* Per row: sum of dY w, and of dY w x_hat, over this device's columns. */
    dev_layernorm_backward_sums(tp->device, part, dY, X, w, norm_base(tp->config), mean, rstd);
    /* An rmsnorm subtracts no mean of gradients. */
    if (is_rms(tp)) device_zero(tp->device, tensor_1d(part.data, part.dtype, n));
    e = sum_columns(tp, is_rms(tp) ? second : part, err);
    statistics_end(tp, sums, part);
    if (!e) dev_layernorm_backward_part(tp->device, dX, dY, X, w, norm_base(tp->config), mean, rstd, sums,
                                        tp->config->D);
    device_free(tp->device, sums);
    return e;
}

/* norm_backward_input chooses between whole rows, without messages, and rows in parts. */
static enum error_code norm_backward_input(struct tensor_parallel *tp, struct tensor dX, struct tensor dY,
                                           struct tensor X,
                                           struct tensor w, struct tensor mean, struct tensor rstd, struct error *err)
{
    struct tensor zero = tensor_none;
    enum error_code e = OK;
    if (tensor_norm_columns(tp)->size > 1) {
        if (is_rms(tp)) e = zeroes(tp, &zero, rstd.dtype, tensor_rows(X), err);
        if (!e) e = backward_in_parts(tp, dX, dY, X, w, is_rms(tp) ? zero : mean, rstd, err);
        device_free(tp->device, zero);
    } else if (is_rms(tp)) dev_rmsnorm_backward_input(tp->device, dX, dY, X, w, norm_base(tp->config), rstd);
    else dev_layernorm_backward_input(tp->device, dX, dY, X, w, norm_base(tp->config), mean, rstd);
    return e;
}

/* The backward pass reads the weight but no bias. */
enum error_code tensor_norm_backward_input(struct tensor_parallel *tp, struct tensor dX, struct tensor dY,
                                           struct tensor X, struct tensor w, struct tensor mean, struct tensor rstd,
                                           struct error *err)
{
    struct shared weight;
    enum error_code e = shared_take(tp, tp->scheme->stream, w, tp->channels.count, &weight, err);
    if (!e) e = norm_backward_input(tp, dX, dY, X, weight.taken, mean, rstd, err);
    shared_release(tp, &weight);
    return e;
}

enum error_code tensor_norm_backward_weight(struct tensor_parallel *tp, struct tensor dw, struct tensor db,
                                            struct tensor dY, struct tensor X, struct tensor mean, struct tensor rstd,
                                            struct error *err)
{
    const struct tensor_cut cut = tp->scheme->stream;
    struct shared weight = { 0 }, bias = { 0 };
    enum error_code e = shared_begin(tp, cut, dw, tp->channels.count, &weight, err);
    if (!e) e = shared_begin(tp, cut, db, tp->channels.count, &bias, err);
    /* Column sums need no other columns; rows of other devices are added in shared_give. */
    if (!e && is_rms(tp)) dev_rmsnorm_backward_weight(tp->device, weight.taken, dY, X, rstd);
    else if (!e) dev_layernorm_backward_weight(tp->device, weight.taken, bias.taken, dY, X, mean, rstd);
    if (!e) e = shared_give(tp, cut, &weight, err);
    if (!e) e = shared_give(tp, cut, &bias, err);
    return e;
}
