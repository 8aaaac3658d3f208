/* rotary.c -- computes frequencies of rotary positions, and their table of cosines and sines.  model/stage.c,
 * schemes/sbp/operators.c and ref/model/transformer.c fill their tables here.  check/recompute/elementwise.c reads
 * single frequencies.  A table [S, R] has R/2 cosines, then R/2 sines in each row.  No function reports errors. */
#include "ref/model/rotary.h"
#include "ref/exact/scalars.h"
#include "ref/model/kinds.h"
#include <math.h>

#define TWO_PI 6.283185307179586476925

/* The pair, a real number, that turns so often in the original context. */
static double pair_of_turns(const struct rotary *rotary, int64_t R, double turns)
{
    return (double)R * scalar_log((double)rotary->original_positions / (turns * TWO_PI))
           / (2 * scalar_log(rotary->theta));
}

/* How far pair i is on the way from the pairs that turn often to those that turn seldom, from 0 to 1. */
static double yarn_ramp(const struct rotary *rotary, int64_t R, int64_t i)
{
    const double fast = pair_of_turns(rotary, R, rotary->high_frequency),
        slow = pair_of_turns(rotary, R, rotary->low_frequency);
    /* The ramp lies between the pairs that turn high_frequency and low_frequency times in the original context. */
    const double first = fmax(rotary->between_pairs ? fast : floor(fast), 0),
                 last = fmin(rotary->between_pairs ? slow : ceil(slow), (double)(R - 1));
    const double width = first == last ? 0.001 : last - first;          /* as in transformers */
    return fmin(fmax(((double)i - first) / width, 0), 1);
}

double rotary_frequency(const struct rotary *rotary, int64_t R, int64_t i, int64_t S)
{
    const double f = 1 / scalar_power(rotary->theta, (double)(2 * i) / (double)R);
    if (rotary->scaling == SCALING_NONE || rotary->scaling == SCALING_DYNAMIC) return f;
    if (rotary->scaling == SCALING_LINEAR) return f / rotary->factor;
    if (rotary->scaling == SCALING_LONG) return f / (rotary_by_length(rotary, S) ? rotary->longer : rotary->shorter)[i];
    /* Pairs that turn often keep their frequency, others are slowed down by the factor. */
    if (rotary->scaling == SCALING_YARN) {
        const double ramp = yarn_ramp(rotary, R, i);
        return f / rotary->factor * ramp + f * (1 - ramp);
    }
    /* Llama 3: the same three zones, by turns in the original context. */
    const double turns = (double)rotary->original_positions * f / TWO_PI;
    if (turns > rotary->high_frequency) return f;
    if (turns < rotary->low_frequency) return f / rotary->factor;
    const double smooth = (turns - rotary->low_frequency) / (rotary->high_frequency - rotary->low_frequency);
    return (1 - smooth) * (f / rotary->factor) + smooth * f;
}

double rotary_size(const struct rotary *rotary)
{
    return rotary->scaling == SCALING_YARN || rotary->scaling == SCALING_LONG ? rotary->enlarged : 1;
}

int64_t rotary_table_width(const struct model_config *config) { return config->rotary.turned ? config->rotary.turned
                                                               : config->A; }

void rotary_table(const struct rotary *rotary, struct tensor table)
{
    const int64_t S = tensor_rows(table), R = tensor_cols(table), half = R / 2;
    const double size = rotary_size(rotary);
    for (int64_t i = 0; i < half; i++) {
        /* table[p] = size cos(p f_i) for each pair, then size sin(p f_i). */
        const double f = rotary_frequency(rotary, R, i, S);
        for (int64_t p = 0; p < S; p++) {
            double sine, cosine;
            scalar_turn((double)p * f, &sine, &cosine);
            tensor_set(table, p * R + i, size * cosine);
            tensor_set(table, p * R + half + i, size * sine);
        }
    }
}
