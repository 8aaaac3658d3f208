/* bucket.h -- several units in one exchange.  Private to this folder.
 *
 * Source   Y. Li et al., "PyTorch distributed", arXiv:2006.15704, section 4.2 (bucketing); DeepSpeed's
 *          reduce_bucket_size for ZeRO
 * Rule     units wait, in the order in which they are finished, until the next one would make them more than --bucket
 *          bytes together; a unit that is larger by itself goes alone.  Where a bucket has several, their blocks for
 *          one device are packed one after another:
 *
 *              units a, b, two devices    a0 a1, b0 b1   ->   a0 b0 | a1 b1    one reduce-scatter or all-gather for
 *              both
 *
 * Memory   in BUFFERS what is packed: at most --bucket bytes, and none for a unit alone
 * Where    weights are whole (w = 1): zero1, zero2, chain.  Schemes that gather weights before use gather and reduce by
 *          unit, so that two parts of the model are whole at most; so does everything that is quantised, whose blocks
 *          of codes go along a unit's row, or offloaded.  Replicas all-reduce, in their outer steps, by unit.
 * Equals   without buckets, bit for bit, where collectives do not add by position (collective.h)
 */
#ifndef ORRERY_BUCKET_H
#define ORRERY_BUCKET_H

#include "emulated_devices/schemes/data/stage.h"

/* Units that are reduced, or gathered, in one exchange: all shared by the same devices. */
struct bucket { struct sharing *over; int units; int64_t elements; int *unit; };

/* Elements of this kind, weights or gradients, that go together; 0: units go one by one. */
int64_t bucket_capacity(const struct data_parallel *, const struct sharing *, enum tensor_kind);

/* Whether a unit may join those that wait, and whether they wait for no more. */
static inline bool bucket_takes(const struct bucket *b, const struct unit *u, int64_t capacity)
{
    return b->units == 0 || (b->over == u->over && b->elements + u->padded <= capacity);
}
static inline bool bucket_is_full(const struct bucket *b, int64_t capacity) { return b->elements >= capacity; }

enum error_code bucket_open(struct bucket *, int units, struct error *);
void bucket_close(struct bucket *);
void bucket_add(struct bucket *, const struct unit *, int unit);
static inline void bucket_empty(struct bucket *b) { b->units = 0, b->elements = 0; }

/* The collectives of a level on n rows at once, each cut as by itself: gradients in place, weights from own[] to row[].
 * t: beside the only row, or none. */
enum error_code bucket_reduce_scatter(struct data_parallel *, struct sharing *, enum shard_level, struct tensor row[],
                                      int n, struct tracking t, struct error *);
enum error_code bucket_allreduce(struct data_parallel *, struct sharing *, enum shard_level, struct tensor row[], int n,
                                 struct error *);
enum error_code bucket_allgather(struct data_parallel *, struct sharing *, enum shard_level, struct tensor own[],
                                 struct tensor row[], int n, struct error *);

/* What an all-reduce of so many elements of gradients costs on a group. */
struct account allreduce_cost(const struct data_parallel *, const struct group *, int64_t elements);

#endif
