/* mask.c -- what a result is if dropout has another mask, or other factors: the operation is recomputed with
 * the mask changed (recompute/mask.c).
 *
 * A copy of the model, and a rank along tp with some of the heads, draw the mask of the first if all draw from the same
 * place of the same stream; and that of the next if ranks are counted otherwise.
 * mistakes.c calls suspect_masks for each summand.  A model without dropout is left at once.
 */
#include "emulated_devices/check/mistakes/mistakes.h"

/* Whether a change takes masks of other sequences than those that are looked at. */
static bool mask_is_elsewhere(const struct single *single, enum mask_kind kind)
{
    return single_is_tile(single) &&
           (kind == MASK_OF_FIRST_COPY || kind == MASK_OF_NEXT_COPY || kind == MASK_OF_COPY_BEFORE);
}

/* Recompute the summand with the change of masks: y is the result then.  The hypothesis is taken back before the
 * comparison.  @return whether the pass reads a mask at all. */
static bool mask_changed(struct suspect *suspect, const struct single_term *term, struct mask_change change, double *y)
{
    struct single *s = suspect->s;
    const int used = s->memory.used;
    if (mask_is_elsewhere(s, change.kind)) return false;
    s->hypothesis.mask = change, s->hypothesis.masks_changed = 0;
    const struct single_value v = single_attempt(s, term->node, term->run);
    s->hypothesis.mask = (struct mask_change){ 0 };
    const bool done = s->hypothesis.masks_changed > 0 && v.status == SINGLE_DONE && tensor_count(v.y) == suspect->count;
    for (int64_t i = 0; done && i < suspect->count; i++)
        y[i] = suspect->want[i] - numbers(term->y)[i] + numbers(v.y)[i];
    single_release(s, used);
    return done;
}

/* Offer the result with the change of masks. */
static void try_change(struct suspect *suspect, const struct single_term *term, struct mask_change change,
                       const char *words, double *y)
{
    if (mask_changed(suspect, term, change, y)) suspect_explained(suspect, y, words, change.by);
}

/* A mask that was drawn anew, as by a recomputation with another state of the random numbers.  Each element is
 * then what it is if it is dropped, or if it is kept: the nearer of both is taken. */
static void try_drawn(struct suspect *suspect, const struct single_term *term, double *y)
{
    const int used = suspect->s->memory.used;
    const struct tensor dropped = single_new(suspect->s, suspect->rows, suspect->cols),
                        kept = single_new(suspect->s, suspect->rows, suspect->cols);
    int64_t others = 0;
    if (!suspect->s->failed && mask_changed(suspect, term, (struct mask_change){ .kind = MASK_EMPTY }, numbers(dropped))
        && mask_changed(suspect, term, (struct mask_change){ .kind = MASK_FULL }, numbers(kept))) {
        for (int64_t i = 0; i < suspect->count; i++) {
            const double none = numbers(dropped)[i], all = numbers(kept)[i], have = suspect->have[i];
            y[i] = fabs(have - none) < fabs(have - all) ? none : all;
            others += fabs(y[i] - suspect->want[i]) > suspect->bound[i];
        }
        suspect_explained(suspect, y, "%s: %lld of %lld elements are dropped or kept otherwise",
                          term->pass == SINGLE_FORWARD ? "it has another mask than the golden file's"
                              : "it has another mask than its forward pass, as by a recomputation that draws a new one",
                          (long long)others, (long long)suspect->count);
    }
    single_release(suspect->s, used);
}

void suspect_masks(struct suspect *suspect, const struct single_term *term, double *y)
{
    static const struct { enum mask_kind kind; int by; const char *words; } all[] = {
        { MASK_NONE, 0, "nothing is dropped" },
        { MASK_INVERTED, 0, "its mask is inverted: what must be kept is dropped" },
        { MASK_UNSCALED, 0, "what is kept is not divided by 1 - rate" },
        { MASK_TWICE, 0, "what is kept is divided by 1 - rate twice" },
        { MASK_SHIFTED, 1, "its mask is off by one: an element has that of the next" },
        { MASK_SHIFTED, -1, "its mask is off by one: an element has that of the one before" },
        { MASK_ROW_SHIFTED, 1, "its mask is off by one row: a row has that of the next" },
        { MASK_ROW_SHIFTED, -1, "its mask is off by one row: a row has that of the one before" },
        { MASK_OF_STEP, 2, "it has the mask of step %d" },
        { MASK_OF_LAYER, 0, "it has the mask of layer %d" },
    };
    static const int parts[] = { 2, 3, 4, 8 };
    const struct model_config *c = suspect->s->context->config;
    /* Without dropout no pass reads a mask. */
    if (c->dropout_residual == 0 && c->dropout_embedding == 0 && c->dropout_attention == 0) return;
    for (size_t k = 0; k < sizeof all / sizeof *all && !suspect->s->failed; k++)
        try_change(suspect, term, (struct mask_change){ all[k].kind, all[k].by }, all[k].words, y);
    const int copies = suspect->s->context->source.copies;
    if (copies > 1) try_change(suspect, term, (struct mask_change){ MASK_OF_NEXT_COPY, copies },
                               "copies take turns: each of %d has the mask of the next", y);
    if (copies > 2) try_change(suspect, term, (struct mask_change){ MASK_OF_COPY_BEFORE, copies },
                               "copies take turns: each of %d has the mask of the one before", y);
    for (size_t k = 0; k < sizeof parts / sizeof *parts && !suspect->s->failed; k++) {
        if (parts[k] <= suspect->s->cursor.batch.B)
            try_change(suspect, term, (struct mask_change){ MASK_OF_FIRST_COPY, parts[k] },
                       "each of %d parts of the batch has the mask of the first", y);
        if (parts[k] <= c->K)
            try_change(suspect, term, (struct mask_change){ MASK_OF_FIRST_HEADS, parts[k] },
                       "each of %d parts of the heads has the mask of the first", y);
    }
    if (suspect->words[0] == 0) try_drawn(suspect, term, y);
}
