/* experts, tutel: one arrangement of the weights, and several ways to compute with it; each layer and microbatch takes
 * the one that sends least.
 *
 * Source   C. Hwang et al., "Tutel: adaptive mixture-of-experts at scale", arXiv:2206.03382, section 3, "adaptive
 *          parallelism switching"; microsoft/Tutel, adaptive_degree of tutel/experts/ffn.py
 * Group    W = ep x etp devices; each has one slice of F of its experts, whatever the degree, so a switch moves nothing
 * Degree   0            rows stay; the slices of all experts are gathered on every device: data parallelism
 *          r | etp      rows go to their experts; etp/r neighbours gather their slices, and r devices, one of each of
 *                       these groups, compute the same rows with an r-th of F each: r = 1 expert and data, r = etp
 *                       expert and model parallelism
 *
 *          ep = 1, etp = 4, r = 2    devices 0 and 1 gather slices 0 and 1, devices 2 and 3 slices 2 and 3
 *                                    devices 0 and 2 compute the rows of both, so do 1 and 3
 *
 * Sends    counts to all W devices; rows as alltoall --etp r; slices of weights forward and again backward, their
 *          gradients back: each time (g-1)/g of what a group of g gathers
 * Memory   dispatch.h, a row a choice; in a pass the gathered slices
 * Equals   reassociates: sums over slices, and gradients over the devices that gather
 */
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/experts/dispatch.h"
#include "emulated_devices/schemes/experts/expert_invariants.h"
#include "ref/model/config.h"
#include <stdlib.h>
#include <string.h>

enum { ALL, FIRST_DEGREE };             /* groups: of all W devices; then two for each divisor of etp, ascending */
enum { SLICE_GROUP, ROW_GROUP };               /* neighbours that gather slices; devices that compute the same rows */

/* ---- groups ------------------------------------------------------------------------------------------------------ */

/* The place of a divisor of etp among all. */
static int place_of(const struct expert_parallel *ep, int degree)
{
    int n = 0;
    for (int d = 1; d < degree; d++) n += ep->slices % d == 0;
    return FIRST_DEGREE + 2 * n;
}

static enum error_code open_degree(struct expert_parallel *ep, int degree, struct error *err)
{
    const int g = ep->slices / degree, *slice = ep->along_etp->member;
    int member[MESH_MOST_DEVICES];
    struct group *part = &ep->part[place_of(ep, degree)];
    for (int i = 0; i < g; i++) member[i] = slice[ep->slice / g * g + i];
    enum error_code e = group_of(part + SLICE_GROUP, ep->group->comm, member, g, TRAFFIC_EXPERTS, AXIS_BIT(EP), err);
    for (int i = 0; i < degree; i++) member[i] = slice[ep->slice % g + i * g];
    return e ? e : group_of(part + ROW_GROUP, ep->group->comm, member, degree, TRAFFIC_EXPERTS, AXIS_BIT(EP), err);
}

static enum error_code open_groups(struct expert_parallel *ep, struct error *err)
{
    int member[MESH_MOST_DEVICES];
    const int W = ep->devices * ep->slices;
    for (int i = 0; i < W; i++) member[i] = ep->group->member[0] - ep->slice + i;       /* neighbours */
    enum error_code e = group_of(&ep->part[ALL], ep->group->comm, member, W, TRAFFIC_EXPERTS, AXIS_BIT(EP), err);
    for (int d = 1; d <= ep->slices && !e; d++)
        if (ep->slices % d == 0) e = open_degree(ep, d, err);
    return e;
}

static const char *refuses(const struct expert_parallel *ep, const struct model_config *c)
{
    int divisors = 0;
    (void)c;
    for (int d = 1; d <= ep->slices; d++) divisors += ep->slices % d == 0;
    if (FIRST_DEGREE + 2 * divisors > EXPERT_GROUPS) return "an etp with at most 7 divisors";
    return ep->degree <= 0 || ep->slices % ep->degree == 0 ? NULL : "a degree of 0, or one that divides etp";
}

static struct group *gather_group(const struct expert_parallel *ep)
{
    return ep->routing->degree == 0 ? &ep->part[ALL] : &ep->part[place_of(ep, ep->routing->degree) + SLICE_GROUP];
}

static struct group *slices(const struct expert_parallel *ep, const struct expert_routing *r)
{
    return &ep->part[place_of(ep, r->degree > 0 ? r->degree : 1) + ROW_GROUP];     /* degree 1: this device alone */
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

static int best_degree(const struct expert_parallel *ep, const int32_t *table)
{
    int best = 0;
    for (int d = 1; d <= ep->slices; d++)
        if (ep->slices % d == 0 && bytes_sent(ep, table, d) < bytes_sent(ep, table, best)) best = d;
    return best;
}

static enum error_code choose(const struct expert_parallel *ep, struct expert_routing *r, struct error *err)
{
    const int64_t E = ep->tp->config->mixture.E, F = ep->tp->config->F;
    int32_t *const table = malloc((size_t)(ep->devices * E) * sizeof *table);
    if (table == NULL) return fail(err, ERR_MEMORY, "no memory for the choices of %d devices", ep->devices);
    r->told = r->table, r->table = table;
    r->degree = ep->degree >= 0 ? ep->degree : best_degree(ep, r->told);
    for (int m = 0; m < ep->devices; m++)               /* of the ep group, whose members have the same slice */
        memcpy(table + m * E, r->told + (m * ep->slices + ep->slice) * E, (size_t)E * sizeof *table);
    /* With degree 0 every device gathers all weights, and rows stay. */
    if (r->degree == 0) {
        r->experts = (struct interval){ 0, E }, r->columns = (struct interval){ 0, F };
        return OK;
    }
    /* The columns of this device and of its neighbours, whose slices it gathers, lie together. */
    const int g = ep->slices / r->degree, first = ep->slice / g * g;
    const int64_t from = block_at(F, ep->slices, first).first;
    r->columns = (struct interval){ from, interval_end(block_at(F, ep->slices, first + g - 1)) - from };
    return OK;
}

/* ---- slices of weights ------------------------------------------------------------------------------------------- */

/* A member of the gathering group has a slice of some experts. */
struct held { struct interval experts, columns; };

static struct held held_by(const struct expert_parallel *ep, int i)
{
    const int g = gather_group(ep)->size, degree = ep->routing->degree;
    const int member = degree == 0 ? i / ep->slices : ep->rank,
              slice = degree == 0 ? i % ep->slices : ep->slice / g * g + i;
    return (struct held){ experts_of(ep, member), block_at(ep->tp->config->F, ep->slices, slice) };
}

static int64_t numbers_held(const struct expert_parallel *ep, int i)
{
    const struct held h = held_by(ep, i);
    return h.experts.count * 3 * h.columns.count * ep->tp->config->D;
}

static struct collective gathering(const struct expert_parallel *ep, enum dtype dtype, int64_t counts[])
{
    for (int i = 0; i < gather_group(ep)->size; i++) counts[i] = numbers_held(ep, i);
    return (struct collective){ .counts = counts, .dtype = dtype, .reduction = SUM };
}

/* All slices of the gathering group, or gradients of them, one member after another: each expert's two matrices. */
struct gathered { struct tensor own, all; struct tensor *matrix; };

static void close_gathered(struct device *d, struct gathered *w)
{
    device_free(d, w->own), device_free(d, w->all), free(w->matrix);
}

static enum error_code open_gathered(struct gathered *w, const struct expert_parallel *ep, enum dtype dtype,
                                     struct error *err)
{
    struct device *d = ep->tp->device;
    int64_t all = 0;
    for (int i = 0; i < gather_group(ep)->size; i++) all += numbers_held(ep, i);
    *w = (struct gathered){ .own = device_tensor_in(d, BUFFERS, dtype, numbers_held(ep, gather_group(ep)->rank)),
                            .all = device_tensor_in(d, BUFFERS, dtype, all),
                            .matrix = calloc((size_t)(2 * ep->tp->config->mixture.E), sizeof *w->matrix) };
    return w->own.data && w->all.data && w->matrix ? OK : fail(err, ERR_MEMORY, "no memory for slices of experts");
}

/* The matrices of a member's slice, for the body. */
static void take_slice(struct gathered *w, const struct expert_parallel *ep, int i)
{
    const int64_t E = ep->tp->config->mixture.E, D = ep->tp->config->D;
    const struct held h = held_by(ep, i);
    int64_t at = 0;
    for (int k = 0; k < i; k++) at += numbers_held(ep, k);
    for (int64_t e = 0; e < E; e++) {
        const bool there = e >= h.experts.first && e < interval_end(h.experts);
        w->matrix[e] = w->matrix[E + e] = tensor_none;
        if (!there) continue;
        char *first = (char *)w->all.data + at * (int64_t)dtype_size(w->all.dtype);
        /* A slice of f columns of an expert is up [2 f, D], then down [D, f]. */
        w->matrix[e] = tensor_2d(first, w->all.dtype, 2 * h.columns.count, D);
        w->matrix[E + e] = tensor_2d(first + tensor_bytes(w->matrix[e]), w->all.dtype, D, h.columns.count);
        at += 3 * h.columns.count * D;
    }
}

/* Copy between this device's pieces and `own`. */
static void visit_own(const struct mixture_call *c, struct gathered *w, bool gradient)
{
    const struct expert_parallel *ep = c->ep;
    const struct held h = held_by(ep, gather_group(ep)->rank);
    char *at = w->own.data;
    for (int64_t e = h.experts.first; e < interval_end(h.experts); e++)
        for (int matrix = 0; matrix < 2; matrix++) {
            const struct tensor piece = c->body.piece(c->body.context, e, matrix, gradient),
                                part = tensor_1d(at, w->own.dtype, tensor_count(piece));
            if (gradient) device_reduce(ep->tp->device, SUM, part.dtype, piece.data, part.data, tensor_count(part));
            else if (tensor_count(piece) > 0) device_copy(ep->tp->device, part.data, piece.data, tensor_bytes(part));
            at += tensor_bytes(part);
        }
}

static enum error_code gather(struct gathered *w, const struct mixture_call *c, struct error *err)
{
    int64_t counts[MESH_MOST_DEVICES];
    enum error_code e = open_gathered(w, c->ep, expert_format(c->ep, false), err);
    struct collective call = gathering(c->ep, w->own.dtype, counts);
    call.in = w->own.data, call.out = w->all.data;
    if (!e) visit_own(c, w, false);
    return e ? e : collective_run(gather_group(c->ep), ALLGATHER, NULL, &call, err);
}

static enum error_code scatter(struct gathered *w, const struct mixture_call *c, struct error *err)
{
    int64_t counts[MESH_MOST_DEVICES];
    struct collective call = gathering(c->ep, w->own.dtype, counts);
    call.in = w->all.data, call.out = w->own.data;
    const enum error_code e = collective_run(gather_group(c->ep), REDUCE_SCATTER, NULL, &call, err);
    if (!e) visit_own(c, w, true);
    return e;
}

/* ---- passes of the experts, slice by slice ----------------------------------------------------------------------- */

/* The rows that a member's slice computes, and their columns of up and act. */
struct share { struct interval rows, columns; int32_t *counts; bool first; };

static bool share_of(struct share *s, const struct mixture_call *c, int i, int32_t *counts)
{
    const struct expert_routing *r = c->ep->routing;
    const struct held h = held_by(c->ep, i);
    *s = (struct share){ .columns = interval_moved(h.columns, -r->columns.first), .counts = counts,
                         .first = h.columns.first == r->columns.first };
    for (int64_t e = 0; e < c->ep->tp->config->mixture.E; e++) {
        const bool here = e >= h.experts.first && e < interval_end(h.experts);
        counts[e] = here ? r->counts[e] : 0;
        /* Rows lie by expert, so those of earlier experts come before this member's. */
        if (e < h.experts.first) s->rows.first += r->counts[e];
        s->rows.count += counts[e];
    }
    return s->rows.count > 0 && s->columns.count > 0;
}

/* A slice's columns of all rows lie together: `wide` numbers for each of its columns. */
static struct tensor columns_of(struct tensor t, const struct share *s, int wide)
{
    const int64_t R = tensor_rows(t);
    char *first = (char *)t.data + R * s->columns.first * wide * (int64_t)dtype_size(t.dtype);
    return tensor_rows_of(tensor_2d(first, t.dtype, R, s->columns.count * wide), s->rows.first, s->rows.count);
}

static struct tensor rows_in(struct tensor t, const struct share *s)
{
    return tensor_present(t) ? tensor_rows_of(t, s->rows.first, s->rows.count) : t;
}

/* Slices of the same experts: the first writes the sum, the others are added. */
static void add_to(struct device *d, struct tensor sum, struct tensor part, bool first)
{
    if (!first) dev_add(d, sum, sum, part);
}

static enum error_code pass_slice(struct mixture_call *c, enum tensor_pass pass, const struct share *s,
                                  const struct tensor *weights, struct expert_rows r, struct expert_gradients g,
                                  struct error *err)
{
    struct device *d = c->ep->tp->device;
    const struct tensor sum = rows_in(pass == FORWARD_PASS ? r.results : g.rows, s);
    struct tensor part = sum;
    if (pass != WEIGHT_PASS && !s->first) {
        part = device_tensor_2d(d, BUFFERS, tensor_rows(sum), tensor_cols(sum));
        if (part.data == NULL) return fail(err, ERR_MEMORY, "no memory for results of a slice");
    }
    const struct expert_rows rows = { .rows = rows_in(r.rows, s), .up = columns_of(r.up, s, 2),
                                      .act = columns_of(r.act, s, 1), .results = part, .counts = s->counts,
                                      .weights = weights };
    enum error_code e = OK;
    if (pass == FORWARD_PASS) e = c->body.forward(c->body.context, rows, err);
    else {
        const struct expert_gradients mine = { .results = rows_in(g.results, s), .up = columns_of(g.up, s, 2),
                                               .act = pass == INPUT_PASS ? columns_of(g.act, s, 1) : tensor_none,
                                               .rows = part };
        if (pass == INPUT_PASS) c->body.input(c->body.context, rows, mine);
        else c->body.weight(c->body.context, rows, mine);
    }
    if (pass != WEIGHT_PASS) add_to(d, sum, part, s->first);
    if (part.data != sum.data) device_free(d, part);
    return e;
}

static enum error_code compute(struct mixture_call *c, enum tensor_pass pass, struct expert_rows r,
                               struct expert_gradients g, struct error *err)
{
    const struct expert_parallel *ep = c->ep;
    struct gathered w;
    int32_t *counts = calloc((size_t)ep->tp->config->mixture.E, sizeof *counts);
    enum error_code e = pass == WEIGHT_PASS ? open_gathered(&w, ep, expert_format(ep, true), err) : gather(&w, c, err);
    if (!e && counts == NULL) e = fail(err, ERR_MEMORY, "no memory to count rows of experts");
    if (!e && pass == WEIGHT_PASS) device_zero(ep->tp->device, w.all);
    for (int i = 0; i < gather_group(ep)->size && !e; i++) {
        struct share s;
        take_slice(&w, ep, i);
        if (share_of(&s, c, i, counts)) e = pass_slice(c, pass, &s, w.matrix, r, g, err);
    }
    if (!e && pass == WEIGHT_PASS) e = scatter(&w, c, err);
    close_gathered(ep->tp->device, &w), free(counts);
    return e;
}

static void compute_cost(struct forecast *f, const struct expert_parallel *ep, enum tensor_pass pass)
{
    int64_t counts[MESH_MOST_DEVICES];
    const bool back = pass == WEIGHT_PASS;
    forecast_on(f, gather_group(ep), back ? REDUCE_SCATTER : ALLGATHER, NULL,
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
    DISPATCH_SCHEME, .refuses = refuses, .open = open_groups, .hops = 1, .hop = dispatch_hop, .has_degrees = true,
    .choose = choose, .slices = slices, .compute = compute, .compute_cost = compute_cost,
};
