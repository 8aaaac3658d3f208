/* boxing_time.c -- how long a step of a journey takes on a cluster: its collective, on the slowest of the groups that
 * do it side by side. */
#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/device/cluster.h"
#include "emulated_devices/schemes/sbp/boxing.h"
#include <stdlib.h>

/* The devices of one device's group: all, or those that differ from it in one axis. */
static int members_of(const struct sbp_mesh *m, int axis, int device, int member[])
{
    int n = 0;
    for (int d = 0; d < sbp_devices(m); d++)
        if (axis < 0 || m->axes == 1 || sbp_place(m, d, 1 - axis) == sbp_place(m, device, 1 - axis)) member[n++] = d;
    return n;
}

/* Along which axis a step's messages go; -1: along both. */
static int axis_of(const struct boxing_step *s)
{
    if (s->kind != REDISTRIBUTE) return s->axis;
    return s->from.on[0].kind == SBP_P ? 1 : s->from.on[1].kind == SBP_P ? 0 : -1;
}

/* The collective as one device calls it.  @param[out] given, taken  room for all members. */
static struct collective call_of(const struct shape *t, const struct sbp_mesh *m, const struct boxing_step *s,
                                 int device, const int member[], int members, int64_t given[], int64_t taken[])
{
    struct collective c = { .dtype = F64, .reduction = SUM, .nodes = nodes_on(m->cluster, member, members) };
    if (s->kind == SUM_ALL) {
        c.count = box_count(signature_box(t, m, s->from, device), t->ndim);
        return c;
    }
    for (int i = 0; i < members; i++) {
        const struct box b = s->kind == REDISTRIBUTE ? boxing_parcel(t, m, s, device, member[i])
                                                     : signature_box(t, m, s->to, member[i]);
        given[i] = box_count(b, t->ndim);
        taken[i] = s->kind == REDISTRIBUTE ? box_count(boxing_parcel(t, m, s, member[i], device), t->ndim) : 0;
    }
    c.counts = given;
    if (s->kind == REDISTRIBUTE) c.recvcounts = taken;
    return c;
}

picoseconds boxing_time(const struct shape *t, const struct sbp_mesh *m, const struct boxing_step *s)
{
    static const struct { enum operation op; const char *name; } by[] = {
        [REDISTRIBUTE] = { ALLTOALL, "linear" }, [SUM_AND_SPLIT] = { REDUCE_SCATTER, "ring" },
        [SUM_ALL] = { ALLREDUCE, "ring" },
    };
    const int devices = sbp_devices(m);
    int64_t given[MESH_MOST_DEVICES], taken[MESH_MOST_DEVICES];
    int member[MESH_MOST_DEVICES];
    picoseconds slowest = 0;
    if (s->kind == MAKE_PARTIAL) return 0;
    /* Groups of an axis may lie differently on the cluster, and the slowest one decides. */
    for (int d = 0; d < devices; d++) {
        const int members = members_of(m, axis_of(s), d, member);
        const struct collective c = call_of(t, m, s, d, member, members, given, taken);
        const picoseconds time = collective_time(algorithm_find(by[s->kind].op, by[s->kind].name), members, &c,
                                                 m->cluster);
        if (time > slowest) slowest = time;
    }
    return slowest;
}
