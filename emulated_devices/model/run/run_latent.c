/* run_latent.c -- latent attention on a device: latents of all its rows are whole, as on every device along tp, and
 * heads are this device's own.
 *
 * Sends   in the pass for the inputs, besides what the matrices from latents to heads send as all that lead inside (an
 *         all-reduce of the gradients of their inputs: N q and N kv elements), an all-reduce of the gradient of the
 *         shared key: N T elements, the sum over all heads.  Forward nothing
 * Source  as ref/model/latent.c, whose order of operations this follows
 */
#include "emulated_devices/model/run/run_node.h"
#include "emulated_devices/device/compute.h"
#include "ref/model/latent.h"

static const struct model_config *config(const struct node_call *c) { return &c->stage->plan->model; }
static int weights_of(const struct node_call *c) { return c->part->weight[c->node - c->part->linked.node]; }

static struct latent_moves moves(const struct node_call *c)
{
    return latent_moves_of(config(c), c->stage->tp->heads.queries.count);
}

/* ---- norms ------------------------------------------------------------------------------------------------------- */

/* The first columns of the latent, as many as the norm has weights: itself, or a copy in *scratch. */
static enum error_code take_first(const struct node_call *c, struct tensor *X, struct tensor *scratch,
                                  struct error *err)
{
    const int64_t width = tensor_count(stage_weight(c->stage, weights_of(c)));
    *X = node_buffer(c, c->node->x[0]), *scratch = tensor_none;
    if (tensor_cols(*X) == width) return OK;
    const enum error_code e = tensor_buffer(c->stage->tp, scratch, tensor_rows(*X), width, err);
    if (e) return e;
    dev_columns_move(c->stage->device, *scratch, *X, moves(c).latent, false);
    return *X = *scratch, OK;
}

enum error_code node_latent_norm_forward(const struct node_call *c, struct error *err)
{
    struct tensor X, scratch;
    const enum error_code e = take_first(c, &X, &scratch, err);
    if (!e)
        dev_rmsnorm_forward(c->stage->device, node_buffer(c, c->node->y), node_buffer(c, c->node->statistic[0]), X,
                            stage_weight(c->stage, weights_of(c)), norm_base(config(c)), LATENT_EPS);
    device_free(c->stage->device, scratch);
    return e;
}

enum error_code node_latent_norm_input(const struct node_call *c, struct error *err)
{
    const struct tensor dX = node_buffer(c, c->node->dx[0]), w = stage_weight(c->stage, weights_of(c));
    struct device *d = c->stage->device;
    struct tensor X, scratch, own = dX;
    enum error_code e = take_first(c, &X, &scratch, err);
    if (!e && tensor_present(scratch)) e = tensor_buffer(c->stage->tp, &own, tensor_rows(X), tensor_cols(X), err);
    if (!e)
        dev_rmsnorm_backward_input(d, own, node_buffer(c, c->node->dy), X, w, norm_base(config(c)),
                                   node_buffer(c, c->node->statistic[0]));
    if (!e && own.data != dX.data) {
        device_zero(d, dX);
        dev_columns_move(d, dX, own, moved_back(moves(c).latent), false);
        device_free(d, own);
    }
    device_free(d, scratch);
    return e;
}

enum error_code node_latent_norm_weight(const struct node_call *c, struct error *err)
{
    struct tensor X, scratch;
    const enum error_code e = take_first(c, &X, &scratch, err);
    if (!e)
        dev_rmsnorm_backward_weight(c->stage->device, stage_gradient(c->stage, weights_of(c)),
                                    node_buffer(c, c->node->dy), X, node_buffer(c, c->node->statistic[0]));
    device_free(c->stage->device, scratch);
    return e;
}

/* ---- heads ------------------------------------------------------------------------------------------------------- */

enum error_code node_join_forward(const struct node_call *c, struct error *err)
{
    const struct tensor qkv = node_buffer(c, c->node->y), q = node_buffer(c, c->node->x[0]),
                        expanded = node_buffer(c, c->node->x[1]), latent = node_buffer(c, c->node->x[2]);
    const struct latent_moves at = moves(c);
    struct device *d = c->stage->device;
    (void)err;
    device_zero(d, qkv);
    dev_columns_move(d, qkv, q, at.turned_query, false), dev_columns_move(d, qkv, q, at.query, false);
    dev_columns_move(d, qkv, latent, at.shared_key, false);
    dev_columns_move(d, qkv, expanded, at.key, false), dev_columns_move(d, qkv, expanded, at.value, false);
    return OK;
}

/* The shared key's gradient is the sum over this device's heads, and then over all devices. */
static enum error_code sum_shared_key(const struct node_call *c, struct tensor d_latent, struct tensor d_qkv,
                                      struct error *err)
{
    const int64_t T = config(c)->rotary.turned;
    struct column_blocks sum = moved_back(moves(c).shared_key);
    struct tensor_parallel *tp = c->stage->tp;
    struct tensor shared;
    enum error_code e = tensor_buffer(tp, &shared, tensor_rows(d_qkv), T, err);
    if (e) return e;
    sum.y = 0;
    device_zero(tp->device, shared);
    dev_columns_move(tp->device, shared, d_qkv, sum, true);
    e = allreduce(&tp->along[tp->scheme->heads.columns], shared.data, tensor_count(shared), shared.dtype, SUM,
                  tp->allreduce, err);
    device_zero(tp->device, d_latent);
    if (!e)
        dev_columns_move(tp->device, d_latent, shared, (struct column_blocks){ 1, T, .y = config(c)->latent.kv },
                         false);
    device_free(tp->device, shared);
    return e;
}

enum error_code node_join_input(const struct node_call *c, struct error *err)
{
    const struct tensor d_qkv = node_buffer(c, c->node->dy), d_q = node_buffer(c, c->node->dx[0]),
                        d_expanded = node_buffer(c, c->node->dx[1]);
    const struct latent_moves at = moves(c);
    struct device *d = c->stage->device;
    dev_columns_move(d, d_q, d_qkv, moved_back(at.turned_query), false);
    dev_columns_move(d, d_q, d_qkv, moved_back(at.query), false);
    dev_columns_move(d, d_expanded, d_qkv, moved_back(at.key), false);
    dev_columns_move(d, d_expanded, d_qkv, moved_back(at.value), false);
    return sum_shared_key(c, node_buffer(c, c->node->dx[2]), d_qkv, err);
}

enum error_code node_narrow_forward(const struct node_call *c, struct error *err)
{
    (void)err;
    dev_columns_move(c->stage->device, node_buffer(c, c->node->y), node_buffer(c, c->node->x[0]), moves(c).result,
                     false);
    return OK;
}

enum error_code node_narrow_input(const struct node_call *c, struct error *err)
{
    const struct tensor d = node_buffer(c, c->node->dx[0]);
    (void)err;
    device_zero(c->stage->device, d);
    dev_columns_move(c->stage->device, d, node_buffer(c, c->node->dy), moved_back(moves(c).result), false);
    return OK;
}
