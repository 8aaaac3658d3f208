#include "ref/model/rotary.h"
#include <math.h>

#define TWO_PI 6.283185307179586476925

double rotary_frequency(const struct rotary *r, int64_t R, int64_t i)
{
    const double f = 1 / pow(r->theta, (double)(2 * i) / (double)R);
    if (r->scaling == SCALING_NONE || r->scaling == SCALING_DYNAMIC) return f;
    if (r->scaling == SCALING_LINEAR) return f / r->factor;
    const double turns = (double)r->original_positions * f / TWO_PI;
    if (turns > r->high_frequency) return f;
    if (turns < r->low_frequency) return f / r->factor;
    const double smooth = (turns - r->low_frequency) / (r->high_frequency - r->low_frequency);
    return (1 - smooth) * (f / r->factor) + smooth * f;
}

int64_t rotary_table_width(const struct model_config *c) { return c->rotary.turned ? c->rotary.turned : c->A; }

void rotary_table(const struct rotary *r, struct tensor table)
{
    const int64_t S = tensor_rows(table), R = tensor_cols(table), half = R / 2;
    for (int64_t i = 0; i < half; i++) {
        const double f = rotary_frequency(r, R, i);
        for (int64_t p = 0; p < S; p++) {
            tensor_set(table, p * R + i, cos((double)p * f));
            tensor_set(table, p * R + half + i, sin((double)p * f));
        }
    }
}
