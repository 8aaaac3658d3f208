/* gradient_norm.c -- what the norm of all gradients is if something counts too often, or not at all. */
#include "emulated_devices/check/mistakes/mistakes.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static bool is_of_heads(const struct param_spec *p)
{
    return p->ndim < 2 && (strstr(p->name, "qk_norm.") || strstr(p->name, "q_norm.") || strstr(p->name, "k_norm."));
}

static bool is_router(const struct param_spec *p)
{
    return p->ndim > 1 && (strstr(p->name, ".gate.weight") || strstr(p->name, ".router.weight"));
}

static void add_param(struct single *s, const char *kind, const struct share *share, int parts,
                      struct suspect_squares *sum)
{
    const struct param_spec *p = &share->spec;
    const int64_t rows = p->ndim > 1 ? p->dim[0] : 1, cols = p->dim[p->ndim - 1];
    const struct tensor g = single_input(s, single_param_name(s, kind, share->param), rows, cols);
    const bool vocabulary = p->ndim > 1 && rows == s->context->config->V;
    for (int64_t i = 0, end; single_going(s) && i < rows * cols; i = end) {
        const int k = share_owner(share, i / cols, i % cols, parts);
        double x = 0;
        end = share_end(share, i, parts);
        for (int64_t j = i; j < end; j++) x += numbers(g)[j] * numbers(g)[j];
        sum->all += x, sum->tied += vocabulary ? x : 0;
        if (k >= 0) sum->rank[k] += x;
        if (k >= 0) continue;
        sum->whole += x, sum->whole_inside += vocabulary ? 0 : x, sum->heads += is_of_heads(p) ? x : 0;
        sum->vectors += p->ndim < 2 ? x : 0, sum->routers += is_router(p) ? x : 0;
    }
}

struct suspect_squares suspect_squares(struct single *s, const char *kind, const struct share *share, int parts)
{
    struct suspect_squares sum = { 0 };
    const int used = s->memory.used;
    single_read_anew(s);
    for (int i = 0; i < model_param_count(s->context->config) && single_going(s); i++) {
        add_param(s, kind, &share[i], parts, &sum);
        single_release(s, used);
    }
    return sum;
}

static void try_ranks(struct suspect *p, const struct share *share, int parts)
{
    struct single *s = p->s;
    if (parts < 2 || parts > SUSPECT_RANKS || parts > s->context->config->K) return;
    const struct suspect_squares q = suspect_squares(s, "grad/", share, parts);
    if (!single_going(s)) return;
    const double times = parts - 1, copies = sqrt(q.all + times * q.whole),
                 inside = sqrt(q.all + times * q.whole_inside), first = sqrt(q.whole + q.rank[0]),
                 cut = sqrt(q.all - q.whole), heads = sqrt(q.all + times * q.heads),
                 vectors = sqrt(q.all + times * q.vectors), routers = sqrt(q.all + times * q.routers);
    if (q.heads > 0) suspect_explained(p, &heads, "the norms of heads count %d times", parts);
    if (q.vectors > q.heads)
        suspect_explained(p, &vectors, "norms, and biases that all ranks have, count %d times", parts);
    if (q.routers > 0) suspect_explained(p, &routers, "routers count %d times", parts);
    suspect_explained(p, &copies, "what all %d ranks along tp have counts %d times", parts, parts);
    suspect_explained(p, &inside, "what all %d ranks along tp have counts %d times", parts, parts);
    suspect_explained(p, &first, "only what the first of %d ranks along tp has", parts);
    suspect_explained(p, &cut, "without what all %d ranks along tp have", parts);
}

/* ---- copies of the model ----------------------------------------------------------------------------------------- */

/* A program does not show what each copy had before the copies added up their gradients: the source of the tensors
 * computes that (struct single_source). */
static double square_of(struct single *s, int copy)
{
    char kind[32];
    double sum = 0;
    const int used = s->memory.used;
    snprintf(kind, sizeof kind, "copy/%d/grad/", copy);
    for (int i = 0; i < model_param_count(s->context->config) && single_going(s); i++) {
        const struct param_spec p = model_param(s->context->config, i);
        const struct tensor g = single_input(s, single_param_name(s, kind, i), p.ndim > 1 ? p.dim[0] : 1,
                                             p.dim[p.ndim - 1]);
        for (int64_t k = 0; single_going(s) && k < tensor_count(g); k++) sum += numbers(g)[k] * numbers(g)[k];
        single_release(s, used);
    }
    return sum;
}

struct suspect_copies suspect_copies(struct single *s)
{
    struct suspect_copies c = { .n = s->context->source.copies };
    const int used = s->memory.used;
    if (c.n < 2 || c.n > SUSPECT_RANKS) return (struct suspect_copies){ 0 };
    single_read_anew(s);
    for (int k = 0; k < c.n && single_going(s); k++) {
        char name[32];
        snprintf(name, sizeof name, "copy/%d/share", k);
        const struct tensor share = single_input(s, single_name("", name), 1, 1);
        if (single_going(s)) c.share[k] = numbers(share)[0], c.norm[k] = sqrt(square_of(s, k));
        single_release(s, used);
    }
    return single_going(s) ? c : (struct suspect_copies){ 0 };
}

/* Before copies of the model add up their gradients. */
static void try_copies(struct suspect *p)
{
    const struct suspect_copies c = suspect_copies(p->s);
    double squares = 0;
    for (int k = 0; k < c.n; k++) {
        const double own = c.norm[k] / c.share[k];
        suspect_near(p, &own, "of the gradient of copy %d of %d alone, before copies add theirs up", k, c.n);
        suspect_near(p, &c.norm[k], "of the gradient of copy %d of %d alone, before copies add theirs up", k, c.n);
        squares += c.norm[k] * c.norm[k];
    }
    const double root = sqrt(squares);
    if (c.n > 1) suspect_near(p, &root, "the squares of %d copies are added up before their gradients are", c.n);
}

static void try_all(struct suspect *p, const struct share *share)
{
    const struct suspect_squares q = suspect_squares(p->s, "grad/", share, 1);
    if (!single_going(p->s)) return;
    const double squared = q.all, twice = sqrt(q.all + q.tied), none = sqrt(q.all - q.tied);
    suspect_explained(p, &squared, "the sum of squares in place of its root");
    if (p->s->context->config->tied) suspect_explained(p, &twice, "the tied matrix counts twice");
    suspect_explained(p, &none, "without the matrices of the vocabulary");
    const double scale = exp2(round(log2(p->have[0] / p->want[0]))), scaled = scale * p->want[0];
    if (scale >= SUSPECT_LEAST_SCALE)
        suspect_explained(p, &scaled, "it is taken before a loss scale of %.0f is divided out", scale);
    const int tried[] = { p->s->rounding.parts, 2, 3, 4, 8 };
    for (int k = 0; k < 5 && p->words[0] == 0; k++) try_ranks(p, share, tried[k]);
    if (p->words[0] == 0) try_copies(p);
}

void suspect_gradient_norm(struct suspect *p)
{
    struct share *share = shares_of(p->s->context->config, SHARE_ALONG_TP);
    if (share) try_all(p, share);
    else p->s->failed = fail(p->s->context->err, ERR_MEMORY, "no memory to diagnose %s", p->s->verdict.result.name);
    free(share);
}
