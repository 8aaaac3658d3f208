/* clipping.c -- what is made of a gradient that has been clipped by another norm.
 * steps.c calls suspect_clipping for states, and for weights of sgd; norms of gradients come from norms.c, those of
 * copies from model_copies.c.  Without memory single.failed is ERR_MEMORY. */
#include "emulated_devices/check/mistakes/norms.h"
#include <stdio.h>

/* The step makes this of x, the clipped gradient's element i: rest + times x, or times x^2. */
static double clipping_makes(const struct clipping *clipping, int64_t i, double x)
{
    return clipping->rest[i] + clipping->times * (clipping->squared ? x * x : x);
}

/* A gradient that is clipped by one factor. */
struct clipped_by { const struct clipping *clipping; double factor; };

static double clipped_at(const void *context, int64_t i)
{
    const struct clipped_by *by = context;
    return clipping_makes(by->clipping, i, by->factor * by->clipping->g[i]);
}

/* The factor of the gradient that fits best, of some elements.  A squared state has the square of the factor. */
struct factor_fit { double along, size; };

static void fit_add(struct factor_fit *fit, const struct suspect *suspect, const struct clipping *clipping, int64_t i)
{
    const double x = clipping->times * (clipping->squared ? clipping->g[i] * clipping->g[i] : clipping->g[i]);
    fit->along += (suspect->have[i] - clipping->rest[i]) * x, fit->size += x * x;
}

static double fit_factor(const struct factor_fit *fit, bool squared)
{
    const double c = fit->along / fit->size;
    return squared ? sqrt(c) : c;
}

double suspect_clip_factor(const struct suspect *suspect, const struct clipping *clipping)
{
    struct factor_fit fit = { 0 };
    for (int64_t i = 0; i < suspect->count; i++) fit_add(&fit, suspect, clipping, i);
    return fit_factor(&fit, clipping->squared);
}

/* ---- one factor -------------------------------------------------------------------------------------------------- */

/* The factor of clipping that fits best differs from the right factor by a power of two.  Smaller powers than
 * SUSPECT_LEAST_SCALE may be a number of ranks. */
static void try_loss_scale(struct suspect *suspect, const struct clipping *clipping, double c, double *y)
{
    const double scale = exp2(round(log2(c / clipping->clip)));
    if (!(c > 0) || (scale < SUSPECT_LEAST_SCALE && scale * SUSPECT_LEAST_SCALE > 1)) return;
    if (!suspect_made(suspect, clipped_at, &(struct clipped_by){ clipping, scale * clipping->clip }, y)) return;
    if (scale > 1) suspect_explained(suspect, y, "a loss scale of %.0f is not divided out", scale);
    else suspect_explained(suspect, y, "a loss scale of %.0f is divided out twice, or after clipping", 1 / scale);
}

/* A guess whose factor is further from the one that fits best is not looked at, relative. */
static const double NEAR_FACTOR = 1e-2;

/* Find the guess whose factor is nearest to c; `not` and its equals are left out.  @return -1: none is near. */
static int nearest_guess(const struct step_norms *norms, const struct hyperparameters *hyper, double c, int not)
{
    int best = -1;
    double off = NEAR_FACTOR * c;
    for (int g = 0; g < norms->guesses; g++) {
        const double x = clip_scale(hyper, norms->guess[g].norm);
        if (isnan(norms->guess[g].norm) || g == not || (not >= 0 && x == clip_scale(hyper, norms->guess[not].norm)))
            continue;
        if (fabs(x - c) < off) off = fabs(x - c), best = g;
    }
    return best;
}

/* All ranks clip by a norm that counts something wrongly: the two nearest guesses are offered.  Where the norm that
 * the program shows is wrong, its steps may clip by the right one. */
static void try_guesses(struct suspect *suspect, const struct stepping *stepping, const struct step_norms *norms,
                        const struct clipping *clipping, double c, double *y)
{
    const struct hyperparameters *h = &stepping->o->hyper;
    if (!(c > 0)) return;
    if (suspect_made(suspect, clipped_at, &(struct clipped_by){ clipping, clip_scale(h, norms->norm) }, y))
        suspect_explained(suspect, y, "clipped by the norm of all gradients, not by the norm that is shown");
    for (int k = 0, g = -1; k < 2 && suspect->words[0] == 0; k++) {
        g = nearest_guess(norms, h, c, g);
        if (g < 0) return;
        if (suspect_made(suspect, clipped_at,
                         &(struct clipped_by){ clipping, clip_scale(h, norms->guess[g].norm) }, y))
            suspect_explained(suspect, y, "clipped by another norm: %s", norms->guess[g].words);
    }
}

/* ---- what a rank has --------------------------------------------------------------------------------------------- */

static const char *const words_of[SHARE_CUTS] = {
    [SHARE_ALONG_TP] = "each of %d ranks along tp clips by the norm of what it has",
    [SHARE_EXPERTS] = "each of %d ranks along ep clips by the norm of what it has: its experts, and what all have",
    [SHARE_EXPERTS_IN_TURN] = ("each of %d ranks along ep clips by the norm of what it has: its experts, which it "
                               "takes in turn, and what all have"),
    [SHARE_STAGES] = "each of %d stages clips by the norm of its layers",
    [SHARE_ROWS] = "each of %d ranks with a part of the rows clips by the norm of what it has",
    [SHARE_FLAT_EACH] = "each of %d ranks clips by the norm of its flat shards, of every parameter",
    [SHARE_FLAT_LAYER] = "each of %d ranks clips by the norm of its flat shards, of every layer",
    [SHARE_FLAT_LAYER_NORMS] = "each of %d ranks clips by the norm of its flat shards, of every layer",
    [SHARE_FLAT_GROUP] = "each of %d ranks clips by the norm of its flat shards, of what decays and of the rest",
    [SHARE_FLAT_ALL] = "each of %d ranks clips by the norm of its flat shard of all parameters",
    [SHARE_FLAT_ALL_NORMS] = "each of %d ranks clips by the norm of its flat shard of all parameters",
};

/* A gradient that each of P ranks clips by its own factor.  whole: the rank whose copy is shown of what all have. */
struct clipped_by_own {
    const struct clipping *clipping;
    const struct share *share;
    const double *factor;               /* [parts] */
    int parts, whole;
    int64_t first, cols;                /* of the parameter's rows the first that is looked at */
};

static double own_factor_at(const struct clipped_by_own *by, int64_t i)
{
    const int owner = share_owner(by->share, by->first + i / by->cols, i % by->cols, by->parts);
    return by->factor[owner < 0 ? by->whole : owner];
}

static double clipped_by_own_at(const void *context, int64_t i)
{
    const struct clipped_by_own *by = context;
    return clipping_makes(by->clipping, i, own_factor_at(by, i) * by->clipping->g[i]);
}

/* The rank whose factor is nearest to the one that fits best.  A dump may show any rank's copy. */
static int nearest_rank(const double factor[], int parts, double c)
{
    int best = 0;
    for (int k = 1; k < parts; k++)
        if (fabs(factor[k] - c) < fabs(factor[best] - c)) best = k;
    return best;
}

/* Each rank clips by the norm of its own part.  Runs of elements with one owner are made at once. */
static void try_own_norms(struct suspect *suspect, const struct stepping *stepping, enum share_cut cut, int parts,
                          const struct clipping *clipping, double c, double *y)
{
    const struct step_norms *norms = suspect_norms(suspect->s, stepping_gradient(stepping->o, stepping->k, "").text);
    const struct share *share = norms ? suspect_share(suspect->s, cut, stepping->number) : NULL;
    double factor[SUSPECT_RANKS];
    for (int k = 0; norms && k < parts; k++)
        factor[k] = clip_scale(&stepping->o->hyper, norms->own[cut][parts][k]);
    struct clipped_by_own by = { clipping, share, factor, parts, 0, stepping->first, stepping->cols };
    if (share) by.whole = nearest_rank(factor, parts, c);
    if (share == NULL || !suspect_made(suspect, clipped_by_own_at, &by, y)) return;
    suspect_explained(suspect, y, words_of[cut], parts);
}

/* ---- what a copy has --------------------------------------------------------------------------------------------- */

/* y = sum over copies of times[k] g_k.  Copies' gradients are our own model's, so what their roundings leave of g
 * gets the mean factor. */
static void add_copies(struct suspect *suspect, const struct stepping *stepping, const struct suspect_copies *copies,
                       const double times[], const double *g, double *y)
{
    const int used = suspect->s->memory.used;
    double mean = 0;
    /* share[k] is copy k's part of the labels that count. */
    for (int k = 0; k < copies->n; k++) mean += times[k] * copies->share[k];
    for (int64_t i = 0; i < suspect->count; i++) y[i] = mean * g[i];
    for (int k = 0; k < copies->n && single_going(suspect->s); k++) {
        char kind[32];
        snprintf(kind, sizeof kind, "copy/%d/grad/", k);
        const struct tensor one = single_input(suspect->s, single_param_name(suspect->s, kind, stepping->number),
                                               stepping->rows, stepping->cols);
        /* y = mean g + sum over copies of (times[k] - mean) g_k. */
        for (int64_t i = 0; single_going(suspect->s) && i < suspect->count; i++)
            y[i] += (times[k] - mean) * numbers(one)[i];
        single_release(suspect->s, used);
    }
}

/* Copies of the model clip before they add up their gradients.  own_mean: a copy's gradient is that of the mean
 * over its own labels. */
static void try_copies(struct suspect *suspect, const struct stepping *stepping, const struct clipping *clipping,
                       bool own_mean, double *y)
{
    const struct suspect_copies *c = suspect_copies_of(suspect->s);
    double times[SUSPECT_RANKS];
    if (c == NULL) return;
    for (int k = 0; k < c->n; k++)
        times[k] = clip_scale(&stepping->o->hyper, c->norm[k] / (own_mean ? c->share[k] : 1));
    /* All of g is clipped by a single copy's factor. */
    for (int k = 0; k < c->n; k++) {
        for (int64_t i = 0; i < suspect->count; i++) y[i] = clipped_at(&(struct clipped_by){ clipping, times[k] }, i);
        suspect_near(suspect, y, "clipped by the norm of copy %d's own gradient, before copies add theirs up", k);
    }
    /* Copies' gradients are there as a whole only. */
    if (c->n < 2 || stepping->rows < stepping->whole) return;
    single_read_anew(suspect->s);
    /* Each copy's gradient is clipped by the copy's own factor. */
    add_copies(suspect, stepping, c, times, clipping->g, y);
    if (!single_going(suspect->s)) return;
    for (int64_t i = 0; i < suspect->count; i++) y[i] = clipping_makes(clipping, i, y[i]);
    suspect_near(suspect, y, "each of %d copies clips by the norm of its own gradient, before they are added up", c->n);
}

/* All cuts with all numbers of ranks.  The program's own mesh comes first in both lists. */
static void try_all_own_norms(struct suspect *suspect, const struct stepping *stepping,
                              const struct clipping *clipping, double c, double *y)
{
    int tried[SUSPECT_RANKS];
    const int count = suspect_ranks(suspect->s, tried);
    for (int cut = 0; cut < SHARE_CUTS; cut++)
        for (int k = 0; k < count && suspect->words[0] == 0 && !suspect->s->failed; k++)
            if (suspect_can(suspect->s, (enum share_cut)cut, tried[k]))
                try_own_norms(suspect, stepping, (enum share_cut)cut, tried[k], clipping, c, y);
}

void suspect_clipping(struct suspect *suspect, const struct stepping *stepping, struct clipping clipping, bool any,
                      double *y)
{
    const double c = suspect_clip_factor(suspect, &clipping);
    try_loss_scale(suspect, &clipping, c, y);
    if (stepping->o->hyper.clip == 0 || suspect->words[0]) return;
    const struct step_norms *norms = suspect_norms(suspect->s, stepping_gradient(stepping->o, stepping->k, "").text);
    if (norms) try_all_own_norms(suspect, stepping, &clipping, c, y);
    if (norms && any && suspect->words[0] == 0) try_guesses(suspect, stepping, norms, &clipping, c, y);
    /* Copies' gradients are known for the first step only. */
    if (suspect->s->failed || stepping->k > 0 || suspect->words[0]) return;
    try_copies(suspect, stepping, &clipping, true, y);
    try_copies(suspect, stepping, &clipping, false, y);
}
