/* foresee_gradients.c -- what reducing gradients takes, from the list of passes alone: the rules of gradients.c without its data. */
#include "emulated_devices/schemes/data/bucket.h"
#include "emulated_devices/schemes/data/tiles.h"

bool gradient_stays_after(const struct data_parallel *dp, int use, int unit)
{
    if (dp->use[use].part == 0 || uses_tiles(&dp->request)) return false;
    for (int i = use + 1; i < dp->uses && dp->use[i].pass != PASS_UPDATE; i++) {
        int added[2];
        if (dp->use[i].pass != PASS_BACKWARD_WEIGHT) continue;
        for (int k = 0, n = data_gradients_at(dp, dp->use[i], added); k < n; k++)
            if (added[k] == unit) return dp->use[i].part == 0;
    }
    return false;
}

/* here: elements of gradients that are whole here; beside: while a tile is used, those of what is not tiled of its part. */
struct foreseeing { struct data_parallel *dp; struct bucket *waiting; int64_t here, beside; };

static void note(struct foreseeing *f, int64_t here)
{
    here += f->beside;
    if (data_scatters(f->dp) && here > f->dp->most_gradients) f->dp->most_gradients = here;
}

/* To where it is kept, beside the copy that it is added to if that lies on the slow tier. */
static void leave(struct foreseeing *f, struct unit *u)
{
    struct data_parallel *dp = f->dp;
    note(f, f->here + (offloads(&dp->request, GRADIENTS) && dp->shards.gradients > 1 ? kept_elements(dp, u, BY_GRADIENTS) : 0));
    u->foreseen_gradient = false;
    f->here -= whole_elements(u);
    u->passes++;
    u->reductions += u->due == 0;
}

static void reduce_waiting(struct foreseeing *f)
{
    struct data_parallel *dp = f->dp;
    struct bucket *b = f->waiting;
    int64_t all = 0, finished = 0;
    for (int i = 0; i < b->units; i++) {
        struct unit *u = &dp->unit[b->unit[i]];
        all += u->padded;
        if (u->due == 0) finished += u->padded;
        u->waits = false;
        leave(f, u);
    }
    b->units = 0, b->elements = 0;
    if (dp->shards.gradients > 1)
        for (enum shard_level l = BY_WEIGHTS; l <= BY_GRADIENTS; l++)
            cost_add(&dp->reduction[l], level_reduce_scatter_cost(dp, l, all / shards_stride(&dp->shards, l)), 1);
    cost_add(&dp->reduction[BY_OPTIMIZER], level_reduce_scatter_cost(dp, BY_OPTIMIZER, finished / dp->shards.gradients), 1);
    if (!dp->shards.apart) cost_add(&dp->reduction[BY_COPIES], level_allreduce_cost(dp, BY_COPIES, finished / dp->shards.optimizer), 1);
}

static void let_wait(struct foreseeing *f, int unit)
{
    struct data_parallel *dp = f->dp;
    const int64_t capacity = bucket_capacity(dp, KIND_GRADIENT), n = dp->unit[unit].padded;
    if (!bucket_takes(f->waiting, capacity, n)) reduce_waiting(f);
    bucket_add(f->waiting, unit, n);
    dp->unit[unit].waits = true;
    if (bucket_is_full(f->waiting, capacity)) reduce_waiting(f);
}

/* A tile's are there beside those of what is not tiled of its part. */
static void begin(struct foreseeing *f, struct use use)
{
    struct data_parallel *dp = f->dp;
    int unit[2], beside[2];
    const bool tile = use.tile > 0 && data_units_at(dp, use, beside) > 1;
    f->beside = tile ? whole_elements(&dp->unit[beside[0]]) : 0;
    for (int k = 0, n = data_gradients_at(dp, use, unit); k < n; k++) {
        struct unit *u = &dp->unit[unit[k]];
        if (u->waits) reduce_waiting(f);
        if (!u->foreseen_gradient) f->here += whole_elements(u);
        u->foreseen_gradient = true;
    }
    note(f, f->here);
}

static void end(struct foreseeing *f, int use)
{
    struct data_parallel *dp = f->dp;
    int unit[2];
    const int n = data_gradients_at(dp, dp->use[use], unit);
    for (int k = 0; k < n; k++) dp->unit[unit[k]].due--;
    for (int k = 0; k < n; k++) {
        struct unit *u = &dp->unit[unit[k]];
        if (dp->shards.gradients > 1 ? !gradient_stays_after(dp, use, unit[k]) : u->due == 0) let_wait(f, unit[k]);
        else if (dp->shards.gradients == 1) leave(f, u);
    }
}

void foresee_gradients(struct data_parallel *dp)
{
    struct foreseeing f = { .dp = dp, .waiting = &dp->reducing };
    if (!has_gradients(dp) || gradients_in_one_block(dp)) return;
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
