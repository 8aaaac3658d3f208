/* parts.c -- what is a part of a sum on each device that shares the inner side:
 * experts cut in F, where no matrix scheme adds up. */
#include "emulated_devices/schemes/tensor/tensor.h"

enum error_code tensor_add_parts(struct tensor_parallel *tp, struct tensor t, struct error *err)
{
    return allreduce(&tp->along[tp->scheme->inner.columns], t.data, tensor_count(t), t.dtype, SUM, tp->allreduce, err);
}

/* Rows and columns of the stream are whole under the schemes that take experts. */
void forecast_mixture(struct forecast *f, enum tensor_pass pass, int64_t N)
{
    const struct tensor_parallel *tp = f->tp;
    const struct group *g = &tp->along[tp->scheme->inner.columns];
    const enum dtype own = tp->device->dtype;
    const struct collective rows = { .count = N * tp->config->D, .dtype = own },
                            weights = { .count = N * tp->config->mixture.k, .dtype = dtype_wide(own) };
    if (pass != WEIGHT_PASS) forecast_on(f, g, ALLREDUCE, tp->allreduce, rows);
    if (pass == INPUT_PASS) forecast_on(f, g, ALLREDUCE, tp->allreduce, weights);
}
