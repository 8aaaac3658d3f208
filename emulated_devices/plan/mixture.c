/* mixture.c -- what a mixture of experts does not go with. */
#include "emulated_devices/plan/plan.h"

static bool forwards_come_first(const struct schedule *s)
{
    for (int d = 0; d < s->devices; d++) {
        bool backward = false;
        for (int i = 0; i < s->count[d]; i++) {
            const enum action_kind kind = s->actions[d][i].kind;
            if (kind == FORWARD && backward) return false;
            backward = backward || kind == BACKWARD || kind == BACKWARD_INPUT;
        }
    }
    return true;
}

enum error_code plan_check_mixture(const struct plan *p, const struct schedule *s, struct error *err)
{
    const char *model = p->model.name;
    struct shards shards;
    const enum error_code e = data_shards(&shards, &p->data, p->mesh.size[DP], 0, err);
    if (e || p->model.mlp != MLP_MIXTURE) return e;
    if (p->mesh.size[TP] > 1) return fail(err, ERR_PLAN, "--tp %d: no scheme cuts the experts of --model %s; it takes --tp 1", p->mesh.size[TP], model);
    if (p->data.tiles > 1) return fail(err, ERR_PLAN, "--tiles %d: the experts of --model %s are not tiled; it takes --tiles 1", p->data.tiles, model);
    if (p->optimizer->forward_only || p->optimizer->low_rank)
        return fail(err, ERR_PLAN, "--optimizer %s: is not for --model %s, a mixture of experts; sgd, momentum and adamw are", p->optimizer->name, model);
    if (shards.apart)
        return fail(err, ERR_PLAN, "--data-parallel %s: the routers' losses of --model %s are of the whole batch, and its copies train apart", p->data.scheme, model);
    if (s->weight_versions > 1 || p->updates > 1)
        return fail(err, ERR_PLAN, "--schedule %s: steps in mid-stream; the routers' losses of --model %s are of the whole batch", p->schedule, model);
    if (p->model.mixture.balance_coefficient > 0 && !forwards_come_first(s))
        return fail(err, ERR_PLAN, "--schedule %s with %d microbatches: the slope of the balance loss of --model %s is known after the last forward pass "
                    "of the batch; --schedule gpipe does all of them first", p->schedule, p->micros, model);
    return OK;
}
