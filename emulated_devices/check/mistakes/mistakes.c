/* mistakes.c -- tries all hypotheses on a wrong result, in a fixed order, and those of its operation.
 * recompute/verdict.c calls explain() through mistakes_explainer with the right value of a wrong result.  Each
 * hypothesis makes a tensor, and accepting.c compares this tensor with the program's.  The words of the best
 * hypothesis end in the result's `mistake`; no words mean that nothing explains it.
 * Errors are not returned.  Without memory single.failed is ERR_MEMORY, the check ends, and report/singles.c returns
 * ERR_MEMORY.  A hypothesis whose inputs the program does not have is left out. */
#include "emulated_devices/check/mistakes/mistakes.h"
#include "emulated_devices/check/mistakes/accepting.h"
#include "emulated_devices/check/mistakes/any_result.h"
#include <stdio.h>
#include <string.h>

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
    { .once = suspect_zeros, .ends = true },
    { .once = suspect_adapter, .ends = true },
    { .once = try_gradient_norm },
    { .once = try_step },
    { .each = try_summand_itself, .dear = 2 },
    { .each = suspect_copied, .dear = 2 },
    { .each = suspect_tokens, .last = true },
    { .each = suspect_rows, .last = true, .dear = 1 },
    { .once = suspect_zeros_there, .any = true, .ends = true },
    { .each = suspect_summand, .any = true },
    { .once = suspect_factor, .any = true },
    { .once = suspect_sequences, .any = true },
    { .once = suspect_rounded, .any = true },
    { .once = try_arrangement, .any = true },
    { .once = suspect_factor_there, .any = true },
    { .each = suspect_inputs, .any = true, .last = true, .dear = 1 },
    { .once = try_in_a_part, .last = true, .dear = 1 },
    { .once = suspect_narrow_sums, .last = true },
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
    snprintf(single->verdict.result.mistake, sizeof single->verdict.result.mistake, "%s", suspect_said(&p));
}

/* Everything that hypotheses need is computed once: bounds, norms, the number of wrong elements. */
static void explain_result(struct single *single, const struct single_value *value)
{
    struct suspect p = { .s = single, .rows = single->verdict.result.rows, .cols = single->verdict.result.cols,
                         .count = single->verdict.result.rows * single->verdict.result.cols,
                         .have = numbers(single->verdict.have), .want = numbers(value->y),
                             .wrong = single->verdict.result.wrong, .best = INFINITY,
                         .bound = numbers(single->rounding.fused ? value->fused : value->steps) };
    p.allowed = suspect_norm_of(p.bound, p.count), p.size = suspect_norm_of(p.want, p.count);
    for (int64_t i = 0; i < p.count; i++) p.off += (p.have[i] - p.want[i]) * (p.have[i] - p.want[i]);
    p.off = sqrt(p.off);
    suspect_take_samples(&p);
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
    snprintf(single->verdict.result.mistake, sizeof single->verdict.result.mistake, "%s", suspect_said(&p));
    single->verdict.result.scaled = suspect_is_scaled(&p);
}

/* recompute/verdict.c sets `number` where steps of 16 bits alone would make the number right. */
static void explain(struct single *single, const struct single_value *right, bool number)
{
    if (number) explain_number(single, right);
    else explain_result(single, right);
}

const struct single_explainer mistakes_explainer = { .explain = explain, .forget = suspect_forget };
