/* parts.c -- sums partial results over the devices that share the inner side: for experts cut in F, which use no matrix
 * product of a scheme.
 *
 * model/run/run_mixture.c calls tensor_add_parts after the experts of a layer; model/link/link_cost.c calls
 * forecast_mixture.  The sum is t [N, D] over the devices that have other columns of F.  Errors: ERR_MEMORY, and
 * ERR_COMM of the sum.
 */
#include "emulated_devices/schemes/tensor/tensor.h"
#include "ref/model/config.h"

/* With rows of its own, a device has no parts. */
static bool has_parts(const struct tensor_parallel *tp) { return tp->scheme->stream.rows == 0; }

enum error_code tensor_add_parts(struct tensor_parallel *tp, struct tensor t, struct error *err)
{
    if (!has_parts(tp)) return OK;
    return allreduce(&tp->along[tp->scheme->feed.columns], t.data, tensor_count(t), t.dtype, SUM, tp->allreduce, err);
}

void forecast_mixture(struct forecast *forecast, enum tensor_pass pass, int64_t N)
{
    const struct tensor_parallel *tp = forecast->tp;
    const struct group *g = &tp->along[tp->scheme->feed.columns];
    const enum dtype own = tp->device->dtype;
    const struct collective rows = { .count = N * tp->config->D, .dtype = own },
                            weights = { .count = N * tp->config->mixture.k, .dtype = dtype_wide(own) };
    /* Forward sums the output; backward sums the input's gradient, and the gradient of the k choices' weights. */
    if (pass == WEIGHT_PASS || !has_parts(tp)) return;
    forecast_on(forecast, g, ALLREDUCE, tp->allreduce, rows);
    if (pass == INPUT_PASS) forecast_on(forecast, g, ALLREDUCE, tp->allreduce, weights);
}
