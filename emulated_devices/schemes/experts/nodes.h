/* nodes.h -- for schemes that send rows to experts in two steps: between nodes and inside them.
 *
 * alltoall_2dh.c and two_step.c include it.  nodes_open reports ERR_MEMORY; the caller closes the groups.
 */
#ifndef ORRERY_EXPERT_NODES_H
#define ORRERY_EXPERT_NODES_H

#include "emulated_devices/schemes/experts/dispatch.h"

/* The groups in ep->part: of the devices of this node; of those at this one's place of every node. */
enum { INSIDE, ACROSS, NODE_GROUPS };

static inline int node_devices(const struct expert_parallel *ep) { return ep->node; }
static inline int node_count_of(const struct expert_parallel *ep) { return ep->devices / ep->node; }
static inline int own_node(const struct expert_parallel *ep) { return ep->rank / ep->node; }
static inline int own_place(const struct expert_parallel *ep) { return ep->rank % ep->node; }

/** For struct expert_scheme. */
enum error_code nodes_open(struct expert_parallel *, struct error *);
const char *nodes_refuse(const struct expert_parallel *, const struct model_config *);

#endif
