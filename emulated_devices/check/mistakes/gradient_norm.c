/* gradient_norm.c -- what the norm of all gradients is if something counts too often, or not at all.  mistakes.c
 * calls suspect_gradient_norm for the result "norm"; clipping.c asks for the norms of copies.  Shares without
 * memory set single.failed to ERR_MEMORY. */
#include "emulated_devices/check/mistakes/mistakes.h"
#include "ref/model/params.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A norm of queries or keys by heads: each rank along tp has the same weights for its own heads.  The names are
 * those of the model's parameters. */
static bool is_of_heads(const struct param_spec *spec)
{
    return spec->ndim < 2
           && (strstr(spec->name, "qk_norm.") || strstr(spec->name, "q_norm.") || strstr(spec->name, "k_norm."));
}

/* A mixture's router has a matrix that all ranks along tp have. */
static bool is_router(const struct param_spec *spec)
{
    return spec->ndim > 1 && (strstr(spec->name, ".gate.weight") || strstr(spec->name, ".router.weight"));
}

/* Add the squares of one parameter's gradient, run by run of elements with the same owner. */
static void add_param(struct single *single, const char *kind, const struct share *share, int parts,
                      struct suspect_squares *sum)
{
    const struct param_spec *p = &share->spec;
    const int64_t rows = p->ndim > 1 ? p->dim[0] : 1, cols = p->dim[p->ndim - 1];
    const struct tensor g = single_input(single, single_param_name(single, kind, share->param), rows, cols);
    const bool vocabulary = p->ndim > 1 && rows == single->context->config->V;
    for (int64_t i = 0, end; single_going(single) && i < rows * cols; i = end) {
        const int k = share_owner(share, i / cols, i % cols, parts);
        double x = 0;
        end = share_end(share, i, parts);
        for (int64_t j = i; j < end; j++) x += numbers(g)[j] * numbers(g)[j];
        sum->all += x, sum->tied += vocabulary ? x : 0;
        if (k >= 0) sum->rank[k] += x;
        /* An owner of -1 means that all ranks have the element; only such elements go to the sums below. */
        if (k >= 0) continue;
        sum->whole += x, sum->whole_inside += vocabulary ? 0 : x, sum->heads += is_of_heads(p) ? x : 0;
        sum->vectors += p->ndim < 2 ? x : 0, sum->routers += is_router(p) ? x : 0;
    }
}

/* Each gradient is read, added and released, so memory does not grow with the model. */
struct suspect_squares suspect_squares(struct single *single, const char *kind, const struct share *share, int parts)
{
    struct suspect_squares sum = { 0 };
    const int used = single->memory.used;
    single_read_anew(single);
    for (int i = 0; i < model_param_count(single->context->config) && single_going(single); i++) {
        add_param(single, kind, &share[i], parts, &sum);
        single_release(single, used);
    }
    return sum;
}

/* The norm if P ranks along tp add up their squares and count wrongly what all of them have. */
static void try_ranks(struct suspect *suspect, const struct share *share, int parts)
{
    struct single *s = suspect->s;
    /* A rank has at least one group of keys and values. */
    if (parts < 2 || parts > SUSPECT_RANKS || parts > s->context->config->K) return;
    const struct suspect_squares q = suspect_squares(s, "grad/", share, parts);
    if (!single_going(s)) return;
    /* q.whole is counted once in q.all, so P - 1 times more make P. */
    const double times = parts - 1, copies = sqrt(q.all + times * q.whole),
                 inside = sqrt(q.all + times * q.whole_inside), first = sqrt(q.whole + q.rank[0]),
                 cut = sqrt(q.all - q.whole), heads = sqrt(q.all + times * q.heads),
                 vectors = sqrt(q.all + times * q.vectors), routers = sqrt(q.all + times * q.routers);
    /* Every number that is offered is the root of a sum of squares, for P ranks. */
    if (q.heads > 0) suspect_explained(suspect, &heads, "the norms of heads count %d times", parts);
    if (q.vectors > q.heads)
        suspect_explained(suspect, &vectors, "norms, and biases that all ranks have, count %d times", parts);
    if (q.routers > 0) suspect_explained(suspect, &routers, "routers count %d times", parts);
    suspect_explained(suspect, &copies, "what all %d ranks along tp have counts %d times", parts, parts);
    suspect_explained(suspect, &inside, "what all %d ranks along tp have counts %d times", parts, parts);
    suspect_explained(suspect, &first, "only what the first of %d ranks along tp has", parts);
    suspect_explained(suspect, &cut, "without what all %d ranks along tp have", parts);
}

/* ---- copies of the model ----------------------------------------------------------------------------------------- */

/* The squared norm of one copy's gradient before copies add theirs up.  A program does not show these gradients:
 * the source of the tensors computes them (struct single_source). */
static double square_of(struct single *single, int copy)
{
    char kind[32];
    double sum = 0;
    const int used = single->memory.used;
    snprintf(kind, sizeof kind, "copy/%d/grad/", copy);
    for (int i = 0; i < model_param_count(single->context->config) && single_going(single); i++) {
        const struct param_spec p = model_param(single->context->config, i);
        const struct tensor g = single_input(single, single_param_name(single, kind, i), p.ndim > 1 ? p.dim[0] : 1,
                                             p.dim[p.ndim - 1]);
        /* sum += g^2 over all parameters of this copy. */
        for (int64_t k = 0; single_going(single) && k < tensor_count(g); k++) sum += numbers(g)[k] * numbers(g)[k];
        single_release(single, used);
    }
    return sum;
}

/* The norms of all copies and their shares of the labels.  @return n = 0: fewer than two copies, more than 8, or no
 * model for them. */
struct suspect_copies suspect_copies(struct single *single)
{
    struct suspect_copies c = { .n = single->context->source.copies };
    const int used = single->memory.used;
    if (c.n < 2 || c.n > SUSPECT_RANKS) return (struct suspect_copies){ 0 };
    single_read_anew(single);
    for (int k = 0; k < c.n && single_going(single); k++) {
        char name[32];
        snprintf(name, sizeof name, "copy/%d/share", k);
        const struct tensor share = single_input(single, single_name("", name), 1, 1);
        if (single_going(single)) c.share[k] = numbers(share)[0], c.norm[k] = sqrt(square_of(single, k));
        single_release(single, used);
    }
    return single_going(single) ? c : (struct suspect_copies){ 0 };
}

/* The norm was taken of one copy's gradient, before copies of the model add theirs up. */
static void try_copies(struct suspect *suspect)
{
    const struct suspect_copies c = suspect_copies(suspect->s);
    double squares = 0;
    for (int k = 0; k < c.n; k++) {
        /* A program may divide by its own labels (own), or by those of all copies (c.norm). */
        const double own = c.norm[k] / c.share[k];
        suspect_near(suspect, &own, "of the gradient of copy %d of %d alone, before copies add theirs up", k, c.n);
        suspect_near(suspect, &c.norm[k], "of the gradient of copy %d of %d alone, before copies add theirs up", k,
                     c.n);
        squares += c.norm[k] * c.norm[k];
    }
    const double root = sqrt(squares);
    if (c.n > 1) suspect_near(suspect, &root, "the squares of %d copies are added up before their gradients are", c.n);
}

/* The mistakes that need no copies and no cut come first. */
static void try_all(struct suspect *suspect, const struct share *share)
{
    const struct suspect_squares q = suspect_squares(suspect->s, "grad/", share, 1);
    if (!single_going(suspect->s)) return;
    const double squared = q.all, twice = sqrt(q.all + q.tied), none = sqrt(q.all - q.tied);
    suspect_explained(suspect, &squared, "the sum of squares in place of its root");
    if (suspect->s->context->config->tied) suspect_explained(suspect, &twice, "the tied matrix counts twice");
    suspect_explained(suspect, &none, "without the matrices of the vocabulary");
    /* A loss scale is a power of two; smaller powers may be a number of ranks. */
    const double scale = exp2(round(log2(suspect->have[0] / suspect->want[0]))), scaled = scale * suspect->want[0];
    if (scale >= SUSPECT_LEAST_SCALE)
        suspect_explained(suspect, &scaled, "it is taken before a loss scale of %.0f is divided out", scale);
    const int tried[] = { suspect->s->rounding.parts, 2, 3, 4, 8 };
    for (int k = 0; k < 5 && suspect->words[0] == 0; k++) try_ranks(suspect, share, tried[k]);
    if (suspect->words[0] == 0) try_copies(suspect);
}

/* shares_of allocates the owners; after a failure free(NULL) is allowed. */
void suspect_gradient_norm(struct suspect *suspect)
{
    struct share *share = shares_of(suspect->s->context->config, SHARE_ALONG_TP);
    if (share) try_all(suspect, share);
    else suspect->s->failed = fail(suspect->s->context->err, ERR_MEMORY, "no memory to diagnose %s",
                                   suspect->s->verdict.result.name);
    free(share);
}
