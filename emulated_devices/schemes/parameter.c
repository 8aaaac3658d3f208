#include "emulated_devices/schemes/parameter.h"

struct parameter *parameter_find(const struct parameters *ps, int index)
{
    for (int i = 0; i < ps->count; i++)
        if (ps->all[i].index == index) return &ps->all[i];
    return NULL;
}

struct tensor parameter_view(const struct parameter *p, void *data, enum dtype t)
{
    const struct layout *l = &p->layout;
    return l->ndim == 2 ? tensor_2d(data, t, layout_rows(l), layout_cols(l)) : tensor_1d(data, t, layout_count(l));
}
