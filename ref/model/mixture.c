/* mixture.c -- the feed-forward of a mixture of experts: every token goes to k of E experts; their results are added
 * with weights.
 *
 * Rows are sorted by expert, so each expert computes products of consecutive rows; an expert without rows is skipped.
 * A choice that no expert computes has no row: a dropped one, or one of an expert that returns what it gets, or 0.
 * A balance loss may be of all layers together, so its gradient is known only after the last layer: see balance.h and
 * ref/ops/router_losses.c.  Files of check/, verify/, ref/model/ and ref/golden/ call these functions.  The only
 * error is ERR_MEMORY.
 */
#include "ref/model/transformer_parts.h"
#include "ref/model/balance.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include "ref/model/sample_mask.h"
#include "ref/routers/router.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

static int64_t mixture_count_of(const struct block_activations *activations, int64_t expert)
{
    return ((const int32_t *)activations->counts.data)[expert];
}

/* Buffers have room for all choices; of these some are computed by no expert. */
static struct tensor computed_rows(const struct block_activations *activations, struct tensor t)
{
    int64_t rows = 0;
    for (int64_t e = 0; e < tensor_count(activations->counts); e++) rows += mixture_count_of(activations, e);
    return tensor_first(t, rows);
}

static struct block_activations computed_block(const struct block_activations *activations)
{
    struct block_activations b = *activations;
    b.order = computed_rows(activations, activations->order), b.rows = computed_rows(activations, activations->rows),
        b.up = computed_rows(activations, activations->up);
    b.act = computed_rows(activations, activations->act), b.results = computed_rows(activations, activations->results);
    return b;
}

#define WE(p) pick(model->w, param_of_expert(&model->config, layer, e, p))
#define GE(p) pick(model->g, param_of_expert(&model->config, layer, e, p))

static void act_forward(const struct transformer *model, struct tensor Y, struct tensor X)
{
    const struct clamped c = model->config.mixture.clamped;
    if (c.limit > 0) model->ops->clamped_swiglu_forward(Y, X, c);
    else model->ops->swiglu_forward(Y, X);
}

static void act_backward(const struct transformer *model, struct tensor dX, struct tensor dY, struct tensor X)
{
    const struct clamped c = model->config.mixture.clamped;
    if (c.limit > 0) model->ops->clamped_swiglu_backward_input(dX, dY, X, c);
    else model->ops->swiglu_backward_input(dX, dY, X);
}

/* Whether there are experts that return what they get. */
static bool has_identity(const struct model_config *config)
{
    return config->mixture.zero > 0 && !config->mixture.zero_is_null;
}

/* Each token's experts, and their weights. */
static void mixture_choose(const struct transformer *model, struct block_activations *activations, int layer)
{
    const struct router_rule *const rule = &model->config.mixture.router;
    const int64_t n = tensor_count(activations->experts);
    if (model->route == NULL) {
        /* experts [N,k] = the k best columns by the rule's keys; weights [N,k] from their scores. */
        model->ops->route_forward(activations->weights, activations->experts, activations->router, rule,
                                  transformer_router_bias(model, layer));
        return;
    }
    /* Given choices replace the router's; it still weighs them by its own scores. */
    memcpy(activations->experts.data, model->route + layer * n, (size_t)n * sizeof *model->route);
    model->ops->route_weights(activations->weights, activations->experts, activations->router, rule);
}

/* Drop the choices for which an expert has no room. */
static void mixture_drop(const struct transformer *model, struct block_activations *activations)
{
    const struct mixture_config *x = &model->config.mixture;
    if (model->route == NULL)
        model->ops->route_drop(activations->weights, activations->experts, model->S, x->E,
                               mixture_capacity(x, model->S), x->drops_by_weight);
    /* Given choices say themselves which are dropped: a negative expert has weight 0. */
    for (int64_t i = 0; i < tensor_count(activations->experts) && model->route != NULL; i++)
        if (((const int32_t *)activations->experts.data)[i] < 0) tensor_set(activations->weights, i, 0);
}

bool transformer_judges(const struct transformer *model, int layer, int64_t token)
{
    const bool passes = model->passes_by && model->passes_by[layer * model->B + token / model->S];
    return !passes && !(model->micro_of && model->micro_of[token] == TOKEN_NOT_JUDGED);
}

/* The group of tokens in which a token that is judged is. */
static int64_t mixture_group_of(const struct transformer *model, int64_t token)
{
    switch (model->config.mixture.balance.over) {
    case OVER_SEQUENCE: return token / model->S;
    case OVER_BATCH:    return 0;
    default:            return model->micro_of ? model->micro_of[token] : 0;
    }
}

/* The balance loss that a row of a layer is of. */
static int64_t loss_of(const struct transformer *model, int layer, int64_t row)
{
    const struct mixture_config *x = &model->config.mixture;
    return mixture_group_of(model, row) * balance_losses(x, model->config.L) + balance_loss_of(x, layer);
}

/* The next rows of one group that are judged and no padding, from *first on.  @return how many; 0: there are none. */
static int64_t judged_rows(const struct transformer *model, int layer, int64_t *first)
{
    int64_t same = 0, n = tokens_without_padding(model->packed, model->B * model->S, first);
    while (n > 0 && !transformer_judges(model, layer, *first))
        ++*first, n = tokens_without_padding(model->packed, model->B * model->S, first);
    while (same < n && transformer_judges(model, layer, *first + same)
           && mixture_group_of(model, *first + same) == mixture_group_of(model, *first))
        same++;
    return same;
}

/* The rows of the next sequence that is judged, from row *first on.  @return S; 0: there is none. */
static int64_t judged_sequence(const struct transformer *model, int layer, int64_t *first)
{
    while (*first < model->B * model->S && !transformer_judges(model, layer, *first)) *first += model->S;
    return *first < model->B * model->S ? model->S : 0;
}

/* Add rows to the sums of their balance loss, whose last number counts rows, and to that of the z loss. */
static void add_to_sums(struct transformer *model, const struct block_activations *activations, int layer,
                        int64_t first, int64_t n)
{
    const struct mixture_config *x = &model->config.mixture;
    const int64_t columns = mixture_columns(x);
    double *const sums = model->router_sums + loss_of(model, layer, first) * (2 * columns + 1),
        *const z = &sums[2 * columns];
    const double rows = *z;
    *z = 0;
    model->ops->router_losses_forward(sums, tensor_rows_of(activations->router, first, n),
                                      tensor_rows_of(activations->experts, first, n), balance_counted(x));
    model->router_z[layer] += *z;
    *z = rows + (double)n;
    model->router_rows[layer] += (double)n;
}

/* Keep what losses need of rows that are no padding, and the choices by which biases move: as they were made, before
 * any is dropped. */
static void mixture_judge(struct transformer *model, const struct block_activations *activations, int layer)
{
    const struct mixture_config *x = &model->config.mixture;
    const int64_t k = x->k;
    double *const choices = model->router_choices + layer * mixture_columns(x);
    for (int64_t first = 0, n; (n = judged_rows(model, layer, &first)) > 0; first += n) {
        add_to_sums(model, activations, layer, first, n);
        for (int64_t i = first * k; i < (first + n) * k; i++) {
            /* choices[e] counts how often expert e was chosen, also where its capacity drops the choice. */
            const int32_t chosen = choice_made(((const int32_t *)activations->experts.data)[i]);
            if (chosen != CHOICE_NONE) choices[chosen]++;
        }
    }
    for (int64_t first = 0, n; (n = judged_sequence(model, layer, &first)) > 0; first += n) {
        const struct tensor experts = tensor_rows_of(activations->experts, first, n);
        /* Each judged sequence has a balance loss of its own. */
        model->router_sequences[layer]++;
        if (x->sequence_coefficient > 0)
            model->ops->sequence_balance_forward(&model->router_own[layer],
                                                 tensor_rows_of(activations->router, first, n), experts,
                                                 experts, model->S, &x->router);
    }
}

void mixture_forward(struct transformer *model, int layer)
{
    const struct ops *op = model->ops;
    const struct model_config *c = &model->config;
    struct block_activations *a = &model->block[layer];

    /* logits [N,E] = ln2 W_router^T. */
    op->linear_forward(a->router, a->ln2, W(ROUTER_W), W(ROUTER_B));
    computed(model, "router.logits", layer, a->router, c->D);
    mixture_choose(model, a, layer);
    mixture_judge(model, a, layer);
    if (c->mixture.capacity_factor > 0) mixture_drop(model, a);
    computed(model, "router.weights", layer, a->weights, mixture_columns(&c->mixture));
    /* order [Nk]: choices sorted by expert; counts [E]: rows of each. */
    op->expert_order(a->order, a->counts, a->experts);
    const struct block_activations b = computed_block(a);
    /* rows [Nk,D]: a token's row once for each of its choices, in that order. */
    op->gather_forward(b.rows, a->ln2, b.order, c->mixture.k);

    for (int64_t e = 0, first = 0; e < c->mixture.E; first += mixture_count_of(a, e++)) {
        const int64_t n = mixture_count_of(a, e);
        if (n > 0)
            op->linear_forward(tensor_rows_of(a->up, first, n), tensor_rows_of(a->rows, first, n), WE(UP_W),
                               WE(UP_B));
    }
    computed(model, "mlp.up", layer, b.up, c->D);
    /* act [Nk,F] = silu(gate) up, for the rows of all experts at once. */
    act_forward(model, b.act, b.up);
    computed(model, "mlp.act", layer, b.act, 1);
    for (int64_t e = 0, first = 0; e < c->mixture.E; first += mixture_count_of(a, e++)) {
        const int64_t n = mixture_count_of(a, e);
        if (n > 0)
            op->linear_forward(tensor_rows_of(a->results, first, n), tensor_rows_of(a->act, first, n), WE(DOWN_W),
                               WE(DOWN_B));
    }
    computed(model, "experts.out", layer, b.results, c->F);
    /* branch[n] = sum over a token's choices of weight times result, in the order of choices. */
    op->combine_forward(model->branch, b.results, b.order, a->weights);
    /* An expert without computation adds weight times ln2. */
    if (has_identity(c)) op->identity_forward(model->branch, a->ln2, a->experts, a->weights, c->mixture.E);
    if (c->mixture.shared > 0) {
        computed(model, "routed.out", layer, model->branch, c->mixture.k);
        shared_forward(model, layer);
    }
    computed(model, "mlp.out", layer, model->branch, c->mixture.shared > 0 ? 1 : c->mixture.k);
}

/* The rows that the losses of a layer's rows are means over. */
static double rows_among(const struct transformer *model, int64_t layer)
{
    return balance_rows_among(&model->config.mixture, model->router_rows, model->config.L, layer);
}

static void experts_backward(struct transformer *model, int layer)
{
    const struct ops *op = model->ops;
    const struct model_config *c = &model->config;
    const struct block_activations *a = &model->block[layer];
    const struct tensor d_act = computed_rows(a, model->d_act), d_up = computed_rows(a, model->d_up);

    for (int64_t e = 0, first = 0; e < c->mixture.E; first += mixture_count_of(a, e++)) {
        const int64_t n = mixture_count_of(a, e);
        if (n == 0) continue;
        /* dW_down[e] += d_rows^T act,  d_act = d_rows W_down[e], over the n rows of expert e. */
        op->linear_backward_weight(GE(DOWN_W), GE(DOWN_B), tensor_rows_of(model->d_rows, first, n),
                                   tensor_rows_of(a->act, first, n));
        op->linear_backward_input(tensor_rows_of(model->d_act, first, n),
                                  tensor_rows_of(model->d_rows, first, n), WE(DOWN_W));
    }
    computed_gradient(model, "mlp.act", layer, d_act, c->D);
    act_backward(model, d_up, d_act, computed_rows(a, a->up));
    computed_gradient(model, "mlp.up", layer, d_up, 1);
    for (int64_t e = 0, first = 0; e < c->mixture.E; first += mixture_count_of(a, e++)) {
        const int64_t n = mixture_count_of(a, e);
        if (n == 0) continue;
        /* dW_up[e] += d_up^T rows,  d_rows = d_up W_up[e]. */
        op->linear_backward_weight(GE(UP_W), GE(UP_B), tensor_rows_of(model->d_up, first, n),
                                   tensor_rows_of(a->rows, first, n));
        op->linear_backward_input(tensor_rows_of(model->d_rows, first, n),
                                  tensor_rows_of(model->d_up, first, n), WE(UP_W));
    }
}

static void router_backward(struct transformer *model, int layer)
{
    const struct ops *op = model->ops;
    const struct mixture_config *x = &model->config.mixture;
    struct block_activations *a = &model->block[layer];
    /* d_router [N,E]: gradients of logits from those of weights; choices themselves have none. */
    op->route_backward_input(model->d_router, model->d_weights, a->weights, a->experts, a->router, &x->router);
    for (int64_t first = 0, n; (n = judged_rows(model, layer, &first)) > 0; first += n)
        /* += balance slope of each probability, and 2 z coefficient logsumexp, over the loss's rows. */
        op->router_losses_backward_input(tensor_rows_of(model->d_router, first, n), tensor_rows_of(a->router, first, n),
                                         model->router_slope + loss_of(model, layer, first) * mixture_columns(x),
                                         model->loss_scale * 2 * x->z_coefficient / rows_among(model, layer));
    for (int64_t first = 0, n; x->sequence_coefficient > 0 && (n = judged_sequence(model, layer, &first)) > 0;
         first += n) {
        const struct tensor experts = tensor_rows_of(a->experts, first, n);
        op->sequence_balance_backward_input(tensor_rows_of(model->d_router, first, n),
                                            tensor_rows_of(a->router, first, n),
                                            experts, experts, model->S, &x->router,
                                            model->loss_scale * x->sequence_coefficient
                                                / model->router_sequences[layer]);
    }
    computed_gradient(model, "router.logits", layer, model->d_router, mixture_columns(x));
    /* dW_router += d_router^T ln2. */
    op->linear_backward_weight(G(ROUTER_W), G(ROUTER_B), model->d_router, a->ln2);
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
static int64_t terms_of_weights(const struct transformer *model, const struct block_activations *activations)
{
    const struct model_config *c = &model->config;
    const int64_t k = c->mixture.k, choices = tensor_count(model->d_weights),
        computed = tensor_count(activations->order);
    const int32_t *const order = activations->order.data, *const expert = activations->experts.data;
    double magnitude = 0, sum = 0;
    if (model->observer.see == NULL) return c->D;
    for (int64_t r = 0; r < computed; r++)
        magnitude += squared_magnitude(model->d_branch, order[r] / k, activations->results, r);
    for (int64_t i = 0; i < choices; i++) {
        if (expert[i] >= c->mixture.E && has_identity(c))
            magnitude += squared_magnitude(model->d_branch, i / k, activations->ln2, i / k);
        sum += tensor_get(model->d_weights, i) * tensor_get(model->d_weights, i);
    }
    const double times = magnitude / sum;
    return isfinite(times) && times > 1 && times < 1e12 ? (int64_t)(times * (double)c->D) : c->D;
}

void mixture_backward(struct transformer *model, int layer, struct tensor beside)
{
    const struct ops *op = model->ops;
    const struct model_config *c = &model->config;
    const struct block_activations b = computed_block(&model->block[layer]);
    const struct tensor from_experts = model->d_step,          /* free at this time */
                        d_rows = computed_rows(&b, model->d_rows);

    if (c->mixture.shared > 0) {
        computed_gradient(model, "routed.out", layer, model->d_branch, 1);
        shared_backward(model, layer);
    }
    /* d_rows = weight d_branch;  d_weights [N,k] = d_branch . result of the choice. */
    op->combine_backward_input(d_rows, model->d_weights, model->d_branch, b.results, b.order, b.weights);
    if (has_identity(c)) op->identity_backward_weights(model->d_weights, model->d_branch, b.ln2, b.experts,
                                                       c->mixture.E);
    computed_gradient(model, "router.weights", layer, model->d_weights, terms_of_weights(model, &b));
    computed_gradient(model, "experts.out", layer, d_rows, 1);
    router_backward(model, layer);
    experts_backward(model, layer);
    /* from_experts[n] = sum of d_rows over the token's k choices, then of those that return what they get. */
    op->gather_backward_input(from_experts, d_rows, b.order, c->mixture.k);
    if (has_identity(c)) op->identity_forward(from_experts, model->d_branch, b.experts, b.weights, c->mixture.E);
    /* d ln2 by way of the router [N,D] = d_router W_router. */
    op->linear_backward_input(model->d_branch, model->d_router, W(ROUTER_W));
    /* The order is that of devices: what all tokens go through comes before the router. */
    if (c->mixture.shared > 0) op->add(from_experts, from_experts, model->d_shared);
    if (tensor_present(beside)) op->add(from_experts, beside, from_experts);
    op->add(model->d_branch, from_experts, model->d_branch);
}

/* ---- router losses ----------------------------------------------------------------------------------------------- */

static int64_t losses_of_batch(const struct transformer *model)
{
    return model->balance_groups * balance_losses(&model->config.mixture, model->config.L);
}

enum error_code router_losses_begin(struct transformer *model, struct error *err)
{
    const struct model_config *c = &model->config;
    const int64_t columns = mixture_columns(&c->mixture);
    model->sequence_loss = 0;
    if (c->mlp != MLP_MIXTURE) return OK;
    model->balance_groups = 1;
    /* Groups are numbered without gaps: microbatches, sequences, or one batch. */
    for (int64_t n = 0; n < model->B * model->S; n++)
        if (mixture_group_of(model, n) >= model->balance_groups) model->balance_groups = mixture_group_of(model, n) + 1;
    free(model->router_sums), free(model->router_slope), free(model->router_rows);
    model->router_sums = calloc((size_t)(losses_of_batch(model) * (2 * columns + 1)), sizeof *model->router_sums);
    model->router_slope = calloc((size_t)(losses_of_batch(model) * columns), sizeof *model->router_slope);
    model->router_rows = calloc(4 * (size_t)c->L, sizeof *model->router_rows);
    memset(model->router_choices, 0, (size_t)(c->L * columns) * sizeof *model->router_choices);
    /* Four arrays of [L] share one piece of memory. */
    if (model->router_rows)
        model->router_sequences = model->router_rows + c->L, model->router_z = model->router_rows + 2 * c->L,
        model->router_own = model->router_rows + 3 * c->L;
    return model->router_sums && model->router_slope && model->router_rows
               ? OK
               : fail(err, ERR_MEMORY, "no memory for %lld balance losses", (long long)losses_of_batch(model));
}

/* The balance losses of a group of tokens, and their slopes. */
static double balance_of_group(struct transformer *model, int64_t group)
{
    const struct mixture_config *x = &model->config.mixture;
    const int64_t columns = mixture_columns(x), losses = balance_losses(x, model->config.L);
    double loss = 0;
    for (int64_t i = group * losses; i < (group + 1) * losses; i++) {
        const double *probability = model->router_sums + i * (2 * columns + 1), *chosen = probability + columns;
        const struct balance_rows rows = { chosen[columns], rows_among(model, i - group * losses) };
        for (int64_t e = 0; e < columns; e++) {
            /* loss = sum over e of slope_e times summed probability_e; slope_e grows with the choices of e. */
            const double slope = balance_slope(x, rows, chosen[e]);
            loss += slope * probability[e];
            model->router_slope[i * columns + e] = model->loss_scale * x->balance_coefficient * slope;
        }
    }
    return loss;
}

double router_losses_end(struct transformer *model)
{
    const struct mixture_config *x = &model->config.mixture;
    if (model->config.mlp != MLP_MIXTURE) return 0;
    model->balance_loss = model->z_loss = 0;
    for (int64_t g = 0; g < model->balance_groups; g++) model->balance_loss += balance_of_group(model, g);
    for (int64_t l = 0; l < model->config.L; l++) {
        /* Losses are means over the rows, or sequences, that were judged in the layer. */
        if (model->router_rows[l] > 0) model->z_loss += model->router_z[l] / rows_among(model, l);
        if (model->router_sequences[l] > 0) model->sequence_loss += model->router_own[l] / model->router_sequences[l];
    }
    return x->balance_coefficient * model->balance_loss + x->z_coefficient * model->z_loss +
           x->sequence_coefficient * model->sequence_loss;
}

void transformer_move_biases(struct transformer *model)
{
    const struct mixture_config *x = &model->config.mixture;
    for (int l = 0; l < model->config.L && x->router.biased; l++)
        if (is_mixture(model, l))
            router_move_bias(&x->router, transformer_router_bias(model, l),
                             model->router_choices + l * mixture_columns(x), x->E, x->zero, x->k);
}
