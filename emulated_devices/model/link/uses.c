/* uses.c -- the weights that a stage's passes use, in order, from the lists of steps, so that the data scheme can
 * gather them in advance.  model/trainer_open.c and verify/cases/layer.c call these functions.  No function returns
 * an error code. */
#include "emulated_devices/model/stage.h"
#include "emulated_devices/schemes/data/tiles.h"
#include "emulated_devices/schemes/data/units.h"

/* The tiles of the matrices in the products of a list. */
static int tiles_used(const struct stage *stage, const struct model_part *part, enum list which, enum pass pass,
                      struct use *use)
{
    const struct steps *list = &part->linked.list[which];
    const struct data_request *q = &stage->plan->data;
    int n = 0;
    for (int i = 0; i < list->count; i++) {
        const int v = list->step[i].at;
        if (list->step[i].kind != STEP_RUN || part->weight[v] < 0) continue;
        const struct parameter *w = parameter_find(stage->parameters, part->weight[v]);
        for (int t = 0; t < q->tiles && tiles_of(q, &w->spec) > 1; t++)
            use[n++] =
                (struct use){ .part = part->index, .pass = pass, .tile = data_unit_of(&stage->plan->model, q, &w[t]) };
    }
    return n;
}

/* The gradients of untiled parameters, which include the biases, are reduced last. */
static int part_uses(const struct stage *stage, const struct model_part *part, enum pass pass, struct use *use)
{
    int n = 0;
    if (uses_tiles(&stage->plan->data)) {
        if (pass == PASS_FORWARD) n += tiles_used(stage, part, LIST_FORWARD, pass, use + n);
        if (pass == PASS_BACKWARD_INPUT) n += tiles_used(stage, part, LIST_AGAIN, pass, use + n);
        if (pass == PASS_BACKWARD_INPUT) n += tiles_used(stage, part, LIST_INPUT, pass, use + n);
        if (pass == PASS_BACKWARD_WEIGHT) n += tiles_used(stage, part, LIST_WEIGHT, pass, use + n);
    }
    if (n == 0 || pass == PASS_BACKWARD_WEIGHT) use[n++] = (struct use){ .part = part->index, .pass = pass };
    return n;
}

static int backward_uses(const struct stage *stage, const struct model_part *part, bool input, bool weight,
                         struct use *use)
{
    int n = 0;
    if (input && list_uses_weights(&part->linked, LIST_INPUT))
        n += part_uses(stage, part, PASS_BACKWARD_INPUT, use + n);
    if (weight) n += part_uses(stage, part, PASS_BACKWARD_WEIGHT, use + n);
    return n;
}

int stage_uses_forward(const struct stage *stage, struct use *use)
{
    int n = 0;
    for (int i = stage->first ? 0 : 1; i < stage->layers + 1 + stage->last; i++)
        n += part_uses(stage, &stage->part[i], PASS_FORWARD, use + n);
    return n;
}

int stage_uses_backward(const struct stage *stage, bool input, bool weight, struct use *use)
{
    int n = 0;
    for (int i = stage->layers + stage->last; i >= (stage->first ? 0 : 1); i--)
        n += backward_uses(stage, &stage->part[i], input, weight, use + n);
    return n;
}

int part_uses_most(const struct plan *plan)
{
    return uses_tiles(&plan->data) ? 4 * LINK_NODES * plan->data.tiles + 1 : 3;
}
