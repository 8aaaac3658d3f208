/* kernel.c -- the time of an operation on a device whose kernels stay below its rates.
 *
 * clock.c calls kernel_time for each operation; plan/megatron.c and calibrate ask for products alone.  Results are
 * picoseconds, rounded up once.  No function here can fail.
 */
#include "emulated_devices/device/kernel.h"
#include <math.h>
#include <string.h>

static double upward(double a, double b) { return ceil(a / b); }
static double kernel_larger(double a, double b) { return a > b ? a : b; }

/* Units at a share of a rate in millions per second, in picoseconds; 0 at rate 0. */
static double at_share(double units, int64_t rate, int64_t permille)
{
    return rate > 0 ? units * 1e9 / ((double)rate * (double)permille) : 0;
}

/* Operations as if every wave were full and every tile half_depth deeper. */
static double padded(const struct kernels *kernels, struct product product)
{
    const double tile = (double)kernels->tile_rows * (double)kernels->tile_columns;
    const double tiles = upward((double)product.rows, (double)kernels->tile_rows) *
                         upward((double)product.columns, (double)kernels->tile_columns) * (double)product.count;
    return upward(tiles, (double)kernels->units) * (double)kernels->units * tile * 2
           * (double)(product.depth + kernels->half_depth);
}

/* Without units all rates are reached, so the share is the whole. */
static int64_t memory_permille(const struct kernels *kernels)
{
    return kernels->units > 0 ? kernels->memory_permille : 1000;
}

/* Arithmetic and memory traffic overlap: the slower one decides. */
picoseconds kernel_product(const struct cluster *cluster, enum dtype dtype, struct product product)
{
    const struct kernels *k = &cluster->kernels;
    const double count = (double)product.count, m = (double)product.rows, n = (double)product.columns,
        d = (double)product.depth;
    /* A product reads [m, d] and [d, n], and writes [m, n]. */
    const double bytes = (double)dtype_size(dtype) * count * (m * d + d * n + m * n);
    const int64_t matrix = k->units > 0 ? k->matrix_permille : 1000, memory = memory_permille(k);
    const double work = k->units > 0 ? padded(k, product) : 2 * count * m * n * d;
    return k->launch +
           (picoseconds)ceil(kernel_larger(at_share(work, cluster->flop_rate[dtype], matrix),
                                           at_share(bytes, cluster->memory_rate, memory)));
}

uint64_t whole_units(double x) { return x > 0 ? (uint64_t)fmin(ceil(x), 0x1p62) : 0; }

/* The share of the memory's rate that the cluster has for this very operation; 0: none. */
static int64_t named_permille(const struct kernels *kernels, const char *what)
{
    for (int i = 0; i < kernels->named; i++)
        if (strcmp(kernels->share[i].name, what) == 0) return kernels->share[i].permille;
    return 0;
}

/* Attention has terms and no shape. */
static picoseconds other_time(const struct cluster *cluster, enum dtype dtype, const char *what, struct op_cost cost)
{
    const struct kernels *k = &cluster->kernels;
    const int64_t own = named_permille(k, what);
    const double deeper = cost.depth > 0 ? (double)(cost.depth + k->other_half_depth) / (double)cost.depth : 1;
    const double memory = at_share(cost.bytes, cluster->memory_rate, own > 0 ? own : k->memory_permille);
    /* A measured share of the memory's rate has the operation's arithmetic in it. */
    const double work = own > 0 ? 0 : at_share(deeper * cost.flops, cluster->flop_rate[dtype], k->other_permille);
    return (cost.running ? 0 : k->launch) + (picoseconds)ceil(kernel_larger(work, memory));
}

/* Operations of products have a shape (rows, columns, depth); others have only sums. */
picoseconds kernel_time(const struct cluster *cluster, enum dtype dtype, const char *what, struct op_cost cost)
{
    const struct kernels *k = &cluster->kernels;
    if (cost.flops == 0 && cost.bytes == 0) return 0;
    /* A cluster without kernels' shares computes in whole numbers, exactly. */
    if (k->units == 0) {
        const picoseconds arithmetic = time_at_rate(whole_units(cost.flops), cluster->flop_rate[dtype]);
        const picoseconds memory = time_at_rate(whole_units(cost.bytes), cluster->memory_rate);
        return (cost.running ? 0 : k->launch) + (arithmetic > memory ? arithmetic : memory);
    }
    return cost.rows > 0 ? kernel_product(cluster, dtype, (struct product){ cost.rows, cost.columns, cost.depth, 1 })
                         : other_time(cluster, dtype, what, cost);
}

picoseconds kernel_bytes(const struct cluster *cluster, double bytes)
{
    const struct kernels *k = &cluster->kernels;
    return k->launch + (picoseconds)ceil(at_share(bytes, cluster->memory_rate, memory_permille(k)));
}
