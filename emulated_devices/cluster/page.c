/* page.c -- draws the page of a cluster.  cli/cluster/cluster.c calls cluster_page.  ERR_FILE or ERR_MEMORY; after an
 * error there is no page. */
#include "emulated_devices/cluster/page.h"
#include "emulated_devices/draw/report/page.h"
#include "ref/io/output.h"
#include <math.h>
#include <stdlib.h>

enum { COLOURS = 8, DRAWN_PIECES = 40000, POWER_POINTS = 400, LISTED_JOBS = 200 };

static const char page_style[] =
    ".gantt svg{height:auto;aspect-ratio:2/1;max-height:560px;min-height:260px}td.name{white-space:nowrap}"
    "rect{shape-rendering:crispEdges}\n";

static struct figure page_time(double seconds) { return time_format(seconds); }
static struct figure page_power(double watts) { return power_format(watts); }
static struct figure page_percent(double part)
{
    struct figure f;
    snprintf(f.text, sizeof f.text, "%.0f %%", 100 * part);
    return f;
}

static void number_cell(FILE *file, const char *text)
{
    fputs("<td class=\"n\">", file);
    page_text(file, text);
    fputs("</td>", file);
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

static void sums_row(FILE *file, const struct cluster_run *run, int place, bool energy)
{
    const struct cluster_sums *const s = &run->sums;
    char text[48];
    fprintf(file, "<tr><td class=\"name\"><i class=\"key\" style=\"background:var(--c%d)\"></i>", place % COLOURS);
    page_text(file, run->scheduler->name);
    fputs("</td>", file);
    number_cell(file, time_format(s->mean).text), number_cell(file, time_format(s->small).text);
    number_cell(file, time_format(s->p99).text), number_cell(file, time_format(s->end).text);
    number_cell(file, page_percent(s->used).text);
    number_cell(file, energy ? energy_format(s->joules).text : "-");
    snprintf(text, sizeof text, "%d", s->changes);
    number_cell(file, text);
    number_cell(file, size_format(s->bytes).text);
    fputs("</tr>\n", file);
}

static void part_sums(FILE *file, const struct cluster_run *run, int runs, bool energy)
{
    static const char *const heads[] = { "a job, on average", "small jobs", "99 % at most", "last end", "used",
                                         "energy", "changes", "moved" };
    page_part(file, "Sums, in simulation", true);
    fputs("<div class=\"scroll\"><table><tr><th>scheduler</th>", file);
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++) fprintf(file, "<th class=\"n\">%s</th>", heads[i]);
    fputs("</tr>\n", file);
    for (int i = 0; i < runs; i++) sums_row(file, &run[i], i, energy);
    fputs("</table></div>\n<p class=\"soft\">Times are from a job's arrival to its end. Small jobs are the half with "
          "the least work.</p>\n", file);
    page_part_end(file);
}

/* ---- what every device did when ---------------------------------------------------------------------------------- */

static void draw_piece(FILE *file, const struct cluster_run *run, const struct cluster_jobs *jobs,
                       const struct pricing *pricing, const struct job_piece *piece)
{
    const double end = fmax(1, (double)run->out.end), high = 1000.0 / run->out.devices;
    const double from = 1000 * (double)piece->from / end, to = 1000 * (double)piece->to / end,
                 starts = 1000 * (double)(piece->starts < piece->to ? piece->starts : piece->to) / end;
    const double y = high * piece->place, h = high * piece->devices;
    const int user = jobs->at[piece->job].user;
    if (starts > from)
        fprintf(file, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"var(--soft)\"/>", from, y,
                fmax(0.3, starts - from), h);
    fprintf(file, "<rect x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\" fill=\"var(--c%d)\" opacity=\"%.2f\" "
            "stroke=\"var(--paper)\" stroke-width=\"%.1f\"><title>", starts, y, fmax(0.3, to - starts), h,
            user % COLOURS, 0.01 * pricing->clock[piece->clock], high * piece->devices > 12 ? 1.5 : 0.5);
    page_text(file, jobs->at[piece->job].name);
    fputs(" of ", file);
    page_text(file, jobs->user[user]);
    fprintf(file, ": devices %d-%d at %d %%, %s to %s</title></rect>\n", piece->place,
            piece->place + piece->devices - 1, pricing->clock[piece->clock],
            time_format(1e-3 * (double)piece->from).text, time_format(1e-3 * (double)piece->to).text);
}

static void part_gantt(FILE *file, const struct cluster_run *run, const struct cluster_jobs *jobs,
                       const struct pricing *pricing)
{
    const struct axis_range time = { 0, 1e-3 * (double)run->out.end, false }, devices = { run->out.devices, 0, false };
    char title[120];
    const int most = run->out.pieces < DRAWN_PIECES ? run->out.pieces : DRAWN_PIECES;
    snprintf(title, sizeof title, "%s: which devices had which job", run->scheduler->name);
    page_part(file, title, true);
    fputs("<div class=\"gantt\">", file);
    chart_begin(file, &devices, "devices", page_plain);
    for (int i = 0; i < most; i++) draw_piece(file, run, jobs, pricing, &run->out.piece[i]);
    chart_end(file, &time, "virtual time", page_time);
    fputs("</div><p class=\"keys\">", file);
    for (int u = 0; u < jobs->users && u < COLOURS; u++) {
        fprintf(file, "<span><i class=\"key\" style=\"background:var(--c%d)\"></i>", u);
        page_text(file, jobs->user[u]);
        fputs(u == COLOURS - 1 && jobs->users > COLOURS ? ", and others again</span> " : "</span> ", file);
    }
    fputs("<span><i class=\"key\" style=\"background:var(--soft)\"></i>state moves</span></p>\n<p class=\"soft\">A "
          "box is a job on its devices, in the colour of its user, paler at a lower clock rate. ", file);
    if (most < run->out.pieces) fprintf(file, "%d of %d boxes are drawn: the first to end. ", most, run->out.pieces);
    fputs("A box says more when the mouse rests on it.</p>\n", file);
    page_part_end(file);
}

/* ---- power ------------------------------------------------------------------------------------------------------- */

/* The mean power of each part of the time; the energy of a piece is spread evenly over its time. */
static void power_of(const struct cluster_run *run, const struct pricing *pricing, double *watts)
{
    const double end = fmax(1, (double)run->out.end), width = end / POWER_POINTS;
    for (int i = 0; i < POWER_POINTS; i++) watts[i] = (double)run->out.devices * (double)pricing->power.idle;
    for (int p = 0; p < run->out.pieces; p++) {
        const struct job_piece *const piece = &run->out.piece[p];
        const double more = (double)piece->energy / (double)(piece->to - piece->from)
                            - (double)(pricing->power.idle * piece->devices);
        for (int i = (int)((double)piece->from / width); i < POWER_POINTS && i * width < (double)piece->to; i++) {
            const double from = fmax(i * width, (double)piece->from), to = fmin((i + 1) * width, (double)piece->to);
            if (to > from) watts[i] += more * (to - from) / width;
        }
    }
}

static void part_power(FILE *file, const struct cluster_run *run, int runs, const struct pricing *pricing)
{
    double watts[POWER_POINTS], most = 0, end = 0;
    for (int r = 0; r < runs; r++) {
        power_of(&run[r], pricing, watts);
        for (int i = 0; i < POWER_POINTS; i++) most = fmax(most, watts[i]);
        end = fmax(end, (double)run[r].out.end);
    }
    const struct axis_range time = { 0, 1e-3 * end, false }, power = { 0, 1.05 * most, false };
    page_part(file, "Power", false);
    chart_begin(file, &power, "all devices", page_power);
    for (int r = 0; r < runs; r++) {
        power_of(&run[r], pricing, watts);
        fputs("<path fill=\"none\" stroke-width=\"1.6\" d=\"", file);
        for (int i = 0; i < POWER_POINTS; i++)
            fprintf(file, "%c%.1f %.1f", i ? 'L' : 'M', 1000 * (i + 0.5) / POWER_POINTS * (double)run[r].out.end / end,
                    1000 - 1000 * axis_at(&power, watts[i]));
        fprintf(file, "\" stroke=\"var(--c%d)\"/>\n", r % COLOURS);
    }
    chart_end(file, &time, "virtual time", page_time);
    page_part_end(file);
}

/* ---- times of jobs ----------------------------------------------------------------------------------------------- */

static int by_time(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static enum error_code part_times(FILE *file, const struct cluster_run *run, int runs, const struct cluster_jobs *jobs,
                                  struct error *err)
{
    const int n = jobs->count;
    double *const seconds = malloc((size_t)(n + 1) * sizeof *seconds);
    struct axis_range x = { 1, 0, true };
    const struct axis_range y = { 0, 1, false };
    if (seconds == NULL) return fail(err, ERR_MEMORY, "no memory for the times of %d jobs", n);
    for (int r = 0; r < runs; r++)
        for (int i = 0; i < n; i++) axis_take(&x, fmax(1e-3, job_seconds(&run[r].out, jobs, i)));
    if (x.most <= x.least) x.most = 2 * x.least;
    page_part(file, "How many jobs have taken at most so long", false);
    chart_begin(file, &y, "jobs", page_percent);
    for (int r = 0; r < runs; r++) {
        for (int i = 0; i < n; i++) seconds[i] = fmax(1e-3, job_seconds(&run[r].out, jobs, i));
        qsort(seconds, (size_t)n, sizeof *seconds, by_time);
        const int step = n > 500 ? n / 500 : 1;
        fprintf(file, "<path fill=\"none\" stroke-width=\"1.6\" d=\"M%.1f 1000", 1000 * axis_at(&x, seconds[0]));
        for (int i = 0; i < n; i += i + step < n ? step : n - 1 - i > 0 ? n - 1 - i : 1)
            fprintf(file, "H%.1fV%.1f", 1000 * axis_at(&x, seconds[i]), 1000 - 1000.0 * (i + 1) / n);
        fprintf(file, "\" stroke=\"var(--c%d)\"/>\n", r % COLOURS);
    }
    chart_end(file, &x, "from arrival to end", page_time);
    page_part_end(file);
    free(seconds);
    return OK;
}

static void part_jobs(FILE *file, const struct cluster_run *run, const struct cluster_jobs *jobs)
{
    page_part(file, "Jobs", true);
    fputs("<div class=\"scroll\"><table><tr><th>job</th><th>user</th><th class=\"n\">devices</th><th class=\"n\">"
          "arrival</th><th class=\"n\">took</th><th class=\"n\">energy</th><th class=\"n\">changes</th><th>plan</th>"
          "</tr>\n", file);
    for (int i = 0; i < jobs->count && i < LISTED_JOBS; i++) {
        const struct cluster_job *const j = &jobs->at[i];
        char text[24];
        fputs("<tr><td>", file);
        page_text(file, j->name);
        fputs("</td><td>", file);
        page_text(file, jobs->user[j->user]);
        fputs("</td>", file);
        snprintf(text, sizeof text, "%d", j->devices);
        number_cell(file, text);
        number_cell(file, time_format(1e-3 * (double)j->arrival).text);
        number_cell(file, time_format(job_seconds(&run->out, jobs, i)).text);
        number_cell(file, energy_format(1e-3 * (double)run->out.job[i].energy).text);
        snprintf(text, sizeof text, "%d", run->out.job[i].changes);
        number_cell(file, text);
        fputs("<td class=\"name\">", file);
        page_text(file, jobs->plan[j->kind]);
        fputs("</td></tr>\n", file);
    }
    fputs("</table></div>\n", file);
    if (jobs->count > LISTED_JOBS) fprintf(file, "<p class=\"soft\">The first %d of %d.</p>\n", LISTED_JOBS,
                                           jobs->count);
    page_part_end(file);
}

/* ---- the page ---------------------------------------------------------------------------------------------------- */

enum error_code cluster_page(const struct cluster_run *run, int runs, const struct cluster_jobs *jobs,
                             const struct pricing *pricing, const char *path, struct error *err)
{
    const bool energy = pricing->power.steady > 0;
    char *text = NULL, title[160];
    size_t size = 0;
    FILE *const file = open_memstream(&text, &size);
    if (file == NULL) return fail(err, ERR_MEMORY, "no memory for a page");
    snprintf(title, sizeof title, "%d jobs on a cluster of %d devices", jobs->count, run->out.devices);
    page_begin_styled(file, title, page_style);
    part_sums(file, run, runs, energy);
    for (int i = 0; i < runs; i++) part_gantt(file, &run[i], jobs, pricing);
    if (energy) part_power(file, run, runs, pricing);
    enum error_code e = part_times(file, run, runs, jobs, err);
    if (runs == 1) part_jobs(file, run, jobs);
    page_end(file);
    const bool made = fclose(file) == 0;
    if (!e) e = made ? file_write_all(path, text, size, err) : fail(err, ERR_MEMORY, "no memory for a page");
    free(text);
    return e;
}
