/* result.c -- sums the few results of a step over the devices of a replica.  model/trainer.c and model/mixture.c
 * reduce; all ranks must call result_reduce together.  model/trainer_open.c opens the groups along tp, pp and the
 * copies.  Without memory for a group the code is ERR_MEMORY. */
#include "emulated_devices/model/result.h"
#include "emulated_devices/model/trainer.h"
#include "emulated_devices/plan/sections.h"
#include <stdlib.h>
#include <string.h>

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

static enum error_code open_own(struct group *group, const struct trainer *trainer, struct error *err)
{
    return group_of(group, trainer->comm, &trainer->comm->rank, 1, TRAFFIC_RESULT, 0, err);
}

/* With sections: the devices of the stage, in the place of an axis, and all devices. */
static enum error_code open_stages(struct result_groups *groups, const struct trainer *trainer, struct error *err)
{
    const struct interval stage = plan_place_devices(&trainer->plan, plan_place(&trainer->plan, trainer->comm->rank));
    enum error_code e = group_of(&groups->along[0], trainer->comm, trainer->world.member + stage.first,
                                 (int)stage.count, TRAFFIC_RESULT, 0, err);
    for (int a = 1; a < RESULT_AXES && !e; a++) e = open_own(&groups->along[a], trainer, err);
    if (!e) e = group_of(&groups->between, trainer->comm, trainer->world.member, trainer->world.size, TRAFFIC_RESULT, 0,
                         err);
    if (!e) group_sends_alike(&groups->between);
    return e;
}

/* Where a device has no part, its groups are of itself. */
static enum error_code open_alone(struct result_groups *groups, const struct trainer *trainer, struct error *err)
{
    enum error_code e = OK;
    for (int a = 0; a < RESULT_AXES && !e; a++) e = open_own(&groups->along[a], trainer, err);
    return e ? e : open_own(&groups->between, trainer, err);
}

enum error_code result_open(struct result_groups *groups, const struct trainer *trainer, struct error *err)
{
    *groups = (struct result_groups){ 0 };
    if (trainer->plan.sections) return open_stages(groups, trainer, err);
    if (!trainer_takes_part(trainer)) return open_alone(groups, trainer, err);
    enum error_code e = group_along(&groups->along[0], trainer->comm, &trainer->plan.mesh, TRAFFIC_RESULT,
                                    AXIS_BIT(TP), err);
    if (!e) e = group_along(&groups->along[1], trainer->comm, &trainer->plan.mesh, TRAFFIC_RESULT, AXIS_BIT(PP), err);
    if (!e) e = open_copies(&groups->along[2], trainer, err);
    return e ? e : open_own(&groups->between, trainer, err);
}

void result_close(struct result_groups *groups)
{
    for (int a = 0; a < RESULT_AXES; a++) group_close(&groups->along[a]);
    group_close(&groups->between);
}

bool result_is_first(const struct result_groups *groups)
{
    bool first = groups->between.rank == 0;
    for (int a = 0; a < RESULT_AXES; a++) first = first && groups->along[a].rank == 0;
    return first;
}

static const char algorithm[] = "one_shot";     /* for short vectors: all send to all at once */

/* ---- between stages ---------------------------------------------------------------------------------------------- */

/* One device's part of an exchange between two stages. */
struct across {
    int asks;                           /* the device of the other stage whose sum it takes */
    int first, end;                     /* the devices of the other stage that take its own */
};

/* Devices take from the one that is as far along the other stage as they are along theirs. */
static struct across across_to(const struct trainer *trainer, int stage)
{
    const int rank = trainer->comm->rank, *const begin = trainer->plan.sections->first;
    const int own = plan_place(&trainer->plan, rank);
    const int64_t here = begin[own + 1] - begin[own], there = begin[stage + 1] - begin[stage], at = rank - begin[own];
    const int64_t asks = at * there / here, first = (at * there + here - 1) / here,
        end = ((at + 1) * there + here - 1) / here;
    return (struct across){ begin[stage] + (int)asks, begin[stage] + (int)first, begin[stage] + (int)end };
}

static int result_stages(const struct trainer *trainer)
{
    return trainer->plan.sections ? trainer->plan.sections->stages : 1;
}

/* The stage that comes k after this device's: all devices of a stage begin with the same. */
static int stage_after(const struct trainer *trainer, int k)
{
    return (plan_place(&trainer->plan, trainer->comm->rank) + k) % result_stages(trainer);
}

static void add_between_cost(const struct trainer *trainer, int64_t count, struct ledger *ledger)
{
    const struct group *const between = &trainer->result.between;
    for (int k = 1; k < result_stages(trainer); k++) {
        const struct across a = across_to(trainer, stage_after(trainer, k));
        for (int r = a.first; r < a.end; r++)
            ledger_messages(ledger, between, ALLREDUCE, r, (uint64_t)count * sizeof(double), 1);
        ledger_additions(ledger, between, ALLREDUCE, (uint64_t)count);
    }
}

/* Start to send this stage's numbers, and to receive each other stage's into its place of `sums`.
 * @return how many messages there are. */
static int start_between(struct trainer *trainer, struct exchange *exchange, const double *x, double *sums,
                         int64_t count, struct message *message)
{
    const uint64_t bytes = (uint64_t)count * sizeof *x;
    int n = 0;
    clock_start_collective(&trainer->device->clock);
    for (int k = 1; k < result_stages(trainer); k++) {
        const int stage = stage_after(trainer, k);
        const struct across a = across_to(trainer, stage);
        message[n++] = message_receive(exchange, a.asks, sums + stage * count, bytes);
        for (int r = a.first; r < a.end; r++) message[n++] = message_send(exchange, r, x, bytes);
    }
    return n;
}

/* x = sum of all stages, in their order. */
static enum error_code reduce_between(struct trainer *trainer, double *x, int64_t count, enum reduction how,
                                      struct error *err)
{
    const int stages = result_stages(trainer), own = stage_after(trainer, 0);
    const struct account before = result_reduce_cost(trainer, 0, how);
    const size_t messages = (size_t)account_total(&before).messages_sent + (size_t)stages;
    double *const sums = calloc((size_t)(stages * count) + 1, sizeof *sums);
    struct message *const message = calloc(messages, sizeof *message);
    enum error_code e = sums && message ? OK : fail(err, ERR_MEMORY, "no memory for the results of %d stages", stages);
    struct exchange exchange = exchange_begin(&trainer->result.between, ALLREDUCE);
    int n = 0;
    if (!e) {
        add_between_cost(trainer, count, &trainer->comm->expected);
        n = start_between(trainer, &exchange, x, sums, count, message);
        memcpy(sums + own * count, x, (size_t)count * sizeof *x);
    }
    for (int i = 0; i < n; i++) {
        const enum error_code waited = message_wait(trainer->comm, message[i], e ? NULL : err);
        if (!e) e = waited;
    }
    if (!e) memcpy(x, sums, (size_t)count * sizeof *x);
    for (int s = 1; s < stages && !e; s++)
        reduce_local(&exchange, how, F64, x, sums + s * count, count);
    free(sums), free(message);
    return e;
}

/* ---- a reduction ------------------------------------------------------------------------------------------------- */

enum error_code result_reduce(struct trainer *trainer, double *x, int64_t count, enum reduction how, struct error *err)
{
    enum error_code e = OK;
    for (int a = 0; a < RESULT_AXES && !e; a++)
        e = allreduce(&trainer->result.along[a], x, count, F64, how, algorithm, err);
    return e || result_stages(trainer) == 1 ? e : reduce_between(trainer, x, count, how, err);
}

struct account result_reduce_cost(const struct trainer *trainer, int64_t count, enum reduction how)
{
    const struct collective numbers = { .count = count, .dtype = F64, .reduction = how };
    struct ledger ledger = { 0 };
    add_between_cost(trainer, count, &ledger);
    struct account sum = ledger.of[TRAFFIC_RESULT];
    for (int a = 0; a < RESULT_AXES; a++)
        account_add(&sum, group_cost(&trainer->result.along[a], ALLREDUCE, algorithm, &numbers), 1);
    return sum;
}
