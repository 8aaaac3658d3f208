/* heads_norm.c -- norms of queries and keys on devices that have some of the heads.
 *
 * Source   of each head: M. Dehghani et al., arXiv:2302.05442; of all queries, and of all keys, together: Team OLMo, "2
 *          OLMo 2 Furious", arXiv:2501.00656.  Together they need sums over devices: of the squares of a row forward,
 *          as in vLLM's MiniMaxText01RMSNormTP (queries and keys in one message), and backward of the products of its
 *          gradient with what was normed
 * Layout   weights are whole on every device; a device uses those of its heads.  n rows; rstd [2n], of queries, then of
 *          keys, if all are normed together
 * Sends    of each head: backward for the weights, over all devices with other heads or rows, an all-reduce of 2 A
 *          elements.  Together: of (H+K) A, and over the devices with other heads an all-reduce of 2n sums forward and
 *          backward for the input
 * Equals   one device, reassociated.  Of a copied key head (heads.c) only the first copy's squares count.  A copy's
 *          gradient comes from the query heads of its own part, so all copies' products count, and each takes its
 *          share, 1/copies, of what is subtracted: what copies have adds up.
 * Errors   ERR_MEMORY, and ERR_COMM of a sum over devices; the step cannot go on then.
 *
 * model/run/run_attention.c calls these functions on the output of QKV; model/link/link_cost.c calls
 * forecast_head_norm.
 */
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/tensor/tensor.h"
#include "ref/model/config.h"

static struct group *other_heads(struct tensor_parallel *tp) { return &tp->along[tp->scheme->heads.columns]; }

static bool in_parts(struct tensor_parallel *tp) { return tp->config->normed_together && other_heads(tp)->size > 1; }

static struct tensor slice(struct tensor t, int64_t first, int64_t count)
{
    return tensor_1d((char *)t.data + (size_t)first * dtype_size(t.dtype), t.dtype, count);
}

/* Queries, or keys: their columns on this device, the heads that they are of, and the width of all of them. */
struct normed { int64_t at, count, weights, width; int copies; bool counts; };

/* normed_of says where queries (or keys) lie in a row of X, and their weights in w [(H + K) A]. */
static struct normed normed_of(const struct tensor_parallel *tp, bool keys)
{
    const struct model_config *c = tp->config;
    const struct heads *h = &tp->heads;
    if (!keys)
        return (struct normed){ 0, h->queries.count * c->A, h->queries.first * c->A, c->H * c->A, 1, true };
    return (struct normed){ h->queries.count * c->A, h->keys.count * c->A, (c->H + h->keys.first) * c->A, c->K * c->A,
                            h->copies, h->copy == 0 };
}

/* ---- columns ----------------------------------------------------------------------------------------------------- */

/* take_columns copies the columns of queries, or of keys, into a buffer [n, count]. */
static enum error_code take_columns(struct tensor_parallel *tp, struct tensor *out, struct tensor X,
                                    struct normed normed, struct error *err)
{
    const enum error_code e = tensor_buffer(tp, out, tensor_rows(X), normed.count, err);
    const struct column_blocks at = { 1, normed.count, 0, normed.count, normed.at, normed.count };
    if (!e) dev_columns_move(tp->device, *out, X, at, false);
    return e;
}

static void put_columns(struct tensor_parallel *tp, struct tensor Y, struct tensor in, struct normed normed)
{
    dev_columns_move(tp->device, Y, in, (struct column_blocks){ 1, normed.count, normed.at, normed.count, 0,
                                                               normed.count }, false);
}

/* Values pass unchanged. */
static void copy_values(struct tensor_parallel *tp, struct tensor Y, struct tensor X)
{
    const int64_t values = tp->heads.keys.count * tp->config->A, at = tensor_cols(X) - values;
    if (Y.data != X.data)
        dev_columns_move(tp->device, Y, X, (struct column_blocks){ 1, values, at, values, at, values }, false);
}

static enum error_code zeros(struct tensor_parallel *tp, struct tensor *tensor, enum dtype dtype, int64_t n,
                             struct error *err)
{
    *tensor = tensor_1d(NULL, dtype, n);
    tensor->data = arena_alloc(&tp->device->arena, BUFFERS, tensor_bytes(*tensor));
    if (tensor->data == NULL) return fail(err, ERR_MEMORY, "no memory for %lld sums", (long long)n);
    device_zero(tp->device, *tensor);
    return OK;
}

static enum error_code sum_heads(struct tensor_parallel *tp, struct tensor t, struct error *err)
{
    return allreduce(other_heads(tp), t.data, tensor_count(t), t.dtype, SUM, tp->allreduce, err);
}

/* ---- forward ----------------------------------------------------------------------------------------------------- */

/* heads_norm_add_squares computes this device's part of the sums of squares; sum_heads adds the parts. */
static enum error_code heads_norm_add_squares(struct tensor_parallel *tp, struct tensor squares, struct tensor X,
                                              struct normed normed, struct error *err)
{
    struct tensor x = tensor_none, mean = tensor_none;
    enum error_code e = take_columns(tp, &x, X, normed, err);
    if (!e) e = zeros(tp, &mean, dtype_wide(x.dtype), tensor_rows(X), err);
    /* squares [N] = sum of x^2 over this device's columns: distances from a mean of zeros. */
    if (!e) dev_row_centred_squares(tp->device, squares, x, mean);
    /* Only one of several copies of a key head counts. */
    if (!e && !normed.counts) device_zero(tp->device, squares);
    device_free(tp->device, mean), device_free(tp->device, x);
    return e;
}

/* rstd: on entry the sum of squares of the whole row. */
static enum error_code norm_part(struct tensor_parallel *tp, struct tensor Y, struct tensor rstd, struct tensor X,
                                 struct tensor w, double eps, struct normed normed, struct error *err)
{
    struct tensor x = tensor_none, mean = tensor_none, bias = tensor_none;
    enum error_code e = take_columns(tp, &x, X, normed, err);
    if (!e) e = zeros(tp, &mean, rstd.dtype, tensor_rows(X), err);
    if (!e) e = zeros(tp, &bias, w.dtype, normed.count, err);
    if (!e) {
        dev_layernorm_forward_part(tp->device, x, rstd, x, slice(w, normed.weights, normed.count),
                                   norm_base(tp->config), bias,
                                   mean, normed.width, eps);
        put_columns(tp, Y, x, normed);
    }
    device_free(tp->device, bias), device_free(tp->device, mean), device_free(tp->device, x);
    return e;
}

enum error_code heads_norm_forward(struct tensor_parallel *tp, struct tensor Y, struct tensor rstd, struct tensor X,
                                   struct tensor w, struct attention attention, double eps, struct error *err)
{
    const int64_t n = tensor_rows(X);
    struct tensor squares = tensor_none;
    enum error_code e;
    /* With all heads here, or with a norm of each head alone, no sums have to be sent. */
    if (!in_parts(tp)) return dev_head_norm_forward(tp->device, Y, rstd, X, w, norm_base(tp->config),
                                                    attention, eps), OK;
    e = statistics_begin(tp, &squares, rstd, err);
    for (int keys = 0; keys < 2 && !e; keys++)
        e = heads_norm_add_squares(tp, slice(squares, keys * n, n), X, normed_of(tp, keys), err);
    /* rstd [2 N]: sums of squares of whole rows, queries then keys. */
    if (!e) e = sum_heads(tp, squares, err);
    statistics_end(tp, rstd, squares);
    for (int keys = 0; keys < 2 && !e; keys++)
        e = norm_part(tp, Y, slice(rstd, keys * n, n), X, w, eps, normed_of(tp, keys), err);
    if (!e) copy_values(tp, Y, X);
    return e;
}

/* ---- backward for the input -------------------------------------------------------------------------------------- */

/* The operands of both backward passes over queries, or keys: their columns, and zeros for means. */
struct slope { struct tensor x, dy, mean, rstd, w; };

static enum error_code take_slope(struct tensor_parallel *tp, struct slope *slope, struct tensor dY, struct tensor X,
                                  struct tensor w, struct tensor rstd, struct normed normed, struct error *err)
{
    *slope = (struct slope){ .rstd = rstd, .w = slice(w, normed.weights, normed.count) };
    enum error_code e = take_columns(tp, &slope->x, X, normed, err);
    if (!e) e = take_columns(tp, &slope->dy, dY, normed, err);
    return e ? e : zeros(tp, &slope->mean, rstd.dtype, tensor_rows(X), err);
}

static void release_slope(struct tensor_parallel *tp, struct slope *slope)
{
    device_free(tp->device, slope->mean), device_free(tp->device, slope->dy), device_free(tp->device, slope->x);
}

/* Finished sums [2N] become numbers; those that are not exact are. */
static enum error_code heads_norm_round(struct tensor_parallel *tp, struct tensor *sums, enum dtype format,
                                        struct error *err)
{
    const struct tensor exact = *sums;
    if (exact.dtype == format) return OK;
    *sums = tensor_1d(device_tensor_in(tp->device, BUFFERS, format, tensor_count(exact)).data, format,
                      tensor_count(exact));
    if (sums->data) dev_round(tp->device, *sums, exact);
    device_free(tp->device, exact);
    return sums->data ? OK : fail(err, ERR_MEMORY, "no memory for %lld sums", (long long)tensor_count(exact));
}

/* dX = the gradient of the norm: each row subtracts its x_hat times mean(dY w x_hat) over all queries, or keys. */
enum error_code heads_norm_backward_input(struct tensor_parallel *tp, struct tensor dX, struct tensor dY,
                                          struct tensor X, struct tensor w, struct tensor rstd,
                                          struct attention attention,
                                          struct error *err)
{
    const int64_t n = tensor_rows(X);
    const double base = norm_base(tp->config);
    struct tensor sums[2] = { tensor_none, tensor_none }, both = tensor_none;
    struct slope s[2] = { 0 };
    if (!in_parts(tp)) return dev_head_norm_backward_input(tp->device, dX, dY, X, w, base, rstd, attention), OK;
    const enum dtype format = tp->device->exact ? EXACT : rstd.dtype;
    enum error_code e = zeros(tp, &both, format, 2 * n, err);
    for (int k = 0; k < 2 && !e; k++) {
        e = take_slope(tp, &s[k], dY, X, w, slice(rstd, k * n, n), normed_of(tp, k), err);
        if (!e) e = zeros(tp, &sums[k], format, 2 * n, err);
        if (e) break;
        /* sums [2,N]: of dy w and of dy w x_hat over this device's columns; an rmsnorm needs the second. */
        dev_layernorm_backward_sums(tp->device, sums[k], s[k].dy, s[k].x, s[k].w, base, s[k].mean, s[k].rstd);
        device_zero(tp->device, slice(sums[k], 0, n));          /* there is no mean */
        /* With exact sums dY of keys is that of all copies (heads.c), and the first one's counts. */
        if (heads_add_exactly(tp) && !normed_of(tp, k).counts) device_zero(tp->device, sums[k]);
        /* The second sums of queries and keys travel in one all-reduce. */
        device_copy(tp->device, slice(both, k * n, n).data, slice(sums[k], n, n).data, tensor_bytes(slice(both, 0, n)));
    }
    if (!e) e = sum_heads(tp, both, err);
    for (int k = 0; k < 2 && !e; k++) {
        const struct normed p = normed_of(tp, k);
        device_copy(tp->device, slice(sums[k], n, n).data, slice(both, k * n, n).data, tensor_bytes(slice(both, 0, n)));
        e = heads_norm_round(tp, &sums[k], rstd.dtype, err);
        if (e) break;
        /* Copies of a key head have each added the head's sum. */
        if (p.copies > 1 && !heads_add_exactly(tp)) dev_scale(tp->device, sums[k], sums[k], 1.0 / p.copies);
        dev_layernorm_backward_part(tp->device, s[k].dy, s[k].dy, s[k].x, s[k].w, base, s[k].mean, s[k].rstd, sums[k],
                                    p.width);
        put_columns(tp, dX, s[k].dy, p);
    }
    if (!e) copy_values(tp, dX, dY);
    for (int k = 0; k < 2; k++) release_slope(tp, &s[k]), device_free(tp->device, sums[k]);
    device_free(tp->device, both);
    return e;
}

/* ---- backward for the weights ------------------------------------------------------------------------------------ */

/* A copy of keys has the part of their gradient that comes from its own queries, so the sum over copies is whole. */
static enum error_code own_weights(struct tensor_parallel *tp, struct tensor dw, struct tensor dY, struct tensor X,
                                   struct tensor rstd, struct attention attention, struct error *err)
{
    const int64_t n = tensor_rows(X);
    enum error_code e = OK;
    if (!in_parts(tp)) return dev_head_norm_backward_weight(tp->device, dw, dY, X, rstd, attention), OK;
    for (int k = 0; k < 2 && !e; k++) {
        const struct normed p = normed_of(tp, k);
        struct slope s;
        e = take_slope(tp, &s, dY, X, dw, slice(rstd, k * n, n), p, err);
        if (!e) dev_rmsnorm_backward_weight(tp->device, slice(dw, p.weights, p.count), s.dy, s.x, s.rstd);
        release_slope(tp, &s);
    }
    return e;
}

enum error_code heads_norm_backward_weight(struct tensor_parallel *tp, struct tensor dw, struct tensor dY,
                                           struct tensor X, struct tensor rstd, struct attention attention,
                                           struct error *err)
{
    struct group *others = &tp->along[tp->scheme->heads.rows | tp->scheme->heads.columns];
    struct tensor own;
    if (others->size == 1) return own_weights(tp, dw, dY, X, rstd, attention, err);
    enum error_code e = tensor_gradient_buffer(tp, &own, tensor_count(dw), 1, err);
    if (e) return e;
    own = tensor_1d(own.data, own.dtype, tensor_count(dw));
    device_zero(tp->device, own);
    e = own_weights(tp, own, dY, X, rstd, attention, err);
    /* With exact sums dY of keys is that of all copies (heads.c), and the first one's counts. */
    if (heads_add_exactly(tp) && tp->heads.copy > 0) {
        const int64_t queries = tp->config->normed_together ? tp->config->H * tp->config->A : tp->config->A;
        device_zero(tp->device, slice(own, queries, tensor_count(own) - queries));
    }
    if (!e) e = allreduce(others, own.data, tensor_count(own), own.dtype, SUM, tp->allreduce, err);
    if (!e) dev_add(tp->device, dw, dw, own);
    device_free(tp->device, own);
    return e;
}

/* ---- what is sent ------------------------------------------------------------------------------------------------ */

void forecast_head_norm(struct forecast *forecast, enum tensor_pass pass, int64_t N)
{
    const struct tensor_parallel *tp = forecast->tp;
    const struct tensor_scheme *s = tp->scheme;
    const struct model_config *c = tp->config;
    if (pass != WEIGHT_PASS) {
        if (c->normed_together)
            forecast_row_sums(forecast, s->heads.columns, 2 * tensor_rows_at(tp, AT_HEADS, N).count);
        return;
    }
    forecast->gradients = true;
    forecast_allreduce(forecast, s->heads.rows | s->heads.columns, (c->normed_together ? c->H + c->K : 2) * c->A);
    forecast->gradients = false;
}
