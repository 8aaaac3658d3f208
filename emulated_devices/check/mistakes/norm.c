/* norm.c -- what a norm, also of a latent, gives with one mistake.
 * mistakes.c reads norm_rows for layernorm, rmsnorm and norms of latents.  suspect_product_parts of matrix.c gives
 * what ranks along tp have before their sum. */
#include "emulated_devices/check/mistakes/mistakes.h"
#include "ref/model/kinds.h"
#include <string.h>

struct norm_switches {
    double eps;                         /* in place of the model's; 0: the model's */
    bool no_eps, outside, sample, no_mean, no_weight, no_bias;
    bool adds_one, lacks_one;           /* factors are 1 + weights where they are weights; the other way round */
    bool constant, no_sum;              /* backward: the norm, or the mean, taken for constant */
    bool no_root, summed, subtracted;   /* 1/v in place of 1/sqrt(v); a sum of squares, not a mean; rmsnorm: the mean is
                                         * subtracted; backward its gradient's */
    bool dot_summed, unscaled;          /* backward: the product with the norm's rows is not divided by D; the root is
                                         * lost */
    bool not_normed, of_result;         /* rows are not normed; the weight's gradient: of rows times the weight */
};

#define WITH(...) .with = &(const struct norm_switches){ __VA_ARGS__ }

/* These are the mean of a row and the factor 1 / root by which the row is multiplied. */
struct row { double mean, r; };

/* With the switches a row's mean and factor are the mistaken ones.  rmsnorm has the mean 0. */
static struct row norm_row_of(const struct single *single, const struct single_node *node,
                              const struct norm_switches *switches, const double *x, int64_t D)
{
    const double eps = switches->eps > 0 ? switches->eps : switches->no_eps ? 0 : single_norm_eps(single, node);
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < D; i++) sum += x[i];
    const bool subtracted = single->context->config->norm == NORM_LAYER ? !switches->no_mean : switches->subtracted;
    const double mean = subtracted ? sum / (double)D : 0;
    for (int64_t i = 0; i < D; i++) squares += (x[i] - mean) * (x[i] - mean);
    const double variance = switches->summed ? squares : squares / (double)(D - switches->sample);
    if (switches->no_root) return (struct row){ mean, 1 / (variance + eps) };
    return (struct row){ mean, switches->outside ? 1 / (sqrt(variance) + eps) : 1 / sqrt(variance + eps) };
}

/* Whether the mistake changes nothing: an eps equal to the model's, no bias, a mean that rmsnorm does not have. */
static bool norm_cannot(const struct single *single, const struct single_node *node,
                        const struct norm_switches *switches)
{
    return (switches->subtracted && single->context->config->norm == NORM_LAYER) ||
           (switches->eps > 0 && fabs(switches->eps / single_norm_eps(single, node) - 1) < 1e-3)
               || (switches->no_bias && node->bias < 0) ||
           (switches->no_mean && single->context->config->norm != NORM_LAYER) ||
           (switches->adds_one && norm_base(single->context->config) != 0) ||
           (switches->lacks_one && norm_base(single->context->config) == 0);
}

/* The factor of an element: its weight, or 1 + weight in models whose norms are based at 1. */
static double factor(const struct single *single, const struct norm_switches *switches, double weight)
{
    return switches->no_weight ? 1
           : weight + norm_base(single->context->config) + switches->adds_one - switches->lacks_one;
}

/* Y [N, D] = (X - mean) r w + b. */
static struct tensor mistakes_norm_norm_forward(struct single *single, const struct single_node *node,
                                                const struct single_mistake *mistake)
{
    const struct norm_switches *v = mistake->with;
    const struct tensor X = single_act(single, node->in[0]);
    if (v->not_normed) return single_going(single) ? X : tensor_none;
    const struct tensor w = single_param(single, node->weight), b = single_param(single, node->bias);
    if (!single_going(single) || norm_cannot(single, node, v)) return tensor_none;
    const int64_t D = single_slot(single, node->out)->cols, ld = tensor_cols(X);
    const struct tensor Y = single_new(single, tensor_rows(X), D);
    /* A norm of heads or of parts has fewer weights than columns, and no row of this table. */
    if (tensor_count(w) != D) return tensor_none;
    struct row row = { 0 };
    for (int64_t i = 0; !single->failed && i < tensor_count(Y); i++) {
        const int64_t c = i % D;
        const double *x = numbers(X) + i / D * ld;
        /* A row's statistics are computed once, for its first column. */
        if (c == 0) row = norm_row_of(single, node, v, x, D);
        numbers(Y)[i] = (x[c] - row.mean) * row.r * factor(single, v, numbers(w)[c]) +
                        (node->bias < 0 || v->no_bias ? 0 : numbers(b)[c]);
    }
    return Y;
}

/* dX = r (h - mean(h) - n mean(h n)); h = dY w, and n is the normed row. */
static struct tensor norm_input(struct single *single, const struct single_node *node,
                                const struct single_mistake *mistake)
{
    const struct norm_switches *v = mistake->with;
    const struct tensor dY = single_grad(single, node->out), X = single_act(single, node->in[0]),
        w = single_param(single, node->weight);
    if (!single_going(single) || norm_cannot(single, node, v)) return tensor_none;
    const int64_t D = tensor_cols(dY), ld = tensor_cols(X);
    const struct tensor dX = single_new(single, tensor_rows(X), ld);
    const bool has_mean = single->context->config->norm == NORM_LAYER ? !v->no_sum : v->subtracted;
    const struct norm_switches right = { 0 };
    if (tensor_count(w) != D) return tensor_none;
    for (int64_t r = 0; !single->failed && r < tensor_rows(X); r++) {
        const double *x = numbers(X) + r * ld, *dy = numbers(dY) + r * D;
        /* With the mistake `subtracted` only the gradient's mean is wrong; the row itself is right. */
        const struct row row = norm_row_of(single, node, v->subtracted ? &right : v, x, D);
        /* h is the mean of dY w, and hx the mean of dY w n. */
        double h = 0, hx = 0;
        for (int64_t i = 0; i < D; i++) {
            const double hi = dy[i] * factor(single, v, numbers(w)[i]);
            h += hi / (double)D, hx += hi * (x[i] - row.mean) * row.r / (double)D;
        }
        if (v->dot_summed) hx *= (double)D;
        for (int64_t i = 0; i < D; i++) {
            const double own = dy[i] * factor(single, v, numbers(w)[i]) - (has_mean ? h : 0);
            numbers(dX)[r * ld + i] = (v->unscaled ? 1 : row.r) *
                                      (own - (v->constant ? 0 : (x[i] - row.mean) * row.r * hx));
        }
    }
    return dX;
}

/* dw [D] = sum over rows of dY n.  The mistakes take other rows than the normed ones. */
static struct tensor norm_weight(struct single *single, const struct single_node *node,
                                 const struct single_mistake *mistake)
{
    const struct norm_switches *v = mistake->with, right = { 0 };
    const struct tensor dY = single_grad(single, node->out), X = single_act(single, node->in[0]),
        w = single_param(single, node->weight);
    if (!single_going(single)) return tensor_none;
    const int64_t D = tensor_cols(dY), ld = tensor_cols(X);
    const struct tensor dW = single_new(single, 1, D);
    if (tensor_count(w) != D) return tensor_none;
    /* dw_i += dy_i n_i, where n = (x - mean) r unless the mistake takes the input itself. */
    for (int64_t r = 0; !single->failed && r < tensor_rows(X); r++) {
        const double *x = numbers(X) + r * ld, *dy = numbers(dY) + r * D;
        const struct row row = norm_row_of(single, node, &right, x, D);
        for (int64_t i = 0; i < D; i++) {
            const double normed = v->not_normed ? x[i] : (x[i] - row.mean) * row.r;
            numbers(dW)[i] += dy[i] * normed * (v->of_result ? factor(single, &right, numbers(w)[i]) : 1);
        }
    }
    return dW;
}

static const struct single_mistake norm_rows[] = {
    { "eps is added outside the root", FORWARD | INPUT, WITH(.outside = true) },
    { "the variance is divided by D - 1", FORWARD | INPUT, WITH(.sample = true) },
    { "the mean is not subtracted", FORWARD, WITH(.no_mean = true) },
    { "without its weight", FORWARD, WITH(.no_weight = true) },
    { "without its bias", FORWARD, WITH(.no_bias = true) },
    { "its weight has 1 added", FORWARD | INPUT, WITH(.adds_one = true) },
    { "1 is not added to its weight", FORWARD | INPUT, WITH(.lacks_one = true) },
    { "it is not normed: it is what the norm reads", FORWARD, WITH(.not_normed = true) },
    { "the norm's weight is missing", INPUT, WITH(.no_weight = true) },
    { "the norm is taken for constant", INPUT, WITH(.constant = true) },
    { "the mean is taken for constant", INPUT, WITH(.no_sum = true) },
    { "the gradient's mean is subtracted, as of a layernorm", INPUT, WITH(.subtracted = true) },
    { "the product with the normed row is not divided by D", INPUT, WITH(.dot_summed = true) },
    { "it is not divided by the root of the mean of squares", INPUT, WITH(.unscaled = true) },
    { "without eps", FORWARD, WITH(.no_eps = true) },
    { "it divides by the mean of squares, not by its root", FORWARD, WITH(.no_root = true) },
    { "squares are added up, and not divided by D", FORWARD, WITH(.summed = true) },
    { "the mean is subtracted", FORWARD, WITH(.subtracted = true) },
    { "eps is 0.1", FORWARD, WITH(.eps = 0.1) },
    { "eps is 1e-2", FORWARD | INPUT, WITH(.eps = 1e-2) },
    { "eps is 1e-3", FORWARD | INPUT, WITH(.eps = 1e-3) },
    { "eps is 1e-4", FORWARD | INPUT, WITH(.eps = 1e-4) },
    { "eps is 1e-5", FORWARD | INPUT, WITH(.eps = 1e-5) },
    { "eps is 1e-6", FORWARD | INPUT, WITH(.eps = 1e-6) },
    { "eps is 1e-8", FORWARD, WITH(.eps = 1e-8) },
    { "rows are not normed", WEIGHT, WITH(.not_normed = true) },
    { "rows are multiplied by the weight", WEIGHT, WITH(.of_result = true) },
    { 0 }
};


/* ---- before the sum over tp ------------------------------------------------------------------------------------- */

/* Find the product that a norm reads, as it is or with what passes by.  @return NULL: no product, or masks are
 * between them. */
static const struct single_node *product_before(const struct single *single, int slot)
{
    const int maker = slot < 0 ? -1 : single_slot(single, slot)->maker;
    const struct single_node *n = maker < 0 ? NULL : &single->context->graph->node[maker];
    if (n == NULL || n->rate > 0) return NULL;
    if (n->operation == &single_matrix) return n;
    if (n->operation == &single_add) return product_before(single, n->in[1]);
    return n->operation == &single_dropout ? product_before(single, n->in[0]) : NULL;
}

/* Norm the rows X + Z as the node does, and add the result to y.  Z may be NULL. */
static void add_norm(struct single *single, const struct single_node *node, struct tensor X, const double *Z, double *y)
{
    const struct tensor w = single_param(single, node->weight), b = single_param(single, node->bias);
    const int64_t D = single_slot(single, node->out)->cols;
    const struct norm_switches right = { 0 };
    double *const x = single_new(single, 1, D).data;
    for (int64_t r = 0; single_going(single) && r < tensor_rows(X); r++) {
        /* The row that is normed is X + Z, or X alone. */
        for (int64_t i = 0; i < D; i++) x[i] = numbers(X)[r * D + i] + (Z ? Z[r * D + i] : 0);
        const struct row row = norm_row_of(single, node, &right, x, D);
        for (int64_t i = 0; i < D; i++)
            y[r * D + i] += (x[i] - row.mean) * row.r * factor(single, &right, numbers(w)[i]) +
                            (node->bias < 0 ? 0 : numbers(b)[i]);
    }
}

/* Where a rank adds what passes the product by before the norm: nowhere, on the first rank, or on all ranks. */
enum beside { NOWHERE, ON_THE_FIRST, EVERYWHERE, BESIDES };

/* Each rank norms its own part, and the all-reduce adds up the norms. */
static void try_sums_of_norms(struct suspect *suspect, const struct single_node *node,
                              const struct tensor part[], int parts, const double *rest, double *y)
{
    for (int where = 0; where < BESIDES; where++) {
        memset(y, 0, (size_t)suspect->count * sizeof *y);
        for (int k = 0; k < parts; k++)
            add_norm(suspect->s, node, part[k], where == EVERYWHERE || (where == ON_THE_FIRST && k == 0)
                     ? rest : NULL, y);
        suspect_near(suspect, y, "it is taken before the sum over tp: norms of parts of %d ranks are added up", parts);
    }
}

/* No all-reduce at all: the rank's result is the norm of its own part. */
static void try_norm_of_part(struct suspect *suspect, const struct single_node *node,
                             const struct tensor part[], int parts, const double *rest, double *y)
{
    for (int k = 0; k < parts; k++)
        for (int with = 0; with < 2; with++) {
            memset(y, 0, (size_t)suspect->count * sizeof *y);
            add_norm(suspect->s, node, part[k], with ? rest : NULL, y);
            suspect_near(suspect, y,
                         "it is taken before the sum over tp: a rank's is the norm of its own part, %d of %d", k,
                         parts);
        }
}

/* Ranks along tp take the norm of their own parts of the sum that the norm reads. */
static void try_before_sum(struct suspect *suspect, const struct single_node *node, double *y)
{
    struct single *s = suspect->s;
    const struct single_node *from = product_before(s, node->in[0]);
    const struct tensor X = single_act(s, node->in[0]);
    const struct tensor bias = from ? single_param(s, from->bias) : tensor_none;
    const int tried[] = { s->rounding.parts, 2, 3, 4, 8 };
    if (from == NULL || !single_going(s) || tensor_count(X) != suspect->count) return;
    for (int t = 0; t < 5 && suspect->words[0] == 0 && !s->failed; t++) {
        struct tensor part[SUSPECT_RANKS];
        const int used = s->memory.used, parts = suspect_product_parts(s, from, tried[t], part);
        const struct tensor rest = parts > 0 ? single_new(s, suspect->rows, suspect->cols) : tensor_none;
        /* rest = X - sum of the parts: the residual stream, and the product's bias. */
        for (int64_t i = 0; parts > 0 && !s->failed && i < suspect->count; i++) {
            numbers(rest)[i] = numbers(X)[i];
            for (int k = 0; k < parts; k++) numbers(rest)[i] -= numbers(part[k])[i];
        }
        /* The bias may belong to the parts: the second round takes it out of the rest. */
        for (int without = 0; parts > 0 && without <= (from->bias >= 0) && !s->failed; without++) {
            for (int64_t i = 0; without && i < suspect->count; i++)
                numbers(rest)[i] -= numbers(bias)[i % suspect->cols];
            try_sums_of_norms(suspect, node, part, parts, numbers(rest), y);
            try_norm_of_part(suspect, node, part, parts, numbers(rest), y);
        }
        single_release(s, used);
    }
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

/* The norm has the weight of another norm of the same layer and size. */
static void try_other_weights(struct suspect *suspect, const struct single_node *node,
                              enum single_pass_kind pass, double *y)
{
    struct single *s = suspect->s;
    for (int v = 0; v < s->context->graph->nodes && pass == SINGLE_FORWARD && !s->failed; v++) {
        struct single_node other = *node;
        const int used = s->memory.used;
        const struct single_node *from = &s->context->graph->node[v];
        if (from->operation != node->operation || from->weight == node->weight || from->layer != node->layer) continue;
        other.weight = from->weight, other.bias = from->bias;
        const struct single_value value = single_attempt(s, &other, node->operation->forward);
        if (value.status == SINGLE_DONE && tensor_count(value.y) == suspect->count) {
            memcpy(y, value.y.data, (size_t)suspect->count * sizeof *y);
            suspect_explained(suspect, y, "it has the weight of %s", single_slot(s, from->out)->name);
        }
        single_release(s, used);
    }
}

/* Sums over tp are tried only if no weight explains the result. */
static void try_parts(struct suspect *suspect, const struct single_node *node, enum single_pass_kind pass, double *y)
{
    try_other_weights(suspect, node, pass, y);
    if (pass == SINGLE_FORWARD && suspect->words[0] == 0) try_before_sum(suspect, node, y);
}

const struct single_mistakes single_norm_mistakes = {
    .of = &single_norm, .rows = norm_rows, .make[SINGLE_FORWARD] = mistakes_norm_norm_forward,
    .make[SINGLE_INPUT] = norm_input, .make[SINGLE_WEIGHT] = norm_weight,
    .parts = try_parts
};
const struct single_mistakes single_latent_norm_mistakes = {
    .of = &single_latent_norm, .rows = norm_rows, .make[SINGLE_FORWARD] = mistakes_norm_norm_forward,
        .make[SINGLE_INPUT] = norm_input
};
