/* token_parts.h -- what the readers of token files share: little-endian numbers, and a file that is mapped.
 *
 * token_file_read.c, token_index.c and token_npy.c include this file; nobody outside ref/text/ does.
 */
#ifndef ORRERY_TOKEN_PARTS_H
#define ORRERY_TOKEN_PARTS_H

#include "ref/text/token_file.h"

/** Get a little-endian number of 1 to 8 bytes.  Pure. */
static inline uint64_t token_number(const uint8_t *at, int bytes)
{
    uint64_t x = 0;
    for (int i = 0; i < bytes; i++) x |= (uint64_t)at[i] << 8 * i;
    return x;
}

/** Map a file read-only, as one run of bytes.
 *  @return OK; ERR_FILE; ERR_FORMAT if it is empty.  After a failure there is nothing to close. */
enum error_code token_file_map(struct token_file *, const char *path, struct error *);

/* ---- token_npy.c ------------------------------------------------------------------------------------------------- */

/** Whether a mapped file begins as NumPy's files do.  Pure. */
bool token_npy_begins(const struct token_file *);

/**
 * Read NumPy's head: set the first token, width and count.
 * @return OK; ERR_FORMAT: the head is cut off or of an unknown version, or the array has another type or more than one
 *         dimension, or another size than the file.
 */
enum error_code token_npy_read(struct token_file *, struct error *);

#endif
