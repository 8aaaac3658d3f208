/* experts, tutel: one arrangement of the weights, and several ways to compute with it; each layer and microbatch takes
 * the one that sends least.
 *
 * Source   C. Hwang et al., "Tutel: adaptive mixture-of-experts at scale", arXiv:2206.03382, section 3, "adaptive
 *          parallelism switching" and "adaptive pipelining"; microsoft/Tutel, adaptive_degree of tutel/experts/ffn.py
 *          and a2a_ffn_overlap_degree of tutel/impls/overlap.py
 * Group    W = ep x etp devices; each has one slice of F of its experts, whatever the degree, so a switch moves nothing
 * Degree   0            rows stay; the slices of all experts are gathered on every device: data parallelism
 *          r | etp      rows go to their experts; etp/r neighbours gather their slices, and r devices, one of each of
 *                       these groups, compute the same rows with an r-th of F each: r = 1 expert and data, r = etp
 *                       expert and model parallelism
 *
 *          ep = 1, etp = 4, r = 2    devices 0 and 1 gather slices 0 and 1, devices 2 and 3 slices 2 and 3
 *                                    devices 0 and 2 compute the rows of both, so do 1 and 3
 *
 * Parts    rows leave in 1, 2, 4 or 8 parts, one after another; a part is computed while the next ones travel: parts.h
 *
 * Sends    counts to all W devices; rows as alltoall --etp r; slices of weights forward and again backward, their
 *          gradients back: each time (g-1)/g of what a group of g gathers
 * Memory   dispatch.h, a row a choice; in a pass the gathered slices; with parts, results of a part beside all rows
 * Equals   reassociates: sums over slices, and gradients over the devices that gather.  With exact sums the slices that
 *          a device has gathered are joined, and devices with other slices add before they round (expert_terms.h)
 *
 * Called by: model/run/run_mixture.c, through dispatch.c.  Errors: ERR_MEMORY, ERR_COMM of a collective over the
 * slices.
 */
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/experts/dispatch.h"
#include "emulated_devices/schemes/experts/expert_invariants.h"
#include "emulated_devices/schemes/experts/parts.h"
#include "ref/model/config.h"
#include <stdlib.h>
#include <string.h>

enum { ALL, FIRST_DEGREE };             /* groups: of all W devices; then two for each divisor of etp, ascending */
enum { SLICE_GROUP, ROW_GROUP };               /* neighbours that gather slices; devices that compute the same rows */

/* ---- groups ------------------------------------------------------------------------------------------------------ */

/* The place of a divisor of etp among all. */
static int tutel_place_of(const struct expert_parallel *ep, int degree)
{
    int n = 0;
    for (int d = 1; d < degree; d++) n += ep->slices % d == 0;
    return FIRST_DEGREE + 2 * n;
}

static enum error_code open_degree(struct expert_parallel *ep, int degree, struct error *err)
{
    /* g neighbours gather slices; every g-th device along etp computes the same rows. */
    const int g = ep->slices / degree, *slice = ep->along_etp->member;
    int member[MESH_MOST_LISTED];
    struct group *part = &ep->part[tutel_place_of(ep, degree)];
    for (int i = 0; i < g; i++) member[i] = slice[ep->slice / g * g + i];
    enum error_code e = group_of(part + SLICE_GROUP, ep->group->comm, member, g, TRAFFIC_EXPERTS, AXIS_BIT(EP), err);
    for (int i = 0; i < degree; i++) member[i] = slice[ep->slice % g + i * g];
    return e ? e : group_of(part + ROW_GROUP, ep->group->comm, member, degree, TRAFFIC_EXPERTS, AXIS_BIT(EP), err);
}

/* All groups of all degrees are opened once, so that a switch opens none. */
static enum error_code tutel_open_groups(struct expert_parallel *ep, struct error *err)
{
    int member[MESH_MOST_LISTED];
    const int W = ep->devices * ep->slices;
    for (int i = 0; i < W; i++) member[i] = ep->group->member[0] - ep->slice + i;       /* neighbours */
    enum error_code e = group_of(&ep->part[ALL], ep->group->comm, member, W, TRAFFIC_EXPERTS, AXIS_BIT(EP), err);
    for (int d = 1; d <= ep->slices && !e; d++)
        if (ep->slices % d == 0) e = open_degree(ep, d, err);
    return e;
}

static const char *tutel_refuses(const struct expert_parallel *ep, const struct model_config *config)
{
    int divisors = 0;
    (void)config;
    for (int d = 1; d <= ep->slices; d++) divisors += ep->slices % d == 0;
    if (FIRST_DEGREE + 2 * divisors > EXPERT_GROUPS) return "an etp with at most 7 divisors";
    return ep->degree <= 0 || ep->slices % ep->degree == 0 ? NULL : "a degree of 0, or one that divides etp";
}

/* Return the group that gathers slices of weights in this layer and microbatch. */
static struct group *gather_group(const struct expert_parallel *ep)
{
    return ep->routing->degree == 0 ? &ep->part[ALL] : &ep->part[tutel_place_of(ep, ep->routing->degree) + SLICE_GROUP];
}

/* Return the group of devices that compute the same rows: announce.c gathers rows along this group. */
static struct group *slices(const struct expert_parallel *ep, const struct expert_routing *routing)
{
    /* With degree 1, or 0, this device is alone. */
    return &ep->part[tutel_place_of(ep, routing->degree > 0 ? routing->degree : 1) + ROW_GROUP];
}

/* ---- the choice -------------------------------------------------------------------------------------------------- */

/* Choices of all W devices' rows for the experts of a member along ep. */
static int64_t load_of(const struct expert_parallel *ep, const int32_t *table, int member, int first, int step)
{
    const int64_t E = ep->tp->config->mixture.E;
    const struct interval experts = experts_of(ep, member);
    int64_t sum = 0;
    for (int i = first; i < ep->devices * ep->slices; i += step)
        for (int64_t e = experts.first; e < interval_end(experts); e++) sum += table[i * E + e];
    return sum;
}

/* Bytes that all W devices send in one layer, forward and backward, but for what all degrees send. */
static int64_t bytes_sent(const struct expert_parallel *ep, const int32_t *table, int degree)
{
    const struct model_config *c = ep->tp->config;
    const int64_t weights = 3 * c->F * c->D * c->mixture.E, W = ep->devices * ep->slices;
    const int64_t number = (int64_t)dtype_size(ep->tp->device->dtype),
                  gradient = (int64_t)dtype_size(expert_format(ep, true));
    /* Each number of the weights is sent to all others that gather it. */
    const int64_t gathered = degree == 0 ? W - 1 : ep->slices / degree - 1;
    /* Gathered weights travel in the forward and the backward pass, their gradients once. */
    int64_t stay = 0, all = 0, bytes = weights * gathered * (2 * number + gradient);
    if (degree == 0) return bytes;
    for (int m = 0; m < ep->devices; m++) {
        all += load_of(ep, table, m, 0, 1);
        for (int s = 0; s < ep->slices; s++)            /* those that stay */
            stay += load_of(ep, table + (m * ep->slices + s) * c->mixture.E, m, 0, (int)W);
    }
    /* A row [D] goes there and back, forward and backward: four times. */
    bytes += 4 * c->D * number * (all - stay + (degree - 1) * all);
    return degree == 1 ? bytes : bytes + 4 * (degree - 1) * (all + W);      /* each row's expert, and how many */
}

/* All devices choose the same degree, since all have the same table. */
static int best_degree(const struct expert_parallel *ep, const int32_t *table)
{
    int best = 0;
    for (int d = 1; d <= ep->slices; d++)
        if (ep->slices % d == 0 && bytes_sent(ep, table, d) < bytes_sent(ep, table, best)) best = d;
    return best;
}

/* Set the degree, this device's experts and columns, and the table of the ep group.  Local. */
static enum error_code tutel_choose(const struct expert_parallel *ep, struct expert_routing *routing, struct error *err)
{
    const int64_t E = ep->tp->config->mixture.E, F = ep->tp->config->F;
    int32_t *const table = malloc((size_t)(ep->devices * E) * sizeof *table);
    if (table == NULL) return fail(err, ERR_MEMORY, "no memory for the choices of %d devices", ep->devices);
    routing->told = routing->table, routing->table = table;
    routing->degree = ep->degree >= 0 ? ep->degree : best_degree(ep, routing->told);
    /* Rows that stay have no way to be cut into parts. */
    routing->parts = routing->degree == 0 || ep->parts == 0 ? 1
                   : ep->parts > 0 ? ep->parts : expert_parts_best(ep, routing);
    if (routing->parts == 0) return fail(err, ERR_MEMORY, "no memory to add up rows of %d devices", ep->devices);
    for (int m = 0; m < ep->devices; m++)               /* of the ep group, whose members have the same slice */
        memcpy(table + m * E, routing->told + (m * ep->slices + ep->slice) * E, (size_t)E * sizeof *table);
    /* With degree 0 every device gathers all weights, and rows stay. */
    if (routing->degree == 0) {
        routing->experts = (struct interval){ 0, E }, routing->columns = (struct interval){ 0, F };
        return OK;
    }
    /* The columns of this device and of its neighbours, whose slices it gathers, lie together. */
    const int g = ep->slices / routing->degree, first = ep->slice / g * g;
    const int64_t from = block_at(F, ep->slices, first).first;
    routing->columns = (struct interval){ from, interval_end(block_at(F, ep->slices, first + g - 1)) - from };
    return OK;
}

/* ---- slices of weights ------------------------------------------------------------------------------------------- */

/* A member of the gathering group has a slice of some experts. */
struct held { struct interval experts, columns; };

/* With degree 0, member i has slice i mod etp of the experts of ep rank i / etp.  Otherwise all members have slices
 * of this device's experts. */
static struct held held_by(const struct expert_parallel *ep, int i)
{
    const int g = gather_group(ep)->size, degree = ep->routing->degree;
    const int member = degree == 0 ? i / ep->slices : ep->rank,
              slice = degree == 0 ? i % ep->slices : ep->slice / g * g + i;
    return (struct held){ experts_of(ep, member), block_at(ep->tp->config->F, ep->slices, slice) };
}

/* Count the numbers of a member's slice: three matrices of f columns and D rows for each expert. */
static int64_t numbers_held(const struct expert_parallel *ep, int i)
{
    const struct held h = held_by(ep, i);
    return h.experts.count * 3 * h.columns.count * ep->tp->config->D;
}

/* Describe the all-gather of slices, or the reduce-scatter of their gradients. */
static struct collective gathering(const struct expert_parallel *ep, enum dtype dtype, int64_t counts[])
{
    for (int i = 0; i < gather_group(ep)->size; i++) counts[i] = numbers_held(ep, i);
    return (struct collective){ .counts = counts, .dtype = dtype, .reduction = SUM };
}

/* struct moved_experts: `all` has the slices of the gathering group, or gradients of them, one member after another:
 * each expert's two matrices. */

static void close_gathered(struct device *device, struct moved_experts *gathered)
{
    device_free(device, gathered->own), device_free(device, gathered->all), free(gathered->matrix);
    *gathered = (struct moved_experts){ .open = false };
}

/* Open room for the own slice and for all slices of the group. */
static enum error_code open_gathered(struct moved_experts *gathered, const struct expert_parallel *ep, enum dtype dtype,
                                     struct error *err)
{
    struct device *d = ep->tp->device;
    int64_t all = 0;
    for (int i = 0; i < gather_group(ep)->size; i++) all += numbers_held(ep, i);
    const int64_t own = numbers_held(ep, gather_group(ep)->rank);
    *gathered = (struct moved_experts){ .own = device_tensor_in(d, BUFFERS, dtype, own),
                            .all = device_tensor_in(d, BUFFERS, dtype, all),
                            .matrix = calloc((size_t)(2 * ep->tp->config->mixture.E), sizeof *gathered->matrix),
                            .open = true };
    if (gathered->own.data && gathered->all.data && gathered->matrix) return OK;
    close_gathered(d, gathered);
    return fail(err, ERR_MEMORY, "no memory for slices of experts");
}

/* The matrices of a member's slice, for the body. */
static void take_slice(struct moved_experts *gathered, const struct expert_parallel *ep, int i)
{
    const int64_t E = ep->tp->config->mixture.E, D = ep->tp->config->D;
    const struct held h = held_by(ep, i);
    int64_t at = 0;
    /* Slices of the members before come first in `all`. */
    for (int k = 0; k < i; k++) at += numbers_held(ep, k);
    for (int64_t e = 0; e < E; e++) {
        const bool there = e >= h.experts.first && e < interval_end(h.experts);
        gathered->matrix[e] = gathered->matrix[E + e] = tensor_none;
        if (!there) continue;
        char *first = (char *)gathered->all.data + at * (int64_t)dtype_size(gathered->all.dtype);
        /* A slice of f columns of an expert is up [2 f, D], then down [D, f]. */
        gathered->matrix[e] = tensor_2d(first, gathered->all.dtype, 2 * h.columns.count, D);
        gathered->matrix[E + e] = tensor_2d(first + tensor_bytes(gathered->matrix[e]), gathered->all.dtype, D,
                                            h.columns.count);
        at += 3 * h.columns.count * D;
    }
}

/* Copy between this device's pieces and `own`. */
static void visit_own(const struct mixture_call *call, struct moved_experts *gathered, bool gradient)
{
    const struct expert_parallel *ep = call->ep;
    const struct held h = held_by(ep, gather_group(ep)->rank);
    char *at = gathered->own.data;
    for (int64_t e = h.experts.first; e < interval_end(h.experts); e++)
        for (int matrix = 0; matrix < 2; matrix++) {
            const struct tensor piece = call->body.piece(call->body.context, e, matrix, gradient),
                                part = tensor_1d(at, gathered->own.dtype, tensor_count(piece));
            if (gradient) device_reduce(ep->tp->device, SUM, part.dtype, piece.data, part.data, tensor_count(part));
            else if (tensor_count(piece) > 0) device_copy(ep->tp->device, part.data, piece.data, tensor_bytes(part));
            at += tensor_bytes(part);
        }
}

/* Gather the slices of weights, or make zeros for their gradients.  Collective over the gathering group. */
static enum error_code tutel_bring(struct mixture_call *mixture_call, enum tensor_pass pass, struct error *err)
{
    const struct expert_parallel *ep = mixture_call->ep;
    struct moved_experts *gathered = &mixture_call->routing->weights;
    int64_t counts[MESH_MOST_LISTED];
    enum error_code e = open_gathered(gathered, ep, expert_format(ep, pass == WEIGHT_PASS), err);
    if (!e && pass == WEIGHT_PASS) device_zero(ep->tp->device, gathered->all);
    if (e || pass == WEIGHT_PASS) return e;
    struct collective call = gathering(ep, gathered->own.dtype, counts);
    call.in = gathered->own.data, call.out = gathered->all.data;
    visit_own(mixture_call, gathered, false);
    e = collective_run(gather_group(ep), ALLGATHER, NULL, &call, err);
    if (e) close_gathered(ep->tp->device, gathered);
    return e;
}

/* Sum the gradients of the slices at the devices that have them.  Collective over the gathering group. */
static enum error_code tutel_end(struct mixture_call *mixture_call, enum tensor_pass pass, struct error *err)
{
    const struct expert_parallel *ep = mixture_call->ep;
    struct moved_experts *gathered = &mixture_call->routing->weights;
    enum error_code e = OK;
    if (pass == WEIGHT_PASS) {
        int64_t counts[MESH_MOST_LISTED];
        struct collective call = gathering(ep, gathered->own.dtype, counts);
        call.in = gathered->all.data, call.out = gathered->own.data;
        e = collective_run(gather_group(ep), REDUCE_SCATTER, NULL, &call, err);
        if (!e) visit_own(mixture_call, gathered, true);
    }
    close_gathered(ep->tp->device, gathered);
    return e;
}

/* ---- passes of the experts, slice by slice ----------------------------------------------------------------------- */

/* With exact sums a device's slices of the same experts are one before they are multiplied, so that each sum over
 * their columns rounds once.  `all` has each expert's two matrices, joined. */
struct joined { struct held held; struct tensor all; };

/* Return how many members have slices that are computed as one. */
static int tutel_together(const struct expert_parallel *ep)
{
    const int members = gather_group(ep)->size;
    return !ep->tp->device->exact ? 1 : ep->routing->degree == 0 ? ep->slices : members;
}

/* Return the columns that members i .. i + together - 1 have of the same experts. */
static struct held held_together(const struct expert_parallel *ep, int i)
{
    struct held h = held_by(ep, i);
    h.columns.count = interval_end(held_by(ep, i + tutel_together(ep) - 1).columns) - h.columns.first;
    return h;
}

/* Expert e's matrix [2 F', D], its gates first, or [D, F'], in `all`. */
static struct tensor joined_matrix(const struct joined *j, int64_t e, int matrix, int64_t D)
{
    const int64_t F = j->held.columns.count, at = (e - j->held.experts.first) * 3 * F * D + (matrix ? 2 * F * D : 0);
    return tensor_2d((char *)j->all.data + at * (int64_t)dtype_size(j->all.dtype), j->all.dtype, matrix ? D : 2 * F,
                     matrix ? F : D);
}

/* Copy between a slice's two matrices, whose columns begin at `first` of the joined ones, and these. */
static void copy_slice(struct device *d, const struct tensor joined[2], const struct tensor slice[2], int64_t first,
                       bool back)
{
    const uint64_t size = dtype_size(slice[0].dtype), f = (uint64_t)tensor_cols(slice[1]),
                   F = (uint64_t)tensor_cols(joined[1]), D = (uint64_t)tensor_rows(slice[1]);
    /* Two bundles of rows, gates and others; then D bundles of columns. */
    for (int matrix = 0; matrix < 2; matrix++) {
        const uint64_t each = size * (matrix ? 1 : D), pitch = F * each, width = f * each;
        char *const to = (char *)joined[matrix].data + (uint64_t)first * each, *const from = slice[matrix].data;
        device_copy_rows(d, back ? from : to, back ? width : pitch, back ? to : from, back ? pitch : width, width,
                         matrix ? (int64_t)D : 2);
    }
}

/* Copy all slices of members i .. into the joined matrices, or back. */
static void copy_slices(struct moved_experts *gathered, const struct expert_parallel *ep, int i,
                        const struct joined *j, bool back)
{
    const int64_t E = ep->tp->config->mixture.E, D = ep->tp->config->D;
    for (int s = i; s < i + tutel_together(ep); s++) {
        const int64_t first = held_by(ep, s).columns.first - j->held.columns.first;
        take_slice(gathered, ep, s);
        for (int64_t e = j->held.experts.first; e < interval_end(j->held.experts); e++)
            copy_slice(ep->tp->device, (struct tensor[]){ joined_matrix(j, e, 0, D), joined_matrix(j, e, 1, D) },
                       (struct tensor[]){ gathered->matrix[e], gathered->matrix[E + e] }, first, back);
    }
    dev_charge(ep->tp->device, "join slices of experts", j->all, 2, 0);
}

/* The matrices of members i .., for the body: slices as they are, or joined.  The caller frees j->all. */
static enum error_code tutel_take(struct joined *j, struct moved_experts *gathered, const struct expert_parallel *ep,
                                  int i, struct error *err)
{
    const int64_t E = ep->tp->config->mixture.E, D = ep->tp->config->D;
    *j = (struct joined){ .held = held_together(ep, i) };
    if (tutel_together(ep) == 1) return take_slice(gathered, ep, i), OK;
    j->all = device_tensor_in(ep->tp->device, BUFFERS, gathered->all.dtype,
                              j->held.experts.count * 3 * j->held.columns.count * D);
    if (j->all.data == NULL) return fail(err, ERR_MEMORY, "no memory to join slices of experts");
    copy_slices(gathered, ep, i, j, false);
    for (int64_t e = j->held.experts.first; e < interval_end(j->held.experts); e++)
        gathered->matrix[e] = joined_matrix(j, e, 0, D), gathered->matrix[E + e] = joined_matrix(j, e, 1, D);
    return OK;
}

/* The rows that a member's slice computes, and their columns of up and act. */
struct share { struct interval rows, columns; int32_t *counts; bool first; };

/* Set what the slices of members i .. compute.  @return whether there is anything to compute: devices that add up
 * exact sums do that together, also without rows. */
static bool tutel_share_of(struct share *share, const struct mixture_call *call, int i, int32_t *counts)
{
    const struct expert_routing *r = call->ep->routing;
    const struct held h = held_together(call->ep, i);
    const bool adds = call->ep->tp->device->exact && slices(call->ep, r)->size > 1;
    *share = (struct share){ .columns = interval_moved(h.columns, -r->columns.first), .counts = counts,
                         .first = h.columns.first == r->columns.first };
    for (int64_t e = 0; e < call->ep->tp->config->mixture.E; e++) {
        const bool here = e >= h.experts.first && e < interval_end(h.experts);
        counts[e] = here ? r->counts[e] : 0;
        /* Rows lie by expert, so those of earlier experts come before this member's. */
        if (e < h.experts.first) share->rows.first += r->counts[e];
        share->rows.count += counts[e];
    }
    return (share->rows.count > 0 || adds) && share->columns.count > 0;
}

/* A slice's columns of all rows lie together: `wide` numbers for each of its columns. */
static struct tensor tutel_columns_of(struct tensor t, const struct share *share, int wide)
{
    const int64_t R = tensor_rows(t);
    char *first = (char *)t.data + R * share->columns.first * wide * (int64_t)dtype_size(t.dtype);
    return tensor_rows_of(tensor_2d(first, t.dtype, R, share->columns.count * wide), share->rows.first,
                          share->rows.count);
}

/* Return the rows of a share in a tensor of all rows; an absent tensor stays absent. */
static struct tensor rows_in(struct tensor t, const struct share *share)
{
    return tensor_present(t) ? tensor_rows_of(t, share->rows.first, share->rows.count) : t;
}

/* Slices of the same experts: the first writes the sum, the others are added. */
static void add_to(struct device *device, struct tensor sum, struct tensor part, bool first)
{
    if (!first) dev_add(device, sum, sum, part);
}

/* Run one slice of a pass: the body computes the share's rows with the share's columns. */
static enum error_code pass_slice(struct mixture_call *call, enum tensor_pass pass, const struct share *share,
                                  const struct tensor *weights, struct expert_rows expert_rows,
                                  struct expert_gradients gradients,
                                  struct error *err)
{
    struct device *d = call->ep->tp->device;
    const struct tensor sum = rows_in(pass == FORWARD_PASS ? expert_rows.results : gradients.rows, share);
    struct tensor part = sum;
    if (pass != WEIGHT_PASS && !share->first) {
        /* A later slice of the same experts computes a summand, which is added to the first. */
        part = device_tensor_2d(d, BUFFERS, tensor_rows(sum), tensor_cols(sum));
        if (part.data == NULL) return fail(err, ERR_MEMORY, "no memory for results of a slice");
    }
    const struct expert_rows rows = { .rows = rows_in(expert_rows.rows, share),
                                     .up = tutel_columns_of(expert_rows.up, share, 2),
                                      .act = tutel_columns_of(expert_rows.act, share, 1), .results = part,
                                          .counts = share->counts,
                                      .weights = weights, .first = expert_rows.first + share->rows.first,
                                      .columns = interval_moved(share->columns,
                                                                call->ep->routing->columns.first) };
    enum error_code e = OK;
    if (pass == FORWARD_PASS) e = call->body.forward(call->body.context, rows, err);
    else {
        const struct expert_gradients mine = { .results = rows_in(gradients.results, share),
                                              .up = tutel_columns_of(gradients.up, share, 2),
                                               .act = pass == INPUT_PASS ? tutel_columns_of(gradients.act, share, 1)
                                                   : tensor_none,
                                               .rows = part };
        e = pass == INPUT_PASS ? call->body.input(call->body.context, rows, mine, err)
                               : call->body.weight(call->body.context, rows, mine, err);
    }
    if (!e && pass != WEIGHT_PASS) add_to(d, sum, part, share->first);
    if (part.data != sum.data) device_free(d, part);
    return e;
}

/* Run a pass on some rows, slice by slice, with the slices that were gathered.  Local. */
static enum error_code tutel_compute(struct mixture_call *call, enum tensor_pass pass, struct expert_rows rows,
                                     struct expert_gradients gradients, struct error *err)
{
    const struct expert_parallel *ep = call->ep;
    struct moved_experts *gathered = &expert_whole(call)->weights;
    int32_t *counts = calloc((size_t)ep->tp->config->mixture.E, sizeof *counts);
    enum error_code e = counts ? OK : fail(err, ERR_MEMORY, "no memory to count rows of experts");
    for (int i = 0; i < gather_group(ep)->size && !e; i += tutel_together(ep)) {
        struct share s;
        struct joined j;
        e = tutel_take(&j, gathered, ep, i, err);
        if (!e && tutel_share_of(&s, call, i, counts))
            e = pass_slice(call, pass, &s, gathered->matrix, rows, gradients, err);
        if (!e && pass == WEIGHT_PASS && j.all.data) copy_slices(gathered, ep, i, &j, true);
        device_free(ep->tp->device, j.all);
    }
    free(counts);
    return e;
}

static void compute_cost(struct forecast *forecast, const struct expert_parallel *ep, enum tensor_pass pass)
{
    int64_t counts[MESH_MOST_LISTED];
    /* Weights are gathered forward and again backward, gradients scattered once. */
    const bool back = pass == WEIGHT_PASS;
    forecast_on(forecast, gather_group(ep), back ? REDUCE_SCATTER : ALLGATHER, NULL,
                gathering(ep, expert_format(ep, back), counts));
}

const struct expert_scheme expert_scheme_tutel = {
    .head = { .kind = EXPERT_SCHEME, .equality = REASSOCIATES, .name = "tutel",
              .description = "slices of experts stay; rows or slices move, whichever is less in each layer",
              .source = "Tutel, arXiv:2206.03382",
              .volume = "the least of 4 k n D ((ep-1)/ep + r-1) + 9 F D E/ep (1/r - 1/etp) elements for r that divide "
                        "etp, and of all weights; forward and backward",
              .memory = "as alltoall; in a pass the gathered slices",
              .needs = "ep x etp a divisor of dp x cp x tp", .invariants = tutel_invariants },
    DISPATCH_SCHEME, .refuses = tutel_refuses, .open = tutel_open_groups, .hops = 1, .hop = dispatch_hop,
        .has_degrees = true, .exact = true,
    .choose = tutel_choose, .slices = slices,
    .has_parts = true, .bring = tutel_bring, .compute = tutel_compute, .end = tutel_end, .compute_cost = compute_cost,
};
