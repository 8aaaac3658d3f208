/* decoding.c -- `orrery bench decoding`: what a decoded token costs here: products of few rows, and meshes beside one
 * device.  Tests never check speed.  bench.c calls bench_decoding_topic().  Errors: ERR_USAGE of the words; ERR_CHECK
 * if a product has other bits than with a copied matrix; those of a run. */
#include "emulated_devices/bench/decoding.h"
#include "emulated_devices/cli/bench/bench.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include "ref/machine/measure.h"
#include "ref/machine/threads.h"
#include <stdio.h>

enum { RUN_SECONDS = 1800 };            /* a run that has not ended by then never will */

static enum error_code decoding_products(int rounds, struct error *err)
{
    static const struct { enum dtype format; int64_t rows; } asked[] = { { BF16, 1 }, { BF16, 8 }, { F16, 1 },
                                                                         { F16, 8 } };
    struct table t = table_start("products", 1, "format\trows\tin place us\tcopied us\tratio\tbits");
    enum error_code e = OK;
    bool same = true;
    for (size_t i = 0; i < sizeof asked / sizeof *asked && !e; i++) {
        struct decoding_product p = { .format = asked[i].format, .rows = asked[i].rows };
        e = decoding_product(&p, rounds, err);
        table_row(&t, "%s\t%d\t%.1f\t%.1f\t%.2f\t%s", dtype_name(p.format), (int)p.rows, 1e6 * p.in_place,
                  1e6 * p.copied, p.ratio, p.same ? "the same" : "OTHERS");
        same = same && p.same;
    }
    if (e) return table_drop(&t), e;
    say(stdout, 0, "rows times a matrix of 16 bits, read where it lies, and copied to fp32 first:");
    table_end(&t);
    return same ? OK : fail(err, ERR_CHECK, "a product has other bits than with a copied matrix");
}

/* The median of what a mesh takes over what one device takes in the same round. */
static double decoding_ratio(const double *seconds, const double *alone, int rounds, double replicas)
{
    double ratio[DECODING_ROUNDS];
    for (int i = 0; i < rounds; i++) ratio[i] = seconds[i] / replicas / alone[i];
    return measure_median(ratio, rounds);
}

static void decoding_show(const struct decoding_runs *runs)
{
    const struct decoding_mesh *const one = &runs->mesh[0];
    struct table t = table_start("meshes", 1, "mesh\trequests\tprocessor ms\tx one\tclock ms\tx one");
    say(stdout, 0, "\nan iteration of %s, %s; each replica's share of all processors, and the clock:", runs->model,
        runs->dtype);
    for (int i = 0; i < runs->meshes; i++) {
        const struct decoding_mesh *const m = &runs->mesh[i];
        const double replicas = m->each ? m->dp : 1;
        table_row(&t, "dp %d x tp %d x pp %d\t%d%s\t%.1f\t%.2f\t%.1f\t%.2f", m->dp, m->tp, m->pp, runs->requests,
                  m->each && m->dp > 1 ? " each" : "", 1e3 * measure_median_of(m->processor, runs->rounds) / replicas,
                  decoding_ratio(m->processor, one->processor, runs->rounds, replicas),
                  1e3 * measure_median_of(m->clock, runs->rounds),
                  decoding_ratio(m->clock, one->clock, runs->rounds, 1));
    }
    table_end(&t);
    say(stdout, 0, "Replicas do not wait for each other; devices of tp and pp wait for messages. Replicas that share "
        "the\nrequests of one device read all weights each.");
}

static enum error_code decoding_meshes(struct decoding_runs *runs, int devices, struct error *err)
{
    struct decoding_mesh mesh[] = { { 1, 1, 1, true }, { devices, 1, 1, true }, { devices, 1, 1, false },
                                    { 1, 2, 1, false }, { 1, 1, 2, false } };
    runs->mesh = mesh, runs->meshes = sizeof mesh / sizeof *mesh;
    const enum error_code e = decoding_run(runs, err);
    if (!e) decoding_show(runs);
    return e;
}

enum error_code bench_decoding_topic(int argc, char **argv, int *status, struct error *err)
{
    struct decoding_runs runs = { .program = argv[0], .model = "gpt2", .dtype = "fp32", .requests = 16, .rounds = 3,
                                  .limit = RUN_SECONDS };
    int devices = 8;
    bool help, alone = false;
    (void)status;
    const struct option table[] = {
        { "--model", "NAME", OPTION_STRING, &runs.model, .help = "a preset, whose weights are drawn" },
        { "--dtype", "NAME", OPTION_CHOICE, &runs.dtype, .choices = number_formats, .help = "of weights and numbers" },
        { "--devices", "N", OPTION_INT, &devices, .min = 2, .max = 8, .help = "replicas beside one device" },
        { "--requests", "N", OPTION_INT, &runs.requests, .min = 8, .max = 64, .help = "of one device" },
        { "--rounds", "N", OPTION_INT, &runs.rounds, .min = 1, .max = DECODING_ROUNDS,
          .help = "over all rows, in turn; medians are shown" },
        { "--products", NULL, OPTION_SWITCH, &alone, .help = "products alone" },
        { 0 }
    };
    enum error_code e = parse_command(
        "bench decoding", "[options]", "What a decoded token costs here, in time of processors: few rows times a "
        "matrix of 16 bits,\nread in place beside copied first; and meshes that answer requests beside one device.",
        argc - 3, argv + 3, table, &help, err);
    if (e || help || launcher_rank() != 0) return e;
    threads_use(1);
    e = decoding_products(runs.rounds, err);
    return e || alone ? e : decoding_meshes(&runs, devices, err);
}
