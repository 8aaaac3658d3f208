/* parse_parts.h -- what parse.c and parse_expression.c share: where the parser is, and the next word.
 * parse.c and parse_expression.c include this file. */
#ifndef ORRERY_LINT_PARSE_PARTS_H
#define ORRERY_LINT_PARSE_PARTS_H

#include "emulated_devices/course/lint/parse.h"

enum { PARSE_DEPTH = 200, PARSE_TYPES = 1024,
       PARSE_LINKS = 300 };             /* of one chain, such as a + a + ..: each is a call deeper */

struct parser {
    struct program *program;            /**< Tree that is made. */
    const struct word *at, *end;        /* the next word; the last one, WORD_END */
    int type[PARSE_TYPES], types;       /* names of types that the text defines */
    int depth;                          /* expressions and statements around this one */
    int failed;                         /* the line in which it was not understood; 0: nowhere */
};

/* A type as it stands before a name. */
struct type_words { int name, stars; bool is_static, is_typedef; };

/** A new node.  @return its number; 0 without memory. */
int parse_node(struct parser *, enum node_kind);

/** Note that this is not understood; reading stops at the end of the function.  @return 0. */
int parse_fails(struct parser *);

bool parse_is_mark(const struct word *, int mark);
bool parse_is_name(const struct parser *, const struct word *, const char *name);
bool parse_takes(struct parser *, int mark);
void parse_expects(struct parser *, int mark);

/** Whether a type begins here. */
bool parse_begins_type(const struct parser *, const struct word *);
/** Read a type up to its stars. */
struct type_words parse_type(struct parser *);
/** Skip what stands between two parentheses or braces, from the opening one on. */
void parse_skip(struct parser *);

int parse_expression(struct parser *);
/** An expression without a comma, or a list in braces. */
int parse_value(struct parser *);

#endif
