#include "emulated_devices/cli/train/report/plan_report.h"
#include "emulated_devices/device/streams.h"
#include "ref/io/columns.h"
#include "ref/io/figures.h"
#include "ref/io/terminal.h"
#include <stdlib.h>
#include <string.h>

/* ---- adding up --------------------------------------------------------------------------------------------------- */

struct adding { struct plan_path *path; const struct cluster *cluster; bool *on; int devices; };

static bool alike(const struct path_row *r, const struct path_piece *p, int level)
{
    if (r->like.kind != p->kind || r->level != level) return false;
    if (p->kind == PATH_IDLE) return true;
    if (r->like.stream != p->stream) return false;
    return p->kind == PATH_MESSAGE ? r->like.traffic == p->traffic : strcmp(r->like.what, p->what) == 0;
}

static struct path_row *row_of(struct plan_path *path, const struct path_piece *p, int level)
{
    int i = 0;
    while (i < path->rows && !alike(&path->row[i], p, level)) i++;
    if (i == path->rows && path->rows < PATH_ROWS) path->row[path->rows++] = (struct path_row){ *p, level, 0, 0, 0 };
    return &path->row[i < path->rows ? i : path->rows - 1];
}

static void add_piece(const struct path_piece *p, void *context)
{
    struct adding *a = context;
    const int level = p->kind == PATH_MESSAGE
        ? link_between(a->cluster->link, a->cluster->levels, p->sender, p->device) : 0;
    struct path_row *r = row_of(a->path, p, level);
    bool *on = &a->on[(r - a->path->row) * a->devices + p->device];
    r->takes += p->to - p->from;
    r->pieces++;
    r->devices += !*on;
    *on = true;
}

static int longest_first(const void *a, const void *b)
{
    const picoseconds x = ((const struct path_row *)a)->takes, y = ((const struct path_row *)b)->takes;
    return x < y ? 1 : x > y ? -1 : 0;
}

/* The mean of all devices: each that ran stands for as many. */
static void add_shares_of_all(struct plan_path *path, const struct folding *f, struct events *const *events)
{
    struct step_share sum = { 0 };
    path->least = path->total;
    const int lives = folding_lives(f);
    for (int d = 0; d < f->mesh.devices; d++) {
        if (folding_stands_for(f, d) != d) continue;
        const struct step_share s = step_share(events[d], path->total);
        if (s.computing < path->least) path->least = s.computing;
        if (s.computing > path->most) path->most = s.computing;
        sum.computing += s.computing, sum.engines += s.engines, sum.ended += s.ended;
        for (int k = 0; k < TRAFFIC_KIND_COUNT; k++) sum.waiting[k] += s.waiting[k];
    }
    sum.computing /= lives, sum.engines /= lives, sum.ended /= lives;
    for (int k = 0; k < TRAFFIC_KIND_COUNT; k++) sum.waiting[k] /= lives;
    path->share = sum;
}

enum error_code plan_path_of(struct plan_path *path, const struct cluster *c, const struct folding *f,
                             struct events *const *events, struct error *err)
{
    struct adding a = { path, c, calloc((size_t)f->mesh.devices * PATH_ROWS, sizeof *a.on), f->mesh.devices };
    *path = (struct plan_path){ .rows = 0 };
    if (a.on == NULL) return fail(err, ERR_MEMORY, "no memory for the path of %d devices", f->mesh.devices);
    path->total = step_path(f, events, add_piece, &a);
    free(a.on);
    if (path->total < 0) return OK;
    qsort(path->row, (size_t)path->rows, sizeof *path->row, longest_first);
    add_shares_of_all(path, f, events);
    return OK;
}

struct plan_peak plan_peak_of(const struct trainer *t)
{
    const struct arena *a = &t->device->arena;
    struct plan_peak p = { .use = a->at_peak, .doing = a->doing_at_peak };
    memcpy(p.blocks, a->blocks_at_peak, sizeof p.blocks);
    return p;
}

/* ---- as text ----------------------------------------------------------------------------------------------------- */

static const char *sort_of(const struct path_row *r, const struct cluster *c, char *text, size_t size)
{
    const enum stream on = (enum stream)r->like.stream;
    char stream[40] = "";
    if (on != COMPUTE) snprintf(stream, sizeof stream, " (%s)", stream_name(on));
    if (r->like.kind == PATH_WORK) snprintf(text, size, "%s%s", r->like.what, stream);
    else if (r->like.kind == PATH_MESSAGE)
        snprintf(text, size, "%s messages, %s%s", traffic_kind_name(r->like.traffic), c->link[r->level].level, stream);
    else snprintf(text, size, "waiting for an engine");
    return text;
}

enum { SHOWN = 12 };                    /* rows; JSON has all */

static picoseconds rest_of(const struct plan_path *p)
{
    picoseconds rest = 0;
    for (int i = SHOWN; i < p->rows; i++) rest += p->row[i].takes;
    return rest;
}

static void path_row(struct columns *t, const char *what, picoseconds takes, const struct plan_path *p,
                     const struct path_row *row)
{
    const struct figure_scale scale = time_scale(1e-12 * (double)p->total);
    columns_add(t, LEFT_ALIGNED, "  %s", what);
    columns_add(t, RIGHT_ALIGNED, "%s", scale_format(&scale, 1e-12 * (double)takes).text);
    columns_add(t, RIGHT_ALIGNED, "%.1f", 100 * (double)takes / (double)p->total);
    if (row) columns_add(t, RIGHT_ALIGNED, "%d", row->pieces), columns_add(t, RIGHT_ALIGNED, "%d", row->devices);
    columns_end_row(t);
}

void plan_report_path(const struct train_record *r)
{
    const struct plan_path *p = &r->plan->path;
    const struct cluster *c = &r->options->cluster;
    struct columns t = columns_start(r->out);
    char text[120];
    if (p->total < 0) {
        say(r->out, 8, "path    not kept: the step has too many events");
        return;
    }
    fprintf(r->out, "\n");
    say(r->out, 0, "critical path of %s: work and messages that follow each other",
        r->steps == 1 ? "the step" : "all steps");
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
    fprintf(r->out, "\n");
}

static double percent(picoseconds part, const struct plan_path *p)
{
    return p->total > 0 ? 100 * (double)part / (double)p->total : 0;
}

void plan_report_waits(const struct train_record *r)
{
    const struct plan_path *p = &r->plan->path;
    char kinds[160] = "";
    int used = 0;
    if (p->total <= 0) return;
    say(r->out, 8, "compute %.1f %% of a step on average, %.1f to %.1f %% on each device",
        percent(p->share.computing, p), percent(p->least, p), percent(p->most, p));
    for (enum traffic_kind k = 0; k < TRAFFIC_KIND_COUNT; k++)
        if (k != TRAFFIC_PIPELINE && k != TRAFFIC_RESULT && percent(p->share.waiting[k], p) >= 0.05 && used < 120)
            used += snprintf(kinds + used, sizeof kinds - (size_t)used, "%s%s %.1f", used ? ", " : ": ",
                             traffic_kind_name(k), percent(p->share.waiting[k], p));
    if (percent(p->share.engines, p) >= 0.05 && used < 140)
        snprintf(kinds + used, sizeof kinds - (size_t)used, "%scopies %.1f", used ? ", " : ": ",
                 percent(p->share.engines, p));
    say(r->out, 8, "bubble  %.1f %% of a step, a device waits for other stages and for slower devices",
        percent(step_share_bubble(&p->share), p));
    say(r->out, 8, "exposed %.1f %% of a step, it waits for communication that nothing hides%s",
        percent(step_share_exposed(&p->share), p), kinds);
}

void plan_report_peak(const struct train_record *r)
{
    const struct plan_peak *p = &r->plan->peak[r->plan->fullest];
    const struct figure_scale scale = size_scale(p->use.total);
    char when[160];
    say(r->out, 8, "peak    of device %d, %s: in %s", r->plan->fullest, size_format(p->use.total).text,
        doing_describe(&p->doing, when, sizeof when));
    fprintf(r->out, "        held at the peak, in %s:\n", scale.name);
    for (int tag = 0; tag < ARENA_TAG_COUNT; tag++)
        if (p->use.tag[tag] > 0)
            fprintf(r->out, "        %9s  %s (%u tensor%s)\n", scale_format(&scale, (double)p->use.tag[tag]).text,
                    arena_tag_name(tag), p->blocks[tag], plural((int)p->blocks[tag]));
}

/* ---- as JSON ----------------------------------------------------------------------------------------------------- */

static void add_path(cJSON *to, const struct cluster *c, const struct plan_path *p)
{
    static const char *const kind[] = { [PATH_WORK] = "work", [PATH_MESSAGE] = "messages", [PATH_IDLE] = "idle" };
    cJSON *path = cJSON_AddArrayToObject(to, "critical_path");
    for (int i = 0; i < p->rows; i++) {
        const struct path_row *r = &p->row[i];
        cJSON *o = cJSON_CreateObject();
        cJSON_AddItemToArray(path, o);
        cJSON_AddStringToObject(o, "kind", kind[r->like.kind]);
        if (r->like.kind == PATH_WORK) cJSON_AddStringToObject(o, "what", r->like.what);
        if (r->like.kind != PATH_IDLE)
            cJSON_AddStringToObject(o, "stream", stream_name((enum stream)r->like.stream));
        if (r->like.kind == PATH_MESSAGE) cJSON_AddStringToObject(o, "what", traffic_kind_name(r->like.traffic));
        if (r->like.kind == PATH_MESSAGE) cJSON_AddStringToObject(o, "level", c->link[r->level].level);
        cJSON_AddNumberToObject(o, "ps", (double)r->takes);
        cJSON_AddNumberToObject(o, "pieces", r->pieces);
        cJSON_AddNumberToObject(o, "devices", r->devices);
    }
}

static void add_shares(cJSON *to, const struct plan_path *p)
{
    cJSON *o = cJSON_AddObjectToObject(to, "mean_device_ps"), *waits;
    cJSON_AddNumberToObject(o, "computing", (double)p->share.computing);
    waits = cJSON_AddObjectToObject(o, "waiting");
    for (enum traffic_kind k = 0; k < TRAFFIC_KIND_COUNT; k++)
        cJSON_AddNumberToObject(waits, traffic_kind_name(k), (double)p->share.waiting[k]);
    cJSON_AddNumberToObject(o, "engines", (double)p->share.engines);
    cJSON_AddNumberToObject(o, "ended", (double)p->share.ended);
    cJSON_AddNumberToObject(to, "bubble", percent(step_share_bubble(&p->share), p) / 100);
    cJSON_AddNumberToObject(to, "exposed_communication", percent(step_share_exposed(&p->share), p) / 100);
}

static void add_peak(cJSON *to, int device, const struct plan_peak *p)
{
    cJSON *o = cJSON_AddObjectToObject(to, "peak"), *tags;
    cJSON_AddNumberToObject(o, "device", device);
    cJSON_AddNumberToObject(o, "bytes", (double)p->use.total);
    cJSON_AddStringToObject(o, "pass", p->doing.pass ? p->doing.pass : "before the first pass");
    if (p->doing.pass && p->doing.micro >= 0) cJSON_AddNumberToObject(o, "microbatch", p->doing.micro);
    if (p->doing.part) cJSON_AddStringToObject(o, "part", p->doing.part);
    if (p->doing.part && strcmp(p->doing.part, "layer") == 0) cJSON_AddNumberToObject(o, "layer", p->doing.layer);
    if (p->doing.what) cJSON_AddStringToObject(o, "tensor", p->doing.what);
    tags = cJSON_AddObjectToObject(o, "held");
    for (int tag = 0; tag < ARENA_TAG_COUNT; tag++) {
        cJSON *t = cJSON_AddObjectToObject(tags, arena_tag_name(tag));
        cJSON_AddNumberToObject(t, "bytes", (double)p->use.tag[tag]);
        cJSON_AddNumberToObject(t, "tensors", p->blocks[tag]);
    }
}

static void add_folding(cJSON *to, const struct train_record *r)
{
    const struct folding *f = &r->folded.folding;
    cJSON *o = cJSON_AddObjectToObject(to, "folding"), *list;
    char text[80];
    cJSON_AddStringToObject(o, "axes", folding_describe(f, text, sizeof text));
    cJSON_AddStringToObject(o, "why_not_more", r->folded.why);
    list = cJSON_AddArrayToObject(o, "classes");
    for (int d = 0; d < f->mesh.devices; d++) {
        if (folding_stands_for(f, d) != d) continue;
        cJSON *class = cJSON_CreateObject();
        cJSON_AddItemToArray(list, class);
        cJSON_AddNumberToObject(class, "first", d);
        cJSON_AddNumberToObject(class, "devices", f->mesh.devices / folding_lives(f));
    }
}

void plan_report_json(cJSON *root, const struct train_record *r)
{
    cJSON *plan = cJSON_AddObjectToObject(root, "plan");
    const struct plan_path *p = &r->plan->path;
    if (p->total >= 0) add_path(plan, &r->options->cluster, p), add_shares(plan, p);
    add_peak(plan, r->plan->fullest, &r->plan->peak[r->plan->fullest]);
    add_folding(plan, r);
}
