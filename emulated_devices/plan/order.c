/* order.c -- whether copies of a parameter would drift apart, because devices sum gradients in different orders.
 *
 * tp does not cut norms and biases: each device along tp has a copy and reduces its gradients over dp by itself.  Where
 * the cut dimension is not divisible by tp, copies lie in different places of the devices' buckets and units.  An
 * algorithm whose order of additions depends on the place then computes different sums.  For two summands the order
 * does not matter.
 *
 * features.c asks, for the row of uneven tp in the table of clashes.  No function returns an error code.
 */
#include "emulated_devices/plan/plan.h"
#include "ref/model/params.h"

static int tp_rank(const struct plan *plan, int tp) { return mesh_neighbour(&plan->mesh, plan->mesh.first, TP, tp); }

/* Whether two boxes have an element in common: they must overlap in every dimension. */
static bool boxes_meet(const struct box *a, const struct box *b, int ndim)
{
    for (int d = 0; d < ndim; d++)
        if (interval_meet((struct interval){ a->start[d], a->extent[d] },
                          (struct interval){ b->start[d], b->extent[d] })
                .count == 0)
            return false;
    return true;
}

/* Whether two devices have an element of a parameter in common. */
static bool layouts_meet(const struct layout *a, const struct layout *b)
{
    for (int i = 0; i < a->boxes; i++)
        for (int k = 0; k < b->boxes; k++)
            if (boxes_meet(&a->box[i], &b->box[k], a->ndim)) return true;
    return false;
}

/* True if neighbours along tp share elements of some parameter, and pieces of some parameter differ in size. */
bool plan_copies_lie_apart(const struct plan *plan)
{
    bool uneven = false, copies = false;
    for (int i = 0; i < model_param_count(&plan->model); i++) {
        const struct param_spec s = model_param(&plan->model, i);
        const struct layout first = plan_layout(plan, tp_rank(plan, 0), &s);
        for (int tp = 1; tp < plan->mesh.size[TP]; tp++) {
            const struct layout other = plan_layout(plan, tp_rank(plan, tp), &s),
                                before = plan_layout(plan, tp_rank(plan, tp - 1), &s);
            uneven = uneven || layout_count(&other) != layout_count(&first);
            copies = copies || layouts_meet(&before, &other);
        }
    }
    return uneven && copies;
}
