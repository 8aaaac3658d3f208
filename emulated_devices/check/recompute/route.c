/* route.c -- a mixture's router: its choices, their weights, and its losses.
 *
 * The choices are those that the program's own logits make.  Scores are a softmax or sigmoids: each is off by a few
 * units of itself, and so are weights, which are scores over a sum of scores.  By steps the score and the sum are
 * stored.
 *
 * Backward, of softmax scores p and gradients ds of them, the gradient of a logit is p (ds - sum of p ds): off by those
 * units of p (|ds| + sum of p |ds|).  Where weights are divided by their sum, this is so for an expert that is not
 * chosen, too, although its gradient is 0.  The gradients of the routers' losses have the same form, and are added.
 */
#include "emulated_devices/check/recompute/routing.h"
#include "ref/model/balance.h"
#include "ref/routers/router.h"
#include <string.h>

/* ---- choices ----------------------------------------------------------------------------------------------------- */

static struct tensor integers(struct single *s, int64_t rows, int64_t cols)
{
    struct tensor t = single_new(s, rows, cols);
    t.dtype = I32;
    return t;
}

static void count_rows(struct routing *r)
{
    r->rows = 0;
    for (int64_t i = 0; i < tensor_count(r->experts); i++) {
        const int32_t e = ((const int32_t *)r->experts.data)[i];
        r->rows += e >= 0 && e < r->E;
    }
}

void routing_sort(struct single *s, struct routing *r)
{
    count_rows(r);
    r->order = tensor_1d(r->order.data, I32, r->rows), r->counts = tensor_1d(r->counts.data, I32, r->E);
    s->context->ops->expert_order(r->order, r->counts, r->experts);
}

/* Settle choices between equal logits, or note a doubt. */
static void find_open(struct single *s, struct routing *r, int logits)
{
    const int64_t N = tensor_rows(r->logits), columns = tensor_cols(r->logits);
    const struct tensor memory = single_new(s, 1, N);
    bool *open = memory.data;
    int64_t count = 0;
    for (int64_t n = 0; !s->failed && n < N; n++) {
        open[n] = choice_is_open(numbers(r->logits) + n * columns, columns, (int32_t *)r->experts.data + n * r->k,
                                 r->k);
        count += open[n];
    }
    if (s->failed || count == 0) return;
    routing_sort(s, r);
    s->verdict.doubt = !routing_settle(s, r, logits, open, count) || s->verdict.doubt;
}

void routing_room(struct single *s, struct routing *r)
{
    const int64_t N = tensor_rows(r->logits);
    r->weights = single_new(s, N, r->k), r->experts = integers(s, N, r->k);
    r->order = integers(s, N, r->k), r->counts = integers(s, 1, r->E);
}

struct routing routing_of_all(struct single *s, int logits)
{
    const struct mixture_config *m = &s->context->config->mixture;
    const int layer = s->context->graph->node[single_slot(s, logits)->maker].layer;
    const struct param_spec corrected = model_router_bias(s->context->config, layer);
    const struct tensor bias = corrected.ndim == 0 ? tensor_none
                                                   : single_input(s, single_name("start/", corrected.name), 1, m->E);
    struct routing r = { .layer = layer, .E = m->E, .k = m->k, .logits = single_act(s, logits) };
    if (!single_going(s)) return r;
    routing_room(s, &r);
    if (s->failed) return r;
    s->context->ops->route_forward(r.weights, r.experts, r.logits, &m->router, tensor_present(bias) ? numbers(bias)
                                   : NULL);
    find_open(s, &r, logits);
    routing_order(s, &r, logits);
    if (m->capacity_factor > 0)
        s->context->ops->route_drop(r.weights, r.experts, s->cursor.batch.S, m->E,
                                    mixture_capacity(m, s->cursor.batch.S), m->drops_by_weight);
    routing_sort(s, &r);
    return r;
}

int64_t routing_rows(struct single *s, const struct single_slot *slot)
{
    const struct routing r = routing_of(s, slot->route);
    return single_going(s) ? r.rows : s->cursor.N * r.k;
}

/* ---- weights ----------------------------------------------------------------------------------------------------- */

/* How far a score, and a sum of scores, are off, relative; u: unit roundoff of steps. */
static double off_score(const struct single *s, const double *x, int64_t columns, double u)
{
    double most = 0;
    for (int64_t e = 0; e < columns; e++) most = fmax(most, fabs(x[e]));
    return 2 * rounding_of_sum(s->rounding.sum, columns) + s->rounding.sum * (16 + 6 * most) + 4 * u;
}

double routing_times(const struct single *s, const struct routing *r)
{
    const struct router_rule *rule = &s->context->config->mixture.router;
    return fabs(rule->scale) * (rule->normalized ? (double)tensor_cols(r->logits) / (double)r->k : 1);
}

static struct single_value forward(struct single *s, const struct single_node *n)
{
    const struct routing r = routing_of(s, n->in[0]);
    if (!single_going(s)) return single_stop(s);
    const int64_t columns = tensor_cols(r.logits);
    const struct single_value v = single_value_new(s, tensor_rows(r.logits), r.k);
    const double times = 1 + routing_times(s, &r);
    for (int64_t i = 0; !s->failed && i < tensor_count(v.y); i++) {
        const double *x = numbers(r.logits) + i / r.k * columns, y = numbers(r.weights)[i];
        single_put(v, i, (struct element){ y, off_score(s, x, columns, 0) * fabs(y) + s->rounding.sum_tiny * times },
                   4 * s->rounding.store * fabs(y) + s->rounding.tiny * times);
    }
    return v;
}

/* ---- the gradient of the weights --------------------------------------------------------------------------------- */

static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

/* For each logit, what its gradient would be if nothing cancelled: at least p (|ds| + sum of p |ds|).  beside: of
 * weights that are divided by their sum, what a softmax of all scores passes on, and what should add up to 0. */
static void row_magnitude(const struct single *s, const struct routing *r, int64_t n, const double *dw, double *size,
                          double *beside)
{
    const struct router_rule *rule = &s->context->config->mixture.router;
    const int64_t columns = tensor_cols(r->logits);
    const double *x = numbers(r->logits) + n * columns, *w = numbers(r->weights) + n * r->k;
    const int32_t *chosen = (const int32_t *)r->experts.data + n * r->k;
    double top = x[0], total = 0, inner = 0, most = 0;
    for (int64_t e = 1; e < columns; e++) top = fmax(top, x[e]);
    for (int64_t e = 0; e < columns; e++) total += exp(x[e] - top);
    for (int64_t i = 0; i < r->k; i++) inner += fabs(w[i] * dw[i]), most = fmax(most, fabs(rule->scale * dw[i]));
    for (int64_t e = 0; e < columns; e++)
        size[e] = rule->scores == SCORES_NEAR ? 2 * most : rule->normalized ? 0 : exp(x[e] - top) / total * inner,
        beside[e] = rule->scores == SCORES_SOFTMAX && rule->normalized ? exp(x[e] - top) / total * 2 * inner : 0;
    for (int64_t i = 0; i < r->k; i++) {
        if (chosen[i] == CHOICE_NONE || rule->scores == SCORES_NEAR) continue;
        const int32_t e = choice_made(chosen[i]);
        const double part = rule->scores == SCORES_SIGMOID && !rule->normalized
                                ? sigmoid(x[e]) * sigmoid(-x[e])
                                : rule->normalized ? fabs(w[i]) / rule->scale : exp(x[e] - top) / total;
        size[e] = part * (fabs(rule->scale * dw[i]) + inner);
    }
}

struct single_value router_weights_input(struct single *s, const struct single_node *n, const struct routing *r)
{
    const struct tensor dW = single_grad(s, n->out);
    if (!single_going(s)) return single_stop(s);
    const int64_t N = tensor_rows(r->logits), columns = tensor_cols(r->logits);
    const struct single_value v = single_value_new(s, N, columns);
    const struct tensor size = single_new(s, 2, columns);
    double *const beside = numbers(size) + columns;
    if (s->failed) return v;
    /* The gradients of scores, their products with weights, and those with scores, which are at most 1. */
    const double times = 4 + ((double)r->k + 2) * routing_times(s, r);
    s->context->ops->route_backward_input(v.y, dW, r->weights, r->experts, r->logits,
                                          &s->context->config->mixture.router);
    for (int64_t row = 0; row < N; row++) {
        const double *x = numbers(r->logits) + row * columns, g = off_score(s, x, columns, 0) +
                                                                  rounding_of_sum(s->rounding.sum, r->k);
        row_magnitude(s, r, row, numbers(dW) + row * r->k, numbers(size), beside);
        for (int64_t e = 0; e < columns; e++)
            single_put(v, row * columns + e,
                       (struct element){ numbers(v.y)[row * columns + e],
                                         g * (numbers(size)[e] + beside[e]) + s->rounding.sum_tiny * times },
                       s->rounding.store * (8 * numbers(size)[e] + 3 * beside[e]) + s->rounding.tiny * times);
    }
    return v;
}

/* ---- the routers' losses ----------------------------------------------------------------------------------------- */

/* Sums by balance loss: of probabilities, of choices, of squared log(sum exp).  layers: those that have a router. */
struct tally { int64_t layers, losses; struct tensor sums; double sequence, off_z; };

/* How many groups of sequences balance losses are of. */
static int64_t groups_of(const struct single *s)
{
    switch (s->context->config->mixture.balance.over) {
    case OVER_SEQUENCE: return s->cursor.batch.B;
    case OVER_BATCH:    return 1;
    default:            return s->cursor.batch.micros > 0 ? s->cursor.batch.micros : 1;
    }
}

/* The first sequence of a group: the first B % groups groups have one more. */
static int64_t group_begins(const struct single *s, int64_t group)
{
    const int64_t groups = groups_of(s), least = s->cursor.batch.B / groups, more = s->cursor.batch.B % groups;
    return group * least + (group < more ? group : more);
}

static int64_t group_rows(const struct single *s, int64_t group)
{
    return (group_begins(s, group + 1) - group_begins(s, group)) * s->cursor.batch.S;
}

static int64_t loss_at(const struct single *s, int64_t group, int layer)
{
    const struct mixture_config *m = &s->context->config->mixture;
    return group * balance_losses(m, s->context->config->L) + balance_loss_of(m, layer);
}

static double *sums_of(const struct single *s, const struct tally *t, int64_t loss)
{
    return numbers(t->sums) + loss * (2 * mixture_columns(&s->context->config->mixture) + 1);
}

static struct tensor rows_of_group(const struct single *s, struct tensor t, int64_t group)
{
    return tensor_rows_of(t, group_begins(s, group) * s->cursor.batch.S, group_rows(s, group));
}

/* Add what a layer's router has chosen. */
static void tally_layer(struct single *s, struct tally *t, const struct routing *r)
{
    const struct mixture_config *m = &s->context->config->mixture;
    const int64_t columns = tensor_cols(r->logits);
    for (int64_t g = 0; g < groups_of(s); g++)
        s->context->ops->router_losses_forward(sums_of(s, t, loss_at(s, g, r->layer)), rows_of_group(s, r->logits, g),
                                               rows_of_group(s, r->experts, g), balance_counted(m));
    if (m->sequence_coefficient > 0)
        s->context->ops->sequence_balance_forward(&t->sequence, r->logits, r->experts, r->experts, s->cursor.batch.S,
                                                  &m->router);
    t->layers++;
    for (int64_t row = 0; row < tensor_rows(r->logits); row++) {
        double most = 0;
        for (int64_t e = 0; e < columns; e++) most = fmax(most, fabs(numbers(r->logits)[row * columns + e]));
        t->off_z = fmax(t->off_z, most);
    }
}

static struct tally tally_of(struct single *s)
{
    const struct mixture_config *m = &s->context->config->mixture;
    struct tally t = { .losses = groups_of(s) * balance_losses(m, s->context->config->L) };
    t.sums = single_new(s, t.losses, 2 * mixture_columns(m) + 1);
    for (int v = 0; v < s->context->graph->nodes && single_going(s); v++) {
        const struct single_node *n = &s->context->graph->node[v];
        if (n->operation != &single_route) continue;
        const struct routing r = routing_of(s, n->in[0]);
        if (!single_going(s)) break;
        tally_layer(s, &t, &r);
    }
    return t;
}

bool router_balances_all(const struct single *s)
{
    const struct balance_rule *b = &s->context->config->mixture.balance;
    return groups_of(s) == 1 && b->layers == LAYERS_TOGETHER && b->choices == CHOICES_ALL;
}

/* The rows that losses of the batch are means over. */
static double rows_of_batch(const struct single *s, const struct tally *t)
{
    return balance_rows_of(&s->context->config->mixture, 0, s->cursor.N, t->layers).of_batch;
}

/* The slope of the balance loss by a probability for expert e. */
static double slope_of(const struct single *s, const struct tally *t, int64_t group, int64_t loss, int64_t e)
{
    const struct mixture_config *m = &s->context->config->mixture;
    const struct balance_rows rows = balance_rows_of(m, group_rows(s, group), s->cursor.N, t->layers);
    return balance_slope(m, rows, sums_of(s, t, loss)[mixture_columns(m) + e]);
}

/* A probability and a log(sum exp) are off by a few units, and so are means of them. */
struct router_losses router_losses_of(struct single *s)
{
    const struct mixture_config *m = &s->context->config->mixture;
    const struct tally t = tally_of(s);
    const int64_t columns = mixture_columns(m), losses = balance_losses(m, s->context->config->L);
    struct router_losses l = { 0 };
    if (!single_going(s)) return l;
    const double rows = rows_of_batch(s, &t),
                 g = rounding_of_sum(s->rounding.sum, columns) +
                     rounding_of_sum(s->rounding.sum, s->cursor.N * t.layers) +
                     s->rounding.sum * (8 + 4 * t.off_z);
    for (int64_t i = 0; i < t.losses; i++) {
        for (int64_t e = 0; e < columns; e++) l.balance += slope_of(s, &t, i / losses, i, e) * sums_of(s, &t, i)[e];
        l.z += sums_of(s, &t, i)[2 * columns] / rows;
    }
    l.sequence = t.sequence / (double)s->cursor.batch.B;
    l.off_balance = g * l.balance, l.off_sequence = g * l.sequence;
    l.off_z = 2 * g * (l.z + (1 + t.off_z) * sqrt(l.z * (double)(s->cursor.N * t.layers) / rows));
    return l;
}

static struct single_value number(struct single *s, double y, double off)
{
    struct single_value v = single_value_new(s, 1, 1);
    if (!s->failed)
        single_put(v, 0, (struct element){ y, off }, 4 * (s->rounding.store * fabs(y) + s->rounding.tiny));
    v.number = true;
    return v;
}

static struct single_value balance(struct single *s, const struct single_node *n)
{
    const struct router_losses l = router_losses_of(s);
    (void)n;
    return single_going(s) ? number(s, l.balance, l.off_balance) : single_stop(s);
}

static struct single_value z(struct single *s, const struct single_node *n)
{
    const struct router_losses l = router_losses_of(s);
    (void)n;
    return single_going(s) ? number(s, l.z, l.off_z) : single_stop(s);
}

/* How far the gradient of a row's logits is off, by slopes and the z loss. */
static void put_row(struct single *s, struct single_value v, const struct routing *r, int64_t row, const double *slope,
                    double pull)
{
    const int64_t columns = tensor_cols(r->logits);
    const double *x = numbers(r->logits) + row * columns, g = off_score(s, x, columns, 0);
    double top = x[0], total = 0, inner = 0;
    for (int64_t e = 1; e < columns; e++) top = fmax(top, x[e]);
    for (int64_t e = 0; e < columns; e++) total += exp(x[e] - top);
    for (int64_t e = 0; e < columns; e++) inner += slope[e] * exp(x[e] - top) / total;
    /* of a sequence's loss: f is at most the number of columns */
    const double sequence = s->context->config->mixture.sequence_coefficient * 2 *
                 (double)columns / (double)s->cursor.N;
    for (int64_t e = 0; e < columns; e++) {
        const double size = exp(x[e] - top) / total * (slope[e] + inner + sequence +
                                                       pull * (fabs(top) + fabs(log(total)) + 1));
        const double times = 4 + (double)columns * exp(x[e] - top) / total;
        single_put(v, row * columns + e,
                   (struct element){ numbers(v.y)[row * columns + e], g * size + s->rounding.sum_tiny * times },
                   8 * s->rounding.store * size + s->rounding.tiny * times);
    }
}

struct single_value router_losses_input(struct single *s, const struct routing *r)
{
    const struct mixture_config *m = &s->context->config->mixture;
    const struct tally t = tally_of(s);
    if (!single_going(s)) return single_stop(s);
    const int64_t columns = mixture_columns(m), N = tensor_rows(r->logits);
    const double pull = 2 * m->z_coefficient / rows_of_batch(s, &t);
    const struct single_value v = single_value_new(s, N, columns);
    const struct tensor slope = single_new(s, groups_of(s), columns);
    if (s->failed) return v;
    for (int64_t i = 0; i < groups_of(s); i++) {
        for (int64_t e = 0; e < columns; e++)
            numbers(slope)[i * columns + e] =
                m->balance_coefficient * slope_of(s, &t, i, loss_at(s, i, r->layer), e);
        s->context->ops->router_losses_backward_input(rows_of_group(s, v.y, i), rows_of_group(s, r->logits, i),
                                                      numbers(slope) + i * columns, pull);
    }
    if (m->sequence_coefficient > 0)
        s->context->ops->sequence_balance_backward_input(v.y, r->logits, r->experts, r->experts, s->cursor.batch.S,
                                                         &m->router,
                                                         m->sequence_coefficient / (double)s->cursor.batch.B);
    for (int64_t i = 0; i < groups_of(s); i++)
        for (int64_t row = 0, first = group_begins(s, i) * s->cursor.batch.S; row < group_rows(s, i); row++)
            put_row(s, v, r, first + row, numbers(slope) + i * columns, pull);
    return v;
}

bool router_has_losses(const struct single *s)
{
    const struct mixture_config *m = &s->context->config->mixture;
    return m->balance_coefficient > 0 || m->z_coefficient > 0 || m->sequence_coefficient > 0;
}

static struct single_value input(struct single *s, const struct single_node *n)
{
    const struct routing r = routing_of(s, n->in[0]);
    if (!single_going(s)) return single_stop(s);
    struct single_value v[2] = { router_weights_input(s, n, &r) };
    const bool losses = router_has_losses(s);
    if (losses && single_going(s)) v[1] = router_losses_input(s, &r);
    return single_going(s) ? single_sum(s, v, 1 + losses) : single_stop(s);
}

const struct single_operation single_route = {
    .words = "the weights of the router's choices",
    .forward = forward,
    .input_words = "the backward pass of the router's choices",
    .input = { input },
};

const struct single_operation single_balance_loss = { .words = "the routers' balance loss", .forward = balance };
const struct single_operation single_z_loss = { .words = "the routers' z loss", .forward = z };
