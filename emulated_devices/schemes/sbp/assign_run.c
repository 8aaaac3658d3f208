/* assign_run.c -- carrying a graph out: before each operation its operands make their journeys, after it its result. */
#include "emulated_devices/schemes/sbp/panels.h"
#include <string.h>

struct execution {
    struct placement *place;
    const struct sbp_graph *graph;
    const struct assignment *assignment;
    struct device *device;
    struct tensor *piece;
};

/* A piece with the shape of its box. */
static struct tensor shaped(const struct execution *r, int tensor, struct signature s, struct tensor piece)
{
    const struct shape *t = &r->graph->tensor[tensor].shape;
    const struct box b = signature_box(t, &r->place->mesh, s, r->place->all.comm->rank);
    piece.ndim = t->ndim;
    memcpy(piece.dim, b.extent, sizeof piece.dim);
    return piece;
}

/* A copy of an operand, as the operation wants it. */
static enum error_code bring(const struct execution *r, int tensor, struct signature want, struct tensor *operand,
                             struct error *err)
{
    const struct shape *t = &r->graph->tensor[tensor].shape;
    const struct signature kept = r->assignment->tensor[tensor];
    const struct boxing b = boxing_plan(t, &r->place->mesh, kept, want);
    struct tensor copy = piece_make(r->device, t, &r->place->mesh, kept, r->place->all.comm->rank);
    enum error_code e = group_agree(
        &r->place->all,
        copy.data ? OK : fail(err, ERR_MEMORY, "the machine has no memory left for %s", r->graph->tensor[tensor].name),
        err);
    if (!e) device_copy(r->device, copy.data, r->piece[tensor].data, tensor_bytes(copy));
    if (!e) e = boxing_run(r->place, t, &b, &copy, err);
    *operand = shaped(r, tensor, want, copy);
    return e;
}

/* A product whose factors come panel by panel. */
static enum error_code do_panels(const struct execution *r, int o, struct error *err)
{
    const struct sbp_op *op = &r->graph->op[o];
    const struct shape *t = &r->graph->tensor[op->out].shape;
    const struct signature made = r->assignment->rule[o].out;
    const struct tensor piece[2] = { r->piece[op->in[0]], r->piece[op->in[1]] };
    struct tensor out = piece_make(r->device, t, &r->place->mesh, made, r->place->all.comm->rank);
    enum error_code e = group_agree(
        &r->place->all, out.data ? OK : fail(err, ERR_MEMORY, "the machine has no memory left for a product"), err);
    if (!e) e = panels_run(r->place, r->graph, r->assignment, o, piece, shaped(r, op->out, made, out), err);
    if (!e) {
        const struct boxing b = boxing_plan(t, &r->place->mesh, made, r->assignment->tensor[op->out]);
        e = boxing_run(r->place, t, &b, &out, err);
    }
    r->piece[op->out] = out;
    return e;
}

static enum error_code do_op(const struct execution *r, int o, struct error *err)
{
    const struct sbp_op *op = &r->graph->op[o];
    const struct rule *rule = &r->assignment->rule[o];
    const struct shape *t = &r->graph->tensor[op->out].shape;
    const int self = r->place->all.comm->rank;
    struct tensor in[SBP_OPERANDS] = { { 0 } }, out = tensor_none;
    enum error_code e = OK;
    for (int i = 0; i < op->inputs && !e; i++) {
        /* who needs no journey is read where it is */
        if (signature_equal(r->assignment->tensor[op->in[i]], rule->in[i]))
            in[i] = shaped(r, op->in[i], rule->in[i], r->piece[op->in[i]]);
        else e = bring(r, op->in[i], rule->in[i], &in[i], err);
    }
    if (!e) {
        out = piece_make(r->device, t, &r->place->mesh, rule->out, self);
        const bool done = out.data && op->operator->run(r->device, &r->graph->model,
                                                        shaped(r, op->out, rule->out, out), in);
        e = group_agree(&r->place->all,
                        done ? OK : fail(err, ERR_MEMORY, "the machine has no memory left for %s", op->operator->name),
                        err);
    }
    for (int i = 0; i < op->inputs; i++)
        if (in[i].data != r->piece[op->in[i]].data) device_free(r->device, in[i]);
    if (!e) {
        const struct boxing b = boxing_plan(t, &r->place->mesh, rule->out, r->assignment->tensor[op->out]);
        e = boxing_run(r->place, t, &b, &out, err);
    }
    r->piece[op->out] = out;
    return e;
}

enum error_code assignment_run(struct placement *p, const struct sbp_graph *g, const struct assignment *a,
                               struct tensor piece[], const bool keep[], struct error *err)
{
    const struct execution r = { p, g, a, p->all.comm->device, piece };
    bool given[SBP_MOST_TENSORS];
    enum error_code e = OK;
    for (int t = 0; t < g->tensors; t++) given[t] = piece[t].data != NULL;
    for (int o = 0; o < g->ops && !e; o++) {
        e = a->panels && panels_of(g, a, o).count > 0 ? do_panels(&r, o, err) : do_op(&r, o, err);
        for (int t = 0; t < g->tensors && !e; t++)
            /* A piece that the caller did not give and does not want is freed behind its last reader. */
            if (!given[t] && !keep[t] && piece[t].data && graph_last_use(g, t) <= o) {
                device_free(r.device, piece[t]);
                piece[t] = tensor_none;
            }
    }
    return e;
}
