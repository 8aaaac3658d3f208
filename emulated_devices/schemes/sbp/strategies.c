/* strategies.c -- what makes data, tensor, sequence and 2-D parallelism of a graph: a few signatures.
 *
 * Tensor parallelism cuts what has a dimension for it (sbp_tensor.inner): rows of the first matrix of a pair, columns
 * of the second, and columns of all that lies between them.
 *
 * cli/show/sbp.c calls graph_strategy for `--as NAME`.  ERR_USAGE names the strategies, ERR_PLAN the mesh that a
 * strategy needs.
 */
#include "emulated_devices/schemes/sbp/graph.h"
#include "ref/io/options.h"
#include <string.h>

/* cuts_weights: along this axis; then all tokens and a share of the columns lie between the products of a pair, else as
 * in the stream. */
struct strategy { const char *name; int axes; struct sbp stream[SBP_AXES]; bool cuts_weights[SBP_AXES]; };
static const struct strategy strategies[] = {
    { "dp", 1, { ON_S(0) }, { false } },
    { "1d", 1, { ON_B }, { true } },
    { "sp", 1, { ON_S(0) }, { true } },
    { "2d", 2, { ON_S(0), ON_B }, { false, true } },
};

/* Return the kind that a strategy pins on one axis.  The stream lies as the strategy says; a weight that is not cut is
 * whole. */
static struct sbp pin_on(const struct strategy *strategy, int axis, const struct sbp_tensor *tensor, bool is_weight)
{
    if (strategy->cuts_weights[axis] && tensor->inner >= 0) return (struct sbp)ON_S(tensor->inner);
    return is_weight ? (struct sbp)ON_B : strategy->stream[axis];
}

/* Pin what enters and what tensor parallelism cuts; all other results are left to the search. */
static enum error_code pin_all(struct sbp_graph *sbp_graph, const struct sbp_mesh *sbp_mesh,
                               const struct strategy *strategy, struct error *err)
{
    enum error_code e = OK;
    for (int t = 0; t < sbp_graph->tensors && !e; t++) {
        /* Tensor 0 is the stream that enters; other tensors that no operation makes are weights. */
        const bool made = graph_makes(sbp_graph, t);
        struct signature pin = { { ON_B, ON_B } };
        if (sbp_graph->tensor[t].like >= 0 || (made && sbp_graph->tensor[t].inner < 0)) continue;
        for (int k = 0; k < sbp_mesh->axes; k++) pin.on[k] = pin_on(strategy, k, &sbp_graph->tensor[t], !made && t > 0);
        e = graph_pin(sbp_graph, sbp_mesh, sbp_graph->tensor[t].name, pin, err);
    }
    return e;
}

enum error_code graph_strategy(struct sbp_graph *sbp_graph, const struct sbp_mesh *sbp_mesh, const char *name,
                               struct error *err)
{
    if (strcmp(name, "free") == 0) return OK;
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) {
        const struct strategy *s = &strategies[i];
        if (strcmp(s->name, name) != 0) continue;
        if (s->axes == sbp_mesh->axes) return pin_all(sbp_graph, sbp_mesh, s, err);
        return fail(err, ERR_PLAN, "strategy %s needs a mesh with %s, such as %s", name,
                    s->axes == 1 ? "one axis" : "two axes", s->axes == 1 ? "4" : "2x2");
    }
    /* No strategy has this name: the message lists those that exist. */
    const char *names[1 + sizeof strategies / sizeof *strategies] = { "free" };
    for (size_t i = 0; i < sizeof strategies / sizeof *strategies; i++) names[1 + i] = strategies[i].name;
    return fail_unknown_name(err, "strategy", name, names, sizeof names / sizeof *names);
}
