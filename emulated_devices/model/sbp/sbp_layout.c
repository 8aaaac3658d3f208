/* sbp_layout.c -- a layout of tensor parallelism from the signatures of a block's graph.  cli/show/sbp.c calls
 * sbp_layout_of().  ERR_PLAN says what the layout lacks for training; other errors are those of a scheme. */
#include "emulated_devices/model/sbp/sbp_graph.h"
#include <string.h>

/* Where a layout's signatures are found.  A weight's first dimensions are those of what its product makes. */
static const struct { enum sbp_role role; const char *tensor, *makes; } found[] = {
    { SBP_STREAM, "in", NULL },         { SBP_HEADS, "attn.qkv", NULL },     { SBP_HIDDEN, "mlp.up", NULL },
    { SBP_QKV, "attn.qkv.w", "attn.qkv" }, { SBP_PROJ, "attn.out.w", "attn.out" },
    { SBP_FC, "mlp.up.w", "mlp.up" },   { SBP_FC2, "mlp.out.w", "mlp.out" },
};

/* Rows or columns of a matrix, whose columns have one dimension or more. */
static struct sbp as_matrix(struct sbp sbp, int first_of_columns)
{
    return sbp.kind != SBP_S ? sbp : (struct sbp){ SBP_S, sbp.dim >= first_of_columns };
}

/* Return what norms give to matrices: whether all of it is whole on every device. */
static bool inputs_are_whole(const struct sbp_graph *sbp_graph, const struct signature kept[])
{
    static const char *const norms[] = { "ln_1", "ln_2" };
    for (int i = 0; i < 2; i++) {
        const int t = graph_find(sbp_graph, norms[i]);
        if (t >= 0 && kept[t].on[0].kind != SBP_B) return false;
    }
    return true;
}

enum error_code sbp_layout_of(struct sbp_layout *layout, const struct sbp_graph *sbp_graph,
                              const struct sbp_mesh *sbp_mesh, const struct signature kept[], struct error *err)
{
    enum sbp_role role;
    *layout = (struct sbp_layout){ 0 };
    if (sbp_mesh->axes != 1) return fail(err, ERR_PLAN, "--layout: training has one axis for it, tp; --mesh has two");
    for (size_t i = 0; i < sizeof found / sizeof *found; i++) {
        const int t = graph_find(sbp_graph, found[i].tensor), y = found[i].makes
            ? graph_find(sbp_graph, found[i].makes) : 0;
        if (t < 0 || y < 0)
            return fail(err, ERR_PLAN, "--layout: the graph has no %s: only a model's block can be trained",
                        found[i].tensor);
        layout->of[found[i].role] = as_matrix(kept[t].on[0], found[i].makes ? sbp_graph->tensor[y].shape.ndim - 1 : 1);
    }
    const struct sbp stream = layout->of[SBP_STREAM], cut = ON_S(0), columns = ON_S(1);
    const bool by_tokens = sbp_equal(stream, cut);
    layout->of[SBP_INPUTS] = by_tokens && inputs_are_whole(sbp_graph, kept) ? (struct sbp)ON_B : stream;
    if (sbp_equal(stream, columns)) layout->of[SBP_NORMS] = cut;
    layout->of[SBP_EMBEDDING] = layout->of[SBP_HEAD] = cut, layout->of[SBP_LOGITS] = columns;
    const char *why = sbp_layout_refuses(layout, &role);
    return why ? fail(err, ERR_PLAN, "--layout: cannot be trained: %s: %s", sbp_role_name(role), why) : OK;
}
