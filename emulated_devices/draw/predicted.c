/* predicted.c -- draws predicted numbers over measured ones.  cli/bench/published_summary.c passes predicted_svg
 * to svg_file.  Only the end of the file can fail, with ERR_FILE. */
#include "emulated_devices/draw/predicted.h"
#include "emulated_devices/draw/svg.h"
#include <math.h>

enum { PANEL = 400, MARGIN = 60, HEAD = 50, LEGEND_LINE = 20, LEGEND_COLUMNS = 3, MARK = 7, TICK = 5 };

/* The decades of an axis that holds all numbers of a panel. */
struct decades { int first, last; };

static struct decades predicted_decades(const struct predicted_panel *panel)
{
    double least = INFINITY, most = 0;
    for (int i = 0; i < panel->points; i++) {
        const struct predicted_point *p = &panel->point[i];
        least = fmin(least, fmin(p->measured, p->predicted));
        most = fmax(most, fmax(p->measured, p->predicted));
    }
    if (!(most > 0)) return (struct decades){ 0, 1 };
    const int first = (int)floor(log10(least)), last = (int)ceil(log10(most));
    return (struct decades){ first, last > first ? last : first + 1 };
}

/* How far along an axis of PANEL pixels a number stands. */
static double predicted_along(struct decades decades, double number)
{
    return PANEL * (log10(number) - decades.first) / (decades.last - decades.first);
}

static struct colour predicted_colour(int source, int sources)
{
    return (struct colour){ 360 * source / (sources > 0 ? sources : 1), 75, 45 };
}

/* Draw the line on which predicted is so many times measured, as far as it lies in a panel of `span` decades. */
static void predicted_ray(FILE *out, double left, double bottom, double times, int span)
{
    const double up = log10(times) / span, x = up < 0 ? -up : 0, y = up > 0 ? up : 0, length = 1 - fmax(x, y);
    if (length > 0)
        svg_line(out, left + PANEL * x, bottom - PANEL * y, left + PANEL * (x + length), bottom - PANEL * (y + length));
}

static void predicted_axes(FILE *out, double left, double bottom, struct decades decades, const char *title)
{
    const int span = decades.last - decades.first;
    for (int d = decades.first; d <= decades.last; d++) {
        const double along = PANEL * (double)(d - decades.first) / span;
        svg_line(out, left + along, bottom, left + along, bottom - TICK);
        svg_line(out, left, bottom - along, left + TICK, bottom - along);
        svg_text(out, left + along, bottom + 16, "middle", 11, "%g", pow(10, d));
        svg_text(out, left - 6, bottom - along + 4, "end", 11, "%g", pow(10, d));
    }
    svg_line(out, left, bottom, left + PANEL, bottom);
    svg_line(out, left, bottom, left, bottom - PANEL);
    for (int i = -1; i <= 1; i++) predicted_ray(out, left, bottom, pow(2, i), span);
    svg_text(out, left + PANEL / 2.0, bottom - PANEL - 12, "middle", 13, "%s", title);
    svg_text(out, left + PANEL / 2.0, bottom + 34, "middle", 12, "measured");
    svg_text(out, left + 6, bottom - PANEL + 16, "start", 12, "predicted");
}

static void predicted_panel_draw(FILE *out, const struct predicted_picture *picture, int panel, double left,
                                 double bottom)
{
    const struct predicted_panel *p = &picture->panel[panel];
    const struct decades decades = predicted_decades(p);
    predicted_axes(out, left, bottom, decades, p->title);
    for (int i = 0; i < p->points; i++)
        svg_box(out, left + predicted_along(decades, p->point[i].measured) - MARK / 2.0,
                bottom - predicted_along(decades, p->point[i].predicted) - MARK / 2.0, MARK, MARK,
                predicted_colour(p->point[i].source, picture->sources));
}

enum error_code predicted_svg(FILE *out, const void *context, struct error *err)
{
    const struct predicted_picture *picture = context;
    const int lines = (picture->sources + LEGEND_COLUMNS - 1) / LEGEND_COLUMNS, width = 2 * PANEL + 3 * MARGIN;
    const double bottom = HEAD + PANEL, legend = bottom + 60;
    svg_begin(out, width, (int)legend + LEGEND_LINE * (lines + 1));
    for (int i = 0; i < 2; i++) predicted_panel_draw(out, picture, i, MARGIN + i * (PANEL + MARGIN), bottom);
    for (int i = 0; i < picture->sources; i++) {
        const double x = MARGIN + (double)(i % LEGEND_COLUMNS) * (width - MARGIN) / LEGEND_COLUMNS,
                     y = legend + LEGEND_LINE * (double)(i / LEGEND_COLUMNS);
        svg_box(out, x, y - MARK, MARK, MARK, predicted_colour(i, picture->sources));
        svg_text(out, x + 2 * MARK, y, "start", 12, "%s", picture->source[i]);
    }
    svg_text(out, width / 2.0, 20, "middle", 14,
             "predicted over measured; lines: equal, half, twice");
    return svg_end(out, "the picture of predicted numbers", err);
}
