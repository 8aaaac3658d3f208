/* tensor parallelism, 1d: each pair of matrices cut by columns, then by rows; one all-reduce for each pair, each way.
 *
 * Source   M. Shoeybi et al., "Megatron-LM: training multi-billion parameter language models using model parallelism",
 *          arXiv:1909.08053, section 3
 * Group    P devices with the same tokens
 * Layout                                whole          on device r: its share of heads (h of H), of F (f) and of V (u)
 *   X, Y, dX, dY (width D)              [N,D]          all of it
 *   QKV weight, bias                    [3D,D], [3D]   [3hA,D]: three boxes, the rows of its heads in Q, K and V
 *   attention's output weight           [D,D]          [D,hA]: columns of its heads
 *   up weight, bias                     [F,D], [F]     [f,D]: rows
 *   down weight                         [D,F]          [D,f]: columns
 *   token embedding and output matrix   [V,D]          [u,D]: rows; logits [N,u] are never gathered
 *   norms, positions, biases of width D                all of it, the same on every device
 *   Shares differ by at most one when P does not divide H, F or V.
 * Talks    forward   all-reduce of [N,D] after the attention output and after down (the paper's g), and after the token
 *                    embedding;  the loss: [N] maxima, then [2N] sums
 *          backward  all-reduce of [N,D] for the input of QKV, of up, and of the output matrix (the paper's f)
 *          per layer and microbatch 4 all-reduces of N D elements: 8 N D (P-1)/P sent by each device with a ring
 * Equals   reassociates: sums over heads, F and V add P partial sums in the order of the all-reduce.  Weight gradients
 *          of the cut matrices are sums over tokens only, as on one device.  A bias of width D is added on device 0 only,
 *          so that the all-reduce brings it in once; its gradient is computed whole on every device.
 */
#include "emulated_devices/device/compute.h"
#include "emulated_devices/schemes/tensor/tensor.h"
#include "ref/model/transformer.h"
#include <string.h>

/* Whether a linear layer's output is cut (its weight by rows), or its input. */
static bool output_is_cut(enum param_role role) { return role == ROLE_QKV || role == ROLE_UP || role == ROLE_HEAD; }

static enum error_code check(const struct model_config *c, int P, struct error *err)
{
    if (P > c->H) return fail(err, ERR_PLAN, "--tp %d: the model has H=%lld heads; tp can be at most that", P, (long long)c->H);
    if (P > c->F) return fail(err, ERR_PLAN, "--tp %d: the model has F=%lld feed-forward columns; tp can be at most that", P, (long long)c->F);
    if (P > c->V) return fail(err, ERR_PLAN, "--tp %d: the model has V=%lld tokens; tp can be at most that", P, (long long)c->V);
    return OK;
}

static void share(struct tensor_parallel *tp)
{
    const struct model_config *c = tp->config;
    const int P = tp->group->size, r = tp->group->rank;
    tp->head = block_start(c->H, P, r), tp->heads = block_start(c->H, P, r + 1) - tp->head;
    tp->column = block_start(c->F, P, r), tp->columns = block_start(c->F, P, r + 1) - tp->column;
    tp->token = block_start(c->V, P, r), tp->tokens = block_start(c->V, P, r + 1) - tp->token;
}

static bool replicated(enum param_role role, int ndim)
{
    return role == ROLE_NORM || role == ROLE_POSITIONS || (ndim == 1 && !output_is_cut(role));
}

static struct layout layout(const struct tensor_parallel *tp, const struct param_spec *s)
{
    const struct model_config *c = tp->config;
    struct layout l = layout_none(s->ndim, s->dim);
    if (replicated(s->role, s->ndim)) return layout_whole(s->ndim, s->dim);
    switch (s->role) {
    case ROLE_QKV:
        for (int part = 0; part < 3; part++) layout_add(&l, 0, part * c->D + tp->head * c->A, tp->heads * c->A);
        break;
    case ROLE_ATTENTION_OUT: layout_add(&l, 1, tp->head * c->A, tp->heads * c->A); break;
    case ROLE_UP:            layout_add(&l, 0, tp->column, tp->columns); break;
    case ROLE_DOWN:          layout_add(&l, 1, tp->column, tp->columns); break;
    default:                 layout_add(&l, 0, tp->token, tp->tokens); break;       /* ROLE_TOKENS, ROLE_HEAD */
    }
    return l;
}

static enum error_code sum_over_group(struct tensor_parallel *tp, struct tensor t, struct error *err)
{
    return allreduce(tp->group, t.data, tensor_count(t), t.dtype, SUM, tp->allreduce, err);
}

static enum error_code linear_forward(struct tensor_parallel *tp, enum param_role role, struct tensor Y, struct tensor X,
                                      struct tensor W, struct tensor b, struct error *err)
{
    const bool cut = output_is_cut(role);
    dev_linear_forward(tp->device, Y, X, W, cut || tp->group->rank == 0 ? b : tensor_none);
    return cut ? OK : sum_over_group(tp, Y, err);
}

static enum error_code linear_backward_input(struct tensor_parallel *tp, enum param_role role, struct tensor dX, struct tensor dY,
                                             struct tensor W, struct error *err)
{
    dev_linear_backward_input(tp->device, dX, dY, W);
    return output_is_cut(role) ? sum_over_group(tp, dX, err) : OK;
}

static void linear_backward_weight(struct tensor_parallel *tp, enum param_role role, struct tensor dW, struct tensor db,
                                   struct tensor dY, struct tensor X)
{
    (void)role;
    dev_linear_backward_weight(tp->device, dW, db, dY, X);
}

static enum error_code embedding_forward(struct tensor_parallel *tp, struct tensor Y, struct tensor ids, struct tensor W, struct error *err)
{
    dev_embedding_forward(tp->device, Y, ids, W, tp->token, false);
    return sum_over_group(tp, Y, err);
}

static void embedding_backward_weight(struct tensor_parallel *tp, struct tensor dW, struct tensor dY, struct tensor ids)
{
    dev_embedding_backward_weight(tp->device, dW, dY, ids, tp->token);
}

/* total and hit are neighbours in memory, so that one all-reduce sums both. */
static enum error_code cross_entropy_forward(struct tensor_parallel *tp, double *loss, struct tensor top, struct tensor total,
                                             struct tensor hit, struct tensor logits, struct tensor labels, struct error *err)
{
    const int64_t N = tensor_count(top);
    const struct tensor sums = tensor_1d(total.data, total.dtype, 2 * N);
    dev_cross_entropy_max(tp->device, top, logits);
    enum error_code e = allreduce(tp->group, top.data, N, top.dtype, MAX, tp->allreduce, err);
    if (e) return e;
    dev_cross_entropy_sums(tp->device, total, hit, logits, top, labels, tp->token);
    e = sum_over_group(tp, sums, err);
    if (!e) *loss = dev_cross_entropy_loss(tp->device, total, top, hit, labels, IGNORE_LABEL);
    return e;
}

static void cross_entropy_backward(struct tensor_parallel *tp, struct tensor dlogits, struct tensor logits, struct tensor total,
                                   struct tensor top, struct tensor labels, double scale)
{
    dev_cross_entropy_backward(tp->device, dlogits, logits, total, top, labels, tp->token, IGNORE_LABEL, scale);
}

static struct collective_cost cost(const struct tensor_parallel *tp, struct tensor_cost_request q)
{
    const int64_t ND = q.N * tp->config->D;
    const enum dtype t = tp->device->dtype, few = dtype_wide(t);
    const struct { int64_t count, times; enum dtype dtype; } part[] = {
        { ND, 4 * q.layers, t },                    /* two each way */
        { ND, q.embedding, t },                     /* the sum of the looked-up rows */
        { ND, q.head, t }, { q.N, q.head, few }, { 2 * q.N, q.head, few },      /* gradient of the last input; maxima; sums */
    };
    struct collective_cost sum = { 0 };
    for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
        const struct collective call = { .count = part[i].count, .dtype = part[i].dtype };
        const struct collective_cost one = group_cost(tp->group, ALLREDUCE, tp->allreduce, &call);
        sum.messages += one.messages * (uint64_t)part[i].times;
        sum.bytes += one.bytes * (uint64_t)part[i].times;
        sum.additions += one.additions * (uint64_t)part[i].times;
    }
    return sum;
}

const struct tensor_scheme tensor_scheme_1d = {
    .name = "1d", .description = "columns, then rows; one all-reduce a pair of matrices, each way",
    .source = "Megatron-LM, arXiv:1909.08053", .volume = "8 N D (P-1)/P elements a layer and microbatch",
    .memory = "weights 1/P (norms, positions and biases of width D whole); activations of width D whole",
    .check = check, .share = share, .layout = layout, .replicated = replicated,
    .linear_forward = linear_forward, .linear_backward_input = linear_backward_input,
    .linear_backward_weight = linear_backward_weight,
    .embedding_forward = embedding_forward, .embedding_backward_weight = embedding_backward_weight,
    .cross_entropy_forward = cross_entropy_forward, .cross_entropy_backward = cross_entropy_backward, .cost = cost,
};
