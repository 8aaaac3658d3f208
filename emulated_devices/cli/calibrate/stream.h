/* stream.h -- `orrery calibrate --stream`: the rate of memory by loops and by tasks.  calibrate.c calls
 * calibrate_stream. */
#ifndef ORRERY_CALIBRATE_STREAM_H
#define ORRERY_CALIBRATE_STREAM_H

#include "ref/error.h"
#include <stdbool.h>

/** Measure with all cores of this process, and print a table.
 *  @param elements  of each array.  @param json  a file for the rates; NULL: none.  @param quiet  no table.
 *  @return OK, ERR_MEMORY, ERR_CHECK for arrays that are wrong afterwards, ERR_FILE. */
enum error_code calibrate_stream(int elements, int rounds, const char *json, bool quiet, struct error *);

#endif
