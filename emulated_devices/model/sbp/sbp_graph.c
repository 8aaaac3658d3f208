#include "emulated_devices/model/sbp/sbp_graph.h"
#include "emulated_devices/model/link/link.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

const struct node sbp_mlp[] = {
    { OP_MATRIX,    .out = "mlp.up",       .in = { "in" },               .role = ROLE_UP },
    { OP_GELU,      .out = "mlp.act",      .in = { "mlp.up" } },
    { OP_MATRIX,    .out = "mlp.out",      .in = { "mlp.act" },          .role = ROLE_DOWN },
    { .op = OP_END }
};

/* What slots stand for: an activation.  letters: of its dimensions after the rows. */
struct value {
    const char *name, *letters;
    enum activation_width width;
    int tensor, gradient;               /* gradient: the sum of its parts up to now; -1: none yet */
    int parts, parts_left;              /* of the gradient: one for each reader */
};

struct part_node { const struct node *is; struct value *in[NODE_INPUTS], *out; int weight, bias; };

struct builder {
    struct sbp_graph *graph;
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
static const char *letters_of(const struct model_config *c, enum activation_width w)
{
    switch (w) {
    case WIDTH_MODEL: return "d";
    case WIDTH_QKV:   return "kGA";
    case WIDTH_HEADS: return "kC";
    case WIDTH_UP:    return c->mlp == MLP_GELU ? "f" : "Tf";
    case WIDTH_ACT:   return "f";
    default:          return NULL;
    }
}

/* n rows; W a norm's parameters */
static int64_t size_of(const struct builder *b, char letter)
{
    const struct model_config *c = &b->graph->model;
    switch (letter) {
    case 'n': return b->rows;
    case 'd': return c->D;
    case 'k': return c->K;
    case 'G': return c->H / c->K + 2;
    case 'A': return c->A;
    case 'C': return c->H / c->K * c->A;
    case 'f': return c->F;
    case 'T': return 2;
    default:  return c->norm == NORM_LAYER ? 2 : 1;
    }
}

/* A name or some letters; those that are too long fill the graph. */
struct text { char text[2 * SBP_NAME]; };
__attribute__((format(printf, 1, 2))) static struct text text_of(const char *format, ...)
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

static int add_tensor(struct builder *b, struct text name, const char *letters, int like)
{
    const bool whole_sequences = *letters == 'n' && !b->tokens_split;
    struct shape s = { .ndim = (int)strlen(letters), .granule = whole_sequences ? b->graph->model.S : 1 };
    for (int i = 0; i < s.ndim; i++) s.dim[i] = size_of(b, letters[i]);
    const int t = graph_tensor(b->graph, name.text, s, like);
    const size_t inner = strcspn(letters, "kf");
    b->graph->tensor[t].inner = letters[inner] ? (int)inner : -1;
    return t;
}

#define TENSOR(letters, like, ...) add_tensor(b, text_of(__VA_ARGS__), letters, like)
#define LETTERS(...) text_of(__VA_ARGS__).text
#define OP(operator, letters, out, ...) graph_op(b->graph, operator, letters, out, (const int[]){ __VA_ARGS__ })

static int activation(struct builder *b, const struct value *v, int like, const char *prefix, const char *suffix)
{
    return TENSOR(LETTERS("n%s", v->letters), like, "%s%s%s", prefix, v->name, suffix);
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

static struct value *value_of(struct builder *b, const char *slot)
{
    for (int i = 0; i < b->slots; i++)
        if (strcmp(b->slot[i].name, slot) == 0) return b->slot[i].value;
    return NULL;
}

static struct value *add_value(struct builder *b, const char *name, enum activation_width w)
{
    struct value *v = &b->value[b->values++];
    *v = (struct value){ .name = name, .letters = letters_of(&b->graph->model, w), .width = w, .gradient = -1 };
    return v;
}

static void add_slot(struct builder *b, const char *name, struct value *v)
{
    b->slot[b->slots].name = name;
    b->slot[b->slots++].value = v;
}

/* Nodes of tables that belong to no model name no parameters. */
static bool has_bias(const struct builder *b, const struct node *n)
{
    if (n->param == NULL) return false;
    const struct layer_names names = program_names(&b->graph->model, 0);
    return program_bias(n, &names) >= 0;
}

static void matrix_forward(struct builder *b, struct part_node *n)
{
    const struct value *x = n->in[0], *y = n->out;
    const bool biased = has_bias(b, n->is);
    const int product = biased ? activation(b, y, FREE, "", ".product") : y->tensor;
    n->weight = TENSOR(LETTERS("%s%s", y->letters, x->letters), FREE, "%s.w", y->name);
    OP(&sbp_linear, LETTERS("n%s,%s%s->n%s", x->letters, y->letters, x->letters, y->letters), product, x->tensor,
       n->weight);
    if (!biased) return;
    n->bias = TENSOR(y->letters, FREE, "%s.b", y->name);
    OP(&sbp_add_bias, LETTERS("n%s,%s->n%s", y->letters, y->letters, y->letters), y->tensor, product, n->bias);
}

static void node_forward(struct builder *b, struct part_node *n)
{
    const enum op op = n->is->op;
    const struct value *x = n->in[0], *y = n->out;
    if (op == OP_MATRIX) matrix_forward(b, n);
    else if (op == OP_NORM) {
        n->weight = TENSOR("Wd", FREE, "%s.wb", y->name);
        OP(&sbp_norm, "nD,WD->nD", y->tensor, x->tensor, n->weight);
    } else if (op == OP_ADD) OP(&sbp_add, "nd,nd->nd", y->tensor, x->tensor, n->in[1]->tensor);
    else {
        const char rows = unary[op].whole_sequences && b->tokens_split ? 'N' : 'n';
        OP(unary[op].forward, LETTERS("%c%s->%c%s", rows, x->letters, rows, y->letters), y->tensor, x->tensor);
    }
}

static enum error_code refuse(const struct node *n, struct error *err)
{
    if (n->op == OP_ROUTE || n->op == OP_MIXTURE || n->role == ROLE_ROUTER)
        return fail(err, ERR_PLAN, "%s: a mixture of experts has no signatures: they are chosen before there are data, "
                    "and which rows an expert gets depends on the data", n->out);
    return fail(err, ERR_PLAN, "%s: there is no operator with signatures for this node", n->out ? n->out : "the loss");
}

static bool lies_as_stream(const struct builder *b, const struct value *v)
{
    return v->tensor == AS_STREAM || b->graph->tensor[v->tensor].like == AS_STREAM;
}

/* Sums with the stream, and what leaves. */
static bool joins_stream(const struct builder *b, const struct part_node *n)
{
    if (n->is->op == OP_ADD) return lies_as_stream(b, n->in[0]) || lies_as_stream(b, n->in[1]);
    return n->is[1].op == OP_END && n->out->width == WIDTH_MODEL;
}

static enum error_code add_node(struct builder *b, const struct node *is, struct error *err)
{
    struct part_node *n = &b->node[b->nodes];
    *n = (struct part_node){ .is = is, .in = { value_of(b, is->in[0]), is->in[1] ? value_of(b, is->in[1]) : NULL },
                             .weight = -1, .bias = -1 };
    const enum activation_width w = operation_width(is, n->in[0] ? n->in[0]->width : WIDTH_MODEL);
    const bool known = is->op == OP_MATRIX || is->op == OP_NORM || is->op == OP_ADD || unary[is->op].forward;
    if (is->op == OP_DROPOUT && n->in[0]) {
        add_slot(b, is->out, n->in[0]);
        return OK;
    }
    if (!known || !n->in[0] || letters_of(&b->graph->model, w) == NULL) return refuse(is, err);
    n->out = add_value(b, is->out, w);
    add_slot(b, is->out, n->out);
    n->out->tensor = activation(b, n->out, joins_stream(b, n) ? AS_STREAM : FREE, "", "");
    for (int k = 0; k < NODE_INPUTS && n->in[k]; k++) n->in[k]->parts_left = ++n->in[k]->parts;
    node_forward(b, n);
    b->nodes++;
    return OK;
}

/* ---- backward ---------------------------------------------------------------------------------------------------- */

static int like_of_gradient(const struct value *v) { return v->width == WIDTH_MODEL ? AS_STREAM : FREE; }

/* Room for what node `by` adds to a gradient: the gradient itself if nobody else adds to it. */
static int part_of_gradient(struct builder *b, const struct value *v, const struct part_node *by)
{
    if (v->parts == 1) return activation(b, v, like_of_gradient(v), "d", "");
    return activation(b, v, FREE, "d", text_of(".%s", by->out->name).text);
}

static void add_part(struct builder *b, struct value *v, const struct part_node *by, int part)
{
    const bool first = v->gradient < 0, last = --v->parts_left == 0;
    const int before = v->gradient;
    v->gradient = part;
    if (first) return;
    v->gradient = last ? activation(b, v, like_of_gradient(v), "d", "")
                       : activation(b, v, FREE, "d", text_of(".%s.sum", by->out->name).text);
    OP(&sbp_add, LETTERS("n%s,n%s->n%s", v->letters, v->letters, v->letters), v->gradient, before, part);
}

static int weight_gradient(struct builder *b, int weight, const char *letters)
{
    return TENSOR(letters, weight, "d%s", b->graph->tensor[weight].name);
}

/* A matrix's gradient may lie otherwise than the stream, in a copy. */
static int whole_gradient(struct builder *b, const struct value *v)
{
    int *whole = &b->whole[v->gradient];
    if (b->graph->tensor[v->gradient].like != AS_STREAM) return v->gradient;
    if (*whole == 0) {
        *whole = TENSOR("nd", FREE, "%s.whole", b->graph->tensor[v->gradient].name);
        OP(&sbp_copy, "nd->nd", *whole, v->gradient);
    }
    return *whole;
}

static void matrix_backward(struct builder *b, const struct part_node *n)
{
    const int dy = whole_gradient(b, n->out), dx = part_of_gradient(b, n->in[0], n);
    const char *x = n->in[0]->letters, *y = n->out->letters;
    OP(&sbp_linear_dw, LETTERS("n%s,n%s->%s%s", y, x, y, x), weight_gradient(b, n->weight, LETTERS("%s%s", y, x)), dy,
       n->in[0]->tensor);
    if (n->bias >= 0) OP(&sbp_bias_dw, LETTERS("n%s->%s", y, y), weight_gradient(b, n->bias, y), dy);
    OP(&sbp_linear_dx, LETTERS("n%s,%s%s->n%s", y, y, x, x), dx, dy, n->weight);
    add_part(b, n->in[0], n, dx);
}

static void norm_backward(struct builder *b, const struct part_node *n)
{
    const int x = n->in[0]->tensor, dy = n->out->gradient, dx = part_of_gradient(b, n->in[0], n);
    OP(&sbp_norm_dw, "nD,nD,WD->WD", weight_gradient(b, n->weight, "Wd"), dy, x, n->weight);
    OP(&sbp_norm_dx, "nD,nD,WD->nD", dx, dy, x, n->weight);
    add_part(b, n->in[0], n, dx);
}

static void unary_backward(struct builder *b, const struct part_node *n)
{
    const enum op op = n->is->op;
    const char rows = unary[op].whole_sequences && b->tokens_split ? 'N' : 'n', *x = n->in[0]->letters,
               *y = n->out->letters;
    const int dx = part_of_gradient(b, n->in[0], n);
    if (unary[op].reads_input)
        OP(unary[op].backward, LETTERS("%c%s,%c%s->%c%s", rows, y, rows, x, rows, x), dx, n->out->gradient,
           n->in[0]->tensor);
    else OP(unary[op].backward, LETTERS("%c%s->%c%s", rows, y, rows, x), dx, n->out->gradient);
    add_part(b, n->in[0], n, dx);
}

static void node_backward(struct builder *b, const struct part_node *n)
{
    if (n->is->op == OP_MATRIX) matrix_backward(b, n);
    else if (n->is->op == OP_NORM) norm_backward(b, n);
    else if (n->is->op == OP_ADD)
        for (int k = 0; k < NODE_INPUTS && n->in[k]; k++) add_part(b, n->in[k], n, n->out->gradient);
    else unary_backward(b, n);
}

/* ---- a table ----------------------------------------------------------------------------------------------------- */

enum error_code sbp_graph_of(struct sbp_graph *g, const struct node *table, const struct model_config *c, int64_t B,
                             int64_t S, bool tokens_split, struct error *err)
{
    struct builder b = { .graph = g, .rows = B * S, .tokens_split = tokens_split };
    enum error_code e = OK;
    *g = (struct sbp_graph){ .model = *c };
    g->model.S = S;
    struct value *in = add_value(&b, "in", WIDTH_MODEL);
    add_slot(&b, "in", in);
    in->tensor = activation(&b, in, FREE, "", "");
    for (const struct node *n = table; n->op != OP_END && !e; n++) {
        if (b.slots == LINK_SLOTS)
            return fail(err, ERR_PLAN, "%s: the table has more than %d nodes", n->out, LINK_NODES);
        e = add_node(&b, n, err);
    }
    if (e) return e;
    struct value *out = b.slot[b.slots - 1].value;
    out->gradient = activation(&b, out, like_of_gradient(out), "d", "");
    for (int i = b.nodes - 1; i >= 0; i--) {
        if (b.node[i].out->gradient < 0) return fail(err, ERR_PLAN, "%s: no node reads it", b.node[i].is->out);
        node_backward(&b, &b.node[i]);
    }
    if (!g->full) return OK;
    return fail(err, ERR_PLAN, "after %s the graph is full: it has room for %d tensors and %d operations",
                g->tensor[g->tensors - 1].name, SBP_MOST_TENSORS, SBP_MOST_OPS);
}
