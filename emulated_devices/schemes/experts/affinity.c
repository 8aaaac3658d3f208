/* affinity.c -- the parts of tokens by the tables of affinity.h, and the order of rows by their parts.  plan/shuffle.c
 * calls both on every device along tp alike; without memory it is ERR_MEMORY. */
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

/* The listed part of a pair; `otherwise`: the pair is not listed. */
static int32_t part_of_pair(const struct affinity *affinity, int32_t before, int32_t token, int32_t otherwise)
{
    int64_t from = 0, to = affinity->pairs;
    while (from < to) {
        const int64_t middle = from + (to - from) / 2;
        const struct affinity_pair *const p = &affinity->pair[middle];
        if (p->before < before || (p->before == before && p->token < token)) from = middle + 1;
        else to = middle;
    }
    const struct affinity_pair *const found = from < affinity->pairs ? &affinity->pair[from] : NULL;
    return found && found->before == before && found->token == token ? found->part : otherwise;
}

int32_t affinity_part_at(const struct affinity *affinity, const int32_t *ids, int64_t S, int64_t at)
{
    const int32_t token = ids[at];
    const int32_t alone = token >= 0 && token < affinity->V ? affinity->part[token] : NOBODY;
    return at % S == 0 ? alone : part_of_pair(affinity, ids[at - 1], token, alone);
}

enum error_code affinity_order(const int32_t *part, int64_t n, const int own[], int devices, int32_t *order,
                               struct error *err)
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
        device[i] = part[i] < 0 ? NOBODY : device_with_room(part[i], own, room, devices);
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
