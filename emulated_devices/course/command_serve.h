/* command_serve.h -- runs `orrery` for a check of a text, on the judge's side of command.h.  Private to this folder.
 * judge.c calls it while a check of a text runs. */
#ifndef ORRERY_COURSE_COMMAND_SERVE_H
#define ORRERY_COURSE_COMMAND_SERVE_H

#include "emulated_devices/course/compile/build.h"
#include "emulated_devices/course/command.h"

/**
 * Run the command that a check has asked for, and write down what came of it.
 * @param build        with the student's text in in/.
 * @param program  this program's path.
 * @param[in,out] left  seconds of a processor that the lesson has left.
 * @return OK; ERR_FILE, ERR_MEMORY: nothing can be run here at all, which is nobody's mistake in a lesson.
 */
enum error_code command_serve_check(const struct build *build, const char *program, struct command_request *,
                                    double *left, struct error *);

#endif
