/* adapter.c -- what is wrong with a result that low-rank adapters have a part in: another scaling, a gradient that is
 * transposed, an adapter that is not there.
 * mistakes.c calls suspect_adapter for each wrong result.  Errors: single.failed only.
 */
#include "emulated_devices/check/dump/adapters.h"
#include "emulated_devices/check/mistakes/mistakes.h"
#include "emulated_devices/check/recompute/products.h"
#include <math.h>
#include <stdio.h>

/* Two factors are the same within this part: roundings of 16 bits are smaller. */
static const double SAME_SCALING = 0.01;

/* These words say what a scaling is, by alpha and rank. */
struct scaling_words { char text[96]; };
static struct scaling_words scaling_words(const struct adapter *adapter, double scaling)
{
    const double rank = (double)adapter->rank;
    const struct { double is; const char *words; } known[] = {
        { 1, "1" }, { adapter->alpha, "alpha" }, { adapter->alpha / rank, "alpha / rank" },
        { adapter->alpha / sqrt(rank), "alpha / sqrt(rank)" }, { 1 / rank, "1 / rank" } };
    struct scaling_words words;
    snprintf(words.text, sizeof words.text, "%.4g", scaling);
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (fabs(scaling - known[i].is) <= SAME_SCALING * fabs(known[i].is)) {
            snprintf(words.text, sizeof words.text, "%s = %.4g", known[i].words, known[i].is);
            break;
        }
    return words;
}

/* The adapter's own scaling in words. */
static struct scaling_words right_words(const struct adapter *adapter)
{
    struct scaling_words words;
    snprintf(words.text, sizeof words.text, "%s = %.4g", adapter->rslora ? "alpha / sqrt(rank)" : "alpha / rank",
             adapter->scaling);
    return words;
}

/* The factor that fits x best to what the result has beyond `beside`. */
static double best_factor(const struct suspect *suspect, const double *x, const double *beside)
{
    double along = 0, size = 0;
    for (int64_t i = 0; i < suspect->count; i++)
        along += (suspect->have[i] - (beside ? beside[i] : 0)) * x[i], size += x[i] * x[i];
    return size > 0 ? along / size : NAN;
}

/* A gradient of A or B is another multiple of what is right, or its transpose. */
static void try_gradient(struct suspect *suspect, const struct adapter *adapter, double *y)
{
    const double c = best_factor(suspect, suspect->want, NULL);
    for (int64_t i = 0; i < suspect->count; i++) y[i] = c * suspect->want[i];
    if (isfinite(c) && fabs(c) > SAME_SCALING)
        suspect_measured(suspect, y, "the adapter is scaled by %s, not by %s",
                         scaling_words(adapter, c * adapter->scaling).text, right_words(adapter).text);
    for (int64_t i = 0; i < suspect->count; i++)
        y[i] = suspect->want[i % suspect->rows * suspect->cols + i / suspect->rows];
    suspect_explained(suspect, y, "the gradient of the adapter is transposed");
}

/* A product goes through adapters with another scaling, or past them. */
static void try_product(struct suspect *suspect, const struct single_term *term, double *y)
{
    struct single *const s = suspect->s;
    const int used = s->memory.used;
    const struct adapter *of = NULL;
    const struct tensor part = single_adapter_part(s, term->node, term->pass == SINGLE_INPUT, &of);
    if (tensor_present(part) && tensor_count(part) == suspect->count && !s->failed) {
        const double c = best_factor(suspect, numbers(part), suspect->want);
        for (int64_t i = 0; i < suspect->count; i++) y[i] = suspect->want[i] + c * numbers(part)[i];
        if (fabs(c + 1) < SAME_SCALING) suspect_explained(suspect, y, "without its adapters");
        else if (isfinite(c))
            suspect_measured(suspect, y, "its adapters are scaled by %s, not by %s",
                             scaling_words(of, (1 + c) * of->scaling).text, right_words(of).text);
    }
    single_release(s, used);
}

void suspect_adapter(struct suspect *suspect, double *y)
{
    const struct single *const s = suspect->s;
    const struct adapters *const list = s->context->source.adapters;
    char which;
    if (list == NULL) return;
    const struct adapter *const of = adapters_find(list, s->verdict.result.name, &which);
    if (of && s->verdict.stepping == NULL) try_gradient(suspect, of, y);
    for (int t = 0; t < s->verdict.terms && of == NULL; t++)
        if (s->verdict.term[t].node->operation == &single_matrix &&
            (s->verdict.term[t].pass == SINGLE_FORWARD || s->verdict.term[t].pass == SINGLE_INPUT))
            try_product(suspect, &s->verdict.term[t], y);
}
