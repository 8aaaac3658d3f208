/* proxies.c -- the hops of proxies.h by formula, for planned_pass.c and planned_cost.c.  No function returns an error
 * code. */
#include "emulated_devices/schemes/attention/planned/proxies.h"

int proxy_parts(int node, int from, int to) { return node > 0 && from / node != to / node ? node : 1; }

struct proxy_hop proxy_hop(int node, int from, int to, int64_t count, enum proxy_stage stage, int part)
{
    /* Part i belongs to the i-th device of both nodes.  A straight message has one part, and moves in PROXY_TRANSFER
     * alone. */
    const int parts = proxy_parts(node, from, to);
    const int near = parts == 1 ? from : from / node * node + part, far = parts == 1 ? to : to / node * node + part;
    return (struct proxy_hop){ .from = stage == PROXY_DISPATCH ? from : stage == PROXY_TRANSFER ? near : far,
                               .to = stage == PROXY_DISPATCH ? near : stage == PROXY_TRANSFER ? far : to,
                               .part = block_at(count, parts, part) };
}
