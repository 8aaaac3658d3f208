/* scattering_foreseen.c -- predicts memory and messages of reducing gradients from the list of passes: the rules of
 * scattering.c without data. */
#include "emulated_devices/schemes/data/stages/scattering.h"

bool gradient_stays_after(const struct data_parallel *dp, int use, int unit)
{
    if (dp->use[use].part == 0 || dp->use[use].tile > 0) return false;
    for (int i = use + 1; i < dp->uses && dp->use[i].pass != PASS_UPDATE; i++) {
        int added[PART_UNITS];
        if (dp->use[i].pass != PASS_BACKWARD_WEIGHT) continue;
        for (int k = 0, n = gradients_at(dp, dp->use[i], added); k < n; k++)
            if (added[k] == unit) return dp->use[i].part == 0;
    }
    return false;
}

/* here: elements of whole gradients on the device; beside: during a tile's use, those of the untiled parameters of its
 * part. */
struct foreseeing { struct data_parallel *dp; struct scattering *s; int64_t here, beside; };

/* A unit that only one device keeps, in its memory, is reduced where it is kept. */
static int64_t passing_elements(const struct unit *u)
{
    return u->passing_g && (u->over->shards.gradients > 1 || u->copied_g > 0) ? whole_elements(u) : 0;
}

static void note(struct foreseeing *f, int64_t here)
{
    if (here + f->beside > f->s->most) f->s->most = here + f->beside;
}

/* Add a gradient to the kept one; if that is on the slow tier, a copy of it exists at the same time. */
static void leave(struct foreseeing *f, struct unit *u)
{
    note(f, f->here + (u->over->shards.gradients > 1 ? u->copied_g : 0));
    u->foreseen_gradient = false;
    f->here -= passing_elements(u);
    u->passes++;
    u->reductions += u->due == 0;
}

static void add_reduce_scatter(struct foreseeing *f, const struct sharing *over, enum shard_level l, int64_t row)
{
    account_add(&f->s->reduction[l],
                over->gradients->reduce_scatter_cost(over, l, row, data_format(f->dp, KIND_GRADIENT)), 1);
}

static void reduce_waiting(struct foreseeing *f)
{
    struct bucket *b = &f->s->waiting;
    int64_t all = 0, finished = 0;
    for (int i = 0; i < b->units; i++) {
        struct unit *u = &f->dp->unit[b->unit[i]];
        all += u->padded;
        if (u->due == 0) finished += u->padded;
        u->waits = false;
        leave(f, u);
    }
    if (b->units == 0) return;
    const struct shards *s = &b->over->shards;
    for (enum shard_level l = BY_WEIGHTS; l <= BY_GRADIENTS && s->gradients > 1; l++)
        add_reduce_scatter(f, b->over, l, all / shards_stride(s, l));
    add_reduce_scatter(f, b->over, BY_OPTIMIZER, finished / s->gradients);
    account_add(&f->s->reduction[BY_COPIES], allreduce_cost(f->dp, &b->over->level[BY_COPIES], finished / s->optimizer),
                1);
    bucket_empty(b);
}

static void let_wait(struct foreseeing *f, int unit)
{
    struct unit *u = &f->dp->unit[unit];
    const int64_t capacity = bucket_capacity(f->dp, u->over, KIND_GRADIENT);
    if (!bucket_takes(&f->s->waiting, u, capacity)) reduce_waiting(f);
    bucket_add(&f->s->waiting, u, unit);
    u->waits = true;
    if (bucket_is_full(&f->s->waiting, capacity)) reduce_waiting(f);
}

/* A tile's gradient exists together with those of the untiled parameters of its part. */
static void begin(struct foreseeing *f, struct use use)
{
    struct data_parallel *dp = f->dp;
    int unit[PART_UNITS], beside[PART_UNITS];
    const bool tile = use.tile > 0 && units_at(dp, use, beside) > 1;
    f->beside = tile ? passing_elements(&dp->unit[beside[0]]) : 0;
    for (int k = 0, n = gradients_at(dp, use, unit); k < n; k++) {
        struct unit *u = &dp->unit[unit[k]];
        /* A gradient that still waits is reduced before its unit gets another one. */
        if (u->waits) reduce_waiting(f);
        if (!u->foreseen_gradient) f->here += passing_elements(u);
        u->foreseen_gradient = true;
    }
    note(f, f->here);
}

static void end(struct foreseeing *f, int use)
{
    struct data_parallel *dp = f->dp;
    int unit[PART_UNITS];
    const int n = gradients_at(dp, dp->use[use], unit);
    for (int k = 0; k < n; k++) dp->unit[unit[k]].due--;
    for (int k = 0; k < n; k++) {
        struct unit *u = &dp->unit[unit[k]];
        const bool shards = u->over->shards.gradients > 1;
        if (shards ? !gradient_stays_after(dp, use, unit[k]) : u->due == 0) let_wait(f, unit[k]);
        else if (!shards) leave(f, u);
    }
}

void scattering_foresee(struct data_parallel *dp)
{
    struct foreseeing f = { .dp = dp, .s = chain_state(dp, &stage_scattering) };
    count_due(dp, 0);
    for (int i = 0; i < dp->uses; i++) {
        if (dp->use[i].pass == PASS_UPDATE) {
            reduce_waiting(&f);
            count_due(dp, i + 1);
        }
        if (dp->use[i].pass != PASS_BACKWARD_WEIGHT) continue;
        begin(&f, dp->use[i]);
        end(&f, i);
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

/* Moves of a unit in a step: every pass except an update's first reads the sum; the last pass of an update writes only
 * what is stepped. */
static void unit_moves(const struct data_parallel *dp, const struct unit *u, struct tier_traffic *t)
{
    const enum dtype format = data_format(dp, KIND_GRADIENT);
    const int64_t stepped = kept_elements(u, BY_OPTIMIZER);
    const bool shared = u->count > 0 && u->parameter[0].holders > 1;
    const int again = u->passes - u->reductions;
    add_reads(t, again, u->copied_g, format), add_writes(t, again, u->copied_g, format);
    add_writes(t, u->reductions, stepped, format);
    if (!shared) return;                         /* then: the sum over all places that hold it */
    add_reads(t, u->reductions, stepped, format), add_writes(t, dp->updates, stepped, format);
}

void scattering_moves(const struct data_parallel *dp, struct tier_traffic *t)
{
    for (int i = 0; i < dp->units; i++)
        if (dp->unit[i].copied_g > 0) unit_moves(dp, &dp->unit[i], t);
}
