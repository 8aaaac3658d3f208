/* dispatch.c -- forward, backward for inputs, backward for weights, each in phases: send rows, compute, take results
 * home.  model/run/run_mixture.c calls them, all devices of the ep group in the same order.  Rows that travel are in
 * routing->way between phases, and are freed after ERR_MEMORY or ERR_COMM. */
#include "emulated_devices/schemes/experts/dispatch.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/device/streams.h"
#include "ref/model/config.h"
#include <stdlib.h>
#include <string.h>

/* A call keeps tensors in these slots; slot PER_FORM has the order of rows, or their weights. */
enum { ROWS, UP, ACT, RESULTS, PER_FORM, COUNTS };
enum { ORDER = PER_FORM, WEIGHTS = PER_FORM };          /* of a row a choice; of weighs_there */
enum { D_RESULTS, D_UP };

/* A router's weights and their gradients are not rounded to the 16 bits of what they weigh. */
static enum dtype format_of_weights(const struct expert_parallel *ep) { return dtype_wide(ep->tp->device->dtype); }

/* Whether sums of results that come home are exact: without a second choice there is one number, and zeros. */
static bool adds_exactly(const struct expert_parallel *ep)
{
    return ep->tp->device->exact && ep->tp->config->mixture.k > 1;
}

/* ---- a member's part --------------------------------------------------------------------------------------------- */

struct interval experts_of(const struct expert_parallel *ep, int member)
{
    return block_at(ep->tp->config->mixture.E, ep->devices, member);
}

/* The slices of F are nearly equal ranges, one for each device along etp. */
struct interval expert_columns(const struct expert_parallel *ep)
{
    return block_at(ep->tp->config->F, ep->slices, ep->slice);
}

/* ---- what is kept ------------------------------------------------------------------------------------------------ */

/* Before the router has chosen, as if the load were even. */
static struct expert_routing extents(const struct expert_parallel *ep, int64_t rows)
{
    const int64_t n = expert_share(ep, rows).count, choices = n * ep->tp->config->mixture.k;
    const int64_t sent = ep->scheme->weighs_there ? n : choices;
    if (ep->routing) return *ep->routing;
    return (struct expert_routing){ .sent = sent, .pool = sent, .received = choices, .columns = expert_columns(ep) };
}

struct tensor dispatch_kept(const struct expert_parallel *ep, int slot, int64_t rows)
{
    const struct model_config *c = ep->tp->config;
    const enum dtype own = ep->tp->device->dtype;
    const struct expert_routing r = extents(ep, rows);
    const bool there = ep->scheme->weighs_there;
    const int64_t F = r.columns.count;
    /* Rows of own experts have up [R, 2F], act [R, F] and, if weighed there, results [R, D]. */
    switch (slot) {
    case UP:       return tensor_2d(NULL, own, r.received, 2 * F);
    case ACT:      return tensor_2d(NULL, own, r.received, F);
    case RESULTS:  return tensor_2d(NULL, own, there ? r.received : r.sent, c->D);
    case PER_FORM: return there ? tensor_2d(NULL, format_of_weights(ep), r.pool, c->mixture.k)
                                : tensor_1d(NULL, I32, r.sent);
    case COUNTS:   return tensor_1d(NULL, I32, there ? 0 : c->mixture.E);
    default:       return tensor_2d(NULL, own, r.received, c->D);
    }
}

struct tensor dispatch_left(const struct expert_parallel *ep, int slot, int64_t rows)
{
    return dispatch_kept(ep, slot == D_UP ? UP : ROWS, rows);
}

enum error_code dispatch_hop(const struct expert_parallel *ep, const struct expert_routing *routing,
                             const struct choices *held, int index, struct expert_hop *hop, struct error *err)
{
    (void)held, (void)index;
    const enum error_code e = hop_make(hop, ep->group, ALLTOALL, -1, err);
    /* Both counts follow from the table, so no device has to ask. */
    for (int m = 0; m < ep->devices && !e; m++)
        hop->sent[m] = dispatch_rows(ep, routing, ep->rank, m), hop->got[m] = dispatch_rows(ep, routing, m, ep->rank);
    return e;
}

/* ---- a pass ------------------------------------------------------------------------------------------------------ */

static struct device *dispatch_device_of(const struct mixture_call *call) { return call->ep->tp->device; }
static bool weighs_there(const struct mixture_call *call) { return call->ep->scheme->weighs_there; }
static bool runs(const struct mixture_call *call, enum expert_phase phase) { return call->phases & phase; }
static enum error_code dispatch_no_memory(struct error *err)
{
    return fail(err, ERR_MEMORY, "no memory for rows of experts");
}

/* Rows as they come; and k rows for each of the stream, as sent (a row a choice). */
static enum error_code dispatch_begin(struct mixture_call *call, struct error *err)
{
    const int64_t D = call->ep->tp->config->D;
    struct expert_routing *r = call->routing;
    r->way.pool = device_tensor_2d(dispatch_device_of(call), BUFFERS, r->pool, D), r->way.sent = tensor_none;
    if (!weighs_there(call)) r->way.sent = device_tensor_2d(dispatch_device_of(call), BUFFERS, r->sent, D);
    return r->way.pool.data && (weighs_there(call) || r->way.sent.data) ? OK : dispatch_no_memory(err);
}

/* Free the rows of the way; a pass that failed in any phase ends here, too. */
static void dispatch_end(struct mixture_call *call)
{
    device_free(dispatch_device_of(call), call->routing->way.sent),
        device_free(dispatch_device_of(call), call->routing->way.pool);
    call->routing->way.sent = call->routing->way.pool = tensor_none;
}

/* Whether rows travel beside what is computed: until the next call of the pass, or beside other parts. */
static bool travels_beside(const struct mixture_call *call)
{
    return call->phases != ALL_PHASES || call->routing->whole;
}

/* Exchanges between leave and left_at are not waited for before the next phase, if that is another call. */
static void dispatch_leave(const struct mixture_call *call)
{
    struct clock *clock = &dispatch_device_of(call)->clock;
    if (travels_beside(call)) clock_begin(clock, sending_stream(clock, SENDS_ROWS));
}

/* Note when the rows will have arrived; clock_wait makes the next phase begin not before. */
static void left_at(const struct mixture_call *call)
{
    struct clock *clock = &dispatch_device_of(call)->clock;
    call->routing->way.done = clock->now;
    if (travels_beside(call)) clock_end(clock);
}

static void dispatch_arrive(const struct mixture_call *call)
{
    clock_wait(&dispatch_device_of(call)->clock, call->routing->way.done);
}

/* Send rows to their experts, beside other work if the phases are separate calls. */
static enum error_code dispatch_spread(const struct mixture_call *call, struct tensor in, struct tensor out,
                                       struct error *err)
{
    dispatch_leave(call);
    const enum error_code e = rows_spread(call->ep, in, out, err);
    left_at(call);
    return e;
}

/* Bring results back, where those of a row are added, beside other work likewise. */
static enum error_code collect(const struct mixture_call *call, struct tensor in, struct tensor out, struct error *err)
{
    dispatch_leave(call);
    const enum error_code e = rows_collect(call->ep, in, out, err);
    left_at(call);
    return e;
}

/* Return the rows of own experts, as the body wants them: sorted by expert, with their counts. */
static struct expert_rows rows_at_experts(const struct mixture_call *call, struct tensor results)
{
    return (struct expert_rows){ .rows = call->kept[ROWS], .up = call->kept[UP], .act = call->kept[ACT],
                                .results = results, .first = call->first,
                                 .counts = call->ep->routing->counts, .columns = call->ep->routing->columns };
}

/* A pass of the experts: the body's, or the scheme's, which has brought weights before it. */
static enum error_code dispatch_compute(struct mixture_call *call, enum tensor_pass pass, struct tensor results,
                                        struct expert_gradients gradients, struct error *err)
{
    const struct expert_rows r = rows_at_experts(call, results);
    enum error_code e = OK;
    if (pass == INPUT_PASS) expert_body_show(&call->body, &r, gradients.results, true);
    if (call->ep->scheme->compute) e = call->ep->scheme->compute(call, pass, r, gradients, err);
    else if (pass == FORWARD_PASS) e = call->body.forward(call->body.context, r, err);
    else if (pass == INPUT_PASS) e = call->body.input(call->body.context, r, gradients, err);
    else e = call->body.weight(call->body.context, r, gradients, err);
    if (pass == FORWARD_PASS && !e) expert_body_show(&call->body, &r, results, false);
    return e;
}

/* ---- parts ------------------------------------------------------------------------------------------------------- */

/* The call of a part: its rows of all tensors that lie by part, with a routing and a share of its own. */
struct part_call { struct expert_parallel ep; struct mixture_call call; };

static int dispatch_parts_of(const struct mixture_call *call) { return call->routing->part ? call->routing->parts : 1; }

static struct tensor part_rows(struct tensor t, int64_t first, int64_t count)
{
    return tensor_present(t) ? tensor_rows_of(t, first, count) : t;
}

/* Set up a part's call; without parts it is a copy of the whole call.  */
static struct mixture_call *part_of(struct part_call *part, const struct mixture_call *whole, int index)
{
    struct mixture_call *c = &part->call;
    *part = (struct part_call){ *whole->ep, *whole };
    if (whole->routing->part == NULL) return c;
    struct expert_routing *const r = &whole->routing->part[index];
    int64_t sent = 0, pool = 0, received = 0;
    for (int i = 0; i < index; i++)
        sent += whole->routing->part[i].sent, pool += whole->routing->part[i].pool,
        received += whole->routing->part[i].received;
    part->ep.routing = c->routing = r, c->ep = &part->ep, c->first = received;
    r->way.sent = part_rows(whole->routing->way.sent, sent, r->sent);
    r->way.pool = part_rows(whole->routing->way.pool, pool, r->pool);
    c->kept[ROWS] = part_rows(whole->kept[ROWS], received, r->received);
    c->kept[UP] = part_rows(whole->kept[UP], received, r->received);
    c->kept[ACT] = part_rows(whole->kept[ACT], received, r->received);
    c->kept[RESULTS] = part_rows(whole->kept[RESULTS], sent, r->sent);
    c->left[D_RESULTS] = part_rows(whole->left[D_RESULTS], received, r->received);
    c->left[D_UP] = part_rows(whole->left[D_UP], received, r->received);
    return c;
}

/* Rows are sorted by expert; those that travel in parts lie part after part. */
static enum error_code order_choices(const struct mixture_call *call, struct error *err)
{
    struct device *d = dispatch_device_of(call);
    const struct tensor order = call->kept[ORDER];
    dev_expert_order(d, order, call->kept[COUNTS], call->experts);
    if (dispatch_parts_of(call) == 1 || !d->backend->has_numbers) return OK;
    int32_t *place = malloc(2 * tensor_bytes(order) + 1), *by_expert = place + tensor_count(order);
    if (place == NULL) return dispatch_no_memory(err);
    expert_parts_order(call->ep, call->routing, place);
    struct views v = views_of(d);
    int32_t *const to = view_write(&v, order).data;
    memcpy(by_expert, to, tensor_bytes(order));
    for (int64_t i = 0; i < tensor_count(order); i++) to[i] = by_expert[place[i]];
    views_end(&v);
    free(place);
    return OK;
}

/* All parts leave one after another; each is waited for where it is computed. */
static enum error_code spread_parts(const struct mixture_call *call, struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < dispatch_parts_of(call) && !e; i++) {
        struct part_call part;
        const struct mixture_call *c = part_of(&part, call, i);
        e = dispatch_spread(c, c->routing->way.sent, c->routing->way.pool, err);
    }
    return e;
}

/* ---- phases of a pass -------------------------------------------------------------------------------------------- */

typedef enum error_code phase(struct mixture_call *, struct error *);

/* Compute part after part, with the weights of the pass; the first part may have come while they were brought. */
static enum error_code run_parts(struct mixture_call *call, enum tensor_pass pass, phase *at_experts, struct error *err)
{
    const struct expert_scheme *s = call->ep->scheme;
    const struct clock *clock = &dispatch_device_of(call)->clock;
    struct expert_pace *whole = &call->routing->pace;
    struct part_call part;
    if (dispatch_parts_of(call) == 1) dispatch_arrive(call);
    const picoseconds before = clock->now;
    enum error_code e = s->bring ? s->bring(call, pass, err) : OK;
    whole->brought = clock->now - before;
    for (int i = 0; i < dispatch_parts_of(call) && !e; i++) {
        struct mixture_call *c = dispatch_parts_of(call) == 1 ? call : part_of(&part, call, i);
        struct expert_pace *pace = &c->routing->pace;
        pace->came = c->routing->way.done;
        dispatch_arrive(c);
        pace->began = clock->now;
        e = at_experts(c, err);
        pace->ended = clock->now;
    }
    return e || s->end == NULL ? e : s->end(call, pass, err);
}

/* Wait for the results of all parts. */
static void arrive_home(struct mixture_call *call)
{
    struct part_call part;
    for (int i = 0; i < dispatch_parts_of(call); i++) dispatch_arrive(part_of(&part, call, i));
}

/* Run the phases that the call asks for; the last one, or an error, frees the rows of the way. */
static enum error_code run_phases(struct mixture_call *call, enum tensor_pass pass, phase *send, phase *at_experts,
                                  phase *take, struct error *err)
{
    /* Phases of one pass may be separate calls: other work runs between them while rows travel. */
    enum error_code e = runs(call, SEND_ROWS) ? dispatch_begin(call, err) : OK;
    if (!e && runs(call, SEND_ROWS)) e = send(call, err);
    call->routing->pace.left = call->phases == ALL_PHASES ? dispatch_device_of(call)->clock.now : -1;
    if (!e && runs(call, COMPUTE_ROWS)) e = run_parts(call, pass, at_experts, err);
    if (!e && runs(call, RETURN_ROWS)) arrive_home(call), e = take(call, err);
    if (e || runs(call, RETURN_ROWS)) dispatch_end(call);
    return e;
}

/* The gradients of the experts' rows, for the time of their computation. */
static enum error_code compute_input(struct mixture_call *call, struct expert_gradients *gradients, struct error *err)
{
    struct device *d = dispatch_device_of(call);
    gradients->act = device_tensor_2d(d, BUFFERS, tensor_rows(call->kept[ACT]), tensor_cols(call->kept[ACT]));
    gradients->rows = device_tensor_2d(d, BUFFERS, tensor_rows(call->kept[ROWS]), tensor_cols(call->kept[ROWS]));
    const enum error_code e = gradients->act.data && gradients->rows.data
        ? dispatch_compute(call, INPUT_PASS, tensor_none, *gradients, err)
                                                          : dispatch_no_memory(err);
    device_free(d, gradients->act);
    return e;
}

/* Return the gradients that backward for inputs leaves for the weights: of the results [R, D] and of up [R, 2F]. */
static struct expert_gradients left_gradients(const struct mixture_call *call)
{
    return (struct expert_gradients){ .results = call->left[D_RESULTS], .up = call->left[D_UP] };
}

/* ---- a row a choice ---------------------------------------------------------------------------------------------- */

/* The order of the k n choices by expert is kept, because results and gradients come back in it. */
static enum error_code send_choices(struct mixture_call *call, struct error *err)
{
    struct device *d = dispatch_device_of(call);
    /* sent [n k, D]: a token's row for each of its choices, sorted by expert. */
    const enum error_code e = order_choices(call, err);
    if (e) return e;
    dev_gather_forward(d, call->routing->way.sent, call->x, call->kept[ORDER], tensor_cols(call->experts));
    return spread_parts(call, err);
}

/* At the experts, sort the rows that came, compute, put the results in the order of arrival, send them home. */
static enum error_code compute_choices(struct mixture_call *call, struct error *err)
{
    struct device *d = dispatch_device_of(call);
    struct expert_routing *r = call->routing;
    /* Rows [received, D] of own experts are sorted by expert; results go back in the order in which rows came. */
    dev_gather_forward(d, call->kept[ROWS], r->way.pool, r->order, 1);
    /* The rows as sent are of no use any more, unless other parts are still on their way. */
    if (!r->whole) device_free(d, r->way.sent), r->way.sent = tensor_none;
    struct tensor results = device_tensor_2d(d, BUFFERS, tensor_rows(call->kept[ROWS]), tensor_cols(r->way.pool));
    if (results.data == NULL) return dispatch_no_memory(err);
    if (!r->whole) r->way.sent = results;
    const enum error_code e = dispatch_compute(call, FORWARD_PASS, results, (struct expert_gradients){ 0 }, err);
    if (!e) dev_gather_backward_input(d, r->way.pool, results, r->order, 1);
    if (r->whole) device_free(d, results);
    return e ? e : collect(call, r->way.pool, call->kept[RESULTS], err);
}

/* At home, in the last phase, weigh and add the k results of each row.  Recomputation has no y. */
static enum error_code add_choices(struct mixture_call *call, struct error *err)
{
    (void)err;
    if (tensor_present(call->y))
        /* y[n] = sum over the k choices of weight times result. */
        dev_combine_forward(dispatch_device_of(call), call->y, call->kept[RESULTS], call->kept[ORDER], call->weights);
    return OK;
}

static enum error_code send_choices_back(struct mixture_call *call, struct error *err)
{
    /* Gradients of results: weight dy; d_weights [n,k] = dy . result. They travel as the rows did. */
    dev_combine_backward_input(dispatch_device_of(call), call->routing->way.sent, call->d_weights, call->dy,
                               call->kept[RESULTS], call->kept[ORDER], call->weights);
    return spread_parts(call, err);
}

/* At the experts, compute the gradients of rows from those of results, and send them back to the senders. */
static enum error_code compute_choices_back(struct mixture_call *call, struct error *err)
{
    struct device *d = dispatch_device_of(call);
    struct expert_routing *r = call->routing;
    struct expert_gradients g = left_gradients(call);
    /* Gradients of results [R, D] are sorted by expert; those of rows go back the same way. */
    dev_gather_forward(d, g.results, r->way.pool, r->order, 1);
    const enum error_code e = compute_input(call, &g, err);
    if (!e) dev_gather_backward_input(d, r->way.pool, g.rows, r->order, 1);
    device_free(d, g.rows);
    return e ? e : collect(call, r->way.pool, r->way.sent, err);
}

static enum error_code add_choices_back(struct mixture_call *call, struct error *err)
{
    (void)err;
    /* dx[n] = sum over the row's k choices. */
    dev_gather_backward_input(dispatch_device_of(call), call->dx, call->routing->way.sent, call->kept[ORDER],
                              tensor_cols(call->experts));
    return OK;
}

/* ---- a row once, with its weights -------------------------------------------------------------------------------- */

static enum error_code send_rows(struct mixture_call *call, struct error *err)
{
    /* A row goes once to each place with experts of it; its k weights go along. */
    const enum error_code e = dispatch_spread(call, call->x, call->routing->way.pool, err);
    return e ? e : dispatch_spread(call, call->weights, call->kept[WEIGHTS], err);
}

static struct tensor rows_of_sums(struct device *device, enum dtype dtype, int64_t rows, int64_t cols)
{
    return tensor_2d(device_tensor_in(device, BUFFERS, dtype, rows * cols).data, dtype, rows, cols);
}

/* Sums of a device's rows: in a buffer of their own if they are not rounded, or if others may use y or dx meanwhile. */
static enum error_code come_home(struct mixture_call *call, struct tensor sums, struct tensor to, struct error *err)
{
    struct expert_routing *r = call->routing;
    struct device *d = dispatch_device_of(call);
    if (call->phases == ALL_PHASES && sums.dtype == to.dtype) return collect(call, sums, to, err);
    r->way.sent = rows_of_sums(d, sums.dtype, tensor_rows(to), tensor_cols(to));
    return r->way.sent.data ? collect(call, sums, r->way.sent, err) : dispatch_no_memory(err);
}

/* Run one of both: what the pool's rows add up to here, in the pool itself or, if sums must be exact, in `sums`. */
static enum error_code add_and_come_home(struct mixture_call *call, struct tensor rows, struct tensor weights,
                                         struct tensor to, struct error *err)
{
    struct device *d = dispatch_device_of(call);
    const struct tensor pool = call->routing->way.pool, order = call->routing->order;
    const struct tensor sums = adds_exactly(call->ep)
        ? rows_of_sums(d, EXACT, tensor_rows(pool), tensor_cols(pool)) : pool;
    if (sums.data == NULL) return dispatch_no_memory(err);
    if (tensor_present(weights)) dev_combine_forward(d, sums, rows, order, weights);
    else dev_gather_backward_input(d, sums, rows, order, tensor_cols(call->experts));
    const enum error_code e = come_home(call, sums, to, err);
    if (sums.data != pool.data) device_free(d, sums);
    return e;
}

/* At the experts, each row of the pool is computed once for each of its choices that is here. */
static enum error_code compute_rows(struct mixture_call *call, struct error *err)
{
    struct device *d = dispatch_device_of(call);
    struct expert_routing *r = call->routing;
    dev_gather_forward(d, call->kept[ROWS], r->way.pool, r->order, tensor_cols(call->experts));
    const enum error_code e = dispatch_compute(call, FORWARD_PASS, call->kept[RESULTS],
                                               (struct expert_gradients){ 0 }, err);
    if (e || !tensor_present(call->y)) return e;
    /* A row gets the weighted sum over the experts that are here; the way home adds up the sums of all places. */
    return add_and_come_home(call, call->kept[RESULTS], call->kept[WEIGHTS], call->y, err);
}

/* Copy what came home in a buffer of its own, or round finished sums; if all phases were one call there may be none. */
static enum error_code take_home(const struct mixture_call *call, struct tensor to, struct error *err)
{
    const struct tensor from = call->routing->way.sent;
    if (tensor_count(from) == 0) return OK;
    if (from.dtype != to.dtype) return terms_round(dispatch_device_of(call), to, from, err);
    device_copy(dispatch_device_of(call), to.data, from.data, tensor_bytes(to));
    return OK;
}

static enum error_code take_rows(struct mixture_call *call, struct error *err)
{
    return take_home(call, call->y, err);
}

/* Gradients of y [n, D] go the way of the rows; the weights are still at the experts. */
static enum error_code send_rows_back(struct mixture_call *call, struct error *err)
{
    return dispatch_spread(call, call->dy, call->routing->way.pool, err);
}

/* At the experts, compute gradients of rows and of weights; both sums come home by the same hops. */
static enum error_code compute_rows_back(struct mixture_call *call, struct error *err)
{
    struct device *d = dispatch_device_of(call);
    struct expert_routing *r = call->routing;
    struct expert_gradients g = left_gradients(call);
    const int64_t k = tensor_cols(call->experts);
    const int64_t rows = tensor_rows(r->way.pool);
    const enum dtype wide = format_of_weights(call->ep);
    /* d_weights [pool, k] is wide; choices of other devices' experts stay zero and add nothing. */
    const struct tensor d_weights = tensor_2d(device_tensor_in(d, BUFFERS, wide, rows * k).data, wide, rows, k);
    enum error_code e = d_weights.data ? OK : dispatch_no_memory(err);
    if (!e) {
        /* Each row gives gradients of its results here, and of the weights of choices that are here. */
        dev_combine_backward_input(d, g.results, d_weights, r->way.pool, call->kept[RESULTS], r->order,
                                   call->kept[WEIGHTS]);
        e = compute_input(call, &g, err);
    }
    if (!e) {
        /* A row's gradient is the sum over its experts here, then over all places on the way home. */
        e = add_and_come_home(call, g.rows, tensor_none, call->dx, err);
    }
    if (!e) e = collect(call, d_weights, call->d_weights, err);
    device_free(d, g.rows), device_free(d, d_weights);
    return e;
}

static enum error_code take_rows_back(struct mixture_call *call, struct error *err)
{
    return take_home(call, call->dx, err);
}

/* ---- passes ------------------------------------------------------------------------------------------------------ */

/* The two forms differ in their three phases alone. */
enum error_code dispatch_forward(struct mixture_call *call, struct error *err)
{
    const enum tensor_pass pass = tensor_present(call->y) ? FORWARD_PASS : EXCHANGE_PASS;
    return weighs_there(call) ? run_phases(call, pass, send_rows, compute_rows, take_rows, err)
                              : run_phases(call, pass, send_choices, compute_choices, add_choices, err);
}

enum error_code dispatch_input(struct mixture_call *call, struct error *err)
{
    return weighs_there(call)
        ? run_phases(call, INPUT_PASS, send_rows_back, compute_rows_back, take_rows_back, err)
        : run_phases(call, INPUT_PASS, send_choices_back, compute_choices_back, add_choices_back, err);
}

enum error_code dispatch_weight(struct mixture_call *call, struct error *err)
{
    const struct expert_scheme *s = call->ep->scheme;
    struct part_call part;
    enum error_code e = s->bring ? s->bring(call, WEIGHT_PASS, err) : OK;
    for (int i = 0; i < dispatch_parts_of(call) && !e; i++) {
        struct mixture_call *c = part_of(&part, call, i);
        e = dispatch_compute(c, WEIGHT_PASS, tensor_none, left_gradients(c), err);
    }
    return e || s->end == NULL ? e : s->end(call, WEIGHT_PASS, err);
}

void dispatch_cost(struct forecast *forecast, const struct expert_parallel *ep, enum tensor_pass pass)
{
    const enum dtype own = ep->tp->device->dtype, wide = format_of_weights(ep);
    const enum dtype sums = ep->scheme->weighs_there && adds_exactly(ep) ? EXACT : own;
    const int64_t D = ep->tp->config->D, k = ep->tp->config->mixture.k;
    const bool there = ep->scheme->weighs_there;
    /* Weights that a scheme gathers are its own cost; the rows' hops are counted here. */
    if (ep->scheme->compute_cost) ep->scheme->compute_cost(forecast, ep, pass);
    if (pass == WEIGHT_PASS) return;
    for (int i = 0; ep->routing && ep->routing->part && i < ep->routing->parts; i++) {
        struct expert_parallel part = *ep;
        part.routing = &ep->routing->part[i];
        rows_spread_cost(forecast, &part, 0, own, D), rows_collect_cost(forecast, &part, own, D);
    }
    if (ep->routing && ep->routing->part) return;
    /* Rows [sent, D] go there and results come back; weighed rows also take k weights, and bring back k gradients. */
    rows_spread_cost(forecast, ep, 0, own, D);
    if (!there || pass != EXCHANGE_PASS) rows_collect_cost(forecast, ep, sums, D);
    if (there && pass != INPUT_PASS) rows_spread_cost(forecast, ep, 0, wide, k);
    if (there && pass == INPUT_PASS) rows_collect_cost(forecast, ep, wide, k);
}
