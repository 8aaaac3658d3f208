/* cost.c -- what one operation's pass costs on the tp group: the collectives of norms, matrices and loss.
 *
 * model/link/link_cost.c enters the passes of a layer here, without running the pass.  The test
 * tests/devices/test_tensor_cost.c compares the sum with the messages counted in a run.  Nothing here fails or sends
 * a message.
 */
#include "emulated_devices/schemes/tensor/tensor.h"
#include "ref/model/config.h"
#include "ref/model/kinds.h"

/* Gradients of 16-bit weights may travel in fp32, so the element's size depends on what is entered. */
static enum dtype own_format(const struct forecast *forecast)
{
    return forecast->gradients ? tensor_gradient_format(forecast->tp) : forecast->tp->device->dtype;
}

/* The costs of all calls add up in `sum`; times add up as if the calls ran one after another. */
void forecast_on(struct forecast *forecast, const struct group *group, enum operation op, const char *name,
                 struct collective call)
{
    account_add(&forecast->sum, group_cost(group, op, name, &call), 1);
    if (forecast->timed) forecast->time += group_time(group, op, name, &call);
}

/* A message has no algorithm: only its bytes and the level of its link count. */
void forecast_message(struct forecast *forecast, const struct group *group, int peer, uint64_t bytes)
{
    traffic_send(&forecast->sum.of[POINT_TO_POINT], group_level(group, peer), bytes, 1);
}

static void cost_enter(struct forecast *forecast, enum operation op, unsigned axes, const char *name,
                       struct collective call)
{
    forecast_on(forecast, &forecast->tp->along[axes], op, name, call);
}

/* The sums over copies of heads are the same for all schemes: of the weights, then of the bias. */
void forecast_heads(struct forecast *forecast)
{
    const struct tensor_parallel *tp = forecast->tp;
    /* The copied rows of dW are [2 k A, I], keys and values.  This device has k heads and I columns. */
    const unsigned in = tp->scheme->weight(tp->scheme, ROLE_QKV).in;
    if (heads_add_exactly(tp)) return;
    const int64_t inputs = tensor_width(tp, ROLE_QKV, false, axes_index(tp, in), axes_size(tp, in));
    const int64_t rows = 2 * tp->heads.keys.count * tp->config->A;
    forecast_copies(forecast, rows * inputs);
    if (model_has_bias(tp->config, ROLE_QKV)) forecast_copies(forecast, rows);
}

/* Nothing is sent where each key/value head is on one device. */
void forecast_copies(struct forecast *forecast, int64_t count)
{
    const struct tensor_parallel *tp = forecast->tp;
    const struct collective sum = { .count = count, .dtype = tensor_gradient_format(tp) };
    if (tp->heads.copies > 1) forecast_on(forecast, &tp->copies, ALLREDUCE, tp->allreduce, sum);
}

void forecast_exact_copies(struct forecast *forecast, enum tensor_pass pass, int64_t N)
{
    const struct tensor_parallel *tp = forecast->tp;
    const int64_t rows = tensor_rows_at(tp, AT_HEADS, N).count;
    const struct collective sum = { .count = rows * 2 * tp->heads.keys.count * tp->config->A, .dtype = EXACT };
    if (heads_add_exactly(tp) && pass == INPUT_PASS)
        forecast_on(forecast, &tp->copies, ALLREDUCE, tp->allreduce, sum);
}

void forecast_allreduce(struct forecast *forecast, unsigned axes, int64_t count)
{
    cost_enter(forecast, ALLREDUCE, axes, forecast->tp->allreduce,
               (struct collective){ .count = count, .dtype = own_format(forecast) });
}

void forecast_statistics(struct forecast *forecast, unsigned axes, int64_t count)
{
    cost_enter(forecast, ALLREDUCE, axes, forecast->tp->allreduce,
               (struct collective){ .count = count, .dtype = dtype_wide(own_format(forecast)) });
}

/* `root` is a rank within the group along these axes.  Only the root of a broadcast has nothing to receive. */
void forecast_rooted(struct forecast *forecast, enum operation op, unsigned axes, int root, int64_t count)
{
    cost_enter(forecast, op, axes, NULL, (struct collective){ .count = count, .root = root,
                                                             .dtype = own_format(forecast) });
}

static void enter_rows(struct forecast *forecast, enum operation op, unsigned axes, const int64_t rows[], int64_t cols)
{
    int64_t counts[MESH_MOST_LISTED];
    for (int i = 0; i < axes_size(forecast->tp, axes); i++) counts[i] = rows[i] * cols;
    cost_enter(forecast, op, axes, forecast->tp->scheme->rings ? "ring" : NULL,
               (struct collective){ .counts = counts, .dtype = own_format(forecast) });
}

void forecast_allgather(struct forecast *forecast, unsigned axes, const int64_t rows[], int64_t cols)
{
    enter_rows(forecast, ALLGATHER, axes, rows, cols);
}
void forecast_reduce_scatter(struct forecast *forecast, unsigned axes, const int64_t rows[], int64_t cols)
{
    enter_rows(forecast, REDUCE_SCATTER, axes, rows, cols);
}

/* Sums of rows, which norms add up: exact ones are not rounded on their way. */
void forecast_row_sums(struct forecast *forecast, unsigned axes, int64_t count)
{
    if (!forecast->tp->device->exact) forecast_statistics(forecast, axes, count);
    else cost_enter(forecast, ALLREDUCE, axes, forecast->tp->allreduce,
                    (struct collective){ .count = count, .dtype = EXACT });
}

/* ---- operations ---------------------------------------------------------------------------------------------- */

void forecast_norm(struct forecast *forecast, enum tensor_pass pass, int64_t N)
{
    const struct tensor_parallel *tp = forecast->tp;
    const struct tensor_cut cut = tp->scheme->stream;
    /* n is the number of rows on this device; a row sends one statistic, or two. */
    const int64_t n = tensor_rows_at(tp, STREAM, N).count;
    const bool rms = tp->config->norm == NORM_RMS;
    /* The backward pass for the input reads the weight only. */
    for (int vectors = pass == INPUT_PASS || !model_has_bias(tp->config, ROLE_NORM) ? 1 : 2; vectors > 0; vectors--)
        forecast_shared(forecast, cut, tp->channels.count, 1, pass);
    /* LayerNorm sums for the mean, then for the deviation; RMSNorm only for the latter. */
    if (pass == FORWARD_PASS && !rms) forecast_row_sums(forecast, cut.columns, n);
    if (pass == FORWARD_PASS) forecast_row_sums(forecast, cut.columns, n);
    /* A row needs mean(g x_hat), and with LayerNorm also mean(g). */
    if (pass == INPUT_PASS) forecast_row_sums(forecast, cut.columns, rms ? n : 2 * n);
}

/* The key that all heads share gets a gradient from the heads of every device: [n, turned columns]. */
void forecast_shared_key(struct forecast *forecast, enum tensor_pass pass, int64_t N)
{
    const struct tensor_parallel *tp = forecast->tp;
    const struct collective sum = { .count = tensor_rows_at(tp, AT_HEADS, N).count * tp->config->rotary.turned,
                                    .dtype = tp->device->exact ? EXACT : own_format(forecast) };
    if (pass == INPUT_PASS) cost_enter(forecast, ALLREDUCE, tp->scheme->heads.columns, tp->allreduce, sum);
}

void forecast_matrix(struct forecast *forecast, enum param_role role, enum tensor_pass pass, int64_t N)
{
    const struct tensor_scheme *s = forecast->tp->scheme;
    if (role == ROLE_LATENT) return;                    /* the stream is whole: tensor_check */
    /* A whole matrix has no products over devices.  Only its gradient is summed, over devices with other rows. */
    if (role_is_whole(role)) {
        const struct model_config *c = forecast->tp->config;
        const int64_t P = STREAMS(c), rows = role == ROLE_ROUTER         ? mixture_columns(&c->mixture)
                                             : role == ROLE_STREAMS_UP   ? c->D
                                             : role == ROLE_STREAMS_DOWN ? P : 1;
        if (pass != WEIGHT_PASS) return;
        forecast_shared(forecast, s->stream, rows, role == ROLE_STREAMS_UP ? P * c->D : c->D, pass);
        if (model_has_bias(c, role)) forecast_shared(forecast, s->stream, rows, 1, pass);
        return;
    }
    /* The scheme enters its own product; only the sum over copied keys and values is the same for all schemes. */
    s->matrix_cost(forecast, role, pass, N, model_has_bias(forecast->tp->config, role));
    if (role == ROLE_QKV && pass == WEIGHT_PASS) forecast_heads(forecast);
}

/* Positions are read forward and summed for their gradient.  INPUT_PASS has no work here. */
void forecast_positions(struct forecast *forecast, enum tensor_pass pass)
{
    if (pass != INPUT_PASS) forecast_shared(forecast, forecast->tp->scheme->stream, forecast->tp->config->S,
                                            forecast->tp->channels.count, pass);
}

void forecast_cross_entropy(struct forecast *forecast, enum tensor_pass pass, int64_t N)
{
    /* Forward sends n maxima, then n sums and n hits together.  The backward pass sends nothing. */
    const unsigned columns = forecast->tp->scheme->logits.columns;
    const int64_t n = tensor_rows_at(forecast->tp, AT_LOGITS, N).count;
    if (pass != FORWARD_PASS) return;
    forecast_statistics(forecast, columns, n);
    if (forecast->tp->device->exact)
        cost_enter(forecast, ALLREDUCE, columns, forecast->tp->allreduce,
                   (struct collective){ .count = 2 * n, .dtype = F64 });
    else forecast_statistics(forecast, columns, 2 * n);
}
