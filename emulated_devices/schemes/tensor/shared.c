/* shared.c -- parameters that all rows need (biases, norms, positions), and gathering and scattering of rows.
 *
 * Devices with the same columns and different rows need such a parameter whole, and each computes its rows' part of the
 * gradient.  Schemes whose weights are cut in both directions distribute the parameter over these devices
 * (cuts_vectors): they gather it before use, and reduce-scatter the gradient.  With other schemes each has a copy, and
 * they all-reduce the gradient.  Both happen for each microbatch, so the gradient is complete after the layer's
 * backward pass, before the data scheme uses it.
 *
 * norm.c, summa.c and tensor_3d.c take and give vectors here; model/run/run_node.c calls the positions.  Both
 * shared_take and shared_give are collective over the devices with other rows.  Errors are ERR_MEMORY and ERR_COMM.
 */
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/tensor/tensor.h"
#include "ref/model/config.h"

enum error_code tensor_buffer(struct tensor_parallel *tp, struct tensor *tensor, int64_t rows, int64_t cols,
                              struct error *err)
{
    *tensor = device_tensor_2d(tp->device, BUFFERS, rows, cols);
    return tensor->data ? OK
                   : fail(err, ERR_MEMORY, "no memory for %lld x %lld elements on their way between devices",
                          (long long)rows, (long long)cols);
}

/* Gradients of 16-bit weights are summed in fp32 where the plan asks for wide gradients. */
enum dtype tensor_gradient_format(const struct tensor_parallel *tp)
{
    return tp->wide_gradients ? tp->device->sums : tp->device->dtype;
}

enum error_code tensor_gradient_buffer(struct tensor_parallel *tp, struct tensor *tensor, int64_t rows, int64_t cols,
                                       struct error *err)
{
    *tensor = device_tensor_in(tp->device, BUFFERS, tensor_gradient_format(tp), rows * cols);
    *tensor = tensor_2d(tensor->data, tensor->dtype, rows, cols);
    return tensor->data ? OK
                   : fail(err, ERR_MEMORY, "no memory for %lld x %lld elements of gradients on their way",
                          (long long)rows, (long long)cols);
}

/* A collective on blocks whose sizes are given in rows. */
static enum error_code run_on_rows(struct tensor_parallel *tp, enum operation op, unsigned axes, const int64_t rows[],
                                   int64_t cols, enum dtype dtype, const void *in, void *out, struct error *err)
{
    struct group *g = &tp->along[axes];
    int64_t counts[MESH_MOST_LISTED];
    for (int i = 0; i < g->size; i++) counts[i] = rows[i] * cols;
    const struct collective c = { .in = in, .out = out, .counts = counts, .dtype = dtype, .reduction = SUM };
    return collective_run(g, op, tp->scheme->rings ? "ring" : NULL, &c, err);
}

enum error_code gather_rows(struct tensor_parallel *tp, unsigned axes, const int64_t rows[], struct tensor whole,
                            struct tensor own, struct error *err)
{
    return run_on_rows(tp, ALLGATHER, axes, rows, tensor_cols(whole), whole.dtype, own.data, whole.data, err);
}

enum error_code scatter_rows(struct tensor_parallel *tp, unsigned axes, const int64_t rows[], struct tensor own,
                             struct tensor whole, struct error *err)
{
    return run_on_rows(tp, REDUCE_SCATTER, axes, rows, tensor_cols(whole), whole.dtype, whole.data, own.data, err);
}

/* ---- parameters -------------------------------------------------------------------------------------------------- */

/* A member's part is a block of rows; blocks differ by at most one row. */
static void share_out(const struct tensor_parallel *tp, unsigned axes, int64_t rows, int64_t counts[])
{
    const int members = axes_size(tp, axes);
    for (int i = 0; i < members; i++) counts[i] = block_at(rows, members, i).count;
}

/* A vector is treated as a matrix of one column. */
static struct tensor as_rows(struct tensor t)
{
    return t.ndim == 1 ? tensor_2d(t.data, t.dtype, tensor_count(t), 1) : t;
}

/* Without other rows nothing is gathered and nothing is summed. */
static bool alone(const struct tensor_parallel *tp, struct tensor_cut cut) { return axes_size(tp, cut.rows) == 1; }

enum error_code shared_take(struct tensor_parallel *tp, struct tensor_cut cut, struct tensor piece, int64_t rows,
                            struct shared *shared, struct error *err)
{
    const struct tensor own = as_rows(piece);
    int64_t counts[MESH_MOST_LISTED];
    *shared = (struct shared){ .piece = piece, .taken = piece };
    /* A vector that is whole here is used where it lies. */
    if (!tensor_present(piece) || !tp->scheme->cuts_vectors || alone(tp, cut)) return OK;
    enum error_code e = tensor_buffer(tp, &shared->taken, rows, tensor_cols(own), err);
    share_out(tp, cut.rows, rows, counts);
    return e ? e : gather_rows(tp, cut.rows, counts, shared->taken, own, err);
}

/* Only a buffer is freed; the piece itself belongs to the model. */
void shared_release(struct tensor_parallel *tp, struct shared *shared)
{
    if (shared->taken.data != shared->piece.data) device_free(tp->device, shared->taken);
    *shared = (struct shared){ 0 };
}

enum error_code shared_begin(struct tensor_parallel *tp, struct tensor_cut cut, struct tensor g, int64_t rows,
                             struct shared *shared, struct error *err)
{
    *shared = (struct shared){ .piece = g, .taken = g };
    if (!tensor_present(g) || alone(tp, cut)) return OK;
    enum error_code e = tensor_gradient_buffer(tp, &shared->taken, rows, tensor_cols(as_rows(g)), err);
    /* The gradient of this microbatch alone: only it is summed over the devices. */
    if (!e) device_zero(tp->device, shared->taken);
    return e;
}

enum error_code shared_give(struct tensor_parallel *tp, struct tensor_cut cut, struct shared *shared, struct error *err)
{
    /* The kernels have added to the gradient itself, and no other device has other rows. */
    if (shared->taken.data == shared->piece.data) return OK;
    const struct tensor g = as_rows(shared->piece);
    struct tensor sum = shared->taken;
    int64_t counts[MESH_MOST_LISTED];
    enum error_code e;
    /* Each device keeps a part of the vector: it gets the sum of that part, else of all. */
    if (tp->scheme->cuts_vectors) {
        e = tensor_gradient_buffer(tp, &sum, tensor_rows(g), tensor_cols(g), err);
        share_out(tp, cut.rows, tensor_rows(shared->taken), counts);
        if (!e) e = scatter_rows(tp, cut.rows, counts, sum, shared->taken, err);
    } else e = allreduce(&tp->along[cut.rows], sum.data, tensor_count(sum), sum.dtype, SUM, tp->allreduce, err);
    if (!e) dev_add(tp->device, g, g, sum);
    if (sum.data != shared->taken.data) device_free(tp->device, sum);
    shared_release(tp, shared);
    return e;
}

void forecast_shared(struct forecast *forecast, struct tensor_cut cut, int64_t rows, int64_t cols,
                     enum tensor_pass pass)
{
    int64_t counts[MESH_MOST_LISTED];
    const bool cut_up = forecast->tp->scheme->cuts_vectors, gives = pass == WEIGHT_PASS;
    share_out(forecast->tp, cut.rows, rows, counts);
    forecast->gradients = gives;
    if (cut_up && gives) forecast_reduce_scatter(forecast, cut.rows, counts, cols);
    else if (cut_up) forecast_allgather(forecast, cut.rows, counts, cols);
    else if (gives) forecast_allreduce(forecast, cut.rows, rows * cols);
    forecast->gradients = false;
}

/* ---- positions --------------------------------------------------------------------------------------------------- */

enum error_code tensor_positions_forward(struct tensor_parallel *tp, struct tensor Y, struct tensor positions,
                                         struct tensor W, struct error *err)
{
    struct shared w;
    enum error_code e = shared_take(tp, tp->scheme->stream, W, tp->config->S, &w, err);
    /* Y [n, D'] += W [S, D'] at the positions of the rows. */
    if (!e) dev_embedding_forward(tp->device, Y, positions, w.taken, 0, true);
    shared_release(tp, &w);
    return e;
}

enum error_code tensor_positions_backward_weight(struct tensor_parallel *tp, struct tensor dW, struct tensor dY,
                                                 struct tensor positions, struct error *err)
{
    struct shared g;
    enum error_code e = shared_begin(tp, tp->scheme->stream, dW, tp->config->S, &g, err);
    if (e) return e;
    dev_embedding_backward_weight(tp->device, g.taken, dY, positions, 0);
    return shared_give(tp, tp->scheme->stream, &g, err);
}
