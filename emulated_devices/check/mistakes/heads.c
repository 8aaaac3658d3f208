/* heads.c -- what norms of heads give with one mistake: weights [2,A], those of queries and those of keys.
 * mistakes.c reads the table of rows.  try_heads_in_parts looks for ranks along tp whose gradients of these weights
 * were not added up. */
#include "emulated_devices/check/mistakes/mistakes.h"

enum { MOST_PARTS = 8 };
enum { EXCHANGED, NO_KEYS, NO_QUERIES, TOGETHER, NO_WEIGHT, EPS_5, EPS_6 };

/* This is 1 / sqrt(mean of squares + eps) of n numbers. */
static double root_of(const double *x, int64_t n, double eps)
{
    double squares = 0;
    for (int64_t i = 0; i < n; i++) squares += x[i] * x[i];
    return 1 / sqrt(squares / (double)n + eps);
}

/* Y: each head of queries and keys is divided by its root mean square and multiplied by its weights; values pass
 * through. */
static struct tensor head_norm_forward(struct single *single, const struct single_node *node,
                                       const struct single_mistake *mistake)
{
    const int which = mistake->which;
    const struct model_config *c = single->context->config;
    const struct tensor X = single_act(single, node->in[0]), w = single_param(single, node->weight);
    const double eps = which == EPS_5 ? 1e-5 : which == EPS_6 ? 1e-6 : c->eps;
    const int64_t ld = tensor_cols(X), H = c->H, A = c->A;
    /* Models that norm all heads together have another operation; an eps equal to the model's own is no mistake. */
    if (!single_going(single) || c->normed_together || (which >= EPS_5 && fabs(eps / c->eps - 1) < 1e-3))
        return tensor_none;
    const struct tensor Y = single_new(single, tensor_rows(X), ld);
    for (int64_t i = 0; !single->failed && i < tensor_count(X); i++) {
        const int64_t head = i % ld / A, a = i % A;
        const bool key = head >= H;
        const double *x = numbers(X) + i - i % ld, *first = x + (key ? H * A : 0);
        /* Row 0 of w [2, A] is for queries, row 1 for keys; EXCHANGED reads the other row. */
        const double weight = which == NO_WEIGHT ? 1 : norm_base(c) + numbers(w)[(key != (which == EXCHANGED)) * A + a];
        const bool left = head >= H + c->K || (key && which == NO_KEYS) || (!key && which == NO_QUERIES);
        numbers(Y)[i] = left ? numbers(X)[i]
                             : numbers(X)[i] * weight * (which == TOGETHER ? root_of(first, (key ? c->K : H) * A, eps)
                                                                           : root_of(x + head * A, A, eps));
    }
    return Y;
}

static const struct single_mistake head_norm_rows[] = {
    { "queries have the weights of keys, keys those of queries", FORWARD, .which = EXCHANGED },
    { "keys are not normed", FORWARD, .which = NO_KEYS },
    { "queries are not normed", FORWARD, .which = NO_QUERIES },
    { "one norm of all queries together, and one of all keys, in place of one of each head",
      FORWARD, .which = TOGETHER },
    { "without its weight", FORWARD, .which = NO_WEIGHT },
    { "eps is 1e-5", FORWARD, .which = EPS_5 },
    { "eps is 1e-6", FORWARD, .which = EPS_6 },
    { 0 }
};

/* dw [2, A] from the heads of rank k of so many: dw += dY X / root.  A rank has whole groups, so a query head goes
 * with its keys. */
static struct tensor weight_of_part(struct single *single, struct tensor X, struct tensor dY, int parts, int k)
{
    const struct model_config *c = single->context->config;
    const int64_t ld = tensor_cols(X), A = c->A, group = c->H / c->K, from = part_begin(c->K, parts, k),
                  to = part_begin(c->K, parts, k + 1);
    const struct tensor dw = single_new(single, 1, 2 * A);
    for (int64_t i = 0; !single->failed && i < tensor_count(X); i++) {
        const int64_t head = i % ld / A, kv = head < c->H ? head / group : head - c->H;
        if (head >= c->H + c->K || kv < from || kv >= to) continue;
        numbers(dw)[(head >= c->H) * A + i % A] +=
            numbers(dY)[i] * numbers(X)[i] * root_of(numbers(X) + i - i % A, A, c->eps);
    }
    return dw;
}

/* Without the sum over tp each rank has only the gradient of its own heads.  suspect_parts finds factors of these
 * parts. */
static void try_heads_in_parts(struct suspect *suspect, const struct single_node *node,
                               enum single_pass_kind pass, double *y)
{
    struct single *s = suspect->s;
    if (pass != SINGLE_WEIGHT || s->context->config->normed_together) return;
    const struct tensor X = single_act(s, node->in[0]), dY = single_grad(s, node->out);
    const int tried[] = { s->rounding.parts, 2, 3, 4, 8 };
    for (int t = 0; t < 5 && suspect->words[0] == 0 && single_going(s); t++) {
        struct tensor part[MOST_PARTS];
        const int parts = tried[t], used = s->memory.used;
        if (parts < 2 || parts > MOST_PARTS || parts > s->context->config->K) continue;
        /* Part k is the gradient of the heads that rank k of so many has. */
        for (int k = 0; k < parts; k++) part[k] = weight_of_part(s, X, dY, parts, k);
        if (single_going(s)) suspect_parts(suspect, part, parts, "part", y);
        single_release(s, used);
    }
}

const struct single_mistakes single_head_norm_mistakes = {
    .of = &single_head_norm, .rows = head_norm_rows, .make[SINGLE_FORWARD] = head_norm_forward,
    .parts = try_heads_in_parts
};
