/* mistakes_clipping.c -- what is made of a gradient that has been clipped by another norm. */
#include "ref/single/stepping.h"
#include <stdio.h>

/* What the step makes of a clipped gradient y, in place. */
static void made_of(const struct suspect *p, const struct clipping *u, double *y)
{
    for (int64_t i = 0; i < p->count; i++) y[i] = u->rest[i] + u->times * (u->squared ? y[i] * y[i] : y[i]);
}

/* ---- loss scales ------------------------------------------------------------------------------------------------- */

/* The factor of clipping that fits best is off by a power of two. */
static void try_loss_scale(struct suspect *p, const struct clipping *u, double *y)
{
    double along = 0, size = 0;
    for (int64_t i = 0; i < p->count; i++) {
        const double x = u->times * (u->squared ? u->g[i] * u->g[i] : u->g[i]);
        along += (p->have[i] - u->rest[i]) * x, size += x * x;
    }
    const double c = u->squared ? sqrt(along / size) : along / size, scale = exp2(round(log2(c / u->clip)));
    if (!(c > 0) || (scale < SUSPECT_LEAST_SCALE && scale * SUSPECT_LEAST_SCALE > 1)) return;
    for (int64_t i = 0; i < p->count; i++) y[i] = scale * u->clip * u->g[i];
    made_of(p, u, y);
    if (scale > 1) suspect_explained(p, y, "a loss scale of %.0f is not divided out", scale);
    else suspect_explained(p, y, "a loss scale of %.0f is divided out twice, or after clipping", 1 / scale);
}

/* ---- what a rank has --------------------------------------------------------------------------------------------- */

static const char *const words_of[SHARE_CUTS] = {
    [SHARE_ALONG_TP] = "each of %d ranks along tp clips by the norm of what it has",
    [SHARE_ROWS] = "each of %d ranks with a part of the rows clips by the norm of what it has",
    [SHARE_FLAT_EACH] = "each of %d ranks clips by the norm of its flat shards, of every parameter",
    [SHARE_FLAT_LAYER] = "each of %d ranks clips by the norm of its flat shards, of every layer",
    [SHARE_FLAT_LAYER_NORMS] = "each of %d ranks clips by the norm of its flat shards, of every layer",
    [SHARE_FLAT_GROUP] = "each of %d ranks clips by the norm of its flat shards, of what decays and of the rest",
    [SHARE_FLAT_ALL] = "each of %d ranks clips by the norm of its flat shard of all parameters",
    [SHARE_FLAT_ALL_NORMS] = "each of %d ranks clips by the norm of its flat shard of all parameters",
};

/* Norms of what each of P ranks has. */
static const double *own_norms(const struct stepping *t, enum share_cut cut, int parts)
{
    struct own_norms *own = &t->norms->own[cut][parts];
    const struct single_name kind = stepping_gradient(t->o, t->k, "");
    if (own->known) return own->norm;
    const struct suspect_squares q = suspect_squares(t->s, kind.text, cut, parts);
    if (!single_going(t->s)) return NULL;
    own->known = true;
    for (int k = 0; k < parts; k++) own->norm[k] = sqrt(q.rank[k] + q.whole);
    return own->norm;
}

/* What all have is shown by the first. */
static void try_own_norms(struct suspect *p, const struct stepping *t, enum share_cut cut, int parts,
                          const struct clipping *u, double *y)
{
    if (parts < 2 || parts > SUSPECT_RANKS || (cut == SHARE_ALONG_TP && parts > t->s->config->K)) return;
    const struct share share = share_of(t->s->config, cut, t->number);
    const double *norm = own_norms(t, cut, parts);
    for (int64_t i = 0; norm && i < p->count; i++) {
        const int owner = share_owner(&share, i / t->cols, i % t->cols, parts);
        y[i] = clip_scale(&t->o->hyper, norm[owner < 0 ? 0 : owner]) * u->g[i];
    }
    if (norm) made_of(p, u, y), suspect_explained(p, y, words_of[cut], parts);
}

/* ---- what a copy has --------------------------------------------------------------------------------------------- */

/* y: the sum of the copies' gradients, each times its factor; what their roundings leave is times the mean factor. */
static void add_copies(struct suspect *p, const struct stepping *t, const struct suspect_copies *c,
                       const double times[], const double *g, double *y)
{
    const int used = p->s->used;
    double mean = 0;
    for (int k = 0; k < c->n; k++) mean += times[k] * c->share[k];
    for (int64_t i = 0; i < p->count; i++) y[i] = mean * g[i];
    for (int k = 0; k < c->n && single_going(p->s); k++) {
        char kind[32];
        snprintf(kind, sizeof kind, "copy/%d/grad/", k);
        const struct tensor one = single_input(p->s, single_param_name(p->s, kind, t->number), t->rows, t->cols);
        for (int64_t i = 0; single_going(p->s) && i < p->count; i++) y[i] += (times[k] - mean) * numbers(one)[i];
        single_release(p->s, used);
    }
}

/* own_mean: a copy's gradient is that of the mean over its own labels. */
static void try_copies(struct suspect *p, const struct stepping *t, const struct clipping *u, bool own_mean, double *y)
{
    if (!t->norms->copies_known) t->norms->copies = suspect_copies(p->s), t->norms->copies_known = true;
    const struct suspect_copies *c = &t->norms->copies;
    double times[SUSPECT_RANKS];
    for (int k = 0; k < c->n; k++)
        times[k] = clip_scale(&t->o->hyper, c->norm[k] / (own_mean ? c->share[k] : 1));
    for (int k = 0; k < c->n; k++) {
        for (int64_t i = 0; i < p->count; i++) y[i] = times[k] * u->g[i];
        made_of(p, u, y);
        suspect_near(p, y, "clipped by the norm of copy %d's own gradient, before copies add theirs up", k);
    }
    if (c->n < 2) return;
    p->s->now.lacks[0] = 0, p->s->unknown = false;
    add_copies(p, t, c, times, u->g, y);
    if (!single_going(p->s)) return;
    made_of(p, u, y);
    suspect_near(p, y, "each of %d copies clips by the norm of its own gradient, before they are added up", c->n);
}

void suspect_clipping(struct suspect *p, const struct stepping *t, struct clipping u, double *y)
{
    const int tried[] = { p->s->rounding.parts, 2, 3, 4, 8 };
    try_loss_scale(p, &u, y);
    if (t->o->hyper.clip == 0) return;
    for (int k = 0; k < 5 * SHARE_CUTS && p->words[0] == 0 && !p->s->failed; k++)
        try_own_norms(p, t, (enum share_cut)(k / 5), tried[k % 5], &u, y);
    if (t->k > 0 || p->words[0]) return;
    try_copies(p, t, &u, true, y);
    try_copies(p, t, &u, false, y);
}
