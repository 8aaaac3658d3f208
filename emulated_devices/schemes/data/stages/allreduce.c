/* allreduce.c -- ddp: gradients in one block, whole on every device, all-reduced in buckets whose boundaries may be
 * inside units.
 *
 * Two stages: the memory, also used by schemes that reduce a whole gradient unit by unit (scattering.c), and the
 * all-reduce.
 *
 * data_end_gradient calls the all-reduce after each backward pass, data_finish_gradients after the last.  Every
 * device sends the same buckets in the same order.  Errors are ERR_MEMORY and ERR_COMM.
 */
#include "emulated_devices/schemes/data/stages/allreduce.h"

/* ---- the block --------------------------------------------------------------------------------------------------- */

static bool has_block(const struct data_parallel *dp) { return has_gradients(dp) && !data_scatters(dp); }

/* The block has all units that train, with their padding. */
static int64_t elements_in_block(const struct unit *unit) { return unit->frozen ? 0 : unit->padded; }

static enum error_code outline_block(struct data_parallel *dp, struct error *err)
{
    int64_t n = 0;
    (void)err;
    for (int u = 0; u < dp->units; u++) n += elements_in_block(&dp->unit[u]);
    dp->gradients = tensor_1d(NULL, data_format(dp, KIND_GRADIENT), n);
    return OK;
}

/* Units are in the order in which backward finishes them. */
static enum error_code fill_block(struct data_parallel *dp, struct error *err)
{
    bool failed = false;
    int64_t at = 0;
    dp->gradients = data_zeros(dp, NULL, GRADIENTS, KIND_GRADIENT, tensor_count(dp->gradients), &failed);
    /* The last unit first: backward finishes it first, so finished gradients are a front that grows. */
    for (int u = dp->units - 1; u >= 0; u--) {
        if (dp->unit[u].frozen) continue;
        dp->unit[u].g = dp->unit[u].own_g = dp->unit[u].sum =
            slice(dp->gradients, (struct interval){ at, dp->unit[u].padded });
        at += dp->unit[u].padded;
    }
    return failed ? fail(err, ERR_MEMORY, "no memory for %lld elements of gradients", (long long)at) : OK;
}

static void close_block(struct data_parallel *dp)
{
    data_give_back(dp, dp->gradients);
}

static void allreduce_clear(struct data_parallel *dp, struct unit *unit)
{
    device_zero(dp->device, unit->own_g);
}

const struct data_stage stage_gradient_block = {
    .name = "gradient block", .takes_part = has_block, .outline = outline_block, .fill = fill_block,
    .close = close_block, .clear = allreduce_clear,
};

/* ---- buckets ----------------------------------------------------------------------------------------------------- */

/* A bucket has one element at least, however small --bucket is. */
static int64_t bucket_elements(const struct data_parallel *dp)
{
    const int64_t n = dp->request.bucket / (int64_t)dtype_size(data_format(dp, KIND_GRADIENT));
    return n > 0 ? n : 1;
}

/* A bucket has units of one sharing only.  @return the sharing at an element of the block; end: where another one
 * begins. */
static struct sharing *sharing_at(const struct data_parallel *dp, int64_t element, int64_t *end)
{
    struct sharing *over = NULL;
    *end = 0;
    for (int u = dp->units - 1; u >= 0; u--) {
        if (dp->unit[u].frozen) continue;
        /* Experts are shared by other devices than the rest: a bucket does not cross from one to the other. */
        if (*end > element && dp->unit[u].over != over) break;
        *end += dp->unit[u].padded;
        over = dp->unit[u].over;
    }
    return over;
}

/* The result is the bucket at an element of the front, which has n elements.  `packed` means that the front has
 * projected gradients, which are not at their places. */
static struct interval bucket_at(const struct data_parallel *dp, int64_t at, int64_t n, bool packed,
                                 struct sharing **over)
{
    int64_t end;
    *over = sharing_at(dp, packed ? 0 : at, &end);
    if (packed || end > n) end = n;
    return interval_meet((struct interval){ at, bucket_elements(dp) }, (struct interval){ 0, end });
}

enum error_code reduce_front(struct data_parallel *dp, struct front *front, struct error *err)
{
    enum error_code e = OK;
    while (front->reduced < front->elements && !e) {
        struct sharing *over;
        const struct interval b = bucket_at(dp, front->reduced, front->elements, front->packed, &over);
        /* A bucket leaves once all passes have added to all of it. */
        if (b.first + b.count > front->ready) break;
        e = allreduce(&over->level[BY_COPIES], slice(dp->gradients, b).data, b.count, dp->gradients.dtype, SUM,
                      dp->allreduce, err);
        front->reduced += b.count;
    }
    return e;
}

/* The loop counts the buckets that reduce_front would send. */
struct account front_cost(const struct data_parallel *dp, int64_t n, bool packed)
{
    struct account sum = { 0 };
    for (int64_t at = 0; at < n;) {
        struct sharing *over;
        const struct interval b = bucket_at(dp, at, n, packed, &over);
        account_add(&sum, allreduce_cost(dp, &over->level[BY_COPIES], b.count), 1);
        at += b.count;
    }
    return sum;
}

int64_t finished_elements(const struct data_parallel *dp)
{
    int64_t n = 0;
    /* The front ends at the first unit to which a pass will still add. */
    for (int u = dp->units - 1; u >= 0 && dp->unit[u].due == 0; u--) n += elements_in_block(&dp->unit[u]);
    return n;
}

void allreduce_cost_of_step(const struct data_parallel *dp, enum shard_level level, struct account *sum)
{
    if (level == BY_COPIES) account_add(sum, front_cost(dp, tensor_count(dp->gradients), false), dp->updates);
}

/* ---- the stage --------------------------------------------------------------------------------------------------- */

static bool allreduce_takes_part(const struct data_parallel *dp)
{
    return gradients_in_one_block(dp) && !dp->optimizer->low_rank;
}

/* Reduce finished gradients on another stream, beside the following backward passes. */
static enum error_code allreduce_reduce(struct data_parallel *dp, struct error *err)
{
    struct front *f = chain_state(dp, &stage_allreduce);
    f->elements = tensor_count(dp->gradients), f->ready = finished_elements(dp);
    data_begin_sending(dp, SENDS_GRADIENTS);
    const enum error_code e = reduce_front(dp, f, err);
    clock_end(&dp->device->clock);
    return e;
}

static enum error_code allreduce_end(struct data_parallel *dp, struct use use, struct error *err)
{
    (void)use;
    return allreduce_reduce(dp, err);
}

/* The next update begins with an empty front. */
static void allreduce_settle(struct data_parallel *dp)
{
    ((struct front *)chain_state(dp, &stage_allreduce))->reduced = 0;
}

const struct data_stage stage_allreduce = {
    .name = "all-reduce", .takes_part = allreduce_takes_part, .state = sizeof (struct front), .end = allreduce_end,
        .finish = allreduce_reduce,
    .settle = allreduce_settle,
    .cost = allreduce_cost_of_step,
};
