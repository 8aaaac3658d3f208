/* check.c -- training steps on this machine, beside their virtual time on it, as a table and as JSON.  calibrate.c
 * calls calibrate_check().  Errors: ERR_COMM if a run fails, ERR_FILE of a file, ERR_MEMORY. */
#include "emulated_devices/cli/calibrate/check.h"
#include "ref/io/document.h"
#include "ref/io/json.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include "ref/machine/cores.h"
#include <math.h>
#include <stdlib.h>

static double error_of(const struct steps_row *row) { return 100 * (row->clock / row->took.least - 1); }

/* This is for meshes that have a core for each device, or for those that have not. */
static void print_mean(const struct timed_steps *steps, bool shared, const char *what)
{
    double sum = 0, most = 0;
    int n = 0;
    for (int i = 0; i < steps->rows; i++) {
        const double far = fabs(error_of(&steps->row[i]));
        if ((steps->row[i].mesh->devices > cores_usable()) != shared) continue;
        sum += far, most = far > most ? far : most, n++;
    }
    if (n > 0) say(stdout, 8, "%s %d steps: error %.1f %% on average, at most %.1f %%", what, n, sum / n, most);
}

static void print_report(const struct timed_steps *steps, const struct steps_request *asked)
{
    struct table t = table_start(NULL, 2, "model\tmesh\tclock ms\tleast ms\tmedian ms\terror %");
    for (int i = 0; i < steps->rows; i++) {
        const struct steps_row *r = &steps->row[i];
        table_row(&t, "%s\t%s\t%.3f\t%.3f\t%.3f\t%+.1f", r->model, r->mesh->name, 1e3 * r->clock, 1e3 * r->took.least,
                  1e3 * r->took.median, error_of(r));
    }
    say(stdout, 0, "A training step: virtual time, and the wall clock's on %d core%s (least and median of %d run%s "
        "of %d steps)\n", cores_usable(), plural(cores_usable()), asked->rounds, plural(asked->rounds),
        asked->steps - 1);
    table_end(&t);
    printf("\n");
    print_mean(steps, false, "a core for each device:");
    print_mean(steps, true, "devices share cores:   ");
}

static enum error_code calibrate_check_write_json(const struct timed_steps *steps, const struct steps_request *asked,
                                                  const char *json, struct error *err)
{
    cJSON *root = json_add(document_start("orrery calibrate --check"), "cores %d dtype %s", cores_usable(),
                           asked->dtype);
    cJSON *rows = cJSON_AddArrayToObject(root, "rows");
    for (int i = 0; i < steps->rows; i++) {
        const struct steps_row *r = &steps->row[i];
        json_add(json_row(rows), "model %s mesh %s devices %d virtual_seconds %g least_seconds %g median_seconds %g"
                 " error_percent %g", r->model, r->mesh->name, r->mesh->devices, r->clock, r->took.least,
                 r->took.median, error_of(r));
    }
    return fail_about(err, json_finish(json, root, err), "--json");
}

enum error_code calibrate_check(const struct steps_request *asked, const char *json, bool quiet, struct error *err)
{
    struct timed_steps steps;
    enum error_code e = steps_time(asked, &steps, err);
    if (!e && !quiet) print_report(&steps, asked);
    if (!e && json) e = calibrate_check_write_json(&steps, asked, json, err);
    free(steps.row);
    return e;
}
