/* folding.c -- arithmetic of folded meshes: who stands for whom.  crew.c, train/dry_run/ and the commands that
 * predict call.  The functions are pure.  No function returns an error code. */
#include "emulated_devices/comm/folding.h"
#include <stdio.h>

struct folding folding_none(const struct mesh *mesh)
{
    struct folding f = { .mesh = *mesh };
    for (enum axis a = 0; a < AXIS_COUNT; a++) f.every[a] = mesh->size[a];
    return f;
}

bool folding_is_none(const struct folding *folding) { return folding_lives(folding) == folding->mesh.devices; }

/* The rank is taken apart axis by axis, the fastest first: rank = ((c0 n1 + c1) n2 + c2) .. */
int folding_stands_for(const struct folding *folding, int rank)
{
    int stands = 0, stride = 1;
    for (int a = AXIS_COUNT - 1; a >= 0; a--) {
        const int n = folding->mesh.size[a];
        /* Along an axis only the first `every` coordinates run; others are taken modulo `every`. */
        stands += rank % n % folding->every[a] * stride;
        rank /= n, stride *= n;
    }
    return stands;
}

int folding_lives(const struct folding *folding)
{
    int lives = 1;
    for (enum axis a = 0; a < AXIS_COUNT; a++) lives *= folding->every[a];
    return lives;
}

int folding_move(const struct folding *folding, int rank, int from)
{
    int moved = 0, stride = 1;
    for (int a = AXIS_COUNT - 1; a >= 0; a--) {
        /* `by` is how far `from` lies beyond the device that stands for it, along this axis. */
        const int n = folding->mesh.size[a], by = from % n - from % n % folding->every[a];
        moved += (rank % n - by + n) % n * stride;
        rank /= n, from /= n, stride *= n;
    }
    return moved;
}

int folding_next(const struct folding *folding, int rank, enum axis axis)
{
    return mesh_neighbour(&folding->mesh, rank, axis, (mesh_coordinate(&folding->mesh, rank, axis)
                                                       + folding->every[axis]) % folding->mesh.size[axis]);
}

const char *folding_describe(const struct folding *folding, char *out, int size)
{
    int used = snprintf(out, (size_t)size, "%s", folding_is_none(folding) ? "nothing" : "");
    const char *between = "";
    for (enum axis a = 0; a < AXIS_COUNT && used < size; a++)
        if (folding->every[a] < folding->mesh.size[a]) {
            used += snprintf(out + used, (size_t)(size - used), "%s%s %d -> %d", between, axis_name(a),
                             folding->mesh.size[a], folding->every[a]);
            between = ", ";
        }
    return out;
}
