/* parameter.c -- looks up a device's piece of a parameter, and views memory as such a piece.
 *
 * model/ finds parameters by their index; the data room views its rows with parameter_view.  Both functions are pure.
 * No function returns an error code.
 */
#include "emulated_devices/schemes/parameter.h"

/* Tiles of a matrix have the same index and are neighbours, so the first tile is found. */
struct parameter *parameter_find(const struct parameters *ps, int index)
{
    for (int i = 0; i < ps->count; i++)
        if (ps->all[i].index == index) return &ps->all[i];
    return NULL;
}

/* The view is [rows, columns] of all boxes stacked, or [n] for a vector.  NULL data gives a view without memory. */
struct tensor parameter_view(const struct parameter *parameter, void *data, enum dtype dtype)
{
    const struct layout *l = &parameter->layout;
    return l->ndim == 2 ? tensor_2d(data, dtype, layout_rows(l), layout_cols(l))
           : tensor_1d(data, dtype, layout_count(l));
}
