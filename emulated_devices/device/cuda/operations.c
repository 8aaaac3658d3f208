/* operations.c -- the operations of `ops`: where their operands are, and which kernel computes them; products by
 * cuBLAS.
 *
 * compute.h calls the table of gpu_operations, which backend.c has as its `ops`.  Each function finds its operands
 * (operands.c), launches a kernel (kernels/) and calls done.  An error of the GPU ends the program.
 */
#include "emulated_devices/device/cuda/kernels/kernels.h"
#include "emulated_devices/device/cuda/operands.h"
#include "emulated_devices/device/cuda/parts.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define T struct tensor

/* ---- products ---------------------------------------------------------------------------------------------------- */

static const cudaDataType formats[] = { [F32] = CUDA_R_32F, [F64] = CUDA_R_64F,
                                        [BF16] = CUDA_R_16BF, [F16] = CUDA_R_16F };

/* cuBLAS refuses a leading dimension of 0, which a matrix without columns would have. */
static int as_int(int64_t n) { return n > 0 ? (int)n : 1; }

/* C [m,n] = op(A) [m,k] op(B) [k,n], or += if add; all by rows, which are columns of what cuBLAS sees. */
static void operations_product(enum dtype dtype, enum dtype tc, bool transpose_a, bool transpose_b, int64_t m,
                               int64_t n, int64_t k,
                               const void *A, int64_t lda, const void *B, int64_t ldb, bool add, void *C, int64_t ldc)
{
    const float one = 1, beta = add;
    const double one_64 = 1, beta_64 = add;
    const void *factor = dtype == F64 ? (const void *)&one_64 : &one, *kept = dtype == F64
        ? (const void *)&beta_64 : &beta;
    if (m == 0 || n == 0) return;
    /* cuBLAS sees columns, so A and B change places: C' [n, m] = op(B)' [n, k] op(A)' [k, m]. */
    const cublasStatus_t e =
        cublasGemmEx(gpu.blas, transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N, transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, (int)n,
                     (int)m, (int)k, factor, B, formats[dtype], as_int(ldb), A, formats[dtype], as_int(lda), kept, C,
                     formats[tc], as_int(ldc), dtype == F64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F,
                     CUBLAS_GEMM_DEFAULT);
    if (e == CUBLAS_STATUS_SUCCESS) return;
    fprintf(stderr, "orrery: GPU %d, %s: cuBLAS: status %d\n", gpu.number, gpu.name, (int)e);
    abort();
}

/* A matrix as a product takes it: itself, or a copy for the operation.  A copy has the format in which the product is
 * computed; and it begins at a multiple of 16 bytes, because cuBLAS adds in another order where a matrix does not.  So
 * the bits of a product do not depend on where its operands lie. */
struct formatted { void *data, *copy; size_t bytes; enum dtype dtype; };

enum { PLACE = 16 };
static bool at_a_place(const void *x) { return (uintptr_t)x % PLACE == 0; }

/* Operands of two formats, as a router's in 16-bit runs, meet in fp32. */
static enum dtype common_format(T A, T B) { return A.dtype == B.dtype ? A.dtype : F32; }

/* A matrix in a format and at a place; filled says whether the copy gets the matrix's numbers. */
static struct formatted formatted(T X, void *x, enum dtype dtype, bool filled)
{
    const int64_t n = tensor_count(X);
    struct formatted f = { .data = x, .bytes = (size_t)n * dtype_size(dtype), .dtype = dtype };
    if (n == 0 || (X.dtype == dtype && at_a_place(x))) return f;
    f.data = f.copy = memory_take(f.bytes);
    if (f.copy == NULL) must(cudaErrorMemoryAllocation, "memory for a product");
    if (filled) cuda_convert(dtype, f.copy, X.dtype, x, n);
    return f;
}

static struct formatted in_format(struct operands *operands, T X, enum dtype dtype)
{
    return formatted(X, input(operands, X), dtype, true);
}

/* Where a product of operands in format t leaves its result: fp32 can only be stored as fp32. */
static struct formatted result_of(T Y, void *y, enum dtype dtype, bool add)
{
    return formatted(Y, y, dtype != F32 ? Y.dtype : F32, add);
}

static void operations_drop(struct formatted formatted) { memory_give(formatted.copy, formatted.bytes); }

/* Copy a result from its place for the product to the tensor, rounded to its format. */
static void operations_finish(T Y, void *y, struct formatted formatted)
{
    if (formatted.copy != NULL) cuda_convert(Y.dtype, y, formatted.dtype, formatted.copy, tensor_count(Y));
    operations_drop(formatted);
}

/* Y [N, O] = X [N, in] W' [in, O] + b, or += without b if add.  The bias fills the rows of Y first. */
static void linear(T Y, T X, T W, T b, bool add, const char *operation)
{
    struct operands s = { 0 };
    const int64_t N = tensor_rows(X), in = tensor_cols(X), O = tensor_cols(Y);
    const enum dtype t = common_format(X, W);
    void *y = out(&s, Y);
    const struct formatted x = in_format(&s, X, t), w = in_format(&s, W, t), to = result_of(Y, y, t, add);
    struct formatted bias = { 0 };
    if (tensor_present(b)) bias = in_format(&s, b, to.dtype), cuda_fill_rows(to.dtype, to.data, bias.data, N, O);
    operations_product(t, to.dtype, false, true, N, O, in, x.data, in, w.data, in,
                       add || tensor_present(b), to.data, O);
    operations_finish(Y, y, to), operations_drop(bias), operations_drop(w), operations_drop(x);
    done(&s, operation);
}

static void linear_forward(T Y, T X, T W, T b) { linear(Y, X, W, b, false, "linear_forward"); }

static void linear_forward_add(T Y, T X, T W) { linear(Y, X, W, (T){ 0 }, true, "linear_forward_add"); }

/* dX [N, in] = dY [N, O] W [O, in]. */
static void linear_backward_input(T dX, T dY, T W)
{
    struct operands s = { 0 };
    const int64_t N = tensor_rows(dX), in = tensor_cols(dX), O = tensor_cols(dY);
    const enum dtype t = common_format(dY, W);
    void *dx = out(&s, dX);
    const struct formatted dy = in_format(&s, dY, t), w = in_format(&s, W, t), to = result_of(dX, dx, t, false);
    operations_product(t, to.dtype, false, false, N, in, O, dy.data, O, w.data, in, false, to.data, in);
    operations_finish(dX, dx, to), operations_drop(w), operations_drop(dy);
    done(&s, "linear_backward_input");
}

/* db [O] += sum over the N rows of dY [N, O]. */
static void column_sums(T db, T dY)
{
    struct operands s = { 0 };
    void *own = out(&s, db);
    const struct formatted to = result_of(db, own, dY.dtype, true);
    cuda_column_sums(dY.dtype, to.dtype, to.data, input(&s, dY), tensor_rows(dY), tensor_cols(dY));
    operations_finish(db, own, to);
    done(&s, "column_sums");
}

/* dW [O, in] += dY' [O, N] X [N, in], and db += the columns' sums. */
static void linear_backward_weight(T dW, T db, T dY, T X)
{
    struct operands s = { 0 };
    const int64_t N = tensor_rows(X), in = tensor_cols(X), O = tensor_cols(dY);
    const enum dtype t = common_format(X, dY);
    void *dw = out(&s, dW);
    const struct formatted dy = in_format(&s, dY, t), x = in_format(&s, X, t), to = result_of(dW, dw, t, true);
    operations_product(t, to.dtype, true, false, O, in, N, dy.data, O, x.data, in, true, to.data, in);
    operations_finish(dW, dw, to), operations_drop(x), operations_drop(dy);
    done(&s, "linear_backward_weight");
    if (tensor_present(db)) column_sums(db, dY);
}

/* ---- the others -------------------------------------------------------------------------------------------------- */

/* Y [N, D] = row ids[n] - first of W, or zeros where this device has no such row; += if accumulate. */
static void embedding_forward(T Y, T ids, T W, int64_t first, bool accumulate)
{
    struct operands s = { 0 };
    cuda_embedding_forward(Y.dtype, out(&s, Y), input(&s, ids), input(&s, W), tensor_count(ids), tensor_cols(Y),
                           tensor_rows(W), first, accumulate);
    done(&s, "embedding_forward");
}

/* dW [rows, D] += dY's rows, by ids, in order of tokens.  The scratch has links, two whole numbers for each token. */
static void embedding_backward_weight(T dW, T dY, T ids, int64_t first)
{
    struct operands s = { 0 };
    const int64_t N = tensor_count(ids);
    cuda_embedding_backward_weight(dY.dtype, dW.dtype, out(&s, dW), input(&s, dY), input(&s, ids),
                                   scratch((size_t)N * 2 * sizeof(int32_t)), N, tensor_cols(dY), tensor_rows(dW),
                                   first);
    done(&s, "embedding_backward_weight");
}

static void layernorm_forward(T Y, T mean, T rstd, T X, T w, double base, T b, double eps)
{
    struct operands s = { 0 };
    cuda_layernorm_forward(X.dtype, out(&s, Y), out(&s, mean), out(&s, rstd), input(&s, X), input(&s, w), input(&s, b),
                           tensor_rows(X), tensor_cols(X), base, eps);
    done(&s, "layernorm_forward");
}

static void layernorm_backward_input(T dX, T dY, T X, T w, double base, T mean, T rstd)
{
    struct operands s = { 0 };
    cuda_layernorm_backward_input(X.dtype, out(&s, dX), input(&s, dY), input(&s, X), input(&s, w), input(&s, mean),
                                  input(&s, rstd), tensor_rows(X), tensor_cols(X), base);
    done(&s, "layernorm_backward_input");
}

static void layernorm_backward_weight(T dw, T db, T dY, T X, T mean, T rstd)
{
    struct operands s = { 0 };
    cuda_layernorm_backward_weight(X.dtype, dw.dtype, out(&s, dw), out(&s, db), input(&s, dY), input(&s, X),
                                   input(&s, mean), input(&s, rstd), tensor_rows(X), tensor_cols(X));
    done(&s, "layernorm_backward_weight");
}

/* Each of the N rows: y = x rstd (base + w); rstd is kept for the backward pass. */
static void rmsnorm_forward(T Y, T rstd, T X, T w, double base, double eps)
{
    struct operands s = { 0 };
    cuda_rmsnorm_forward(X.dtype, out(&s, Y), out(&s, rstd), input(&s, X), input(&s, w), tensor_rows(X), tensor_cols(X),
                         base, eps);
    done(&s, "rmsnorm_forward");
}

static void rmsnorm_backward_input(T dX, T dY, T X, T w, double base, T rstd)
{
    struct operands s = { 0 };
    cuda_rmsnorm_backward_input(X.dtype, out(&s, dX), input(&s, dY), input(&s, X), input(&s, w), input(&s, rstd),
                                tensor_rows(X), tensor_cols(X), base);
    done(&s, "rmsnorm_backward_input");
}

static void rmsnorm_backward_weight(T dw, T dY, T X, T rstd)
{
    struct operands s = { 0 };
    cuda_rmsnorm_backward_weight(X.dtype, dw.dtype, out(&s, dw), input(&s, dY), input(&s, X), input(&s, rstd),
                                 tensor_rows(X), tensor_cols(X));
    done(&s, "rmsnorm_backward_weight");
}

/* The kernels have structs of their own, so that .cu files include no header of the model. */
static struct cuda_dropout dropout_of(struct dropout dropout)
{
    return (struct cuda_dropout){ dropout.p, dropout.seed, dropout.stream, dropout.row0, dropout.col0, dropout.cols };
}

static struct cuda_attention attention_of(struct operands *operands, struct attention attention)
{
    return (struct cuda_attention){ .S = attention.S, .H = attention.H, .K = attention.K, .A = attention.A,
                                   .window = attention.window, .more = attention.more,
                                    .each = attention.each > 0 ? attention.each : attention.S,
                                        .ranges = tensor_cols(attention.mask) / 2,
                                    .scale = attention.scale, .cap = attention.cap,
                                        .mask = input(operands, attention.mask),
                                    .mask_each = tensor_present(attention.mask)
                                        && tensor_rows(attention.mask) != attention.S,
                                    .sinks = input(operands, attention.sinks), .drop = dropout_of(attention.drop) };
}

/* O [N, H A] from QKV [N, (H + 2 K) A], sequence by sequence; lse, N H numbers, is kept for the backward pass. */
static void attention_forward(T O, T lse, T QKV, struct attention attention)
{
    struct operands s = { 0 };
    cuda_attention_forward(QKV.dtype, out(&s, O), out(&s, lse), input(&s, QKV), attention_of(&s, attention),
                           attention.S > 0 ? tensor_rows(QKV) / attention.S : 0);
    done(&s, "attention_forward");
}

/* The scratch has a number for each row and head: the sum over A of dO times O. */
static void attention_backward_input(T dQKV, T dO, T O, T lse, T QKV, struct attention attention)
{
    struct operands s = { 0 };
    const int64_t N = tensor_rows(QKV);
    cuda_attention_backward_input(QKV.dtype, out(&s, dQKV), scratch((size_t)(N * attention.H) * sizeof(double)),
                                  input(&s, dO),
                                  input(&s, O), input(&s, lse), input(&s, QKV), attention_of(&s, attention),
                                  attention.S > 0 ? N / attention.S : 0);
    done(&s, "attention_backward_input");
}

/* Pairs of elements of q and k turn by the angles in the table; the backward pass turns them back. */
static void rotate(T QKV, T positions, T table, struct attention attention, int direction)
{
    struct operands s = { 0 };
    cuda_rotary(QKV.dtype, table.dtype, out(&s, QKV), input(&s, positions), input(&s, table), tensor_rows(QKV),
                tensor_cols(QKV), attention.H + attention.K, attention.A, tensor_cols(table),
                attention.neighbours, direction);
    done(&s, "rotary");
}
static void rotary_forward(T QKV, T positions, T table, struct attention attention)
{
    rotate(QKV, positions, table, attention, 1);
}
static void rotary_backward_input(T dQKV, T positions, T table, struct attention attention)
{
    rotate(dQKV, positions, table, attention, -1);
}

/* Y = how(X) element by element; a gated activation has an X of two halves. */
static void activate(enum cuda_activation how, T Y, T X)
{
    struct operands s = { 0 };
    cuda_activation_forward(X.dtype, how, out(&s, Y), input(&s, X), tensor_count(Y), tensor_cols(Y));
    done(&s, "an activation");
}
static void activate_backward(enum cuda_activation how, T dX, T dY, T X)
{
    struct operands s = { 0 };
    cuda_activation_backward(X.dtype, how, out(&s, dX), input(&s, dY), input(&s, X), tensor_count(dY), tensor_cols(dY));
    done(&s, "an activation's gradient");
}
#define ACTIVATION(name, how)                                                                                          \
    static void name##_forward(T Y, T X) { activate(how, Y, X); }                                                      \
    static void name##_backward_input(T dX, T dY, T X) { activate_backward(how, dX, dY, X); }
ACTIVATION(gelu, CUDA_GELU)
ACTIVATION(exact_gelu, CUDA_EXACT_GELU)
ACTIVATION(squared_relu, CUDA_SQUARED_RELU)
ACTIVATION(silu, CUDA_SILU)
ACTIVATION(geglu, CUDA_GEGLU)
ACTIVATION(swiglu, CUDA_SWIGLU)

static void gate_forward(T Y, T X, T logits)
{
    struct operands s = { 0 };
    cuda_gate_forward(X.dtype, out(&s, Y), input(&s, X), input(&s, logits), tensor_rows(X), tensor_cols(X));
    done(&s, "gate_forward");
}

static void gate_backward_input(T dX, T dlogits, T dY, T X, T logits)
{
    struct operands s = { 0 };
    cuda_gate_backward_input(X.dtype, out(&s, dX), out(&s, dlogits), input(&s, dY), input(&s, X), input(&s, logits),
                             tensor_rows(X), tensor_cols(X));
    done(&s, "gate_backward_input");
}

/* X [N, D P] from H [P N, D]: column d P + i of X is column d of stream i.  The backward pass moves dX back. */
static void streams_beside(T X, T H)
{
    struct operands s = { 0 };
    const int64_t N = tensor_rows(X);
    cuda_streams_beside(X.dtype, out(&s, X), input(&s, H), N, tensor_cols(H), N > 0 ? tensor_rows(H) / N : 1, false);
    done(&s, "streams_beside");
}

static void streams_beside_backward_input(T dH, T dX)
{
    struct operands s = { 0 };
    const int64_t N = tensor_rows(dX);
    cuda_streams_beside(dX.dtype, out(&s, dH), input(&s, dX), N, tensor_cols(dH), N > 0 ? tensor_rows(dH) / N : 1,
                        true);
    done(&s, "streams_beside_backward_input");
}

/* Y [N, D] is the sum of the P streams of X, weighted by the smoothed p [N, P] = softmax(logits). */
static void streams_mix_forward(T Y, T p, T logits, T X, double smoothing)
{
    struct operands s = { 0 };
    cuda_streams_mix_forward(X.dtype, logits.dtype, out(&s, Y), out(&s, p), input(&s, logits), input(&s, X),
                             tensor_rows(Y), tensor_cols(Y), tensor_cols(p), smoothing);
    done(&s, "streams_mix_forward");
}

static void streams_mix_backward_input(T dX, T dlogits, T dY, T p, T X, double smoothing)
{
    struct operands s = { 0 };
    const int64_t N = tensor_rows(dY), P = tensor_cols(p);
    cuda_streams_mix_backward_input(X.dtype, dlogits.dtype, out(&s, dX), out(&s, dlogits),
                                    scratch((size_t)(N * P) * sizeof(double)), input(&s, dY), input(&s, p),
                                    input(&s, X), N, tensor_cols(dY), P, smoothing);
    done(&s, "streams_mix_backward_input");
}

/* weights [N, k] of the chosen experts [N, k] from the logits [N, E], by the router's rule. */
static void route_weights(T weights, T experts, T logits, const struct router_rule *rule)
{
    struct operands s = { 0 };
    const struct cuda_router r = { .scale = rule->scale, .near_by = rule->near,
                                   .sigmoid = rule->scores == SCORES_SIGMOID, .normalized = rule->normalized,
                                   .near = rule->scores == SCORES_NEAR };
    cuda_route_weights(weights.dtype, logits.dtype, out(&s, weights), input(&s, experts), input(&s, logits),
                       tensor_rows(logits), tensor_cols(logits), tensor_cols(weights), r);
    done(&s, "route_weights");
}

static void add(T Y, T A, T B)
{
    struct operands s = { 0 };
    cuda_add(Y.dtype, out(&s, Y), input(&s, A), input(&s, B), tensor_count(Y));
    done(&s, "add");
}

/* Without dropout the operation is a copy, or nothing in place. */
static void dropout(T Y, T X, struct dropout d)
{
    struct operands s = { 0 };
    void *y = out(&s, Y);
    const void *x = input(&s, X);
    if (d.p > 0) cuda_dropout(X.dtype, y, x, tensor_rows(X), tensor_cols(X), dropout_of(d));
    else if (x != y && tensor_bytes(X) > 0) must(cudaMemcpy(y, x, tensor_bytes(X), cudaMemcpyDefault), "dropout");
    done(&s, "dropout");
}

static void cross_entropy_max(T top, T logits)
{
    struct operands s = { 0 };
    cuda_cross_entropy_max(logits.dtype, out(&s, top), input(&s, logits), tensor_rows(logits), tensor_cols(logits));
    done(&s, "cross_entropy_max");
}

static void cross_entropy_sums(T total, T hit, T logits, T top, T labels, int64_t first)
{
    struct operands s = { 0 };
    cuda_cross_entropy_sums(logits.dtype, out(&s, total), out(&s, hit), input(&s, logits), input(&s, top),
                            input(&s, labels), tensor_count(labels), tensor_cols(logits), first);
    done(&s, "cross_entropy_sums");
}

/* The loss is a single number, which the host waits for. */
static void cross_entropy_loss(double *loss, T total, T top, T hit, T labels, int ignore)
{
    struct operands s = { 0 };
    double *there = scratch(sizeof *loss);
    cuda_cross_entropy_loss(total.dtype, there, input(&s, total), input(&s, top), input(&s, hit), input(&s, labels),
                            tensor_count(labels), ignore);
    must(cudaMemcpy(loss, there, sizeof *loss, cudaMemcpyDeviceToHost), "cross_entropy_loss");
    done(&s, "cross_entropy_loss");
}

static void cross_entropy_backward(T dlogits, T logits, T total, T top, T labels, int64_t first, int ignore,
                                   double scale)
{
    struct operands s = { 0 };
    cuda_cross_entropy_backward(logits.dtype, out(&s, dlogits), input(&s, logits), input(&s, total), input(&s, top),
                                input(&s, labels), tensor_count(labels), tensor_cols(logits), first, ignore, scale);
    done(&s, "cross_entropy_backward");
}

static void columns_move(T Y, T X, struct column_blocks at, bool add)
{
    struct operands s = { 0 };
    cuda_columns_move(X.dtype, out(&s, Y), input(&s, X), tensor_rows(X), tensor_cols(Y), tensor_cols(X),
                      (struct cuda_blocks){ at.times, at.count, at.y, at.y_step, at.x, at.x_step }, add);
    done(&s, "columns_move");
}

/* Each block of the GPU sums a span; the host adds their sums in order, so that the bits do not vary. */
static void sum_of_squares(double *squares, T X)
{
    struct operands s = { 0 };
    const size_t blocks = ((size_t)tensor_count(X) + CUDA_SQUARES_SPAN - 1) / CUDA_SQUARES_SPAN;
    double sum = 0, *there = scratch(blocks * sizeof sum), *here = malloc(blocks * sizeof sum + 1);
    if (here == NULL) fprintf(stderr, "orrery: no memory for a sum of squares\n"), abort();
    cuda_sum_of_squares(X.dtype, there, input(&s, X), tensor_count(X));
    if (blocks > 0) must(cudaMemcpy(here, there, blocks * sizeof sum, cudaMemcpyDeviceToHost), "sum_of_squares");
    for (size_t i = 0; i < blocks; i++) sum += here[i];
    free(here);
    done(&s, "sum_of_squares");
    *squares = sum;
}

static void scale(T Y, T X, double a)
{
    struct operands s = { 0 };
    cuda_scale(Y.dtype, out(&s, Y), input(&s, X), tensor_count(Y), a);
    done(&s, "scale");
}

/* Every REQUIRED operation of ops.def has a function above; of the OPTIONAL ones, two. */
const struct ops *gpu_operations(enum dtype dtype)
{
    static const struct ops table = {
#define ENTRY_REQUIRED(name) .name = name,
#define ENTRY_OPTIONAL(name)
#define OPERATION(name, need, operands, cost) ENTRY_##need(name)
#include "ref/ops/ops.def"
        .linear_forward_add = linear_forward_add, .column_sums = column_sums,
    };
    static struct ops of_format[DTYPE_COUNT];
    if (ops_for(dtype) == NULL) return NULL;
    of_format[dtype] = table;
    of_format[dtype].dtype = dtype;
    return &of_format[dtype];
}
