/* cost.c -- what one operation's pass costs on the tp group: the collectives of norms, matrices and loss, one by one. */
#include "emulated_devices/schemes/tensor/tensor.h"

static enum dtype own_format(const struct ledger *l) { return l->gradients ? tensor_gradient_format(l->tp) : l->tp->device->dtype; }

static void enter_on(struct ledger *l, const struct group *g, enum operation op, const char *name, struct collective call)
{
    const struct collective_cost one = group_cost(g, op, name, &call);
    l->sum.messages += one.messages;
    l->sum.bytes += one.bytes;
    l->sum.additions += one.additions;
    if (l->timed) l->time += group_time(g, op, name, &call);
}

static void enter(struct ledger *l, enum operation op, unsigned axes, const char *name, struct collective call)
{
    enter_on(l, &l->tp->along[axes], op, name, call);
}

void ledger_heads(struct ledger *l)
{
    const struct tensor_parallel *tp = l->tp;
    const unsigned in = tp->scheme->weight(ROLE_QKV).in;
    if (tp->heads.copies == 1) return;
    const int64_t inputs = tensor_width(tp, ROLE_QKV, false, axes_index(tp, in), axes_size(tp, in));
    enter_on(l, &tp->copies, ALLREDUCE, tp->allreduce,
             (struct collective){ .count = 2 * tp->heads.keys.count * tp->config->A * inputs, .dtype = tensor_gradient_format(tp) });
}

void ledger_allreduce(struct ledger *l, unsigned axes, int64_t count)
{
    enter(l, ALLREDUCE, axes, l->tp->allreduce, (struct collective){ .count = count, .dtype = own_format(l) });
}

/* A few numbers a row, in their own format. */
static void statistics(struct ledger *l, unsigned axes, int64_t count)
{
    enter(l, ALLREDUCE, axes, l->tp->allreduce, (struct collective){ .count = count, .dtype = dtype_wide(own_format(l)) });
}

void ledger_rooted(struct ledger *l, enum operation op, unsigned axes, int root, int64_t count)
{
    enter(l, op, axes, NULL, (struct collective){ .count = count, .root = root, .dtype = own_format(l) });
}

static void enter_rows(struct ledger *l, enum operation op, unsigned axes, const int64_t rows[], int64_t cols)
{
    int64_t counts[MESH_MOST_DEVICES];
    for (int i = 0; i < axes_size(l->tp, axes); i++) counts[i] = rows[i] * cols;
    enter(l, op, axes, l->tp->scheme->rings ? "ring" : NULL, (struct collective){ .counts = counts, .dtype = own_format(l) });
}

void ledger_allgather(struct ledger *l, unsigned axes, const int64_t rows[], int64_t cols) { enter_rows(l, ALLGATHER, axes, rows, cols); }
void ledger_reduce_scatter(struct ledger *l, unsigned axes, const int64_t rows[], int64_t cols) { enter_rows(l, REDUCE_SCATTER, axes, rows, cols); }

/* ---- operations ---------------------------------------------------------------------------------------------- */

void ledger_norm(struct ledger *l, enum tensor_pass pass, int64_t N)
{
    const struct tensor_parallel *tp = l->tp;
    const struct tensor_cut cut = tp->scheme->stream;
    const int64_t n = tensor_rows_at(tp, STREAM, N).count;
    const bool rms = tp->config->norm == NORM_RMS;
    for (int vectors = pass == INPUT_PASS || rms ? 1 : 2; vectors > 0; vectors--) ledger_shared(l, cut, tp->channels.count, 1, pass);
    if (pass == FORWARD_PASS && !rms) statistics(l, cut.columns, n);
    if (pass == FORWARD_PASS) statistics(l, cut.columns, n);
    if (pass == INPUT_PASS) statistics(l, cut.columns, rms ? n : 2 * n);
}

void ledger_matrix(struct ledger *l, enum param_role role, enum tensor_pass pass, int64_t N)
{
    const bool biased = l->tp->config->biases && role != ROLE_HEAD && role != ROLE_TOKENS;
    l->tp->scheme->matrix_cost(l, role, pass, N, biased);
    if (role == ROLE_QKV && pass == WEIGHT_PASS) ledger_heads(l);
}

void ledger_positions(struct ledger *l, enum tensor_pass pass)
{
    if (pass != INPUT_PASS) ledger_shared(l, l->tp->scheme->stream, l->tp->config->S, l->tp->channels.count, pass);
}

void ledger_cross_entropy(struct ledger *l, enum tensor_pass pass, int64_t N)
{
    const unsigned columns = l->tp->scheme->inner.columns;
    const int64_t n = tensor_rows_at(l->tp, INNER, N).count;
    if (pass == FORWARD_PASS) statistics(l, columns, n), statistics(l, columns, 2 * n);
}
