/* segments.h -- how long the segments of pipelined collectives are, and what other lengths would take.
 * cli/bench/segments.c (`orrery bench segments`) calls segments_compare.  No error is possible. */
#ifndef ORRERY_BENCH_SEGMENTS_H
#define ORRERY_BENCH_SEGMENTS_H

#include "emulated_devices/collectives/collective.h"

enum { USUAL_SEGMENT = 32768 };         /* bytes of the fixed length */

struct segments_found {
    uint64_t chosen, best;              /* bytes of a segment */
    picoseconds took, least, usual;     /* with the chosen, the best and the fixed length; usual below 0: too many */
};

/** Compare the lengths for a vector of fp32.  found->usual is negative if the fixed length makes too many segments to
 *  compute their time.  @return whether the algorithm takes the vector on P devices. */
bool segments_compare(struct segments_found *, const struct algorithm *, int P, uint64_t bytes, const struct cluster *);

#endif
