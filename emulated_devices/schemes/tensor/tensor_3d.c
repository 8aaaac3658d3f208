/* tensor parallelism, 3d: p x p x p devices; every product gathers its factors along two axes and sums along the third.
 *
 * Source   Z. Bian, Q. Xu, B. Wang, Y. You, "Maximizing parallelism in distributed training for huge neural networks",
 *          arXiv:2105.14450; after R. C. Agarwal et al., "A three-dimensional approach to parallel matrix
 *          multiplication", doi:10.1147/rd.395.0575
 * Group    P = p^3 devices (i,j,l)
 * Layout                          whole         on device (i,j,l)
 *   X, Y, dX, dY (width D)        [N,D]         part j of p of the i-th p-th of the sequences; columns l
 *   heads, F, logits              [N,..]        part l of p of the i-th p-th of the sequences; heads, columns, tokens j
 *   matrices that lead inside     [O,I]         part i of p of the rows of outputs j; inputs l
 *   matrices that lead out        [O,I]         part i of p of the rows of outputs l; inputs j
 *   biases, norms, positions                    1/p^2 of the part for the device's columns
 *   So each matrix exchanges the axes j and l, and a pair of matrices restores them.  p need not divide anything.
 * Sends    for a matrix that leads inside: all-gather X along j and W along i, multiply, reduce-scatter Y along l;
 *          dX: all-gather dY along l and W along i, reduce-scatter along j;  dW: all-gather X along j and dY along l,
 *          reduce-scatter along i.  For one that leads out, j and l are exchanged.  Each of these three collectives
 *          moves 1/p^3 of its tensor p-1 times: forward, dX and dW each send (p-1)/P (N I + O I + N O) elements from
 *          each device.  Per layer and microbatch, all devices together, F = 4 D: 3 (p-1) (16 N D + 12 D^2), and for
 *          norms and vectors 16 N (p-1) + 28 D (p^2-1)
 * Memory   weights, activations 1/P: per layer and microbatch (8 D + 2 F + H) N/P + 4 N/p^2 elements
 * Equals   reassociates: every sum over an inner dimension, over rows, or over a row's columns has p partial sums, in
 *          the order of the reduce-scatter.  A bias is added once, by the first of the devices whose products are
 *          summed.
 * Called   schemes/registry.c lists the scheme; model/run/matrix.c calls its products, and tensor.c checks that its
 *          mesh fits.  Errors: ERR_MEMORY and ERR_COMM of a product; ERR_PLAN if the mesh does not fit.
 */
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/tensor/tensor.h"

#define I_AXIS MESH_AXIS(0)
#define J_AXIS MESH_AXIS(1)
#define L_AXIS MESH_AXIS(2)

static const char *tensor_3d_mesh(int P, int size[TENSOR_AXES])
{
    int p = 1;
    while ((p + 1) * (p + 1) * (p + 1) <= P) p++;
    size[0] = size[1] = size[2] = p;
    return p * p * p == P ? NULL : "a cube: 1, 8, 27, 64, ..";
}

static struct weight_cut tensor_3d_weight(const struct tensor_scheme *scheme, enum param_role role)
{
    (void)scheme;
    return leads_inside(role) ? (struct weight_cut){ .out = J_AXIS, .in = L_AXIS, .sub = I_AXIS }
                              : (struct weight_cut){ .out = L_AXIS, .in = J_AXIS, .sub = I_AXIS };
}

/* The axis along which the i-th p-th of the rows is cut again, for a matrix's input and for its output. */
static unsigned input_axis(enum param_role role) { return leads_inside(role) ? J_AXIS : L_AXIS; }
static unsigned output_axis(enum param_role role) { return leads_inside(role) ? L_AXIS : J_AXIS; }

/* The cut of a matrix's output, and so of its bias. */
static struct tensor_cut output_side(const struct tensor_parallel *tp, enum param_role role)
{
    return tensor_cut_at(tp->scheme, leads_inside(role) ? inner_side(role) : STREAM);
}

/* The rows of each of the p devices along one axis.  @return their sum: the i-th p-th of all rows. */
static int64_t rows_along(const struct tensor_parallel *tp, unsigned axis, int64_t N, int64_t rows[])
{
    return tensor_row_counts(tp, I_AXIS | axis, axis, N, rows);
}

/* The rows of W's pieces along i.  @return their sum. */
static int64_t weight_rows(const struct tensor_parallel *tp, enum param_role role, int64_t rows[])
{
    const struct weight_cut cut = tensor_3d_weight(tp->scheme, role);
    const int p = axes_size(tp, I_AXIS);
    const int64_t O = tensor_width(tp, role, true, axes_index(tp, cut.out), p);
    for (int i = 0; i < p; i++) rows[i] = block_at(O, p, i).count;
    return O;
}

/* ---- the three collectives --------------------------------------------------------------------------------------- */

/* whole [N/p, cols] = the rows of the p devices along the axis. */
static enum error_code tensor_3d_gather(struct tensor_parallel *tp, unsigned axis, int64_t N, struct tensor own,
                                        struct tensor *whole, struct error *err)
{
    int64_t rows[MESH_MOST_LISTED];
    enum error_code e = tensor_buffer(tp, whole, rows_along(tp, axis, N, rows), tensor_cols(own), err);
    return e ? e : gather_rows(tp, axis, rows, *whole, own, err);
}

/* whole [O/p, I/p] = the p pieces of this block of W, along i. */
static enum error_code gather_weight(struct tensor_parallel *tp, enum param_role role, struct tensor W,
                                     struct tensor *whole, struct error *err)
{
    int64_t rows[MESH_MOST_LISTED];
    enum error_code e = tensor_buffer(tp, whole, weight_rows(tp, role, rows), tensor_cols(W), err);
    return e ? e : gather_rows(tp, I_AXIS, rows, *whole, W, err);
}

/* own = this device's rows of the sum of whole over the devices along the axis. */
static enum error_code tensor_3d_scatter(struct tensor_parallel *tp, unsigned axis, int64_t N, struct tensor own,
                                         struct tensor whole, struct error *err)
{
    int64_t rows[MESH_MOST_LISTED];
    rows_along(tp, axis, N, rows);
    return scatter_rows(tp, axis, rows, own, whole, err);
}

static void tensor_3d_drop(struct tensor_parallel *tp, struct tensor a, struct tensor b, struct tensor c)
{
    device_free(tp->device, a), device_free(tp->device, b), device_free(tp->device, c);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

/* Y = X W^T + b, with three collectives along the three axes of the cube. */
static enum error_code tensor_3d_linear_forward(struct tensor_parallel *tp, enum param_role role, int64_t N,
                                                struct tensor Y,
                                                struct tensor X, struct tensor W, struct tensor b, struct error *err)
{
    struct tensor x = tensor_none, w = tensor_none, y = tensor_none;
    struct shared bias = { 0 };
    const unsigned out = output_axis(role);
    enum error_code e = shared_take(tp, output_side(tp, role), b, tensor_cols(Y), &bias, err);
    /* Device (i,j,l): x = rows of part i, all along one axis; w = whole block of W, gathered along i. */
    if (!e) e = tensor_3d_gather(tp, input_axis(role), N, X, &x, err);
    if (!e) e = gather_weight(tp, role, W, &w, err);
    if (!e && tp->device->exact) {
        /* Terms are on the devices along the third axis, which keep each their rows of the sum. */
        int64_t rows[MESH_MOST_LISTED];
        rows_along(tp, out, N, rows);
        e = terms_forward(tp, out, rows, Y, x, w, axes_index(tp, out) == 0 ? bias.taken : tensor_none, err);
        tensor_3d_drop(tp, x, w, y), shared_release(tp, &bias);
        return e;
    }
    if (!e) e = tensor_buffer(tp, &y, tensor_rows(x), tensor_cols(Y), err);
    /* y is a partial sum over the third axis; one device along that axis adds the bias. */
    if (!e) dev_linear_forward(tp->device, y, x, w, axes_index(tp, out) == 0 ? bias.taken : tensor_none);
    /* Each device keeps its rows of the sum. */
    if (!e) e = tensor_3d_scatter(tp, out, N, Y, y, err);
    tensor_3d_drop(tp, x, w, y);
    shared_release(tp, &bias);
    return e;
}

static enum error_code tensor_3d_linear_backward_input(struct tensor_parallel *tp, enum param_role role, int64_t N,
                                                       struct tensor dX, struct tensor dY, struct tensor W,
                                                       struct error *err)
{
    struct tensor dx = tensor_none, w = tensor_none, dy = tensor_none;
    /* dX = dY W: gathers along the axis of the output, sums along that of the input. */
    enum error_code e = tensor_3d_gather(tp, output_axis(role), N, dY, &dy, err);
    if (!e) e = gather_weight(tp, role, W, &w, err);
    if (!e && tp->device->exact) {
        int64_t rows[MESH_MOST_LISTED];
        rows_along(tp, input_axis(role), N, rows);
        e = terms_backward_input(tp, input_axis(role), rows, dX, dy, w, err);
        tensor_3d_drop(tp, dy, w, dx);
        return e;
    }
    if (!e) e = tensor_buffer(tp, &dx, tensor_rows(dy), tensor_cols(dX), err);
    if (!e) dev_linear_backward_input(tp->device, dx, dy, w);
    if (!e) e = tensor_3d_scatter(tp, input_axis(role), N, dX, dx, err);
    tensor_3d_drop(tp, dy, w, dx);
    return e;
}

/* dW += this device's rows of the sum over i. */
static enum error_code add_weight(struct tensor_parallel *tp, enum param_role role, struct tensor dW,
                                  struct tensor whole, struct error *err)
{
    struct tensor sum;
    int64_t rows[MESH_MOST_LISTED];
    weight_rows(tp, role, rows);
    enum error_code e = tensor_gradient_buffer(tp, &sum, tensor_rows(dW), tensor_cols(dW), err);
    /* Parts i have other rows of X and dY: their products for W are summed along i. */
    if (!e) e = scatter_rows(tp, I_AXIS, rows, sum, whole, err);
    if (!e) dev_add(tp->device, dW, dW, sum);
    device_free(tp->device, sum);
    return e;
}

/* db += column sums of dY, summed over the devices with the same columns. */
static enum error_code tensor_3d_add_bias(struct tensor_parallel *tp, enum param_role role, struct tensor db,
                                          struct tensor dY, struct error *err)
{
    struct shared bias;
    if (!tensor_present(db)) return OK;
    enum error_code e = shared_begin(tp, output_side(tp, role), db, tensor_cols(dY), &bias, err);
    if (e) return e;
    dev_column_sums(tp->device, bias.taken, dY);
    return shared_give(tp, output_side(tp, role), &bias, err);
}

/* The whole block of dW begins at 0: only this microbatch's sum is reduced. */
static enum error_code zeroed_weight(struct tensor_parallel *tp, enum param_role role, int64_t cols,
                                     struct tensor *tensor, struct error *err)
{
    int64_t rows[MESH_MOST_LISTED];
    enum error_code e = tensor_gradient_buffer(tp, tensor, weight_rows(tp, role, rows), cols, err);
    if (!e) device_zero(tp->device, *tensor);
    return e;
}

/* dW [O, I] += dY^T X on the blocks of this device: both factors are gathered, and the product is summed along i. */
static enum error_code tensor_3d_linear_backward_weight(struct tensor_parallel *tp, enum param_role role, int64_t N,
                                                        struct tensor dW, struct tensor db, struct tensor dY,
                                                        struct tensor X,
                                                        struct error *err)
{
    struct tensor x = tensor_none, dy = tensor_none, dw = tensor_none;
    enum error_code e = tensor_3d_gather(tp, input_axis(role), N, X, &x, err);
    if (!e) e = tensor_3d_gather(tp, output_axis(role), N, dY, &dy, err);
    if (!e) e = zeroed_weight(tp, role, tensor_cols(dW), &dw, err);
    if (!e && tp->device->exact)
        e = terms_add_weight(tp, input_axis(role), output_axis(role), dw, tensor_none, dy, x, err);
    else if (!e) dev_linear_backward_weight(tp->device, dw, tensor_none, dy, x);
    if (!e) e = add_weight(tp, role, dW, dw, err);
    if (!e) e = tensor_3d_add_bias(tp, role, db, dY, err);
    tensor_3d_drop(tp, x, dy, dw);
    return e;
}

/* ---- the embedding: the product dX = dY W with the tokens' unit vectors as dY; all devices have the ids ---------- */

/* The ids of the i-th p-th of the rows, which begins at its first device's rows. */
static struct tensor ids_of_third(const struct tensor_parallel *tp, struct tensor ids)
{
    int64_t rows[MESH_MOST_LISTED];
    struct tensor_parallel first = *tp;
    first.at[1] = 0;
    return tensor_1d((int32_t *)ids.data + tensor_rows_at(&first, STREAM, tensor_count(ids)).first, I32,
                     rows_along(tp, J_AXIS, tensor_count(ids), rows));
}

static enum error_code tensor_3d_embedding_forward(struct tensor_parallel *tp, struct tensor Y, struct tensor ids,
                                                   struct tensor W, struct error *err)
{
    const struct tensor own = ids_of_third(tp, ids);
    struct tensor w = tensor_none, y = tensor_none;
    enum error_code e = gather_weight(tp, ROLE_TOKENS, W, &w, err);
    if (!e) e = tensor_buffer(tp, &y, tensor_count(own), tensor_cols(Y), err);
    if (!e) dev_embedding_forward(tp->device, y, own, w, tp->first_entry, false);
    if (!e) e = tensor_3d_scatter(tp, J_AXIS, tensor_count(ids), Y, y, err);
    tensor_3d_drop(tp, w, y, tensor_none);
    return e;
}

static enum error_code tensor_3d_embedding_backward_weight(struct tensor_parallel *tp, struct tensor dW,
                                                           struct tensor dY, struct tensor ids, struct error *err)
{
    struct tensor dy = tensor_none, dw = tensor_none;
    enum error_code e = tensor_3d_gather(tp, J_AXIS, tensor_count(ids), dY, &dy, err);
    if (!e) e = zeroed_weight(tp, ROLE_TOKENS, tensor_cols(dW), &dw, err);
    if (!e) dev_embedding_backward_weight(tp->device, dw, dy, ids_of_third(tp, ids), tp->first_entry);
    if (!e) e = add_weight(tp, ROLE_TOKENS, dW, dw, err);
    tensor_3d_drop(tp, dy, dw, tensor_none);
    return e;
}

/* ---- cost -------------------------------------------------------------------------------------------------------- */

/* matrix_cost enters the three collectives of a product, and the vectors' part of a bias. */
static void matrix_cost(struct forecast *forecast, enum param_role role, enum tensor_pass pass, int64_t N,
                        bool has_bias)
{
    const struct tensor_parallel *tp = forecast->tp;
    const struct weight_cut cut = tensor_3d_weight(tp->scheme, role);
    const int p = axes_size(tp, I_AXIS);
    const bool tokens = role == ROLE_TOKENS;
    int64_t x[MESH_MOST_LISTED], y[MESH_MOST_LISTED], w[MESH_MOST_LISTED];
    const int64_t O = weight_rows(tp, role, w), I = tensor_width(tp, role, false, axes_index(tp, cut.in), p);
    const unsigned in = input_axis(role), out = output_axis(role);
    rows_along(tp, in, N, x), rows_along(tp, out, N, y);
    forecast->gradients = pass == WEIGHT_PASS;
    /* The matrix is gathered along i for both products with W, and its gradient is scattered. */
    if (pass != WEIGHT_PASS) forecast_allgather(forecast, I_AXIS, w, I);
    else forecast_reduce_scatter(forecast, I_AXIS, w, I);
    forecast->gradients = false;
    const bool exact = tp->device->exact && !tokens;
    const int64_t n = tensor_row_counts(tp, I_AXIS | in, in, N, x);
    if (exact && pass == INPUT_PASS) forecast_terms(forecast, in, n, I, x, I);
    else if (pass == INPUT_PASS || (tokens && pass == FORWARD_PASS)) forecast_reduce_scatter(forecast, in, x, I);
    else forecast_allgather(forecast, in, x, I);
    /* The embedding has no operand on its output side: its ids are on every device. */
    if (exact && pass == FORWARD_PASS) forecast_terms(forecast, out, n, O, y, O);
    else if (!tokens && pass == FORWARD_PASS) forecast_reduce_scatter(forecast, out, y, O);
    else if (!tokens) forecast_allgather(forecast, out, y, O);
    if (exact && pass == WEIGHT_PASS)
        forecast_terms(forecast, in, n, 0, NULL, 0), forecast_terms(forecast, out, n, 0, NULL, 0);
    if (has_bias && pass != INPUT_PASS) forecast_shared(forecast, output_side(tp, role), O, 1, pass);
}

const struct tensor_scheme tensor_scheme_3d = {
    .head = { .kind = TENSOR_SCHEME, .equality = REASSOCIATES,
              .name = "3d",
              .description = "1/P of everything on a cube of devices; factors gathered along two axes, products "
                             "summed along the third",
              .source = "Bian et al., arXiv:2105.14450",
              .volume = "1/P of 3 (p-1) (16 N D + 12 D^2) + 16 N (p-1) + 28 D (p^2-1) elements a layer and "
                        "microbatch, with F = 4 D and P = p^3",
              .memory = "weights 1/P; a layer keeps (8 D + 2 F + H) N/P + 4 N/p^2" },
    .exact = true, .mesh = tensor_3d_mesh, .stream = { .rows = I_AXIS | J_AXIS, .columns = L_AXIS },
    .cuts_vectors = true, INNER_CUT({ .rows = I_AXIS | L_AXIS, .columns = J_AXIS }), .weight = tensor_3d_weight,
        .linear_forward = tensor_3d_linear_forward,
    .linear_backward_input = tensor_3d_linear_backward_input,
        .linear_backward_weight = tensor_3d_linear_backward_weight,
    .embedding_forward = tensor_3d_embedding_forward, .embedding_backward_weight = tensor_3d_embedding_backward_weight,
    .matrix_cost = matrix_cost,
};
