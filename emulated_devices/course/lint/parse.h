/* parse.h -- a C text as a tree of functions, statements and expressions, as far as a lint needs C.
 *
 * parse.c makes the tree, evaluate.c and execute.c walk it.  A function that is not understood has no body and says in
 * which line; the others are read all the same.  Types are known by their names only.
 */
#ifndef ORRERY_LINT_PARSE_H
#define ORRERY_LINT_PARSE_H

#include "emulated_devices/course/lint/words.h"

enum node_kind {
    NODE_NONE,
    /* expressions: a, b, c are parts, `mark` is the operator */
    NODE_NUMBER, NODE_FRACTION, NODE_TEXT, NODE_NAME, NODE_PREFIX, NODE_POSTFIX, NODE_BINARY, NODE_ASSIGN, NODE_CHOICE,
    NODE_CALL,                          /* a: whom; b: first argument, the others by `next` */
    NODE_INDEX, NODE_FIELD,             /* a: of whom; name; FIELD: mark '.' or "->" */
    NODE_CAST, NODE_SIZEOF,             /* name, number: type and stars; a: what is cast or measured, or 0 */
    NODE_LIST, NODE_ITEM,               /* { .. }: a: first item; an item: name or b: which; a: value */
    /* statements */
    NODE_EXPRESSION, NODE_VARIABLE, NODE_IF, NODE_FOR, NODE_WHILE, NODE_DO, NODE_SWITCH, NODE_CASE, NODE_RETURN,
    NODE_BREAK, NODE_CONTINUE, NODE_GOTO, NODE_BLOCK,
};

/* A variable: name; `type` and `stars`; a: its first value; b: lengths of its dimensions, by `next`; number: how many.
 * FOR: a, b, c and the body d.  IF: a, b, c.  CASE: a, or 0 for default.  BLOCK: a: first statement. */
struct node {
    enum node_kind kind;                /**< Kind of expression or statement. */
    int line, mark, name, type, stars;
    int a, b, c, d, next;               /* other nodes; 0: none */
    int64_t number;                     /**< Value of a number, or a count: see above. */
};

enum { FUNCTION_PARAMETERS = 24 };

struct parameter { int name, type, stars; };

struct function {
    int name, line, body;               /* body: 0: it was not understood */
    int failed;                         /* in which line; 0: nowhere */
    int parameters, type, stars;
    struct parameter parameter[FUNCTION_PARAMETERS]; /**< Parameters, [parameters]. */
    bool is_static;                     /**< The function is declared static. */
    bool is_called;                     /* by another function of this file */
};

struct program {
    struct lint_memory pool;            /**< Memory of the tree. */
    struct names names;                 /**< Names in the text, each with a number. */
    struct words words;                 /**< Words of the text, in order. */
    struct node *node;                  /* [nodes]; the first is none */
    int nodes, node_room;
    struct function *function;          /**< Functions of the text, [functions]. */
    int functions, function_room;
    int globals, last_global;           /* statements that declare what all functions see */
    bool full;                          /* there was no memory */
};

/** Read a text.  @return false: no memory; program_free() gives back what there is. */
bool program_read(struct program *, const char *text, size_t length);
void program_free(struct program *);

/** The function of this name, or NULL. */
struct function *program_find(const struct program *, int name);

#endif
