/* mixture.c -- what a router, the experts and their weighted sum give with one mistake.  mistakes.c reads the tables.
 * routing.h gives the choices by the program's own logits.  Rows of experts are choices, sorted by expert: row i
 * belongs to token routing_token(i).  Mistakes that a model cannot have give tensor_none. */
#include "emulated_devices/check/mistakes/conventions.h"
#include "emulated_devices/check/recompute/routing.h"
#include "ref/model/params.h"
#include <string.h>

enum { MOST_PARTS = 8, MOST_EXPERTS = 512, MOST_TRIED = 64 };

/* ---- the router -------------------------------------------------------------------------------------------------- */

enum { UNDIVIDED, DIVIDED, SIGMOIDS, SOFTMAX, UNSCALED, OF_SCORES, ALIKE, OF_LOGITS, BY_LARGEST, DETACHED };

/* This makes the weights [N, k] of the same choices by another rule of the router. */
static struct tensor weights(struct single *single, const struct single_node *node, int which)
{
    const struct routing r = routing_of(single, node->in[0]);
    struct router_rule rule = single->context->config->mixture.router;
    if (!single_going(single)) return tensor_none;
    /* The copy of the rule is changed; the model's own stays. */
    if (which == UNDIVIDED || which == DIVIDED) rule.normalized = which == DIVIDED;
    if (which == SIGMOIDS || which == SOFTMAX) rule.scores = which == SOFTMAX ? SCORES_SOFTMAX : SCORES_SIGMOID;
    if (which == UNSCALED) rule.scale = 1;
    const struct tensor w = single_new(single, single->cursor.N, r.k);
    /* The experts are chosen again, and must be an I32 matrix for route_forward. */
    struct tensor experts = single_new(single, single->cursor.N, r.k);
    experts.dtype = I32;
    if (!single->failed) single->context->ops->route_forward(w, experts, r.logits, &rule, NULL);
    return w;
}

/* This makes the k weights of a token from its chosen scores p and logits x, by a mistaken rule. */
static void other_weights(double *w, const double *p, const double *x, int64_t k, int which)
{
    double sum = 0, top = 0;
    for (int64_t i = 0; i < k; i++) {
        w[i] = which == OF_SCORES ? exp(p[i]) : which == ALIKE ? 1 : which == OF_LOGITS ? x[i] : p[i];
        sum += w[i], top = fmax(top, w[i]);
    }
    for (int64_t i = 0; i < k; i++) w[i] /= which == BY_LARGEST ? top : sum;
}

static void softmax(double *p, const double *x, int64_t n);

/* Weights [N, k] that no rule of the router gives: OF_SCORES, ALIKE, OF_LOGITS, BY_LARGEST. */
static struct tensor plain_weights(struct single *single, const struct single_node *node, int which)
{
    const struct routing r = routing_of(single, node->in[0]);
    const struct router_rule *rule = &single->context->config->mixture.router;
    if (!single_going(single) || rule->scores != SCORES_SOFTMAX || r.E > MOST_EXPERTS || r.k < 2 || r.k > MOST_PARTS)
        return tensor_none;
    const struct tensor w = single_new(single, single->cursor.N, r.k);
    for (int64_t row = 0; !single->failed && row < single->cursor.N; row++) {
        const int32_t *chosen = (const int32_t *)r.experts.data + row * r.k;
        const double *x = numbers(r.logits) + row * tensor_cols(r.logits);
        double score[MOST_EXPERTS], p[MOST_PARTS], of[MOST_PARTS];
        softmax(score, x, tensor_cols(r.logits));
        for (int64_t i = 0; i < r.k; i++) {
            /* A dropped choice has no score, so the mistake cannot be made. */
            if (chosen[i] < 0) return tensor_none;
            p[i] = score[chosen[i]], of[i] = x[chosen[i]];
        }
        other_weights(numbers(w) + row * r.k, p, of, r.k, which);
        /* The rule's factor multiplies the mistaken weights, too. */
        for (int64_t i = 0; i < r.k; i++) numbers(w)[row * r.k + i] *= rule->scale;
    }
    return w;
}

/* Rules that the router knows come before OF_SCORES in the list. */
static struct tensor route_forward(struct single *single, const struct single_node *node,
                                   const struct single_mistake *mistake)
{
    return mistake->which < OF_SCORES ? weights(single, node, mistake->which)
           : plain_weights(single, node, mistake->which);
}

/* Compute the softmax of a row. */
static void softmax(double *p, const double *x, int64_t n)
{
    double top = x[0], total = 0;
    for (int64_t e = 1; e < n; e++) top = fmax(top, x[e]);
    for (int64_t e = 0; e < n; e++) total += p[e] = exp(x[e] - top);
    for (int64_t e = 0; e < n; e++) p[e] /= total;
}

/* Compute the gradient of logits from those of scores, d: p (d - sum of p d). */
static void through_softmax(double *dx, const double *x, const double *d, int64_t n)
{
    double p[MOST_EXPERTS], inner = 0;
    softmax(p, x, n);
    for (int64_t e = 0; e < n; e++) inner += p[e] * d[e];
    for (int64_t e = 0; e < n; e++) dx[e] = p[e] * (d[e] - inner);
}

/* These are the two summands of the gradient of logits [N, E]: from the weights of choices, and from the routers'
 * losses. */
struct pulls { struct routing r; struct tensor weights, losses; };

/* @return false if an input is missing or a failure is noted.  losses may be tensor_none. */
static bool pulls_of(struct single *single, const struct single_node *node, struct pulls *pulls)
{
    pulls->r = routing_of(single, node->in[0]);
    if (!single_going(single)) return false;
    pulls->weights = router_weights_input(single, node, &pulls->r).y;
    pulls->losses = single_going(single) && router_has_losses(single) ? router_losses_input(single, &pulls->r).y
        : tensor_none;
    return single_going(single);
}

/* The sum that weights are divided by is taken for constant: d score = scale dW / sum, then through the softmax. */
static struct tensor constant_sum(struct single *single, const struct single_node *node)
{
    struct pulls p;
    const struct tensor dW = single_grad(single, node->out);
    const struct router_rule *rule = &single->context->config->mixture.router;
    if (!single_going(single) || !pulls_of(single, node, &p) || !rule->normalized || rule->scores != SCORES_SOFTMAX)
        return tensor_none;
    const int64_t E = tensor_cols(p.r.logits);
    const struct tensor dx = single_new(single, single->cursor.N, E);
    for (int64_t row = 0; !single->failed && E <= MOST_EXPERTS && row < single->cursor.N; row++) {
        const double *x = numbers(p.r.logits) + row * E;
        const int32_t *chosen = (const int32_t *)p.r.experts.data + row * p.r.k;
        double score[MOST_EXPERTS], d[MOST_EXPERTS] = { 0 }, sum = 0;
        softmax(score, x, E);
        /* Add up the chosen scores; a dropped choice adds nothing. */
        for (int64_t i = 0; i < p.r.k; i++) sum += chosen[i] >= 0 ? score[chosen[i]] : 0;
        for (int64_t i = 0; i < p.r.k; i++)
            if (chosen[i] >= 0) d[chosen[i]] = rule->scale * numbers(dW)[row * p.r.k + i] / sum;
        through_softmax(numbers(dx) + row * E, x, d, E);
        /* The losses' gradient is right and is added as it is. */
        for (int64_t e = 0; e < E && tensor_present(p.losses); e++)
            numbers(dx)[row * E + e] += numbers(p.losses)[row * E + e];
    }
    return dx;
}

/* Count how often tokens [from, to) choose each expert, in all layers.  @return the number of layers with a
 * router. */
static int64_t mixture_count_choices(struct single *single, int64_t from, int64_t to, double *count)
{
    int64_t layers = 0;
    memset(count, 0, MOST_EXPERTS * sizeof *count);
    for (int v = 0; v < single->context->graph->nodes && single_going(single); v++) {
        const int used = single->memory.used;
        if (single->context->graph->node[v].operation != &single_route) continue;
        const struct routing r = routing_of(single, single->context->graph->node[v].in[0]);
        /* Token n's choices are the numbers n k to n k + k - 1; a dropped choice counts, too. */
        for (int64_t i = from * r.k; single_going(single) && i < to * r.k; i++) {
            const int32_t e = choice_made(((const int32_t *)r.experts.data)[i]);
            if (e >= 0 && e < MOST_EXPERTS) count[e]++;
        }
        layers++;
        single_release(single, used);
    }
    return layers;
}

/* Each part of the batch balances its own tokens, and the losses are averaged. */
static struct tensor balance_of_parts(struct single *single, const struct single_node *node, int parts)
{
    const struct mixture_config *m = &single->context->config->mixture;
    struct pulls p;
    /* The right balance loss must be of the whole batch.  No other loss of the router may be in the gradient. */
    if (!router_balances_all(single) || !pulls_of(single, node, &p) || !tensor_present(p.losses)
        || parts > single->cursor.batch.B ||
        m->z_coefficient > 0 || m->sequence_coefficient > 0 || tensor_cols(p.r.logits) > MOST_EXPERTS)
        return tensor_none;
    const int64_t E = tensor_cols(p.r.logits);
    const struct tensor dx = single_new(single, single->cursor.N, E);
    /* A part is a run of sequences, as copies of a model have them. */
    for (int k = 0; k < parts && single_going(single); k++) {
        const int64_t from = part_begin(single->cursor.batch.B, parts, k) * single->cursor.batch.S,
                      to = part_begin(single->cursor.batch.B, parts, k + 1) * single->cursor.batch.S;
        double d[MOST_EXPERTS];
        const int64_t layers = mixture_count_choices(single, from, to, d);
        const double rows = (double)((to - from) * layers);
        /* d balance / d score_e = coefficient E count_e / (rows tokens), divided by the parts. */
        for (int64_t e = 0; e < E; e++) d[e] *= m->balance_coefficient * (double)E / rows / rows / parts;
        for (int64_t row = from; row < to && single_going(single); row++) {
            through_softmax(numbers(dx) + row * E, numbers(p.r.logits) + row * E, d, E);
            /* The gradient from the weights of choices is right, and is added. */
            for (int64_t e = 0; e < E; e++) numbers(dx)[row * E + e] += numbers(p.weights)[row * E + e];
        }
    }
    return single_going(single) ? dx : tensor_none;
}

/* No gradient goes through the weights of choices: only the routers' losses give one. */
static struct tensor detached(struct single *single, const struct single_node *node)
{
    struct pulls p;
    if (!pulls_of(single, node, &p)) return tensor_none;
    return tensor_present(p.losses) ? p.losses : single_new(single, single->cursor.N, tensor_cols(p.r.logits));
}

/* A row with parts is a balance loss; without parts it is the constant sum, or detached. */
static struct tensor route_input(struct single *single, const struct single_node *node,
                                 const struct single_mistake *mistake)
{
    const int *const parts = mistake->with;
    if (mistake->which == DETACHED) return detached(single, node);
    return parts ? balance_of_parts(single, node, *parts) : constant_sum(single, node);
}

#define PARTS(n) .with = &(const int){ n }
#define MEAN_OF(n)                                                                                                  \
    "a mean of balance losses of " #n " parts of the batch: --as ...,transformers-aux-loss --micro " #n               \
    ", if all are equal"

static const struct single_mistake route_rows[] = {
    { "weights are a softmax of the chosen scores, not of logits", FORWARD, .which = OF_SCORES },
    { "all weights are 1/k", FORWARD, .which = ALIKE },
    { "weights are the chosen logits divided by their sum", FORWARD, .which = OF_LOGITS },
    { "weights are divided by the largest, not by their sum", FORWARD, .which = BY_LARGEST },
    { "weights are not divided by their sum", FORWARD, .which = UNDIVIDED },
    { "weights are divided by their sum", FORWARD, .which = DIVIDED },
    { "scores are sigmoids in place of a softmax", FORWARD, .which = SIGMOIDS },
    { "scores are a softmax in place of sigmoids", FORWARD, .which = SOFTMAX },
    { "weights are not multiplied by their factor", FORWARD, .which = UNSCALED },
    { "the sum of weights is taken for constant", INPUT, .with = NULL },
    { "the router is detached: no gradient goes through the weights of choices", INPUT, .which = DETACHED },
    { MEAN_OF(2), INPUT, PARTS(2) },
    { MEAN_OF(3), INPUT, PARTS(3) },
    { MEAN_OF(4), INPUT, PARTS(4) },
    { MEAN_OF(8), INPUT, PARTS(8) },
    { 0 }
};

/* y = want + (factor - 1) pull.  usual: the factor was not measured. */
static void try_pull_times(struct suspect *suspect, struct tensor pull, double factor, bool usual, const char *what,
                           double *y)
{
    for (int64_t i = 0; i < suspect->count; i++) y[i] = suspect->want[i] + (factor - 1) * numbers(pull)[i];
    if (factor == 0) suspect_explained(suspect, y, "without what %s", what);
    else if (usual) suspect_explained(suspect, y, "what %s times %.4f", what, factor);
    else suspect_measured(suspect, y, "what %s times %.4f", what, factor);
}

/* A summand of the gradient of logits is lost, halved, doubled, or times the factor that fits best. */
static void try_pull(struct suspect *suspect, struct tensor pull, const char *what, double *y)
{
    static const double usual[] = { 0, 0.5, 2, 1 / 3.0, 3, 0.25, 4 };
    double along = 0, size = 0;
    for (int64_t i = 0; i < suspect->count; i++) {            /* by how well each is known: losses may be small */
        const double x = numbers(pull)[i] / fmax(suspect->bound[i], 1e-300);
        along += (suspect->have[i] - suspect->want[i]) / fmax(suspect->bound[i], 1e-300) * x, size += x * x;
    }
    if (!(size > 0)) return;
    /* The usual factor that is nearest to the measured factor is said if it is near enough. */
    size_t near = 0;
    for (size_t k = 1; k < sizeof usual / sizeof *usual; k++)
        if (fabs(usual[k] - 1 - along / size) < fabs(usual[near] - 1 - along / size)) near = k;
    if (fabs(usual[near] - 1 - along / size) < 0.1) try_pull_times(suspect, pull, usual[near], true, what, y);
    if (suspect->words[0] == 0) try_pull_times(suspect, pull, 1 + along / size, false, what, y);
}

/* Make the weights [N, k] of logits that are divided by a temperature.  @return how far they are from the program's,
 * squared; infinite: they cannot be made. */
static double with_temperature(const struct suspect *suspect, const struct routing *routing, double temperature,
                               double *y)
{
    struct single *s = suspect->s;
    const int used = s->memory.used;
    const struct tensor w = single_new(s, suspect->rows, suspect->cols),
                        x = single_new(s, suspect->rows, tensor_cols(routing->logits));
    struct tensor experts = single_new(s, suspect->rows, suspect->cols);
    double off = 0;
    if (s->failed) return INFINITY;
    experts.dtype = I32;
    for (int64_t i = 0; i < tensor_count(x); i++) numbers(x)[i] = numbers(routing->logits)[i] / temperature;
    s->context->ops->route_forward(w, experts, x, &s->context->config->mixture.router, NULL);
    for (int64_t i = 0; i < suspect->count; i++)
        y[i] = numbers(w)[i], off += (y[i] - suspect->have[i]) * (y[i] - suspect->have[i]);
    single_release(s, used);
    return off;
}

/* Logits are divided by a temperature before their softmax or sigmoid: the nearest is searched on a logarithmic
 * scale. */
static void try_temperature(struct suspect *suspect, const struct single_node *node, double *y)
{
    const double most = log(50);
    const struct routing r = routing_of(suspect->s, node->in[0]);
    double best = 0, off = INFINITY, from = -most, to = most;
    if (!single_going(suspect->s) || suspect->count != suspect->s->cursor.N * r.k) return;
    for (double step = most / 32; step > 1e-7; step /= 8) {
        for (double at = from; at <= to; at += step) {
            const double here = with_temperature(suspect, &r, exp(at), y);
            if (here < off) off = here, best = at;
        }
        from = best - step, to = best + step;
    }
    /* Numbers in programs are round; a temperature of 1 is right. */
    const double round_one = round(exp(best) * 100) / 100;
    if (round_one == 1) return;
    with_temperature(suspect, &r, round_one > 0 ? round_one : exp(best), y);
    if (suspect_measured(suspect, y, "logits are divided by a temperature of %.4g", round_one)) return;
    with_temperature(suspect, &r, exp(best), y);
    suspect_measured(suspect, y, "logits are divided by a temperature of %.4g", exp(best));
}

/* Losses come first: they are often small, and their factor fits exactly. */
static void try_pulls(struct suspect *suspect, const struct single_node *node, enum single_pass_kind pass, double *y)
{
    struct pulls of;
    if (pass == SINGLE_FORWARD && suspect->words[0] == 0) try_temperature(suspect, node, y);
    if (pass != SINGLE_INPUT || !pulls_of(suspect->s, node, &of) || !tensor_present(of.losses)) return;
    suspect_conventions(suspect, node, pass, y);
    if (suspect->words[0] == 0) try_pull(suspect, of.losses, "the routers' losses add", y);
    if (suspect->words[0] == 0) try_pull(suspect, of.weights, "the weights of choices add", y);
}

const struct single_mistakes single_route_mistakes = {
    .of = &single_route, .rows = route_rows, .make[SINGLE_FORWARD] = route_forward,
    .make[SINGLE_INPUT] = route_input, .parts = try_pulls, .explains_zeros = true
};

/* The number of the balance loss itself has no mistakes of its own, but conventions. */
static const struct single_mistake no_balance_rows[] = { { 0 } };

const struct single_mistakes single_balance_mistakes = {
    .of = &single_balance_loss, .rows = no_balance_rows, .parts = suspect_conventions
};

/* ---- experts ----------------------------------------------------------------------------------------------------- */

/* An expert's rows begin behind those of all experts before it. */
static int64_t first_row(const struct routing *routing, int64_t expert)
{
    int64_t first = 0;
    for (int64_t e = 0; e < expert; e++) first += routing_count(routing, e);
    return first;
}

/* This is the row of X that row i of the choices reads.  X has a row for each token, or for each choice.  A shift
 * takes the row of a choice further on. */
static int64_t source_of(const struct routing *routing, int64_t i, int64_t rows, int shift)
{
    if (rows == routing->rows) return i;
    return routing_token(routing, (i + shift + routing->rows) % routing->rows);
}

/* Y = X W^T of each expert's rows.  other: the distance of the expert whose matrix is taken. */
static struct tensor products(struct single *single, const struct single_node *node, int other, int shift)
{
    const struct routing r = routing_of(single, node->logits);
    const struct tensor X = single_act(single, node->in[0]);
    if (!single_going(single) || r.rows == 0) return tensor_none;
    const int64_t out = single_spec(single, node->weight).dim[0], in = tensor_cols(X);
    const struct tensor Y = single_new(single, r.rows, out);
    for (int64_t e = 0; e < r.E && single_going(single); e++) {
        const int used = single->memory.used;
        const int64_t first = first_row(&r, e), count = routing_count(&r, e);
        /* The expert's rows are gathered, since its choices are not next to each other in X. */
        const struct tensor W = single_param(single, node->weight + (int)((e + other + r.E) % r.E) * node->stride),
                            x = single_new(single, count, in);
        for (int64_t i = 0; single_going(single) && i < count; i++)
            memcpy(numbers(x) + i * in, numbers(X) + source_of(&r, first + i, tensor_rows(X), shift) * in,
                   (size_t)in * sizeof(double));
        /* An expert without rows multiplies nothing. */
        if (single_going(single) && count > 0)
            single->context->ops->linear_forward_add(tensor_2d(numbers(Y) + first * out, F64, count, out), x, W);
        single_release(single, used);
    }
    return Y;
}

/* The mistake reads another expert's matrix, or another choice's row, instead of its own. */
struct experts_switches { int other, shift; };
#define WITH(...) .with = &(const struct experts_switches){ __VA_ARGS__ }

static struct tensor experts_forward(struct single *single, const struct single_node *node,
                                     const struct single_mistake *mistake)
{
    const struct experts_switches *with = mistake->with;
    return with->other && single->context->config->mixture.E == 1 ? tensor_none
           : products(single, node, with->other, with->shift);
}

#define MATRICES \
    { "another expert's matrix: expert e has that of e + 1", FORWARD, WITH(.other = 1) }, \
    { "another expert's matrix: expert e has that of e - 1", FORWARD, WITH(.other = -1) }

static const struct single_mistake down_rows[] = { MATRICES, { 0 } }, up_rows[] = {
    MATRICES,
    { "another token's rows: each choice has the row of the next", FORWARD, WITH(.shift = 1) },
    { "another token's rows: each choice has the row of the one before", FORWARD, WITH(.shift = -1) },
    { 0 }
};

/* For each expert whose rows are wrong, find the expert whose matrix gives them.  with[e] stays e if no other
 * matrix does.  @return how many were found. */
static int find_matrices(struct suspect *suspect, const struct single_node *node,
                         const struct routing *routing, int with[], double *y)
{
    double off[MOST_TRIED];
    int found = 0;
    for (int64_t e = 0; e < routing->E; e++) {
        const int64_t from = first_row(routing, e) * suspect->cols,
            to = from + routing_count(routing, e) * suspect->cols;
        with[e] = (int)e, off[e] = 0;
        for (int64_t i = from; i < to; i++)
            off[e] += (suspect->have[i] - suspect->want[i]) * (suspect->have[i] - suspect->want[i]);
    }
    /* y begins as the right result; experts with another matrix overwrite their rows. */
    memcpy(y, suspect->want, (size_t)suspect->count * sizeof *y);
    /* `other` is a distance: expert e tries the matrix of e + other. */
    for (int other = 1; other < routing->E && single_going(suspect->s); other++) {
        const int used = suspect->s->memory.used;
        const struct tensor Y = products(suspect->s, node, other, 0);
        for (int64_t e = 0; e < routing->E && tensor_present(Y) && tensor_count(Y) == suspect->count; e++) {
            const int64_t from = first_row(routing, e) * suspect->cols,
                to = from + routing_count(routing, e) * suspect->cols;
            double here = 0;
            for (int64_t i = from; i < to; i++)
                here += (suspect->have[i] - numbers(Y)[i]) * (suspect->have[i] - numbers(Y)[i]);
            /* A hundred times nearer: matrices of other experts give quite other rows. */
            if (!(here < off[e] / 100)) continue;
            memcpy(y + from, numbers(Y) + from, (size_t)(to - from) * sizeof *y);
            found += with[e] == e, with[e] = (int)((e + other) % routing->E), off[e] = here;
        }
        single_release(suspect->s, used);
    }
    return found;
}

/* Some experts have the matrices of others: two have exchanged them, or one has another's. */
static void try_matrices(struct suspect *suspect, const struct single_node *node, double *y)
{
    const struct routing r = routing_of(suspect->s, node->logits);
    int with[MOST_TRIED], e = 0;
    if (!single_going(suspect->s) || suspect->words[0] || r.E > MOST_TRIED || r.rows * suspect->cols != suspect->count)
        return;
    if (find_matrices(suspect, node, &r, with, y) == 0) return;
    /* The first expert with another matrix is named. */
    while (with[e] == e) e++;
    if (with[with[e]] == e)
        suspect_explained(suspect, y, "experts %d and %d have exchanged their matrices", e, with[e]);
    else suspect_explained(suspect, y, "expert %d has the matrix of expert %d", e, with[e]);
}

/* dW [out, in] of an expert from the choices of tokens [from, to): dW += dY_i^T X_i. */
static struct tensor weight_of_tokens(struct single *single, const struct single_node *node, int64_t from, int64_t to)
{
    const struct routing r = routing_of(single, node->logits);
    const struct tensor dY = single_grad(single, node->out), X = single_act(single, node->in[0]);
    if (!single_going(single)) return tensor_none;
    const int64_t rows = tensor_cols(dY), cols = tensor_cols(X), first = first_row(&r, single->cursor.expert);
    const struct tensor dW = single_new(single, rows, cols);
    for (int64_t i = first; !single->failed && i < first + routing_count(&r, single->cursor.expert); i++) {
        const double *dy = numbers(dY) + i * rows, *x = numbers(X) + source_of(&r, i, tensor_rows(X), 0) * cols;
        if (routing_token(&r, i) < from || routing_token(&r, i) >= to) continue;
        for (int64_t j = 0; j < rows * cols; j++) numbers(dW)[j] += dy[j / cols] * x[j % cols];
    }
    return dW;
}

/* The gradient of an expert's matrix is the sum over the sequences of the batch, of which copies have some. */
static void try_batch(struct suspect *suspect, const struct single_node *node, enum single_pass_kind pass, double *y)
{
    struct single *s = suspect->s;
    const int64_t B = s->cursor.batch.B, S = s->cursor.batch.S;
    if (pass == SINGLE_FORWARD) try_matrices(suspect, node, y);
    if (pass != SINGLE_WEIGHT || B < 2 || B > MOST_PARTS || suspect->words[0]) return;
    struct tensor part[MOST_PARTS];
    const int used = s->memory.used;
    for (int b = 0; b < B; b++) part[b] = weight_of_tokens(s, node, b * S, (b + 1) * S);
    if (single_going(s)) suspect_parts(suspect, part, (int)B, "sequence", y);
    single_release(s, used);
}

const struct single_mistakes single_experts_up_mistakes = {
    .of = &single_experts_up, .rows = up_rows, .make[SINGLE_FORWARD] = experts_forward, .parts = try_batch
};
const struct single_mistakes single_experts_down_mistakes = {
    .of = &single_experts_down, .rows = down_rows, .make[SINGLE_FORWARD] = experts_forward, .parts = try_batch
};

/* ---- the weighted sum -------------------------------------------------------------------------------------------- */

enum { REVERSED, NOT_WEIGHED, TWICE };

/* This is the weight of a row of the choices, with the mistake. */
static double weighed(const struct routing *routing, int64_t row, struct tensor w, int which)
{
    const int64_t at = ((const int32_t *)routing->order.data)[row], token = at / routing->k;
    const double own = numbers(w)[at];
    return which == NOT_WEIGHED ? 1 : which == TWICE ? own * own
           : numbers(w)[token * routing->k + routing->k - 1 - at % routing->k];
}

/* Y [N, D] = sum over a token's choices of weight times row. */
static struct tensor combine_forward(struct single *single, const struct single_node *node,
                                     const struct single_mistake *mistake)
{
    const int which = mistake->which;
    struct single_sizes sizes;
    const struct routing r = routing_of(single, node->logits);
    const struct tensor rows = single_act_sized(single, node->in[0], &sizes), w = single_act(single, node->in[1]);
    if (!single_going(single) || single->context->config->mixture.zero > 0) return tensor_none;
    const int64_t D = tensor_cols(rows);
    const struct tensor Y = single_new(single, single->cursor.N, D);
    for (int64_t i = 0; !single->failed && i < r.rows * D; i++)
        numbers(Y)[routing_token(&r, i / D) * D + i % D] += weighed(&r, i / D, w, which) * numbers(rows)[i];
    return Y;
}

/* dX [rows, D] = weight dY of the row's token. */
static struct tensor combine_input(struct single *single, const struct single_node *node,
                                   const struct single_mistake *mistake)
{
    const int which = mistake->which;
    const struct routing r = routing_of(single, node->logits);
    const struct tensor dY = single_grad(single, node->out), w = single_act(single, node->in[1]);
    if (!single_going(single)) return tensor_none;
    const int64_t D = tensor_cols(dY);
    const struct tensor dX = single_new(single, r.rows, D);
    for (int64_t i = 0; !single->failed && i < r.rows * D; i++)
        numbers(dX)[i] = weighed(&r, i / D, w, which) * numbers(dY)[routing_token(&r, i / D) * D + i % D];
    return dX;
}

static const struct single_mistake combine_rows[] = {
    { "rows are not multiplied by their weights", FORWARD | INPUT, .which = NOT_WEIGHED },
    { "rows are multiplied by their weights twice", FORWARD | INPUT, .which = TWICE },
    { "the weights of a token's choices are in reverse order", FORWARD | INPUT, .which = REVERSED },
    { 0 }
};

/* An element outside its bound, also if it is NaN. */
static bool is_outside(const struct suspect *suspect, int64_t i)
{
    return !(fabs(suspect->have[i] - suspect->want[i]) <= suspect->bound[i]);
}

/* A row is missing if least squares find all of it but for this part: the bug row-dropped (golden/bugs) is named so in
 * fp32, bf16 and fp16, and not if the row must be found exactly (fault check-mistake-dropped-row-is-exact). */
static const double WHOLE_ROW = 0.05;

/* How much of a choice's row a token lacks, by least squares: 1 is all of it.  NaN: nothing of the token is wrong. */
static double mixture_lacks(const struct suspect *suspect, int64_t token, const double *row, double w)
{
    double along = 0, size = 0;
    bool wrong = false;
    for (int64_t d = 0; d < suspect->cols; d++) {
        const int64_t i = token * suspect->cols + d;
        along += (suspect->want[i] - suspect->have[i]) * w * row[d], size += w * w * row[d] * row[d];
        wrong = wrong || is_outside(suspect, i);
    }
    return wrong && size > 0 ? along / size : NAN;
}

/* All rows of an expert are not in the sum, or all rows with one number among a token's choices. */
static void try_without(struct suspect *suspect, const struct routing *routing, struct tensor rows,
                        struct tensor w, double *y)
{
    for (int64_t of = 0; of < routing->E + routing->k && routing->E <= MOST_TRIED; of++) {
        /* The first E hypotheses are experts, the next k are numbers of choices. */
        memcpy(y, suspect->want, (size_t)suspect->count * sizeof *y);
        for (int64_t e = 0, i = 0; e < routing->E; e++)
            for (const int64_t end = i + routing_count(routing, e); i < end; i++) {
                const int64_t choice = ((const int32_t *)routing->order.data)[i] % routing->k,
                    token = routing_token(routing, i);
                if (of < routing->E ? e != of : choice != of - routing->E) continue;
                for (int64_t d = 0; d < suspect->cols; d++)
                    y[token * suspect->cols + d] -= routing_weight(routing, i, w)
                        * numbers(rows)[i * suspect->cols + d];
            }
        if (of < routing->E) suspect_explained(suspect, y, "without what expert %d of %d gives", (int)of,
                                               (int)routing->E);
        else suspect_explained(suspect, y, "without the rows of each token's choice %d of %d", (int)(of - routing->E),
                               (int)routing->k);
    }
}

/* Find rows that are not in the sum: an expert had no room for them, or a row was lost. */
static void try_dropped(struct suspect *suspect, const struct single_node *node, double *y)
{
    struct single_sizes sizes;
    const struct routing r = routing_of(suspect->s, node->logits);
    const struct tensor rows = single_act_sized(suspect->s, node->in[0], &sizes),
        w = single_act(suspect->s, node->in[1]);
    int64_t dropped = 0, expert = -1, lasts = 0;
    bool one = true;
    if (!single_going(suspect->s)) return;
    if (suspect->words[0] == 0) try_without(suspect, &r, rows, w, y);
    if (suspect->words[0]) return;
    memcpy(y, suspect->want, (size_t)suspect->count * sizeof *y);
    for (int64_t e = 0; e < r.E; e++)
        for (int64_t first = first_row(&r, e), i = first; i < first + routing_count(&r, e); i++) {
            const double weight = routing_weight(&r, i, w), *row = numbers(rows) + i * suspect->cols;
            /* The row is missing only if the token lacks all of it. */
            if (!(fabs(mixture_lacks(suspect, routing_token(&r, i), row, weight) - 1) < WHOLE_ROW)) continue;
            for (int64_t d = 0; d < suspect->cols; d++) y[routing_token(&r, i) * suspect->cols + d] -= weight * row[d];
            one = one && (expert < 0 || expert == e), expert = e, dropped++;
            lasts += i == first + routing_count(&r, e) - 1;
        }
    if (dropped == 0) return;
    /* An expert that had no room for its last row is the usual cause, and has words of its own. */
    if (one && dropped == 1 && lasts == 1)
        suspect_explained(suspect, y, "without the last row of expert %d of %d", (int)expert, (int)r.E);
    else if (one) suspect_explained(suspect, y, "without %d rows of expert %d of %d", (int)dropped,
                                    (int)expert, (int)r.E);
    else suspect_explained(suspect, y, "without %d rows of several experts", (int)dropped);
}

/* Keep the columns of part k of a matrix and set the rest to 0. */
static struct tensor some_columns(struct single *single, struct tensor t, int parts, int k)
{
    const int64_t cols = tensor_cols(t), from = part_begin(cols, parts, k), to = part_begin(cols, parts, k + 1);
    const struct tensor out = single_new(single, tensor_rows(t), cols);
    for (int64_t i = 0; !single->failed && i < tensor_count(t); i++)
        numbers(out)[i] = i % cols >= from && i % cols < to ? numbers(t)[i] : 0;
    return out;
}

/* Rank k's columns of the experts give this to the gradient of weights [N, k]: the product of its part of the rows
 * with dY. */
static struct tensor weights_of_part(struct single *single, const struct single_node *node,
                                     const struct single_node *down, int parts, int k)
{
    const struct routing r = routing_of(single, node->logits);
    const struct tensor dY = single_grad(single, node->out), X = single_act(single, down->in[0]);
    const struct tensor out = single_new(single, single->cursor.N, r.k);
    for (int64_t e = 0; e < r.E && single_going(single); e++) {
        const int used = single->memory.used;
        const int64_t first = first_row(&r, e), count = routing_count(&r, e), D = tensor_cols(dY);
        const struct tensor W = single_param(single, down->weight + (int)e * down->stride),
            rows = single_new(single, count, D);
        if (!single_going(single) || count == 0) continue;
        const struct tensor x = tensor_2d(numbers(X) + first * tensor_cols(X), F64, count, tensor_cols(X)),
                            some = some_columns(single, x, parts, k);
        if (!single->failed) single->context->ops->linear_forward_add(rows, some, W);
        /* The weight of a choice has the gradient (row, dY of its token). */
        for (int64_t i = 0; !single->failed && i < count * D; i++)
            numbers(out)[((const int32_t *)r.order.data)[first + i / D]] +=
                numbers(rows)[i] * numbers(dY)[routing_token(&r, first + i / D) * D + i % D];
        single_release(single, used);
    }
    return out;
}

/* The gradient of weights is the sum over ranks along tp, which have parts of the experts. */
static void try_weights_in_parts(struct suspect *suspect, const struct single_node *node, double *y)
{
    struct single *s = suspect->s;
    const struct single_node *down = &s->context->graph->node[single_slot(s, node->in[0])->maker];
    const int tried[] = { s->rounding.parts, 2, 3, 4, 8 };
    /* The rows must come from the experts' second product, or the parts are unknown. */
    if (down->operation != &single_experts_down || s->context->config->mixture.zero > 0) return;
    for (int t = 0; t < 5 && suspect->words[0] == 0 && single_going(s); t++) {
        struct tensor part[MOST_PARTS];
        const int parts = tried[t], used = s->memory.used;
        if (parts < 2 || parts > MOST_PARTS || parts > single_slot(s, down->in[0])->cols) continue;
        for (int k = 0; k < parts; k++) part[k] = weights_of_part(s, node, down, parts, k);
        if (single_going(s)) suspect_parts(suspect, part, parts, "part", y);
        single_release(s, used);
    }
}

static void try_sums(struct suspect *suspect, const struct single_node *node, enum single_pass_kind pass, double *y)
{
    if (pass == SINGLE_FORWARD) try_dropped(suspect, node, y);
    if (pass == SINGLE_INPUT && suspect->rows == suspect->s->cursor.N &&
        suspect->cols == suspect->s->context->config->mixture.k) try_weights_in_parts(suspect, node, y);
}

const struct single_mistakes single_combine_mistakes = {
    .of = &single_combine, .rows = combine_rows, .make[SINGLE_FORWARD] = combine_forward,
    .make[SINGLE_INPUT] = combine_input, .parts = try_sums
};
