/* outward.c -- the arithmetic of an outer step, on what this device steps of a unit.
 *
 * Written beside ref/optim/outer.c, not with it: the one-device run has the rules as their papers have them, element by
 * element over whole replicas; here each is four factors, of sums that came from an all-reduce.  Neither calls the
 * other, so that each checks the other.  No function returns an error code.
 */
#include "emulated_devices/device/outward.h"

#define LOOPS(real, format)                                                                                      \
    static void way_##format(int64_t n, real *restrict way, const real *restrict anchor, const real *restrict theta) \
    {                                                                                                            \
        for (int64_t i = 0; i < n; i++) way[i] = anchor[i] - theta[i];                                           \
    }                                                                                                            \
                                                                                                                 \
    static void step_##format(int64_t n, real *restrict theta, real *restrict anchor, real *restrict momentum,   \
                              const real *restrict sum, real share, struct outward f)                            \
    {                                                                                                            \
        const real keep = (real)f.keep, take = (real)f.take, by_way = (real)f.by_way,                            \
                   by_momentum = (real)f.by_momentum;                                                            \
        for (int64_t i = 0; i < n; i++) {                                                                        \
            const real way = share * sum[i];                                                                     \
            real move = by_way * way;                                                                            \
            if (momentum) {                                                                                      \
                momentum[i] = keep * momentum[i] + take * way;                                                   \
                move += by_momentum * momentum[i];                                                               \
            }                                                                                                    \
            theta[i] = anchor[i] -= move;                                                                        \
        }                                                                                                        \
    }
LOOPS(float, f32)
LOOPS(double, f64)
#undef LOOPS

void outward_way(struct tensor way, struct tensor anchor, struct tensor theta)
{
    const int64_t n = tensor_count(anchor);
    if (anchor.dtype == F32) way_f32(n, way.data, anchor.data, theta.data);
    else way_f64(n, way.data, anchor.data, theta.data);
}

void outward_step(struct tensor theta, struct tensor anchor, struct tensor momentum, struct tensor sum, int replicas,
                  struct outward outward)
{
    const int64_t n = tensor_count(anchor);
    /* The sum over replicas becomes their mean. */
    const double share = 1.0 / replicas;
    if (anchor.dtype == F32)
        step_f32(n, theta.data, anchor.data, momentum.data, sum.data, (float)share, outward);
    else step_f64(n, theta.data, anchor.data, momentum.data, sum.data, share, outward);
}
