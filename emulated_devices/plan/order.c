/* order.c -- whether copies of a parameter would drift apart, because sums are made in different orders.
 *
 * Devices along tp have copies of what it does not cut, norms and biases, and each adds up their gradients over dp for
 * itself.  Where tp does not divide what it cuts, copies lie in different places of the devices' buckets and units; an
 * algorithm whose order of additions depends on the place then makes different sums.  Of two numbers there is one sum.
 */
#include "emulated_devices/plan/plan.h"

static int tp_rank(const struct plan *p, int tp) { return mesh_neighbour(&p->mesh, 0, TP, tp); }

static bool boxes_meet(const struct box *a, const struct box *b, int ndim)
{
    for (int d = 0; d < ndim; d++)
        if (interval_meet((struct interval){ a->start[d], a->extent[d] },
                          (struct interval){ b->start[d], b->extent[d] })
                .count == 0)
            return false;
    return true;
}

static bool layouts_meet(const struct layout *a, const struct layout *b)
{
    for (int i = 0; i < a->boxes; i++)
        for (int k = 0; k < b->boxes; k++)
            if (boxes_meet(&a->box[i], &b->box[k], a->ndim)) return true;
    return false;
}

/* Two devices along tp have elements of a parameter in common, and any two have pieces of different sizes. */
bool plan_copies_lie_apart(const struct plan *p)
{
    bool uneven = false, copies = false;
    for (int i = 0; i < model_param_count(&p->model); i++) {
        const struct param_spec s = model_param(&p->model, i);
        const struct layout first = plan_layout(p, tp_rank(p, 0), &s);
        for (int tp = 1; tp < p->mesh.size[TP]; tp++) {
            const struct layout other = plan_layout(p, tp_rank(p, tp), &s),
                                before = plan_layout(p, tp_rank(p, tp - 1), &s);
            uneven = uneven || layout_count(&other) != layout_count(&first);
            copies = copies || layouts_meet(&before, &other);
        }
    }
    return uneven && copies;
}
