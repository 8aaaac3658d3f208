/* mixture.c -- the feed-forward of a mixture of experts: every token goes to k of E experts; their results are added
 * with weights.
 *
 * Rows are sorted by expert, so each expert computes products of consecutive rows; an expert without rows is skipped.
 * A choice that no expert computes has no row: a dropped one, or one of an expert that returns what it gets, or 0.
 * A balance loss may be of all layers together, so its gradient is known only after the last layer: see balance.h and
 * ref/ops/router_losses.c.
 */
#include "ref/model/transformer_parts.h"
#include "ref/model/balance.h"
#include "ref/model/sample_mask.h"
#include "ref/routers/router.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t count_of(const struct block_activations *a, int64_t expert)
{
    return ((const int32_t *)a->counts.data)[expert];
}

/* Buffers have room for all choices; of these some are computed by no expert. */
static struct tensor computed_rows(const struct block_activations *a, struct tensor t)
{
    int64_t rows = 0;
    for (int64_t e = 0; e < tensor_count(a->counts); e++) rows += count_of(a, e);
    return tensor_first(t, rows);
}

static struct block_activations computed_block(const struct block_activations *a)
{
    struct block_activations b = *a;
    b.order = computed_rows(a, a->order), b.rows = computed_rows(a, a->rows), b.up = computed_rows(a, a->up);
    b.act = computed_rows(a, a->act), b.results = computed_rows(a, a->results);
    return b;
}

#define WE(p) pick(m->w, param_of_expert(&m->config, layer, e, p))
#define GE(p) pick(m->g, param_of_expert(&m->config, layer, e, p))

static void act_forward(const struct transformer *m, struct tensor Y, struct tensor X)
{
    const struct clamped c = m->config.mixture.clamped;
    if (c.limit > 0) m->ops->clamped_swiglu_forward(Y, X, c);
    else m->ops->swiglu_forward(Y, X);
}

static void act_backward(const struct transformer *m, struct tensor dX, struct tensor dY, struct tensor X)
{
    const struct clamped c = m->config.mixture.clamped;
    if (c.limit > 0) m->ops->clamped_swiglu_backward_input(dX, dY, X, c);
    else m->ops->swiglu_backward_input(dX, dY, X);
}

/* Whether there are experts that return what they get. */
static bool has_identity(const struct model_config *c) { return c->mixture.zero > 0 && !c->mixture.zero_is_null; }

/* Each token's experts, and their weights. */
static void choose(const struct transformer *m, struct block_activations *a, int layer)
{
    const struct router_rule *const rule = &m->config.mixture.router;
    const int64_t n = tensor_count(a->experts);
    if (m->route == NULL) {
        /* experts [N,k] = the k best columns by the rule's keys; weights [N,k] from their scores. */
        m->ops->route_forward(a->weights, a->experts, a->router, rule, transformer_router_bias(m, layer));
        return;
    }
    /* Given choices replace the router's; it still weighs them by its own scores. */
    memcpy(a->experts.data, m->route + layer * n, (size_t)n * sizeof *m->route);
    m->ops->route_weights(a->weights, a->experts, a->router, rule);
}

/* Drop the choices for which an expert has no room. */
static void drop(const struct transformer *m, struct block_activations *a)
{
    const struct mixture_config *x = &m->config.mixture;
    if (m->route == NULL)
        m->ops->route_drop(a->weights, a->experts, m->S, x->E, mixture_capacity(x, m->S), x->drops_by_weight);
    /* Given choices say themselves which are dropped: a negative expert has weight 0. */
    for (int64_t i = 0; i < tensor_count(a->experts) && m->route != NULL; i++)
        if (((const int32_t *)a->experts.data)[i] < 0) tensor_set(a->weights, i, 0);
}

bool transformer_judges(const struct transformer *m, int layer, int64_t token)
{
    const bool passes = m->passes_by && m->passes_by[layer * m->B + token / m->S];
    return !passes && !(m->micro_of && m->micro_of[token] == TOKEN_NOT_JUDGED);
}

/* The group of tokens in which a token that is judged is. */
static int64_t group_of(const struct transformer *m, int64_t token)
{
    switch (m->config.mixture.balance.over) {
    case OVER_SEQUENCE: return token / m->S;
    case OVER_BATCH:    return 0;
    default:            return m->micro_of ? m->micro_of[token] : 0;
    }
}

/* The balance loss that a row of a layer is of. */
static int64_t loss_of(const struct transformer *m, int layer, int64_t row)
{
    const struct mixture_config *x = &m->config.mixture;
    return group_of(m, row) * balance_losses(x, m->config.L) + balance_loss_of(x, layer);
}

/* The next rows of one group that are judged and no padding, from *first on.  @return how many; 0: there are none. */
static int64_t judged_rows(const struct transformer *m, int layer, int64_t *first)
{
    int64_t same = 0, n = tokens_without_padding(m->packed, m->B * m->S, first);
    while (n > 0 && !transformer_judges(m, layer, *first))
        ++*first, n = tokens_without_padding(m->packed, m->B * m->S, first);
    while (same < n && transformer_judges(m, layer, *first + same) && group_of(m, *first + same) == group_of(m, *first))
        same++;
    return same;
}

/* The rows of the next sequence that is judged, from row *first on.  @return S; 0: there is none. */
static int64_t judged_sequence(const struct transformer *m, int layer, int64_t *first)
{
    while (*first < m->B * m->S && !transformer_judges(m, layer, *first)) *first += m->S;
    return *first < m->B * m->S ? m->S : 0;
}

/* Add rows to the sums of their balance loss, whose last number counts rows, and to that of the z loss. */
static void add_to_sums(struct transformer *m, const struct block_activations *a, int layer, int64_t first, int64_t n)
{
    const struct mixture_config *x = &m->config.mixture;
    const int64_t columns = mixture_columns(x);
    double *const sums = m->router_sums + loss_of(m, layer, first) * (2 * columns + 1), *const z = &sums[2 * columns];
    const double rows = *z;
    *z = 0;
    m->ops->router_losses_forward(sums, tensor_rows_of(a->router, first, n), tensor_rows_of(a->experts, first, n),
                                  balance_counted(x));
    m->router_z[layer] += *z;
    *z = rows + (double)n;
    m->router_rows[layer] += (double)n;
}

/* Keep what losses need of rows that are no padding, and the choices by which biases move: as they were made, before
 * any is dropped. */
static void judge(struct transformer *m, const struct block_activations *a, int layer)
{
    const struct mixture_config *x = &m->config.mixture;
    const int64_t k = x->k;
    double *const choices = m->router_choices + layer * mixture_columns(x);
    for (int64_t first = 0, n; (n = judged_rows(m, layer, &first)) > 0; first += n) {
        add_to_sums(m, a, layer, first, n);
        for (int64_t i = first * k; i < (first + n) * k; i++) {
            /* choices[e] counts how often expert e was chosen, also where its capacity drops the choice. */
            const int32_t chosen = choice_made(((const int32_t *)a->experts.data)[i]);
            if (chosen != CHOICE_NONE) choices[chosen]++;
        }
    }
    for (int64_t first = 0, n; (n = judged_sequence(m, layer, &first)) > 0; first += n) {
        const struct tensor experts = tensor_rows_of(a->experts, first, n);
        /* Each judged sequence has a balance loss of its own. */
        m->router_sequences[layer]++;
        if (x->sequence_coefficient > 0)
            m->ops->sequence_balance_forward(&m->router_own[layer], tensor_rows_of(a->router, first, n), experts,
                                             experts, m->S, &x->router);
    }
}

void mixture_forward(struct transformer *m, int layer)
{
    const struct ops *op = m->ops;
    const struct model_config *c = &m->config;
    struct block_activations *a = &m->block[layer];

    /* logits [N,E] = ln2 W_router^T. */
    op->linear_forward(a->router, a->ln2, W(ROUTER_W), W(ROUTER_B));
    computed(m, "router.logits", layer, a->router, c->D);
    choose(m, a, layer);
    judge(m, a, layer);
    if (c->mixture.capacity_factor > 0) drop(m, a);
    computed(m, "router.weights", layer, a->weights, mixture_columns(&c->mixture));
    /* order [Nk]: choices sorted by expert; counts [E]: rows of each. */
    op->expert_order(a->order, a->counts, a->experts);
    const struct block_activations b = computed_block(a);
    /* rows [Nk,D]: a token's row once for each of its choices, in that order. */
    op->gather_forward(b.rows, a->ln2, b.order, c->mixture.k);

    for (int64_t e = 0, first = 0; e < c->mixture.E; first += count_of(a, e++)) {
        const int64_t n = count_of(a, e);
        if (n > 0)
            op->linear_forward(tensor_rows_of(a->up, first, n), tensor_rows_of(a->rows, first, n), WE(UP_W),
                               WE(UP_B));
    }
    computed(m, "mlp.up", layer, b.up, c->D);
    /* act [Nk,F] = silu(gate) up, for the rows of all experts at once. */
    act_forward(m, b.act, b.up);
    computed(m, "mlp.act", layer, b.act, 1);
    for (int64_t e = 0, first = 0; e < c->mixture.E; first += count_of(a, e++)) {
        const int64_t n = count_of(a, e);
        if (n > 0)
            op->linear_forward(tensor_rows_of(a->results, first, n), tensor_rows_of(a->act, first, n), WE(DOWN_W),
                               WE(DOWN_B));
    }
    computed(m, "experts.out", layer, b.results, c->F);
    /* branch[n] = sum over a token's choices of weight times result, in the order of choices. */
    op->combine_forward(m->branch, b.results, b.order, a->weights);
    /* An expert without computation adds weight times ln2. */
    if (has_identity(c)) op->identity_forward(m->branch, a->ln2, a->experts, a->weights, c->mixture.E);
    if (c->mixture.shared > 0) {
        computed(m, "routed.out", layer, m->branch, c->mixture.k);
        shared_forward(m, layer);
    }
    computed(m, "mlp.out", layer, m->branch, c->mixture.shared > 0 ? 1 : c->mixture.k);
}

/* The rows that the losses of a layer's rows are means over. */
static double rows_among(const struct transformer *m, int64_t layer)
{
    return balance_rows_among(&m->config.mixture, m->router_rows, m->config.L, layer);
}

static void experts_backward(struct transformer *m, int layer)
{
    const struct ops *op = m->ops;
    const struct model_config *c = &m->config;
    const struct block_activations *a = &m->block[layer];
    const struct tensor d_act = computed_rows(a, m->d_act), d_up = computed_rows(a, m->d_up);

    for (int64_t e = 0, first = 0; e < c->mixture.E; first += count_of(a, e++)) {
        const int64_t n = count_of(a, e);
        if (n == 0) continue;
        /* dW_down[e] += d_rows^T act,  d_act = d_rows W_down[e], over the n rows of expert e. */
        op->linear_backward_weight(GE(DOWN_W), GE(DOWN_B), tensor_rows_of(m->d_rows, first, n),
                                   tensor_rows_of(a->act, first, n));
        op->linear_backward_input(tensor_rows_of(m->d_act, first, n), tensor_rows_of(m->d_rows, first, n), WE(DOWN_W));
    }
    computed_gradient(m, "mlp.act", layer, d_act, c->D);
    act_backward(m, d_up, d_act, computed_rows(a, a->up));
    computed_gradient(m, "mlp.up", layer, d_up, 1);
    for (int64_t e = 0, first = 0; e < c->mixture.E; first += count_of(a, e++)) {
        const int64_t n = count_of(a, e);
        if (n == 0) continue;
        /* dW_up[e] += d_up^T rows,  d_rows = d_up W_up[e]. */
        op->linear_backward_weight(GE(UP_W), GE(UP_B), tensor_rows_of(m->d_up, first, n),
                                   tensor_rows_of(a->rows, first, n));
        op->linear_backward_input(tensor_rows_of(m->d_rows, first, n), tensor_rows_of(m->d_up, first, n), WE(UP_W));
    }
}

static void router_backward(struct transformer *m, int layer)
{
    const struct ops *op = m->ops;
    const struct mixture_config *x = &m->config.mixture;
    struct block_activations *a = &m->block[layer];
    /* d_router [N,E]: gradients of logits from those of weights; choices themselves have none. */
    op->route_backward_input(m->d_router, m->d_weights, a->weights, a->experts, a->router, &x->router);
    for (int64_t first = 0, n; (n = judged_rows(m, layer, &first)) > 0; first += n)
        /* += balance slope of each probability, and 2 z coefficient logsumexp, over the loss's rows. */
        op->router_losses_backward_input(tensor_rows_of(m->d_router, first, n), tensor_rows_of(a->router, first, n),
                                         m->router_slope + loss_of(m, layer, first) * mixture_columns(x),
                                         m->loss_scale * 2 * x->z_coefficient / rows_among(m, layer));
    for (int64_t first = 0, n; x->sequence_coefficient > 0 && (n = judged_sequence(m, layer, &first)) > 0; first += n) {
        const struct tensor experts = tensor_rows_of(a->experts, first, n);
        op->sequence_balance_backward_input(tensor_rows_of(m->d_router, first, n), tensor_rows_of(a->router, first, n),
                                            experts, experts, m->S, &x->router,
                                            m->loss_scale * x->sequence_coefficient / m->router_sequences[layer]);
    }
    computed_gradient(m, "router.logits", layer, m->d_router, mixture_columns(x));
    /* dW_router += d_router^T ln2. */
    op->linear_backward_weight(G(ROUTER_W), G(ROUTER_B), m->d_router, a->ln2);
}

/* The sum of |dY x|, squared, over the elements of a row. */
static double squared_magnitude(struct tensor dY, int64_t row, struct tensor X, int64_t of)
{
    const int64_t D = tensor_cols(dY);
    double sum = 0;
    for (int64_t d = 0; d < D; d++) sum += fabs(tensor_get(dY, row * D + d) * tensor_get(X, of * D + d));
    return sum * sum;
}

/* An observer takes the rounding error of an element for that of `terms` products of the element's size.  The products
 * of a choice's gradient cancel: that of a stream is orthogonal to it before a norm, and an expert without computation
 * returns nearly the stream.  So they count as often as their magnitudes exceed their sums, squared. */
static int64_t terms_of_weights(const struct transformer *m, const struct block_activations *b)
{
    const struct model_config *c = &m->config;
    const int64_t k = c->mixture.k, choices = tensor_count(m->d_weights), computed = tensor_count(b->order);
    const int32_t *const order = b->order.data, *const expert = b->experts.data;
    double magnitude = 0, sum = 0;
    if (m->observer.see == NULL) return c->D;
    for (int64_t r = 0; r < computed; r++) magnitude += squared_magnitude(m->d_branch, order[r] / k, b->results, r);
    for (int64_t i = 0; i < choices; i++) {
        if (expert[i] >= c->mixture.E && has_identity(c))
            magnitude += squared_magnitude(m->d_branch, i / k, b->ln2, i / k);
        sum += tensor_get(m->d_weights, i) * tensor_get(m->d_weights, i);
    }
    const double times = magnitude / sum;
    return isfinite(times) && times > 1 && times < 1e12 ? (int64_t)(times * (double)c->D) : c->D;
}

void mixture_backward(struct transformer *m, int layer)
{
    const struct ops *op = m->ops;
    const struct model_config *c = &m->config;
    const struct block_activations b = computed_block(&m->block[layer]);
    const struct tensor from_router = m->d_step,           /* free at this time */
                        d_rows = computed_rows(&b, m->d_rows);

    if (c->mixture.shared > 0) {
        computed_gradient(m, "routed.out", layer, m->d_branch, 1);
        shared_backward(m, layer);
    }
    /* d_rows = weight d_branch;  d_weights [N,k] = d_branch . result of the choice. */
    op->combine_backward_input(d_rows, m->d_weights, m->d_branch, b.results, b.order, b.weights);
    if (has_identity(c)) op->identity_backward_weights(m->d_weights, m->d_branch, b.ln2, b.experts, c->mixture.E);
    computed_gradient(m, "router.weights", layer, m->d_weights, terms_of_weights(m, &b));
    computed_gradient(m, "experts.out", layer, d_rows, 1);
    router_backward(m, layer);
    /* d ln2 by way of the router [N,D] = d_router W_router. */
    op->linear_backward_input(from_router, m->d_router, W(ROUTER_W));
    if (has_identity(c)) op->identity_forward(from_router, m->d_branch, b.experts, b.weights, c->mixture.E);
    experts_backward(m, layer);
    /* d_branch[n] = sum of d_rows over the token's k choices. */
    op->gather_backward_input(m->d_branch, d_rows, b.order, c->mixture.k);
    op->add(m->d_branch, m->d_branch, from_router);
    if (c->mixture.shared > 0) op->add(m->d_branch, m->d_branch, m->d_shared);
}

/* ---- router losses ----------------------------------------------------------------------------------------------- */

static int64_t losses_of_batch(const struct transformer *m)
{
    return m->balance_groups * balance_losses(&m->config.mixture, m->config.L);
}

enum error_code router_losses_begin(struct transformer *m, struct error *err)
{
    const struct model_config *c = &m->config;
    const int64_t columns = mixture_columns(&c->mixture);
    m->sequence_loss = 0;
    if (c->mlp != MLP_MIXTURE) return OK;
    m->balance_groups = 1;
    /* Groups are numbered without gaps: microbatches, sequences, or one batch. */
    for (int64_t n = 0; n < m->B * m->S; n++)
        if (group_of(m, n) >= m->balance_groups) m->balance_groups = group_of(m, n) + 1;
    free(m->router_sums), free(m->router_slope), free(m->router_rows);
    m->router_sums = calloc((size_t)(losses_of_batch(m) * (2 * columns + 1)), sizeof *m->router_sums);
    m->router_slope = calloc((size_t)(losses_of_batch(m) * columns), sizeof *m->router_slope);
    m->router_rows = calloc(4 * (size_t)c->L, sizeof *m->router_rows);
    memset(m->router_choices, 0, (size_t)(c->L * columns) * sizeof *m->router_choices);
    /* Four arrays of [L] share one piece of memory. */
    if (m->router_rows)
        m->router_sequences = m->router_rows + c->L, m->router_z = m->router_rows + 2 * c->L,
        m->router_own = m->router_rows + 3 * c->L;
    return m->router_sums && m->router_slope && m->router_rows
               ? OK
               : fail(err, ERR_MEMORY, "no memory for %lld balance losses", (long long)losses_of_batch(m));
}

/* The balance losses of a group of tokens, and their slopes. */
static double balance_of_group(struct transformer *m, int64_t group)
{
    const struct mixture_config *x = &m->config.mixture;
    const int64_t columns = mixture_columns(x), losses = balance_losses(x, m->config.L);
    double loss = 0;
    for (int64_t i = group * losses; i < (group + 1) * losses; i++) {
        const double *probability = m->router_sums + i * (2 * columns + 1), *chosen = probability + columns;
        const struct balance_rows rows = { chosen[columns], rows_among(m, i - group * losses) };
        for (int64_t e = 0; e < columns; e++) {
            /* loss = sum over e of slope_e times summed probability_e; slope_e grows with the choices of e. */
            const double slope = balance_slope(x, rows, chosen[e]);
            loss += slope * probability[e];
            m->router_slope[i * columns + e] = m->loss_scale * x->balance_coefficient * slope;
        }
    }
    return loss;
}

double router_losses_end(struct transformer *m)
{
    const struct mixture_config *x = &m->config.mixture;
    if (m->config.mlp != MLP_MIXTURE) return 0;
    m->balance_loss = m->z_loss = 0;
    for (int64_t g = 0; g < m->balance_groups; g++) m->balance_loss += balance_of_group(m, g);
    for (int64_t l = 0; l < m->config.L; l++) {
        /* Losses are means over the rows, or sequences, that were judged in the layer. */
        if (m->router_rows[l] > 0) m->z_loss += m->router_z[l] / rows_among(m, l);
        if (m->router_sequences[l] > 0) m->sequence_loss += m->router_own[l] / m->router_sequences[l];
    }
    return x->balance_coefficient * m->balance_loss + x->z_coefficient * m->z_loss +
           x->sequence_coefficient * m->sequence_loss;
}

void transformer_move_biases(struct transformer *m)
{
    const struct mixture_config *x = &m->config.mixture;
    for (int l = 0; l < m->config.L && x->router.biased; l++)
        if (is_mixture(m, l))
            router_move_bias(&x->router, transformer_router_bias(m, l), m->router_choices + l * mixture_columns(x),
                             x->E, x->zero, x->k);
}
