/* codes.c -- sends weights and gradients as blocks of codes (--quantize-weights, --quantize-gradients;
 * collectives/quantised.h).
 *
 * sharing.c chooses this wire where the request has codes.  quantised_*() of collectives/ do the work.  Errors are
 * ERR_MEMORY, ERR_COMM, and ERR_PLAN from the check of the request.
 */
#include "emulated_devices/schemes/data/stages/stage.h"
#include <math.h>

/* ---- the wire ---------------------------------------------------------------------------------------------------- */

/* A level of one device sends nothing and rounds nothing, so a plan without data parallelism is not quantised. */
static enum error_code codes_reduce_scatter(struct sharing *sharing, enum shard_level level, struct tensor row,
                                            struct tracking tracking, struct error *err)
{
    return level_talks(sharing, level)
               ? quantised_reduce_scatter(&sharing->scatter[level], row, sharing->request->quantise_gradients,
                                          tracking, err)
               : OK;
}

static struct account reduce_scatter_cost(const struct sharing *sharing, enum shard_level level, int64_t n,
                                          enum dtype dtype)
{
    if (!level_talks(sharing, level)) return (struct account){ 0 };
    (void)dtype;
    return quantised_reduce_scatter_cost(&sharing->scatter[level], n / shards_size(&sharing->shards, level),
                                         sharing->request->quantise_gradients);
}

static enum error_code allgather(struct sharing *sharing, enum shard_level level, struct tensor own, struct tensor row,
                                 struct error *err)
{
    /* With one device the own block is copied to the row as plain numbers. */
    if (!level_talks(sharing, level)) return wire_numbers.allgather(sharing, level, own, row, err);
    return quantised_allgather(&sharing->level[level], sharing->request->allgather, own, row,
                               sharing->request->quantise_weights, err);
}

static struct account allgather_cost(const struct sharing *sharing, enum shard_level level, int64_t n, enum dtype dtype)
{
    if (!level_talks(sharing, level)) return (struct account){ 0 };
    (void)dtype;
    return quantised_allgather_cost(&sharing->level[level], sharing->request->allgather,
                                    n / shards_size(&sharing->shards, level), sharing->request->quantise_weights);
}

const struct wire wire_codes = {
    .name = "codes", .alone = true, .reduce_scatter = codes_reduce_scatter, .allgather = allgather,
    .reduce_scatter_cost = reduce_scatter_cost,
    .allgather_cost = allgather_cost,
};

/* ---- weights that are gathered after the step -------------------------------------------------------------------- */

/* Pieces: the parts of a unit after cutting by all digits up to this one. */
enum error_code data_as_gathered(struct device *device, const struct data_request *request, const struct shards *shards,
                                 enum shard_level level, const struct unit *unit, struct tensor row, struct error *err)
{
    if (request->quantise_weights.bits == 0 || shards_size(shards, level) == 1) return OK;
    return quantised_as_gathered(device, row, unit->padded / shards_stride(shards, level + 1),
                                 request->quantise_weights, err);
}

/* Weights are quantised as when new weights are shared: backwards through the levels. */
enum error_code data_requantise(struct data_parallel *dp, struct error *err)
{
    enum error_code e = OK;
    /* The order of levels must be that of renewal.c, because each gathering rounds what the one before has rounded. */
    for (int i = 0; i < dp->units; i++) {
        const struct unit *u = &dp->unit[i];
        for (enum shard_level l = BY_OPTIMIZER; l > BY_WEIGHTS && !e; l--)
            e = data_as_gathered(dp->device, &dp->request, &u->over->shards, l, u, u->own_w, err);
    }
    return e;
}

/* ---- check of the request ---------------------------------------------------------------------------------------- */

enum error_code data_check_codes(const struct data_request *request, struct error *err)
{
    const struct { const char *flag; struct block_format format; } asked[] = {
        { "--quantize-weights", request->quantise_weights }, { "--quantize-gradients", request->quantise_gradients },
    };
    for (int i = 0; i < 2; i++) {
        const struct block_format f = asked[i].format;
        /* Codes have 4 or 8 bits; 0 bits mean that the flag was not given. */
        if (f.bits == 0 || ((f.bits == 4 || f.bits == 8) && f.block >= 1)) continue;
        return fail(err, ERR_PLAN, "%s int%d in blocks of %lld: must be int8 or int4, in blocks of at least 1",
                    asked[i].flag, f.bits, (long long)f.block);
    }
    return OK;
}

/* ---- tracking ---------------------------------------------------------------------------------------------------- */

enum error_code data_track(struct data_parallel *dp, struct error *err)
{
    enum error_code e = OK;
    /* Only units whose gradients travel as codes have something to track. */
    for (int i = 0; i < dp->units && !e; i++)
        if (dp->unit[i].over->gradients == &wire_codes)
            e = tracking_open(&dp->unit[i].tracking, tensor_count(dp->unit[i].own_g), err);
    return e;
}

/* Divide errors by their bounds.  An error of 0 is within any bound, also 0; a NaN stays NaN. */
static void codes_settle(struct tensor g, struct tracking tracking)
{
    for (int64_t i = 0; i < tensor_count(g) && tracked(tracking); i++) {
        const double off = fabs(tensor_get(g, i) - tracking.exact[i]);
        tracking.bound[i] = off == 0 ? 0 : off / tracking.bound[i];
    }
}

void data_settle_tracking(struct data_parallel *dp)
{
    for (int u = 0; u < dp->units; u++) {
        struct views v = views_of(dp->device);
        codes_settle(view_read(&v, data_own_gradient(&dp->unit[u])), data_own_tracking(&dp->unit[u]));
        views_end(&v);
    }
}
