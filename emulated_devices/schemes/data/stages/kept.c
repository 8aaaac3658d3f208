/* kept.c -- the parts of a unit that each device keeps, their formats, and the device's part of the gradients' norm. */
#include "emulated_devices/schemes/data/stages/stage.h"
#include "emulated_devices/device/compute.h"
#include "ref/optim/galore.h"

/* ---- what is kept ------------------------------------------------------------------------------------------------ */

/* Gradients are compared when they are finished: the part that each device steps. */
static enum shard_level level_of(enum tensor_kind kind)
{
    return kind == KIND_WEIGHT || kind == KIND_OLDER_WEIGHT ? BY_WEIGHTS : BY_OPTIMIZER;
}

struct interval data_kept(const struct shards *s, const struct unit *u, enum tensor_kind kind)
{
    return shards_range(s, level_of(kind), u->padded);
}

bool data_keeps_first(const struct shards *s, enum tensor_kind kind)
{
    /* When replicas train apart, each has tensors of its own, and counts ranks by itself. */
    const int place = s->apart && !kind_is_common(kind) ? s->rank % s->optimizer : s->rank;
    return place < shards_stride(s, level_of(kind) + 1);
}

struct tensor stepped_weights(const struct unit *u)
{
    struct interval own = shards_range(&u->over->shards, BY_OPTIMIZER, u->padded);
    /* own_w begins where this device's part of the weights does. */
    own.first -= shards_range(&u->over->shards, BY_WEIGHTS, u->padded).first;
    return slice(u->own_w, own);
}

struct interval stepped_gradients(const struct unit *u)
{
    struct interval own = shards_range(&u->over->shards, BY_OPTIMIZER, u->padded);
    own.first -= shards_range(&u->over->shards, BY_GRADIENTS, u->padded).first;
    return own;
}

struct tensor data_own_gradient(const struct unit *u)
{
    return slice(u->own_g, stepped_gradients(u));
}

struct tracking data_own_tracking(const struct unit *u)
{
    return tracking_from(u->tracking, stepped_gradients(u).first);
}

struct tensor data_kept_tensor(const struct data_parallel *dp, const struct unit *u, enum tensor_kind kind)
{
    switch (kind) {
    case KIND_WEIGHT: return u->own_w;
    case KIND_OLDER_WEIGHT: return u->older;
    case KIND_GRADIENT: return data_own_gradient(u);
    case KIND_EXACT_GRADIENT:
        return tensor_1d(data_own_tracking(u).exact, F64, tensor_count(data_own_gradient(u)));
    case KIND_GRADIENT_EXCESS:
        return tensor_1d(data_own_tracking(u).bound, F64, tensor_count(data_own_gradient(u)));
    case KIND_MASTER: return data_has_masters(dp) ? u->master : stepped_weights(u);
    case KIND_ANCHOR: return u->anchor;
    case KIND_MOMENTUM: return u->momentum;
    default: return u->state[kind - KIND_STATE];
    }
}

enum dtype data_format(const struct data_parallel *dp, enum tensor_kind kind)
{
    const enum dtype weights = dp->device->dtype;
    if (kind == KIND_EXACT_GRADIENT || kind == KIND_GRADIENT_EXCESS) return F64;
    if (kind >= KIND_STATE)
        return low_rank_format(dp->optimizer, dp->hyper, (int)(kind - KIND_STATE), dtype_wide(weights));
    const bool narrow =
        kind == KIND_WEIGHT || kind == KIND_OLDER_WEIGHT || (kind == KIND_GRADIENT && dp->request.narrow_gradients);
    return narrow ? weights : dtype_wide(weights);
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

static void add_listed(struct norm *n)
{
    if (n->count > 0) device_add_squares(n->dp->device, n->sum, n->listed, n->count);
    n->count = 0;
}

static void list_portion(void *context, struct portion s)
{
    struct norm *n = context;
    const int64_t left = s.parameter->counted - s.piece, length = left < s.length ? left : s.length;
    const struct interval here = { s.row - n->first, length };
    if (length <= 0) return;
    if (n->count == LISTED_MOST) add_listed(n);
    n->listed[n->count++] = slice(n->g, here);
}

/* Copies have the same gradients, so each counts a part of them.  The sum is exact, so this division changes no
 * bits. */
static struct interval counted_here(const struct unit *u)
{
    const struct interval own = shards_range(&u->over->shards, BY_OPTIMIZER, u->padded);
    const struct group *copies = &u->over->level[BY_COPIES];
    const int64_t first = block_start(own.count, copies->size, copies->rank),
                  end = block_start(own.count, copies->size, copies->rank + 1);
    return (struct interval){ own.first + first, end - first };
}

/* Elements that a device reads for the norm: the largest part, padding and what another device counts included.  So
 * devices that differ only along dp or tp take the same time. */
static int64_t read_for_norm(const struct unit *u)
{
    const struct interval own = shards_range(&u->over->shards, BY_OPTIMIZER, u->padded);
    return block_at(own.count, u->over->level[BY_COPIES].size, 0).count;
}

static void list_unit(struct norm *n, const struct unit *u, struct tensor g)
{
    n->g = g;
    n->first = shards_range(&u->over->shards, BY_OPTIMIZER, u->padded).first;
    unit_each_stretch(u, counted_here(u), list_portion, n);
    device_charge(n->dp->device, "sum of squares", elementwise_cost(read_for_norm(u), 1, 2, g.dtype));
}

void unit_add_squares(struct data_parallel *dp, const struct unit *u, struct tensor g, struct exact_sum *sum)
{
    struct norm n = { .dp = dp, .sum = sum };
    list_unit(&n, u, g);
    add_listed(&n);
}

/* Gradients on the slow tier were squared and summed before they were moved there. */
void data_norm_part(struct data_parallel *dp, struct exact_sum *sum)
{
    struct norm n = { .dp = dp, .sum = sum };
    *sum = (struct exact_sum){ .infinite = 0 };
    for (int i = 0; i < dp->units && has_gradients(dp); i++) {
        const struct unit *u = &dp->unit[i];
        if (on_tier(dp, u->own_g)) exact_add(sum, &u->squares);
        else list_unit(&n, u, data_own_gradient(u));
    }
    add_listed(&n);
}
