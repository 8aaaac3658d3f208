/* step.c -- each device steps what it keeps the optimizer's state of; then weights go back to who keeps them. */
#include "emulated_devices/schemes/data/bucket.h"
#include "emulated_devices/schemes/data/offload.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/data/low_rank.h"
#include "ref/numeric/convert.h"
#include <stdlib.h>
#include <string.h>

/* ---- what is kept ------------------------------------------------------------------------------------------------------------ */

/* Gradients are compared where they are finished: what each device steps. */
static enum shard_level level_of(enum tensor_kind kind) { return kind == KIND_WEIGHT || kind == KIND_OLDER_WEIGHT ? BY_WEIGHTS : BY_OPTIMIZER; }

struct interval data_kept(const struct shards *s, const struct unit *u, enum tensor_kind kind)
{
    return shards_range(s, level_of(kind), u->padded);
}

bool data_keeps_first(const struct shards *s, enum tensor_kind kind)
{
    const int place = s->apart && !kind_is_common(kind) ? s->rank % s->optimizer : s->rank;
    return place < shards_stride(s, level_of(kind) + 1);
}

struct tensor stepped_weights(const struct data_parallel *dp, const struct unit *u)
{
    struct interval own = shards_range(&dp->shards, BY_OPTIMIZER, u->padded);
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

struct norm { struct data_parallel *dp; struct tensor g; int64_t first; struct exact_sum *sum; };

static void add_squares(void *context, struct portion s)
{
    struct norm *n = context;
    const int64_t left = s.parameter->counted - s.piece, length = left < s.length ? left : s.length;
    if (length > 0) dev_add_squares(n->dp->device, n->sum, slice(n->g, (struct interval){ s.row - n->first, length }));
}

/* Copies have the same gradients: each takes its part of them.  The sum is exact, so it does not matter who adds what. */
static struct interval counted_here(const struct data_parallel *dp, struct interval own)
{
    const int copies = dp->shards.apart ? 1 : shards_size(&dp->shards, BY_COPIES), copy = dp->shards.apart ? 0 : shards_digit(&dp->shards, BY_COPIES);
    const int64_t first = block_start(own.count, copies, copy), end = block_start(own.count, copies, copy + 1);
    return (struct interval){ own.first + first, end - first };
}

void unit_add_squares(struct data_parallel *dp, const struct unit *u, struct tensor g, struct exact_sum *sum)
{
    const struct interval own = data_kept(&dp->shards, u, KIND_GRADIENT);
    struct norm n = { .dp = dp, .g = g, .first = own.first, .sum = sum };
    unit_each_stretch(u, counted_here(dp, own), add_squares, &n);
}

/* Those on the slow tier were summed up before they went there. */
void data_norm_part(struct data_parallel *dp, struct exact_sum *sum)
{
    *sum = (struct exact_sum){ .infinite = 0 };
    for (int u = 0; u < dp->units; u++) {
        const struct unit *unit = &dp->unit[u];
        if (offloads(&dp->request, GRADIENTS)) exact_add(sum, &unit->squares);
        else unit_add_squares(dp, unit, data_own_gradient(dp, unit), sum);
    }
}

/* ---- the step ------------------------------------------------------------------------------------------------------------------ */

/* New weights from who has stepped them to all that keep them: the way of the gradients, backwards. */
enum error_code share_waiting(struct data_parallel *dp, struct error *err)
{
    struct bucket *b = &dp->sharing;
    if (b->units == 0) return OK;
    struct tensor *own = calloc((size_t)b->units * 3, sizeof *own), *half = own + b->units, *all = half + b->units;
    if (own == NULL) return fail(err, ERR_MEMORY, "no memory for a bucket of %d units", b->units);
    for (int i = 0; i < b->units; i++) {
        const struct unit *u = &dp->unit[b->unit[i]];
        struct interval r = shards_range(&dp->shards, BY_GRADIENTS, u->padded);
        r.first -= shards_range(&dp->shards, BY_WEIGHTS, u->padded).first;
        own[i] = stepped_weights(dp, u), half[i] = slice(u->own_w, r), all[i] = u->own_w;
    }
    enum error_code e = bucket_allgather(dp, BY_OPTIMIZER, own, half, b->units, err);
    if (!e) e = bucket_allgather(dp, BY_GRADIENTS, half, all, b->units, err);
    b->units = 0, b->elements = 0;
    free(own);
    return e;
}

static enum error_code share_weights(struct data_parallel *dp, struct unit *u, struct error *err)
{
    struct bucket *b = &dp->sharing;
    const int64_t capacity = bucket_capacity(dp, KIND_WEIGHT);
    if (offloads(&dp->request, PARAMETERS)) return OK;          /* who keeps them has stepped them: plan/compose.c */
    const enum error_code e = bucket_takes(b, capacity, u->padded) ? OK : share_waiting(dp, err);
    bucket_add(b, (int)(u - dp->unit), u->padded);
    return e || !bucket_is_full(b, capacity) ? e : share_waiting(dp, err);
}

enum error_code renew_weights(struct data_parallel *dp, struct unit *u, struct error *err)
{
    if (data_has_masters(dp)) {
        device_convert(dp->device, stepped_weights(dp, u), u->master);
        dev_charge(dp->device, "round weights", u->master, 2, 1);
    }
    return share_weights(dp, u, err);
}

static void clear_gradient(struct data_parallel *dp, struct unit *u)
{
    if (has_gradients(dp) && !offloads(&dp->request, GRADIENTS)) device_zero(dp->device, u->own_g);
    u->added = false;
    u->squares = (struct exact_sum){ .infinite = 0 };
    if (tracked(u->tracking)) tracking_start(dp->device, u->tracking, u->own_g);
}

void data_skip_step(struct data_parallel *dp)
{
    for (int u = 0; u < dp->units; u++) clear_gradient(dp, &dp->unit[u]);
    dp->skipped_whole += !low_rank_in_step(dp);
}

/* An optimizer that steps whole matrices: unit by unit. */
static enum error_code step_units(struct data_parallel *dp, struct step step, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < dp->units && !e; i++) {
        e = low_rank_step(dp, &dp->unit[i], data_kept_tensor(dp, &dp->unit[i], KIND_MASTER), step, err);
        if (!e) e = renew_weights(dp, &dp->unit[i], err);
    }
    return e ? e : share_waiting(dp, err);
}

/* Weights are shared, unless the outer step is about to change them. */
static enum error_code step_slices(struct stepping *x, bool shared, struct error *err)
{
    struct data_parallel *dp = x->dp;
    enum error_code e = OK;
    for (int i = 0; i < dp->slices && !e; i++) {
        e = slice_fetch_ahead(x, i, err);
        if (!e) e = slice_step(x, i, err);
        if (e || !dp->slice[i].last || !shared) continue;
        if (dp->shards.optimizer > dp->shards.weights) clock_wait(&dp->device->clock, x->landed);
        e = share_weights(dp, dp->slice[i].unit, err);
    }
    return e ? e : share_waiting(dp, err);
}

/* The next step begins when everything is where it lies. */
enum error_code data_step(struct data_parallel *dp, int64_t t, double gradient_scale, struct error *err)
{
    struct stepping x;
    const bool round_ends = outer_follows(&dp->outer, t);
    data_use_older(dp, false);
    data_same_versions(dp);
    const struct step step = { .lr = learning_rate(dp->hyper, t), .t = t, .gradient_scale = gradient_scale, .hyper = dp->hyper };
    enum error_code e = stepping_open(&x, dp, step, err);
    if (!e) e = dp->optimizer->low_rank ? step_units(dp, step, err) : step_slices(&x, !round_ends, err);
    stepping_close(&x);
    dp->stepped = true;
    data_expect_step(dp, t + 1);
    for (enum stream s = FETCH; s < STREAMS && dp->request.offload; s++) clock_join(&dp->device->clock, s);
    for (int u = 0; u < dp->units; u++) clear_gradient(dp, &dp->unit[u]);
    return e || !round_ends ? e : step_outer(dp, err);
}
