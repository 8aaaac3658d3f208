/* norms.c -- adds up the squares of a step's gradients by groups, once for all results of the step, and makes the
 * guesses of norms.h from them.
 * gradient_norm.c and clipping.c ask for the norms of a step.  Notes are kept where the check says (single_notes_of),
 * and suspect_forget frees them.  Without memory single.failed is ERR_MEMORY. */
#include "emulated_devices/check/mistakes/norms.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- notes ------------------------------------------------------------------------------------------------------- */

/* The sums that diagnoses of steps share.  The cuts are those of all steps. */
struct single_notes {
    struct share *shares[SHARE_CUTS];   /* NULL: nobody has asked for the cut */
    struct step_norms *step;            /* [steps] */
    int steps;
    bool copies_known;
    struct suspect_copies copies;
    int fruitless;                      /* results that no slow hypothesis has explained, since the last that one did */
};

/* The owner of the notes calls this once, when the check ends. */
void suspect_forget(struct single_notes *notes)
{
    for (int cut = 0; cut < SHARE_CUTS; cut++) free(notes->shares[cut]);
    for (int k = 0; k < notes->steps; k++) free(notes->step[k].guess);
    free(notes->step), free(notes);
}

static void norms_fail(struct single *single)
{
    if (!single->failed)
        single->failed = fail(single->context->err, ERR_MEMORY, "no memory to diagnose %s",
                              single->verdict.result.name);
}

/* NULL: no memory, and single.failed is set. */
static struct single_notes *norms_notes(struct single *single)
{
    struct single_notes **notes = single_notes_of(single);
    if (*notes == NULL) *notes = calloc(1, sizeof **notes);
    if (*notes == NULL) norms_fail(single);
    return *notes;
}

const struct share *suspect_share(struct single *single, enum share_cut cut, int param)
{
    struct single_notes *notes = norms_notes(single);
    if (notes == NULL) return NULL;
    if (notes->shares[cut] == NULL) notes->shares[cut] = shares_of(single, cut);
    if (notes->shares[cut] == NULL) norms_fail(single);
    return notes->shares[cut] ? &notes->shares[cut][param] : NULL;
}

int *suspect_fruitless(struct single *single)
{
    struct single_notes *notes = norms_notes(single);
    return notes ? &notes->fruitless : NULL;
}

const struct suspect_copies *suspect_copies_of(struct single *single)
{
    struct single_notes *notes = norms_notes(single);
    if (notes && !notes->copies_known) notes->copies = suspect_copies(single), notes->copies_known = true;
    return notes ? &notes->copies : NULL;
}

int suspect_ranks(const struct single *single, int tried[SUSPECT_RANKS])
{
    const struct single_mesh *mesh = &single->context->source.mesh;
    const int numbers[] = { mesh->tp, mesh->ep, mesh->dp, mesh->cp, mesh->pp, single->rounding.parts, 2, 3, 4, 8 };
    int n = 0;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        bool known = numbers[i] < 2 || numbers[i] > SUSPECT_RANKS;
        for (int k = 0; k < n; k++) known = known || tried[k] == numbers[i];
        if (!known && n < SUSPECT_RANKS) tried[n++] = numbers[i];
    }
    return n;
}

/* Along tp and pp only the mesh's number of ranks is likely, if the mesh is known.  Experts may be cut along dp,
 * too. */
bool suspect_can(const struct single *single, enum share_cut cut, int parts)
{
    const struct single_mesh *mesh = &single->context->source.mesh;
    return share_can(single->context->config, cut, parts)
           && (cut != SHARE_ALONG_TP || mesh->tp == 0 || parts == mesh->tp)
           && (cut != SHARE_STAGES || parts == mesh->pp)
           && ((cut != SHARE_EXPERTS && cut != SHARE_EXPERTS_IN_TURN) || mesh->ep < 2 || parts == mesh->ep);
}

/* ---- adding up --------------------------------------------------------------------------------------------------- */

/* A parameter is in one of these groups. */
enum norm_group {
    NORM_TOKENS, NORM_POSITIONS, NORM_HEAD,             /* of the vocabulary, except positions */
    NORM_NORMS, NORM_OF_HEADS, NORM_BIASES,             /* vectors */
    NORM_ROUTERS, NORM_EXPERTS, NORM_SHARED, NORM_MATRICES, NORM_GROUPS
};

/* An expert's two matrices, and their biases. */
struct norm_expert { int layer, expert; double square; };

/* Sums over the gradients of a step. */
struct norm_sums {
    double all, absolute, largest;
    double group[NORM_GROUPS], whole_vectors, whole_inside;     /* whole: what all ranks along tp have; inside: of it,
                                                                 * all but the vocabulary */
    bool has[NORM_GROUPS];              /* the model has parameters of the group */
    double *layer;                      /* [L] */
    struct norm_expert *expert;         /* [experts] */
    int experts;
    struct { double rank[SUSPECT_RANKS], whole; } of[SHARE_CUTS][SUSPECT_RANKS + 1];
};

static enum norm_group group_of(const struct param_spec *spec)
{
    switch (spec->role) {
    case ROLE_TOKENS: return NORM_TOKENS;
    case ROLE_POSITIONS: return NORM_POSITIONS;
    case ROLE_HEAD: return spec->ndim > 1 ? NORM_HEAD : NORM_BIASES;
    case ROLE_NORM: case ROLE_LATENT_NORM: return NORM_NORMS;
    case ROLE_HEAD_NORM: return NORM_OF_HEADS;
    case ROLE_ROUTER: case ROLE_SHARED_GATE: return NORM_ROUTERS;
    case ROLE_SHARED_UP: case ROLE_SHARED_DOWN: return NORM_SHARED;
    default: return spec->expert >= 0 ? NORM_EXPERTS : spec->ndim < 2 ? NORM_BIASES : NORM_MATRICES;
    }
}

static bool is_vector_group(enum norm_group group)
{
    return group == NORM_NORMS || group == NORM_OF_HEADS || group == NORM_BIASES;
}

/* Add what each of P ranks has of a parameter: before[i] is the sum of squares of its elements before i. */
static void norms_add_owners(struct norm_sums *sums, enum share_cut cut, const struct share *share, int parts,
                             const double *before, int64_t cols)
{
    const int64_t count = share->rows * share->cols;
    for (int64_t i = 0, end; i < count; i = end) {
        const int owner = share_owner(share, i / cols, i % cols, parts);
        end = share_end(share, i, parts);
        /* Elements that all ranks have count in each rank's norm. */
        if (owner < 0) sums->of[cut][parts].whole += before[end] - before[i];
        else sums->of[cut][parts].rank[owner] += before[end] - before[i];
    }
}

/* Add an expert's square to that of its other parameters, which come right before in the model's order. */
static void norms_add_expert(struct norm_sums *sums, const struct param_spec *spec, double square)
{
    struct norm_expert *last = sums->experts > 0 ? &sums->expert[sums->experts - 1] : NULL;
    if (last == NULL || last->layer != spec->layer || last->expert != spec->expert)
        last = &sums->expert[sums->experts++], *last = (struct norm_expert){ spec->layer, spec->expert, 0 };
    last->square += square;
}

/* Add a parameter's square to its groups.  What tp does not cut all ranks along tp have. */
static void norms_add_square(struct norm_sums *sums, const struct single *single, const struct param_spec *spec,
                             const struct share *along_tp, double square)
{
    const enum norm_group group = group_of(spec);
    sums->group[group] += square, sums->has[group] = true, sums->all += square;
    if (spec->layer >= 0 && spec->layer < single->context->config->L) sums->layer[spec->layer] += square;
    if (group == NORM_EXPERTS) norms_add_expert(sums, spec, square);
    if (along_tp->along != ALONG_NONE) return;
    sums->whole_vectors += is_vector_group(group) ? square : 0;
    sums->whole_inside += group == NORM_TOKENS || group == NORM_HEAD ? 0 : square;
}

/* Read a parameter's gradient once, and add it to all sums. */
static void norms_add_param(struct single *single, const char *kind, int param, const int tried[], int count,
                            struct norm_sums *sums)
{
    const struct param_spec p = single_spec(single, param);
    const int64_t rows = p.ndim > 1 ? p.dim[0] : 1, cols = p.dim[p.ndim - 1], n = rows * cols;
    const struct tensor g = single_input(single, single_param_name(single, kind, param), rows, cols),
                        sum = single_new(single, 1, n + 1);
    if (!single_going(single)) return;
    double *const before = numbers(sum);
    for (int64_t i = 0; i < n; i++) {
        const double x = fabs(numbers(g)[i]);
        before[i + 1] = before[i] + x * x;
        sums->absolute += x, sums->largest = fmax(sums->largest, x);
    }
    for (int cut = 0; cut < SHARE_CUTS; cut++) {
        const struct share *share = suspect_share(single, (enum share_cut)cut, param);
        if (share == NULL) return;
        if (cut == SHARE_ALONG_TP) norms_add_square(sums, single, &p, share, before[n]);
        for (int k = 0; k < count; k++)
            if (suspect_can(single, (enum share_cut)cut, tried[k]))
                norms_add_owners(sums, (enum share_cut)cut, share, tried[k], before, cols);
    }
}

/* ---- guesses ----------------------------------------------------------------------------------------------------- */

/* The step whose guesses are made, and its sums. */
struct guessing { struct single *single; struct step_norms *norms; const struct norm_sums *sums; };

static void norms_guess(struct guessing *guessing, bool can, double norm, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* Add a guess.  A guess that cannot be is kept as NAN, so that all steps have the same list. */
static void norms_guess(struct guessing *guessing, bool can, double norm, const char *format, ...)
{
    struct step_norms *norms = guessing->norms;
    va_list args;
    /* The list doubles when it is full: at 0, 64, 128, ... */
    if ((norms->guesses & (norms->guesses - 1)) == 0 && norms->guesses % 64 == 0) {
        struct norm_guess *more = realloc(norms->guess, (norms->guesses ? 2 * (size_t)norms->guesses : 64)
                                          * sizeof *more);
        if (more == NULL) norms_fail(guessing->single);
        else norms->guess = more;
    }
    if (guessing->single->failed) return;
    struct norm_guess *g = &norms->guess[norms->guesses++];
    *g = (struct norm_guess){ .norm = can ? norm : NAN };
    va_start(args, format);
    vsnprintf(g->words, sizeof g->words, format, args);
    va_end(args);
}

/* The root of what is left without a group.  A group of nothing, or of all, is no guess. */
static void guess_without(struct guessing *guessing, bool has, double square, const char *what)
{
    const double all = guessing->sums->all;
    norms_guess(guessing, has && square > 0 && square < all, sqrt(fmax(0, all - square)), "the norm leaves out %s",
                what);
}

/* Groups that are left out, alone or with those like them. */
static void guess_left_out(struct guessing *guessing)
{
    const struct norm_sums *s = guessing->sums;
    const double *q = s->group;
    const bool *has = s->has, vocabulary = has[NORM_HEAD], mixture = has[NORM_EXPERTS];
    guess_without(guessing, true, q[NORM_TOKENS] + q[NORM_HEAD], "the matrices of the vocabulary");
    guess_without(guessing, vocabulary, q[NORM_TOKENS], "the token embedding");
    guess_without(guessing, vocabulary, q[NORM_HEAD], "the output matrix");
    guess_without(guessing, has[NORM_POSITIONS], q[NORM_POSITIONS], "the embedding of positions");
    guess_without(guessing, mixture, q[NORM_EXPERTS], "the experts");
    guess_without(guessing, has[NORM_ROUTERS], q[NORM_ROUTERS], "the routers");
    guess_without(guessing, mixture && has[NORM_ROUTERS], q[NORM_EXPERTS] + q[NORM_ROUTERS],
                  "the experts and the routers");
    guess_without(guessing, mixture, s->all - q[NORM_EXPERTS], "all but the experts");
    guess_without(guessing, has[NORM_SHARED], q[NORM_SHARED], "the shared experts");
    guess_without(guessing, has[NORM_NORMS], q[NORM_NORMS], "the weights of norms");
    guess_without(guessing, has[NORM_OF_HEADS], q[NORM_OF_HEADS], "the norms of heads");
    guess_without(guessing, has[NORM_BIASES], q[NORM_BIASES], "the biases");
    guess_without(guessing, has[NORM_BIASES] || has[NORM_OF_HEADS],
                  q[NORM_BIASES] + q[NORM_NORMS] + q[NORM_OF_HEADS], "all vectors: norms and biases");
    guess_without(guessing, has[NORM_MATRICES], q[NORM_MATRICES], "the dense matrices of blocks");
    for (int l = 0; l < guessing->single->context->config->L; l++) {
        char layer[32];
        snprintf(layer, sizeof layer, "layer %d", l);
        guess_without(guessing, guessing->single->context->config->L > 1, s->layer[l], layer);
    }
}

/* P ranks along tp add up their squares, and count wrongly what all of them have; or they average. */
static void guess_tp(struct guessing *guessing, int parts)
{
    const struct norm_sums *s = guessing->sums;
    const double whole = s->of[SHARE_ALONG_TP][parts].whole, times = parts - 1;
    const bool can = suspect_can(guessing->single, SHARE_ALONG_TP, parts);
    /* `whole` counts once in s->all, so P - 1 times more make P. */
    norms_guess(guessing, can && s->has[NORM_OF_HEADS], sqrt(s->all + times * s->group[NORM_OF_HEADS]),
                "the norms of heads count %d times", parts);
    norms_guess(guessing, can && s->whole_vectors > s->group[NORM_OF_HEADS], sqrt(s->all + times * s->whole_vectors),
                "norms, and biases that all ranks have, count %d times", parts);
    norms_guess(guessing, can && s->has[NORM_ROUTERS], sqrt(s->all + times * s->group[NORM_ROUTERS]),
                "routers count %d times", parts);
    norms_guess(guessing, can, sqrt(s->all + times * whole), "what all %d ranks along tp have counts %d times",
                parts, parts);
    norms_guess(guessing, can, sqrt(s->all + times * s->whole_inside),
                "what all %d ranks along tp have counts %d times", parts, parts);
    norms_guess(guessing, can, sqrt(whole + s->of[SHARE_ALONG_TP][parts].rank[0]),
                "only what the first of %d ranks along tp has", parts);
    norms_guess(guessing, can, sqrt(fmax(0, s->all - whole)), "without what all %d ranks along tp have", parts);
    norms_guess(guessing, can, sqrt(whole + (s->all - whole) / parts),
                "squares are averaged over %d ranks along tp, not added up", parts);
}

/* P ranks along ep have their own experts, and all of them have the rest. */
static void guess_ep(struct guessing *guessing, int parts)
{
    const struct norm_sums *s = guessing->sums;
    const bool can = s->has[NORM_EXPERTS] && suspect_can(guessing->single, SHARE_EXPERTS, parts);
    const double experts = s->group[NORM_EXPERTS], rest = s->all - experts;
    norms_guess(guessing, can, sqrt(rest + experts / parts),
                "the experts' squares are averaged over %d ranks along ep, not added up", parts);
    norms_guess(guessing, can, sqrt(parts * rest + experts), "what all %d ranks along ep have counts %d times",
                parts, parts);
    norms_guess(guessing, can, sqrt(rest + parts * experts), "the experts count %d times", parts);
    for (int r = 0; r < parts; r++)
        norms_guess(guessing, can, sqrt(rest + s->of[SHARE_EXPERTS][parts].rank[r]),
                    "only what rank %d of %d along ep has", r, parts);
}

/* All squares count n times, or a n-th; gradients are added up where they are averaged; a stage is alone. */
static void guess_ranks(struct guessing *guessing, int parts)
{
    const struct norm_sums *s = guessing->sums;
    const bool staged = suspect_can(guessing->single, SHARE_STAGES, parts);
    guess_tp(guessing, parts), guess_ep(guessing, parts);
    for (int r = 0; r < parts; r++)
        norms_guess(guessing, staged, sqrt(s->of[SHARE_STAGES][parts].rank[r]), "only what stage %d of %d has", r,
                    parts);
    norms_guess(guessing, true, sqrt(s->all / parts), "squares are averaged over %d ranks, not added up", parts);
    norms_guess(guessing, true, sqrt(s->all * parts), "all gradients count %d times", parts);
}

/* The norm is of gradients that are not yet, or twice, divided by a number. */
static void guess_divided(struct guessing *guessing, int by, const char *what)
{
    norms_guess(guessing, by > 1, guessing->norms->norm * by, "the norm is taken before gradients are divided by %s",
                what);
    norms_guess(guessing, by > 1, guessing->norms->norm / by, "gradients are divided by %s once too often for the norm",
                what);
}

/* Experts that are left out, in one layer or in all.  They are many, so one may agree by chance. */
static void guess_experts(struct guessing *guessing)
{
    const struct norm_sums *s = guessing->sums;
    const struct model_config *c = guessing->single->context->config;
    const int first = guessing->norms->guesses;
    for (int i = 0; i < s->experts; i++)
        norms_guess(guessing, s->expert[i].square > 0, sqrt(fmax(0, s->all - s->expert[i].square)),
                    "the norm leaves out expert %d of layer %d", s->expert[i].expert, s->expert[i].layer);
    for (int e = 0; s->experts > 0 && e < c->mixture.E; e++) {
        double square = 0;
        for (int i = 0; i < s->experts; i++) square += s->expert[i].expert == e ? s->expert[i].square : 0;
        norms_guess(guessing, c->L > 1 && square > 0, sqrt(fmax(0, s->all - square)),
                    "the norm leaves out expert %d of every layer", e);
    }
    for (int i = first; i < guessing->norms->guesses; i++) guessing->norms->guess[i].of_many = true;
}

/* The first of two guesses with the same norm is said, so those that need no number of ranks come first. */
static void guess_all(struct guessing *guessing, const int tried[], int count)
{
    const struct norm_sums *s = guessing->sums;
    const struct single_mesh *mesh = &guessing->single->context->source.mesh;
    norms_guess(guessing, true, s->all, "the sum of squares in place of its root");
    norms_guess(guessing, true, s->absolute, "the sum of absolute values in place of the root of squares");
    norms_guess(guessing, true, s->largest, "the largest absolute value in place of the root of squares");
    norms_guess(guessing, guessing->single->context->config->tied, sqrt(s->all + s->group[NORM_TOKENS]),
                "the tied matrix counts twice");
    guess_left_out(guessing);
    for (int k = 0; k < count; k++) guess_ranks(guessing, tried[k]);
    guess_divided(guessing, mesh->micros, "the number of microbatches");
    guess_divided(guessing, mesh->dp * (mesh->cp > 1 ? mesh->cp : 1), "the number of copies");
    guess_experts(guessing);
}

/* ---- a step ------------------------------------------------------------------------------------------------------ */

/* Read every gradient of the step once.  A missing gradient must not be taken for the suspect's own missing input. */
static void norms_add_up(struct single *single, struct step_norms *norms, struct norm_sums *sums)
{
    int tried[SUSPECT_RANKS];
    const int count = suspect_ranks(single, tried), params = single_spec_count(single), used = single->memory.used;
    const struct single_reading outer = single_read_anew(single);
    for (int i = 0; i < params && single_going(single); i++) {
        norms_add_param(single, norms->kind, i, tried, count, sums);
        single_release(single, used);
    }
    norms->has = single_going(single);
    single->reading = outer;
    if (!norms->has) return;
    norms->norm = sqrt(sums->all);
    /* The norm of rank k: sqrt(own squares + squares of what all ranks have). */
    for (int cut = 0; cut < SHARE_CUTS; cut++)
        for (int parts = 2; parts <= SUSPECT_RANKS; parts++)
            for (int k = 0; k < parts; k++)
                norms->own[cut][parts][k] = sqrt(sums->of[cut][parts].rank[k] + sums->of[cut][parts].whole);
    guess_all(&(struct guessing){ single, norms, sums }, tried, count);
}

static void norms_make(struct single *single, struct step_norms *norms)
{
    struct norm_sums *sums = calloc(1, sizeof *sums);
    const size_t L = (size_t)single->context->config->L, params = (size_t)single_spec_count(single);
    if (sums) sums->layer = calloc(L + 1, sizeof *sums->layer), sums->expert = calloc(params + 1, sizeof *sums->expert);
    if (sums == NULL || sums->layer == NULL || sums->expert == NULL) norms_fail(single);
    else norms_add_up(single, norms, sums);
    if (sums) free(sums->layer), free(sums->expert);
    free(sums);
}

const struct step_norms *suspect_norms(struct single *single, const char *kind)
{
    struct single_notes *notes = norms_notes(single);
    if (notes == NULL) return NULL;
    for (int k = 0; k < notes->steps; k++)
        if (strcmp(notes->step[k].kind, kind) == 0) return notes->step[k].has ? &notes->step[k] : NULL;
    struct step_norms *more = realloc(notes->step, (size_t)(notes->steps + 1) * sizeof *more);
    if (more == NULL) return norms_fail(single), NULL;
    notes->step = more;
    struct step_norms *const norms = &notes->step[notes->steps++];
    *norms = (struct step_norms){ .has = false };
    snprintf(norms->kind, sizeof norms->kind, "%s", kind);
    norms_make(single, norms);
    return norms->has && !single->failed ? norms : NULL;
}
