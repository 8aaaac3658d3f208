/* kept.c -- the parts of a unit that each device keeps, their formats, and the device's part of the gradients' norm.
 *
 * model/collect.c and checkpoints read kept tensors by these functions; model/trainer.c asks for the norm's part.
 * Nothing here sends a message or fails.
 */
#include "emulated_devices/schemes/data/stages/stage.h"
#include "emulated_devices/device/compute.h"
#include "ref/optim/galore.h"
#include <string.h>

/* ---- what is kept ------------------------------------------------------------------------------------------------ */

/* Gradients are compared when they are finished: the part that each device steps.  Weights that are gathered late are
 * those of the last step only in that part. */
static enum shard_level level_of(const struct shards *shards, enum tensor_kind kind)
{
    return (kind == KIND_WEIGHT || kind == KIND_OLDER_WEIGHT) && !shards->late ? BY_WEIGHTS : BY_OPTIMIZER;
}

struct interval data_kept(const struct shards *shards, const struct unit *unit, enum tensor_kind kind)
{
    return shards_range(shards, level_of(shards, kind), unit->padded);
}

/* The first device is the device with the lowest rank among those that keep the same part. */
bool data_keeps_first(const struct shards *shards, enum tensor_kind kind)
{
    /* When replicas train apart, each has tensors of its own, and counts ranks by itself. */
    const int place = shards->apart && !kind_is_common(kind) ? shards->rank % shards->optimizer : shards->rank;
    return place < shards_stride(shards, level_of(shards, kind) + 1);
}

struct tensor stepped_weights(const struct unit *unit)
{
    struct interval own = shards_range(&unit->over->shards, BY_OPTIMIZER, unit->padded);
    /* own_w begins where this device's part of the weights does. */
    own.first -= shards_range(&unit->over->shards, BY_WEIGHTS, unit->padded).first;
    return slice(unit->own_w, own);
}

struct interval stepped_gradients(const struct unit *unit)
{
    struct interval own = shards_range(&unit->over->shards, BY_OPTIMIZER, unit->padded);
    own.first -= shards_range(&unit->over->shards, BY_GRADIENTS, unit->padded).first;
    return own;
}

struct tensor data_own_gradient(const struct unit *unit)
{
    if (unit->frozen) return tensor_1d(NULL, unit->g.dtype, 0);
    return slice(unit->own_g, stepped_gradients(unit));
}

struct tracking data_own_tracking(const struct unit *unit)
{
    return tracking_from(unit->tracking, stepped_gradients(unit).first);
}

/* The result is a view: this device's own numbers of that kind, on the device or the slow tier. */
struct tensor data_kept_tensor(const struct data_parallel *dp, const struct unit *unit, enum tensor_kind kind)
{
    switch (kind) {
    case KIND_WEIGHT: return unit->over->shards.late ? stepped_weights(unit) : unit->own_w;
    case KIND_OLDER_WEIGHT: return unit->older;
    case KIND_GRADIENT: return data_own_gradient(unit);
    case KIND_EXACT_GRADIENT:
        return tensor_1d(data_own_tracking(unit).exact, F64, tensor_count(data_own_gradient(unit)));
    case KIND_GRADIENT_EXCESS:
        return tensor_1d(data_own_tracking(unit).bound, F64, tensor_count(data_own_gradient(unit)));
    case KIND_MASTER: return data_has_masters(dp) ? unit->master : stepped_weights(unit);
    case KIND_ANCHOR: return unit->anchor;
    case KIND_MOMENTUM: return unit->momentum;
    default: return unit->state[kind - KIND_STATE];
    }
}

enum dtype data_format(const struct data_parallel *dp, enum tensor_kind kind)
{
    const enum dtype weights = dp->device->dtype;
    if (kind == KIND_EXACT_GRADIENT || kind == KIND_GRADIENT_EXCESS) return F64;
    if (kind >= KIND_STATE)
        return low_rank_format(dp->optimizer, dp->hyper, (int)(kind - KIND_STATE), dtype_wide(weights));
    /* Weights have the model's format.  Gradients have this format only if asked for; everything else is wide. */
    const bool narrow =
        kind == KIND_WEIGHT || kind == KIND_OLDER_WEIGHT || (kind == KIND_GRADIENT && dp->request.narrow_gradients);
    return narrow ? weights : kind == KIND_GRADIENT ? dp->device->sums : dtype_wide(weights);
}

/* ---- the norm ---------------------------------------------------------------------------------------------------- */

/* Portions of gradients are listed, and then squared together: a device that computes beside the host is waited for
 * once. */
enum { LISTED_MOST = 256 };
struct norm {
    struct data_parallel *dp;
    struct exact_sum *sum;
    struct tensor g, listed[LISTED_MOST];               /* g: of the unit that is being listed */
    int64_t first;
    int count;
};

/* Squares of all listed portions are added to the exact sum, and the list is empty again. */
static void add_listed(struct norm *norm)
{
    if (norm->count > 0) device_add_squares(norm->dp->device, norm->sum, norm->listed, norm->count);
    norm->count = 0;
}

/* list_portion lists the elements of a portion that this device counts: its first `counted` elements. */
static void list_portion(void *context, struct portion portion)
{
    struct norm *n = context;
    const int64_t left = portion.parameter->counted - portion.piece, length = left < portion.length ? left
        : portion.length;
    const struct interval here = { portion.row - n->first, length };
    if (length <= 0) return;
    if (n->count == LISTED_MOST) add_listed(n);
    n->listed[n->count++] = slice(n->g, here);
}

/* Copies have the same gradients, so each counts a part of them.  The sum is exact, so this division changes no
 * bits. */
static struct interval counted_here(const struct unit *unit)
{
    const struct interval own = shards_range(&unit->over->shards, BY_OPTIMIZER, unit->padded);
    const struct group *copies = &unit->over->level[BY_COPIES];
    const int64_t first = block_start(own.count, copies->size, copies->rank),
                  end = block_start(own.count, copies->size, copies->rank + 1);
    return (struct interval){ own.first + first, end - first };
}

/* Elements that a device reads for the norm: the largest part, padding and what another device counts included.  So
 * devices that differ only along dp or tp take the same time. */
static int64_t read_for_norm(const struct unit *unit)
{
    const struct interval own = shards_range(&unit->over->shards, BY_OPTIMIZER, unit->padded);
    return block_at(own.count, unit->over->level[BY_COPIES].size, 0).count;
}

static void list_unit(struct norm *norm, const struct unit *unit, struct tensor g)
{
    norm->g = g;
    norm->first = shards_range(&unit->over->shards, BY_OPTIMIZER, unit->padded).first;
    unit_each_stretch(unit, counted_here(unit), list_portion, norm);
    device_charge(norm->dp->device, "sum of squares", elementwise_cost(read_for_norm(unit), 1, 2, g.dtype));
}

void unit_add_squares(struct data_parallel *dp, const struct unit *unit, struct tensor g, struct exact_sum *sum)
{
    struct norm n = { .dp = dp, .sum = sum };
    list_unit(&n, unit, g);
    add_listed(&n);
}

/* Gradients on the slow tier were squared and summed before they were moved there. */
void data_norm_part(struct data_parallel *dp, struct exact_sum *sum)
{
    struct norm n = { .dp = dp, .sum = sum };
    *sum = (struct exact_sum){ .infinite = 0 };
    for (int i = 0; i < dp->units && has_gradients(dp); i++) {
        const struct unit *u = &dp->unit[i];
        if (u->frozen) continue;
        if (on_tier(dp, u->own_g)) exact_add(sum, &u->squares);
        else list_unit(&n, u, data_own_gradient(u));
    }
    add_listed(&n);
}

/* ---- the fingerprint --------------------------------------------------------------------------------------------- */

/* Spread the bits of a number over all 64 (S. Vigna's splitmix64, https://prng.di.unimi.it/splitmix64.c). */
static uint64_t spread(uint64_t x)
{
    x += 0x9e3779b97f4a7c15;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
}

struct print { struct tensor w; uint64_t parameter, *sum; };

/* Each element adds a number that its parameter, its place there and its bits decide. */
static void print_run(void *context, struct run run)
{
    const struct print *const p = context;
    const size_t size = dtype_size(p->w.dtype);
    for (int64_t i = 0; i < run.length; i++) {
        uint64_t bits = 0;
        memcpy(&bits, (const char *)p->w.data + (size_t)(run.piece + i) * size, size);
        *p->sum += spread(spread(p->parameter + (uint64_t)(run.whole + i)) ^ bits);
    }
}

struct printing { struct data_parallel *dp; const struct unit *unit; int64_t first; uint64_t sum; };

/* As for the norm, of the elements that others have, too, one device counts each. */
static void print_portion(void *context, struct portion portion)
{
    struct printing *const p = context;
    const int64_t left = portion.parameter->counted - portion.piece, length = left < portion.length ? left
        : portion.length;
    if (length <= 0) return;
    const struct interval here = { portion.row - p->first, length };
    struct views v = views_of(p->dp->device);
    struct print one = { .w = view_read(&v, slice(stepped_weights(p->unit), here)), .sum = &p->sum,
                         .parameter = spread((uint64_t)portion.parameter->index) };
    layout_each_run_within(&portion.parameter->layout, portion.piece, length, print_run, &one);
    views_end(&v);
}

uint64_t data_fingerprint_part(struct data_parallel *dp)
{
    struct printing p = { .dp = dp };
    for (int i = 0; i < dp->units && dp->device->backend->has_numbers; i++) {
        p.unit = &dp->unit[i];
        p.first = shards_range(&p.unit->over->shards, BY_OPTIMIZER, p.unit->padded).first;
        unit_each_stretch(p.unit, counted_here(p.unit), print_portion, &p);
    }
    return p.sum;
}
