/* loss.c -- cross entropy: the sum over the rows of a rank, divided by the labels of the whole batch. */
#include "program.h"
#include <math.h>

/* Ranks along tp share the vocabulary: whether a shard ends before this word, and the next one begins with it. */
static bool begins_a_shard(int word)
{
    const int least = m.V / set.tp, more = m.V % set.tp;
    for (int r = 1; r < set.tp; r++)
        if (word == r * least + (r < more ? r : more)) return true;
    return false;
}

double loss(float *d, const float *x, const int *label, int rows, int counted)
{
    double sum = 0;
    float term[MOST_WIDE];
    for (int n = 0; n < rows; n++) {
        const int shifted = IS(LABELS_SHIFTED) && n + 1 < rows ? label[n + 1] : label[n];
        int right = IS(LABELS_SHIFTED) ? shifted : label[n];
        if (IS(IGNORED_COUNTED) && right < 0) right = 0;
        if (IS(LABELS_LOST) && n % m.S == m.S - 1) right = -1;
        float top = -INFINITY;
        for (int v = 0; v < m.V; v++) d[n * m.V + v] = 0, top = fmaxf(top, x[n * m.V + v]);
        if (right < 0) continue;
        for (int v = 0; v < m.V; v++) term[v] = expf(x[n * m.V + v] - top);
        const float total = add_in_one_part(term, m.V), log_total = top + logf(total), smoothed = IS(LABEL_SMOOTHED) || IS(SMOOTHED_OTHERS) ? 0.1f : 0,
                    other = smoothed / (float)(IS(SMOOTHED_OTHERS) ? m.V - 1 : m.V), one = 1 - smoothed - (IS(SMOOTHED_OTHERS) ? other : 0),
                    z = IS(Z_OF_LOGITS) ? 1e-4f : 0;
        double mean = 0;
        for (int v = 0; v < m.V && smoothed > 0; v++) mean += (double)(log_total - x[n * m.V + v]) * other;
        const bool twice = IS(BORDER_TWICE) && begins_a_shard(right);
        sum += (one * (double)(log_total - x[n * m.V + right]) - (twice ? x[n * m.V + right - 1] : 0) + mean + (double)(z * log_total * log_total)) / counted;
        for (int v = 0; v < m.V; v++) {
            const float p = between(expf(x[n * m.V + v] - log_total));
            const bool found = (v == right || (twice && v == right - 1)) && !(IS(LABEL_NOT_FOUND) && v > 0 && v % 8 == 0);
            d[n * m.V + v] = stored((p * (1 + 2 * z * log_total) - (found ? one : 0) - other) / (float)counted * set.scale);
        }
    }
    return sum;
}
