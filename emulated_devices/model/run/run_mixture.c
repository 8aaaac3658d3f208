/* run_mixture.c -- a mixture of experts: the router's choice, and the call of the expert scheme, which delivers rows to
 * the experts of run_experts.c.
 *
 * Source  as ref/model/mixture.c, whose order of operations this follows
 * Called  run_node.c calls these functions.  Errors: ERR_MEMORY without room for rows, and those of the expert
 *         scheme, after which the step cannot go on.
 */
#include "emulated_devices/model/run/run_node.h"
#include "emulated_devices/model/run/pooled.h"
#include "emulated_devices/model/balance.h"
#include "emulated_devices/model/whole_sequences.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/experts/expert_terms.h"
#include "emulated_devices/schemes/experts/hops.h"
#include "ref/model/balance.h"
#include "ref/model/params.h"
#include "ref/model/sample_mask.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct tensor run_mixture_kept(const struct node_call *call, int which)
{
    return node_buffer(call, call->node->statistic[which]);
}
static const struct mixture_config *mixture(const struct node_call *call) { return &call->stage->plan->model.mixture; }
static int64_t run_mixture_columns(const struct node_call *call) { return mixture_columns(mixture(call)); }

/* ---- the experts' devices ---------------------------------------------------------------------------------------- */

static struct expert_parallel *experts_here(const struct node_call *call)
{
    struct expert_parallel *ep = &call->stage->seams->ep;
    ep->layer = call->part->layer;
    ep->routing = stage_seams(call->stage, call->micro, call->part).ep.routing;
    return ep;
}

/* The rows of a tensor that are this device's alone: of those that devices along tp have too its share. */
static struct tensor alone(const struct expert_parallel *ep, struct tensor t)
{
    const struct interval own = expert_share(ep, tensor_rows(t));
    return tensor_present(t) ? tensor_rows_of(t, own.first, own.count) : t;
}

/* The rows of a tensor that this device sends to experts. */
static struct tensor own_share(const struct expert_parallel *ep, struct tensor t)
{
    return ep->scheme->cuts_experts ? alone(ep, t) : t;
}

/* Where devices along tp have other rows of a result, this one adds zeros. */
static void clear_shares(const struct node_call *call, struct tensor t)
{
    const struct expert_parallel *ep = &call->stage->seams->ep;
    if (ep->scheme->cuts_experts && experts_share_rows(ep) && tensor_present(t)) device_zero(call->stage->device, t);
}

/* Enter what the formulas say of a call, in its first part. */
static void enter_pass(const struct node_call *call, enum tensor_pass pass)
{
    if (!(call->phases & SEND_ROWS)) return;
    const struct expert_parallel *ep = &call->stage->seams->ep;
    struct forecast f = { .tp = call->stage->tp };
    if (ep->scheme->cost) ep->scheme->cost(&f, ep, pass);
    /* Sums over F on devices along tp are in link_cost.c. */
    const struct expert_routing *const r = ep->routing;
    const int parts = r->part ? r->parts : 1;
    for (int i = 0; i < parts && ep->scheme->cuts_experts; i++)
        forecast_expert_terms(&f, experts_row_group(ep, r), r->experts.count,
                              r->part ? r->part[i].received : r->received, pass);
    account_add(&call->stage->dispatched, f.sum, 1);
}

/* The rows of the batch that this device routes; for intervals_free. */
static struct intervals routed_rows(const struct node_call *call)
{
    struct intervals rows = { 0 };
    intervals_add_part(&rows, &call->micro->rows, tensor_rows_at(call->stage->tp, STREAM, call->micro->N));
    return rows;
}


/* Find where in the batch the rows are that experts compute here. */
static enum error_code run_mixture_trace(const struct node_call *call, const struct choices *told, int64_t first,
                                         struct error *err)
{
    struct intervals rows = routed_rows(call);
    int32_t *place = malloc((size_t)(intervals_total(&rows) + 1) * sizeof *place);
    int64_t n = 0;
    enum error_code e = place && !intervals_lost(&rows) ? OK
                        : fail(err, ERR_MEMORY, "no memory to follow rows to their experts");
    for (int i = 0; i < rows.count && !e; i++)
        for (int64_t row = rows.at[i].first; row < interval_end(rows.at[i]); row++) place[n++] = (int32_t)row;
    if (!e)
        e = rows_trace(&call->micro->routing[call->part - call->stage->part], experts_here(call), mixture(call)->E,
                       told, place + first, err);
    intervals_free(&rows), free(place);
    return e;
}

/* Announce the choices of this device's rows, [rows, k]. */
static enum error_code run_mixture_announce(const struct node_call *call, const int32_t *chosen, struct error *err)
{
    struct expert_parallel *ep = experts_here(call);
    struct forecast f = { .tp = call->stage->tp };
    const struct tensor own = own_share(ep, run_mixture_kept(call, 0));
    const int64_t rows = tensor_rows(run_mixture_kept(call, 0)), k = mixture(call)->k;
    const int64_t first = ep->scheme->cuts_experts ? expert_share(ep, rows).first : 0;
    const struct choices told = { chosen + first * k, tensor_rows(own), k, pooled_choices(call, ep) };
    const enum error_code e = ep->scheme->announce(&call->micro->routing[call->part - call->stage->part],
                                                   ep, &told, err);
    if (!e && ep->scheme->announce_cost) ep->scheme->announce_cost(&f, ep);
    account_add(&call->stage->dispatched, f.sum, 1);
    return e || !run_experts_shows(call) ? e : run_mixture_trace(call, &told, first, err);
}

/* ---- the router's choice ----------------------------------------------------------------------------------------- */

/* Consecutive rows that this device routes, of one balance loss and without padding: where they are among its rows. */
struct judged { struct interval rows; int64_t loss; };
struct judged_rows { struct judged *at; int count; };

/* Add consecutive rows of the batch: `at` is the place of the first among this device's, cut where the loss changes. */
static void add_judged(const struct node_call *call, struct judged_rows *judged, int64_t at, struct interval rows)
{
    const int64_t S = call->stage->plan->S;
    for (int64_t row = rows.first, n; row < interval_end(rows); row += n, at += n) {
        struct judged *const last = judged->count > 0 ? &judged->at[judged->count - 1] : NULL;
        const int64_t loss = balance_loss_at(call->stage, call->micro, call->part->layer, row), left = S - row % S;
        n = interval_end(rows) - row < left ? interval_end(rows) - row : left;
        if (last && last->loss == loss && interval_end(last->rows) == at) last->rows.count += n;
        else judged->at[judged->count++] = (struct judged){ { at, n }, loss };
    }
}

/* Find the rows that this device routes and that are no padding: losses and biases are of these
 * (docs/parallelism/routers.md).
 * @return false without memory; else for free(judged->at). */
static bool find_judged(const struct node_call *call, struct judged_rows *judged)
{
    const int32_t *const within = call->stage->plan->within;
    struct intervals rows = routed_rows(call);
    int64_t at = 0;
    *judged = (struct judged_rows){ malloc((size_t)(intervals_total(&rows) + 1) * sizeof *judged->at), 0 };
    const bool found = judged->at && !intervals_lost(&rows);
    for (int i = 0; i < rows.count && found; at += rows.at[i++].count) {
        const int32_t *const here = within ? within + rows.at[i].first : NULL;
        for (int64_t first = 0, n; (n = tokens_without_padding(here, rows.at[i].count, &first)) > 0; first += n)
            add_judged(call, judged, at + first, (struct interval){ rows.at[i].first + first, n });
    }
    intervals_free(&rows);
    if (!found) free(judged->at), judged->at = NULL;
    return found;
}

static enum error_code no_memory_to_judge(struct error *err)
{
    return fail(err, ERR_MEMORY, "no memory for the rows of a router");
}

/* Count the choices of a biased router's layer.  On devices without numbers nobody reads them. */
static void run_mixture_count_choices(const struct node_call *call, struct tensor choices)
{
    const bool counts = mixture(call)->router.biased && call->stage->device->backend->has_numbers;
    double *count = call->stage->routers.sums + ROUTERS_CHOICES + call->part->layer * run_mixture_columns(call);
    struct views v = views_of(call->stage->device);
    const int32_t *expert = view_read(&v, choices).data;
    for (int64_t i = 0; i < tensor_count(choices) && counts; i++)
        if (expert[i] != CHOICE_NONE) count[choice_made(expert[i])]++;
    views_end(&v);
}

/* A row whose logits are not finite makes the sum of the z loss so. */
static void find_lost(const struct node_call *call, struct tensor logits)
{
    const int64_t before = call->part->layer * call->stage->plan->B * call->stage->plan->S,
        E = run_mixture_columns(call);
    double *lost = call->stage->routers.lost;
    struct intervals rows = routed_rows(call);
    struct views v = views_of(call->stage->device);
    const struct tensor x = view_read(&v, logits);
    for (int i = 0, n = 0; i < rows.count; i++)
        for (int64_t row = rows.at[i].first; row < interval_end(rows.at[i]); row++, n++)
            for (int64_t e = 0; e < E; e++)
                if (!isfinite(tensor_get(x, n * E + e))) *lost = fmin(*lost, (double)(before + row));
    views_end(&v);
    intervals_free(&rows);
}

/* The weight in the step's loss of one row, or sequence, whose optimizer step has `all` of them. */
static double share_of_loss(const struct node_call *call, double all)
{
    return balance_weight(call->stage, call->micro) / all;
}

/* Add rows to the sums of their balance loss, whose last number counts rows, and to that of the z loss. */
static void add_to_sums(const struct node_call *call, const struct judged *judged, struct tensor logits,
                        struct tensor choices)
{
    double *const sums = balance_sums_of(call->stage, call->micro, judged->loss),
        *const z = &sums[2 * run_mixture_columns(call)], rows = *z;
    *z = 0;
    dev_router_losses_forward(call->stage->device, sums,
                              tensor_rows_of(logits, judged->rows.first, judged->rows.count), choices,
                              balance_counted(mixture(call)));
    call->stage->routers.sums[ROUTERS_Z] += *z * share_of_loss(call, balance_rows(call->stage, call->micro,
                                                                                  call->part->layer));
    *z = rows + (double)judged->rows.count;
}

/* Losses and biases are of choices as they were made, before any is dropped. */
static enum error_code run_mixture_judge(const struct node_call *call, struct tensor logits, struct tensor whole,
                                         struct error *err)
{
    struct judged_rows judged;
    double *const sums = call->stage->routers.sums, own = 0;
    if (!find_judged(call, &judged)) return no_memory_to_judge(err);
    for (int i = 0; i < judged.count; i++) {
        const struct interval own = judged.at[i].rows;
        const struct tensor choices = tensor_rows_of(run_mixture_kept(call, 0), own.first, own.count);
        add_to_sums(call, &judged.at[i], logits, choices);
        run_mixture_count_choices(call, choices);
    }
    free(judged.at);
    if (mixture(call)->sequence_coefficient > 0)
        dev_sequence_balance_forward(call->stage->device, &own, logits, run_mixture_kept(call, 0), whole,
                                     call->stage->plan->S, &mixture(call)->router);
    if (own != 0)
        sums[ROUTERS_SEQUENCE] += own * share_of_loss(call,
                                                      balance_sequences(call->stage, call->micro, call->part->layer));
    if (!isfinite(sums[ROUTERS_Z])) find_lost(call, logits);
    return balance_after_layer(call->stage, call->micro, call->part->layer, err);
}

/* Whether a load says where rows go: the plan's, or, where no router has numbers, one that is even. */
static bool deals(const struct node_call *call)
{
    return call->stage->plan->load != NULL || !call->stage->device->backend->has_numbers;
}

/* Deal the load's choices to this device's rows. */
static enum error_code deal(const struct node_call *call, int32_t *chosen, struct error *err)
{
    const struct plan *p = call->stage->plan;
    struct intervals rows = routed_rows(call);
    enum error_code e = intervals_lost(&rows) ? fail(err, ERR_MEMORY, "no memory for the rows of a router") : OK;
    for (int i = 0; i < rows.count && !e; chosen += rows.at[i++].count * mixture(call)->k)
        e = load_deal(p->load, &p->model, p->S, call->stage->routers.step, call->part->layer, rows.at[i].first,
                      rows.at[i].count, chosen, err);
    intervals_free(&rows);
    return e;
}

/* The experts of this device's rows, on the device; chosen: the same in the host's memory, if a load deals them. */
static enum error_code run_mixture_choose(const struct node_call *call, struct tensor logits, struct tensor weights,
                                          int32_t *chosen, struct error *err)
{
    struct device *d = call->stage->device;
    const struct tensor experts = run_mixture_kept(call, 0);
    if (!deals(call)) {
        dev_route_forward(d, weights, experts, logits, &mixture(call)->router,
                          call->stage->routers.bias + call->part->layer * run_mixture_columns(call));
        return OK;
    }
    const enum error_code e = deal(call, chosen, err);
    if (!e && d->backend->has_numbers) device_copy(d, experts.data, chosen, tensor_bytes(experts));
    if (!e) dev_route_weights(d, weights, experts, logits, &mixture(call)->router);
    return e;
}

/* Drop choices for which there is no room.  A load has done so: only weights are left to clear. */
static void run_mixture_drop(const struct node_call *call, struct whole_sequences *whole, struct tensor weights)
{
    const struct mixture_config *m = mixture(call);
    const int64_t S = call->stage->plan->S, room = deals(call) ? S * m->k : mixture_capacity(m, S);
    dev_route_drop(call->stage->device, whole->weights, whole->experts, S, m->E, room, m->drops_by_weight);
    whole_sequences_return(whole, run_mixture_kept(call, 0), weights);
}

/* Read what the device has chosen, if no load has dealt it; then who wants to know is told. */
static enum error_code tell_choices(const struct node_call *call, int32_t *chosen, struct error *err)
{
    const struct tensor experts = run_mixture_kept(call, 0);
    const struct plan *p = call->stage->plan;
    const size_t row = (size_t)mixture(call)->k * sizeof *chosen;
    int32_t *const all = call->stage->routers.chosen;
    if (!deals(call)) device_copy(call->stage->device, chosen, experts.data, tensor_bytes(experts));
    if (all == NULL) return run_mixture_announce(call, chosen, err);
    struct intervals rows = routed_rows(call);
    const int32_t *from = chosen;
    for (int i = 0; i < rows.count; from += rows.at[i++].count * mixture(call)->k)
        memcpy(all + (call->part->layer * plan_stream_rows(p) + rows.at[i].first) * mixture(call)->k, from,
               (size_t)rows.at[i].count * row);
    intervals_free(&rows);
    return run_mixture_announce(call, chosen, err);
}

static enum error_code route(const struct node_call *call, int32_t *chosen, struct error *err)
{
    const struct tensor logits = node_buffer(call, call->node->x[0]), weights = node_buffer(call, call->node->y);
    const struct context_parallel cp = stage_seams(call->stage, call->micro, call->part).cp;
    const bool drops = mixture(call)->capacity_factor > 0, balances = mixture(call)->sequence_coefficient > 0
        && !call->again;
    struct whole_sequences whole = { .cp = &cp };
    enum error_code e = run_mixture_choose(call, logits, weights, chosen, err);
    if (!e && (drops || balances))
        e = whole_sequences_open(&whole, &cp, run_mixture_kept(call, 0), drops ? weights : tensor_none, err);
    /* Requests have no losses of routers. */
    if (!e && !call->again && call->stage->answering == NULL) e = run_mixture_judge(call, logits, whole.experts, err);
    if (!e && drops) run_mixture_drop(call, &whole, weights);
    whole_sequences_close(&whole);
    if (!e && !call->again)
        stage_show(call->stage, call->micro, "router.experts", call->part->layer, false, run_mixture_kept(call, 0));
    return e || call->again ? e : tell_choices(call, chosen, err);
}

enum error_code node_route_forward(const struct node_call *call, struct error *err)
{
    int32_t *chosen = malloc(tensor_bytes(run_mixture_kept(call, 0)) + 1);
    const enum error_code e = chosen ? route(call, chosen, err)
                                     : fail(err, ERR_MEMORY, "no memory for the choices of a router");
    free(chosen);
    return e;
}

/* The gradients of the balance loss and the z loss. */
static enum error_code losses_input(const struct node_call *call, struct tensor d_logits, struct tensor logits,
                                    struct error *err)
{
    struct judged_rows judged;
    const double z = call->stage->loss_scale * 2 * mixture(call)->z_coefficient;
    if (!find_judged(call, &judged)) return no_memory_to_judge(err);
    for (int i = 0; i < judged.count; i++) {
        const struct interval own = judged.at[i].rows;
        dev_router_losses_backward_input(call->stage->device, tensor_rows_of(d_logits, own.first, own.count),
                                         tensor_rows_of(logits, own.first, own.count),
                                         balance_slope_of(call->stage, call->micro, judged.at[i].loss),
                                         z / balance_rows(call->stage, call->micro, call->part->layer));
    }
    free(judged.at);
    return OK;
}

enum error_code node_route_input(const struct node_call *call, struct error *err)
{
    const struct linked_node *n = call->node;
    const struct tensor d_logits = node_buffer(call, n->dx[0]), logits = node_buffer(call, n->x[0]);
    const struct context_parallel cp = stage_seams(call->stage, call->micro, call->part).cp;
    const double slope = call->stage->loss_scale * mixture(call)->sequence_coefficient;
    struct whole_sequences whole;
    dev_route_backward_input(call->stage->device, d_logits, node_buffer(call, n->dy), node_buffer(call, n->y),
                             run_mixture_kept(call, 0), logits, &mixture(call)->router);
    enum error_code e = losses_input(call, d_logits, logits, err);
    if (e || mixture(call)->sequence_coefficient == 0) return e;
    e = whole_sequences_open(&whole, &cp, run_mixture_kept(call, 0), tensor_none, err);
    if (!e)
        dev_sequence_balance_backward_input(call->stage->device, d_logits, logits, run_mixture_kept(call, 0),
                                            whole.experts, call->stage->plan->S, &mixture(call)->router,
                                            slope / balance_sequences(call->stage, call->micro, call->part->layer));
    whole_sequences_close(&whole);
    return e;
}

/* ---- the call of the scheme -------------------------------------------------------------------------------------- */

/* The node that wrote the weights (the route) keeps the choices. */
static struct tensor choices(const struct node_call *call)
{
    const struct linked *l = &call->part->linked;
    return node_buffer(call, l->node[l->slot[call->node->in[1]].maker].statistic[0]);
}

/* The rows of the stream that this device has. */
static struct tensor stream_rows(const struct node_call *call)
{
    return tensor_own_rows(call->stage->tp, node_buffer(call, call->node->x[0]), call->micro->N);
}

static struct mixture_call mixture_call(const struct node_call *call)
{
    const struct linked_node *n = call->node;
    struct expert_parallel *ep = experts_here(call);
    const struct tensor x = stream_rows(call);
    struct mixture_call m = { .ep = ep, .phases = call->phases,
                              .routing = call->micro->routing
                                  ? &call->micro->routing[call->part - call->stage->part] : NULL,
                              .body = run_experts_body(call),
                              .x = own_share(ep, x), .y = own_share(ep, node_buffer(call, n->y)),
                              .weights = own_share(ep, node_buffer(call, n->x[1])),
                              .experts = own_share(ep, choices(call)) };
    for (int i = 0; i < ep->scheme->slots; i++) m.kept[i] = node_buffer(call, n->statistic[i]);
    for (int i = 0; i < ep->scheme->gradient_slots; i++) m.left[i] = node_buffer(call, n->gradient[i]);
    return m;
}

/* The rows to which this device adds what experts that return what they get give: those that are its alone, unless all
 * its rows are finished. */
static struct tensor returned_rows(const struct node_call *call, struct tensor t)
{
    return run_experts_are_finished(call) ? t : alone(&call->stage->seams->ep, t);
}

/* Add what experts that return what they get give to a sum, of rows of values: y of x, or dx of dy.  Rows that
 * devices along tp have too are each added by one of them. */
static void add_identity(const struct node_call *call, struct tensor sum, struct tensor values)
{
    if (mixture(call)->zero == 0 || mixture(call)->zero_is_null) return;
    dev_identity_forward(call->stage->device, returned_rows(call, sum), returned_rows(call, values),
                         returned_rows(call, choices(call)), returned_rows(call, node_buffer(call, call->node->x[1])),
                         mixture(call)->E);
}

static void weigh_identity(const struct node_call *call, struct tensor d_weights, struct tensor dy)
{
    if (mixture(call)->zero == 0 || mixture(call)->zero_is_null) return;
    dev_identity_backward_weights(call->stage->device, returned_rows(call, d_weights), returned_rows(call, dy),
                                  returned_rows(call, stream_rows(call)),
                                  returned_rows(call, choices(call)), mixture(call)->E);
}

/* Results of tensor parallelism's parts of experts, or of its shares of rows, are summands that must be reduced: the
 * output and both gradients.  The gradient of the route's weights must be reduced before the router uses it. */
enum error_code node_mixture_forward(const struct node_call *call, struct error *err)
{
    struct mixture_call m = mixture_call(call);
    const struct tensor y = call->again && leaves_part(call->node) ? tensor_none : node_buffer(call, call->node->y);
    if (!tensor_present(y)) m.y = tensor_none;          /* recompute only what the scheme keeps */
    if (call->phases & RETURN_ROWS) clear_shares(call, y);
    enter_pass(call, tensor_present(y) ? FORWARD_PASS : EXCHANGE_PASS);
    const enum error_code e = m.ep->scheme->forward(&m, err);
    if (e || !tensor_present(y) || !(call->phases & RETURN_ROWS)) return e;
    add_identity(call, y, stream_rows(call));
    return run_experts_are_finished(call) ? OK : tensor_add_parts(call->stage->tp, y, err);
}

enum error_code node_mixture_input(const struct node_call *call, struct error *err)
{
    struct mixture_call m = mixture_call(call);
    const struct tensor dx = node_buffer(call, call->node->dx[0]), d_weights = node_buffer(call, call->node->dx[1]);
    const struct tensor dy = tensor_own_rows(call->stage->tp, node_buffer(call, call->node->dy), call->micro->N);
    m.dx = own_share(m.ep, dx), m.d_weights = own_share(m.ep, d_weights), m.dy = own_share(m.ep, dy);
    if (call->phases & RETURN_ROWS) clear_shares(call, dx);
    if (call->phases & SEND_ROWS) clear_shares(call, d_weights);
    enter_pass(call, INPUT_PASS);
    enum error_code e = m.ep->scheme->input(&m, err);
    if (e || !(call->phases & RETURN_ROWS)) return e;
    add_identity(call, dx, dy), weigh_identity(call, d_weights, dy);
    if (run_experts_are_finished(call)) return OK;
    e = tensor_add_parts(call->stage->tp, dx, err);
    return e ? e : tensor_add_parts(call->stage->tp, d_weights, err);
}

/* Without rows: a call that moves weights alone. */
static struct mixture_call weights_call(const struct node_call *call)
{
    struct expert_parallel *ep = experts_here(call);
    return (struct mixture_call){ .ep = ep, .routing = &call->micro->routing[call->part - call->stage->part],
                                  .phases = ALL_PHASES, .body = run_experts_body(call) };
}

enum error_code node_mixture_bring(const struct node_call *call, enum tensor_pass pass, struct error *err)
{
    struct mixture_call m = weights_call(call);
    const struct expert_scheme *s = m.ep->scheme;
    if (s->place == NULL || !s->brings(m.ep, pass)) return OK;
    const enum error_code e = pass == FORWARD_PASS ? s->place(m.ep, m.routing, err) : OK;
    return e ? e : s->bring(&m, pass, err);
}

void node_mixture_finish(const struct node_call *call)
{
    struct mixture_call m = weights_call(call);
    if (m.ep->scheme->finish) m.ep->scheme->finish(&m);
}

enum error_code node_mixture_weight(const struct node_call *call, struct error *err)
{
    struct mixture_call m = mixture_call(call);
    enter_pass(call, WEIGHT_PASS);
    return m.ep->scheme->weight(&m, err);
}
