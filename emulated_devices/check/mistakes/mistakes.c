/* mistakes.c -- tries the hypotheses, and those that any result can have. */
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
    STORED_STEPS = 4,                   /* roundings of a mistaken result's own: 0 changes 1 run's words, 16 none */
};
static const double
    LEFT_BY_OWN = 0.95,                 /* of the errors: with 0.7 a diagnosis is lost, so small is that mistake */
    LEFT_BY_ANY = 0.7,                  /* of those by a hypothesis of any operation: 0.4 and 0.95 change nothing */
    ONLY_ROUNDING = 0.25,               /* of the bounds: below is rounding.  1 changes 4 runs' words, 1/16 2 */
    MUCH_BETTER = 2,                    /* replaces an explanation: 1.2 changes 2 runs' words, 8 1 */
    AS_GOOD = 2,                        /* is named beside it: 8 changes 3 runs' words */
    NEARER = 10;                        /* with our own model's gradients (docs/checking/bugs.md): 3 changes nothing */

static double norm_of(const double *x, int64_t n)
{
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
    return sqrt(sum);
}

/* How far element i of a mistaken result may be off: its own rounding, and that of the right one, which grows with the
 * numbers behind it. */
static double bound_of(const struct suspect *p, const double *y, int64_t i, double grown)
{
    return grown * p->bound[i] + STORED_STEPS * p->s->rounding.store * fabs(y[i]) +
           grown * p->allowed / sqrt((double)p->count);
}

static bool fits(const struct suspect *p, const double *y, double *left)
{
    const double size = norm_of(y, p->count), grown = p->size > 0 && size > p->size ? size / p->size : 1;
    int64_t outside = 0;
    *left = 0;
    for (int64_t i = 0; i < p->count; i++) {
        const double off = p->have[i] - y[i];
        *left += off * off;
        outside += !(fabs(off) <= bound_of(p, y, i, grown));
    }
    *left = sqrt(*left);
    if (!(outside <= p->wrong / ONE_IN && *left <= grown * p->allowed &&
          *left < (p->any ? LEFT_BY_ANY : LEFT_BY_OWN) * p->off))
        return false;
    *left = fmax(*left, grown * p->allowed * ONLY_ROUNDING);
    return true;
}

static bool is_right(const struct suspect *p, int64_t i) { return fabs(p->have[i] - p->want[i]) <= p->bound[i]; }

/* Whether a mistake that is made in a part of the result only explains it. */
static bool fits_there(const struct suspect *p, const double *y, double *left)
{
    if (p->there == NULL || p->wrong < LEAST_THERE) return false;
    for (int64_t i = 0; i < p->count; i++) p->there[i] = is_right(p, i) ? p->want[i] : y[i];
    return fits(p, p->there, left);
}

/* What part of it is wrong, if that has a name: queries, keys or values beside each other. */
static const char *part_of(const struct suspect *p)
{
    const struct model_config *c = p->s->context->config;
    bool wrong[3] = { false, false, false };
    if (p->cols != qkv_width(c) || p->s->verdict.slot == NULL || p->s->verdict.slot->head == 0) return "a part of it";
    for (int64_t i = 0; i < p->count; i++) {
        const int64_t head = i % p->cols / c->A;
        if (!is_right(p, i)) wrong[head < c->H ? 0 : head < c->H + c->K ? 1 : 2] = true;
    }
    if (wrong[0] + wrong[1] + wrong[2] != 1) return "a part of it";
    return wrong[0] ? "queries only" : wrong[1] ? "keys only" : "values only";
}

bool suspect_explained(struct suspect *p, const double *y, const char *format, ...)
{
    double left;
    char words[SINGLE_MISTAKE];
    va_list args;
    const bool whole = !p->s->failed && fits(p, y, &left);
    if (p->s->failed || (!whole && !fits_there(p, y, &left))) return false;
    va_start(args, format);
    const int length = vsnprintf(words, sizeof words, format, args);
    va_end(args);
    if (!whole && length < (int)sizeof words)
        snprintf(words + length, sizeof words - (size_t)length, ", in %s", part_of(p));
    const bool better = left < p->best / MUCH_BETTER, as_good = !better && left <= AS_GOOD * p->best;
    if (better) memcpy(p->words, words, sizeof words);
    else if (as_good && !p->any && strcmp(words, p->words) != 0) {
        const size_t n = strlen(p->words);
        snprintf(p->words + n, sizeof p->words - n, ", or %s", words);
    }
    if (left < p->best) p->best = left;
    return true;
}

bool suspect_near(struct suspect *p, const double *y, const char *format, ...)
{
    double left = 0;
    va_list args;
    for (int64_t i = 0; i < p->count; i++) left += (p->have[i] - y[i]) * (p->have[i] - y[i]);
    left = sqrt(left);
    if (p->s->failed || !(left <= p->off / NEARER) || !(left < p->best)) return false;
    va_start(args, format);
    vsnprintf(p->words, sizeof p->words, format, args);
    va_end(args);
    p->best = left;
    return true;
}

/* ---- mistakes of the operation ----------------------------------------------------------------------------------- */

static const struct single_mistakes *const tables[] = {
    &single_attention_mistakes, &single_norm_mistakes,      &single_matrix_mistakes, &single_rotary_mistakes,
    &single_gelu_mistakes,      &single_swiglu_mistakes,    &single_add_mistakes,    &single_loss_mistakes,
    &single_embed_mistakes,     &single_positions_mistakes, &single_head_norm_mistakes, &single_route_mistakes,
    &single_experts_up_mistakes, &single_experts_down_mistakes, &single_combine_mistakes, &single_latent_norm_mistakes,
    &single_soft_cap_mistakes, &single_geglu_mistakes,
};

const struct single_mistakes *mistakes_of(const struct single_operation *operation)
{
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        if (tables[i]->of == operation) return tables[i];
    return NULL;
}

/* y = what is right, with another summand in place of this one. */
static void replace(const struct suspect *p, const struct single_term *t, struct tensor other, double *y)
{
    for (int64_t i = 0; i < p->count; i++) y[i] = p->want[i] - numbers(t->y)[i] + numbers(other)[i];
}

/* The node that a result comes from, past those that change nothing and are not shown. */
static struct single_term origin(const struct single *s, const struct single_term *t)
{
    struct single_term o = *t;
    while (o.pass == SINGLE_FORWARD && o.node->operation == &single_dropout && single_slot(s, o.node->in[0])->unseen)
        o.node = &s->context->graph->node[single_slot(s, o.node->in[0])->maker];
    return o;
}

static void try_operation(struct suspect *p, const struct single_term *shown, double *y)
{
    const struct single_term source = origin(p->s, shown), *t = &source;
    const int used = p->s->memory.used;
    const struct single_mistakes *all = mistakes_of(t->node->operation);
    if (all == NULL) return;
    single_mistaken *const make = all->make[t->pass];
    for (const struct single_mistake *m = make ? all->rows : NULL; m && m->words && !p->s->failed; m++) {
        if (!(m->passes >> t->pass & 1)) continue;
        single_read_anew(p->s);
        const struct tensor other = make(p->s, t->node, m);
        if (!p->s->failed && tensor_present(other) && tensor_count(other) == p->count) {
            replace(p, t, other, y);
            suspect_explained(p, y, "%s", m->words);
        }
        single_release(p->s, used);
    }
    single_read_anew(p->s);
    if (all->parts) all->parts(p, t->node, t->pass, y), single_release(p->s, used);
    single_read_anew(p->s);
}

/* ---- mistakes of any result -------------------------------------------------------------------------------------- */

static void try_zeros(struct suspect *p, double *y)
{
    memset(y, 0, (size_t)p->count * sizeof *y);
    if (norm_of(p->have, p->count) == 0) suspect_explained(p, y, "all of it is zero");
}

/* Rows, columns or a rank's piece that are zero, beside what is right. */
static void try_zeros_there(struct suspect *p, double *y)
{
    if (p->wrong < LEAST_THERE) return;
    for (int64_t i = 0; i < p->count; i++) {
        if (!is_right(p, i) && p->have[i] != 0) return;
        y[i] = is_right(p, i) ? p->want[i] : 0;
    }
    suspect_explained(p, y, "what is wrong is zero");
}

static double factor_of(const double *have, const double *want, int64_t n)
{
    double hy = 0, yy = 0;
    for (int64_t i = 0; i < n; i++) hy += have[i] * want[i], yy += want[i] * want[i];
    return yy > 0 ? hy / yy : NAN;
}

/* Of a single number any factor would do. */
static const char TIMES[] = "expected times";

static void try_factor(struct suspect *p, double *y)
{
    const double c = factor_of(p->have, p->want, p->count);
    if (p->count == 1 || !isfinite(c) || c == 0) return;
    for (int64_t i = 0; i < p->count; i++) y[i] = c * p->want[i];
    suspect_explained(p, y, fabs(c) < 0.01 ? "%s %.4g" : "%s %.4f", TIMES, c);
}

/* The same of a part of it. */
static void try_factor_there(struct suspect *p, double *y)
{
    double hy = 0, yy = 0;
    if (p->wrong < LEAST_THERE || p->words[0]) return;
    for (int64_t i = 0; i < p->count; i++)
        if (!is_right(p, i)) hy += p->have[i] * p->want[i], yy += p->want[i] * p->want[i];
    if (!(yy > 0) || hy == 0) return;
    for (int64_t i = 0; i < p->count; i++) y[i] = is_right(p, i) ? p->want[i] : hy / yy * p->want[i];
    suspect_explained(p, y, "what is wrong is expected times %.4f", hy / yy);
}

/* Factors are the same if they differ by less, relative: those of parts with 48 and 50 labels do not.  Chosen so; no
 * run has been measured with another number. */
static const double SAME_FACTOR = 0.02;

/* Labels of sequences [from, to). */
static double labels_of(const struct single *s, int64_t from, int64_t to)
{
    double n = 0;
    for (int64_t i = from * s->cursor.batch.S; i < to * s->cursor.batch.S; i++) n += s->cursor.batch.labels[i] >= 0;
    return n;
}

/* Whether factors of sequences are those of parts that each divided by its own labels. */
static bool is_mean_of_means(const struct single *s, const double *c)
{
    double product = 0;
    for (int64_t b = 0, to; b < s->cursor.batch.B; b = to) {
        for (to = b + 1; to < s->cursor.batch.B && fabs(c[to] - c[b]) < SAME_FACTOR * fabs(c[b]);) to++;
        const double one = c[b] * labels_of(s, b, to);
        if (product == 0) product = one;
        if (!(fabs(one - product) < SAME_FACTOR * product)) return false;
    }
    return product > 0;
}

/* Each sequence has a factor of its own. */
static void try_sequences(struct suspect *p, double *y)
{
    const struct single *s = p->s;
    const int64_t B = s->cursor.batch.B, n = p->rows == s->cursor.N ? s->cursor.batch.S * p->cols : 0;
    double c[64], least = INFINITY, most = -INFINITY;
    if (n == 0 || B < 2 || B > 64) return;
    for (int64_t b = 0; b < B; b++) {
        c[b] = factor_of(p->have + b * n, p->want + b * n, n);
        if (!isfinite(c[b])) return;
        for (int64_t i = b * n; i < (b + 1) * n; i++) y[i] = c[b] * p->want[i];
        least = fmin(least, c[b]), most = fmax(most, c[b]);
    }
    if (!(most - least > SAME_FACTOR * fabs(most))) return;
    suspect_explained(p, y,
                      is_mean_of_means(s, c) ? "a mean of means: each part of the batch is divided by its own labels, "
                                               "times %.4f to %.4f"
                                             : "each sequence times its own factor, %.4f to %.4f",
                      least, most);
}

/* A summand lost, halved, doubled: the factor that fits best. */
static void try_summand(struct suspect *p, const struct single_term *t, double *y)
{
    double along = 0, size = 0;
    for (int64_t i = 0; i < p->count; i++) {
        const double x = numbers(t->y)[i];
        along += (p->have[i] - p->want[i]) * x, size += x * x;
    }
    if (!(size > 0) || p->count == 1 || p->s->verdict.terms == 1) return;
    const double c = along / size;
    const char *words = t->node->operation->passes_on && t->pass != SINGLE_WEIGHT ? "the gradient that passes by"
                      : t->pass == SINGLE_FORWARD ? t->node->operation->words
                      : t->pass == SINGLE_INPUT ? t->node->operation->input_words
                      : t->pass == SINGLE_WEIGHT ? t->node->operation->weight_words : t->node->operation->bias_words;
    for (int64_t i = 0; i < p->count; i++) y[i] = p->want[i] + c * numbers(t->y)[i];
    if (fabs(c + 1) < 0.01) suspect_explained(p, y, "without what comes from %s", words ? words : "one of its readers");
    else suspect_explained(p, y, "what comes from %s times %.4f", words ? words : "one of its readers", 1 + c);
}

/* ---- roundings --------------------------------------------------------------------------------------------------- */

static bool has_bits(double x, int bits)
{
    int exponent;
    const double f = ldexp(frexp(x, &exponent), bits);
    return f == floor(f);
}

/* All numbers are those of a narrower format, which hardly happens by chance. */
static bool is_narrow(const struct suspect *p, int bits)
{
    int64_t n = 0;
    for (int64_t i = 0; i < p->count; i++) {
        if (!has_bits(p->have[i], bits)) return false;
        n += p->have[i] != 0;
    }
    return n > 3;
}

static const struct narrow { int bits; const char *name; } narrows[] = {
    { 11, "11 bits (fp16, tf32)" }, { 8, "8 bits (bf16)" }, { 4, "4 bits (fp8)" },
};

/* Times a unit of roundoff: those of two formats of the list differ by 8 or more, so between 1 and 8 any number tells
 * them apart; an error may be so many times a bound and a rounding, which are both estimates. */
static const double COARSER = 1.5;

static void try_rounded(struct suspect *p, double *y)
{
    for (size_t k = 0; k < sizeof narrows / sizeof *narrows; k++) {
        const double u = ldexp(1, -narrows[k].bits);
        if (u <= COARSER * p->s->rounding.store || !is_narrow(p, narrows[k].bits)) continue;
        bool near = true;
        for (int64_t i = 0; i < p->count && near; i++)
            near = fabs(p->have[i] - p->want[i]) <= COARSER * (p->bound[i] + u * fabs(p->want[i]));
        memcpy(y, p->have, (size_t)p->count * sizeof *y);
        if (near) suspect_explained(p, y, "rounded to %s once too often", narrows[k].name);
    }
}

/* Errors to both sides, none much larger than the rest: those of a rounding, not of a formula.  Of the bounds of sums
 * in so few bits they are this part, root mean square; 0.1 and 1 change none of the runs above. */
static const double LIKE_ROUNDING = 0.3;
enum { LARGEST = 10 };                  /* times the root mean square; of a thousand normal numbers 4: not measured */

static bool looks_random(const struct suspect *p, const double *bound)
{
    double along = 0, size = 0, off = 0, ratio = 0, most = 0;
    for (int64_t i = 0; i < p->count; i++) {
        const double e = p->have[i] - p->want[i];
        if (!(fabs(e) <= bound[i])) return false;
        along += e * p->want[i], size += p->want[i] * p->want[i], off += e * e;
        const double r = bound[i] > 0 ? fabs(e) / bound[i] : 0;
        ratio += r * r, most = fmax(most, r);
    }
    ratio = sqrt(ratio / (double)p->count);
    return ratio < LIKE_ROUNDING && most <= LARGEST * ratio &&
           fabs(along) <= (0.1 + 4 / sqrt((double)p->count)) * sqrt(off * size);
}

/* Beyond, something is lost: any error is within the bounds of sums in so few bits.  0.03 changes none of the runs. */
static const double MOST_RANDOM = 0.3;

/* Recompute with sums, or what enters them, in a narrower format.  Which one the errors do not show: they grow with
 * the number of roundings, too. */
static void try_narrow_sums(struct suspect *p, double *y)
{
    (void)y;
    struct single *s = p->s;
    for (int t = 0; t < s->verdict.terms; t++) {
        const struct single_operation *is = s->verdict.term[t].node->operation;
        if (is != &single_matrix && is != &single_attention) return;
    }
    if (p->off > MOST_RANDOM * p->size) return;
    const struct rounding was = s->rounding;
    for (size_t k = 0; k < sizeof narrows / sizeof *narrows && p->words[0] == 0 && s->verdict.terms > 0; k++) {
        const double u = ldexp(1, -narrows[k].bits);
        const int used = s->memory.used;
        struct single_value v[SINGLE_TERMS];
        if (u <= COARSER * was.sum) continue;
        s->rounding.sum = u;
        for (int t = 0; t < s->verdict.terms; t++)
            v[t] = single_attempt(s, s->verdict.term[t].node, s->verdict.term[t].run);
        const struct single_value all = single_settled(s, single_sum(s, v, s->verdict.terms));
        s->rounding = was;
        if (!s->failed && looks_random(p, numbers(all.steps)))
            snprintf(p->words, sizeof p->words,
                     "its errors are random, %.2g %% of it: noise, or sums, or what enters them, are rounded to a "
                     "narrower format", 100 * p->off / p->size);
        single_release(s, used);
    }
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

/* On one rank, in one microbatch, in one head. */
static void try_in_a_part(struct suspect *p, double *y)
{
    const struct single *s = p->s;
    const struct tensor there = single_new(p->s, p->rows, p->cols);
    if (!s->failed) p->there = numbers(there);
    if (p->wrong < p->count && s->verdict.stepping) suspect_step(p, s->verdict.stepping);
    for (int t = 0; t < s->verdict.terms && p->wrong < p->count; t++) try_operation(p, &s->verdict.term[t], y);
    p->there = NULL;
}

/* Try mistakes in what makes one summand: the operation behind the summand, and its masks of dropout. */
static void try_summand_itself(struct suspect *p, const struct single_term *t, double *y)
{
    try_operation(p, t, y);
    suspect_masks(p, t, y);
}

static void try_gradient_norm(struct suspect *p, double *y)
{
    (void)y;
    if (strcmp(p->s->verdict.result.name, "norm") == 0) suspect_gradient_norm(p);
}

static void try_step(struct suspect *p, double *y)
{
    (void)y;
    if (p->s->verdict.stepping) suspect_step(p, p->s->verdict.stepping);
}

static void try_arrangement(struct suspect *p, double *y)
{
    (void)y;
    suspect_arrangement(p);
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
 */
static const struct hypotheses {
    void (*once)(struct suspect *, double *y);                                  /* of the result, or */
    void (*each)(struct suspect *, const struct single_term *, double *y);      /* of each of its summands */
    bool any;                           /* they are of any operation: suspect.any */
    bool last;                          /* only while nothing explains the result */
    bool ends;                          /* if one explains it, no other is tried */
} order[] = {
    { .once = try_zeros, .ends = true },
    { .once = try_gradient_norm },
    { .once = try_step },
    { .each = try_summand_itself },
    { .each = suspect_rows, .last = true },
    { .once = try_zeros_there, .any = true, .ends = true },
    { .each = try_summand, .any = true },
    { .once = try_factor, .any = true },
    { .once = try_sequences, .any = true },
    { .once = try_rounded, .any = true },
    { .once = try_arrangement, .any = true },
    { .once = try_factor_there, .any = true },
    { .each = suspect_inputs, .any = true, .last = true },
    { .once = try_in_a_part, .last = true },
    { .once = try_narrow_sums, .last = true },
};

static void try_all(struct suspect *p, double *y)
{
    for (size_t k = 0; k < sizeof order / sizeof *order; k++) {
        char before[SINGLE_MISTAKE];
        memcpy(before, p->words, sizeof before);
        p->any = order[k].any;
        if (order[k].once && !(order[k].last && p->words[0])) order[k].once(p, y);
        for (int t = 0; order[k].each && t < p->s->verdict.terms && !(order[k].last && p->words[0]); t++)
            order[k].each(p, &p->s->verdict.term[t], y);
        if (order[k].ends && strcmp(before, p->words) != 0) return;
    }
}

/* How many times its bound as a sum a number must be off, if only steps of 16 bits explain it: 5 and 100 change none of
 * the runs; golden/bugs/campaign.sh clean 1000 has no alarm with it. */
static const double CLEARLY = 20;

static void explain_number(struct single *s, const struct single_value *v)
{
    const double *have = numbers(s->verdict.have), *want = numbers(v->y), *bound = numbers(v->fused);
    const struct rounding was = s->rounding;
    const struct single_result found = s->verdict.result;
    struct suspect p = { .s = s, .rows = 1, .cols = 1, .count = 1, .have = have, .want = want, .bound = bound,
                         .wrong = 1, .allowed = bound[0], .size = fabs(want[0]), .off = fabs(have[0] - want[0]),
                         .best = INFINITY };
    const struct tensor y = single_new(s, 1, 1);
    if (s->failed || s->verdict.result.rows * s->verdict.result.cols != 1 || !(p.off > CLEARLY * bound[0])) return;
    s->rounding.store = s->rounding.sum, s->rounding.tiny = s->rounding.sum_tiny;
    if (strcmp(s->verdict.result.name, "norm") == 0) suspect_gradient_norm(&p);
    for (int t = 0; t < s->verdict.terms; t++) try_operation(&p, &s->verdict.term[t], numbers(y));
    s->rounding = was, s->verdict.result = found;
    memcpy(s->verdict.result.mistake, p.words, sizeof s->verdict.result.mistake);
}

static void explain_result(struct single *s, const struct single_value *v)
{
    struct suspect p = { .s = s, .rows = s->verdict.result.rows, .cols = s->verdict.result.cols,
                         .count = s->verdict.result.rows * s->verdict.result.cols,
                         .have = numbers(s->verdict.have), .want = numbers(v->y), .wrong = s->verdict.result.wrong,
                             .best = INFINITY,
                         .bound = numbers(s->rounding.fused ? v->fused : v->steps) };
    p.allowed = norm_of(p.bound, p.count), p.size = norm_of(p.want, p.count);
    for (int64_t i = 0; i < p.count; i++) p.off += (p.have[i] - p.want[i]) * (p.have[i] - p.want[i]);
    p.off = sqrt(p.off);
    const struct single_result found = s->verdict.result;          /* what hypotheses read may be missing: no matter */
    for (int64_t i = 0; i < p.count; i++)
        if (!isfinite(p.have[i])) return;
    const struct tensor y = single_new(s, p.rows, p.cols);
    if (!s->failed) try_all(&p, numbers(y));
    s->verdict.result = found;
    memcpy(s->verdict.result.mistake, p.words, sizeof s->verdict.result.mistake);
    s->verdict.result.scaled = strncmp(p.words, TIMES, strlen(TIMES)) == 0;
}

static void explain(struct single *s, const struct single_value *right, bool number)
{
    if (number) explain_number(s, right);
    else explain_result(s, right);
}

const struct single_explainer mistakes_explainer = { .explain = explain, .forget = suspect_forget };
