/* teacher.h -- what teachers have and students have not: solutions, wrong solutions, and what makes folders of them.
 *
 * A student's source tree is without this folder (tutorials/teacher/student_tree.sh), and the installed program without
 * its objects (the Makefile's student program), so that `orrery course` is no command there.  cli/teacher/course.c
 * calls these functions.
 */
#ifndef ORRERY_COURSE_TEACHER_H
#define ORRERY_COURSE_TEACHER_H

#include "emulated_devices/course/folder.h"

/** Write a teacher's folder, which must be new: solutions, mutants, hidden seed, what Gradescope and GitHub need. */
enum error_code write_teacher_tree(const char *folder, uint64_t variant, struct error *);
/* Solutions in Python are in solutions/python of it. */

/** Write notebooks/ of a teacher's folder: a notebook for each lesson, with nbgrader's cells.  @return OK or ERR_FILE,
 *  ERR_MEMORY. */
enum error_code write_notebooks(const char *folder, uint64_t variant, struct error *);

/** Write the lessons' files without their solutions, with the choices of all variants, into the lessons' folders in
 *  this one: a tutorials/ for programs of students. */
enum error_code write_skeletons(const char *folder, struct error *);

/* A proof tries the mutant of this name alone, or `most` of each lesson at equal distances; 0: all.  warmups: only the
 * warm-ups of the lessons.  python: of the files in Python (mutants_python.txt). */
struct proof_part { int most; const char *name; bool warmups, python; };

/** Is told what came of each thing that was tried.  @param word  "ok", "WRONG" or "skip"; NULL: a lesson begins.
 *  @param name  of the wrong solution or of the lesson.  @param text  what it loses, or what is wrong. */
typedef void proof_listener(const char *word, const char *name, const char *text);

/** Try the grader: the skeleton must have 0 points, the solution all, each mutant must lose what it says.
 *  @return OK; ERR_CHECK if one does not; ERR_USAGE if no chosen lesson has a mutant of the name. */
enum error_code prove_lessons(const bool chosen[MOST_LESSONS], uint64_t variant, struct proof_part part, bool sanitize,
                              proof_listener *, struct error *);

/** Try the warm-ups of a lesson: right answers are accepted, wrong ones refused with what they mean.
 *  @param most   wrong lines of C of each that are compiled; 0: all.  @param[in,out] wrong  counts what is not so.
 *  @return OK; ERR_FORMAT: a warm-up cannot be asked; ERR_FILE, ERR_MEMORY. */
enum error_code prove_warmups(const struct lesson *, const struct judging *, int most, proof_listener *, int *wrong,
                              struct error *err);

#endif
