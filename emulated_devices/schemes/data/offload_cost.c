/* offload_cost.c -- what a step reads from the slow tier and writes to it, from the list of passes and the slices alone. */
#include "emulated_devices/schemes/data/offload.h"

static void add_reads(struct tier_traffic *t, int64_t times, int64_t elements, enum dtype format)
{
    if (elements == 0) return;                          /* moves nothing, and is no operation */
    t->reads += (uint64_t)times;
    t->bytes_read += (uint64_t)(times * elements) * dtype_size(format);
}

static void add_writes(struct tier_traffic *t, int64_t times, int64_t elements, enum dtype format)
{
    if (elements == 0) return;
    t->writes += (uint64_t)times;
    t->bytes_written += (uint64_t)(times * elements) * dtype_size(format);
}

/* One slice's, of one step of the optimizer. */
static void add_slice(struct tier_traffic *t, const struct data_parallel *dp, int slice)
{
    const struct data_request *q = &dp->request;
    const int64_t n = dp->slice[slice].own.count;
    const enum dtype state = data_format(dp, KIND_STATE), weight = data_format(dp, KIND_WEIGHT);
    const int states = dp->optimizer->states + data_has_masters(dp);
    if (stepped_by_host(dp, slice)) {
        if (!offloads(q, PARAMETERS)) add_reads(t, 1, n, weight);
        return;
    }
    if (offloads(q, OPTIMIZER)) add_reads(t, states, n, state), add_writes(t, states, n, state);
    if (offloads(q, GRADIENTS)) add_reads(t, 1, n, data_format(dp, KIND_GRADIENT));
    if (offloads(q, PARAMETERS)) add_writes(t, 1, n, weight);
    if (offloads(q, PARAMETERS) && !data_has_masters(dp)) add_reads(t, 1, n, weight);
}

struct tier_traffic data_tier_update_traffic(const struct data_parallel *dp)
{
    struct tier_traffic t = { 0 };
    for (int i = 0; i < dp->slices; i++) add_slice(&t, dp, i);
    return t;
}

/* The passes of a step: each pass that is not an update's first reads what it adds to, and the last of an update writes what is stepped. */
static void add_gradients(struct tier_traffic *t, const struct data_parallel *dp, const struct unit *u)
{
    const enum dtype format = data_format(dp, KIND_GRADIENT);
    const int64_t kept = kept_elements(dp, u, BY_GRADIENTS), stepped = kept_elements(dp, u, BY_OPTIMIZER);
    const int again = u->passes - u->reductions, shared = u->count > 0 && u->parameter[0].holders > 1 ? dp->updates : 0;
    add_reads(t, again, kept, format), add_writes(t, again, kept, format);
    add_writes(t, u->reductions, stepped, format);
    add_reads(t, shared, stepped, format), add_writes(t, shared, stepped, format);      /* the sum over the places that hold it */
}

struct tier_traffic data_tier_traffic(const struct data_parallel *dp)
{
    struct tier_traffic t = { 0 };
    for (int i = 0; i < dp->slices * dp->updates; i++) add_slice(&t, dp, i % dp->slices);
    for (int i = 0; i < dp->units; i++) {
        const struct unit *u = &dp->unit[i];
        if (offloads(&dp->request, PARAMETERS)) add_reads(&t, u->gatherings, kept_elements(dp, u, BY_WEIGHTS), data_format(dp, KIND_WEIGHT));
        if (offloads(&dp->request, GRADIENTS)) add_gradients(&t, dp, u);
    }
    return t;
}
