/* chat_parts.h -- what a run of a chat template has, for chat.c (statements) and chat_values.c (expressions). */
#ifndef ORRERY_CHAT_PARTS_H
#define ORRERY_CHAT_PARTS_H

#include "emulated_devices/serve/http/chat.h"
#include <stdbool.h>
#include <stdint.h>

/* A name in scope. */
struct chat_variable { char name[48]; cJSON *value; };

/* A run of a template.  All values that it makes live until its end. */
struct chat_run {
    cJSON **made;                       /* [values] that it has made; owned */
    int64_t values, room;
    struct chat_variable *variable;     /* [variables] the innermost last; owned */
    int64_t variables, places;
    int64_t steps, bytes, depth;        /* values computed; bytes of texts made; nested expressions */
    bool dry;                           /* only look whether everything is supported: nothing has a value */
    const char *where;                  /* the template's name */
    int line;                           /* of the statement that runs */
    enum error_code code;               /* why it has ended; OK: it goes on */
    struct error *err;                  /* and its line */
};

/** End a run.  @return NULL. */
cJSON *chat_fail(struct chat_run *, const char *format, ...) __attribute__((format(printf, 2, 3)));

/** A value that lives until the run's end: the argument, which may be NULL without memory. */
cJSON *chat_made(struct chat_run *, cJSON *);

/** Set a name in the innermost scope that begins at `from`. */
void chat_set(struct chat_run *, int64_t from, const char *name, cJSON *value);

/** The value of an expression.  *at is behind it afterwards.  @return NULL: undefined, or the run has ended. */
cJSON *chat_value(struct chat_run *, const char **at);

/** Whether a value counts as true. */
bool chat_is_true(const cJSON *);

/** Behind blanks.  @return its argument moved. */
const char *chat_blanks(const char *);

/** Take a word or a sign, if it stands there.  @return whether. */
bool chat_takes(const char **at, const char *word);

/** Take a name.  @return false: there is none, and the run has ended. */
bool chat_name(struct chat_run *, const char **at, char name[48]);

enum { CHAT_ARGUMENTS = 4 };

/* A call has these arguments between its parentheses; some have names. */
struct arguments { cJSON *at[CHAT_ARGUMENTS]; char name[CHAT_ARGUMENTS][48]; int count; };

/** A value made of bytes, of a number, of a truth. */
cJSON *chat_text(struct chat_run *, const char *text, size_t bytes);
cJSON *chat_number(struct chat_run *, double);
cJSON *chat_truth(struct chat_run *, bool);

/** Calls by their names; a name that is not supported ends the run.  @return as chat_value. */
cJSON *chat_filter(struct chat_run *, const char *name, cJSON *value, const struct arguments *);
cJSON *chat_method(struct chat_run *, const char *name, cJSON *value, const struct arguments *);
cJSON *chat_function(struct chat_run *, const char *name, const struct arguments *);
cJSON *chat_test(struct chat_run *, const char *name, const cJSON *value);

/** End a run without memory.  @return NULL. */
cJSON *chat_no_memory(struct chat_run *);

#endif
