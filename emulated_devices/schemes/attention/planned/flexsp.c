/* attention, flexsp: groups of different sizes side by side, each with samples that suit it, exchange tokens for heads.
 *
 * Source   Y. Wang et al., "FlexSP: accelerating large language model training via flexible sequence parallelism",
 *          arXiv:2412.01523, section 4
 * Group    P devices; for every microbatch they are cut into neighbours: groups of 1, 2, 4, .. devices, each at a
 *          multiple of its size, at most as many as there are query heads
 * Layout   a sample is in one group; the d devices of a group have nearly equal ranges of its tokens.  In attention
 *          each has all tokens of the group and 1/d of the heads, as in ulysses.c
 *
 *          P = 4; samples of 8, 2, 1 and 1 tokens: a group of two and two of one
 *          device 0, 1        the long one: halves of its tokens, then of its heads
 *          device 2           2
 *          device 3           1, 1
 *
 * Plan     the samples of a step are sorted by length and cut into microbatches (flexsp_micros.h): as many as --micro
 *          says, or with --micro-tokens as many as take the least time, and the microbatches before them are empty.
 *          Then each microbatch has its own groups (flexsp_plan.h)
 * Sends    as ulysses of d devices, for the group's T tokens: forward T/d (d-1)/d (2 H + 2 K) A elements, backward as
 *          many; with K < d copies of keys
 * Memory   kept: queries, keys, values and results after the exchange, the log-sum-exp
 * Equals   reassociates: tiles of keys begin elsewhere than in one device's
 *
 * Called by: model/run/run_attention.c (passes), plan/context.c (plan), model/trainer_open.c (groups).  Errors:
 * ERR_PLAN or ERR_MEMORY of the planner; ERR_MEMORY or ERR_COMM of a pass, after which the step cannot go on.
 */
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/attention/planned/buckets.h"
#include "emulated_devices/schemes/attention/planned/context_index.h"
#include "emulated_devices/schemes/attention/planned/context_invariants.h"
#include "emulated_devices/schemes/attention/planned/flexsp_micros.h"
#include "emulated_devices/schemes/attention/planned/flexsp_plan.h"
#include "emulated_devices/schemes/attention/heads/head_exchange.h"
#include "emulated_devices/schemes/attention/pass.h"
#include "ref/model/config.h"

/* Plan one microbatch of the step; one without samples has a plan of no tokens. */
static enum error_code planned_flexsp_plan(struct context_plan *plan, const struct context_load *load,
                                           struct error *err)
{
    const struct flexsp_micros *step;
    *plan = (struct context_plan){ .devices = load->devices, .divisions = 1 };
    const enum error_code e = flexsp_micros_find(&step, load, USUAL_BUCKETS, err);
    /* The first ones stay empty: gradients are reduced beside the last backward pass, which must have samples. */
    const int micro = e ? -1 : load->micro - ((load->micros > 1 ? load->micros : 1) - step->count);
    if (micro < 0) return e;
    const int first = step->first[micro];
    return flexsp_plan(plan, load, step->sample + first, step->first[micro + 1] - first, USUAL_BUCKETS, err);
}

/* ---- the exchange ------------------------------------------------------------------------------------------------ */

/* This device's group in a microbatch. */
struct here { struct context_group group; struct head_exchange x; double pairs; };

/* Find this device's group and its exchange in the plan at hand. */
static struct here flexsp_find(const struct context_parallel *cp)
{
    struct here h = { .x = { .tp = cp->tp, .heads = cp->heads } };
    int size = 0;
    if (cp->plan->tokens == 0) return h;                /* an empty microbatch */
    const int64_t *const start = cp->plan->index->start;
    const int g = context_group_of(cp->plan, cp->rank);
    h.group = cp->plan->group[g], h.pairs = cp->plan->pairs[g];
    /* part[size] is the open group of 2^size neighbours that this device is in. */
    while (1 << size < h.group.devices) size++;
    h.x.group = cp->part ? &cp->part[size] : NULL;
    h.x.devices = h.group.devices, h.x.rank = cp->rank - h.group.first;
    /* The tokens of neighbours follow each other in the index. */
    h.x.tokens = start[h.group.first + h.group.devices] - start[h.group.first];
    return h;
}

/* Groups of 1, 2, 4, .. neighbours that this device may be in.  All are opened once, as in the paper. */
static enum error_code flexsp_open_groups(struct context_parallel *cp, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0, size = 1; i < ATTENTION_GROUPS && size <= cp->devices && !e; i++, size *= 2) {
        const int first = cp->rank / size * size;
        /* The last devices may be too few for a group of this size. */
        if (first + size > cp->devices) continue;
        e = group_of(&cp->part[i], cp->group->comm, cp->group->member + first, size, TRAFFIC_ATTENTION, AXIS_BIT(CP),
                     err);
    }
    return e;
}

enum { QKV, OUT, LSE, SLOTS };          /* kept: after the exchange */

/* Return the shape of a slot: qkv [T, (h+2k) A] and out [T, h A] after the exchange, log-sum-exp [T, h]. */
static struct tensor flexsp_kept(const struct context_parallel *cp, int slot, int64_t rows)
{
    const enum dtype own = cp->tp->device->dtype;
    /* Before a plan is made, and for an empty microbatch, nothing is kept. */
    if (cp->plan == NULL || cp->plan->tokens == 0) return tensor_2d(NULL, own, 0 * rows, 1);
    const struct here h = flexsp_find(cp);
    const int64_t width = head_exchange_width(&h.x, h.x.rank, slot == QKV);
    if (slot == LSE) return tensor_2d(NULL, dtype_wide(own), h.x.tokens, width / cp->tp->config->A);
    return tensor_2d(NULL, own, h.x.tokens, width);
}

/* ---- passes ------------------------------------------------------------------------------------------------------ */

/* A pass over the group's tokens and this device's heads. */
struct inside {
    struct cp_pass g;
    struct here h;
    struct attention shape;
    struct tensor at, lse;              /* positions [T]; [heads, T] */
};

/* The positions of neighbours follow each other, so those of a group are one list. */
static enum error_code flexsp_begin(struct inside *inside, struct attention_call *call, struct error *err)
{
    *inside = (struct inside){ .h = flexsp_find(call->cp) };
    const enum error_code e = inside->h.x.tokens > 0 ? cp_prepare(&inside->g, call, err) : OK;
    if (e || inside->h.x.tokens == 0) return e;
    /* Inside the group this device has some heads of all the group's tokens. */
    inside->shape = head_exchange_shape(&inside->h.x, call->shape);
    inside->at = tensor_1d((int32_t *)inside->g.at.on_device.data + inside->g.at.start[inside->h.group.first], I32,
                           inside->h.x.tokens);
    inside->lse = tensor_2d(call->kept[LSE].data, call->kept[LSE].dtype, inside->shape.H, inside->h.x.tokens);
    return OK;
}

/* Forward: out [n, H A] from qkv [n, (H+2K) A], by way of the group's T tokens and some heads.  Collective over the
 * group. */
static enum error_code flexsp_forward(struct attention_call *call, struct error *err)
{
    struct inside p;
    struct tensor wide = tensor_none;
    enum error_code e = flexsp_begin(&p, call, err);
    if (e || p.h.x.tokens == 0) return e;
    /* In 16 bits the attention's result is wide and is rounded into the kept output; exact sums round themselves. */
    const bool rounds = p.g.own != p.g.wide && !p.g.device->exact;
    const struct tensor qkv = call->kept[QKV], out = call->kept[OUT];
    e = cp_open(&p.g, &wide, rounds ? 1 : 0, p.g.wide, tensor_rows(out), tensor_cols(out), err);
    /* Tokens go to heads, attention runs over the group's tokens, and the result goes back. */
    if (!e) e = head_exchange_gather(&p.h.x, call->qkv, qkv, true, err);
    if (!e) dev_attention_part_forward(p.g.device, rounds ? wide : out, p.lse, qkv, qkv, p.at, p.at,
                                       attention_of_pairs(p.shape, p.h.pairs));
    if (!e && rounds) dev_round(p.g.device, out, wide);
    if (!e) e = head_exchange_back(&p.h.x, call->out, out, false, err);
    cp_close(&p.g, &wide, 1);
    cp_end(&p.g);
    return e;
}

/* The backward pass has these buffers inside the group; `wide` is the sum before rounding, if sums have another
 * format. */
struct gradients { struct tensor d_out, delta, d_qkv, wide; };

/* Each buffer has the group's T tokens; after an error the caller closes all of them. */
static enum error_code flexsp_open_gradients(struct inside *inside, struct gradients *gradients, struct error *err)
{
    const struct attention_call *c = inside->g.call;
    const int64_t T = inside->h.x.tokens, width = tensor_cols(c->kept[QKV]);
    enum error_code e = cp_open(&inside->g, &gradients->d_out, 1, inside->g.own, T, tensor_cols(c->kept[OUT]), err);
    if (!e) e = cp_open(&inside->g, &gradients->delta, 1, inside->g.wide, inside->shape.H, T, err);
    if (!e) gradients->d_qkv = head_exchange_sums(&inside->h.x, T, width);
    if (!e && gradients->d_qkv.data == NULL) e = fail(err, ERR_MEMORY, "no memory for the gradients of attention");
    if (!e) e = cp_open(&inside->g, &gradients->wide, gradients->d_qkv.dtype != inside->g.sums ? 1 : 0, inside->g.sums,
                        T, width, err);
    return e;
}

/* Backward: d_qkv from d_out, the same way; copies of key heads add up on the way home.  Collective over the group. */
static enum error_code flexsp_backward_input(struct attention_call *call, struct error *err)
{
    struct inside p;
    struct gradients s = { 0 };
    enum error_code e = flexsp_begin(&p, call, err);
    if (e || p.h.x.tokens == 0) return e;
    const struct tensor qkv = call->kept[QKV];
    e = flexsp_open_gradients(&p, &s, err);
    if (!e) e = head_exchange_gather(&p.h.x, call->d_out, s.d_out, false, err);
    if (!e) {
        /* sum [T, (h+2k) A] gets dQ in its first columns, dK and dV in its last ones. */
        const bool rounds = s.d_qkv.dtype != p.g.sums;
        const struct tensor sum = rounds ? s.wide : s.d_qkv;
        device_zero(p.g.device, sum);
        dev_attention_delta(p.g.device, s.delta, s.d_out, call->kept[OUT], p.shape);
        dev_attention_part_backward(p.g.device, sum, sum, s.d_out, s.delta, p.lse, qkv, qkv, p.at, p.at,
                                    attention_of_pairs(p.shape, p.h.pairs));
        if (rounds) dev_round(p.g.device, s.d_qkv, s.wide);
        e = head_exchange_gradients(&p.h.x, call->d_qkv, s.d_qkv, err);
    }
    cp_close(&p.g, &s.d_out, 1), cp_close(&p.g, &s.delta, 1), cp_close(&p.g, &s.d_qkv, 1), cp_close(&p.g, &s.wide, 1);
    cp_end(&p.g);
    return e;
}

/* Recomputation gathers the kept qkv and output again, and runs no attention. */
static enum error_code flexsp_exchange(struct attention_call *call, struct error *err)
{
    const struct here h = flexsp_find(call->cp);
    if (h.x.tokens == 0) return OK;
    const enum error_code e = head_exchange_gather(&h.x, call->qkv, call->kept[QKV], true, err);
    return e ? e : head_exchange_gather(&h.x, call->out, call->kept[OUT], false, err);
}

static void flexsp_cost(struct forecast *forecast, const struct context_parallel *cp, enum tensor_pass pass,
                        int64_t rows)
{
    (void)rows;
    if (cp->plan == NULL || pass == WEIGHT_PASS) return;
    const struct here h = flexsp_find(cp);
    if (h.x.tokens == 0) return;
    /* The group's tokens are one sequence.  The first exchange is fused except in backward, the second only there. */
    head_exchange_cost(forecast, &h.x, 1, pass != INPUT_PASS, true);
    if (pass == INPUT_PASS) head_exchange_gradients_cost(forecast, &h.x, 1);
    else head_exchange_cost(forecast, &h.x, 1, false, pass == EXCHANGE_PASS);
}

static const char *flexsp_refuses(const struct context_parallel *cp, const struct model_config *config)
{
    (void)config;
    return cp->heads->queries.count > 0 ? NULL : "a query head on every device of tp";
}

const struct attention_scheme attention_scheme_flexsp = {
    .head = { .kind = ATTENTION_SCHEME, .equality = REASSOCIATES, .name = "flexsp",
              .description = "groups of different sizes side by side, as samples need, exchange tokens for heads",
              .source = "FlexSP, arXiv:2412.01523",
              .volume = "T/d (d-1)/d (2 H + 2 K) A elements a layer forward for T tokens in a group of d; backward too",
              .memory = "queries, keys, values, results and log-sum-exp of the group's tokens and 1/d of the heads",
              .needs = "nothing", .invariants = flexsp_invariants },
    .exact = true, .refuses = flexsp_refuses, .plans_steps = true, .chooses_micros = true, .plan = planned_flexsp_plan,
    .open = flexsp_open_groups, .slots = SLOTS,
        .exchanged = LSE, .kept = flexsp_kept,
    .forward = flexsp_forward, .backward_input = flexsp_backward_input, .exchange = flexsp_exchange,
        .cost = flexsp_cost,
};
