/* tiles.c -- some sequences of the batch at a time, so that memory does not grow with it.
 *
 * A result whose rows are tokens is computed tile by tile where an operation's row comes from rows of the same sequence
 * only: all of them but those of mixtures, whose experts have tokens of all sequences, and of models with streams,
 * whose rows are not in the order of tokens.  Gradients of parameters are sums over tiles (matrix.c, norm.c,
 * embedding.c).
 */
#include "ref/single/parts.h"

/* About nine such matrices of doubles are there at once. */
enum { USUAL_TILE = 1 << 18 };

static bool has_tiles(const struct single *s)
{
    return s->source.fetch_rows && s->config->mlp != MLP_MIXTURE && STREAMS(s->config) == 1;
}

int64_t single_tile(const struct single *s, int64_t cols)
{
    const int64_t most = (s->source.tile ? s->source.tile : USUAL_TILE) / (s->all.S * cols);
    return !has_tiles(s) || most >= s->all.B ? s->all.B : most < 1 ? 1 : most;
}

void single_take_tile(struct single *s, int64_t first, int64_t sequences)
{
    const int64_t left = s->all.B - first;
    s->first = first;
    s->batch = s->all;
    s->batch.ids += first * s->all.S, s->batch.labels += first * s->all.S;
    s->batch.B = left < sequences ? left : sequences;
    s->N = s->batch.B * s->all.S;
}

void single_take_all(struct single *s) { single_take_tile(s, 0, s->all.B); }

int64_t single_rows(const struct single *s, const struct single_slot *slot)
{
    return slot->rows == s->all.B * s->all.S ? s->N : slot->rows;
}
