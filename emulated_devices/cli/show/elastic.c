/* elastic.c -- `orrery show elastic`: replicas for tasks with batches of different sizes, as a file for --batches.
 * show.c calls show_elastic().  ERR_USAGE is for sizes of tasks that cannot be read; other errors are those of the
 * file. */
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/cli/show/pictures.h"
#include "emulated_devices/device/interval.h"
#include "emulated_devices/draw/svg.h"
#include "emulated_devices/plan/elastic.h"
#include "ref/io/document.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TASKS = 64, MOST_DEVICES = 4096, MOST_SAMPLES = 1000000 };

struct tasks { int count; int64_t batch[MOST_TASKS]; };

static enum error_code read_sizes(struct tasks *tasks, const char *list, struct error *err)
{
    for (const char *at = list;; at++) {
        char *end;
        errno = 0;
        const long long n = *at >= '0' && *at <= '9' ? strtoll(at, &end, 10) : -1;
        if (n < 0 || n > MOST_SAMPLES || errno || (*end != ',' && *end != '\0'))
            return fail(err, ERR_USAGE, "show elastic %s: sizes such as 512,256,128,128, each up to %d",
                        printable(list).text, MOST_SAMPLES);
        if (tasks->count == MOST_TASKS) return fail(err, ERR_USAGE, "show elastic: at most %d tasks", MOST_TASKS);
        tasks->batch[tasks->count++] = n;
        at = end;
        if (*at == '\0') break;
    }
    for (int i = 0; i < tasks->count; i++)
        if (tasks->batch[i] > 0) return OK;
    return fail(err, ERR_USAGE, "show elastic %s: no task has samples", printable(list).text);
}

static void print_plan(const struct tasks *tasks, const int *replicas)
{
    int64_t whole = 0;
    int devices = 0;
    printf("orrery batches 1\n");
    for (int i = 0; i < tasks->count; i++) {
        printf("# task %d: %lld samples, %d replica%s\n", i, (long long)tasks->batch[i], replicas[i],
               plural(replicas[i]));
        whole = tasks->batch[i] > whole ? tasks->batch[i] : whole;
        devices += replicas[i];
    }
    printf("# most samples of a device: %lld; with one replica each: %lld on %d devices\n",
           (long long)elastic_most(tasks->batch, tasks->count, replicas), (long long)whole, tasks->count);
    for (int i = 0, d = 0; i < tasks->count; i++)
        for (int r = 0; r < replicas[i]; r++)
            printf("%lld%s", (long long)block_at(tasks->batch[i], replicas[i], r).count, ++d < devices ? " | " : "\n");
}

static void elastic_add_to_document(const struct tasks *tasks, const int *replicas)
{
    cJSON *data = document_data();
    if (!document_table("tasks")) return;
    int64_t alone = 0;
    cJSON *batches = cJSON_AddArrayToObject(data, "batches");
    for (int i = 0; i < tasks->count; i++) {
        json_add(document_row(), "task %d samples %g replicas %d", i, (double)tasks->batch[i], replicas[i]);
        alone = tasks->batch[i] > alone ? tasks->batch[i] : alone;
        for (int r = 0; r < replicas[i]; r++)
            cJSON_AddItemToArray(batches, cJSON_CreateNumber((double)block_at(tasks->batch[i], replicas[i], r).count));
    }
    json_add(data, "most_samples %g most_samples_alone %g", (double)elastic_most(tasks->batch, tasks->count, replicas),
             (double)alone);
}

/* ---- as SVG ------------------------------------------------------------------------------------------------------ */

/* Numbers are pixels: width, margins, the space of names at the left, the top of the bars, a bar and its row. */
enum { WIDTH = 760, MARGIN = 16, LEFT = 180, TOP = 116, BAR = 18, ROW = 24, ROWS_MOST = 256 };

/* A drawing has the tasks and their replicas. */
struct elastic { const struct tasks *tasks; const int *replicas; };

/* Draw a bar for each device; above a task's bars a line as long as its batch on one device. */
static enum error_code elastic_svg(FILE *to, const void *elastic, struct error *err)
{
    const struct elastic *a = elastic;
    int64_t alone = 1;
    int devices = 0, row = 0, device = 0;
    for (int i = 0; i < a->tasks->count; i++) {
        alone = a->tasks->batch[i] > alone ? a->tasks->batch[i] : alone;
        devices += a->replicas[i];
    }
    const double unit = (double)(WIDTH - LEFT - MARGIN - 60) / (double)alone;
    svg_begin(to, WIDTH, TOP + devices * ROW + a->tasks->count * 10 + MARGIN);
    svg_text(to, MARGIN, 30, "start", 17, "%d task%s on %d device%s: at most %lld samples each", a->tasks->count,
             plural(a->tasks->count), devices, plural(devices),
             (long long)elastic_most(a->tasks->batch, a->tasks->count, a->replicas));
    svg_paragraph(to, MARGIN, 54, SVG_LINE, (WIDTH - 2 * MARGIN) / SVG_LETTER,
                  "A bar is the samples of a device, a colour is a task.  A light bar behind is the whole batch of the "
                  "task: what one device would have without other replicas.");
    for (int i = 0; i < a->tasks->count; i++)
        for (int r = 0; r < a->replicas[i]; r++, row++) {
            const int64_t samples = block_at(a->tasks->batch[i], a->replicas[i], r).count;
            const double y = TOP + row * ROW + i * 10;
            struct colour c = svg_device_colour(i);
            if (r == 0) svg_text(to, MARGIN, y + 14, "start", 13, "task %d", i);
            svg_text(to, LEFT - 10, y + 14, "end", 13, "device %d", device++);
            c.light = 92, svg_bar(to, LEFT, y, unit * (double)a->tasks->batch[i], BAR, c);
            svg_box(to, LEFT, y, unit * (double)samples, BAR, svg_device_colour(i));
            svg_text(to, LEFT + unit * (double)a->tasks->batch[i] + 8, y + 14, "start", 13, "%lld of %lld",
                     (long long)samples, (long long)a->tasks->batch[i]);
        }
    return svg_end(to, "the replicas", err);
}

enum error_code show_elastic(int argc, char **argv, int *status, struct error *err)
{
    struct tasks t = { 0 };
    const char *sizes = "512,256,128,128", *svg = NULL;
    int devices = 8, replicas[MOST_TASKS];
    bool help;
    const struct option table[] = {
        { "SIZES", NULL, OPTION_STRING, &sizes, .help = "samples of each task" },
        { "--devices", "P", OPTION_INT, &devices, .min = 1, .max = MOST_DEVICES, .help = "for all tasks together" },
        SVG_OPTION(svg),
        { 0 }
    };
    (void)status;
    enum error_code e = parse_command(
        "show elastic", "[SIZES] [options]",
        "Give tasks with batches of different sizes as many devices as they need, so that the largest\n"
        "batch of a device is as small as can be.  Prints a file for --batches, with one step.",
        argc - 3, argv + 3, table, &help, err);
    if (e || help) return e;
    e = read_sizes(&t, sizes, err);
    if (!e) e = fail_about(err, elastic_replicas(t.batch, t.count, devices, replicas, err), "--devices:");
    if (!e && svg && devices > ROWS_MOST)
        e = fail(err, ERR_USAGE, "show elastic: --svg: %d devices; at most %d can be drawn", devices, ROWS_MOST);
    if (e) return e;
    print_plan(&t, replicas), elastic_add_to_document(&t, replicas);
    fflush(stdout);                     /* the file may be the standard output */
    return svg ? svg_file(svg, elastic_svg, &(struct elastic){ &t, replicas }, err) : OK;
}
