/* scattering_foreseen.c -- predicts memory and messages of reducing gradients from the list of passes: the rules of
 * scattering.c without data.
 *
 * data_set_uses calls scattering_foresee once (TELL foresee); data_cost, data_peak and data_tier_traffic read the
 * result.  A change in scattering.c needs the same change here, because verify compares predictions with runs.  No
 * function returns an error code.
 */
#include "emulated_devices/schemes/data/stages/scattering.h"

/* The embedding's own pass is the last; a tile's gradient never stays.  With `once` all passes add to one gradient. */
bool gradient_stays_after(const struct data_parallel *dp, int use, int unit)
{
    if (dp->shards.once) return dp->unit[unit].due > 0;
    if (dp->use[use].part == 0 || dp->use[use].tile > 0) return false;
    for (int i = use + 1; i < dp->uses && dp->use[i].pass != PASS_UPDATE; i++) {
        int added[PART_UNITS];
        if (dp->use[i].pass != PASS_BACKWARD_WEIGHT) continue;
        for (int k = 0, n = gradients_at(dp, dp->use[i], added); k < n; k++)
            if (added[k] == unit) return dp->use[i].part == 0;
    }
    return false;
}

/* here: elements of whole gradients on the device; during: the most of them in the use that is foreseen; beside: during
 * a tile's use, those of the untiled parameters of its part. */
struct foreseeing { struct data_parallel *dp; struct scattering *s; int64_t here, beside, during; };

/* A unit that only one device keeps, in its memory, is reduced where it is kept. */
static int64_t passing_elements(const struct unit *unit)
{
    return unit->passing_g && (unit->over->shards.gradients > 1 || unit->copied_g > 0) ? whole_elements(unit) : 0;
}

/* `most` becomes the peak of whole gradients, with those beside a tile. */
static void scattering_foreseen_note(struct foreseeing *foreseeing, int64_t here)
{
    const int64_t all = here + foreseeing->beside;
    if (all > foreseeing->s->most) foreseeing->s->most = all;
    if (all > foreseeing->during) foreseeing->during = all;
}

/* Add a gradient to the kept one; if that is on the slow tier, a copy of it exists at the same time. */
static void scattering_foreseen_leave(struct foreseeing *foreseeing, struct unit *unit)
{
    scattering_foreseen_note(foreseeing, foreseeing->here + (unit->over->shards.gradients > 1 ? unit->copied_g : 0));
    unit->foreseen_gradient = false;
    foreseeing->here -= passing_elements(unit);
    unit->passes++;
    unit->reductions += unit->due == 0;
}

/* `row` is the number of elements that the level cuts. */
static void add_reduce_scatter(struct foreseeing *foreseeing, const struct sharing *over,
                               enum shard_level level, int64_t row)
{
    account_add(&foreseeing->s->reduction[level],
                over->gradients->reduce_scatter_cost(over, level, row, data_format(foreseeing->dp, KIND_GRADIENT)), 1);
}

/* reduce_waiting counts the collectives of a bucket: first all units, then only those that are finished. */
static void reduce_waiting(struct foreseeing *foreseeing)
{
    struct bucket *b = &foreseeing->s->waiting;
    int64_t all = 0, finished = 0;
    for (int i = 0; i < b->units; i++) {
        struct unit *u = &foreseeing->dp->unit[b->unit[i]];
        all += u->padded;
        if (u->due == 0) finished += u->padded;
        u->waits = false;
        scattering_foreseen_leave(foreseeing, u);
    }
    if (b->units == 0) return;
    /* Each level cuts the rows that the level before has left. */
    const struct shards *s = &b->over->shards;
    for (enum shard_level l = BY_WEIGHTS; l <= BY_GRADIENTS && s->gradients > 1; l++)
        add_reduce_scatter(foreseeing, b->over, l, all / shards_stride(s, l));
    add_reduce_scatter(foreseeing, b->over, BY_OPTIMIZER, finished / s->gradients);
    account_add(&foreseeing->s->reduction[BY_COPIES],
                allreduce_cost(foreseeing->dp, &b->over->level[BY_COPIES], finished / s->optimizer), 1);
    bucket_empty(b);
}

/* let_wait fills the bucket by the rules of scattering.c. */
static void let_wait(struct foreseeing *foreseeing, int unit)
{
    struct unit *u = &foreseeing->dp->unit[unit];
    const int64_t capacity = bucket_capacity(foreseeing->dp, u->over, KIND_GRADIENT);
    if (!bucket_takes(&foreseeing->s->waiting, u, capacity)) reduce_waiting(foreseeing);
    bucket_add(&foreseeing->s->waiting, u, unit);
    u->waits = true;
    if (bucket_is_full(&foreseeing->s->waiting, capacity)) reduce_waiting(foreseeing);
}

/* A tile's gradient exists together with those of the untiled parameters of its part. */
static void scattering_foreseen_begin(struct foreseeing *foreseeing, struct use use)
{
    struct data_parallel *dp = foreseeing->dp;
    int unit[PART_UNITS], beside[PART_UNITS];
    const bool tile = use.tile > 0 && units_at(dp, use, beside) > 1;
    foreseeing->beside = tile ? passing_elements(&dp->unit[beside[0]]) : 0;
    for (int k = 0, n = gradients_at(dp, use, unit); k < n; k++) {
        struct unit *u = &dp->unit[unit[k]];
        /* A gradient that still waits is reduced before its unit gets another one. */
        if (u->waits) reduce_waiting(foreseeing);
        if (!u->foreseen_gradient) foreseeing->here += passing_elements(u);
        u->foreseen_gradient = true;
    }
    scattering_foreseen_note(foreseeing, foreseeing->here);
}

/* The counts go down for all units first, as data.c does before the stage is called. */
static void scattering_foreseen_end(struct foreseeing *foreseeing, int use)
{
    struct data_parallel *dp = foreseeing->dp;
    int unit[PART_UNITS];
    const int n = gradients_at(dp, dp->use[use], unit);
    for (int k = 0; k < n; k++) dp->unit[unit[k]].due--;
    for (int k = 0; k < n; k++) {
        struct unit *u = &dp->unit[unit[k]];
        const bool shards = u->over->shards.gradients > 1;
        if (shards ? !gradient_stays_after(dp, use, unit[k]) : u->due == 0) let_wait(foreseeing, unit[k]);
        else if (!shards) scattering_foreseen_leave(foreseeing, u);
    }
}

/* The list is gone through once, as a step would; an update inside the list empties the bucket. */
void scattering_foresee(struct data_parallel *dp)
{
    struct foreseeing f = { .dp = dp, .s = chain_state(dp, &stage_scattering) };
    count_due(dp, 0);
    for (int i = 0; i < dp->uses; i++) {
        f.during = f.here;
        dp->use[i].gradients = (struct passing){ f.here, f.here };
        if (dp->use[i].pass == PASS_UPDATE) {
            reduce_waiting(&f);
            count_due(dp, i + 1);
        }
        if (dp->use[i].pass != PASS_BACKWARD_WEIGHT) continue;
        scattering_foreseen_begin(&f, dp->use[i]);
        scattering_foreseen_end(&f, i);
        dp->use[i].gradients = (struct passing){ f.during, f.here };
    }
    reduce_waiting(&f);
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

void scattering_cost(const struct data_parallel *dp, enum shard_level level, struct account *sum)
{
    const struct scattering *s = chain_state(dp, &stage_scattering);
    account_add(sum, s->reduction[level], 1);
}

void scattering_passing(const struct data_parallel *dp, struct model_state *sum)
{
    const struct scattering *s = chain_state(dp, &stage_scattering);
    sum->gradients += (uint64_t)s->most * dtype_size(data_format(dp, KIND_GRADIENT));
}

/* unit_moves counts a unit's moves in a step.  Every pass except an update's first reads the sum.  The last pass of
 * an update writes only what is stepped. */
static void unit_moves(const struct data_parallel *dp, const struct unit *unit, struct tier_traffic *traffic)
{
    const enum dtype format = data_format(dp, KIND_GRADIENT);
    const int64_t stepped = kept_elements(unit, BY_OPTIMIZER);
    const bool shared = unit->count > 0 && unit->parameter[0].holders > 1;
    const int again = unit->passes - unit->reductions;
    add_reads(traffic, again, unit->copied_g, format), add_writes(traffic, again, unit->copied_g, format);
    add_writes(traffic, unit->reductions, stepped, format);
    if (!shared) return;                         /* then: the sum over all places that hold it */
    add_reads(traffic, unit->reductions, stepped, format), add_writes(traffic, dp->updates, stepped, format);
}

void scattering_moves(const struct data_parallel *dp, struct tier_traffic *traffic)
{
    for (int i = 0; i < dp->units; i++)
        if (dp->unit[i].copied_g > 0) unit_moves(dp, &dp->unit[i], traffic);
}
