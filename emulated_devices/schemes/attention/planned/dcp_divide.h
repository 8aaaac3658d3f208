/* dcp_divide.h -- gives the blocks and works of a plan to devices, so that little is sent and all have equal work.
 *
 * Devices are a tree: groups of nodes, the nodes of a group, the devices of a node.  From its root on, what is at a
 * branch is a hypergraph (hypergraph.h) that is divided among its next branches:
 *
 *     32 devices, 4 of a node           all of them, blocks four by four
 *     8 nodes: one division           /    |    ...  \
 *     4 devices of each: 8 more     node  node       node, blocks one by one
 *
 * So slow links between nodes come first, and a division has few parts and vertices however many devices there are: of
 * many blocks neighbours in a sample are one vertex, as a multilevel partitioner makes them.
 *
 * dcp.c calls it.  A pure function of its arguments: every device gets the same plan.
 */
#ifndef ORRERY_ATTENTION_DCP_DIVIDE_H
#define ORRERY_ATTENTION_DCP_DIVIDE_H

#include "emulated_devices/schemes/attention/planned/context_plan.h"

/* Blocks and works without a device.  Works are by query, then by key; the blocks of a sample follow one another. */
struct dcp_pieces {
    struct context_plan *plan;          /**< Plan that receives homes and devices. */
    const struct context_load *load;    /**< Samples whose tokens are divided. */
    const int *sample;                  /* [blocks] the first block of the block's sample */
    const int64_t *pairs;               /* [works] of tokens that see each other */
    int node;                           /* devices that are divided last; all of them: nodes are left out, and up to 64
                                         * devices are divided at once */
};

/**
 * Set the home of each block, and the device of each work.
 * Local, pure.
 * @return OK, or ERR_MEMORY with some of them set.
 */
enum error_code dcp_divide(const struct dcp_pieces *, struct error *);

#endif
