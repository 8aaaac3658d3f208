#include "emulated_devices/cli/bench/published/published.h"
#include "emulated_devices/cli/bench/bench.h"
#include "emulated_devices/cli/installed.h"
#include "ref/machine/measure.h"
#include "ref/io/document.h"
#include "ref/io/json.h"
#include "ref/io/table.h"
#include "ref/io/terminal.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- sections and rows ------------------------------------------------------------------------------------------- */

void published_section(struct published *published, const char *title, const char *source, const char *calibrated,
                       const char *unit, bool brief)
{
    published->count = 0, published->sum = 0, published->most = 0;
    published->brief = brief && !published->every;
    if (!published->quiet) {
        say(stdout, 0, "%s", title);
        say(stdout, 2, "  %s", source);
        say(stdout, 2, "  %s; calibrated on %s", unit, calibrated);
        printf("\n");
    }
    published->table = table_start(NULL, 1, "\tpublished\tours\terror %");
    if (published->sections == NULL) return;
    cJSON *section = cJSON_CreateObject();
    cJSON_AddItemToArray(published->sections, section);
    cJSON_AddStringToObject(section, "title", title);
    cJSON_AddStringToObject(section, "source", source);
    cJSON_AddStringToObject(section, "calibrated_on", calibrated);
    cJSON_AddStringToObject(section, "unit", unit);
    published->rows = cJSON_AddArrayToObject(section, "rows");
}

static void keep_error(struct published *published, double error)
{
    if (published->count == published->room) {
        const int room = published->room > 0 ? 2 * published->room : 64;
        double *more = realloc(published->error, (size_t)room * sizeof *more);
        if (more == NULL) return;
        published->error = more, published->room = room;
    }
    published->error[published->count++] = fabs(error);
    published->sum += fabs(error);
    if (fabs(error) > published->most) published->most = fabs(error);
}

void published_row(struct published *p, const char *what, double published, double ours, int digits)
{
    const double error = published != 0 ? 100 * (ours / published - 1) : ours == 0 ? 0 : INFINITY;
    keep_error(p, error);
    if (!p->quiet && !p->brief)
        table_row(&p->table, "%s\t%.*f\t%.*f\t%+.2f", what, digits, published, digits, ours, error);
    if (p->rows == NULL) return;
    cJSON *row = cJSON_CreateObject();
    cJSON_AddItemToArray(p->rows, row);
    cJSON_AddStringToObject(row, "what", what);
    cJSON_AddNumberToObject(row, "published", published);
    cJSON_AddNumberToObject(row, "ours", ours);
    cJSON_AddNumberToObject(row, "error_percent", error);
}

void published_end(struct published *published)
{
    if (published->quiet || published->brief) table_drop(&published->table);
    else table_end(&published->table);
    if (published->count == 0 || published->quiet) return;
    printf("  %d rows: error %.2f %% on average, median %.2f %%, at most %.2f %%\n\n", published->count,
           published->sum / published->count, measure_median(published->error, published->count), published->most);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static enum error_code all_sections(struct published *published, struct error *err)
{
    enum error_code e = OK;
    if (!published->measured) e = published_zero_bubble(published, err);
    if (!e && !published->measured) e = published_memory(published, err);
    if (!e && !published->measured) e = published_orders(published, err);
    if (!e && !published->measured) e = published_llama(published, err);
    return e ? e : published_steps(published, err);
}

static enum error_code calibrate(const struct published *published, struct error *err)
{
    const enum error_code e = published_calibrate(&vtrain_node, published->folder, err);
    return e ? e : published_calibrate(&vtrain_cluster, published->folder, err);
}

enum error_code bench_published_topic(int argc, char **argv, int *status, struct error *err)
{
    struct published p = { .folder = "golden/published" };
    const char *json = NULL;
    char room[4096];
    bool help, searches = false;
    (void)status;
    const struct option table[] = {
        { "--folder", "DIR", OPTION_STRING, &p.folder,
          .help = "where the measured steps are; default: golden/published" },
        { "--measured", "FILE", OPTION_STRING, &p.measured,
          .help = "steps of your own in place of all, in the columns of those files or of vTrain's" },
        { "--every", NULL, OPTION_SWITCH, &p.every, .help = "print every row, also of hundreds" },
        { "--calibrate", NULL, OPTION_SWITCH, &searches,
          .help = "in place of all: search for the constants of a100-node and a100-superpod, some minutes" },
        { "--json", "FILE", OPTION_STRING, &json, .help = "every row as JSON; - for stdout, without the tables" },
        { 0 }
    };
    enum error_code e = parse_command(
        "bench published", "[options]",
        "Compute what papers printed, and say by how many per cent it differs.",
        argc - 3, argv + 3, table, &help, err);
    if (e || help) return e;
    p.folder = golden_path(p.folder, room, sizeof room);
    if (searches) return calibrate(&p, err);
    cJSON *root = json ? document_start("orrery bench published") : NULL;
    p.sections = json ? cJSON_AddArrayToObject(root, "sections") : NULL;
    p.quiet = json && strcmp(json, "-") == 0;
    e = all_sections(&p, err);
    if (!e && json) e = json_write(json, root, err);
    cJSON_Delete(root);
    free(p.error);
    return e;
}
