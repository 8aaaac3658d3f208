/* experts, alltoall: every device has some of the experts; rows go to them and back by two all-to-alls.
 *
 * Source   D. Lepikhin et al., "GShard", arXiv:2006.16668, section 3.2; dropless, with counts first and exchanges of
 *          different lengths, as Megatron Core's dispatcher: D. Liu et al., "MoE parallel folding", arXiv:2504.14960
 * Group    P devices; E experts in P nearly equal ranges, so with P > E some devices have none
 * Layout   at the sender k n rows sorted by expert, then by row.  At the experts R rows sorted by expert, then by
 *          sender, then as there: with neighbours in the order of their tokens this is the order of one device
 *
 *          P = 2, E = 4, one expert for each token
 *          device 0   tokens 2 0 3 1   sends 0 1 | 2 3   has experts 0 and 1, gets  0 1 | 0     sorts  0 0 1
 *          device 1   tokens 3 0       sends 0   | 3     has experts 2 and 3, gets  2 3 | 3     sorts  2 3 3
 *
 * Sends    counts    own experts of each member: E (P-1)/P numbers of 32 bits
 *          forward   D numbers for each of the k n rows whose expert is elsewhere, and for each of the R rows back
 *          backward  the same: the results' gradients there, the rows' gradients back
 * Memory   kept: k n returned rows, R rows of D, up, F, and the orders of both.  R follows from the routing
 * Equals   reassociates: gradients of an expert are sums over R rows instead of all
 */
#include "emulated_devices/collectives/collective.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/experts/experts.h"
#include <stdlib.h>
#include <string.h>

enum { ORDER, COUNTS, SORTED, ROWS, UP, ACT, RETURNED, SLOTS };
enum { D_RESULTS, D_UP, GRADIENT_SLOTS };

static const char *refuses(const struct model_config *c, int P)
{
    (void)c, (void)P;
    return NULL;
}

/* ---- counts ------------------------------------------------------------------------------------------------------ */

static int64_t own_experts(const struct expert_parallel *ep) { return experts_of(ep, ep->rank).count; }

static int64_t rows_from(const struct expert_parallel *ep, const struct expert_routing *r, int member)
{
    int64_t sum = 0;
    for (int64_t e = 0; e < own_experts(ep); e++) sum += r->counts[member * own_experts(ep) + e];
    return sum;
}

/* The lengths of the exchange of counts. */
static struct collective count_exchange(const struct expert_parallel *ep, int64_t to[], int64_t from[])
{
    for (int i = 0; i < ep->devices; i++) to[i] = experts_of(ep, i).count, from[i] = own_experts(ep);
    return (struct collective){ .counts = to, .recvcounts = from, .dtype = I32 };
}

static void count_choices(struct expert_routing *r, const struct expert_parallel *ep, const int32_t *expert,
                          int64_t choices, int32_t *count)
{
    memset(count, 0, (size_t)ep->tp->config->mixture.E * sizeof *count);
    memset(r->sent, 0, (size_t)ep->devices * sizeof *r->sent);
    for (int64_t i = 0; i < choices; i++) count[expert[i]]++;
    for (int m = 0; m < ep->devices; m++) {
        const struct interval theirs = experts_of(ep, m);
        for (int64_t e = theirs.first; e < interval_end(theirs); e++) r->sent[m] += count[e];
    }
}

static enum error_code announce(struct expert_routing *r, const struct expert_parallel *ep, struct tensor experts,
                                struct error *err)
{
    struct device *d = ep->tp->device;
    int64_t to[MESH_MOST_DEVICES], from[MESH_MOST_DEVICES];
    struct tensor mine = device_tensor_in(d, BUFFERS, I32, ep->tp->config->mixture.E),
                  theirs = device_tensor_in(d, BUFFERS, I32, ep->devices * own_experts(ep));
    enum error_code e = mine.data && theirs.data ? OK : fail(err, ERR_MEMORY, "no memory to count rows of experts");
    struct views v = views_of(d);
    if (!e) count_choices(r, ep, view_read(&v, experts).data, tensor_count(experts), view_write(&v, mine).data);
    views_end(&v);
    struct collective call = count_exchange(ep, to, from);
    call.in = mine.data, call.out = theirs.data;
    if (!e) e = collective_run(ep->group, ALLTOALL, NULL, &call, err);
    v = views_of(d);
    if (!e && tensor_count(theirs) > 0) memcpy(r->counts, view_read(&v, theirs).data, tensor_bytes(theirs));
    views_end(&v);
    r->received = 0;
    for (int m = 0; m < ep->devices && !e; m++) r->received += rows_from(ep, r, m);
    device_free(d, mine), device_free(d, theirs);
    return e;
}

/* ---- what is kept ------------------------------------------------------------------------------------------------ */

static int64_t received(const struct expert_parallel *ep, int64_t choices)
{
    return ep->routing ? ep->routing->received : choices;
}

static struct tensor kept(const struct expert_parallel *ep, int slot, int64_t rows)
{
    const struct model_config *c = ep->tp->config;
    const enum dtype own = ep->tp->device->dtype;
    const int64_t choices = expert_share(ep, rows).count * c->mixture.k, R = received(ep, choices);
    switch (slot) {
    case ORDER:    return tensor_1d(NULL, I32, choices);
    case COUNTS:   return tensor_1d(NULL, I32, c->mixture.E);
    case SORTED:   return tensor_1d(NULL, I32, R);
    case UP:       return tensor_2d(NULL, own, R, 2 * c->F);
    case ACT:      return tensor_2d(NULL, own, R, c->F);
    case RETURNED: return tensor_2d(NULL, own, choices, c->D);
    default:       return tensor_2d(NULL, own, R, c->D);
    }
}

static struct tensor left(const struct expert_parallel *ep, int slot, int64_t rows)
{
    return kept(ep, slot == D_UP ? UP : ROWS, rows);
}

/* ---- moving rows ------------------------------------------------------------------------------------------------- */

enum way { TO_EXPERTS, BACK };

static struct collective row_exchange(const struct expert_parallel *ep, enum way way, int64_t to[], int64_t from[])
{
    const int64_t D = ep->tp->config->D;
    for (int i = 0; i < ep->devices; i++) {
        const int64_t sent = ep->routing->sent[i] * D, got = rows_from(ep, ep->routing, i) * D;
        to[i] = way == TO_EXPERTS ? sent : got, from[i] = way == TO_EXPERTS ? got : sent;
    }
    return (struct collective){ .counts = to, .recvcounts = from, .dtype = ep->tp->device->dtype };
}

static enum error_code move(const struct expert_parallel *ep, enum way way, struct tensor in, struct tensor out,
                            struct error *err)
{
    int64_t to[MESH_MOST_DEVICES], from[MESH_MOST_DEVICES];
    struct collective call = row_exchange(ep, way, to, from);
    call.in = in.data, call.out = out.data;
    return collective_run(ep->group, ALLTOALL, NULL, &call, err);
}

/* Received rows lie by sender, then by expert: list them by expert, then by sender. */
static void sort_received(struct mixture_call *c)
{
    const struct expert_parallel *ep = c->ep;
    const int64_t own = own_experts(ep);
    struct views v = views_of(ep->tp->device);
    int32_t *next = view_write(&v, c->kept[SORTED]).data;
    for (int64_t e = 0; e < own; e++)
        for (int64_t m = 0, first = 0; m < ep->devices; m++)
            for (int64_t x = 0; x < own; first += ep->routing->counts[m * own + x++])
                for (int32_t i = 0; x == e && i < ep->routing->counts[m * own + x]; i++) *next++ = (int32_t)first + i;
    views_end(&v);
}

/* Rows of each expert here, for the model's computation: other experts have none. */
static int32_t *rows_of_experts(const struct expert_parallel *ep)
{
    int32_t *rows = calloc((size_t)ep->tp->config->mixture.E, sizeof *rows);
    for (int64_t e = 0; rows && e < own_experts(ep); e++)
        for (int m = 0; m < ep->devices; m++)
            rows[experts_of(ep, ep->rank).first + e] += ep->routing->counts[m * own_experts(ep) + e];
    return rows;
}

/* ---- a pass ------------------------------------------------------------------------------------------------------ */

/* Buffers of a pass: rows as sent, and as received, in the order of senders. */
struct pass { struct tensor sent, received; int32_t *counts; };

static enum error_code begin(struct pass *p, const struct mixture_call *c, struct error *err)
{
    struct device *d = c->ep->tp->device;
    const int64_t D = tensor_cols(c->kept[ROWS]);
    *p = (struct pass){ device_tensor_2d(d, BUFFERS, tensor_count(c->kept[ORDER]), D),
                        device_tensor_2d(d, BUFFERS, c->ep->routing->received, D), rows_of_experts(c->ep) };
    return p->sent.data && p->received.data && p->counts ? OK : fail(err, ERR_MEMORY, "no memory for rows of experts");
}

static void end(struct pass *p, const struct mixture_call *c)
{
    device_free(c->ep->tp->device, p->sent), device_free(c->ep->tp->device, p->received);
    free(p->counts);
}

static struct expert_rows rows_at_experts(const struct mixture_call *c, const struct pass *p, struct tensor results)
{
    return (struct expert_rows){ .rows = c->kept[ROWS], .up = c->kept[UP], .act = c->kept[ACT], .results = results,
                                 .counts = p->counts };
}

static enum error_code forward(struct mixture_call *c, struct error *err)
{
    struct device *d = c->ep->tp->device;
    struct pass p;
    enum error_code e = begin(&p, c, err);
    if (!e) {
        dev_expert_order(d, c->kept[ORDER], c->kept[COUNTS], c->experts);
        dev_gather_forward(d, p.sent, c->x, c->kept[ORDER], tensor_cols(c->experts));
        sort_received(c);
        e = move(c->ep, TO_EXPERTS, p.sent, p.received, err);
    }
    if (!e) {
        dev_gather_forward(d, c->kept[ROWS], p.received, c->kept[SORTED], 1);
        device_free(d, p.sent);
        p.sent = device_tensor_2d(d, BUFFERS, tensor_rows(p.received), tensor_cols(p.received));
        if (p.sent.data == NULL) e = fail(err, ERR_MEMORY, "no memory for results of experts");
    }
    if (!e) {
        c->body.forward(c->body.context, rows_at_experts(c, &p, p.sent));
        dev_gather_backward_input(d, p.received, p.sent, c->kept[SORTED], 1);
        e = move(c->ep, BACK, p.received, c->kept[RETURNED], err);
    }
    if (!e && tensor_present(c->y)) dev_combine_forward(d, c->y, c->kept[RETURNED], c->kept[ORDER], c->weights);
    end(&p, c);
    return e;
}

static enum error_code input(struct mixture_call *c, struct error *err)
{
    struct device *d = c->ep->tp->device;
    struct pass p;
    enum error_code e = begin(&p, c, err);
    struct expert_gradients g = { .results = c->left[D_RESULTS], .up = c->left[D_UP],
                                  .act = device_tensor_2d(d, BUFFERS, tensor_rows(c->kept[ACT]),
                                                          tensor_cols(c->kept[ACT])),
                                  .rows = device_tensor_2d(d, BUFFERS, tensor_rows(c->kept[ROWS]),
                                                           tensor_cols(c->kept[ROWS])) };
    if (!e && !(g.act.data && g.rows.data)) e = fail(err, ERR_MEMORY, "no memory for the gradients of experts");
    if (!e) {
        dev_combine_backward_input(d, p.sent, c->d_weights, c->dy, c->kept[RETURNED], c->kept[ORDER], c->weights);
        e = move(c->ep, TO_EXPERTS, p.sent, p.received, err);
    }
    if (!e) {
        dev_gather_forward(d, g.results, p.received, c->kept[SORTED], 1);
        c->body.input(c->body.context, rows_at_experts(c, &p, tensor_none), g);
        dev_gather_backward_input(d, p.received, g.rows, c->kept[SORTED], 1);
        e = move(c->ep, BACK, p.received, p.sent, err);
    }
    if (!e) dev_gather_backward_input(d, c->dx, p.sent, c->kept[ORDER], tensor_cols(c->experts));
    device_free(d, g.act), device_free(d, g.rows);
    end(&p, c);
    return e;
}

static enum error_code weight(struct mixture_call *c, struct error *err)
{
    struct pass p = { .counts = rows_of_experts(c->ep) };
    if (p.counts == NULL) return fail(err, ERR_MEMORY, "no memory to count rows of experts");
    c->body.weight(c->body.context, rows_at_experts(c, &p, tensor_none),
                   (struct expert_gradients){ .results = c->left[D_RESULTS], .up = c->left[D_UP] });
    end(&p, c);
    return OK;
}

/* ---- by formula -------------------------------------------------------------------------------------------------- */

static void announce_cost(struct forecast *f, const struct expert_parallel *ep)
{
    int64_t to[MESH_MOST_DEVICES], from[MESH_MOST_DEVICES];
    forecast_on(f, ep->group, ALLTOALL, NULL, count_exchange(ep, to, from));
}

static void cost(struct forecast *f, const struct expert_parallel *ep, enum tensor_pass pass)
{
    int64_t to[MESH_MOST_DEVICES], from[MESH_MOST_DEVICES];
    for (enum way way = TO_EXPERTS; way <= BACK && pass != WEIGHT_PASS; way++)
        forecast_on(f, ep->group, ALLTOALL, NULL, row_exchange(ep, way, to, from));
}

const struct expert_scheme expert_scheme_alltoall = {
    .head = { .kind = EXPERT_SCHEME, .equality = REASSOCIATES, .name = "alltoall",
              .description = "some experts on each device; counts, then rows, go to them and back by all-to-alls",
              .source = "GShard, arXiv:2006.16668; Megatron Core, arXiv:2504.14960",
              .volume = "2 k n D (P-1)/P elements a layer forward if the load is even, for n tokens; backward as many",
              .memory = "k rows of D for each token; for each row that comes: 2 D, up and F wide",
              .needs = "P a divisor of dp x cp x tp" },
    .cuts_experts = true, .refuses = refuses, .announce = announce, .slots = SLOTS, .gradient_slots = GRADIENT_SLOTS,
    .kept = kept, .left = left, .forward = forward, .input = input, .weight = weight,
    .announce_cost = announce_cost, .cost = cost,
};
