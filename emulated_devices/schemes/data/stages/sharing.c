#include "emulated_devices/schemes/data/stages/sharing.h"
#include "emulated_devices/schemes/data/data.h"
#include <stdlib.h>

/* Replicas that train apart do not sum gradients: each device is alone on that level. */
static int members(const struct shards *s, enum shard_level l)
{
    return l == BY_COPIES && s->apart ? 1 : shards_size(s, l);
}

static enum error_code open_level(struct sharing *x, enum shard_level l, struct group *group, struct error *err)
{
    const struct shards *s = &x->shards;
    /* Members of a level differ only in that level's digit of their rank. */
    const int size = members(s, l), first = s->rank - (size > 1 ? shards_digit(s, l) * shards_stride(s, l) : 0);
    int *ranks = malloc(sizeof *ranks * (size_t)size);
    if (ranks == NULL) return fail(err, ERR_MEMORY, "no memory for a group of %d devices", size);
    for (int i = 0; i < size; i++) ranks[i] = group->member[first + i * shards_stride(s, l)];
    const enum error_code e = group_of(&x->level[l], group->comm, ranks, size, group->kind, group->axes, err);
    free(ranks);
    return e || x->gradients == &wire_numbers ? e : quantised_group_open(&x->scatter[l], &x->level[l], err);
}

enum error_code sharing_open(struct sharing *x, const struct data_request *q, const struct shards *s,
                             struct group *group, struct error *err)
{
    enum error_code e = OK;
    *x = (struct sharing){ .request = q, .shards = *s };
    x->weights = q->quantise_weights.bits > 0 ? &wire_codes : &wire_numbers;
    x->gradients = q->quantise_gradients.bits > 0 ? &wire_codes : &wire_numbers;
    for (enum shard_level l = BY_WEIGHTS; l < SHARD_LEVELS && !e; l++) e = open_level(x, l, group, err);
    return e;
}

void sharing_close(struct sharing *x)
{
    for (int l = 0; l < SHARD_LEVELS; l++) quantised_group_close(&x->scatter[l]), group_close(&x->level[l]);
}

/* ---- plain numbers ----------------------------------------------------------------------------------------------- */

static char *own_block(const struct sharing *s, enum shard_level level, struct tensor row)
{
    const int64_t n = tensor_count(row) / shards_size(&s->shards, level);
    return (char *)row.data + (size_t)(shards_digit(&s->shards, level) * n) * dtype_size(row.dtype);
}

static enum error_code reduce_scatter(struct sharing *s, enum shard_level level, struct tensor row, struct tracking t,
                                      struct error *err)
{
    const struct collective c = { .in = row.data, .out = own_block(s, level, row), .count = tensor_count(row),
                                  .dtype = row.dtype, .reduction = SUM };
    (void)t;
    return collective_run(&s->level[level], REDUCE_SCATTER, s->request->reduce_scatter, &c, err);
}

static struct account reduce_scatter_cost(const struct sharing *s, enum shard_level level, int64_t n, enum dtype t)
{
    const struct collective call = { .count = n, .dtype = t };
    return group_cost(&s->level[level], REDUCE_SCATTER, s->request->reduce_scatter, &call);
}

static enum error_code allgather(struct sharing *s, enum shard_level level, struct tensor own, struct tensor row,
                                 struct error *err)
{
    const struct collective c = { .in = own.data, .out = row.data, .count = tensor_count(row), .dtype = row.dtype };
    return collective_run(&s->level[level], ALLGATHER, s->request->allgather, &c, err);
}

static struct account allgather_cost(const struct sharing *s, enum shard_level level, int64_t n, enum dtype t)
{
    const struct collective call = { .count = n, .dtype = t };
    return group_cost(&s->level[level], ALLGATHER, s->request->allgather, &call);
}

const struct wire wire_numbers = {
    .name = "numbers", .reduce_scatter = reduce_scatter, .allgather = allgather,
    .reduce_scatter_cost = reduce_scatter_cost,
    .allgather_cost = allgather_cost,
};
