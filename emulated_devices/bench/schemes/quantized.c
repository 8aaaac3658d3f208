/* quantized.c -- the errors of reduce-scatters that send codes, beside their bounds.  cli/bench/quantized.c prints.
 * Inputs are drawn on each device; outputs are counts and errors of all devices.  Errors: ERR_MEMORY, ERR_COMM. */
#include "emulated_devices/bench/schemes/quantized.h"
#include "ref/numeric/distance.h"
#include "ref/numeric/philox.h"
#include <math.h>
#include <stdlib.h>

static void quantized_fill(const struct quantized_bench *bench, enum quantized_numbers how)
{
    float *x = bench->row.data;
    for (int64_t i = 0; i < tensor_count(bench->row); i++) {
        const double u = random_uniform(3, (uint64_t)bench->world->rank, (uint64_t)i);
        x[i] = (float)(how == RANDOM ? 2 * u - 1 : 1 + u);
    }
    tracking_start(bench->world->device, bench->tracking, bench->row);
}

static enum error_code quantized_reduce(struct quantized_bench *bench, enum quantized_way way,
                                        struct block_format format, struct error *err)
{
    if (way == EVERY_HOP)
        return quantised_ring_reduce_scatter(bench->flat.whole, bench->row, format, bench->tracking, err);
    return quantised_reduce_scatter(way == ONCE ? &bench->flat : &bench->by_nodes, bench->row, format,
                                    bench->tracking, err);
}

static struct quantized_found quantized_sent(const struct comm *comm)
{
    struct quantized_found s = { .time = (double)comm->device->clock.now };
    const int levels = comm->device->clock.cluster.levels;
    for (int l = 0; l < levels; l++)
        s.messages += (double)ledger_level(&comm->counted, l).messages,
            s.bytes += (double)ledger_level(&comm->counted, l).bytes;
    s.between = (double)ledger_level(&comm->counted, levels - 1).bytes;
    return s;
}

enum error_code quantized_measure(struct quantized_bench *bench, enum quantized_way way, enum quantized_numbers how,
                                  struct block_format format, struct quantized_found *out, struct error *err)
{
    const int64_t n = bench->elements, first = bench->world->rank * n;
    quantized_fill(bench, how);
    const struct quantized_found before = quantized_sent(bench->world);
    const enum error_code e = quantized_reduce(bench, way, format, err);
    if (e) comm_give_up(bench->world, err);
    const struct quantized_found after = quantized_sent(bench->world);
    double sums[2] = { 0 }, most[5] = { 0, after.messages - before.messages, after.bytes - before.bytes,
                                        after.between - before.between, after.time - before.time };
    for (int64_t i = first; i < first + n; i++) {
        const double off = fabs(tensor_get(bench->row, i) - bench->tracking.exact[i]), bound = bench->tracking.bound[i];
        sums[0] += off * off, sums[1] += bound * bound;
        const double ratio = off == 0 ? 0 : off / bound;
        if (exceeds(ratio, most[0])) most[0] = ratio;
    }
    enum error_code shared = allreduce(bench->flat.whole, sums, 2, F64, SUM, NULL, err);
    if (!shared) shared = allreduce(bench->flat.whole, most, 5, F64, MAX, NULL, err);
    *out = (struct quantized_found){ sums[0], sums[1], most[0], most[1], most[2], most[3], most[4] };
    return shared;
}

enum error_code quantized_open(struct quantized_bench *bench, struct comm *world, int elements, struct error *err)
{
    const int64_t n = (int64_t)elements * world->size;
    *bench = (struct quantized_bench){ .world = world, .elements = elements, .flat = { .whole = world->everyone } };
    bench->row = tensor_1d(malloc((size_t)n * sizeof(float)), F32, n);
    enum error_code e = bench->row.data ? tracking_open(&bench->tracking, n, err)
                                        : fail(err, ERR_MEMORY, "no memory for %lld elements", (long long)n);
    if (!e) e = quantised_group_open(&bench->by_nodes, world->everyone, err);
    return comm_agree(world, e, err);
}

void quantized_close(struct quantized_bench *bench)
{
    quantised_group_close(&bench->by_nodes);
    tracking_close(&bench->tracking);
    free(bench->row.data);
}
