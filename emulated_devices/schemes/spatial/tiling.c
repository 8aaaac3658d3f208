/* tiling.c -- the mesh of a tiling: coordinates of a rank, and groups along its axes.
 *
 * verify/jobs/spatial.c and tests/devices/test_spatial.c open a tiling.  All is local.  Errors are ERR_PLAN and
 * ERR_MEMORY.
 */
#include "emulated_devices/schemes/spatial/spatial.h"
#include <stdlib.h>

/* Axes are numbered slowest first: samples, ensemble, polar, azimuth. */
static int coordinate(const int size[], int rank, enum tile_axis axis)
{
    for (int a = TILE_AXES - 1; a > (int)axis; a--) rank /= size[a];
    return rank % size[axis];
}

static int tiling_devices(const int size[])
{
    return size[SAMPLES] * size[ENSEMBLE] * size[POLAR] * size[AZIMUTH];
}

enum error_code tiling_group(struct group *group, struct comm *comm, const int size[TILE_AXES], unsigned axes,
                             enum traffic_kind kind, struct error *err)
{
    const int devices = tiling_devices(size);
    int count = 0, *const list = malloc((size_t)devices * sizeof *list);
    if (list == NULL) return fail(err, ERR_MEMORY, "no memory for a list of %d devices", devices);
    /* All members list a group's ranks in the same order, so ranks follow the coordinates. */
    for (int rank = 0; rank < devices; rank++) {
        bool member = true;
        for (enum tile_axis a = 0; a < TILE_AXES; a++)
            member = member && (axes >> a & 1 || coordinate(size, rank, a) == coordinate(size, comm->rank, a));
        if (member) list[count++] = rank;
    }
    const enum error_code e = group_of(group, comm, list, count, kind, 0, err);
    free(list);
    return e;
}

enum error_code tiling_open(struct tiling *tiling, struct comm *comm, const int size[TILE_AXES], struct error *err)
{
    *tiling = (struct tiling){ 0 };
    for (int a = 0; a < TILE_AXES; a++)
        if (size[a] < 1) return fail(err, ERR_PLAN, "a tiling with %d devices along an axis: must have 1", size[a]);
    /* A device of the job beyond the tiling gets ERR_PLAN. */
    const int devices = tiling_devices(size);
    if (comm->rank >= devices || devices > comm->size)
        return fail(err, ERR_PLAN, "device %d of %d: %d x %d x %d x %d tiles do not include it", comm->rank, comm->size,
                    size[SAMPLES], size[ENSEMBLE], size[POLAR], size[AZIMUTH]);
    enum error_code e = OK;
    for (enum tile_axis a = 0; a < TILE_AXES; a++)
        tiling->size[a] = size[a], tiling->place[a] = coordinate(size, comm->rank, a);
    const unsigned field = 1u << POLAR | 1u << AZIMUTH;
    for (enum tile_axis a = 0; a < TILE_AXES && !e; a++)
        e = tiling_group(&tiling->along[a], comm, size, 1u << a, TRAFFIC_SPATIAL, err);
    if (!e) e = tiling_group(&tiling->tiles, comm, size, field, TRAFFIC_SPATIAL, err);
    if (!e) e = tiling_group(&tiling->all, comm, size, field | 1u << ENSEMBLE, TRAFFIC_SPATIAL, err);
    if (e) tiling_close(tiling);
    return e;
}

void tiling_close(struct tiling *tiling)
{
    for (int a = 0; a < TILE_AXES; a++) group_close(&tiling->along[a]);
    group_close(&tiling->tiles), group_close(&tiling->all);
}

/* Parts are nearly equal, and a part may be empty. */
struct interval tiling_part(const struct tiling *tiling, enum tile_axis axis, int64_t count)
{
    return block_at(count, tiling->size[axis], tiling->place[axis]);
}
