/* row_loss.c -- computes losses and gradients of row_loss.h, row by row, in double.  ref/model/forward.c, backward.c
 * and schemes/tensor/cross_entropy.c call these functions.  No function reports an error. */
#include "ref/model/row_loss.h"
#include "ref/exact/functions.h"
#include "ref/exact/grid.h"

double row_number(const struct row_loss *loss, const struct row_sums *sums, int64_t n)
{
    const double hit = tensor_get(sums->hit, n), total = tensor_get(sums->total, n);
    if (loss->of_logit) return hit;
    return hit - tensor_get(sums->top, n) - exact_log(total);
}

double row_loss_forward(const struct row_loss *loss, const struct row_sums *sums, const int32_t *labels, int64_t n,
                        int64_t count, int64_t row, bool exact)
{
    double sum = 0;
    for (int64_t i = 0; i < count; i++) {
        if (labels[n + i] < 0) continue;
        const double one = loss->of_row(loss->context, row + i, row_number(loss, sums, n + i), NULL);
        if (exact && !(fabs(one) * LOSS_GRID < 0x1p51)) return NAN;
        sum += exact ? grid_round(one * LOSS_GRID) * (1 / LOSS_GRID) : one;
    }
    return sum;
}

/* The gradient by a logit has the label's column alone. */
static void logit_slope(struct tensor dlogits, int64_t n, int64_t column, double slope)
{
    const int64_t V = tensor_cols(dlogits);
    for (int64_t v = 0; v < V; v++) tensor_set(dlogits, n * V + v, v == column ? slope : 0);
}

void row_loss_backward(const struct row_loss *loss, struct tensor dlogits, const struct row_sums *sums,
                       const int32_t *labels, int64_t n, int64_t count, int64_t row, int64_t first, double scale)
{
    const int64_t V = tensor_cols(dlogits);
    for (int64_t i = 0; i < count; i++) {
        double slope = 0;
        if (labels[n + i] < 0) continue;
        (void)loss->of_row(loss->context, row + i, row_number(loss, sums, n + i), &slope);
        if (loss->of_logit) logit_slope(dlogits, n + i, labels[n + i] - first, slope * scale);
        for (int64_t v = (n + i) * V; v < (n + i + 1) * V && !loss->of_logit; v++)
            tensor_set(dlogits, v, tensor_get(dlogits, v) * -slope);
    }
}
