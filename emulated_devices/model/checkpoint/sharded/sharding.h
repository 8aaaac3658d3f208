/* sharding.h -- the parts of a save of which every device writes its own boxes; private to this folder.
 *
 *     sharding_open()       who writes which boxes, in which files
 *     sharding_describe()   what is no tensor, as it is now
 *     sharding_take()       this device's boxes, copied to the host's memory
 *     sharding_write_own()  this device's file, flushed to the disk, with its checksum
 *     sharding_commit()     rank 0, once every device's file is there: from then on the checkpoint counts
 *
 * sharded_write.c calls them one after another; meanwhile.c has a thread that calls those that send no messages.
 */
#ifndef ORRERY_SHARDING_H
#define ORRERY_SHARDING_H

#include "emulated_devices/model/checkpoint/checkpoint_parts.h"
#include "emulated_devices/model/checkpoint/sharded/manifest.h"
#include "ref/io/bundle.h"

/* One device's part of a save; folder, training and origin are rank 0's. */
struct sharding {
    struct bundle_writer folder;        /* begun by sharding_open */
    struct collection collection;       /* of the trainer that is saved */
    struct manifest manifest;           /* of all devices' files */
    int rank;                           /* of this device */
    char dir[BUNDLE_FOLDER];            /* the folder's path */
    cJSON *training;                    /* of training.json */
    char *origin;                       /* of run.yaml */
};

/** Begin the folder, and say which boxes each device writes.  Collective over all devices.
 *  @return OK, or the same error on every device; sharding_close works after both. */
enum error_code sharding_open(struct sharding *, struct trainer *, const char *dir, struct error *);
void sharding_close(struct sharding *);

/** Bytes of the boxes that a device writes: a function of the plan.  Local. */
uint64_t sharding_bytes(const struct sharding *, int rank);

/** Keep what is no tensor, as it is now.  Collective over all devices.
 *  @return OK, or the same error on every device. */
enum error_code sharding_describe(struct sharding *, const cJSON *run, const char *origin, struct error *);

/** Copy this device's boxes out of its trainer.  Local; sends nothing, and takes no virtual time.
 *  @param[out] buffer  sharding_bytes of them, one box after another.  @param[out] bytes  that were copied.
 *  @return OK or ERR_MEMORY. */
enum error_code sharding_take(const struct sharding *, char *buffer, uint64_t *bytes, struct error *);

/** Write this device's file, flush it to the disk, and note its length and checksum in the manifest.  Local.
 *  @param buffer  as sharding_take fills it; NULL: the boxes come from the trainer, one tensor after another.
 *  @return OK, ERR_FILE or ERR_MEMORY; a failure leaves no file. */
enum error_code sharding_write_own(struct sharding *, const char *buffer, struct error *);

/** Write the manifest and all that is no tensor, and make the checkpoint count.  Local, on rank 0, once all files are
 *  there and the manifest has their checksums.  @return OK; ERR_FILE, ERR_MEMORY: folder.committed says whether it
 *  counts. */
enum error_code sharding_commit(struct sharding *, const struct model_config *, struct error *);

/** Remove this device's file.  Local. */
void sharding_forget_own(const struct sharding *);

#endif
