/* layered_page.c -- the page of a search by layers: what planners find beside each other, the frontier of time and
 * memory, the first plan, and its pipeline on an axis of time.  layered.c calls layered_page.  ERR_FILE or ERR_MEMORY;
 * after an error there is no page. */
#include "emulated_devices/cli/train/layered.h"
#include "emulated_devices/draw/report/page.h"
#include "emulated_devices/schemes/pipeline/timing.h"
#include "ref/io/output.h"
#include <stdlib.h>
#include <string.h>

enum { COLOURS = 12, DRAWN_STAGES = 32, DRAWN_ACTIONS = 20000 };

static struct figure page_seconds(double picoseconds) { return picoseconds_format(picoseconds); }

static uint64_t peak_of(const struct layered_row *row)
{
    return row->peak > 0 ? row->peak : row->search.verdict.memory;
}

static const char page_style[] =
    "tr.first td{font-weight:600}.dot{display:inline-block;width:11px;height:11px;border-radius:50%;"
    "margin:0 6px -1px 0}td.name{white-space:nowrap}td.known{min-width:260px}.lane{grid-template-columns:64px 1fr}\n"
    ":root{--c8:#5b6470;--c9:#9aa51a;--c10:#e05297;--c11:#3f51b5}@media(prefers-color-scheme:dark){:root{--c8:#9aa5b1;"
    "--c9:#cdd65a;--c10:#ff8dbd;--c11:#8f9cf0}}\n";

/* A cell of a number, at the right. */
static void cell(FILE *file, const char *text)
{
    fputs("<td class=\"n\">", file);
    page_text(file, text);
    fputs("</td>", file);
}

/* ---- side by side ------------------------------------------------------------------------------------------------ */

static void table_row(FILE *file, const struct layered_row *row, int place)
{
    char text[32];
    fprintf(file, "<tr%s><td class=\"name\"><i class=\"dot\" style=\"background:var(--c%d)\"></i>",
            place == 0 && row->found ? " class=\"first\"" : "", place % COLOURS);
    page_text(file, row->planner->name);
    fputs("</td>", file);
    if (row->found) {
        cell(file, picoseconds_format((double)row->search.verdict.time).text);
        cell(file, row->step > 0 ? picoseconds_format((double)row->step).text : "-");
        cell(file, size_format(peak_of(row)).text);
        snprintf(text, sizeof text, "%d", row->search.best.stages);
        cell(file, text);
        snprintf(text, sizeof text, "%d", layered_table(row)->micros);
        cell(file, text);
    } else {
        cell(file, row->refused[0] ? "refused" : "none fits");
        for (int i = 0; i < 4; i++) cell(file, "-");
    }
    cell(file, time_format(row->seconds).text);
    fputs("<td class=\"known\">", file);
    page_text(file, row->refused[0] ? row->refused : row->search.note[0] ? row->search.note : row->planner->promise);
    fputs("</td></tr>\n", file);
}

static void part_planners(FILE *file, const struct layered *layered)
{
    static const char *const heads[] = { "a step by the table", "planned", "memory", "stages", "micro", "took" };
    page_part(file, "Planners side by side, the fastest step first", true);
    fputs("<div class=\"scroll\"><table><tr><th>planner</th>", file);
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) fprintf(file, "<th class=\"n\">%s</th>", heads[i]);
    fputs("<th>what is known of its plan</th></tr>\n", file);
    for (int i = 0; i < layered->rows; i++) table_row(file, &layered->row[i], i);
    fputs("</table></div>\n", file);
    page_part_end(file);
}

/* ---- the frontier ------------------------------------------------------------------------------------------------ */

static void take_axes(const struct layered *layered, struct axis_range *x, struct axis_range *y)
{
    for (int i = 0; i < layered->rows; i++) {
        const struct layer_search *const s = &layered->row[i].search;
        if (layered->row[i].found)
            axis_take(x, (double)s->verdict.memory), axis_take(y, (double)s->verdict.time);
        for (int p = 0; p < s->points; p++)
            axis_take(x, (double)s->point[p].memory), axis_take(y, (double)s->point[p].time);
    }
    axis_take(x, 0), axis_take(y, 0);
    x->most *= 1.05, y->most *= 1.05;
}

/* Points that no plan of one stage beats, as steps: with more memory the next one is there. */
static void draw_frontier(FILE *file, const struct layered *layered, const struct axis_range *x,
                          const struct axis_range *y)
{
    for (int i = 0; i < layered->rows; i++) {
        const struct layer_search *const s = &layered->row[i].search;
        if (s->points < 2) continue;
        fputs("<path fill=\"none\" stroke-width=\"1.6\" d=\"", file);
        for (int p = s->points - 1; p >= 0; p--) {
            const double at = 1000 * axis_at(x, (double)s->point[p].memory),
                down = 1000 - 1000 * axis_at(y, (double)s->point[p].time);
            if (p < s->points - 1) fprintf(file, "H%.1fV%.1f", at, down);
            else fprintf(file, "M%.1f %.1f", at, down);
        }
        fprintf(file, "\" stroke=\"var(--c%d)\"/>\n", i % COLOURS);
    }
}

static void draw_dots(FILE *file, const struct layered *layered, const struct axis_range *x,
                      const struct axis_range *y)
{
    for (int i = layered->rows - 1; i >= 0; i--) {      /* the first is on top */
        const struct layer_verdict *const v = &layered->row[i].search.verdict;
        if (!layered->row[i].found) continue;
        fprintf(file, "<path d=\"M%.1f %.1fv.01\" stroke=\"var(--c%d)\" stroke-width=\"%d\" "
                "stroke-linecap=\"round\"/>\n", 1000 * axis_at(x, (double)v->memory),
                1000 - 1000 * axis_at(y, (double)v->time), i % COLOURS,
                i == 0 ? 14 : 9);
    }
}

/* The memory of a device, as a line. */
static void draw_memory(FILE *file, uint64_t memory, const struct axis_range *x)
{
    if (memory == 0 || (double)memory > x->most) return;
    fprintf(file, "<path d=\"M%.1f 0V1000\" stroke=\"var(--bad)\" stroke-width=\"1.2\" stroke-dasharray=\"5 4\"/>\n",
            1000 * axis_at(x, (double)memory));
}

static void part_frontier(FILE *file, const struct layered *layered)
{
    struct axis_range x = { 1, 0, false }, y = { 1, 0, false };
    const uint64_t memory = layered->searched->search.memory;
    take_axes(layered, &x, &y);
    page_part(file, "Time and memory, by the table", false);
    chart_begin(file, &y, "a step", page_seconds);
    draw_memory(file, memory, &x), draw_frontier(file, layered, &x, &y), draw_dots(file, layered, &x, &y);
    chart_end(file, &x, "memory of the fullest device", page_bytes);
    fputs("<p class=\"keys\">", file);
    for (int i = 0; i < layered->rows; i++) {
        if (!layered->row[i].found) continue;
        fprintf(file, "<span><i class=\"dot\" style=\"background:var(--c%d)\"></i>%s</span> ", i % COLOURS,
                layered->row[i].planner->name);
    }
    fputs("</p><p class=\"soft\">A dot is a planner's plan; several may be in one place. A line is the frontier of "
          "plans of one stage: no such plan is both faster and leaner.", file);
    if (memory > 0 && (double)memory <= x.most) fputs(" The dashed line is the memory of a device.", file);
    fputs("</p>\n", file);
    page_part_end(file);
}

/* ---- the plan ---------------------------------------------------------------------------------------------------- */

/* Strategies of the plan in the order of their first layers: the number of one, for its colour. */
struct shown { int of[LAYERS_MOST], count; };

static int shown_number(struct shown *shown, int strategy)
{
    for (int i = 0; i < shown->count; i++)
        if (shown->of[i] == strategy) return i;
    shown->of[shown->count++] = strategy;
    return shown->count - 1;
}

static void draw_plan(FILE *file, const struct layer_table *table, const struct layer_plan *plan,
                      struct shown *shown)
{
    for (int s = 0, before = 0; s < plan->stages; before += plan->devices[s++])
        for (int l = plan->first[s], end; l < plan->first[s + 1]; l = end) {
            end = layer_plan_run_end(plan, l);
            const double left = 1000.0 * l / table->layers, right = 1000.0 * end / table->layers,
                top = 1000.0 * before / table->devices, bottom = 1000.0 * (before + plan->devices[s]) / table->devices;
            fprintf(file, "<path d=\"M%.1f %.1fH%.1fV%.1fH%.1fz\" fill=\"var(--c%d)\" stroke=\"var(--paper)\" "
                    "stroke-width=\"1\"/>\n", left, 1000 - top, right, 1000 - bottom, left,
                    shown_number(shown, plan->strategy[l]) % COLOURS);
        }
}

static void strategy_rows(FILE *file, const struct layered_row *row, struct shown *shown)
{
    const struct layer_table *const table = layered_table(row);
    const struct layer_plan *const plan = &row->search.best;
    fputs("<div class=\"scroll\"><table><tr><th class=\"n\">layers</th><th class=\"n\">devices</th><th>strategy</th>"
          "<th class=\"n\">a microbatch of the stage</th></tr>\n", file);
    for (int s = 0, before = 0; s < plan->stages; before += plan->devices[s++])
        for (int l = plan->first[s], end; l < plan->first[s + 1]; l = end) {
            char layers[48], devices[48];
            end = layer_plan_run_end(plan, l);
            snprintf(layers, sizeof layers, end - l > 1 ? "%d-%d" : "%d", l, end - 1);
            snprintf(devices, sizeof devices, plan->devices[s] > 1 ? "%d-%d" : "%d", before,
                     before + plan->devices[s] - 1);
            fputs("<tr>", file);
            cell(file, layers), cell(file, devices);
            fprintf(file, "<td class=\"name\"><i class=\"key\" style=\"background:var(--c%d)\"></i>",
                    shown_number(shown, plan->strategy[l]) % COLOURS);
            page_text(file, table->strategy[plan->strategy[l]].name);
            fputs("</td>", file);
            cell(file, l > plan->first[s] ? ""
                 : picoseconds_format((double)layer_slowed(table, layer_stage_time(table, plan, s), before,
                                                           plan->devices[s])).text);
            fputs("</tr>\n", file);
        }
    fputs("</table></div>\n", file);
}

static void part_plan(FILE *file, const struct layered_row *row)
{
    const struct layer_table *const table = layered_table(row);
    const struct axis_range layers = { 0, table->layers, false }, devices = { 0, table->devices, false };
    struct shown shown = { .count = 0 };
    char title[120];
    snprintf(title, sizeof title, "The first plan, by %s: which devices have which layers", row->planner->name);
    page_part(file, title, false);
    chart_begin(file, &devices, "devices", page_plain);
    draw_plan(file, table, &row->search.best, &shown);
    chart_end(file, &layers, "layers", page_plain);
    page_part_end(file);
    page_part(file, "Its strategies", true);
    strategy_rows(file, row, &shown);
    page_part_end(file);
}

/* ---- the pipeline ------------------------------------------------------------------------------------------------ */

/* A stage's time is cut into thirds: one forward, two backward.  Nanoseconds. */
static enum error_code time_plan(const struct layered_row *row, struct schedule *schedule, struct timing *timing,
                                 struct error *err)
{
    const struct layer_table *const table = layered_table(row);
    const struct layer_plan *const plan = &row->search.best;
    int64_t forward[STAGES_MOST], input[STAGES_MOST], weight[STAGES_MOST];
    const struct schedule_request request = { .devices = plan->stages, .micros = table->micros, .chunks = 1 };
    struct schedule_times times = { forward, input, weight, 0, 0 };
    for (int s = 0, before = 0; s < plan->stages; before += plan->devices[s++]) {
        const int64_t all = layer_slowed(table, layer_stage_time(table, plan, s), before, plan->devices[s]) / 1000;
        forward[s] = all / 3, input[s] = (all - forward[s]) / 2, weight[s] = all - forward[s] - input[s];
        if (s > 0)
            times.communication += table->hop[layer_size_find(table, plan->devices[s - 1])]
                [layer_size_find(table, plan->devices[s])] / 2000 / (plan->stages - 1);
    }
    enum error_code e = schedule_make(schedule, "1f1b", &request, err);
    if (e) return e;
    e = schedule_time(timing, schedule, &times, err);
    if (e) schedule_free(schedule);
    return e;
}

static void draw_lane(FILE *file, const struct schedule *schedule, const struct timing *timing, int stage)
{
    fprintf(file, "<div class=\"lane\"><span>stage %d</span><div class=\"bar\">", stage);
    for (int i = 0; i < schedule->count[stage]; i++) {
        const struct action *const a = &schedule->actions[stage][i];
        const double from = 100.0 * (double)timing->start[stage][i] / (double)timing->makespan,
            wide = 100.0 * (double)(timing->end[stage][i] - timing->start[stage][i]) / (double)timing->makespan;
        if (action_is_message(a->kind) || wide <= 0) continue;
        fprintf(file, "<i style=\"left:%.3f%%;width:%.3f%%;background:var(--c%d);box-shadow:inset 1px 0 var(--paper)\" "
                "title=\"%s of microbatch %d\"></i>", from, wide, a->kind == FORWARD ? 0 : 1,
                a->kind == FORWARD ? "forward" : "backward", a->micro);
    }
    fputs("</div></div>\n", file);
}

static enum error_code part_timeline(FILE *file, const struct layered_row *row, struct error *err)
{
    struct schedule schedule;
    struct timing timing;
    const int stages = row->search.best.stages;
    enum error_code e = time_plan(row, &schedule, &timing, err);
    if (e) return e;
    page_part(file, "Its pipeline: a step by 1F1B, as the table says", true);
    if (stages <= DRAWN_STAGES && stages * layered_table(row)->micros * 2 <= DRAWN_ACTIONS)
        for (int s = 0; s < stages; s++) draw_lane(file, &schedule, &timing, s);
    else fputs("<p>There are too many stages or microbatches to draw; <code>orrery plan --plan FILE --page PAGE</code> "
               "draws the devices that run.</p>", file);
    fprintf(file, "<p class=\"keys\"><span><i class=\"key\" style=\"background:var(--c0)\"></i>forward</span> <span><i "
            "class=\"key\" style=\"background:var(--c1)\"></i>backward</span></p><p class=\"soft\">0 to %s; the "
            "table's formula says %s", picoseconds_format(1000.0 * (double)timing.makespan).text,
            picoseconds_format((double)row->search.verdict.time).text);
    if (row->step > 0) fprintf(file, ", the planned step %s", picoseconds_format((double)row->step).text);
    fputs(". A third of a stage's time is forward, the rest backward, with its part of what comes once a step.</p>\n",
          file);
    page_part_end(file);
    timing_free(&timing), schedule_free(&schedule);
    return OK;
}

/* ---- the page ---------------------------------------------------------------------------------------------------- */

static enum error_code draw_page(FILE *file, const struct layered *layered, struct error *err)
{
    const struct layer_table *const t = &layered->table[0];
    const struct layered_row *const first = &layered->row[0];
    char title[400];
    snprintf(title, sizeof title, "Plans by layers: %s, %d devices", t->title[0] ? t->title : "a table", t->devices);
    page_begin_styled(file, title, page_style);
    page_part(file, "Searched", true);
    fprintf(file, "<p class=\"facts\"><span><b>layers</b> %d</span><span><b>strategies</b> %d</span>"
            "<span><b>memory of a device</b> %s</span>", t->layers, t->strategies,
            layered->searched->search.memory ? size_format(layered->searched->search.memory).text : "any");
    if (layered->searched->common[0]) {
        fputs("<span><b>of</b> ", file);
        page_text(file, layered->searched->common);
        fputs("</span>", file);
    }
    fputs("</p>\n", file);
    page_part_end(file);
    part_planners(file, layered);
    part_frontier(file, layered);
    part_plan(file, first);
    const enum error_code e = part_timeline(file, first, err);
    page_end(file);
    return e;
}

enum error_code layered_page(const struct layered *layered, const char *path, struct error *err)
{
    char *text = NULL;
    size_t size = 0;
    FILE *const to = open_memstream(&text, &size);
    if (to == NULL) return fail(err, ERR_MEMORY, "no memory for a page");
    enum error_code e = draw_page(to, layered, err);
    const bool made = fclose(to) == 0;
    if (!e) e = made ? file_write_all(path, text, size, err) : fail(err, ERR_MEMORY, "no memory for a page");
    free(text);
    return e;
}
