/* cuda -- computes on a GPU: products by cuBLAS, all else by the kernels beside this file.  Compiled with CUDA_EMULATED
 * it is cuda-emulated: the same kernels on this machine's cores (emulated/).
 *
 * One stream, so operations follow each other.  Operands in the host's memory (ids, labels, what the slow tier holds)
 * are copied to the device for one operation.  Entries that are not here the host computes, through views (generic.c).
 * A GPU that fails while it computes ends the program, with one line: operations cannot fail.
 *
 * device_open opens this backend for --backend cuda (or cuda-emulated).  Opening reports ERR_MEMORY, or ERR_DEVICE
 * if no GPU or no kernel can be used.
 */
#include "emulated_devices/device/cuda/kernels/kernels.h"
#include "emulated_devices/device/cuda/operands.h"
#include "emulated_devices/device/cuda/parts.h"
#include "ref/numeric/exact_bins.h"
#include "ref/optim/factors.h"
#include "ref/optim/registry.h"
#include <stdio.h>
#include <stdlib.h>

#define T struct tensor

static int devices;                     /* open ones of this process; they share one GPU */

/* The first device of the process starts the GPU, and the last one ends it. */
static enum error_code backend_open_it(struct device *device, struct error *err)
{
    struct cuda *c = calloc(1, sizeof *c);
    const enum error_code e = c == NULL ? fail(err, ERR_MEMORY, "no memory") : devices == 0 ? gpu_start(err) : OK;
    if (e) {
        free(c);
        return e;
    }
    devices++;
    device->state = c;
    return OK;
}

static void backend_close_it(struct device *device)
{
    struct cuda *c = device->state;
    if (c->views != NULL) fprintf(stderr, "orrery: a host view was never given back\n"), abort();
    free(c);
    if (--devices == 0) gpu_end();
}

/* ---- on any tensors; what is in the host's memory, or no number, the host does ----------------------------------- */

/* Formats with rounding are those of kernels; whole numbers are left to the host. */
static bool backend_number(enum dtype dtype) { return dtype_unit(dtype) > 0; }

static void zero(struct device *device, T y)
{
    if (tensor_bytes(y) == 0) return;
    if (on_gpu(y.data)) must(cudaMemset(y.data, 0, tensor_bytes(y)), "zero");
    else generic_zero(device, y);
}

/* Both tensors have to be on the GPU; any other conversion the host does through views. */
static void convert(struct device *device, T y, T x)
{
    if (tensor_count(y) == 0) return;
    if (!backend_number(y.dtype) || !backend_number(x.dtype) || !on_gpu(y.data) || !on_gpu(x.data))
        return generic_convert(device, y, x);
    cuda_convert(y.dtype, y.data, x.dtype, x.data, tensor_count(y));
    must(cudaGetLastError(), "convert");
}

/* into = into (op) from, for floating-point numbers on the GPU. */
static void backend_reduce(struct device *device, enum reduction how, enum dtype dtype, void *into,
                           const void *from, int64_t n)
{
    static const enum cuda_reduction as[] = { [SUM] = CUDA_SUM, [AVERAGE] = CUDA_SUM, [PRODUCT] = CUDA_PRODUCT,
                                              [MAX] = CUDA_MAX, [MIN] = CUDA_MIN };
    const size_t bytes = (size_t)n * dtype_size(dtype);
    if (n == 0) return;
    if (!backend_number(dtype) || !on_gpu(into)) return generic_reduce(device, how, dtype, into, from, n);
    if (!on_gpu(from)) {                        /* what a device of this machine sent, where it is */
        void *there = scratch(bytes);
        must(cudaMemcpy(there, from, bytes, cudaMemcpyHostToDevice), "reduce");
        from = there;
    }
    cuda_reduce(dtype, as[how], into, from, n);
    must(cudaGetLastError(), "reduce");
}

static void reduce_all(struct device *device, enum reduction how, enum dtype dtype, void *into, const void *const *part,
                       int parts, int64_t n)
{
    /* The sum starts as the first part, and the others are added in order, as the host does. */
    device_copy(device, into, part[0], (uint64_t)n * dtype_size(dtype));
    for (int i = 1; i < parts; i++) backend_reduce(device, how, dtype, into, part[i], n);
}

static void backend_divide(struct device *device, enum dtype dtype, void *x, int64_t n, int by)
{
    if (n == 0) return;
    if (!backend_number(dtype) || !on_gpu(x)) return generic_divide(device, dtype, x, n, by);
    cuda_divide(dtype, x, n, by);
    must(cudaGetLastError(), "divide");
}

static bool has_bins(T x) { return backend_number(x.dtype) && x.dtype != F64 && on_gpu(x.data); }

/* In whole numbers, so that their order does not matter: all tensors add to the same ones, and the host waits once.
 * What is not finite, and fp64, it adds itself. */
static void backend_add_squares(struct device *device, struct exact_sum *sum, const T *list, int count)
{
    unsigned long long *there = scratch(2 * EXACT_BINS * sizeof *there), here[2 * EXACT_BINS];
    uint64_t bins[2 * EXACT_BINS];
    must(cudaMemset(there, 0, sizeof here), "squares");
    for (int i = 0; i < count; i++)
        if (tensor_count(list[i]) > 0 && has_bins(list[i]))
            cuda_exact_squares(list[i].dtype, there, list[i].data, tensor_count(list[i]));
    must(cudaGetLastError(), "squares");
    must(cudaMemcpy(here, there, sizeof here, cudaMemcpyDeviceToHost), "squares");
    /* The last bin of each half counts what is not finite: then the host adds all tensors itself. */
    const bool finite = here[EXACT_BINS - 1] == 0 && here[2 * EXACT_BINS - 1] == 0;
    for (int i = 0; i < count; i++)
        if (tensor_count(list[i]) > 0 && !(finite && has_bins(list[i]))) generic_add_squares(device, sum, &list[i], 1);
    for (int i = 0; i < 2 * EXACT_BINS; i++) bins[i] = here[i];
    if (finite) exact_add_bins(sum, bins, bins + EXACT_BINS);
}

/* The step of AdamW, SGD or momentum on the GPU, with the factors that ref/optim computes.  Others the host does. */
static void optimizer_steps(struct device *device, const struct optimizer *optimizer, T w, T g, const T *state,
                            struct step step)
{
    /* Optimizers are known by their step function; a plug-in's is none of these. */
    const bool adam = optimizer->step_f32 == optimizer_adamw.step_f32,
               plain = optimizer->step_f32 == optimizer_sgd.step_f32;
    const bool here = tensor_count(w) > 0 && on_gpu(w.data) && on_gpu(g.data);
    if (tensor_count(w) == 0) return;
    if (!here || !(adam || plain || optimizer->step_f32 == optimizer_momentum.step_f32))
        return generic_optimizer_step(device, optimizer, w, g, state, step);
    struct cuda_step f = { .scale = step.gradient_scale, .lr = step.lr };
    if (adam) {
        const struct adam_factors a = adam_factors(step);
        /* Factors are fp64 here; the kernel rounds them to its format as the host does. */
        f.beta1 = a.beta1, f.beta2 = a.beta2, f.new1 = a.new1, f.new2 = a.new2;
        f.rate = a.rate, f.root = a.root, f.eps = a.eps, f.before = a.before, f.after = a.after;
    } else {
        const struct sgd_factors a = sgd_factors(step);
        f.keep = a.keep, f.coupled = a.coupled, f.momentum = step.hyper->momentum;
    }
    cuda_optimizer_step(w.dtype, g.dtype, adam ? CUDA_ADAMW : plain ? CUDA_SGD : CUDA_MOMENTUM, w.data, g.data,
                        optimizer->states > 0 ? state[0].data : NULL, optimizer->states > 1 ? state[1].data : NULL,
                        tensor_count(w), f);
    must(cudaGetLastError(), "an optimizer's step");
}

#ifdef CUDA_EMULATED
static struct backend_calls calls_made(const struct device *device)
{
    const struct emulated_calls c = emulated_calls;
    (void)device;
    return (struct backend_calls){ c.launches, c.products, c.copies, c.allocations, c.waits, c.lookups };
}
#endif

static const struct backend backend_cuda = {
    .name = NAME,
#ifdef CUDA_EMULATED
    .description = "the kernels of cuda on this machine's cores, without a GPU: correct before it meets one",
#else
    .description = "computes on a GPU: cuBLAS and kernels of our own",
#endif
    .has_numbers = true,
    .open = backend_open_it, .close = backend_close_it,
    .allocate = gpu_allocate, .release = gpu_release, .copy = gpu_copy,
    .host_read = gpu_read, .host_write = gpu_write, .host_done = gpu_view_done,
    .ops = gpu_operations, .direct = gpu_direct,
#ifdef CUDA_EMULATED
    .calls = calls_made,                /* on a GPU a profiler counts them: docs/authors/backends.md */
#endif
    .zero = zero, .convert = convert, .reduce = backend_reduce, .reduce_all = reduce_all, .divide = backend_divide,
    .add_squares = backend_add_squares, .optimizer_step = optimizer_steps,
};

/* An optional backend adds itself: the program has it where it was linked. */
__attribute__((constructor)) static void join_the_registry(void) { (void)backend_add(&backend_cuda, NULL); }
