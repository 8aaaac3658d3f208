/* unrounded.h -- sums as they were before they were rounded, beside the results that they became, for a check.
 *
 * An error of one unit in a sum hardly ever shows in a result with 24 bits.  So a check asks that sums be kept: the
 * operations of this folder then write each finished sum here as well, and so do devices that round sums of several
 * devices.  A result is known by where its numbers lie.
 *
 * Only what is still true is given: sums that do not round to the numbers that lie there belong to an earlier result.
 *
 * products.c and attention.c write sums, device/compute.h those that devices round.  verify/reference/ reads them, on
 * rank 0 those of the one-device run, on each device its own.  All devices of a process share one list, and any thread
 * may call.  If there is no memory, a sum is not kept, and nothing else happens.
 */
#ifndef ORRERY_UNROUNDED_H
#define ORRERY_UNROUNDED_H

#include "ref/numeric/fixed_sum.h"
#include "ref/numeric/tensor.h"

/** From now on sums are kept, until as many calls have ended that.  The last of these frees them. */
void unrounded_begin(void);
void unrounded_end(void);

/** Room for the sums of a result, one for each element, in the place of those of an earlier result.
 *  @param each  results that share a divisor: they are quotients of their sums; 0: they are rounded sums.
 *  @param[out] divisor  room for the divisors, [count / each]; NULL if each is 0.
 *  @return the room, which the caller fills before another call is made for this result; NULL: nothing is kept. */
fixed_sum *unrounded_room(struct tensor result, int64_t each, fixed_sum **divisor);

/** Keep the sums, EXACT, that a result is rounded from. */
void unrounded_note(struct tensor result, struct tensor sums);

/** The sums of a result are those of another, whose numbers are the result's, rounded once more. */
void unrounded_move(struct tensor result, const void *from);

/** Take the sums of a result.  Of a quotient each is the sum of both, modulo 2^128, so that an error in either shows.
 *  @return an EXACT tensor with the result's shape, whose data are for free(); none if they are not kept. */
struct tensor unrounded_take(struct tensor result);

/** Forget what is kept for a place: the memory is free for others. */
void unrounded_drop(const void *place);

#endif
