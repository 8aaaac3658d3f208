/* run_attention.c -- norms of heads, rotary positions and attention, by the attention scheme; if the rows of a
 * microbatch are shuffled, in the order of the batch. */
#include "emulated_devices/model/run/run_node.h"
#include "emulated_devices/device/compute.h"

/* The mask of some of the microbatch's sequences; pairs of tokens are counted once for all layers. */
static void take_mask(struct attention *a, struct microbatch *m, struct interval sequences)
{
    double *const pairs = &m->pairs[a->window > 0];
    if (!tensor_present(m->mask)) return;
    a->mask = tensor_rows_of(m->mask, sequences.first * a->S, sequences.count * a->S);
    if (*pairs < 0) *pairs = attention_pairs(tensor_rows(a->mask), *a);
    a->pairs = *pairs;
}

static int weight_of_node(const struct node_call *c) { return c->part->weight[c->node - c->part->linked.node]; }

/* The description of attention over whole sequences; a scheme may work on fewer heads. */
struct attention node_attention(const struct node_call *c)
{
    const struct stage *s = c->stage;
    const struct model_config *model = &s->plan->model;
    const struct interval rows = tensor_rows_at(s->tp, AT_HEADS, c->micro->N);
    const bool one = s->seams->cp.scheme->plan != NULL;         /* all sequences are one */
    /* The device computes heads of these sequences: the first one, and how many. */
    const struct interval sequences = { one ? 0 : rows.first / s->tp->S, one ? 1 : rows.count / s->tp->S };
    const int64_t first = c->micro->sequences.first + sequences.first;
    struct attention a = attention_of_layer(model, node_layer(c), one ? tensor_rows(c->micro->mask) : s->plan->S);
    a.each = one ? s->plan->S : 0;
    take_mask(&a, c->micro, sequences);
    a.H = s->tp->heads.queries.count, a.K = s->tp->heads.keys.count;
    if (c->node->is->op == OP_SINK_ATTENTION) a.sinks = stage_weight(s, weight_of_node(c));
    a.drop = dropout_at(model->dropout_attention, s->dropout_seed, node_layer(c), "probabilities", first,
                        s->tp->heads.queries.first, model->H);
    return a;
}

enum error_code node_head_norm_forward(const struct node_call *c, struct error *err)
{
    const struct linked_node *n = c->node;
    return heads_norm_forward(c->stage->tp, node_buffer(c, n->y), node_buffer(c, n->statistic[0]),
                              node_buffer(c, n->x[0]), stage_weight(c->stage, weight_of_node(c)), node_attention(c),
                              c->stage->plan->model.eps, err);
}

enum error_code node_head_norm_input(const struct node_call *c, struct error *err)
{
    const struct linked_node *n = c->node;
    return heads_norm_backward_input(c->stage->tp, node_buffer(c, n->dx[0]), node_buffer(c, n->dy),
                                     node_buffer(c, n->x[0]), stage_weight(c->stage, weight_of_node(c)),
                                     node_buffer(c, n->statistic[0]), node_attention(c), err);
}

enum error_code node_head_norm_weight(const struct node_call *c, struct error *err)
{
    const struct linked_node *n = c->node;
    return heads_norm_backward_weight(c->stage->tp, stage_gradient(c->stage, weight_of_node(c)), node_buffer(c, n->dy),
                                      node_buffer(c, n->x[0]), node_buffer(c, n->statistic[0]), node_attention(c),
                                      err);
}

/* The table of this layer: layers with a window may have positions of their own. */
static struct tensor rotary_of(const struct node_call *c)
{
    return model_is_local(&c->stage->plan->model, node_layer(c)) ? c->stage->local_rotary : c->stage->rotary;
}

/* The output has the memory of the input, and so have their gradients: heads are rotated where they lie. */
enum error_code node_rotary_forward(const struct node_call *c, struct error *err)
{
    (void)err;
    dev_rotary_forward(c->stage->device, node_buffer(c, c->node->y), node_integers(c, c->micro->positions, AT_HEADS),
                       rotary_of(c), node_attention(c));
    return OK;
}

enum error_code node_rotary_input(const struct node_call *c, struct error *err)
{
    (void)err;
    dev_rotary_backward_input(c->stage->device, node_buffer(c, c->node->dx[0]),
                              node_integers(c, c->micro->positions, AT_HEADS), rotary_of(c), node_attention(c));
    return OK;
}

static struct attention_call attention_call(const struct node_call *c)
{
    const struct linked_node *n = c->node;
    c->stage->seams->cp = stage_seams(c->stage, c->micro, c->part).cp;
    struct attention_call a = {
        .cp = &c->stage->seams->cp, .shape = node_attention(c), .qkv = node_buffer(c, n->x[0]),
        .out = node_buffer(c, n->y)
    };
    for (int i = 0; i < a.cp->scheme->slots; i++) a.kept[i] = node_buffer(c, n->statistic[i]);
    return a;
}

/* ---- shuffled rows ----------------------------------------------------------------------------------------------- */

/* Tensors of a call: the first are read, and one more may be written. */
struct operands { int read, written; struct tensor *of[4]; };

/* Replace a tensor by a copy, or by memory for one, with the rows in the order of the batch. */
static enum error_code sort_rows(const struct node_call *c, struct tensor *t, bool filled, struct error *err)
{
    const struct tensor shuffled = *t;
    *t = device_tensor_2d(c->stage->device, BUFFERS, tensor_rows(shuffled), tensor_cols(shuffled));
    if (t->data == NULL) return fail(err, ERR_MEMORY, "no memory for attention's rows in their order");
    if (filled) dev_gather_forward(c->stage->device, *t, shuffled, c->micro->sorted, 1);
    return OK;
}

static enum error_code run_sorted(const struct node_call *c, struct attention_call *a, struct operands o,
                                  enum error_code (*run)(struct attention_call *, struct error *), struct error *err)
{
    struct tensor shuffled[4];
    enum error_code e = OK;
    int sorted = 0;
    if (!tensor_present(c->micro->sorted)) return run(a, err);
    for (; sorted < o.read + o.written && !e; sorted += !e) {
        /* Schemes expect a sequence's rows side by side; the stream's rows may be in another order. */
        shuffled[sorted] = *o.of[sorted];
        e = sort_rows(c, o.of[sorted], sorted < o.read, err);
    }
    if (!e) e = run(a, err);
    /* The result goes back to the stream's order. */
    if (!e && o.written)
        dev_gather_backward_input(c->stage->device, shuffled[o.read], *o.of[o.read], c->micro->sorted, 1);
    for (int i = 0; i < sorted; i++) device_free(c->stage->device, *o.of[i]);
    return e;
}

enum error_code node_attention_forward(const struct node_call *c, struct error *err)
{
    struct attention_call a = attention_call(c);
    const struct attention_scheme *s = a.cp->scheme;
    /* Recomputation only repeats what was exchanged: the output was kept. */
    if (c->again && only_exchanges(&c->part->linked, c->node))
        return run_sorted(c, &a, (struct operands){ 2, 0, { &a.qkv, &a.out } }, s->exchange, err);
    return run_sorted(c, &a, (struct operands){ 1, 1, { &a.qkv, &a.out } }, s->forward, err);
}

static enum error_code attention_input(const struct node_call *c, struct tensor d_sinks, struct error *err)
{
    struct attention_call a = attention_call(c);
    a.d_qkv = node_buffer(c, c->node->dx[0]), a.d_out = node_buffer(c, c->node->dy), a.d_sinks = d_sinks;
    return run_sorted(c, &a, (struct operands){ 3, 1, { &a.qkv, &a.out, &a.d_out, &a.d_qkv } },
                      a.cp->scheme->backward_input, err);
}

enum error_code node_attention_input(const struct node_call *c, struct error *err)
{
    return attention_input(c, tensor_none, err);
}

/* ---- sinks ------------------------------------------------------------------------------------------------------- */

/* The gradient of the sinks waits for the pass for the weights. */
enum error_code node_sink_input(const struct node_call *c, struct error *err)
{
    const struct tensor d_sinks = node_buffer(c, c->node->gradient[0]);
    device_zero(c->stage->device, d_sinks);
    return attention_input(c, d_sinks, err);
}

enum error_code node_sink_weight(const struct node_call *c, struct error *err)
{
    const struct tensor g = stage_gradient(c->stage, weight_of_node(c));
    (void)err;
    dev_add(c->stage->device, g, g, node_buffer(c, c->node->gradient[0]));
    return OK;
}
