/* route: the weights of given experts, by a rule (ref/ops/route.c, section Forward).  A thread a token: E is small. */
#include "emulated_devices/device/cuda/kernels/kernels.h"
#include "emulated_devices/device/cuda/kernels/numbers.cuh"
#include <limits.h>

/* One row. */
template <typename W, typename G> struct routed {
    struct cuda_router rule;
    const G *x;
    const int32_t *chosen;
    int64_t E, n;                       /* experts; choices that are made */
    W top, total;

    __device__ W at(int64_t e) const { return widen(x[e]); }

    /* The logit of a choice; one that is dropped is stored as -1 - expert. */
    __device__ W logit(int64_t i) const { return at(chosen[i] < 0 ? -1 - chosen[i] : chosen[i]); }

    __device__ W numerator(int64_t i) const
    {
        return rule.sigmoid ? 1 / (1 + exp_of(-logit(i))) : exp_of(logit(i) - top);
    }

    __device__ W divisor()
    {
        W sum = 0;
        if (!rule.normalized) {
            if (rule.sigmoid) return 1;
            top = at(0);
            for (int64_t e = 1; e < E; e++) top = at(e) > top ? at(e) : top;
            for (int64_t e = 0; e < E; e++) sum += exp_of(at(e) - top);
            return sum;
        }
        top = logit(0);
        for (int64_t i = 1; i < n; i++) top = logit(i) > top ? logit(i) : top;
        for (int64_t i = 0; i < n; i++) sum += numerator(i);
        return rule.sigmoid ? sum + (W)1e-20 : sum;
    }

    /* Among the experts that are not chosen before choice i, and nearly as good. */
    __device__ bool is_near(int64_t e, int64_t i) const
    {
        const W best = logit(i), y = at(e), a = best < 0 ? -best : best, b = y < 0 ? -y : y, size = a > b ? a : b;
        for (int64_t j = 0; j < i; j++)
            if ((chosen[j] < 0 ? -1 - chosen[j] : chosen[j]) == e) return false;
        return !((best - y) / size > 2 * (W)rule.near_by);
    }

    __device__ W among_near(int64_t i) const
    {
        W sum = 0;
        for (int64_t e = 0; e < E; e++)
            if (is_near(e, i)) sum += exp_of(at(e) - logit(i));
        return 1 / sum;
    }

    __device__ W near_divisor() const
    {
        W sum = 0;
        for (int64_t i = 0; i < n; i++) sum += among_near(i);
        return sum + (W)1e-6;
    }
};

template <typename T, typename G>
__global__ void route_weights(T *weights, const int32_t *experts, const G *logits, int64_t N, int64_t E, int64_t k,
                              struct cuda_router rule)
{
    typedef wide<T> W;
    const int64_t row = thread_number();
    if (row >= N) return;
    routed<W, G> r = { rule, logits + row * E, experts + row * k, E, 0, 0, 0 };
    while (r.n < k && r.chosen[r.n] != INT_MIN) r.n++;
    const W divisor = r.n == 0 ? 1 : rule.near ? r.near_divisor() : r.divisor();
    for (int64_t i = 0; i < k; i++)
        store(&weights[row * k + i],
              i < r.n ? (rule.near ? r.among_near(i) : r.numerator(i)) / divisor * (W)rule.scale : (W)0);
}

void cuda_route_weights(enum dtype t, enum dtype g, void *weights, const int32_t *experts, const void *logits,
                        int64_t N, int64_t E, int64_t k, struct cuda_router rule)
{
    if (N == 0) return;
    BY_FORMATS(t, g, LAUNCH((route_weights<T, G>), A_THREAD_EACH(N), 0, (T *)weights, experts, (const G *)logits, N, E,
                            k, rule));
}
