#include "emulated_devices/model/apart.h"

static int replica_of(const struct trainer *t, int rank)
{
    return shards_replica_of(&t->data.shards, plan_copy_of(&t->plan, rank));
}

/* Rank 0 receives from the first device of each replica, in order, and sends the result to all devices. */
enum error_code apart_share(struct trainer *t, double sums[2], struct error *err)
{
    const int replicas = shards_replicas(&t->data.shards), self = t->comm->rank;
    const uint64_t bytes = 2 * sizeof *sums;
    struct exchange x = exchange_begin(&t->world, CONTROL);
    enum error_code e = OK;
    if (self != 0 && result_is_first(&t->result)) e = message_wait(t->comm, message_send(&x, 0, sums, bytes), err);
    if (self != 0) return e ? e : message_wait(t->comm, message_receive(&x, 0, sums, bytes), err);
    for (int rank = 1, next = 1; rank < t->comm->size && !e; rank++) {
        double other[2];
        if (replica_of(t, rank) != next) continue;
        e = message_wait(t->comm, message_receive(&x, rank, other, bytes), err);
        if (!e) sums[0] += other[0], sums[1] += other[1];
        next++;
    }
    sums[1] /= replicas;
    for (int rank = 1; rank < t->comm->size && !e; rank++)
        e = message_wait(t->comm, message_send(&x, rank, sums, bytes), err);
    return e;
}
