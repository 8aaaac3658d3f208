/* operators.c -- what an operation does with pieces: those of ref/ops, on the rows and columns that the piece has. */
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/sbp/graph.h"

/* All but the first dimension in one. */
static struct tensor rows(struct tensor t)
{
    return tensor_2d(t.data, t.dtype, t.dim[0], t.dim[0] ? tensor_count(t) / t.dim[0] : 0);
}

static struct tensor flat(struct tensor t) { return tensor_1d(t.data, t.dtype, tensor_count(t)); }

/* "nd,fd->nf", "nha,dha->nd", ...: n is the first dimension of X, the first ones of W are those of Y after n. */
static struct tensor as_weight(struct tensor W, struct tensor like_X)
{
    const int64_t I = rows(like_X).dim[1];
    return tensor_2d(W.data, W.dtype, I ? tensor_count(W) / I : 0, I);
}

static bool linear(struct device *d, const struct sbp_op *op, struct tensor Y, const struct tensor in[])
{
    (void)op;
    dev_linear_forward(d, rows(Y), rows(in[0]), as_weight(in[1], in[0]), tensor_none);
    return true;
}

/* dX from dY, W */
static bool linear_dx(struct device *d, const struct sbp_op *op, struct tensor dX, const struct tensor in[])
{
    (void)op;
    dev_linear_backward_input(d, rows(dX), rows(in[0]), as_weight(in[1], dX));
    return true;
}

/* dW from dY, X */
static bool linear_dw(struct device *d, const struct sbp_op *op, struct tensor dW, const struct tensor in[])
{
    (void)op;
    device_zero(d, dW);
    dev_linear_backward_weight(d, as_weight(dW, in[1]), tensor_none, rows(in[0]), rows(in[1]));
    return true;
}

static bool copy(struct device *d, const struct sbp_op *op, struct tensor Y, const struct tensor in[])
{
    (void)op;
    device_copy(d, Y.data, in[0].data, tensor_bytes(Y));
    dev_charge(d, "copy", flat(Y), 2, 0);
    return true;
}

static bool add(struct device *d, const struct sbp_op *op, struct tensor Y, const struct tensor in[])
{
    (void)op;
    dev_add(d, flat(Y), flat(in[0]), flat(in[1]));
    return true;
}

/* Y = X + b on every row */
static bool add_bias(struct device *d, const struct sbp_op *op, struct tensor Y, const struct tensor in[])
{
    (void)op;
    const struct tensor y = rows(Y), x = rows(in[0]);
    const size_t row = (size_t)y.dim[1] * dtype_size(y.dtype);
    for (int64_t n = 0; n < y.dim[0]; n++)
        dev_add(d, tensor_1d((char *)y.data + (size_t)n * row, y.dtype, y.dim[1]),
                tensor_1d((char *)x.data + (size_t)n * row, x.dtype, x.dim[1]), flat(in[1]));
    return true;
}

/* db from dY: the sums of its columns */
static bool bias_dw(struct device *d, const struct sbp_op *op, struct tensor db, const struct tensor in[])
{
    (void)op;
    const struct tensor dY = rows(in[0]), b = flat(db);
    device_zero(d, b);
    for (int64_t n = 0; n < dY.dim[0]; n++)
        dev_add(d, b, b,
                tensor_1d((char *)dY.data + (size_t)(n * dY.dim[1]) * dtype_size(dY.dtype), dY.dtype, dY.dim[1]));
    return true;
}

static bool gelu(struct device *d, const struct sbp_op *op, struct tensor Y, const struct tensor in[])
{
    (void)op;
    dev_gelu_forward(d, flat(Y), flat(in[0]));
    return true;
}

/* dX from dY, X */
static bool gelu_dx(struct device *d, const struct sbp_op *op, struct tensor dX, const struct tensor in[])
{
    (void)op;
    dev_gelu_backward_input(d, flat(dX), flat(in[0]), flat(in[1]));
    return true;
}

/* ---- with results that only backward needs, which it computes again:
 * between operations there are but the graph's tensors ---- */

static const double EPS = 1e-5;

/* The norm's w and b are one tensor, [2,D]. */
static struct tensor half(struct tensor wb, int which)
{
    const int64_t D = tensor_count(wb) / 2;
    return tensor_1d((char *)wb.data + (size_t)(which * D) * dtype_size(wb.dtype), wb.dtype, D);
}

struct statistics { struct tensor y, mean, rstd; };

static struct statistics statistics_make(struct device *d, struct tensor X)
{
    return (struct statistics){ device_tensor_2d(d, BUFFERS, X.dim[0], X.dim[1]),
                                device_statistics(d, BUFFERS, X.dim[0], 0),
                                device_statistics(d, BUFFERS, X.dim[0], 0) };
}

static bool statistics_free(struct device *d, struct statistics s)
{
    const bool made = s.y.data && s.mean.data && s.rstd.data;
    device_free(d, s.y), device_free(d, s.mean), device_free(d, s.rstd);
    return made;
}

static bool statistics_of(struct device *d, struct statistics *s, struct tensor X, struct tensor wb)
{
    *s = statistics_make(d, X);
    if (!s->y.data || !s->mean.data || !s->rstd.data) return false;
    dev_layernorm_forward(d, s->y, s->mean, s->rstd, X, half(wb, 0), half(wb, 1), EPS);
    return true;
}

static bool norm(struct device *d, const struct sbp_op *op, struct tensor Y, const struct tensor in[])
{
    (void)op;
    struct statistics s;
    if (statistics_of(d, &s, rows(in[0]), in[1])) device_copy(d, Y.data, s.y.data, tensor_bytes(Y));
    return statistics_free(d, s);
}

/* dX from dY, X, wb */
static bool norm_dx(struct device *d, const struct sbp_op *op, struct tensor dX, const struct tensor in[])
{
    (void)op;
    struct statistics s;
    if (statistics_of(d, &s, rows(in[1]), in[2]))
        dev_layernorm_backward_input(d, rows(dX), rows(in[0]), rows(in[1]), half(in[2], 0), s.mean, s.rstd);
    return statistics_free(d, s);
}

/* dwb from dY, X, wb */
static bool norm_dw(struct device *d, const struct sbp_op *op, struct tensor dwb, const struct tensor in[])
{
    (void)op;
    struct statistics s;
    device_zero(d, dwb);
    if (statistics_of(d, &s, rows(in[1]), in[2]))
        dev_layernorm_backward_weight(d, half(dwb, 0), half(dwb, 1), rows(in[0]), rows(in[1]), s.mean, s.rstd);
    return statistics_free(d, s);
}

/* The piece of qkv is [n, 3, its heads, A]: just the rows that attention takes. */
static struct attention heads_of(const struct sbp_op *op, struct tensor qkv)
{
    struct attention a = op->attention;
    a.H = a.K = qkv.dim[2];
    return a;
}

static bool attention(struct device *d, const struct sbp_op *op, struct tensor O, const struct tensor in[])
{
    struct tensor lse = device_statistics(d, BUFFERS, in[0].dim[0], in[0].dim[2]);
    if (lse.data) dev_attention_forward(d, rows(O), lse, rows(in[0]), heads_of(op, in[0]));
    device_free(d, lse);
    return lse.data != NULL;
}

/* dQKV from dO, QKV */
static bool attention_dx(struct device *d, const struct sbp_op *op, struct tensor dQKV, const struct tensor in[])
{
    const struct tensor dO = rows(in[0]);
    struct tensor lse = device_statistics(d, BUFFERS, in[1].dim[0], in[1].dim[2]),
                  O = device_tensor_2d(d, BUFFERS, dO.dim[0], dO.dim[1]);
    const bool made = lse.data && O.data;
    if (made) {
        dev_attention_forward(d, O, lse, rows(in[1]), heads_of(op, in[1]));
        dev_attention_backward_input(d, rows(dQKV), dO, O, lse, rows(in[1]), heads_of(op, in[1]));
    }
    device_free(d, lse), device_free(d, O);
    return made;
}

enum { FIRST = 1, BOTH = 3 };
#define OPERATOR(id, text, is_product, ...) const struct sbp_operator sbp_##id = { .name = text, \
    .product = is_product, .partial = { __VA_ARGS__ }, .run = id }
OPERATOR(linear, "linear", true, 0);
OPERATOR(linear_dx, "linear dX", true, 0);
OPERATOR(linear_dw, "linear dW", true, 0);
OPERATOR(copy, "copy", false, FIRST);
OPERATOR(add, "add", false, BOTH);
OPERATOR(add_bias, "add bias", false, BOTH);
OPERATOR(bias_dw, "bias dW", false, FIRST);
OPERATOR(gelu, "gelu", false, 0);
OPERATOR(gelu_dx, "gelu dX", false, FIRST);
OPERATOR(norm, "layernorm", false, 0);
OPERATOR(norm_dx, "layernorm dX", false, FIRST);
OPERATOR(norm_dw, "layernorm dW", false, FIRST);
OPERATOR(attention, "attention", true, 0);
OPERATOR(attention_dx, "attention dX", true, 0);
