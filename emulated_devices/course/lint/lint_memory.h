/* lint_memory.h -- memory of a lint that is given back all at once, and names as numbers.
 *
 * words.c, parse.c, cells.c and match.c take memory with lint_take().  A pool without memory sets `full` and gives the
 * same spare bytes to everybody, so that its users go on and whoever began looks at `full` at the end.
 */
#ifndef ORRERY_LINT_MEMORY_H
#define ORRERY_LINT_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

struct lint_chunk;

struct lint_memory {
    struct lint_chunk *chunk;           /* the newest; each knows the one before */
    size_t taken, most;                 /* bytes so far; more are not given: 0: no limit */
    bool full;
    void *spare;                        /* what is given when nothing is left */
};

/** Take bytes that are all 0.  @param bytes  at most LINT_PIECE.  @return never NULL; see `full`. */
void *lint_take(struct lint_memory *, size_t bytes);
enum { LINT_PIECE = 1 << 16 };

/** Give all back.  The pool can be used again. */
void lint_drop(struct lint_memory *);

/* All names of a text, each once: two names are equal if their numbers are. */
struct names {
    struct lint_memory *pool;
    const char **text;                  /* [count] */
    int count, room;
    int *slot, slots;                   /* a hash table of numbers + 1 */
};

/** The number of a name, which is added if it is new.  @return 0 without memory. */
int names_number(struct names *, const char *text, size_t length);

/** The text of a number. */
const char *names_text(const struct names *, int number);
void names_free(struct names *);

#endif
