/* cluster_svg.h -- a described machine as an SVG document.  cluster.c calls cluster_svg through svg_file. */
#ifndef ORRERY_SHOW_CLUSTER_SVG_H
#define ORRERY_SHOW_CLUSTER_SVG_H

#include "emulated_devices/device/cluster.h"
#include <stdio.h>

/** The levels of the machine as boxes in boxes, and the time of a message over its bytes, a line for each level.
 *  @param cluster  a struct cluster.  @return OK or ERR_FILE. */
enum error_code cluster_svg(FILE *, const void *cluster, struct error *);

/** The time of a message that meets no other. */
static inline picoseconds cluster_message_time(const struct link *link, uint64_t bytes)
{
    return link->latency + link->gap + time_at_rate(bytes, link->rate);
}

#endif
