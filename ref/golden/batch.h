/* batch.h -- reads batches of tokens that somebody else has written.
 *
 * A batch file is safetensors with `ids` and `labels` [B,S] or [steps,B,S], integers of any size.  A label is the token
 * to be predicted at its place; -1 and -100, which PyTorch ignores, are ignored.
 *
 * cli/golden/make.c, bench/check_speed.c and cli/dump.c call this file.
 */
#ifndef ORRERY_BATCH_H
#define ORRERY_BATCH_H

#include "ref/golden/golden.h"

/**
 * Read the batches of `steps` steps into golden->ids and golden->labels; set its steps, B and S.
 * One batch serves all steps; of several each step has its own.
 * @param golden      its config is set; golden_close frees the batches, also after a failure.
 * @param steps  0: as many as the file has.
 * @return OK; ERR_FILE; ERR_FORMAT: no such tensors, fewer steps than asked for, a step all of whose labels are
 *         ignored; ERR_USAGE: a token or label that is not in the vocabulary, or more tokens than the model has
 *         positions; ERR_PLAN: a padding token; ERR_MEMORY.
 */
enum error_code batch_read(struct golden *golden, const char *path, int64_t steps, struct error *);

/** Check g's batches as batch_read does; ignored labels become IGNORE_LABEL.  @param where  names them in messages. */
enum error_code batch_check(struct golden *golden, const char *where, struct error *);

/** Memory for the positions of as many packed documents: each a sequence of one until they are filled in.
 *  @return OK or ERR_MEMORY. */
enum error_code batch_pack(struct golden *golden, struct error *);

/** Memory for golden->steps x golden->B x golden->S tokens and labels.  @return OK or ERR_MEMORY. */
enum error_code batch_allocate(struct golden *golden, struct error *);

#endif
