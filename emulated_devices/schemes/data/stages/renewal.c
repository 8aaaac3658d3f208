/* renewal.c -- sends new weights from the devices that have stepped them to all that keep them: through the levels of
 * the gradients, backwards, in buckets.
 *
 * step.c, slices.c, low_rank.c and outer.c hand over stepped units by share_weights; data_step flushes the last
 * bucket.  The gathers are collective over the levels of optimizer and gradients.  Errors are ERR_MEMORY and
 * ERR_COMM.
 */
#include "emulated_devices/schemes/data/stages/renewal.h"
#include <stdlib.h>

/* Units that have been stepped and wait for more units. */
static struct bucket *own_bucket(const struct data_parallel *dp) { return chain_state(dp, &stage_renewal); }

/* With w = o every device has stepped all its weights, so nothing is sent.  late.c sends what is sent late. */
static bool renewal_takes_part(const struct data_parallel *dp)
{
    return weights_are_renewed(dp) && !dp->shards.late;
}

static enum error_code open_bucket(struct data_parallel *dp, struct error *err)
{
    return bucket_open(own_bucket(dp), dp->units, err);
}

static void close_bucket(struct data_parallel *dp)
{
    bucket_close(own_bucket(dp));
}

enum error_code renewal_send(struct data_parallel *dp, struct bucket *bucket, struct error *err)
{
    if (bucket->units == 0) return OK;
    const struct shards *s = &bucket->over->shards;
    struct tensor *own = calloc((size_t)bucket->units * 3, sizeof *own), *half = own + bucket->units,
        *all = half + bucket->units;
    if (own == NULL) return fail(err, ERR_MEMORY, "no memory for a bucket of %d units", bucket->units);
    for (int i = 0; i < bucket->units; i++) {
        const struct unit *u = &dp->unit[bucket->unit[i]];
        struct interval r = shards_range(s, BY_GRADIENTS, u->padded);
        /* The three views of own_w are the stepped part (own), the gradients' part (half), and the whole (all). */
        r.first -= shards_range(s, BY_WEIGHTS, u->padded).first;
        own[i] = stepped_weights(u), half[i] = slice(u->own_w, r), all[i] = u->own_w;
    }
    /* Two gathers undo the two cuts: among the optimizer's devices, then among the gradients'. */
    enum error_code e = bucket_allgather(dp, bucket->over, BY_OPTIMIZER, own, half, bucket->units, err);
    if (!e) e = bucket_allgather(dp, bucket->over, BY_GRADIENTS, half, all, bucket->units, err);
    bucket_empty(bucket);
    free(own);
    return e;
}

/* A unit goes into the bucket, which is sent when full; NULL sends what waits. */
static enum error_code renewal_share(struct data_parallel *dp, struct unit *unit, struct error *err)
{
    struct bucket *b = own_bucket(dp);
    if (unit == NULL) return renewal_send(dp, b, err);
    const int64_t capacity = bucket_capacity(dp, unit->over, KIND_WEIGHT);
    const enum error_code e = bucket_takes(b, unit, capacity) ? OK : renewal_send(dp, b, err);
    bucket_add(b, unit, (int)(unit - dp->unit));
    return e || !bucket_is_full(b, capacity) ? e : renewal_send(dp, b, err);
}

/* ---- prediction -------------------------------------------------------------------------------------------------- */

void renewal_add(const struct data_parallel *dp, struct bucket *bucket, enum shard_level level, struct account *sum)
{
    const int64_t row = bucket->units > 0 ? bucket->elements / shards_stride(&bucket->over->shards, level) : 0;
    if (bucket->units > 0)
        account_add(sum, bucket->over->weights->allgather_cost(bucket->over, level, row,
                                                               data_format(dp, KIND_WEIGHT)), 1);
    bucket_empty(bucket);
}

/* Units in the order in which they are stepped. */
static struct account one_step(const struct data_parallel *dp, enum shard_level level)
{
    struct account sum = { 0 };
    struct bucket b = { 0 };
    for (int i = 0; i < dp->units && (level == BY_GRADIENTS || level == BY_OPTIMIZER); i++) {
        const struct unit *u = &dp->unit[i];
        const int64_t capacity = bucket_capacity(dp, u->over, KIND_WEIGHT);
        if (u->frozen) continue;
        if (!bucket_takes(&b, u, capacity)) renewal_add(dp, &b, level, &sum);
        b.over = u->over, b.units++, b.elements += u->padded;
        if (bucket_is_full(&b, capacity)) renewal_add(dp, &b, level, &sum);
    }
    renewal_add(dp, &b, level, &sum);
    return sum;
}

/* Every update inside the schedule sends the weights once. */
static void renewal_cost(const struct data_parallel *dp, enum shard_level level, struct account *sum)
{
    account_add(sum, one_step(dp, level), dp->updates);
}

struct account data_renewal_cost(const struct data_parallel *dp)
{
    struct account sum = { 0 };
    for (enum shard_level l = BY_GRADIENTS; l <= BY_OPTIMIZER && renewal_takes_part(dp); l++)
        account_add(&sum, one_step(dp, l), 1);
    return sum;
}

const struct data_stage stage_renewal = {
    .name = "renewal", .of_the_step = true, .takes_part = renewal_takes_part,
    .state = sizeof (struct bucket), .outline = open_bucket,
    .close = close_bucket, .share = renewal_share,
    .cost = renewal_cost,
};
