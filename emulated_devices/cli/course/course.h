/* course.h -- what orrery learn, grade and course share.  The teacher's part is in course/teacher.  grade.c
 * and learn.c call these functions.  learn_show_run returns errors of a judge and of a file. */
#ifndef ORRERY_CLI_COURSE_H
#define ORRERY_CLI_COURSE_H

#include "emulated_devices/cli/cli.h"
#include "emulated_devices/course/folder.h"
#include "emulated_devices/course/kept.h"

/** Print what came of a lesson: a line for each check, of those that failed why, and a drawing.
 *  @param hints  of the first failure, so many. */
void print_score(const struct score *, int hints, bool drawings);

/** Print a text, each of its lines behind so many blanks. */
void print_indented(const char *text, int by);

/** Show the run that a judging has kept, to a page (NULL: none) and, if it draws, as text.  The right run is beside it,
 *  once the student's file has all points.
 *  @param how      as it was judged; its `kept` has the run.
 *  @param failure  what the judge says of the first failure; NULL: all is right.
 *  @return OK, ERR_FILE, ERR_MEMORY, or what keeps the judge from judging. */
enum error_code learn_show_run(const struct folder *, const struct lesson *, const struct judging *how,
                               const char *failure, const char *path, bool draws, struct error *);

/**
 * Find the solution of a lesson in the language of the student's file.
 * @param[out] text    for free(); NULL: these sources have none, as in a class's kit.
 * @param[out] python  the language is Python.
 * @return OK or ERR_MEMORY.
 */
enum error_code learn_find_solution(const struct folder *, const struct lesson *, char **text, bool *python,
                                    struct error *);

#endif
