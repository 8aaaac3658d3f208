/* schedule.h -- pictures of a timed schedule: for a terminal and as SVG.
 *
 * Callers: timeline.c, cli/show/schedule.c, lesson 11.
 */
#ifndef ORRERY_DRAW_SCHEDULE_H
#define ORRERY_DRAW_SCHEDULE_H

#include "emulated_devices/schemes/pipeline/timing.h"

/** A timeline in at most `columns` columns (40 or more): one row per device if there is room for letter and number of
 *  each action, else two.  Lower-case letters are odd chunks, dots are idle time.  Colours are ANSI escapes. */
void schedule_draw_text(FILE *to, const struct schedule *, const struct timing *, int columns, bool colour);

/** Do the same as an SVG document: a row per device, a colour per kind, a shade per chunk, a time axis and a legend.
 *  @param picoseconds  whether times are picoseconds; otherwise the axis names no unit.
 *  @return OK, or ERR_FILE if `to` cannot be written. */
enum error_code schedule_draw_svg(FILE *to, const struct schedule *, const struct timing *, bool picoseconds,
                                  struct error *);

struct film;

/* Most devices and actions of a schedule on a page. */
enum { SCHEDULE_FILM_DEVICES = 256, SCHEDULE_FILM_ACTIONS = 40000 };

/** Film a schedule: passes, messages, and how many microbatches each device holds.
 *  @param[out] film  for film_close, also after an error.  @param communication  the time of a message.
 *  @return OK; ERR_USAGE: more devices or actions than a page shows; ERR_MEMORY. */
enum error_code schedule_film(struct film *film, const struct schedule *, const struct timing *,
                              int64_t communication, struct error *);

#endif
