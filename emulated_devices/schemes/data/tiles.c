/* tiles.c -- which parameters are cut into tiles, and the layout of a tile.
 *
 * plan/plan.c, plan/check.c, model/trainer_open.c and model/link/uses.c call these functions.  Both are pure.  No
 * function returns an error code.
 */
#include "emulated_devices/schemes/data/tiles.h"

/* Vectors, positions, prefixes and whole matrices (such as a router) are not tiled. */
static bool is_tiled(const struct param_spec *spec)
{
    return spec->ndim == 2 && spec->role != ROLE_POSITIONS && spec->role != ROLE_PREFIX && !role_is_whole(spec->role);
}

int tiles_of(const struct data_request *request, const struct param_spec *spec)
{
    return uses_tiles(request) && is_tiled(spec) ? request->tiles : 1;
}

/* The rows of a matrix's boxes are stored one box below the other. */
struct layout tile_layout(const struct layout *whole, int tiles, int t)
{
    const int64_t rows = layout_rows(whole), first = block_start(rows, tiles, t), end = block_start(rows, tiles, t + 1);
    struct layout l = layout_none(whole->ndim, whole->dim);
    int64_t row = 0;
    for (int b = 0; b < whole->boxes; b++) {
        const struct box *box = &whole->box[b];
        /* The tile's range of rows may begin in one box and end in another. */
        const struct interval own =
            interval_meet((struct interval){ row, box->extent[0] }, (struct interval){ first, end - first });
        if (own.count > 0)
            layout_add_box(&l, (int64_t[]){ box->start[0] + own.first - row, box->start[1] },
                           (int64_t[]){ own.count, box->extent[1] });
        row += box->extent[0];
    }
    return l;
}
