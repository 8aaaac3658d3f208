/* run_mixture.c -- a mixture of experts: the router's choice, and the experts' work on the rows that the expert scheme
 * delivers.
 *
 * Source  as ref/model/mixture.c, whose order of operations this follows
 */
#include "emulated_devices/model/run/run_node.h"
#include "emulated_devices/model/balance.h"
#include "emulated_devices/model/whole_sequences.h"
#include "emulated_devices/device/compute.h"
#include "ref/model/balance.h"
#include "ref/model/sample_mask.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static struct tensor kept(const struct node_call *c, int which) { return node_buffer(c, c->node->statistic[which]); }
static const struct mixture_config *mixture(const struct node_call *c) { return &c->stage->plan->model.mixture; }
static int64_t columns(const struct node_call *c) { return mixture_columns(mixture(c)); }

/* ---- the experts' devices ---------------------------------------------------------------------------------------- */

static struct expert_parallel *experts_here(const struct node_call *c)
{
    struct expert_parallel *ep = &c->stage->seams->ep;
    ep->layer = c->part->layer;
    ep->routing = stage_seams(c->stage, c->micro, c->part).ep.routing;
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
static void clear_shares(const struct node_call *c, struct tensor t)
{
    const struct expert_parallel *ep = &c->stage->seams->ep;
    if (ep->scheme->cuts_experts && experts_share_rows(ep) && tensor_present(t)) device_zero(c->stage->device, t);
}

/* Enter what the formulas say of a call, in its first part. */
static void enter_pass(const struct node_call *c, enum tensor_pass pass)
{
    if (!(c->phases & SEND_ROWS)) return;
    const struct expert_parallel *ep = &c->stage->seams->ep;
    struct forecast f = { .tp = c->stage->tp };
    if (ep->scheme->cost) ep->scheme->cost(&f, ep, pass);
    account_add(&c->stage->dispatched, f.sum, 1);
}

/* Announce the choices of this device's rows, [rows, k]. */
static enum error_code announce(const struct node_call *c, const int32_t *chosen, struct error *err)
{
    struct expert_parallel *ep = experts_here(c);
    struct forecast f = { .tp = c->stage->tp };
    const struct tensor own = own_share(ep, kept(c, 0));
    const int64_t rows = tensor_rows(kept(c, 0)), k = mixture(c)->k;
    const int64_t first = ep->scheme->cuts_experts ? expert_share(ep, rows).first : 0;
    const struct choices told = { chosen + first * k, tensor_rows(own), k };
    const enum error_code e = ep->scheme->announce(&c->micro->routing[c->part - c->stage->part], ep, &told, err);
    if (!e && ep->scheme->announce_cost) ep->scheme->announce_cost(&f, ep);
    account_add(&c->stage->dispatched, f.sum, 1);
    return e;
}

/* ---- the router's choice ----------------------------------------------------------------------------------------- */

/* The rows of the batch that this device routes; for intervals_free. */
static struct intervals routed_rows(const struct node_call *c)
{
    struct intervals rows = { 0 };
    intervals_add_part(&rows, &c->micro->rows, tensor_rows_at(c->stage->tp, STREAM, c->micro->N));
    return rows;
}

/* Consecutive rows that this device routes, of one balance loss and without padding: where they are among its rows. */
struct judged { struct interval rows; int64_t loss; };
struct judged_rows { struct judged *at; int count; };

/* Add consecutive rows of the batch: `at` is the place of the first among this device's, cut where the loss changes. */
static void add_judged(const struct node_call *c, struct judged_rows *judged, int64_t at, struct interval rows)
{
    const int64_t S = c->stage->plan->S;
    for (int64_t row = rows.first, n; row < interval_end(rows); row += n, at += n) {
        struct judged *const last = judged->count > 0 ? &judged->at[judged->count - 1] : NULL;
        const int64_t loss = balance_loss_at(c->stage, c->micro, c->part->layer, row), left = S - row % S;
        n = interval_end(rows) - row < left ? interval_end(rows) - row : left;
        if (last && last->loss == loss && interval_end(last->rows) == at) last->rows.count += n;
        else judged->at[judged->count++] = (struct judged){ { at, n }, loss };
    }
}

/* Find the rows that this device routes and that are no padding: losses and biases are of these
 * (docs/parallelism/routers.md).
 * @return false without memory; else for free(judged->at). */
static bool find_judged(const struct node_call *c, struct judged_rows *judged)
{
    const int32_t *const within = c->stage->plan->within;
    struct intervals rows = routed_rows(c);
    int64_t at = 0;
    *judged = (struct judged_rows){ malloc((size_t)(intervals_total(&rows) + 1) * sizeof *judged->at), 0 };
    const bool found = judged->at && !intervals_lost(&rows);
    for (int i = 0; i < rows.count && found; at += rows.at[i++].count) {
        const int32_t *const here = within ? within + rows.at[i].first : NULL;
        for (int64_t first = 0, n; (n = tokens_without_padding(here, rows.at[i].count, &first)) > 0; first += n)
            add_judged(c, judged, at + first, (struct interval){ rows.at[i].first + first, n });
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
static void count_choices(const struct node_call *c, struct tensor choices)
{
    const bool counts = mixture(c)->router.biased && c->stage->device->backend->has_numbers;
    double *count = c->stage->routers.sums + ROUTERS_CHOICES + c->part->layer * columns(c);
    struct views v = views_of(c->stage->device);
    const int32_t *expert = view_read(&v, choices).data;
    for (int64_t i = 0; i < tensor_count(choices) && counts; i++)
        if (expert[i] != CHOICE_NONE) count[choice_made(expert[i])]++;
    views_end(&v);
}

/* A row whose logits are not finite makes the sum of the z loss so. */
static void find_lost(const struct node_call *c, struct tensor logits)
{
    const int64_t before = c->part->layer * c->stage->plan->B * c->stage->plan->S, E = columns(c);
    double *lost = c->stage->routers.lost;
    struct intervals rows = routed_rows(c);
    struct views v = views_of(c->stage->device);
    const struct tensor x = view_read(&v, logits);
    for (int i = 0, n = 0; i < rows.count; i++)
        for (int64_t row = rows.at[i].first; row < interval_end(rows.at[i]); row++, n++)
            for (int64_t e = 0; e < E; e++)
                if (!isfinite(tensor_get(x, n * E + e))) *lost = fmin(*lost, (double)(before + row));
    views_end(&v);
    intervals_free(&rows);
}

/* The weight in the step's loss of one row, or sequence, whose optimizer step has `all` of them. */
static double share_of_loss(const struct node_call *c, double all)
{
    return balance_weight(c->stage, c->micro) / all;
}

/* Add rows to the sums of their balance loss, whose last number counts rows, and to that of the z loss. */
static void add_to_sums(const struct node_call *c, const struct judged *j, struct tensor logits, struct tensor choices)
{
    double *const sums = balance_sums_of(c->stage, c->micro, j->loss), *const z = &sums[2 * columns(c)], rows = *z;
    *z = 0;
    dev_router_losses_forward(c->stage->device, sums, tensor_rows_of(logits, j->rows.first, j->rows.count), choices,
                              balance_counted(mixture(c)));
    c->stage->routers.sums[ROUTERS_Z] += *z * share_of_loss(c, balance_rows(c->stage, c->micro, c->part->layer));
    *z = rows + (double)j->rows.count;
}

/* Losses and biases are of choices as they were made, before any is dropped. */
static enum error_code judge(const struct node_call *c, struct tensor logits, struct tensor whole, struct error *err)
{
    struct judged_rows judged;
    double *const sums = c->stage->routers.sums, own = 0;
    if (!find_judged(c, &judged)) return no_memory_to_judge(err);
    for (int i = 0; i < judged.count; i++) {
        const struct interval own = judged.at[i].rows;
        const struct tensor choices = tensor_rows_of(kept(c, 0), own.first, own.count);
        add_to_sums(c, &judged.at[i], logits, choices);
        count_choices(c, choices);
    }
    free(judged.at);
    if (mixture(c)->sequence_coefficient > 0)
        dev_sequence_balance_forward(c->stage->device, &own, logits, kept(c, 0), whole, c->stage->plan->S,
                                     &mixture(c)->router);
    if (own != 0)
        sums[ROUTERS_SEQUENCE] += own * share_of_loss(c, balance_sequences(c->stage, c->micro, c->part->layer));
    if (!isfinite(sums[ROUTERS_Z])) find_lost(c, logits);
    return balance_after_layer(c->stage, c->micro, c->part->layer, err);
}

/* Whether a load says where rows go: the plan's, or, where no router has numbers, one that is even. */
static bool deals(const struct node_call *c)
{
    return c->stage->plan->load != NULL || !c->stage->device->backend->has_numbers;
}

/* Deal the load's choices to this device's rows. */
static enum error_code deal(const struct node_call *c, int32_t *chosen, struct error *err)
{
    const struct plan *p = c->stage->plan;
    struct intervals rows = routed_rows(c);
    enum error_code e = intervals_lost(&rows) ? fail(err, ERR_MEMORY, "no memory for the rows of a router") : OK;
    for (int i = 0; i < rows.count && !e; chosen += rows.at[i++].count * mixture(c)->k)
        e = load_deal(p->load, &p->model, p->S, c->stage->routers.step, c->part->layer, rows.at[i].first,
                      rows.at[i].count, chosen, err);
    intervals_free(&rows);
    return e;
}

/* The experts of this device's rows, on the device; chosen: the same in the host's memory, if a load deals them. */
static enum error_code choose(const struct node_call *c, struct tensor logits, struct tensor weights, int32_t *chosen,
                              struct error *err)
{
    struct device *d = c->stage->device;
    const struct tensor experts = kept(c, 0);
    if (!deals(c)) {
        dev_route_forward(d, weights, experts, logits, &mixture(c)->router,
                          c->stage->routers.bias + c->part->layer * columns(c));
        return OK;
    }
    const enum error_code e = deal(c, chosen, err);
    if (!e && d->backend->has_numbers) device_copy(d, experts.data, chosen, tensor_bytes(experts));
    if (!e) dev_route_weights(d, weights, experts, logits, &mixture(c)->router);
    return e;
}

/* Drop choices for which there is no room.  A load has done so: only weights are left to clear. */
static void drop(const struct node_call *c, struct whole_sequences *whole, struct tensor weights)
{
    const struct mixture_config *m = mixture(c);
    const int64_t S = c->stage->plan->S, room = deals(c) ? S * m->k : mixture_capacity(m, S);
    dev_route_drop(c->stage->device, whole->weights, whole->experts, S, m->E, room, m->drops_by_weight);
    whole_sequences_return(whole, kept(c, 0), weights);
}

/* Read what the device has chosen, if no load has dealt it; then who wants to know is told. */
static enum error_code tell_choices(const struct node_call *c, int32_t *chosen, struct error *err)
{
    const struct tensor experts = kept(c, 0);
    const struct plan *p = c->stage->plan;
    const size_t row = (size_t)mixture(c)->k * sizeof *chosen;
    int32_t *const all = c->stage->routers.chosen;
    if (!deals(c)) device_copy(c->stage->device, chosen, experts.data, tensor_bytes(experts));
    if (all == NULL) return announce(c, chosen, err);
    struct intervals rows = routed_rows(c);
    const int32_t *from = chosen;
    for (int i = 0; i < rows.count; from += rows.at[i++].count * mixture(c)->k)
        memcpy(all + (c->part->layer * plan_stream_rows(p) + rows.at[i].first) * mixture(c)->k, from,
               (size_t)rows.at[i].count * row);
    intervals_free(&rows);
    return announce(c, chosen, err);
}

static enum error_code route(const struct node_call *c, int32_t *chosen, struct error *err)
{
    const struct tensor logits = node_buffer(c, c->node->x[0]), weights = node_buffer(c, c->node->y);
    const struct context_parallel cp = stage_seams(c->stage, c->micro, c->part).cp;
    const bool drops = mixture(c)->capacity_factor > 0, balances = mixture(c)->sequence_coefficient > 0 && !c->again;
    struct whole_sequences whole = { .cp = &cp };
    enum error_code e = choose(c, logits, weights, chosen, err);
    if (!e && (drops || balances))
        e = whole_sequences_open(&whole, &cp, kept(c, 0), drops ? weights : tensor_none, err);
    if (!e && !c->again) e = judge(c, logits, whole.experts, err);
    if (!e && drops) drop(c, &whole, weights);
    whole_sequences_close(&whole);
    if (!e && !c->again) stage_show(c->stage, c->micro, "router.experts", c->part->layer, false, kept(c, 0));
    return e || c->again ? e : tell_choices(c, chosen, err);
}

enum error_code node_route_forward(const struct node_call *c, struct error *err)
{
    int32_t *chosen = malloc(tensor_bytes(kept(c, 0)) + 1);
    const enum error_code e = chosen ? route(c, chosen, err)
                                     : fail(err, ERR_MEMORY, "no memory for the choices of a router");
    free(chosen);
    return e;
}

/* The gradients of the balance loss and the z loss. */
static enum error_code losses_input(const struct node_call *c, struct tensor d_logits, struct tensor logits,
                                    struct error *err)
{
    struct judged_rows judged;
    const double z = c->stage->loss_scale * 2 * mixture(c)->z_coefficient;
    if (!find_judged(c, &judged)) return no_memory_to_judge(err);
    for (int i = 0; i < judged.count; i++) {
        const struct interval own = judged.at[i].rows;
        dev_router_losses_backward_input(c->stage->device, tensor_rows_of(d_logits, own.first, own.count),
                                         tensor_rows_of(logits, own.first, own.count),
                                         balance_slope_of(c->stage, c->micro, judged.at[i].loss),
                                         z / balance_rows(c->stage, c->micro, c->part->layer));
    }
    free(judged.at);
    return OK;
}

enum error_code node_route_input(const struct node_call *c, struct error *err)
{
    const struct linked_node *n = c->node;
    const struct tensor d_logits = node_buffer(c, n->dx[0]), logits = node_buffer(c, n->x[0]);
    const struct context_parallel cp = stage_seams(c->stage, c->micro, c->part).cp;
    const double slope = c->stage->loss_scale * mixture(c)->sequence_coefficient;
    struct whole_sequences whole;
    dev_route_backward_input(c->stage->device, d_logits, node_buffer(c, n->dy), node_buffer(c, n->y), kept(c, 0),
                             logits, &mixture(c)->router);
    enum error_code e = losses_input(c, d_logits, logits, err);
    if (e || mixture(c)->sequence_coefficient == 0) return e;
    e = whole_sequences_open(&whole, &cp, kept(c, 0), tensor_none, err);
    if (!e)
        dev_sequence_balance_backward_input(c->stage->device, d_logits, logits, kept(c, 0), whole.experts,
                                            c->stage->plan->S, &mixture(c)->router,
                                            slope / balance_sequences(c->stage, c->micro, c->part->layer));
    whole_sequences_close(&whole);
    return e;
}

/* ---- the experts ------------------------------------------------------------------------------------------------- */

/* A matrix of an expert, or its gradient: what the scheme gives, or this device's piece. */
static struct tensor matrix_of(const struct node_call *c, const struct expert_rows *r, int64_t expert,
                               enum block_param p, bool gradient)
{
    const int place = param_of_expert(&c->stage->plan->model, c->part->layer, expert, p);
    if (r->weights) return r->weights[(p == DOWN_W) * mixture(c)->E + expert];
    return gradient ? stage_gradient(c->stage, place) : stage_weight(c->stage, place);
}

/* Of devices that share the columns of F, and add up their results, the first adds the second matrix's bias. */
static bool adds_bias(const struct node_call *c, enum block_param bias)
{
    const struct expert_parallel *ep = &c->stage->seams->ep;
    return bias == UP_B || (ep->scheme->cuts_experts ? ep->slice : ep->tp->rank) == 0;
}

/* Its bias, or the gradient; none where the model has none, or the pass does not read it. */
static struct tensor bias_of(const struct node_call *c, int64_t expert, enum block_param bias, enum product_pass pass)
{
    const int place = param_of_expert(&c->stage->plan->model, c->part->layer, expert, bias);
    if (pass == PRODUCT_FORWARD) return adds_bias(c, bias) ? stage_weight(c->stage, place) : tensor_none;
    return pass == PRODUCT_WEIGHT ? stage_gradient(c->stage, place) : tensor_none;
}

/* A pass of each expert that has rows, on its own rows.  More than PRODUCTS_MOST are several lists. */
static void multiply(const struct node_call *c, enum product_pass pass, const struct expert_rows *r,
                     enum block_param p, struct tensor Y, struct tensor X)
{
    struct device_product list[PRODUCTS_MOST];
    int count = 0;
    int64_t first = 0;
    for (int64_t e = 0; e < mixture(c)->E; first += r->counts[e++]) {
        if (r->counts[e] == 0) continue;                /* others may have its matrix */
        list[count++] = (struct device_product){ tensor_rows_of(Y, first, r->counts[e]),
                                                 tensor_rows_of(X, first, r->counts[e]),
                                                 matrix_of(c, r, e, p, pass == PRODUCT_WEIGHT),
                                                 bias_of(c, e, p == UP_W ? UP_B : DOWN_B, pass) };
        if (count == PRODUCTS_MOST) dev_products(c->stage->device, pass, list, count), count = 0;
    }
    dev_products(c->stage->device, pass, list, count);
}

/* What the choice of experts reads: those with rows, by their layouts. */
static void enter_reads(const struct node_call *c, const int32_t *counts)
{
    static const enum block_param parts[] = { UP_W, UP_B, DOWN_W, DOWN_B };
    struct tier_traffic *t = &c->stage->chosen;
    for (int64_t e = 0; e < mixture(c)->E && c->stage->plan->data.chosen; e++) {
        if (counts[e] == 0) continue;
        t->reads++;
        for (int i = 0; i < 4; i++) {
            const int place = param_of_expert(&c->stage->plan->model, c->part->layer, e, parts[i]);
            if (place < 0) continue;
            const struct parameter *own = parameter_find(c->stage->parameters, place);
            t->bytes_read += (uint64_t)layout_count(&own->layout) * dtype_size(c->stage->device->dtype);
        }
    }
}

static void act_forward(const struct node_call *c, struct tensor Y, struct tensor X)
{
    const struct clamped by = mixture(c)->clamped;
    if (by.limit > 0) dev_clamped_swiglu_forward(c->stage->device, Y, X, by);
    else dev_swiglu_forward(c->stage->device, Y, X);
}

static void act_backward(const struct node_call *c, struct tensor dX, struct tensor dY, struct tensor X)
{
    const struct clamped by = mixture(c)->clamped;
    if (by.limit > 0) dev_clamped_swiglu_backward_input(c->stage->device, dX, dY, X, by);
    else dev_swiglu_backward_input(c->stage->device, dX, dY, X);
}

static enum error_code body_forward(const void *context, struct expert_rows r, struct error *err)
{
    const struct node_call *c = context;
    enter_reads(c, r.counts);
    const enum error_code e = data_read_experts(c->stage->data, c->part->index, r.counts, err);
    if (e) return e;
    multiply(c, PRODUCT_FORWARD, &r, UP_W, r.up, r.rows);
    act_forward(c, r.act, r.up);
    multiply(c, PRODUCT_FORWARD, &r, DOWN_W, r.results, r.act);
    return OK;
}

static void body_input(const void *context, struct expert_rows r, struct expert_gradients g)
{
    const struct node_call *c = context;
    multiply(c, PRODUCT_INPUT, &r, DOWN_W, g.results, g.act);
    act_backward(c, g.up, g.act, r.up);
    multiply(c, PRODUCT_INPUT, &r, UP_W, g.up, g.rows);
}

static void body_weight(const void *context, struct expert_rows r, struct expert_gradients g)
{
    const struct node_call *c = context;
    multiply(c, PRODUCT_WEIGHT, &r, DOWN_W, g.results, r.act);
    multiply(c, PRODUCT_WEIGHT, &r, UP_W, g.up, r.rows);
}

static struct tensor piece(const void *context, int64_t expert, int matrix, bool gradient)
{
    const struct expert_rows own = { .weights = NULL };
    return matrix_of(context, &own, expert, matrix == 0 ? UP_W : DOWN_W, gradient);
}

/* ---- the call of the scheme -------------------------------------------------------------------------------------- */

/* The node that wrote the weights (the route) keeps the choices. */
static struct tensor choices(const struct node_call *c)
{
    const struct linked *l = &c->part->linked;
    return node_buffer(c, l->node[l->slot[c->node->in[1]].maker].statistic[0]);
}

/* The rows of the stream that this device has. */
static struct tensor stream_rows(const struct node_call *c)
{
    return tensor_own_rows(c->stage->tp, node_buffer(c, c->node->x[0]), c->micro->N);
}

static struct mixture_call mixture_call(const struct node_call *c)
{
    const struct linked_node *n = c->node;
    struct expert_parallel *ep = experts_here(c);
    const struct tensor x = stream_rows(c);
    struct mixture_call m = { .ep = ep, .phases = c->phases,
                              .routing = c->micro->routing ? &c->micro->routing[c->part - c->stage->part] : NULL,
                              .body = { c, body_forward, body_input, body_weight, piece },
                              .x = own_share(ep, x), .y = own_share(ep, node_buffer(c, n->y)),
                              .weights = own_share(ep, node_buffer(c, n->x[1])),
                              .experts = own_share(ep, choices(c)) };
    for (int i = 0; i < ep->scheme->slots; i++) m.kept[i] = node_buffer(c, n->statistic[i]);
    for (int i = 0; i < ep->scheme->gradient_slots; i++) m.left[i] = node_buffer(c, n->gradient[i]);
    return m;
}

/* What experts that return what they get add to a sum, of rows of values: y of x, or dx of dy.  Rows that devices along
 * tp have too are each added by one of them. */
static void add_identity(const struct node_call *c, struct tensor sum, struct tensor values)
{
    const struct expert_parallel *ep = &c->stage->seams->ep;
    if (mixture(c)->zero == 0 || mixture(c)->zero_is_null) return;
    dev_identity_forward(c->stage->device, alone(ep, sum), alone(ep, values), alone(ep, choices(c)),
                         alone(ep, node_buffer(c, c->node->x[1])), mixture(c)->E);
}

static void weigh_identity(const struct node_call *c, struct tensor d_weights, struct tensor dy)
{
    const struct expert_parallel *ep = &c->stage->seams->ep;
    if (mixture(c)->zero == 0 || mixture(c)->zero_is_null) return;
    dev_identity_backward_weights(c->stage->device, alone(ep, d_weights), alone(ep, dy), alone(ep, stream_rows(c)),
                                  alone(ep, choices(c)), mixture(c)->E);
}

/* Results of tensor parallelism's parts of experts, or of its shares of rows, are summands that must be reduced: the
 * output and both gradients.  The gradient of the route's weights must be reduced before the router uses it. */
enum error_code node_mixture_forward(const struct node_call *c, struct error *err)
{
    struct mixture_call m = mixture_call(c);
    const struct tensor y = c->again && leaves_part(c->node) ? tensor_none : node_buffer(c, c->node->y);
    if (!tensor_present(y)) m.y = tensor_none;          /* recompute only what the scheme keeps */
    if (c->phases & RETURN_ROWS) clear_shares(c, y);
    enter_pass(c, tensor_present(y) ? FORWARD_PASS : EXCHANGE_PASS);
    const enum error_code e = m.ep->scheme->forward(&m, err);
    if (e || !tensor_present(y) || !(c->phases & RETURN_ROWS)) return e;
    add_identity(c, y, stream_rows(c));
    return tensor_add_parts(c->stage->tp, y, err);
}

enum error_code node_mixture_input(const struct node_call *c, struct error *err)
{
    struct mixture_call m = mixture_call(c);
    const struct tensor dx = node_buffer(c, c->node->dx[0]), d_weights = node_buffer(c, c->node->dx[1]);
    const struct tensor dy = tensor_own_rows(c->stage->tp, node_buffer(c, c->node->dy), c->micro->N);
    m.dx = own_share(m.ep, dx), m.d_weights = own_share(m.ep, d_weights), m.dy = own_share(m.ep, dy);
    if (c->phases & RETURN_ROWS) clear_shares(c, dx);
    if (c->phases & SEND_ROWS) clear_shares(c, d_weights);
    enter_pass(c, INPUT_PASS);
    enum error_code e = m.ep->scheme->input(&m, err);
    if (e || !(c->phases & RETURN_ROWS)) return e;
    add_identity(c, dx, dy), weigh_identity(c, d_weights, dy);
    e = tensor_add_parts(c->stage->tp, dx, err);
    return e ? e : tensor_add_parts(c->stage->tp, d_weights, err);
}

enum error_code node_mixture_weight(const struct node_call *c, struct error *err)
{
    struct mixture_call m = mixture_call(c);
    enter_pass(c, WEIGHT_PASS);
    return m.ep->scheme->weight(&m, err);
}
