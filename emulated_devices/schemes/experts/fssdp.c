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
#include "emulated_devices/device/streams.h"
#include "emulated_devices/schemes/experts/dispatch.h"
#include "emulated_devices/schemes/experts/expert_invariants.h"
#include "ref/model/config.h"
#include <stdlib.h>
#include <string.h>

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

/* The placement of a layer is the same in all microbatches of a step: it follows from the steps before. */
static bool place_once(const struct expert_parallel *ep, struct expert_loads *seen, const int32_t owner[])
{
    const struct expert_room room = room_of(ep);
    int64_t *load = calloc((size_t)room.E, sizeof *load);
    bool *held = calloc((size_t)(room.E * room.devices), sizeof *held);
    bool ok = load && held;
    if (ok) expert_loads_predict(seen, load);
    ok = ok && expert_place(&room, load, owner, held);
    free(load);
    if (ok) seen->held = held;
    else free(held);
    return ok;
}

/* Place copies by the loads of earlier steps, whatever this step's tokens will choose. */
static enum error_code fssdp_place(const struct expert_parallel *ep, struct expert_routing *routing, struct error *err)
{
    const int64_t E = experts(ep);
    struct expert_loads *seen = &ep->loads[ep->layer];
    expert_routing_clear(routing);
    routing->owner = calloc((size_t)E, sizeof *routing->owner),
        routing->copied = calloc((size_t)E, sizeof *routing->copied);
    routing->held = calloc((size_t)(E * ep->devices), sizeof *routing->held);
    bool ok = routing->owner && routing->held && routing->copied;
    for (int m = 0; m < ep->devices && ok; m++)
        for (int64_t e = experts_of(ep, m).first; e < interval_end(experts_of(ep, m)); e++)
            routing->owner[e] = ep->owner ? ep->owner[ep->layer * E + e] : m;
    if (ok && seen->held == NULL) ok = place_once(ep, seen, routing->owner);
    if (ok) memcpy(routing->held, seen->held, (size_t)(E * ep->devices) * sizeof *seen->held);
    for (int64_t e = 0; e < E && ok; e++)
        for (int m = 0; m < ep->devices; m++)
            if (has_copy(ep, routing, e, m)) routing->copied[e] = numbers_of_expert(ep);
    routing->placed = ok;
    return ok ? OK : fssdp_no_memory(err);
}

/* The router has chosen: any expert may be computed here, as owner or with a copy, and the loads count for the steps
 * that follow. */
static enum error_code fssdp_choose(const struct expert_parallel *ep, struct expert_routing *routing, struct error *err)
{
    (void)err;
    routing->experts = (struct interval){ 0, experts(ep) };
    for (int64_t e = 0; e < experts(ep); e++)
        for (int m = 0; m < ep->devices; m++)
            expert_loads_add(&ep->loads[ep->layer], e, dispatch_told(ep, routing, e, m));
    return OK;
}

/* Count the rows of one member for an expert that go to another, by the rule of placement.h. */
static int64_t rows_to(const struct expert_parallel *ep, const struct expert_routing *routing, int64_t expert, int from,
                       int to)
{
    const struct expert_room room = room_of(ep);
    return expert_rows_to(&room, held_of(ep, routing, expert), expert,
                          dispatch_told(ep, routing, expert, from), from, to);
}

/* Rows that are sent as they lie, as where no expert has a copy, need no order, and no copy of them is made. */
static void drop_identity(struct expert_hop *hop)
{
    int32_t *const order = hop->order.data;
    for (int64_t i = 0; i < tensor_count(hop->order); i++)
        if (order[i] != i) return;
    free(order);
    hop->order = tensor_none;
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
    if (!e) drop_identity(hop);
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

/* In struct moved_experts, `all` has the experts that are copied and that this device has, its own too; `own` has those
 * of its own. */

/* Describe the sparse collective over the experts with copies, from or to their owners; its blocks are experts. */
static struct collective sending(const struct expert_parallel *ep, struct block_placement *placement, enum dtype dtype)
{
    const struct expert_routing *r = ep->routing;
    *placement = (struct block_placement){ .blocks = experts(ep), .owner = r->owner, .held = r->held };
    return (struct collective){ .placement = placement, .counts = r->copied, .dtype = dtype, .reduction = SUM };
}

/* Whether any expert has a copy: with an even load none has, and nothing is sent. */
static bool any_copied(const struct expert_parallel *ep)
{
    bool any = false;
    for (int64_t e = 0; e < experts(ep); e++) any = any || ep->routing->copied[e] > 0;
    return any;
}

static void close_copies(struct device *device, struct moved_experts *copies)
{
    device_free(device, copies->own), device_free(device, copies->all), free(copies->matrix);
    *copies = (struct moved_experts){ .open = false };
}

/* Open room for the copied experts that this device owns, and for all copied experts that it has. */
static enum error_code open_copies(struct moved_experts *copies, const struct expert_parallel *ep, bool moves,
                                   enum dtype dtype, struct error *err)
{
    struct device *d = ep->tp->device;
    int64_t own = 0, held = 0;
    for (int64_t e = 0; e < experts(ep) && moves; e++) {
        own += ep->routing->owner[e] == ep->rank ? ep->routing->copied[e] : 0;
        held += held_of(ep, ep->routing, e)[ep->rank] ? ep->routing->copied[e] : 0;
    }
    *copies = (struct moved_experts){ .own = device_tensor_in(d, BUFFERS, dtype, own),
                                      .all = device_tensor_in(d, BUFFERS, dtype, held),
                                      .matrix = calloc((size_t)(2 * experts(ep)), sizeof *copies->matrix),
                                      .open = true };
    if (copies->own.data && copies->all.data && copies->matrix) return OK;
    close_copies(d, copies);
    return fssdp_no_memory(err);
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
static void take_matrices(struct tensor *matrix, const struct mixture_call *call, struct tensor copies, bool held,
                          bool gradient)
{
    const struct expert_parallel *ep = call->ep;
    int64_t at = 0;
    for (int64_t e = 0; e < experts(ep); e++) {
        const bool own = ep->routing->owner[e] == ep->rank, copied = has_copy(ep, ep->routing, e, ep->rank);
        for (int m = 0; m < 2; m++)
            matrix[m * experts(ep) + e] = own ? call->body.piece(call->body.context, e, m, gradient)
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

/* Run a sparse collective beside what computes; copies->done says when the other stream has finished. */
static enum error_code move_beside(struct moved_experts *copies, const struct expert_parallel *ep,
                                   enum sending sending_kind, enum operation operation, struct error *err)
{
    struct block_placement placement;
    struct clock *clock = &ep->tp->device->clock;
    struct collective call = sending(ep, &placement, copies->own.dtype);
    const bool back = operation == SPARSE_REDUCE_SCATTER;
    call.in = back ? copies->all.data : copies->own.data, call.out = back ? copies->own.data : copies->all.data;
    clock_begin(clock, sending_stream(clock, sending_kind));
    const enum error_code e = collective_run(ep->group, operation, NULL, &call, err);
    copies->done = clock->now;
    clock_end(clock);
    return e;
}

/* Keep the copies for the backward pass: they are what copies->all has but this device's own. */
static void keep_copies(const struct moved_experts *copies, const struct mixture_call *call)
{
    const struct expert_routing *r = call->ep->routing;
    const int64_t number = (int64_t)dtype_size(copies->all.dtype);
    int64_t from = 0, to = 0;
    for (int64_t e = 0; e < experts(call->ep); e++) {
        if (!held_of(call->ep, r, e)[call->ep->rank]) continue;
        if (r->owner[e] != call->ep->rank && r->copied[e] > 0) {
            device_copy(call->ep->tp->device, (char *)call->kept[COPIES].data + to * number,
                        (const char *)copies->all.data + from * number, (size_t)(r->copied[e] * number));
            to += r->copied[e];
        }
        from += r->copied[e];
    }
}

/* ---- passes ------------------------------------------------------------------------------------------------------ */

/* Whether a pass sends the weights of copies, or has them from the forward pass. */
static bool sends_weights(const struct expert_parallel *ep, enum tensor_pass pass)
{
    return pass == FORWARD_PASS || pass == EXCHANGE_PASS || (pass == INPUT_PASS && ep->copying.again);
}

/* Begin to send the weights of copied experts, before or after the router has chosen; a pass that has kept its copies
 * needs a list of matrices alone, and one for gradients room for them.  Collective over the ep group. */
static enum error_code fssdp_bring(struct mixture_call *call, enum tensor_pass pass, struct error *err)
{
    const struct expert_parallel *ep = call->ep;
    struct moved_experts *weights = &call->routing->weights, *gradients = &call->routing->gradients;
    const bool sends = sends_weights(ep, pass) && any_copied(ep);
    if (pass == WEIGHT_PASS) {
        const enum error_code e = open_copies(gradients, ep, true, expert_format(ep, true), err);
        /* Owned experts add to their gradients where these are; those of copies begin with zeros, and so do the
         * owner's shares of what is summed. */
        if (!e) device_zero(ep->tp->device, gradients->all);
        return e;
    }
    if (weights->open) return OK;
    enum error_code e = open_copies(weights, ep, sends, expert_format(ep, false), err);
    if (e || !sends) return e;
    /* With recomputation two passes may send weights again; the first of them is the early one. */
    if (pass != FORWARD_PASS && call->routing->pace.again == 0)
        call->routing->pace.again = ep->tp->device->clock.now;
    visit_own(call, weights->own, false);
    if (pass == FORWARD_PASS) call->routing->pace.moved = ep->tp->device->clock.now;
    e = move_beside(weights, ep, SENDS_WEIGHTS, SPARSE_ALLGATHER, err);
    if (e) close_copies(ep->tp->device, weights);
    return e;
}

/* Run a pass of the experts with their own weights and copies.  Local: what was sent is waited for. */
static enum error_code fssdp_compute(struct mixture_call *call, enum tensor_pass pass, struct expert_rows rows,
                                     struct expert_gradients gradients, struct error *err)
{
    const struct expert_parallel *ep = call->ep;
    const bool back = pass == WEIGHT_PASS, kept = !back && !sends_weights(ep, pass);
    struct moved_experts *copies = back ? &call->routing->gradients : &call->routing->weights;
    clock_wait(&ep->tp->device->clock, copies->done);
    /* The copies of the forward pass are read where they were kept. */
    take_matrices(copies->matrix, call, kept ? call->kept[COPIES] : copies->all, !kept, back);
    if (pass == FORWARD_PASS && !ep->copying.again) keep_copies(copies, call);
    rows.weights = copies->matrix;
    if (back) return call->body.weight(call->body.context, rows, gradients, err);
    if (pass == INPUT_PASS) return call->body.input(call->body.context, rows, gradients, err);
    return call->body.forward(call->body.context, rows, err);
}

/* Weights are of no use any more; gradients of copies begin their way to the owners.  Collective over the ep group. */
static enum error_code fssdp_end(struct mixture_call *call, enum tensor_pass pass, struct error *err)
{
    if (pass == WEIGHT_PASS && any_copied(call->ep))
        return move_beside(&call->routing->gradients, call->ep, SENDS_GRADIENTS, SPARSE_REDUCE_SCATTER, err);
    if (pass != WEIGHT_PASS) close_copies(call->ep->tp->device, &call->routing->weights);
    return OK;
}

/* The sums of copies' gradients have come, or are waited for: owners add them to their own. */
static void fssdp_finish(struct mixture_call *call)
{
    struct moved_experts *gradients = &call->routing->gradients;
    struct device *d = call->ep->tp->device;
    if (!gradients->open) return;
    clock_wait(&d->clock, gradients->done);
    visit_own(call, gradients->own, true);
    close_copies(d, gradients);
}

static void compute_cost(struct forecast *forecast, const struct expert_parallel *ep, enum tensor_pass pass)
{
    struct block_placement placement;
    /* Gradients go to their owners, weights from them; a pass that has kept its copies sends nothing. */
    const bool back = pass == WEIGHT_PASS;
    if (!any_copied(ep) || (!back && !sends_weights(ep, pass))) return;
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
    .step = end_step, .hops = 1, .hop = plan_hop, .copies = true, .choose = fssdp_choose, .rows_to = rows_to,
    .place = fssdp_place, .brings = sends_weights, .bring = fssdp_bring, .compute = fssdp_compute, .end = fssdp_end,
    .finish = fssdp_finish, .compute_cost = compute_cost, .exact = true,
};
