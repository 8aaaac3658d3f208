/* step.c -- each device steps what it keeps the optimizer's state of; then weights go back to who keeps them. */
#include "emulated_devices/schemes/data/gather.h"
#include "emulated_devices/device/compute.h"
#include "ref/numeric/convert.h"
#include <string.h>

/* ---- what is kept ------------------------------------------------------------------------------------------------------------ */

/* Gradients are compared where they are finished: what each device steps. */
static enum shard_level level_of(enum tensor_kind kind) { return kind == KIND_WEIGHT || kind == KIND_OLDER_WEIGHT ? BY_WEIGHTS : BY_OPTIMIZER; }

struct range data_kept(const struct shards *s, const struct unit *u, enum tensor_kind kind)
{
    return shards_range(s, level_of(kind), u->padded);
}

bool data_keeps_first(const struct shards *s, enum tensor_kind kind)
{
    const int place = s->apart && !kind_is_common(kind) ? s->rank % s->optimizer : s->rank;
    return place < shards_stride(s, level_of(kind) + 1);
}

/* Of the weights that a device keeps, those that it steps. */
static struct tensor stepped_weights(const struct data_parallel *dp, const struct unit *u)
{
    struct range own = shards_range(&dp->shards, BY_OPTIMIZER, u->padded);
    own.first -= shards_range(&dp->shards, BY_WEIGHTS, u->padded).first;
    return slice(u->own_w, own);
}

struct tensor data_kept_tensor(const struct data_parallel *dp, const struct unit *u, enum tensor_kind kind)
{
    switch (kind) {
    case KIND_WEIGHT: return u->own_w;
    case KIND_OLDER_WEIGHT: return u->older;
    case KIND_GRADIENT: return data_own_gradient(dp, u);
    case KIND_EXACT_GRADIENT: return tensor_1d(data_own_tracking(dp, u).exact, F64, tensor_count(data_own_gradient(dp, u)));
    case KIND_GRADIENT_EXCESS: return tensor_1d(data_own_tracking(dp, u).bound, F64, tensor_count(data_own_gradient(dp, u)));
    case KIND_MASTER: return data_has_masters(dp) ? u->master : stepped_weights(dp, u);
    case KIND_ANCHOR: return u->anchor;
    case KIND_MOMENTUM: return u->momentum;
    default: return u->state[kind - KIND_STATE];
    }
}

enum dtype data_format(const struct data_parallel *dp, enum tensor_kind kind)
{
    const enum dtype weights = dp->device->dtype;
    if (kind == KIND_EXACT_GRADIENT || kind == KIND_GRADIENT_EXCESS) return F64;
    const bool narrow = kind == KIND_WEIGHT || kind == KIND_OLDER_WEIGHT || (kind == KIND_GRADIENT && dp->request.narrow_gradients);
    return narrow ? weights : dtype_wide(weights);
}

/* ---- the norm ------------------------------------------------------------------------------------------------------------------ */

struct norm { struct data_parallel *dp; struct tensor g; int64_t first; double sum; };

static void add_squares(void *context, struct portion s)
{
    struct norm *n = context;
    const int64_t left = s.parameter->counted - s.piece, length = left < s.length ? left : s.length;
    if (length > 0) n->sum += dev_sum_of_squares(n->dp->device, slice(n->g, (struct range){ s.row - n->first, length }));
}

/* Copies have the same gradients: the first of them counts. */
double data_norm_part(struct data_parallel *dp)
{
    struct norm n = { .dp = dp };
    for (int u = 0; u < dp->units && data_keeps_first(&dp->shards, KIND_GRADIENT); u++) {
        const struct range own = data_kept(&dp->shards, &dp->unit[u], KIND_GRADIENT);
        n.g = data_own_gradient(dp, &dp->unit[u]);
        n.first = own.first;
        unit_each_stretch(&dp->unit[u], own, add_squares, &n);
    }
    return n.sum;
}

/* ---- the step ------------------------------------------------------------------------------------------------------------------ */

struct stepping { const struct data_parallel *dp; const struct unit *unit; struct range own; struct tensor master; struct step step; };

static void step_stretch(void *context, struct portion s)
{
    struct stepping *x = context;
    const struct optimizer *o = x->dp->optimizer;
    const struct range here = { s.row - x->own.first, s.length };
    struct tensor state[OPTIMIZER_MAX_STATES] = { 0 };
    for (int i = 0; i < o->states; i++) state[i] = slice(x->unit->state[i], here);
    x->step.weight_decay = s.parameter->spec.decay ? x->dp->hyper->weight_decay : 0;
    if (o->forward_only) {
        step_along(x->dp, s, slice(x->master, here), x->step);
        return;
    }
    optimizer_step(o, slice(x->master, here), slice(data_own_gradient(x->dp, x->unit), here), state, x->step);
}

/* New weights from who has stepped them to all that keep them: the way of the gradients, backwards. */
static enum error_code share_weights(struct data_parallel *dp, struct unit *u, struct error *err)
{
    struct range half = shards_range(&dp->shards, BY_GRADIENTS, u->padded);
    half.first -= shards_range(&dp->shards, BY_WEIGHTS, u->padded).first;
    const struct tensor row = slice(u->own_w, half);
    const enum error_code e = level_allgather(dp, BY_OPTIMIZER, stepped_weights(dp, u), row, err);
    return e ? e : level_allgather(dp, BY_GRADIENTS, row, u->own_w, err);
}

enum error_code renew_weights(struct data_parallel *dp, struct unit *u, struct error *err)
{
    if (data_has_masters(dp)) {
        tensor_convert(stepped_weights(dp, u), u->master);
        dev_charge(dp->device, "round weights", u->master, 2, 1);
    }
    return share_weights(dp, u, err);
}

static void forget_gradient(struct unit *u)
{
    memset(u->own_g.data, 0, tensor_bytes(u->own_g));
    if (tracked(u->tracking)) tracking_start(u->tracking, u->own_g);
}

void data_skip_step(struct data_parallel *dp)
{
    for (int u = 0; u < dp->units; u++) forget_gradient(&dp->unit[u]);
}

enum error_code data_step(struct data_parallel *dp, int64_t t, double gradient_scale, struct error *err)
{
    const bool round_ends = outer_follows(&dp->outer, t);
    enum error_code e = OK;
    data_use_older(dp, false);
    data_same_versions(dp);
    for (int i = 0; i < dp->units && !e; i++) {
        struct unit *u = &dp->unit[i];
        struct stepping x = { .dp = dp, .unit = u, .own = data_kept(&dp->shards, u, KIND_MASTER), .master = data_kept_tensor(dp, u, KIND_MASTER) };
        x.step = (struct step){ .lr = learning_rate(dp->hyper, t), .t = t, .gradient_scale = gradient_scale, .hyper = dp->hyper };
        unit_each_stretch(u, x.own, step_stretch, &x);
        if (has_gradients(dp)) forget_gradient(u);
        if (!round_ends) e = renew_weights(dp, u, err);
    }
    return e || !round_ends ? e : step_outer(dp, err);
}
