/* annotated.h -- one source for an exercise: the solution, what a student begins with, and the variants of a course.
 *
 *     (*SOLUTION*)                     what lies between is the solution: the file as it is compiles and is right
 *         const int right = mod(g->rank (*RING*)+ 1(*|- 1*), g->size);
 *     (*SKELETON                       what the student finds instead
 *         // your code
 *     *)
 *
 * with slashes in the place of the parentheses.  In a text, lines: #SOLUTION, #SKELETON, then lines that begin with
 * "#| ", then #END.  RING is a choice of the lesson (struct vary): the alternatives, the first of them in place, the
 * others in a comment.  Markdown has <!--RING-->right<!--|left-->, and comments of C have {RING: right|left}.
 * emulated_devices/course/trees.c and course/teacher/ cut lessons with it.  Results are the caller's to free; NULL
 * means ERR_MEMORY or ERR_FORMAT, whose text says which mark is wrong.
 */
#ifndef ORRERY_COURSE_ANNOTATED_H
#define ORRERY_COURSE_ANNOTATED_H

#include "emulated_devices/course/lesson.h"

enum cut { CUT_SKELETON, CUT_SOLUTION };

/** @return the text for free(), or NULL with ERR_FORMAT (a marker without its end) or ERR_MEMORY. */
char *annotated_cut(const char *text, enum cut, const struct lesson *, uint64_t variant, struct error *);

/** Make the text without its solution, and with all of its choices.  @return as annotated_cut. */
char *annotated_strip(const char *text, struct error *);

/**
 * A wrong solution: blocks of lines with `-` (goes), `+` (comes) or a blank (stays), as in tests/faults; those that go
 * and stay are together in the text exactly once.
 * @param change  ends with NUL.
 * @return the changed text for free(), or NULL with ERR_FORMAT or ERR_MEMORY.
 */
char *annotated_change(const char *text, const char *change, struct error *);

#endif
