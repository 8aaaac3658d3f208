/* outer.c -- copies of the model that train apart: what they are made of, and the step at the end of each round.
 *
 * The rule is that of ref/optim/outer.h.  Each device steps outward what it steps inward.  The outer gradient needs no memory of its
 * own: gradients are zero after the inner step, and theirs has its size and format.
 *
 * Units are reduced one by one, not as one block: a tied embedding is a unit on both stages that hold it, so both add up the replicas in
 * one order and keep the same bits, without a message between them.
 */
#include "emulated_devices/schemes/data/gather.h"
#include "emulated_devices/device/compute.h"

const char *share_replica(struct shards *s, const struct data_request *q)
{
    if (q->shards[0] > 0 && q->group > 0) return "takes --shards W,G,O or --shard-group, not both";
    if (q->shards[0] > 0) s->weights = q->shards[0], s->gradients = q->shards[1], s->optimizer = q->shards[2];
    else s->weights = s->gradients = s->optimizer = q->group > 0 ? q->group : 1;
    return s->P > 1 && s->optimizer == s->P ? "all devices along --dp would be one replica; fewer must share the optimizer's state" : NULL;
}

void data_start_round(struct data_parallel *dp)
{
    for (int i = 0; i < dp->units && dp->shards.apart; i++) {
        struct unit *u = &dp->unit[i];
        device_copy(dp->device, u->anchor.data, data_kept_tensor(dp, u, KIND_MASTER).data, tensor_bytes(u->anchor));
        if (u->momentum.data) device_zero(dp->device, u->momentum);
    }
}

static enum error_code step_unit(struct data_parallel *dp, struct unit *u, struct error *err)
{
    const struct tensor theta = data_kept_tensor(dp, u, KIND_MASTER), g = data_own_gradient(dp, u);
    struct views v = views_of(dp->device);
    outer_gradient(view_write(&v, g), view_read(&v, u->anchor), view_read(&v, theta));
    views_end(&v);
    dev_charge(dp->device, "outer gradient", g, 3, 1);
    const enum error_code e = allreduce(&dp->level[BY_COPIES], g.data, tensor_count(g), g.dtype, SUM, dp->allreduce, err);
    if (e) return e;
    outer_step(view_write(&v, theta), view_write(&v, u->anchor), view_write(&v, u->momentum), view_read(&v, g), shards_replicas(&dp->shards), dp->outer);
    views_end(&v);
    dev_charge(dp->device, "outer step", g, u->momentum.data ? 6 : 4, u->momentum.data ? 7 : 3);
    device_zero(dp->device, g);
    return renew_weights(dp, u, err);
}

enum error_code step_outer(struct data_parallel *dp, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < dp->units && !e; i++) e = step_unit(dp, &dp->unit[i], err);
    return e ? e : share_waiting(dp, err);
}
