/* data_words.h -- what --data says: FILE, FILE:WIDTH, FILE:WEIGHT or FILE:WIDTH:WEIGHT, several with commas.
 * run/settings.c, data.c and cli/tokenize.c call these functions. */
#ifndef ORRERY_TRAIN_DATA_WORDS_H
#define ORRERY_TRAIN_DATA_WORDS_H

#include "ref/text/corpus.h"

struct data_word {
    const char *path;                   /* in `text` of the list */
    enum token_width width;             /* of its tokens, as the user says; TOKENS_AS_FOUND: nothing said */
    int64_t weight;                     /* in millionths; 0: it has none */
    int share;                          /* all weights as whole numbers without a common divisor; 0: none */
};
/* The files of a flag: [count] words, which point into a copy of the flag's text. */
struct data_words { struct data_word *word; int count; char *text; };

/**
 * Read the value of --data or --eval-data.  The name of a file that is there is taken as it stands.
 * @return OK; ERR_USAGE if a name is empty, a weight is wrong, or only some files have one; ERR_MEMORY.  After a
 *         failure there is nothing to free.
 */
enum error_code data_words_read(struct data_words *, const char *words, struct error *);
void data_words_free(struct data_words *);

/** Whether a file is read as tokens: by its name, or as the user has said their width.  Pure. */
bool data_word_is_tokens(const struct data_word *);

/** Write the words again with whole paths, which begin at the folder `from`, for free(); NULL: no memory. */
char *data_words_with_paths(const char *words, const char *from);

#endif
