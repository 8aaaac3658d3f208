/* low_rank.c -- optimizers that step whole matrices in few directions; everything must be whole, as in ddp.
 *
 * Source   ref/optim/galore.h.  The authors' script reduces whole gradients in every step (PyTorch's DDP).  Reducing
 *          projected gradients, where these are sufficient, is our change: projecting is linear, so the step is the
 *          same apart from rounding
 * Layout   as ddp; states are stored parameter by parameter as low_rank_state says
 * Sends    steps that compute a new P, and with --clip all steps, all-reduce gradients as ddp and project in the
 *          optimizer's step.  Every device computes P from the same bits with the same code, so P is equal everywhere
 *          without being sent.  In all other steps, each finished unit is projected and packed towards the front of the
 *          block of gradients: R of each projected matrix, whole gradients of everything else.  Buckets are consecutive
 *          ranges of the packed elements: r/a of a matrix's bytes, b r instead of a b.  After the last bucket
 *          everything is moved back to its place, R followed by zeros.  Copies of a stage still send whole gradients
 *          along pp, including these zeros
 * Memory   weights n, gradients n; optimizer state a r + 2 b r for a projected matrix (natural-galore s b r more), 2 n
 *          for the rest.  With --as galore-torch,states=8-bit, moments of 4096 numbers or more are codes: a byte a
 *          number, and a number for 256 of them
 * Equals   reassociates: P^T (G1 + G2) = P^T G1 + P^T G2 apart from rounding.  Adam and the natural gradient, which are
 *          not linear, come after the reduction, on every device from the same bits
 * Called   data.c calls the stage; model/collect.c and model/checkpoint/ ask for whole states.  Errors: ERR_MEMORY;
 *          ERR_CHECK if singular vectors cannot be computed; ERR_COMM.
 */
#include "emulated_devices/schemes/data/stages/allreduce.h"
#include "emulated_devices/device/compute.h"
#include "ref/optim/galore.h"

/* `units` counts the packed units, the last one first.  `coming` is the optimizer step, from 1, for which gradients
 * are being computed.  `skipped_whole` counts skipped steps whose gradients were reduced whole. */
struct projection { struct front front; int units; int64_t coming, skipped_whole; };

static struct projection *low_rank_own_state(const struct data_parallel *dp)
{
    return chain_state(dp, &stage_projection);
}

/* A fused matrix has several parts, such as queries, keys and values; each is projected on its own. */
static struct low_rank_parts projection_of(const struct data_parallel *dp, const struct param_spec *spec)
{
    int64_t rows[PARAM_MOST_PARTS];
    for (int i = 0; i < spec->parts; i++) rows[i] = spec->part[i].rows;
    return low_rank_parts_of(dp->optimizer, dp->hyper, param_is_linear(spec), rows, spec->parts, spec->dim[1]);
}

/* ---- states ------------------------------------------------------------------------------------------------------ */

/* The weights' shape in the masters' format. */
static struct tensor shape_of(const struct data_parallel *dp, const struct param_spec *spec)
{
    const enum dtype t = data_format(dp, KIND_MASTER);
    return spec->ndim == 2 ? tensor_2d(NULL, t, spec->dim[0], spec->dim[1]) : tensor_1d(NULL, t, spec->dim[0]);
}

/* The shape of a state may differ from the weights' shape; ndim 0 means none. */
static struct tensor state_shape(const struct data_parallel *dp, const struct param_spec *spec, int state)
{
    const struct low_rank_parts r = projection_of(dp, spec);
    return low_rank_parts_state(dp->optimizer, dp->hyper, &r, shape_of(dp, spec), state);
}

/* The number of elements of a state for all parameters of a unit. */
static int64_t unit_states(const struct data_parallel *dp, const struct unit *unit, enum tensor_kind kind)
{
    const int state = (int)(kind - KIND_STATE);
    int64_t n = 0;
    for (int i = 0; i < unit->count; i++) n += tensor_count(state_shape(dp, &unit->parameter[i].spec, state));
    return state < dp->optimizer->states ? n : -1;
}

struct tensor data_whole_state(const struct data_parallel *dp, const struct parameter *parameter, int state)
{
    const struct unit *u = &dp->unit[unit_of(&parameter->spec)];
    struct tensor t = state_shape(dp, &parameter->spec, state);
    int64_t at = 0;
    /* States of a unit's parameters lie one after another, in the order of the parameters. */
    for (int i = 0; &u->parameter[i] != parameter; i++)
        at += tensor_count(state_shape(dp, &u->parameter[i].spec, state));
    t.data = slice(u->state[state], (struct interval){ at, 0 }).data;
    return t;
}

/* In files each part's state has its own name; the numbers of several parts are stored in a row. */
static void name_parts(const struct data_parallel *dp, struct param_spec *out, const struct param_spec *spec,
                       const struct low_rank_parts *parts, int k)
{
    for (int i = 0; i < parts->count && parts->count > 1; i++)
        out->part[i].rows =
            tensor_count(low_rank_part_state(dp->optimizer, dp->hyper, parts, i, shape_of(dp, spec), tensor_none, k));
    if (parts->count == 1) out->part[0].rows = out->dim[0];
}

struct param_spec data_spec(const struct data_parallel *dp, const struct param_spec *spec, enum tensor_kind kind)
{
    struct param_spec out = *spec;
    if (kind < KIND_STATE || !dp->optimizer->low_rank) return out;
    const struct tensor t = state_shape(dp, spec, (int)(kind - KIND_STATE));
    const struct low_rank_parts r = projection_of(dp, spec);
    /* A state with an element for each weight is described in files as the weight is. */
    if (t.ndim > 0 && t.dtype != U8 && !low_rank_projects(&r)) return out;
    out.ndim = t.ndim, out.dim[0] = t.dim[0], out.dim[1] = t.dim[1];
    out.file_transposed = false;
    if (t.ndim == 0) out.parts = 0;
    else name_parts(dp, &out, spec, &r, (int)(kind - KIND_STATE));
    return out;
}

/* ---- projecting -------------------------------------------------------------------------------------------------- */

/* A piece is one matrix of a parameter, with its gradient, its P and scratch memory. */
struct piece {
    struct data_parallel *dp;
    const struct parameter *parameter;
    struct low_rank r;
    struct tensor g, P, scratch;
};

/* piece_of gives views of matrix i of a parameter: G, and its P among the states. */
static struct piece piece_of(struct data_parallel *dp, const struct parameter *parameter,
                             const struct low_rank_parts *all, int i)
{
    const struct tensor P = data_whole_state(dp, parameter, LOW_RANK_PROJECTION);
    return (struct piece){
        .dp = dp, .parameter = parameter, .r = all->part[i].p, .g = low_rank_rows(all->part[i], parameter->g),
        .P = low_rank_part_state(dp->optimizer, dp->hyper, all, i, shape_of(dp, &parameter->spec), P,
                                 LOW_RANK_PROJECTION),
    };
}

/* R = P^T G [r, n], or G P [m, r], is written over the first elements of G. */
static void project(const struct piece *piece)
{
    device_galore_project(piece->dp->device, piece->r, piece->g, piece->P, piece->scratch);
    device_charge(piece->dp->device, "project gradient",
                  linear_cost(piece->r.b, piece->r.a, piece->r.r, piece->g.dtype));
}

/* In double: G G^T, then its eigenvectors, 9 a^3 (G. Golub, C. Van Loan, "Matrix computations", 4th
 * ed., section 8.3). */
static enum error_code refresh(const struct piece *piece, struct error *err)
{
    const double a = (double)piece->r.a, b = (double)piece->r.b;
    const struct op_cost cost = { .flops = 2 * a * a * b + 9 * a * a * a, .bytes = 8 * (a * b + 2 * a * a) };
    device_charge(piece->dp->device, "find projection", cost);
    enum error_code e = OK;
    device_galore_refresh(piece->dp->device, piece->r, piece->P, piece->g, piece->scratch, &e, err);
    return fail_about(err, e, piece->parameter->spec.name);
}

/* project_piece projects one matrix; with `anew` a new P is computed from this gradient first. */
static enum error_code project_piece(struct piece piece, bool anew, struct error *err)
{
    struct device *d = piece.dp->device;
    piece.scratch = device_tensor_in(d, BUFFERS, U8, (int64_t)galore_scratch(piece.r, piece.g.dtype));
    if (piece.scratch.data == NULL)
        return fail(err, ERR_MEMORY, "no memory to project the gradient of %s", piece.parameter->spec.name);
    const enum error_code e = anew ? refresh(&piece, err) : OK;
    if (!e) project(&piece);
    device_free(d, piece.scratch);
    return e;
}

/* Project each matrix in place: R, then zeros.  anew: first compute a new P. */
static enum error_code project_parameter(struct data_parallel *dp, struct parameter *parameter, bool anew,
                                         struct error *err)
{
    const struct low_rank_parts r = projection_of(dp, &parameter->spec);
    enum error_code e = OK;
    for (int i = 0; i < r.count && low_rank_projects(&r) && !e; i++)
        e = project_piece(piece_of(dp, parameter, &r, i), anew, err);
    return e;
}

/* Whether gradients for the next step are projected before the reduction.  Otherwise they stay whole until the step. */
static bool is_packed(const struct data_parallel *dp, const struct projection *projection)
{
    return !low_rank_takes_whole(dp->hyper, projection->coming);
}

/* ---- packing ----------------------------------------------------------------------------------------------------- */

/* An outgoing is what is sent of a gradient: R of a projected matrix, from the matrix's first element on.  Without a
 * projection the whole gradient is sent. */
struct outgoing { struct tensor whole; int64_t count; };

static struct outgoing outgoing_of(const struct parameter *parameter, const struct low_rank_parts *parts, int i)
{
    if (!low_rank_projects(parts)) return (struct outgoing){ parameter->g, layout_count(&parameter->layout) };
    return (struct outgoing){ low_rank_rows(parts->part[i], parameter->g), parts->part[i].p.b * parts->part[i].p.r };
}

/* A parameter that is not projected goes out as one piece. */
static int outgoings(const struct low_rank_parts *parts) { return low_rank_projects(parts) ? parts->count : 1; }

static int64_t elements_sent(const struct data_parallel *dp, const struct parameter *parameter)
{
    const struct low_rank_parts r = projection_of(dp, &parameter->spec);
    return low_rank_projects(&r) ? low_rank_reduced(&r) : layout_count(&parameter->layout);
}

static int64_t packed_elements(const struct data_parallel *dp)
{
    int64_t n = 0;
    for (int i = 0; i < dp->parameters->count; i++) n += elements_sent(dp, &dp->parameters->all[i]);
    return n;
}

static char *place_in_block(const struct data_parallel *dp, int64_t element)
{
    return (char *)dp->gradients.data + (size_t)element * dtype_size(dp->gradients.dtype);
}

/* pack_unit projects a unit's matrices and copies what is sent to the end of the packed front. */
static enum error_code pack_unit(struct data_parallel *dp, struct projection *projection, struct unit *unit,
                                 struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < unit->count && !e; i++) {
        struct parameter *p = &unit->parameter[i];
        const struct low_rank_parts r = projection_of(dp, &p->spec);
        e = project_parameter(dp, p, false, err);
        for (int k = 0; k < outgoings(&r); k++) {
            const struct outgoing s = outgoing_of(p, &r, k);
            device_copy(dp->device, place_in_block(dp, projection->front.ready), s.whole.data,
                        (size_t)s.count * dtype_size(s.whole.dtype));
            projection->front.ready += s.count;
        }
    }
    return e;
}

/* Pack the units that backward has finished since the last call. */
static enum error_code low_rank_pack(struct data_parallel *dp, struct projection *projection, struct error *err)
{
    enum error_code e = OK;
    for (; projection->units < dp->units && !e; projection->units++) {
        /* Backward finishes the last unit first. */
        struct unit *u = &dp->unit[dp->units - 1 - projection->units];
        if (u->due > 0) break;
        e = pack_unit(dp, projection, u, err);
    }
    return e;
}

/* Move the packed part that ends at `at` back to its place.  @return where it began. */
static int64_t put_back(const struct data_parallel *dp, struct outgoing outgoing, int64_t at)
{
    const size_t bytes = (size_t)outgoing.count * dtype_size(outgoing.whole.dtype);
    device_copy(dp->device, outgoing.whole.data, place_in_block(dp, at - outgoing.count), bytes);
    /* Behind R the gradient's memory is zero, as after projecting in place. */
    device_zero(dp->device, tensor_1d((char *)outgoing.whole.data + bytes, U8,
                                      (int64_t)(tensor_bytes(outgoing.whole) - bytes)));
    return at - outgoing.count;
}

/* Start at the back, so that nothing is overwritten before it has moved: packed parts are never after their own
 * places. */
static void unpack(struct data_parallel *dp, const struct projection *projection)
{
    int64_t at = projection->front.ready;
    for (int u = 0; u < dp->units; u++)
        for (int i = dp->unit[u].count - 1; i >= 0; i--) {
            const struct parameter *p = &dp->unit[u].parameter[i];
            const struct low_rank_parts r = projection_of(dp, &p->spec);
            for (int k = outgoings(&r) - 1; k >= 0; k--) at = put_back(dp, outgoing_of(p, &r, k), at);
        }
}

/* ---- reducing ---------------------------------------------------------------------------------------------------- */

/* Reduce finished units: project on the compute stream, reduce on another one. */
static enum error_code low_rank_reduce(struct data_parallel *dp, struct error *err)
{
    struct projection *x = low_rank_own_state(dp);
    const enum error_code e = x->front.packed ? low_rank_pack(dp, x, err) : OK;
    if (e) return e;
    if (!x->front.packed) x->front.ready = finished_elements(dp);
    data_begin_sending(dp, SENDS_GRADIENTS);
    const enum error_code reduced = reduce_front(dp, &x->front, err);
    clock_end(&dp->device->clock);
    return reduced;
}

static enum error_code low_rank_end(struct data_parallel *dp, struct use use, struct error *err)
{
    (void)use;
    return low_rank_reduce(dp, err);
}

/* Move everything back to its place. */
static void low_rank_settle(struct data_parallel *dp)
{
    struct projection *x = low_rank_own_state(dp);
    if (x->front.packed) unpack(dp, x);
    x->front.reduced = x->front.ready = x->units = 0;
}

/* `expect` chooses for step t between packed projections and whole gradients. */
static void expect(struct data_parallel *dp, int64_t t)
{
    struct projection *x = low_rank_own_state(dp);
    x->coming = t;
    x->front.packed = is_packed(dp, x);
    x->front.elements = x->front.packed ? packed_elements(dp) : tensor_count(dp->gradients);
}

/* ---- the step ---------------------------------------------------------------------------------------------------- */

/* step_parameter updates one parameter from its gradient, or from its projection R, with its states. */
static void step_parameter(struct data_parallel *dp, const struct parameter *parameter, struct tensor master,
                           struct step step)
{
    const struct low_rank_parts r = projection_of(dp, &parameter->spec);
    struct tensor state[OPTIMIZER_MAX_STATES] = { 0 };
    for (int k = 0; k < dp->optimizer->states; k++) state[k] = data_whole_state(dp, parameter, k);
    step.weight_decay = weight_decay_of(dp->hyper, parameter->spec.decay);
    const struct tensor w = parameter_view(parameter, slice(master, (struct interval){ parameter->place, 0 }).data,
                                           master.dtype);
    device_galore_parts_step(dp->device, dp->optimizer, &r, w, parameter->g, state, step);
    for (int i = 0; i < r.count && low_rank_projects(&r); i++)
        device_charge(dp->device, "project back",
                      linear_cost(r.part[i].p.b, r.part[i].p.r, r.part[i].p.a, master.dtype));
}

/* Step a unit; first project what is still whole.  ERR_CHECK if singular vectors cannot be computed. */
static enum error_code low_rank_step_unit(struct data_parallel *dp, const struct projection *projection,
                                          struct unit *unit, struct step step, struct error *err)
{
    const struct tensor master = data_kept_tensor(dp, unit, KIND_MASTER);
    enum error_code e = OK;
    for (int i = 0; i < unit->count && !e; i++) {
        struct parameter *p = &unit->parameter[i];
        if (!projection->front.packed)
            e = project_parameter(dp, p, low_rank_refreshes(dp->hyper, projection->coming), err);
        if (!e) step_parameter(dp, p, master, step);
    }
    return e ? e : renew_weights(dp, unit, err);
}

/* All weights are whole on every device, so there is nothing to share after a step. */
static enum error_code step_all(struct data_parallel *dp, struct step step, bool share, struct error *err)
{
    enum error_code e = OK;
    (void)share;
    for (int i = 0; i < dp->units && !e; i++)
        e = low_rank_step_unit(dp, low_rank_own_state(dp), &dp->unit[i], step, err);
    return e;
}

static void skip(struct data_parallel *dp)
{
    struct projection *x = low_rank_own_state(dp);
    x->skipped_whole += !x->front.packed;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static enum error_code expect_first(struct data_parallel *dp, struct error *err)
{
    (void)err;
    expect(dp, 1);
    return OK;
}

/* ---- traffic ----------------------------------------------------------------------------------------------------- */

/* The number of steps among 1 .. t of the optimizer that compute new projections. */
static int64_t refreshes_until(const struct data_parallel *dp, int64_t t)
{
    return (t + dp->hyper->refresh - 1) / dp->hyper->refresh;
}

struct account data_saved_by_projecting(const struct data_parallel *dp, int64_t taken, int64_t skipped)
{
    const struct projection *x = low_rank_own_state(dp);
    if (x == NULL || dp->hyper->clip > 0) return (struct account){ 0 };
    const int64_t last = x->coming - 1,
                  whole = refreshes_until(dp, last) - refreshes_until(dp, last - taken) + x->skipped_whole;
    struct account saved = { 0 };
    /* Each packed step saves one reduction of whole gradients, and costs one of packed ones. */
    account_add(&saved, front_cost(dp, tensor_count(dp->gradients), false), taken + skipped - whole);
    account_add(&saved, front_cost(dp, packed_elements(dp), true), whole - taken - skipped);
    return saved;
}

static bool low_rank_takes_part(const struct data_parallel *dp) { return dp->optimizer->low_rank; }

const struct data_stage stage_projection = {
    .name = "projection", .takes_part = low_rank_takes_part, .state = sizeof (struct projection),
        .outline = expect_first,
    .keeps = KEEPS_STATES(unit_states),
    .kept = OPTIMIZER_MAX_STATES, .end = low_rank_end,
    .finish = low_rank_reduce, .settle = low_rank_settle, .expect = expect, .step = step_all, .skip = skip,
    .cost = allreduce_cost_of_step,
};
