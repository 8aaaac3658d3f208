/* folding.c -- arithmetic of folded meshes: who stands for whom.  crew.c, train/dry_run/ and the commands that
 * predict call.  The functions are pure.  No function returns an error code. */
#include "emulated_devices/comm/folding.h"
#include <stdio.h>

struct folding folding_none(const struct mesh *mesh)
{
    struct folding f = { .mesh = *mesh };
    int product = 1;
    for (enum axis a = 0; a < AXIS_COUNT; a++) product *= mesh->size[a];
    /* Devices of sections of a model are no product of axes: they are a line. */
    f.mesh.size[DP] *= mesh->devices / product;
    for (enum axis a = 0; a < AXIS_COUNT; a++) f.every[a] = f.mesh.size[a];
    return f;
}

bool folding_is_none(const struct folding *folding) { return folding_lives(folding) == folding->mesh.devices; }

/* Where a device stands on an axis whose next device is `stride` ranks away, and how far beyond the one that stands for
 * it. */
static unsigned place_on(const struct folding *folding, int rank, int axis, unsigned stride)
{
    return (unsigned)rank / stride % (unsigned)folding->mesh.size[axis];
}

static unsigned beyond(const struct folding *folding, int rank, int axis, unsigned stride)
{
    const unsigned place = place_on(folding, rank, axis, stride);
    return place - place % (unsigned)folding->every[axis];
}

/* Along folded axes only the first `every` coordinates run; others are taken modulo `every`.  Each message of a folded
 * crew asks, so axes that are not folded cost no division. */
int folding_stands_for(const struct folding *folding, int rank)
{
    int stands = rank;
    unsigned stride = 1;
    for (int a = AXIS_COUNT - 1; a >= 0; a--) {
        if (folding->every[a] < folding->mesh.size[a]) stands -= (int)(beyond(folding, rank, a, stride) * stride);
        stride *= (unsigned)folding->mesh.size[a];
    }
    return stands;
}

int folding_lives(const struct folding *folding)
{
    int lives = 1;
    for (enum axis a = 0; a < AXIS_COUNT; a++) lives *= folding->every[a];
    return lives;
}

/* The coordinates of those that run are digits of their number. */
int folding_class(const struct folding *folding, int rank)
{
    int n = 0, stride = 1;
    for (int a = AXIS_COUNT - 1; a >= 0; a--) {
        n += rank % folding->mesh.size[a] % folding->every[a] * stride;
        rank /= folding->mesh.size[a], stride *= folding->every[a];
    }
    return n;
}

int folding_first(const struct folding *folding, int n)
{
    int rank = 0, stride = 1;
    for (int a = AXIS_COUNT - 1; a >= 0; a--) {
        rank += n % folding->every[a] * stride;
        n /= folding->every[a], stride *= folding->mesh.size[a];
    }
    return rank;
}

int folding_share(const struct folding *folding) { return folding->mesh.devices / folding_lives(folding); }

int folding_move(const struct folding *folding, int rank, int from)
{
    int moved = rank;
    unsigned stride = 1;
    for (int a = AXIS_COUNT - 1; a >= 0; a--) {
        const unsigned n = (unsigned)folding->mesh.size[a],
                       by = folding->every[a] < folding->mesh.size[a] ? beyond(folding, from, a, stride) : 0;
        if (by > 0) {
            const unsigned place = place_on(folding, rank, a, stride);
            moved += ((int)((place + n - by) % n) - (int)place) * (int)stride;
        }
        stride *= n;
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
