/* experts, alltoall-2dh: as alltoall, but each all-to-all is two: inside nodes to the right place, then between nodes,
 * in fewer and longer messages.
 *
 * Source   C. Hwang et al., "Tutel: adaptive mixture-of-experts at scale", arXiv:2206.03382, section 3.4 and figure 15:
 *          the two-dimensional hierarchical all-to-all.  There blocks have equal lengths; here those of the routing
 * Group    P devices on nodes of m each
 * Layout   a row for place l of node b goes to place l of its own node first, beside those of its neighbours for b; so
 *          rows lie by place, then by node, before the first hop, and by node, then by sender, before the second
 *
 *          P = 4, m = 2, device 0:   to device 1   its rows for devices 1 and 3
 *                                    to device 2   its own rows for device 2, and those of device 1
 *
 * Sends    messages  m-1 and P/m - 1 for each exchange, instead of P-1
 *          forward   D numbers for each row whose expert's device has another place, and again for each whose node is
 *                    another, at the device that passes it on; as much back.  Backward the same
 * Memory   dispatch.h, a row a choice
 * Equals   reassociates, with the same bits as alltoall: rows arrive in the same order
 *
 * Called by: model/run/run_mixture.c, through dispatch.c, which reports ERR_MEMORY and ERR_COMM.  A plan without as
 * many devices of a group on every node is refused.
 */
#include "emulated_devices/schemes/experts/nodes.h"

/* Count the rows that a device (node, place) sends to the experts of another, over both hops together. */
static int64_t alltoall_2dh_rows(const struct expert_parallel *ep, const struct expert_routing *routing, int node,
                                 int place, int to_node, int to_place)
{
    return dispatch_rows(ep, routing, node * ep->node + place, to_node * ep->node + to_place);
}

/* The first hop takes rows from the order of devices to that of places. */
static enum error_code experts_alltoall_2dh_inside(const struct expert_parallel *ep,
                                                   const struct expert_routing *routing, struct expert_hop *hop,
                                                   struct error *err)
{
    const int nodes = node_count_of(ep), places = ep->node, node = own_node(ep), place = own_place(ep);
    int64_t length[MESH_MOST_LISTED];
    const enum error_code e = hop_make(hop, &ep->part[INSIDE], ALLTOALL, routing->sent, err);
    /* Place l of this node gets all rows that go to place l of any node. */
    for (int b = 0; b < nodes && !e; b++)
        for (int l = 0; l < places; l++) {
            hop->sent[l] += length[b * places + l] = alltoall_2dh_rows(ep, routing, node, place, b, l);
            hop->got[l] += alltoall_2dh_rows(ep, routing, node, l, b, place);
        }
    if (!e) dispatch_transpose(length, nodes, places, hop->order.data);
    return e;
}

/* The second hop takes rows from the order of this node's places to that of nodes. */
static enum error_code across(const struct expert_parallel *ep, const struct expert_routing *routing,
                              struct expert_hop *hop, struct error *err)
{
    const int nodes = node_count_of(ep), places = ep->node, node = own_node(ep), place = own_place(ep);
    int64_t length[MESH_MOST_LISTED];
    const enum error_code e = hop_make(hop, &ep->part[ACROSS], ALLTOALL, hop_arrives(hop - 1), err);
    /* Node b's device at this place gets all rows of this node that go to it. */
    for (int b = 0; b < nodes && !e; b++)
        for (int l = 0; l < places; l++) {
            hop->sent[b] += length[l * nodes + b] = alltoall_2dh_rows(ep, routing, node, l, b, place);
            hop->got[b] += alltoall_2dh_rows(ep, routing, b, l, node, place);
        }
    if (!e) dispatch_transpose(length, places, nodes, hop->order.data);
    return e;
}

static enum error_code alltoall_2dh_hop(const struct expert_parallel *ep, const struct expert_routing *routing,
                                        const struct choices *held,
                                        int index, struct expert_hop *expert_hop, struct error *err)
{
    (void)held;
    return index == 0 ? experts_alltoall_2dh_inside(ep, routing, expert_hop, err)
           : across(ep, routing, expert_hop, err);
}

const struct expert_scheme expert_scheme_alltoall_2dh = {
    .head = { .kind = EXPERT_SCHEME, .equality = REASSOCIATES, .name = "alltoall-2dh",
              .description = "as alltoall, by two all-to-alls: inside nodes to the right place, then between nodes",
              .source = "Tutel, arXiv:2206.03382",
              .volume = "2 k n D ((m-1)/m + 1 - m/P) elements a layer forward on nodes of m, if the load is even",
              .memory = "k rows of D for each token; for each row that comes: 2 D, up and F wide",
              .needs = "P a divisor of dp x cp x tp; as many devices of a group on every node" },
    DISPATCH_SCHEME, .exact = true, .refuses = nodes_refuse, .open = nodes_open, .hops = 2, .hop = alltoall_2dh_hop,
};
