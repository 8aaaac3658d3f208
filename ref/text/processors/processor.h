/* processor.h -- steps that change the tokens of a text, such as adding a token of the beginning.
 *
 * Each works on the tokens that the one before it made.  tokenizer.c calls them.
 */
#ifndef ORRERY_PROCESSOR_H
#define ORRERY_PROCESSOR_H

#include "ref/text/step.h"
#include "ref/text/token_ids.h"

/* A kind of processor: a file of this folder, and a line in kinds.def. */
struct processor_kind {
    struct step_kind step;              /* its name, read and close */
    /** Add to `out` the tokens `in` with what belongs around them.
     *  @param special  with special tokens; else everything but them.
     *  @return whether there was memory. */
    bool (*apply)(const void *state, const struct token_ids *in, bool special, struct token_ids *out);
    /** How many special tokens it adds, for which a truncation leaves room; NULL: none. */
    int64_t (*added)(const void *state);
};

#define PROCESSOR(symbol) extern const struct processor_kind processor_##symbol;
#include "ref/text/kinds.def"

extern const struct step_room processor_room;

/** Refuse a processor that adds tokens behind TemplateProcessing, whose parts it would take for several texts.
 *  @return as the readers of step.h. */
enum error_code processors_check(const struct steps *, struct step_reading *);

/** Apply all processors.  @param[in,out] ids  the tokens, and then the result.  @param spare  room for lists between.
 *  @return whether there was memory. */
bool processors_apply(const struct steps *, bool special, struct token_ids *ids, struct token_ids *spare);

/** How many special tokens they add together. */
int64_t processors_added(const struct steps *);

#endif
