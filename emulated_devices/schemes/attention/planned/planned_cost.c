/* planned_cost.c -- what attention by a plan sends and keeps, by formula.
 *
 * The schemes hdp, dcp and zeppelin have these functions: link_cost.c asks for messages, link_memory.c for what is
 * kept.  cp_begin enters the same formula as the expected traffic of a pass.  Nothing here can fail.
 */
#include "emulated_devices/schemes/attention/planned/context_index.h"
#include "emulated_devices/schemes/attention/planned/planned.h"
#include "emulated_devices/schemes/attention/planned/proxies.h"
#include "emulated_devices/schemes/attention/planned/remap.h"
#include "emulated_devices/schemes/attention/rings/ring.h"
#include "emulated_devices/schemes/attention/tops.h"
#include "ref/model/config.h"

struct tensor planned_kept(const struct context_parallel *cp, int slot, int64_t rows)
{
    struct intervals own = { 0 };
    /* Without a plan the rows of the stream are taken, as for an even share. */
    if (cp->plan) context_plan_attended(&own, cp->plan, cp->rank);
    const int64_t n = cp->plan ? intervals_total(&own) : rows;
    intervals_free(&own);
    return ring_attention_kept(cp, slot, n);
}

const char *planned_refuses(const struct context_parallel *cp, const struct model_config *config)
{
    (void)cp, (void)config;
    return NULL;
}

/* A message of count numbers, and what this device carries of it. */
static void forecast_carried(struct forecast *forecast, const struct context_parallel *cp, int from, int to,
                             int64_t count, uint64_t size)
{
    for (enum proxy_stage stage = PROXY_DISPATCH; stage < PROXY_STAGES; stage++)
        for (int i = 0; i < proxy_parts(cp->plan->proxies, from, to); i++) {
            const struct proxy_hop h = proxy_hop(cp->plan->proxies, from, to, count, stage, i);
            if (h.from == cp->rank && h.to != h.from && h.part.count > 0)
                forecast_message(forecast, cp->group, h.to, (uint64_t)h.part.count * size);
        }
}

/* Enter the blocks that the plan moves.  Backward, queries take the output's gradient, log-sum-exp and delta along. */
static void forecast_moves(struct forecast *forecast, const struct context_parallel *cp, bool backward)
{
    const enum dtype own = cp->tp->device->dtype;
    const uint64_t size = dtype_size(own), wide = dtype_size(dtype_wide(own));
    const int64_t H = cp->heads->queries.count, queries = H * cp->tp->config->A, keys = cp_keys_width(cp);
    const struct context_list *const all = &cp->plan->index->moves;
    for (int64_t i = 0; i < context_list_count(all, cp->rank); i++) {
        const struct context_move *m = &cp->plan->move[context_list_of(all, cp->rank)[i]];
        /* A block of n tokens: n 2 K A numbers of keys and values, or n H A of queries. */
        const int64_t n = context_block_tokens(&cp->plan->block[m->block]);
        forecast_carried(forecast, cp, m->from, m->to, n * (m->data == CONTEXT_KEYS ? keys : queries), size);
        if (m->data != CONTEXT_KEYS && !backward && cp->tp->device->exact)
            forecast_carried(forecast, cp, m->from, m->to, n * H, wide);                /* the tops */
        if (m->data == CONTEXT_KEYS || !backward) continue;
        forecast_carried(forecast, cp, m->from, m->to, n * queries, size);
        for (int k = 0; k < 2; k++) forecast_carried(forecast, cp, m->from, m->to, n * H, wide);
    }
}

/* Results or gradients of other devices' blocks that this device has worked with. */
static void forecast_returns(struct forecast *forecast, const struct context_parallel *cp, bool backward)
{
    const uint64_t sums = dtype_size(cp->tp->device->sums);
    const int64_t H = cp->heads->queries.count, A = cp->tp->config->A;
    const struct context_index *const index = cp->plan->index;
    for (enum context_data data = CONTEXT_QUERIES; data <= (backward ? CONTEXT_KEYS : CONTEXT_QUERIES); data++)
        for (int64_t i = 0; i < context_list_count(&index->guests[data], cp->rank); i++) {
            const struct context_guest guest = index->guest[data][context_list_of(&index->guests[data], cp->rank)[i]];
            const struct context_block *const block = &cp->plan->block[guest.block];
            const int64_t n = context_block_tokens(block);
            const int64_t width = data == CONTEXT_KEYS ? cp_keys_width(cp) : H * A;
            /* With proxies this device also carries others' gradients. */
            if (backward) forecast_carried(forecast, cp, guest.device, block->home, n * width, sums);
            /* Forward results go straight: n H A sums, and n H wide numbers of the log-sum-exp, or totals. */
            if (!backward && guest.device == cp->rank) {
                forecast_message(forecast, cp->group, block->home, (uint64_t)(n * H * A) * sums);
                forecast_message(forecast, cp->group, block->home, (uint64_t)(n * H) * sums);
            }
        }
}

struct forecast_of { struct forecast *f; const struct context_parallel *cp; bool backward; };

/* Enter the messages of one run of remapped rows.  Forward qkv comes in, and the output goes out.  Backward qkv, the
 * output and its gradient come in, and d_qkv goes out. */
static void forecast_run(void *context, const struct remap_run *remap_run)
{
    const struct forecast_of *x = context;
    const uint64_t size = (uint64_t)remap_run->count * dtype_size(x->cp->tp->device->dtype);
    const uint64_t narrow = (uint64_t)(x->cp->heads->queries.count * x->cp->tp->config->A) * size;
    const uint64_t whole = narrow + (uint64_t)cp_keys_width(x->cp) * size;
    /* Gradients of copied keys go home as sums (heads_add_exactly). */
    const uint64_t numbers = whole / dtype_size(x->cp->tp->device->dtype),
        gradient = heads_add_exactly(x->cp->tp) ? numbers * dtype_size(EXACT) : whole;
    /* A run that stays on its device is copied there. */
    if (remap_run->inside == remap_run->outside) return;
    if (remap_run->outside == x->cp->rank) forecast_message(x->f, x->cp->group, remap_run->inside, whole);
    for (int i = 0; i < 2 && x->backward && remap_run->outside == x->cp->rank; i++)
        forecast_message(x->f, x->cp->group, remap_run->inside, narrow);
    if (remap_run->inside == x->cp->rank)
        forecast_message(x->f, x->cp->group, remap_run->outside, x->backward ? gradient : narrow);
}

void planned_cost(struct forecast *forecast, const struct context_parallel *cp, enum tensor_pass pass, int64_t rows)
{
    (void)rows;
    if (cp->devices == 1 || cp->plan == NULL || cp->plan->index == NULL || pass == WEIGHT_PASS) return;
    tops_cost(forecast, cp, pass, cp->plan->tokens > 0);
    forecast_moves(forecast, cp, pass == INPUT_PASS);
    forecast_returns(forecast, cp, pass == INPUT_PASS);
    remap_each_of(cp->plan, cp->rank, forecast_run,
                  &(struct forecast_of){ forecast, cp, pass == INPUT_PASS });
}
