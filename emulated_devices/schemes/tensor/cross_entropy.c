/* cross_entropy.c -- the loss of logits whose columns (the vocabulary) are cut over several devices.
 *
 * Source   M. Shoeybi et al., "Megatron-LM", arXiv:1909.08053, section 3: no logits are sent, only numbers per token
 * Sends    over the devices with the same rows, n rows each: all-reduce of n maxima, then of n sums and n hits together
 *
 * model/run/run_node.c calls both functions once for a microbatch.  The forward call is collective over the devices
 * with the same rows; the only error is ERR_COMM.  The backward call is local and cannot fail.  Where rows have losses
 * of their own (ref/model/row_loss.h), two more calls change the loss and its gradient: run_node.c calls them, too.
 */
#include "emulated_devices/device/compute.h"
#include "emulated_devices/device/interval.h"
#include "emulated_devices/schemes/tensor/tensor.h"

/* sums [2 N] has the totals in its first half and the hits in its second half. */
static struct tensor half(struct tensor sums, int which)
{
    const int64_t n = tensor_count(sums) / 2;
    return tensor_1d((char *)sums.data + (size_t)(which * n) * dtype_size(sums.dtype), sums.dtype, n);
}

/* All devices with the same rows compute the same loss; this one device reports the loss. */
static bool first_with_rows(const struct tensor_parallel *tp)
{
    for (int a = 0; a < TENSOR_AXES; a++)
        if (!(tp->scheme->logits.rows & MESH_AXIS(a)) && tp->at[a] != 0) return false;
    return true;
}

enum error_code tensor_cross_entropy_forward(struct tensor_parallel *tp, double *loss, struct tensor top,
                                             struct tensor sums, struct tensor logits, struct tensor labels,
                                             struct error *err)
{
    struct group *g = &tp->along[tp->scheme->logits.columns];
    const struct tensor total = half(sums, 0), hit = half(sums, 1);
    /* top [N] = largest logit of a row, first of this device's columns, then of all. */
    dev_cross_entropy_max(tp->device, top, logits);
    enum error_code e = allreduce(g, top.data, tensor_count(top), top.dtype, MAX, tp->allreduce, err);
    if (e) return e;
    /* total [N] = sum of exp(logit - top), hit [N] = the label's logit or 0: both lie in sums, reduced at once. */
    dev_cross_entropy_sums(tp->device, total, hit, logits, top, labels, tp->tokens.first);
    e = allreduce(g, sums.data, tensor_count(sums), sums.dtype, SUM, tp->allreduce, err);
    if (e) return e;
    /* Every member of the group has the loss of its rows; only the first counts it. */
    *loss = 0;
    dev_cross_entropy_loss(tp->device, loss, total, top, hit, labels, IGNORE_LABEL);
    if (!first_with_rows(tp)) *loss = 0;
    return OK;
}

void tensor_cross_entropy_backward(struct tensor_parallel *tp, struct tensor dlogits, struct tensor logits,
                                   struct tensor sums, struct tensor top, struct tensor labels, double scale)
{
    dev_cross_entropy_backward(tp->device, dlogits, logits, half(sums, 0), top, labels, tp->tokens.first,
                               IGNORE_LABEL, scale);
}

/* Host views of what forward keeps of rows. */
static struct row_sums view_sums(struct views *views, struct tensor top, struct tensor sums)
{
    return (struct row_sums){ view_read(views, top), view_read(views, half(sums, 0)), view_read(views, half(sums, 1)) };
}

void tensor_row_loss_forward(struct tensor_parallel *tp, const struct row_loss *row_loss, const struct intervals *rows,
                             double *loss, struct tensor top, struct tensor sums, struct tensor labels)
{
    struct views views = views_of(tp->device);
    const struct row_sums kept = view_sums(&views, top, sums);
    *loss = 0;
    for (int64_t i = 0, n = 0; i < rows->count; n += rows->at[i++].count)
        *loss += row_loss_forward(row_loss, &kept, labels.data, n, rows->at[i].count, rows->at[i].first,
                                  tp->device->exact != SUMS_ROUND);
    views_end(&views);
    *loss = first_with_rows(tp) ? *loss : 0;
}

void tensor_row_loss_backward(struct tensor_parallel *tp, const struct row_loss *row_loss, const struct intervals *rows,
                              struct tensor dlogits, struct tensor sums, struct tensor top, struct tensor labels,
                              double scale)
{
    struct views views = views_of(tp->device);
    const struct row_sums kept = view_sums(&views, top, sums);
    const struct tensor changed = view_write(&views, dlogits);
    for (int64_t i = 0, n = 0; i < rows->count; n += rows->at[i++].count)
        row_loss_backward(row_loss, changed, &kept, labels.data, n, rows->at[i].count, rows->at[i].first,
                          tp->tokens.first, scale);
    views_end(&views);
    device_charge(tp->device, "slopes of rows", elementwise_cost(tensor_count(dlogits), 2, 1, dlogits.dtype));
}
