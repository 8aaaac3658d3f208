/* reshard.h -- the files of a sharded checkpoint for another mesh, with the fewest bytes from file to file.
 *
 * Device n of the new mesh is where device n of the old one was, with its file.  What it writes on the new mesh and its
 * file has, is local; the rest comes from other devices' files, each element once (model/collection/moves.h).  The new
 * folder is the one that a run on the new mesh would have saved at the same step, byte for byte.
 *
 * cli/reshard.c calls these functions.
 */
#ifndef ORRERY_RESHARD_H
#define ORRERY_RESHARD_H

#include "emulated_devices/model/checkpoint/sharded/shards.h"
#include "emulated_devices/model/checkpoint/checkpoint.h"
#include "emulated_devices/model/collection/moves.h"
#include "emulated_devices/model/collection/outlined.h"

struct resharding {
    const struct checkpoint *from;      /* the caller's */
    struct sharded files;               /* its devices' files */
    struct outlined outline;            /* of the plan with the new mesh */
    struct manifest manifest;           /* of the new files */
    struct moves moves;                 /* from file to file, as foreseen */
    uint64_t bytes;                     /* of the state */
    struct moved *counted;              /* [ranks] what was read, after reshard_write: .received and .stays */
    bool outlined;                      /* the outline is open */
};

/**
 * Plan a resharding.  Local; reads no tensor.
 * @param from  a sharded checkpoint; stays open until reshard_close.
 * @param plan  of the same job, with the new mesh.
 * @return OK; ERR_FORMAT if it is not sharded, or its manifest is wrong; ERR_PLAN if the state does not fit the mesh;
 *         ERR_FILE; ERR_MEMORY.  reshard_close works after all.
 */
enum error_code reshard_open(struct resharding *, const struct checkpoint *from, const struct plan *plan,
                             struct error *);

/** Write the new folder, which may have an earlier checkpoint but may not be the old folder.
 *  @return OK; ERR_CHECK if other bytes were read than foreseen; ERR_FORMAT if a checksum is wrong; ERR_FILE;
 *          ERR_MEMORY.  After an error the new folder is as it was. */
enum error_code reshard_write(struct resharding *, const char *dir, struct error *);
void reshard_close(struct resharding *);

#endif
