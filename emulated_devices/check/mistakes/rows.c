/* rows.c -- the gradient of any parameter that some tokens have not been added to, or twice: sequences of the
 * batch, or what one rank has of each sequence if ranks along tp share its tokens (sequence parallel).
 * mistakes.c calls suspect_rows for each summand of a parameter's gradient.
 */
#include "emulated_devices/check/mistakes/mistakes.h"

enum { MOST_PARTS = 16 };

/* Whether a row of the batch is in part k: of the sequences, or of the tokens of each sequence. */
static bool in_part(const struct single *single, int64_t row, bool sequences, int parts, int k)
{
    const int64_t S = single->context->all.S;
    return sequences ? row / S == k : part_with(S, parts, row % S) == k;
}

/* Run the pass once for each part, with the gradients of all other tokens set to zero.  suspect_parts then finds
 * the factor of each part. */
static void try_parts(struct suspect *suspect, const struct single_term *term, bool sequences, int parts, double *y)
{
    struct single *s = suspect->s;
    struct tensor part[MOST_PARTS];
    const int used = s->memory.used;
    const int64_t rows = s->context->all.B * s->context->all.S;
    const struct tensor counted = single_new(s, 1, rows);
    for (int k = 0; k < parts && !s->failed; k++) {
        unsigned char *const counts = counted.data;
        for (int64_t i = 0; i < rows; i++) counts[i] = in_part(s, i, sequences, parts, k);
        /* `counted` masks the tokens while the pass runs, and is taken back at once. */
        s->hypothesis.counted = counts;
        const struct single_value v = single_attempt(s, term->node, term->run);
        s->hypothesis.counted = NULL;
        /* Without this part the sum cannot be written in parts. */
        if (v.status != SINGLE_DONE || tensor_count(v.y) != suspect->count) break;
        part[k] = v.y;
        if (k == parts - 1) suspect_parts(suspect, part, parts, sequences ? "sequence" : "tokens' part", y);
    }
    single_release(s, used);
}

/* Only gradients of weights and biases are sums over tokens.  Experts' matrices have parts of their own in
 * mixture.c. */
void suspect_rows(struct suspect *suspect, const struct single_term *term, double *y)
{
    const struct single *s = suspect->s;
    const bool of_matrix = term->node->operation == &single_matrix && term->pass == SINGLE_WEIGHT;
    if ((term->pass != SINGLE_WEIGHT && term->pass != SINGLE_BIAS) || term->node->experts > 0 || term->run == NULL)
        return;
    if (!of_matrix && s->context->all.B > 1 && s->context->all.B <= MOST_PARTS && suspect->words[0] == 0)
        try_parts(suspect, term, true, (int)s->context->all.B, y);       /* of a matrix: matrix.c */
    for (int parts = 2; parts <= 8 && parts <= s->context->all.S && suspect->words[0] == 0; parts++)
        try_parts(suspect, term, false, parts, y);
}
