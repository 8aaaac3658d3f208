/* step.h -- what all steps of a tokenizer have in common: a name, how a step is read, and how it is closed.
 *
 * A tokenizer.json is a pipeline.  Each step works on what the step before it made:
 *
 *     normalizers/  text -> text             splitters/   piece -> pieces          models/    piece -> ids
 *     processors/   ids -> ids               decoders/    texts of tokens -> texts of tokens
 *
 * A kind of step is one file of its room, and its line in kinds.def.  The header of a room says what `apply` is there.
 * tokenizer.c and the rooms include this file.  Readers return OK, ERR_FORMAT naming the file, the part and what is
 * wrong there, or ERR_MEMORY.
 */
#ifndef ORRERY_STEP_H
#define ORRERY_STEP_H

#include "ref/io/json.h"
#include "ref/text/patterns.h"

/* The place that is being read. */
struct step_reading {
    const char *path;                   /* the file */
    const char *part;                   /* the key at its top, such as "normalizer" */
    const char *kind;                   /* the step in that part, such as "Replace"; NULL between steps */
    int32_t vocabulary;                 /* one more than the largest token; 0 before the model is read */
    struct error *err;                  /* receives what is wrong */
};

/* A kind of step, without what its room adds. */
struct step_kind {
    const char *name;                   /* the value of "type" */
    /** Read the object of a step.  It refuses keys and values that it does not know (step_keys, step_refuse).
     *  @param[out] state  NULL at first.  What is left there is closed, also after an error. */
    enum error_code (*read)(void **state, const struct step_reading *, const cJSON *object);
    void (*close)(void *state);         /* NULL: free() is enough */
};

enum { STEPS_MOST = 64 };               /* of a part of the file, with those of sequences in sequences */

/* A step of the file. */
struct step {
    const struct step_kind *kind;       /* the first member of the room's own kind */
    void *state;                        /* what the kind has read */
};

/* The steps of a part, in the order in which they work. */
struct steps {
    struct step step[STEPS_MOST];       /**< Steps of the part, [count]. */
    int count;                          /* entries of `step` */
};

/* A part of the file. */
struct step_room {
    const char *key, *list;             /* "normalizer"; "normalizers", the key in a Sequence */
    const struct step_kind *const *kind;        /* known ones; ends with NULL */
};

/** Read a part: missing, null, a step, or a Sequence of such.  The steps are the caller's also after an error. */
enum error_code steps_read(struct steps *, const struct step_room *, struct step_reading *, const cJSON *root);
void steps_close(struct steps *);

/* ---- for the readers of kinds ------------------------------------------------------------------------------------ */

/** Refuse something: "PATH: normalizer: Replace: WHAT is not supported".  @return ERR_FORMAT. */
enum error_code step_refuse(const struct step_reading *, const char *what);

/** Say what is wrong: "PATH: normalizer: Replace: WHAT".  @return ERR_FORMAT. */
enum error_code step_wrong(const struct step_reading *, const char *what);

/** @return ERR_MEMORY. */
enum error_code step_no_memory(const struct step_reading *);

/** A new state of `bytes` bytes, all zero, in *state.  @return OK or ERR_MEMORY. */
enum error_code step_state(void **state, size_t bytes, const struct step_reading *);

/** Refuse an object that has another key than these and "type".  @param keys  with blanks between them. */
enum error_code step_keys(const struct step_reading *, const cJSON *object, const char *keys);

/** The `read` of a kind without keys and state. */
enum error_code step_read_nothing(void **state, const struct step_reading *, const cJSON *object);

/** A text of the object, which owns it.  @param usual  where the key is missing or null; NULL: it must be there. */
enum error_code step_text(const struct step_reading *, const cJSON *object, const char *key, const char *usual,
                          const char **out);

/** As step_text, as a copy for free(). */
enum error_code step_text_copy(const struct step_reading *, const cJSON *object, const char *key, const char *usual,
                               char **out);

/** true or false.  @param usual  where the key is missing or null. */
enum error_code step_flag(const struct step_reading *, const cJSON *object, const char *key, bool usual, bool *out);

/** A whole number from 0 to `most`.  @param usual  where the key is missing or null; -1: it must be there. */
enum error_code step_count(const struct step_reading *, const cJSON *object, const char *key, int64_t most,
                           int64_t usual, int64_t *out);

/** The "pattern" of an object: { "String": text } or { "Regex": expression }.  @param[out] out  for pattern_close. */
enum error_code step_pattern(const struct step_reading *, const cJSON *object, struct pattern **out);

#endif
