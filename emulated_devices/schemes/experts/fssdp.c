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
 *
 * Called by: model/run/run_mixture.c, through dispatch.c; model/trainer.c ends each step.  Errors: ERR_MEMORY, ERR_COMM
 * of a sparse collective.
 */
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/experts/dispatch.h"
#include "emulated_devices/schemes/experts/expert_invariants.h"
#include "ref/model/config.h"
#include <stdlib.h>

enum { COPIES = EXPERT_SLOTS - 1 };     /* the last slot: weights of copies, one expert after another */

static const struct model_config *config_of(const struct expert_parallel *ep) { return ep->tp->config; }
static int64_t experts(const struct expert_parallel *ep) { return config_of(ep)->mixture.E; }
static enum error_code fssdp_no_memory(struct error *err)
{
    return fail(err, ERR_MEMORY, "no memory for copies of experts");
}

/* ---- which devices have which experts ---------------------------------------------------------------------------- */

static const char *fssdp_refuses(const struct expert_parallel *ep, const struct model_config *config)
{
    (void)config;
    return ep->slices == 1 ? NULL : "whole experts, so --etp 1";
}

/* A failed open_loads leaves some layers empty, which closing allows. */
static void close_loads(struct expert_parallel *ep)
{
    for (int64_t l = 0; ep->loads && l < config_of(ep)->L; l++) expert_loads_close(&ep->loads[l]);
    free(ep->loads), ep->loads = NULL;
}

static enum error_code open_loads(struct expert_parallel *ep, struct error *err)
{
    ep->loads = calloc((size_t)config_of(ep)->L, sizeof *ep->loads);
    for (int64_t l = 0; l < config_of(ep)->L; l++)
        if (ep->loads == NULL || !expert_loads_open(&ep->loads[l], experts(ep))) return fssdp_no_memory(err);
    return OK;
}

/* The choices of the step's microbatches become one entry in each layer's window of loads. */
static void end_step(struct expert_parallel *ep)
{
    for (int64_t l = 0; l < config_of(ep)->L; l++) expert_loads_turn(&ep->loads[l]);
}

/* Collect the facts that placement.h plans with: experts, nodes, slots, and whether the top experts go everywhere. */
static struct expert_room room_of(const struct expert_parallel *ep)
{
    return (struct expert_room){ .E = experts(ep), .devices = ep->devices, .node = ep->node,
                                 .slots = ep->copying.slots > 0 ? ep->copying.slots : 1,
                                 .degree = ep->copying.top > 0 ? ep->copying.top : -1 };
}

/* The list [devices] says which devices have an expert. */
static const bool *held_of(const struct expert_parallel *ep, const struct expert_routing *routing, int64_t expert)
{
    return routing->held + expert * ep->devices;
}

/* Whether a member has a copy, not the expert itself. */
static bool has_copy(const struct expert_parallel *ep, const struct expert_routing *routing, int64_t expert, int member)
{
    return held_of(ep, routing, expert)[member] && routing->owner[expert] != member;
}

static int64_t numbers_of_expert(const struct expert_parallel *ep) { return 3 * config_of(ep)->F * config_of(ep)->D; }

/* Place copies by the loads of earlier steps; then count those of this one. */
static enum error_code fssdp_place(const struct expert_parallel *ep, struct expert_routing *routing, struct error *err)
{
    const int64_t E = experts(ep);
    const struct expert_room room = room_of(ep);
    struct expert_loads *seen = &ep->loads[ep->layer];
    int64_t *load = calloc((size_t)E, sizeof *load);
    /* Any expert may be computed here, as owner or with a copy. */
    routing->experts = (struct interval){ 0, E };
    routing->owner = calloc((size_t)E, sizeof *routing->owner),
        routing->copied = calloc((size_t)E, sizeof *routing->copied);
    routing->held = calloc((size_t)(E * ep->devices), sizeof *routing->held);
    bool ok = load && routing->owner && routing->held && routing->copied;
    for (int m = 0; m < ep->devices && ok; m++)
        for (int64_t e = experts_of(ep, m).first; e < interval_end(experts_of(ep, m)); e++)
            routing->owner[e] = ep->owner ? ep->owner[ep->layer * E + e] : m;
    /* Copies follow the loads of the last steps; this step's choices count from the next one on. */
    if (ok) expert_loads_predict(seen, load);
    ok = ok && expert_materialise(&room, load, routing->owner, routing->held);
    for (int64_t e = 0; e < E && ok; e++)
        for (int m = 0; m < ep->devices; m++) {
            if (has_copy(ep, routing, e, m)) routing->copied[e] = numbers_of_expert(ep);
            expert_loads_add(seen, e, dispatch_told(ep, routing, e, m));
        }
    free(load);
    return ok ? OK : fssdp_no_memory(err);
}

/* Count the rows of one member for an expert that go to another, by the rule of placement.h. */
static int64_t rows_to(const struct expert_parallel *ep, const struct expert_routing *routing, int64_t expert, int from,
                       int to)
{
    const struct expert_room room = room_of(ep);
    return expert_rows_to(&room, held_of(ep, routing, expert), expert,
                          dispatch_told(ep, routing, expert, from), from, to);
}

/* Rows lie by expert, and are sent by device: of an expert's, the first go to the first device that takes some. */
static enum error_code plan_hop(const struct expert_parallel *ep, const struct expert_routing *routing,
                                const struct choices *held, int index, struct expert_hop *hop, struct error *err)
{
    (void)held, (void)index;
    int64_t *next = calloc((size_t)experts(ep), sizeof *next), at = 0;
    enum error_code e = hop_make(hop, ep->group, ALLTOALL, routing->sent, err);
    if (!e && next == NULL) e = fssdp_no_memory(err);
    /* next[x] is the place of expert x's first row that is not yet sent. */
    for (int64_t x = 0; x < experts(ep) && !e; x++) next[x] = at, at += dispatch_told(ep, routing, x, ep->rank);
    int32_t *order = hop->order.data;
    for (int m = 0; m < ep->devices && !e; m++) {
        hop->got[m] = dispatch_rows(ep, routing, m, ep->rank), hop->sent[m] = dispatch_rows(ep, routing, ep->rank, m);
        for (int64_t x = 0; x < experts(ep); x++)
            for (int64_t n = rows_to(ep, routing, x, ep->rank, m); n > 0; n--) *order++ = (int32_t)next[x]++;
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

/* The last slot is the scheme's own: weights of copies, unless the backward pass gets them again. */
static struct tensor fssdp_kept(const struct expert_parallel *ep, int slot, int64_t rows)
{
    const int64_t copies = ep->copying.again ? 0 : copies_here(ep);
    return slot == COPIES ? tensor_1d(NULL, ep->tp->device->dtype, copies * numbers_of_expert(ep))
                          : dispatch_kept(ep, slot, rows);
}

/* ---- weights and gradients of copies ----------------------------------------------------------------------------- */

/* A pass has weights or gradients here.  held: all experts that are copied and that this device has, its own too; own:
 * those of its own. */
struct copies { struct tensor own, held; struct tensor *matrix; };

/* Describe the sparse collective over the experts with copies, from or to their owners; its blocks are experts. */
static struct collective sending(const struct expert_parallel *ep, struct block_placement *placement, enum dtype dtype)
{
    const struct expert_routing *r = ep->routing;
    *placement = (struct block_placement){ .blocks = experts(ep), .owner = r->owner, .held = r->held };
    return (struct collective){ .placement = placement, .counts = r->copied, .dtype = dtype, .reduction = SUM };
}

static void close_copies(struct device *device, struct copies *copies)
{
    device_free(device, copies->own), device_free(device, copies->held), free(copies->matrix);
}

/* Open room for the copied experts that this device owns, and for all copied experts that it has. */
static enum error_code open_copies(struct copies *copies, const struct expert_parallel *ep, enum dtype dtype,
                                   struct error *err)
{
    struct device *d = ep->tp->device;
    int64_t own = 0, held = 0;
    for (int64_t e = 0; e < experts(ep); e++) {
        own += ep->routing->owner[e] == ep->rank ? ep->routing->copied[e] : 0;
        held += held_of(ep, ep->routing, e)[ep->rank] ? ep->routing->copied[e] : 0;
    }
    *copies = (struct copies){ .own = device_tensor_in(d, BUFFERS, dtype, own),
                          .held = device_tensor_in(d, BUFFERS, dtype, held),
                          .matrix = calloc((size_t)(2 * experts(ep)), sizeof *copies->matrix) };
    return copies->own.data && copies->held.data && copies->matrix ? OK : fssdp_no_memory(err);
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
static void take_matrices(struct copies *w, const struct mixture_call *call, struct tensor copies, bool held,
                          bool gradient)
{
    const struct expert_parallel *ep = call->ep;
    int64_t at = 0;
    for (int64_t e = 0; e < experts(ep); e++) {
        const bool own = ep->routing->owner[e] == ep->rank, copied = has_copy(ep, ep->routing, e, ep->rank);
        for (int m = 0; m < 2; m++)
            w->matrix[m * experts(ep) + e] = own ? call->body.piece(call->body.context, e, m, gradient)
                                             : copied ? matrix_at(ep, copies, at, m) : tensor_none;
        /* `at` passes everything that lies in `copies`, in the order of experts. */
        if (copied || (own && held)) at += ep->routing->copied[e];
    }
}

/* Copy this device's experts that others have too into `own`, or add their gradients from there. */
static void visit_own(const struct mixture_call *call, struct tensor own, bool gradient)
{
    struct device *d = call->ep->tp->device;
    int64_t at = 0;
    for (int64_t e = 0; e < experts(call->ep); e++) {
        if (call->ep->routing->owner[e] != call->ep->rank || call->ep->routing->copied[e] == 0) continue;
        for (int m = 0; m < 2; m++) {
            const struct tensor piece = call->body.piece(call->body.context, e, m, gradient),
                                part = matrix_at(call->ep, own, at, m);
            if (gradient) device_reduce(d, SUM, part.dtype, piece.data, part.data, tensor_count(part));
            else device_copy(d, part.data, piece.data, tensor_bytes(part));
        }
        at += call->ep->routing->copied[e];
    }
}

/* Send the weights of copied experts: now this device has all that it computes with, in copies->held. */
static enum error_code send_weights(struct copies *copies, const struct mixture_call *mixture_call, struct error *err)
{
    struct block_placement placement;
    struct collective call = sending(mixture_call->ep, &placement, copies->own.dtype);
    call.in = copies->own.data, call.out = copies->held.data;
    visit_own(mixture_call, copies->own, false);
    const enum error_code e = collective_run(mixture_call->ep->group, SPARSE_ALLGATHER, NULL, &call, err);
    if (!e) take_matrices(copies, mixture_call, copies->held, true, false);
    return e;
}

/* Keep the copies for the backward pass: they are what copies->held has but this device's own. */
static void keep_copies(const struct copies *copies, const struct mixture_call *call)
{
    const struct expert_routing *r = call->ep->routing;
    const int64_t number = (int64_t)dtype_size(copies->held.dtype);
    int64_t from = 0, to = 0;
    for (int64_t e = 0; e < experts(call->ep); e++) {
        if (!held_of(call->ep, r, e)[call->ep->rank]) continue;
        if (r->owner[e] != call->ep->rank && r->copied[e] > 0) {
            device_copy(call->ep->tp->device, (char *)call->kept[COPIES].data + to * number,
                        (const char *)copies->held.data + from * number, (size_t)(r->copied[e] * number));
            to += r->copied[e];
        }
        from += r->copied[e];
    }
}

/* Sum the gradients of copies at their owners.  Collective over the ep group. */
static enum error_code send_gradients(struct copies *copies, const struct mixture_call *mixture_call, struct error *err)
{
    struct block_placement placement;
    struct collective call = sending(mixture_call->ep, &placement, copies->own.dtype);
    call.in = copies->held.data, call.out = copies->own.data;
    const enum error_code e = collective_run(mixture_call->ep->group, SPARSE_REDUCE_SCATTER, NULL, &call, err);
    if (!e) visit_own(mixture_call, copies->own, true);
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
static enum error_code weight_pass(struct copies *copies, struct mixture_call *call, struct expert_rows rows,
                                   struct expert_gradients gradients, struct error *err)
{
    device_zero(call->ep->tp->device, copies->held);
    take_matrices(copies, call, copies->held, true, true);
    rows.weights = copies->matrix;
    call->body.weight(call->body.context, rows, gradients);
    return send_gradients(copies, call, err);
}

/* Run a pass of the experts, around which weights and gradients of copies move.  Collective over the ep group. */
static enum error_code fssdp_compute(struct mixture_call *call, enum tensor_pass pass, struct expert_rows rows,
                                     struct expert_gradients gradients, struct error *err)
{
    const struct expert_parallel *ep = call->ep;
    struct copies w = { .matrix = NULL };
    enum error_code e = OK;
    /* The copies of the forward pass are read where they were kept. */
    if (pass == INPUT_PASS && !sends_weights(ep, pass)) {
        w.matrix = calloc((size_t)(2 * experts(ep)), sizeof *w.matrix);
        if (w.matrix == NULL) return fssdp_no_memory(err);
        take_matrices(&w, call, call->kept[COPIES], false, false);
    } else e = open_copies(&w, ep, expert_format(ep, pass == WEIGHT_PASS), err);
    if (!e && sends_weights(ep, pass)) e = send_weights(&w, call, err);
    if (!e && pass == FORWARD_PASS && !ep->copying.again) keep_copies(&w, call);
    rows.weights = w.matrix;
    if (!e && pass == WEIGHT_PASS) e = weight_pass(&w, call, rows, gradients, err);
    else if (!e && pass == INPUT_PASS) call->body.input(call->body.context, rows, gradients);
    else if (!e) e = call->body.forward(call->body.context, rows, err);
    close_copies(ep->tp->device, &w);
    return e;
}

static void compute_cost(struct forecast *forecast, const struct expert_parallel *ep, enum tensor_pass pass)
{
    struct block_placement placement;
    /* Gradients go to their owners, weights from them; a pass that has kept its copies sends nothing. */
    const bool back = pass == WEIGHT_PASS;
    if (!back && !sends_weights(ep, pass)) return;
    forecast_on(forecast, ep->group, back ? SPARSE_REDUCE_SCATTER : SPARSE_ALLGATHER, NULL,
                sending(ep, &placement, expert_format(ep, back)));
}

const struct expert_scheme expert_scheme_fssdp = {
    .head = { .kind = EXPERT_SCHEME, .equality = REASSOCIATES, .name = "fssdp",
              .description = "as alltoall, with copies of experts with much load on other devices, for each microbatch",
              .source = "Hecate, arXiv:2502.02581",
              .volume = "as alltoall for the rows that move; 3 F D elements of weights and of gradients for each copy",
              .memory = "as alltoall; 3 F D for each copy",
              .needs = "P a divisor of dp x cp x tp, --etp 1", .invariants = fssdp_invariants },
    DISPATCH_PASSES, .slots = EXPERT_SLOTS, .kept = fssdp_kept, .refuses = fssdp_refuses, .open = open_loads,
        .close = close_loads,
    .step = end_step, .hops = 1, .hop = plan_hop, .copies = true, .choose = fssdp_place, .rows_to = rows_to,
    .compute = fssdp_compute, .compute_cost = compute_cost,
};
