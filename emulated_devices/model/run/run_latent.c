/* run_latent.c -- latent attention on a device: latents of all its rows are whole, as on every device along tp, and
 * heads are this device's own.
 *
 * Sends   in the pass for the inputs, besides what the matrices from latents to heads send as all that lead inside (an
 *         all-reduce of the gradients of their inputs: N q and N kv elements), an all-reduce of the gradient of the
 *         shared key: N T elements, the sum over all heads.  Forward nothing
 * Source  as ref/model/latent.c, whose order of operations this follows
 * Called  run_node.c calls these functions.  Errors are those of the tensor scheme and of the attention scheme:
 *         ERR_MEMORY, ERR_COMM.
 */
#include "emulated_devices/model/run/run_node.h"
#include "emulated_devices/device/compute.h"
#include "ref/model/latent.h"

static const struct model_config *config(const struct node_call *call) { return &call->stage->plan->model; }
static int run_latent_weights_of(const struct node_call *call)
{
    return call->part->weight[call->node - call->part->linked.node];
}

static struct latent_moves run_latent_moves(const struct node_call *call)
{
    return latent_moves_of(config(call), call->stage->tp->heads.queries.count);
}

/* ---- norms ------------------------------------------------------------------------------------------------------- */

/* The first columns of the latent, as many as the norm has weights: itself, or a copy in *scratch. */
static enum error_code take_first(const struct node_call *call, struct tensor *X, struct tensor *scratch,
                                  struct error *err)
{
    const int64_t width = tensor_count(stage_weight(call->stage, run_latent_weights_of(call)));
    *X = node_buffer(call, call->node->x[0]), *scratch = tensor_none;
    if (tensor_cols(*X) == width) return OK;
    const enum error_code e = tensor_buffer(call->stage->tp, scratch, tensor_rows(*X), width, err);
    if (e) return e;
    dev_columns_move(call->stage->device, *scratch, *X, run_latent_moves(call).latent, false);
    return *X = *scratch, OK;
}

enum error_code node_latent_norm_forward(const struct node_call *call, struct error *err)
{
    struct tensor X, scratch;
    const enum error_code e = take_first(call, &X, &scratch, err);
    if (!e)
        dev_rmsnorm_forward(call->stage->device, node_buffer(call, call->node->y),
                            node_buffer(call, call->node->statistic[0]), X,
                            stage_weight(call->stage, run_latent_weights_of(call)),
                            norm_base(config(call)), LATENT_EPS);
    device_free(call->stage->device, scratch);
    return e;
}

enum error_code node_latent_norm_input(const struct node_call *call, struct error *err)
{
    const struct tensor dX = node_buffer(call, call->node->dx[0]),
        w = stage_weight(call->stage, run_latent_weights_of(call));
    struct device *d = call->stage->device;
    struct tensor X, scratch, own = dX;
    enum error_code e = take_first(call, &X, &scratch, err);
    if (!e && tensor_present(scratch)) e = tensor_buffer(call->stage->tp, &own, tensor_rows(X), tensor_cols(X), err);
    if (!e)
        dev_rmsnorm_backward_input(d, own, node_buffer(call, call->node->dy), X, w, norm_base(config(call)),
                                   node_buffer(call, call->node->statistic[0]));
    if (!e && own.data != dX.data) {
        device_zero(d, dX);
        dev_columns_move(d, dX, own, moved_back(run_latent_moves(call).latent), false);
        device_free(d, own);
    }
    device_free(d, scratch);
    return e;
}

enum error_code node_latent_norm_weight(const struct node_call *call, struct error *err)
{
    struct tensor X, scratch;
    const enum error_code e = take_first(call, &X, &scratch, err);
    if (!e)
        dev_rmsnorm_backward_weight(call->stage->device, stage_gradient(call->stage, run_latent_weights_of(call)),
                                    node_buffer(call, call->node->dy), X, node_buffer(call, call->node->statistic[0]));
    device_free(call->stage->device, scratch);
    return e;
}

/* ---- heads ------------------------------------------------------------------------------------------------------- */

enum error_code node_join_forward(const struct node_call *call, struct error *err)
{
    const struct tensor qkv = node_buffer(call, call->node->y), q = node_buffer(call, call->node->x[0]),
                        expanded = node_buffer(call, call->node->x[1]), latent = node_buffer(call, call->node->x[2]);
    const struct latent_moves at = run_latent_moves(call);
    struct device *d = call->stage->device;
    (void)err;
    device_zero(d, qkv);
    dev_columns_move(d, qkv, q, at.turned_query, false), dev_columns_move(d, qkv, q, at.query, false);
    dev_columns_move(d, qkv, latent, at.shared_key, false);
    dev_columns_move(d, qkv, expanded, at.key, false), dev_columns_move(d, qkv, expanded, at.value, false);
    return OK;
}

/* Where a device adds up its heads: in the sum itself, or exactly in a buffer of its own. */
static enum error_code heads_sum_begin(struct tensor_parallel *tp, struct tensor *part, struct tensor sum,
                                       struct error *err)
{
    *part = sum;
    if (!tp->device->exact) return OK;
    *part = device_tensor_in(tp->device, BUFFERS, EXACT, tensor_count(sum));
    *part = tensor_2d(part->data, EXACT, tensor_rows(sum), tensor_cols(sum));
    return part->data ? OK : fail(err, ERR_MEMORY, "no memory for the gradient of a shared key");
}

/* The shared key's gradient is the sum over this device's heads, and then over all devices. */
static enum error_code sum_shared_key(const struct node_call *call, struct tensor d_latent, struct tensor d_qkv,
                                      struct error *err)
{
    const int64_t T = config(call)->rotary.turned;
    struct column_blocks sum = moved_back(run_latent_moves(call).shared_key);
    struct tensor_parallel *tp = call->stage->tp;
    struct tensor shared, part = tensor_none;
    enum error_code e = tensor_buffer(tp, &shared, tensor_rows(d_qkv), T, err);
    if (!e) e = heads_sum_begin(tp, &part, shared, err);
    if (e) return device_free(tp->device, shared), e;
    sum.y = 0;
    device_zero(tp->device, part);
    dev_columns_move(tp->device, part, d_qkv, sum, true);
    e = allreduce(&tp->along[tp->scheme->heads.columns], part.data, tensor_count(part), part.dtype, SUM,
                  tp->allreduce, err);
    if (part.data != shared.data) {
        if (!e) e = terms_round(tp->device, shared, part, err);
        device_free(tp->device, part);
    }
    device_zero(tp->device, d_latent);
    if (!e)
        dev_columns_move(tp->device, d_latent, shared, (struct column_blocks){ 1, T, .y = config(call)->latent.kv },
                         false);
    device_free(tp->device, shared);
    return e;
}

enum error_code node_join_input(const struct node_call *call, struct error *err)
{
    const struct tensor d_qkv = node_buffer(call, call->node->dy), d_q = node_buffer(call, call->node->dx[0]),
                        d_expanded = node_buffer(call, call->node->dx[1]);
    const struct latent_moves at = run_latent_moves(call);
    struct device *d = call->stage->device;
    dev_columns_move(d, d_q, d_qkv, moved_back(at.turned_query), false);
    dev_columns_move(d, d_q, d_qkv, moved_back(at.query), false);
    dev_columns_move(d, d_expanded, d_qkv, moved_back(at.key), false);
    dev_columns_move(d, d_expanded, d_qkv, moved_back(at.value), false);
    return sum_shared_key(call, node_buffer(call, call->node->dx[2]), d_qkv, err);
}

enum error_code node_narrow_forward(const struct node_call *call, struct error *err)
{
    (void)err;
    dev_columns_move(call->stage->device, node_buffer(call, call->node->y), node_buffer(call, call->node->x[0]),
                     run_latent_moves(call).result, false);
    return OK;
}

enum error_code node_narrow_input(const struct node_call *call, struct error *err)
{
    const struct tensor d = node_buffer(call, call->node->dx[0]);
    (void)err;
    device_zero(call->stage->device, d);
    dev_columns_move(call->stage->device, d, node_buffer(call, call->node->dy),
                     moved_back(run_latent_moves(call).result), false);
    return OK;
}
