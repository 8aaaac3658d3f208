/* sharded_write.c -- saves a checkpoint of which each device writes its own boxes, while all devices wait.
 * run/between.c calls; meanwhile.c saves in the same parts while devices compute.  All devices agree after each part,
 * so that one that cannot write leaves no half checkpoint: the others remove their files, and an earlier checkpoint
 * stays. */
#include "emulated_devices/model/checkpoint/checkpoint_states.h"
#include "emulated_devices/model/checkpoint/sharded/sharding.h"
#include "emulated_devices/model/checkpoint/sharded/sharded.h"
#include "emulated_devices/model/collection/transfer.h"
#include "ref/io/disk.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include "ref/model/kinds.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- this device's file ------------------------------------------------------------------------------------------ */

/* Copy this device's boxes of one tensor to `to`, one after another; @return the end of them by *to. */
static enum error_code take_tensor(const struct sharding *sharding, int tensor, char **to, struct error *err)
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
        boxes_copy(*to, &one, data, &has, &box, t->ndim, size);
        *to += (size_t)box_elements(&box, t->ndim) * size;
    }
    boxes_free(&has);
    free(data);
    return e;
}

static uint64_t bytes_of_tensor(const struct sharding *sharding, int tensor, int rank)
{
    const struct shard_tensor *const t = &sharding->manifest.tensor[tensor];
    uint64_t bytes = 0;
    for (int b = 0; b < t->boxes; b++)
        if (t->box[b].file == rank) bytes += (uint64_t)box_elements(&t->box[b].box, t->ndim) * dtype_size(t->format);
    return bytes;
}

uint64_t sharding_bytes(const struct sharding *sharding, int rank)
{
    uint64_t bytes = 0;
    for (int t = 0; t < sharding->manifest.tensors; t++) bytes += bytes_of_tensor(sharding, t, rank);
    return bytes;
}

enum error_code sharding_take(const struct sharding *sharding, char *buffer, uint64_t *bytes, struct error *err)
{
    char *to = buffer;
    enum error_code e = OK;
    for (int t = 0; t < sharding->collection.count && !e; t++) e = take_tensor(sharding, t, &to, err);
    *bytes = (uint64_t)(to - buffer);
    return e;
}

/* Write this device's boxes of one tensor; @return the next entry by *at, and the next bytes by *from. */
static enum error_code write_tensor(const struct sharding *sharding, struct safetensors_writer *writer, int tensor,
                                    int *at, const char **from, struct error *err)
{
    const struct shard_tensor *const t = &sharding->manifest.tensor[tensor];
    enum error_code e = OK;
    for (int b = 0; b < t->boxes && !e; b++) {
        if (t->box[b].file != sharding->rank) continue;
        e = safetensors_write(writer, (*at)++, *from, err);
        *from += (size_t)box_elements(&t->box[b].box, t->ndim) * dtype_size(t->format);
    }
    return e;
}

/* A synchronous save has room for one tensor at a time. */
static enum error_code take_and_write(const struct sharding *sharding, struct safetensors_writer *writer, int tensor,
                                      int *at, struct error *err)
{
    char *const buffer = malloc(bytes_of_tensor(sharding, tensor, sharding->rank) + 1), *to = buffer;
    const char *from = buffer;
    enum error_code e = buffer ? take_tensor(sharding, tensor, &to, err)
        : fail(err, ERR_MEMORY, "no memory to write %s", sharding->manifest.tensor[tensor].name);
    if (!e) e = write_tensor(sharding, writer, tensor, at, &from, err);
    free(buffer);
    return e;
}

enum error_code sharding_write_own(struct sharding *sharding, const char *buffer, struct error *err)
{
    const int rank = sharding->rank;
    struct safetensors_writer writer = { .count = 0 };
    char (*names)[SHARD_TENSOR] = NULL;
    int at = 0;
    enum error_code e = sharded_create(&writer, &sharding->manifest, rank, sharding->dir, &names, err);
    if (e) {
        free(names);
        return e;
    }
    for (int t = 0; t < sharding->manifest.tensors && !e; t++)
        e = buffer ? write_tensor(sharding, &writer, t, &at, &buffer, err)
            : take_and_write(sharding, &writer, t, &at, err);
    if (!e) e = safetensors_commit(&writer, err);
    safetensors_abort(&writer);
    free(names);
    return e ? e : sharded_measure(&sharding->manifest.file[rank], sharding->dir, err);
}

/* ---- the folder -------------------------------------------------------------------------------------------------- */

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

enum error_code sharding_open(struct sharding *sharding, struct trainer *trainer, const char *dir, struct error *err)
{
    const int replicas = trainer->data.shards.apart ? shards_replicas(&trainer->data.shards) : 0;
    const bool first = trainer->comm->rank == 0;
    int generation = 0;
    *sharding = (struct sharding){ .rank = trainer->comm->rank };
    snprintf(sharding->dir, sizeof sharding->dir, "%s", dir);
    enum error_code e = collection_open(&sharding->collection, trainer, FOR_FILES, replicas, err);
    if (!e && first) e = begin_folder(sharding, &generation, err);
    e = comm_agree(trainer->comm, e, err);
    if (!e) e = comm_tell(trainer->comm, &generation, sizeof generation, err);
    if (!e) e = manifest_make(&sharding->manifest, &sharding->collection, generation, err);
    return comm_agree(trainer->comm, e, err);
}

enum error_code sharding_describe(struct sharding *sharding, const cJSON *run, const char *origin, struct error *err)
{
    struct trainer *const trainer = sharding->collection.trainer;
    uint64_t fingerprint;
    enum error_code e = checkpoint_fingerprint(trainer, &fingerprint, err);
    if (!e && sharding->rank == 0) {
        sharding->training = checkpoint_training(trainer, run, fingerprint, err);
        sharding->origin = strdup(origin);
        if (sharding->training == NULL) e = err->code;
        else if (sharding->origin == NULL) e = fail(err, ERR_MEMORY, "no memory for %s", ORIGIN_FILE);
    }
    return comm_agree(trainer->comm, e, err);
}

enum error_code sharding_commit(struct sharding *sharding, const struct model_config *model, struct error *err)
{
    struct bundle_writer *const folder = &sharding->folder;
    char path[BUNDLE_PATH];
    enum error_code e = manifest_write(&sharding->manifest, bundle_new_path(folder, SHARDS_FILE, path), err);
    if (!e) e = model_config_write(model, bundle_new_path(folder, CONFIG_FILE, path), err);
    if (!e) e = json_finish(bundle_new_path(folder, TRAINING_FILE, path), sharding->training, err),
            sharding->training = NULL;
    if (!e)
        e = file_write_all(bundle_new_path(folder, ORIGIN_FILE, path), sharding->origin, strlen(sharding->origin), err);
    if (!e) e = bundle_commit(folder, err);
    if (folder->committed) {
        sharded_sweep(sharding->dir, &sharding->manifest);
        checkpoint_forget_whole(sharding->dir);
    }
    return e;
}

void sharding_forget_own(const struct sharding *sharding)
{
    char path[BUNDLE_PATH];
    snprintf(path, sizeof path, "%s/%s", sharding->dir, sharding->manifest.file[sharding->rank].name);
    disk_remove(path);
}

void sharding_close(struct sharding *sharding)
{
    bundle_end(&sharding->folder);
    cJSON_Delete(sharding->training);
    free(sharding->origin);
    manifest_close(&sharding->manifest);
    collection_close(&sharding->collection);
}

/* ---- while all devices wait -------------------------------------------------------------------------------------- */

/* Rank 0 learns the lengths and checksums of all files. */
static enum error_code bring_files(struct sharding *sharding, struct comm *comm, struct error *err)
{
    const size_t bytes = sizeof *sharding->manifest.file;
    struct shard_file own = sharding->manifest.file[comm->rank];
    return comm_bring(comm, &own, bytes, sharding->manifest.file, err);
}

enum error_code sharded_save(struct trainer *trainer, const char *dir, const cJSON *run, const char *origin,
                             struct error *err)
{
    struct comm *const comm = trainer->comm;
    struct sharding s;
    bool written = false;
    enum error_code e = sharding_open(&s, trainer, dir, err);
    if (!e) written = true, e = comm_agree(comm, sharding_write_own(&s, NULL, err), err);
    if (!e) e = bring_files(&s, comm, err);
    if (!e) e = sharding_describe(&s, run, origin, err);
    if (!e && comm->rank == 0) e = sharding_commit(&s, &trainer->plan.model, err);
    /* The new files are valid as soon as the list is in place, whatever fails later. */
    int32_t committed = s.folder.committed;
    struct error unread;
    if (comm_tell(comm, &committed, sizeof committed, &unread)) committed = 1;
    if (written && !committed) sharding_forget_own(&s);
    e = comm_agree(comm, e, err);
    sharding_close(&s);
    return e;
}
