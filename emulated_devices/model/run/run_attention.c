/* run_attention.c -- norms of heads, rotary positions and attention, by the attention scheme; if the rows of a
 * microbatch are shuffled, in the order of the batch.  run_node.c and run_streams.c call these functions.  Errors:
 * ERR_MEMORY without room for an operand, and those of the attention scheme, after which the step cannot go on. */
#include "emulated_devices/model/run/run_node.h"
#include "emulated_devices/device/compute.h"

/* The mask of some of the microbatch's sequences; pairs of tokens are counted once for all layers. */
static void take_mask(struct attention *attention, struct microbatch *micro, struct interval sequences, bool planned)
{
    double *const pairs = &micro->pairs[attention->window > 0];
    if (!tensor_present(micro->mask)) return;
    attention->mask = tensor_rows_of(micro->mask, sequences.first * attention->S, sequences.count * attention->S);
    if (planned) return;
    if (*pairs < 0) *pairs = attention_pairs(tensor_rows(attention->mask), *attention);
    attention->pairs = *pairs;
}

static int weight_of_node(const struct node_call *call)
{
    return call->part->weight[call->node - call->part->linked.node];
}

/* The description of attention over whole sequences; a scheme may work on fewer heads. */
struct attention node_attention(const struct node_call *call)
{
    const struct stage *s = call->stage;
    const struct model_config *model = &s->plan->model;
    const struct interval rows = tensor_rows_at(s->tp, AT_HEADS, call->micro->N);
    const bool one = s->seams->cp.scheme->plan != NULL;         /* all sequences are one */
    /* The device computes heads of these sequences: the first one, and how many. */
    const struct interval sequences = { one ? 0 : rows.first / s->tp->S, one ? 1 : rows.count / s->tp->S };
    const int64_t first = call->micro->sequences.first + sequences.first;
    struct attention a = attention_of_layer(model, node_layer(call), one ? tensor_rows(call->micro->mask) : s->plan->S);
    a.each = one ? s->plan->S : 0;
    /* By a plan a device computes works, whose pairs the plan has counted. */
    take_mask(&a, call->micro, sequences, one);
    a.H = s->tp->heads.queries.count, a.K = s->tp->heads.keys.count;
    if (call->node->is->op == OP_SINK_ATTENTION) a.sinks = stage_weight(s, weight_of_node(call));
    a.drop = dropout_at(model->dropout_attention, s->dropout_seed, node_layer(call), "probabilities", first,
                        s->tp->heads.queries.first, model->H);
    return a;
}

enum error_code node_head_norm_forward(const struct node_call *call, struct error *err)
{
    const struct linked_node *n = call->node;
    return heads_norm_forward(call->stage->tp, node_buffer(call, n->y), node_buffer(call, n->statistic[0]),
                              node_buffer(call, n->x[0]), stage_weight(call->stage, weight_of_node(call)),
                              node_attention(call),
                              call->stage->plan->model.eps, err);
}

enum error_code node_head_norm_input(const struct node_call *call, struct error *err)
{
    const struct linked_node *n = call->node;
    return heads_norm_backward_input(call->stage->tp, node_buffer(call, n->dx[0]), node_buffer(call, n->dy),
                                     node_buffer(call, n->x[0]), stage_weight(call->stage, weight_of_node(call)),
                                     node_buffer(call, n->statistic[0]), node_attention(call), err);
}

enum error_code node_head_norm_weight(const struct node_call *call, struct error *err)
{
    const struct linked_node *n = call->node;
    return heads_norm_backward_weight(call->stage->tp, stage_gradient(call->stage, weight_of_node(call)),
                                      node_buffer(call, n->dy),
                                      node_buffer(call, n->x[0]), node_buffer(call, n->statistic[0]),
                                      node_attention(call),
                                      err);
}

/* The table of this layer: layers with a window may have positions of their own. */
static struct tensor rotary_of(const struct node_call *call)
{
    return model_is_local(&call->stage->plan->model, node_layer(call)) ? call->stage->local_rotary
           : call->stage->rotary;
}

/* The output has the memory of the input, and so have their gradients: heads are rotated where they lie. */
enum error_code node_rotary_forward(const struct node_call *call, struct error *err)
{
    (void)err;
    dev_rotary_forward(call->stage->device, node_buffer(call, call->node->y),
                       node_integers(call, call->micro->positions, AT_HEADS), rotary_of(call), node_attention(call));
    return OK;
}

enum error_code node_rotary_input(const struct node_call *call, struct error *err)
{
    (void)err;
    dev_rotary_backward_input(call->stage->device, node_buffer(call, call->node->dx[0]),
                              node_integers(call, call->micro->positions, AT_HEADS), rotary_of(call),
                              node_attention(call));
    return OK;
}

static struct attention_call attention_call(const struct node_call *call)
{
    const struct linked_node *n = call->node;
    call->stage->seams->cp = stage_seams(call->stage, call->micro, call->part).cp;
    struct attention_call a = {
        .cp = &call->stage->seams->cp, .shape = node_attention(call), .qkv = node_buffer(call, n->x[0]),
        .out = node_buffer(call, n->y)
    };
    for (int i = 0; i < a.cp->scheme->slots; i++) a.kept[i] = node_buffer(call, n->statistic[i]);
    return a;
}

/* ---- shuffled rows ----------------------------------------------------------------------------------------------- */

/* Tensors of a call: the first are read, and one more may be written. */
struct operands { int read, written; struct tensor *of[4]; };

/* Replace a tensor by a copy, or by memory for one, with the rows in the order of the batch. */
static enum error_code sort_rows(const struct node_call *call, struct tensor *tensor, bool filled, struct error *err)
{
    const struct tensor shuffled = *tensor;
    *tensor = device_tensor_2d(call->stage->device, BUFFERS, tensor_rows(shuffled), tensor_cols(shuffled));
    if (tensor->data == NULL) return fail(err, ERR_MEMORY, "no memory for attention's rows in their order");
    if (filled) dev_gather_forward(call->stage->device, *tensor, shuffled, call->micro->sorted, 1);
    return OK;
}

static enum error_code run_sorted(const struct node_call *call, struct attention_call *attention_call,
                                  struct operands operands,
                                  enum error_code (*run)(struct attention_call *, struct error *), struct error *err)
{
    struct tensor shuffled[4];
    enum error_code e = OK;
    int sorted = 0;
    if (!tensor_present(call->micro->sorted)) return run(attention_call, err);
    for (; sorted < operands.read + operands.written && !e; sorted += !e) {
        /* Schemes expect a sequence's rows side by side; the stream's rows may be in another order. */
        shuffled[sorted] = *operands.of[sorted];
        e = sort_rows(call, operands.of[sorted], sorted < operands.read, err);
    }
    if (!e) e = run(attention_call, err);
    /* The result goes back to the stream's order. */
    if (!e && operands.written)
        dev_gather_backward_input(call->stage->device, shuffled[operands.read], *operands.of[operands.read],
                                  call->micro->sorted, 1);
    for (int i = 0; i < sorted; i++) device_free(call->stage->device, *operands.of[i]);
    return e;
}

/* Rows of requests have their earlier keys and values elsewhere. */
static enum error_code attend_to_pages(const struct node_call *call, const struct attention_call *a,
                                       struct error *err)
{
    const struct answering *const answering = call->stage->answering;
    const struct answering_attention pages = { .first_row = call->micro->first_row, .layer = node_layer(call),
                                               .shape = a->shape, .qkv = a->qkv, .out = a->out, .lse = a->kept[0] };
    return answering->attend(answering->context, &pages, err);
}

enum error_code node_attention_forward(const struct node_call *call, struct error *err)
{
    struct attention_call a = attention_call(call);
    const struct attention_scheme *s = a.cp->scheme;
    if (call->stage->answering) return attend_to_pages(call, &a, err);
    /* Recomputation only repeats what was exchanged: the output was kept. */
    if (call->again && only_exchanges(&call->part->linked, call->node))
        return run_sorted(call, &a, (struct operands){ 2, 0, { &a.qkv, &a.out } }, s->exchange, err);
    return run_sorted(call, &a, (struct operands){ 1, 1, { &a.qkv, &a.out } }, s->forward, err);
}

/* With exact sums and keys that several devices have: the sums of all of these become d_qkv, rounded once. */
static enum error_code put_sums(const struct node_call *call, struct tensor d_qkv, struct tensor sums,
                                struct error *err)
{
    struct device *const device = call->stage->device;
    struct tensor sorted = d_qkv;
    enum error_code e = heads_add_keys(call->stage->tp, sums, err);
    if (!e && tensor_present(call->micro->sorted)) e = sort_rows(call, &sorted, false, err);
    if (e) return e;
    dev_round(device, sorted, sums);
    if (sorted.data == d_qkv.data) return OK;
    dev_gather_backward_input(device, d_qkv, sorted, call->micro->sorted, 1);
    device_free(device, sorted);
    return OK;
}

static enum error_code attention_input(const struct node_call *call, struct tensor d_sinks, struct error *err)
{
    struct attention_call a = attention_call(call);
    struct device *const device = call->stage->device;
    const struct tensor d_qkv = node_buffer(call, call->node->dx[0]);
    const bool adds = heads_add_exactly(call->stage->tp);
    struct tensor sums = tensor_none;
    a.d_qkv = d_qkv, a.d_out = node_buffer(call, call->node->dy), a.d_sinks = d_sinks;
    if (adds) {
        sums = device_tensor_in(device, BUFFERS, EXACT, tensor_count(d_qkv));
        if (sums.data == NULL) return fail(err, ERR_MEMORY, "no memory for the gradients of copied keys");
        a.d_qkv = sums = tensor_2d(sums.data, EXACT, tensor_rows(d_qkv), tensor_cols(d_qkv));
    }
    const struct operands operands = { 3, adds ? 0 : 1, { &a.qkv, &a.out, &a.d_out, &a.d_qkv } };
    enum error_code e = run_sorted(call, &a, operands, a.cp->scheme->backward_input, err);
    if (!e && adds) e = put_sums(call, d_qkv, sums, err);
    device_free(device, sums);
    return e;
}

enum error_code node_attention_input(const struct node_call *call, struct error *err)
{
    return attention_input(call, tensor_none, err);
}

/* ---- sinks ------------------------------------------------------------------------------------------------------- */

/* The gradient of the sinks waits for the pass for the weights. */
enum error_code node_sink_input(const struct node_call *call, struct error *err)
{
    const struct tensor d_sinks = node_buffer(call, call->node->gradient[0]);
    device_zero(call->stage->device, d_sinks);
    return attention_input(call, d_sinks, err);
}

enum error_code node_sink_weight(const struct node_call *call, struct error *err)
{
    const struct tensor g = stage_gradient(call->stage, weight_of_node(call));
    (void)err;
    dev_add(call->stage->device, g, g, node_buffer(call, call->node->gradient[0]));
    return OK;
}
