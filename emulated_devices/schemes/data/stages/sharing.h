/* sharing.h -- the devices that share a unit's weights, gradients and optimizer state, and how numbers are sent between
 * them.
 *
 * Each unit has a pointer to its sharing (unit.h): code that gathers or reduces a unit uses it, and does not assume
 * that all units are shared by the same devices.  schemes/data/open.c opens and closes each sharing; bucket.c and
 * codes.c send through its functions.  Errors: ERR_MEMORY, ERR_COMM.
 */
#ifndef ORRERY_SHARING_H
#define ORRERY_SHARING_H

#include "emulated_devices/collectives/quantised.h"
#include "emulated_devices/schemes/data/shards.h"

struct data_request;
struct sharing;

/* A wire has the collectives of one level on a row that is cut into equal blocks.  `reduce_scatter` sums gradients in
 * place; afterwards a device's own block has the sum.  `tracking` is that of the row, or none.  `allgather` brings
 * weights from `own` to the whole row; `own` may be at its place in the row. */
struct wire {
    const char *name;           /* for messages about the scheme */
    bool alone;                 /* units are sent one by one: several are not packed into one message */
    enum error_code (*reduce_scatter)(struct sharing *, enum shard_level, struct tensor row, struct tracking,
                                      struct error *); /**< Reduces a row and scatters the sums. */
    enum error_code (*allgather)(struct sharing *, enum shard_level, struct tensor own, struct tensor row,
                                 struct error *);      /**< Gathers a row on all members. */
    /* Their costs on a row of n elements. */
    struct account (*reduce_scatter_cost)(const struct sharing *, enum shard_level, int64_t n, enum dtype);
    struct account (*allgather_cost)(const struct sharing *, enum shard_level, int64_t n, enum dtype); /**< Costs. */
};

extern const struct wire wire_numbers, wire_codes;      /* plain numbers; blocks of codes (--quantize-*) */

struct sharing {
    const struct data_request *request;         /* algorithms, and formats of codes */
    struct shards shards;                       /* into how many shards weights, gradients and states are cut */
    struct group level[SHARD_LEVELS];           /* devices that differ in one digit; BY_COPIES: those that sum gradients
                                                 * in every step */
    struct quantised_group scatter[SHARD_LEVELS];       /* of level[], if gradients are sent as codes */
    const struct wire *weights, *gradients;     /* how each of them is sent: as numbers or as codes */
};

/**
 * Create the groups.  Local; all devices of the group must call it, in the same order relative to other groups.
 * @param group  devices with the same pieces and different sequences.
 * @return OK or ERR_MEMORY; sharing_close works after both.
 */
enum error_code sharing_open(struct sharing *, const struct data_request *, const struct shards *, struct group *group,
                             struct error *);
void sharing_close(struct sharing *);

/** Whether a level sends anything. */
static inline bool level_talks(const struct sharing *sharing, enum shard_level level)
{
    return shards_size(&sharing->shards, level) > 1;
}

#endif
