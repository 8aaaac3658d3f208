/* bucket.h -- sends several units in one exchange.  Private to this folder.
 *
 * Source   Y. Li et al., "PyTorch distributed", arXiv:2006.15704, section 4.2 (bucketing); DeepSpeed's
 *          reduce_bucket_size for ZeRO
 * Rule     units wait, in the order in which they are finished, until the next one would make the bucket larger than
 *          --bucket bytes; a unit that is larger than this is sent alone.  In a bucket with several units, their blocks
 *          for one device are packed one after another:
 *
 *              units a, b, two devices    a0 a1, b0 b1   ->   a0 b0 | a1 b1    one reduce-scatter or all-gather
 *
 * Memory   in BUFFERS the packed blocks: at most --bucket bytes, none for a unit alone
 * Used     if weights are kept whole (w = 1): zero1, zero2, chain.  Schemes that gather weights before use gather and
 *          reduce by unit, so that at most two parts of the model are whole.  Everything quantised (blocks of codes
 *          follow a unit's row) or offloaded, and the outer steps of replicas, are also sent by unit.
 * Equals   no buckets, bit for bit, if collectives do not add by position (collective.h)
 * Called   allreduce.c, renewal.c, scattering.c and scattering_foreseen.c call these functions.  Errors: ERR_MEMORY,
 *          and ERR_COMM of an exchange.
 */
#ifndef ORRERY_BUCKET_H
#define ORRERY_BUCKET_H

#include "emulated_devices/schemes/data/stages/stage.h"

/* Units that are reduced, or gathered, in one exchange; the same devices share all of them. */
struct bucket { struct sharing *over; int units; int64_t elements; int *unit; };

/* The number of elements of a bucket of this kind, weights or gradients; 0: units are sent one by one. */
int64_t bucket_capacity(const struct data_parallel *, const struct sharing *, enum tensor_kind);

/* Whether a unit may join the bucket; whether the bucket is full. */
static inline bool bucket_takes(const struct bucket *bucket, const struct unit *unit, int64_t capacity)
{
    return bucket->units == 0 || (bucket->over == unit->over && bucket->elements + unit->padded <= capacity);
}
static inline bool bucket_is_full(const struct bucket *bucket, int64_t capacity)
{
    return bucket->elements >= capacity;
}

enum error_code bucket_open(struct bucket *, int units, struct error *);
void bucket_close(struct bucket *);
void bucket_add(struct bucket *, const struct unit *, int unit);
static inline void bucket_empty(struct bucket *bucket) { bucket->units = 0, bucket->elements = 0; }

/* The collectives of a level on n rows at once, each cut as if alone: gradients in place, weights from own[] to row[].
 * t: the tracking of a single row, or none. */
enum error_code bucket_reduce_scatter(struct data_parallel *, struct sharing *, enum shard_level, struct tensor row[],
                                      int n, struct tracking tracking, struct error *);
enum error_code bucket_allreduce(struct data_parallel *, struct sharing *, enum shard_level, struct tensor row[], int n,
                                 struct error *);
enum error_code bucket_allgather(struct data_parallel *, struct sharing *, enum shard_level, struct tensor own[],
                                 struct tensor row[], int n, struct error *);

/* The cost of an all-reduce of gradients on a group. */
struct account allreduce_cost(const struct data_parallel *, const struct group *, int64_t elements);

#endif
