/* words.h -- a C text as words: comments are left out, the file's own macros are put in.
 *
 * parse.c reads the words.  No header is opened: a macro of a header stays a name.
 */
#ifndef ORRERY_LINT_WORDS_H
#define ORRERY_LINT_WORDS_H

#include "emulated_devices/course/lint/lint_memory.h"
#include <stdint.h>

enum word_kind { WORD_END, WORD_NAME, WORD_NUMBER, WORD_FRACTION, WORD_TEXT, WORD_MARK };

struct word {
    enum word_kind kind;                /**< Kind of the word. */
    int line, name;                     /* name: of a WORD_NAME; the letters of a mark, such as '<' + 256 * '=' */
    int64_t number;                     /* of a WORD_NUMBER */
};

enum { WORDS_MOST = 200000, WORDS_MACROS = 512, WORDS_PARAMETERS = 16,
       WORDS_STEPS = 1000000 };         /* words that putting in macros may look at: macros of macros multiply */

/* One macro of the file. */
struct macro {
    int name, parameters;               /* parameters: -1: it is used without parentheses */
    int parameter[WORDS_PARAMETERS];    /**< Names of the parameters. */
    int first, count;                   /* its words, in words.body */
    bool is_open;                       /* it is being put in: inside itself it stays a name */
};

struct words {
    struct names *names;                /**< Table of names. */
    struct word *word, *body;           /* [count]: the text; [bodies]: of all macros */
    int count, room, bodies, body_room;
    struct macro macro[WORDS_MACROS];   /**< Macros of the file, [macros]. */
    int macros, steps;
    bool too_long;                      /* it has more than WORDS_MOST words */
};

/** Read a text.  @return false: there was no memory. */
bool words_read(struct words *, struct names *, const char *text, size_t length);
void words_free(struct words *);

/** The number of a mark of up to three letters. */
#define MARK(a, b, c) ((a) + 256 * (b) + 65536 * (c))

#endif
