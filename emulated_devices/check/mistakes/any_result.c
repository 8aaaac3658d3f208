/* any_result.c -- mistakes that any result may have, whatever operation makes it: zeros, factors, a lost summand.
 * mistakes.c calls them after the operation's own mistakes, which say more. */
#include "emulated_devices/check/mistakes/any_result.h"
#include "emulated_devices/check/mistakes/accepting.h"
#include <string.h>

void suspect_zeros(struct suspect *suspect, double *y)
{
    const struct single *s = suspect->s;
    const struct single_mistakes *all = s->verdict.terms == 1 ? mistakes_of(s->verdict.term[0].node->operation) : NULL;
    if (all && all->explains_zeros && s->verdict.term[0].pass == SINGLE_INPUT) return;
    memset(y, 0, (size_t)suspect->count * sizeof *y);
    if (suspect_norm_of(suspect->have, suspect->count) == 0) suspect_explained(suspect, y, "all of it is zero");
}

void suspect_zeros_there(struct suspect *suspect, double *y)
{
    if (suspect->wrong < LEAST_THERE) return;
    for (int64_t i = 0; i < suspect->count; i++) {
        if (!suspect_is_right(suspect, i) && suspect->have[i] != 0) return;
        y[i] = suspect_is_right(suspect, i) ? suspect->want[i] : 0;
    }
    suspect_explained(suspect, y, "what is wrong is zero");
}

/* The factor c with the smallest |have - c want|: c = (have, want) / (want, want). */
static double factor_of(const double *have, const double *want, int64_t n)
{
    double hy = 0, yy = 0;
    for (int64_t i = 0; i < n; i++) hy += have[i] * want[i], yy += want[i] * want[i];
    return yy > 0 ? hy / yy : NAN;
}

/* A single number equals the right number times some factor, whatever happened, so suspect_factor leaves it out. */
static const char TIMES[] = "expected times";
static const double NO_FACTOR = 5e-5;   /* a factor that is printed as 1.0000 says nothing */

void suspect_factor(struct suspect *suspect, double *y)
{
    const double c = factor_of(suspect->have, suspect->want, suspect->count);
    if (suspect->count == 1 || !isfinite(c) || c == 0 || fabs(c - 1) < NO_FACTOR) return;
    for (int64_t i = 0; i < suspect->count; i++) y[i] = c * suspect->want[i];
    suspect_measured(suspect, y, fabs(c) < 0.01 ? "%s %.4g" : "%s %.4f", TIMES, c);
}

void suspect_factor_there(struct suspect *suspect, double *y)
{
    double hy = 0, yy = 0;
    if (suspect->wrong < LEAST_THERE || suspect->words[0]) return;
    for (int64_t i = 0; i < suspect->count; i++)
        if (!suspect_is_right(suspect, i))
            hy += suspect->have[i] * suspect->want[i], yy += suspect->want[i] * suspect->want[i];
    if (!(yy > 0) || hy == 0) return;
    /* y: right elements as they must be, wrong elements times their common factor. */
    for (int64_t i = 0; i < suspect->count; i++)
        y[i] = suspect_is_right(suspect, i) ? suspect->want[i] : hy / yy * suspect->want[i];
    suspect_measured(suspect, y, "what is wrong is expected times %.4f", hy / yy);
}

/* Factors are the same if they differ by less, relative: those of parts with 48 and 50 labels do not.  Chosen so; no
 * run has been measured with another number. */
static const double SAME_FACTOR = 0.02;

void suspect_sequences(struct suspect *suspect, double *y)
{
    const struct single *s = suspect->s;
    const int64_t B = s->cursor.batch.B, n = suspect->rows == s->cursor.N ? s->cursor.batch.S * suspect->cols : 0;
    double c[64], least = INFINITY, most = -INFINITY;
    if (n == 0 || B < 2 || B > 64) return;
    for (int64_t b = 0; b < B; b++) {
        /* The rows of sequence b are S cols numbers from b n on. */
        c[b] = factor_of(suspect->have + b * n, suspect->want + b * n, n);
        if (!isfinite(c[b])) return;
        for (int64_t i = b * n; i < (b + 1) * n; i++) y[i] = c[b] * suspect->want[i];
        least = fmin(least, c[b]), most = fmax(most, c[b]);
    }
    /* Equal factors are the case of suspect_factor. */
    if (!(most - least > SAME_FACTOR * fabs(most))) return;
    suspect_measured(suspect, y, "each sequence times its own factor, %.4f to %.4f", least, most);
}

void suspect_summand(struct suspect *suspect, const struct single_term *term, double *y)
{
    double along = 0, size = 0;
    for (int64_t i = 0; i < suspect->count; i++) {
        const double x = numbers(term->y)[i];
        along += (suspect->have[i] - suspect->want[i]) * x, size += x * x;
    }
    /* With a single summand suspect_factor says the same with fewer words. */
    if (!(size > 0) || suspect->count == 1 || suspect->s->verdict.terms == 1) return;
    const double c = along / size;
    const char *words = term->node->operation->passes_on && term->pass != SINGLE_WEIGHT ? "the gradient that passes by"
                      : term->pass == SINGLE_FORWARD ? term->node->operation->words
                      : term->pass == SINGLE_INPUT ? term->node->operation->input_words
                      : term->pass == SINGLE_WEIGHT ? term->node->operation->weight_words
                          : term->node->operation->bias_words;
    for (int64_t i = 0; i < suspect->count; i++) y[i] = suspect->want[i] + c * numbers(term->y)[i];
    if (fabs(c + 1) < 0.01)
        suspect_explained(suspect, y, "without what comes from %s", words ? words : "one of its readers");
    else suspect_measured(suspect, y, "what comes from %s times %.4f", words ? words : "one of its readers", 1 + c);
}

bool suspect_is_scaled(const struct suspect *suspect) { return strncmp(suspect->words, TIMES, strlen(TIMES)) == 0; }
