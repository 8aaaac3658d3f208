/* tensor_compare.c -- from which size one tensor scheme needs less than another, from the cost functions and from the
 * papers' formulas.  claims/tensor.c and cli/bench/schemes/tensor_tables.c call these functions.  No function returns
 * an error code. */
#include "emulated_devices/bench/schemes/tensor.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

const struct tensor_scheme *tensor_named(const char *name)
{
    const struct tensor_scheme *s = NULL;
    (void)tensor_scheme_find(&s, name, NULL);
    return s;
}

double tensor_needs(const struct bench_tensor *tensor, const struct tensor_shape *shape,
                    const struct tensor_scheme *scheme, int P, enum tensor_quantity quantity)
{
    struct tensor_figures f;
    if (tensor_predict(&f, tensor, shape, scheme, P, NULL) != OK) return NAN;
    return quantity == TENSOR_SENT ? f.mean : (double)f.transfers;
}

static bool overtakes(const struct bench_tensor *tensor, const struct tensor_shape *shape,
                      const struct tensor_scheme *scheme, int P, enum tensor_quantity quantity)
{
    return tensor_needs(tensor, shape, scheme, P, quantity) < tensor_needs(tensor, shape, tensor_named("1d"),
                                                                           P, quantity);
}

enum { FEW_TOKENS = 16 };               /* of a sequence */

/* The resolution is one sequence.  The scheme's need grows more slowly than 1d's. */
double tensor_crossing(const struct bench_tensor *tensor, const struct tensor_scheme *scheme, int P,
                       enum tensor_quantity quantity)
{
    struct tensor_shape s = tensor->shape;
    int64_t low = 0, high = TENSOR_MOST_RATIO * s.D / FEW_TOKENS;
    s.S = FEW_TOKENS, s.B = high;
    if (high < 1 || !overtakes(tensor, &s, scheme, P, quantity)) return NAN;
    while (high - low > 1) {
        s.B = low + (high - low) / 2;
        if (overtakes(tensor, &s, scheme, P, quantity)) high = s.B;
        else low = s.B;
    }
    return (double)(high * s.S) / (double)s.D;
}

/* Do the same from the formulas in the schemes' head comments for all devices together, for matrices only: d q q
 * devices send (q-1) (21 N D + 36 d D^2) + 24 (d-1) D^2, p p p devices 3 (p-1) (16 N D + 12 D^2), and P devices of 1d
 * 8 N D (P-1). */
double tensor_crossing_by_formula(const char *name, const int mesh[TENSOR_AXES], int P)
{
    const double d = mesh[0], q = mesh[1];
    const bool cube = strcmp(name, "3d") == 0;
    const double tokens = cube ? 48 * (q - 1) : 21 * (q - 1),
                 fixed = cube ? 36 * (q - 1) : 36 * d * (q - 1) + 24 * (d - 1);
    const double ratio = fixed / (8.0 * (P - 1) - tokens);
    return ratio > 0 ? ratio : NAN;
}

/* The smallest number of devices with which a scheme needs less than 1d; 0: none up to the limit. */
int tensor_fewest(const struct bench_tensor *tensor, const struct tensor_shape *shape,
                  const struct tensor_scheme *scheme, enum tensor_quantity quantity)
{
    for (int P = 2; P <= BENCH_TENSOR_DEVICES; P++)
        if (overtakes(tensor, shape, scheme, P, quantity)) return P;
    return 0;
}

/* In picoseconds: matrices and attention at the device's arithmetic rate, plus the transfers. */
double tensor_layer_time(const struct bench_tensor *tensor, const struct tensor_shape *shape,
                         const struct tensor_scheme *scheme, int P)
{
    const int64_t N = shape_tokens(shape), D = shape->D, rate = tensor->cluster.flop_rate[tensor->dtype];
    const struct attention a = { .S = shape->S, .H = shape->H, .K = shape->H, .A = D / shape->H };
    double flops = attention_forward_cost(N, a, tensor->dtype).flops + attention_backward_cost(N, a,
                                                                                               tensor->dtype).flops;
    flops += 3 * (linear_cost(N, D, 3 * D, tensor->dtype).flops + linear_cost(N, D, D, tensor->dtype).flops +
                  2 * linear_cost(N, D, 4 * D, tensor->dtype).flops);
    return tensor_needs(tensor, shape, scheme, P, TENSOR_TIME)
           + (rate > 0 ? flops / P / ((double)rate * 1e6) * 1e12 : 0);
}

/* The speedup of a product of [N,I] with [I,D], summed over P devices, if sums are sent during the products of chunks;
 * by the formulas that tests/devices/test_overlap.c compares with the clock. */
double tensor_overlap_gain(const struct bench_tensor *tensor, struct stand *stand, int64_t I)
{
    const int P = stand->group.size;
    const int64_t n = stand->N / P, D = stand->plan.model.D, rate = tensor->cluster.flop_rate[tensor->dtype];
    const struct collective sum = { .count = stand->N * D, .dtype = tensor->dtype, .reduction = SUM };
    const double c = (double)group_time(&stand->group, REDUCE_SCATTER, NULL, &sum) / (P - 1);
    const double g = rate > 0 ? linear_cost(n, I, D, tensor->dtype).flops / ((double)rate * 1e6) * 1e12 : 0;
    return (P * g + (P - 1) * c) / fmax(P * g, g + (P - 1) * c);
}
