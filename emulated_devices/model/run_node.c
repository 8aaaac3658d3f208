#include "emulated_devices/model/run_node.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/model/matrix.h"
#include <string.h>

typedef enum error_code run(const struct node_call *, struct error *);

/* ---- arguments of the calls -------------------------------------------------------------------------------------- */

static struct tensor buffer(const struct node_call *c, int b) { return node_buffer(c, b); }
static struct tensor own(const struct node_call *c, int b)
{
    return tensor_own_rows(c->stage->tp, buffer(c, b), c->micro->N);
}

static int index_of(const struct node_call *c) { return (int)(c->node - c->part->linked.node); }
static struct tensor weight(const struct node_call *c) { return stage_weight(c->stage, c->part->weight[index_of(c)]); }
static struct tensor bias(const struct node_call *c) { return stage_weight(c->stage, c->part->bias[index_of(c)]); }
static struct tensor d_weight(const struct node_call *c)
{
    return stage_gradient(c->stage, c->part->weight[index_of(c)]);
}
static struct tensor d_bias(const struct node_call *c) { return stage_gradient(c->stage, c->part->bias[index_of(c)]); }

static struct matrix matrix(const struct node_call *c)
{
    return (struct matrix){ c->node->is->role, c->part->weight[index_of(c)], c->part->bias[index_of(c)] };
}

/* Of packed samples: what the tokens of some of the microbatch's sequences see. */
static void take_mask(struct attention *a, struct tensor mask, struct interval sequences)
{
    if (!tensor_present(mask)) return;
    a->mask = tensor_rows_of(mask, sequences.first * a->S, sequences.count * a->S);
    const int32_t *sees = a->mask.data;
    for (int64_t i = 0; i < tensor_rows(a->mask); i++) a->pairs += sees[2 * i + 1] - sees[2 * i];
}

/* The description of attention over whole sequences; a scheme may work on fewer heads. */
static struct attention attention(const struct node_call *c)
{
    const struct stage *s = c->stage;
    const struct model_config *model = &s->plan->model;
    const struct interval rows = tensor_rows_at(s->tp, INNER, c->micro->N);
    const bool one = s->seams->cp.scheme->plan != NULL;         /* all sequences are one */
    const struct interval sequences = { one ? 0 : rows.first / s->tp->S, one ? 1 : rows.count / s->tp->S };
    const int64_t first = c->micro->sequences.first + sequences.first;
    struct attention a = attention_of_model(model, one ? tensor_rows(c->micro->mask) : s->plan->S);
    a.each = one ? s->plan->S : 0;
    take_mask(&a, c->micro->mask, sequences);
    a.H = s->tp->heads.queries.count, a.K = s->tp->heads.keys.count;
    a.drop = dropout_at(model->dropout_attention, s->dropout_seed, c->part->layer, "probabilities", first,
                        s->tp->heads.queries.first, model->H);
    return a;
}

/* Dropout of the residual stream, Y of X, for each run of rows that are adjacent in the batch. */
static enum error_code drop(const struct node_call *c, struct tensor Y, struct tensor X, struct error *err)
{
    const struct stage *s = c->stage;
    const struct model_config *model = &s->plan->model;
    const char *place = c->node->is->place;
    const double p = strcmp(place, "embedding") == 0 ? model->dropout_embedding : model->dropout_residual;
    struct intervals rows = { 0 };
    intervals_add_part(&rows, &c->micro->rows, tensor_rows_at(s->tp, STREAM, c->micro->N));
    int64_t before = 0;
    for (int i = 0; i < rows.count; before += rows.at[i++].count)
        dev_dropout(s->device, tensor_rows_of(Y, before, rows.at[i].count), tensor_rows_of(X, before, rows.at[i].count),
                    dropout_at(p, s->dropout_seed, c->part->layer, place, rows.at[i].first, s->tp->channels.first,
                               model->D));
    const bool lost = intervals_lost(&rows);
    intervals_free(&rows);
    return lost ? fail(err, ERR_MEMORY, "no memory for a list of rows") : OK;
}

static struct tensor integers(const struct node_call *c, struct tensor table, enum tensor_place place)
{
    const struct interval r = tensor_rows_at(c->stage->tp, place, c->micro->N);
    return tensor_1d((int32_t *)table.data + r.first, I32, r.count);
}

/* ---- embedding --------------------------------------------------------------------------------------------------- */

static enum error_code embed_forward(const struct node_call *c, struct error *err)
{
    return tokens_forward(c->stage, matrix(c), buffer(c, c->node->y), c->micro->ids, err);
}

static enum error_code embed_weight(const struct node_call *c, struct error *err)
{
    return tokens_backward_weight(c->stage, matrix(c), buffer(c, c->node->dy), c->micro->ids, err);
}

static enum error_code positions_forward(const struct node_call *c, struct error *err)
{
    return tensor_positions_forward(c->stage->tp, buffer(c, c->node->y), integers(c, c->micro->positions, STREAM),
                                    weight(c), err);
}

static enum error_code positions_weight(const struct node_call *c, struct error *err)
{
    return tensor_positions_backward_weight(c->stage->tp, d_weight(c), buffer(c, c->node->dy),
                                            integers(c, c->micro->positions, STREAM), err);
}

/* ---- norms and matrices ------------------------------------------------------------------------------------------ */

static enum error_code norm_forward(const struct node_call *c, struct error *err)
{
    const struct linked_node *n = c->node;
    return tensor_norm_forward(c->stage->tp, own(c, n->y), buffer(c, n->statistic[0]), buffer(c, n->statistic[1]),
                               buffer(c, n->x[0]), weight(c), bias(c), c->stage->plan->model.eps, err);
}

static enum error_code norm_input(const struct node_call *c, struct error *err)
{
    const struct linked_node *n = c->node;
    return tensor_norm_backward_input(c->stage->tp, buffer(c, n->dx[0]), buffer(c, n->dy), buffer(c, n->x[0]),
                                      weight(c), buffer(c, n->statistic[0]), buffer(c, n->statistic[1]), err);
}

static enum error_code norm_weight(const struct node_call *c, struct error *err)
{
    const struct linked_node *n = c->node;
    return tensor_norm_backward_weight(c->stage->tp, d_weight(c), d_bias(c), buffer(c, n->dy), buffer(c, n->x[0]),
                                       buffer(c, n->statistic[0]), buffer(c, n->statistic[1]), err);
}

static enum error_code linear_forward(const struct node_call *c, struct error *err)
{
    return matrix_forward(c->stage, matrix(c), c->micro->N, buffer(c, c->node->y), buffer(c, c->node->x[0]), err);
}

static enum error_code linear_input(const struct node_call *c, struct error *err)
{
    return matrix_backward_input(c->stage, matrix(c), c->micro->N, buffer(c, c->node->dx[0]), buffer(c, c->node->dy),
                                 err);
}

static enum error_code linear_weight(const struct node_call *c, struct error *err)
{
    return matrix_backward_weight(c->stage, matrix(c), c->micro->N, buffer(c, c->node->dy), buffer(c, c->node->x[0]),
                                  err);
}

/* ---- attention --------------------------------------------------------------------------------------------------- */

/* In place. */
static enum error_code rotary_forward(const struct node_call *c, struct error *err)
{
    (void)err;
    dev_rotary_forward(c->stage->device, buffer(c, c->node->y), integers(c, c->micro->positions, INNER),
                       c->stage->rotary, attention(c));
    return OK;
}

static enum error_code rotary_input(const struct node_call *c, struct error *err)
{
    (void)err;
    dev_rotary_backward_input(c->stage->device, buffer(c, c->node->dx[0]), integers(c, c->micro->positions, INNER),
                              c->stage->rotary, attention(c));
    return OK;
}

static struct attention_call attention_call(const struct node_call *c)
{
    const struct linked_node *n = c->node;
    c->stage->seams->cp = stage_seams(c->stage, c->micro, c->part).cp;
    struct attention_call a = {
        .cp = &c->stage->seams->cp, .shape = attention(c), .qkv = buffer(c, n->x[0]), .out = buffer(c, n->y)
    };
    for (int i = 0; i < a.cp->scheme->slots; i++) a.kept[i] = buffer(c, n->statistic[i]);
    return a;
}

static enum error_code attention_forward(const struct node_call *c, struct error *err)
{
    struct attention_call a = attention_call(c);
    const bool exchanges = c->again && only_exchanges(&c->part->linked, c->node);
    return exchanges ? a.cp->scheme->exchange(&a, err) : a.cp->scheme->forward(&a, err);
}

static enum error_code attention_input(const struct node_call *c, struct error *err)
{
    struct attention_call a = attention_call(c);
    a.d_qkv = buffer(c, c->node->dx[0]), a.d_out = buffer(c, c->node->dy);
    return a.cp->scheme->backward_input(&a, err);
}

/* ---- element by element ------------------------------------------------------------------------------------------ */

static enum error_code gelu_forward(const struct node_call *c, struct error *err)
{
    (void)err;
    dev_gelu_forward(c->stage->device, buffer(c, c->node->y), buffer(c, c->node->x[0]));
    return OK;
}

static enum error_code gelu_input(const struct node_call *c, struct error *err)
{
    (void)err;
    dev_gelu_backward_input(c->stage->device, buffer(c, c->node->dx[0]), buffer(c, c->node->dy),
                            buffer(c, c->node->x[0]));
    return OK;
}

static enum error_code swiglu_forward(const struct node_call *c, struct error *err)
{
    (void)err;
    dev_swiglu_forward(c->stage->device, buffer(c, c->node->y), buffer(c, c->node->x[0]));
    return OK;
}

static enum error_code swiglu_input(const struct node_call *c, struct error *err)
{
    (void)err;
    dev_swiglu_backward_input(c->stage->device, buffer(c, c->node->dx[0]), buffer(c, c->node->dy),
                              buffer(c, c->node->x[0]));
    return OK;
}

static enum error_code dropout_forward(const struct node_call *c, struct error *err)
{
    return drop(c, buffer(c, c->node->y), buffer(c, c->node->x[0]), err);
}

static enum error_code dropout_input(const struct node_call *c, struct error *err)
{
    return drop(c, own(c, c->node->dx[0]), buffer(c, c->node->dy), err);
}

static enum error_code add_forward(const struct node_call *c, struct error *err)
{
    (void)err;
    dev_add(c->stage->device, buffer(c, c->node->y), buffer(c, c->node->x[0]), buffer(c, c->node->x[1]));
    return OK;
}

/* ---- loss -------------------------------------------------------------------------------------------------------- */

static enum error_code loss_forward(const struct node_call *c, struct error *err)
{
    const struct linked_node *n = c->node;
    double loss = 0;
    const enum error_code e =
        tensor_cross_entropy_forward(c->stage->tp, &loss, buffer(c, n->statistic[0]), buffer(c, n->statistic[1]),
                                     buffer(c, n->x[0]), integers(c, c->micro->labels, INNER), err);
    c->stage->loss += loss;
    return e;
}

/* The gradient overwrites the logits. */
static enum error_code loss_input(const struct node_call *c, struct error *err)
{
    const struct linked_node *n = c->node;
    const struct stage *s = c->stage;
    (void)err;
    tensor_cross_entropy_backward(s->tp, buffer(c, n->dx[0]), buffer(c, n->statistic[1]), buffer(c, n->statistic[0]),
                                  integers(c, c->micro->labels, INNER),
                                  s->loss_scale / (double)(s->counted ? s->counted : 1));
    return OK;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static const struct { run *forward, *input, *weight; } runs[OP_COUNT] = {
    [OP_EMBED]     = { embed_forward,     NULL,            embed_weight },
    [OP_POSITIONS] = { positions_forward, NULL,            positions_weight },
    [OP_NORM]      = { norm_forward,      norm_input,      norm_weight },
    [OP_MATRIX]    = { linear_forward,    linear_input,    linear_weight },
    [OP_ROTARY]    = { rotary_forward,    rotary_input,    NULL },
    [OP_ATTENTION] = { attention_forward, attention_input, NULL },
    [OP_GELU]      = { gelu_forward,      gelu_input,      NULL },
    [OP_SWIGLU]    = { swiglu_forward,    swiglu_input,    NULL },
    [OP_DROPOUT]   = { dropout_forward,   dropout_input,   NULL },
    [OP_ADD]       = { add_forward,       NULL,            NULL },
    [OP_ROUTE]     = { node_route_forward, node_route_input, NULL },
    [OP_MIXTURE]   = { node_mixture_forward, node_mixture_input, node_mixture_weight },
    [OP_LOSS]      = { loss_forward,      loss_input,      NULL },
};

enum error_code run_node(const struct node_call *c, enum list which, struct error *err)
{
    const enum op op = c->node->is->op;
    run *const of_list[] = { [LIST_FORWARD] = runs[op].forward, [LIST_AGAIN] = runs[op].forward,
                             [LIST_INPUT] = runs[op].input, [LIST_WEIGHT] = runs[op].weight };
    return of_list[which](c, err);
}
