/* sharded_write.c -- saves a checkpoint of which each device writes its own boxes.
 * run/between.c calls.  All devices agree after each part, so that one that cannot write leaves no half checkpoint:
 * the others remove their files, and an earlier checkpoint stays. */
#include "emulated_devices/model/checkpoint/checkpoint_parts.h"
#include "emulated_devices/model/checkpoint/checkpoint_states.h"
#include "emulated_devices/model/checkpoint/sharded/sharded.h"
#include "emulated_devices/model/collection/transfer.h"
#include "ref/io/disk.h"
#include "ref/io/output.h"
#include "ref/model/kinds.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* This holds one device's part of a save; the folder is rank 0's. */
struct sharding {
    struct bundle_writer folder;
    struct collection collection;
    struct manifest manifest;
    const char *dir;                    /* the folder's path */
    uint64_t fingerprint;               /* of all weights */
};

/* Write this device's boxes of one tensor; @return the next entry by *at. */
static enum error_code write_tensor(const struct sharding *sharding, struct safetensors_writer *writer, int tensor,
                                    int *at, struct error *err)
{
    const struct collection *const c = &sharding->collection;
    const struct shard_tensor *const t = &sharding->manifest.tensor[tensor];
    const int rank = c->trainer->comm->rank;
    const size_t size = dtype_size(t->format);
    struct boxes has = { 0 };
    char *data = NULL;
    enum error_code e = collection_take(c, tensor, rank, c->trainer, &has, &data, err);
    for (int b = 0; b < t->boxes && !e; b++) {
        struct box box = t->box[b].box;
        const struct boxes one = { 1, 1, &box };
        if (t->box[b].file != rank) continue;
        void *const part = malloc((size_t)box_elements(&box, t->ndim) * size + 1);
        if (part == NULL) e = fail(err, ERR_MEMORY, "no memory to write %s", t->name);
        if (!e) boxes_copy(part, &one, data, &has, &box, t->ndim, size);
        if (!e) e = safetensors_write(writer, (*at)++, part, err);
        free(part);
    }
    boxes_free(&has);
    free(data);
    return e;
}

static enum error_code write_own(struct sharding *sharding, struct error *err)
{
    const int rank = sharding->collection.trainer->comm->rank;
    struct safetensors_writer writer = { .count = 0 };
    char (*names)[SHARD_TENSOR] = NULL;
    int at = 0;
    enum error_code e = sharded_create(&writer, &sharding->manifest, rank, sharding->dir, &names, err);
    if (e) {
        free(names);
        return e;
    }
    for (int t = 0; t < sharding->collection.count && !e; t++) e = write_tensor(sharding, &writer, t, &at, err);
    if (!e) e = safetensors_commit(&writer, err);
    safetensors_abort(&writer);
    free(names);
    return e ? e : sharded_measure(&sharding->manifest.file[rank], sharding->dir, err);
}

/* A folder that has a checkpoint of whole tensors is first left complete by its own kind of writer. */
static enum error_code begin_folder(struct sharding *sharding, int *generation, struct error *err)
{
    struct bundle old;
    struct manifest listed = { 0 };
    bool there;
    enum error_code e = checkpoint_complete_other(&sharded_files, sharding->dir, err);
    if (!e) e = bundle_begin(&sharding->folder, &sharded_files, sharding->dir, err);
    if (e) return e;
    /* Files of a writer that was killed are in no manifest. */
    const bool sound = !bundle_open(&old, &sharded_files, sharding->dir, &there, NULL)
        && (!there || !manifest_read(&listed, &old, SHARDS_FILE, NULL));
    if (sound) sharded_sweep(sharding->dir, &listed);
    manifest_close(&listed);
    *generation = sharded_generation(sharding->dir);
    return OK;
}

static enum error_code open_sharding(struct sharding *sharding, struct trainer *trainer, struct error *err)
{
    const int replicas = trainer->data.shards.apart ? shards_replicas(&trainer->data.shards) : 0;
    const bool first = trainer->comm->rank == 0;
    int generation = 0;
    enum error_code e = collection_open(&sharding->collection, trainer, FOR_FILES, replicas, err);
    if (!e && first) e = begin_folder(sharding, &generation, err);
    e = comm_agree(trainer->comm, e, err);
    if (!e) e = comm_tell(trainer->comm, &generation, sizeof generation, err);
    if (!e) e = manifest_make(&sharding->manifest, &sharding->collection, generation, err);
    return comm_agree(trainer->comm, e, err);
}

/* Rank 0 learns the lengths and checksums of all files. */
static enum error_code bring_files(struct sharding *sharding, struct comm *comm, struct error *err)
{
    const size_t bytes = sizeof *sharding->manifest.file;
    struct shard_file own = sharding->manifest.file[comm->rank];
    return comm_bring(comm, &own, bytes, sharding->manifest.file, err);
}

static enum error_code finish_folder(struct sharding *sharding, const cJSON *run, const char *origin,
                                     struct error *err)
{
    struct trainer *const trainer = sharding->collection.trainer;
    struct bundle_writer *const folder = &sharding->folder;
    char path[BUNDLE_PATH];
    enum error_code e = manifest_write(&sharding->manifest, bundle_new_path(folder, SHARDS_FILE, path), err);
    if (!e) e = model_config_write(&trainer->plan.model, bundle_new_path(folder, CONFIG_FILE, path), err);
    if (!e)
        e = checkpoint_write_training(trainer, run, sharding->fingerprint,
                                      bundle_new_path(folder, TRAINING_FILE, path), err);
    if (!e) e = file_write_all(bundle_new_path(folder, ORIGIN_FILE, path), origin, strlen(origin), err);
    if (!e) e = bundle_commit(folder, err);
    if (folder->committed) {
        sharded_sweep(sharding->dir, &sharding->manifest);
        checkpoint_forget_whole(sharding->dir);
    }
    return e;
}

enum error_code sharded_save(struct trainer *trainer, const char *dir, const cJSON *run, const char *origin,
                             struct error *err)
{
    struct comm *const comm = trainer->comm;
    struct sharding s = { .dir = dir };
    bool written = false;
    enum error_code e = open_sharding(&s, trainer, err);
    if (!e) written = true, e = comm_agree(comm, write_own(&s, err), err);
    if (!e) e = bring_files(&s, comm, err);
    if (!e) e = checkpoint_fingerprint(trainer, &s.fingerprint, err);
    if (!e && comm->rank == 0) e = finish_folder(&s, run, origin, err);
    /* The new files are valid as soon as the list is in place, whatever fails later. */
    int32_t committed = s.folder.committed;
    struct error unread;
    if (comm_tell(comm, &committed, sizeof committed, &unread)) committed = 1;
    if (written && !committed) {
        char path[BUNDLE_PATH];
        snprintf(path, sizeof path, "%s/%s", dir, s.manifest.file[comm->rank].name);
        disk_remove(path);
    }
    e = comm_agree(comm, e, err);
    bundle_end(&s.folder);
    manifest_close(&s.manifest);
    collection_close(&s.collection);
    return e;
}
