/* shards.h -- reads a sharded checkpoint: byte ranges of the devices' files, and counts them.
 *
 * The caller asks for a box of a tensor of the collection; only the elements of the box are read, from the files that
 * have them, whatever mesh wrote these.  checkpoint_source.c and reshard.c call these functions.
 */
#ifndef ORRERY_CHECKPOINT_SHARDS_H
#define ORRERY_CHECKPOINT_SHARDS_H

#include "emulated_devices/model/checkpoint/sharded/manifest.h"
#include "ref/io/safetensors.h"

struct sharded {
    const char *dir;                    /* of the checkpoint; the caller's */
    struct manifest manifest;           /* as read and checked */
    struct safetensors *file;           /* [files] */
    bool *open;                         /* [files] whether it is open */
    int own;                            /* the device whose own file is counted apart; -1: none */
    uint64_t read, read_own;            /* bytes of boxes that were asked for; of these in that file */
};

/** Open the files of a sharded checkpoint.  Local.
 *  @return OK; ERR_FILE naming a device's file that is missing; ERR_FORMAT; ERR_MEMORY.  sharded_close works after
 *          all. */
enum error_code sharded_open(struct sharded *, const struct bundle *, struct error *);
void sharded_close(struct sharded *);

/** Compare files with their checksums: of `parts` devices, this one compares each that is its turn.
 *  @param[out] bytes  read for it.  @return OK; ERR_FORMAT naming the file; ERR_FILE. */
enum error_code sharded_check(const struct sharded *, int part, int parts, uint64_t *bytes, struct error *);

/**
 * Read a box of a tensor, converted.
 * @param name      in the collection.
 * @param ndim, dim its shape, which must be that of the files.
 * @param[out] out  the box, row-major, of `want`.
 * @return OK; ERR_FORMAT naming the tensor that is missing or has another shape; ERR_FILE; ERR_MEMORY.
 */
enum error_code sharded_read(struct sharded *, const char *name, int ndim, const int64_t dim[], const struct box *,
                             enum dtype want, void *out, struct error *);

#endif
