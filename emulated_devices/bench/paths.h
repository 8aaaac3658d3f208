/* paths.h -- paths of flows through a network of two levels, hashed and assigned globally, as C4P does (J. Dong et al.,
 * HPCA 2025).
 *
 * Leaves have hosts, and each leaf has a link to each spine and back.  A flow from a host to a host of another leaf
 * takes one spine: the link up from its leaf, and the link down to the other.  A hash of the pair chooses as ECMP does,
 * so that some links get several of the few long flows of a training job and others none.  Who knows all flows can
 * colour them: flows of a leaf, out and in, get as even shares of the spines as there are (D. Koenig, 1916: a bipartite
 * graph needs as many colours as a vertex has edges at most).  cli/bench/paths.c and tests call these functions.
 */
#ifndef ORRERY_BENCH_PATHS_H
#define ORRERY_BENCH_PATHS_H

#include "emulated_devices/device/cluster.h"

enum { PATHS_MOST_LEAVES = 64, PATHS_MOST_HOSTS = 64, PATHS_MOST_SPINES = 64 };

struct clos { int leaves, hosts, spines; };             /* hosts of a leaf */
struct path_flow { int from, to, spine; };              /* hosts, numbered through all leaves; the spine taken */

/** Rings over hosts in a random order: each host sends to the next of its ring.  @param rings  of equal lengths;
 *  divides the hosts.  @param[out] flow  [hosts] with -1 as spine.  @return flows between leaves, which come first. */
int paths_rings(const struct clos *, int rings, uint64_t seed, struct path_flow *flow);

/** Let the hash of each pair choose. */
void paths_hash(const struct clos *, struct path_flow *flow, int flows);

/** Assign all flows together.  @return OK or ERR_MEMORY. */
enum error_code paths_assign(const struct clos *, struct path_flow *flow, int flows, struct error *);

/** Flows on the busiest link. */
int paths_busiest(const struct clos *, const struct path_flow *flow, int flows);

/** The least that any assignment can reach: the most flows of a leaf, out or in, over the spines, rounded up. */
int paths_least(const struct clos *, const struct path_flow *flow, int flows);

/** When the last of the flows has arrived, all starting together, in virtual time: links are shared as network.h says.
 *  @param rate  of a host's port and of each link, 10^6 bytes a second.  @return OK or ERR_MEMORY. */
enum error_code paths_time(const struct clos *, const struct path_flow *flow, int flows, uint64_t bytes, int64_t rate,
                           picoseconds *time, struct error *);

#endif
