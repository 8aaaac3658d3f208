/* collectives_table.c -- prints measured collectives as tables on rank 0, and writes their rows as JSON.
 * cli/bench/schemes/collectives.c starts the function on every rank.  All ranks return the same code.  After
 * ERR_CHECK of a measurement the rows are still written. */
#include "emulated_devices/cli/bench/schemes/collectives_table.h"
#include "ref/io/document.h"
#include "ref/io/figures.h"
#include "ref/io/json.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include "ref/machine/cores.h"
#include <stdio.h>

static void collectives_table_print_head(const struct collectives_bench *bench)
{
    const struct cluster *m = &bench->world->device->clock.cluster;
    say(stdout, 0, "\n%s, %d device%s on %d core%s, fp32, sum; medians of %d, all in turn; virtual time on %s\n",
        operation_name(bench->call.operation), bench->call.P, plural(bench->call.P), cores_usable(),
        plural(cores_usable()), bench->asked->runs, m->name);
}

static void add_lane(struct table *table, const struct collectives_bench *bench, const struct collectives_lane *lane)
{
    const double bandwidth = (double)collectives_bytes(bench) / lane->median * 1e-9;
    char counted[80] = "\t\t";
    if (lane->algorithm)
        snprintf(counted, sizeof counted, "%.0f\t%.0f\t%.3f", lane->counted[LANE_MESSAGES], lane->counted[LANE_BYTES],
                 lane->counted[LANE_VIRTUAL] * 1e-6);
    char limit[40] = "\t";
    if (bench->limited)
        snprintf(limit, sizeof limit, "%.2f\t%.2f", lane->median / bench->lane[WAY_LIMIT].median,
                 lane->least / bench->lane[WAY_LIMIT].least);
    table_row(table, "%s\t%lld\t%s\t%.1f\t%.1f\t%.3f\t%.3f\t%s\t%.0f\t%.2fx\t%.2fx\t%s",
              size_format(collectives_bytes(bench)).text,
              (long long)bench->call.args.count, collectives_lane_name(lane), lane->median * 1e6,
              lane->least * 1e6, bandwidth,
              bandwidth * collectives_bus_factor(bench->call.operation, bench->call.P), counted,
              lane->counted[LANE_WRONG], bench->lane[PEER_BLOCKING].median / lane->median,
              bench->lane[PEER_YIELDING].median / lane->median, limit);
}

struct limits { char text[200]; };

static struct limits limits_text(const struct collectives_bench *bench, const struct collectives_lane *lane)
{
    struct limits t = { "" };
    const struct collectives_lane *alone = &bench->lane[WAY_LIMIT], *step = &bench->lane[WAY_IN_STEP];
    if (bench->limited)
        snprintf(t.text, sizeof t.text,
                 ", %.2f times as long as copies alone (%.2f by the least times, %.2f by time of processors), "
                 "%.2f times as long as copies in step (%.2f, %.2f)",
                 lane->median / alone->median, lane->least / alone->least, lane->processors / alone->processors,
                 lane->median / step->median, lane->least / step->least, lane->processors / step->processors);
    return t;
}

static void print_size(const struct collectives_bench *bench)
{
    const struct collectives_lane *best = NULL;
    const struct algorithm *chosen =
        algorithm_choose(bench->call.operation, bench->call.P, &bench->call.args, &bench->world->device->clock.cluster);
    struct table t = table_start(NULL, 3, "size\tcount\talgorithm\ttime us\tleast us\talg GB/s\tbus GB/s\tmessages"
                                          "\tbytes\tvirtual us\terrors\t/blocking\t/yielding\tx copies\tof least");
    for (int i = 0; i < bench->lanes; i++) {
        add_lane(&t, bench, &bench->lane[i]);
        if (bench->lane[i].algorithm && (!best || bench->lane[i].median < best->median)) best = &bench->lane[i];
    }
    table_end(&t);
    if (best)
        say(stdout, 8, "  best: %s, %.2f times as fast as MPI blocking, %.2f times as fast as MPI yielding%s;  "
            "auto: %s", collectives_lane_name(best), bench->lane[PEER_BLOCKING].median / best->median,
            bench->lane[PEER_YIELDING].median / best->median, limits_text(bench, best).text, chosen
                ? chosen->name : "none");
    printf("\n");
    fflush(stdout);
}

static void collectives_table_add_rows(const struct collectives_bench *bench, cJSON *rows)
{
    const struct algorithm *chosen =
        algorithm_choose(bench->call.operation, bench->call.P, &bench->call.args, &bench->world->device->clock.cluster);
    for (int i = 0; i < bench->lanes; i++) {
        const struct collectives_lane *l = &bench->lane[i];
        const double bandwidth = (double)collectives_bytes(bench) / l->median;
        cJSON *row = json_add(cJSON_CreateObject(), "devices %d bytes %g count %g", bench->call.P,
                              (double)collectives_bytes(bench), (double)bench->call.args.count);
        static const char *const others[] = { "blocking", "yielding", "copies", "copies in step" };
        json_add(row, "by %s algorithm %s median_seconds %g least_seconds %g processor_seconds %g"
                 " algorithm_bytes_per_second %g bus_bytes_per_second %g",
                 l->algorithm ? "orrery" : l->way >= WAY_LIMIT ? "memory" : "MPI",
                 l->algorithm ? l->algorithm->name : others[l->way], l->median, l->least, l->processors, bandwidth,
                 bandwidth * collectives_bus_factor(bench->call.operation, bench->call.P));
        if (l->algorithm) {
            json_add(row, "auto %hhd messages %g bytes_sent %g virtual_picoseconds %g", l->algorithm == chosen,
                     l->counted[LANE_MESSAGES], l->counted[LANE_BYTES], l->counted[LANE_VIRTUAL]);
        }
        json_add(row, "errors %g times_as_fast_as_blocking %g times_as_fast_as_yielding %g", l->counted[LANE_WRONG],
                 bench->lane[PEER_BLOCKING].median / l->median, bench->lane[PEER_YIELDING].median / l->median);
        if (bench->limited) {
            json_add(row, "times_as_long_as_copies %g times_as_long_as_copies_in_step %g",
                     l->median / bench->lane[WAY_LIMIT].median, l->median / bench->lane[WAY_IN_STEP].median);
        }
        cJSON_AddItemToArray(rows, row);
    }
}

/* ---- one device -------------------------------------------------------------------------------------------------- */

/* Rank 0's rows. */
struct shown { const struct collectives_job *job; cJSON *rows; };

static void show_head(void *context, const struct collectives_bench *bench)
{
    const struct shown *shown = context;
    if (!shown->job->quiet) collectives_table_print_head(bench);
}

static void show_size(void *context, const struct collectives_bench *bench)
{
    const struct shown *shown = context;
    if (!shown->job->quiet) print_size(bench);
    if (shown->job->json) collectives_table_add_rows(bench, shown->rows);
}

static enum error_code write_rows(const struct comm *world, struct shown *shown, struct error *err)
{
    const struct bench_collectives *asked = &shown->job->measures;
    cJSON *root = json_add(document_start("orrery bench collectives"), "operation %s dtype %s cluster %s cores %d"
                           " runs %d", operation_name(asked->operation), dtype_name(F32),
                           world->device->clock.cluster.name, cores_usable(), asked->runs);
    cJSON_AddItemToObject(root, "rows", shown->rows);
    shown->rows = NULL;
    return json_finish(shown->job->json, root, err);
}

enum error_code bench_collectives_device(struct comm *world, const void *asked, struct error *err)
{
    struct shown shown = { .job = asked, .rows = cJSON_CreateArray() };
    const struct collectives_listener listener = { &shown, show_head, show_size };
    struct error unwritten;
    enum error_code e = collectives_measure(world, &shown.job->measures, &listener, err), written = OK;
    if ((!e || e == ERR_CHECK) && world->rank == 0 && shown.job->json) written = write_rows(world, &shown, &unwritten);
    if (!e && written) e = written, *err = unwritten;
    cJSON_Delete(shown.rows);
    return comm_agree(world, e, err);
}
