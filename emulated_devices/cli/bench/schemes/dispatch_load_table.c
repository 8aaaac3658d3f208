/* dispatch_load_table.c -- prints how even devices' work is, and adds the numbers to JSON.
 * cli/bench/schemes/dispatch.c calls after the measurement.  The table is printed first; copies that do not make
 * work more even are ERR_CHECK. */
#include "emulated_devices/cli/bench/schemes/dispatch_load_table.h"
#include "ref/io/json.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include <stdio.h>

enum error_code dispatch_load_print(const struct load_row row[LOAD_ROWS], struct error *err)
{
    say(stdout, 0, "\nA load that follows Zipf's law, the same in each step: rows of the busiest\n"
        "device over the mean; weights of copies that all devices send in a forward pass,\n"
        "and that a device keeps.\n");
    struct table t = table_start(NULL, 1, "scheme\tover mean\tKB sent\tKB kept");
    for (int i = 0; i < LOAD_ROWS; i++) {
        char name[32] = "alltoall";
        if (row[i].copies) snprintf(name, sizeof name, "fssdp --copies %d", row[i].copies);
        table_row(&t, "%s\t%.2f\t%.1f\t%.1f", name, row[i].busiest, row[i].sent / 1000, row[i].kept / 1000);
    }
    table_end(&t);
    for (int i = 1; i < LOAD_ROWS; i++)
        if (row[0].busiest > 1 && row[i].busiest >= row[0].busiest)
            return fail(err, ERR_CHECK, "bench dispatch: %d copies do not make the work more even", row[i].copies);
    for (int i = 1; i < LOAD_ROWS; i++)
        if (row[i].busiest > row[i - 1].busiest)
            return fail(err, ERR_CHECK, "bench dispatch: %d copies make the work less even than %d", row[i].copies,
                        row[i - 1].copies);
    return OK;
}

void dispatch_load_json(const struct load_row row[LOAD_ROWS], cJSON *object)
{
    cJSON *rows = cJSON_AddArrayToObject(object, "zipf");
    for (int i = 0; i < LOAD_ROWS; i++) {
        json_add(json_row(rows), "copies %d busiest_over_mean %g bytes_sent %g bytes_kept %g", row[i].copies,
                 row[i].busiest, row[i].sent, row[i].kept);
    }
}
