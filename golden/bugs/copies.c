/* copies.c -- more ranks along tp than heads of keys and values.  Query heads are shared out as evenly as it goes, and a rank has the keys
 * and values of its query heads: so several ranks have copies of a head.  What comes back to a copy is from its own rank's queries.  A program
 * adds that up behind attention (`copies summed`: all of them then have the whole), or only the gradients of weights (`copies parts`).
 */
#include "slots.h"
#include <stdlib.h>
#include <string.h>

/* Heads of keys and values that a rank has. */
static int first_kv(int t) { return heads_begin(t) / (m.H / m.K); }
static int end_kv(int t) { return (heads_begin(t + 1) - 1) / (m.H / m.K) + 1; }
static bool has_kv(int t, int kv) { return kv >= first_kv(t) && kv < end_kv(t); }

bool copies_any(void)
{
    for (int t = 1; t < set.tp; t++)
        if (first_kv(t) < end_kv(t - 1)) return true;
    return false;
}

/* Where element a of a head of keys, or of values, is among the columns of rank t. */
static int column_of(int t, int kv, bool value, int a)
{
    const int heads = heads_begin(t + 1) - heads_begin(t), own = end_kv(t) - first_kv(t);
    return (heads + (value ? own : 0) + kv - first_kv(t)) * m.A + a;
}

/* The sum of what copies have in a row of x[t], `ld` apart; each copy then has it. */
static void sum_row(float *x[], const int ld[], int row, int stride, bool rounded)
{
    for (int kv = 0; kv < m.K; kv++)
        for (int i = 0; i < 2 * m.A; i++) {
            float sum = 0;
            for (int k = 0; k < set.tp; k++) {
                const int t = set.order == REVERSED ? set.tp - 1 - k : k;
                if (has_kv(t, kv)) sum += x[t][row * ld[t] + column_of(t, kv, i >= m.A, i % m.A) * stride];
            }
            for (int t = 0; t < set.tp; t++)
                if (has_kv(t, kv)) x[t][row * ld[t] + column_of(t, kv, i >= m.A, i % m.A) * stride] = rounded ? stored(sum) : sum;
        }
}

/* Behind attention's backward pass. */
void copies_sum(int l, enum slot s)
{
    float *x[MOST_RANKS];
    int ld[MOST_RANKS];
    for (int d = 0; d < set.dp; d++) {
        for (int t = 0; t < set.tp; t++) x[t] = G(d * set.tp + t, l, s), ld[t] = width(d * set.tp + t, QKV);
        for (int n = 0; n < rows_of(d * set.tp) && !IS(COPIES_NOT_REDUCED); n++) sum_row(x, ld, n, 1, true);
    }
}

/* A rank's gradient of queries, keys and values, where only the first of several copies counts.  The caller frees it. */
float *copies_once(int r, int l, enum slot s)
{
    const int wide = width(r, QKV), t = rank[r].tp;
    float *x = malloc(sizeof *x * (size_t)rows_of(r) * wide);
    if (x == NULL) exit(1);
    memcpy(x, G(r, l, s), sizeof *x * (size_t)rows_of(r) * wide);
    for (int kv = first_kv(t); kv < end_kv(t); kv++)
        for (int n = 0; n < rows_of(r) && t > 0 && has_kv(t - 1, kv); n++)
            for (int i = 0; i < 2 * m.A; i++) x[n * wide + column_of(t, kv, i >= m.A, i % m.A)] = 0;
    return x;
}

/* The gradients of the weights, if copies have parts of them: rows of keys and values, and of their bias. */
void copies_sum_weights(void)
{
    for (int p = 0; p < params; p++) {
        const int cols = param[p].cols;
        if (param[p].row_axis != OF_QKV) continue;
        const bool last = strstr(param[p].name, "layers.1.") != NULL, again = IS(COPIES_SUMMED_AGAIN) && last;
        for (int d = 0; d < set.dp && !(IS(COPIES_NOT_SUMMED) && last); d++)
            for (int c = 0; c < cols; c++) {
                float *x[MOST_RANKS];
                const int zero[MOST_RANKS] = { 0 };
                for (int t = 0; t < set.tp; t++) x[t] = rank[d * set.tp + t].dw[p] + c;
                for (int k = 0; k < 1 + again; k++) sum_row(x, zero, 0, cols, false);
            }
    }
}

/* Whether a row of queries, keys and values is a copy of what a rank before has. */
bool is_copy(int t, int row)
{
    const int head = row / m.A - m.H;
    return head >= 0 && t > 0 && has_kv(t - 1, head % m.K);
}

/* The columns of queries that a rank has, and of one of its heads of keys and values; copies: the ranks that have it. */
int copies_cut(int t, int piece, struct cut *cut, struct cut *copies)
{
    const int kv = first_kv(t) + piece - 1;
    *cut = *copies = (struct cut){ 0 };
    if (piece == 0) extend(cut, heads_begin(t) * m.A, heads_begin(t + 1) * m.A);
    else {
        extend(cut, (m.H + kv) * m.A, (m.H + kv + 1) * m.A), extend(cut, (m.H + m.K + kv) * m.A, (m.H + m.K + kv + 1) * m.A);
        for (int k = 0; k < set.tp; k++)
            if (has_kv(k, kv)) extend(copies, k, k + 1);
    }
    return 1 + end_kv(t) - first_kv(t);
}
