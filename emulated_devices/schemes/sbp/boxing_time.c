/* boxing_time.c -- how long a step of a journey takes on a cluster: its collective, on the slowest of the groups that
 * do it side by side.
 *
 * boxing.c asks for these times, if the mesh has a cluster; the function is local and cannot fail.
 */
#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/device/cluster.h"
#include "emulated_devices/schemes/sbp/boxing.h"
#include <stdlib.h>

/* The devices of one device's group: all, or those that differ from it in one axis. */
static int members_of(const struct sbp_mesh *sbp_mesh, int axis, int device, int member[])
{
    int n = 0;
    for (int d = 0; d < sbp_devices(sbp_mesh); d++)
        if (axis < 0 || sbp_mesh->axes == 1
            || sbp_place(sbp_mesh, d, 1 - axis) == sbp_place(sbp_mesh, device, 1 - axis)) member[n++] = d;
    return n;
}

/* Along which axis a step's messages go; -1: along both. */
static int axis_of(const struct boxing_step *step)
{
    if (step->kind != REDISTRIBUTE) return step->axis;
    /* Devices with different partial sums do not mix, as in boxing_run.c. */
    return step->from.on[0].kind == SBP_P ? 1 : step->from.on[1].kind == SBP_P ? 0 : -1;
}

/* The collective as one device calls it.  @param[out] given, taken  room for all members. */
static struct collective boxing_time_call_of(const struct shape *shape, const struct sbp_mesh *sbp_mesh,
                                             const struct boxing_step *step,
                                             int device, const int member[], int members, int64_t given[],
                                             int64_t taken[])
{
    struct collective c = { .dtype = F64, .reduction = SUM, .nodes = nodes_on(sbp_mesh->cluster, member, members) };
    /* An all-reduce has one count; the other two collectives have a count for each member. */
    if (step->kind == SUM_ALL) {
        c.count = box_count(signature_box(shape, sbp_mesh, step->from, device), shape->ndim);
        return c;
    }
    for (int i = 0; i < members; i++) {
        const struct box b = step->kind == REDISTRIBUTE ? boxing_parcel(shape, sbp_mesh, step, device, member[i])
                                                     : signature_box(shape, sbp_mesh, step->to, member[i]);
        given[i] = box_count(b, shape->ndim);
        taken[i] = step->kind == REDISTRIBUTE
            ? box_count(boxing_parcel(shape, sbp_mesh, step, member[i], device), shape->ndim) : 0;
    }
    c.counts = given;
    if (step->kind == REDISTRIBUTE) c.recvcounts = taken;
    return c;
}

picoseconds boxing_time(const struct shape *shape, const struct sbp_mesh *sbp_mesh, const struct boxing_step *step)
{
    static const struct { enum operation op; const char *name; } by[] = {
        [REDISTRIBUTE] = { ALLTOALL, "linear" }, [SUM_AND_SPLIT] = { REDUCE_SCATTER, "ring" },
        [SUM_ALL] = { ALLREDUCE, "ring" },
    };
    const int devices = sbp_devices(sbp_mesh);
    int64_t given[MESH_MOST_LISTED], taken[MESH_MOST_LISTED];
    int member[MESH_MOST_LISTED];
    picoseconds slowest = 0;
    /* Zeros are written where the device is; nothing is sent. */
    if (step->kind == MAKE_PARTIAL) return 0;
    /* Groups of an axis may lie differently on the cluster, and the slowest one decides. */
    for (int d = 0; d < devices; d++) {
        const int members = members_of(sbp_mesh, axis_of(step), d, member);
        const struct collective c = boxing_time_call_of(shape, sbp_mesh, step, d, member, members, given, taken);
        const picoseconds time = collective_time(algorithm_find(by[step->kind].op, by[step->kind].name), members, &c,
                                                 sbp_mesh->cluster);
        if (time > slowest) slowest = time;
    }
    return slowest;
}
