/* quantized.c -- `orrery bench quantized`: the errors of quantised sums, beside their bounds.  bench.c calls
 * bench_quantized_topic().  Errors: ERR_USAGE for another number of devices, ERR_CHECK if an error exceeds its bound;
 * ERR_MEMORY. */
#include "emulated_devices/bench/schemes/quantized.h"
#include "emulated_devices/cli/bench/bench.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

struct asked {
    int devices, elements, block;
    const char *code, *cluster_name;
    struct cluster cluster;
    bool devices_given;
};

static const char *const way_name[WAYS] = { "all to all, once", "two all-to-alls", "ring, at every hop" };
static const char *const numbers_name[NUMBERS] = { "of both signs, -1 to 1", "of one sign, 1 to 2" };

static void quantized_add_row(struct table *table, const struct quantized_bench *bench, enum quantized_way way,
                              const struct quantized_found *found, const struct quantized_found *once)
{
    const double elements = (double)tensor_count(bench->row);
    table_row(table, "%s\t%.0f\t%.0f\t%.0f\t%.3f\t%.2e\t%.2e\t%.3f\t%.2f", way_name[way], found->messages, found->bytes,
              found->between, found->time * 1e-6, sqrt(found->squares / elements), sqrt(found->bounds / elements),
              found->worst, sqrt(found->squares / once->squares));
}

static enum error_code print_ways(struct quantized_bench *bench, struct block_format format,
                                  enum quantized_numbers how, struct error *err)
{
    struct quantized_found once = { 0 }, found;
    const bool speaks = bench->world->rank == 0;
    enum error_code e = OK;
    char name[60];
    snprintf(name, sizeof name, "int%d, numbers %s", format.bits, numbers_name[how]);
    if (speaks) printf("\n%s\n", name);
    struct table t = table_start(name, 1, "how\tsent\tbytes\toutermost\tus\terror\tbound\tworst\t/ once");
    for (int way = ONCE; way < WAYS && !e; way++) {
        if (way == TWO_STEPS && !bench->by_nodes.two_steps) continue;
        e = quantized_measure(bench, (enum quantized_way)way, how, format, &found, err);
        if (way == ONCE) once = found;
        if (!e && !(found.worst <= 1))
            e = fail(err, ERR_CHECK, "int%d, %s: an element is off by %.3g times its bound", format.bits, way_name[way],
                     found.worst);
        if (speaks && (!e || e == ERR_CHECK)) quantized_add_row(&t, bench, (enum quantized_way)way, &found, &once);
    }
    if (speaks) table_end(&t);
    else table_drop(&t);
    return e;
}

static enum error_code quantized_print_all(struct quantized_bench *bench, const struct asked *a, struct error *err)
{
    enum error_code e = OK;
    if (bench->world->rank == 0)
        say(stdout, 0, "Reduce-scatter of fp32 as codes: %d devices of %s, %d elements for each, %d a block."
            "\nPer device: messages, bytes, bytes at the outermost link level; virtual time. Then the root\n"
            "mean square of the errors and of their bounds, the largest error/bound of an element, and the\n"
            "error relative to the first row's.", bench->world->size, a->cluster.name, a->elements, a->block);
    for (int bits = 8; bits >= 4; bits -= 4)
        for (int how = RANDOM; how < NUMBERS && !e; how++)
            if (a->code == NULL || (strcmp(a->code, "int8") == 0) == (bits == 8))
                e = print_ways(bench, (struct block_format){ bits, a->block }, (enum quantized_numbers)how, err);
    return e;
}

static enum error_code quantized_run(struct comm *world, const void *asked, struct error *err)
{
    const struct asked *a = asked;
    struct quantized_bench b;
    if (a->devices_given && a->devices != world->size)
        return fail(err, ERR_USAGE, "--devices %d: the launcher has started %d", a->devices, world->size);
    enum error_code e = quantized_open(&b, world, a->elements, err);
    if (!e) e = quantized_print_all(&b, a, err);
    quantized_close(&b);
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
        "of a ring. Exit status 3 if an error exceeds its bound.", argc - 3, argv + 3, table, &help, err);
    if (e || help) return e;
    e = cluster_find(&a.cluster, a.cluster_name, err);
    if (e) return e;
    return under_launcher() ? be_a_device(F32, &a.cluster, quantized_run, &a, err)
                            : launch_devices(a.devices, argc, argv, status, err);
}
