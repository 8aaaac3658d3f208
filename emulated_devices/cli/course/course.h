/* course.h -- what orrery learn, grade and course share.  The teacher's part is in course/teacher.  grade.c calls
 * these functions.  No function returns an error code. */
#ifndef ORRERY_CLI_COURSE_H
#define ORRERY_CLI_COURSE_H

#include "emulated_devices/cli/cli.h"
#include "emulated_devices/course/folder.h"

/** Print what came of a lesson: a line for each check, of those that failed why, and a drawing.
 *  @param hints  of the first failure, so many. */
void print_score(const struct score *, int hints, bool drawings);

#endif
