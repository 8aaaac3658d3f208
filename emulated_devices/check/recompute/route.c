/* route.c -- a mixture's router: its choices, their weights, and its losses.
 *
 * The choices are those that the program's own logits make.  Scores are a softmax or sigmoids: each is off by a few
 * units of itself, and so are weights, which are scores over a sum of scores.  By steps the score and the sum are
 * stored.
 *
 * Backward, of softmax scores p and gradients ds of them, the gradient of a logit is p (ds - sum of p ds): off by those
 * units of p (|ds| + sum of p |ds|).  Where weights are divided by their sum, this is so for an expert that is not
 * chosen, too, although its gradient is 0.  The gradients of the routers' losses have the same form, and are added.
 * walk.c runs the passes; routed.c, loss.c, places.c and mistakes/ ask for choices and losses.  A tie of logits that
 * cannot be settled sets verdict.doubt, and the result then lacks a choice.
 */
#include "emulated_devices/check/recompute/routing.h"
#include "ref/model/balance.h"
#include "ref/model/params.h"
#include "ref/routers/router.h"
#include "ref/model/config.h"
#include <stdio.h>
#include <string.h>

/* ---- choices ----------------------------------------------------------------------------------------------------- */

/* This is a matrix of 32-bit integers, in the memory of doubles. */
static struct tensor integers(struct single *single, int64_t rows, int64_t cols)
{
    struct tensor t = single_new(single, rows, cols);
    t.dtype = I32;
    return t;
}

/* Choices that are dropped, or made for an expert without computation, have no row. */
static void route_count_rows(struct routing *routing)
{
    routing->rows = 0;
    for (int64_t i = 0; i < tensor_count(routing->experts); i++) {
        const int32_t e = ((const int32_t *)routing->experts.data)[i];
        routing->rows += e >= 0 && e < routing->E;
    }
}

/* Sort the choices by expert; rows come in this order in the program's tensors. */
void routing_sort(struct single *single, struct routing *routing)
{
    route_count_rows(routing);
    routing->order = tensor_1d(routing->order.data, I32, routing->rows),
        routing->counts = tensor_1d(routing->counts.data, I32, routing->E);
    single->context->ops->expert_order(routing->order, routing->counts, routing->experts);
}

/* Settle choices between equal logits, or note a doubt. */
static void find_open(struct single *single, struct routing *routing, int logits)
{
    const int64_t N = tensor_rows(routing->logits), columns = tensor_cols(routing->logits);
    const struct tensor memory = single_new(single, 1, N);
    bool *open = memory.data;
    int64_t count = 0;
    for (int64_t n = 0; !single->failed && n < N; n++) {
        open[n] = choice_is_open(numbers(routing->logits) + n * columns, columns,
                                 (int32_t *)routing->experts.data + n * routing->k, routing->k);
        count += open[n];
    }
    if (single->failed || count == 0) return;
    /* routing_settle reads the program's rows, which are sorted by expert. */
    routing_sort(single, routing);
    /* The program may have taken the other of two equal logits. */
    if (!routing_settle(single, routing, logits, open, count))
        snprintf(single->verdict.doubt, sizeof single->verdict.doubt, "the choice between experts with equal logits");
}

/* This makes room for the weights, choices and order of all tokens. */
void routing_room(struct single *single, struct routing *routing)
{
    const int64_t N = tensor_rows(routing->logits);
    routing->weights = single_new(single, N, routing->k), routing->experts = integers(single, N, routing->k);
    routing->order = integers(single, N, routing->k), routing->counts = integers(single, 1, routing->E);
}

/* The order matters: choices from logits, ties settled by rows, order settled by gradients, then what has no room
 * is dropped. */
struct routing routing_of_all(struct single *single, int logits)
{
    const struct mixture_config *m = &single->context->config->mixture;
    const int layer = single->context->graph->node[single_slot(single, logits)->maker].layer;
    const struct param_spec corrected = model_router_bias(single->context->config, layer);
    const struct tensor bias = corrected.ndim == 0 ? tensor_none
                                                   : single_input(single,
                                                                  single_name("start/", corrected.name), 1, m->E);
    struct routing r = { .layer = layer, .E = m->E, .k = m->k, .logits = single_act(single, logits) };
    if (!single_going(single)) return r;
    routing_room(single, &r);
    if (single->failed) return r;
    single->context->ops->route_forward(r.weights, r.experts, r.logits, &m->router, tensor_present(bias) ? numbers(bias)
                                        : NULL);
    find_open(single, &r, logits);
    routing_order(single, &r, logits);
    /* A mixture with a capacity drops choices, sequence by sequence. */
    if (m->capacity_factor > 0)
        single->context->ops->route_drop(r.weights, r.experts, single->cursor.batch.S, m->E,
                                         mixture_capacity(m, single->cursor.batch.S), m->drops_by_weight);
    routing_sort(single, &r);
    return r;
}

/* A tile has so many rows; if the choices are unknown, as many as if none was dropped. */
int64_t routing_rows(struct single *single, const struct single_slot *slot)
{
    const struct routing r = routing_of(single, slot->route);
    return single_going(single) ? r.rows : single->cursor.N * r.k;
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* How far a score, and a sum of scores, are off, relative to themselves.  u: unit roundoff of steps. */
static double off_score(const struct single *single, const double *x, int64_t columns, double u)
{
    double most = 0;
    for (int64_t e = 0; e < columns; e++) most = fmax(most, fabs(x[e]));
    return 2 * rounding_of_sum(single->rounding.sum, columns) + single->rounding.sum * (16 + 6 * most) + 4 * u;
}

double routing_times(const struct single *single, const struct routing *routing)
{
    const struct router_rule *rule = &single->context->config->mixture.router;
    return fabs(rule->scale) * (rule->normalized ? (double)tensor_cols(routing->logits) / (double)routing->k : 1);
}

/* The result [N, k] is each token's weights of its chosen experts. */
static struct single_value recompute_route_forward(struct single *single, const struct single_node *node)
{
    const struct routing r = routing_of(single, node->in[0]);
    if (!single_going(single)) return single_stop(single);
    const int64_t columns = tensor_cols(r.logits);
    const struct single_value v = single_value_new(single, tensor_rows(r.logits), r.k);
    const double times = 1 + routing_times(single, &r);
    /* Y [N, k] holds the weights; the row of element i is i / k. */
    for (int64_t i = 0; !single->failed && i < tensor_count(v.y); i++) {
        const double *x = numbers(r.logits) + i / r.k * columns, y = numbers(r.weights)[i];
        single_put(v, i, (struct element){ y, off_score(single, x, columns, 0) * fabs(y)
                                          + single->rounding.sum_tiny * times },
                   4 * single->rounding.store * fabs(y) + single->rounding.tiny * times);
    }
    return v;
}

/* ---- the gradient of the weights --------------------------------------------------------------------------------- */

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* For each logit, estimate its gradient if nothing cancelled: at least p (|ds| + sum of p |ds|).  beside: where
 * weights are divided by their sum, all scores pass on something that should add up to 0. */
static void row_magnitude(const struct single *single, const struct routing *routing, int64_t n, const double *dw,
                          double *size, double *beside)
{
    const struct router_rule *rule = &single->context->config->mixture.router;
    const int64_t columns = tensor_cols(routing->logits);
    const double *x = numbers(routing->logits) + n * columns, *w = numbers(routing->weights) + n * routing->k;
    const int32_t *chosen = (const int32_t *)routing->experts.data + n * routing->k;
    double top = x[0], total = 0, inner = 0, most = 0;
    /* The softmax's divisor comes first, then what all choices share. */
    for (int64_t e = 1; e < columns; e++) top = fmax(top, x[e]);
    for (int64_t e = 0; e < columns; e++) total += exp(x[e] - top);
    /* inner = sum of w dw: what all choices of a token share. */
    for (int64_t i = 0; i < routing->k; i++) inner += fabs(w[i] * dw[i]), most = fmax(most, fabs(rule->scale * dw[i]));
    for (int64_t e = 0; e < columns; e++)
        size[e] = rule->scores == SCORES_NEAR ? 2 * most : rule->normalized ? 0 : exp(x[e] - top) / total * inner,
        beside[e] = rule->scores == SCORES_SOFTMAX && rule->normalized ? exp(x[e] - top) / total * 2 * inner : 0;
    for (int64_t i = 0; i < routing->k; i++) {
        if (chosen[i] == CHOICE_NONE || rule->scores == SCORES_NEAR) continue;
        const int32_t e = choice_made(chosen[i]);
        const double part = rule->scores == SCORES_SIGMOID && !rule->normalized
                                ? sigmoid(x[e]) * sigmoid(-x[e])
                                : rule->normalized ? fabs(w[i]) / rule->scale : exp(x[e] - top) / total;
        size[e] = part * (fabs(rule->scale * dw[i]) + inner);
    }
}

/* dX [N, E] from the gradients of weights: the value is the reference's own, the bounds follow row_magnitude. */
struct single_value router_weights_input(struct single *single, const struct single_node *node,
                                         const struct routing *routing)
{
    const struct tensor dW = single_grad(single, node->out);
    if (!single_going(single)) return single_stop(single);
    const int64_t N = tensor_rows(routing->logits), columns = tensor_cols(routing->logits);
    const struct single_value v = single_value_new(single, N, columns);
    const struct tensor size = single_new(single, 2, columns);
    double *const beside = numbers(size) + columns;
    if (single->failed) return v;
    /* The gradients of scores, their products with weights, and those with scores, which are at most 1. */
    const double times = 4 + ((double)routing->k + 2) * routing_times(single, routing);
    single->context->ops->route_backward_input(v.y, dW, routing->weights, routing->experts, routing->logits,
                                               &single->context->config->mixture.router);
    for (int64_t row = 0; row < N; row++) {
        const double *x = numbers(routing->logits) + row * columns, g = off_score(single, x, columns, 0) +
                                                                  rounding_of_sum(single->rounding.sum, routing->k);
        /* Gradients of scores may cancel, so the bound follows the summands' sizes. */
        row_magnitude(single, routing, row, numbers(dW) + row * routing->k, numbers(size), beside);
        for (int64_t e = 0; e < columns; e++)
            single_put(v, row * columns + e,
                       (struct element){ numbers(v.y)[row * columns + e],
                                         g * (numbers(size)[e] + beside[e]) + single->rounding.sum_tiny * times },
                       single->rounding.store * (8 * numbers(size)[e] + 3 * beside[e]) + single->rounding.tiny * times);
    }
    return v;
}

/* ---- the routers' losses ----------------------------------------------------------------------------------------- */

/* These are sums for each balance loss: probabilities, choices, squared log(sum exp).  layers: those that have a
 * router. */
struct tally { int64_t layers, losses; struct tensor sums; double sequence, off_z; };

/* How many groups of sequences have a balance loss of their own. */
static int64_t groups_of(const struct single *single)
{
    switch (single->context->config->mixture.balance.over) {
    case OVER_SEQUENCE: return single->cursor.batch.B;
    case OVER_BATCH:    return 1;
    default:            return single->cursor.batch.micros > 0 ? single->cursor.batch.micros : 1;
    }
}

/* The first sequence of a group: the first B % groups groups have one more. */
static int64_t group_begins(const struct single *single, int64_t group)
{
    const int64_t groups = groups_of(single), least = single->cursor.batch.B / groups,
        more = single->cursor.batch.B % groups;
    return group * least + (group < more ? group : more);
}

/* A group has so many tokens. */
static int64_t group_rows(const struct single *single, int64_t group)
{
    return (group_begins(single, group + 1) - group_begins(single, group)) * single->cursor.batch.S;
}

/* Find the number of the loss that a group and a layer add to; layers may share one. */
static int64_t loss_at(const struct single *single, int64_t group, int layer)
{
    const struct mixture_config *m = &single->context->config->mixture;
    return group * balance_losses(m, single->context->config->L) + balance_loss_of(m, layer);
}

/* These are the sums of a loss: probabilities, choices, and the squared logs. */
static double *sums_of(const struct single *single, const struct tally *tally, int64_t loss)
{
    return numbers(tally->sums) + loss * (2 * mixture_columns(&single->context->config->mixture) + 1);
}

/* The rows of a group are a view of the tensor, not a copy. */
static struct tensor rows_of_group(const struct single *single, struct tensor t, int64_t group)
{
    return tensor_rows_of(t, group_begins(single, group) * single->cursor.batch.S, group_rows(single, group));
}

/* Add what a layer's router has chosen to the sums of its losses. */
static void tally_layer(struct single *single, struct tally *tally, const struct routing *routing)
{
    const struct mixture_config *m = &single->context->config->mixture;
    const int64_t columns = tensor_cols(routing->logits);
    for (int64_t g = 0; g < groups_of(single); g++)
        single->context->ops->router_losses_forward(sums_of(single, tally, loss_at(single, g, routing->layer)),
                                                    rows_of_group(single, routing->logits, g),
                                                    rows_of_group(single, routing->experts, g), balance_counted(m));
    if (m->sequence_coefficient > 0)
        single->context->ops->sequence_balance_forward(&tally->sequence, routing->logits, routing->experts,
                                                       routing->experts, single->cursor.batch.S, &m->router);
    tally->layers++;
    /* The largest logit bounds the error of log(sum exp). */
    for (int64_t row = 0; row < tensor_rows(routing->logits); row++) {
        double most = 0;
        for (int64_t e = 0; e < columns; e++) most = fmax(most, fabs(numbers(routing->logits)[row * columns + e]));
        tally->off_z = fmax(tally->off_z, most);
    }
}

/* Sums of all layers: each router of the graph is read once. */
static struct tally tally_of(struct single *single)
{
    const struct mixture_config *m = &single->context->config->mixture;
    struct tally t = { .losses = groups_of(single) * balance_losses(m, single->context->config->L) };
    t.sums = single_new(single, t.losses, 2 * mixture_columns(m) + 1);
    for (int v = 0; v < single->context->graph->nodes && single_going(single); v++) {
        const struct single_node *n = &single->context->graph->node[v];
        if (n->operation != &single_route) continue;
        const struct routing r = routing_of(single, n->in[0]);
        if (!single_going(single)) break;
        tally_layer(single, &t, &r);
    }
    return t;
}

bool router_balances_all(const struct single *single)
{
    const struct balance_rule *b = &single->context->config->mixture.balance;
    return groups_of(single) == 1 && b->layers == LAYERS_TOGETHER && b->choices == CHOICES_ALL;
}

/* The rows that losses of the batch are means over. */
static double rows_of_batch(const struct single *single, const struct tally *tally)
{
    return balance_rows_of(&single->context->config->mixture, 0, single->cursor.N, tally->layers).of_batch;
}

/* This is the slope of the balance loss by expert e's probability. */
static double slope_of(const struct single *single, const struct tally *tally, int64_t group, int64_t loss, int64_t e)
{
    const struct mixture_config *m = &single->context->config->mixture;
    const struct balance_rows rows = balance_rows_of(m, group_rows(single, group), single->cursor.N, tally->layers);
    return balance_slope(m, rows, sums_of(single, tally, loss)[mixture_columns(m) + e]);
}

/* Compute all losses.  A probability and a log(sum exp) are off by a few units, and so are their means. */
struct router_losses router_losses_of(struct single *single)
{
    const struct mixture_config *m = &single->context->config->mixture;
    const struct tally t = tally_of(single);
    const int64_t columns = mixture_columns(m), losses = balance_losses(m, single->context->config->L);
    struct router_losses l = { 0 };
    if (!single_going(single)) return l;
    /* g bounds a loss relative to itself: sums over columns, sums over all tokens and layers, and single steps. */
    const double rows = rows_of_batch(single, &t),
                 g = rounding_of_sum(single->rounding.sum, columns) +
                     rounding_of_sum(single->rounding.sum, single->cursor.N * t.layers) +
                     single->rounding.sum * (8 + 4 * t.off_z);
    for (int64_t i = 0; i < t.losses; i++) {
        /* balance += slope_e P_e, where P_e is the sum of expert e's probabilities. */
        for (int64_t e = 0; e < columns; e++)
            l.balance += slope_of(single, &t, i / losses, i, e) * sums_of(single, &t, i)[e];
        l.z += sums_of(single, &t, i)[2 * columns] / rows;
    }
    l.sequence = t.sequence / (double)single->cursor.batch.B;
    l.off_balance = g * l.balance, l.off_sequence = g * l.sequence;
    l.off_z = 2 * g * (l.z + (1 + t.off_z) * sqrt(l.z * (double)(single->cursor.N * t.layers) / rows));
    return l;
}

/* Make a value of one number that programs often keep in more bits. */
static struct single_value route_number(struct single *single, double y, double off)
{
    struct single_value v = single_value_new(single, 1, 1);
    if (!single->failed)
        single_put(v, 0, (struct element){ y, off }, 4 * (single->rounding.store * fabs(y) + single->rounding.tiny));
    v.number = true;
    return v;
}

static struct single_value balance(struct single *single, const struct single_node *node)
{
    const struct router_losses l = router_losses_of(single);
    (void)node;
    return single_going(single) ? route_number(single, l.balance, l.off_balance) : single_stop(single);
}

static struct single_value z(struct single *single, const struct single_node *node)
{
    const struct router_losses l = router_losses_of(single);
    (void)node;
    return single_going(single) ? route_number(single, l.z, l.off_z) : single_stop(single);
}

/* Write how far the gradient of a row's logits is off.  slope: of the balance loss; pull: of the z loss. */
static void put_row(struct single *single, struct single_value value, const struct routing *routing, int64_t row,
                    const double *slope, double pull)
{
    const int64_t columns = tensor_cols(routing->logits);
    const double *x = numbers(routing->logits) + row * columns, g = off_score(single, x, columns, 0);
    double top = x[0], total = 0, inner = 0;
    for (int64_t e = 1; e < columns; e++) top = fmax(top, x[e]);
    for (int64_t e = 0; e < columns; e++) total += exp(x[e] - top);
    for (int64_t e = 0; e < columns; e++) inner += slope[e] * exp(x[e] - top) / total;
    /* of a sequence's loss: f is at most the number of columns */
    const double sequence = single->context->config->mixture.sequence_coefficient * 2 *
                 (double)columns / (double)single->cursor.N;
    for (int64_t e = 0; e < columns; e++) {
        const double size = exp(x[e] - top) / total * (slope[e] + inner + sequence +
                                                       pull * (fabs(top) + fabs(log(total)) + 1));
        const double times = 4 + (double)columns * exp(x[e] - top) / total;
        single_put(value, row * columns + e,
                   (struct element){ numbers(value.y)[row * columns + e],
                                    g * size + single->rounding.sum_tiny * times },
                   8 * single->rounding.store * size + single->rounding.tiny * times);
    }
}

/* dX [N, E] is made from the routers' losses.  Each group has slopes of its own. */
struct single_value router_losses_input(struct single *single, const struct routing *routing)
{
    const struct mixture_config *m = &single->context->config->mixture;
    const struct tally t = tally_of(single);
    if (!single_going(single)) return single_stop(single);
    const int64_t columns = mixture_columns(m), N = tensor_rows(routing->logits);
    const double pull = 2 * m->z_coefficient / rows_of_batch(single, &t);
    const struct single_value v = single_value_new(single, N, columns);
    const struct tensor slope = single_new(single, groups_of(single), columns);
    if (single->failed) return v;
    for (int64_t i = 0; i < groups_of(single); i++) {
        for (int64_t e = 0; e < columns; e++)
            numbers(slope)[i * columns + e] =
                m->balance_coefficient * slope_of(single, &t, i, loss_at(single, i, routing->layer), e);
        single->context->ops->router_losses_backward_input(rows_of_group(single, v.y, i),
                                                           rows_of_group(single, routing->logits, i),
                                                           numbers(slope) + i * columns, pull);
    }
    /* A balance loss of each sequence has a coefficient of its own. */
    if (m->sequence_coefficient > 0)
        single->context->ops->sequence_balance_backward_input(v.y, routing->logits, routing->experts, routing->experts,
                                                              single->cursor.batch.S, &m->router,
                                                              m->sequence_coefficient / (double)single->cursor.batch.B);
    for (int64_t i = 0; i < groups_of(single); i++)
        for (int64_t row = 0, first = group_begins(single, i) * single->cursor.batch.S;
             row < group_rows(single, i); row++)
            put_row(single, v, routing, first + row, numbers(slope) + i * columns, pull);
    return v;
}

bool router_has_losses(const struct single *single)
{
    const struct mixture_config *m = &single->context->config->mixture;
    return m->balance_coefficient > 0 || m->z_coefficient > 0 || m->sequence_coefficient > 0;
}

/* Both gradients of logits are added: from weights, and from losses. */
static struct single_value recompute_route_input(struct single *single, const struct single_node *node)
{
    const struct routing r = routing_of(single, node->in[0]);
    if (!single_going(single)) return single_stop(single);
    struct single_value v[2] = { router_weights_input(single, node, &r) };
    const bool losses = router_has_losses(single);
    if (losses && single_going(single)) v[1] = router_losses_input(single, &r);
    return single_going(single) ? single_sum(single, v, 1 + losses) : single_stop(single);
}

const struct single_operation single_route = {
    .words = "the weights of the router's choices",
    .forward = recompute_route_forward,
    .input_words = "the backward pass of the router's choices",
    .input = { recompute_route_input },
};

const struct single_operation single_balance_loss = { .words = "the routers' balance loss", .forward = balance };
const struct single_operation single_z_loss = { .words = "the routers' z loss", .forward = z };
