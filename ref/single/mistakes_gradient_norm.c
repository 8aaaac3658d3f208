/* mistakes_gradient_norm.c -- what the norm of all gradients is if something counts too often, or not at all. */
#include "ref/single/mistakes.h"
#include <math.h>
#include <string.h>

static bool is_block(const struct single *s, int param, enum block_param which)
{
    for (int64_t l = 0; l < s->config->L; l++)
        if (param_of_block(s->config, l, which) == param) return true;
    return false;
}

int suspect_owner_along_tp(const struct single *s, int param, int64_t r, int64_t c, int parts)
{
    const struct model_config *m = s->config;
    int64_t at = -1, of = 0;
    if (is_block(s, param, QKV_W) || is_block(s, param, QKV_B)) {
        const int64_t row = is_block(s, param, QKV_B) ? c : r, head = row / m->A;
        at = head < m->H ? head / (m->H / m->K) : (head - m->H) % m->K, of = m->K;
    } else if (is_block(s, param, UP_W) || is_block(s, param, UP_B))
        at = (is_block(s, param, UP_B) ? c : r) % m->F, of = m->F;
    else if (is_block(s, param, PROJ_W)) at = c / m->A / (m->H / m->K), of = m->K;
    else if (is_block(s, param, DOWN_W)) at = c, of = m->F;
    for (int k = 0; k < parts && at >= 0; k++)
        if (at < of / parts * (k + 1) + (k + 1 < of % parts ? k + 1 : of % parts)) return k;
    return -1;
}

int suspect_owner_of_rows(const struct single *s, int param, int64_t r, int64_t c, int parts)
{
    const struct param_spec p = model_param(s->config, param);
    return (int)((p.ndim > 1 ? r : c) / ((p.dim[0] + parts - 1) / parts));
}

static void add_param(struct single *s, const char *kind, int param, suspect_owner *owner, int parts,
                      struct suspect_squares *sum)
{
    const struct param_spec p = model_param(s->config, param);
    const int64_t rows = p.ndim > 1 ? p.dim[0] : 1, cols = p.dim[p.ndim - 1];
    const struct tensor g = single_input(s, single_param_name(s, kind, param), rows, cols);
    const bool vocabulary = p.ndim > 1 && rows == s->config->V;
    for (int64_t i = 0; single_going(s) && i < rows * cols; i++) {
        const double x = numbers(g)[i] * numbers(g)[i];
        const int k = owner(s, param, i / cols, i % cols, parts);
        sum->all += x, sum->tied += vocabulary ? x : 0;
        if (k >= 0) sum->rank[k] += x;
        else sum->whole += x, sum->whole_inside += vocabulary ? 0 : x;
    }
}

struct suspect_squares suspect_squares(struct single *s, const char *kind, suspect_owner *owner, int parts)
{
    struct suspect_squares sum = { 0 };
    const int used = s->used;
    s->now.lacks[0] = 0, s->unknown = false;
    for (int i = 0; i < model_param_count(s->config) && single_going(s); i++) {
        add_param(s, kind, i, owner, parts, &sum);
        single_release(s, used);
    }
    return sum;
}

static void try_ranks(struct suspect *p, int parts)
{
    struct single *s = p->s;
    if (parts < 2 || parts > SUSPECT_RANKS || parts > s->config->K) return;
    const struct suspect_squares q = suspect_squares(s, "grad/", suspect_owner_along_tp, parts);
    if (!single_going(s)) return;
    const double times = parts - 1, copies = sqrt(q.all + times * q.whole),
                 inside = sqrt(q.all + times * q.whole_inside), first = sqrt(q.whole + q.rank[0]),
                 cut = sqrt(q.all - q.whole);
    suspect_explained(p, &copies, "what all %d ranks along tp have counts %d times", parts, parts);
    suspect_explained(p, &inside, "what all %d ranks along tp have counts %d times", parts, parts);
    suspect_explained(p, &first, "only what the first of %d ranks along tp has", parts);
    suspect_explained(p, &cut, "without what all %d ranks along tp have", parts);
}

void suspect_gradient_norm(struct suspect *p)
{
    const struct suspect_squares q = suspect_squares(p->s, "grad/", suspect_owner_along_tp, 1);
    if (!single_going(p->s)) return;
    const double squared = q.all, twice = sqrt(q.all + q.tied), none = sqrt(q.all - q.tied);
    suspect_explained(p, &squared, "the sum of squares in place of its root");
    if (p->s->config->tied) suspect_explained(p, &twice, "the tied matrix counts twice");
    suspect_explained(p, &none, "without the matrices of the vocabulary");
    const double scale = exp2(round(log2(p->have[0] / p->want[0]))), scaled = scale * p->want[0];
    if (scale >= SUSPECT_LEAST_SCALE)
        suspect_explained(p, &scaled, "it is taken before a loss scale of %.0f is divided out", scale);
    const int tried[] = { p->s->rounding.parts, 2, 3, 4, 8 };
    for (int k = 0; k < 5 && p->words[0] == 0; k++) try_ranks(p, tried[k]);
}
