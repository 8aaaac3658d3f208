/* tensor parallelism, 1d: each pair of matrices cut by columns, then by rows; one all-reduce for each pair, each way.
 *
 * Source   M. Shoeybi et al., "Megatron-LM: training multi-billion parameter language models using model parallelism",
 *          arXiv:1909.08053, section 3
 * Group    P devices with the same tokens
 * Layout                                whole          on device r: its share of heads (h of H), of F (f) and of V (u)
 *   X, Y, dX, dY (width D)              [N,D]          all of it
 *   QKV weight, bias                    [3D,D], [3D]   [3hA,D]: three boxes, the rows of its heads in Q, K and V; where
 *                                                      there are fewer key/value heads, [(h+2k)A,D]: see heads.c
 *   attention's output weight           [D,D]          [D,hA]: columns of its heads
 *   up weight, bias                     [F,D], [F]     [f,D]: rows; with a swiglu [2f,D]: two boxes, gate and up
 *   down weight                         [D,F]          [D,f]: columns
 *   token embedding and output matrix   [V,D]          [u,D]: rows; logits [N,u] are never gathered
 *   norms, positions, biases of width D                all of it, the same on every device
 *   Shares differ by at most one when P does not divide H, F or V.
 * Sends    forward   all-reduce of [N,D] after the attention output and after down (the paper's g), and after the token
 *                    embedding;  the loss: [N] maxima, then [2N] sums
 *          backward  all-reduce of [N,D] for the input of QKV, of up, and of the output matrix (the paper's f)
 *          per layer and microbatch 4 all-reduces of N D elements: 8 N D (P-1)/P sent by each device with a ring;
 *          with more devices than key/value heads, also the gradients of copied heads (heads.c)
 * Memory   per layer and microbatch 4 N D (norms' inputs and outputs) + (4 D + 2 F + H) N/P + 4 N elements; for a Llama
 *          4 N D + (2 h + 2 k) A N + 3 f N + h N + 2 N, with h, k, f of this device
 * Equals   reassociates: sums over heads, F and V add P partial sums in the order of the all-reduce.  Weight gradients
 *          of the cut matrices are sums over tokens only, as on one device.  A bias of width D is added on device 0
 *          only, so that the all-reduce adds it once; its gradient is computed whole on every device.
 * Called   schemes/registry.c lists the scheme; model/run/matrix.c calls its products, and tensor.c checks that its
 *          mesh fits.  Errors: ERR_MEMORY and ERR_COMM of a product; ERR_PLAN if the mesh does not fit.
 */
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/tensor/tensor.h"
#include "ref/model/config.h"

#define ALL MESH_AXIS(2)

static const char *tensor_1d_mesh(int P, int size[TENSOR_AXES])
{
    size[0] = size[1] = 1;
    size[2] = P;
    return NULL;
}

static struct weight_cut tensor_1d_weight(const struct tensor_scheme *scheme, enum param_role role)
{
    (void)scheme;
    return leads_inside(role) ? (struct weight_cut){ .out = ALL } : (struct weight_cut){ .in = ALL };
}

/* The sum of t over all devices along tp is left on every device. */
static enum error_code sum_over_group(struct tensor_parallel *tp, struct tensor t, struct error *err)
{
    return allreduce(&tp->along[ALL], t.data, tensor_count(t), t.dtype, SUM, tp->allreduce, err);
}

static enum error_code tensor_1d_linear_forward(struct tensor_parallel *tp, enum param_role role, int64_t N,
                                                struct tensor Y,
                                                struct tensor X, struct tensor W, struct tensor b, struct error *err)
{
    const bool inside = leads_inside(role);
    (void)N;
    if (tp->device->exact && !inside)
        return terms_forward(tp, ALL, NULL, Y, X, W, tp->rank == 0 ? b : tensor_none, err);
    /* Column-parallel: Y has this device's columns. Row-parallel: Y is a partial sum, to which one device adds the
     * bias. */
    const enum error_code e = local_forward(tp, Y, X, W, inside || tp->rank == 0 ? b : tensor_none, err);
    return e || inside ? e : sum_over_group(tp, Y, err);
}

static enum error_code tensor_1d_linear_backward_input(struct tensor_parallel *tp, enum param_role role, int64_t N,
                                                       struct tensor dX, struct tensor dY, struct tensor W,
                                                       struct error *err)
{
    (void)N;
    if (tp->device->exact && leads_inside(role)) return terms_backward_input(tp, ALL, NULL, dX, dY, W, err);
    /* Row-parallel: dX has this device's columns. Column-parallel: dX is a partial sum over columns. */
    const enum error_code e = local_backward_input(tp, dX, dY, W, err);
    return e || !leads_inside(role) ? e : sum_over_group(tp, dX, err);
}

/* dW and db need this device's columns only, so nothing is sent but the maxima of exact sums. */
static enum error_code tensor_1d_linear_backward_weight(struct tensor_parallel *tp, enum param_role role, int64_t N,
                                                        struct tensor dW, struct tensor db, struct tensor dY,
                                                        struct tensor X,
                                                        struct error *err)
{
    (void)N;
    if (tp->device->exact) return terms_backward_weight(tp, ALL, leads_inside(role), dW, db, dY, X, err);
    return local_backward_weight(tp, dW, db, dY, X, err);
}

static enum error_code tensor_1d_embedding_forward(struct tensor_parallel *tp, struct tensor Y, struct tensor ids,
                                                   struct tensor W, struct error *err)
{
    /* A device has a range of the vocabulary: other tokens give zeros, and the sum is the embedding. */
    const enum error_code e = local_embedding_forward(tp, Y, ids, W, err);
    return e ? e : sum_over_group(tp, Y, err);
}

/* An all-reduce: forward for a matrix that leads out and for the embedding; backward for one that leads inside. */
static void matrix_cost(struct forecast *forecast, enum param_role role, enum tensor_pass pass, int64_t N,
                        bool has_bias)
{
    const bool forward = !leads_inside(role) || role == ROLE_TOKENS;
    (void)has_bias;
    /* The width is that of the stream, or of a latent. */
    const int64_t width = tensor_width(forecast->tp, role, !leads_inside(role), 0, 1);
    if (forecast->tp->device->exact && role != ROLE_TOKENS) {
        /* Exact sums: maxima of rows of both operands, then the sum; for the weight maxima of one operand. */
        if (pass == WEIGHT_PASS) forecast_terms(forecast, ALL, N, 0, NULL, 0);
        else if (pass == (forward ? FORWARD_PASS : INPUT_PASS)) forecast_terms(forecast, ALL, N, width, NULL, width);
        return;
    }
    if (pass == (forward ? FORWARD_PASS : INPUT_PASS))
        forecast_allreduce(forecast, ALL, N * (role == ROLE_TOKENS ? forecast->tp->config->D : width));
}

const struct tensor_scheme tensor_scheme_1d = {
    .head = { .kind = TENSOR_SCHEME, .equality = REASSOCIATES,
              .name = "1d", .description = "columns, then rows; one all-reduce a pair of matrices, each way",
              .source = "Megatron-LM, arXiv:1909.08053", .volume = "8 N D (P-1)/P elements a layer and microbatch",
              .memory = "weights 1/P (norms, positions and biases of width D whole); a layer keeps 4 N D + (4 D + 2 F "
                        "+ H) N/P + 4 N" },
    .takes_tiles = true, .exact = true, .mesh = tensor_1d_mesh, INNER_CUT({ .columns = ALL }),
    .weight = tensor_1d_weight,
    .linear_forward = tensor_1d_linear_forward,
    .linear_backward_input = tensor_1d_linear_backward_input,
        .linear_backward_weight = tensor_1d_linear_backward_weight,
    .embedding_forward = tensor_1d_embedding_forward, .embedding_backward_weight = local_embedding_backward_weight,
    .matrix_cost = matrix_cost,
};
