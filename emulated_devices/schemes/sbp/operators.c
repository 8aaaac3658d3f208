/* operators.c -- what an operation does with pieces: those of ref/ops, on the rows and columns that the piece has.
 *
 * graph.h lists the operators; model/sbp/sbp_graph.c and graph_file.c name them, assign_run.c, panels.c, trial.c and
 * op_time.c run them.  An operator returns false if there was no memory for what it computes again.
 */
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/sbp/graph.h"
#include "ref/model/kinds.h"
#include "ref/model/rotary.h"
#include "ref/model/operands.h"
#include <stdlib.h>

/* View a tensor as a matrix: all dimensions but the first are columns. */
static struct tensor operators_rows(struct tensor t)
{
    return tensor_2d(t.data, t.dtype, t.dim[0], t.dim[0] ? tensor_count(t) / t.dim[0] : 0);
}

static struct tensor flat(struct tensor t) { return tensor_1d(t.data, t.dtype, tensor_count(t)); }

/* View a weight as [O, I] for X [N, I].  In "nd,fd->nf" or "nha,dha->nd" n is X's first dimension; Y has W's first ones
 * after n. */
static struct tensor as_weight(struct tensor W, struct tensor like_X)
{
    const int64_t I = operators_rows(like_X).dim[1];
    return tensor_2d(W.data, W.dtype, I ? tensor_count(W) / I : 0, I);
}

/* Y [N, O] = X [N, I] W^T. */
static bool linear(struct device *device, const struct model_config *model, struct tensor Y, const struct tensor in[])
{
    (void)model;
    dev_linear_forward(device, operators_rows(Y), operators_rows(in[0]), as_weight(in[1], in[0]), tensor_none);
    return true;
}

/* dX [N, I] = dY [N, O] W, from dY and W. */
static bool linear_dx(struct device *device, const struct model_config *model, struct tensor dX,
                      const struct tensor in[])
{
    (void)model;
    dev_linear_backward_input(device, operators_rows(dX), operators_rows(in[0]), as_weight(in[1], dX));
    return true;
}

/* Y += X W^T: one more panel of the summed dimension. */
static bool linear_add(struct device *device, const struct model_config *model, struct tensor Y,
                       const struct tensor in[])
{
    (void)model;
    dev_linear_forward_add(device, operators_rows(Y), operators_rows(in[0]), as_weight(in[1], in[0]));
    return true;
}

/* dX += dY W: one more panel of the summed dimension. */
static bool linear_dx_add(struct device *device, const struct model_config *model, struct tensor dX,
                          const struct tensor in[])
{
    (void)model;
    dev_linear_backward_input_columns(device, operators_rows(dX), operators_rows(in[0]), 0, as_weight(in[1], dX), true);
    return true;
}

/* dW += dY^T X; the operation adds by itself. */
static bool linear_dw_add(struct device *device, const struct model_config *model, struct tensor dW,
                          const struct tensor in[])
{
    (void)model;
    dev_linear_backward_weight(device, as_weight(dW, in[1]), tensor_none, operators_rows(in[0]), operators_rows(in[1]));
    return true;
}

/* dW [O, I] = dY^T X, from dY and X: the operation adds, so dW begins with zeros. */
static bool linear_dw(struct device *device, const struct model_config *model, struct tensor dW,
                      const struct tensor in[])
{
    (void)model;
    device_zero(device, dW);
    dev_linear_backward_weight(device, as_weight(dW, in[1]), tensor_none, operators_rows(in[0]), operators_rows(in[1]));
    return true;
}

/* Y = X: a copy may lie otherwise than its operand. */
static bool copy(struct device *device, const struct model_config *model, struct tensor Y, const struct tensor in[])
{
    (void)model;
    device_copy(device, Y.data, in[0].data, tensor_bytes(Y));
    dev_charge(device, "copy", flat(Y), 2, 0);
    return true;
}

/* Y = X1 + X2, elementwise. */
static bool add(struct device *device, const struct model_config *model, struct tensor Y, const struct tensor in[])
{
    (void)model;
    dev_add(device, flat(Y), flat(in[0]), flat(in[1]));
    return true;
}

/* Y [n, :] = X [n, :] + b, on every row. */
static bool add_bias(struct device *device, const struct model_config *model, struct tensor Y, const struct tensor in[])
{
    (void)model;
    const struct tensor y = operators_rows(Y), x = operators_rows(in[0]);
    const size_t row = (size_t)y.dim[1] * dtype_size(y.dtype);
    for (int64_t n = 0; n < y.dim[0]; n++)
        dev_add(device, tensor_1d((char *)y.data + (size_t)n * row, y.dtype, y.dim[1]),
                tensor_1d((char *)x.data + (size_t)n * row, x.dtype, x.dim[1]), flat(in[1]));
    return true;
}

/* db = the sums of dY's columns, row by row. */
static bool bias_dw(struct device *device, const struct model_config *model, struct tensor db, const struct tensor in[])
{
    (void)model;
    const struct tensor dY = operators_rows(in[0]), b = flat(db);
    device_zero(device, b);
    for (int64_t n = 0; n < dY.dim[0]; n++)
        dev_add(device, b, b,
                tensor_1d((char *)dY.data + (size_t)(n * dY.dim[1]) * dtype_size(dY.dtype), dY.dtype, dY.dim[1]));
    return true;
}

/* The model's activation, which is gelu unless a model says otherwise. */
static bool gelu(struct device *device, const struct model_config *model, struct tensor Y, const struct tensor in[])
{
    if (model->activation == ACTIVATION_EXACT_GELU) dev_exact_gelu_forward(device, flat(Y), flat(in[0]));
    else if (model->activation == ACTIVATION_SQUARED_RELU) dev_squared_relu_forward(device, flat(Y), flat(in[0]));
    else dev_gelu_forward(device, flat(Y), flat(in[0]));
    return true;
}

/* dX = dY gelu'(X), elementwise, from dY and X. */
static bool gelu_dx(struct device *device, const struct model_config *model, struct tensor dX, const struct tensor in[])
{
    const struct tensor x = flat(in[1]);
    if (model->activation == ACTIVATION_EXACT_GELU) dev_exact_gelu_backward_input(device, flat(dX), flat(in[0]), x);
    else if (model->activation == ACTIVATION_SQUARED_RELU)
        dev_squared_relu_backward_input(device, flat(dX), flat(in[0]), x);
    else dev_gelu_backward_input(device, flat(dX), flat(in[0]), x);
    return true;
}

/* A gate and what is gated, [n, 2, f]: just the rows that the operation takes. */
static bool swiglu(struct device *device, const struct model_config *model, struct tensor Y, const struct tensor in[])
{
    (void)model;
    dev_swiglu_forward(device, operators_rows(Y), operators_rows(in[0]));
    return true;
}

/* dX [n, 2, f] follows from dY [n, f] and X, and has the gradients of both halves. */
static bool swiglu_dx(struct device *device, const struct model_config *model, struct tensor dX,
                      const struct tensor in[])
{
    (void)model;
    dev_swiglu_backward_input(device, operators_rows(dX), operators_rows(in[0]), operators_rows(in[1]));
    return true;
}

/* Y [n, f] = gelu(gate) up, from X [n, 2, f]. */
static bool geglu(struct device *device, const struct model_config *model, struct tensor Y, const struct tensor in[])
{
    (void)model;
    dev_geglu_forward(device, operators_rows(Y), operators_rows(in[0]));
    return true;
}

/* dX [n, 2, f] follows from dY [n, f] and X, as for swiglu. */
static bool geglu_dx(struct device *device, const struct model_config *model, struct tensor dX,
                     const struct tensor in[])
{
    (void)model;
    dev_geglu_backward_input(device, operators_rows(dX), operators_rows(in[0]), operators_rows(in[1]));
    return true;
}

/* ---- with results that only backward needs, which it computes again:
 * between operations there are but the graph's tensors ---- */

/* A norm's w and b are one tensor, [2,D]; of an rmsnorm, which has no b, [1,D]. */
static struct tensor part(struct tensor wb, int which)
{
    return tensor_1d((char *)wb.data + (size_t)(which * wb.dim[1]) * dtype_size(wb.dtype), wb.dtype, wb.dim[1]);
}

/* The bias behind the weights of a norm, if its norms have one. */
static struct tensor bias_part(const struct model_config *model, struct tensor wb)
{
    return model_has_bias(model, ROLE_NORM) ? part(wb, 1) : tensor_none;
}

struct statistics { struct tensor y, mean, rstd; };

/* Free what statistics_of has opened.  @return whether it had opened all. */
static bool statistics_free(struct device *device, struct statistics statistics)
{
    const bool made = statistics.y.data && statistics.mean.data && statistics.rstd.data;
    device_free(device, statistics.y), device_free(device, statistics.mean), device_free(device, statistics.rstd);
    return made;
}

/* Compute the norm of X again, with the mean and the reciprocal deviation of each row that backward needs.  @return
 * whether there was memory. */
static bool statistics_of(struct device *device, const struct model_config *model, struct statistics *statistics,
                          struct tensor X, struct tensor wb)
{
    *statistics = (struct statistics){ device_tensor_2d(device, BUFFERS, X.dim[0], X.dim[1]),
                              device_statistics(device, BUFFERS, X.dim[0], 0),
                                  device_statistics(device, BUFFERS, X.dim[0], 0) };
    if (!statistics->y.data || !statistics->mean.data || !statistics->rstd.data) return false;
    if (model->norm == NORM_RMS)
        dev_rmsnorm_forward(device, statistics->y, statistics->rstd, X, part(wb, 0), norm_base(model), model->eps);
    else dev_layernorm_forward(device, statistics->y, statistics->mean, statistics->rstd, X, part(wb, 0),
                               norm_base(model), bias_part(model, wb), model->eps);
    return true;
}

/* Y = norm(X) w + b, whose statistics are dropped. */
static bool norm(struct device *device, const struct model_config *model, struct tensor Y, const struct tensor in[])
{
    struct statistics s;
    if (statistics_of(device, model, &s, operators_rows(in[0]), in[1]))
        device_copy(device, Y.data, s.y.data, tensor_bytes(Y));
    return statistics_free(device, s);
}

/* dX follows from dY, X and wb; the statistics of X are computed again. */
static bool norm_dx(struct device *device, const struct model_config *model, struct tensor dX, const struct tensor in[])
{
    const struct tensor dY = operators_rows(in[0]), X = operators_rows(in[1]), w = part(in[2], 0);
    struct statistics s;
    if (statistics_of(device, model, &s, X, in[2])) {
        if (model->norm == NORM_RMS)
            dev_rmsnorm_backward_input(device, operators_rows(dX), dY, X, w, norm_base(model), s.rstd);
        else dev_layernorm_backward_input(device, operators_rows(dX), dY, X, w, norm_base(model), s.mean, s.rstd);
    }
    return statistics_free(device, s);
}

/* dwb follows from dY, X and wb: sums over rows, so dwb begins with zeros. */
static bool norm_dw(struct device *device, const struct model_config *model, struct tensor dwb,
                    const struct tensor in[])
{
    const struct tensor dY = operators_rows(in[0]), X = operators_rows(in[1]), dw = part(dwb, 0);
    struct statistics s;
    device_zero(device, dwb);
    if (statistics_of(device, model, &s, X, in[2])) {
        if (model->norm == NORM_RMS) dev_rmsnorm_backward_weight(device, dw, dY, X, s.rstd);
        else dev_layernorm_backward_weight(device, dw, bias_part(model, dwb), dY, X, s.mean, s.rstd);
    }
    return statistics_free(device, s);
}

/* ---- heads: QKV [n, k, G, A] has k key/value heads, each with the G - 2 query heads before it that use it -------- */

/* Describe attention of one key/value head and the query heads that use it. */
static struct attention of_one_group(const struct model_config *model, struct tensor qkv)
{
    struct attention a = attention_of_layer(model, 0, model->S);
    a.H = qkv.dim[2] - 2, a.K = 1;
    return a;
}

/* The table and the positions are inputs, not tensors of the graph. */
static bool operators_turn(struct device *device, const struct model_config *model, struct tensor Y,
                           struct tensor X, bool back)
{
    const int64_t k = Y.dim[1], n = Y.dim[0] * k;
    const struct rotary of_layer = model_rotary(model, 0);
    struct tensor table = tensor_2d(NULL, dtype_wide(Y.dtype), model->S, rotary_table_width(model));
    struct tensor position = tensor_1d(malloc((size_t)n * sizeof(int32_t)), I32, n);
    table.data = malloc(tensor_bytes(table));
    const bool made = table.data && position.data;
    if (made) {
        const struct tensor groups = tensor_2d(Y.data, Y.dtype, n, Y.dim[2] * Y.dim[3]);
        rotary_table(&of_layer, table);
        /* Row i is group i mod k of token i / k; positions begin anew in each sequence of S tokens. */
        for (int64_t i = 0; i < n; i++) ((int32_t *)position.data)[i] = (int32_t)(i / k % model->S);
        device_copy(device, Y.data, X.data, tensor_bytes(Y));
        if (back) dev_rotary_backward_input(device, groups, position, table, of_one_group(model, Y));
        else dev_rotary_forward(device, groups, position, table, of_one_group(model, Y));
    }
    free(table.data), free(position.data);
    return made;
}

static bool rotary(struct device *device, const struct model_config *model, struct tensor Y, const struct tensor in[])
{
    return operators_turn(device, model, Y, in[0], false);
}

static bool rotary_dx(struct device *device, const struct model_config *model, struct tensor dX,
                      const struct tensor in[])
{
    return operators_turn(device, model, dX, in[0], true);
}

/* Copy [a, b, ...] to [b, a, ...]: tokens and groups change places. */
static void operators_exchange(struct device *device, struct tensor to, struct tensor from, int64_t a, int64_t b)
{
    const size_t row = tensor_bytes(from) / (size_t)(a * b);
    for (int64_t i = 0; i < a; i++)
        for (int64_t j = 0; j < b; j++)
            device_copy(device, (char *)to.data + (size_t)(j * a + i) * row,
                        (char *)from.data + (size_t)(i * b + j) * row, row);
    dev_charge(device, "copy", flat(from), 2, 0);
}

/* Group by group, as one attention has it: the k groups of n tokens are k n rows, with one key and one value. */
static struct tensor by_groups(struct device *device, struct tensor X)
{
    const struct tensor to = device_tensor_2d(device, BUFFERS, X.dim[0] * X.dim[1],
                                              tensor_count(X) / (X.dim[0] * X.dim[1]));
    if (to.data) operators_exchange(device, to, X, X.dim[0], X.dim[1]);
    return to;
}

/* Attention runs on QKV by groups, with the results by groups, and their log-sum-exp. */
struct attended { struct tensor qkv, o, lse; };

static bool attended_free(struct device *device, struct attended attended)
{
    const bool made = attended.qkv.data && attended.o.data && attended.lse.data;
    device_free(device, attended.qkv), device_free(device, attended.o), device_free(device, attended.lse);
    return made;
}

/* Run attention of all groups, forward.  @return whether there was memory; attended_free is due either way. */
static bool operators_attend(struct device *device, const struct model_config *model, struct attended *attended,
                             struct tensor qkv)
{
    const struct attention a = of_one_group(model, qkv);
    const int64_t n = qkv.dim[0] * qkv.dim[1];
    *attended = (struct attended){ by_groups(device, qkv), device_tensor_2d(device, BUFFERS, n, a.H * a.A),
                            device_statistics(device, BUFFERS, n, a.H) };
    if (!attended->qkv.data || !attended->o.data || !attended->lse.data) return false;
    dev_attention_forward(device, attended->o, attended->lse, attended->qkv, a);
    return true;
}

/* O [n, k, G-2, A] follows from QKV [n, k, G, A]: each group attends by itself. */
static bool attention(struct device *device, const struct model_config *model, struct tensor O,
                      const struct tensor in[])
{
    struct attended t;
    if (operators_attend(device, model, &t, in[0])) operators_exchange(device, O, t.o, in[0].dim[1], in[0].dim[0]);
    return attended_free(device, t);
}

/* dQKV follows from dO and QKV: attention runs forward again, then backward, group by group. */
static bool attention_dx(struct device *device, const struct model_config *model, struct tensor dQKV,
                         const struct tensor in[])
{
    const struct tensor qkv = in[1], dO = by_groups(device, in[0]),
                        d_qkv = device_tensor_2d(device, BUFFERS, qkv.dim[0] * qkv.dim[1], qkv.dim[2] * qkv.dim[3]);
    const bool made = dO.data && d_qkv.data;
    struct attended t;
    if (operators_attend(device, model, &t, qkv) && made) {
        dev_attention_backward_input(device, d_qkv, dO, t.o, t.lse, t.qkv, of_one_group(model, qkv));
        operators_exchange(device, dQKV, d_qkv, qkv.dim[1], qkv.dim[0]);
    }
    device_free(device, dO), device_free(device, d_qkv);
    return attended_free(device, t) && made;
}

/* An operator names sets of operands in which it is linear, as bits: the first operand, or the first two. */
enum { FIRST = 1, BOTH = 3 };
#define OPERATOR(id, text, is_product, ...) const struct sbp_operator sbp_##id = { .name = text, \
    .product = is_product, .partial = { __VA_ARGS__ }, .run = id }
#define PRODUCT(id, text) const struct sbp_operator sbp_##id = { .name = text, .product = true, .run = id, \
    .add = id##_add }
PRODUCT(linear, "linear");
PRODUCT(linear_dx, "linear dX");
PRODUCT(linear_dw, "linear dW");
OPERATOR(copy, "copy", false, FIRST);
OPERATOR(add, "add", false, BOTH);
OPERATOR(add_bias, "add bias", false, BOTH);
OPERATOR(bias_dw, "bias dW", false, FIRST);
OPERATOR(gelu, "gelu", false, 0);
OPERATOR(gelu_dx, "gelu dX", false, FIRST);
OPERATOR(swiglu, "swiglu", false, 0);
OPERATOR(swiglu_dx, "swiglu dX", false, FIRST);
OPERATOR(geglu, "geglu", false, 0);
OPERATOR(geglu_dx, "geglu dX", false, FIRST);
OPERATOR(norm, "norm", false, 0);
OPERATOR(norm_dx, "norm dX", false, FIRST);
OPERATOR(norm_dw, "norm dW", false, FIRST);
OPERATOR(rotary, "rotary", false, FIRST);
OPERATOR(rotary_dx, "rotary dX", false, FIRST);
OPERATOR(attention, "attention", true, 0);
OPERATOR(attention_dx, "attention dX", true, 0);
