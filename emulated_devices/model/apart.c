#include "emulated_devices/model/apart.h"
#include <math.h>

static int replica_of(const struct trainer *t, int rank)
{
    return shards_replica_of(&t->data.shards, plan_copy_of(&t->plan, rank));
}

static void add_replica(struct replica_sums *sums, const struct replica_sums *other)
{
    sums->loss += other->loss, sums->squares += other->squares;
    sums->lost = fmin(sums->lost, other->lost);
}

/* Rank 0 receives from the first device of each replica, in order, and sends the result to all devices. */
enum error_code apart_share(struct trainer *t, struct replica_sums *sums, struct error *err)
{
    const int replicas = shards_replicas(&t->data.shards), self = t->comm->rank;
    const uint64_t bytes = sizeof *sums;
    struct exchange x = exchange_begin(&t->world, CONTROL);
    enum error_code e = OK;
    if (self != 0 && result_is_first(&t->result)) e = message_wait(t->comm, message_send(&x, 0, sums, bytes), err);
    if (self != 0) return e ? e : message_wait(t->comm, message_receive(&x, 0, sums, bytes), err);
    for (int rank = 1, next = 1; rank < t->comm->size && !e; rank++) {
        struct replica_sums other;
        if (replica_of(t, rank) != next) continue;
        e = message_wait(t->comm, message_receive(&x, rank, &other, bytes), err);
        if (!e) add_replica(sums, &other);
        next++;
    }
    sums->squares /= replicas;
    for (int rank = 1; rank < t->comm->size && !e; rank++)
        e = message_wait(t->comm, message_send(&x, rank, sums, bytes), err);
    return e;
}
