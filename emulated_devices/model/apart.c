/* apart.c -- adds loss and norm of replicas that train apart.  model/trainer.c calls on all ranks together, at the
 * end of a step.  Rank 0 adds in the order of replicas, so that all devices get the same numbers.  Errors of
 * messages are passed on. */
#include "emulated_devices/model/apart.h"
#include <math.h>

static int replica_of(const struct trainer *trainer, int rank)
{
    return shards_replica_of(&trainer->data.shards, plan_copy_of(&trainer->plan, rank));
}

static void add_replica(struct replica_sums *sums, const struct replica_sums *other)
{
    sums->loss += other->loss, sums->squares += other->squares;
    sums->lost = fmin(sums->lost, other->lost);
}

/* Rank 0 receives from the first device of each replica, in order, and sends the result to all devices. */
enum error_code apart_share(struct trainer *trainer, struct replica_sums *sums, struct error *err)
{
    const int replicas = shards_replicas(&trainer->data.shards), self = trainer->comm->rank;
    const uint64_t bytes = sizeof *sums;
    struct exchange x = exchange_begin(&trainer->world, CONTROL);
    enum error_code e = OK;
    if (self != 0 && result_is_first(&trainer->result))
        e = message_wait(trainer->comm, message_send(&x, 0, sums, bytes), err);
    if (self != 0) return e ? e : message_wait(trainer->comm, message_receive(&x, 0, sums, bytes), err);
    for (int rank = 1, next = 1; rank < trainer->comm->size && !e; rank++) {
        struct replica_sums other;
        if (replica_of(trainer, rank) != next) continue;
        e = message_wait(trainer->comm, message_receive(&x, rank, &other, bytes), err);
        if (!e) add_replica(sums, &other);
        next++;
    }
    sums->squares /= replicas;
    for (int rank = 1; rank < trainer->comm->size && !e; rank++)
        e = message_wait(trainer->comm, message_send(&x, rank, sums, bytes), err);
    return e;
}
