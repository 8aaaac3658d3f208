/* apart.c -- replicas that train apart. */
#include "emulated_devices/plan/plan.h"

int plan_replicas(const struct plan *p)
{
    struct shards s;
    return data_shards(&s, &p->data, p->mesh.size[DP], 0, NULL) == OK ? shards_replicas(&s) : 1;
}

int plan_replica_of(const struct plan *p, int rank)
{
    struct shards s;
    return data_shards(&s, &p->data, p->mesh.size[DP], 0, NULL) == OK ? shards_replica_of(&s, mesh_coordinate(&p->mesh, rank, DP)) : 0;
}
