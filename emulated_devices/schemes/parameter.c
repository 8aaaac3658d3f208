/* parameter.c -- looks up a device's piece of a parameter, and views memory as such a piece.
 *
 * model/ finds parameters by their index; the data room views its rows with parameter_view.  Both functions are pure.
 * No function returns an error code.
 */
#include "emulated_devices/schemes/parameter.h"

/* Tiles of a matrix have the same index and are neighbours, so the first tile is found.  A mixture has a hundred
 * thousand parameters, of which each product asks for one. */
struct parameter *parameter_find(const struct parameters *parameters, int index)
{
    for (int turn = 0; turn < PARAMETER_TURNS; turn++) {
        const int end = parameters->end[turn];
        int from = turn > 0 ? parameters->end[turn - 1] : 0, to = end;
        /* `from` becomes the first of the turn whose index is not below the wanted one. */
        while (from < to) {
            const int middle = from + (to - from) / 2;
            if (parameters->all[middle].index < index) from = middle + 1;
            else to = middle;
        }
        if (from < end && parameters->all[from].index == index) return &parameters->all[from];
    }
    return NULL;
}

/* The view is [rows, columns] of all boxes stacked, or [n] for a vector.  NULL data gives a view without memory. */
struct tensor parameter_view(const struct parameter *parameter, void *data, enum dtype dtype)
{
    const struct layout *l = &parameter->layout;
    return l->ndim == 2 ? tensor_2d(data, dtype, layout_rows(l), layout_cols(l))
           : tensor_1d(data, dtype, layout_count(l));
}
