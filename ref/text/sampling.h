/* sampling.h -- the next token, drawn from a model's logits.
 *
 * In the order of the released code (`generate` of Hugging Face transformers, logits_process.py): scores are divided by
 * the temperature; of them the k largest stay, and those equal to the smallest of these; of these the fewest that have
 * the probability p together, and at least one. A token is then drawn by random_uniform(seed, "sample", i) for the i-th
 * that is drawn, from 0: the first whose probability, with those of all smaller tokens, is above that number.
 *
 * generate.c calls both functions for each token.
 */
#ifndef ORRERY_SAMPLING_H
#define ORRERY_SAMPLING_H

#include "ref/error.h"
#include "ref/numeric/tensor.h"

struct sampling {
    double temperature;                 /* 0: always the largest, the first of equals */
    int64_t top_k;                      /* 0: all */
    double top_p;                       /* 1: all */
    uint64_t seed;                      /* of the draws; the same seed gives the same text */
};

/**
 * The probability of each token after a row of logits.
 * @param logits  [rows,V], any number format.
 * @param row     which of them.
 * @param[out] p  [V], which add up to 1 but for rounding; 0 for those that cannot be drawn.
 * @return OK; ERR_DIVERGED if no logit is finite or one is NaN; ERR_MEMORY.
 */
enum error_code sampling_distribution(const struct sampling *, struct tensor logits, int64_t row, double *p,
                                      struct error *);

/** The token that a number u in [0,1) draws from probabilities p [V]. */
int32_t sampling_draw(const double *p, int64_t V, double u);

#endif
