/* assign_run.c -- carrying a graph out: before each operation its operands make their journeys, after it its result.
 *
 * trial.c calls assignment_run on every device of the mesh.  Input are pieces of what enters; output are the pieces of
 * all tensors in `keep`.  An error is the same on every device: ERR_MEMORY, or ERR_COMM of a journey.
 */
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
static struct tensor shaped(const struct execution *execution, int tensor, struct signature signature,
                            struct tensor piece)
{
    const struct shape *t = &execution->graph->tensor[tensor].shape;
    /* The piece's memory is a row of numbers; operations want its dimensions. */
    const struct box b = signature_box(t, &execution->place->mesh, signature, execution->place->all.comm->rank);
    piece.ndim = t->ndim;
    memcpy(piece.dim, b.extent, sizeof piece.dim);
    return piece;
}

/* A copy of an operand, as the operation wants it. */
static enum error_code assign_run_bring(const struct execution *execution, int tensor, struct signature want,
                                        struct tensor *operand, struct error *err)
{
    const struct shape *t = &execution->graph->tensor[tensor].shape;
    const struct signature kept = execution->assignment->tensor[tensor];
    const struct boxing b = boxing_plan(t, &execution->place->mesh, kept, want);
    struct tensor copy = piece_make(execution->device, t, &execution->place->mesh, kept,
                                    execution->place->all.comm->rank);
    enum error_code e = group_agree(
        &execution->place->all,
        copy.data ? OK : fail(err, ERR_MEMORY, "the machine has no memory left for %s",
                              execution->graph->tensor[tensor].name),
        err);
    /* The kept piece stays for other readers; the copy travels. */
    if (!e) device_copy(execution->device, copy.data, execution->piece[tensor].data, tensor_bytes(copy));
    if (!e) e = boxing_run(execution->place, t, &b, &copy, err);
    *operand = shaped(execution, tensor, want, copy);
    return e;
}

/* A product whose factors come panel by panel. */
static enum error_code do_panels(const struct execution *execution, int o, struct error *err)
{
    const struct sbp_op *op = &execution->graph->op[o];
    const struct shape *t = &execution->graph->tensor[op->out].shape;
    const struct signature made = execution->assignment->rule[o].out;
    const struct tensor piece[2] = { execution->piece[op->in[0]], execution->piece[op->in[1]] };
    struct tensor out = piece_make(execution->device, t, &execution->place->mesh, made,
                                   execution->place->all.comm->rank);
    enum error_code e = group_agree(
        &execution->place->all, out.data ? OK
            : fail(err, ERR_MEMORY, "the machine has no memory left for a product"), err);
    /* The product is made panel by panel, then its journey is as that of any result. */
    if (!e) e = panels_run(execution->place, execution->graph, execution->assignment, o, piece,
                           shaped(execution, op->out, made, out), err);
    if (!e) {
        const struct boxing b = boxing_plan(t, &execution->place->mesh, made, execution->assignment->tensor[op->out]);
        e = boxing_run(execution->place, t, &b, &out, err);
    }
    execution->piece[op->out] = out;
    return e;
}

/* Bring the operands, compute, free what was brought, send the result to its signature.  Collective over the
 * placement. */
static enum error_code do_op(const struct execution *execution, int o, struct error *err)
{
    const struct sbp_op *op = &execution->graph->op[o];
    const struct rule *rule = &execution->assignment->rule[o];
    const struct shape *t = &execution->graph->tensor[op->out].shape;
    const int self = execution->place->all.comm->rank;
    struct tensor in[SBP_OPERANDS] = { { 0 } }, out = tensor_none;
    enum error_code e = OK;
    for (int i = 0; i < op->inputs && !e; i++) {
        /* An operand that needs no journey is read where it lies. */
        if (signature_equal(execution->assignment->tensor[op->in[i]], rule->in[i]))
            in[i] = shaped(execution, op->in[i], rule->in[i], execution->piece[op->in[i]]);
        else e = assign_run_bring(execution, op->in[i], rule->in[i], &in[i], err);
    }
    if (!e) {
        out = piece_make(execution->device, t, &execution->place->mesh, rule->out, self);
        const bool done = out.data && op->operator->run(execution->device, &execution->graph->model,
                                                        shaped(execution, op->out, rule->out, out), in);
        e = group_agree(&execution->place->all,
                        done ? OK : fail(err, ERR_MEMORY, "the machine has no memory left for %s", op->operator->name),
                        err);
    }
    /* Copies that were brought are freed; kept pieces are not. */
    for (int i = 0; i < op->inputs; i++)
        if (in[i].data != execution->piece[op->in[i]].data) device_free(execution->device, in[i]);
    if (!e) {
        const struct boxing b = boxing_plan(t, &execution->place->mesh, rule->out,
                                            execution->assignment->tensor[op->out]);
        e = boxing_run(execution->place, t, &b, &out, err);
    }
    /* The caller frees the piece, also after an error. */
    execution->piece[op->out] = out;
    return e;
}

enum error_code assignment_run(struct placement *placement, const struct sbp_graph *sbp_graph,
                               const struct assignment *assignment,
                               struct tensor piece[], const bool keep[], struct error *err)
{
    const struct execution r = { placement, sbp_graph, assignment, placement->all.comm->device, piece };
    bool given[SBP_MOST_TENSORS];
    enum error_code e = OK;
    /* Pieces that the caller gave are never freed here. */
    for (int t = 0; t < sbp_graph->tensors; t++) given[t] = piece[t].data != NULL;
    for (int o = 0; o < sbp_graph->ops && !e; o++) {
        e = assignment->panels && panels_of(sbp_graph, assignment, o).count > 0 ? do_panels(&r, o, err)
            : do_op(&r, o, err);
        for (int t = 0; t < sbp_graph->tensors && !e; t++)
            /* A piece that the caller did not give and does not want is freed behind its last reader. */
            if (!given[t] && !keep[t] && piece[t].data && graph_last_use(sbp_graph, t) <= o) {
                device_free(r.device, piece[t]);
                piece[t] = tensor_none;
            }
    }
    return e;
}
