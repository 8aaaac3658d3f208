/* experts, two-step: a row goes once to each node that has experts of it, then inside the node to these; their weighted
 * results are added inside the node and come back once.
 *
 * Source   DeepSeek-AI, "DeepSeek-V3 technical report", arXiv:2412.19437, section 3.2.2: dispatch between nodes to the
 *          device with the same place, then inside the node; deepseek-ai/DeepEP.  There a router chooses experts on at
 *          most 4 nodes, so that a row crosses at most 4 times; here any router's choices
 * Group    P devices on nodes of m each
 * Layout   the pool is the rows with experts of this device, by the place that they came from, then by node
 *
 *          P = 4, m = 2, a row of device 0 with experts on 1, 2 and 3:   once to device 2, which keeps it and sends it
 *          to device 3; device 0 sends it to device 1
 *
 * Sends    forward   D numbers for each pair of a row and another node with experts of it; then for each pair of a row
 *                    and a device, other than the one that passes it on, with experts of it; as much back.  With a row,
 *                    there, k choices of 32 bits, and k weights
 *          backward  D numbers likewise there and back; k gradients of weights back
 * Memory   dispatch.h, weighs_there
 * Equals   reassociates: a row's results are added by device, then by node, then over nodes
 *
 * Called by: model/run/run_mixture.c, through dispatch.c, which reports ERR_MEMORY and ERR_COMM.  A plan without as
 * many devices of a group on every node is refused.
 */
#include "emulated_devices/schemes/experts/nodes.h"

/* The experts of some neighbours. */
static struct interval experts_at(const struct expert_parallel *ep, int first, int count)
{
    const int64_t from = experts_of(ep, first).first;
    return (struct interval){ from, interval_end(experts_of(ep, first + count - 1)) - from };
}

/* Whether any of a row's k choices is one of these experts. */
static bool goes_to(const struct choices *choices, int64_t row, struct interval experts)
{
    for (int64_t i = 0; i < choices->each; i++) {
        const int32_t e = choices->expert[row * choices->each + i];
        if (e >= experts.first && e < interval_end(experts)) return true;
    }
    return false;
}

/* List the rows that go to each of the parts of some devices.  @param order  NULL: only count them. */
static int64_t list_rows(const struct expert_parallel *ep, const struct choices *choices, int first,
                         int parts, int each, int32_t *order, int64_t *of_part)
{
    int64_t n = 0;
    for (int i = 0; i < parts; i++) {
        const struct interval experts = experts_at(ep, first + i * each, each);
        const int64_t before = n;
        /* A row is listed once for each part that has any of its experts. */
        for (int64_t row = 0; row < choices->rows; row++)
            if (goes_to(choices, row, experts)) {
                if (order) order[n] = (int32_t)row;
                n++;
            }
        if (of_part) of_part[i] = n - before;
    }
    return n;
}

/* How many of its rows go to each device, and to each node. */
static int64_t told(const struct expert_parallel *ep) { return ep->devices + node_count_of(ep); }

static void two_step_tell(const struct expert_parallel *ep, const struct choices *choices, int32_t *own)
{
    /* Each device has a number first, then each node. */
    for (int m = 0; m < ep->devices; m++) own[m] = (int32_t)list_rows(ep, choices, m, 1, 1, NULL, NULL);
    for (int b = 0; b < node_count_of(ep); b++)
        own[ep->devices + b] = (int32_t)list_rows(ep, choices, b * ep->node, 1, ep->node, NULL, NULL);
}

/* Return a number of the table: how many rows of a device go to a device, or to a node. */
static int64_t told_by(const struct expert_parallel *ep, const struct expert_routing *routing, int node, int place,
                       int number)
{
    return routing->table[(node * ep->node + place) * told(ep) + number];
}

/* Plan a hop: list the rows that go to each part, and read from the table how many come from each. */
static enum error_code two_step_hop(const struct expert_parallel *ep, const struct expert_routing *routing,
                                    const struct choices *held,
                                    int index, struct expert_hop *expert_hop, struct error *err)
{
    /* Hop 0 is between nodes, hop 1 inside the node; `held` are the rows that this device then has. */
    const bool crosses = index == 0;
    const int nodes = node_count_of(ep), first = crosses ? 0 : own_node(ep) * ep->node,
              parts = crosses ? nodes : ep->node, each = crosses ? ep->node : 1;
    const enum error_code e = hop_make(expert_hop, &ep->part[crosses ? ACROSS : INSIDE], ALLTOALL,
                                       list_rows(ep, held, first, parts, each, NULL, NULL), err);
    if (e) return e;
    /* Hop 0 goes to the device with this place in each node, hop 1 to the members of the node. */
    list_rows(ep, held, first, parts, each, expert_hop->order.data, expert_hop->sent);
    for (int i = 0; i < parts; i++)
        for (int b = 0; b < (crosses ? 1 : nodes); b++)
            expert_hop->got[i] += crosses ? told_by(ep, routing, i, own_place(ep), ep->devices + own_node(ep))
                                 : told_by(ep, routing, b, i, ep->rank);
    return OK;
}

const struct expert_scheme expert_scheme_two_step = {
    .head = { .kind = EXPERT_SCHEME, .equality = REASSOCIATES, .name = "two-step",
              .description = "a row goes once to each node with experts of it, then inside the node to them",
              .source = "DeepSeek-V3, arXiv:2412.19437; deepseek-ai/DeepEP",
              .volume = "between nodes 2 n D elements a layer forward for each other node with experts of n tokens",
              .memory = "k weights for each row that comes; for each row of own experts: 2 D, up and F wide",
              .needs = "P a divisor of dp x cp x tp; as many devices of a group on every node" },
    DISPATCH_SCHEME, .weighs_there = true, .exact = true, .refuses = nodes_refuse, .open = nodes_open, .told = told,
        .tell = two_step_tell,
    .hops = 2, .hop = two_step_hop,
};
