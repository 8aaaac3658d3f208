/* trainer_shared.c -- gradients of parameters that several places of the pipeline hold.  trainer.c calls
 * trainer_reduce_shared().  Errors: ERR_MEMORY, and ERR_COMM of the sum; the step cannot go on then. */
#include "emulated_devices/model/trainer_parts.h"

enum { SHARED_NAME = 1 << 16 };         /* names the exchange of unit u: SHARED_NAME + u; microbatches count from 0 */

/* The quantising errors of the places' gradients are summed, too. */
static enum error_code track_shared(struct trainer *trainer, int unit, const int *place, int holders, struct error *err)
{
    const struct unit *u = &trainer->data.unit[unit];
    struct exchange control = exchange_named(&trainer->pp, CONTROL, SHARED_NAME + (uint32_t)unit);
    return tracked(u->tracking) ? tracking_sum(&control, holders, place, data_own_tracking(u),
                                               data_own_gradient(u), err)
                                : OK;
}

/* Sum the gradients of all places that hold a unit, in order of place, so that all get the same bits.  They have been
 * reduced over dp, and at one dp coordinate all places step the same part of the unit. */
static enum error_code reduce_one(struct trainer *trainer, int unit, struct error *err)
{
    int place[MESH_MOST_LISTED];
    struct unit *u = &trainer->data.unit[unit];
    struct tensor g;
    enum error_code e = data_take_gradient(&trainer->data, u, &g, err);
    if (e) return e;
    struct exchange x = exchange_named(&trainer->pp, ALLREDUCE, SHARED_NAME + (uint32_t)unit);
    const uint64_t bytes = tensor_bytes(g);
    const int holders = plan_holders(&trainer->plan, &trainer->schedule, &u->parameter[0].spec, place);
    char *all = exchange_scratch(&x, bytes * (uint64_t)holders);
    e = all ? OK
            : fail(err, ERR_MEMORY, "no memory for the other copies of the gradient of %s", u->parameter[0].spec.name);
    for (int i = 0; i < holders && !e; i++) {
        if (place[i] == trainer->pp.rank) device_copy(trainer->comm->device, all + (uint64_t)i * bytes, g.data, bytes);
        else e = exchange_both(&x, place[i], g.data, bytes, place[i], all + (uint64_t)i * bytes, bytes, err);
        if (place[i] != trainer->pp.rank)
            ledger_messages(&trainer->comm->expected, &trainer->pp, ALLREDUCE, place[i], bytes, 1);
    }
    for (int i = 0; i < holders && !e; i++) {
        if (i == 0) device_copy(trainer->comm->device, g.data, all, bytes);
        else reduce_local(&x, SUM, g.dtype, g.data, all + (uint64_t)i * bytes, tensor_count(g));
    }
    ledger_additions(&trainer->comm->expected, &trainer->pp, ALLREDUCE, (uint64_t)((holders - 1) * tensor_count(g)));
    exchange_release(&x, all);
    if (!e) e = data_put_gradient(&trainer->data, u, err);
    return e ? e : track_shared(trainer, unit, place, holders, err);
}

enum error_code trainer_reduce_shared(struct trainer *trainer, struct error *err)
{
    enum error_code e = OK;
    for (int u = 0; u < trainer->data.units && !e; u++)
        if (holders_of(&trainer->data.unit[u]) > 1) e = reduce_one(trainer, u, err);
    return e;
}
