/* optimizers: the steps of sgd, momentum and adamw, element by element (ref/optim/sgd.c, adamw.c).  16-bit gradients
 * are widened as they are read. */
#include "emulated_devices/device/cuda/kernels/kernels.h"
#include "emulated_devices/device/cuda/kernels/numbers.cuh"

template <typename W, typename G> struct sgd_step {
    W *w;
    const G *g;
    W scale, keep, coupled, lr;
    __device__ void operator()(int64_t i) const { w[i] = keep * w[i] - lr * (widen(g[i]) * scale + coupled * w[i]); }
};

template <typename W, typename G> struct momentum_step {
    W *w;
    const G *g;
    W *b;
    W scale, keep, coupled, lr, momentum;
    __device__ void operator()(int64_t i) const
    {
        b[i] = momentum * b[i] + (widen(g[i]) * scale + coupled * w[i]);
        w[i] = keep * w[i] - lr * b[i];
    }
};

template <typename W, typename G> struct adamw_step {
    W *w;
    const G *g;
    W *m, *v;
    W scale, beta1, beta2, new1, new2, rate, root, eps, before, after;
    __device__ void operator()(int64_t i) const
    {
        const W gradient = widen(g[i]) * scale;
        m[i] = beta1 * m[i] + new1 * gradient;
        v[i] = beta2 * v[i] + new2 * gradient * gradient;
        w[i] = after * (before * w[i] - rate * m[i] / (root_of(v[i]) * root + eps));
    }
};

template <typename W, typename G>
static void step_as(enum cuda_optimizer how, W *w, const G *g, W *m, W *v, int64_t n, struct cuda_step s)
{
    const W scale = (W)s.scale, keep = (W)s.keep, coupled = (W)s.coupled, lr = (W)s.lr;
    switch (how) {
    case CUDA_SGD: for_each(n, sgd_step<W, G>{ w, g, scale, keep, coupled, lr }); break;
    case CUDA_MOMENTUM: for_each(n, momentum_step<W, G>{ w, g, m, scale, keep, coupled, lr, (W)s.momentum }); break;
    case CUDA_ADAMW:
        for_each(n, adamw_step<W, G>{ w, g, m, v, scale, (W)s.beta1, (W)s.beta2, (W)s.new1, (W)s.new2, (W)s.rate,
                                      (W)s.root, (W)s.eps, (W)s.before, (W)s.after });
        break;
    }
}

void cuda_optimizer_step(enum dtype t, enum dtype g, enum cuda_optimizer how, void *w, const void *grad, void *m,
                         void *v, int64_t n, struct cuda_step s)
{
    if (t == F64) step_as(how, (double *)w, (const double *)grad, (double *)m, (double *)v, n, s);
    else BY_FORMAT(g, step_as(how, (wide<T> *)w, (const T *)grad, (wide<T> *)m, (wide<T> *)v, n, s));
}
