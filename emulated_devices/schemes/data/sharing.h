/* sharing.h -- the devices that share a unit's weights, gradients and optimizer state, and how numbers travel between
 * them.
 *
 * A unit carries its own (unit.h): code that gathers or reduces a unit asks it, and does not assume that all units are
 * shared alike.
 */
#ifndef ORRERY_SHARING_H
#define ORRERY_SHARING_H

#include "emulated_devices/collectives/quantised.h"
#include "emulated_devices/schemes/data/shards.h"

struct data_request;
struct sharing;

/* Collectives of one level on a row that is cut into equal blocks.  Gradients, in place: afterwards a device's own
 * block has the sum; tracking: beside the row, or none.  Weights, from own, which may lie in its
 * place in the row, to all of it. */
struct wire {
    const char *name;
    bool alone;                 /* a unit's messages are its own: several are not packed into one */
    enum error_code (*reduce_scatter)(struct sharing *, enum shard_level, struct tensor row, struct tracking,
                                      struct error *);
    enum error_code (*allgather)(struct sharing *, enum shard_level, struct tensor own, struct tensor row,
                                 struct error *);
    /* What they cost, on a row of n elements. */
    struct account (*reduce_scatter_cost)(const struct sharing *, enum shard_level, int64_t n, enum dtype);
    struct account (*allgather_cost)(const struct sharing *, enum shard_level, int64_t n, enum dtype);
};

extern const struct wire wire_numbers, wire_codes;      /* numbers as they are; blocks of codes (--quantize-*) */

struct sharing {
    const struct data_request *request;         /* algorithms, and formats of codes */
    struct shards shards;
    struct group level[SHARD_LEVELS];           /* devices that differ in one digit; BY_COPIES: that add up gradients in
                                                 * every step */
    struct quantised_group scatter[SHARD_LEVELS];       /* of level[], where gradients travel as codes */
    const struct wire *weights, *gradients;
};

/**
 * Make the groups.  Local; all devices of the group do it, in the same order among their groups.
 * @param group  devices with the same pieces and other sequences.  @return OK or ERR_MEMORY; sharing_close works after
 *     both.
 */
enum error_code sharing_open(struct sharing *, const struct data_request *, const struct shards *, struct group *group,
                             struct error *);
void sharing_close(struct sharing *);

/** Whether numbers of a level are sent at all. */
static inline bool level_talks(const struct sharing *s, enum shard_level level)
{
    return shards_size(&s->shards, level) > 1;
}

#endif
