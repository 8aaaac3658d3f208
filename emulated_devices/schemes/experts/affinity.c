/* affinity.c -- the order of rows by the table of affinity.h, in one walk over the rows.  plan/shuffle.c calls it on
 * every device along tp alike; without memory it is ERR_MEMORY. */
#include "emulated_devices/schemes/experts/affinity.h"
#include "emulated_devices/device/interval.h"
#include <stdlib.h>

enum { NOBODY = -1 };

/* Find the first device that has the part and has room for one more row; NOBODY: none. */
static int32_t device_with_room(int part, const int own[], const int64_t room[], int devices)
{
    for (int r = 0; r < devices; r++)
        if (own[r] == part && room[r] > 0) return r;
    return NOBODY;
}

enum error_code affinity_order(const struct affinity *affinity, const int32_t *id, int64_t n,
                               const int own[], int devices, int32_t *order, struct error *err)
{
    int32_t *const device = malloc((size_t)(n + 1) * sizeof *device);
    int64_t *const room = malloc((size_t)devices * sizeof *room), *const next = malloc((size_t)devices * sizeof *next);
    const bool ok = device && room && next;
    for (int r = 0; r < devices && ok; r++) {
        /* Device r has room for the rows of block r, and fills the places of that block. */
        const struct interval block = block_at(n, devices, r);
        next[r] = block.first, room[r] = block.count;
    }
    for (int64_t i = 0; i < n && ok; i++) {
        /* A token goes to a device with its part while one of them has room. */
        const int32_t part = id[i] >= 0 && id[i] < affinity->V ? affinity->part[id[i]] : -1;
        device[i] = part < 0 ? NOBODY : device_with_room(part, own, room, devices);
        if (device[i] != NOBODY) room[device[i]]--;
    }
    for (int64_t i = 0, r = 0; i < n && ok; i++) {
        /* The rows that are left fill the devices in order. */
        while (device[i] == NOBODY && room[r] == 0) r++;
        if (device[i] == NOBODY) device[i] = (int32_t)r, room[r]--;
    }
    /* Rows of a device keep their order, since they are listed as they come. */
    for (int64_t i = 0; i < n && ok; i++) order[next[device[i]]++] = (int32_t)i;
    free(device), free(room), free(next);
    return ok ? OK : fail(err, ERR_MEMORY, "no memory to order %lld rows", (long long)n);
}
