/* apart.c -- what replicas that train apart do not go with. */
#include "emulated_devices/collectives/algorithm.h"
#include "emulated_devices/plan/plan.h"
#include <string.h>

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

/* Several places of the pipeline have the same weights, and must add up the replicas in one order; of two there is but one. */
static bool must_add_alike(const struct plan *p, const struct schedule *s, const struct shards *shards)
{
    return p->mesh.size[PP] > 1 && shards_replicas(shards) > 2 && (p->model.tied || s->stages < s->devices * s->chunks);
}

static bool follows_nodes(const struct plan *p)
{
    const struct algorithm *a = algorithm_find(ALLREDUCE, p->allreduce);
    return a == NULL || a->by_nodes;
}

enum error_code plan_check_apart(const struct plan *p, const struct schedule *s, struct error *err)
{
    struct shards shards;
    const char *scheme = p->data.scheme;
    const enum error_code e = data_shards(&shards, &p->data, p->mesh.size[DP], 0, err);
    if (e || !shards.apart) return e;
    if (p->optimizer->forward_only)
        return fail(err, ERR_PLAN, "--data-parallel %s: saves sending gradients, and --optimizer %s has none; ddp sends 16 bytes a step with it", scheme,
                    p->optimizer->name);
    if (s->weight_versions > 1 || p->updates > 1)
        return fail(err, ERR_PLAN, "--schedule %s: steps the weights in mid-stream; --data-parallel %s takes schedules that step once, at the end",
                    p->schedule, scheme);
    if (loss_scale_usual(p->dtype).interval > 0)
        return fail(err, ERR_PLAN, "--dtype %s: needs a loss scale, and with --data-parallel %s each replica would need its own; --dtype bf16 needs none",
                    dtype_name(p->dtype), scheme);
    if (p->data.narrow_gradients)
        return fail(err, ERR_PLAN, "--grad-dtype %s: --data-parallel %s sends differences of fp32 weights where gradients are; it takes --grad-dtype fp32",
                    dtype_name(p->dtype), scheme);
    if (must_add_alike(p, s, &shards) && follows_nodes(p))
        return fail(err, ERR_PLAN, "--allreduce %s: may add in another order on another stage of the pipeline, and --data-parallel %s keeps weights "
                    "that two stages have equal by adding alike; --allreduce ring would do", p->allreduce, scheme);
    return OK;
}
