/* tiling.c -- the mesh of a tiling: coordinates of a rank, and groups along its axes.
 *
 * verify/jobs/spatial.c and tests/devices/test_spatial.c open a tiling.  All is local.  Errors are ERR_PLAN and
 * ERR_MEMORY.
 */
#include "emulated_devices/schemes/spatial/spatial.h"
#include <stdlib.h>

/* Axes are numbered slowest first: ensemble, polar, azimuth. */
static int coordinate(const int size[], int rank, enum tile_axis axis)
{
    for (int a = TILE_AXES - 1; a > (int)axis; a--) rank /= size[a];
    return rank % size[axis];
}

/* The devices that differ from this one only along the axes of a set. */
static enum error_code group_of_axes(struct group *group, struct comm *comm, const int size[], unsigned axes, int *list,
                                     struct error *err)
{
    const int devices = size[ENSEMBLE] * size[POLAR] * size[AZIMUTH];
    int count = 0;
    for (int rank = 0; rank < devices; rank++) {
        bool member = true;
        for (enum tile_axis a = 0; a < TILE_AXES; a++)
            member = member && (axes >> a & 1 || coordinate(size, rank, a) == coordinate(size, comm->rank, a));
        if (member) list[count++] = rank;
    }
    return group_of(group, comm, list, count, TRAFFIC_SPATIAL, 0, err);
}

enum error_code tiling_open(struct tiling *tiling, struct comm *comm, const int size[TILE_AXES], struct error *err)
{
    *tiling = (struct tiling){ 0 };
    for (int a = 0; a < TILE_AXES; a++)
        if (size[a] < 1) return fail(err, ERR_PLAN, "a tiling with %d devices along an axis: must have 1", size[a]);
    /* A device of the job beyond the tiling gets ERR_PLAN. */
    const int devices = size[ENSEMBLE] * size[POLAR] * size[AZIMUTH];
    if (comm->rank >= devices || devices > comm->size)
        return fail(err, ERR_PLAN, "device %d of %d: %d x %d x %d tiles do not include it", comm->rank, comm->size,
                    size[ENSEMBLE], size[POLAR], size[AZIMUTH]);
    int *const list = malloc((size_t)devices * sizeof *list);
    enum error_code e = list ? OK : fail(err, ERR_MEMORY, "no memory for a list of %d devices", devices);
    for (enum tile_axis a = 0; a < TILE_AXES; a++)
        tiling->size[a] = size[a], tiling->place[a] = coordinate(size, comm->rank, a);
    /* All members list a group's ranks in the same order, so ranks follow the coordinates. */
    for (enum tile_axis a = 0; a < TILE_AXES && !e; a++)
        e = group_of_axes(&tiling->along[a], comm, size, 1u << a, list, err);
    if (!e) e = group_of_axes(&tiling->tiles, comm, size, 1u << POLAR | 1u << AZIMUTH, list, err);
    if (!e) e = group_of_axes(&tiling->all, comm, size, 1u << ENSEMBLE | 1u << POLAR | 1u << AZIMUTH, list, err);
    free(list);
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
