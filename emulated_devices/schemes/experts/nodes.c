/* nodes.c -- the two groups of nodes.h, for alltoall_2dh.c and two_step.c; model/trainer_open.c calls nodes_open
 * through the scheme.  Errors are those of a group: ERR_MEMORY, ERR_USAGE. */
#include "emulated_devices/schemes/experts/nodes.h"

enum error_code nodes_open(struct expert_parallel *ep, struct error *err)
{
    /* Members are listed by rank, so all devices of a group list them in one order. */
    int member[NODE_GROUPS][MESH_MOST_LISTED], size[NODE_GROUPS] = { 0 };
    for (int m = 0; m < ep->devices; m++) {
        const int rank = ep->group->member[m];
        if (m / ep->node == own_node(ep)) member[INSIDE][size[INSIDE]++] = rank;
        if (m % ep->node == own_place(ep)) member[ACROSS][size[ACROSS]++] = rank;
    }
    enum error_code e = OK;
    for (int i = 0; i < NODE_GROUPS && !e; i++)
        e = group_of(&ep->part[i], ep->group->comm, member[i], size[i], TRAFFIC_EXPERTS, AXIS_BIT(EP), err);
    return e;
}

const char *nodes_refuse(const struct expert_parallel *ep, const struct model_config *config)
{
    (void)config;
    /* ep->node is 0 if the group has different numbers of devices on its nodes. */
    return ep->node > 0 ? NULL : "as many devices of a group on every node";
}
