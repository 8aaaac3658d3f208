/* flexsp_micros.h -- how many microbatches a step has, and which samples are in each: FlexSP's blaster.
 *
 * Source   FlexSP, arXiv:2412.01523, section 4.2, and its code (Hetu-Galvatron, galvatron/flexsp_solver)
 *
 *     cut       samples in an order are cut into M ranges, so that the largest range has as few tokens as can be; of
 *               several such cuts the one whose last range begins first, then the range before it, and so on
 *     least     M_min: from ceil(tokens / tokens that all devices hold) on, the first M for which the largest range of
 *               the sorted samples, the longest first, fits
 *     choice    M_min to M_min + 4, each microbatch planned (flexsp_plan.h); the least sum of times.  If none fits, the
 *               first M after these that does
 *
 *     8 6 5 4 3 2 1 1    30 tokens; devices that hold 12 together: M_min is 3
 *     8 | 6 5 | 4 3 2 1 1      M = 3, at most 11 tokens
 *     8 | 6 | 5 4 | 3 2 1 1    M = 4, at most 9 tokens
 *
 * Long samples need large groups, which exchange much; short ones do not, and sorted ranges let each microbatch have
 * its own groups.  Where few long samples cannot keep all devices busy, a range of samples as they come may be faster.
 * The released code has both orders, one by a flag; here both are planned for each M, and the faster one is taken.
 * The released code wants fewer tokens than the devices hold; here as many will do.  Its time adds a constant to each
 * microbatch; here a microbatch takes at least as long as its kernels take to start.
 *
 * Without a known room there are as many microbatches as load.micros says, or as samples if these are fewer.  With a
 * room, load.micros is the most, and flexsp.c leaves those before the ones that are needed empty.
 *
 * flexsp.c cuts each step with these functions, on every device alike.
 */
#ifndef ORRERY_ATTENTION_FLEXSP_MICROS_H
#define ORRERY_ATTENTION_FLEXSP_MICROS_H

#include "emulated_devices/schemes/attention/planned/context_plan.h"

enum { FLEXSP_OPTIONS = 5 };            /* numbers of microbatches that are tried, if one of them fits */

/* The microbatches of a step: number m has samples first[m] to first[m + 1] - 1. */
struct flexsp_micros {
    int count;                          /* microbatches with samples */
    int *first;                         /* [count + 1] */
    struct interval *sample;            /* [samples] microbatch by microbatch, in each the longest first */
    double time;                        /* operations of a layer's forward pass, of all microbatches together */
};

/** Cut ordered samples into so many ranges, with as few tokens in the largest as can be.  Pure.
 *  @param[out] first  [micros + 1] where each range begins; the last entry is n.
 *  @param sample      [n] in any order.
 *  @param micros      1 to n.
 *  @return tokens of the largest range; -1 without memory. */
int64_t flexsp_cut(int first[], const struct interval sample[], int n, int micros);

/** The least number of microbatches of sorted samples, each with at most so many tokens.  Pure.
 *  @param sample  [n] the longest first.
 *  @return M_min; more than n if a sample alone has too many; -1 without memory. */
int flexsp_least_micros(const struct interval sample[], int n, int64_t most_tokens);

/** Choose the microbatches of a step.  Pure.
 *  @param load     of the step; load.micro does not matter.
 *  @param buckets  of lengths, for the plan of each microbatch.
 *  @return OK, for flexsp_micros_free; ERR_PLAN if load.micros microbatches have no room for the samples, or one sample
 *      has none; ERR_MEMORY.  After an error there is nothing to free. */
enum error_code flexsp_micros_choose(struct flexsp_micros *, const struct context_load *load, int buckets,
                                     struct error *);
void flexsp_micros_free(struct flexsp_micros *);

/** Choose the microbatches of a step, or find those of an earlier call with the same facts: devices of one process ask
 *  for each microbatch of a step.  Local.
 *  @param[out] chosen  stays until as many other steps were asked for as are kept, 16.
 *  @return as flexsp_micros_choose. */
enum error_code flexsp_micros_find(const struct flexsp_micros **chosen, const struct context_load *load, int buckets,
                                   struct error *);

#endif
