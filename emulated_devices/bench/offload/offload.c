/* offload.c -- loading weights in parts and by one owner, and the update of offloaded states with every stride, in
 * virtual time.
 *
 * All use real numbers and the training code.  In virtual time a copy has no fixed cost, so the ratios do not depend
 * on the sizes.  claims/offload.c and cli/bench/offload.c call these functions.  Errors: ERR_MEMORY, ERR_COMM,
 * ERR_FILE of the slow tier.
 */
#include "emulated_devices/bench/offload/offload.h"
#include "emulated_devices/comm/comm.h"
#include "emulated_devices/schemes/data/data.h"
#include "emulated_devices/schemes/data/stages/load.h"
#include "ref/model/config.h"
#include "ref/model/families/families.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include <stdlib.h>

/* ---- loading ----------------------------------------------------------------------------------------------------- */

/* The first P devices load n weights: the owner all, or each its part. */
static enum error_code load_on_first(struct comm *world, int P, int64_t n, bool by_owner, struct offload_loaded *out,
                                     struct error *err)
{
    struct group group;
    struct tier tier;
    int ranks[MESH_MOST_LISTED];
    for (int i = 0; i < P; i++) ranks[i] = i;
    enum error_code e = group_of(&group, world, ranks, P, TRAFFIC_OTHER, 0, err);
    if (e) return e;
    clock_reset(&world->device->clock);
    const int64_t own = by_owner ? (world->rank == 0 ? n : 0) : n / P;
    e = tier_open(&tier, world->device, NULL, tier_room((uint64_t)own * sizeof(float)), err);
    if (!e) {
        struct load l = { .group = &group, .tier = &tier, .home = tier_place(&tier, F32, own) };
        l.whole = device_tensor_1d(world->device, PARAMETERS, n);
        if (l.whole.data == NULL) e = fail(err, ERR_MEMORY, "no memory for %lld weights", (long long)n);
        if (!e) e = by_owner ? load_by_owner(&l, 0, err) : load_in_parts(&l, err);
        *out = (struct offload_loaded){ l.read, world->device->clock.now };
        device_free(world->device, l.whole);
        tier_close(&tier);
    }
    group_close(&group);
    return e;
}

/* The last device's time, on rank 0. */
static enum error_code slowest(struct comm *world, struct offload_loaded *loaded, struct error *err)
{
    double both[2] = { (double)loaded->read, (double)loaded->all };
    const enum error_code e = allreduce(world->everyone, both, 2, F64, MAX, NULL, err);
    *loaded = (struct offload_loaded){ (picoseconds)both[0], (picoseconds)both[1] };
    return e;
}

enum error_code offload_load(struct comm *world, int P, int megabytes, bool by_owner, struct offload_loaded *loaded,
                             struct error *err)
{
    const int64_t n = ((int64_t)megabytes << 18) / P * P;
    enum error_code e = OK;
    *loaded = (struct offload_loaded){ 0, 0 };
    if (world->rank < P) e = load_on_first(world, P, n, by_owner, loaded, err);
    e = comm_agree(world, e, err);
    return e ? e : slowest(world, loaded, err);
}

/* ---- strides ----------------------------------------------------------------------------------------------------- */

static const struct model_config model = {
    .name = "bench", .S = 16, .D = 128, .H = 4, .K = 4, .A = 32, .F = 512, .L = 12, .V = 256, .tied = true,
    .family = &family_gpt2, .biases = BIASES_BLOCK, .eps = 1e-5, .init_std = 0.02,
};

/* One device.  bf16 weights stay on the device; gradients, masters and states are on the host, as in DeepSpeed's
 * offloading. */
enum error_code offload_update(struct comm *alone, int slice, int stride, picoseconds *took, int *slices,
                               struct error *err)
{
    struct group group;
    struct hyperparameters hyper = optimizers[0]->usual;
    const int count = model_param_count(&model);
    struct parameters parameters = { .count = count, .end = { count, count, count } };
    struct data_parallel dp = {
        .config = &model, .device = alone->device, .group = &group, .parameters = &parameters, .hyper = &hyper,
        .versions = 1,
        .request = { .scheme = "zero3", .offload = 1u << OPTIMIZER | 1u << GRADIENTS, .offload_slice = slice,
                     .offload_stride = stride,
                     .narrow_gradients = true },
    };
    enum error_code e = group_of(&group, alone, &alone->rank, 1, TRAFFIC_OTHER, 0, err);
    if (e) return e;
    parameters.all = calloc((size_t)parameters.count, sizeof *parameters.all);
    if (parameters.all == NULL) e = fail(err, ERR_MEMORY, "no memory for a list of %d parameters", parameters.count);
    for (int i = 0; i < parameters.count && !e; i++) {
        struct parameter *p = &parameters.all[i];
        *p = (struct parameter){ .spec = model_param(&model, i), .index = i, .holders = 1 };
        p->layout = layout_whole(p->spec.ndim, p->spec.dim);
    }
    if (!e) e = data_scheme_find(&dp.scheme, dp.request.scheme, err);
    if (!e) e = optimizer_find(&dp.optimizer, "adamw", err);
    if (!e) {
        clock_reset(&alone->device->clock);
        e = data_open(&dp, 1, err);
        if (!e) e = data_step(&dp, 1, 1, err);
        *took = alone->device->clock.now, *slices = data_slices(&dp);
        data_close(&dp);
    }
    free(parameters.all);
    group_close(&group);
    return e;
}

int64_t offload_elements(void) { return model_elements(&model); }

int offload_balanced_stride(picoseconds by_host, picoseconds moved) { return data_balanced_stride(by_host, moved); }
