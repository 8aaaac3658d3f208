/* cuda -- computes on a GPU: products by cuBLAS, all else by the kernels beside this file.  Compiled with CUDA_EMULATED
 * it is cuda-emulated: the same kernels on this machine's cores (emulated/).
 *
 * One stream, so operations follow each other.  Operands in the host's memory (ids, labels, what the slow tier holds)
 * are copied to the device for one operation.  Entries that are not here the host computes, through views (generic.c).
 * A GPU that fails while it computes ends the program, with one line: operations cannot fail.
 */
#include "emulated_devices/device/backend.h"
#include "emulated_devices/device/cuda/kernels/kernels.h"
#include "emulated_devices/device/cuda/operands.h"
#include "ref/optim/factors.h"
#include "ref/optim/table.h"
#include <cublas_v2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef NAME                             /* kernels that are tried alone */
#elif defined CUDA_EMULATED
#define NAME "cuda-emulated"
#else
#define NAME "cuda"
#endif

#define T struct tensor

/* ---- the GPU ----------------------------------------------------------------------------------------------------- */

/* All devices of a process share one GPU. */
static struct { int users; cublasHandle_t blas; } gpu;

struct view {
    struct view *next;
    void *data;                         /* the device's */
    size_t bytes;
    bool writes;
    max_align_t shown[];
};
struct cuda { struct view *views; };

static struct cuda *of(struct device *d) { return d->state; }

/* Which GPU is this process's: the one named, or by its number among the processes of this machine; -1: no number is
 * named. */
static int chosen_gpu(int count)
{
    static const char *const local[] = { "MPI" "_LOCALRANKID",          /* a variable, no call */
                                        "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID" };
    const char *named = getenv("ORRERY_GPU");
    if (named != NULL && *named != '\0')
        return strlen(named) < 5 && strspn(named, "0123456789") == strlen(named) ? atoi(named) : -1;
    for (size_t i = 0; i < sizeof local / sizeof *local; i++)
        if (getenv(local[i]) != NULL) return atoi(getenv(local[i])) % count;
    return 0;
}

static enum error_code start_gpu(struct error *err)
{
    struct cudaDeviceProp p;
    int count = 0;
    cudaError_t e = cudaGetDeviceCount(&count);
    if (e == cudaErrorInsufficientDriver)
        return fail(err, ERR_DEVICE, "--backend " NAME ": the GPU's driver is missing, or older than this program's "
                                     "CUDA");
    if (e != cudaSuccess || count == 0)
        return fail(err, ERR_DEVICE, "--backend " NAME ": there is no GPU on this machine; --backend cpu needs none");
    const int chosen = chosen_gpu(count);
    if (chosen < 0 || chosen >= count)
        return fail(err, ERR_DEVICE, "ORRERY_GPU=%s: this machine has %d GPU%s, numbered from 0", getenv("ORRERY_GPU"),
                    count, count == 1 ? "" : "s");
    if ((e = cudaSetDevice(chosen)) != cudaSuccess || (e = cudaGetDeviceProperties(&p, chosen)) != cudaSuccess)
        return fail(err, ERR_DEVICE, "--backend " NAME ": GPU %d cannot be used: %s", chosen, cudaGetErrorString(e));
    cuda_probe();
    e = cudaGetLastError();
    if (e == cudaSuccess) e = cudaDeviceSynchronize();
    if (e == cudaErrorNoKernelImageForDevice)
        return fail(err, ERR_DEVICE, "--backend " NAME ": the kernels were not built for %s (compute_%d%d): "
                                  "make CUDA=1 CUDA_ARCH=%d%d", p.name, p.major, p.minor, p.major, p.minor);
    if (e != cudaSuccess)
        return fail(err, ERR_DEVICE, "--backend " NAME ": no kernel runs on %s: %s", p.name, cudaGetErrorString(e));
    if (cublasCreate(&gpu.blas) != CUBLAS_STATUS_SUCCESS)
        return fail(err, ERR_DEVICE, "--backend " NAME ": cuBLAS cannot start on %s: is its memory full?", p.name);
    return OK;
}

static enum error_code open_it(struct device *d, struct error *err)
{
    struct cuda *c = calloc(1, sizeof *c);
    const enum error_code e = c == NULL ? fail(err, ERR_MEMORY, "no memory") : gpu.users == 0 ? start_gpu(err) : OK;
    if (e) {
        free(c);
        return e;
    }
    gpu.users++;
    d->state = c;
    return OK;
}

static void close_it(struct device *d)
{
    if (of(d)->views != NULL) fprintf(stderr, "orrery: a host view was never given back\n"), abort();
    free(of(d));
    if (--gpu.users == 0) cublasDestroy(gpu.blas), operands_end();
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static void *allocate(struct device *d, size_t bytes)
{
    void *p = NULL;
    (void)d;
    if (cudaMalloc(&p, bytes) == cudaSuccess) return p;
    (void)cudaGetLastError();                   /* full: it is the arena that says so */
    return NULL;
}

static void release(struct device *d, void *p, size_t bytes)
{
    (void)d, (void)bytes;
    must(cudaFree(p), "cudaFree");
}

/* A copy to memory that it reads goes through other memory. */
static void copy_overlapping(void *to, const void *from, size_t bytes)
{
    void *between = scratch(bytes);
    must(cudaMemcpy(between, from, bytes, cudaMemcpyDefault), "a copy");
    must(cudaMemcpy(to, between, bytes, cudaMemcpyDefault), "a copy");
}

static void copy(struct device *d, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t width,
                 size_t rows)
{
    (void)d;
    if (width == 0 || rows == 0) return;
    if (!on_gpu(to) && !on_gpu(from))
        for (size_t r = 0; r < rows; r++)
            memmove((char *)to + r * to_pitch, (const char *)from + r * from_pitch, width);
    else if (rows > 1) must(cudaMemcpy2D(to, to_pitch, from, from_pitch, width, rows, cudaMemcpyDefault), "a copy");
    else if ((char *)to < (const char *)from + width && (const char *)from < (char *)to + width)
        copy_overlapping(to, from, width);
    else must(cudaMemcpy(to, from, width, cudaMemcpyDefault), "a copy");
}

static struct view *view(struct device *d, void *data, size_t bytes, bool writes)
{
    struct view *v = malloc(sizeof *v + bytes);
    if (v == NULL) fprintf(stderr, "orrery: no memory for a host view of %zu bytes\n", bytes), abort();
    *v = (struct view){ .next = of(d)->views, .data = data, .bytes = bytes, .writes = writes };
    must(cudaMemcpy(v->shown, data, bytes, cudaMemcpyDeviceToHost), "a host view");
    return of(d)->views = v;
}

static const void *host_reads(struct device *d, const void *data, size_t bytes)
{
    return on_gpu(data) ? view(d, (void *)(uintptr_t)data, bytes, false)->shown : data;
}

static void *host_writes(struct device *d, void *data, size_t bytes)
{
    return on_gpu(data) ? view(d, data, bytes, true)->shown : data;
}

static void host_gives_back(struct device *d, const void *shown)
{
    struct view **at = &of(d)->views, *v;
    while ((v = *at) != NULL && (const void *)v->shown != shown) at = &v->next;
    if (v == NULL) return;                                      /* the host's own memory */
    if (v->writes) must(cudaMemcpy(v->data, v->shown, v->bytes, cudaMemcpyHostToDevice), "a host view");
    *at = v->next;
    free(v);
}

/* ---- products ---------------------------------------------------------------------------------------------------- */

static const cudaDataType formats[] = { [F32] = CUDA_R_32F, [F64] = CUDA_R_64F,
                                        [BF16] = CUDA_R_16BF, [F16] = CUDA_R_16F };

static int as_int(int64_t n) { return n > 0 ? (int)n : 1; }

/* C [m,n] = op(A) [m,k] op(B) [k,n], or += if add; all by rows, which are columns of what cuBLAS sees. */
static void product(enum dtype t, enum dtype tc, bool transpose_a, bool transpose_b, int64_t m, int64_t n, int64_t k,
                    const void *A, int64_t lda, const void *B, int64_t ldb, bool add, void *C, int64_t ldc)
{
    const float one = 1, beta = add;
    const double one_64 = 1, beta_64 = add;
    const void *factor = t == F64 ? (const void *)&one_64 : &one, *kept = t == F64 ? (const void *)&beta_64 : &beta;
    if (m == 0 || n == 0) return;
    const cublasStatus_t e =
        cublasGemmEx(gpu.blas, transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N, transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N, (int)n,
                     (int)m, (int)k, factor, B, formats[t], as_int(ldb), A, formats[t], as_int(lda), kept, C,
                     formats[tc], as_int(ldc), t == F64 ? CUBLAS_COMPUTE_64F : CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
    if (e != CUBLAS_STATUS_SUCCESS) fprintf(stderr, "orrery: the GPU: cuBLAS: status %d\n", (int)e), abort();
}

static void linear_forward(T Y, T X, T W, T b)
{
    struct operands s = { 0 };
    const int64_t N = tensor_rows(X), in = tensor_cols(X), O = tensor_cols(Y);
    void *y = out(&s, Y);
    if (tensor_present(b)) cuda_fill_rows(Y.dtype, y, input(&s, b), N, O);
    product(X.dtype, Y.dtype, false, true, N, O, in, input(&s, X), in, input(&s, W), in, tensor_present(b), y, O);
    done(&s, "linear_forward");
}

static void linear_forward_add(T Y, T X, T W)
{
    struct operands s = { 0 };
    const int64_t N = tensor_rows(X), in = tensor_cols(X), O = tensor_cols(Y);
    product(X.dtype, Y.dtype, false, true, N, O, in, input(&s, X), in, input(&s, W), in, true, out(&s, Y), O);
    done(&s, "linear_forward_add");
}

static void linear_backward_input(T dX, T dY, T W)
{
    struct operands s = { 0 };
    const int64_t N = tensor_rows(dX), in = tensor_cols(dX), O = tensor_cols(dY);
    product(dY.dtype, dX.dtype, false, false, N, in, O, input(&s, dY), O, input(&s, W), in, false, out(&s, dX), in);
    done(&s, "linear_backward_input");
}

static void column_sums(T db, T dY)
{
    struct operands s = { 0 };
    cuda_column_sums(dY.dtype, db.dtype, out(&s, db), input(&s, dY), tensor_rows(dY), tensor_cols(dY));
    done(&s, "column_sums");
}

static void linear_backward_weight(T dW, T db, T dY, T X)
{
    struct operands s = { 0 };
    const int64_t N = tensor_rows(X), in = tensor_cols(X), O = tensor_cols(dY);
    product(X.dtype, dW.dtype, true, false, O, in, N, input(&s, dY), O, input(&s, X), in, true, out(&s, dW), in);
    done(&s, "linear_backward_weight");
    if (tensor_present(db)) column_sums(db, dY);
}

/* ---- the others -------------------------------------------------------------------------------------------------- */

static void embedding_forward(T Y, T ids, T W, int64_t first, bool accumulate)
{
    struct operands s = { 0 };
    cuda_embedding_forward(Y.dtype, out(&s, Y), input(&s, ids), input(&s, W), tensor_count(ids), tensor_cols(Y),
                           tensor_rows(W), first, accumulate);
    done(&s, "embedding_forward");
}

static void embedding_backward_weight(T dW, T dY, T ids, int64_t first)
{
    struct operands s = { 0 };
    const int64_t N = tensor_count(ids);
    cuda_embedding_backward_weight(dY.dtype, dW.dtype, out(&s, dW), input(&s, dY), input(&s, ids),
                                   scratch((size_t)N * 2 * sizeof(int32_t)), N, tensor_cols(dY), tensor_rows(dW),
                                   first);
    done(&s, "embedding_backward_weight");
}

static void layernorm_forward(T Y, T mean, T rstd, T X, T w, T b, double eps)
{
    struct operands s = { 0 };
    cuda_layernorm_forward(X.dtype, out(&s, Y), out(&s, mean), out(&s, rstd), input(&s, X), input(&s, w), input(&s, b),
                           tensor_rows(X), tensor_cols(X), eps);
    done(&s, "layernorm_forward");
}

static void layernorm_backward_input(T dX, T dY, T X, T w, T mean, T rstd)
{
    struct operands s = { 0 };
    cuda_layernorm_backward_input(X.dtype, out(&s, dX), input(&s, dY), input(&s, X), input(&s, w), input(&s, mean),
                                  input(&s, rstd), tensor_rows(X), tensor_cols(X));
    done(&s, "layernorm_backward_input");
}

static void layernorm_backward_weight(T dw, T db, T dY, T X, T mean, T rstd)
{
    struct operands s = { 0 };
    cuda_layernorm_backward_weight(X.dtype, dw.dtype, out(&s, dw), out(&s, db), input(&s, dY), input(&s, X),
                                   input(&s, mean), input(&s, rstd), tensor_rows(X), tensor_cols(X));
    done(&s, "layernorm_backward_weight");
}

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

static struct cuda_dropout dropout_of(struct dropout d)
{
    return (struct cuda_dropout){ d.p, d.seed, d.stream, d.row0, d.col0, d.cols };
}

static struct cuda_attention attention_of(struct operands *s, struct attention a)
{
    return (struct cuda_attention){ .S = a.S, .H = a.H, .K = a.K, .A = a.A, .window = a.window,
                                    .each = a.each > 0 ? a.each : a.S, .ranges = tensor_cols(a.mask) / 2,
                                    .scale = a.scale, .cap = a.cap, .mask = input(s, a.mask),
                                    .mask_each = tensor_present(a.mask) && tensor_rows(a.mask) != a.S,
                                    .sinks = input(s, a.sinks), .drop = dropout_of(a.drop) };
}

static void attention_forward(T O, T lse, T QKV, struct attention a)
{
    struct operands s = { 0 };
    cuda_attention_forward(QKV.dtype, out(&s, O), out(&s, lse), input(&s, QKV), attention_of(&s, a),
                           a.S > 0 ? tensor_rows(QKV) / a.S : 0);
    done(&s, "attention_forward");
}

static void attention_backward_input(T dQKV, T dO, T O, T lse, T QKV, struct attention a)
{
    struct operands s = { 0 };
    cuda_attention_backward_input(QKV.dtype, out(&s, dQKV), input(&s, dO), input(&s, O), input(&s, lse), input(&s, QKV),
                                  attention_of(&s, a), a.S > 0 ? tensor_rows(QKV) / a.S : 0);
    done(&s, "attention_backward_input");
}

static void rotate(T QKV, T positions, T table, struct attention a, int direction)
{
    struct operands s = { 0 };
    cuda_rotary(QKV.dtype, table.dtype, out(&s, QKV), input(&s, positions), input(&s, table), tensor_rows(QKV),
                tensor_cols(QKV), a.H + a.K, a.A, tensor_cols(table), a.neighbours, direction);
    done(&s, "rotary");
}
static void rotary_forward(T QKV, T positions, T table, struct attention a) { rotate(QKV, positions, table, a, 1); }
static void rotary_backward_input(T dQKV, T positions, T table, struct attention a)
{
    rotate(dQKV, positions, table, a, -1);
}

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

static double cross_entropy_loss(T total, T top, T hit, T labels, int ignore)
{
    struct operands s = { 0 };
    double loss = 0, *there = scratch(sizeof loss);
    cuda_cross_entropy_loss(total.dtype, there, input(&s, total), input(&s, top), input(&s, hit), input(&s, labels),
                            tensor_count(labels), ignore);
    must(cudaMemcpy(&loss, there, sizeof loss, cudaMemcpyDeviceToHost), "cross_entropy_loss");
    done(&s, "cross_entropy_loss");
    return loss;
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

static double sum_of_squares(T X)
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
    return sum;
}

static void scale(T Y, double a)
{
    struct operands s = { 0 };
    cuda_scale(Y.dtype, out(&s, Y), tensor_count(Y), a);
    done(&s, "scale");
}

static const struct ops *ops_of(enum dtype t)
{
    static struct ops table = {
        .embedding_forward = embedding_forward, .embedding_backward_weight = embedding_backward_weight,
        .layernorm_forward = layernorm_forward, .layernorm_backward_input = layernorm_backward_input,
        .layernorm_backward_weight = layernorm_backward_weight, .rmsnorm_forward = rmsnorm_forward,
        .rmsnorm_backward_input = rmsnorm_backward_input, .rmsnorm_backward_weight = rmsnorm_backward_weight,
        .linear_forward = linear_forward, .linear_forward_add = linear_forward_add,
        .linear_backward_input = linear_backward_input, .column_sums = column_sums,
        .linear_backward_weight = linear_backward_weight, .attention_forward = attention_forward,
        .attention_backward_input = attention_backward_input, .rotary_forward = rotary_forward,
        .rotary_backward_input = rotary_backward_input, .swiglu_forward = swiglu_forward,
        .swiglu_backward_input = swiglu_backward_input, .geglu_forward = geglu_forward,
        .geglu_backward_input = geglu_backward_input, .gate_forward = gate_forward,
        .gate_backward_input = gate_backward_input, .silu_forward = silu_forward,
        .silu_backward_input = silu_backward_input, .streams_beside = streams_beside,
        .streams_beside_backward_input = streams_beside_backward_input, .streams_mix_forward = streams_mix_forward,
        .streams_mix_backward_input = streams_mix_backward_input, .route_weights = route_weights,
        .gelu_forward = gelu_forward, .gelu_backward_input = gelu_backward_input, .add = add, .dropout = dropout,
        .cross_entropy_max = cross_entropy_max, .cross_entropy_sums = cross_entropy_sums,
        .cross_entropy_loss = cross_entropy_loss, .cross_entropy_backward = cross_entropy_backward,
        .sum_of_squares = sum_of_squares, .scale = scale, .columns_move = columns_move,
    };
    static struct ops of_format[DTYPE_COUNT];
    if (ops_for(t) == NULL) return NULL;
    of_format[t] = table;
    of_format[t].dtype = t;
    return &of_format[t];
}

/* ---- on any tensors; what is in the host's memory, or no number, the host does ----------------------------------- */

static bool number(enum dtype t) { return dtype_unit(t) > 0; }

static void zero(struct device *d, T y)
{
    if (tensor_bytes(y) == 0) return;
    if (on_gpu(y.data)) must(cudaMemset(y.data, 0, tensor_bytes(y)), "zero");
    else generic_zero(d, y);
}

static void convert(struct device *d, T y, T x)
{
    if (tensor_count(y) == 0) return;
    if (!number(y.dtype) || !number(x.dtype) || !on_gpu(y.data) || !on_gpu(x.data)) return generic_convert(d, y, x);
    cuda_convert(y.dtype, y.data, x.dtype, x.data, tensor_count(y));
    must(cudaGetLastError(), "convert");
}

static void reduce(struct device *d, enum reduction how, enum dtype t, void *into, const void *from, int64_t n)
{
    static const enum cuda_reduction as[] = { [SUM] = CUDA_SUM, [AVERAGE] = CUDA_SUM, [PRODUCT] = CUDA_PRODUCT,
                                              [MAX] = CUDA_MAX, [MIN] = CUDA_MIN };
    if (n == 0) return;
    if (!number(t) || !on_gpu(into) || !on_gpu(from)) return generic_reduce(d, how, t, into, from, n);
    cuda_reduce(t, as[how], into, from, n);
    must(cudaGetLastError(), "reduce");
}

static void divide(struct device *d, enum dtype t, void *x, int64_t n, int by)
{
    if (n == 0) return;
    if (!number(t) || !on_gpu(x)) return generic_divide(d, t, x, n, by);
    cuda_divide(t, x, n, by);
    must(cudaGetLastError(), "divide");
}

static void optimizer_steps(struct device *d, const struct optimizer *o, T w, T g, const T *state, struct step s)
{
    const bool adam = o->step_f32 == adamw_step_f32, plain = o->step_f32 == sgd_step_f32;
    const bool here = tensor_count(w) > 0 && on_gpu(w.data) && on_gpu(g.data);
    if (tensor_count(w) == 0) return;
    if (!here || !(adam || plain || o->step_f32 == momentum_step_f32))
        return generic_optimizer_step(d, o, w, g, state, s);
    struct cuda_step f = { .scale = s.gradient_scale, .lr = s.lr };
    if (adam) {
        const struct adam_factors a = adam_factors(s);
        f.beta1 = a.beta1, f.beta2 = a.beta2, f.new1 = a.new1, f.new2 = a.new2;
        f.rate = a.rate, f.root = a.root, f.eps = a.eps, f.before = a.before, f.after = a.after;
    } else {
        const struct sgd_factors a = sgd_factors(s);
        f.keep = a.keep, f.coupled = a.coupled, f.momentum = s.hyper->momentum;
    }
    cuda_optimizer_step(w.dtype, g.dtype, adam ? CUDA_ADAMW : plain ? CUDA_SGD : CUDA_MOMENTUM, w.data, g.data,
                        o->states > 0 ? state[0].data : NULL, o->states > 1 ? state[1].data : NULL, tensor_count(w), f);
    must(cudaGetLastError(), "an optimizer's step");
}

static const struct backend backend_cuda = {
    .name = NAME,
#ifdef CUDA_EMULATED
    .description = "the kernels of cuda on this machine's cores, without a GPU: correct before it meets one",
#else
    .description = "computes on a GPU: cuBLAS and kernels of our own",
#endif
    .has_numbers = true,
    .open = open_it, .close = close_it,
    .allocate = allocate, .release = release, .copy = copy,
    .host_read = host_reads, .host_write = host_writes, .host_done = host_gives_back,
    .ops = ops_of,
    .zero = zero, .convert = convert, .reduce = reduce, .divide = divide, .optimizer_step = optimizer_steps,
};

/* An optional backend adds itself: the program has it where it was linked. */
__attribute__((constructor)) static void join_the_registry(void) { (void)backend_add(&backend_cuda, NULL); }
