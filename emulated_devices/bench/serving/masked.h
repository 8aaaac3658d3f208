/* masked.h -- several tokens at once from a masked-diffusion model: what a policy loses, exactly.
 *
 * Such a model has, for each masked place, the distribution of its token given those that are there.  A pass takes
 * several places, each by itself.  Places that depend on one another are then drawn as if they did not.
 *
 * Here the model is exact.  A task has a list of right answers, all equally likely; a place's distribution counts those
 * that agree with what is there.  So validity and loss are sums over answers, without drawing:
 *
 *   validity   probability that the answer is right
 *   loss       KL of the answers from those decoded: the sum over passes of the conditional total correlation of the
 *              places taken, sum H(y_i | X) - H(y | X)
 *
 * Policies say which places a pass takes, in blocks from the left, or in one block of all.  Confidence is the largest
 * probability of a place; equals are taken from the left.
 *
 *   random       as many places in each pass, any of them
 *   confidence   as many, the most confident ones
 *   threshold    all whose confidence is at least a threshold, and at least the most confident one
 *   factor       the longest list c_1 >= c_2 .. of confidences with c_n >= 1 - factor/(n + 1), and at least one
 *
 * Source  tasks and question: "ParallelBench: understanding the trade-offs of parallel decoding in diffusion LLMs",
 *         arXiv:2510.04767; policies: LLaDA, arXiv:2502.09992 (generate.py), and Fast-dLLM, arXiv:2505.22618.
 *
 * masked_claims.c and tests call these functions.  The code is pure.
 */
#ifndef ORRERY_MASKED_H
#define ORRERY_MASKED_H

#include "ref/error.h"
#include <stdbool.h>
#include <stdint.h>

enum { MASKED_MOST = 16, MASKED = -1 };         /* places of a task; a place without a token */

struct masked_task {
    const char *name;
    int length, words;                  /* places; tokens that each may have */
    int64_t count;                      /* right answers */
    int8_t *answer;                     /* [count, length] */
};

/** Names of tasks that can be made; ends with NULL. */
extern const char *const masked_tasks[];

/**
 * Make a task of n items: copy, reverse, sort, replace-index (a given item becomes a new one), with one right answer;
 * replace-random (any item), remove-random, insert-random (a new item anywhere), shuffle; latin-square of n x n.
 * @param seed  of the items' order.  @return OK; ERR_USAGE for an unknown name or too many places; ERR_MEMORY.
 */
enum error_code masked_task_make(struct masked_task *, const char *name, int n, uint64_t seed, struct error *);
void masked_task_free(struct masked_task *);

enum masked_order { ORDER_RANDOM, ORDER_CONFIDENCE, ORDER_THRESHOLD, ORDER_FACTOR };
struct masked_policy {
    enum masked_order order;            /* which places */
    int steps;                          /* passes of a block; the first ones take one place more if they must */
    double threshold;                   /* or the factor */
    int block;                          /* places; 0: all */
};

/* Averages of a policy over all answers. */
struct masked_result { double validity, loss, passes; };

/** Sum over all answers.  @param seed  of random places.  @return OK or ERR_MEMORY. */
enum error_code masked_evaluate(const struct masked_task *, const struct masked_policy *, uint64_t seed,
                                struct masked_result *, struct error *);

/** Decode once.  @param[out] token  [length]; MASKED where no right answer agreed any more.
 *  @return whether the answer is right. */
bool masked_decode(const struct masked_task *, const struct masked_policy *, uint64_t seed, int8_t *token);

/** The places that a pass takes.  Pure.
 *  @param p      [length, words] distributions.
 *  @param token  [length] what is there.
 *  @param pass   its number, from 0.
 *  @param[out] place  [length]  @return how many; 0: nothing is masked. */
int masked_choose(const struct masked_task *, const struct masked_policy *, const double *p, const int8_t *token,
                  int pass, uint64_t seed, int *place);

/** Loss and validity of a uniform shuffle of n in one pass: n ln n - ln n!, n!/n^n. */
struct masked_result masked_shuffle_formula(int n);

#endif
