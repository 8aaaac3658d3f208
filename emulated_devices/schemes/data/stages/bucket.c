/* bucket.c -- a list of units that wait, and collectives on several units at once.
 *
 * scattering.c reduces with these functions, renewal.c gathers.  Packing costs a copy into and out of BUFFERS.
 * Errors are ERR_MEMORY and ERR_COMM; the pack is freed in any case.
 */
#include "emulated_devices/schemes/data/stages/bucket.h"
#include "emulated_devices/device/compute.h"
#include <stdlib.h>

/* ---- which units ------------------------------------------------------------------------------------------------- */

int64_t bucket_capacity(const struct data_parallel *dp, const struct sharing *over, enum tensor_kind kind)
{
    const struct wire *wire = kind == KIND_GRADIENT ? over->gradients : over->weights;
    /* Sharded weights are gathered as they are needed: packing several units would hold them all. */
    if (over->shards.weights > 1 || dp->unit_by_unit || wire->alone) return 0;
    return dp->request.bucket / (int64_t)dtype_size(data_format(dp, kind));
}

enum error_code bucket_open(struct bucket *bucket, int units, struct error *err)
{
    *bucket = (struct bucket){ .unit = calloc((size_t)units, sizeof *bucket->unit) };
    return bucket->unit ? OK : fail(err, ERR_MEMORY, "no memory for a list of %d units", units);
}

void bucket_close(struct bucket *bucket)
{
    free(bucket->unit);
    *bucket = (struct bucket){ 0 };
}

void bucket_add(struct bucket *bucket, const struct unit *u, int unit)
{
    bucket->over = u->over;
    bucket->unit[bucket->units++] = unit;
    bucket->elements += u->padded;
}

/* ---- packing ----------------------------------------------------------------------------------------------------- */

/* The result is the number of elements of all n rows together. */
static int64_t bucket_count_rows(const struct tensor row[], int n)
{
    int64_t sum = 0;
    for (int i = 0; i < n; i++) sum += tensor_count(row[i]);
    return sum;
}

/* open_pack allocates room for all rows in the format of the first row. */
static enum error_code open_pack(struct data_parallel *dp, struct tensor *pack, const struct tensor row[], int n,
                                 struct error *err)
{
    *pack = device_tensor_in(dp->device, BUFFERS, row[0].dtype, bucket_count_rows(row, n));
    return pack->data ? OK
                      : fail(err, ERR_MEMORY, "no memory for a bucket of %lld elements",
                             (long long)bucket_count_rows(row, n));
}

enum way { INTO_PACK, OUT_OF_PACK };

/* Copy blocks first .. first + count - 1 of each row (of `of` blocks) to or from the pack, one after another. */
static void move_blocks(struct data_parallel *dp, struct tensor pack, const struct tensor row[], int n,
                        struct interval blocks, int of, enum way way)
{
    const size_t size = dtype_size(pack.dtype);
    int64_t at = bucket_count_rows(row, n) / of * blocks.first;
    for (int64_t b = blocks.first; b < blocks.first + blocks.count; b++)
        for (int i = 0; i < n; i++) {
            /* Block b of every row in turn: member b's parts of all units are adjacent in the pack. */
            const int64_t each = tensor_count(row[i]) / of;
            char *in_pack = (char *)pack.data + (size_t)at * size,
                 *in_row = (char *)row[i].data + (size_t)(b * each) * size;
            device_copy(dp->device, way == INTO_PACK ? in_pack : in_row, way == INTO_PACK ? in_row : in_pack,
                        (size_t)each * size);
            at += each;
        }
    dev_charge(dp->device, "pack", slice(pack, (struct interval){ 0, bucket_count_rows(row, n) / of * blocks.count }),
               2, 0);
}

/* ---- collectives ------------------------------------------------------------------------------------------------- */

enum error_code bucket_reduce_scatter(struct data_parallel *dp, struct sharing *over, enum shard_level level,
                                      struct tensor row[], int n, struct tracking tracking, struct error *err)
{
    const int P = shards_size(&over->shards, level);
    struct tensor pack;
    /* A unit alone needs no packing: its own row is the message. */
    if (n == 1) return over->gradients->reduce_scatter(over, level, row[0], tracking, err);
    if (n == 0 || P == 1) return OK;
    enum error_code e = open_pack(dp, &pack, row, n, err);
    if (e) return e;
    /* The collective cuts the pack into P blocks; block d has shard d of every unit. */
    move_blocks(dp, pack, row, n, (struct interval){ 0, P }, P, INTO_PACK);
    e = over->gradients->reduce_scatter(over, level, pack, tracking, err);
    /* Only the own block has sums: it goes back to the units. */
    if (!e) move_blocks(dp, pack, row, n, (struct interval){ shards_digit(&over->shards, level), 1 }, P, OUT_OF_PACK);
    device_free(dp->device, pack);
    return e;
}

enum error_code bucket_allreduce(struct data_parallel *dp, struct sharing *over, enum shard_level level,
                                 struct tensor row[], int n, struct error *err)
{
    struct group *g = &over->level[level];
    struct tensor pack;
    /* A row alone is reduced in place. */
    if (n == 1) return allreduce(g, row[0].data, tensor_count(row[0]), row[0].dtype, SUM, dp->allreduce, err);
    if (n == 0 || g->size == 1) return OK;
    enum error_code e = open_pack(dp, &pack, row, n, err);
    if (e) return e;
    /* A sum over all is not cut, so each row is a single block. */
    move_blocks(dp, pack, row, n, (struct interval){ 0, 1 }, 1, INTO_PACK);
    e = allreduce(g, pack.data, tensor_count(pack), pack.dtype, SUM, dp->allreduce, err);
    if (!e) move_blocks(dp, pack, row, n, (struct interval){ 0, 1 }, 1, OUT_OF_PACK);
    device_free(dp->device, pack);
    return e;
}

/* own[] is at its place in row[]. */
enum error_code bucket_allgather(struct data_parallel *dp, struct sharing *over, enum shard_level level,
                                 struct tensor own[], struct tensor row[], int n, struct error *err)
{
    const int P = shards_size(&over->shards, level), self = shards_digit(&over->shards, level);
    struct tensor pack;
    /* A unit alone is gathered at its place. */
    if (n == 1) return over->weights->allgather(over, level, own[0], row[0], err);
    if (n == 0 || P == 1) return OK;
    enum error_code e = open_pack(dp, &pack, row, n, err);
    if (e) return e;
    const int64_t each = tensor_count(pack) / P;
    /* The own shards of all units are one block of the pack; all blocks then come back. */
    move_blocks(dp, pack, row, n, (struct interval){ self, 1 }, P, INTO_PACK);
    e = over->weights->allgather(over, level, slice(pack, (struct interval){ self * each, each }), pack, err);
    if (!e) move_blocks(dp, pack, row, n, (struct interval){ 0, P }, P, OUT_OF_PACK);
    device_free(dp->device, pack);
    return e;
}

struct account allreduce_cost(const struct data_parallel *dp, const struct group *group, int64_t elements)
{
    const struct collective call = { .count = elements, .dtype = data_format(dp, KIND_GRADIENT) };
    return group_cost(group, ALLREDUCE, dp->allreduce, &call);
}
