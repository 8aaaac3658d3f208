#include "emulated_devices/check/recompute/replay.h"
#include "emulated_devices/model/probe.h"
#include "emulated_devices/model/program.h"
#include "emulated_devices/check/recompute/graph.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct single_operation *const operations[OP_COUNT] = {
    [OP_EMBED] = &single_embed,         [OP_POSITIONS] = &single_positions, [OP_NORM] = &single_norm,
    [OP_MATRIX] = &single_matrix,       [OP_HEAD_NORM] = &single_head_norm, [OP_ROTARY] = &single_rotary,
    [OP_ATTENTION] = &single_attention, [OP_GELU] = &single_gelu,           [OP_SILU] = &single_silu,
    [OP_SWIGLU] = &single_swiglu,       [OP_DROPOUT] = &single_dropout,     [OP_ADD] = &single_add,
    [OP_GATE] = &single_gate,           [OP_BESIDE] = &single_beside,       [OP_MIX] = &single_mix,
    [OP_SINK_ATTENTION] = &single_sink_attention,
    [OP_LOSS] = &single_loss,           [OP_PREFIXED_ATTENTION] = &single_prefixed_attention,
    [OP_GEGLU] = &single_geglu,         [OP_SCALE] = &single_scale,         [OP_LATENT_NORM] = &single_latent_norm,
    [OP_JOIN] = &single_join,           [OP_CAP] = &single_soft_cap,
    [OP_ROUTE] = &single_route,         [OP_MIXTURE] = &single_combine,         /* its products: add_experts() */
};

/* ---- the graph of a model ---------------------------------------------------------------------------------------- */

struct building {
    const struct model_config *config;
    const struct program *program;
    struct tensor_parallel whole;       /* of one device */
    int64_t N;                          /* tokens */
    struct single_graph graph;
    enum activation_width *width;       /* of each slot */
    const struct node *table;           /* of this part */
    int first, before;                  /* of this part's slots; "in": the last of the part before; -1: none */
    int layer;                          /* -1: the embedding; L: the loss */
};

static int length(const struct node *table)
{
    int n = 0;
    while (table[n].op != OP_END) n++;
    return n;
}

static bool in_block(const struct building *b) { return b->layer >= 0 && b->layer < b->config->L; }

static void name_slot(const struct building *b, const char *name, char out[SINGLE_NAME])
{
    if (in_block(b)) snprintf(out, SINGLE_NAME, "h.%d.%s", b->layer, name);
    else snprintf(out, SINGLE_NAME, "%s", name);
}

static int find_slot(const struct building *b, const char *name)
{
    char full[SINGLE_NAME];
    if (name == NULL || strcmp(name, "ids") == 0) return -1;
    if (strcmp(name, "in") == 0) return b->before;
    name_slot(b, name, full);
    for (int i = b->graph.slots - 1; i >= b->first; i--)
        if (strcmp(b->graph.slot[i].name, full) == 0) return i;
    for (const struct node *n = b->table; n->op != OP_END; n++)         /* the output of a node that does nothing */
        if (n->out && strcmp(n->out, name) == 0 && node_does_nothing(b->config, n)) return find_slot(b, n->in[0]);
    return -1;
}

/* A node that does nothing is no operation.  If only its output is seen, its input gets the output's name. */
static void skip(struct building *b, const struct node *n)
{
    struct single_slot *slot = &b->graph.slot[find_slot(b, n->in[0])];
    if (!slot->unseen || n->unseen) return;
    slot->unseen = false;
    name_slot(b, n->out, slot->name);
}

static int64_t columns_of(const struct building *b, enum activation_width w)
{
    struct intervals s = activation_columns(&b->whole, w, false);
    const int64_t n = intervals_total(&s);
    intervals_free(&s);
    return n;
}

static int64_t head_of(const struct model_config *c, enum activation_width w)
{
    switch (w) {
    case WIDTH_QKV:
    case WIDTH_HEADS:    return c->A;
    case WIDTH_VALUES:   return value_width(c);
    case WIDTH_EXPANDED: return expanded_width(c);
    default:             return 0;
    }
}

static int add_slot(struct building *b, const struct node *n, enum activation_width in)
{
    const int i = b->graph.slots++;
    const enum activation_width w = operation_width(n, in);
    struct single_slot *slot = &b->graph.slot[i];
    b->width[i] = w;
    *slot = (struct single_slot){ .maker = b->graph.nodes, .route = -1, .unseen = n->unseen, .number = n->out == NULL,
                                  .rows = b->N * (width_of_tokens(w) ? 1 : STREAMS(b->config)),
                                  .cols = columns_of(b, w), .head = head_of(b->config, w) };
    if (slot->number) slot->rows = slot->cols = 1;
    name_slot(b, n->out ? n->out : "loss", slot->name);
    return i;
}

/* The first step's mask. */
static void add_mask(const struct building *b, const struct node *n, struct single_node *node)
{
    const struct model_config *c = b->config;
    node->rate = is_attention(n->op) ? c->dropout_attention : node_drops(c, n);
    if (node->rate == 0) return;
    char name[SINGLE_NAME];
    snprintf(name, sizeof name, "%s%s", n->second ? "second." : "", n->place ? n->place : "probabilities");
    if (in_block(b)) snprintf(node->mask, sizeof node->mask, "mask/1/h.%d.%.99s", b->layer, name);
    else snprintf(node->mask, sizeof node->mask, "mask/1/%.99s", name);
}

static int matrices_of(const struct building *b, const struct node *n)
{
    if (n->role == ROLE_QKV) return 3;
    return (n->role == ROLE_UP && b->config->mlp != MLP_GELU) || n->role == ROLE_SHARED_UP || n->role == ROLE_DENSE_UP
               ? 2 : 1;
}

/* ---- a mixture: two products, each expert's with its own matrix, what is between them, and the weighted sum ------ */

static int add_rows(struct building *b, const char *name, int logits, int64_t cols)
{
    struct single_slot *slot = &b->graph.slot[b->graph.slots];
    *slot = (struct single_slot){ .maker = b->graph.nodes, .route = logits, .cols = cols };
    name_slot(b, name, slot->name);
    return b->graph.slots++;
}

/* p: the matrix of expert 0; BLOCK_PARAMS for none. */
static int add_step(struct building *b, const struct single_operation *is, int in, const char *out, int64_t cols,
                    enum block_param p, int logits)
{
    const struct model_config *c = b->config;
    const int E = (int)c->mixture.E, first = p == BLOCK_PARAMS ? -1 : param_of_expert(c, b->layer, 0, p),
              bias = p == BLOCK_PARAMS ? -1 : param_of_expert(c, b->layer, 0, p == UP_W ? UP_B : DOWN_B);
    struct single_node *node = &b->graph.node[b->graph.nodes];
    *node = (struct single_node){ .operation = is, .in = { in, -1, -1 }, .weight = first, .bias = bias,
                                  .matrices = p == UP_W ? 2 : 1, .logits = logits };
    if (first >= 0) node->experts = E, node->stride = E > 1 ? param_of_expert(c, b->layer, 1, p) - first : 0;
    node->out = add_rows(b, out, logits, cols);
    b->graph.nodes++;
    return node->out;
}

/* The node of the sum then reads the last step's rows. */
static void add_experts(struct building *b, struct single_node sum)
{
    const struct model_config *c = b->config;
    const int tokens = sum.in[0], logits = b->graph.node[b->graph.slot[sum.in[1]].maker].in[0];
    const struct single_operation *const activation =
        c->mixture.clamped.limit > 0 ? &single_clamped_swiglu : &single_swiglu;
    const int up = add_step(b, &single_experts_up, tokens, sorted_by_expert[0], 2 * c->F, UP_W, logits),
              act = add_step(b, activation, up, sorted_by_expert[1], c->F, BLOCK_PARAMS, logits),
              out = add_step(b, &single_experts_down, act, sorted_by_expert[2], c->D, DOWN_W, logits);
    sum.in[0] = out, sum.logits = logits, sum.weight = -1;
    if (c->mixture.zero > 0 && !c->mixture.zero_is_null) sum.in[2] = tokens;
    b->graph.node[b->graph.nodes] = sum;
}

enum { STEPS_OF_EXPERTS = 3, LOSSES_OF_ROUTERS = 2 };

static void add_number(struct building *b, const char *name, const struct single_operation *is)
{
    b->graph.slot[b->graph.slots] = (struct single_slot){ .maker = b->graph.nodes, .route = -1, .number = true,
                                                          .rows = 1, .cols = 1 };
    snprintf(b->graph.slot[b->graph.slots].name, SINGLE_NAME, "%s", name);
    b->graph.node[b->graph.nodes++] = (struct single_node){ .operation = is, .in = { -1, -1, -1 }, .weight = -1,
                                                            .bias = -1, .out = b->graph.slots++ };
}

/* ---- all parts --------------------------------------------------------------------------------------------------- */

/* Heads' results without the zeros beside values are attention's own: an operation of recompute/ gives no zeros. */
static void narrow(struct building *b, const struct node *n)
{
    struct single_slot *slot = &b->graph.slot[find_slot(b, n->in[0])];
    const enum activation_width w = operation_width(n, WIDTH_HEADS);
    b->width[slot - b->graph.slot] = w;
    slot->unseen = n->unseen, slot->cols = columns_of(b, w), slot->head = head_of(b->config, w);
    name_slot(b, n->out, slot->name);
}

static enum error_code add_node(struct building *b, const struct node *n, struct error *err)
{
    const struct layer_names names = program_names(b->config, b->layer);
    struct single_node node = { .operation = operations[n->op], .in = { -1, -1, -1 }, .layer = b->layer,
                                .matrices = matrices_of(b, n), .weight = program_weight(b->config, n, &names),
                                .bias = program_bias(n, &names) };
    snprintf(node.words, sizeof node.words, operation_info(n->op)->words, n->param ? n->param : n->out ? n->out : "");
    add_mask(b, n, &node);
    for (int k = 0; k < NODE_INPUTS; k++) {
        node.in[k] = find_slot(b, n->in[k]);
        if (node.in[k] < 0 && n->in[k] && strcmp(n->in[k], "ids") != 0)
            return fail(err, ERR_PLAN, "%s reads %s, which nobody has made before it", node.words, n->in[k]);
    }
    const enum activation_width in = node.in[0] < 0 ? WIDTH_MODEL : b->width[node.in[0]];
    if (n->op == OP_MIXTURE) add_experts(b, node);
    else b->graph.node[b->graph.nodes] = node;
    const int out = add_slot(b, n, in);
    b->graph.node[b->graph.nodes++].out = out;
    return OK;
}

static enum error_code add_part(struct building *b, const struct node *table, int layer, struct error *err)
{
    b->layer = layer, b->before = b->graph.slots - 1, b->first = b->graph.slots, b->table = table;
    enum error_code e = OK;
    for (const struct node *n = table; n->op != OP_END && !e; n++)
        if (node_does_nothing(b->config, n)) skip(b, n);
        else if (n->op == OP_NARROW) narrow(b, n);
        else e = add_node(b, n, err);
    return e;
}

static void free_graph(struct building *b)
{
    free(b->graph.slot), free(b->graph.node), free(b->width);
}

static enum error_code build(struct building *b, struct error *err)
{
    const struct program *p = b->program;
    const int L = (int)b->config->L;
    size_t most = LOSSES_OF_ROUTERS;
    for (int l = -1; l <= L; l++) most += (size_t)length(program_part(p, b->config, l)) + STEPS_OF_EXPERTS;
    b->graph.slot = calloc(most, sizeof *b->graph.slot), b->graph.node = calloc(most, sizeof *b->graph.node);
    b->width = calloc(most, sizeof *b->width);
    if (b->graph.slot == NULL || b->graph.node == NULL || b->width == NULL)
        return fail(err, ERR_MEMORY, "no memory for the operations of model %s", b->config->name);
    enum error_code e = OK;
    for (int l = -1; l <= L && !e; l++) e = add_part(b, program_part(p, b->config, l), l, err);
    if (b->config->mlp != MLP_MIXTURE) return e;
    add_number(b, "balance_loss", &single_balance_loss), add_number(b, "z_loss", &single_z_loss);
    return e;
}

enum error_code replay_check(const struct model_config *c, struct single_batch batch, struct rounding rounding,
                             struct single_source source, struct error *err)
{
    struct building b = { .config = c, .program = program_of(c), .N = batch.B * batch.S,
                          .whole = { .config = c, .scheme = tensor_scheme_at(0) } };
    if (b.program == NULL) return fail(err, ERR_PLAN, "there is no table of the operations of model %s", c->name);
    tensor_share(&b.whole, 1, 0);
    enum error_code e = build(&b, err);
    if (!e) e = single_check(c, &b.graph, batch, rounding, source, err);
    free_graph(&b);
    return e;
}
