/* object.h -- what a compiled file may have in it.  Private to this folder.
 * build.c calls it before it links a student's object.  No function returns an error code. */
#ifndef ORRERY_COURSE_OBJECT_H
#define ORRERY_COURSE_OBJECT_H

#include <stdbool.h>
#include <stddef.h>

/**
 * Look at an object file (ELF, 64 bits): the names that it uses must be of course.h or of a short list, those that it
 * defines must be exactly those of the lesson, nothing may run before main, it may have only little static memory, and
 * only sections that a text in C has.
 * @param must_define  ends with NULL.
 * @param[out] why    a line for each thing that must be changed.
 * @return whether all is well.
 */
bool object_is_fine(const char *path, const char *const *must_define, char *why, size_t size);

#endif
