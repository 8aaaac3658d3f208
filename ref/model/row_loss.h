/* row_loss.h -- a loss of each row by one number of it, in place of the labels' cross entropy.
 *
 * Reinforcement learning gives a row a loss f(log p), p the probability of its label, or f(x), x its label's logit:
 *     loss    = sum_n f_n / labels                  over rows whose label is not ignored
 *     dx_v    = f'_n ([v is the label] - p_v)       of a log-probability; f'_n [v is the label] of a logit
 * The gradient is that of ops/cross_entropy.c, times -f' row by row, so slices of the vocabulary stay slices.
 *
 * transformer_forward and transformer_backward call these functions for one device, schemes/tensor/cross_entropy.c for
 * many.  With exact sums losses lie on the grid of ref/exact/loss.c.  No function reports an error.
 */
#ifndef ORRERY_ROW_LOSS_H
#define ORRERY_ROW_LOSS_H

#include "ref/numeric/tensor.h"
#include <stdbool.h>

/* Rows are trained for this. */
struct row_loss {
    /* The loss of a row and its slope by `number`.  Pure: it is called forward and again backward.
     * row: of the batch.  slope: NULL where it is not asked for. */
    double (*of_row)(const void *context, int64_t row, double number, double *slope);
    const void *context;                /* first argument */
    bool of_logit;                      /* the number is the label's logit; else its log-probability */
};

/* Forward keeps this of rows: their largest logit, sum of exponentials, and label's logit, [N] each. */
struct row_sums { struct tensor top, total, hit; };

/** The number of row n on which its loss depends, by the operations of ref/exact/functions.h. */
double row_number(const struct row_loss *, const struct row_sums *, int64_t n);

/** The sum of losses of `count` rows from n on, the first of which is `row` of the batch; without ignored ones. */
double row_loss_forward(const struct row_loss *, const struct row_sums *, const int32_t *labels, int64_t n,
                        int64_t count, int64_t row, bool exact);

/** Make the gradient of cross entropy that of the loss, for the same rows.
 *  @param dlogits  [N, columns from `first` on], scale times the gradient of cross entropy. */
void row_loss_backward(const struct row_loss *, struct tensor dlogits, const struct row_sums *, const int32_t *labels,
                       int64_t n, int64_t count, int64_t row, int64_t first, double scale);

#endif
