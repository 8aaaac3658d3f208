/* utf8.h -- reads, writes and repairs characters of UTF-8.
 *
 * The files of ref/text/ call this file.
 */
#ifndef ORRERY_UTF8_H
#define ORRERY_UTF8_H

#include "ref/text/text_buffer.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { UTF8_MOST = 4 };                 /* bytes of a character */

/**
 * The first character of a text.
 * @param[out] c  its code point; of what is no character, 0xFFFD.
 * @return its bytes; 0 at the end; -n if the first n bytes are no part of a character, as Unicode 16, table 3-7 has it
 *         (the longest beginning of a character, or one byte).
 */
int utf8_first(const char *text, size_t bytes, uint32_t *c);

/** Write a character.  @param[out] to  [UTF8_MOST].  @return its bytes. */
int utf8_put(char *to, uint32_t c);

/**
 * Copy a text with U+FFFD in the place of what is no character.
 * @param[out] to  at least 3 times as long as the text.
 * @param[out] wrong  how many were replaced.
 * @return the bytes of the copy.
 */
size_t utf8_repair(char *to, const char *text, size_t bytes, int64_t *wrong);

/** Whether a text consists of characters. */
bool utf8_is_valid(const char *text, size_t bytes);

/** How many bytes at the end of a text begin a character that is not complete. */
size_t utf8_unfinished(const char *text, size_t bytes);

/** Add a repaired copy of a text.  @param unfinished  leave a beginning of a character at the end as it is.
 *  @return OK or ERR_MEMORY. */
enum error_code utf8_add_repaired(struct text_buffer *, const char *text, size_t bytes, bool unfinished,
                                  struct error *);

#endif
