/* late.c -- sends new weights in the next step, bucket by bucket, before their first use: the first bucket before the
 * forward pass begins, each further one beside the passes that use the bucket before.
 *
 * Source   Megatron-LM's --overlap-param-gather: core/distributed/param_and_grad_buffer.py, start_param_sync and
 *          finish_param_sync, which starts the next bucket's gathering when a bucket is complete
 * Rule     units are in the order of their first use, and go into buckets of up to --bucket bytes (bucket.h), apart by
 *          the devices that share them.  The list of passes decides this order, so all devices of a group have the
 *          same.  From an update on, or from a skipped step, the whole weights count as old until they are gathered
 * Called   data_acquire reaches late_acquire through the chain (stage.h), before any other stage uses weights.
 *          Gathering is collective over the levels of optimizer and gradients.  Errors are ERR_MEMORY and ERR_COMM.
 */
#include "emulated_devices/schemes/data/stages/renewal.h"
#include <stdlib.h>

/* next: the bucket of the same devices that comes after this one; -1: none. */
struct late_bucket { struct bucket waits; bool whole; picoseconds ready; int next; };

/* of: [units] the bucket of each unit, or -1; bucket: [units], of which `buckets` are in use. */
struct late { int buckets, *of; struct late_bucket *bucket; };

static struct late *late_own_state(const struct data_parallel *dp) { return chain_state(dp, &stage_late); }

static bool late_takes_part(const struct data_parallel *dp) { return dp->shards.late && weights_are_renewed(dp); }

static enum error_code late_open(struct data_parallel *dp, struct error *err)
{
    struct late *const l = late_own_state(dp);
    enum error_code e = OK;
    l->of = calloc((size_t)dp->units, sizeof *l->of);
    l->bucket = calloc((size_t)dp->units, sizeof *l->bucket);
    if (l->of == NULL || l->bucket == NULL) e = fail(err, ERR_MEMORY, "no memory for a list of %d units", dp->units);
    for (int i = 0; i < dp->units && !e; i++) e = bucket_open(&l->bucket[i].waits, dp->units, err);
    return e;
}

static void late_close(struct data_parallel *dp)
{
    struct late *const l = late_own_state(dp);
    for (int i = 0; i < dp->units && l->bucket; i++) bucket_close(&l->bucket[i].waits);
    free(l->of), free(l->bucket);
}

/* ---- which units are gathered together --------------------------------------------------------------------------- */

/* The newest bucket of the same devices takes the unit if there is room; else a new bucket does. */
static void late_assign(struct data_parallel *dp, struct late *late, int unit)
{
    const struct unit *const u = &dp->unit[unit];
    int newest = late->buckets - 1;
    while (newest >= 0 && late->bucket[newest].waits.over != u->over) newest--;
    if (newest < 0 || !bucket_takes(&late->bucket[newest].waits, u, bucket_capacity(dp, u->over, KIND_WEIGHT))) {
        if (newest >= 0) late->bucket[newest].next = late->buckets;
        newest = late->buckets++;
        late->bucket[newest].next = -1;
    }
    bucket_add(&late->bucket[newest].waits, u, unit);
    late->of[unit] = newest;
}

/* Units of which no other device steps a part need nothing, and empty units have nothing. */
static bool late_is_sent(const struct unit *unit)
{
    return unit->padded > 0 && unit->over->shards.optimizer > unit->over->shards.weights;
}

/* late_foresee fills the buckets in the order of the first passes that need weights. */
static void late_foresee(struct data_parallel *dp)
{
    struct late *const l = late_own_state(dp);
    for (int i = 0; i < dp->units; i++) {
        l->of[i] = -1;
        bucket_empty(&l->bucket[i].waits);
        l->bucket[i].waits.over = NULL, l->bucket[i].whole = false;
    }
    l->buckets = 0;
    for (int i = 0; i < dp->uses; i++) {
        int unit[PART_UNITS];
        if (dp->use[i].pass == PASS_BACKWARD_WEIGHT || renews_weights(dp->use[i].pass)) continue;
        for (int k = 0, n = units_at(dp, dp->use[i], unit); k < n; k++)
            if (l->of[unit[k]] < 0 && late_is_sent(&dp->unit[unit[k]])) late_assign(dp, l, unit[k]);
    }
}

/* ---- gathering --------------------------------------------------------------------------------------------------- */

/* A copy of the bucket is sent, because sending empties what is sent, and the next step needs the same bucket. */
static enum error_code late_send(struct data_parallel *dp, struct late_bucket *late_bucket, struct error *err)
{
    struct bucket sent = late_bucket->waits;
    if (late_bucket->whole) return OK;
    data_begin_sending(dp, SENDS_WEIGHTS);
    const enum error_code e = renewal_send(dp, &sent, err);
    for (int i = 0; i < late_bucket->waits.units; i++) {
        const struct tensor w = dp->unit[late_bucket->waits.unit[i]].own_w;
        clock_made(&dp->device->clock, w.data, tensor_bytes(w));
    }
    late_bucket->ready = dp->device->clock.now;
    clock_end(&dp->device->clock);
    late_bucket->whole = !e;
    return e;
}

/* The buckets of this use are sent, if they are not yet; then, beside its passes, those that come after. */
static enum error_code late_acquire(struct data_parallel *dp, struct use use, bool ahead, struct error *err)
{
    struct late *const l = late_own_state(dp);
    int unit[PART_UNITS];
    enum error_code e = OK;
    const int n = units_at(dp, use, unit);
    for (int k = 0; k < n && !e; k++)
        if (l->of[unit[k]] >= 0) e = late_send(dp, &l->bucket[l->of[unit[k]]], err);
    for (int k = 0; k < n && !e; k++)
        if (l->of[unit[k]] >= 0) clock_wait(&dp->device->clock, l->bucket[l->of[unit[k]]].ready);
    for (int k = 0; k < n && ahead && !e; k++) {
        const int next = l->of[unit[k]] >= 0 ? l->bucket[l->of[unit[k]]].next : -1;
        if (next >= 0) e = late_send(dp, &l->bucket[next], err);
    }
    return e;
}

static void late_forget(struct data_parallel *dp)
{
    struct late *const l = late_own_state(dp);
    for (int i = 0; i < l->buckets; i++) l->bucket[i].whole = false;
}

static enum error_code late_after(struct data_parallel *dp, int64_t t, struct error *err)
{
    (void)t, (void)err;
    late_forget(dp);
    return OK;
}

/* ---- prediction -------------------------------------------------------------------------------------------------- */

/* Each bucket is sent once in a step. */
static void late_cost(const struct data_parallel *dp, enum shard_level level, struct account *sum)
{
    const struct late *const l = late_own_state(dp);
    for (int i = 0; i < l->buckets && (level == BY_GRADIENTS || level == BY_OPTIMIZER); i++) {
        struct bucket sent = l->bucket[i].waits;
        renewal_add(dp, &sent, level, sum);
    }
}

const struct data_stage stage_late = {
    .name = "late", .of_the_step = true, .takes_part = late_takes_part, .state = sizeof (struct late),
    .outline = late_open, .close = late_close, .foresee = late_foresee, .acquire = late_acquire, .after = late_after,
    .skip = late_forget, .cost = late_cost,
};
