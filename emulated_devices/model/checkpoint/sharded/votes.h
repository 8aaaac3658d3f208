/* votes.h -- all devices agree on one outcome in two phases, by the nodes of the cluster.
 *
 *     device -> node -> all     each device tells its node's first device what it has done, that one tells rank 0
 *     all -> node -> device     rank 0 tells the first devices of nodes what that means, these tell their devices
 *
 * A node's first device sends rank 0 one message for all of its devices.  All messages are CONTROL, which take no
 * virtual time.
 *
 * Source   A. Maurya et al., "DataStates-LLM: lazy asynchronous checkpointing for large language models", HPDC 2024,
 *          doi:10.1145/3625549.3658685: a hierarchical two-phase commit in which the devices' files become one
 *          checkpoint
 *
 * meanwhile.c calls these functions.
 */
#ifndef ORRERY_VOTES_H
#define ORRERY_VOTES_H

#include "emulated_devices/comm/comm.h"

struct votes {
    struct comm *comm;                  /* of all devices; the caller's */
    int *first;                         /* [devices] the first device of each one's node */
    struct group node, firsts;          /* the devices of this node; the first devices of all nodes */
    bool leads;                         /* this device is its node's first */
};

/** Make the groups.  Collective over all devices, without a message.
 *  @return OK or ERR_MEMORY; votes_close works after both. */
enum error_code votes_open(struct votes *, struct comm *, const struct cluster *, struct error *);
void votes_close(struct votes *);

/** The first phase: bring each device's vote to rank 0, node by node.  Collective over all devices.
 *  @param bytes     of a vote.
 *  @param[out] all  [devices][bytes] by rank, on rank 0; not used elsewhere.
 *  @return OK, ERR_COMM or ERR_MEMORY. */
enum error_code votes_bring(struct votes *, const void *own, uint64_t bytes, void *all, struct error *);

/** The second phase: tell every device what rank 0 has decided, node by node.  Collective over all devices.
 *  @param[in,out] decision  [bytes], read on rank 0, written elsewhere.  @return OK or ERR_COMM. */
enum error_code votes_tell(struct votes *, void *decision, uint64_t bytes, struct error *);

#endif
