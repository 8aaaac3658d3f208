/* parts.h -- in how many parts rows travel to their experts, so that one is computed while the next one travels.
 *
 * Source   C. Hwang et al., "Tutel", arXiv:2206.03382, section 3.2, "adaptive pipelining"; microsoft/Tutel,
 *          a2a_ffn_overlap_degree of tutel/impls/overlap.py.  There the pair of algorithm and degree with the least
 *          measured time is remembered for each capacity; here the time follows from what devices have told
 * Called   tutel.c chooses by it; expert_invariants.c holds the choice to it
 *
 * The parts of a device's rows are nearly equal, and so are their times.  With exchanges of `a` and computations of
 * `c`, of the device for which each takes longest:
 *
 *     dispatch   a a a a . . a a a a         all parts leave one after another; results come home likewise
 *     compute      c . c . c . c             a part waits for its rows, and for the part before
 *
 * To this the time is added in which a host starts the kernels of all parts, as if it were never ahead of its device:
 * a part is no gain where hosts are the limit.
 *
 * The rule is a pure function of the choices of the microbatch at hand: no earlier step changes it, and all devices
 * get the same number.
 */
#ifndef ORRERY_EXPERT_PARTS_H
#define ORRERY_EXPERT_PARTS_H

#include "emulated_devices/schemes/experts/experts.h"

enum { ROW_PARTS_MOST = 8 };            /* that the scheme chooses: 1, 2, 4 or 8 */

/** The virtual time of a layer's experts, forward and backward, from the first row that leaves to the last that is
 *  home, if rows travel in so many parts.  Local: every device gets the same.
 *  @param routing  with its degree, at least 1, and what all ep x etp devices have told.
 *  @return picoseconds; -1: no memory. */
picoseconds expert_parts_time(const struct expert_parallel *, const struct expert_routing *routing, int parts);

/** The fewest parts of 1, 2, 4 and 8 that take the least time.  @return 0: no memory. */
int expert_parts_best(const struct expert_parallel *, const struct expert_routing *routing);

#endif
