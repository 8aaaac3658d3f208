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

struct folding folding_of_stages(const struct mesh *mesh, const int *first, int stages, int parts)
{
    struct folding f = folding_none(mesh);
    f.first = first, f.stages = stages;
    f.every[DP] = f.mesh.devices / parts;
    return f;
}

bool folding_is_none(const struct folding *folding) { return folding_lives(folding) == folding->mesh.devices; }

/* ---- stages of different sizes: each is turned as a ring --------------------------------------------------------- */

/* The stage of a device: the last one that begins at it or before it. */
static int stage_of_rank(const struct folding *folding, int rank)
{
    int low = 0, high = folding->stages;
    while (low + 1 < high) {
        const int middle = (low + high) / 2;
        if (folding->first[middle] <= rank) low = middle;
        else high = middle;
    }
    return low;
}

static int stage_devices(const struct folding *folding, int stage)
{
    return folding->first[stage + 1] - folding->first[stage];
}

/* The devices of a stage that run. */
static int stage_lives(const struct folding *folding, int stage)
{
    return stage_devices(folding, stage) / folding_share(folding);
}

/* A device, turned by so many parts of its stage. */
static int turn(const struct folding *folding, int rank, int parts)
{
    const int s = stage_of_rank(folding, rank), n = stage_devices(folding, s),
              place = rank - folding->first[s] + parts * stage_lives(folding, s);
    return folding->first[s] + (place % n + n) % n;
}

/* The part of its stage that a device is in. */
static int part_of(const struct folding *folding, int rank)
{
    const int s = stage_of_rank(folding, rank);
    return (rank - folding->first[s]) / stage_lives(folding, s);
}

/* ---- axes -------------------------------------------------------------------------------------------------------- */

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
    if (folding->first) return turn(folding, rank, -part_of(folding, rank));
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

/* The coordinates of those that run are digits of their number.  Those of a stage follow those of the stages before,
 * which are as large a part of their devices. */
int folding_class(const struct folding *folding, int rank)
{
    int n = 0, stride = 1;
    if (folding->first)
        return folding_stands_for(folding, rank) - folding->first[stage_of_rank(folding, rank)]
            + folding->first[stage_of_rank(folding, rank)] / folding_share(folding);
    for (int a = AXIS_COUNT - 1; a >= 0; a--) {
        n += rank % folding->mesh.size[a] % folding->every[a] * stride;
        rank /= folding->mesh.size[a], stride *= folding->every[a];
    }
    return n;
}

int folding_first(const struct folding *folding, int n)
{
    int rank = 0, stride = 1;
    if (folding->first) {
        const int first = folding->first[stage_of_rank(folding, n * folding_share(folding))];
        return first + n - first / folding_share(folding);
    }
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
    if (folding->first) return turn(folding, rank, -part_of(folding, from));
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
    if (folding->first) return axis == DP ? turn(folding, rank, 1) : rank;
    return mesh_neighbour(&folding->mesh, rank, axis, (mesh_coordinate(&folding->mesh, rank, axis)
                                                       + folding->every[axis]) % folding->mesh.size[axis]);
}

const char *folding_describe(const struct folding *folding, char *out, int size)
{
    int used = snprintf(out, (size_t)size, "%s", folding_is_none(folding) ? "nothing" : "");
    const char *between = "";
    if (folding->first && !folding_is_none(folding))
        snprintf(out, (size_t)size, "%d equal parts of %s stage", folding_share(folding),
                 folding->stages == 1 ? "the" : "each");
    for (enum axis a = 0; a < AXIS_COUNT && used < size && !folding->first; a++)
        if (folding->every[a] < folding->mesh.size[a]) {
            used += snprintf(out + used, (size_t)(size - used), "%s%s %d -> %d", between, axis_name(a),
                             folding->mesh.size[a], folding->every[a]);
            between = ", ";
        }
    return out;
}
