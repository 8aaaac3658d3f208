/* levels.c -- collectives among devices that differ in one digit of their rank, with numbers or with codes in the messages. */
#include "emulated_devices/schemes/data/gather.h"
#include <math.h>

static bool talks(const struct data_parallel *dp, enum shard_level level) { return shards_size(&dp->shards, level) > 1; }

/* ---- gradients ---------------------------------------------------------------------------------------------------------------- */

static struct interval own_block(const struct data_parallel *dp, enum shard_level level, struct tensor row)
{
    const int64_t n = tensor_count(row) / shards_size(&dp->shards, level);
    return (struct interval){ shards_digit(&dp->shards, level) * n, n };
}

enum error_code level_reduce_scatter(struct data_parallel *dp, enum shard_level level, struct tensor row, struct tracking t, struct error *err)
{
    const struct block_format f = dp->request.quantise_gradients;
    if (f.bits > 0) return talks(dp, level) ? quantised_reduce_scatter(&dp->scatter[level], row, f, t, err) : OK;
    const struct collective c = { .in = row.data, .out = slice(row, own_block(dp, level, row)).data, .count = tensor_count(row),
                                  .dtype = row.dtype, .reduction = SUM };
    return collective_run(&dp->level[level], REDUCE_SCATTER, dp->request.reduce_scatter, &c, err);
}

struct account level_reduce_scatter_cost(const struct data_parallel *dp, enum shard_level level, int64_t n)
{
    const struct block_format f = dp->request.quantise_gradients;
    const struct collective call = { .count = n, .dtype = data_format(dp, KIND_GRADIENT) };
    if (f.bits > 0 && talks(dp, level)) return quantised_reduce_scatter_cost(&dp->scatter[level], n / shards_size(&dp->shards, level), f);
    return group_cost(&dp->level[level], REDUCE_SCATTER, dp->request.reduce_scatter, &call);
}

/* ---- weights ------------------------------------------------------------------------------------------------------------------- */

enum error_code level_allgather(struct data_parallel *dp, enum shard_level level, struct tensor own, struct tensor row, struct error *err)
{
    const struct block_format f = dp->request.quantise_weights;
    const struct collective c = { .in = own.data, .out = row.data, .count = tensor_count(row), .dtype = row.dtype };
    if (f.bits > 0 && talks(dp, level)) return quantised_allgather(&dp->level[level], dp->request.allgather, own, row, f, err);
    return collective_run(&dp->level[level], ALLGATHER, dp->request.allgather, &c, err);
}

struct account level_allgather_cost(const struct data_parallel *dp, enum shard_level level, int64_t n)
{
    const struct block_format f = dp->request.quantise_weights;
    const struct collective call = { .count = n, .dtype = data_format(dp, KIND_WEIGHT) };
    if (f.bits > 0 && talks(dp, level))
        return quantised_allgather_cost(&dp->level[level], dp->request.allgather, n / shards_size(&dp->shards, level), f);
    return group_cost(&dp->level[level], ALLGATHER, dp->request.allgather, &call);
}

/* Pieces are what is left of a unit when all digits up to this one have cut it. */
enum error_code data_as_gathered(const struct data_request *q, const struct shards *s, enum shard_level level, const struct unit *u, struct tensor row,
                                 struct error *err)
{
    if (q->quantise_weights.bits == 0 || shards_size(s, level) == 1) return OK;
    return quantised_as_gathered(row, u->padded / shards_stride(s, level + 1), q->quantise_weights, err);
}

/* The way of new weights, backwards through the levels. */
enum error_code data_requantise(struct data_parallel *dp, struct error *err)
{
    enum error_code e = OK;
    for (int u = 0; u < dp->units; u++) {
        struct views v = views_of(dp->device);
        const struct tensor own = view_write(&v, dp->unit[u].own_w);
        for (enum shard_level l = BY_OPTIMIZER; l > BY_WEIGHTS && !e; l--)
            e = data_as_gathered(&dp->request, &dp->shards, l, &dp->unit[u], own, err);
        views_end(&v);
    }
    return e;
}

/* ---- what is asked for -------------------------------------------------------------------------------------------------------- */

enum error_code data_check_codes(const struct data_request *q, struct error *err)
{
    const struct { const char *flag; struct block_format format; } asked[] = {
        { "--quantize-weights", q->quantise_weights }, { "--quantize-gradients", q->quantise_gradients },
    };
    for (int i = 0; i < 2; i++) {
        const struct block_format f = asked[i].format;
        if (f.bits == 0 || ((f.bits == 4 || f.bits == 8) && f.block >= 1)) continue;
        return fail(err, ERR_PLAN, "%s int%d in blocks of %lld: must be int8 or int4, in blocks of at least 1", asked[i].flag, f.bits,
                    (long long)f.block);
    }
    return OK;
}

/* ---- tracking ----------------------------------------------------------------------------------------------------------------- */

enum error_code data_track(struct data_parallel *dp, struct error *err)
{
    enum error_code e = OK;
    if (dp->request.quantise_gradients.bits == 0) return OK;
    for (int u = 0; u < dp->units && !e; u++) e = tracking_open(&dp->unit[u].tracking, tensor_count(dp->unit[u].own_g), err);
    dp->tracks = !e;
    return e;
}

/* Nothing off is well within any bound; a number that is none is not. */
void data_settle_tracking(struct data_parallel *dp)
{
    for (int u = 0; u < dp->units && dp->tracks; u++) {
        struct views v = views_of(dp->device);
        const struct tensor g = view_read(&v, data_own_gradient(dp, &dp->unit[u]));
        const struct tracking t = data_own_tracking(dp, &dp->unit[u]);
        for (int64_t i = 0; i < tensor_count(g); i++) {
            const double off = fabs(tensor_get(g, i) - t.exact[i]);
            t.bound[i] = off == 0 ? 0 : off / t.bound[i];
        }
        views_end(&v);
    }
}
