/* accepting.c -- decides whether a hypothesis explains a wrong result: its tensor is compared with the program's.
 * Each hypothesis of this room ends in suspect_explained, suspect_measured or suspect_near.  The words of the best
 * hypothesis so far stand in suspect.words. */
#include "emulated_devices/check/mistakes/accepting.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* Measured with golden/bugs/campaign.sh: every seventh of its 512 runs, all diagnosed, was checked with one number
 * changed at a time.  Where a run's words change, other words of its report do, and the bug is still named. */
enum {
    ONE_IN = 50,                        /* of so many wrong elements one may be outside: 10 changes 1 run's words */
    FEW_NEAR = 2,                       /* different numbers that hypotheses give near a number (NEAR_BOUNDS) */
    MOST_NAMED = 3,                     /* explanations beside each other, with "or" */
    STORED_STEPS = 4,                   /* roundings of a mistaken result's own: 0 changes 1 run's words, 16 none */
};
static const double
    LEFT_BY_OWN = 0.95,                 /* of the errors: with 0.7 a diagnosis is lost, so small is that mistake */
    LEFT_BY_MEASURED = 0.33,            /* by those with a measured number.  Of all runs right words leave 0.29 at most,
                                         * and wrong ones 0.36 or more: an eps of 4.2e-5 for a square of eps 0.4 */
    LEFT_BY_ANY = 0.7,                  /* of those by a hypothesis of any operation: 0.4 and 0.95 change nothing */
    ONLY_ROUNDING = 0.25,               /* of the bounds: below is rounding.  1 changes 4 runs' words, 1/16 2 */
    MUCH_BETTER = 2,                    /* replaces an explanation: 1.2 changes 2 runs' words, 8 1 */
    AS_GOOD = 2,                        /* is named beside it: 8 changes 3 runs' words */
    NEAR_BOUNDS = 2,                    /* of a number: a hypothesis so near may agree by chance.  4 and 10 lose right
                                         * words of loss-of-copies */
    FAR_NEARER = 20,                    /* of a number: times nearer than any other, if many are near */
    SAME_NUMBER = 1e-6,                 /* relative: of what two hypotheses give */
    NEARER = 10;                        /* with our own model's gradients (docs/checking/bugs.md): 3 changes nothing */

double suspect_norm_of(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

/* How far element i of a mistaken result may be off: its own rounding, and that of the right one, which grows with the
 * numbers behind it.  least: the same for all elements. */
static double bound_of(const struct suspect *suspect, double y, int64_t i, double grown, double least)
{
    return grown * suspect->bound[i] + STORED_STEPS * suspect->s->rounding.store * fabs(y) + grown * least;
}

static double least_of(const struct suspect *suspect) { return suspect->allowed / sqrt((double)suspect->count); }

/* Note a number that a hypothesis gives, if the program's is within NEAR_BOUNDS of its bounds.  Hypotheses that
 * give the same number count once. */
static void mistakes_note_near(struct suspect *suspect, double y, const char *words)
{
    struct chance *chance = &suspect->chance;
    const double off = fabs(suspect->have[0] - y);
    const bool same = fabs(y - chance->y) <= SAME_NUMBER * fabs(y);
    if (!(off <= NEAR_BOUNDS * bound_of(suspect, y, 0, 1, least_of(suspect))) || (chance->count > 0 && same)) return;
    if (chance->count++ > 0 && off >= chance->off) {
        chance->next = chance->count == 2 ? off : fmin(chance->next, off);
        return;
    }
    /* The nearest so far becomes the next. */
    chance->next = chance->count > 1 ? chance->off : INFINITY, chance->off = off, chance->y = y;
    snprintf(chance->words, sizeof chance->words, "%s", words);
}

const char *suspect_said(const struct suspect *suspect)
{
    if (suspect->count > 1 || suspect->chance.count <= FEW_NEAR) return suspect->words;
    return suspect->words[0] && suspect->chance.off <= suspect->chance.next / FAR_NEARER ? suspect->chance.words : "";
}

bool suspect_is_right(const struct suspect *suspect, int64_t i)
{
    return fabs(suspect->have[i] - suspect->want[i]) <= suspect->bound[i];
}

void suspect_take_samples(struct suspect *suspect)
{
    const int64_t each = suspect->wrong / SUSPECT_SAMPLES;
    if (each < 1) return;
    for (int64_t i = 0, wrong = 0; i < suspect->count && suspect->samples < SUSPECT_SAMPLES; i++)
        if (!suspect_is_right(suspect, i) && wrong++ % each == 0) suspect->sample[suspect->samples++] = i;
}

/* Whether the samples allow a hypothesis: more than one of four outside their bounds hardly leaves one of ONE_IN
 * outside in all.  Bounds of samples are wider, as the norm of all is not known yet. */
static bool is_possible(const struct suspect *suspect, suspect_maker *make, const void *context)
{
    double y[SUSPECT_SAMPLES], size = 0, right = 0;
    int outside = 0;
    for (int k = 0; k < suspect->samples; k++) {
        const double want = suspect->want[suspect->sample[k]];
        y[k] = make(context, suspect->sample[k]), size += y[k] * y[k], right += want * want;
    }
    const double grown = 2 * fmax(1, right > 0 ? sqrt(size / right) : 1), least = least_of(suspect);
    for (int k = 0; k < suspect->samples; k++) {
        const int64_t i = suspect->sample[k];
        outside += !(fabs(suspect->have[i] - y[k]) <= bound_of(suspect, y[k], i, grown, least));
    }
    return outside * 4 <= suspect->samples;
}

bool suspect_made(const struct suspect *suspect, suspect_maker *make, const void *context, double *y)
{
    if (!is_possible(suspect, make, context)) return false;
    for (int64_t i = 0; i < suspect->count; i++) y[i] = make(context, i);
    return true;
}

/* A hypothesis that has been made is read from its numbers. */
static double number_at(const void *context, int64_t i) { return ((const double *)context)[i]; }

/* A hypothesis y fits if nearly all elements lie within their bounds.  Its distance must also be within the bounds'
 * norm and clearly smaller than that of the right result.  A large y has larger rounding errors: bounds grow with
 * its norm.  @param[out] left the norm of have - y, at least a part of what rounding leaves. */
static bool mistakes_fits(const struct suspect *suspect, const double *y, double *left)
{
    if (!is_possible(suspect, number_at, y)) return false;
    const double size = suspect_norm_of(y, suspect->count), grown = suspect->size > 0 && size > suspect->size
        ? size / suspect->size : 1, least = least_of(suspect);
    int64_t outside = 0;
    *left = 0;
    for (int64_t i = 0; i < suspect->count && outside <= suspect->wrong / ONE_IN; i++) {
        const double off = suspect->have[i] - y[i];
        *left += off * off;
        outside += !(fabs(off) <= bound_of(suspect, y[i], i, grown, least));
    }
    *left = sqrt(*left);
    if (!(outside <= suspect->wrong / ONE_IN && *left <= grown * suspect->allowed &&
          *left < (suspect->measured ? LEFT_BY_MEASURED : suspect->any ? LEFT_BY_ANY : LEFT_BY_OWN) * suspect->off))
        return false;
    *left = fmax(*left, grown * suspect->allowed * ONLY_ROUNDING);
    return true;
}

/* Whether a mistake explains the result if it is made in the wrong elements only.  y replaces the right numbers at
 * the wrong elements; the mixture must fit. */
static bool fits_there(const struct suspect *suspect, const double *y, double *left)
{
    if (suspect->there == NULL || suspect->wrong < LEAST_THERE || !is_possible(suspect, number_at, y)) return false;
    for (int64_t i = 0; i < suspect->count; i++)
        suspect->there[i] = suspect_is_right(suspect, i) ? suspect->want[i] : y[i];
    return mistakes_fits(suspect, suspect->there, left);
}

/* Name the part that is wrong, for a fused result: queries, keys or values beside each other.  Only a single wrong
 * part has a name. */
static const char *mistakes_part_of(const struct suspect *suspect)
{
    const struct model_config *c = suspect->s->context->config;
    bool wrong[3] = { false, false, false };
    /* The columns are heads of queries, keys and values only if the result is as wide as all of them. */
    if (suspect->cols != qkv_width(c) || suspect->s->verdict.slot == NULL || suspect->s->verdict.slot->head == 0)
        return "a part of it";
    for (int64_t i = 0; i < suspect->count; i++) {
        const int64_t head = i % suspect->cols / c->A;
        if (!suspect_is_right(suspect, i)) wrong[head < c->H ? 0 : head < c->H + c->K ? 1 : 2] = true;
    }
    if (wrong[0] + wrong[1] + wrong[2] != 1) return "a part of it";
    return wrong[0] ? "queries only" : wrong[1] ? "keys only" : "values only";
}

#define OR ", or "
/* An explanation that leaves half as much replaces the words.  An explanation about as good is named beside them,
 * with "or", unless it could explain any operation. */
static bool mistakes_offer(struct suspect *suspect, const double *y, const char *format, va_list args)
{
    double left;
    char words[SINGLE_MISTAKE];
    const bool whole = !suspect->s->failed && mistakes_fits(suspect, y, &left);
    const int length = vsnprintf(words, sizeof words, format, args);
    if (suspect->count == 1) mistakes_note_near(suspect, y[0], words);
    if (suspect->s->failed || (!whole && !fits_there(suspect, y, &left))) return false;
    if (!whole && length < (int)sizeof words)
        snprintf(words + length, sizeof words - (size_t)length, ", in %s", mistakes_part_of(suspect));
    const bool better = left < suspect->best / MUCH_BETTER, as_good = !better && left <= AS_GOOD * suspect->best;
    const size_t used = strlen(suspect->words);
    if (better) memcpy(suspect->words, words, sizeof words), suspect->named = 1;
    else if (as_good && !suspect->any && suspect->named < MOST_NAMED && strstr(suspect->words, words) == NULL &&
             used + strlen(OR) + strlen(words) < sizeof suspect->words) {
        strcat(strcat(suspect->words, OR), words);
        suspect->named++;
    }
    /* `best` falls also if the words stay, so the next hypothesis is compared with the nearest so far. */
    if (left < suspect->best) suspect->best = left;
    return true;
}

bool suspect_explained(struct suspect *suspect, const double *y, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    const bool explained = mistakes_offer(suspect, y, format, args);
    va_end(args);
    return explained;
}

/* The flag is for this hypothesis only. */
bool suspect_measured(struct suspect *suspect, const double *y, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    suspect->measured = true;
    const bool explained = mistakes_offer(suspect, y, format, args);
    suspect->measured = false;
    va_end(args);
    return explained;
}

/* A hypothesis made from our own model's gradients differs from the program's by all its roundings.  No bound of an
 * operation holds here, so the distance alone decides. */
bool suspect_near(struct suspect *suspect, const double *y, const char *format, ...)
{
    double left = 0;
    va_list args;
    for (int64_t i = 0; i < suspect->count; i++) left += (suspect->have[i] - y[i]) * (suspect->have[i] - y[i]);
    left = sqrt(left);
    if (suspect->s->failed || !(left <= suspect->off / NEARER) || !(left < suspect->best)) return false;
    va_start(args, format);
    vsnprintf(suspect->words, sizeof suspect->words, format, args);
    va_end(args);
    suspect->best = left;
    return true;
}
