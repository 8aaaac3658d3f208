/* clipping.c -- what is made of a gradient that has been clipped by another norm.
 * steps.c calls suspect_clipping for states, and for weights of sgd; gradient norms come from shares.c and
 * model_copies.c.  Norms of a step are kept in single_notes for all parameters, and suspect_forget frees them.
 * Without memory single.failed is ERR_MEMORY. */
#include "emulated_devices/check/mistakes/mistakes.h"
#include "ref/model/params.h"
#include <stdio.h>
#include <stdlib.h>

/* Make y, a clipped gradient, what the step makes of it: rest + times y, or times y^2. */
static void made_of(const struct suspect *suspect, const struct clipping *clipping, double *y)
{
    for (int64_t i = 0; i < suspect->count; i++)
        y[i] = clipping->rest[i] + clipping->times * (clipping->squared ? y[i] * y[i] : y[i]);
}

/* ---- loss scales ------------------------------------------------------------------------------------------------- */

/* The factor of clipping that fits best differs from the right factor by a power of two.  Smaller powers than
 * SUSPECT_LEAST_SCALE may be a number of ranks. */
static void try_loss_scale(struct suspect *suspect, const struct clipping *clipping, double *y)
{
    double along = 0, size = 0;
    for (int64_t i = 0; i < suspect->count; i++) {
        const double x = clipping->times * (clipping->squared ? clipping->g[i] * clipping->g[i] : clipping->g[i]);
        along += (suspect->have[i] - clipping->rest[i]) * x, size += x * x;
    }
    /* A squared state has the square of the factor. */
    const double c = clipping->squared ? sqrt(along / size) : along / size,
        scale = exp2(round(log2(c / clipping->clip)));
    if (!(c > 0) || (scale < SUSPECT_LEAST_SCALE && scale * SUSPECT_LEAST_SCALE > 1)) return;
    for (int64_t i = 0; i < suspect->count; i++) y[i] = scale * clipping->clip * clipping->g[i];
    made_of(suspect, clipping, y);
    if (scale > 1) suspect_explained(suspect, y, "a loss scale of %.0f is not divided out", scale);
    else suspect_explained(suspect, y, "a loss scale of %.0f is divided out twice, or after clipping", 1 / scale);
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

/* The sums that diagnoses of a step share: for all its parameters.  The cuts are those of all steps. */
struct single_notes {
    struct share *shares[SHARE_CUTS];   /* NULL: nobody has asked for the cut */
    int64_t step;                       /* whose norms these are */
    bool known, has;                    /* has: no gradient is missing */
    double own[SHARE_CUTS][SUSPECT_RANKS + 1][SUSPECT_RANKS];   /* what each of P ranks has, by cut and P */
    bool copies_known;
    struct suspect_copies copies;
};

/* The explainer calls this once, when the check ends. */
void suspect_forget(struct single_notes *notes)
{
    for (int cut = 0; cut < SHARE_CUTS; cut++) free(notes->shares[cut]);
    free(notes);
}

/* These are the notes of this step; notes of a step before lose their norms.  @return NULL: no memory, and
 * single.failed is set. */
static struct single_notes *notes_of(const struct stepping *stepping)
{
    struct single *s = stepping->s;
    if (s->notes == NULL) s->notes = calloc(1, sizeof *s->notes);
    if (s->notes == NULL) s->failed = fail(s->context->err, ERR_MEMORY, "no memory to diagnose %s",
                                           s->verdict.result.name);
    else if (s->notes->step != stepping->k)
        s->notes->step = stepping->k, s->notes->known = s->notes->copies_known = false;
    return s->notes;
}

/* These are the owners of all parameters in a cut, made when first asked for.  @return NULL: no memory, and
 * single.failed is set. */
static const struct share *shares_in(const struct stepping *stepping, enum share_cut cut)
{
    struct share **shares = stepping->s->notes->shares;
    if (shares[cut] == NULL) shares[cut] = shares_of(stepping->s->context->config, cut);
    if (shares[cut] == NULL)
        stepping->s->failed = fail(stepping->s->context->err, ERR_MEMORY, "no memory to diagnose %s",
                                   stepping->s->verdict.result.name);
    return shares[cut];
}

/* Whether so many ranks are tried: as many as a sum has parts, and the usual numbers. */
static bool is_tried(const struct single *single, int parts)
{
    return parts == single->rounding.parts || parts == 2 || parts == 3 || parts == 4 || parts == 8;
}

/* Squared norms: of what one rank has, and of what all have. */
struct own_squares { double rank[SUSPECT_RANKS], whole; };

/* The squares that a parameter's gradient adds, for every number of ranks that is tried. */
static void clipping_add_squares(const struct single *single, struct own_squares of[SUSPECT_RANKS + 1],
                                 const struct share *share, const double *g, int64_t count)
{
    /* Runs of elements with one owner are added at once: share_end says where a run ends. */
    const int64_t cols = share->spec.dim[share->spec.ndim - 1];
    for (int parts = 2; parts <= SUSPECT_RANKS; parts++)
        for (int64_t i = 0, end; is_tried(single, parts) && i < count; i = end) {
            const int owner = share_owner(share, i / cols, i % cols, parts);
            double sum = 0;
            end = share_end(share, i, parts);
            for (int64_t j = i; j < end; j++) sum += g[j] * g[j];
            /* Elements that all ranks have count in each rank's norm. */
            if (owner < 0) of[parts].whole += sum;
            else of[parts].rank[owner] += sum;
        }
}

/* Read every gradient of the step once, and add its squares in all cuts. */
static void add_up_own(const struct stepping *stepping)
{
    struct single *s = stepping->s;
    struct own_squares of[SHARE_CUTS][SUSPECT_RANKS + 1] = { 0 };
    const struct single_name kind = stepping_gradient(stepping->o, stepping->k, "");
    const int used = s->memory.used;
    /* A missing gradient must not be taken for the suspect's own missing input. */
    single_read_anew(s);
    for (int i = 0; i < model_param_count(s->context->config) && single_going(s); i++) {
        const struct param_spec p = model_param(s->context->config, i);
        const int64_t rows = p.ndim > 1 ? p.dim[0] : 1, cols = p.dim[p.ndim - 1];
        const struct tensor g = single_input(s, single_param_name(s, kind.text, i), rows, cols);
        for (int cut = 0; cut < SHARE_CUTS && single_going(s); cut++) {
            const struct share *share = shares_in(stepping, (enum share_cut)cut);
            if (share) clipping_add_squares(s, of[cut], &share[i], numbers(g), rows * cols);
        }
        single_release(s, used);
    }
    s->notes->known = true, s->notes->has = single_going(s);
    /* The norm of rank k: sqrt(own squares + squares of what all ranks have). */
    for (int cut = 0; cut < SHARE_CUTS; cut++)
        for (int parts = 2; parts <= SUSPECT_RANKS; parts++)
            for (int k = 0; k < parts; k++)
                s->notes->own[cut][parts][k] = sqrt(of[cut][parts].rank[k] + of[cut][parts].whole);
}

/* Norms of what each of P ranks has; NULL: a gradient is missing.  The norms hold for all parameters of a step, so
 * they are computed once. */
static const double *own_norms(const struct stepping *stepping, enum share_cut cut, int parts)
{
    if (!stepping->s->notes->known) add_up_own(stepping);
    return stepping->s->notes->has ? stepping->s->notes->own[cut][parts] : NULL;
}

/* Each rank clips by the norm of its own part.  For elements that all ranks have, the first rank's factor is tried,
 * as a dump shows the first copy. */
static void try_own_norms(struct suspect *suspect, const struct stepping *stepping, enum share_cut cut, int parts,
                          const struct clipping *clipping, double *y)
{
    if (parts < 2 || parts > SUSPECT_RANKS || (cut == SHARE_ALONG_TP && parts > stepping->s->context->config->K))
        return;
    const double *norm = own_norms(stepping, cut, parts);
    const struct share *share = norm ? &shares_in(stepping, cut)[stepping->number] : NULL;
    /* y = factor of the owner times g, run by run. */
    for (int64_t i = 0, end; norm && i < suspect->count; i = end) {
        const int owner = share_owner(share, i / stepping->cols, i % stepping->cols, parts);
        const double times = clip_scale(&stepping->o->hyper, norm[owner < 0 ? 0 : owner]);
        end = share_end(share, i, parts);
        for (int64_t j = i; j < end; j++) y[j] = times * clipping->g[j];
    }
    if (norm) made_of(suspect, clipping, y), suspect_explained(suspect, y, words_of[cut], parts);
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
    struct single_notes *notes = suspect->s->notes;
    if (!notes->copies_known) notes->copies = suspect_copies(suspect->s), notes->copies_known = true;
    const struct suspect_copies *c = &notes->copies;
    double times[SUSPECT_RANKS];
    for (int k = 0; k < c->n; k++)
        times[k] = clip_scale(&stepping->o->hyper, c->norm[k] / (own_mean ? c->share[k] : 1));
    /* All of g is clipped by a single copy's factor. */
    for (int k = 0; k < c->n; k++) {
        for (int64_t i = 0; i < suspect->count; i++) y[i] = times[k] * clipping->g[i];
        made_of(suspect, clipping, y);
        suspect_near(suspect, y, "clipped by the norm of copy %d's own gradient, before copies add theirs up", k);
    }
    if (c->n < 2) return;
    single_read_anew(suspect->s);
    /* Each copy's gradient is clipped by the copy's own factor. */
    add_copies(suspect, stepping, c, times, clipping->g, y);
    if (!single_going(suspect->s)) return;
    made_of(suspect, clipping, y);
    suspect_near(suspect, y, "each of %d copies clips by the norm of its own gradient, before they are added up", c->n);
}

void suspect_clipping(struct suspect *suspect, const struct stepping *stepping, struct clipping clipping, double *y)
{
    const int tried[] = { suspect->s->rounding.parts, 2, 3, 4, 8 };
    try_loss_scale(suspect, &clipping, y);
    if (stepping->o->hyper.clip == 0 || notes_of(stepping) == NULL) return;
    /* All cuts with all numbers of ranks, 5 of each; a number that equals tried[0] is not tried twice. */
    for (int k = 0; k < 5 * SHARE_CUTS && suspect->words[0] == 0 && !suspect->s->failed; k++)
        if (k % 5 == 0 || tried[k % 5] != tried[0])
            try_own_norms(suspect, stepping, (enum share_cut)(k / 5), tried[k % 5], &clipping, y);
    /* Copies' gradients are known for the first step only. */
    if (stepping->k > 0 || suspect->words[0]) return;
    try_copies(suspect, stepping, &clipping, true, y);
    try_copies(suspect, stepping, &clipping, false, y);
}
