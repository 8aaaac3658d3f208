/* plan_report.c -- tells a plan's critical path, waits and the moment of its peak, as text and JSON.
 * run/plan.c prints; report_json.c adds the JSON.  No function reports errors. */
#include "emulated_devices/run/report/memory_report.h"
#include "emulated_devices/run/report/plan_report.h"
#include "emulated_devices/device/streams.h"
#include "ref/io/columns.h"
#include "ref/io/figures.h"
#include "ref/io/json.h"
#include "ref/io/terminal.h"
#include <stdlib.h>
#include <string.h>

/* ---- as text ----------------------------------------------------------------------------------------------------- */

static const char *sort_of(const struct path_row *path_row, const struct cluster *cluster, char *text, size_t size)
{
    const enum stream on = (enum stream)path_row->like.stream;
    char stream[40] = "";
    if (on != COMPUTE) snprintf(stream, sizeof stream, " (%s)", stream_name(on));
    if (path_row->like.kind == PATH_WORK) snprintf(text, size, "%s%s", path_row->like.what, stream);
    else if (path_row->like.kind == PATH_MESSAGE)
        snprintf(text, size, "%s messages, %s%s", traffic_kind_name(path_row->like.traffic),
                 cluster->link[path_row->level].level, stream);
    else snprintf(text, size, "waiting for an engine");
    return text;
}

enum { SHOWN = 12 };                    /* rows; JSON has all */

static picoseconds rest_of(const struct plan_path *plan_path)
{
    picoseconds rest = 0;
    for (int i = SHOWN; i < plan_path->rows; i++) rest += plan_path->row[i].takes;
    return rest;
}

static void path_row(struct columns *columns, const char *what, picoseconds takes, const struct plan_path *plan_path,
                     const struct path_row *row)
{
    const struct figure_scale scale = time_scale(1e-12 * (double)plan_path->total);
    columns_add(columns, LEFT_ALIGNED, "  %s", what);
    columns_add(columns, RIGHT_ALIGNED, "%s", scale_format(&scale, 1e-12 * (double)takes).text);
    columns_add(columns, RIGHT_ALIGNED, "%.1f", 100 * (double)takes / (double)plan_path->total);
    if (row) columns_add(columns, RIGHT_ALIGNED, "%d", row->pieces),
        columns_add(columns, RIGHT_ALIGNED, "%d", row->devices);
    columns_end_row(columns);
}

void plan_report_path(const struct train_record *record)
{
    const struct plan_path *p = &record->plan->path;
    const struct cluster *c = &record->options->cluster;
    struct columns t = columns_start(record->out);
    char text[120];
    if (p->total < 0) {
        say(record->out, 8, "path    not kept: the devices that ran have more than %d events", STEP_MOST_EVENTS);
        return;
    }
    say(record->out, 0, "\ncritical path of %s: work and messages that follow each other",
        record->steps == 1 ? "the step" : "all steps");
    do {
        columns_add(&t, LEFT_ALIGNED, "  what");
        columns_add(&t, RIGHT_ALIGNED, "%s", time_scale(1e-12 * (double)p->total).name);
        columns_add(&t, RIGHT_ALIGNED, "%%");
        columns_add(&t, RIGHT_ALIGNED, "pieces"), columns_add(&t, RIGHT_ALIGNED, "devices");
        columns_end_row(&t);
        for (int i = 0; i < p->rows && i < SHOWN; i++)
            path_row(&t, sort_of(&p->row[i], c, text, sizeof text), p->row[i].takes, p, &p->row[i]);
        if (p->rows > SHOWN) {
            snprintf(text, sizeof text, "%d others", p->rows - SHOWN);
            path_row(&t, text, rest_of(p), p, NULL);
        }
        path_row(&t, "together", p->total, p, NULL);
    } while (columns_again(&t));
    fprintf(record->out, "\n");
}

static double percent(picoseconds part, const struct plan_path *plan_path)
{
    return plan_path->total > 0 ? 100 * (double)part / (double)plan_path->total : 0;
}

void plan_report_waits(const struct train_record *record)
{
    const struct plan_path *p = &record->plan->path;
    char kinds[160] = "";
    int used = 0;
    if (p->total <= 0) return;
    say(record->out, 8, "compute %.1f %% of a step on average, %.1f to %.1f %% on each device",
        percent(p->share.computing, p), percent(p->least, p), percent(p->most, p));
    for (enum traffic_kind k = 0; k < TRAFFIC_KIND_COUNT; k++)
        if (k != TRAFFIC_PIPELINE && k != TRAFFIC_RESULT && percent(p->share.waiting[k], p) >= 0.05 && used < 120)
            used += snprintf(kinds + used, sizeof kinds - (size_t)used, "%s%s %.1f", used ? ", " : ": ",
                             traffic_kind_name(k), percent(p->share.waiting[k], p));
    if (percent(p->share.engines, p) >= 0.05 && used < 140)
        snprintf(kinds + used, sizeof kinds - (size_t)used, "%scopies %.1f", used ? ", " : ": ",
                 percent(p->share.engines, p));
    if (percent(p->share.starts, p) >= 0.05)
        say(record->out, 8, "host    %.1f %% of a step, it waits for its host to start kernels",
            percent(p->share.starts, p));
    say(record->out, 8, "bubble  %.1f %% of a step, a device waits for other stages and for slower devices",
        percent(step_share_bubble(&p->share), p));
    say(record->out, 8, "exposed %.1f %% of a step, it waits for communication that nothing hides%s",
        percent(step_share_exposed(&p->share), p), kinds);
}

void plan_report_peak(const struct train_record *record)
{
    const struct plan_peak *p = &record->plan->peak[record->plan->fullest];
    const struct figure_scale scale = size_scale(p->use.total);
    char when[160];
    say(record->out, 8, "peak    of device %d, %s: in %s", record->device[record->plan->fullest].rank,
        size_format(p->use.total).text, doing_describe(&p->doing, when, sizeof when));
    fprintf(record->out, "        held at the peak, in %s:\n", scale.name);
    for (int tag = 0; tag < ARENA_TAG_COUNT; tag++)
        if (p->use.tag[tag] > 0)
            fprintf(record->out, "        %9s  %s (%u tensor%s)\n", scale_format(&scale, (double)p->use.tag[tag]).text,
                    arena_tag_name(tag), p->blocks[tag], plural((int)p->blocks[tag]));
}

/* ---- as JSON ----------------------------------------------------------------------------------------------------- */

static void add_path(cJSON *to, const struct cluster *cluster, const struct plan_path *plan_path)
{
    static const char *const kind[] = { [PATH_WORK] = "work", [PATH_MESSAGE] = "messages", [PATH_IDLE] = "idle" };
    cJSON *path = cJSON_AddArrayToObject(to, "critical_path");
    for (int i = 0; i < plan_path->rows; i++) {
        const struct path_row *r = &plan_path->row[i];
        cJSON *o = json_add(json_row(path), "kind %s", kind[r->like.kind]);
        if (r->like.kind == PATH_WORK) json_add(o, "what %s", r->like.what);
        if (r->like.kind != PATH_IDLE) json_add(o, "stream %s", stream_name((enum stream)r->like.stream));
        if (r->like.kind == PATH_MESSAGE) json_add(o, "what %s", traffic_kind_name(r->like.traffic));
        if (r->like.kind == PATH_MESSAGE) json_add(o, "level %s", cluster->link[r->level].level);
        json_add(o, "ps %g pieces %d devices %d", (double)r->takes, r->pieces, r->devices);
    }
}

static void add_shares(cJSON *to, const struct plan_path *plan_path)
{
    cJSON *o = cJSON_AddObjectToObject(to, "mean_device_ps"), *waits;
    json_add(o, "computing %g", (double)plan_path->share.computing);
    waits = cJSON_AddObjectToObject(o, "waiting");
    for (enum traffic_kind k = 0; k < TRAFFIC_KIND_COUNT; k++)
        cJSON_AddNumberToObject(waits, traffic_kind_name(k), (double)plan_path->share.waiting[k]);
    json_add(o, "engines %g starts %g ended %g", (double)plan_path->share.engines,
             (double)plan_path->share.starts, (double)plan_path->share.ended);
    json_add(to, "bubble %g exposed_communication %g", percent(step_share_bubble(&plan_path->share), plan_path) / 100,
             percent(step_share_exposed(&plan_path->share), plan_path) / 100);
}

static void add_peak(cJSON *to, int device, const struct plan_peak *plan_peak)
{
    cJSON *o = cJSON_AddObjectToObject(to, "peak"), *tags;
    json_add(o, "device %d bytes %g pass %s", device, (double)plan_peak->use.total,
             plan_peak->doing.pass ? plan_peak->doing.pass : "before the first pass");
    if (plan_peak->doing.pass && plan_peak->doing.micro >= 0) json_add(o, "microbatch %d", plan_peak->doing.micro);
    if (plan_peak->doing.part) json_add(o, "part %s", plan_peak->doing.part);
    if (plan_peak->doing.part && strcmp(plan_peak->doing.part, "layer") == 0)
        json_add(o, "layer %d", plan_peak->doing.layer);
    if (plan_peak->doing.what) json_add(o, "tensor %s", plan_peak->doing.what);
    tags = cJSON_AddObjectToObject(o, "held");
    for (int tag = 0; tag < ARENA_TAG_COUNT; tag++) {
        json_add(cJSON_AddObjectToObject(tags, arena_tag_name(tag)), "bytes %g tensors %u",
                 (double)plan_peak->use.tag[tag], plan_peak->blocks[tag]);
    }
}

/* A device has the numbers of the class with its coordinates, each modulo `every`. */
static void add_folding(cJSON *to, const struct train_record *record)
{
    const struct folding *f = &record->folded.folding;
    cJSON *o = cJSON_AddObjectToObject(to, "folding"), *every;
    char text[80];
    json_add(o, "axes %s why_not_more %s classes %d devices_of_a_class %d", folding_describe(f, text, sizeof text),
             record->folded.why, folding_lives(f), folding_share(f));
    /* With sections: the first of so many equal parts of each stage runs. */
    if (f->first) json_add(o, "parts %d", folding_share(f));
    every = cJSON_AddObjectToObject(o, "every");
    for (enum axis a = 0; a < AXIS_COUNT; a++) cJSON_AddNumberToObject(every, axis_name(a), f->every[a]);
}

void plan_report_json(cJSON *root, const struct train_record *record)
{
    cJSON *plan = cJSON_AddObjectToObject(root, "plan");
    const struct plan_path *p = &record->plan->path;
    if (p->total >= 0) add_path(plan, &record->options->cluster, p), add_shares(plan, p);
    add_peak(plan, record->device[record->plan->fullest].rank, &record->plan->peak[record->plan->fullest]);
    if (report_budget(record->options) > 0)
        cJSON_AddNumberToObject(plan, "memory_bytes", (double)report_budget(record->options));
    if (record->options->plan.micro_tokens > 0)
        json_add(plan, "fewest_microbatches %d most_microbatches %d", record->plan->fewest_micros,
                 record->plan->most_micros);
    add_folding(plan, record);
    memory_report_json(plan, record);
    if (record->plan->more) record->plan->more->json(root, record->plan->more->context);
}

/* ---- what would fit ---------------------------------------------------------------------------------------------- */

void report_changes_print(FILE *out, const struct change *change, int n)
{
    enum { LEFT = 8, WORDS = 36 };      /* columns before the list, and before the words of a change */
    uint64_t most = 0;
    picoseconds longest = 0;
    for (int i = 0; i < n; i++) {
        most = change[i].peak > most ? change[i].peak : most;
        longest = change[i].time > longest ? change[i].time : longest;
    }
    const struct figure_scale size = size_scale(most), time = time_scale(1e-12 * (double)longest);
    say(out, LEFT, n ? "        what would fit:" : "        none of the changes that were tried would fit");
    for (int i = 0; i < n; i++)
        say(out, WORDS, "        %7s %-3s  %7s %-2s a step  %s", scale_format(&size, (double)change[i].peak).text,
            size.name, scale_format(&time, 1e-12 * (double)change[i].time).text, time.name, change[i].words);
}
