/* batch.h -- reads batches of tokens that somebody else has written.
 *
 * A batch file is safetensors with `ids` and `labels` [B,S] or [steps,B,S], integers of any size.  A label is the token
 * to be predicted at its place; -1 and -100, which PyTorch ignores, are ignored.
 */
#ifndef ORRERY_BATCH_H
#define ORRERY_BATCH_H

#include "ref/golden/golden.h"

/**
 * Read the batches of `steps` steps into g->ids and g->labels, and set g->steps, g->B and g->S.  One batch serves all
 * steps; of several each step has its own.
 * @param g      its config is set; golden_close frees the batches, also after a failure.
 * @param steps  0: as many as the file has.
 * @return OK; ERR_FILE; ERR_FORMAT: no such tensors, fewer steps than asked for, a step all of whose labels are
 *         ignored; ERR_USAGE: a token or label that is not in the vocabulary, or more tokens than the model has
 *         positions; ERR_PLAN: a padding token; ERR_MEMORY.
 */
enum error_code batch_read(struct golden *g, const char *path, int64_t steps, struct error *);

/** Check g's batches as batch_read does; ignored labels become IGNORE_LABEL.  @param where  names them in messages. */
enum error_code batch_check(struct golden *g, const char *where, struct error *);

/** Memory for g->steps x g->B x g->S tokens and labels.  @return OK or ERR_MEMORY. */
enum error_code batch_allocate(struct golden *g, struct error *);

#endif
