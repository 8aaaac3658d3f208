/* cost.c -- what a step of the engine takes, from the list of passes alone. */
#include "emulated_devices/schemes/data/bucket.h"
#include "emulated_devices/schemes/data/low_rank.h"
#include "emulated_devices/schemes/data/offload.h"
#include "emulated_devices/schemes/data/tiles.h"

void cost_add(struct account *sum, struct account c, int64_t times)
{
    account_add(sum, c, times);
}

static struct account allreduce_cost(const struct data_parallel *dp, const struct group *g, int64_t count)
{
    const struct collective call = { .count = count, .dtype = data_format(dp, KIND_GRADIENT) };
    return group_cost(g, ALLREDUCE, dp->allreduce, &call);
}

/* ---- how often ---------------------------------------------------------------------------------------------------------------- */

static void note(struct data_parallel *dp, int64_t here)
{
    if (here > dp->most_weights) dp->most_weights = here;
}

/* The engine's own rules, without its data: who is here after each pass. */
static void arrive_shards(struct data_parallel *dp, struct use use, int64_t *here)
{
    int unit[2];
    for (int k = 0, n = data_units_at(dp, use, unit); k < n; k++) {
        struct unit *u = &dp->unit[unit[k]];
        if (u->foreseen_here || u->foreseen_shard || !offloads(&dp->request, PARAMETERS)) continue;
        u->foreseen_shard = true;
        note(dp, *here += kept_elements(dp, u, BY_WEIGHTS));
    }
}

static void arrive_unit(struct data_parallel *dp, struct unit *u, int64_t *here)
{
    const int64_t shard = offloads(&dp->request, PARAMETERS) ? kept_elements(dp, u, BY_WEIGHTS) : 0;
    if (u->foreseen_here || u->count == 0) return;
    if (!u->foreseen_shard) *here += shard;
    u->foreseen_here = true;
    u->foreseen_shard = false;
    u->gatherings++;
    note(dp, *here += whole_elements(u));
    *here -= shard;
}

static void arrive(struct data_parallel *dp, struct use use, int64_t *here)
{
    int unit[2];
    for (int k = 0, n = data_units_at(dp, use, unit); k < n; k++) arrive_unit(dp, &dp->unit[unit[k]], here);
}

static void leave(struct data_parallel *dp, int use, int64_t *here)
{
    int unit[2];
    for (int k = 0, n = data_units_at(dp, dp->use[use], unit); k < n; k++) {
        struct unit *u = &dp->unit[unit[k]];
        if (!u->foreseen_here || stays_after(dp, use, unit[k])) continue;
        u->foreseen_here = false;
        *here -= whole_elements(u);
    }
}

void foresee(struct data_parallel *dp)
{
    int64_t here = 0;
    dp->updates = 1;
    for (int i = 0; i < dp->uses; i++) {
        dp->updates += dp->use[i].pass == PASS_UPDATE;
        if (!makes_weights(dp) || dp->use[i].pass == PASS_BACKWARD_WEIGHT || renews_weights(dp->use[i].pass)) continue;
        const int next = next_weight_use(dp, i);
        arrive(dp, dp->use[i], &here);
        const int second = next < 0 ? -1 : next_weight_use(dp, next);
        if (makes_ahead(dp) && next >= 0) arrive(dp, dp->use[next], &here);
        if (makes_ahead(dp) && second >= 0) arrive_shards(dp, dp->use[second], &here);
        leave(dp, i, &here);
    }
    foresee_gradients(dp);
}

/* ---- traffic --------------------------------------------------------------------------------------------------------------------- */

static struct account bucket_cost(const struct data_parallel *dp, int64_t n, int64_t times)
{
    const int64_t step = bucket_elements(dp);
    struct account sum = { 0 };
    for (int64_t at = 0; at < n && !dp->shards.apart; at += step) cost_add(&sum, allreduce_cost(dp, dp->group, n - at < step ? n - at : step), times);
    return sum;
}

/* Steps 1 .. t of the optimizer that find projections anew. */
static int64_t refreshes_until(const struct data_parallel *dp, int64_t t) { return (t + dp->hyper->refresh - 1) / dp->hyper->refresh; }

struct account data_saved_by_projecting(const struct data_parallel *dp, int64_t taken, int64_t skipped)
{
    const struct account none = { 0 };
    if (!dp->optimizer->low_rank || dp->hyper->clip > 0) return none;
    const int64_t last = dp->coming - 1, whole = refreshes_until(dp, last) - refreshes_until(dp, last - taken) + dp->skipped_whole;
    struct account all = bucket_cost(dp, tensor_count(dp->gradients), taken + skipped - whole);
    account_add(&all, bucket_cost(dp, low_rank_packed_elements(dp), taken + skipped - whole), -1);
    return all;
}

struct account level_allreduce_cost(const struct data_parallel *dp, enum shard_level level, int64_t n)
{
    return allreduce_cost(dp, &dp->level[level], n);
}

/* New weights after a step: units in their order, as they are stepped. */
static struct account renewal_cost(const struct data_parallel *dp, enum shard_level level)
{
    const int64_t capacity = bucket_capacity(dp, KIND_WEIGHT), stride = shards_stride(&dp->shards, level);
    struct account sum = { 0 };
    struct bucket b = { 0 };
    for (int u = 0; u < dp->units; u++) {
        const int64_t n = dp->unit[u].padded;
        if (!bucket_takes(&b, capacity, n)) cost_add(&sum, level_allgather_cost(dp, level, b.elements / stride), 1), b = (struct bucket){ 0 };
        b.units++, b.elements += n;
        if (bucket_is_full(&b, capacity)) cost_add(&sum, level_allgather_cost(dp, level, b.elements / stride), 1), b = (struct bucket){ 0 };
    }
    cost_add(&sum, level_allgather_cost(dp, level, b.elements / stride), 1);
    return sum;
}

struct account data_level_cost(const struct data_parallel *dp, enum shard_level level)
{
    struct account sum = dp->reduction[level];
    if (gradients_in_one_block(dp)) return level == BY_COPIES ? bucket_cost(dp, tensor_count(dp->gradients), dp->updates) : sum;
    for (int u = 0; u < dp->units && level == BY_WEIGHTS; u++)
        cost_add(&sum, level_allgather_cost(dp, level, dp->unit[u].padded), dp->unit[u].gatherings);
    if (level == BY_GRADIENTS || level == BY_OPTIMIZER) cost_add(&sum, renewal_cost(dp, level), dp->updates);
    return sum;
}

struct account data_cost(const struct data_parallel *dp)
{
    struct account sum = { 0 };
    for (enum shard_level l = BY_WEIGHTS; l < SHARD_LEVELS; l++) cost_add(&sum, data_level_cost(dp, l), 1);
    return sum;
}

struct account data_renewal_cost(const struct data_parallel *dp)
{
    struct account sum = { 0 };
    for (enum shard_level l = BY_GRADIENTS; l <= BY_OPTIMIZER && dp->shards.optimizer > 1; l++) cost_add(&sum, renewal_cost(dp, l), 1);
    return sum;
}

/* New weights are shared in the step that it ends, as in any other. */
struct account data_outer_cost(const struct data_parallel *dp)
{
    struct account sum = { 0 };
    for (int u = 0; u < dp->units && dp->shards.apart; u++)
        cost_add(&sum, allreduce_cost(dp, &dp->level[BY_COPIES], dp->unit[u].padded / dp->shards.optimizer), 1);
    return sum;
}

/* ---- memory ---------------------------------------------------------------------------------------------------------------------- */

static uint64_t larger(uint64_t a, uint64_t b) { return a > b ? a : b; }

static struct state_bytes bytes_of_element(const struct data_parallel *dp)
{
    const int outer = dp->shards.apart ? 1 + (dp->outer.momentum > 0) : 0;     /* anchor and momentum */
    const int states = dp->optimizer->low_rank ? 0 : dp->optimizer->states;    /* of the unit's padded size */
    return (struct state_bytes){
        .weight = dtype_size(data_format(dp, KIND_WEIGHT)), .gradient = has_gradients(dp) ? dtype_size(data_format(dp, KIND_GRADIENT)) : 0,
        .optimizer = dtype_size(data_format(dp, KIND_STATE)) * (uint64_t)(states + data_has_masters(dp) + outer),
    };
}

struct model_state data_resident(const struct data_parallel *dp)
{
    const struct state_bytes each = bytes_of_element(dp);
    const struct data_request *q = &dp->request;
    struct model_state sum = { 0 };
    for (int u = 0; u < dp->units; u++) {
        const struct model_state s = shards_state(&dp->shards, dp->unit[u].padded, each);
        if (!offloads(q, PARAMETERS)) sum.weights += s.weights * (uint64_t)dp->versions;
        if (!offloads(q, GRADIENTS)) sum.gradients += s.gradients;
        if (!offloads(q, OPTIMIZER)) sum.optimizer += s.optimizer;
        for (int k = 0; k < dp->optimizer->states && dp->optimizer->low_rank; k++)
            sum.optimizer += (uint64_t)low_rank_state_elements(dp, &dp->unit[u], k) * dtype_size(data_format(dp, KIND_STATE));
    }
    return sum;
}

/* Slices of what lies on the slow tier, in one step of the optimizer. */
static struct model_state step_buffers(const struct data_parallel *dp)
{
    const struct state_bytes each = bytes_of_element(dp);
    const struct data_request *q = &dp->request;
    const uint64_t n = dp->stepped ? (uint64_t)(buffers_of_step(dp) * dp->longest_slice) : 0;
    return (struct model_state){ .weights = offloads(q, PARAMETERS) ? n * each.weight : 0, .gradients = offloads(q, GRADIENTS) ? n * each.gradient : 0,
                                 .optimizer = offloads(q, OPTIMIZER) ? n * each.optimizer : 0 };
}

uint64_t data_step_buffers(const struct data_parallel *dp)
{
    const struct model_state s = step_buffers(dp);
    return s.weights + s.gradients + s.optimizer;
}

struct model_state data_peak(const struct data_parallel *dp)
{
    const struct state_bytes each = bytes_of_element(dp);
    const struct model_state kept = data_resident(dp), slices = step_buffers(dp);
    return (struct model_state){ .weights = kept.weights + larger((uint64_t)dp->most_weights * each.weight, slices.weights),
                                 .gradients = kept.gradients + larger((uint64_t)dp->most_gradients * each.gradient, slices.gradients),
                                 .optimizer = kept.optimizer + slices.optimizer };
}

uint64_t data_part_bytes(const struct data_parallel *dp, int part, enum pass pass)
{
    const struct use use = { .part = part, .pass = pass };
    const struct state_bytes each = bytes_of_element(dp);
    const bool gradients = pass == PASS_BACKWARD_WEIGHT;
    int64_t n = 0;
    int unit[2];
    if (!(gradients ? data_scatters(dp) : makes_weights(dp))) return 0;
    for (int k = 0, units = data_units_at(dp, use, unit); k < units; k++) n += whole_elements(&dp->unit[unit[k]]);
    return (uint64_t)n * (gradients ? each.gradient : each.weight);
}

struct model_state data_offloaded(const struct data_parallel *dp)
{
    struct model_state sum = { 0 };
    for (int u = 0; u < dp->units; u++) {
        const struct model_state s = shards_state(&dp->shards, dp->unit[u].padded, bytes_of_element(dp));
        if (offloads(&dp->request, PARAMETERS)) sum.weights += s.weights;
        if (offloads(&dp->request, GRADIENTS)) sum.gradients += s.gradients;
        if (offloads(&dp->request, OPTIMIZER)) sum.optimizer += s.optimizer;
    }
    return sum;
}
