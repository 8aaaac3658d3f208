/* predicted.h -- predicted numbers over measured ones, as one picture.  cli/bench/published_summary.c
 * passes predicted_svg to svg_file. */
#ifndef ORRERY_DRAW_PREDICTED_H
#define ORRERY_DRAW_PREDICTED_H

#include "ref/error.h"
#include <stdio.h>

enum { PREDICTED_SOURCES = 16, PREDICTED_LABEL = 40 };

/* One number that was predicted and measured, in the same unit. */
struct predicted_point { double measured, predicted; int source; };

/* One half of the picture: the numbers of one unit. */
struct predicted_panel {
    const char *title;                  /* with the unit */
    const struct predicted_point *point;        /* [points] */
    int points;                         /* entries of `point` */
};

/* The picture: panels side by side, with one list of sources below. */
struct predicted_picture {
    struct predicted_panel panel[2];    /* time, and memory */
    char source[PREDICTED_SOURCES][PREDICTED_LABEL]; /* names for the legend */
    int sources;                        /* entries of `source` */
};

/** Draw both panels with logarithmic axes, a line where both numbers are equal, and lines of half and of twice.
 *  @param context  a struct predicted_picture.  @return OK, or ERR_FILE if the file could not be written. */
enum error_code predicted_svg(FILE *, const void *context, struct error *);

#endif
