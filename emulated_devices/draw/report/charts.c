/* charts.c -- the charts of `orrery report`: losses, a step's timeline, its memory, messages and roofline.  report.c
 * calls these functions.  No function returns an error code. */
#include "emulated_devices/draw/report/page.h"
#include "emulated_devices/device/arena.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { COLOURS = 8, MOST_DEVICES = 64, MOST_DRAWN = 2000 };

static const struct axis_range nothing = { 1, 0, false };

/* A profile's device, or NULL. */
static const cJSON *charts_device_of(const cJSON *profile, int rank)
{
    return cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(profile, "devices"), rank);
}

static int devices_of(const cJSON *profile)
{
    const int n = cJSON_GetArraySize(cJSON_GetObjectItemCaseSensitive(profile, "devices"));
    return n < MOST_DEVICES ? n : MOST_DEVICES;
}

static const cJSON *list_of(const cJSON *profile, int rank, const char *key)
{
    return cJSON_GetObjectItemCaseSensitive(charts_device_of(profile, rank), key);
}

/* ---- curves ------------------------------------------------------------------------------------------------------ */

static void keys_of_runs(FILE *file, const struct told_run *run, int runs)
{
    fputs("<p class=\"keys\">", file);
    for (int i = 0; i < runs; i++) {
        fprintf(file, "<span><i class=\"key\" style=\"background:var(--c%d)\"></i>", i % COLOURS);
        page_text(file, run[i].name);
        fputs("</span> ", file);
    }
    fputs("</p>\n", file);
}

/* Not more points than a screen can show; the first and last are there. */
static void curve(FILE *file, const cJSON *steps, const char *key, const struct axis_range *x,
                  const struct axis_range *y, int colour)
{
    const int n = cJSON_GetArraySize(steps), each = n / MOST_DRAWN + 1;
    const cJSON *s;
    int i = 0;
    bool pen = false;
    fputs("<path fill=\"none\" stroke-width=\"1.6\" d=\"", file);
    cJSON_ArrayForEach(s, steps) {
        const double at = run_number(s, "step", NAN), value = run_number(s, key, NAN);
        const bool drawn = i++ % each == 0 || i == n;
        if (!drawn || !isfinite(at) || !isfinite(value)) {
            pen = pen && !drawn;
            continue;
        }
        fprintf(file, "%s%.1f %.1f", pen ? "L" : "M", 1000 * axis_at(x, at), 1000 - 1000 * axis_at(y, value));
        pen = true;
    }
    fprintf(file, "\" stroke=\"var(--c%d)\"/>\n", colour % COLOURS);
}

/* Losses on held-out text are points. */
static void points(FILE *file, const cJSON *steps, const char *key, const struct axis_range *x,
                   const struct axis_range *y, int colour)
{
    const cJSON *s;
    cJSON_ArrayForEach(s, steps) {
        const double at = run_number(s, "step", NAN), value = run_number(s, key, NAN);
        if (!isfinite(at) || !isfinite(value)) continue;
        fprintf(file,
                "<path d=\"M%.1f %.1fv.01\" stroke=\"var(--c%d)\" stroke-width=\"7\" stroke-linecap=\"round\"/>\n",
                1000 * axis_at(x, at), 1000 - 1000 * axis_at(y, value), colour % COLOURS);
    }
}

static bool curves(FILE *file, const struct told_run *run, int runs, const char *key, const char *also,
                   const char *name)
{
    struct axis_range x = nothing, y = nothing;
    const cJSON *s;
    for (int i = 0; i < runs; i++)
        cJSON_ArrayForEach(s, cJSON_GetObjectItemCaseSensitive(run[i].root, "steps")) {
            axis_take(&x, run_number(s, "step", NAN));
            axis_take(&y, run_number(s, key, NAN));
            if (also) axis_take(&y, run_number(s, also, NAN));
        }
    if (y.least > y.most || x.least > x.most) return false;
    if (runs > 1) keys_of_runs(file, run, runs);
    chart_begin(file, &y, name, page_plain);
    for (int i = 0; i < runs; i++) {
        const cJSON *steps = cJSON_GetObjectItemCaseSensitive(run[i].root, "steps");
        curve(file, steps, key, &x, &y, i);
        if (also) points(file, steps, also, &x, &y, i);
    }
    chart_end(file, &x, "step", page_plain);
    return true;
}

void chart_losses(FILE *file, const struct told_run *run, int runs)
{
    if (!curves(file, run, runs, "loss", "validation_loss", "loss; points: on held-out text"))
        fputs("<p class=\"soft\">These files have no steps: of a checkpoint its log has them (--log).</p>\n", file);
}

void chart_norms(FILE *file, const struct told_run *run, int runs)
{
    curves(file, run, runs, "norm", NULL, "norm of the gradients");
}

void chart_rates(FILE *file, const struct told_run *run, int runs)
{
    curves(file, run, runs, "lr", NULL, "learning rate");
}

/* ---- a step's timeline ------------------------------------------------------------------------------------------- */

static const struct { const char *pass, *what; int colour; } passes[] = {
    { "F", "forward", 0 }, { "B", "backward", 1 }, { "I", "backward for inputs", 1 },
    { "W", "backward for weights", 2 }, { "", "optimizer and the rest", 4 },
};
enum { PASSES = sizeof passes / sizeof *passes };

static int pass_of(const char *text)
{
    for (int i = 0; i < PASSES; i++)
        if (text && strcmp(passes[i].pass, text) == 0) return i;
    return PASSES - 1;
}

static double charts_end_of(const cJSON *profile)
{
    double end = 0;
    const cJSON *piece;
    for (int d = 0; d < devices_of(profile); d++)
        cJSON_ArrayForEach(piece, list_of(profile, d, "timeline")) end = fmax(end, run_element(piece, 1, 0));
    return end;
}

static void draw_piece(FILE *file, const cJSON *piece, double end)
{
    const double from = run_element(piece, 0, 0), to = run_element(piece, 1, 0);
    const cJSON *name = cJSON_GetArrayItem(piece, 2);
    const int pass = pass_of(cJSON_IsString(name) ? name->valuestring : NULL), micro = (int)run_element(piece, 3, -1);
    fprintf(file, "<i style=\"left:%.3f%%;width:%.3f%%;background:var(--c%d);opacity:%.2f\" title=\"%s",
            100 * from / end,
            100 * (to - from) / end, passes[pass].colour, micro % 2 == 1 ? 0.65 : 1.0, passes[pass].what);
    if (micro >= 0) fprintf(file, ", microbatch %d", micro);
    fprintf(file, ": %s to %s\"></i>", picoseconds_format(from).text, picoseconds_format(to).text);
}

void chart_timeline(FILE *file, const cJSON *profile)
{
    const double end = charts_end_of(profile);
    const cJSON *piece;
    bool used[PASSES] = { false };
    if (!(end > 0)) return;
    for (int d = 0; d < devices_of(profile); d++) {
        fprintf(file, "<div class=\"lane\"><span>%d</span><div class=\"bar\">", d);
        cJSON_ArrayForEach(piece, list_of(profile, d, "timeline")) {
            const cJSON *name = cJSON_GetArrayItem(piece, 2);
            used[pass_of(cJSON_IsString(name) ? name->valuestring : NULL)] = true;
            draw_piece(file, piece, end);
        }
        fputs("</div></div>\n", file);
    }
    fputs("<p class=\"keys\">", file);
    for (int i = 0; i < PASSES; i++)
        if (used[i])
            fprintf(file, "<span><i class=\"key\" style=\"background:var(--c%d)\"></i>%s</span> ", passes[i].colour,
                    passes[i].what);
    fprintf(file, "</p><p class=\"soft\">A row is a device; what is empty waits. Microbatches take turns in strength. "
            "%s in all, in virtual time.</p>\n", picoseconds_format(end).text);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static double total_of(const cJSON *sample)
{
    double sum = 0;
    for (int tag = 0; tag < ARENA_TAG_COUNT; tag++) sum += run_element(sample, 1 + tag, 0);
    return sum;
}

static double peak_of(const cJSON *profile, int rank)
{
    double most = 0;
    const cJSON *sample;
    cJSON_ArrayForEach(sample, list_of(profile, rank, "memory")) most = fmax(most, total_of(sample));
    return most;
}

/* The band of the first `tags` kinds, down to the axis: later bands are drawn first. */
static void band(FILE *file, const cJSON *memory, int tags, const struct axis_range *x, const struct axis_range *y)
{
    const cJSON *sample;
    double level = 0;
    fputs("<path d=\"M0 1000", file);
    cJSON_ArrayForEach(sample, memory) {
        const double at = 1000 * axis_at(x, run_element(sample, 0, 0));
        fprintf(file, "L%.1f %.1f", at, 1000 - level);
        level = 0;
        for (int tag = 0; tag < tags; tag++) level += run_element(sample, 1 + tag, 0);
        level = 1000 * axis_at(y, level);
        fprintf(file, "L%.1f %.1f", at, 1000 - level);
    }
    fprintf(file, "L1000 %.1fL1000 1000Z\" fill=\"var(--c%d)\"/>\n", 1000 - level, tags - 1);
}

void chart_memory(FILE *file, const cJSON *profile)
{
    int fullest = 0;
    struct axis_range x = nothing, y = { 0, 0, false };
    const cJSON *sample;
    for (int d = 1; d < devices_of(profile); d++)
        if (peak_of(profile, d) > peak_of(profile, fullest)) fullest = d;
    const cJSON *memory = list_of(profile, fullest, "memory");
    cJSON_ArrayForEach(sample, memory) {
        axis_take(&x, run_element(sample, 0, NAN));
        axis_take(&y, total_of(sample));
    }
    if (x.least > x.most || !(y.most > 0)) return;
    fputs("<p class=\"keys\">", file);
    for (int tag = 0; tag < ARENA_TAG_COUNT; tag++)
        fprintf(file, "<span><i class=\"key\" style=\"background:var(--c%d)\"></i>%s</span> ", tag,
                arena_tag_name((enum arena_tag)tag));
    fputs("</p>\n", file);
    chart_begin(file, &y, "bytes", page_bytes);
    for (int tags = ARENA_TAG_COUNT; tags > 0; tags--) band(file, memory, tags, &x, &y);
    chart_end(file, &x, "virtual time", picoseconds_format);
    fprintf(file, "<p class=\"soft\">Of device %d, which holds most.</p>\n", fullest);
}

/* ---- messages ---------------------------------------------------------------------------------------------------- */

static double charts_sent(const cJSON *profile, int from, int to)
{
    const cJSON *one;
    cJSON_ArrayForEach(one, list_of(profile, from, "sent"))
        if ((int)run_element(one, 0, -1) == to) return run_element(one, 2, 0);
    return 0;
}

void chart_traffic(FILE *file, const cJSON *profile)
{
    enum { MOST = 16 };
    const int devices = devices_of(profile), n = devices < MOST ? devices : MOST;
    double most = 0;
    for (int a = 0; a < n; a++)
        for (int b = 0; b < n; b++) most = fmax(most, charts_sent(profile, a, b));
    if (!(most > 0)) {
        fputs("<p class=\"soft\">No message was sent.</p>\n", file);
        return;
    }
    fputs("<div class=\"scroll\"><table class=\"heat\"><tr><th>from / to</th>", file);
    for (int b = 0; b < n; b++) fprintf(file, "<th>%d</th>", b);
    fputs("</tr>\n", file);
    for (int a = 0; a < n; a++) {
        fprintf(file, "<tr><th>%d</th>", a);
        for (int b = 0; b < n; b++) {
            const double bytes = charts_sent(profile, a, b);
            if (bytes > 0)
                fprintf(file, "<td style=\"background:color-mix(in srgb,var(--c0) %.0f%%,var(--card))\">%s</td>",
                        10 + 50 * bytes / most, page_bytes(bytes).text);
            else fputs("<td></td>", file);
        }
        fputs("</tr>\n", file);
    }
    fputs("</table></div>\n", file);
    if (n < devices) fprintf(file, "<p class=\"soft\">The first %d devices of %d.</p>\n", n, devices);
}

/* ---- roofline ---------------------------------------------------------------------------------------------------- */

/* An operation's work on all devices. */
struct work { const char *name; double ps, flops, bytes; };

static int sum_work(const cJSON *profile, struct work *sum, int room)
{
    int n = 0;
    const cJSON *one;
    for (int d = 0; d < devices_of(profile); d++)
        cJSON_ArrayForEach(one, list_of(profile, d, "operations")) {
            const cJSON *name = cJSON_GetArrayItem(one, 0);
            int k = 0;
            if (!cJSON_IsString(name)) continue;
            while (k < n && strcmp(sum[k].name, name->valuestring) != 0) k++;
            if (k == room) continue;
            if (k == n) sum[n++] = (struct work){ .name = name->valuestring };
            sum[k].ps += run_element(one, 2, 0), sum[k].flops += run_element(one, 3, 0);
            sum[k].bytes += run_element(one, 4, 0);
        }
    return n;
}

static int longer_first(const void *a, const void *b)
{
    const double x = ((const struct work *)a)->ps, y = ((const struct work *)b)->ps;
    return (x < y) - (x > y);
}

static double intensity(const struct work *work) { return work->flops / work->bytes; }
static double speed(const struct work *work) { return work->flops / (1e-12 * work->ps); }
static bool is_drawn(const struct work *work) { return work->flops > 0 && work->bytes > 0 && work->ps > 0; }

static void roof(FILE *file, const struct axis_range *x, const struct axis_range *y, double flops, double memory)
{
    enum { PIECES = 40 };
    fputs("<path fill=\"none\" stroke=\"var(--soft)\" stroke-width=\"1.5\" d=\"", file);
    for (int i = 0; i <= PIECES; i++) {
        const double at = x->least * pow(x->most / x->least, (double)i / PIECES), most = fmin(flops, memory * at);
        fprintf(file, "%s%.1f %.1f", i ? "L" : "M", 1000.0 * i / PIECES, 1000 - 1000 * axis_at(y, most));
    }
    fputs("\"/>\n", file);
}

static void table_of_work(FILE *file, const struct work *work, int n)
{
    double all = 0;
    for (int i = 0; i < n; i++) all += work[i].ps;
    fputs("<div class=\"scroll\"><table><tr><th>operation</th><th class=\"n\">time</th><th class=\"n\">share</th>"
          "<th class=\"n\">FLOP a byte</th><th class=\"n\">speed</th></tr>\n", file);
    for (int i = 0; i < n && i < 8 && all > 0; i++) {
        fputs("<tr><td>", file);
        if (is_drawn(&work[i])) fprintf(file, "<i class=\"key\" style=\"background:var(--c%d)\"></i>", i % COLOURS);
        page_text(file, work[i].name);
        fprintf(file, "</td><td class=\"n\">%s</td><td class=\"n\">%.1f %%</td>", picoseconds_format(work[i].ps).text,
                100 * work[i].ps / all);
        fprintf(file, "<td class=\"n\">%s</td><td class=\"n\">%s</td></tr>\n",
                is_drawn(&work[i]) ? page_plain(intensity(&work[i])).text : "",
                is_drawn(&work[i]) ? flop_rate_format(speed(&work[i])).text : "");
    }
    fputs("</table></div>\n", file);
}

void chart_roofline(FILE *file, const cJSON *profile)
{
    struct work w[64];
    const int n = sum_work(profile, w, 64);
    const double flops = run_number(profile, "flop_rate", 0), memory = run_number(profile, "memory_rate", 0);
    struct axis_range x = { 1, 0, true }, y = { 1, 0, true };
    qsort(w, (size_t)n, sizeof *w, longer_first);
    for (int i = 0; i < n; i++)
        if (is_drawn(&w[i])) axis_take(&x, intensity(&w[i])), axis_take(&y, speed(&w[i]));
    if (x.least > x.most || !(flops > 0) || !(memory > 0)) return;
    axis_take(&x, flops / memory), axis_take(&y, flops);
    x.least /= 2, x.most *= 2, y.least /= 2, y.most *= 1.5;
    chart_begin(file, &y, "FLOP/s of a device, and what it could do", flop_rate_format);
    roof(file, &x, &y, flops, memory);
    for (int i = n; i-- > 0;)
        if (is_drawn(&w[i]))
            fprintf(file, "<path d=\"M%.1f %.1fv.01\" stroke=\"var(--c%d)\" stroke-width=\"9\" "
                    "stroke-linecap=\"round\"/>\n", 1000 * axis_at(&x, intensity(&w[i])),
                    1000 - 1000 * axis_at(&y, speed(&w[i])), i % COLOURS);
    chart_end(file, &x, "FLOP for each byte of memory", page_plain);
    table_of_work(file, w, n);
}
