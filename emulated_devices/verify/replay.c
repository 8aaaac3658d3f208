#include "emulated_devices/verify/replay.h"
#include "emulated_devices/model/probe.h"
#include "emulated_devices/model/program.h"
#include "ref/single/graph.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct single_operation *const operations[OP_COUNT] = {
    [OP_EMBED] = &single_embed,         [OP_POSITIONS] = &single_positions, [OP_NORM] = &single_norm,
    [OP_MATRIX] = &single_matrix,       [OP_ROTARY] = &single_rotary,       [OP_ATTENTION] = &single_attention,
    [OP_GELU] = &single_gelu,           [OP_SWIGLU] = &single_swiglu,       [OP_DROPOUT] = &single_same,
    [OP_ADD] = &single_add,             [OP_LOSS] = &single_loss,
};

/* ---- the graph of a model ---------------------------------------------------------------------------------------- */

struct building {
    const struct model_config *config;
    const struct program *program;
    struct tensor_parallel whole;       /* of one device */
    int64_t N;                          /* tokens */
    struct single_graph graph;
    enum activation_width *width;       /* of each slot */
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
    return -1;
}

static int64_t columns_of(const struct building *b, enum activation_width w)
{
    struct intervals s = activation_columns(&b->whole, w, false);
    const int64_t n = intervals_total(&s);
    intervals_free(&s);
    return n;
}

static int add_slot(struct building *b, const struct node *n, enum activation_width in)
{
    const int i = b->graph.slots++;
    const enum activation_width w = operation_width(n, in);
    struct single_slot *slot = &b->graph.slot[i];
    b->width[i] = w;
    *slot = (struct single_slot){ .maker = b->graph.nodes, .unseen = n->unseen, .number = n->out == NULL,
                                  .rows = b->N * (width_of_tokens(w) ? 1 : STREAMS(b->config)),
                                  .cols = columns_of(b, w),
                                  .head = w == WIDTH_QKV || w == WIDTH_HEADS ? b->config->A : 0 };
    if (slot->number) slot->rows = slot->cols = 1;
    name_slot(b, n->out ? n->out : "loss", slot->name);
    return i;
}

/* Rates of 0 leave a dropout that changes nothing. */
static const struct single_operation *operation_of(const struct building *b, const struct node *n)
{
    const struct model_config *c = b->config;
    if (n->op == OP_DROPOUT && (in_block(b) ? c->dropout_residual : c->dropout_embedding) > 0) return NULL;
    if (is_attention(n->op) && c->dropout_attention > 0) return NULL;
    if (n->op == OP_LOSS && c->mlp == MLP_MIXTURE) return NULL;         /* its routers' losses are part of the loss */
    return operations[n->op];
}

static int matrices_of(const struct building *b, const struct node *n)
{
    if (n->role == ROLE_QKV) return 3;
    return (n->role == ROLE_UP && b->config->mlp != MLP_GELU) || n->role == ROLE_SHARED_UP ? 2 : 1;
}

static enum error_code add_node(struct building *b, const struct node *n, struct error *err)
{
    struct single_node *node = &b->graph.node[b->graph.nodes];
    *node = (struct single_node){ .operation = operation_of(b, n), .in = { -1, -1, -1 }, .layer = b->layer,
                                  .matrices = matrices_of(b, n), .weight = program_weight(b->config, n, b->layer),
                                  .bias = program_bias(b->config, n, b->layer) };
    snprintf(node->words, sizeof node->words, operation_info(n->op)->words, n->param ? n->param : n->out ? n->out : "");
    for (int k = 0; k < NODE_INPUTS; k++) {
        node->in[k] = find_slot(b, n->in[k]);
        if (node->in[k] < 0 && n->in[k] && strcmp(n->in[k], "ids") != 0)
            return fail(err, ERR_PLAN, "%s reads %s, which nobody has made before it", node->words, n->in[k]);
    }
    node->out = add_slot(b, n, node->in[0] < 0 ? WIDTH_MODEL : b->width[node->in[0]]);
    b->graph.nodes++;
    return OK;
}

static enum error_code add_part(struct building *b, const struct node *table, int layer, struct error *err)
{
    b->layer = layer, b->before = b->graph.slots - 1, b->first = b->graph.slots;
    enum error_code e = OK;
    for (const struct node *n = table; n->op != OP_END && !e; n++) e = add_node(b, n, err);
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
    const size_t most = (size_t)(length(p->embedding) + L * length(p->block) + length(p->loss));
    b->graph.slot = calloc(most, sizeof *b->graph.slot), b->graph.node = calloc(most, sizeof *b->graph.node);
    b->width = calloc(most, sizeof *b->width);
    if (b->graph.slot == NULL || b->graph.node == NULL || b->width == NULL)
        return fail(err, ERR_MEMORY, "no memory for the operations of model %s", b->config->name);
    enum error_code e = add_part(b, p->embedding, -1, err);
    for (int l = 0; l < L && !e; l++) e = add_part(b, p->block, l, err);
    return e ? e : add_part(b, p->loss, L, err);
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
