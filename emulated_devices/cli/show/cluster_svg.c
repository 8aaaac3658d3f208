/* cluster_svg.c -- draws a described machine: which devices are near each other, and how long a message takes.
 * cluster.c calls.  The only error is ERR_FILE, from svg_end. */
#include "emulated_devices/cli/show/cluster_svg.h"
#include "emulated_devices/draw/svg.h"
#include "ref/io/figures.h"
#include <math.h>

/* Numbers are pixels: width, margins; the boxes of devices; the chart. */
enum { WIDTH = 760, MARGIN = 16, TOP = 110, DEVICE = 22, PAD = 10, LABEL = 20, LEFT = 84, CHART = 300, NAMES = 130 };
/* A level shows at most so many of its units, and so many devices of the lowest. */
enum { UNITS_MOST = 2, DEVICES_MOST = 8 };
/* The chart goes to 256 MiB, in steps of 16. */
enum { BITS_MOST = 28, BITS_STEP = 4 };

static struct colour level_colour(int level) { return (struct colour){ svg_device_colour(level).hue, 70, 42 }; }

struct extent { double w, h; };

/* How many parts of a level's unit are drawn: devices, or units of the level below. */
static int parts_shown(const struct cluster *cluster, int level)
{
    const int inner = level > 0 ? cluster->link[level - 1].devices : 1, here = cluster->link[level].devices;
    const int most = level > 0 ? UNITS_MOST : DEVICES_MOST, parts = here > 0 && inner > 0 ? here / inner : most;
    return parts < most ? parts : most;
}

/* Whether a unit has more parts than are drawn, or any number of them. */
static bool parts_go_on(const struct cluster *cluster, int level)
{
    const int inner = level > 0 ? cluster->link[level - 1].devices : 1, here = cluster->link[level].devices;
    return here == 0 || (inner > 0 && here / inner > parts_shown(cluster, level));
}

/* Draw a unit of a level with its parts beside each other.  to  NULL: only the extent is wanted. */
static struct extent draw_unit(FILE *to, const struct cluster *cluster, int level, int first, double x, double y)
{
    double w = PAD, h = DEVICE;
    const int inner = level > 0 ? cluster->link[level - 1].devices : 1;
    struct extent all = { 0, 0 };
    if (to) {
        /* The frame lies below its parts, so its extent is found first. */
        all = draw_unit(NULL, cluster, level, first, 0, 0);
        struct colour c = level_colour(level);
        c.light = 96, svg_box(to, x, y, all.w, all.h, c);
        const struct link *l = &cluster->link[level];
        if (l->devices == 0) svg_text(to, x + PAD, y + 15, "start", 12, "%s", l->level);
        else svg_text(to, x + PAD, y + 15, "start", 12, "%s of %d", l->level, l->devices);
    }
    for (int i = 0; i < parts_shown(cluster, level); i++) {
        struct extent part = { DEVICE, DEVICE };
        if (level > 0) part = draw_unit(to, cluster, level - 1, first + i * inner, x + w, y + LABEL);
        else if (to) {
            svg_box(to, x + w, y + LABEL, DEVICE, DEVICE, (struct colour){ 208, 30, 86 });
            svg_text(to, x + w + DEVICE / 2.0, y + LABEL + 15, "middle", 11, "%d", first + i);
        }
        w += part.w + 4, h = part.h > h ? part.h : h;
    }
    if (parts_go_on(cluster, level)) {
        if (to) svg_text(to, x + w + 4, y + LABEL + h / 2 + 4, "start", 14, "..");
        w += 20;
    }
    return (struct extent){ w + PAD - 4, h + LABEL + PAD };
}

static double chart_x(double bits) { return LEFT + (WIDTH - LEFT - NAMES - MARGIN) * bits / BITS_MOST; }

/* Powers of ten of picoseconds from below the shortest to above the longest message of the chart. */
struct decades { double first, last; };

static struct decades cluster_decades(const struct cluster *cluster)
{
    struct decades d = { 15, 1 };
    for (int l = 0; l < cluster->levels; l++) {
        const double low = log10(fmax(1, (double)cluster_message_time(&cluster->link[l], 1))),
                     high = log10(fmax(1, (double)cluster_message_time(&cluster->link[l], UINT64_C(1) << BITS_MOST)));
        d.first = fmin(d.first, floor(low)), d.last = fmax(d.last, ceil(high));
    }
    if (d.last <= d.first) d.last = d.first + 1;
    return d;
}

static double chart_y(struct decades decades, double top, picoseconds time)
{
    const double share = (log10(fmax(1, (double)time)) - decades.first) / (decades.last - decades.first);
    return top + CHART - CHART * share;
}

static void draw_axes(FILE *to, struct decades decades, double top)
{
    for (double t = decades.first; t <= decades.last; t++) {
        const picoseconds time = (picoseconds)llround(pow(10, t));
        const double y = chart_y(decades, top, time);
        svg_link(to, LEFT, y, chart_x(BITS_MOST), y, 0.5, (struct colour){ 0, 0, 78 });
        svg_text(to, LEFT - 8, y + 4, "end", 12, "%s", picoseconds_format((double)time).text);
    }
    for (int bits = 0; bits <= BITS_MOST; bits += BITS_STEP) {
        svg_line(to, chart_x(bits), top + CHART, chart_x(bits), top + CHART + 5);
        svg_text(to, chart_x(bits), top + CHART + 19, "middle", 12, "%s", size_format(UINT64_C(1) << bits).text);
    }
    svg_line(to, LEFT, top + CHART, chart_x(BITS_MOST), top + CHART);
}

/* Draw the time of a message on a link for each power of two. */
static void draw_link(FILE *to, const struct cluster *cluster, int level, struct decades decades, double top)
{
    const struct link *l = &cluster->link[level];
    const struct colour c = level_colour(level);
    for (int bits = 0; bits < BITS_MOST; bits++)
        svg_link(to, chart_x(bits), chart_y(decades, top, cluster_message_time(l, UINT64_C(1) << bits)),
                 chart_x(bits + 1), chart_y(decades, top, cluster_message_time(l, UINT64_C(1) << (bits + 1))), 2, c);
}

/* Write the name of each line at its end; names keep a distance from each other. */
static void draw_names(FILE *to, const struct cluster *cluster, struct decades decades, double top)
{
    double above = top + CHART + 40;
    for (int l = 0; l < cluster->levels; l++) {
        const struct link *link = &cluster->link[l];
        const double end = chart_y(decades, top, cluster_message_time(link, UINT64_C(1) << BITS_MOST)),
                     y = fmin(end, above - 34);
        svg_bar(to, chart_x(BITS_MOST) + 8, y - 8, 10, 10, level_colour(l));
        svg_text(to, chart_x(BITS_MOST) + 22, y + 2, "start", 13, "%s", link->level);
        svg_text(to, chart_x(BITS_MOST) + 22, y + 17, "start", 11, "%s, %s", picoseconds_format((double)(link->latency
                 + link->gap)).text, link->rate > 0 ? byte_rate_format(1e6 * (double)link->rate).text : "any rate");
        above = y;
    }
}

enum error_code cluster_svg(FILE *to, const void *cluster, struct error *err)
{
    const struct cluster *c = cluster;
    const struct extent machine = draw_unit(NULL, c, c->levels - 1, 0, 0, 0);
    const double top = TOP + machine.h + 56;
    const struct decades decades = cluster_decades(c);
    const int width = machine.w + 2 * MARGIN > WIDTH ? (int)machine.w + 2 * MARGIN : WIDTH;
    svg_begin(to, width, (int)top + CHART + 40);
    svg_text(to, MARGIN, 30, "start", 17, "%s", c->name);
    svg_paragraph(to, MARGIN, 54, SVG_LINE, (width - 2 * MARGIN) / SVG_LETTER, c->description);
    draw_unit(to, c, c->levels - 1, 0, MARGIN, TOP);
    svg_text(to, MARGIN, TOP + machine.h + 28, "start", 14,
             "time of a message between two devices, alone, over its bytes");
    draw_axes(to, decades, top);
    for (int l = 0; l < c->levels; l++) draw_link(to, c, l, decades, top);
    draw_names(to, c, decades, top);
    return svg_end(to, "the machine", err);
}
