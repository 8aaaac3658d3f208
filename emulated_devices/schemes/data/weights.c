/* weights.c -- weights kept in shards: gathered before a part is used, dropped after it. */
#include "emulated_devices/schemes/data/offload.h"
#include <stdlib.h>

int data_units_of(const struct model_config *c, int part, int unit[2])
{
    int n = 0;
    if (part == 0) unit[n++] = UNIT_TOKENS, unit[n++] = UNIT_POSITIONS;
    else unit[n++] = UNIT_BLOCKS + part - 1;
    if (part == (int)c->L + 1 && c->tied) unit[n++] = UNIT_TOKENS;
    return n;
}

/* ---- what comes next ------------------------------------------------------------------------------------------------------ */

static void count_due(struct data_parallel *dp, int part)
{
    int unit[2];
    for (int k = 0, n = data_units_of(dp->config, part, unit); k < n; k++) dp->unit[unit[k]].due++;
}

void expect_uses(struct data_parallel *dp)
{
    dp->at = dp->at < dp->uses ? dp->at + 1 : 0;
    dp->reduced = dp->packed = dp->packed_units = 0;
    for (int u = 0; u < dp->units; u++) dp->unit[u].due = 0;
    for (int i = dp->at; i < dp->uses && dp->use[i].pass != PASS_UPDATE; i++)
        if (dp->use[i].pass == PASS_BACKWARD_WEIGHT) count_due(dp, dp->use[i].part);
}

void data_set_uses(struct data_parallel *dp, struct use *use, int uses)
{
    dp->use = use;
    dp->at = dp->uses = uses;
    foresee(dp);
    expect_uses(dp);
}

int next_weight_use(const struct data_parallel *dp, int use)
{
    for (int i = use + 1; i < dp->uses && !renews_weights(dp->use[i].pass); i++)
        if (dp->use[i].pass != PASS_BACKWARD_WEIGHT) return i;
    return -1;
}

static bool part_needs(const struct data_parallel *dp, int part, int unit)
{
    int needed[2];
    const int n = data_units_of(dp->config, part, needed);
    return needed[0] == unit || (n > 1 && needed[1] == unit);
}

bool stays_after(const struct data_parallel *dp, int use, int unit)
{
    const int next = next_weight_use(dp, use);
    if (next < 0) return false;
    if (part_needs(dp, dp->use[next].part, unit)) return true;
    if (!dp->request.keep || dp->use[use].pass != PASS_FORWARD) return false;
    for (int i = next; i < dp->uses && dp->use[i].pass != PASS_UPDATE; i++)
        if (dp->use[i].pass == PASS_BACKWARD_INPUT && part_needs(dp, dp->use[i].part, unit)) return true;
    return false;
}

/* ---- gathering -------------------------------------------------------------------------------------------------------------- */

static enum error_code no_room(const struct unit *u, struct error *err)
{
    return fail(err, ERR_MEMORY, "the machine has no memory left to gather %s and what belongs to it", u->parameter[0].spec.name);
}

/* All devices' shards into a row; of rows, then each parameter to its place. */
static enum error_code gather_row(struct data_parallel *dp, struct unit *u, struct error *err)
{
    struct tensor row = u->rows > 0 ? device_tensor_1d(dp->device, BUFFERS, u->padded) : u->w;
    if (row.data == NULL) return no_room(u, err);
    const struct tensor own = offloads(&dp->request, PARAMETERS) ? u->shard : u->own_w;
    const enum error_code e = level_allgather(dp, BY_WEIGHTS, own, row, err);
    if (u->rows > 0) {
        if (!e) unit_to_whole(u, (struct range){ 0, u->padded }, row.data, u->w.data, row.dtype);
        device_free(dp->device, row);
    }
    return e;
}

/* On the communication stream: beside what is being computed.  Whoever needs the weights waits for u->ready. */
static enum error_code gather(struct data_parallel *dp, struct unit *u, struct error *err)
{
    if (u->w.data != NULL || u->count == 0) return OK;
    enum error_code e = offload_fetch_weights(dp, u, err);
    if (e) return e;
    u->w.data = arena_alloc(&dp->device->arena, PARAMETERS, tensor_bytes(u->w));
    if (u->w.data == NULL) return no_room(u, err);
    clock_begin(&dp->device->clock, COMMUNICATION);
    clock_wait(&dp->device->clock, u->fetched);
    e = gather_row(dp, u, err);
    u->ready = dp->device->clock.now;
    clock_end(&dp->device->clock);
    offload_drop_weights(dp, u);
    show_weights(u);
    return e;
}

static enum error_code gather_part(struct data_parallel *dp, int part, struct error *err)
{
    int unit[2];
    enum error_code e = OK;
    for (int i = 0, n = data_units_of(dp->config, part, unit); i < n && !e; i++) e = gather(dp, &dp->unit[unit[i]], err);
    return e;
}

/* What will be gathered at the uses after that. */
static enum error_code fetch_ahead(struct data_parallel *dp, int use, struct error *err)
{
    int unit[2];
    enum error_code e = OK;
    const int second = use < 0 ? -1 : next_weight_use(dp, use), third = second < 0 ? -1 : next_weight_use(dp, second);
    for (int i = 0, n = second < 0 ? 0 : data_units_of(dp->config, dp->use[second].part, unit); i < n && !e; i++)
        e = offload_fetch_weights(dp, &dp->unit[unit[i]], err);
    for (int i = 0, n = third < 0 ? 0 : data_units_of(dp->config, dp->use[third].part, unit); i < n; i++)
        offload_announce_weights(dp, &dp->unit[unit[i]]);
    return e;
}

static void drop(struct data_parallel *dp, struct unit *u)
{
    device_free(dp->device, u->w);
    u->w.data = NULL;
    u->moved = false;
    show_weights(u);
}

/* ---- the seam --------------------------------------------------------------------------------------------------------------- */

enum error_code data_acquire(struct data_parallel *dp, int part, struct error *err)
{
    int unit[2];
    if (dp->at >= dp->uses || dp->use[dp->at].part != part)
        return fail(err, ERR_PLAN, "part %d of the model is used, where the list of passes has another", part);
    if (!makes_weights(dp)) return OK;
    enum error_code e = gather_part(dp, part, err);
    for (int i = 0, n = data_units_of(dp->config, part, unit); i < n; i++) clock_wait(&dp->device->clock, dp->unit[unit[i]].ready);
    const int next = next_weight_use(dp, dp->at);
    if (!e && makes_ahead(dp) && next >= 0) e = gather_part(dp, dp->use[next].part, err);
    if (!e && makes_ahead(dp)) e = fetch_ahead(dp, next, err);
    for (int i = 0, n = data_units_of(dp->config, part, unit); i < n && !e && !has_gradients(dp); i++) move_weights(dp, &dp->unit[unit[i]]);
    return e;
}

void data_release(struct data_parallel *dp, int part)
{
    int unit[2];
    for (int i = 0, n = data_units_of(dp->config, part, unit); i < n && makes_weights(dp); i++)
        if (!stays_after(dp, dp->at, unit[i])) drop(dp, &dp->unit[unit[i]]);
    dp->at++;
}
