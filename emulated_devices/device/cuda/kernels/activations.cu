/* activations: both gelus, the squared relu, silu, and the gated ones, element by element (ref/ops/gelu.c,
 * exact_gelu.c, squared_relu.c, swiglu.c, geglu.c, streams.c). */
#include "emulated_devices/device/cuda/kernels/kernels.h"
#include "emulated_devices/device/cuda/kernels/numbers.cuh"

template <typename W> __device__ W gelu(W x)
{
    return x / (1 + exp_of(-(W)1.5957691216057307117597842397375 * x * (1 + (W)0.044715 * x * x)));
}

/* Clamped as in ref/ops/gelu.h: infinity times 0 does not occur. */
template <typename W> __device__ W gelu_slope(W x)
{
    const W limit = sizeof(W) == 4 ? 10 : 20, c = (W)0.044715, k = (W)1.5957691216057307117597842397375;
    x = x < -limit ? -limit : x;
    x = x > limit ? limit : x;
    const W e = exp_of(-k * x * (1 + c * x * x)), s = 1 / (1 + e);
    return s + x * s * (s * e) * (k * (1 + 3 * c * x * x));
}

/* The probability that a normal number is below x. */
template <typename W> __device__ W below(W x) { return (W)0.5 * erfc_of(-(W)0.70710678118654752440084436210485 * x); }

/* Clamped as in ref/ops/exact_gelu.c: infinity times 0 does not occur. */
template <typename W> __device__ W exact_gelu_slope(W x)
{
    const W limit = sizeof(W) == 4 ? 14 : 38;
    x = x < -limit ? -limit : x;
    x = x > limit ? limit : x;
    return below(x) + x * ((W)0.39894228040143267793994605993438 * exp_of(-(W)0.5 * x * x));
}

/* A NaN stays a NaN. */
template <typename W> __device__ W above(W x) { return x < 0 ? 0 : x; }

template <typename W> __device__ W silu(W x) { return x / (1 + exp_of(-x)); }

template <typename W> __device__ W silu_slope(W x)
{
    const W s = 1 / (1 + exp_of(-x)), rest = 1 / (1 + exp_of(x));
    return s * (1 + x * rest);
}

struct by_gelu {
    template <typename W> __device__ static W of(W x) { return gelu(x); }
    template <typename W> __device__ static W slope(W x) { return gelu_slope(x); }
};
struct by_exact_gelu {
    template <typename W> __device__ static W of(W x) { return x * below(x); }
    template <typename W> __device__ static W slope(W x) { return exact_gelu_slope(x); }
};
struct by_squared_relu {
    template <typename W> __device__ static W of(W x) { return above(x) * above(x); }
    template <typename W> __device__ static W slope(W x) { return 2 * above(x); }
};
struct by_silu {
    template <typename W> __device__ static W of(W x) { return silu(x); }
    template <typename W> __device__ static W slope(W x) { return silu_slope(x); }
};

template <typename T, typename F> struct activate {
    T *y;
    const T *x;
    __device__ void operator()(int64_t i) const { store(&y[i], F::of(widen(x[i]))); }
};

template <typename T, typename F> struct activate_backward {
    T *dx;
    const T *dy, *x;
    __device__ void operator()(int64_t i) const { store(&dx[i], widen(dy[i]) * F::slope(widen(x[i]))); }
};

/* x: rows of 2F numbers, the gate's and the gated. */
template <typename T, typename A> struct gated {
    T *y;
    const T *x;
    int64_t F;
    __device__ void operator()(int64_t i) const
    {
        const T *g = x + i / F * 2 * F + i % F;
        store(&y[i], A::of(widen(g[0])) * widen(g[F]));
    }
};

template <typename T, typename A> struct gated_backward {
    T *dx;
    const T *dy, *x;
    int64_t F;
    __device__ void operator()(int64_t i) const
    {
        const int64_t at = i / F * 2 * F + i % F;
        const wide<T> g = widen(x[at]), u = widen(x[at + F]), d = widen(dy[i]);
        store(&dx[at], d * u * A::slope(g));
        store(&dx[at + F], d * A::of(g));
    }
};

void cuda_activation_forward(enum dtype t, enum cuda_activation how, void *Y, const void *X, int64_t n, int64_t F)
{
    switch (how) {
    case CUDA_GELU: BY_FORMAT(t, for_each(n, activate<T, by_gelu>{ (T *)Y, (const T *)X })); break;
    case CUDA_EXACT_GELU: BY_FORMAT(t, for_each(n, activate<T, by_exact_gelu>{ (T *)Y, (const T *)X })); break;
    case CUDA_SQUARED_RELU: BY_FORMAT(t, for_each(n, activate<T, by_squared_relu>{ (T *)Y, (const T *)X })); break;
    case CUDA_SILU: BY_FORMAT(t, for_each(n, activate<T, by_silu>{ (T *)Y, (const T *)X })); break;
    case CUDA_GEGLU: BY_FORMAT(t, for_each(n, gated<T, by_gelu>{ (T *)Y, (const T *)X, F })); break;
    case CUDA_SWIGLU: BY_FORMAT(t, for_each(n, gated<T, by_silu>{ (T *)Y, (const T *)X, F })); break;
    }
}

void cuda_activation_backward(enum dtype t, enum cuda_activation how, void *dX, const void *dY, const void *X,
                              int64_t n, int64_t F)
{
    switch (how) {
    case CUDA_GELU:
        BY_FORMAT(t, for_each(n, activate_backward<T, by_gelu>{ (T *)dX, (const T *)dY, (const T *)X }));
        break;
    case CUDA_EXACT_GELU:
        BY_FORMAT(t, for_each(n, activate_backward<T, by_exact_gelu>{ (T *)dX, (const T *)dY, (const T *)X }));
        break;
    case CUDA_SQUARED_RELU:
        BY_FORMAT(t, for_each(n, activate_backward<T, by_squared_relu>{ (T *)dX, (const T *)dY, (const T *)X }));
        break;
    case CUDA_SILU:
        BY_FORMAT(t, for_each(n, activate_backward<T, by_silu>{ (T *)dX, (const T *)dY, (const T *)X }));
        break;
    case CUDA_GEGLU:
        BY_FORMAT(t, for_each(n, gated_backward<T, by_gelu>{ (T *)dX, (const T *)dY, (const T *)X, F }));
        break;
    case CUDA_SWIGLU:
        BY_FORMAT(t, for_each(n, gated_backward<T, by_silu>{ (T *)dX, (const T *)dY, (const T *)X, F }));
        break;
    }
}
