/* sharing.c -- the groups of the four levels, and the collectives of plain numbers on these groups.
 *
 * open.c opens one or two sharings; all stages send through a sharing.  codes.c has the other wire.  Collectives are
 * called by all members of a level.  Errors are ERR_MEMORY and ERR_COMM.
 */
#include "emulated_devices/schemes/data/stages/sharing.h"
#include "emulated_devices/schemes/data/data.h"
#include <stdlib.h>

/* Replicas that train apart do not sum gradients: each device is alone on that level. */
static int sharing_members(const struct shards *shards, enum shard_level level)
{
    return level == BY_COPIES && shards->apart ? 1 : shards_size(shards, level);
}

/* open_level creates the group of devices that differ from this one in one digit.  No message is sent. */
static enum error_code open_level(struct sharing *sharing, enum shard_level level, struct group *group,
                                  struct error *err)
{
    const struct shards *s = &sharing->shards;
    /* Members of a level differ only in that level's digit of their rank. */
    const int size = sharing_members(s, level), first = s->rank
        - (size > 1 ? shards_digit(s, level) * shards_stride(s, level) : 0);
    int *ranks = malloc(sizeof *ranks * (size_t)size);
    if (ranks == NULL) return fail(err, ERR_MEMORY, "no memory for a group of %d devices", size);
    for (int i = 0; i < size; i++) ranks[i] = group->member[first + i * shards_stride(s, level)];
    const enum error_code e = group_of(&sharing->level[level], group->comm, ranks, size, group->kind, group->axes, err);
    free(ranks);
    return e || sharing->gradients == &wire_numbers ? e
           : quantised_group_open(&sharing->scatter[level], &sharing->level[level], err);
}

enum error_code sharing_open(struct sharing *sharing, const struct data_request *request, const struct shards *shards,
                             struct group *group, struct error *err)
{
    enum error_code e = OK;
    *sharing = (struct sharing){ .request = request, .shards = *shards };
    sharing->weights = request->quantise_weights.bits > 0 ? &wire_codes : &wire_numbers;
    sharing->gradients = request->quantise_gradients.bits > 0 ? &wire_codes : &wire_numbers;
    for (enum shard_level l = BY_WEIGHTS; l < SHARD_LEVELS && !e; l++) e = open_level(sharing, l, group, err);
    return e;
}

void sharing_close(struct sharing *sharing)
{
    for (int l = 0; l < SHARD_LEVELS; l++) quantised_group_close(&sharing->scatter[l]), group_close(&sharing->level[l]);
}

/* ---- plain numbers ----------------------------------------------------------------------------------------------- */

/* A row is cut into equal blocks; a device's digit is the number of its block. */
static char *own_block(const struct sharing *sharing, enum shard_level level, struct tensor row)
{
    const int64_t n = tensor_count(row) / shards_size(&sharing->shards, level);
    return (char *)row.data + (size_t)(shards_digit(&sharing->shards, level) * n) * dtype_size(row.dtype);
}

/* row [n]: afterwards this device's block has the sum over the level; the other blocks are of no use. */
static enum error_code sharing_reduce_scatter(struct sharing *sharing, enum shard_level level, struct tensor row,
                                              struct tracking tracking, struct error *err)
{
    const struct collective c = { .in = row.data, .out = own_block(sharing, level, row), .count = tensor_count(row),
                                  .dtype = row.dtype, .reduction = SUM };
    (void)tracking;
    return collective_run(&sharing->level[level], REDUCE_SCATTER, sharing->request->reduce_scatter, &c, err);
}

static struct account reduce_scatter_cost(const struct sharing *sharing, enum shard_level level, int64_t n,
                                          enum dtype dtype)
{
    const struct collective call = { .count = n, .dtype = dtype };
    return group_cost(&sharing->level[level], REDUCE_SCATTER, sharing->request->reduce_scatter, &call);
}

/* row [n] = the blocks `own` of all members, in the order of digits. */
static enum error_code allgather(struct sharing *sharing, enum shard_level level, struct tensor own, struct tensor row,
                                 struct error *err)
{
    const struct collective c = { .in = own.data, .out = row.data, .count = tensor_count(row), .dtype = row.dtype };
    return collective_run(&sharing->level[level], ALLGATHER, sharing->request->allgather, &c, err);
}

static struct account allgather_cost(const struct sharing *sharing, enum shard_level level, int64_t n, enum dtype dtype)
{
    const struct collective call = { .count = n, .dtype = dtype };
    return group_cost(&sharing->level[level], ALLGATHER, sharing->request->allgather, &call);
}

const struct wire wire_numbers = {
    .name = "numbers", .reduce_scatter = sharing_reduce_scatter, .allgather = allgather,
    .reduce_scatter_cost = reduce_scatter_cost,
    .allgather_cost = allgather_cost,
};
