/* devices.h -- a set of ranks, a bit for each.  assembly.c notes ranks with different copies in such a set.  Files
 * of check/report/ say with a set whose copies are wanted. */
#ifndef ORRERY_DEVICES_H
#define ORRERY_DEVICES_H

#include "emulated_devices/comm/mesh.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct devices { uint64_t word[MESH_MOST_LISTED / 64]; };

/* A rank is below MESH_MOST_LISTED; nobody checks this here. */
static inline void devices_add(struct devices *devices, int rank)
{
    devices->word[rank / 64] |= UINT64_C(1) << (rank % 64);
}
static inline bool devices_have(const struct devices *devices, int rank)
{
    return devices->word[rank / 64] >> (rank % 64) & 1;
}

static inline int devices_count(const struct devices *devices)
{
    int n = 0;
    for (size_t i = 0; i < sizeof devices->word / sizeof *devices->word; i++)
        n += __builtin_popcountll(devices->word[i]);
    return n;
}

#endif
