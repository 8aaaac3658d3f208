/* page.h -- pieces of the page that `orrery report` writes: text, charts, tables.
 *
 * The page is one file of HTML and SVG without scripts and without anything from outside.  Colours follow the reader's
 * choice of dark or light.  Charts stretch with the page; their labels are text of the page, which does not.
 * cli/report.c, charts.c and report.c call these functions.
 */
#ifndef ORRERY_DRAW_REPORT_PAGE_H
#define ORRERY_DRAW_REPORT_PAGE_H

#include "emulated_devices/draw/report/runs.h"
#include "ref/io/figures.h"
#include <stdio.h>

/** Text with HTML's signs replaced. */
void page_text(FILE *, const char *);

void page_begin(FILE *, const char *title);
/** Begin a page with more rules of CSS. */
void page_begin_styled(FILE *, const char *title, const char *more);
void page_end(FILE *);

/** A titled part of the page, wide or one of several beside each other; page_part_end ends it. */
void page_part(FILE *, const char *title, bool wide);
void page_part_end(FILE *);

/** Bytes that a file of JSON gives, and a number without a unit, as labels of an axis. */
struct figure page_bytes(double);
struct figure page_plain(double);

/* The range of an axis; logarithmic if `log`. */
struct axis_range { double least, most; bool log; };
void axis_take(struct axis_range *, double x);      /* widen it; of a new range least > most */
double axis_at(const struct axis_range *, double x);        /* 0 to 1 */

/** A field for a chart, with the axis of y: labels at its ends and in its middle.  Inside, SVG of 1000 x 1000 units, x
 *  to the right, y down.  chart_end ends it, with the axis of x. */
void chart_begin(FILE *, const struct axis_range *range, const char *y_name, struct figure (*label)(double));
void chart_end(FILE *, const struct axis_range *range, const char *x_name, struct figure (*label)(double));

/* charts.c: of runs */
void chart_losses(FILE *, const struct told_run *, int runs);
void chart_norms(FILE *, const struct told_run *, int runs);
void chart_rates(FILE *, const struct told_run *, int runs);
void chart_timeline(FILE *, const cJSON *profile);
void chart_memory(FILE *, const cJSON *profile);
void chart_traffic(FILE *, const cJSON *profile);
void chart_roofline(FILE *, const cJSON *profile);

/** report.c: write the page of some runs, one file.  @return OK, ERR_FILE or ERR_MEMORY. */
enum error_code page_write(const char *path, const struct told_run *, int runs, struct error *);

#endif
