/* picture.c -- draws what every device did when, under one scheduler or several below each other, as SVG.
 * cli/cluster/cluster.c calls cluster_picture.  ERR_FILE or ERR_MEMORY, from svg_file. */
#include "emulated_devices/cluster/page.h"
#include "emulated_devices/draw/svg.h"
#include "ref/io/figures.h"

/* Pixels: margins, the width and height of a drawing with its title, the key below all. */
enum { LEFT = 52, TOP = 34, WIDE = 820, HIGH = 200, APART = 44, KEY = 46, KEYS = 10 };

struct picture {
    const struct cluster_run *run;      /* [runs] */
    int runs;
    const struct cluster_jobs *jobs;
    const struct pricing *pricing;
};

/* The user's colour, paler at a lower clock rate. */
static struct colour colour_of(int user, int percent)
{
    struct colour c = svg_device_colour(user);
    c.light += (100 - percent) * (92 - c.light) / 100;
    return c;
}

static void draw_run(FILE *to, const struct picture *picture, const struct cluster_run *run, double top, double end)
{
    const double high = (double)HIGH / run->out.devices;
    svg_text(to, LEFT, top - 8, "start", 13, "%s: a job takes %s on average, all take %s", run->scheduler->name,
             time_format(run->sums.mean).text, energy_format(run->sums.joules).text);
    for (int p = 0; p < run->out.pieces; p++) {
        const struct job_piece *const piece = &run->out.piece[p];
        const double from = LEFT + WIDE * (double)piece->from / end, to_x = LEFT + WIDE * (double)piece->to / end;
        const struct colour c = colour_of(picture->jobs->at[piece->job].user, picture->pricing->clock[piece->clock]);
        const double h = piece->devices * high;
        svg_bar(to, from, top + piece->place * high, to_x - from, h > 2 ? h - 0.7 : h, c);
    }
    svg_line(to, LEFT, top, LEFT, top + HIGH), svg_line(to, LEFT, top + HIGH, LEFT + WIDE, top + HIGH);
    svg_text(to, LEFT - 6, top + 10, "end", 11, "0");
    svg_text(to, LEFT - 6, top + HIGH, "end", 11, "%d", run->out.devices);
}

static enum error_code draw_picture(FILE *to, const void *context, struct error *err)
{
    const struct picture *const picture = context;
    const int bottom = TOP + picture->runs * (HIGH + APART);
    double end = 1;
    for (int r = 0; r < picture->runs; r++)
        end = (double)picture->run[r].out.end > end ? (double)picture->run[r].out.end : end;
    svg_begin(to, LEFT + WIDE + 24, bottom + KEY);
    for (int r = 0; r < picture->runs; r++) draw_run(to, picture, &picture->run[r], TOP + r * (HIGH + APART), end);
    svg_text(to, LEFT, bottom - APART + 18, "start", 12, "0");
    svg_text(to, LEFT + WIDE, bottom - APART + 18, "end", 12, "%s", time_format(1e-3 * end).text);
    svg_text(to, LEFT + WIDE / 2.0, bottom - APART + 18, "middle", 12, "virtual time; rows are devices");
    for (int u = 0; u < picture->jobs->users && u < KEYS; u++) {
        const double x = LEFT + u * (double)WIDE / KEYS;
        svg_bar(to, x, bottom + 6, 12, 12, colour_of(u, 100));
        svg_text(to, x + 17, bottom + 16, "start", 11, "%s", picture->jobs->user[u]);
    }
    return svg_end(to, "a picture of jobs", err);
}

enum error_code cluster_picture(const struct cluster_run *run, int runs, const struct cluster_jobs *jobs,
                                const struct pricing *pricing, const char *path, struct error *err)
{
    const struct picture picture = { run, runs, jobs, pricing };
    return svg_file(path, draw_picture, &picture, err);
}
