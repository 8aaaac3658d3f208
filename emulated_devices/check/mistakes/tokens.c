/* tokens.c -- places of the batch that have the tokens, or the labels, of other sequences: the rows of the embedding,
 * and the gradient of the logits, show what each place had.
 * mistakes.c calls suspect_tokens for each summand of a result that nothing of its operation explains.  The pass is run
 * with the tokens of each sequence in all places, so each place finds what it had; then once with what all have had.
 * The loss is a single number: it is compared with what whole other batches give. */
#include "emulated_devices/check/mistakes/mistakes.h"
#include "emulated_devices/check/mistakes/whose.h"
#include "emulated_devices/check/recompute/single.h"
#include <stdlib.h>
#include <string.h>

struct batch_cuts suspect_cuts(const struct single *single)
{
    const struct single_batch *all = &single->context->all;
    return single->context->source.cuts ? *single->context->source.cuts
        : cuts_of(all->B, all->S, NULL, NULL, 0, single->context->source.copies);
}

/* A hypothesis puts labels, or tokens and their positions in packed documents, into the batch: row is [2 N] of all its
 * tokens.  Of a result that is looked at in some sequences, these alone are exchanged. */
struct tokens_of { bool labels; struct whose_step step; int32_t *row; struct sequence *there; double *nearest; };

/* The first sequence that is looked at. */
static int64_t tokens_first(const struct single *single) { return single->cursor.first / single->context->all.S; }

/* Put a sequence into a place of the row. */
static void tokens_put(const struct tokens_of *tokens, const struct single_batch *batch, int64_t place,
                       struct sequence sequence)
{
    const int64_t S = batch->S, steps = whose_step_of(&tokens->step, sequence.batch) - tokens->step.step,
                  at = (steps * batch->B + sequence.number) * S;
    const size_t size = (size_t)S * sizeof *tokens->row;
    memcpy(tokens->row + place * S, (tokens->labels ? batch->labels : batch->ids) + at, size);
    if (batch->positions) memcpy(tokens->row + (batch->B + place) * S, batch->positions + at, size);
}

/* Run the pass with other tokens.  The context is exchanged while the pass runs, and taken back at once. */
static struct single_value tokens_run(struct single *single, const struct single_term *term,
                                      const struct tokens_of *tokens)
{
    const struct single_context *const was = single->context;
    const struct single_batch looked_at = single->cursor.batch;
    const int64_t first = single->cursor.first, all = was->all.B * was->all.S;
    struct single_context other = *was;
    if (tokens->labels) other.all.labels = tokens->row, single->cursor.batch.labels = tokens->row + first;
    else other.all.ids = tokens->row, single->cursor.batch.ids = tokens->row + first;
    if (!tokens->labels && other.all.positions)
        other.all.positions = tokens->row + all, single->cursor.batch.positions = tokens->row + all + first;
    single->context = &other;
    const struct single_value v = single_attempt(single, term->node, term->run);
    single->context = was, single->cursor.batch = looked_at;
    return v;
}

/* How far a place is from what a sequence gives there, up to a factor: another batch may have other labels in all. */
static double tokens_distance(const struct suspect *suspect, const double *y, int64_t first, int64_t n)
{
    double hh = 0, hy = 0, yy = 0;
    for (int64_t i = first; i < first + n; i++) {
        hh += suspect->have[i] * suspect->have[i];
        hy += suspect->have[i] * y[i], yy += y[i] * y[i];
    }
    return hh - (hy > 0 ? hy * hy / yy : 0);
}

/* Another sequence must be so much nearer than the right one: squares. */
static const double NEARER_THAN_OWN = 0.25;

/* Try a sequence in all places, and note where it is the nearest so far. */
static void tokens_try(struct suspect *suspect, const struct single_term *term, const struct tokens_of *tokens,
                       struct sequence sequence)
{
    struct single *s = suspect->s;
    const int64_t B = s->cursor.batch.B, n = suspect->count / B, first = tokens_first(s);
    const int used = s->memory.used;
    for (int64_t b = first; b < first + B; b++) tokens_put(tokens, &s->context->all, b, sequence);
    const struct single_value v = tokens_run(s, term, tokens);
    for (int64_t b = 0; b < B && v.status == SINGLE_DONE && tensor_count(v.y) == suspect->count; b++) {
        const bool own = sequence.batch == BATCH_OWN && sequence.number == first + b;
        const double d = tokens_distance(suspect, numbers(v.y), b * n, n) * (own ? NEARER_THAN_OWN : 1);
        if (d < tokens->nearest[first + b]) tokens->nearest[first + b] = d, tokens->there[first + b] = sequence;
    }
    single_release(s, used);
}

/* Offer the pass with what each place seems to have had. */
static void tokens_offer(struct suspect *suspect, const struct single_term *term, const struct tokens_of *tokens)
{
    struct single *s = suspect->s;
    const struct batch_cuts cuts = suspect_cuts(s);
    const int used = s->memory.used;
    char words[SINGLE_MISTAKE];
    whose_say_places(words, sizeof words, &cuts, tokens->there, tokens->labels ? "labels" : "tokens",
                     &tokens->step);
    if (words[0] == 0) return;
    for (int64_t b = 0; b < s->context->all.B; b++) tokens_put(tokens, &s->context->all, b, tokens->there[b]);
    const struct single_value v = tokens_run(s, term, tokens);
    if (v.status == SINGLE_DONE && tensor_count(v.y) == suspect->count)
        suspect_explained(suspect, numbers(v.y), "%s", words);
    single_release(s, used);
}

/* Whether tokens or labels alone decide a result. */
static bool tokens_can(const struct suspect *suspect, const struct single_term *term)
{
    const struct single *s = suspect->s;
    return s->verdict.terms == 1 && term->run != NULL && s->context->all.B <= CUT_SEQUENCES
           && s->cursor.batch.S == s->context->all.S
           && (term->node->operation == &single_loss || name_ends(s->verdict.result.name, "act/embedding"));
}

/* All places have their own sequences again: those that are not looked at keep them. */
static void tokens_begin(const struct single *single, const struct tokens_of *tokens)
{
    for (int b = 0; b < single->context->all.B; b++) {
        tokens->nearest[b] = INFINITY, tokens->there[b] = (struct sequence){ BATCH_OWN, b };
        tokens_put(tokens, &single->context->all, b, tokens->there[b]);
    }
}

/* Each place of the batch is what one sequence has there. */
static void tokens_try_places(struct suspect *suspect, const struct single_term *term, const struct tokens_of *tokens)
{
    struct single *s = suspect->s;
    tokens_begin(s, tokens);
    for (int k = 0; k < BATCH_FAR && !s->failed; k++)
        for (int b = 0; b < s->context->all.B && !s->failed && whose_step_of(&tokens->step, k) >= 0; b++)
            tokens_try(suspect, term, tokens, (struct sequence){ k, b });
    if (!s->failed) tokens_offer(suspect, term, tokens);
}

/* The whole batch is another. */
static void tokens_try_batches(struct suspect *suspect, const struct single_term *term, const struct tokens_of *tokens)
{
    struct single *s = suspect->s;
    for (int k = 0; k < BATCH_FAR && !s->failed; k++) {
        if (k == BATCH_OWN || whose_step_of(&tokens->step, k) < 0) continue;
        for (int b = 0; b < s->context->all.B; b++) tokens->there[b] = (struct sequence){ k, b };
        tokens_offer(suspect, term, tokens);
    }
}

/* The whole batch is that of a step further away: many rows show that, a single number does not. */
static void tokens_try_far(struct suspect *suspect, const struct single_term *term, struct tokens_of *tokens)
{
    const struct single *s = suspect->s;
    while (!s->failed && whose_next_far(&tokens->step)) {
        for (int b = 0; b < s->context->all.B; b++) tokens->there[b] = (struct sequence){ BATCH_FAR, b };
        tokens_offer(suspect, term, tokens);
    }
}

void suspect_tokens(struct suspect *suspect, const struct single_term *term, double *y)
{
    struct single *s = suspect->s;
    const struct single_source *source = &s->context->source;
    struct sequence there[CUT_SEQUENCES];
    double nearest[CUT_SEQUENCES];
    (void)y;
    if (!tokens_can(suspect, term)) return;
    const size_t all = (size_t)(s->context->all.B * s->context->all.S);
    struct tokens_of tokens = { term->node->operation == &single_loss,
                                { (int)source->step, (int)source->steps, (int)source->begins, 0 },
                                malloc(2 * all * sizeof(int32_t) + 1), there, nearest };
    if (tokens.row == NULL) s->failed = ERR_MEMORY;
    else if (suspect->rows == s->cursor.N)
        tokens_try_places(suspect, term, &tokens), tokens_try_far(suspect, term, &tokens);
    else if (suspect->count == 1) tokens_try_batches(suspect, term, &tokens);
    free(tokens.row);
}
