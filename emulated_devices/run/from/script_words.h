/* script_words.h -- the words of a shell script, expanded: shared by script.c and script_words.c. */
#ifndef ORRERY_RUN_SCRIPT_WORDS_H
#define ORRERY_RUN_SCRIPT_WORDS_H

#include "ref/error.h"
#include "ref/io/output.h"
#include <stdbool.h>
#include <stddef.h>

enum { SCRIPT_DEPTH = 16, SCRIPT_KEYWORD = 16, SCRIPT_VARIABLES = 1024, SCRIPT_MOST_WORDS = 8192,
       SCRIPT_WORD_BYTES = 1 << 16, SCRIPT_WORK = 1 << 26 };

#define SCRIPT_NAME_LETTERS "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_"

/* A list of words in memory of their own. */
struct script_words { char **of; int count, room; };

struct script_variable { char *name; struct script_words words; };      /* a scalar has one word */

/* An if that is open: whether its present branch runs, and whether one has run. */
struct script_branch { bool runs, taken; };

struct script {
    const char *at, *end, *where;
    int line, command_line;             /* the present one; where the command began */
    int started, program;               /* the line that starts the program, 0: none; which word it is */
    bool bare;                          /* no script: line ends are blanks */
    bool condition, quiet;              /* the line is a condition; it is in a branch that does not run */
    int depth, nested;                  /* open ifs; expansions inside each other */
    struct script_branch branch[SCRIPT_DEPTH]; /**< Open ifs, [depth]. */
    struct script_variable variable[SCRIPT_VARIABLES]; /**< Variables of the script, [variables]. */
    int variables;                      /* entries of `variable` */
    struct script_words start, assumed; /* the words that start the program; what was assumed */
    size_t work;                        /* bytes of all words so far */
};

/** Append a copy of a word.  @return whether there is memory and room. */
bool script_words_add(struct script_words *, const char *word);
void script_words_free(struct script_words *);
void script_free(struct script *);

/** Pass blanks, line ends, semicolons and comments. */
void script_skip(struct script *);

/** Copy the plain word at the place, if it is short and ends there.  @return whether it is one. */
bool script_peek(const struct script *, char word[SCRIPT_KEYWORD]);

/**
 * Read words to the end of a command, and do the assignments among its first ones.
 * @param assigns  whether a word is an assignment; NULL: no word is.
 * @return OK; ERR_FORMAT, ERR_MEMORY.
 */
enum error_code script_line(struct script *, struct script_words *, bool (*assigns)(const char *), struct error *);

/** Keep what is assumed about the machine.  @return whether there is memory. */
bool script_assume(struct script *, const char *format, ...) __attribute__((format(printf, 2, 3)));

enum error_code script_refuse(const struct script *, struct error *, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
enum error_code script_no_memory(const struct script *, struct error *);

#endif
