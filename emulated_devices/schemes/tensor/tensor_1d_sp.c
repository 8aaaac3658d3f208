/* tensor parallelism, 1d-sp: as 1d, but between pairs of matrices each device has only a part of the stream's tokens.
 *
 * Source   V. Korthikanti et al., "Reducing activation recomputation in large transformer models", arXiv:2205.05198,
 *          section 4.2.2 (sequence parallelism)
 * Group    P devices with the same tokens
 * Layout                                whole          on device r
 *   X, Y, dX, dY (width D)              [N,D]          [n,D]: the r-th range of the microbatch's N tokens
 *   heads, F, logits; matrices          as in 1d       as in 1d: of all tokens
 *   norms, positions, biases of width D                all of it, the same on every device
 *   P need not divide N: ranges differ by at most one token, and may be empty.
 * Sends    instead of 1d's all-reduces, an all-gather of [N,D] before a matrix that leads inside, and a reduce-scatter
 *          after one that leads out; backward the same with the roles exchanged:
 *          per layer and microbatch 4 all-gathers and 4 reduce-scatters, 8 N D (P-1)/P elements sent by each device, as
 *          in 1d
 *          1d-sp       keeps only its own rows of a matrix's input and gathers them again for the weights' gradient
 *                      (the paper's choice): 2 more all-gathers per layer, 2 N D (P-1)/P, and one for the output matrix
 *          1d-sp-keep  keeps the gathered rows
 *          gradients of norms are all-reduced, 4 D per layer and microbatch, 2 D for an rmsnorm; gradients of copied
 *          key/value heads as in 1d
 * Memory   per layer and microbatch  1d-sp       (8 D + 2 F + H + 4) N/P elements: everything is cut
 *                                    1d-sp-keep  2 N D for whole inputs, the rest is cut
 * Equals   reassociates, as 1d, in the order of the reduce-scatter.  Norms, dropout and residual sums work row by row:
 *          on equal inputs their bits are those of 1d.  A bias of width D is added on device 0 only, before the sum;
 *          its gradient is computed whole on every device, from the gathered gradient of Y.
 * Called   schemes/registry.c lists the schemes; model/run/matrix.c calls the products.  Errors: ERR_MEMORY and
 *          ERR_COMM of a product; ERR_PLAN if the mesh does not fit.
 */
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/tensor/sequence.h"
#include "ref/model/config.h"

const char *sequence_mesh(int P, int size[TENSOR_AXES])
{
    size[0] = size[1] = 1;
    size[2] = P;
    return NULL;
}

struct weight_cut sequence_weight(const struct tensor_scheme *scheme, enum param_role role)
{
    (void)scheme;
    return leads_inside(role) ? (struct weight_cut){ .out = SEQUENCE } : (struct weight_cut){ .in = SEQUENCE };
}

/* whole [N, D] = all devices' rows in the order of ranks. */
static enum error_code tensor_1d_sp_gather(struct tensor_parallel *tp, int64_t N, struct tensor whole,
                                           struct tensor own, struct error *err)
{
    int64_t rows[MESH_MOST_LISTED];
    tensor_row_counts(tp, SEQUENCE, SEQUENCE, N, rows);
    return gather_rows(tp, SEQUENCE, rows, whole, own, err);
}

/* own [n, D] = this device's rows of the sum of all devices' whole [N, D]. */
static enum error_code tensor_1d_sp_scatter(struct tensor_parallel *tp, int64_t N, struct tensor own,
                                            struct tensor whole, struct error *err)
{
    int64_t rows[MESH_MOST_LISTED];
    tensor_row_counts(tp, SEQUENCE, SEQUENCE, N, rows);
    return scatter_rows(tp, SEQUENCE, rows, own, whole, err);
}

/* all_rows gets all rows of X: in X itself if X has room, else in a buffer, for tensor_1d_sp_release().  `room` must
 * be the same on all devices.  The shape is not enough: a device's own rows may be all rows. */
static enum error_code all_rows(struct tensor_parallel *tp, int64_t N, struct tensor *all, struct tensor X, bool room,
                                struct error *err)
{
    *all = X;
    if (tp->devices == 1) return OK;
    if (room) return tensor_1d_sp_gather(tp, N, X, tensor_own_rows(tp, X, N), err);
    enum error_code e = tensor_buffer(tp, all, N, tensor_cols(X), err);
    return e ? e : tensor_1d_sp_gather(tp, N, *all, X, err);
}

static void tensor_1d_sp_release(struct tensor_parallel *tp, struct tensor all, struct tensor X)
{
    if (all.data != X.data) device_free(tp->device, all);
}

/* Y = X W^T + b.  A matrix that leads inside gathers X, a matrix that leads out scatters Y. */
static enum error_code tensor_1d_sp_linear_forward(struct tensor_parallel *tp, enum param_role role, int64_t N,
                                                   struct tensor Y,
                                                   struct tensor X, struct tensor W, struct tensor b, struct error *err)
{
    struct tensor all;
    enum error_code e;
    /* Column-parallel: rows of all devices are gathered before the product. */
    if (leads_inside(role)) {
        e = all_rows(tp, N, &all, X, tp->scheme->keeps_inputs, err);
        if (!e) e = local_forward(tp, Y, all, W, b, err);
        tensor_1d_sp_release(tp, all, X);
        return e;
    }
    if (tp->device->exact) {
        int64_t rows[MESH_MOST_LISTED];
        tensor_row_counts(tp, SEQUENCE, SEQUENCE, N, rows);
        return terms_forward(tp, SEQUENCE, rows, Y, X, W, tp->rank == 0 ? b : tensor_none, err);
    }
    /* A row-parallel matrix makes partial sums of all rows; a reduce-scatter leaves each device its own. */
    e = tensor_buffer(tp, &all, N, tensor_cols(Y), err);
    if (e) return e;
    e = local_forward(tp, all, X, W, tp->rank == 0 ? b : tensor_none, err);
    if (!e) e = tensor_1d_sp_scatter(tp, N, Y, all, err);
    device_free(tp->device, all);
    return e;
}

/* dX = dY W. A matrix that leads out gathers dY, a matrix that leads inside scatters dX. */
static enum error_code tensor_1d_sp_linear_backward_input(struct tensor_parallel *tp, enum param_role role, int64_t N,
                                                          struct tensor dX, struct tensor dY, struct tensor W,
                                                          struct error *err)
{
    struct tensor all;
    enum error_code e;
    /* The reverse: a row-parallel matrix gathers dY, a column-parallel one scatters dX. */
    if (!leads_inside(role)) {
        e = all_rows(tp, N, &all, dY, tp->scheme->keeps_gradients, err);
        if (!e) e = local_backward_input(tp, dX, all, W, err);
        tensor_1d_sp_release(tp, all, dY);
        return e;
    }
    if (tp->device->exact) {
        int64_t rows[MESH_MOST_LISTED];
        tensor_row_counts(tp, SEQUENCE, SEQUENCE, N, rows);
        return terms_backward_input(tp, SEQUENCE, rows, dX, dY, W, err);
    }
    e = tensor_buffer(tp, &all, N, tensor_cols(dX), err);
    if (e) return e;
    e = local_backward_input(tp, all, dY, W, err);
    if (!e) e = tensor_1d_sp_scatter(tp, N, dX, all, err);
    device_free(tp->device, all);
    return e;
}

/* For a matrix that leads out, X and dY already have all rows.  For a matrix that leads inside, X may have to be
 * gathered again. */
static enum error_code tensor_1d_sp_linear_backward_weight(struct tensor_parallel *tp, enum param_role role, int64_t N,
                                                           struct tensor dW, struct tensor db, struct tensor dY,
                                                           struct tensor X,
                                                           struct error *err)
{
    struct tensor all = X;
    enum error_code e = OK;
    if (leads_inside(role) && !tp->scheme->keeps_inputs) e = all_rows(tp, N, &all, X, false, err);
    if (!e) e = tp->device->exact ? terms_backward_weight(tp, SEQUENCE, leads_inside(role), dW, db, dY, all, err)
                                  : local_backward_weight(tp, dW, db, dY, all, err);
    tensor_1d_sp_release(tp, all, X);
    return e;
}

static enum error_code tensor_1d_sp_embedding_forward(struct tensor_parallel *tp, struct tensor Y, struct tensor ids,
                                                      struct tensor W, struct error *err)
{
    struct tensor all;
    /* A device makes partial embeddings of all rows; a reduce-scatter leaves each device its own. */
    enum error_code e = tensor_buffer(tp, &all, tensor_count(ids), tensor_cols(Y), err);
    if (e) return e;
    e = local_embedding_forward(tp, all, ids, W, err);
    if (!e) e = tensor_1d_sp_scatter(tp, tensor_count(ids), Y, all, err);
    device_free(tp->device, all);
    return e;
}

/* dW [u, D] needs dY of all N rows, because any row may have a token of this device's range. */
static enum error_code tensor_1d_sp_embedding_backward_weight(struct tensor_parallel *tp, struct tensor dW,
                                                              struct tensor dY, struct tensor ids, struct error *err)
{
    struct tensor all;
    enum error_code e = all_rows(tp, tensor_count(ids), &all, dY, false, err);
    if (!e) e = local_embedding_backward_weight(tp, dW, all, ids, err);
    tensor_1d_sp_release(tp, all, dY);
    return e;
}

void sequence_cost(struct forecast *forecast, enum param_role role, enum tensor_pass pass, int64_t N, bool has_bias)
{
    const bool inside = leads_inside(role) && role != ROLE_TOKENS;
    const int64_t D = forecast->tp->config->D;
    int64_t rows[MESH_MOST_LISTED];
    (void)has_bias;
    tensor_row_counts(forecast->tp, SEQUENCE, SEQUENCE, N, rows);
    if (role == ROLE_TOKENS && pass == WEIGHT_PASS) forecast_allgather(forecast, SEQUENCE, rows, D);
    else if (pass == WEIGHT_PASS) {
        if (forecast->tp->device->exact) forecast_terms(forecast, SEQUENCE, N, 0, NULL, 0);
        if (inside && !forecast->tp->scheme->keeps_inputs) forecast_allgather(forecast, SEQUENCE, rows, D);
    } else if (inside == (pass == FORWARD_PASS)) forecast_allgather(forecast, SEQUENCE, rows, D);
    else if (forecast->tp->device->exact && role != ROLE_TOKENS)
        forecast_terms(forecast, SEQUENCE, N, D, rows, D);
    else forecast_reduce_scatter(forecast, SEQUENCE, rows, D);
}

#define PRODUCTS                                                                                                      \
    .linear_forward = tensor_1d_sp_linear_forward, .linear_backward_input = tensor_1d_sp_linear_backward_input,       \
    .linear_backward_weight = tensor_1d_sp_linear_backward_weight,                                                    \
    .embedding_forward = tensor_1d_sp_embedding_forward,                                                              \
    .embedding_backward_weight = tensor_1d_sp_embedding_backward_weight

const struct tensor_scheme tensor_scheme_1d_sp = {
    .head = { .kind = TENSOR_SCHEME, .equality = REASSOCIATES,
              .name = "1d-sp",
              .description = "1d with sequence parallelism: tokens shared out between the pairs; inputs gathered "
                             "again for weights",
              .source = "Korthikanti et al., arXiv:2205.05198",
              .volume = "8 N D (P-1)/P as 1d, and 2 N D (P-1)/P to gather inputs again, a layer and microbatch; 4 D "
                        "of norm gradients",
              .memory = "weights as 1d; a layer keeps (8 D + 2 F + H + 4) N/P" },
    .takes_tiles = true, .exact = true, SEQUENCE_SCHEME, PRODUCTS
};

const struct tensor_scheme tensor_scheme_1d_sp_keep = {
    .head = { .kind = TENSOR_SCHEME, .equality = REASSOCIATES,
              .name = "1d-sp-keep",
              .description = "1d with sequence parallelism: tokens shared out between the pairs; gathered inputs are "
                             "kept",
              .source = "Korthikanti et al., arXiv:2205.05198",
              .volume = "8 N D (P-1)/P elements a layer and microbatch, as 1d; 4 D of norm gradients",
              .memory = "weights as 1d; a layer keeps 2 N D + (6 D + 2 F + H + 4) N/P" },
    .takes_tiles = true, .exact = true, .keeps_inputs = true, SEQUENCE_SCHEME, PRODUCTS
};
