/* panels.c -- the panels of a product, and the product panel by panel.
 *
 * assign_run.c calls panels_of and panels_run; tests count messages by panels_messages.  panels_run is collective over
 * the placement, and reports ERR_MEMORY or ERR_COMM on every device alike.
 */
#include "emulated_devices/schemes/sbp/panels.h"
#include "emulated_devices/collectives/collective.h"
#include <string.h>

/* ---- which products ---------------------------------------------------------------------------------------------- */

/* The axis along which alone a factor is brought from S(dim) to B; -1: it is brought otherwise, or not at all. */
static int gathered_along(struct signature kept, struct signature want, int dim)
{
    int along = -1;
    for (int k = 0; k < SBP_AXES; k++) {
        if (sbp_equal(kept.on[k], want.on[k])) continue;
        if (along >= 0 || kept.on[k].kind != SBP_S || kept.on[k].dim != dim || want.on[k].kind != SBP_B) return -1;
        along = k;
    }
    return along;
}

/* The letter that both factors have and the product has not, if it is the only one. */
static char summed_letter(const struct sbp_op *op)
{
    int n[3];
    const char *first = graph_letters(op, 0, &n[0]), *second = graph_letters(op, 1, &n[1]),
               *out = graph_letters(op, 2, &n[2]);
    char found = '\0';
    for (int i = 0; i < n[0]; i++) {
        if (!memchr(second, first[i], (size_t)n[1]) || memchr(out, first[i], (size_t)n[2])) continue;
        if (found) return '\0';
        found = first[i];
    }
    return found;
}

/* Return the dimension of an operand that has this letter. */
static int place_of_letter(const struct sbp_op *op, int operand, char letter)
{
    int n;
    const char *letters = graph_letters(op, operand, &n);
    return (int)((const char *)memchr(letters, letter, (size_t)n) - letters);
}

/* Add the cuts of a factor along the dimension, in order, each once. */
static int add_cuts(const struct shape *shape, const struct sbp_mesh *sbp_mesh, struct signature signature, int dim,
                    int64_t cut[], int n)
{
    for (int d = 0; d < sbp_devices(sbp_mesh); d++) {
        const int64_t start = signature_box(shape, sbp_mesh, signature, d).start[dim];
        int at = 0;
        while (at < n && cut[at] < start) at++;
        if (at < n && cut[at] == start) continue;
        memmove(&cut[at + 1], &cut[at], (size_t)(n - at) * sizeof *cut);
        cut[at] = start, n++;
    }
    return n;
}

struct panels panels_of(const struct sbp_graph *sbp_graph, const struct assignment *assignment, int o)
{
    const struct sbp_op *op = &sbp_graph->op[o];
    struct panels p = { 0 };
    int64_t cut[PANELS_MOST];
    int n = 0;
    /* An operator without `add`, or a mesh of one axis, has no panels. */
    const char letter = op->operator->add && assignment->mesh.axes == 2 ? summed_letter(op) : '\0';
    for (int i = 0; i < 2 && letter; i++) {
        p.dim[i] = place_of_letter(op, i, letter);
        p.along[i] = gathered_along(assignment->tensor[op->in[i]], assignment->rule[o].in[i], p.dim[i]);
    }
    /* Panels need each factor gathered along the summed dimension, one along each axis (SUMMA). */
    if (!letter || p.along[0] < 0 || p.along[1] < 0 || p.along[0] == p.along[1]) return p;
    for (int i = 0; i < 2; i++)
        n = add_cuts(&sbp_graph->tensor[op->in[i]].shape, &assignment->mesh, assignment->tensor[op->in[i]],
                     p.dim[i], cut, n);
    /* A panel lies between two neighbouring cuts; empty panels are left out. */
    const int64_t end = sbp_graph->tensor[op->in[0]].shape.dim[p.dim[0]];
    for (int i = 0; i < n; i++) {
        const struct interval panel = { cut[i], (i + 1 < n ? cut[i + 1] : end) - cut[i] };
        if (panel.count > 0) p.at[p.count++] = panel;
    }
    return p;
}

/* ---- carrying it out --------------------------------------------------------------------------------------------- */

/* Return the whole tensor's box, cut to the panel in one dimension. */
static struct box region_of(const struct shape *shape, int dim, struct interval panel)
{
    struct box b = { 0 };
    for (int d = 0; d < shape->ndim; d++) b.extent[d] = shape->dim[d];
    b.start[dim] = panel.first, b.extent[dim] = panel.count;
    return b;
}

/* Return the part of a factor's panel that all devices along the axis have once the panel was brought. */
static struct box brought_to(const struct sbp_graph *sbp_graph, const struct assignment *assignment, int o, int operand,
                             const struct panels *panels, int which, int device)
{
    const struct shape *t = &sbp_graph->tensor[sbp_graph->op[o].in[operand]].shape;
    return box_intersect(signature_box(t, &assignment->mesh, assignment->rule[o].in[operand], device),
                         region_of(t, panels->dim[operand], panels->at[which]), t->ndim);
}

int64_t panels_messages(const struct sbp_graph *sbp_graph, const struct assignment *assignment, int o)
{
    const struct panels p = panels_of(sbp_graph, assignment, o);
    int64_t sum = 0;
    for (int i = 0; i < p.count; i++)
        for (int k = 0; k < 2; k++)
            for (int d = 0; d < sbp_devices(&assignment->mesh); d++) {
                const int ndim = sbp_graph->tensor[sbp_graph->op[o].in[k]].shape.ndim;
                /* All members of a group but the root receive the panel. */
                const bool receives = sbp_place(&assignment->mesh, d, p.along[k]) > 0;
                sum += receives && box_count(brought_to(sbp_graph, assignment, o, k, &p, i, d), ndim) > 0;
            }
    return sum;
}

/* The member that has a panel: no cut of its factor lies inside. */
static int root_of(const struct sbp_graph *sbp_graph, const struct assignment *assignment, int o, int operand,
                   const struct group *along, struct box panel)
{
    const struct shape *t = &sbp_graph->tensor[sbp_graph->op[o].in[operand]].shape;
    const struct signature kept = assignment->tensor[sbp_graph->op[o].in[operand]];
    for (int i = 0; i < along->size; i++) {
        const struct box own = signature_box(t, &assignment->mesh, kept, along->member[i]);
        if (box_count(box_intersect(own, panel, t->ndim), t->ndim) > 0) return i;
    }
    return 0;
}

/* Copy the root's part of a panel into the buffer that is broadcast. */
static void panels_pack(struct device *device, int ndim, struct box own, struct box panel, struct tensor piece,
                        struct tensor packed)
{
    struct views v = views_of(device);
    box_pack(ndim, own, panel, view_read(&v, piece).data, view_write(&v, packed).data, dtype_size(piece.dtype));
    views_end(&v);
}

/* Bring a panel of a factor to all devices along its axis.  Collective over the placement; the caller frees the
 * factor. */
static enum error_code bring_panel(struct placement *place, const struct sbp_graph *sbp_graph,
                                   const struct assignment *assignment,
                                   int o, int operand, const struct panels *panels, int which, struct tensor piece,
                                   struct tensor *factor, struct error *err)
{
    const struct shape *t = &sbp_graph->tensor[sbp_graph->op[o].in[operand]].shape;
    struct device *d = place->all.comm->device;
    struct group *along = &place->along[panels->along[operand]];
    const int self = place->all.comm->rank;
    const struct box panel = brought_to(sbp_graph, assignment, o, operand, panels, which, self);
    const int root = root_of(sbp_graph, assignment, o, operand, along, panel);
    *factor = device_tensor_1d(d, BUFFERS, box_count(panel, t->ndim));
    const enum error_code e = group_agree(
        &place->all, factor->data ? OK : fail(err, ERR_MEMORY, "the machine has no memory left for a panel"), err);
    if (e) return e;
    factor->ndim = t->ndim;
    memcpy(factor->dim, panel.extent, sizeof factor->dim);
    /* An empty panel is empty on the whole group, so nobody waits for a broadcast. */
    if (tensor_count(*factor) == 0) return OK;
    if (along->rank == root)
        panels_pack(d, t->ndim, signature_box(t, &assignment->mesh, assignment->tensor[sbp_graph->op[o].in[operand]],
                                              self), panel, piece, *factor);
    return broadcast(along, factor->data, tensor_count(*factor), factor->dtype, root, err);
}

/* Do one panel: bring both factors, multiply, free them.  out [n, f] += X [n, panel] W [f, panel]^T, for example. */
static enum error_code run_panel(struct placement *place, const struct sbp_graph *sbp_graph,
                                 const struct assignment *assignment, int o,
                                 const struct panels *panels, int which, const struct tensor piece[], struct tensor out,
                                 struct error *err)
{
    const struct sbp_op *op = &sbp_graph->op[o];
    struct device *d = place->all.comm->device;
    struct tensor factor[2] = { tensor_none, tensor_none };
    enum error_code e = OK;
    for (int i = 0; i < 2 && !e; i++)
        e = bring_panel(place, sbp_graph, assignment, o, i, panels, which, piece[i], &factor[i], err);
    e = group_agree(&place->all, e, err);
    /* The first panel's product sets the result, the others are added to it. */
    if (!e) (which == 0 ? op->operator->run : op->operator->add)(d, &sbp_graph->model, out, factor);
    for (int i = 0; i < 2; i++) device_free(d, factor[i]);
    return e;
}

enum error_code panels_run(struct placement *place, const struct sbp_graph *sbp_graph,
                           const struct assignment *assignment, int o,
                           const struct tensor piece[], struct tensor out, struct error *err)
{
    const struct panels p = panels_of(sbp_graph, assignment, o);
    enum error_code e = OK;
    /* All devices take the panels in one order, so their broadcasts meet. */
    for (int i = 0; i < p.count && !e; i++) e = run_panel(place, sbp_graph, assignment, o, &p, i, piece, out, err);
    return e;
}
