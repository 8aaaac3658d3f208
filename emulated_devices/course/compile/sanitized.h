/* sanitized.h -- what a sanitizer found in a student's code, in one line.
 * serve.c calls it for a worker that has ended under sanitizers.  No function returns an error code. */
#ifndef ORRERY_COURSE_SANITIZED_H
#define ORRERY_COURSE_SANITIZED_H

#include <stdbool.h>
#include <stddef.h>

/**
 * Read the report of AddressSanitizer or UndefinedBehaviorSanitizer.
 * @param report  what a process wrote before it ended; any text.
 * @param file    the student's: of the calls in the report, the innermost one that is in it is named.
 * @return false: it is no such report; `to` is empty.
 */
bool sanitizer_text(const char *report, const char *file, char *to, size_t size);

#endif
