/* rows.c -- the gradient of any parameter that some tokens have not been added to, or twice: sequences of the
 * batch, or what one rank has of each sequence if ranks along tp share its tokens (sequence parallel).
 */
#include "emulated_devices/check/mistakes/mistakes.h"

enum { MOST_PARTS = 16 };

/* Whether a row of the batch is in a part: of the sequences, or of the tokens of each. */
static bool in_part(const struct single *s, int64_t row, bool sequences, int parts, int k)
{
    const int64_t S = s->context->all.S;
    return sequences ? row / S == k : part_with(S, parts, row % S) == k;
}

static void try_parts(struct suspect *p, const struct single_term *t, bool sequences, int parts, double *y)
{
    struct single *s = p->s;
    struct tensor part[MOST_PARTS];
    const int used = s->memory.used;
    const int64_t rows = s->context->all.B * s->context->all.S;
    const struct tensor counted = single_new(s, 1, rows);
    for (int k = 0; k < parts && !s->failed; k++) {
        unsigned char *const counts = counted.data;
        for (int64_t i = 0; i < rows; i++) counts[i] = in_part(s, i, sequences, parts, k);
        s->hypothesis.counted = counts;
        const struct single_value v = single_attempt(s, t->node, t->run);
        s->hypothesis.counted = NULL;
        if (v.status != SINGLE_DONE || tensor_count(v.y) != p->count) break;
        part[k] = v.y;
        if (k == parts - 1) suspect_parts(p, part, parts, sequences ? "sequence" : "tokens' part", y);
    }
    single_release(s, used);
}

void suspect_rows(struct suspect *p, const struct single_term *t, double *y)
{
    const struct single *s = p->s;
    const bool of_matrix = t->node->operation == &single_matrix && t->pass == SINGLE_WEIGHT;
    if ((t->pass != SINGLE_WEIGHT && t->pass != SINGLE_BIAS) || t->node->experts > 0 || t->run == NULL) return;
    if (!of_matrix && s->context->all.B > 1 && s->context->all.B <= MOST_PARTS && p->words[0] == 0)
        try_parts(p, t, true, (int)s->context->all.B, y);       /* of a matrix: matrix.c */
    for (int parts = 2; parts <= 8 && parts <= s->context->all.S && p->words[0] == 0; parts++)
        try_parts(p, t, false, parts, y);
}
