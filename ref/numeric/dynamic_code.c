/* dynamic_code.c -- the table of 8-bit codes of bitsandbytes, and the code of a number.
 *
 * optim/galore_codes.c calls this file.  No function here can fail; the table is computed, since it has only 256
 * numbers.
 */
#include "ref/numeric/dynamic_code.h"
#include <math.h>
#include <stdlib.h>

enum { DECADES = 7 };

/* Where part k of n equal parts from 0.1 to 1 begins, counted from the nearer end; one rounding, to fp32. */
static float edge(int k, int n)
{
    const float from = 0.1f, step = (1 - from) / (float)n;
    return (float)(k < (n + 1) / 2 ? from + (double)step * k : 1 - (double)step * (n - k));
}

static int ascending(const void *a, const void *b)
{
    const float x = *(const float *)a, y = *(const float *)b;
    return (x > y) - (x < y);
}

/* Values are sorted, so that codes ascend with them; middle[c] separates code c from code c + 1. */
struct dynamic_table dynamic_table_of(bool has_signs)
{
    struct dynamic_table t = { .has_signs = has_signs };
    int count = 0;
    for (int i = 0; i < DECADES; i++) {
        /* Decade i has 2^i values (2^(i+1) without signs): larger numbers get finer steps. */
        const int parts = 1 << (i + !has_signs);
        const float decade = (float)pow(10, i - DECADES + 1);
        for (int k = 0; k < parts; k++) {
            /* Each value is the middle of a part, rounded to fp32. */
            const float sum = edge(k, parts) + edge(k + 1, parts), value = decade * (sum / 2);
            t.value[count++] = value;
            if (has_signs) t.value[count++] = -value;
        }
    }
    t.value[count++] = 0, t.value[count++] = 1;
    qsort(t.value, (size_t)count, sizeof t.value[0], ascending);
    for (int c = 0; c + 1 < count; c++) {
        const float sum = t.value[c] + t.value[c + 1];
        t.middle[c] = sum / 2;
    }
    return t;
}

/* How many middles lie below x: a number in the middle has the even code. */
static int nearest(const struct dynamic_table *table, double x)
{
    int first = 0, end = DYNAMIC_CODES - 1;
    while (first < end) {
        /* A binary search finds the first middle that is not below x. */
        const int c = (first + end) / 2;
        if (c % 2 == 0 ? x > table->middle[c] : x >= table->middle[c]) first = c + 1;
        else end = c;
    }
    return first;
}

uint8_t dynamic_code(const struct dynamic_table *table, double x, double quotient)
{
    const int c = nearest(table, quotient);
    /* The nearest value may have lost the sign of a small number; its neighbour has it. */
    const bool lost = table->has_signs && !signbit(table->value[c]) != !signbit(x);
    return (uint8_t)(lost ? c + (x > 0 ? 1 : -1) : c);
}
