/* tracking.h -- for numbers that are quantised when they are sent: their exact values and bounds of their errors.
 *
 * For checks only.  Its memory is not the device's; its messages count as CONTROL and take no virtual time.  Bounds are
 * computed from the scales and magnitudes of the numbers sent, by the rules in quantised.h; none is measured.
 * quantised.c, quantised_ring.c and schemes/data/stages/ call these functions.
 */
#ifndef ORRERY_TRACKING_H
#define ORRERY_TRACKING_H

#include "emulated_devices/comm/comm.h"
#include "ref/numeric/block_quantise.h"
#include "ref/numeric/tensor.h"

/* Two arrays of the row's length: the sum without quantising, and a bound of |row - exact|. */
struct tracking { double *exact, *bound; };          /* from tracking_open: bound directly follows exact */

static inline bool tracked(struct tracking tracking) { return tracking.exact != NULL; }
static inline struct tracking tracking_from(struct tracking tracking, int64_t first)
{
    return tracked(tracking) ? (struct tracking){ tracking.exact + first, tracking.bound + first } : tracking;
}

/** Allocate the arrays for n elements, all zero.  @return OK or ERR_MEMORY. */
enum error_code tracking_open(struct tracking *, int64_t n, struct error *);
void tracking_close(struct tracking *);

/** Set n exact values and bounds to 0. */
void tracking_clear(struct tracking, int64_t n);

/** Start: the current values of x are exact. */
void tracking_start(struct device *, struct tracking, struct tensor x);

/**
 * Row x was added to row `into`: adds exact values and bounds, plus the rounding of each sum, whose result is `now`.
 */
void tracking_add(struct device *, struct tracking into, struct tracking tracking, struct tensor now);

/**
 * The error of one message with codes: block_add_bounds(), plus the rounding to fp32 if `from` is F64.
 * @param[in,out] bound, magnitude  [n] bound grows by the error, magnitude by |value|.
 * @param value  [n] the dequantised values, in F64.
 */
void tracking_add_codes(double *bound, double *magnitude, const void *code, struct block_format, struct tensor value,
                        enum dtype from);

/** m values were rounded to a format and added in it.  Each number was rounded at most m times, so bounds grow by
 *  m u / (1 - m u) sum |value|; in fp16 also by half the smallest number per value, because values may underflow. */
void tracking_add_rounding(double *bound, const double *magnitude, int64_t n, int m, enum dtype);

/** The numbers in x were rounded to the format of x. */
void tracking_add_storing(struct device *, double *bound, struct tensor x);

/**
 * Sums over members, scattered: member j gets the sums of its `each` segments of n elements: j, j + P, .. of x.
 * Collective over the group.
 * @param[out] y  [each n]
 */
enum error_code tracking_scatter(struct group *, struct tracking x, int64_t n, int64_t each, struct tracking y,
                                 struct error *);

/**
 * All-reduce over some members of a group, for numbers that these members have added without quantising.
 * Collective over those members: `members` of them, listed in `member`; NULL: the first ones.
 * @param[in,out] tracking  [n]  @param sum  the computed sums.
 */
enum error_code tracking_sum(struct exchange *, int members, const int *member, struct tracking tracking,
                             struct tensor sum, struct error *);

#endif
