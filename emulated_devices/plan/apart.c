/* apart.c -- replicas that train apart, and who shares what with whom.
 *
 * The trainer, the checks of this room and verify/ ask who shares with whom.  Errors are those of data_shards.
 */
#include "emulated_devices/plan/plan.h"

enum error_code plan_shards(struct shards *shards, const struct plan *plan, int rank, bool experts, struct error *err)
{
    const enum error_code e = data_shards(shards, &plan->data, plan_copies(plan), plan_copy_of(plan, rank), err);
    /* Experts that only some devices have are shared by fewer copies: their shards follow from those of all weights. */
    const struct shards all = *shards;
    if (e || !experts) return e;
    return data_expert_shards(shards, &plan->data, &all, plan_expert_copies(plan),
                              plan_expert_copy_of(plan, rank), err);
}

/* The number does not depend on the rank, so copy 0 speaks for all. */
int plan_replicas(const struct plan *plan)
{
    struct shards s;
    return data_shards(&s, &plan->data, plan_copies(plan), 0, NULL) == OK ? shards_replicas(&s) : 1;
}

int plan_replica_of(const struct plan *plan, int rank)
{
    struct shards s;
    return data_shards(&s, &plan->data, plan_copies(plan), 0, NULL) == OK
           ? shards_replica_of(&s, plan_copy_of(plan, rank)) : 0;
}
