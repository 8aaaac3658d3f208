/* weights.c -- weights kept in shards: gathered before a part is used, dropped after it. */
#include "emulated_devices/schemes/data/offload.h"
#include "emulated_devices/schemes/data/tiles.h"
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

void count_due(struct data_parallel *dp, int from_use)
{
    for (int u = 0; u < dp->units; u++) dp->unit[u].due = 0;
    for (int i = from_use; i < dp->uses && dp->use[i].pass != PASS_UPDATE; i++) {
        int unit[2];
        if (dp->use[i].pass != PASS_BACKWARD_WEIGHT) continue;
        for (int k = 0, n = data_gradients_at(dp, dp->use[i], unit); k < n; k++) dp->unit[unit[k]].due++;
    }
}

void expect_uses(struct data_parallel *dp)
{
    dp->at = dp->at < dp->uses ? dp->at + 1 : 0;
    dp->reduced = dp->packed = dp->packed_units = 0;
    count_due(dp, dp->at);
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

static bool use_needs(const struct data_parallel *dp, int use, int unit)
{
    int needed[2];
    const int n = data_units_at(dp, dp->use[use], needed);
    return needed[0] == unit || (n > 1 && needed[1] == unit);
}

bool stays_after(const struct data_parallel *dp, int use, int unit)
{
    const int next = next_weight_use(dp, use);
    if (next < 0) return false;
    if (use_needs(dp, next, unit)) return true;
    if (!dp->request.keep || dp->use[use].pass != PASS_FORWARD) return false;
    for (int i = next; i < dp->uses && dp->use[i].pass != PASS_UPDATE; i++)
        if (dp->use[i].pass == PASS_BACKWARD_INPUT && use_needs(dp, i, unit)) return true;
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
        if (!e) unit_to_whole(dp->device, u, (struct interval){ 0, u->padded }, row.data, u->w.data, row.dtype);
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
    clock_made(&dp->device->clock, u->w.data, tensor_bytes(u->w));
    u->ready = dp->device->clock.now;
    clock_end(&dp->device->clock);
    offload_drop_weights(dp, u);
    show_weights(u);
    return e;
}

static enum error_code gather_for(struct data_parallel *dp, struct use u, struct error *err)
{
    int unit[2];
    enum error_code e = OK;
    for (int i = 0, n = data_units_at(dp, u, unit); i < n && !e; i++) e = gather(dp, &dp->unit[unit[i]], err);
    return e;
}

/* What will be gathered at the uses after that. */
static enum error_code fetch_ahead(struct data_parallel *dp, int use, struct error *err)
{
    int unit[2];
    enum error_code e = OK;
    const int second = use < 0 ? -1 : next_weight_use(dp, use), third = second < 0 ? -1 : next_weight_use(dp, second);
    for (int i = 0, n = second < 0 ? 0 : data_units_at(dp, dp->use[second], unit); i < n && !e; i++)
        e = offload_fetch_weights(dp, &dp->unit[unit[i]], err);
    for (int i = 0, n = third < 0 ? 0 : data_units_at(dp, dp->use[third], unit); i < n; i++)
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

/* Gathered, and where they are wanted. */
static enum error_code make_whole(struct data_parallel *dp, struct use u, bool ahead, struct error *err)
{
    int unit[2];
    const int n = data_units_at(dp, u, unit), next = next_weight_use(dp, dp->at);
    enum error_code e = gather_for(dp, u, err);
    for (int i = 0; i < n; i++) clock_wait(&dp->device->clock, dp->unit[unit[i]].ready);
    if (!e && ahead && next >= 0) e = gather_for(dp, dp->use[next], err);
    if (!e && ahead) e = fetch_ahead(dp, next, err);
    for (int i = 0; i < n && !e && !has_gradients(dp); i++) move_weights(dp, &dp->unit[unit[i]]);
    return e;
}

static void let_go(struct data_parallel *dp, int use, int unit)
{
    if (makes_weights(dp) && !stays_after(dp, use, unit)) drop(dp, &dp->unit[unit]);
}

/* Where matrices are tiled, what a part has besides; the first tile's use comes next. */
enum error_code data_acquire(struct data_parallel *dp, int part, struct error *err)
{
    if (dp->at >= dp->uses || dp->use[dp->at].part != part)
        return fail(err, ERR_PLAN, "part %d of the model is used, where the list of passes has another", part);
    return makes_weights(dp) ? make_whole(dp, (struct use){ .part = part }, makes_ahead(dp) && !uses_tiles(&dp->request), err) : OK;
}

void data_release(struct data_parallel *dp, int part)
{
    int unit[2];
    const bool tiled = uses_tiles(&dp->request);
    for (int i = 0, n = data_units_at(dp, (struct use){ .part = part }, unit); i < n; i++) let_go(dp, tiled ? dp->at - 1 : dp->at, unit[i]);
    if (!tiled) dp->at++;
}

enum error_code data_acquire_tile(struct data_parallel *dp, const struct parameter *tile, struct error *err)
{
    if (dp->at >= dp->uses || dp->use[dp->at].tile != data_unit_of(dp->config, &dp->request, &tile->spec, tile->tile))
        return fail(err, ERR_PLAN, "tile %d of %s is used, where the list of passes has another", tile->tile, tile->spec.name);
    return make_whole(dp, dp->use[dp->at], makes_ahead(dp), err);
}

void data_release_tile(struct data_parallel *dp, const struct parameter *tile)
{
    let_go(dp, dp->at, data_unit_of(dp->config, &dp->request, &tile->spec, tile->tile));
    dp->at++;
}
