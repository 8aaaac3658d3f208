/* mesh_words.h -- the words that say another mesh for the same job: `orrery reshard --to`, and lines of --elastic.
 *
 * A job's model, batch, optimizer and formats do not change with its mesh, so other flags are refused by name.
 * cli/reshard.c and elastic_words.c call these functions.
 */
#ifndef ORRERY_MESH_WORDS_H
#define ORRERY_MESH_WORDS_H

#include "ref/error.h"

enum { MESH_WORDS_MOST = 64, MESH_WORDS_TEXT = 1000 };

struct mesh_text {
    int count;                          /* words */
    char *word[MESH_WORDS_MOST];        /* [count] in `text` */
    char text[MESH_WORDS_TEXT];         /* a copy of what was said, cut into words */
};

/** Cut a text into words, and check that they say a mesh.
 *  @param to   stays where it is while its words are used.
 *  @param who  begins each error, such as "--to" or "FILE, line 3".
 *  @return OK or ERR_USAGE. */
enum error_code mesh_text_read(struct mesh_text *to, const char *text, const char *who, struct error *);

#endif
