/* batches.c -- what a result is if the program has read the tokens and labels of another step.
 * mistakes.c calls suspect_batches for each summand.  Only embeddings and the loss read tokens or labels. */
#include "emulated_devices/check/mistakes/mistakes.h"

/* Recompute the summand with the batch of another step: y is the result then.  @return whether that was possible. */
static bool batches_changed(struct suspect *suspect, const struct single_term *term, int64_t step, double *y)
{
    struct single *s = suspect->s;
    const struct single_context *const own = s->context;
    const struct single_batch batch = s->cursor.batch;
    struct single_context other = *own;
    const int used = s->memory.used;
    const int64_t at = (step - own->source.step) * own->all.B * own->all.S;
    other.all.ids += at, other.all.labels += at;
    if (other.all.positions) other.all.positions += at;
    /* The hypothesis is taken back before the comparison. */
    s->context = &other, s->cursor.batch = other.all;
    const struct single_value v = single_attempt(s, term->node, term->run);
    s->context = own, s->cursor.batch = batch;
    const bool done = v.status == SINGLE_DONE && tensor_count(v.y) == suspect->count;
    for (int64_t i = 0; done && i < suspect->count; i++)
        y[i] = suspect->want[i] - numbers(term->y)[i] + numbers(v.y)[i];
    single_release(s, used);
    return done;
}

void suspect_batches(struct suspect *suspect, const struct single_term *term, double *y)
{
    const struct single *s = suspect->s;
    const struct single_operation *const is = term->node->operation;
    const int64_t steps = s->context->source.steps;
    if (is != &single_embed && is != &single_positions && is != &single_loss) return;
    for (int64_t step = 0; step < steps && !s->failed; step++)
        if (step != s->context->source.step && batches_changed(suspect, term, step, y))
            suspect_explained(suspect, y, "it has read the batch of step %lld", (long long)step + 1);
}
