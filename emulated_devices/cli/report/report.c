/* report.c -- `orrery report`: runs side by side, on one page that needs nothing else. */
#include "emulated_devices/cli/cli.h"
#include "emulated_devices/cli/report/page.h"
#include "emulated_devices/device/arena.h"
#include "ref/io/output.h"
#include "ref/io/settings.h"
#include "ref/version.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the verdict ------------------------------------------------------------------------------------------------- */

static void say_verdict_of(FILE *f, bool good, const char *text)
{
    fprintf(f, "<p class=\"%s\">", good ? "good" : "bad");
    page_text(f, text);
    fputs("</p>\n", f);
}

static bool all_devices(const cJSON *devices, const char *key)
{
    const cJSON *d;
    cJSON_ArrayForEach(d, devices)
        if (!cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(d, key))) return false;
    return cJSON_GetArraySize(devices) > 0;
}

static void say_check(FILE *f, const cJSON *check)
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
    say_verdict_of(f, holds, text);
}

static void verdict(FILE *f, const struct told_run *r)
{
    const cJSON *check = cJSON_GetObjectItemCaseSensitive(r->root, "check"),
                *devices = cJSON_GetObjectItemCaseSensitive(r->root, "devices"),
                *diverged = cJSON_GetObjectItemCaseSensitive(r->root, "diverged");
    const char *stopped = run_text(r->root, "stopped");
    char text[120];
    if (cJSON_IsObject(check)) say_check(f, check);
    else fputs("<p class=\"soft\">Not compared with one device (--check ref).</p>\n", f);
    if (cJSON_IsArray(devices)) {
        const bool traffic = all_devices(devices, "traffic_equals_formulas"),
                   memory = all_devices(devices, "memory_equals_formulas");
        say_verdict_of(f, traffic, traffic ? "Messages, bytes and additions equal the formulas."
                                           : "Messages, bytes or additions DIFFER from the formulas.");
        say_verdict_of(f, memory, memory ? "Peaks of memory equal the formulas."
                                         : "Peaks of memory DIFFER from the formulas.");
    }
    if (cJSON_IsObject(diverged)) {
        snprintf(text, sizeof text, "DIVERGED at step %.0f.", run_number(diverged, "step", 0));
        say_verdict_of(f, false, text);
    }
    if (stopped) {
        snprintf(text, sizeof text, "Stopped by %.20s before its last step.", stopped);
        say_verdict_of(f, false, text);
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

static void row(FILE *f, const char *name, const struct told_run *run, int runs, const char *section, const char *key,
                bool only_different)
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
    fputs("<tr><td>", f);
    page_text(f, name);
    fputs("</td>", f);
    for (int i = 0; i < runs; i++) {
        fputs("<td>", f);
        page_text(f, text[i]);
        fputs("</td>", f);
    }
    fputs("</tr>\n", f);
}

/* Each key of the section in any run, once. */
static void rows(FILE *f, const struct told_run *run, int runs, const char *section, bool only_different)
{
    for (int i = 0; i < runs; i++) {
        const cJSON *x, *o = cJSON_GetObjectItemCaseSensitive(run[i].root, section);
        if (!cJSON_IsObject(o)) continue;
        cJSON_ArrayForEach(x, o) {
            bool before = false;
            for (int k = 0; k < i && !before; k++)
                before = cJSON_HasObjectItem(cJSON_GetObjectItemCaseSensitive(run[k].root, section), x->string);
            if (!before) row(f, x->string, run, runs, section, x->string, only_different);
        }
    }
}

static void heads(FILE *f, const struct told_run *run, int runs)
{
    fputs("<div class=\"scroll\"><table class=\"values\"><tr><th></th>", f);
    for (int i = 0; i < runs; i++) {
        fprintf(f, "<th><i class=\"key\" style=\"background:var(--c%d)\"></i>", i % 8);
        page_text(f, run[i].name);
        fputs("</th>", f);
    }
    fputs("</tr>\n", f);
}

/* A number of every run, as people write it. */
static void measured(FILE *f, const char *name, const struct told_run *run, int runs, const char *key, double unit,
                     struct figure (*format)(double))
{
    bool there = false;
    for (int i = 0; i < runs; i++) there = there || isfinite(run_number(run[i].root, key, NAN));
    if (!there) return;
    fprintf(f, "<tr><td>%s</td>", name);
    for (int i = 0; i < runs; i++) {
        const double x = run_number(run[i].root, key, NAN);
        fprintf(f, "<td>%s</td>", isfinite(x) ? format(unit * x).text : "");
    }
    fputs("</tr>\n", f);
}

static void results(FILE *f, const struct told_run *run, int runs)
{
    page_part(f, runs > 1 ? "Results, and what differs" : "Results, and what was set", true);
    heads(f, run, runs);
    measured(f, "loss on held-out text", run, runs, "validation_loss", 1, page_plain);
    measured(f, "median step", run, runs, "median_step_seconds", 1e12, picoseconds_format);
    measured(f, "virtual step", run, runs, "virtual_step_ps", 1, picoseconds_format);
    measured(f, "FLOP of a step", run, runs, "step_flops", 1, flop_format);
    measured(f, "saved at step", run, runs, "saved_step", 1, page_plain);
    rows(f, run, runs, "settings", runs > 1);
    rows(f, run, runs, "written_by", runs > 1);
    fputs("</table></div>\n", f);
    page_part_end(f);
}

/* ---- one run ----------------------------------------------------------------------------------------------------- */

static void fact(FILE *f, const char *name, const cJSON *x)
{
    char text[VALUE];
    value_of(x, text, sizeof text);
    if (text[0] == '\0') return;
    fputs("<span><b>", f);
    page_text(f, name);
    fputs("</b> ", f);
    page_text(f, text);
    fputs("</span>\n", f);
}

static void facts(FILE *f, const char *title, const cJSON *o)
{
    const cJSON *x;
    if (!cJSON_IsObject(o)) return;
    fprintf(f, "<p class=\"facts\"><b>%s:</b>", title);
    cJSON_ArrayForEach(x, o) fact(f, x->string, x);
    fputs("</p>\n", f);
}

static void plan(FILE *f, const struct told_run *r)
{
    static const char *const of[] = { "batch", "seq", "micro", "dtype", "grad_dtype", "optimizer", "seed", "cluster" };
    facts(f, "model", cJSON_GetObjectItemCaseSensitive(r->root, "model"));
    facts(f, "mesh", cJSON_GetObjectItemCaseSensitive(r->root, "mesh"));
    facts(f, "run", cJSON_GetObjectItemCaseSensitive(r->root, "run"));
    fputs("<p class=\"facts\">", f);
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        fact(f, of[i], cJSON_GetObjectItemCaseSensitive(r->root, of[i]));
    fputs("</p>\n", f);
}

/* Peaks of the whole run. */
static void peaks(FILE *f, const cJSON *devices)
{
    enum { MOST = 16 };
    const cJSON *d;
    int i = 0;
    fputs("<div class=\"scroll\"><table><tr><th>device</th>", f);
    for (int t = 0; t < ARENA_TAG_COUNT; t++) fprintf(f, "<th class=\"n\">%s</th>", arena_tag_name((enum arena_tag)t));
    fputs("<th class=\"n\">peak</th></tr>\n", f);
    cJSON_ArrayForEach(d, devices) {
        const cJSON *peak = cJSON_GetObjectItemCaseSensitive(d, "peak_bytes");
        if (i++ == MOST) break;
        fprintf(f, "<tr><td>%.0f</td>", run_number(d, "rank", 0));
        for (int t = 0; t < ARENA_TAG_COUNT; t++)
            fprintf(f, "<td class=\"n\">%s</td>",
                    page_bytes(run_number(peak, arena_tag_name((enum arena_tag)t), 0)).text);
        fprintf(f, "<td class=\"n\">%s</td></tr>\n", page_bytes(run_number(peak, "total", 0)).text);
    }
    fputs("</table></div>\n", f);
    if (cJSON_GetArraySize(devices) > MOST)
        fprintf(f, "<p class=\"soft\">The first %d devices of %d.</p>\n", MOST, cJSON_GetArraySize(devices));
}

/* A file for --config; `orrery train --config` finds it in the page, too. */
static void again(FILE *f, const struct told_run *r)
{
    const cJSON *x, *settings = cJSON_GetObjectItemCaseSensitive(r->root, "settings");
    char *text = NULL;
    size_t bytes;
    if (!cJSON_IsObject(settings)) return;
    fputs("<details><summary>settings, for <code>orrery train --config</code></summary>\n" SETTINGS_ON_PAGE, f);
    cJSON_ArrayForEach(x, settings) {
        FILE *line = open_memstream(&text, &bytes);
        if (line == NULL) break;
        yml_print_text(line, x->string), fputs(": ", line);
        yml_print_text(line, cJSON_IsString(x) ? x->valuestring : "");
        if (fclose(line) == 0) page_text(f, text), fputc('\n', f);
        free(text);
    }
    fputs("</pre></details>\n", f);
}

static void titled(FILE *f, const struct told_run *r, const char *what, bool wide)
{
    char title[140];
    snprintf(title, sizeof title, "%s: %s", r->name, what);
    page_part(f, title, wide);
}

/* Where a profile has no room for all of the step, nobody may take its sums for the step's. */
static void what_is_left_out(FILE *f, const cJSON *profile)
{
    const cJSON *device;
    int cut = 0;
    cJSON_ArrayForEach(device, cJSON_GetObjectItemCaseSensitive(profile, "devices"))
        cut += cJSON_IsFalse(cJSON_GetObjectItemCaseSensitive(device, "whole"));
    if (cut > 0)
        fprintf(f, "<p class=\"bad\">Of %d device%s the step had more events than are recorded: the end of the step is "
                "missing here, and in the memory, bytes and roofline below.</p>\n", cut, cut > 1 ? "s" : "");
}

static void one_run(FILE *f, const struct told_run *r)
{
    const cJSON *profile = cJSON_GetObjectItemCaseSensitive(r->root, "profile"),
                *devices = cJSON_GetObjectItemCaseSensitive(r->root, "devices");
    titled(f, r, "verdict and plan", true), verdict(f, r), plan(f, r), again(f, r), page_part_end(f);
    const double steps = run_number(profile, "steps", 1);
    if (cJSON_IsObject(profile) && steps != 1) {
        titled(f, r, "first step of each device", true);
        fprintf(f, "<p class=\"bad\">This file adds up %.0f steps, so nothing of the first one is drawn.</p>\n", steps);
        page_part_end(f);
    } else if (cJSON_IsObject(profile)) {
        titled(f, r, "first step of each device", true), what_is_left_out(f, profile),
            chart_timeline(f, profile), page_part_end(f);
        titled(f, r, "memory in the first step", false), chart_memory(f, profile), page_part_end(f);
        titled(f, r, "bytes sent in the first step", false), chart_traffic(f, profile), page_part_end(f);
        titled(f, r, "roofline", false), chart_roofline(f, profile), page_part_end(f);
    }
    if (cJSON_IsArray(devices)) titled(f, r, "peaks of memory", false), peaks(f, devices), page_part_end(f);
}

/* ---- the command ------------------------------------------------------------------------------------------------- */

static void write_page(FILE *f, const struct told_run *run, int runs)
{
    page_begin(f, runs > 1 ? "Orrery: runs side by side" : "Orrery: a run");
    page_part(f, "Loss", false), chart_losses(f, run, runs), page_part_end(f);
    page_part(f, "Norm of the gradients", false), chart_norms(f, run, runs), page_part_end(f);
    page_part(f, "Learning rate", false), chart_rates(f, run, runs), page_part_end(f);
    results(f, run, runs);
    for (int i = 0; i < runs; i++) one_run(f, &run[i]);
    page_part(f, "About this page", true);
    fprintf(f, "<p class=\"soft\">Written by orrery report %s. Times of devices are virtual: those of the cluster that "
            "the run names.</p>\n", ORRERY_VERSION);
    page_part_end(f);
    page_end(f);
}

static enum error_code make(const char *out, const struct told_run *run, int runs, struct error *err)
{
    char *text = NULL;
    size_t bytes = 0;
    FILE *f = open_memstream(&text, &bytes);
    if (f) write_page(f, run, runs);
    enum error_code e = f && fclose(f) == 0 ? OK : fail(err, ERR_MEMORY, "no memory for the page");
    if (!e) e = fail_about(err, file_write_all(out, text, bytes, err), "--out");
    free(text);
    return e;
}

enum error_code command_report(int argc, char **argv, int *status, struct error *err)
{
    const char *path[MOST_RUNS] = { NULL }, *out = "report.html";
    struct option table[MOST_RUNS + 2] = { { 0 } };
    struct told_run run[MOST_RUNS];
    bool help;
    int runs = 0;
    (void)status;
    for (int i = 0; i < MOST_RUNS; i++)
        table[i] = (struct option){ "RUN", NULL, OPTION_STRING, &path[i], .required = i == 0,
                                    .help = i ? NULL : "what --json or --log FILE.jsonl has written, or a checkpoint's "
                                                       "folder; at most 12 of them" };
    table[MOST_RUNS] = (struct option){ "--out", "FILE", OPTION_STRING, &out, .help = "the page: one file of HTML" };
    enum error_code e = parse_command("report", "RUN... [--out FILE]",
                                      "Draw runs: losses, plan, timeline, memory, messages, roofline, what differs.",
                                      argc - 2, argv + 2, table, &help, err);
    if (e || help) return e;
    for (; runs < MOST_RUNS && path[runs] && !e; runs++) e = run_read(&run[runs], path[runs], err);
    if (!e) e = make(out, run, runs, err);
    for (int i = 0; i < runs; i++) run_free(&run[i]);
    return e;
}
