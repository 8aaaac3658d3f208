/* sharded.h -- a checkpoint of which every device writes its own boxes.
 *
 *   DIR/device-00000.0.safetensors      the boxes of device 0; and so on, a file for each device
 *   DIR/shards.json                     which boxes are in which file, and the checksums (manifest.h)
 *   DIR/config.json, training.json, run.yaml    as in a checkpoint of whole tensors (checkpoint.h)
 *   DIR/checkpoint.sha256               the checksums of these four
 *
 * Devices write side by side, each element once: those that have the same boxes share them evenly.  The files have a
 * number of their save in their names, so that an earlier checkpoint in the folder stays whole until the list of
 * checksums is renamed; the earlier files are removed then.  All devices need the same folder.
 *
 * run/between.c calls sharded_save; cli/reshard.c calls the functions of reshard.h.
 */
#ifndef ORRERY_SHARDED_H
#define ORRERY_SHARDED_H

#include "emulated_devices/model/checkpoint/checkpoint.h"
#include "emulated_devices/model/checkpoint/sharded/manifest.h"
#include "ref/io/safetensors.h"

/** Write a sharded checkpoint; the folder is made if it is not there.  As checkpoint_save, but every device writes.
 *  Collective over all devices. */
enum error_code sharded_save(struct trainer *, const char *dir, const cJSON *run, const char *origin, struct error *);

/** Remove the devices' files of a folder that a manifest does not list.  @param keep  NULL: remove all. */
void sharded_sweep(const char *dir, const struct manifest *keep);

/** The first number of a save of which the folder has no file. */
int sharded_generation(const char *dir);

/** Start the file of a device: a tensor for each of its boxes, in the manifest's order.
 *  @param[out] names  for free(), after the writer has ended.
 *  @return as safetensors_create; ERR_MEMORY. */
enum error_code sharded_create(struct safetensors_writer *, const struct manifest *, int file, const char *dir,
                               char (**names)[SHARD_TENSOR], struct error *);

/** Note the length and the checksum of a device's file that is complete.  @return OK, ERR_FILE or ERR_MEMORY. */
enum error_code sharded_measure(struct shard_file *, const char *dir, struct error *);

#endif
