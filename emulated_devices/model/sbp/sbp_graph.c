/* sbp_graph.c -- makes the graph of signatures from a table of nodes.  cli/show/sbp.c calls, and tests do.  A
 * mixture, a node without signatures, or a table that is too large is ERR_PLAN.  The functions compute nothing on a
 * device. */
#include "emulated_devices/model/sbp/sbp_graph.h"
#include "emulated_devices/model/link/link.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const struct node sbp_mlp[] = {
    { OP_MATRIX,    .out = "mlp.up",       .in = { "in" },         .param = UP_W },
    { OP_GELU,      .out = "mlp.act",      .in = { "mlp.up" } },
    { OP_MATRIX,    .out = "mlp.out",      .in = { "mlp.act" },    .param = DOWN_W },
    { .op = OP_END }
};

/* This holds what slots stand for: an activation.  letters: of its dimensions after the rows. */
struct value {
    const char *name, *letters;
    enum activation_width width;
    int tensor, gradient;               /* gradient: the sum of its parts up to now; -1: none yet */
    int parts, parts_left;              /* of the gradient: one for each reader */
};

struct part_node { const struct node *is; struct value *in[NODE_INPUTS], *out; int weight, bias; };

struct builder {
    struct sbp_graph *graph;
    const struct node *table;
    int64_t rows;
    bool tokens_split;
    int nodes, values, slots;
    struct part_node node[LINK_NODES];
    struct value value[LINK_SLOTS];
    struct { const char *name; struct value *value; } slot[LINK_SLOTS];
    int whole[SBP_MOST_TENSORS];        /* the copy of a gradient for matrices; 0: none */
};

/* Operations with one input and no weights. */
static const struct unary {
    const struct sbp_operator *forward, *backward;
    bool reads_input, whole_sequences;  /* reads_input: so does backward */
} unary[OP_COUNT] = {
    [OP_ROTARY]    = { &sbp_rotary,    &sbp_rotary_dx,    .whole_sequences = true },
    [OP_ATTENTION] = { &sbp_attention, &sbp_attention_dx, .reads_input = true, .whole_sequences = true },
    [OP_GELU]      = { &sbp_gelu,      &sbp_gelu_dx,      .reads_input = true },
    [OP_SWIGLU]    = { &sbp_swiglu,    &sbp_swiglu_dx,    .reads_input = true },
    [OP_GEGLU]     = { &sbp_geglu,     &sbp_geglu_dx,     .reads_input = true },
};

/* ---- letters ----------------------------------------------------------------------------------------------------- */

/* d width; k key/value heads, G heads that go with each, A numbers of a head, C of the queries; f feed-forward, T gate
 * and what is gated. */
static const char *letters_of(const struct model_config *config, enum activation_width width)
{
    switch (width) {
    case WIDTH_MODEL: return "d";
    case WIDTH_QKV:   return "kGA";
    case WIDTH_HEADS: return "kC";
    case WIDTH_UP:    return config->mlp == MLP_GELU ? "f" : "Tf";
    case WIDTH_ACT:   return "f";
    default:          return NULL;
    }
}

/* n rows; W a norm's parameters */
static int64_t sbp_graph_size_of(const struct builder *builder, char letter)
{
    const struct model_config *c = &builder->graph->model;
    switch (letter) {
    case 'n': return builder->rows;
    case 'd': return c->D;
    case 'k': return c->K;
    case 'G': return c->H / c->K + 2;
    case 'A': return c->A;
    case 'C': return c->H / c->K * c->A;
    case 'f': return c->F;
    case 'T': return 2;
    default:  return model_has_bias(c, ROLE_NORM) ? 2 : 1;
    }
}

/* A name or some letters; those that are too long fill the graph. */
struct text { char text[2 * SBP_NAME]; };
__attribute__((format(printf, 1, 2))) static struct text sbp_graph_text_of(const char *format, ...)
{
    struct text t;
    va_list list;
    va_start(list, format);
    vsnprintf(t.text, sizeof t.text, format, list);
    va_end(list);
    return t;
}

/* ---- tensors and operations -------------------------------------------------------------------------------------- */

enum { FREE = -1, AS_STREAM };             /* like nothing; like what enters */

static int add_tensor(struct builder *builder, struct text name, const char *letters, int like)
{
    const bool whole_sequences = *letters == 'n' && !builder->tokens_split;
    struct shape s = { .ndim = (int)strlen(letters), .granule = whole_sequences ? builder->graph->model.S : 1 };
    for (int i = 0; i < s.ndim; i++) s.dim[i] = sbp_graph_size_of(builder, letters[i]);
    const int t = graph_tensor(builder->graph, name.text, s, like);
    const size_t inner = strcspn(letters, "kf");
    builder->graph->tensor[t].inner = letters[inner] ? (int)inner : -1;
    return t;
}

#define TENSOR(letters, like, ...) add_tensor(builder, sbp_graph_text_of(__VA_ARGS__), letters, like)
#define LETTERS(...) sbp_graph_text_of(__VA_ARGS__).text
#define OP(operator, letters, out, ...) graph_op(builder->graph, operator, letters, out, (const int[]){ __VA_ARGS__ })

static int activation(struct builder *builder, const struct value *value, int like, const char *prefix,
                      const char *suffix)
{
    return TENSOR(LETTERS("n%s", value->letters), like, "%s%s%s", prefix, value->name, suffix);
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

static struct value *value_of(struct builder *builder, const char *slot)
{
    for (int i = 0; i < builder->slots; i++)
        if (strcmp(builder->slot[i].name, slot) == 0) return builder->slot[i].value;
    return NULL;
}

static struct value *add_value(struct builder *builder, const char *name, enum activation_width width)
{
    struct value *v = &builder->value[builder->values++];
    *v = (struct value){ .name = name, .letters = letters_of(&builder->graph->model, width), .width = width,
                        .gradient = -1 };
    return v;
}

static void add_slot(struct builder *builder, const char *name, struct value *value)
{
    builder->slot[builder->slots].name = name;
    builder->slot[builder->slots++].value = value;
}

/* The two matrices of an MLP, which is no model, have no biases. */
static bool has_bias(const struct builder *builder, const struct node *node)
{
    return builder->table != sbp_mlp && program_bias(&builder->graph->model, node, 0) >= 0;
}

static void matrix_forward(struct builder *builder, struct part_node *part_node)
{
    const struct value *x = part_node->in[0], *y = part_node->out;
    const bool biased = has_bias(builder, part_node->is);
    const int product = biased ? activation(builder, y, FREE, "", ".product") : y->tensor;
    part_node->weight = TENSOR(LETTERS("%s%s", y->letters, x->letters), FREE, "%s.w", y->name);
    OP(&sbp_linear, LETTERS("n%s,%s%s->n%s", x->letters, y->letters, x->letters, y->letters), product, x->tensor,
       part_node->weight);
    if (!biased) return;
    part_node->bias = TENSOR(y->letters, FREE, "%s.b", y->name);
    OP(&sbp_add_bias, LETTERS("n%s,%s->n%s", y->letters, y->letters, y->letters), y->tensor, product, part_node->bias);
}

static void node_forward(struct builder *builder, struct part_node *part_node)
{
    const enum op op = part_node->is->op;
    const struct value *x = part_node->in[0], *y = part_node->out;
    if (op == OP_MATRIX) matrix_forward(builder, part_node);
    else if (op == OP_NORM) {
        part_node->weight = TENSOR("Wd", FREE, "%s.wb", y->name);
        OP(&sbp_norm, "nD,WD->nD", y->tensor, x->tensor, part_node->weight);
    } else if (op == OP_ADD) OP(&sbp_add, "nd,nd->nd", y->tensor, x->tensor, part_node->in[1]->tensor);
    else {
        const char rows = unary[op].whole_sequences && builder->tokens_split ? 'N' : 'n';
        OP(unary[op].forward, LETTERS("%c%s->%c%s", rows, x->letters, rows, y->letters), y->tensor, x->tensor);
    }
}

static enum error_code sbp_graph_refuse(const struct node *node, struct error *err)
{
    if (node->op == OP_ROUTE || node->op == OP_MIXTURE || node_role(node) == ROLE_ROUTER)
        return fail(err, ERR_PLAN, "%s: a mixture of experts has no signatures: they are chosen before there are data, "
                    "and which rows an expert gets depends on the data", node->out);
    return fail(err, ERR_PLAN, "%s: there is no operator with signatures for this node",
                node->out ? node->out : "the loss");
}

static bool lies_as_stream(const struct builder *builder, const struct value *value)
{
    return value->tensor == AS_STREAM || builder->graph->tensor[value->tensor].like == AS_STREAM;
}

/* Sums with the stream, and what leaves. */
static bool joins_stream(const struct builder *builder, const struct part_node *part_node)
{
    if (part_node->is->op == OP_ADD)
        return lies_as_stream(builder, part_node->in[0]) || lies_as_stream(builder, part_node->in[1]);
    return part_node->is[1].op == OP_END && part_node->out->width == WIDTH_MODEL;
}

static enum error_code sbp_graph_add_node(struct builder *builder, const struct node *is, struct error *err)
{
    struct part_node *n = &builder->node[builder->nodes];
    *n = (struct part_node){ .is = is, .in = { value_of(builder, is->in[0]),
                                              is->in[1] ? value_of(builder, is->in[1]) : NULL },
                             .weight = -1, .bias = -1 };
    const enum activation_width w = operation_width(is, n->in[0] ? n->in[0]->width : WIDTH_MODEL);
    const bool known = is->op == OP_MATRIX || is->op == OP_NORM || is->op == OP_ADD || unary[is->op].forward;
    if (n->in[0] && (is->op == OP_DROPOUT || node_does_nothing(&builder->graph->model, is, 0))) {
        add_slot(builder, is->out, n->in[0]);
        return OK;
    }
    /* The graph stands for every block, so all have rotary positions. */
    const bool differs = is->op == OP_ROTARY && layer_set_count(&builder->graph->model.unturned, LAYER_SET_MOST) > 0;
    if (!known || differs || !n->in[0] || letters_of(&builder->graph->model, w) == NULL)
        return sbp_graph_refuse(is, err);
    n->out = add_value(builder, is->out, w);
    add_slot(builder, is->out, n->out);
    n->out->tensor = activation(builder, n->out, joins_stream(builder, n) ? AS_STREAM : FREE, "", "");
    for (int k = 0; k < NODE_INPUTS && n->in[k]; k++) n->in[k]->parts_left = ++n->in[k]->parts;
    node_forward(builder, n);
    builder->nodes++;
    return OK;
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

static int like_of_gradient(const struct value *value) { return value->width == WIDTH_MODEL ? AS_STREAM : FREE; }

/* Room for what node `by` adds to a gradient: the gradient itself if nobody else adds to it. */
static int part_of_gradient(struct builder *builder, const struct value *value, const struct part_node *by)
{
    if (value->parts == 1) return activation(builder, value, like_of_gradient(value), "d", "");
    return activation(builder, value, FREE, "d", sbp_graph_text_of(".%s", by->out->name).text);
}

static void sbp_graph_add_part(struct builder *builder, struct value *value, const struct part_node *by, int part)
{
    const bool first = value->gradient < 0, last = --value->parts_left == 0;
    const int before = value->gradient;
    value->gradient = part;
    if (first) return;
    value->gradient = last ? activation(builder, value, like_of_gradient(value), "d", "")
                       : activation(builder, value, FREE, "d", sbp_graph_text_of(".%s.sum", by->out->name).text);
    OP(&sbp_add, LETTERS("n%s,n%s->n%s", value->letters, value->letters, value->letters), value->gradient,
       before, part);
}

static int weight_gradient(struct builder *builder, int weight, const char *letters)
{
    return TENSOR(letters, weight, "d%s", builder->graph->tensor[weight].name);
}

/* A matrix's gradient may lie otherwise than the stream, in a copy. */
static int whole_gradient(struct builder *builder, const struct value *value)
{
    int *whole = &builder->whole[value->gradient];
    if (builder->graph->tensor[value->gradient].like != AS_STREAM) return value->gradient;
    if (*whole == 0) {
        *whole = TENSOR("nd", FREE, "%s.whole", builder->graph->tensor[value->gradient].name);
        OP(&sbp_copy, "nd->nd", *whole, value->gradient);
    }
    return *whole;
}

static void matrix_backward(struct builder *builder, const struct part_node *part_node)
{
    const int dy = whole_gradient(builder, part_node->out), dx = part_of_gradient(builder, part_node->in[0], part_node);
    const char *x = part_node->in[0]->letters, *y = part_node->out->letters;
    OP(&sbp_linear_dw, LETTERS("n%s,n%s->%s%s", y, x, y, x),
       weight_gradient(builder, part_node->weight, LETTERS("%s%s", y, x)), dy, part_node->in[0]->tensor);
    if (part_node->bias >= 0)
        OP(&sbp_bias_dw, LETTERS("n%s->%s", y, y), weight_gradient(builder, part_node->bias, y), dy);
    OP(&sbp_linear_dx, LETTERS("n%s,%s%s->n%s", y, y, x, x), dx, dy, part_node->weight);
    sbp_graph_add_part(builder, part_node->in[0], part_node, dx);
}

static void norm_backward(struct builder *builder, const struct part_node *part_node)
{
    const int x = part_node->in[0]->tensor, dy = part_node->out->gradient,
        dx = part_of_gradient(builder, part_node->in[0], part_node);
    OP(&sbp_norm_dw, "nD,nD,WD->WD", weight_gradient(builder, part_node->weight, "Wd"), dy, x, part_node->weight);
    OP(&sbp_norm_dx, "nD,nD,WD->nD", dx, dy, x, part_node->weight);
    sbp_graph_add_part(builder, part_node->in[0], part_node, dx);
}

static void unary_backward(struct builder *builder, const struct part_node *part_node)
{
    const enum op op = part_node->is->op;
    const char rows = unary[op].whole_sequences && builder->tokens_split ? 'N' : 'n', *x = part_node->in[0]->letters,
               *y = part_node->out->letters;
    const int dx = part_of_gradient(builder, part_node->in[0], part_node);
    if (unary[op].reads_input)
        OP(unary[op].backward, LETTERS("%c%s,%c%s->%c%s", rows, y, rows, x, rows, x), dx, part_node->out->gradient,
           part_node->in[0]->tensor);
    else OP(unary[op].backward, LETTERS("%c%s->%c%s", rows, y, rows, x), dx, part_node->out->gradient);
    sbp_graph_add_part(builder, part_node->in[0], part_node, dx);
}

static void node_backward(struct builder *builder, const struct part_node *part_node)
{
    if (part_node->is->op == OP_MATRIX) matrix_backward(builder, part_node);
    else if (part_node->is->op == OP_NORM) norm_backward(builder, part_node);
    else if (part_node->is->op == OP_ADD)
        for (int k = 0; k < NODE_INPUTS && part_node->in[k]; k++)
            sbp_graph_add_part(builder, part_node->in[k], part_node, part_node->out->gradient);
    else unary_backward(builder, part_node);
}

/* ---- a table ----------------------------------------------------------------------------------------------------- */

enum error_code sbp_graph_of(struct sbp_graph *sbp_graph, const struct node *table,
                             const struct model_config *config, int64_t B,
                             int64_t S, bool tokens_split, struct error *err)
{
    struct builder b = { .graph = sbp_graph, .table = table, .rows = B * S, .tokens_split = tokens_split };
    enum error_code e = OK;
    *sbp_graph = (struct sbp_graph){ .model = *config };
    sbp_graph->model.S = S;
    struct value *in = add_value(&b, "in", WIDTH_MODEL);
    add_slot(&b, "in", in);
    in->tensor = activation(&b, in, FREE, "", "");
    for (const struct node *n = table; n->op != OP_END && !e; n++) {
        if (b.slots == LINK_SLOTS)
            return fail(err, ERR_PLAN, "%s: the table has more than %d nodes", n->out, LINK_NODES);
        e = sbp_graph_add_node(&b, n, err);
    }
    if (e) return e;
    struct value *out = b.slot[b.slots - 1].value;
    out->gradient = activation(&b, out, like_of_gradient(out), "d", "");
    for (int i = b.nodes - 1; i >= 0; i--) {
        if (b.node[i].out->gradient < 0) return fail(err, ERR_PLAN, "%s: no node reads it", b.node[i].is->out);
        node_backward(&b, &b.node[i]);
    }
    if (!sbp_graph->full) return OK;
    return fail(err, ERR_PLAN, "after %s the graph is full: it has room for %d tensors and %d operations",
                sbp_graph->tensor[sbp_graph->tensors - 1].name, SBP_MOST_TENSORS, SBP_MOST_OPS);
}
