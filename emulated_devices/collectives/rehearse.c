/* rehearse.c -- counts what a collective sends over links of each level, from its cost function or by a rehearsal.
 *
 * A cost function says how much a member sends, but not to which members.  That is enough if all members are equally
 * near.  Otherwise the algorithm is rehearsed: it runs on the same group, but its messages are recorded instead of
 * sent, nothing is copied, and no time passes.  The messages of an algorithm depend on rank, P, counts and nodes, never
 * on the data, so the rehearsal is exact.
 */
#include "emulated_devices/collectives/algorithm.h"

/* The level of the links to all other members; -1 if they differ. */
static int common_level(const struct group *g)
{
    int level = -1;
    for (int m = 0; m < g->size; m++) {
        const int one = m == g->rank ? level : group_level(g, m);
        if (level >= 0 && one != level) return -1;
        level = one;
    }
    return level;
}

static void rehearse(const struct algorithm *a, const struct group *g, const struct collective *c, struct traffic *t)
{
    static char nothing;                        /* stands for the data, which is not read */
    struct comm stage = { .device = g->comm->device, .rank = g->comm->rank, .size = g->comm->size, .rehearsal = t };
    struct group on_stage = *g;
    struct collective call = *c;
    struct error err;
    on_stage.comm = &stage;
    call.in = call.out = &nothing;
    if (a->run(&on_stage, &call, &err) != OK) *t = (struct traffic){ 0 };
}

struct traffic collective_traffic(const struct algorithm *a, const struct group *g, const struct collective *c)
{
    const struct collective_cost cost = collective_cost(a, g->rank, g->size, c);
    const int level = common_level(g);
    struct traffic t = { 0 };
    if (cost.messages == 0) return (struct traffic){ .additions = cost.additions };
    if (level >= 0) t.level[level] = (struct sent){ cost.messages, cost.bytes };
    else rehearse(a, g, c, &t);
    t.messages_sent = cost.messages, t.bytes_sent = cost.bytes, t.additions = cost.additions;
    return t;
}

struct account group_cost(const struct group *g, enum operation op, const char *name, const struct collective *c)
{
    struct account a = { 0 };
    struct collective call = *c;
    call.nodes = group_nodes(g);
    const struct algorithm *chosen = algorithm_for(g, op, name, &call);
    call.segment = group_segment(g, chosen, &call);
    a.of[op] = collective_traffic(chosen, g, &call);
    return a;
}

void collective_expect(const struct group *g, enum operation op, const char *name, const struct collective *c)
{
    account_add(&g->comm->expected.of[g->kind], group_cost(g, op, name, c), 1);
}
