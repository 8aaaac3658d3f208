#include "emulated_devices/schemes/parameter.h"

struct parameter *parameter_find(const struct parameters *ps, int index)
{
    for (int i = 0; i < ps->count; i++)
        if (ps->all[i].index == index) return &ps->all[i];
    return NULL;
}

struct tensor parameter_view(const struct parameter *parameter, void *data, enum dtype dtype)
{
    const struct layout *l = &parameter->layout;
    return l->ndim == 2 ? tensor_2d(data, dtype, layout_rows(l), layout_cols(l))
           : tensor_1d(data, dtype, layout_count(l));
}
