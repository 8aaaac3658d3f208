/* schedule.h -- `orrery show schedule`: a pipeline schedule as a picture, with its bubble, memory and messages.
 * show.c calls these functions. */
#ifndef ORRERY_SHOW_SCHEDULE_H
#define ORRERY_SHOW_SCHEDULE_H

#include "ref/error.h"
#include <stdio.h>

/**
 * Run the subcommand.  One process; nothing is sent.
 * @param argc,argv  the words after `show schedule`: NAME or FILE, and flags; without either, the list of schedules.
 * @param to         for the picture and the numbers.
 * @return OK; ERR_USAGE, ERR_PLAN, ERR_FILE, ERR_FORMAT, ERR_MEMORY with one line in err.
 */
enum error_code show_schedule(int argc, char **argv, FILE *to, struct error *err);

#endif
