/* checkpoint_parts.h -- what writers of checkpoints of both kinds share; private to this folder.
 * checkpoint.c, checkpoint_write.c, series.c and sharded/ call these functions. */
#ifndef ORRERY_CHECKPOINT_PARTS_H
#define ORRERY_CHECKPOINT_PARTS_H

#include "emulated_devices/model/checkpoint/checkpoint.h"

/** The kind of checkpoint whose list a folder has; of whole tensors if it has none. */
const struct bundle_kind *checkpoint_kind(const char *dir);

/** Whether a folder has a list of a checkpoint. */
bool checkpoint_exists(const char *dir);

/** Before a folder gets a checkpoint of a kind: let a writer of the other kind, if it was killed, be completed.
 *  @return as bundle_begin. */
enum error_code checkpoint_complete_other(const struct bundle_kind *, const char *dir, struct error *);

/** Make what training.json has: everything that is not a tensor.  Local, on rank 0.
 *  @return an object for json_finish; NULL and ERR_MEMORY. */
cJSON *checkpoint_training(const struct trainer *, const cJSON *run, uint64_t fingerprint, struct error *);

/** Remove the files of whole tensors, which a sharded checkpoint in the same folder has replaced; and the other way. */
void checkpoint_forget_whole(const char *dir);
void checkpoint_forget_shards(const char *dir);

#endif
