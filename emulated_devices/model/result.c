/* result.c -- sums the few results of a step over the devices of a replica.  model/trainer.c and model/mixture.c
 * reduce; all ranks must call result_reduce together.  model/trainer_open.c opens the groups along tp, pp and the
 * copies.  Without memory for a group the code is ERR_MEMORY. */
#include "emulated_devices/model/result.h"
#include "emulated_devices/model/trainer.h"
#include <stdlib.h>

static int replica_of(const struct trainer *trainer, int rank)
{
    return shards_replica_of(&trainer->data.shards, plan_copy_of(&trainer->plan, rank));
}

/* The members of the dp group that belong to this device's replica. */
static enum error_code open_copies(struct group *group, const struct trainer *trainer, struct error *err)
{
    int *ranks = malloc(sizeof *ranks * (size_t)trainer->dp.size), size = 0;
    if (ranks == NULL) return fail(err, ERR_MEMORY, "no memory for a group of %d devices", trainer->dp.size);
    for (int i = 0; i < trainer->dp.size; i++)
        if (replica_of(trainer, trainer->dp.member[i]) == replica_of(trainer, trainer->comm->rank))
            ranks[size++] = trainer->dp.member[i];
    const enum error_code e = group_of(group, trainer->comm, ranks, size, TRAFFIC_RESULT, trainer->dp.axes, err);
    free(ranks);
    return e;
}

/* Where a device has no part, its groups are of itself; with sections all devices sum one result. */
static enum error_code open_own(struct result_groups *groups, const struct trainer *trainer, struct error *err)
{
    enum error_code e = OK;
    for (int a = 0; a < RESULT_AXES && !e; a++)
        e = trainer->plan.sections && a == RESULT_AXES - 1
            ? group_of(&groups->along[a], trainer->comm, trainer->world.member, trainer->world.size, TRAFFIC_RESULT, 0,
                       err)
            : group_of(&groups->along[a], trainer->comm, &trainer->comm->rank, 1, TRAFFIC_RESULT, 0, err);
    return e;
}

enum error_code result_open(struct result_groups *groups, const struct trainer *trainer, struct error *err)
{
    *groups = (struct result_groups){ 0 };
    if (!trainer_takes_part(trainer)) return open_own(groups, trainer, err);
    enum error_code e = group_along(&groups->along[0], trainer->comm, &trainer->plan.mesh, TRAFFIC_RESULT,
                                    AXIS_BIT(TP), err);
    if (!e) e = group_along(&groups->along[1], trainer->comm, &trainer->plan.mesh, TRAFFIC_RESULT, AXIS_BIT(PP), err);
    return e ? e : open_copies(&groups->along[2], trainer, err);
}

void result_close(struct result_groups *groups)
{
    for (int a = 0; a < RESULT_AXES; a++) group_close(&groups->along[a]);
}

bool result_is_first(const struct result_groups *groups)
{
    bool first = true;
    for (int a = 0; a < RESULT_AXES; a++) first = first && groups->along[a].rank == 0;
    return first;
}

static const char algorithm[] = "one_shot";     /* for short vectors: all send to all at once */

enum error_code result_reduce(struct trainer *trainer, double *x, int64_t count, enum reduction how, struct error *err)
{
    enum error_code e = OK;
    for (int a = 0; a < RESULT_AXES && !e; a++)
        e = allreduce(&trainer->result.along[a], x, count, F64, how, algorithm, err);
    return e;
}

struct account result_reduce_cost(const struct trainer *trainer, int64_t count, enum reduction how)
{
    const struct collective numbers = { .count = count, .dtype = F64, .reduction = how };
    struct account sum = { 0 };
    for (int a = 0; a < RESULT_AXES; a++)
        account_add(&sum, group_cost(&trainer->result.along[a], ALLREDUCE, algorithm, &numbers), 1);
    return sum;
}
