/* kernel.c -- the time of an operation on a device whose kernels stay below its rates.
 *
 * clock.c calls kernel_time for each operation; calibrate asks for products alone.  Results are
 * picoseconds, rounded up once.  No function here can fail.
 */
#include "emulated_devices/device/kernel.h"
#include "emulated_devices/device/kernel_set.h"
#include "emulated_devices/device/kernel_table.h"
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

/* ---- by a table of measured kernels ------------------------------------------------------------------------------ */

/* A device, by its table and the kernels that its programs run. */
struct tabled {
    const struct kernel_table *table;
    const struct kernel_set *set;
    double flop_rate, memory_rate;      /* 10^6 a second; 0: takes no time */
    double width;                       /* bytes of a number */
};

static double tabled_work(const struct tabled *device, double flops, double share)
{
    return device->flop_rate > 0 ? flops * 1e6 / (device->flop_rate * share) : 0;
}

static double tabled_memory(const struct tabled *device, double bytes)
{
    if (bytes <= 0 || device->memory_rate <= 0) return 0;
    return bytes * 1e6 / (device->memory_rate * table_memory_share(device->table, bytes));
}

/* One product of this shape: arithmetic and memory traffic overlap. */
static double tabled_product(const struct tabled *device, double rows, double columns, double depth, double flops,
                             double bytes)
{
    return kernel_larger(tabled_work(device, flops, table_product_share(device->table, rows, columns, depth)),
                         tabled_memory(device, bytes));
}

/* Stored scores: all pairs are computed, seen or not.  A forward pass has a product of queries and keys and one of
 * scores and values; a backward pass has two of each, which the count of flops has with a third of fused kernels. */
static double tabled_unfused(const struct tabled *device, struct op_cost cost, bool backward)
{
    const double length = (double)cost.columns, width = (double)cost.depth,
        flops = cost.flops / (backward ? 1.25 : 1) / cost.seen, each = flops / (backward ? 4 : 2),
        scores = each / (2 * width), rows = scores / length, bytes = scores * device->width;
    const double products = tabled_product(device, rows, length, width, each, bytes)
        + tabled_product(device, rows, width, length, each, bytes);
    return (backward ? 2 : 1) * products
           + tabled_memory(device, bytes) * (double)device->set->scores[backward].percent / 100;
}

static bool is_backward(const char *what) { return strstr(what, "backward") != NULL; }

static double tabled_attention(const struct tabled *device, const char *what, struct op_cost cost)
{
    if (kernel_set_is_unfused(device->set)) return tabled_unfused(device, cost, is_backward(what));
    double share = 0;
    for (int i = 0; i < device->set->attentions && share <= 0; i++)
        share = table_attention_share(device->table, device->set->attention[i], is_backward(what), (double)cost.depth,
                                      (double)cost.columns, cost.seen);
    return kernel_larger(tabled_work(device, cost.flops, share), tabled_memory(device, cost.bytes));
}

/* An operation without a shape computes as a square product of its depth, if it has one. */
static double tabled_other(const struct tabled *device, struct op_cost cost, double percent)
{
    const double depth = cost.depth > 0 ? (double)cost.depth : 1024;
    const double memory = tabled_memory(device, cost.bytes) * percent / 100;
    return cost.depth > 0 ? kernel_larger(tabled_work(device, cost.flops,
                                                      table_product_share(device->table, 4096, 4096, depth)), memory)
                          : memory;
}

static double tabled_rate(int64_t rate, int64_t scale)
{
    return scale > 0 ? (double)rate * (double)scale / 1000 : (double)rate;
}

/* A copy reads and writes the result of a product. */
static double tabled_beside(const struct tabled *device, struct op_cost cost, int64_t percent)
{
    const double copied = 2 * (double)cost.rows * (double)cost.columns * device->width;
    return tabled_memory(device, copied) * (double)percent / 100;
}

/* The cost of a set is of what moves bytes; products have it beside them, and fused attention is one kernel. */
static picoseconds tabled_time(const struct cluster *cluster, enum dtype dtype, const char *what, struct op_cost cost)
{
    const struct kernels *k = &cluster->kernels;
    const struct tabled device = { k->table, k->set, tabled_rate(cluster->flop_rate[dtype], k->products_scale),
                                   tabled_rate(cluster->memory_rate, k->memory_scale), (double)dtype_size(dtype) };
    const struct set_cost set = kernel_set_cost(k->set, what);
    const picoseconds launch = k->set->graphs ? k->table->graph_launch : k->table->launch;
    if (cost.rows > 0) {
        const struct set_cost beside = kernel_set_beside(k->set, what);
        return launch
               + (picoseconds)ceil(tabled_product(&device, (double)cost.rows, (double)cost.columns,
                                                  (double)cost.depth, cost.flops, cost.bytes)
                                   + tabled_beside(&device, cost, beside.percent));
    }
    if (cost.seen > 0)
        return launch + (picoseconds)ceil(tabled_attention(&device, what, cost));
    return set.kernels * launch + (picoseconds)ceil(tabled_other(&device, cost, (double)set.percent));
}

/* Operations of products have a shape (rows, columns, depth); others have only sums. */
picoseconds kernel_time(const struct cluster *cluster, enum dtype format, const char *what, struct op_cost cost)
{
    const struct kernels *k = &cluster->kernels;
    const enum dtype dtype = cost.exact ? F64 : format;         /* of the units that compute */
    if (cost.flops == 0 && cost.bytes == 0) return 0;
    /* A part of a collective's kernel, which is running already, goes by the device's rates. */
    if (k->table != NULL && !cost.running) return tabled_time(cluster, dtype, what, cost);
    /* A cluster without kernels' shares computes in whole numbers, exactly. */
    if (k->units == 0) {
        const picoseconds arithmetic = time_at_rate(whole_units(cost.flops), cluster->flop_rate[dtype]);
        const picoseconds memory = time_at_rate(whole_units(cost.bytes), cluster->memory_rate);
        return (cost.running ? 0 : k->launch) + (arithmetic > memory ? arithmetic : memory);
    }
    if (cost.rows == 0 || cost.grouped) return other_time(cluster, dtype, what, cost);
    return kernel_product(cluster, dtype, (struct product){ cost.rows, cost.columns, cost.depth, 1 });
}

/* Two products forward and four backward have kernels of their own where scores are stored. */
int64_t kernel_starts(const struct cluster *cluster, const char *what, struct op_cost cost)
{
    const struct kernel_set *set = cluster->kernels.set;
    if (set == NULL || cost.running || (cost.flops == 0 && cost.bytes == 0)) return 0;
    if (cost.rows > 0) return kernel_set_beside(set, what).kernels;
    if (cost.seen > 0 && !kernel_set_is_unfused(set)) return 1;
    const bool backward = is_backward(what);
    if (cost.seen > 0) return set->scores[backward].kernels + (backward ? 4 : 2);
    return kernel_set_cost(set, what).kernels;
}

picoseconds kernel_bytes(const struct cluster *cluster, double bytes)
{
    const struct kernels *k = &cluster->kernels;
    return k->launch + (picoseconds)ceil(at_share(bytes, cluster->memory_rate, memory_permille(k)));
}
