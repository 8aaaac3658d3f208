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
 * Plan     of all ways to cut P into such groups, and to put samples into them, one with the least time of the slowest
 *          group.  Few samples: exactly, by branch and bound.  Many: the longest sample first, into the group that then
 *          ends earliest; the paper buckets lengths and solves an integer program instead.  The time of a group
 *              (pairs of tokens * per_pair + tokens (per_token + elements exchanged for a token * per_element)) / d
 *          No device gets more than twice the mean number of tokens, if there is such a plan
 * Sends    as ulysses of d devices, for the group's T tokens: forward T/d (d-1)/d (2 H + 2 K) A elements, backward as
 *          many; with K < d copies of keys
 * Memory   kept: queries, keys, values and results after the exchange, the log-sum-exp
 * Equals   reassociates: tiles of keys begin elsewhere than in one device's
 */
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/attention/head_exchange.h"
#include "emulated_devices/schemes/attention/pass.h"
#include <stdlib.h>

/* ---- the plan ---------------------------------------------------------------------------------------------------- */

enum { MOST_STEPS = 20000 };            /* of branch and bound, for one way to cut the devices */

/* A group, and what it has so far. */
struct loaded { int first, devices; double busy; int64_t tokens; };

struct search {
    const struct context_load *load;
    const struct interval *sample;      /* the longest first */
    struct loaded part[MESH_MOST_DEVICES];
    int parts, steps;
    int64_t room;                       /* tokens of a device */
    int *in, *best_in;                  /* [samples] the part of each */
    struct loaded best[MESH_MOST_DEVICES];
    int best_parts;
    double least;                       /* time of the slowest part of the best; negative: none yet */
};

static double time_in(const struct context_load *l, int64_t s, int d)
{
    const double sent = (double)(2 * l->query_width + l->key_width) * (d - 1) / d * l->per_element;
    return (l->per_pair * (double)s * (double)(s + 1) / 2 + (l->per_token + sent) * (double)s) / d;
}

static double slowest(const struct search *x)
{
    double most = 0;
    for (int i = 0; i < x->parts; i++)
        if (x->part[i].busy > most) most = x->part[i].busy;
    return most;
}

static void put(struct search *x, int sample, int part, int sign)
{
    const int64_t s = x->sample[sample].count;
    x->part[part].busy += sign * time_in(x->load, s, x->part[part].devices);
    x->part[part].tokens += sign * s;
    x->in[sample] = part;
}

static bool fits(const struct search *x, int sample, const struct loaded *p)
{
    return (p->tokens + x->sample[sample].count + p->devices - 1) / p->devices <= x->room;
}

static void keep_if_better(struct search *x)
{
    const double now = slowest(x);
    if (x->least >= 0 && now >= x->least) return;
    x->least = now, x->best_parts = x->parts;
    for (int i = 0; i < x->parts; i++) x->best[i] = x->part[i];
    for (int i = 0; i < x->load->samples; i++) x->best_in[i] = x->in[i];
}

/* Each sample into the part that then ends earliest. */
static void greedy(struct search *x)
{
    int placed = 0;
    for (; placed < x->load->samples; placed++) {
        const int64_t s = x->sample[placed].count;
        int at = -1;
        double earliest = 0;
        for (int i = 0; i < x->parts; i++) {
            const double then = x->part[i].busy + time_in(x->load, s, x->part[i].devices);
            if (fits(x, placed, &x->part[i]) && (at < 0 || then < earliest)) at = i, earliest = then;
        }
        if (at < 0) break;
        put(x, placed, at, 1);
    }
    if (placed == x->load->samples) keep_if_better(x);
    while (placed-- > 0) put(x, placed, x->in[placed], -1);
}

/* An earlier part of the same size and load would give the same plans. */
static bool like_an_earlier_one(const struct search *x, int part)
{
    for (int i = 0; i < part; i++)
        if (x->part[i].devices == x->part[part].devices && x->part[i].busy == x->part[part].busy) return true;
    return false;
}

static void branch(struct search *x, int sample)
{
    if (sample == x->load->samples) {
        keep_if_better(x);
        return;
    }
    for (int i = 0; i < x->parts && x->steps < MOST_STEPS; i++) {
        const struct loaded before = x->part[i];
        if (!fits(x, sample, &before) || like_an_earlier_one(x, i)) continue;
        x->steps++;
        put(x, sample, i, 1);
        if (x->least < 0 || x->part[i].busy < x->least) branch(x, sample + 1);
        x->part[i] = before;
    }
}

/* All ways to cut the devices from `first` on into parts of at most `largest`, sizes falling. */
static void cut_devices(struct search *x, int first, int largest)
{
    if (first == x->load->devices) {
        greedy(x);
        x->steps = 0;
        branch(x, 0);
        return;
    }
    for (int d = largest; d >= 1; d /= 2) {
        if (first + d > x->load->devices) continue;
        x->part[x->parts++] = (struct loaded){ .first = first, .devices = d };
        cut_devices(x, first + d, d);
        x->parts--;
    }
}

static void find_parts(struct search *x)
{
    int largest = 1;
    while (2 * largest <= x->load->devices && 2 * largest <= x->load->heads) largest *= 2;
    x->least = -1;
    x->room = 2 * ((x->load->tokens + x->load->devices - 1) / x->load->devices);
    cut_devices(x, 0, largest);
    if (x->least >= 0) return;
    x->room = x->load->tokens;                          /* one part takes what it must */
    cut_devices(x, 0, largest);
}

/* A part's samples, one after another in the order of tokens, are cut into nearly equal ranges. */
static void add_part(struct context_plan *plan, const struct search *x, int part)
{
    const struct loaded *p = &x->best[part];
    int64_t before = 0;
    context_add_group(plan, p->first, p->devices);
    for (int64_t token = 0, next; token < x->load->tokens; token = next) {
        int k = 0;
        while (x->sample[k].first != token) k++;
        next = interval_end(x->sample[k]);
        if (x->best_in[k] != part) continue;
        const struct interval listed = { before, x->sample[k].count };
        for (int m = 0; m < p->devices; m++) {
            const struct interval own = interval_meet(listed, block_at(p->tokens, p->devices, m));
            if (own.count > 0)
                context_add_block(plan, interval_moved(own, token - before), (struct interval){ 0 }, p->first + m);
        }
        before = interval_end(listed);
    }
}

static enum error_code plan(struct context_plan *plan, const struct context_load *l, struct error *err)
{
    struct search *x = calloc(1, sizeof *x);
    struct interval *sample = context_samples(l);
    int *in = calloc(2 * (size_t)l->samples, sizeof *in);
    *plan = (struct context_plan){ .devices = l->devices, .divisions = 1, .tokens = l->tokens,
                                   .lost = !x || !sample || !in };
    if (!plan->lost) {
        x->load = l, x->sample = sample, x->in = in, x->best_in = in + l->samples;
        find_parts(x);
        for (int i = 0; i < x->best_parts; i++) add_part(plan, x, i);
    }
    free(x), free(sample), free(in);
    return context_plan_finish(plan, l, err);
}

/* ---- the exchange ------------------------------------------------------------------------------------------------ */

/* This device's group in a microbatch. */
struct here { struct context_group group; struct head_exchange x; };

static int64_t tokens_of(const struct context_plan *plan, struct context_group g)
{
    int64_t sum = 0;
    for (int b = 0; b < plan->blocks; b++)
        if (plan->block[b].home >= g.first && plan->block[b].home < g.first + g.devices)
            sum += context_block_tokens(&plan->block[b]);
    return sum;
}

static struct here find(const struct context_parallel *cp)
{
    struct here h = { .x = { .tp = cp->tp, .heads = cp->heads } };
    int size = 0;
    if (cp->plan->tokens == 0) return h;                /* an empty microbatch */
    h.group = cp->plan->group[context_group_of(cp->plan, cp->rank)];
    while (1 << size < h.group.devices) size++;
    h.x.group = cp->part ? &cp->part[size] : NULL;
    h.x.devices = h.group.devices, h.x.rank = cp->rank - h.group.first, h.x.tokens = tokens_of(cp->plan, h.group);
    return h;
}

/* Groups of 1, 2, 4, .. neighbours that this device may be in.  All are opened once, as in the paper. */
static enum error_code open_groups(struct context_parallel *cp, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0, size = 1; i < ATTENTION_GROUPS && size <= cp->devices && !e; i++, size *= 2) {
        const int first = cp->rank / size * size;
        if (first + size > cp->devices) continue;
        e = group_of(&cp->part[i], cp->group->comm, cp->group->member + first, size, TRAFFIC_ATTENTION, AXIS_BIT(CP),
                     err);
    }
    return e;
}

enum { QKV, OUT, LSE, SLOTS };          /* kept: after the exchange */

static struct tensor kept(const struct context_parallel *cp, int slot, int64_t rows)
{
    const enum dtype own = cp->tp->device->dtype;
    if (cp->plan == NULL || cp->plan->tokens == 0) return tensor_2d(NULL, own, 0 * rows, 1);
    const struct here h = find(cp);
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
    double pairs;
};

/* The positions of neighbours follow each other, so those of a group are one list. */
static enum error_code begin(struct inside *p, struct attention_call *c, struct error *err)
{
    *p = (struct inside){ .h = find(c->cp) };
    const enum error_code e = p->h.x.tokens > 0 ? cp_prepare(&p->g, c, err) : OK;
    if (e || p->h.x.tokens == 0) return e;
    p->shape = head_exchange_shape(&p->h.x, c->shape);
    p->at = tensor_1d((int32_t *)p->g.at.on_device.data + p->g.at.start[p->h.group.first], I32, p->h.x.tokens);
    p->lse = tensor_2d(c->kept[LSE].data, c->kept[LSE].dtype, p->shape.H, p->h.x.tokens);
    for (int64_t i = 0; i < p->h.x.tokens; i++) {
        const int32_t at = p->g.at.host[p->g.at.start[p->h.group.first] + i], *sees = c->shape.mask.data;
        p->pairs += sees[2 * at + 1] - sees[2 * at];
    }
    return OK;
}

static enum error_code forward(struct attention_call *c, struct error *err)
{
    struct inside p;
    struct tensor wide = tensor_none;
    enum error_code e = begin(&p, c, err);
    if (e || p.h.x.tokens == 0) return e;
    const bool rounds = p.g.own != p.g.wide;
    const struct tensor qkv = c->kept[QKV], out = c->kept[OUT];
    e = cp_open(&p.g, &wide, rounds ? 1 : 0, p.g.wide, tensor_rows(out), tensor_cols(out), err);
    if (!e) e = head_exchange_gather(&p.h.x, c->qkv, qkv, true, err);
    if (!e) dev_attention_part_forward(p.g.device, rounds ? wide : out, p.lse, qkv, qkv, p.at, p.at, p.shape, p.pairs);
    if (!e && rounds) dev_round(p.g.device, out, wide);
    if (!e) e = head_exchange_back(&p.h.x, c->out, out, false, err);
    cp_close(&p.g, &wide, 1);
    cp_end(&p.g);
    return e;
}

struct gradients { struct tensor d_out, delta, d_qkv, wide; };

static enum error_code open_gradients(struct inside *p, struct gradients *s, struct error *err)
{
    const struct attention_call *c = p->g.call;
    const int64_t T = p->h.x.tokens, width = tensor_cols(c->kept[QKV]);
    enum error_code e = cp_open(&p->g, &s->d_out, 1, p->g.own, T, tensor_cols(c->kept[OUT]), err);
    if (!e) e = cp_open(&p->g, &s->delta, 1, p->g.wide, p->shape.H, T, err);
    if (!e) e = cp_open(&p->g, &s->d_qkv, 1, p->g.own, T, width, err);
    if (!e) e = cp_open(&p->g, &s->wide, p->g.own != p->g.wide ? 1 : 0, p->g.wide, T, width, err);
    return e;
}

static enum error_code backward_input(struct attention_call *c, struct error *err)
{
    struct inside p;
    struct gradients s = { 0 };
    enum error_code e = begin(&p, c, err);
    if (e || p.h.x.tokens == 0) return e;
    const struct tensor qkv = c->kept[QKV];
    e = open_gradients(&p, &s, err);
    if (!e) e = head_exchange_gather(&p.h.x, c->d_out, s.d_out, false, err);
    if (!e) {
        const struct tensor sum = p.g.own != p.g.wide ? s.wide : s.d_qkv;
        device_zero(p.g.device, sum);
        dev_attention_delta(p.g.device, s.delta, s.d_out, c->kept[OUT], p.shape);
        dev_attention_part_backward(p.g.device, sum, sum, s.d_out, s.delta, p.lse, qkv, qkv, p.at, p.at, p.shape,
                                    p.pairs);
        if (p.g.own != p.g.wide) dev_round(p.g.device, s.d_qkv, s.wide);
        e = head_exchange_back(&p.h.x, c->d_qkv, s.d_qkv, true, err);
    }
    cp_close(&p.g, &s.d_out, 1), cp_close(&p.g, &s.delta, 1), cp_close(&p.g, &s.d_qkv, 1), cp_close(&p.g, &s.wide, 1);
    cp_end(&p.g);
    return e;
}

static void cost(struct forecast *f, const struct context_parallel *cp, enum tensor_pass pass, int64_t rows)
{
    (void)rows;
    if (cp->plan == NULL || pass == WEIGHT_PASS) return;
    const struct here h = find(cp);
    if (h.x.tokens == 0) return;
    head_exchange_cost(f, &h.x, 1, pass == FORWARD_PASS, true);
    head_exchange_cost(f, &h.x, 1, pass != FORWARD_PASS, false);
}

static const char *refuses(const struct context_parallel *cp, const struct model_config *c)
{
    (void)c;
    return cp->heads->queries.count > 0 ? NULL : "a query head on every device of tp";
}

const struct attention_scheme attention_scheme_flexsp = {
    .head = { .kind = ATTENTION_SCHEME, .equality = REASSOCIATES, .name = "flexsp",
              .description = "groups of different sizes side by side, as samples need, exchange tokens for heads",
              .source = "FlexSP, arXiv:2412.01523",
              .volume = "T/d (d-1)/d (2 H + 2 K) A elements a layer forward for T tokens in a group of d; backward too",
              .memory = "queries, keys, values, results and log-sum-exp of the group's tokens and 1/d of the heads",
              .needs = "nothing" },
    .refuses = refuses, .plan = plan, .open = open_groups, .slots = SLOTS, .kept = kept, .forward = forward,
    .backward_input = backward_input, .cost = cost,
};
