/* summa.c -- the three products of summa.h, step by step.
 *
 * tensor_2d.c and tensor_2_5d.c use these products as their own.  Every call is collective over the rows and columns
 * of the grid, and all devices take the steps l = 0 .. q-1 in the same order.  Errors are ERR_MEMORY and ERR_COMM.
 */
#include "emulated_devices/schemes/tensor/summa.h"
#include "emulated_devices/device/compute.h"

/* The devices of a row differ in their column, and vice versa. */
#define ALONG_ROW    GRID_COLUMN
#define ALONG_COLUMN GRID_ROW

/* All matrices are cut alike: outputs over the columns of the grid, inputs over its rows. */
struct weight_cut summa_weight(const struct tensor_scheme *scheme, enum param_role role)
{
    (void)scheme, (void)role;
    return (struct weight_cut){ .out = GRID_COLUMN, .in = GRID_ROW };
}

/* Broadcast the tensor of member `root` of a row or column to all its members.  On the root it is own; elsewhere a
 * buffer. */
static enum error_code summa_take(struct tensor_parallel *tp, unsigned along, int root, struct tensor own, int64_t rows,
                                  int64_t cols, struct tensor *taken, struct error *err)
{
    struct group *g = &tp->along[along];
    *taken = own;
    /* Only members without the block need a buffer. */
    if (g->rank != root) {
        enum error_code e = tensor_buffer(tp, taken, rows, cols, err);
        if (e) return e;
    }
    return broadcast(g, taken->data, rows * cols, taken->dtype, root, err);
}

/* On the root the taken block is the device's own block, and stays. */
static void summa_give_back(struct tensor_parallel *tp, struct tensor own, struct tensor taken)
{
    if (taken.data != own.data) device_free(tp->device, taken);
}

/* into = sum over the members of a row or column, on its member `root`; elsewhere into is not used. */
static enum error_code reduce_to(struct tensor_parallel *tp, unsigned along, int root, struct tensor part,
                                 struct tensor into, struct error *err)
{
    struct group *g = &tp->along[along];
    const struct collective c = { .in = part.data,
                                  .out = g->rank == root ? into.data : part.data,
                                  .count = tensor_count(part),
                                  .dtype = part.dtype,
                                  .reduction = SUM,
                                  .root = root };
    return collective_run(g, REDUCE, NULL, &c, err);
}

/* The width of part `index` of a matrix's output, or input. */
static int64_t width(const struct tensor_parallel *tp, enum param_role role, bool output, int index)
{
    return tensor_width(tp, role, output, index, axes_size(tp, GRID_COLUMN));
}

/* ---- Y = X W^T + b ----------------------------------------------------------------------------------------------- */

/* forward_step does step l of Y = X W^T, with two broadcasts and a local product. */
static enum error_code forward_step(struct tensor_parallel *tp, enum param_role role, int l, struct tensor Y,
                                    struct tensor X, struct tensor W, struct tensor b, struct error *err)
{
    struct tensor x, w;
    const int64_t I = width(tp, role, false, l);
    /* Step l: X[i,l] comes along the row, W[j,l] along the column; Y[i,j] += X[i,l] W[j,l]^T. */
    enum error_code e = summa_take(tp, ALONG_ROW, l, X, tensor_rows(X), I, &x, err);
    if (e) return e;
    e = summa_take(tp, ALONG_COLUMN, l, W, tensor_rows(W), I, &w, err);
    /* The first step overwrites Y and adds the bias; later steps add to Y. */
    if (!e && l == 0) dev_linear_forward(tp->device, Y, x, w, b);
    else if (!e) dev_linear_forward_add(tp->device, Y, x, w);
    summa_give_back(tp, W, w);
    summa_give_back(tp, X, x);
    return e;
}

/* Exact sums: tops of rows of X and of W, which all steps need; the sum so far; and a step's terms. */
struct exact_steps { struct tensor x_top, w_top, sum, part; };

static enum error_code exact_sum_make(struct tensor_parallel *tp, struct tensor *sum, int64_t rows, int64_t cols,
                                      struct error *err)
{
    *sum = device_tensor_in(tp->device, BUFFERS, EXACT, rows * cols);
    *sum = tensor_2d(sum->data, EXACT, rows, cols);
    return sum->data ? OK : fail(err, ERR_MEMORY, "no memory for a sum of %lld x %lld elements", (long long)rows,
                                 (long long)cols);
}

/* Step l with exact sums: as forward_step, but sums are rounded only after the last step. */
static enum error_code exact_forward_step(struct tensor_parallel *tp, enum param_role role, int l,
                                          const struct exact_steps *steps, struct tensor X, struct tensor W,
                                          struct tensor b, struct error *err)
{
    struct tensor x, w;
    const int64_t I = width(tp, role, false, l);
    enum error_code e = summa_take(tp, ALONG_ROW, l, X, tensor_rows(X), I, &x, err);
    if (e) return e;
    e = summa_take(tp, ALONG_COLUMN, l, W, tensor_rows(W), I, &w, err);
    if (!e) dev_linear_forward_part(tp->device, l == 0 ? steps->sum : steps->part, x, steps->x_top, w, steps->w_top,
                                    l == 0 ? b : tensor_none);
    if (!e && l > 0) dev_add(tp->device, steps->sum, steps->sum, steps->part);
    summa_give_back(tp, W, w);
    summa_give_back(tp, X, x);
    return e;
}

static enum error_code exact_forward(struct tensor_parallel *tp, enum param_role role, struct tensor Y, struct tensor X,
                                     struct tensor W, struct tensor b, struct error *err)
{
    struct exact_steps steps = { 0 };
    enum error_code e = terms_row_tops(tp, ALONG_ROW, &steps.x_top, X, err);
    if (!e) e = terms_row_tops(tp, ALONG_COLUMN, &steps.w_top, W, err);
    if (!e) e = exact_sum_make(tp, &steps.sum, tensor_rows(Y), tensor_cols(Y), err);
    if (!e) e = exact_sum_make(tp, &steps.part, tensor_rows(Y), tensor_cols(Y), err);
    for (int l = 0; l < axes_size(tp, GRID_COLUMN) && !e; l++)
        e = exact_forward_step(tp, role, l, &steps, X, W, b, err);
    if (!e) dev_round(tp->device, Y, steps.sum);
    device_free(tp->device, steps.part), device_free(tp->device, steps.sum);
    device_free(tp->device, steps.w_top), device_free(tp->device, steps.x_top);
    return e;
}

/* `side` is the cut of a matrix's output, by which its bias is shared out. */
static struct tensor_cut side(const struct tensor_parallel *tp, enum param_role role)
{
    return tensor_cut_at(tp->scheme, leads_inside(role) ? inner_side(role) : STREAM);
}

/* Y [n, O/q] = X [n, I] W^T + b, summed over q blocks of I. */
enum error_code summa_linear_forward(struct tensor_parallel *tp, enum param_role role, int64_t N, struct tensor Y,
                                     struct tensor X, struct tensor W, struct tensor b, struct error *err)
{
    const int q = axes_size(tp, GRID_COLUMN);
    struct shared bias;
    (void)N;
    enum error_code e = shared_take(tp, side(tp, role), b, tensor_cols(Y), &bias, err);
    if (!e && tp->device->exact) e = exact_forward(tp, role, Y, X, W, bias.taken, err);
    else for (int l = 0; l < q && !e; l++) e = forward_step(tp, role, l, Y, X, W, bias.taken, err);
    shared_release(tp, &bias);
    return e;
}

/* ---- dX = dY W, and the embedding -------------------------------------------------------------------------------- */

/* Step l.  ids, if given, replace dY: they stand for their unit vectors. */
static enum error_code input_step(struct tensor_parallel *tp, enum param_role role, int l, struct tensor dX,
                                  struct tensor dY, struct tensor ids, struct tensor W, struct error *err)
{
    struct tensor w, part;
    const int64_t I = width(tp, role, false, l);
    /* Step l: dX[i,l] = sum over j of dY[i,j] W[j,l], summed along the row to the device in column l. */
    enum error_code e = summa_take(tp, ALONG_COLUMN, l, W, tensor_rows(W), I, &w, err);
    if (e) return e;
    e = tensor_buffer(tp, &part, tensor_rows(dX), I, err);
    if (!e && tensor_present(ids)) dev_embedding_forward(tp->device, part, ids, w, tp->first_entry, false);
    else if (!e) dev_linear_backward_input(tp->device, part, dY, w);
    if (!e) e = reduce_to(tp, ALONG_ROW, l, part, dX, err);
    device_free(tp->device, part);
    summa_give_back(tp, W, w);
    return e;
}

/* Step l of dX with exact sums: the device in column l rounds what it gets. */
static enum error_code exact_input_step(struct tensor_parallel *tp, enum param_role role, int l, struct tensor dX,
                                        struct tensor dY, struct tensor W, struct error *err)
{
    struct tensor w, part, sum = tensor_none;
    const bool mine = tp->along[ALONG_ROW].rank == l;
    enum error_code e = summa_take(tp, ALONG_COLUMN, l, W, tensor_rows(W), width(tp, role, false, l), &w, err);
    if (e) return e;
    e = terms_input_part(tp, ALONG_ROW, &part, dY, w, err);
    if (!e && mine) e = exact_sum_make(tp, &sum, tensor_rows(dX), tensor_cols(dX), err);
    if (!e) e = reduce_to(tp, ALONG_ROW, l, part, sum, err);
    if (!e && mine) dev_round(tp->device, dX, sum);
    device_free(tp->device, sum), device_free(tp->device, part);
    summa_give_back(tp, W, w);
    return e;
}

/* dX [n, I/q] = dY [n, O] W, summed over the q devices of a row. */
enum error_code summa_linear_backward_input(struct tensor_parallel *tp, enum param_role role, int64_t N,
                                            struct tensor dX, struct tensor dY, struct tensor W, struct error *err)
{
    enum error_code e = OK;
    (void)N;
    for (int l = 0; l < axes_size(tp, GRID_ROW) && !e; l++)
        e = tp->device->exact ? exact_input_step(tp, role, l, dX, dY, W, err)
                              : input_step(tp, role, l, dX, dY, tensor_none, W, err);
    return e;
}

/* All devices have all ids; a row of the grid works on the ids of its own sequences. */
static struct tensor own_ids(const struct tensor_parallel *tp, struct tensor ids)
{
    const struct interval own = tensor_rows_at(tp, STREAM, tensor_count(ids));
    return tensor_1d((int32_t *)ids.data + own.first, I32, own.count);
}

/* Y [n, D/q]: step l makes part l of the columns, which is reduced to the device in column l. */
enum error_code summa_embedding_forward(struct tensor_parallel *tp, struct tensor Y, struct tensor ids, struct tensor W,
                                        struct error *err)
{
    enum error_code e = OK;
    for (int l = 0; l < axes_size(tp, GRID_ROW) && !e; l++)
        e = input_step(tp, ROLE_TOKENS, l, Y, tensor_none, own_ids(tp, ids), W, err);
    return e;
}

/* ---- dW = dY^T X ------------------------------------------------------------------------------------------------- */

/* With exact sums, the largest sizes of whole rows of dY and of X; none for ids. */
struct both_tops { struct tensor dy, x; };

static enum error_code both_tops_open(struct tensor_parallel *tp, struct both_tops *tops, struct tensor dY,
                                      struct tensor X, struct error *err)
{
    *tops = (struct both_tops){ tensor_none, tensor_none };
    if (!tp->device->exact || !tensor_present(dY)) return OK;
    const enum error_code e = terms_row_tops(tp, ALONG_ROW, &tops->dy, dY, err);
    return e ? e : terms_row_tops(tp, ALONG_ROW, &tops->x, X, err);
}

/* Reduce all devices' summands for W[j,l] to device (l,j), which adds the sum to its gradient. */
static enum error_code weight_step(struct tensor_parallel *tp, enum param_role role, int l, struct tensor sum,
                                   const struct both_tops *tops, struct tensor dY, struct tensor ids, struct tensor X,
                                   struct error *err)
{
    struct tensor x, part;
    const int64_t I = width(tp, role, false, l);
    /* Step l: dY[i,j]^T X[i,l] of all i is summed along the column. */
    enum error_code e = summa_take(tp, ALONG_ROW, l, X, tensor_rows(X), I, &x, err);
    if (e) return e;
    e = tensor_gradient_buffer(tp, &part, tensor_rows(sum), I, err);
    if (!e) {
        device_zero(tp->device, part);
        if (tensor_present(ids)) dev_embedding_backward_weight(tp->device, part, x, ids, tp->first_entry);
        else if (tensor_present(tops->dy))
            dev_linear_backward_weight_part(tp->device, part, tensor_none, dY, tops->dy, x, tops->x);
        else dev_linear_backward_weight(tp->device, part, tensor_none, dY, x);
        e = reduce_to(tp, ALONG_COLUMN, l, part, sum, err);
    }
    device_free(tp->device, part);
    summa_give_back(tp, X, x);
    return e;
}

/* dW [O/q, I/q] += dY^T X, summed over rows of the grid and over layers.  Only the sum of this microbatch is
 * reduced. */
static enum error_code tensor_summa_weight(struct tensor_parallel *tp, enum param_role role, struct tensor dW,
                                           struct tensor dY, struct tensor ids, struct tensor X, struct error *err)
{
    struct tensor sum;
    struct both_tops tops = { tensor_none, tensor_none };
    enum error_code e = tensor_gradient_buffer(tp, &sum, tensor_rows(dW), tensor_cols(dW), err);
    if (e) return e;
    e = both_tops_open(tp, &tops, dY, X, err);
    for (int l = 0; l < axes_size(tp, GRID_COLUMN) && !e; l++)
        e = weight_step(tp, role, l, sum, &tops, dY, ids, X, err);
    /* Layers of a 2.5D grid have other rows of X: their sums are added, too. */
    if (!e) e = allreduce(&tp->along[GRID_LAYER], sum.data, tensor_count(sum), sum.dtype, SUM, tp->allreduce, err);
    if (!e) dev_add(tp->device, dW, dW, sum);
    device_free(tp->device, tops.x), device_free(tp->device, tops.dy);
    device_free(tp->device, sum);
    return e;
}

enum error_code summa_linear_backward_weight(struct tensor_parallel *tp, enum param_role role, int64_t N,
                                             struct tensor dW, struct tensor db, struct tensor dY, struct tensor X,
                                             struct error *err)
{
    struct shared bias;
    (void)N;
    enum error_code e = tensor_summa_weight(tp, role, dW, dY, tensor_none, X, err);
    if (e || !tensor_present(db)) return e;
    e = shared_begin(tp, side(tp, role), db, tensor_cols(dY), &bias, err);
    if (e) return e;
    dev_column_sums(tp->device, bias.taken, dY);
    return shared_give(tp, side(tp, role), &bias, err);
}

enum error_code summa_embedding_backward_weight(struct tensor_parallel *tp, struct tensor dW, struct tensor dY,
                                                struct tensor ids, struct error *err)
{
    return tensor_summa_weight(tp, ROLE_TOKENS, dW, tensor_none, own_ids(tp, ids), dY, err);
}

/* ---- cost -------------------------------------------------------------------------------------------------------- */

/* step_cost enters the two collectives of step `step`, for n rows.  O and I are widths of blocks. */
static void step_cost(struct forecast *forecast, enum param_role role, enum tensor_pass pass, int step, int64_t n)
{
    const int64_t I = width(forecast->tp, role, false, step), O = width(forecast->tp, role, true, forecast->tp->at[2]);
    const bool exact = forecast->tp->device->exact && role != ROLE_TOKENS;
    if (pass != INPUT_PASS) forecast_rooted(forecast, BROADCAST, ALONG_ROW, step, n * I);
    if (pass != WEIGHT_PASS) forecast_rooted(forecast, BROADCAST, ALONG_COLUMN, step, O * I);
    if (pass == INPUT_PASS && exact) {
        forecast_statistics(forecast, ALONG_ROW, n + I);
        forecast_on(forecast, &forecast->tp->along[ALONG_ROW], REDUCE, NULL,
                    (struct collective){ .count = n * I, .root = step, .dtype = EXACT });
    } else if (pass == INPUT_PASS) forecast_rooted(forecast, REDUCE, ALONG_ROW, step, n * I);
    forecast->gradients = pass == WEIGHT_PASS;
    if (pass == WEIGHT_PASS) forecast_rooted(forecast, REDUCE, ALONG_COLUMN, step, O * I);
    forecast->gradients = false;
}

void summa_cost(struct forecast *forecast, enum param_role role, enum tensor_pass pass, int64_t N, bool has_bias)
{
    const struct tensor_parallel *tp = forecast->tp;
    /* n rows, O outputs and I inputs are the extents of this device's blocks. */
    const int64_t n = tensor_rows_at(tp, STREAM, N).count, O = width(tp, role, true, tp->at[2]),
                  I = width(tp, role, false, tp->at[1]);
    /* The embedding's forward is computed as a product for the input. */
    const enum tensor_pass product = role == ROLE_TOKENS && pass == FORWARD_PASS ? INPUT_PASS : pass;
    for (int step = 0; step < axes_size(tp, GRID_COLUMN); step++) step_cost(forecast, role, product, step, n);
    /* With exact sums the devices agree on the largest sizes of rows before the steps. */
    if (tp->device->exact && role != ROLE_TOKENS) {
        if (pass != INPUT_PASS) forecast_statistics(forecast, ALONG_ROW, n);
        if (pass == FORWARD_PASS) forecast_statistics(forecast, ALONG_COLUMN, O);
        if (pass == WEIGHT_PASS) forecast_statistics(forecast, ALONG_ROW, n);
    }
    forecast->gradients = pass == WEIGHT_PASS;
    if (pass == WEIGHT_PASS) forecast_allreduce(forecast, GRID_LAYER, O * I);
    forecast->gradients = false;
    if (has_bias && pass != INPUT_PASS) forecast_shared(forecast, side(tp, role), O, 1, pass);
}
