/* tracking.h -- beside numbers that are quantised on their way: what they would be, and how far they can be off.
 *
 * For checking only.  It lies outside the device's memory; what members tell each other of it is counted as CONTROL and
 * takes no virtual time.  Every bound is made of scales and sizes of what did travel, by the rules in quantised.h; none
 * is measured.
 */
#ifndef ORRERY_TRACKING_H
#define ORRERY_TRACKING_H

#include "emulated_devices/comm/comm.h"
#include "ref/numeric/block_quantise.h"
#include "ref/numeric/tensor.h"

/* Two arrays as long as the row they stand beside: the sum without any quantising, and a bound for |row - exact|. */
struct tracking { double *exact, *bound; };          /* of tracking_open: one right behind the other */

static inline bool tracked(struct tracking t) { return t.exact != NULL; }
static inline struct tracking tracking_from(struct tracking t, int64_t first)
{
    return tracked(t) ? (struct tracking){ t.exact + first, t.bound + first } : t;
}

/** Room beside n elements, all zero.  @return OK or ERR_MEMORY. */
enum error_code tracking_open(struct tracking *, int64_t n, struct error *);
void tracking_close(struct tracking *);

/** Nothing is there: n numbers that are 0, exactly. */
void tracking_clear(struct tracking, int64_t n);

/** Begin: what is there now is exact. */
void tracking_start(struct device *, struct tracking, struct tensor x);

/**
 * Row `into` has taken x in: its sums and bounds add up, and the rounding of each sum, of which `now` is the result.
 */
void tracking_add(struct device *, struct tracking into, struct tracking x, struct tensor now);

/**
 * What one message with codes allows: block_add_bounds(), and the rounding of fp64 to fp32 if they were made of that.
 * @param[in,out] bound, magnitude  [n] the former grows by that, the latter by |value|.
 * @param value  [n] what the codes stand for, in F64.
 */
void tracking_add_codes(double *bound, double *magnitude, const void *code, struct block_format, struct tensor value,
                        enum dtype from);

/** m such values were rounded to a format and added up in it: each number has been rounded at most m times, so that
 *  m u / (1 - m u) sum |value| is added to bounds; in fp16 also half the smallest number for each
 *  value, which may underflow. */
void tracking_add_rounding(double *bound, const double *magnitude, int64_t n, int m, enum dtype);

/** Numbers were rounded to the format in which they now are in x. */
void tracking_add_storing(struct device *, double *bound, struct tensor x);

/**
 * Sums over members: to member j those of its `each` segments of n elements, which are j, j + P, .. of x.
 * Collective over the group.
 * @param[out] y  [each n]
 */
enum error_code tracking_scatter(struct group *, struct tracking x, int64_t n, int64_t each, struct tracking y,
                                 struct error *);

/**
 * Sums over some members of a group, on all of them, of numbers that these have added up without quantising them.
 * Collective over those members: `members` of them, which `member` lists; NULL: the first ones.
 * @param[in,out] t  [n]  @param sum  the sums as they are now.
 */
enum error_code tracking_sum(struct exchange *, int members, const int *member, struct tracking t, struct tensor sum,
                             struct error *);

#endif
