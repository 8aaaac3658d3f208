/* apart.c -- replicas that train apart, and who shares what with whom. */
#include "emulated_devices/plan/plan.h"

enum error_code plan_shards(struct shards *s, const struct plan *p, int rank, bool experts, struct error *err)
{
    const enum error_code e = data_shards(s, &p->data, plan_copies(p), plan_copy_of(p, rank), err);
    const struct shards all = *s;
    if (e || !experts) return e;
    return data_expert_shards(s, &p->data, &all, plan_expert_copies(p), plan_expert_copy_of(p, rank), err);
}

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
