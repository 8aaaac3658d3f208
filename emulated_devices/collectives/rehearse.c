/* rehearse.c -- counts what a collective sends over links of each level, from its cost function or by a rehearsal.
 *
 * A cost function says how much a member sends, but not to which members.  That is enough if all members are equally
 * near.  Otherwise the algorithm is rehearsed: it runs on the same group, but its messages are recorded instead of
 * sent, nothing is copied, and no time passes.  The messages of an algorithm depend on rank, P, counts and nodes, never
 * on the data, so the rehearsal is exact.
 *
 * collective_run, schemes/ and model/ call this file to enter the expected ledger, plan/ and cli/ to predict traffic.
 * No function here can fail.
 */
#include "emulated_devices/collectives/algorithm.h"

/* The level of the links to all other members; -1 if they differ. */
static int common_level(const struct group *group)
{
    int level = -1;
    for (int m = 0; m < group->size; m++) {
        const int one = m == group->rank ? level : group_level(group, m);
        if (level >= 0 && one != level) return -1;
        level = one;
    }
    return level;
}

/* Run the algorithm with a comm whose `rehearsal` is set, which the functions of comm/ and copy_elements respect. */
static void rehearse(const struct algorithm *algorithm, const struct group *group, const struct collective *collective,
                     struct traffic *traffic)
{
    static char nothing;                        /* stands for the data, which is not read */
    struct comm stage = { .device = group->comm->device, .rank = group->comm->rank, .size = group->comm->size,
                         .process = group->comm->process, .rehearsal = traffic };
    struct group on_stage = *group;
    struct collective call = *collective;
    struct error err;
    on_stage.comm = &stage;
    call.in = call.out = &nothing;
    if (algorithm->run(&on_stage, &call, &err) != OK) *traffic = (struct traffic){ 0 };
}

struct traffic collective_traffic(const struct algorithm *algorithm, const struct group *group,
                                  const struct collective *collective)
{
    /* Totals come from the cost function; a rehearsal says only over which links they go. */
    const struct collective_cost cost = collective_cost(algorithm, group->rank, group->size, collective);
    const int level = common_level(group);
    struct traffic t = { 0 };
    if (cost.messages == 0) return (struct traffic){ .additions = cost.additions };
    if (level >= 0) t.level[level] = (struct sent){ cost.messages, cost.bytes };
    else rehearse(algorithm, group, collective, &t);
    t.messages_sent = cost.messages, t.bytes_sent = cost.bytes, t.additions = cost.additions;
    return t;
}

struct account group_cost(const struct group *group, enum operation op, const char *name,
                          const struct collective *collective)
{
    struct account a = { 0 };
    struct collective call = *collective;
    call.nodes = group_nodes(group);
    const struct algorithm *chosen = algorithm_for(group, op, name, &call);
    call.segment = group_segment(group, chosen, &call);
    a.of[op] = collective_traffic(chosen, group, &call);
    return a;
}

void collective_expect(const struct group *group, enum operation op, const char *name,
                       const struct collective *collective)
{
    account_add(&group->comm->expected.of[group->kind], group_cost(group, op, name, collective), 1);
}
