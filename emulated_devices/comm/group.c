/* group.c -- makes groups of devices without a message, and enters forecasts into ledgers under a group's kind.
 * Callers are comm.c, crew.c and everything that opens schemes.  Errors: ERR_PLAN, ERR_USAGE, ERR_MEMORY;
 * group_close is allowed after any. */
#include "emulated_devices/comm/carrier.h"
#include "emulated_devices/comm/watch.h"
#include <stdlib.h>

/* Take ownership of the list, find this device in it, and count one more group with each member. */
static enum error_code group_finish(struct group *group, struct comm *comm, int *member, int size,
                                    enum traffic_kind kind, unsigned axes, struct error *err)
{
    *group = (struct group){ .comm = comm, .size = size, .rank = -1, .member = member, .kind = kind, .axes = axes };
    group->context = malloc(sizeof *group->context * (size_t)size);
    group->process = comm->process ? malloc(sizeof *group->process * (size_t)size) : member;
    if (group->context == NULL || group->process == NULL) {
        group_close(group);
        return fail(err, ERR_MEMORY, "no memory for a group of %d devices", size);
    }
    for (int i = 0; i < size; i++) {
        if (member[i] == comm->rank) group->rank = i;
        group->process[i] = comm_process(comm, member[i]);
        /* Both ends count their common groups in the same order, so their numbers agree without a message. */
        group->context[i] = comm->contexts[group->process[i]]++;
    }
    if (comm->carrier && comm->carrier->folds) group->folds = comm->carrier->folds(comm, member, size);
    return OK;
}

enum error_code group_along(struct group *group, struct comm *comm, const struct mesh *mesh, enum traffic_kind kind,
                            unsigned axes, struct error *err)
{
    *group = (struct group){ .comm = comm };                   /* so that it can be closed, whatever follows */
    /* Axes of size 1 add no member, and are left out of the description. */
    int size = 1, differing = 0;
    for (enum axis a = 0; a < AXIS_COUNT; a++)
        if (axes & AXIS_BIT(a)) {
            size *= mesh->size[a];
            if (mesh->size[a] > 1) differing |= (int)AXIS_BIT(a);
        }
    if ((mesh->of > 0 ? mesh->of : mesh->devices) != comm->size)
        return fail(err, ERR_PLAN, "a mesh of %d devices does not fit %d processes", mesh->devices, comm->size);

    int *member = malloc(sizeof *member * (size_t)size);
    if (member == NULL) return fail(err, ERR_MEMORY, "no memory for a group of %d devices", size);
    mesh_members(mesh, comm->rank, axes, member);
    return group_finish(group, comm, member, size, kind, (unsigned)differing, err);
}

enum error_code group_of(struct group *group, struct comm *comm, const int *ranks, int size, enum traffic_kind kind,
                         unsigned axes, struct error *err)
{
    *group = (struct group){ .comm = comm };                   /* so that it can be closed, whatever follows */
    bool here = false, ascends = true;
    for (int i = 0; i < size; i++) {
        if (ranks[i] < 0 || ranks[i] >= comm->size)
            return fail(err, ERR_USAGE, "a group cannot contain device %d: there are %d", ranks[i], comm->size);
        /* In a list that ascends so far, none comes twice. */
        ascends = ascends && (i == 0 || ranks[i - 1] < ranks[i]);
        for (int j = 0; j < i && !ascends; j++)
            if (ranks[j] == ranks[i]) return fail(err, ERR_USAGE, "a group cannot contain device %d twice", ranks[i]);
        here = here || ranks[i] == comm->rank;
    }
    if (!here) return fail(err, ERR_USAGE, "device %d is not a member of the group it makes", comm->rank);

    int *member = malloc(sizeof *member * (size_t)size);
    if (member == NULL) return fail(err, ERR_MEMORY, "no memory for a group of %d devices", size);
    for (int i = 0; i < size; i++) member[i] = ranks[i];
    return group_finish(group, comm, member, size, kind, axes, err);
}

enum error_code group_world(struct group *group, struct comm *comm, struct error *err)
{
    *group = (struct group){ .comm = comm };                   /* so that it can be closed, whatever follows */
    int *member = malloc(sizeof *member * (size_t)comm->size);
    if (member == NULL) return fail(err, ERR_MEMORY, "no memory for a group of %d devices", comm->size);
    for (int i = 0; i < comm->size; i++) member[i] = i;
    return group_finish(group, comm, member, comm->size, TRAFFIC_OTHER, 0, err);
}

int group_level(const struct group *group, int member)
{
    const struct cluster *c = &group->comm->device->clock.cluster;
    return cluster_level(c, comm_process(group->comm, group->comm->rank),
                         group->process[member]);
}

void ledger_messages(struct ledger *ledger, const struct group *group, enum operation op, int peer, uint64_t bytes,
                     uint64_t times)
{
    traffic_send(&ledger->of[group->kind].of[op], group_level(group, peer), bytes, times);
}

void ledger_additions(struct ledger *ledger, const struct group *group, enum operation op, uint64_t count)
{
    ledger->of[group->kind].of[op].additions += count;
}

void group_close(struct group *group)
{
    /* A message that has not been waited for when its group closes violates a rule; the watch keeps the report. */
    if (group->comm != NULL && group->member != NULL)
        watch_nothing_left(group->comm, group, "when its group is closed");
    if (group->process != group->member) free(group->process);
    free(group->member);
    free(group->context);
    group->member = group->process = NULL;
    group->context = NULL;
}
