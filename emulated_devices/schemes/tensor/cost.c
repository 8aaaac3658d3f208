/* cost.c -- what one operation's pass costs on the tp group: the collectives of norms, matrices and loss. */
#include "emulated_devices/schemes/tensor/tensor.h"
#include "ref/model/config.h"

static enum dtype own_format(const struct forecast *f)
{
    return f->gradients ? tensor_gradient_format(f->tp) : f->tp->device->dtype;
}

void forecast_on(struct forecast *f, const struct group *g, enum operation op, const char *name, struct collective call)
{
    account_add(&f->sum, group_cost(g, op, name, &call), 1);
    if (f->timed) f->time += group_time(g, op, name, &call);
}

void forecast_message(struct forecast *f, const struct group *g, int peer, uint64_t bytes)
{
    traffic_send(&f->sum.of[POINT_TO_POINT], group_level(g, peer), bytes, 1);
}

static void enter(struct forecast *f, enum operation op, unsigned axes, const char *name, struct collective call)
{
    forecast_on(f, &f->tp->along[axes], op, name, call);
}

void forecast_heads(struct forecast *f)
{
    const struct tensor_parallel *tp = f->tp;
    const unsigned in = tp->scheme->weight(tp->scheme, ROLE_QKV).in;
    const int64_t inputs = tensor_width(tp, ROLE_QKV, false, axes_index(tp, in), axes_size(tp, in));
    const int64_t rows = 2 * tp->heads.keys.count * tp->config->A;
    forecast_copies(f, rows * inputs);
    if (model_has_bias(tp->config, ROLE_QKV)) forecast_copies(f, rows);
}

void forecast_copies(struct forecast *f, int64_t count)
{
    const struct tensor_parallel *tp = f->tp;
    const struct collective sum = { .count = count, .dtype = tensor_gradient_format(tp) };
    if (tp->heads.copies > 1) forecast_on(f, &tp->copies, ALLREDUCE, tp->allreduce, sum);
}

void forecast_allreduce(struct forecast *f, unsigned axes, int64_t count)
{
    enter(f, ALLREDUCE, axes, f->tp->allreduce, (struct collective){ .count = count, .dtype = own_format(f) });
}

void forecast_statistics(struct forecast *f, unsigned axes, int64_t count)
{
    enter(f, ALLREDUCE, axes, f->tp->allreduce,
          (struct collective){ .count = count, .dtype = dtype_wide(own_format(f)) });
}

void forecast_rooted(struct forecast *f, enum operation op, unsigned axes, int root, int64_t count)
{
    enter(f, op, axes, NULL, (struct collective){ .count = count, .root = root, .dtype = own_format(f) });
}

static void enter_rows(struct forecast *f, enum operation op, unsigned axes, const int64_t rows[], int64_t cols)
{
    int64_t counts[MESH_MOST_DEVICES];
    for (int i = 0; i < axes_size(f->tp, axes); i++) counts[i] = rows[i] * cols;
    enter(f, op, axes, f->tp->scheme->rings ? "ring" : NULL,
          (struct collective){ .counts = counts, .dtype = own_format(f) });
}

void forecast_allgather(struct forecast *f, unsigned axes, const int64_t rows[], int64_t cols)
{
    enter_rows(f, ALLGATHER, axes, rows, cols);
}
void forecast_reduce_scatter(struct forecast *f, unsigned axes, const int64_t rows[], int64_t cols)
{
    enter_rows(f, REDUCE_SCATTER, axes, rows, cols);
}

/* ---- operations ---------------------------------------------------------------------------------------------- */

void forecast_norm(struct forecast *f, enum tensor_pass pass, int64_t N)
{
    const struct tensor_parallel *tp = f->tp;
    const struct tensor_cut cut = tp->scheme->stream;
    const int64_t n = tensor_rows_at(tp, STREAM, N).count;
    const bool rms = tp->config->norm == NORM_RMS;
    /* The backward pass for the input reads the weight only; RMSNorm has no bias. */
    for (int vectors = pass == INPUT_PASS || rms ? 1 : 2; vectors > 0; vectors--)
        forecast_shared(f, cut, tp->channels.count, 1, pass);
    /* LayerNorm sums for the mean, then for the deviation; RMSNorm only for the latter. */
    if (pass == FORWARD_PASS && !rms) forecast_statistics(f, cut.columns, n);
    if (pass == FORWARD_PASS) forecast_statistics(f, cut.columns, n);
    /* A row needs mean(g x_hat), and with LayerNorm also mean(g). */
    if (pass == INPUT_PASS) forecast_statistics(f, cut.columns, rms ? n : 2 * n);
}

void forecast_shared_key(struct forecast *f, enum tensor_pass pass, int64_t N)
{
    const struct tensor_parallel *tp = f->tp;
    if (pass == INPUT_PASS)
        forecast_allreduce(f, tp->scheme->heads.columns,
                           tensor_rows_at(tp, AT_HEADS, N).count * tp->config->rotary.turned);
}

void forecast_matrix(struct forecast *f, enum param_role role, enum tensor_pass pass, int64_t N)
{
    const struct tensor_scheme *s = f->tp->scheme;
    if (role == ROLE_LATENT) return;                    /* the stream is whole: tensor_check */
    if (role_is_whole(role)) {
        const struct model_config *c = f->tp->config;
        const int64_t P = STREAMS(c), rows = role == ROLE_ROUTER         ? mixture_columns(&c->mixture)
                                             : role == ROLE_STREAMS_UP   ? c->D
                                             : role == ROLE_STREAMS_DOWN ? P : 1;
        if (pass != WEIGHT_PASS) return;
        forecast_shared(f, s->stream, rows, role == ROLE_STREAMS_UP ? P * c->D : c->D, pass);
        if (model_has_bias(c, role)) forecast_shared(f, s->stream, rows, 1, pass);
        return;
    }
    s->matrix_cost(f, role, pass, N, model_has_bias(f->tp->config, role));
    if (role == ROLE_QKV && pass == WEIGHT_PASS) forecast_heads(f);
}

void forecast_positions(struct forecast *f, enum tensor_pass pass)
{
    if (pass != INPUT_PASS) forecast_shared(f, f->tp->scheme->stream, f->tp->config->S, f->tp->channels.count, pass);
}

void forecast_cross_entropy(struct forecast *f, enum tensor_pass pass, int64_t N)
{
    const unsigned columns = f->tp->scheme->logits.columns;
    const int64_t n = tensor_rows_at(f->tp, AT_LOGITS, N).count;
    if (pass == FORWARD_PASS) forecast_statistics(f, columns, n), forecast_statistics(f, columns, 2 * n);
}
