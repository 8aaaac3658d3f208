/* cross_entropy.c -- the loss of logits whose columns (the vocabulary) are cut over several devices.
 *
 * Source   M. Shoeybi et al., "Megatron-LM", arXiv:1909.08053, section 3: no logits are sent, only numbers per token
 * Sends    over the devices with the same rows, n rows each: all-reduce of n maxima, then of n sums and n hits together
 *
 * model/run/run_node.c calls both functions once for a microbatch.  The forward call is collective over the devices
 * with the same rows; the only error is ERR_COMM.  The backward call is local and cannot fail.
 */
#include "emulated_devices/device/compute.h"
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
