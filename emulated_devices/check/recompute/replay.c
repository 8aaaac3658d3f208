/* replay.c -- turns a model's table of operations into a graph, and runs the check over it.  report/singles.c and
 * tests call replay_check.  ERR_PLAN: a model without a table, or a table that reads what nobody has made. */
#include "emulated_devices/check/recompute/replay.h"
#include "emulated_devices/model/probe.h"
#include "emulated_devices/model/program.h"
#include "emulated_devices/check/recompute/graph.h"
#include "ref/model/family.h"
#include "ref/model/kinds.h"
#include "ref/model/params.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* This table has the operation of recompute/ for each operation of a model's table.  NULL: its results are reported
 * as not recomputed. */
static const struct single_operation *const operations[OP_COUNT] = {
    [OP_EMBED] = &single_embed,         [OP_POSITIONS] = &single_positions, [OP_NORM] = &single_norm,
    [OP_MATRIX] = &single_matrix,       [OP_HEAD_NORM] = &single_head_norm, [OP_ROTARY] = &single_rotary,
    [OP_ATTENTION] = &single_attention, [OP_SILU] = &single_silu,
    [OP_SWIGLU] = &single_swiglu,       [OP_DROPOUT] = &single_dropout,     [OP_ADD] = &single_add,
    [OP_GATE] = &single_gate,           [OP_BESIDE] = &single_beside,       [OP_MIX] = &single_mix,
    [OP_SINK_ATTENTION] = &single_sink_attention,
    [OP_LOSS] = &single_loss,           [OP_PREFIXED_ATTENTION] = &single_prefixed_attention,
    [OP_GEGLU] = &single_geglu,         [OP_SCALE] = &single_scale,         [OP_LATENT_NORM] = &single_latent_norm,
    [OP_JOIN] = &single_join,           [OP_CAP] = &single_soft_cap,
    [OP_ROUTE] = &single_route,         [OP_MIXTURE] = &single_combine,         /* its products: add_experts() */
};

/* The recomputation of a node: that of an activation is the model's. */
static const struct single_operation *operation_of(const struct model_config *config, const struct node *node)
{
    static const struct single_operation *const activation[] = { [ACTIVATION_GELU] = &single_gelu,
                                                                 [ACTIVATION_EXACT_GELU] = &single_exact_gelu,
                                                                 [ACTIVATION_SQUARED_RELU] = &single_squared_relu };
    return node->op == OP_GELU ? activation[config->activation] : operations[node->op];
}

/* ---- the graph of a model ---------------------------------------------------------------------------------------- */

/* These are the graph so far, and the part of the table that is now added: embedding, a block, or the loss. */
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

/* Nodes of a table without its end. */
static int replay_length(const struct node *table)
{
    int n = 0;
    while (table[n].op != OP_END) n++;
    return n;
}

static bool in_block(const struct building *building)
{
    return building->layer >= 0 && building->layer < building->config->L;
}

/* Slots of a block have its number in their names. */
static void name_slot(const struct building *building, const char *name, char out[SINGLE_NAME])
{
    if (in_block(building)) snprintf(out, SINGLE_NAME, "h.%d.%s", building->layer, name);
    else snprintf(out, SINGLE_NAME, "%s", name);
}

/* Find the slot with a name of the table, searched in this part only.  "in" is the last slot of the part before; -1:
 * ids, or none. */
static int find_slot(const struct building *building, const char *name)
{
    char full[SINGLE_NAME];
    if (name == NULL || strcmp(name, "ids") == 0) return -1;
    if (strcmp(name, "in") == 0) return building->before;
    name_slot(building, name, full);
    for (int i = building->graph.slots - 1; i >= building->first; i--)
        if (strcmp(building->graph.slot[i].name, full) == 0) return i;
    /* the output of a node that does nothing */
    for (const struct node *n = building->table; n->op != OP_END; n++)
        if (n->out && strcmp(n->out, name) == 0 && node_does_nothing(building->config, n, building->layer))
            return find_slot(building, n->in[0]);
    return -1;
}

/* A node that does nothing is no operation of the graph.  If only its output is seen, its input gets the output's
 * name. */
static void skip(struct building *building, const struct node *node)
{
    struct single_slot *slot = &building->graph.slot[find_slot(building, node->in[0])];
    if (!slot->unseen || node->unseen) return;
    slot->unseen = false;
    name_slot(building, node->out, slot->name);
}

/* An activation has so many columns on one device, without parallelism. */
static int64_t replay_columns_of(const struct building *building, enum activation_width width)
{
    struct intervals s = activation_columns(&building->whole, width, false);
    const int64_t n = intervals_total(&s);
    intervals_free(&s);
    return n;
}

/* A head has so many columns; reports name heads where errors are. */
static int64_t head_of(const struct model_config *config, enum activation_width width)
{
    switch (width) {
    case WIDTH_QKV:
    case WIDTH_HEADS:    return config->A;
    case WIDTH_VALUES:   return value_width(config);
    case WIDTH_EXPANDED: return expanded_width(config);
    default:             return 0;
    }
}

/* Add the slot that a node makes; a node without an output is the loss, a number. */
static int add_slot(struct building *building, const struct node *node, enum activation_width in)
{
    const int i = building->graph.slots++;
    const enum activation_width w = operation_width(node, in);
    struct single_slot *slot = &building->graph.slot[i];
    building->width[i] = w;
    *slot = (struct single_slot){ .maker = building->graph.nodes, .route = -1, .unseen = node->unseen,
                                 .number = node->out == NULL,
                                  .rows = building->N * (width_of_tokens(w) ? 1 : STREAMS(building->config)),
                                  .cols = replay_columns_of(building, w), .head = head_of(building->config, w) };
    if (slot->number) slot->rows = slot->cols = 1;
    name_slot(building, node->out ? node->out : "loss", slot->name);
    return i;
}

/* Name the mask of the first step: dumps have masks of that step. */
static void add_mask(const struct building *building, const struct node *n, struct single_node *node)
{
    const struct model_config *c = building->config;
    node->rate = is_attention(n->op) ? c->dropout_attention : node_drops(c, n);
    if (node->rate == 0) return;
    char name[SINGLE_NAME];
    snprintf(name, sizeof name, "%s%s", n->second ? "second." : "", n->place ? n->place : "probabilities");
    if (in_block(building)) snprintf(node->mask, sizeof node->mask, "mask/1/h.%d.%.99s", building->layer, name);
    else snprintf(node->mask, sizeof node->mask, "mask/1/%.99s", name);
}

/* How many matrices other programs have in place of this one: queries, keys and values; gate and up. */
static int matrices_of(const struct building *building, const struct node *node)
{
    const enum param_role role = node_role(node);
    if (node->op != OP_MATRIX) return 1;
    if (role == ROLE_QKV) return 3;
    return (role == ROLE_UP && building->config->mlp != MLP_GELU) || role == ROLE_SHARED_UP
           || role == ROLE_DENSE_UP ? 2 : 1;
}

/* ---- a mixture: two products, each expert's with its own matrix, what is between them, and the weighted sum ------ */

/* Add a slot of rows that experts compute; their number is known only with the logits. */
static int replay_add_rows(struct building *building, const char *name, int logits, int64_t cols)
{
    struct single_slot *slot = &building->graph.slot[building->graph.slots];
    *slot = (struct single_slot){ .maker = building->graph.nodes, .route = logits, .cols = cols };
    name_slot(building, name, slot->name);
    return building->graph.slots++;
}

/* Add one step of the experts.  param: the matrix of expert 0; BLOCK_PARAMS for none. */
static int add_step(struct building *building, const struct single_operation *is, int in, const char *out, int64_t cols,
                    enum block_param param, int logits)
{
    const struct model_config *c = building->config;
    const int E = (int)c->mixture.E, first = param == BLOCK_PARAMS ? -1 : param_of_expert(c, building->layer, 0, param),
              bias = param == BLOCK_PARAMS ? -1 : param_of_expert(c, building->layer, 0, param == UP_W ? UP_B : DOWN_B);
    struct single_node *node = &building->graph.node[building->graph.nodes];
    *node = (struct single_node){ .operation = is, .in = { in, -1, -1 }, .weight = first, .bias = bias,
                                  .matrices = param == UP_W ? 2 : 1, .logits = logits };
    if (first >= 0) node->experts = E, node->stride = E > 1 ? param_of_expert(c, building->layer, 1, param) - first : 0;
    node->out = replay_add_rows(building, out, logits, cols);
    building->graph.nodes++;
    return node->out;
}

/* Add the three steps of a mixture.  The node of the sum then reads the last step's rows in place of the tokens. */
static void add_experts(struct building *building, struct single_node sum)
{
    const struct model_config *c = building->config;
    const int tokens = sum.in[0], logits = building->graph.node[building->graph.slot[sum.in[1]].maker].in[0];
    /* A model with a limit clamps gate and up; without one the plain swiglu runs. */
    const struct single_operation *const activation =
        c->mixture.clamped.limit > 0 ? &single_clamped_swiglu : &single_swiglu;
    const int up = add_step(building, &single_experts_up, tokens, sorted_by_expert[0], 2 * c->F, UP_W, logits),
              act = add_step(building, activation, up, sorted_by_expert[1], c->F, BLOCK_PARAMS, logits),
              out = add_step(building, &single_experts_down, act, sorted_by_expert[2], c->D, DOWN_W, logits);
    sum.in[0] = out, sum.logits = logits, sum.weight = -1;
    if (c->mixture.zero > 0 && !c->mixture.zero_is_null) sum.in[2] = tokens;
    building->graph.node[building->graph.nodes] = sum;
}

enum { STEPS_OF_EXPERTS = 3, LOSSES_OF_ROUTERS = 2 };

/* Add a result that is a number of the whole batch. */
static void add_number(struct building *building, const char *name, const struct single_operation *is)
{
    building->graph.slot[building->graph.slots] = (struct single_slot){ .maker = building->graph.nodes, .route = -1,
                                                                       .number = true,
                                                          .rows = 1, .cols = 1 };
    snprintf(building->graph.slot[building->graph.slots].name, SINGLE_NAME, "%s", name);
    building->graph.node[building->graph.nodes++] = (struct single_node){ .operation = is, .in = { -1, -1, -1 },
                                                                         .weight = -1,
                                                            .bias = -1, .out = building->graph.slots++ };
}

/* ---- all parts --------------------------------------------------------------------------------------------------- */

/* Zeros beside values are no part of attention's result here, so the slot takes the narrower width and name. */
static void narrow(struct building *building, const struct node *node)
{
    struct single_slot *slot = &building->graph.slot[find_slot(building, node->in[0])];
    const enum activation_width w = operation_width(node, WIDTH_HEADS);
    building->width[slot - building->graph.slot] = w;
    slot->unseen = node->unseen, slot->cols = replay_columns_of(building, w), slot->head = head_of(building->config, w);
    name_slot(building, node->out, slot->name);
}

/* This adds one node of the table with its inputs, weights and mask, and the slot of its output. */
static enum error_code replay_add_node(struct building *building, const struct node *n, struct error *err)
{
    struct single_node node = { .operation = operation_of(building->config, n), .in = { -1, -1, -1 },
                                .layer = building->layer, .factor = n->factor, .matrices = matrices_of(building, n),
                                .weight = program_weight(building->config, n, building->layer),
                                .bias = program_bias(building->config, n, building->layer) };
    const struct param_text name = param_text_of(building->config, n->param, n->op == OP_MIXTURE);
    snprintf(node.words, sizeof node.words, node_words(building->config, n),
             n->param != NO_PARAM ? name.text : n->out ? n->out : "");
    add_mask(building, n, &node);
    for (int k = 0; k < NODE_INPUTS; k++) {
        node.in[k] = find_slot(building, n->in[k]);
        /* An input that nobody has made is a fault of the table. */
        if (node.in[k] < 0 && n->in[k] && strcmp(n->in[k], "ids") != 0)
            return fail(err, ERR_PLAN, "%s reads %s, which nobody has made before it", node.words, n->in[k]);
    }
    /* The first node's input has no slot, so its width is the model's. */
    const enum activation_width in = node.in[0] < 0 ? WIDTH_MODEL : building->width[node.in[0]];
    if (n->op == OP_MIXTURE) add_experts(building, node);
    else building->graph.node[building->graph.nodes] = node;
    const int out = add_slot(building, n, in);
    building->graph.node[building->graph.nodes++].out = out;
    return OK;
}

/* Add all nodes of a part.  Names of this part do not reach those before it, except "in". */
static enum error_code replay_add_part(struct building *building, const struct node *table, int layer,
                                       struct error *err)
{
    building->layer = layer, building->before = building->graph.slots - 1, building->first = building->graph.slots,
        building->table = table;
    enum error_code e = OK;
    for (const struct node *n = table; n->op != OP_END && !e; n++)
        if (node_does_nothing(building->config, n, building->layer)) skip(building, n);
        else if (n->op == OP_NARROW) narrow(building, n);
        else e = replay_add_node(building, n, err);
    return e;
}

/* The names and widths live until the check ends. */
static void free_graph(struct building *building)
{
    free(building->graph.slot), free(building->graph.node), free(building->width);
}

/* Nodes are counted first, so the lists never grow. */
static enum error_code build(struct building *building, struct error *err)
{
    const struct program *p = building->program;
    const int L = (int)building->config->L;
    size_t most = LOSSES_OF_ROUTERS;
    /* Part -1 is the embedding, part L the loss. */
    for (int l = -1; l <= L; l++)
        most += (size_t)replay_length(program_part(p, building->config, l)) + STEPS_OF_EXPERTS;
    building->graph.slot = calloc(most, sizeof *building->graph.slot),
        building->graph.node = calloc(most, sizeof *building->graph.node);
    building->width = calloc(most, sizeof *building->width);
    if (building->graph.slot == NULL || building->graph.node == NULL || building->width == NULL)
        return fail(err, ERR_MEMORY, "no memory for the operations of model %s", building->config->name);
    enum error_code e = OK;
    for (int l = -1; l <= L && !e; l++) e = replay_add_part(building, program_part(p, building->config, l), l, err);
    if (building->config->mlp != MLP_MIXTURE) return e;
    add_number(building, "balance_loss", &single_balance_loss), add_number(building, "z_loss", &single_z_loss);
    return e;
}

/* The graph is built for one device, whatever mesh the program ran on. */
enum error_code replay_check(const struct model_config *config, struct single_batch batch, struct rounding rounding,
                             struct single_source source, struct error *err)
{
    struct building b = { .config = config, .program = model_program(config), .N = batch.B * batch.S,
                          .whole = { .config = config, .scheme = tensor_scheme_at(0) } };
    tensor_share(&b.whole, 1, 0);
    enum error_code e = build(&b, err);
    if (!e) e = single_check(config, &b.graph, batch, rounding, source, err);
    free_graph(&b);
    return e;
}
