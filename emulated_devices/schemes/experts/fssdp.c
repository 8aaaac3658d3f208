/* experts, fssdp: each expert has one owner; in every microbatch those with much load are copied to other devices,
 * which share their rows.  Fully sharded, sparse data parallelism.
 *
 * Source   Y. Qing et al., "Hecate", arXiv:2502.02581: no code was published; what it leaves open is in placement.h
 * Group    P devices; who gets copies follows from the choices of all of them in the last steps
 * Layout   rows of an expert go to the sender if it has the expert, else to those of its node that have it, else to all
 *          that have it, evenly; at the sender by device, then as alltoall
 *
 *          P = 2, one copy for each device; expert 0 of device 0 has most load, expert 3 of device 1 comes next
 *          step     device 0 has  0 1 | 3     device 1 has  2 3 | 0     only rows for 1 and 2 may move
 *
 * Sends    as alltoall, but for rows that stay; the weights of copied experts, once to each device with a copy (a
 *          sparse all-gather), with --copy-again in the backward pass too; and the gradients of copies, which are
 *          summed at the owner (a sparse reduce-scatter)
 * Memory   as alltoall; the copies from the forward to the backward pass, or, with --copy-again, while they are used
 * Equals   reassociates: gradients of an expert are sums over its devices
 */
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/experts/dispatch.h"
#include "emulated_devices/schemes/experts/expert_invariants.h"
#include "ref/model/config.h"
#include <stdlib.h>

enum { COPIES = EXPERT_SLOTS - 1 };     /* the last slot: weights of copies, one expert after another */

static const struct model_config *config_of(const struct expert_parallel *ep) { return ep->tp->config; }
static int64_t experts(const struct expert_parallel *ep) { return config_of(ep)->mixture.E; }
static enum error_code no_memory(struct error *err) { return fail(err, ERR_MEMORY, "no memory for copies of experts"); }

/* ---- which devices have which experts ---------------------------------------------------------------------------- */

static const char *refuses(const struct expert_parallel *ep, const struct model_config *c)
{
    (void)c;
    return ep->slices == 1 ? NULL : "whole experts, so --etp 1";
}

static void close_loads(struct expert_parallel *ep)
{
    for (int64_t l = 0; ep->loads && l < config_of(ep)->L; l++) expert_loads_close(&ep->loads[l]);
    free(ep->loads), ep->loads = NULL;
}

static enum error_code open_loads(struct expert_parallel *ep, struct error *err)
{
    ep->loads = calloc((size_t)config_of(ep)->L, sizeof *ep->loads);
    for (int64_t l = 0; l < config_of(ep)->L; l++)
        if (ep->loads == NULL || !expert_loads_open(&ep->loads[l], experts(ep))) return no_memory(err);
    return OK;
}

static void end_step(struct expert_parallel *ep)
{
    for (int64_t l = 0; l < config_of(ep)->L; l++) expert_loads_turn(&ep->loads[l]);
}

static struct expert_room room_of(const struct expert_parallel *ep)
{
    return (struct expert_room){ .E = experts(ep), .devices = ep->devices, .node = ep->node,
                                 .slots = ep->copying.slots > 0 ? ep->copying.slots : 1,
                                 .degree = ep->copying.top > 0 ? ep->copying.top : -1 };
}

static const bool *held_of(const struct expert_parallel *ep, const struct expert_routing *r, int64_t expert)
{
    return r->held + expert * ep->devices;
}

/* Whether a member has a copy, not the expert itself. */
static bool has_copy(const struct expert_parallel *ep, const struct expert_routing *r, int64_t expert, int member)
{
    return held_of(ep, r, expert)[member] && r->owner[expert] != member;
}

static int64_t numbers_of_expert(const struct expert_parallel *ep) { return 3 * config_of(ep)->F * config_of(ep)->D; }

/* Place copies by the loads of earlier steps; then count those of this one. */
static enum error_code place(const struct expert_parallel *ep, struct expert_routing *r, struct error *err)
{
    const int64_t E = experts(ep);
    const struct expert_room room = room_of(ep);
    struct expert_loads *seen = &ep->loads[ep->layer];
    int64_t *load = calloc((size_t)E, sizeof *load);
    r->experts = (struct interval){ 0, E };
    r->owner = calloc((size_t)E, sizeof *r->owner), r->copied = calloc((size_t)E, sizeof *r->copied);
    r->held = calloc((size_t)(E * ep->devices), sizeof *r->held);
    const bool ok = load && r->owner && r->held && r->copied;
    for (int m = 0; m < ep->devices && ok; m++)
        for (int64_t e = experts_of(ep, m).first; e < interval_end(experts_of(ep, m)); e++)
            r->owner[e] = ep->owner ? ep->owner[ep->layer * E + e] : m;
    /* Copies follow the loads of the last steps; this step's choices count from the next one on. */
    if (ok) expert_loads_predict(seen, load), expert_materialise(&room, load, r->owner, r->held);
    for (int64_t e = 0; e < E && ok; e++)
        for (int m = 0; m < ep->devices; m++) {
            if (has_copy(ep, r, e, m)) r->copied[e] = numbers_of_expert(ep);
            expert_loads_add(seen, e, dispatch_told(ep, r, e, m));
        }
    free(load);
    return ok ? OK : no_memory(err);
}

static int64_t rows_to(const struct expert_parallel *ep, const struct expert_routing *r, int64_t expert, int from,
                       int to)
{
    const struct expert_room room = room_of(ep);
    return expert_rows_to(&room, held_of(ep, r, expert), expert, dispatch_told(ep, r, expert, from), from, to);
}

/* Rows lie by expert, and are sent by device: of an expert's, the first go to the first device that takes some. */
static enum error_code plan_hop(const struct expert_parallel *ep, const struct expert_routing *r,
                                const struct choices *held, int index, struct expert_hop *h, struct error *err)
{
    (void)held, (void)index;
    int64_t *next = calloc((size_t)experts(ep), sizeof *next), at = 0;
    enum error_code e = hop_make(h, ep->group, ALLTOALL, r->sent, err);
    if (!e && next == NULL) e = no_memory(err);
    /* next[x] is the place of expert x's first row that is not yet sent. */
    for (int64_t x = 0; x < experts(ep) && !e; x++) next[x] = at, at += dispatch_told(ep, r, x, ep->rank);
    int32_t *order = h->order.data;
    for (int m = 0; m < ep->devices && !e; m++) {
        h->got[m] = dispatch_rows(ep, r, m, ep->rank), h->sent[m] = dispatch_rows(ep, r, ep->rank, m);
        for (int64_t x = 0; x < experts(ep); x++)
            for (int64_t n = rows_to(ep, r, x, ep->rank, m); n > 0; n--) *order++ = (int32_t)next[x]++;
    }
    free(next);
    return e;
}

/* ---- what is kept ------------------------------------------------------------------------------------------------ */

/* Experts that this device has copies of. */
static int64_t copies_here(const struct expert_parallel *ep)
{
    int64_t n = 0;
    for (int64_t e = 0; ep->routing && ep->routing->held && e < experts(ep); e++)
        n += has_copy(ep, ep->routing, e, ep->rank);
    return n;
}

static struct tensor kept(const struct expert_parallel *ep, int slot, int64_t rows)
{
    const int64_t copies = ep->copying.again ? 0 : copies_here(ep);
    return slot == COPIES ? tensor_1d(NULL, ep->tp->device->dtype, copies * numbers_of_expert(ep))
                          : dispatch_kept(ep, slot, rows);
}

/* ---- weights and gradients of copies ----------------------------------------------------------------------------- */

/* In a pass.  held: all experts that are copied and that this device has, its own too; own: those of its own. */
struct copies { struct tensor own, held; struct tensor *matrix; };

static struct collective sending(const struct expert_parallel *ep, struct block_placement *p, enum dtype dtype)
{
    const struct expert_routing *r = ep->routing;
    *p = (struct block_placement){ .blocks = experts(ep), .owner = r->owner, .held = r->held };
    return (struct collective){ .placement = p, .counts = r->copied, .dtype = dtype, .reduction = SUM };
}

static void close_copies(struct device *d, struct copies *w)
{
    device_free(d, w->own), device_free(d, w->held), free(w->matrix);
}

static enum error_code open_copies(struct copies *w, const struct expert_parallel *ep, enum dtype dtype,
                                   struct error *err)
{
    struct device *d = ep->tp->device;
    int64_t own = 0, held = 0;
    for (int64_t e = 0; e < experts(ep); e++) {
        own += ep->routing->owner[e] == ep->rank ? ep->routing->copied[e] : 0;
        held += held_of(ep, ep->routing, e)[ep->rank] ? ep->routing->copied[e] : 0;
    }
    *w = (struct copies){ .own = device_tensor_in(d, BUFFERS, dtype, own),
                          .held = device_tensor_in(d, BUFFERS, dtype, held),
                          .matrix = calloc((size_t)(2 * experts(ep)), sizeof *w->matrix) };
    return w->own.data && w->held.data && w->matrix ? OK : no_memory(err);
}

/* An expert's two matrices lie one after the other. */
static struct tensor matrix_at(const struct expert_parallel *ep, struct tensor all, int64_t expert_at, int matrix)
{
    const int64_t F = config_of(ep)->F, D = config_of(ep)->D;
    char *at = (char *)all.data + (expert_at + matrix * 2 * F * D) * (int64_t)dtype_size(all.dtype);
    return matrix == 0 ? tensor_2d(at, all.dtype, 2 * F, D) : tensor_2d(at, all.dtype, D, F);
}

/* Where each matrix lies that this device computes with: its own where they are, copies in `copies`, of which `held`
 * says whether own experts lie there too. */
static void take_matrices(struct copies *w, const struct mixture_call *c, struct tensor copies, bool held,
                          bool gradient)
{
    const struct expert_parallel *ep = c->ep;
    int64_t at = 0;
    for (int64_t e = 0; e < experts(ep); e++) {
        const bool own = ep->routing->owner[e] == ep->rank, copied = has_copy(ep, ep->routing, e, ep->rank);
        for (int m = 0; m < 2; m++)
            w->matrix[m * experts(ep) + e] = own ? c->body.piece(c->body.context, e, m, gradient)
                                             : copied ? matrix_at(ep, copies, at, m) : tensor_none;
        /* `at` passes everything that lies in `copies`, in the order of experts. */
        if (copied || (own && held)) at += ep->routing->copied[e];
    }
}

/* Copy this device's experts that others have too into `own`, or add their gradients from there. */
static void visit_own(const struct mixture_call *c, struct tensor own, bool gradient)
{
    struct device *d = c->ep->tp->device;
    int64_t at = 0;
    for (int64_t e = 0; e < experts(c->ep); e++) {
        if (c->ep->routing->owner[e] != c->ep->rank || c->ep->routing->copied[e] == 0) continue;
        for (int m = 0; m < 2; m++) {
            const struct tensor piece = c->body.piece(c->body.context, e, m, gradient),
                                part = matrix_at(c->ep, own, at, m);
            if (gradient) device_reduce(d, SUM, part.dtype, piece.data, part.data, tensor_count(part));
            else device_copy(d, part.data, piece.data, tensor_bytes(part));
        }
        at += c->ep->routing->copied[e];
    }
}

/* Send the weights of copied experts: now this device has all that it computes with, in w->held. */
static enum error_code send_weights(struct copies *w, const struct mixture_call *c, struct error *err)
{
    struct block_placement placement;
    struct collective call = sending(c->ep, &placement, w->own.dtype);
    call.in = w->own.data, call.out = w->held.data;
    visit_own(c, w->own, false);
    const enum error_code e = collective_run(c->ep->group, SPARSE_ALLGATHER, NULL, &call, err);
    if (!e) take_matrices(w, c, w->held, true, false);
    return e;
}

/* Keep the copies for the backward pass: they are what w->held has but this device's own. */
static void keep_copies(const struct copies *w, const struct mixture_call *c)
{
    const struct expert_routing *r = c->ep->routing;
    const int64_t number = (int64_t)dtype_size(w->held.dtype);
    int64_t from = 0, to = 0;
    for (int64_t e = 0; e < experts(c->ep); e++) {
        if (!held_of(c->ep, r, e)[c->ep->rank]) continue;
        if (r->owner[e] != c->ep->rank && r->copied[e] > 0) {
            device_copy(c->ep->tp->device, (char *)c->kept[COPIES].data + to * number,
                        (const char *)w->held.data + from * number, (size_t)(r->copied[e] * number));
            to += r->copied[e];
        }
        from += r->copied[e];
    }
}

static enum error_code send_gradients(struct copies *w, const struct mixture_call *c, struct error *err)
{
    struct block_placement placement;
    struct collective call = sending(c->ep, &placement, w->own.dtype);
    call.in = w->held.data, call.out = w->own.data;
    const enum error_code e = collective_run(c->ep->group, SPARSE_REDUCE_SCATTER, NULL, &call, err);
    if (!e) visit_own(c, w->own, true);
    return e;
}

/* ---- passes ------------------------------------------------------------------------------------------------------ */

/* Whether a pass sends the weights of copies, or has them from the forward pass. */
static bool sends_weights(const struct expert_parallel *ep, enum tensor_pass pass)
{
    return pass == FORWARD_PASS || pass == EXCHANGE_PASS || (pass == INPUT_PASS && ep->copying.again);
}

/* Owned experts add to their gradients where these are; those of copies begin with zeros, and so do the owner's shares
 * of what is summed. */
static enum error_code weight_pass(struct copies *w, struct mixture_call *c, struct expert_rows r,
                                   struct expert_gradients g, struct error *err)
{
    device_zero(c->ep->tp->device, w->held);
    take_matrices(w, c, w->held, true, true);
    r.weights = w->matrix;
    c->body.weight(c->body.context, r, g);
    return send_gradients(w, c, err);
}

static enum error_code compute(struct mixture_call *c, enum tensor_pass pass, struct expert_rows r,
                               struct expert_gradients g, struct error *err)
{
    const struct expert_parallel *ep = c->ep;
    struct copies w = { .matrix = NULL };
    enum error_code e = OK;
    /* The copies of the forward pass are read where they were kept. */
    if (pass == INPUT_PASS && !sends_weights(ep, pass)) {
        w.matrix = calloc((size_t)(2 * experts(ep)), sizeof *w.matrix);
        if (w.matrix == NULL) return no_memory(err);
        take_matrices(&w, c, c->kept[COPIES], false, false);
    } else e = open_copies(&w, ep, expert_format(ep, pass == WEIGHT_PASS), err);
    if (!e && sends_weights(ep, pass)) e = send_weights(&w, c, err);
    if (!e && pass == FORWARD_PASS && !ep->copying.again) keep_copies(&w, c);
    r.weights = w.matrix;
    if (!e && pass == WEIGHT_PASS) e = weight_pass(&w, c, r, g, err);
    else if (!e && pass == INPUT_PASS) c->body.input(c->body.context, r, g);
    else if (!e) e = c->body.forward(c->body.context, r, err);
    close_copies(ep->tp->device, &w);
    return e;
}

static void compute_cost(struct forecast *f, const struct expert_parallel *ep, enum tensor_pass pass)
{
    struct block_placement placement;
    const bool back = pass == WEIGHT_PASS;
    if (!back && !sends_weights(ep, pass)) return;
    forecast_on(f, ep->group, back ? SPARSE_REDUCE_SCATTER : SPARSE_ALLGATHER, NULL,
                sending(ep, &placement, expert_format(ep, back)));
}

const struct expert_scheme expert_scheme_fssdp = {
    .head = { .kind = EXPERT_SCHEME, .equality = REASSOCIATES, .name = "fssdp",
              .description = "as alltoall, with copies of experts with much load on other devices, for each microbatch",
              .source = "Hecate, arXiv:2502.02581",
              .volume = "as alltoall for the rows that move; 3 F D elements of weights and of gradients for each copy",
              .memory = "as alltoall; 3 F D for each copy",
              .needs = "P a divisor of dp x cp x tp, --etp 1", .invariants = fssdp_invariants },
    DISPATCH_PASSES, .slots = EXPERT_SLOTS, .kept = kept, .refuses = refuses, .open = open_loads, .close = close_loads,
    .step = end_step, .hops = 1, .hop = plan_hop, .copies = true, .choose = place, .rows_to = rows_to,
    .compute = compute, .compute_cost = compute_cost,
};
