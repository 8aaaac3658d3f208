#include "emulated_devices/comm/carrier.h"
#include "emulated_devices/comm/watch.h"
#include <stdlib.h>

/* Take ownership of the list, find this device in it, and count one more group with each member. */
static enum error_code group_finish(struct group *g, struct comm *c, int *member, int size, enum traffic_kind kind,
                                    unsigned axes, struct error *err)
{
    *g = (struct group){ .comm = c, .size = size, .rank = -1, .member = member, .kind = kind, .axes = axes };
    g->context = malloc(sizeof *g->context * (size_t)size);
    if (g->context == NULL) {
        group_close(g);
        return fail(err, ERR_MEMORY, "no memory for a group of %d devices", size);
    }
    for (int i = 0; i < size; i++) {
        if (member[i] == c->rank) g->rank = i;
        /* Both ends count their common groups in the same order, so their numbers agree without a message. */
        g->context[i] = c->contexts[member[i]]++;
    }
    if (c->carrier && c->carrier->folds) g->folds = c->carrier->folds(c, member, size);
    return OK;
}

enum error_code group_along(struct group *g, struct comm *c, const struct mesh *m, enum traffic_kind kind,
                            unsigned axes, struct error *err)
{
    *g = (struct group){ .comm = c };                   /* so that it can be closed, whatever follows */
    int size = 1, differing = 0;
    for (enum axis a = 0; a < AXIS_COUNT; a++)
        if (axes & AXIS_BIT(a)) {
            size *= m->size[a];
            if (m->size[a] > 1) differing |= (int)AXIS_BIT(a);
        }
    if (m->devices != c->size)
        return fail(err, ERR_PLAN, "a mesh of %d devices does not fit %d processes", m->devices, c->size);

    int *member = malloc(sizeof *member * (size_t)size);
    if (member == NULL) return fail(err, ERR_MEMORY, "no memory for a group of %d devices", size);
    mesh_members(m, c->rank, axes, member);
    return group_finish(g, c, member, size, kind, (unsigned)differing, err);
}

enum error_code group_of(struct group *g, struct comm *c, const int *ranks, int size, enum traffic_kind kind,
                         unsigned axes, struct error *err)
{
    *g = (struct group){ .comm = c };                   /* so that it can be closed, whatever follows */
    bool here = false;
    for (int i = 0; i < size; i++) {
        if (ranks[i] < 0 || ranks[i] >= c->size)
            return fail(err, ERR_USAGE, "a group cannot contain device %d: there are %d", ranks[i], c->size);
        for (int j = 0; j < i; j++)
            if (ranks[j] == ranks[i]) return fail(err, ERR_USAGE, "a group cannot contain device %d twice", ranks[i]);
        here = here || ranks[i] == c->rank;
    }
    if (!here) return fail(err, ERR_USAGE, "device %d is not a member of the group it makes", c->rank);

    int *member = malloc(sizeof *member * (size_t)size);
    if (member == NULL) return fail(err, ERR_MEMORY, "no memory for a group of %d devices", size);
    for (int i = 0; i < size; i++) member[i] = ranks[i];
    return group_finish(g, c, member, size, kind, axes, err);
}

enum error_code group_world(struct group *g, struct comm *c, struct error *err)
{
    *g = (struct group){ .comm = c };                   /* so that it can be closed, whatever follows */
    int *member = malloc(sizeof *member * (size_t)c->size);
    if (member == NULL) return fail(err, ERR_MEMORY, "no memory for a group of %d devices", c->size);
    for (int i = 0; i < c->size; i++) member[i] = i;
    return group_finish(g, c, member, c->size, TRAFFIC_OTHER, 0, err);
}

int group_level(const struct group *g, int member)
{
    const struct cluster *c = &g->comm->device->clock.cluster;
    return link_between(c->link, c->levels, g->comm->rank, g->member[member]);
}

void ledger_messages(struct ledger *l, const struct group *g, enum operation op, int peer, uint64_t bytes,
                     uint64_t times)
{
    traffic_send(&l->of[g->kind].of[op], group_level(g, peer), bytes, times);
}

void ledger_additions(struct ledger *l, const struct group *g, enum operation op, uint64_t count)
{
    l->of[g->kind].of[op].additions += count;
}

void group_close(struct group *g)
{
    if (g->comm != NULL && g->member != NULL) watch_nothing_left(g->comm, g, "when its group is closed");
    free(g->member);
    free(g->context);
    g->member = NULL;
    g->context = NULL;
}
