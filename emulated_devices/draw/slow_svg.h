/* slow_svg.h -- draws the matrix of delays of a run, and how long each device works and waits.  cli/diagnose.c
 * calls. */
#ifndef ORRERY_DRAW_SLOW_SVG_H
#define ORRERY_DRAW_SLOW_SVG_H

#include "emulated_devices/check/slow/slow.h"
#include <stdio.h>

/* The caller owns all that a picture shows. */
struct slow_picture {
    const struct slow *slow;            /* findings, which are said below the matrix */
    const struct records *records;      /* of all devices */
    const int64_t *ratio;               /* [size, size] of slow_matrix */
};

/** For svg_file.  @param picture  a struct slow_picture.  @return OK or ERR_FILE. */
enum error_code slow_svg(FILE *, const void *picture, struct error *);

#endif
