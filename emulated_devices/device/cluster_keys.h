/* cluster_keys.h -- the most that values of a cluster's description may be, and its links that several devices share.
 *
 * cluster.c reads devices, kernels and levels of links, and calls cluster_shared.c for the shared links.  A wrong key
 * or value is ERR_FORMAT with one line, which begins with `where`.
 */
#ifndef ORRERY_CLUSTER_KEYS_H
#define ORRERY_CLUSTER_KEYS_H

#include "emulated_devices/device/cluster.h"
#include "emulated_devices/device/description.h"

static const int64_t MOST_RATE = 1000000000000;         /* 10^18 a second: units % rate * 10^6 fits 64 bits */
static const int64_t MOST_NS = 1000000000;              /* one second */

/** Read "shared" and "sharing": the links that several devices share.  The levels have been read. */
enum error_code shared_read(struct cluster *, const cJSON *root, const char *where, struct error *);

/** Check that the shared links have places for so many devices.  @return OK or ERR_PLAN. */
enum error_code shared_check(const struct cluster *, int devices, struct error *);

#endif
