/* mesh.h -- all devices, arranged along five named axes.  Files of verify/, check/, comm/, run/ and other rooms call
 * these functions. */
#ifndef ORRERY_MESH_H
#define ORRERY_MESH_H

#include "ref/error.h"

/* Slowest-varying first: neighbours in rank differ in tp, which sends most. */
#define AXES(X)                         \
    X(PP, "pp", "pipeline stages")      \
    X(DP, "dp", "copies of the model")  \
    X(CP, "cp", "parts of a sequence")  \
    X(EP, "ep", "groups of experts")    \
    X(TP, "tp", "parts of each layer")

enum axis {
#define X(id, name, what) id,
    AXES(X)
#undef X
    AXIS_COUNT
};

/* A set of axes: AXIS_BIT(DP) | AXIS_BIT(CP). */
#define AXIS_BIT(axis) (1u << (axis))
enum { AXIS_SETS = 1 << AXIS_COUNT };

enum {
    MESH_MOST_DEVICES = 1 << 20,        /* of a mesh */
    MESH_MOST_LISTED = 1 << 14,         /* along pp, or along cp, ep and tp together: schemes list them on their stacks;
                                         * copies along dp are never listed so */
};

struct mesh {
    int size[AXIS_COUNT];               /* each >= 1 */
    int devices;                        /* their product */
    int first;                          /* the first device's rank: ranks first .. first + devices - 1 are arranged;
                                         * 0 but for a section of a model (plan/sections.h) */
    int of;                             /* devices of the job, of which these are a range; 0: these are all */
};

const char *axis_name(enum axis);

/** Text such as "dp+cp" for a set of axes; "all devices" for the empty one.  @return out. */
const char *axes_describe(unsigned axes, char *out, int size);

/** A mesh from its sizes. @return OK, or ERR_PLAN if a size is below 1, or a product is
 *  above its bound. */
enum error_code mesh_make(struct mesh *, const int size[AXIS_COUNT], struct error *);

/** Whether a rank is one of the mesh's. */
static inline int mesh_has(const struct mesh *mesh, int rank)
{
    return rank >= mesh->first && rank < mesh->first + mesh->devices;
}

/** Where a rank stands on one axis, 0 <= result < size[axis]. */
int mesh_coordinate(const struct mesh *, int rank, enum axis);

/** The rank that stands where `rank` does, but at `coordinate` on one axis. */
int mesh_neighbour(const struct mesh *, int rank, enum axis, int coordinate);

/** The ranks, ascending, that differ from this one only in the given axes, itself included.
 *  @param[out] member  [devices]; NULL to count.  @return how many. */
int mesh_members(const struct mesh *, int rank, unsigned axes, int *member);

/** Text such as "dp=1 pp=0 tp=1": only the axes larger than 1; "the only device" if there are none.  @return out. */
const char *mesh_describe(const struct mesh *, int rank, char *out, int size);

#endif
