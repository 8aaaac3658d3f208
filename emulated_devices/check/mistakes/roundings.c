/* roundings.c -- mistakes of formats: a result that is rounded once too often, and sums in a narrower format. */
#include "emulated_devices/check/mistakes/any_result.h"
#include <stdio.h>
#include <string.h>

double kept_in_bits(double x, int bits)
{
    int exponent;
    const double fraction = frexp(x, &exponent);
    return ldexp(nearbyint(ldexp(fraction, bits)), exponent - bits);
}

/* All numbers are those of a narrower format, which hardly happens by chance. */
static bool is_narrow(const struct suspect *suspect, int bits)
{
    int64_t n = 0;
    for (int64_t i = 0; i < suspect->count; i++) {
        if (kept_in_bits(suspect->have[i], bits) != suspect->have[i]) return false;
        n += suspect->have[i] != 0;
    }
    return n > 3;
}

static const struct narrow { int bits; const char *name; } narrows[] = {
    { 11, "11 bits (fp16, tf32)" }, { 8, "8 bits (bf16)" }, { 4, "4 bits (fp8)" },
};

/* Times a unit of roundoff: those of two formats of the list differ by 8 or more, so between 1 and 8 any number tells
 * them apart; an error may be so many times a bound and a rounding, which are both estimates. */
static const double COARSER = 1.5;

void suspect_rounded(struct suspect *suspect, double *y)
{
    for (size_t k = 0; k < sizeof narrows / sizeof *narrows; k++) {
        /* A format that is no coarser than the one in use explains nothing. */
        const double u = ldexp(1, -narrows[k].bits);
        if (u <= COARSER * suspect->s->rounding.store || !is_narrow(suspect, narrows[k].bits)) continue;
        bool near = true;
        for (int64_t i = 0; i < suspect->count && near; i++)
            near = fabs(suspect->have[i] - suspect->want[i]) <= COARSER
                * (suspect->bound[i] + u * fabs(suspect->want[i]));
        memcpy(y, suspect->have, (size_t)suspect->count * sizeof *y);
        if (near) suspect_explained(suspect, y, "rounded to %s once too often", narrows[k].name);
    }
}

/* Errors lie to both sides, and none is much larger than the rest: a rounding gives such errors, a formula does
 * not.  Their root mean square is at most this part of the bounds of sums in so few bits.  0.1 and 1 change none of
 * the runs above. */
static const double LIKE_ROUNDING = 0.3;
enum { LARGEST = 10 };                  /* times the root mean square; of a thousand normal numbers 4: not measured */

/* Errors of a rounding do not point along the result.  The last line is the correlation of errors with the right
 * numbers; 4 / sqrt(count) is chance. */
static bool looks_random(const struct suspect *suspect, const double *bound)
{
    double along = 0, size = 0, off = 0, ratio = 0, most = 0;
    for (int64_t i = 0; i < suspect->count; i++) {
        const double e = suspect->have[i] - suspect->want[i];
        if (!(fabs(e) <= bound[i])) return false;
        along += e * suspect->want[i], size += suspect->want[i] * suspect->want[i], off += e * e;
        const double r = bound[i] > 0 ? fabs(e) / bound[i] : 0;
        ratio += r * r, most = fmax(most, r);
    }
    ratio = sqrt(ratio / (double)suspect->count);
    return ratio < LIKE_ROUNDING && most <= LARGEST * ratio &&
           fabs(along) <= (0.1 + 4 / sqrt((double)suspect->count)) * sqrt(off * size);
}

/* Beyond this part of the result, something is lost: any error is within the bounds of sums in so few bits.  0.03
 * changes none of the runs. */
static const double MOST_RANDOM = 0.3;

void suspect_narrow_sums(struct suspect *suspect, double *y)
{
    (void)y;
    struct single *s = suspect->s;
    for (int t = 0; t < s->verdict.terms; t++) {
        const struct single_operation *is = s->verdict.term[t].node->operation;
        if (is != &single_matrix && is != &single_attention) return;
    }
    /* Errors larger than this part of the result come from something lost. */
    if (suspect->off > MOST_RANDOM * suspect->size) return;
    /* The narrower format is set for the passes below and taken back before anything else runs. */
    const struct rounding was = s->rounding;
    for (size_t k = 0; k < sizeof narrows / sizeof *narrows && suspect->words[0] == 0 && s->verdict.terms > 0; k++) {
        const double u = ldexp(1, -narrows[k].bits);
        const int used = s->memory.used;
        struct single_value v[SINGLE_TERMS];
        if (u <= COARSER * was.sum) continue;
        s->rounding.sum = u;
        for (int t = 0; t < s->verdict.terms; t++)
            v[t] = single_attempt(s, s->verdict.term[t].node, s->verdict.term[t].run);
        const struct single_value all = single_settled(s, single_sum(s, v, s->verdict.terms));
        s->rounding = was;
        if (!s->failed && looks_random(suspect, numbers(all.steps)))
            snprintf(suspect->words, sizeof suspect->words,
                     "its errors are random, %.2g %% of it: noise, or sums, or what enters them, are rounded to a "
                     "narrower format", 100 * suspect->off / suspect->size);
        single_release(s, used);
    }
}
