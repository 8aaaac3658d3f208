/* outer.c -- copies of the model that train apart: what they are made of, and the step at the end of each round.
 *
 * The rule is that of ref/optim/outer.h.  Each device steps outward what it steps inward.  The outer gradient needs no memory of its
 * own: gradients are zero after the inner step, and theirs has its size and format.
 *
 * Units are reduced one by one, not as one block: a tied embedding is a unit on both stages that hold it, so both add up the replicas in
 * one order and keep the same bits, without a message between them.
 */
#include "emulated_devices/schemes/data/stage.h"
#include "emulated_devices/device/compute.h"
#include <stdlib.h>

const char *share_replica(struct shards *s, const struct data_request *q)
{
    if (q->shards[0] > 0 && q->group > 0) return "takes --shards W,G,O or --shard-group, not both";
    if (q->shards[0] > 0) s->weights = q->shards[0], s->gradients = q->shards[1], s->optimizer = q->shards[2];
    else s->weights = s->gradients = s->optimizer = q->group > 0 ? q->group : 1;
    return s->P > 1 && s->optimizer == s->P ? "all devices along --dp would be one replica; fewer must share the optimizer's state" : NULL;
}

/* Devices that step the same in all replicas. */
struct outer_stage { struct group replicas; };

static struct outer_stage *own_state(const struct data_parallel *dp) { return chain_state(dp, &stage_outer); }

static bool takes_part(const struct data_parallel *dp) { return dp->shards.apart; }

static enum error_code open_group(struct data_parallel *dp, struct error *err)
{
    struct outer_stage *o = own_state(dp);
    const int stride = dp->shards.optimizer, R = shards_replicas(&dp->shards);
    int *ranks = malloc(sizeof *ranks * (size_t)R);
    if (ranks == NULL) return fail(err, ERR_MEMORY, "no memory for a group of %d devices", R);
    for (int i = 0; i < R; i++) ranks[i] = dp->group->member[dp->shards.rank % stride + i * stride];
    const enum error_code e = group_of(&o->replicas, dp->group->comm, ranks, R, dp->group->kind, dp->group->axes, err);
    free(ranks);
    return e;
}

static void close_group(struct data_parallel *dp)
{
    group_close(&own_state(dp)->replicas);
}

static int64_t momentum_elements(const struct data_parallel *dp, const struct unit *u, enum tensor_kind kind)
{
    (void)kind;
    return dp->outer.momentum > 0 ? kept_elements(u, BY_OPTIMIZER) : -1;
}

void data_start_round(struct data_parallel *dp)
{
    for (int i = 0; i < dp->units && takes_part(dp); i++) {
        struct unit *u = &dp->unit[i];
        device_copy(dp->device, u->anchor.data, data_kept_tensor(dp, u, KIND_MASTER).data, tensor_bytes(u->anchor));
        if (u->momentum.data) device_zero(dp->device, u->momentum);
    }
}

static enum error_code step_unit(struct data_parallel *dp, struct outer_stage *o, struct unit *u, struct error *err)
{
    const struct tensor theta = data_kept_tensor(dp, u, KIND_MASTER), g = data_own_gradient(dp, u);
    struct views v = views_of(dp->device);
    outer_gradient(view_write(&v, g), view_read(&v, u->anchor), view_read(&v, theta));
    views_end(&v);
    dev_charge(dp->device, "outer gradient", g, 3, 1);
    const enum error_code e = allreduce(&o->replicas, g.data, tensor_count(g), g.dtype, SUM, dp->allreduce, err);
    if (e) return e;
    outer_step(view_write(&v, theta), view_write(&v, u->anchor), view_write(&v, u->momentum), view_read(&v, g), o->replicas.size, dp->outer);
    views_end(&v);
    dev_charge(dp->device, "outer step", g, u->momentum.data ? 6 : 4, u->momentum.data ? 7 : 3);
    device_zero(dp->device, g);
    return renew_weights(dp, u, err);
}

/* At the end of a round. */
static enum error_code after(struct data_parallel *dp, int64_t t, struct error *err)
{
    enum error_code e = OK;
    if (!outer_follows(&dp->outer, t)) return OK;
    for (int i = 0; i < dp->units && !e; i++) e = step_unit(dp, own_state(dp), &dp->unit[i], err);
    return e ? e : share_weights(dp, NULL, err);
}

/* ---- prediction ------------------------------------------------------------------------------------------------------------- */

/* New weights are shared in the step that it ends, as in any other. */
struct account data_outer_cost(const struct data_parallel *dp)
{
    const struct outer_stage *o = own_state(dp);
    struct account sum = { 0 };
    for (int i = 0; i < dp->units && o; i++) {
        const struct collective c = { .count = kept_elements(&dp->unit[i], BY_OPTIMIZER), .dtype = data_format(dp, KIND_GRADIENT) };
        account_add(&sum, group_cost(&o->replicas, ALLREDUCE, dp->allreduce, &c), 1);
    }
    return sum;
}

const struct data_stage stage_outer = {
    .name = "outer step", .takes_part = takes_part, .state = sizeof (struct outer_stage), .outline = open_group, .close = close_group, .after = after,
    .keeps = { { offsetof(struct unit, anchor), OPTIMIZER, KIND_ANCHOR },
               { offsetof(struct unit, momentum), OPTIMIZER, KIND_MOMENTUM, momentum_elements } }, .kept = 2,
};
