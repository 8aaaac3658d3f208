/* reshard.c -- plans and writes the files of a sharded checkpoint for another mesh.
 * cli/reshard.c calls.  A file is written only after all checksums have been compared. */
#include "emulated_devices/model/checkpoint/sharded/reshard.h"
#include "emulated_devices/model/checkpoint/checkpoint_parts.h"
#include "emulated_devices/model/checkpoint/sharded/sharded.h"
#include "ref/io/disk.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- planning ---------------------------------------------------------------------------------------------------- */

static void boxes_of_files(const struct shard_tensor *tensor, struct boxes *boxes)
{
    for (int b = 0; b < tensor->boxes; b++)
        boxes_add(&boxes[tensor->box[b].file], &tensor->box[b].box, tensor->ndim);
}

static enum error_code find_tensor(const struct resharding *resharding, const struct shard_tensor *tensor,
                                   const struct shard_tensor **old, struct error *err)
{
    *old = manifest_find(&resharding->files.manifest, tensor->name);
    bool same = *old && (*old)->ndim == tensor->ndim;
    for (int d = 0; d < tensor->ndim && same; d++) same = (*old)->dim[d] == tensor->dim[d];
    if (same && (*old)->format == tensor->format) return OK;
    return fail(err, ERR_PLAN, "%s: %s: %s, so the state does not fit the new plan",
                printable_path(resharding->files.dir).text, tensor->name,
                !*old ? "the checkpoint has no such tensor" : !same ? "has another shape there" : "has another format "
                "there");
}

static enum error_code plan_tensor(struct resharding *resharding, int tensor, struct boxes *lists, struct error *err)
{
    const struct shard_tensor *const t = &resharding->manifest.tensor[tensor], *old;
    struct boxes *const has = lists, *const wants = lists + resharding->moves.ranks;
    enum error_code e = find_tensor(resharding, t, &old, err);
    if (e) return e;
    boxes_of_files(old, has), boxes_of_files(t, wants);
    e = moves_add(&resharding->moves, tensor, t->name, t->ndim, dtype_size(t->format), has, wants, err);
    for (int r = 0; r < 2 * resharding->moves.ranks; r++) boxes_free(&lists[r]);
    return e;
}

static enum error_code plan_moves(struct resharding *resharding, const struct cluster *cluster, struct error *err)
{
    const int before = resharding->files.manifest.files, after = resharding->manifest.files;
    const int ranks = before > after ? before : after;
    enum error_code e = moves_open(&resharding->moves, ranks, cluster, err);
    struct boxes *const lists = calloc(2 * (size_t)ranks, sizeof *lists);
    resharding->counted = calloc((size_t)ranks, sizeof *resharding->counted);
    if (!e && (lists == NULL || resharding->counted == NULL))
        e = fail(err, ERR_MEMORY, "no memory for the boxes of %d devices", ranks);
    if (!e && resharding->files.manifest.tensors != resharding->manifest.tensors)
        e = fail(err, ERR_PLAN, "%s: has %d tensors, and the new plan %d: the state does not fit it",
                 printable_path(resharding->files.dir).text, resharding->files.manifest.tensors,
                 resharding->manifest.tensors);
    for (int t = 0; t < resharding->manifest.tensors && !e; t++) e = plan_tensor(resharding, t, lists, err);
    free(lists);
    return e;
}

enum error_code reshard_open(struct resharding *resharding, const struct checkpoint *from, const struct plan *plan,
                             struct error *err)
{
    *resharding = (struct resharding){ .from = from };
    if (!from->sharded)
        return fail(err, ERR_FORMAT, "%s: has whole tensors, which a run on any mesh reads; `orrery train --save DIR "
                    "--sharded` writes a file for each device", printable_path(from->dir).text);
    enum error_code e = sharded_open(&resharding->files, &from->files, err);
    const cJSON *const replicas = cJSON_GetObjectItemCaseSensitive(from->root, "replicas");
    if (!e) {
        e = outlined_open(&resharding->outline, plan, FOR_FILES,
                          cJSON_IsNumber(replicas) ? replicas->valueint : 0, err);
        resharding->outlined = !e;
    }
    if (!e) e = manifest_make(&resharding->manifest, &resharding->outline.collection, 0, err);
    if (!e) resharding->bytes = collection_bytes(&resharding->outline.collection);
    return e ? e : plan_moves(resharding, plan->cluster, err);
}

void reshard_close(struct resharding *resharding)
{
    moves_close(&resharding->moves);
    manifest_close(&resharding->manifest);
    if (resharding->outlined) outlined_close(&resharding->outline);
    sharded_close(&resharding->files);
    free(resharding->counted);
    *resharding = (struct resharding){ 0 };
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

static enum error_code copy_box(struct resharding *resharding, struct safetensors_writer *writer, int entry,
                                const struct shard_tensor *tensor, const struct box *box, struct error *err)
{
    void *const data = malloc((size_t)box_elements(box, tensor->ndim) * dtype_size(tensor->format) + 1);
    enum error_code e = data ? OK : fail(err, ERR_MEMORY, "no memory to move %s", tensor->name);
    if (!e)
        e = sharded_read(&resharding->files, tensor->name, tensor->ndim, tensor->dim, box, tensor->format, data, err);
    if (!e) e = safetensors_write(writer, entry, data, err);
    free(data);
    return e;
}

static enum error_code write_device(struct resharding *resharding, const char *dir, int device, struct error *err)
{
    struct safetensors_writer writer = { .count = 0 };
    char (*names)[SHARD_TENSOR] = NULL;
    const uint64_t read = resharding->files.read, own = resharding->files.read_own;
    int entry = 0;
    resharding->files.own = device;
    enum error_code e = sharded_create(&writer, &resharding->manifest, device, dir, &names, err);
    for (int t = 0; t < resharding->manifest.tensors && !e; t++) {
        const struct shard_tensor *const tensor = &resharding->manifest.tensor[t];
        for (int b = 0; b < tensor->boxes && !e; b++)
            if (tensor->box[b].file == device)
                e = copy_box(resharding, &writer, entry++, tensor, &tensor->box[b].box, err);
    }
    if (!e) e = safetensors_commit(&writer, err);
    if (writer.entry) safetensors_abort(&writer);
    free(names);
    if (!e) e = sharded_measure(&resharding->manifest.file[device], dir, err);
    resharding->counted[device].stays = resharding->files.read_own - own;
    resharding->counted[device].received = resharding->files.read - read - resharding->counted[device].stays;
    return e;
}

static enum error_code check_counts(const struct resharding *resharding, struct error *err)
{
    for (int r = 0; r < resharding->moves.ranks; r++) {
        const struct moved *const foreseen = &resharding->moves.of[r], *const counted = &resharding->counted[r];
        if (counted->received != foreseen->received || counted->stays != foreseen->stays)
            return fail(err, ERR_CHECK, "device %d has read %llu bytes of other devices' files and %llu of its own, "
                        "not %llu and %llu", r, (unsigned long long)counted->received,
                        (unsigned long long)counted->stays, (unsigned long long)foreseen->received,
                        (unsigned long long)foreseen->stays);
    }
    return OK;
}

/* The small files say nothing of a mesh. */
static enum error_code copy_small(const struct resharding *resharding, const struct bundle_writer *folder,
                                  const char *name, struct error *err)
{
    char path[BUNDLE_PATH], *text = NULL;
    size_t count;
    enum error_code e = bundle_read(&resharding->from->files, name, JSON_FILE_LIMIT, &text, &count, err);
    if (!e) e = file_write_all(bundle_new_path(folder, name, path), text, count, err);
    free(text);
    return e;
}

static void remove_new(const struct resharding *resharding, const char *dir)
{
    char path[BUNDLE_PATH];
    for (int f = 0; f < resharding->manifest.files; f++) {
        snprintf(path, sizeof path, "%s/%s", dir, resharding->manifest.file[f].name);
        disk_remove(path);
    }
}

/* The files that an earlier checkpoint of the folder has keep their names until the new list is in place. */
static void name_files(struct manifest *manifest, int generation)
{
    for (int f = 0; f < manifest->files; f++)
        snprintf(manifest->file[f].name, SHARD_NAME, "device-%05d.%d.safetensors", f, generation);
}

static enum error_code write_folder(struct resharding *resharding, struct bundle_writer *folder, const char *dir,
                                    struct error *err)
{
    static const char *const small[] = { CONFIG_FILE, TRAINING_FILE, ORIGIN_FILE };
    char path[BUNDLE_PATH];
    enum error_code e = OK;
    for (int d = 0; d < resharding->manifest.files && !e; d++) e = write_device(resharding, dir, d, err);
    if (!e) e = check_counts(resharding, err);
    for (int i = 0; i < 3 && !e; i++) e = copy_small(resharding, folder, small[i], err);
    if (!e) e = manifest_write(&resharding->manifest, bundle_new_path(folder, SHARDS_FILE, path), err);
    return e ? e : bundle_commit(folder, err);
}

enum error_code reshard_write(struct resharding *resharding, const char *dir, struct error *err)
{
    struct bundle_writer folder;
    uint64_t checked;
    enum error_code e = sharded_check(&resharding->files, 0, 1, &checked, err);
    if (!e) e = checkpoint_complete_other(&sharded_files, dir, err);
    if (!e) e = bundle_begin(&folder, &sharded_files, dir, err);
    if (e) return e;
    name_files(&resharding->manifest, sharded_generation(dir));
    e = write_folder(resharding, &folder, dir, err);
    if (folder.committed) sharded_sweep(dir, &resharding->manifest), checkpoint_forget_whole(dir);
    else remove_new(resharding, dir);
    bundle_end(&folder);
    return e;
}
