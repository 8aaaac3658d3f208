/* offload.c -- weights, gradients and optimizer state on a slow tier: what is there, and copies of it on the device.
 *
 * Source   S. Rajbhandari et al., "ZeRO-Infinity: breaking the GPU memory wall for extreme scale deep learning",
 *          arXiv:2104.07857; J. Ren et al., "ZeRO-Offload: democratizing billion-scale model training", arXiv:2101.06840
 * Memory   on the device, of a class that is offloaded:
 *          weights      two parts of the model whole, as in shards, and the shards of the part that is gathered and the one after it
 *          gradients    one part whole and a unit's shard
 *          optimizer    during the step, OFFLOAD_BUFFERS slices of it, and of the others, if they are offloaded
 * Moves    weights      one read for each gathering, one write a step; without masters the step reads them too
 *          gradients    for each pass that adds to them one write, and one read but for the first; one read in the step
 *          optimizer    one read and one write a step
 *          each of a device's own shards only: with N devices each link carries 1/N
 * Equals   the same scheme without offloading, bit for bit: only where numbers lie differs
 */
#include "emulated_devices/schemes/data/offload.h"
#include <stdlib.h>

/* ---- the tier ------------------------------------------------------------------------------------------------------------------ */

static uint64_t room_of(const struct data_parallel *dp, enum tensor_kind kind, int64_t n)
{
    return tier_room((uint64_t)n * dtype_size(data_format(dp, kind)));
}

static uint64_t unit_room(const struct data_parallel *dp, const struct unit *u)
{
    uint64_t sum = 0;
    if (offloads(&dp->request, PARAMETERS)) sum += room_of(dp, KIND_WEIGHT, kept_elements(dp, u, BY_WEIGHTS));
    if (offloads(&dp->request, GRADIENTS)) sum += room_of(dp, KIND_GRADIENT, kept_elements(dp, u, BY_GRADIENTS));
    if (offloads(&dp->request, OPTIMIZER))
        sum += (uint64_t)(dp->optimizer->states + data_has_masters(dp)) * room_of(dp, KIND_STATE, kept_elements(dp, u, BY_OPTIMIZER));
    return sum;
}

/* Weights that the host has stepped come to a device that keeps them.  Each slice has a place of its own: the host steps the next one
 * while this one's are on their way. */
static int64_t landing_elements(const struct data_parallel *dp)
{
    int64_t n = 0;
    for (int u = 0; u < dp->units; u++) n += kept_elements(dp, &dp->unit[u], BY_OPTIMIZER);
    return dp->request.offload_stride > 1 && !offloads(&dp->request, PARAMETERS) ? n : 0;
}

enum error_code offload_open_tier(struct data_parallel *dp, struct error *err)
{
    if (!dp->request.offload) return OK;
    uint64_t bytes = room_of(dp, KIND_WEIGHT, landing_elements(dp));
    for (int u = 0; u < dp->units; u++) bytes += unit_room(dp, &dp->unit[u]);
    const enum error_code e = tier_open(&dp->tier, dp->device, dp->request.offload_to, bytes, err);
    dp->landing = tier_place(&dp->tier, data_format(dp, KIND_WEIGHT), e ? 0 : landing_elements(dp));
    return dp->request.offload_to ? fail_about(err, e, "--offload-to") : e;
}

/* Without offloading a slice is all that this device steps of a unit. */
enum error_code offload_list_slices(struct data_parallel *dp, struct error *err)
{
    const int64_t most = dp->request.offload ? dp->request.offload_slice : INT64_MAX;
    for (int u = 0; u < dp->units; u++) {
        const int64_t n = kept_elements(dp, &dp->unit[u], BY_OPTIMIZER);
        dp->slices += (int)(n / most + (n % most > 0));
        if (n > dp->longest_slice) dp->longest_slice = n < most ? n : most;
    }
    dp->slice = calloc((size_t)dp->slices + 1, sizeof *dp->slice);
    if (dp->slice == NULL) return fail(err, ERR_MEMORY, "no memory for a list of %d slices of the optimizer's state", dp->slices);
    struct step_slice *next = dp->slice;
    int64_t before = 0;
    for (int u = 0; u < dp->units; u++) {
        const int64_t n = kept_elements(dp, &dp->unit[u], BY_OPTIMIZER);
        for (int64_t at = 0; at < n; at += next++->own.count)
            *next = (struct step_slice){ &dp->unit[u], { at, n - at < most ? n - at : most }, before + at, n - at <= most };
        before += n;
    }
    return OK;
}

void offload_close(struct data_parallel *dp)
{
    for (int i = 0; i < dp->units && dp->unit; i++) {
        struct unit *u = &dp->unit[i];
        device_free(dp->device, u->shard);
        if (u->sum.data != u->own_g.data) device_free(dp->device, u->sum);
    }
    free(dp->slice);
    dp->slice = NULL, dp->slices = 0;
    tier_close(&dp->tier);
}

/* ---- weights ------------------------------------------------------------------------------------------------------------------- */

static bool weights_are_here(const struct data_parallel *dp, const struct unit *u)
{
    return !offloads(&dp->request, PARAMETERS) || u->padded == 0 || u->w.data != NULL || u->shard.data != NULL;
}

void offload_announce_weights(struct data_parallel *dp, struct unit *u)
{
    if (!weights_are_here(dp, u) && u->announced == 0) u->announced = tier_announce(&dp->tier, tensor_bytes(u->own_w), dp->device->clock.now);
}

enum error_code offload_fetch_weights(struct data_parallel *dp, struct unit *u, struct error *err)
{
    if (weights_are_here(dp, u)) return OK;
    offload_announce_weights(dp, u);
    u->shard = device_tensor_1d(dp->device, PARAMETERS, tensor_count(u->own_w));
    if (u->shard.data == NULL) return fail(err, ERR_MEMORY, "the machine has no memory left to read %s", u->parameter[0].spec.name);
    u->fetched = u->announced > dp->device->clock.now ? u->announced : dp->device->clock.now;
    u->announced = 0;
    return tier_read(&dp->tier, u->shard, u->own_w, &u->fetched, err);
}

void offload_drop_weights(struct data_parallel *dp, struct unit *u)
{
    device_free(dp->device, u->shard);
    u->shard = tensor_none;
}

/* ---- gradients ----------------------------------------------------------------------------------------------------------------- */

static enum error_code take(struct data_parallel *dp, struct unit *u, struct tensor home, bool filled, struct error *err)
{
    struct clock *clock = &dp->device->clock;
    u->sum = device_tensor_in(dp->device, GRADIENTS, home.dtype, tensor_count(home));
    if (u->sum.data == NULL) return fail(err, ERR_MEMORY, "the machine has no memory left for the gradient of %s", u->parameter[0].spec.name);
    device_zero(dp->device, u->sum);
    if (!filled) return OK;
    picoseconds when = tier_announce(&dp->tier, tensor_bytes(home), u->flushed > clock->now ? u->flushed : clock->now);
    const enum error_code e = tier_read(&dp->tier, u->sum, home, &when, err);
    clock_wait(clock, when);
    return e;
}

static enum error_code put(struct data_parallel *dp, struct unit *u, struct tensor home, struct tensor from, struct error *err)
{
    u->flushed = dp->device->clock.now;
    const enum error_code e = tier_write(&dp->tier, home, from, &u->flushed, err);
    device_free(dp->device, u->sum);
    u->sum = tensor_none;
    return e;
}

enum error_code offload_take_sum(struct data_parallel *dp, struct unit *u, struct error *err)
{
    if (!offloads(&dp->request, GRADIENTS)) return OK;
    return take(dp, u, u->own_g, u->added, err);
}

static void count_squares(struct data_parallel *dp, struct unit *u, struct tensor g)
{
    u->squares = (struct exact_sum){ .infinite = 0 };
    unit_add_squares(dp, u, g, &u->squares);
}

enum error_code offload_put_sum(struct data_parallel *dp, struct unit *u, bool last, struct error *err)
{
    if (!offloads(&dp->request, GRADIENTS)) return OK;
    const struct interval part = last ? stepped_gradients(dp, u) : (struct interval){ 0, tensor_count(u->own_g) };
    if (last) count_squares(dp, u, slice(u->sum, part));
    u->added = true;
    return put(dp, u, slice(u->own_g, part), slice(u->sum, part), err);
}

enum error_code data_take_gradient(struct data_parallel *dp, struct unit *u, struct tensor *g, struct error *err)
{
    *g = data_own_gradient(dp, u);
    if (!offloads(&dp->request, GRADIENTS)) return OK;
    const enum error_code e = take(dp, u, *g, true, err);
    *g = u->sum;
    return e;
}

enum error_code data_put_gradient(struct data_parallel *dp, struct unit *u, struct error *err)
{
    if (!offloads(&dp->request, GRADIENTS)) return OK;
    count_squares(dp, u, u->sum);
    const enum error_code e = put(dp, u, data_own_gradient(dp, u), u->sum, err);
    clock_wait(&dp->device->clock, u->flushed);
    return e;
}
