/* votes.c -- brings votes from devices to nodes to rank 0, and tells the decision the same way back.
 * meanwhile.c calls.  A message that fails is ERR_COMM; memory that is not there, ERR_MEMORY. */
#include "emulated_devices/model/checkpoint/sharded/votes.h"
#include <stdlib.h>
#include <string.h>

/* Devices are of one node if a link nearer than the cluster's last is between them. */
static bool same_node(const struct cluster *cluster, int rank, int other)
{
    return cluster->levels == 1 || cluster_level(cluster, rank, other) < cluster->levels - 1;
}

/* The devices of this node, or the first devices of all nodes.  @return how many. */
static int list_members(const struct votes *votes, bool firsts, int *rank)
{
    int count = 0;
    for (int r = 0; r < votes->comm->size; r++)
        if (firsts ? votes->first[r] == r : votes->first[r] == votes->first[votes->comm->rank]) rank[count++] = r;
    return count;
}

enum error_code votes_open(struct votes *votes, struct comm *comm, const struct cluster *cluster, struct error *err)
{
    *votes = (struct votes){ .comm = comm, .first = malloc((size_t)comm->size * sizeof *votes->first) };
    int *const rank = malloc((size_t)comm->size * sizeof *rank);
    enum error_code e = votes->first && rank ? OK : fail(err, ERR_MEMORY, "no memory for %d devices", comm->size);
    for (int r = 0; r < comm->size && !e; r++)
        for (votes->first[r] = 0; !same_node(cluster, votes->first[r], r);) votes->first[r]++;
    if (!e) votes->leads = votes->first[comm->rank] == comm->rank;
    if (!e)
        e = group_of(&votes->node, comm, rank, list_members(votes, false, rank), TRAFFIC_OTHER, 0, err);
    if (!e && votes->leads)
        e = group_of(&votes->firsts, comm, rank, list_members(votes, true, rank), TRAFFIC_OTHER, 0, err);
    free(rank);
    return e;
}

void votes_close(struct votes *votes)
{
    if (votes->firsts.comm) group_close(&votes->firsts);
    if (votes->node.comm) group_close(&votes->node);
    free(votes->first);
    *votes = (struct votes){ 0 };
}

/* Member 0 of a group gets what the others have; it has its own already, at the beginning of `all`. */
static enum error_code bring_in(struct group *group, const void *own, const uint64_t *bytes, char *all,
                                struct error *err)
{
    struct exchange x = exchange_begin(group, CONTROL);
    enum error_code e = OK;
    if (group->rank > 0)
        return message_wait(group->comm, message_send(&x, 0, own, bytes[group->rank]), err);
    char *to = all + bytes[0];
    for (int m = 1; m < group->size && !e; to += bytes[m], m++)
        e = message_wait(group->comm, message_receive(&x, m, to, bytes[m]), err);
    return e;
}

static enum error_code tell_in(struct group *group, void *decision, uint64_t bytes, struct error *err)
{
    struct exchange x = exchange_begin(group, CONTROL);
    enum error_code e = OK;
    if (group->rank > 0) return message_wait(group->comm, message_receive(&x, 0, decision, bytes), err);
    for (int m = 1; m < group->size && !e; m++)
        e = message_wait(group->comm, message_send(&x, m, decision, bytes), err);
    return e;
}

static int devices_of(const struct votes *votes, int first)
{
    int count = 0;
    for (int r = 0; r < votes->comm->size; r++) count += votes->first[r] == first;
    return count;
}

/* Votes arrive node by node, and are put in the order of ranks. */
static void put_in_order(const struct votes *votes, const char *by_node, uint64_t bytes, char *all)
{
    for (int n = 0; n < votes->firsts.size; n++)
        for (int r = 0; r < votes->comm->size; r++)
            if (votes->first[r] == votes->firsts.member[n])
                memcpy(all + (size_t)r * bytes, by_node, bytes), by_node += bytes;
}

enum error_code votes_bring(struct votes *votes, const void *own, uint64_t bytes, void *all, struct error *err)
{
    const size_t devices = (size_t)votes->comm->size;
    uint64_t *const length = malloc(devices * sizeof *length);
    char *const got = malloc(devices * bytes + 1);
    enum error_code e = length && got ? OK : fail(err, ERR_MEMORY, "no memory for the votes of %zu devices", devices);
    if (e) comm_give_up(votes->comm, err);      /* the others wait for this device's message */
    memcpy(got, own, bytes);
    for (int m = 0; m < votes->node.size; m++) length[m] = bytes;
    e = bring_in(&votes->node, own, length, got, err);
    if (!e && votes->leads) {
        for (int n = 0; n < votes->firsts.size; n++)
            length[n] = bytes * (uint64_t)devices_of(votes, votes->firsts.member[n]);
        e = bring_in(&votes->firsts, got, length, got, err);
    }
    if (!e && votes->comm->rank == 0) put_in_order(votes, got, bytes, all);
    free(length), free(got);
    return e;
}

enum error_code votes_tell(struct votes *votes, void *decision, uint64_t bytes, struct error *err)
{
    enum error_code e = votes->leads ? tell_in(&votes->firsts, decision, bytes, err) : OK;
    return e ? e : tell_in(&votes->node, decision, bytes, err);
}
