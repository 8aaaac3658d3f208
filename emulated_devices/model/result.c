#include "emulated_devices/model/result.h"
#include "emulated_devices/model/trainer.h"
#include <stdlib.h>

static int replica_of(const struct trainer *t, int rank)
{
    return shards_replica_of(&t->data.shards, plan_copy_of(&t->plan, rank));
}

/* The members of the dp group that belong to this device's replica. */
static enum error_code open_copies(struct group *g, const struct trainer *t, struct error *err)
{
    int *ranks = malloc(sizeof *ranks * (size_t)t->dp.size), size = 0;
    if (ranks == NULL) return fail(err, ERR_MEMORY, "no memory for a group of %d devices", t->dp.size);
    for (int i = 0; i < t->dp.size; i++)
        if (replica_of(t, t->dp.member[i]) == replica_of(t, t->comm->rank)) ranks[size++] = t->dp.member[i];
    const enum error_code e = group_of(g, t->comm, ranks, size, TRAFFIC_RESULT, t->dp.axes, err);
    free(ranks);
    return e;
}

enum error_code result_open(struct result_groups *r, const struct trainer *t, struct error *err)
{
    *r = (struct result_groups){ 0 };
    enum error_code e = group_along(&r->along[0], t->comm, &t->plan.mesh, TRAFFIC_RESULT, AXIS_BIT(TP), err);
    if (!e) e = group_along(&r->along[1], t->comm, &t->plan.mesh, TRAFFIC_RESULT, AXIS_BIT(PP), err);
    return e ? e : open_copies(&r->along[2], t, err);
}

void result_close(struct result_groups *r)
{
    for (int a = 0; a < RESULT_AXES; a++) group_close(&r->along[a]);
}

bool result_is_first(const struct result_groups *r)
{
    bool first = true;
    for (int a = 0; a < RESULT_AXES; a++) first = first && r->along[a].rank == 0;
    return first;
}

static const char algorithm[] = "one_shot";     /* for short vectors: all send to all at once */

enum error_code result_reduce(struct trainer *t, double *x, int64_t count, enum reduction how, struct error *err)
{
    enum error_code e = OK;
    for (int a = 0; a < RESULT_AXES && !e; a++)
        e = allreduce(&t->result.along[a], x, count, F64, how, algorithm, err);
    return e;
}

struct account result_reduce_cost(const struct trainer *t, int64_t count, enum reduction how)
{
    const struct collective numbers = { .count = count, .dtype = F64, .reduction = how };
    struct account sum = { 0 };
    for (int a = 0; a < RESULT_AXES; a++)
        account_add(&sum, group_cost(&t->result.along[a], ALLREDUCE, algorithm, &numbers), 1);
    return sum;
}
