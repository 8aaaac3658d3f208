/* quantized.c -- `orrery bench quantized`: the errors of quantised sums, beside their bounds. */
#include "emulated_devices/cli/bench/bench.h"
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/collectives/quantised.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include "ref/numeric/distance.h"
#include "ref/numeric/philox.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct asked {
    int devices, elements, block;
    const char *code, *cluster_name;
    struct cluster cluster;
    bool devices_given;
};

/* ---- one way to reduce ------------------------------------------------------------------------------------------- */

enum way { ONCE, TWO_STEPS, EVERY_HOP, WAYS };
static const char *const way_name[WAYS] = { "all to all, once", "two all-to-alls", "ring, at every hop" };

enum numbers { RANDOM, ONE_SIGN, NUMBERS };
static const char *const numbers_name[NUMBERS] = { "of both signs, -1 to 1", "of one sign, 1 to 2" };

/* Sums and maxima over all devices. */
struct found {
    double squares, bounds;             /* sums over elements of error^2 and bound^2 */
    double worst;                       /* error/bound of an element */
    double messages, bytes, between, time;
};

struct bench {
    const struct asked *asked;
    struct comm *world;
    struct quantised_group by_nodes, flat;
    struct tensor row;                  /* [P elements] */
    struct tracking tracking;
};

static void quantized_fill(const struct bench *bench, enum numbers how)
{
    float *x = bench->row.data;
    for (int64_t i = 0; i < tensor_count(bench->row); i++) {
        const double u = random_uniform(3, (uint64_t)bench->world->rank, (uint64_t)i);
        x[i] = (float)(how == RANDOM ? 2 * u - 1 : 1 + u);
    }
    tracking_start(bench->world->device, bench->tracking, bench->row);
}

static enum error_code quantized_reduce(struct bench *bench, enum way way, struct block_format format,
                                        struct error *err)
{
    if (way == EVERY_HOP)
        return quantised_ring_reduce_scatter(bench->flat.whole, bench->row, format, bench->tracking, err);
    return quantised_reduce_scatter(way == ONCE ? &bench->flat : &bench->by_nodes, bench->row, format,
                                    bench->tracking, err);
}

static struct found quantized_sent(const struct comm *comm)
{
    struct found s = { .time = (double)comm->device->clock.now };
    const int levels = comm->device->clock.cluster.levels;
    for (int l = 0; l < levels; l++)
        s.messages += (double)ledger_level(&comm->counted, l).messages,
            s.bytes += (double)ledger_level(&comm->counted, l).bytes;
    s.between = (double)ledger_level(&comm->counted, levels - 1).bytes;
    return s;
}

static enum error_code quantized_measure(struct bench *bench, enum way way, enum numbers how,
                                         struct block_format format, struct found *out, struct error *err)
{
    const int64_t n = bench->asked->elements, first = bench->world->rank * n;
    quantized_fill(bench, how);
    const struct found before = quantized_sent(bench->world);
    const enum error_code e = quantized_reduce(bench, way, format, err);
    if (e) comm_give_up(bench->world, err);
    const struct found after = quantized_sent(bench->world);
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
    *out = (struct found){ sums[0], sums[1], most[0], most[1], most[2], most[3], most[4] };
    return shared;
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

static void quantized_add_row(struct table *table, const struct bench *bench, enum way way, const struct found *found,
                              const struct found *once)
{
    const double elements = (double)tensor_count(bench->row);
    table_row(table, "%s\t%.0f\t%.0f\t%.0f\t%.3f\t%.2e\t%.2e\t%.3f\t%.2f", way_name[way], found->messages, found->bytes,
              found->between, found->time * 1e-6, sqrt(found->squares / elements), sqrt(found->bounds / elements),
              found->worst,
              sqrt(found->squares / once->squares));
}

static enum error_code print_ways(struct bench *bench, struct block_format format, enum numbers how, struct error *err)
{
    struct found once = { 0 }, found;
    const bool speaks = bench->world->rank == 0;
    enum error_code e = OK;
    char name[60];
    snprintf(name, sizeof name, "int%d, numbers %s", format.bits, numbers_name[how]);
    if (speaks) printf("\n%s\n", name);
    struct table t = table_start(name, 1, "how\tsent\tbytes\toutermost\tus\terror\tbound\tworst\t/ once");
    for (int way = ONCE; way < WAYS && !e; way++) {
        if (way == TWO_STEPS && !bench->by_nodes.two_steps) continue;
        e = quantized_measure(bench, (enum way)way, how, format, &found, err);
        if (way == ONCE) once = found;
        if (!e && !(found.worst <= 1))
            e = fail(err, ERR_CHECK, "int%d, %s: an element is off by %.3g times its bound", format.bits, way_name[way],
                     found.worst);
        if (speaks && (!e || e == ERR_CHECK)) quantized_add_row(&t, bench, (enum way)way, &found, &once);
    }
    if (speaks) table_end(&t);
    else table_drop(&t);
    return e;
}

static enum error_code quantized_print_all(struct bench *bench, struct error *err)
{
    const struct asked *a = bench->asked;
    enum error_code e = OK;
    if (bench->world->rank == 0)
        say(stdout, 0, "Reduce-scatter of fp32 as codes: %d devices of %s, %d elements for each, %d a block."
            "\nPer device: messages, bytes, bytes at the outermost link level; virtual time. Then the root\n"
            "mean square of the errors and of their bounds, the largest error/bound of an element, and the\n"
            "error relative to the first row's.", bench->world->size, a->cluster.name, a->elements, a->block);
    for (int bits = 8; bits >= 4; bits -= 4)
        for (int how = RANDOM; how < NUMBERS && !e; how++)
            if (a->code == NULL || (strcmp(a->code, "int8") == 0) == (bits == 8))
                e = print_ways(bench, (struct block_format){ bits, a->block }, (enum numbers)how, err);
    return e;
}

/* ---- being a device ---------------------------------------------------------------------------------------------- */

static enum error_code quantized_run(struct comm *world, const void *asked, struct error *err)
{
    const struct asked *a = asked;
    struct bench b = { .asked = a, .world = world, .flat = { .whole = world->everyone } };
    const int64_t n = (int64_t)a->elements * world->size;
    if (a->devices_given && a->devices != world->size)
        return fail(err, ERR_USAGE, "--devices %d: the launcher has started %d", a->devices, world->size);
    b.row = tensor_1d(malloc((size_t)n * sizeof(float)), F32, n);
    enum error_code e = b.row.data ? tracking_open(&b.tracking, n, err)
                                   : fail(err, ERR_MEMORY, "no memory for %lld elements", (long long)n);
    if (!e) e = quantised_group_open(&b.by_nodes, world->everyone, err);
    e = comm_agree(world, e, err);
    if (!e) e = quantized_print_all(&b, err);
    quantised_group_close(&b.by_nodes);
    tracking_close(&b.tracking);
    free(b.row.data);
    return e;
}

enum error_code bench_quantized_topic(int argc, char **argv, int *status, struct error *err)
{
    static const char *const codes[] = { "int8", "int4", NULL };
    struct asked a = { .devices = 8, .elements = 4096, .block = 256, .cluster_name = "a100-ethernet" };
    bool help;
    const struct option table[] = {
        { "--devices", "N", OPTION_INT, &a.devices, .min = 2, .max = 64, .given = &a.devices_given,
          .help = "members of the group" },
        { "--elements", "N", OPTION_INT, &a.elements, .min = 1, .max = 1 << 22,
          .help = "elements of the sum that each device keeps" },
        { "--code", "CODE", OPTION_CHOICE, &a.code, .choices = codes, .help = "measure only this code" },
        { "--block", "N", OPTION_INT, &a.block, .min = 1, .max = 1e9, .help = "elements that share a scale" },
        CLUSTER_OPTION(a.cluster_name, "whose nodes the two steps follow"),
        THREADS_OPTION,
        { 0 }
    };
    enum error_code e = parse_command(
        "bench quantized", "[options]",
        "Measure the error of a reduce-scatter of int8 or int4 codes, beside the proven bound:\n"
        "quantised once and exchanged all to all; in two steps, inside and between nodes; and at every hop\n"
        "of a ring. Exit status 3 if an error exceeds its bound.",
        argc - 3, argv + 3, table, &help, err);
    if (e || help) return e;
    e = cluster_find(&a.cluster, a.cluster_name, err);
    if (e) return e;
    return under_launcher() ? be_a_device(F32, &a.cluster, quantized_run, &a, err)
                            : launch_devices(a.devices, argc, argv, status, err);
}
