/* sweep.c -- `orrery sweep`: trains once for each combination of settings, and prints the results as a table.
 *
 * cli/main.c calls command_sweep, through the list of cli/commands.h.  run/sweep.c reads FILE, starts the runs and
 * judges them.  The table goes to the standard output, and each run has its own folder in --out.
 * *status is changed only if a signal has stopped the runs: then *status is 128 plus the signal's number.
 * Errors are ERR_USAGE for wrong words and settings, ERR_FORMAT for a file that is no YAML, and ERR_FILE, ERR_MEMORY
 * and ERR_COMM.  A run whose check failed makes the sweep ERR_CHECK, and a run that failed otherwise ERR_FORMAT.  Then
 * the table has been printed, and the results of all runs stay in their folders.
 */
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/model/checkpoint/series.h"
#include "emulated_devices/run/keeping.h"
#include "emulated_devices/run/origin.h"
#include "emulated_devices/run/sweep.h"
#include "ref/io/columns.h"
#include "ref/io/output.h"
#include "ref/io/time_left.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static void print_run(const struct sweep *sweep, int run, bool done, double gone, double part)
{
    const struct time_left_text left = time_left_of(gone, part);
    const bool shown = !done && on_terminal() && left.text[0];
    printf("run %03d of %d%s%s%s\n", run + 1, sweep->runs, done ? ": done before" : "", shown ? ", " : "",
           shown ? left.text : "");
}

static void loss_cell(struct columns *columns, double loss)
{
    if (isfinite(loss)) columns_add(columns, RIGHT_ALIGNED, "%.4f", loss);
    else columns_add(columns, RIGHT_ALIGNED, "%s", "");
}

static void time_cell(struct columns *columns, const struct figure_scale *scale, double seconds)
{
    columns_add(columns, RIGHT_ALIGNED, "%s", isfinite(seconds) ? scale_format(scale, seconds).text : "");
}

static double virtual_seconds(const struct sweep_result *result) { return 1e-12 * result->virtual_ps; }
static double median_seconds(const struct sweep_result *result) { return result->seconds; }

/* The unit of a column. */
static struct figure_scale column_scale_of(const struct sweep *sweep, const struct sweep_result *result,
                                  double (*seconds)(const struct sweep_result *))
{
    double longest = 0;
    for (int run = 0; run < sweep->runs; run++)
        if (isfinite(seconds(&result[run]))) longest = fmax(longest, seconds(&result[run]));
    return time_scale(longest);
}

/* The word for an exit status.  DIFFERS: the run ended with 3, because a comparison with one device did not hold. */
static const char *status_name(int how)
{
    return how < 0 ? "not run" : how == 0 ? "done" : how == 3 ? "DIFFERS" : how >= 128 ? "stopped" : "FAILED";
}

static void print_table(const struct sweep *sweep, const struct sweep_result *result)
{
    const struct figure_scale wall = column_scale_of(sweep, result, median_seconds),
                              clock = column_scale_of(sweep, result, virtual_seconds);
    struct columns t = columns_start(stdout);
    t.keys = 1;
    do {
        columns_add(&t, RIGHT_ALIGNED, "run");
        for (int a = 0; a < sweep->axes; a++) columns_add(&t, RIGHT_ALIGNED, "%s", sweep->axis[a]->key);
        columns_add(&t, RIGHT_ALIGNED, "loss"), columns_add(&t, RIGHT_ALIGNED, "held-out");
        columns_add(&t, RIGHT_ALIGNED, "median %s", wall.name);
        columns_add(&t, RIGHT_ALIGNED, "virtual %s", clock.name);
        columns_add(&t, LEFT_ALIGNED, "status");
        columns_end_row(&t);
        for (int run = 0; run < sweep->runs; run++) {
            const struct sweep_result *r = &result[run];
            columns_add(&t, RIGHT_ALIGNED, "%03d", run + 1);
            for (int a = 0; a < sweep->axes; a++)
                columns_add(&t, RIGHT_ALIGNED, "%s", printable(sweep_value(sweep, run, a)).text);
            loss_cell(&t, r->loss), loss_cell(&t, r->validation);
            time_cell(&t, &wall, median_seconds(r)), time_cell(&t, &clock, virtual_seconds(r));
            columns_add(&t, LEFT_ALIGNED, "%s", status_name(r->how));
            columns_end_row(&t);
        }
    } while (columns_again(&t));
}

enum error_code command_sweep(int argc, char **argv, int *status, struct error *err)
{
    struct sweep s = { .program = argv[0], .dir = NULL };
    const struct option table[] = {
        { "FILE", NULL, OPTION_STRING, &s.file, .required = true,
          .help = "`set` and `grid`, as docs/using/runs.md has them" },
        { "--out", "DIR", OPTION_STRING, &s.dir, .required = true, .help = "a folder for the runs' folders" },
        { 0 }
    };
    bool help;
    enum error_code e = parse_command("sweep", "FILE --out DIR", "Train once for each combination of settings; what is "
                                      "done is not repeated.", argc - 2, argv + 2, table, &help, err);
    if (e || help) return e;
    if (under_launcher()) return fail(err, ERR_USAGE, "sweep: starts its runs itself; not under a launcher");
    e = sweep_read(&s, train_check_setting, err);
    const struct kept kept = { "--out", s.dir, true };          /* two sweeps would take each other's runs for done */
    if (!e) origin_name_run(), e = keeping_take(&kept, 1, stdout, err);
    if (!e) e = fail_about(err, series_make(s.dir, err), "--out");
    struct sweep_result *result = e ? NULL : calloc((size_t)s.runs, sizeof *result);
    if (!e && result == NULL) e = fail(err, ERR_MEMORY, "no memory for %d results", s.runs);
    if (!e) e = sweep_run(&s, result, print_run, err);
    if (!e) print_table(&s, result), e = sweep_verdict(&s, result, status, err);
    keeping_release();
    free(result);
    yml_free(s.root);
    return e;
}
