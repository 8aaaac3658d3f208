/* simgrid.h -- a described cluster as a platform of SimGrid, another simulator of networks (docs/plans/simgrid.md).
 *
 * Devices become hosts "0", "1", ..; an operation of a host takes a picosecond.  Each port and each shared link becomes
 * a link, and every pair of devices has a route over those that our messages use (network.h).  Latencies are links of
 * their own, which nobody has to share.  The file also sets SimGrid's options: bytes take the time that the links say,
 * no more, and messages above the limit of the last level wait for their receiver.
 *
 * What SimGrid has no word for is left out, or is as near as it can be:
 *
 *   gap          a part of the latency: messages that follow each other do not wait for each other's
 *   in order     links are shared fairly
 *   contention, progress none, speeds of devices: not there
 *
 * cli/show/cluster.c calls, for `orrery show cluster`. Nothing is computed here but the network's links and ways.
 */
#ifndef ORRERY_DRAW_SIMGRID_H
#define ORRERY_DRAW_SIMGRID_H

#include "emulated_devices/device/cluster.h"
#include <stdio.h>

/** Write the platform of the cluster's first devices, as XML.  @return OK or ERR_MEMORY. */
enum error_code simgrid_platform(FILE *, const struct cluster *, int devices, struct error *);

#endif
