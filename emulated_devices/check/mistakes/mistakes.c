/* mistakes.c -- tries all hypotheses on a wrong result, in a fixed order, and defines those that fit any operation.
 * recompute/verdict.c calls explain() through mistakes_explainer with the right value of a wrong result.  Each
 * hypothesis makes a tensor, and suspect_explained compares this tensor with the program's.  The words of the best
 * hypothesis end in the result's `mistake`; no words mean that nothing explains it.
 * Errors are not returned.  Without memory single.failed is ERR_MEMORY, the check ends, and report/singles.c returns
 * ERR_MEMORY.  A hypothesis whose inputs the program does not have is left out. */
#include "emulated_devices/check/mistakes/mistakes.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- accepting --------------------------------------------------------------------------------------------------- */

/* Measured with golden/bugs/campaign.sh: every seventh of its 512 runs, all diagnosed, was checked with one number
 * changed at a time.  Where a run's words change, other words of its report do, and the bug is still named. */
enum {
    ONE_IN = 50,                        /* of so many wrong elements one may be outside: 10 changes 1 run's words */
    LEAST_THERE = 8,                    /* wrong elements that hardly agree by chance: 32 loses a diagnosis, 2 none */
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

static double norm_of(const double *x, int64_t n)
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

/* The words for a single number.  Many hypotheses come near it, and one or the other agrees by chance.  So only one of
 * few counts, or one that is far nearer than any other. */
static const char *mistakes_by_chance(const struct suspect *suspect)
{
    if (suspect->count > 1 || suspect->chance.count <= FEW_NEAR) return suspect->words;
    return suspect->words[0] && suspect->chance.off <= suspect->chance.next / FAR_NEARER ? suspect->chance.words : "";
}

/* An element within its bound is right, and a mistake need not explain it. */
static bool is_right(const struct suspect *suspect, int64_t i)
{
    return fabs(suspect->have[i] - suspect->want[i]) <= suspect->bound[i];
}

/* Note some wrong elements, evenly from the first to the last of them.  A few wrong elements are looked at all. */
static void take_samples(struct suspect *suspect)
{
    const int64_t each = suspect->wrong / SUSPECT_SAMPLES;
    if (each < 1) return;
    for (int64_t i = 0, wrong = 0; i < suspect->count && suspect->samples < SUSPECT_SAMPLES; i++)
        if (!is_right(suspect, i) && wrong++ % each == 0) suspect->sample[suspect->samples++] = i;
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
    const double size = norm_of(y, suspect->count), grown = suspect->size > 0 && size > suspect->size
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
    for (int64_t i = 0; i < suspect->count; i++) suspect->there[i] = is_right(suspect, i) ? suspect->want[i] : y[i];
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
        if (!is_right(suspect, i)) wrong[head < c->H ? 0 : head < c->H + c->K ? 1 : 2] = true;
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

/* ---- mistakes of the operation ----------------------------------------------------------------------------------- */

static const struct single_mistakes *const tables[] = {
    &single_attention_mistakes, &single_norm_mistakes,      &single_matrix_mistakes, &single_rotary_mistakes,
    &single_gelu_mistakes,      &single_exact_gelu_mistakes, &single_squared_relu_mistakes,
    &single_swiglu_mistakes,    &single_add_mistakes,    &single_loss_mistakes,
    &single_embed_mistakes,     &single_positions_mistakes, &single_head_norm_mistakes, &single_route_mistakes,
    &single_experts_up_mistakes, &single_experts_down_mistakes, &single_combine_mistakes, &single_latent_norm_mistakes,
    &single_soft_cap_mistakes, &single_geglu_mistakes, &single_balance_mistakes,
};

const struct single_mistakes *mistakes_of(const struct single_operation *operation)
{
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (tables[i]->of == operation) return tables[i];
    return NULL;
}

/* y = want - summand + other: the right result with another summand in place of this one. */
static void replace(const struct suspect *suspect, const struct single_term *term, struct tensor other, double *y)
{
    for (int64_t i = 0; i < suspect->count; i++) y[i] = suspect->want[i] - numbers(term->y)[i] + numbers(other)[i];
}

/* Find the node that a result comes from.  Dropout on a slot that is not shown changes only the operation before
 * it, whose mistakes are to be named. */
static struct single_term origin(const struct single *single, const struct single_term *term)
{
    struct single_term o = *term;
    while (o.pass == SINGLE_FORWARD && o.node->operation == &single_dropout
           && single_slot(single, o.node->in[0])->unseen)
        o.node = &single->context->graph->node[single_slot(single, o.node->in[0])->maker];
    return o;
}

/* Try all rows of the operation behind a summand.  Each row makes a whole tensor, and single_release gives its
 * memory back before the next row. */
static void try_operation(struct suspect *suspect, const struct single_term *shown, double *y)
{
    const struct single_term source = origin(suspect->s, shown), *t = &source;
    const int used = suspect->s->memory.used;
    const struct single_mistakes *all = mistakes_of(t->node->operation);
    if (all == NULL) return;
    single_mistaken *const make = all->make[t->pass];
    for (const struct single_mistake *m = make ? all->rows : NULL; m && m->words && !suspect->s->failed; m++) {
        /* The row's mistake cannot happen in this pass. */
        if (!(m->passes >> t->pass & 1)) continue;
        /* A missing input of the row before must not stop this row. */
        single_read_anew(suspect->s);
        const struct tensor other = make(suspect->s, t->node, m);
        if (!suspect->s->failed && tensor_present(other) && tensor_count(other) == suspect->count) {
            replace(suspect, t, other, y);
            suspect_explained(suspect, y, "%s", m->words);
        }
        single_release(suspect->s, used);
    }
    single_read_anew(suspect->s);
    if (all->parts) all->parts(suspect, t->node, t->pass, y), single_release(suspect->s, used);
    single_read_anew(suspect->s);
}

/* ---- mistakes of any result -------------------------------------------------------------------------------------- */

/* A result of zeros is explained by exactly this; a tolerance would let small results pass. */
static void try_zeros(struct suspect *suspect, double *y)
{
    const struct single *s = suspect->s;
    const struct single_mistakes *all = s->verdict.terms == 1 ? mistakes_of(s->verdict.term[0].node->operation) : NULL;
    if (all && all->explains_zeros && s->verdict.term[0].pass == SINGLE_INPUT) return;
    memset(y, 0, (size_t)suspect->count * sizeof *y);
    if (norm_of(suspect->have, suspect->count) == 0) suspect_explained(suspect, y, "all of it is zero");
}

/* Rows, columns or a rank's piece that are zero, beside what is right. */
static void try_zeros_there(struct suspect *suspect, double *y)
{
    if (suspect->wrong < LEAST_THERE) return;
    for (int64_t i = 0; i < suspect->count; i++) {
        if (!is_right(suspect, i) && suspect->have[i] != 0) return;
        y[i] = is_right(suspect, i) ? suspect->want[i] : 0;
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

/* A single number equals the right number times some factor, whatever happened, so try_factor leaves it out. */
static const char TIMES[] = "expected times";
static const double NO_FACTOR = 5e-5;   /* a factor that is printed as 1.0000 says nothing */

/* All of the result has one factor: a lost mean, a loss scale, a sum over ranks. */
static void try_factor(struct suspect *suspect, double *y)
{
    const double c = factor_of(suspect->have, suspect->want, suspect->count);
    if (suspect->count == 1 || !isfinite(c) || c == 0 || fabs(c - 1) < NO_FACTOR) return;
    for (int64_t i = 0; i < suspect->count; i++) y[i] = c * suspect->want[i];
    suspect_measured(suspect, y, fabs(c) < 0.01 ? "%s %.4g" : "%s %.4f", TIMES, c);
}

/* The wrong elements alone have one factor.  Nothing else may have been found, since any small error has a best
 * factor. */
static void try_factor_there(struct suspect *suspect, double *y)
{
    double hy = 0, yy = 0;
    if (suspect->wrong < LEAST_THERE || suspect->words[0]) return;
    for (int64_t i = 0; i < suspect->count; i++)
        if (!is_right(suspect, i)) hy += suspect->have[i] * suspect->want[i], yy += suspect->want[i] * suspect->want[i];
    if (!(yy > 0) || hy == 0) return;
    /* y: right elements as they must be, wrong elements times their common factor. */
    for (int64_t i = 0; i < suspect->count; i++)
        y[i] = is_right(suspect, i) ? suspect->want[i] : hy / yy * suspect->want[i];
    suspect_measured(suspect, y, "what is wrong is expected times %.4f", hy / yy);
}

/* Factors are the same if they differ by less, relative: those of parts with 48 and 50 labels do not.  Chosen so; no
 * run has been measured with another number. */
static const double SAME_FACTOR = 0.02;

/* Each sequence has a factor of its own: parts of a batch, as copies or microbatches have them. */
static void try_sequences(struct suspect *suspect, double *y)
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
    /* Equal factors are the case of try_factor. */
    if (!(most - least > SAME_FACTOR * fabs(most))) return;
    suspect_measured(suspect, y, "each sequence times its own factor, %.4f to %.4f", least, most);
}

/* A summand is lost, halved or doubled: c is the factor that fits best.  c = -1 means that the summand is missing. */
static void try_summand(struct suspect *suspect, const struct single_term *term, double *y)
{
    double along = 0, size = 0;
    for (int64_t i = 0; i < suspect->count; i++) {
        const double x = numbers(term->y)[i];
        along += (suspect->have[i] - suspect->want[i]) * x, size += x * x;
    }
    /* With a single summand try_factor says the same with fewer words. */
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

/* ---- roundings --------------------------------------------------------------------------------------------------- */

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

/* The result itself was rounded to a narrower format than the program claims.  It must have that format's bits
 * only, and its errors must be those of a rounding. */
static void try_rounded(struct suspect *suspect, double *y)
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

/* Recompute with sums, or the inputs of sums, in a narrower format.  The errors do not show which of both was
 * narrow: they grow with the number of roundings, too. */
static void try_narrow_sums(struct suspect *suspect, double *y)
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

/* ---- all of them ------------------------------------------------------------------------------------------------- */

/* Try the operation's mistakes where only a part of the result is wrong: a rank, a microbatch, a head.
 * suspect_explained then also accepts a mistake in the wrong elements alone. */
static void try_in_a_part(struct suspect *suspect, double *y)
{
    const struct single *s = suspect->s;
    const struct tensor there = single_new(suspect->s, suspect->rows, suspect->cols);
    if (!s->failed) suspect->there = numbers(there);
    if (suspect->wrong < suspect->count && s->verdict.stepping) suspect_step(suspect, s->verdict.stepping);
    for (int t = 0; t < s->verdict.terms && suspect->wrong < suspect->count; t++)
        try_operation(suspect, &s->verdict.term[t], y);
    suspect->there = NULL;
}

/* Try mistakes in what makes one summand: the operation behind the summand, and its masks of dropout. */
static void try_summand_itself(struct suspect *suspect, const struct single_term *term, double *y)
{
    try_operation(suspect, term, y);
    suspect_masks(suspect, term, y);
}

/* No operation of the graph makes the norm of all gradients. */
static void try_gradient_norm(struct suspect *suspect, double *y)
{
    (void)y;
    if (suspect_is_norm(suspect->s->verdict.result.name)) suspect_gradient_norm(suspect);
}

/* Only results of an optimizer's step have a stepping. */
static void try_step(struct suspect *suspect, double *y)
{
    (void)y;
    if (suspect->s->verdict.stepping) suspect_step(suspect, suspect->s->verdict.stepping);
}

static void try_arrangement(struct suspect *suspect, double *y)
{
    (void)y;
    suspect_arrangement(suspect);
}

/* The hypotheses, in order.  A later one replaces what explains a result only if it is much better, so the first of two
 * that make the same numbers is named:
 *     zeros first          of a result of zeros any factor of 0, and any missing summand, would be right, too
 *     then the operation   "not divided by the number of labels" says more than "expected times 21.0000"
 *                          (the fault check-mistake-factor-first exchanges them)
 *     then any result      factors and summands before arrangements, which compare all lines with each other
 *     other tensors last   one of the same shape may agree by chance, and there are many
 *     a part of it         only if no mistake explains the whole
 *     narrow sums          fit any small error: they are said if nothing else is
 * Slow hypotheses, those with `dear` above 0, compute the operation again, dozens of times.  They are left out after
 * some results that none of them explains: first those with `dear` 1, then those with 2.
 */
static const struct hypotheses {
    void (*once)(struct suspect *, double *y);                                  /* of the result, or */
    void (*each)(struct suspect *, const struct single_term *, double *y);      /* of each of its summands */
    bool any;                           /* they are of any operation: suspect.any */
    bool last;                          /* only while nothing explains the result */
    bool ends;                          /* if one explains it, no other is tried */
    int dear;                           /* left out after so many times FRUITLESS results; 0: never */
} order[] = {
    { .once = try_zeros, .ends = true },
    { .once = suspect_adapter, .ends = true },
    { .once = try_gradient_norm },
    { .once = try_step },
    { .each = try_summand_itself, .dear = 2 },
    { .each = suspect_copied, .dear = 2 },
    { .each = suspect_tokens, .last = true },
    { .each = suspect_rows, .last = true, .dear = 1 },
    { .once = try_zeros_there, .any = true, .ends = true },
    { .each = try_summand, .any = true },
    { .once = try_factor, .any = true },
    { .once = try_sequences, .any = true },
    { .once = try_rounded, .any = true },
    { .once = try_arrangement, .any = true },
    { .once = try_factor_there, .any = true },
    { .each = suspect_inputs, .any = true, .last = true, .dear = 1 },
    { .once = try_in_a_part, .last = true, .dear = 1 },
    { .once = try_narrow_sums, .last = true },
};

/* After so many results, one after another, that no slow hypothesis explains, only cheap ones are tried: the check of
 * a program that is wrong everywhere must not take many times as long as that of a right one.  A report shows ten. */
enum { FRUITLESS = 8 };

/* Run all hypotheses in their order.  `last` rows run only while there are no words.  An `ends` row stops the search
 * if it added words.  @return whether a slow hypothesis has said something. */
static bool try_all(struct suspect *suspect, int fruitless, double *y)
{
    bool explained = false;
    for (size_t k = 0; k < sizeof order / sizeof *order; k++) {
        char before[SINGLE_MISTAKE];
        if (order[k].dear > 0 && fruitless >= order[k].dear * FRUITLESS) continue;
        memcpy(before, suspect->words, sizeof before);
        suspect->any = order[k].any;
        if (order[k].once && !(order[k].last && suspect->words[0])) order[k].once(suspect, y);
        for (int t = 0; order[k].each && t < suspect->s->verdict.terms && !(order[k].last && suspect->words[0]); t++)
            order[k].each(suspect, &suspect->s->verdict.term[t], y);
        explained = explained || (order[k].dear > 0 && strcmp(before, suspect->words) != 0);
        if (order[k].ends && strcmp(before, suspect->words) != 0) return explained;
    }
    return explained;
}

/* How many times its bound as a sum a number must be off, if only steps of 16 bits explain it.  With 20 a loss of
 * stored losses was now and then, by chance, a mean of means (golden/clean/); with 100 a norm of norms is not
 * found. */
static const double CLEARLY = 20, CLEARLY_A_LOSS = 100;

/* A loss or norm that steps of 16 bits explain.  Bounds are taken as if sums were exact to fp32, and only an error
 * far beyond them is diagnosed.  Another result's fields are restored, since hypotheses write to them. */
static void explain_number(struct single *single, const struct single_value *value)
{
    const double *have = numbers(single->verdict.have), *want = numbers(value->y), *bound = numbers(value->fused);
    const struct rounding was = single->rounding;
    const struct single_result found = single->verdict.result;
    struct suspect p = { .s = single, .rows = 1, .cols = 1, .count = 1, .have = have, .want = want, .bound = bound,
                         .wrong = 1, .allowed = bound[0], .size = fabs(want[0]), .off = fabs(have[0] - want[0]),
                         .best = INFINITY };
    const struct tensor y = single_new(single, 1, 1);
    const bool is_norm = suspect_is_norm(single->verdict.result.name);
    if (single->failed || single->verdict.result.rows * single->verdict.result.cols != 1
        || !(p.off > (is_norm ? CLEARLY : CLEARLY_A_LOSS) * bound[0])) return;
    single->rounding.store = single->rounding.sum, single->rounding.tiny = single->rounding.sum_tiny;
    /* A hypothesis is compared with narrow bounds: here the mistake must explain the number as sums do. */
    if (is_norm) suspect_gradient_norm(&p);
    for (int t = 0; t < single->verdict.terms; t++) try_operation(&p, &single->verdict.term[t], numbers(y));
    single->rounding = was, single->verdict.result = found;
    snprintf(single->verdict.result.mistake, sizeof single->verdict.result.mistake, "%s", mistakes_by_chance(&p));
}

/* Everything that hypotheses need is computed once: bounds, norms, the number of wrong elements. */
static void explain_result(struct single *single, const struct single_value *value)
{
    struct suspect p = { .s = single, .rows = single->verdict.result.rows, .cols = single->verdict.result.cols,
                         .count = single->verdict.result.rows * single->verdict.result.cols,
                         .have = numbers(single->verdict.have), .want = numbers(value->y),
                             .wrong = single->verdict.result.wrong, .best = INFINITY,
                         .bound = numbers(single->rounding.fused ? value->fused : value->steps) };
    p.allowed = norm_of(p.bound, p.count), p.size = norm_of(p.want, p.count);
    for (int64_t i = 0; i < p.count; i++) p.off += (p.have[i] - p.want[i]) * (p.have[i] - p.want[i]);
    p.off = sqrt(p.off);
    take_samples(&p);
    /* what hypotheses read may be missing: no matter */
    const struct single_result found = single->verdict.result;
    /* No hypothesis explains infinities or NaN; the verdict itself names them. */
    for (int64_t i = 0; i < p.count; i++)
        if (!isfinite(p.have[i])) return;
    const struct tensor y = single_new(single, p.rows, p.cols);
    int *const fruitless = suspect_fruitless(single);
    /* A mistake is larger than the rounding of a sum that ranks have parts of. */
    single->hypothesis.sums = true;
    if (fruitless && !single->failed)
        *fruitless = try_all(&p, *fruitless, numbers(y)) ? 0 : *fruitless + 1;
    single->hypothesis.sums = false;
    /* Hypotheses read tensors and may set fields of the result, such as what it lacks; `found` takes these back. */
    single->verdict.result = found;
    snprintf(single->verdict.result.mistake, sizeof single->verdict.result.mistake, "%s", mistakes_by_chance(&p));
    single->verdict.result.scaled = strncmp(p.words, TIMES, strlen(TIMES)) == 0;
}

/* recompute/verdict.c sets `number` where steps of 16 bits alone would make the number right. */
static void explain(struct single *single, const struct single_value *right, bool number)
{
    if (number) explain_number(single, right);
    else explain_result(single, right);
}

const struct single_explainer mistakes_explainer = { .explain = explain, .forget = suspect_forget };
