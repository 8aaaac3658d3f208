/* norm.c -- layernorm of the stream, whose columns, or rows, several devices may share.
 *
 * Source   Q. Xu et al., "An efficient 2D method for training super-large deep learning models" (Optimus),
 *          arXiv:2104.05343, section 3: statistics of a row are reduced over the devices that have a part of it.  There the
 *          sums of x and of x^2 travel together; here the sum, then the squares round the mean, in which nothing cancels.
 * Talks    if columns are cut, over the devices with the same rows, n rows each: forward all-reduce of n, twice; backward
 *          for the input all-reduce of 2n.  Weights and their gradients: shared.c
 */
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/tensor/tensor.h"

static struct group *columns(struct tensor_parallel *tp) { return &tp->along[tp->scheme->stream.columns]; }

static enum error_code sum_columns(struct tensor_parallel *tp, struct tensor t, struct error *err)
{
    return allreduce(columns(tp), t.data, tensor_count(t), t.dtype, SUM, tp->allreduce, err);
}

/* Y from whole rows, or from this device's columns of them. */
static enum error_code forward(struct tensor_parallel *tp, struct tensor Y, struct tensor mean, struct tensor rstd, struct tensor X,
                               struct tensor w, struct tensor b, double eps, struct error *err)
{
    struct device *d = tp->device;
    if (columns(tp)->size == 1) {
        dev_layernorm_forward(d, Y, mean, rstd, X, w, b, eps);
        return OK;
    }
    dev_row_sums(d, mean, X);
    enum error_code e = sum_columns(tp, mean, err);
    if (e) return e;
    dev_scale(d, mean, 1 / (double)tp->config->D);
    dev_row_centred_squares(d, rstd, X, mean);
    e = sum_columns(tp, rstd, err);
    if (!e) dev_layernorm_forward_part(d, Y, rstd, X, w, b, mean, tp->config->D, eps);
    return e;
}

enum error_code tensor_norm_forward(struct tensor_parallel *tp, struct tensor Y, struct tensor mean, struct tensor rstd, struct tensor X,
                                    struct tensor w, struct tensor b, double eps, struct error *err)
{
    const struct tensor_cut cut = tp->scheme->stream;
    struct shared weight = { 0 }, bias = { 0 };
    enum error_code e = shared_take(tp, cut, w, tp->channels, &weight, err);
    if (!e) e = shared_take(tp, cut, b, tp->channels, &bias, err);
    if (!e) e = forward(tp, Y, mean, rstd, X, weight.taken, bias.taken, eps, err);
    shared_release(tp, &bias);
    shared_release(tp, &weight);
    return e;
}

static enum error_code backward_input(struct tensor_parallel *tp, struct tensor dX, struct tensor dY, struct tensor X, struct tensor w,
                                      struct tensor mean, struct tensor rstd, struct error *err)
{
    struct tensor sums;
    if (columns(tp)->size == 1) {
        dev_layernorm_backward_input(tp->device, dX, dY, X, w, mean, rstd);
        return OK;
    }
    sums = tensor_2d(NULL, dtype_wide(tp->device->dtype), 2, tensor_rows(X));
    sums.data = arena_alloc(&tp->device->arena, BUFFERS, tensor_bytes(sums));
    if (sums.data == NULL) return fail(err, ERR_MEMORY, "no memory for the sums of %lld rows", (long long)tensor_rows(X));
    dev_layernorm_backward_sums(tp->device, sums, dY, X, w, mean, rstd);
    const enum error_code e = sum_columns(tp, sums, err);
    if (!e) dev_layernorm_backward_part(tp->device, dX, dY, X, w, mean, rstd, sums, tp->config->D);
    device_free(tp->device, sums);
    return e;
}

enum error_code tensor_norm_backward_input(struct tensor_parallel *tp, struct tensor dX, struct tensor dY, struct tensor X, struct tensor w,
                                           struct tensor mean, struct tensor rstd, struct error *err)
{
    struct shared weight;
    enum error_code e = shared_take(tp, tp->scheme->stream, w, tp->channels, &weight, err);
    if (!e) e = backward_input(tp, dX, dY, X, weight.taken, mean, rstd, err);
    shared_release(tp, &weight);
    return e;
}

enum error_code tensor_norm_backward_weight(struct tensor_parallel *tp, struct tensor dw, struct tensor db, struct tensor dY, struct tensor X,
                                            struct tensor mean, struct tensor rstd, struct error *err)
{
    const struct tensor_cut cut = tp->scheme->stream;
    struct shared weight = { 0 }, bias = { 0 };
    enum error_code e = shared_begin(tp, cut, dw, tp->channels, &weight, err);
    if (!e) e = shared_begin(tp, cut, db, tp->channels, &bias, err);
    if (!e) dev_layernorm_backward_weight(tp->device, weight.taken, bias.taken, dY, X, mean, rstd);
    if (!e) e = shared_give(tp, cut, &weight, err);
    if (!e) e = shared_give(tp, cut, &bias, err);
    return e;
}
