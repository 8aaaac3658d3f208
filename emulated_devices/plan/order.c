/* order.c -- whether copies of a parameter would drift apart, because sums are made in different orders.
 *
 * Devices along tp have copies of what it does not cut, norms and biases, and each adds up their gradients over dp for itself.  Where tp
 * does not divide what it cuts, copies lie in different places of the devices' buckets and units; an algorithm whose order of additions
 * depends on the place then makes different sums.  Of two numbers there is one sum.
 */
#include "emulated_devices/plan/plan.h"

static int tp_rank(const struct plan *p, int tp) { return mesh_neighbour(&p->mesh, 0, TP, tp); }

static bool boxes_meet(const struct box *a, const struct box *b, int ndim)
{
    for (int d = 0; d < ndim; d++)
        if (interval_meet((struct interval){ a->start[d], a->extent[d] }, (struct interval){ b->start[d], b->extent[d] }).count == 0) return false;
    return true;
}

static bool layouts_meet(const struct layout *a, const struct layout *b)
{
    for (int i = 0; i < a->boxes; i++)
        for (int k = 0; k < b->boxes; k++)
            if (boxes_meet(&a->box[i], &b->box[k], a->ndim)) return true;
    return false;
}

/* A parameter that two devices along tp have elements of in common, if any two have pieces of different sizes. */
static bool copies_lie_apart(const struct plan *p, struct param_spec *copied)
{
    bool uneven = false, copies = false;
    for (int i = 0; i < model_param_count(&p->model); i++) {
        const struct param_spec s = model_param(&p->model, i);
        const struct layout first = plan_layout(p, tp_rank(p, 0), &s);
        for (int tp = 1; tp < p->mesh.size[TP]; tp++) {
            const struct layout other = plan_layout(p, tp_rank(p, tp), &s), before = plan_layout(p, tp_rank(p, tp - 1), &s);
            uneven = uneven || layout_count(&other) != layout_count(&first);
            if (copies || !layouts_meet(&before, &other)) continue;
            copies = true;
            *copied = s;
        }
    }
    return uneven && copies;
}

static bool adds_by_position(enum operation op, const char *name)
{
    const struct algorithm *a = algorithm_find(op, name);
    return a == NULL || a->order == BY_POSITION;                /* "auto" chooses by length */
}

static enum error_code refuse(const char *flag, const char *name, int tp, const struct param_spec *s, const char *others, struct error *err)
{
    return fail(err, ERR_PLAN, "%s %s: adds in an order that depends on an element's place, and --tp %d cuts unevenly, so that copies of %s lie in "
                "different places and would drift apart; take %s", flag, name, tp, s->name, others);
}

enum error_code plan_check_order(const struct plan *p, const struct shards *s, struct error *err)
{
    struct param_spec copied;
    int level = 1;
    for (enum shard_level l = BY_WEIGHTS; l < BY_COPIES; l++)
        if (shards_size(s, l) > level) level = shards_size(s, l);
    const bool all = shards_size(s, BY_COPIES) > 2 && adds_by_position(ALLREDUCE, p->allreduce);
    const bool scattered = level > 2 && adds_by_position(REDUCE_SCATTER, p->data.reduce_scatter);
    if (p->optimizer->forward_only || p->mesh.size[TP] == 1 || (!all && !scattered) || !copies_lie_apart(p, &copied)) return OK;
    return all ? refuse("--allreduce", p->allreduce, p->mesh.size[TP], &copied, "two_shot, one_shot, doubling or tree", err)
               : refuse("--reduce-scatter", p->data.reduce_scatter, p->mesh.size[TP], &copied, "direct or halving", err);
}
