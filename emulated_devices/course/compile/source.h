/* source.h -- words of a text that a lesson does not need: hints for the student.  Private to this folder.
 * build.c appends its words to a compiler's messages.  No function returns an error code. */
#ifndef ORRERY_COURSE_SOURCE_H
#define ORRERY_COURSE_SOURCE_H

#include <stdbool.h>
#include <stddef.h>

/**
 * Look at a text: a lesson needs course.h, its contract and a few headers of C, and no assembly.  What is found helps
 * where a text does not compile.  What a text can do is decided by the cage (cage.h) and by the object (object.h).
 * @param contract  "ring.h".
 * @param[out] why  one line, with the line's number.
 */
bool source_is_fine(const char *text, const char *contract, char *why, size_t size);

#endif
