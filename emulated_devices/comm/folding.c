#include "emulated_devices/comm/folding.h"
#include <stdio.h>

struct folding folding_none(const struct mesh *m)
{
    struct folding f = { .mesh = *m };
    for (enum axis a = 0; a < AXIS_COUNT; a++) f.every[a] = m->size[a];
    return f;
}

bool folding_is_none(const struct folding *f) { return folding_lives(f) == f->mesh.devices; }

/* For each axis: rank = ((c0 * n1 + c1) * n2 + c2) ... */
int folding_stands_for(const struct folding *f, int rank)
{
    int stands = 0, stride = 1;
    for (int a = AXIS_COUNT - 1; a >= 0; a--) {
        const int n = f->mesh.size[a];
        /* Along an axis only the first `every` coordinates run; others are taken modulo `every`. */
        stands += rank % n % f->every[a] * stride;
        rank /= n, stride *= n;
    }
    return stands;
}

int folding_lives(const struct folding *f)
{
    int lives = 1;
    for (enum axis a = 0; a < AXIS_COUNT; a++) lives *= f->every[a];
    return lives;
}

int folding_move(const struct folding *f, int rank, int from)
{
    int moved = 0, stride = 1;
    for (int a = AXIS_COUNT - 1; a >= 0; a--) {
        /* `by` is how far `from` lies beyond the device that stands for it, along this axis. */
        const int n = f->mesh.size[a], by = from % n - from % n % f->every[a];
        moved += (rank % n - by + n) % n * stride;
        rank /= n, from /= n, stride *= n;
    }
    return moved;
}

int folding_next(const struct folding *f, int rank, enum axis a)
{
    return mesh_neighbour(&f->mesh, rank, a, (mesh_coordinate(&f->mesh, rank, a) + f->every[a]) % f->mesh.size[a]);
}

const char *folding_describe(const struct folding *f, char *out, int size)
{
    int used = snprintf(out, (size_t)size, "%s", folding_is_none(f) ? "nothing" : "");
    const char *between = "";
    for (enum axis a = 0; a < AXIS_COUNT && used < size; a++)
        if (f->every[a] < f->mesh.size[a]) {
            used += snprintf(out + used, (size_t)(size - used), "%s%s %d -> %d", between, axis_name(a), f->mesh.size[a],
                             f->every[a]);
            between = ", ";
        }
    return out;
}
