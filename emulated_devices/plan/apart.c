/* apart.c -- replicas that train apart. */
#include "emulated_devices/plan/plan.h"

int plan_replicas(const struct plan *p)
{
    struct shards s;
    return data_shards(&s, &p->data, plan_copies(p), 0, NULL) == OK ? shards_replicas(&s) : 1;
}

int plan_replica_of(const struct plan *p, int rank)
{
    struct shards s;
    return data_shards(&s, &p->data, plan_copies(p), 0, NULL) == OK ? shards_replica_of(&s, plan_copy_of(p, rank)) : 0;
}
