/* dropout.c -- drops by the masks of the golden file: what is kept is divided by 1 - rate.  Masks are of the whole batch and all heads; a rank
 * reads its part of them.
 */
#include "program.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const place_name[] = { "attention", "mlp", "probabilities" };
static unsigned char *kept[MOST_LAYERS][PLACES], *kept_tokens;

/* rows: of a sequence. */
static void replace(unsigned char **mask, const char *name, bool turn, int rows, int cols)
{
    free(*mask);
    *mask = golden_bytes(name);
    if (!turn) return;
    const size_t n = (size_t)rows * cols;
    unsigned char *read = *mask;
    *mask = malloc(n * (size_t)m.B);
    if (*mask == NULL) exit(1);
    for (int b = 0; b < m.B; b++) memcpy(*mask + b * n, read + turned(b) * n, n);
    free(read);
}

void masks_of_step(int t)
{
    char name[64];
    const bool turn = IS(MASKS_TURN_LATER) && t % 2 == 0;
    if (m.rate == 0) return;
    snprintf(name, sizeof name, "mask/%d/embedding", t), replace(&kept_tokens, name, turn, m.S, m.D);
    for (int l = 0; l < m.L; l++)
        for (int p = 0; p < PLACES; p++)
            snprintf(name, sizeof name, "mask/%d/h.%d.%s", t, l, place_name[p]),
                replace(&kept[l][p], name, turn, p == PROBABILITIES ? m.H * m.S : m.S, p == PROBABILITIES ? m.S : m.D);
}

static float times(bool keeps) { return !keeps ? 0 : IS(DROPOUT_UNSCALED) ? 1 : 1 / (1 - m.rate); }

float embedding_dropped(float x, int row, int col)
{
    return m.rate == 0 ? x : !kept_tokens[row * m.D + col] ? 0 : stored(x / (1 - m.rate));
}

float branch_dropped(float x, int l, enum drop p, struct at at)
{
    if (m.rate == 0) return x;
    int row = at.row, i;
    if (IS(MASK_OF_FIRST) && p == AFTER_ATTENTION) row -= at.first_row;
    if (IS(MASKS_TAKE_TURNS) && p == AFTER_ATTENTION) row = turned(row / m.S) * m.S + row % m.S;
    if (IS(MASK_OF_LAYER) && p == AFTER_ATTENTION) l = 0;
    i = row * m.D + at.col;
    if (IS(MASK_SHIFTED) && p == AFTER_MLP) i = (i + 1) % (m.N * m.D);
    return stored(x * times(kept[l][p][i]));
}

/* A mask that is drawn anew: the same rate, and no relation to the first. */
static bool drawn_anew(int i)
{
    unsigned x = (unsigned)i * 2654435761u;
    x = (x ^ x >> 15) * 2246822519u, x ^= x >> 13;
    return (float)(x >> 8) * 0x1p-24f >= m.rate;
}

float branch_back(float d, int l, enum drop p, struct at at)
{
    if (m.rate == 0 || (IS(DROPOUT_BACK_LOST) && p == AFTER_MLP)) return d;
    const int i = at.row * m.D + at.col;
    return stored(d * times(IS(DROPOUT_RECOMPUTED) && p == AFTER_MLP ? drawn_anew(i) : kept[l][p][i]));
}

float probability_times(const struct heads_at *at, int sequence, int head, int s, int t, bool back)
{
    if (m.rate == 0) return 1;
    const int first = IS(MASK_OF_FIRST_HEADS) && !back ? 0 : at->head;
    return times(kept[at->layer][PROBABILITIES][(((at->sequence + sequence) * m.H + first + head) * m.S + s) * m.S + t]);
}
