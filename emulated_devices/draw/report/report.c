/* report.c -- the page about runs: verdicts, results, what differs, and the charts of each.
 * cli/report.c reads the words, and calls page_write.  Errors: ERR_MEMORY, ERR_FILE of the page. */
#include "emulated_devices/draw/report/page.h"
#include "emulated_devices/device/arena.h"
#include "ref/io/output.h"
#include "ref/io/settings.h"
#include "ref/version.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the verdict ------------------------------------------------------------------------------------------------- */

static void say_verdict_of(FILE *file, bool good, const char *text)
{
    fprintf(file, "<p class=\"%s\">", good ? "good" : "bad");
    page_text(file, text);
    fputs("</p>\n", file);
}

static bool all_devices(const cJSON *devices, const char *key)
{
    const cJSON *d;
    cJSON_ArrayForEach(d, devices)
        if (!cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(d, key))) return false;
    return cJSON_GetArraySize(devices) > 0;
}

static void say_check(FILE *file, const cJSON *check)
{
    char text[200];
    const bool holds = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(check, "holds"));
    const double wrong = run_number(check, "wrong", 0), unjudged = run_number(check, "cannot_be_judged", 0);
    if (holds)
        snprintf(text, sizeof text, "Equal to one device: %.0f tensors compared, all within their bounds.",
                 run_number(check, "compared", 0));
    else if (wrong == 0 && unjudged > 0)
        snprintf(text, sizeof text, "NOT ENOUGH: %.0f of %.0f comparisons with one device cannot be judged.", unjudged,
                 run_number(check, "compared", 0));
    else
        snprintf(text, sizeof text, "DIFFERS from one device: %.0f of %.0f comparisons do not hold.", wrong,
                 run_number(check, "compared", 0));
    say_verdict_of(file, holds, text);
}

static void report_verdict(FILE *file, const struct told_run *told_run)
{
    const cJSON *check = cJSON_GetObjectItemCaseSensitive(told_run->root, "check"),
                *devices = cJSON_GetObjectItemCaseSensitive(told_run->root, "devices"),
                *diverged = cJSON_GetObjectItemCaseSensitive(told_run->root, "diverged");
    const char *stopped = run_text(told_run->root, "stopped");
    char text[120];
    if (cJSON_IsObject(check)) say_check(file, check);
    else fputs("<p class=\"soft\">Not compared with one device (--check ref).</p>\n", file);
    if (cJSON_IsArray(devices)) {
        const bool traffic = all_devices(devices, "traffic_equals_formulas"),
                   memory = all_devices(devices, "memory_equals_formulas");
        say_verdict_of(file, traffic, traffic ? "Messages, bytes and additions equal the formulas."
                                           : "Messages, bytes or additions DIFFER from the formulas.");
        say_verdict_of(file, memory, memory ? "Peaks of memory equal the formulas."
                                         : "Peaks of memory DIFFER from the formulas.");
    }
    if (cJSON_IsObject(diverged)) {
        snprintf(text, sizeof text, "DIVERGED at step %.0f.", run_number(diverged, "step", 0));
        say_verdict_of(file, false, text);
    }
    if (stopped) {
        snprintf(text, sizeof text, "Stopped by %.20s before its last step.", stopped);
        say_verdict_of(file, false, text);
    }
}

/* ---- what differs ------------------------------------------------------------------------------------------------ */

/* A value as text: of a text, a number, a truth, a list of words; "" for anything else. */
static void value_of(const cJSON *x, char *text, size_t size)
{
    text[0] = '\0';
    if (cJSON_IsString(x)) snprintf(text, size, "%s", x->valuestring);
    else if (cJSON_IsNumber(x)) snprintf(text, size, "%.10g", x->valuedouble);
    else if (cJSON_IsBool(x)) snprintf(text, size, "%s", cJSON_IsTrue(x) ? "true" : "false");
    const cJSON *word;
    size_t used = 0;
    if (cJSON_IsArray(x))
        cJSON_ArrayForEach(word, x)
            if (cJSON_IsString(word) && used < size)
                used += (size_t)snprintf(text + used, size - used, "%s%s", used ? " " : "", word->valuestring);
}

enum { VALUE = 300 };

static void row(FILE *file, const char *name, const struct told_run *run, int runs, const char *section,
                const char *key, bool only_different)
{
    char text[MOST_RUNS][VALUE];
    bool same = true, there = false;
    for (int i = 0; i < runs; i++) {
        const cJSON *o = section ? cJSON_GetObjectItemCaseSensitive(run[i].root, section) : run[i].root;
        value_of(cJSON_GetObjectItemCaseSensitive(o, key), text[i], VALUE);
        same = same && strcmp(text[i], text[0]) == 0;
        there = there || text[i][0];
    }
    if (!there || (same && only_different)) return;
    fputs("<tr><td>", file);
    page_text(file, name);
    fputs("</td>", file);
    for (int i = 0; i < runs; i++) {
        fputs("<td>", file);
        page_text(file, text[i]);
        fputs("</td>", file);
    }
    fputs("</tr>\n", file);
}

/* Each key of the section in any run, once. */
static void report_rows(FILE *file, const struct told_run *run, int runs, const char *section, bool only_different)
{
    for (int i = 0; i < runs; i++) {
        const cJSON *x, *o = cJSON_GetObjectItemCaseSensitive(run[i].root, section);
        if (!cJSON_IsObject(o)) continue;
        cJSON_ArrayForEach(x, o) {
            bool before = false;
            for (int k = 0; k < i && !before; k++)
                before = cJSON_HasObjectItem(cJSON_GetObjectItemCaseSensitive(run[k].root, section), x->string);
            if (!before) row(file, x->string, run, runs, section, x->string, only_different);
        }
    }
}

static void heads(FILE *file, const struct told_run *run, int runs)
{
    fputs("<div class=\"scroll\"><table class=\"values\"><tr><th></th>", file);
    for (int i = 0; i < runs; i++) {
        fprintf(file, "<th><i class=\"key\" style=\"background:var(--c%d)\"></i>", i % 8);
        page_text(file, run[i].name);
        fputs("</th>", file);
    }
    fputs("</tr>\n", file);
}

/* A number of every run, as people write it. */
static void measured(FILE *file, const char *name, const struct told_run *run, int runs, const char *key, double unit,
                     struct figure (*format)(double))
{
    bool there = false;
    for (int i = 0; i < runs; i++) there = there || isfinite(run_number(run[i].root, key, NAN));
    if (!there) return;
    fprintf(file, "<tr><td>%s</td>", name);
    for (int i = 0; i < runs; i++) {
        const double x = run_number(run[i].root, key, NAN);
        fprintf(file, "<td>%s</td>", isfinite(x) ? format(unit * x).text : "");
    }
    fputs("</tr>\n", file);
}

static void results(FILE *file, const struct told_run *run, int runs)
{
    page_part(file, runs > 1 ? "Results, and what differs" : "Results, and what was set", true);
    heads(file, run, runs);
    measured(file, "loss on held-out text", run, runs, "validation_loss", 1, page_plain);
    measured(file, "median step", run, runs, "median_step_seconds", 1e12, picoseconds_format);
    measured(file, "virtual step", run, runs, "virtual_step_ps", 1, picoseconds_format);
    measured(file, "FLOP of a step", run, runs, "step_flops", 1, flop_format);
    measured(file, "saved at step", run, runs, "saved_step", 1, page_plain);
    report_rows(file, run, runs, "settings", runs > 1);
    report_rows(file, run, runs, "written_by", runs > 1);
    fputs("</table></div>\n", file);
    page_part_end(file);
}

/* ---- one run ----------------------------------------------------------------------------------------------------- */

static void fact(FILE *file, const char *name, const cJSON *x)
{
    char text[VALUE];
    value_of(x, text, sizeof text);
    if (text[0] == '\0') return;
    fputs("<span><b>", file);
    page_text(file, name);
    fputs("</b> ", file);
    page_text(file, text);
    fputs("</span>\n", file);
}

static void facts(FILE *file, const char *title, const cJSON *o)
{
    const cJSON *x;
    if (!cJSON_IsObject(o)) return;
    fprintf(file, "<p class=\"facts\"><b>%s:</b>", title);
    cJSON_ArrayForEach(x, o) fact(file, x->string, x);
    fputs("</p>\n", file);
}

static void report_plan(FILE *file, const struct told_run *told_run)
{
    static const char *const of[] = { "batch", "seq", "micro", "dtype", "grad_dtype", "optimizer", "seed", "cluster" };
    facts(file, "model", cJSON_GetObjectItemCaseSensitive(told_run->root, "model"));
    facts(file, "mesh", cJSON_GetObjectItemCaseSensitive(told_run->root, "mesh"));
    facts(file, "run", cJSON_GetObjectItemCaseSensitive(told_run->root, "run"));
    fputs("<p class=\"facts\">", file);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        fact(file, of[i], cJSON_GetObjectItemCaseSensitive(told_run->root, of[i]));
    fputs("</p>\n", file);
}

/* Peaks of the whole run. */
static void peaks(FILE *file, const cJSON *devices)
{
    enum { MOST = 16 };
    const cJSON *d;
    int i = 0;
    fputs("<div class=\"scroll\"><table><tr><th>device</th>", file);
    for (int t = 0; t < ARENA_TAG_COUNT; t++)
        fprintf(file, "<th class=\"n\">%s</th>", arena_tag_name((enum arena_tag)t));
    fputs("<th class=\"n\">peak</th></tr>\n", file);
    cJSON_ArrayForEach(d, devices) {
        const cJSON *peak = cJSON_GetObjectItemCaseSensitive(d, "peak_bytes");
        if (i++ == MOST) break;
        const double alike = run_number(d, "stands_for", 1) - 1;       /* of a plan: others of its class */
        fprintf(file, alike > 0 ? "<tr><td>%.0f and %.0f alike</td>" : "<tr><td>%.0f</td>", run_number(d, "rank", 0),
                alike);
        for (int t = 0; t < ARENA_TAG_COUNT; t++)
            fprintf(file, "<td class=\"n\">%s</td>",
                    page_bytes(run_number(peak, arena_tag_name((enum arena_tag)t), 0)).text);
        fprintf(file, "<td class=\"n\">%s</td></tr>\n", page_bytes(run_number(peak, "total", 0)).text);
    }
    fputs("</table></div>\n", file);
    if (cJSON_GetArraySize(devices) > MOST)
        fprintf(file, "<p class=\"soft\">The first %d devices of %d.</p>\n", MOST, cJSON_GetArraySize(devices));
}

/* A file for --config; `orrery train --config` finds it in the page, too. */
static void again(FILE *file, const struct told_run *told_run)
{
    const cJSON *x, *settings = cJSON_GetObjectItemCaseSensitive(told_run->root, "settings");
    char *text = NULL;
    size_t bytes;
    if (!cJSON_IsObject(settings)) return;
    fputs("<details><summary>settings, for <code>orrery train --config</code></summary>\n" SETTINGS_ON_PAGE, file);
    cJSON_ArrayForEach(x, settings) {
        FILE *line = open_memstream(&text, &bytes);
        if (line == NULL) break;
        yml_print_text(line, x->string), fputs(": ", line);
        yml_print_text(line, cJSON_IsString(x) ? x->valuestring : "");
        if (fclose(line) == 0) page_text(file, text), fputc('\n', file);
        free(text);
    }
    fputs("</pre></details>\n", file);
}

static void titled(FILE *file, const struct told_run *told_run, const char *what, bool wide)
{
    char title[140];
    snprintf(title, sizeof title, "%s: %s", told_run->name, what);
    page_part(file, title, wide);
}

/* Where a profile has no room for all of the step, nobody may take its sums for the step's. */
static void what_is_left_out(FILE *file, const cJSON *profile)
{
    const cJSON *device;
    int cut = 0;
    cJSON_ArrayForEach(device, cJSON_GetObjectItemCaseSensitive(profile, "devices"))
        cut += cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(device, "whole"));
    if (cut > 0)
        fprintf(file,
                "<p class=\"bad\">Of %d device%s the step had more events than are recorded: the end of the step is "
                "missing here, and in the memory, bytes and roofline below.</p>\n", cut, cut > 1 ? "s" : "");
}

static void one_run(FILE *file, const struct told_run *told_run)
{
    const cJSON *profile = cJSON_GetObjectItemCaseSensitive(told_run->root, "profile"),
                *devices = cJSON_GetObjectItemCaseSensitive(told_run->root, "devices");
    titled(file, told_run, "verdict and plan", true), report_verdict(file, told_run), report_plan(file, told_run),
        again(file, told_run), page_part_end(file);
    const double steps = run_number(profile, "steps", 1);
    if (cJSON_IsObject(profile) && steps != 1) {
        titled(file, told_run, "first step of each device", true);
        fprintf(file, "<p class=\"bad\">This file adds up %.0f steps, so nothing of the first one is drawn.</p>\n",
                steps);
        page_part_end(file);
    } else if (cJSON_IsObject(profile)) {
        titled(file, told_run, "first step of each device", true), what_is_left_out(file, profile),
            chart_timeline(file, profile), page_part_end(file);
        titled(file, told_run, "memory in the first step", false), chart_memory(file, profile), page_part_end(file);
        titled(file, told_run, "bytes sent in the first step", false), chart_traffic(file, profile),
            page_part_end(file);
        titled(file, told_run, "roofline", false), chart_roofline(file, profile), page_part_end(file);
    }
    if (cJSON_IsArray(devices))
        titled(file, told_run, "peaks of memory", false), peaks(file, devices), page_part_end(file);
}

/* ---- the page ---------------------------------------------------------------------------------------------------- */

static void write_page(FILE *file, const struct told_run *run, int runs)
{
    page_begin(file, runs > 1 ? "Orrery: runs side by side" : "Orrery: a run");
    page_part(file, "Loss", false), chart_losses(file, run, runs), page_part_end(file);
    page_part(file, "Norm of the gradients", false), chart_norms(file, run, runs), page_part_end(file);
    page_part(file, "Learning rate", false), chart_rates(file, run, runs), page_part_end(file);
    results(file, run, runs);
    for (int i = 0; i < runs; i++) one_run(file, &run[i]);
    page_part(file, "About this page", true);
    fprintf(file,
            "<p class=\"soft\">Written by orrery report %s. Times of devices are virtual: those of the cluster that "
            "the run names.</p>\n", ORRERY_VERSION);
    page_part_end(file);
    page_end(file);
}

enum error_code page_write(const char *path, const struct told_run *run, int runs, struct error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    if (f) write_page(f, run, runs);
    enum error_code e = f && fclose(f) == 0 ? OK : fail(err, ERR_MEMORY, "no memory for the page");
    if (!e) e = fail_about(err, file_write_all(path, text, bytes, err), "--out");
    free(text);
    return e;
}
