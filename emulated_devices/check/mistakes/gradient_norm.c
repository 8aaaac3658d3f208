/* gradient_norm.c -- which of the guesses of norms.h a reported norm is: something counts too often, or not at all.
 * mistakes.c calls suspect_gradient_norm for the results "norm" and "OPTIMIZER/norm", one number for each step;
 * norms.c asks for the norms of copies.  Without memory single.failed is ERR_MEMORY. */
#include "emulated_devices/check/mistakes/norms.h"
#include <stdio.h>
#include <string.h>

bool suspect_is_norm(const char *result)
{
    const char *slash = strrchr(result, '/');
    return strcmp(slash ? slash + 1 : result, "norm") == 0;
}

/* ---- the guesses ------------------------------------------------------------------------------------------------- */

/* A single number agrees with some guess by chance if there are many: two that fit are named, more are none. */
enum { MOST_FITS = 2 };

/* Another expert's guess within so many bounds makes a guess of many experts no explanation. */
static const double CROWDED = 16;

/* The names' prefix of the gradients of step k, as stepping_gradient has it. */
static struct single_name kind_of(const struct suspect *suspect, int64_t k)
{
    struct single_name kind;
    const char *name = suspect->s->verdict.result.name, *slash = strrchr(name, '/');
    if (k == 0) return single_name("grad/", "");
    snprintf(kind.text, sizeof kind.text, "%.*s/%lld/grad/", slash ? (int)(slash - name) : 0, name, (long long)k + 1);
    return kind;
}

/* The norms of a step; they may move when those of another step are asked for. */
static const struct step_norms *norms_of(struct suspect *suspect, int64_t k)
{
    return suspect_norms(suspect->s, kind_of(suspect, k).text);
}

/* y[k] = guess g of each step.  @return whether all steps have such a guess.  Steps before the dump begins have
 * neither a number nor a bound. */
static bool guess_of(struct suspect *suspect, int g, double *y)
{
    bool has = true;
    for (int64_t k = 0; k < suspect->count && has; k++) {
        y[k] = 0;
        if (suspect->have[k] == 0 && suspect->bound[k] == 0) continue;
        const struct step_norms *norms = norms_of(suspect, k);
        has = norms && g < norms->guesses && !isnan(norms->guess[g].norm);
        if (has) y[k] = norms->guess[g].norm;
    }
    return has;
}

/* Whether all steps are within so many bounds. */
static bool is_within(const struct suspect *suspect, const double *y, double bounds)
{
    for (int64_t k = 0; k < suspect->count; k++)
        if (!(fabs(suspect->have[k] - y[k]) <= bounds * suspect->bound[k])) return false;
    return true;
}

/* Whether two guesses are the same number in every step. */
static bool is_same(const double *a, const double *b, int64_t count)
{
    for (int64_t k = 0; k < count; k++)
        if (!(fabs(a[k] - b[k]) <= 1e-12 * fabs(b[k]))) return false;
    return true;
}

/* The guesses that fit, none of them twice, and how many guesses of many are near. */
struct fits { int guess[MOST_FITS], count, crowd; struct tensor y; };

/* Add guess g if it fits.  fits.y [MOST_FITS + 1, steps]: the last row is to work in. */
static void add_guess(struct suspect *suspect, int g, bool of_many, struct fits *fits)
{
    double *const y = numbers(fits->y) + MOST_FITS * suspect->count;
    if (!guess_of(suspect, g, y)) return;
    for (int i = 0; i < fits->count && i < MOST_FITS; i++)
        if (is_same(y, numbers(fits->y) + i * suspect->count, suspect->count)) return;
    fits->crowd += of_many && is_within(suspect, y, CROWDED);
    if (!is_within(suspect, y, 1)) return;
    if (fits->count < MOST_FITS) {
        memcpy(numbers(fits->y) + fits->count * suspect->count, y, (size_t)suspect->count * sizeof *y);
        fits->guess[fits->count] = g;
    }
    fits->count++;
}

/* Offer the guesses that fit, if they are few.  Those of experts come last, only if no other fits, and only if there
 * is one alone. */
static void try_guesses(struct suspect *suspect)
{
    const int used = suspect->s->memory.used;
    struct fits fits = { .y = single_new(suspect->s, MOST_FITS + 1, suspect->count) };
    const struct step_norms *norms = suspect->s->failed ? NULL : norms_of(suspect, 0);
    const int guesses = norms ? norms->guesses : 0;
    for (int g = 0; g < guesses; g++) {
        const bool of_many = norms_of(suspect, 0)->guess[g].of_many;
        if (!of_many || fits.count == 0 || fits.crowd > 0) add_guess(suspect, g, of_many, &fits);
    }
    if (fits.crowd > 1) fits.count = 0;
    for (int i = 0; i < fits.count && fits.count <= MOST_FITS; i++)
        suspect_explained(suspect, numbers(fits.y) + i * suspect->count, "%s",
                          norms_of(suspect, 0)->guess[fits.guess[i]].words);
    single_release(suspect->s, used);
}

/* The norm is taken before a loss scale is divided out.  A loss scale is a power of two; smaller powers may be a
 * number of ranks. */
static void try_scale(struct suspect *suspect)
{
    const double scale = exp2(round(log2(suspect->have[0] / suspect->want[0])));
    const struct tensor y = single_new(suspect->s, 1, suspect->count);
    if (suspect->s->failed || !(scale >= SUSPECT_LEAST_SCALE)) return;
    for (int64_t k = 0; k < suspect->count; k++) numbers(y)[k] = scale * suspect->want[k];
    suspect_explained(suspect, numbers(y), "it is taken before a loss scale of %.0f is divided out", scale);
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
    const int params = single_spec_count(single);
    for (int i = 0; i < params && single_going(single); i++) {
        const struct param_spec p = single_spec(single, i);
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
    const struct suspect_copies *all = suspect_copies_of(suspect->s), c = all ? *all : (struct suspect_copies){ 0 };
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

/* The mistakes that need no copies come first.  Copies' gradients are known for the first step only. */
void suspect_gradient_norm(struct suspect *suspect)
{
    try_guesses(suspect);
    if (suspect->words[0] == 0) try_scale(suspect);
    if (suspect->words[0] == 0 && suspect->count == 1) try_copies(suspect);
}
