/* run_parts.c -- runs a node of a layer on some rows of an iteration at a time (answering.h).  run.c calls.  The
 * buffers of the node show these rows alone while it runs.  Errors are those of run_node. */
#include "emulated_devices/model/run/run_node.h"

/* Whether each row of a node's output depends on that row of its inputs alone, or, of attention, on earlier rows. */
static bool has_rows_apart(const struct linked_node *node)
{
    switch (node->is->op) {
    case OP_NORM: case OP_MATRIX: case OP_HEAD_NORM: case OP_ROTARY: case OP_ATTENTION: case OP_SINK_ATTENTION:
    case OP_GELU: case OP_SILU: case OP_SWIGLU: case OP_GEGLU: case OP_SCALE: case OP_ADD:
        return node->end == 0;
    default:
        return false;
    }
}

enum { SHOWN_MOST = 1 + NODE_INPUTS + NODE_STATISTICS };

/* The tensors of a node, as they are with all rows. */
struct shown_rows { struct tensor *at[SHOWN_MOST], whole[SHOWN_MOST]; int count; };

/* A statistic may have several numbers for each row. */
static void show_buffer(struct shown_rows *shown, struct tensor *tensor, int64_t N, struct interval rows)
{
    for (int i = 0; i < shown->count; i++)
        if (shown->at[i] == tensor) return;
    if (tensor->ndim == 0 || tensor->dim[0] % N != 0) return;
    const int64_t each = tensor->dim[0] / N, cells = tensor_count(*tensor) / N;
    shown->at[shown->count] = tensor, shown->whole[shown->count++] = *tensor;
    if (tensor->data) tensor->data = (char *)tensor->data + (size_t)(rows.first * cells) * dtype_size(tensor->dtype);
    tensor->dim[0] = rows.count * each;
}

static void show_rows(struct shown_rows *shown, const struct node_call *call, struct interval rows)
{
    const struct linked_node *const n = call->node;
    const int64_t N = call->micro->N;
    shown->count = 0;
    if (n->y >= 0) show_buffer(shown, stage_buffer(call->micro, call->part, n->y), N, rows);
    for (int i = 0; i < NODE_INPUTS; i++)
        if (n->x[i] >= 0) show_buffer(shown, stage_buffer(call->micro, call->part, n->x[i]), N, rows);
    for (int i = 0; i < NODE_STATISTICS; i++)
        if (n->statistic[i] >= 0) show_buffer(shown, stage_buffer(call->micro, call->part, n->statistic[i]), N, rows);
}

static struct tensor integers_of(struct tensor list, struct interval rows)
{
    return tensor_present(list) ? tensor_1d((int32_t *)list.data + rows.first, I32, rows.count) : list;
}

static enum error_code run_rows(const struct node_call *call, struct interval rows, struct error *err)
{
    struct microbatch *const micro = call->micro;
    const struct microbatch whole = *micro;
    struct shown_rows shown;
    show_rows(&shown, call, rows);
    micro->N = rows.count, micro->first_row = rows.first;
    micro->ids = integers_of(micro->ids, rows), micro->positions = integers_of(micro->positions, rows);
    const enum error_code e = run_node(call, LIST_FORWARD, err);
    for (int i = 0; i < shown.count; i++) *shown.at[i] = shown.whole[i];
    micro->N = whole.N, micro->first_row = whole.first_row, micro->ids = whole.ids, micro->positions = whole.positions;
    return e;
}

enum error_code run_node_in_parts(const struct node_call *call, bool behind, struct error *err)
{
    const struct answering *const answering = call->stage->answering;
    const struct row_cuts *const cuts = answering->cuts;
    const int batches = has_rows_apart(call->node) ? cuts->batches[behind] : 1, parts = ROW_PARTS / batches;
    enum error_code e = OK;
    for (int b = 0; b < batches && !e; b++) {
        const int64_t from = cuts->at[b * parts], to = cuts->at[(b + 1) * parts];
        answering->begin_part(answering->context);
        if (batches == 1) e = run_node(call, LIST_FORWARD, err);
        else if (to > from) e = run_rows(call, (struct interval){ from, to - from }, err);
        if (!e) answering->end_part(answering->context, b * parts, parts);
    }
    return e;
}
