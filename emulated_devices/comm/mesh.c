/* mesh.c -- arithmetic of ranks and coordinates, and their names.  Every room above calls.  mesh_make alone can
 * fail, with ERR_PLAN; all else is pure. */
#include "emulated_devices/comm/mesh.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

const char *axis_name(enum axis axis)
{
    static const char *const name[] = {
#define X(id, text, what) [id] = text,
        AXES(X)
#undef X
    };
    return axis < AXIS_COUNT ? name[axis] : "unknown";
}

const char *axes_describe(unsigned axes, char *out, int size)
{
    int used = snprintf(out, (size_t)size, "%s", axes == 0 ? "all devices" : "");
    const char *between = "";
    for (enum axis a = 0; a < AXIS_COUNT && used < size; a++)
        if (axes & AXIS_BIT(a)) {
            used += snprintf(out + used, (size_t)(size - used), "%s%s", between, axis_name(a));
            between = "+";
        }
    return out;
}

enum error_code mesh_make(struct mesh *mesh, const int size[AXIS_COUNT], struct error *err)
{
    int64_t devices = 1, listed = 1;
    for (enum axis a = 0; a < AXIS_COUNT; a++) {
        if (size[a] < 1) return fail(err, ERR_PLAN, "--%s %d: an axis has at least 1 device", axis_name(a), size[a]);
        devices *= size[a];
        if (devices > MESH_MOST_DEVICES)
            return fail(err, ERR_PLAN, "--%s %d: makes the mesh larger than %d devices", axis_name(a), size[a],
                        MESH_MOST_DEVICES);
        if (a == PP || a == DP) continue;
        listed *= size[a];
        if (listed > MESH_MOST_LISTED)
            return fail(err, ERR_PLAN, "--%s %d: makes more than %d devices along cp and tp", axis_name(a), size[a],
                        MESH_MOST_LISTED);
    }
    if (size[PP] > MESH_MOST_LISTED)
        return fail(err, ERR_PLAN, "--pp %d: a pipeline has at most %d stages", size[PP], MESH_MOST_LISTED);
    for (enum axis a = 0; a < AXIS_COUNT; a++) mesh->size[a] = size[a];
    mesh->devices = (int)devices, mesh->first = mesh->of = 0;
    return OK;
}

/* The difference of ranks for one step along an axis: the product of the axes that vary faster. */
static int stride(const struct mesh *mesh, enum axis axis)
{
    int s = 1;
    for (enum axis a = axis + 1; a < AXIS_COUNT; a++) s *= mesh->size[a];
    return s;
}

int mesh_coordinate(const struct mesh *mesh, int rank, enum axis axis)
{
    return (rank - mesh->first) / stride(mesh, axis) % mesh->size[axis];
}

int mesh_neighbour(const struct mesh *mesh, int rank, enum axis axis, int coordinate)
{
    return rank + (coordinate - mesh_coordinate(mesh, rank, axis)) * stride(mesh, axis);
}

/* The axes that vary faster are filled first: so the list ascends. */
int mesh_members(const struct mesh *mesh, int rank, unsigned axes, int *member)
{
    int first = rank, n = 1;
    for (enum axis a = 0; a < AXIS_COUNT; a++)
        if (axes & AXIS_BIT(a)) first = mesh_neighbour(mesh, first, a, 0);
    if (member != NULL) member[0] = first;
    for (int a = AXIS_COUNT - 1; a >= 0; a--) {
        if (!(axes & AXIS_BIT(a))) continue;
        const int step = stride(mesh, (enum axis)a);
        /* The list so far is repeated for each further coordinate along this axis. */
        for (int i = n; i < n * mesh->size[a] && member != NULL; i++) member[i] = member[i % n] + i / n * step;
        n *= mesh->size[a];
    }
    return n;
}

const char *mesh_describe(const struct mesh *mesh, int rank, char *out, int size)
{
    int used = snprintf(out, (size_t)size, "%s", mesh->devices == 1 && mesh->of <= 1 ? "the only device" : "");
    const char *between = "";
    for (enum axis a = 0; a < AXIS_COUNT && used < size; a++)
        if (mesh->size[a] > 1) {
            used += snprintf(out + used, (size_t)(size - used), "%s%s=%d", between, axis_name(a),
                             mesh_coordinate(mesh, rank, a));
            between = " ";
        }
    /* Sections have a mesh each, and one of them may have a single device. */
    if (used == 0) snprintf(out, (size_t)size, "%s", mesh->devices > 1 ? "in its sections" : "alone");
    return out;
}
