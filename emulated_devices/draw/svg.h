/* svg.h -- the few elements of an SVG document that the drawings are made of.
 *
 * The SVG drawings of this folder (draw/) and of cli/show/ call this file.  Lengths are pixels; y grows downwards.
 */
#ifndef ORRERY_DRAW_SVG_H
#define ORRERY_DRAW_SVG_H

#include "ref/error.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* A colour as CSS's hsl() takes it: degrees, and percentages. */
struct colour { int hue, saturation, light; };

/** Begin a document of so many pixels, white, in a font without serifs. */
void svg_begin(FILE *, int width, int height);

/** End it.  @return OK, or ERR_FILE if it could not be written.  @param what  names the drawing in the message. */
enum error_code svg_end(FILE *, const char *what, struct error *);

/** Draw into memory, then write the file as a whole.
 *  @param draw     is called once; what it returns is returned.
 *  @param context  for it.
 *  @return OK, ERR_FILE or ERR_MEMORY. */
enum error_code svg_file(const char *path, enum error_code (*draw)(FILE *, const void *context, struct error *),
                         const void *context, struct error *);

/** A rectangle with a thin edge. */
void svg_box(FILE *, double x, double y, double w, double h, struct colour);

/** A line of some width, in pixels. */
void svg_link(FILE *, double x, double y, double to_x, double to_y, double wide, struct colour);

/** The colour of what is a device's: its tokens, its blocks.  16 devices have colours of their own. */
struct colour svg_device_colour(int device);

/** A bar: a rectangle without an edge. */
void svg_bar(FILE *, double x, double y, double w, double h, struct colour);

/** Many rectangles as one element: begin, add each, then say whether they are filled or have edges so many pixels
 *  wide. */
void svg_bars_begin(FILE *);
void svg_bars_add(FILE *, double x, double y, double w, double h);
void svg_bars_fill(FILE *, struct colour);
void svg_bars_edge(FILE *, double thick);

/** A message from (x, y) to (x, to_y), both at the right of what they belong to: out to lane_x, along it, and back. */
void svg_arrow(FILE *, double x, double y, double lane_x, double to_y, struct colour);

/* Pixels from a line of a paragraph to the next, and of a letter, mostly more than its mean width. */
enum { SVG_LINE = 19, SVG_LETTER = 7 };

/** Text in lines of at most so many letters, folded at blanks; the first line stands at y.
 *  @param to  NULL: nothing is written.  @param line  pixels from a line to the next.  @return lines * line. */
int svg_paragraph(FILE *to, double x, double y, int line, int letters, const char *text);

/** One line of text.  Characters that XML does not take as they are become `?`.
 *  @param anchor  "start", "middle" or "end" of the text is at x. */
void svg_text(FILE *, double x, double y, const char *anchor, int size, const char *format, ...)
    __attribute__((format(printf, 6, 7)));

void svg_line(FILE *, double x, double y, double to_x, double to_y);

/** A time axis below a drawing, with about ten marks at 1, 2 or 5 times a power of ten, in the largest unit in which
 *  they are integers.  @param picoseconds  whether `most` is in picoseconds; else the axis names no unit. */
void svg_time_axis(FILE *, double left, double right, double y, int64_t most, bool picoseconds);

#endif
