/* run_node.c -- runs one node of a model's table on one microbatch.  model/run/run.c calls for each node;
 * run_attention.c and other files beside it call for parts.  Operations go to the device, products to the tensor
 * scheme.  Without memory for a list of rows the code is ERR_MEMORY. */
#include "emulated_devices/model/run/run_node.h"
#include "emulated_devices/device/compute.h"
#include "emulated_devices/model/run/matrix.h"
#include "ref/model/kinds.h"

typedef enum error_code run(const struct node_call *, struct error *);

/* ---- arguments of the calls -------------------------------------------------------------------------------------- */

static struct tensor buffer(const struct node_call *call, int b) { return node_buffer(call, b); }
static struct tensor own(const struct node_call *call, int b)
{
    return tensor_own_rows(call->stage->tp, buffer(call, b), node_rows(call));
}

static int index_of(const struct node_call *call) { return (int)(call->node - call->part->linked.node); }
static struct tensor run_node_weight(const struct node_call *call)
{
    return stage_weight(call->stage, call->part->weight[index_of(call)]);
}
static struct tensor run_node_bias(const struct node_call *call)
{
    return stage_weight(call->stage, call->part->bias[index_of(call)]);
}
static struct tensor d_weight(const struct node_call *call)
{
    return stage_gradient(call->stage, call->part->weight[index_of(call)]);
}
static struct tensor d_bias(const struct node_call *call)
{
    return stage_gradient(call->stage, call->part->bias[index_of(call)]);
}

static struct matrix matrix(const struct node_call *call)
{
    return (struct matrix){ node_role(call->node->is), call->part->weight[index_of(call)],
                           call->part->bias[index_of(call)] };
}

/* Dropout of the residual stream, Y of X, for each run of rows that are adjacent in the batch. */
static enum error_code run_node_drop(const struct node_call *call, struct tensor Y, struct tensor X, struct error *err)
{
    const struct stage *s = call->stage;
    const struct model_config *model = &s->plan->model;
    const struct node *is = call->node->is;
    struct dropout at = dropout_at(node_drops(model, is), s->dropout_seed, node_layer(call), is->place, 0,
                                   s->tp->channels.first, model->D);
    struct intervals rows = { 0 };
    intervals_add_part(&rows, &call->micro->rows, tensor_rows_at(s->tp, STREAM, call->micro->N));
    for (int64_t i = 0, before = 0; i < rows.count; before += rows.at[i++].count) {
        const int64_t count = rows.at[i].count;
        /* Random numbers are numbered by rows of the whole batch, so that every mesh drops the same elements. */
        at.row0 = rows.at[i].first;
        dev_dropout_part(s->device, tensor_rows_of(Y, before, count), tensor_rows_of(X, before, count), at);
    }
    device_charge(s->device, "dropout", elementwise_cost(tensor_count(X), 2, 1, X.dtype));
    const bool lost = intervals_lost(&rows);
    intervals_free(&rows);
    return lost ? fail(err, ERR_MEMORY, "no memory for a list of rows") : OK;
}

/* ---- embedding --------------------------------------------------------------------------------------------------- */

/* Copy rows that are patches between a tensor of the stream and one of patches. */
static void visit_patches(const struct node_call *call, struct tensor stream, struct tensor patches, bool to_stream)
{
    const size_t row = (size_t)tensor_cols(stream) * dtype_size(stream.dtype);
    for (int64_t n = 0; call->micro->patch && n < tensor_rows(stream); n++) {
        if (call->micro->patch[n] < 0) continue;
        char *const of_stream = (char *)stream.data + (size_t)n * row,
             *const of_patch = (char *)patches.data + (size_t)call->micro->patch[n] * row;
        device_copy(call->stage->device, to_stream ? of_stream : of_patch, to_stream ? of_patch : of_stream, row);
    }
}

static void clear_patches(const struct node_call *call, struct tensor stream)
{
    for (int64_t n = 0; call->micro->patch && n < tensor_rows(stream); n++)
        if (call->micro->patch[n] >= 0) device_zero(call->stage->device, tensor_rows_of(stream, n, 1));
}

static enum error_code embed_forward(const struct node_call *call, struct error *err)
{
    const enum error_code e = tokens_forward(call->stage, matrix(call), buffer(call, call->node->y),
                                             call->micro->ids, err);
    if (!e) visit_patches(call, buffer(call, call->node->y), call->micro->patches, true);
    return e;
}

/* The gradients of patches go to their encoders, not to the table; others may still read them. */
static enum error_code embed_weight(const struct node_call *call, struct error *err)
{
    const struct tensor dy = buffer(call, call->node->dy);
    visit_patches(call, dy, call->micro->d_patches, false);
    clear_patches(call, dy);
    const enum error_code e = call->node->still ? OK
        : tokens_backward_weight(call->stage, matrix(call), dy, call->micro->ids, err);
    /* The rows get their gradients back. */
    visit_patches(call, dy, call->micro->d_patches, true);
    return e;
}

static enum error_code positions_forward(const struct node_call *call, struct error *err)
{
    return tensor_positions_forward(call->stage->tp, buffer(call, call->node->y),
                                    node_integers(call, call->micro->positions, STREAM), run_node_weight(call), err);
}

static enum error_code positions_weight(const struct node_call *call, struct error *err)
{
    return tensor_positions_backward_weight(call->stage->tp, d_weight(call), buffer(call, call->node->dy),
                                            node_integers(call, call->micro->positions, STREAM), err);
}

/* ---- norms and matrices ------------------------------------------------------------------------------------------ */

static enum error_code run_node_norm_forward(const struct node_call *call, struct error *err)
{
    const struct linked_node *n = call->node;
    return tensor_norm_forward(call->stage->tp, own(call, n->y), buffer(call, n->statistic[0]),
                               buffer(call, n->statistic[1]),
                               buffer(call, n->x[0]), run_node_weight(call), run_node_bias(call),
                               call->stage->plan->model.eps, err);
}

static enum error_code norm_input(const struct node_call *call, struct error *err)
{
    const struct linked_node *n = call->node;
    return tensor_norm_backward_input(call->stage->tp, own(call, n->dx[0]), buffer(call, n->dy), buffer(call, n->x[0]),
                                      run_node_weight(call), buffer(call, n->statistic[0]),
                                      buffer(call, n->statistic[1]), err);
}

static enum error_code norm_weight(const struct node_call *call, struct error *err)
{
    const struct linked_node *n = call->node;
    return tensor_norm_backward_weight(call->stage->tp, d_weight(call), d_bias(call), buffer(call, n->dy),
                                       buffer(call, n->x[0]),
                                       buffer(call, n->statistic[0]), buffer(call, n->statistic[1]), err);
}

static enum error_code run_node_linear_forward(const struct node_call *call, struct error *err)
{
    return matrix_forward(call->stage, matrix(call), node_rows(call), buffer(call, call->node->y),
                          buffer(call, call->node->x[0]), err);
}

static enum error_code linear_input(const struct node_call *call, struct error *err)
{
    return matrix_backward_input(call->stage, matrix(call), node_rows(call), buffer(call, call->node->dx[0]),
                                 buffer(call, call->node->dy), err);
}

static enum error_code linear_weight(const struct node_call *call, struct error *err)
{
    return matrix_backward_weight(call->stage, matrix(call), node_rows(call), buffer(call, call->node->dy),
                                  buffer(call, call->node->x[0]), err);
}

/* ---- element by element ------------------------------------------------------------------------------------------ */

#define ACTIVATION(name)                                                                                               \
    static enum error_code name##_forward(const struct node_call *c, struct error *err)                                \
    {                                                                                                                  \
        (void)err;                                                                                                     \
        dev_##name##_forward(c->stage->device, buffer(c, c->node->y), buffer(c, c->node->x[0]));                       \
        return OK;                                                                                                     \
    }                                                                                                                  \
    static enum error_code name##_input(const struct node_call *c, struct error *err)                                  \
    {                                                                                                                  \
        (void)err;                                                                                                     \
        dev_##name##_backward_input(c->stage->device, buffer(c, c->node->dx[0]), buffer(c, c->node->dy),               \
                                    buffer(c, c->node->x[0]));                                                         \
        return OK;                                                                                                     \
    }
ACTIVATION(gelu)
ACTIVATION(exact_gelu)
ACTIVATION(squared_relu)
ACTIVATION(silu)
ACTIVATION(swiglu)
ACTIVATION(geglu)

static enum error_code activation_forward(const struct node_call *call, struct error *err)
{
    run *const forward[] = { [ACTIVATION_GELU] = gelu_forward, [ACTIVATION_EXACT_GELU] = exact_gelu_forward,
                             [ACTIVATION_SQUARED_RELU] = squared_relu_forward };
    return forward[call->stage->plan->model.activation](call, err);
}

static enum error_code activation_input(const struct node_call *call, struct error *err)
{
    run *const input[] = { [ACTIVATION_GELU] = gelu_input, [ACTIVATION_EXACT_GELU] = exact_gelu_input,
                           [ACTIVATION_SQUARED_RELU] = squared_relu_input };
    return input[call->stage->plan->model.activation](call, err);
}

static double factor(const struct node_call *call)
{
    return model_factor(&call->stage->plan->model, call->node->is->factor, call->stage->device->dtype);
}

static enum error_code scale_forward(const struct node_call *call, struct error *err)
{
    (void)err;
    dev_scale(call->stage->device, buffer(call, call->node->y), buffer(call, call->node->x[0]), factor(call));
    return OK;
}

static enum error_code scale_input(const struct node_call *call, struct error *err)
{
    (void)err;
    const struct tensor dX = buffer(call, call->node->dx[0]), dY = buffer(call, call->node->dy);
    /* The gradient of a branch may have room for more rows than the device's own. */
    dev_scale(call->stage->device, tensor_rows(dX) == tensor_rows(dY) ? dX : own(call, call->node->dx[0]), dY,
              factor(call));
    return OK;
}

static enum error_code cap_forward(const struct node_call *call, struct error *err)
{
    (void)err;
    dev_soft_cap_forward(call->stage->device, buffer(call, call->node->y), buffer(call, call->node->x[0]),
                         call->stage->plan->model.logit_cap);
    return OK;
}

static enum error_code cap_input(const struct node_call *call, struct error *err)
{
    (void)err;
    dev_soft_cap_backward_input(call->stage->device, buffer(call, call->node->dx[0]), buffer(call, call->node->dy),
                                buffer(call, call->node->y), call->stage->plan->model.logit_cap);
    return OK;
}

static enum error_code dropout_forward(const struct node_call *call, struct error *err)
{
    return run_node_drop(call, buffer(call, call->node->y), buffer(call, call->node->x[0]), err);
}

static enum error_code dropout_input(const struct node_call *call, struct error *err)
{
    return run_node_drop(call, own(call, call->node->dx[0]), buffer(call, call->node->dy), err);
}

static enum error_code add_forward(const struct node_call *call, struct error *err)
{
    (void)err;
    dev_add(call->stage->device, buffer(call, call->node->y), buffer(call, call->node->x[0]),
            buffer(call, call->node->x[1]));
    return OK;
}

/* ---- a gate ------------------------------------------------------------------------------------------------------ */

static enum error_code gate_forward(const struct node_call *call, struct error *err)
{
    const struct linked_node *n = call->node;
    (void)err;
    dev_gate_forward(call->stage->device, buffer(call, n->y), buffer(call, n->x[0]), buffer(call, n->x[1]));
    return OK;
}

static enum error_code gate_input(const struct node_call *call, struct error *err)
{
    const struct linked_node *n = call->node;
    (void)err;
    dev_gate_backward_input(call->stage->device, own(call, n->dx[0]), buffer(call, n->dx[1]), own(call, n->dy),
                            buffer(call, n->x[0]), buffer(call, n->x[1]));
    return OK;
}

/* ---- loss -------------------------------------------------------------------------------------------------------- */

/* Rows that have losses of their own.  @param[out] loss  NULL: their gradients are asked for. */
static enum error_code row_losses(const struct node_call *call, double *loss, double scale, struct error *err)
{
    const struct linked_node *n = call->node;
    const struct stage *s = call->stage;
    const struct tensor labels = node_integers(call, call->micro->labels, AT_LOGITS);
    const struct tensor top = buffer(call, n->statistic[0]), sums = buffer(call, n->statistic[1]);
    struct intervals rows = { 0 };
    intervals_add_part(&rows, &call->micro->tokens, tensor_rows_at(s->tp, AT_LOGITS, node_rows(call)));
    const bool lost = intervals_lost(&rows);
    if (!lost && loss) tensor_row_loss_forward(s->tp, s->row_loss, &rows, loss, top, sums, labels);
    else if (!lost)
        tensor_row_loss_backward(s->tp, s->row_loss, &rows, buffer(call, n->dx[0]), sums, top, labels, scale);
    intervals_free(&rows);
    return lost ? fail(err, ERR_MEMORY, "no memory for a list of rows") : OK;
}

static enum error_code loss_forward(const struct node_call *call, struct error *err)
{
    const struct linked_node *n = call->node;
    const struct answering *const answering = call->stage->answering;
    double loss = 0;
    if (answering) return answering->take_logits(answering->context, buffer(call, n->x[0]), err);
    const enum error_code e =
        tensor_cross_entropy_forward(call->stage->tp, &loss, buffer(call, n->statistic[0]),
                                     buffer(call, n->statistic[1]),
                                     buffer(call, n->x[0]), node_integers(call, call->micro->labels, AT_LOGITS), err);
    const enum error_code lost = !e && call->stage->row_loss ? row_losses(call, &loss, 0, err) : e;
    call->stage->loss += loss;
    return lost;
}

/* The gradient overwrites the logits, unless another pass still reads them. */
static enum error_code loss_input(const struct node_call *call, struct error *err)
{
    /* d_logits = (softmax - one at the label) scale / labels of the batch. */
    const struct linked_node *n = call->node;
    const struct stage *s = call->stage;
    const double scale = s->loss_scale / (double)(s->counted ? s->counted : 1);
    tensor_cross_entropy_backward(s->tp, buffer(call, n->dx[0]), buffer(call, n->x[0]), buffer(call, n->statistic[1]),
                                  buffer(call, n->statistic[0]), node_integers(call, call->micro->labels, AT_LOGITS),
                                  scale);
    return s->row_loss ? row_losses(call, NULL, scale, err) : OK;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static const struct { run *forward, *input, *weight; } runs[OP_COUNT] = {
    [OP_EMBED]     = { embed_forward,     NULL,            embed_weight },
    [OP_POSITIONS] = { positions_forward, NULL,            positions_weight },
    [OP_NORM]      = { run_node_norm_forward,      norm_input,      norm_weight },
    [OP_MATRIX]    = { run_node_linear_forward,    linear_input,    linear_weight },
    [OP_HEAD_NORM] = { node_head_norm_forward, node_head_norm_input, node_head_norm_weight },
    [OP_LATENT_NORM] = { node_latent_norm_forward, node_latent_norm_input, node_latent_norm_weight },
    [OP_JOIN]      = { node_join_forward, node_join_input, NULL },
    [OP_NARROW]    = { node_narrow_forward, node_narrow_input, NULL },
    [OP_ROTARY]    = { node_rotary_forward, node_rotary_input, NULL },
    [OP_ATTENTION] = { node_attention_forward, node_attention_input, NULL },
    [OP_SINK_ATTENTION] = { node_attention_forward, node_sink_input, node_sink_weight },
    [OP_PREFIXED_ATTENTION] = { node_prefixed_forward, node_prefixed_input, node_prefixed_weight },
    [OP_GELU]      = { activation_forward, activation_input, NULL },
    [OP_SILU]      = { silu_forward,      silu_input,      NULL },
    [OP_SWIGLU]    = { swiglu_forward,    swiglu_input,    NULL },
    [OP_GEGLU]     = { geglu_forward,     geglu_input,     NULL },
    [OP_SCALE]     = { scale_forward,     scale_input,     NULL },
    [OP_CAP]       = { cap_forward,       cap_input,       NULL },
    [OP_DROPOUT]   = { dropout_forward,   dropout_input,   NULL },
    [OP_ADD]       = { add_forward,       NULL,            NULL },
    [OP_ROUTE]     = { node_route_forward, node_route_input, NULL },
    [OP_MIXTURE]   = { node_mixture_forward, node_mixture_input, node_mixture_weight },
    [OP_GATE]      = { gate_forward,      gate_input,      NULL },
    [OP_BESIDE]    = { node_beside_forward, node_beside_input, NULL },
    [OP_MIX]       = { node_mix_forward,  node_mix_input,  NULL },
    [OP_LOSS]      = { loss_forward,      loss_input,      NULL },
};

enum error_code run_node(const struct node_call *call, enum list which, struct error *err)
{
    const enum op op = call->node->is->op;
    run *const of_list[] = { [LIST_FORWARD] = runs[op].forward, [LIST_AGAIN] = runs[op].forward,
                             [LIST_INPUT] = runs[op].input, [LIST_WEIGHT] = runs[op].weight };
    return of_list[which](call, err);
}
