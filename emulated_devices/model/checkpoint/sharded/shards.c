/* shards.c -- opens the devices' files of a checkpoint and reads boxes from them.
 * checkpoint_source.c and reshard.c call.  A file that is missing is ERR_FILE; one that is not what the manifest says,
 * ERR_FORMAT. */
#include "emulated_devices/model/checkpoint/sharded/shards.h"
#include "emulated_devices/model/checkpoint/checkpoint.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static void path_of_file(const struct sharded *sharded, int file, char path[BUNDLE_PATH])
{
    snprintf(path, BUNDLE_PATH, "%s/%s", sharded->dir, sharded->manifest.file[file].name);
}

/* A file is missed now, not when the first box of it is wanted. */
static enum error_code look_for(const struct sharded *sharded, int file, struct error *err)
{
    char path[BUNDLE_PATH];
    struct stat st;
    path_of_file(sharded, file, path);
    if (stat(path, &st) != 0)
        return fail(err, ERR_FILE, "%s: is missing: the file of device %d of %d: %s", printable_path(path).text, file,
                    sharded->manifest.files, strerror(errno));
    return (int64_t)st.st_size == sharded->manifest.file[file].bytes ? OK
        : fail(err, ERR_FORMAT, "%s: has %lld bytes; %s says %lld", printable_path(path).text, (long long)st.st_size,
               SHARDS_FILE, (long long)sharded->manifest.file[file].bytes);
}

enum error_code sharded_open(struct sharded *sharded, const struct bundle *bundle, struct error *err)
{
    *sharded = (struct sharded){ .dir = bundle->dir, .own = -1 };
    enum error_code e = manifest_read(&sharded->manifest, bundle, SHARDS_FILE, err);
    if (e) return e;
    sharded->file = calloc((size_t)sharded->manifest.files + 1, sizeof *sharded->file);
    sharded->open = calloc((size_t)sharded->manifest.files + 1, sizeof *sharded->open);
    if (!sharded->file || !sharded->open)
        return fail(err, ERR_MEMORY, "no memory for a list of %d files", sharded->manifest.files);
    for (int f = 0; f < sharded->manifest.files && !e; f++) e = look_for(sharded, f, err);
    return e;
}

void sharded_close(struct sharded *sharded)
{
    for (int f = 0; sharded->open && f < sharded->manifest.files; f++)
        if (sharded->open[f]) safetensors_close(&sharded->file[f]);
    free(sharded->file), free(sharded->open);
    manifest_close(&sharded->manifest);
    *sharded = (struct sharded){ 0 };
}

enum error_code sharded_check(const struct sharded *sharded, int part, int parts, uint64_t *bytes, struct error *err)
{
    enum error_code e = OK;
    *bytes = 0;
    for (int f = part; f < sharded->manifest.files && !e; f += parts) {
        char path[BUNDLE_PATH];
        struct sha256_text found;
        path_of_file(sharded, f, path);
        e = sha256_file(path, &found, err);
        if (!e && strcmp(found.text, sharded->manifest.file[f].sum.text) != 0)
            e = fail(err, ERR_FORMAT, "%s: is damaged, or not the file that device %d saved: its SHA-256 is not the "
                     "one in %s", printable_path(path).text, f, SHARDS_FILE);
        *bytes += (uint64_t)sharded->manifest.file[f].bytes;
    }
    return e;
}

/* The tensor of a box in its file. */
static enum error_code find_entry(struct sharded *sharded, const struct shard_tensor *tensor,
                                  const struct shard_box *box, const struct safetensors_entry **entry,
                                  struct error *err)
{
    char path[BUNDLE_PATH], name[SHARD_TENSOR];
    path_of_file(sharded, box->file, path);
    if (!sharded->open[box->file]) {
        const enum error_code e = safetensors_open(&sharded->file[box->file], path, err);
        if (e) return e;
        sharded->open[box->file] = true;
    }
    *entry = safetensors_find(&sharded->file[box->file], shard_name(tensor, &box->box, name));
    bool same = *entry && (*entry)->ndim == tensor->ndim
        && strcmp((*entry)->dtype, dtype_file_name(tensor->format)) == 0;
    for (int d = 0; d < tensor->ndim && same; d++) same = (*entry)->dim[d] == box->box.extent[d];
    return same ? OK : fail(err, ERR_FORMAT, "%s: does not have %s as %s says", printable_path(path).text, name,
                            SHARDS_FILE);
}

static enum error_code read_part(struct sharded *sharded, const struct shard_tensor *tensor,
                                 const struct shard_box *from, const struct box *both, const struct box *box,
                                 enum dtype want, void *out, struct error *err)
{
    const struct safetensors_entry *entry;
    const int64_t n = box_elements(both, tensor->ndim);
    int64_t start[TENSOR_MAX_DIMS];
    enum error_code e = find_entry(sharded, tensor, from, &entry, err);
    if (e) return e;
    for (int d = 0; d < tensor->ndim; d++) start[d] = both->start[d] - from->box.start[d];
    void *const part = malloc((size_t)n * dtype_size(want) + 1);
    if (part == NULL) return fail(err, ERR_MEMORY, "no memory to read %s", tensor->name);
    e = safetensors_read_box(&sharded->file[from->file], entry, start, both->extent, false, want, part, err);
    if (!e) box_copy(out, box, part, both, both, tensor->ndim, dtype_size(want));
    free(part);
    const uint64_t bytes = (uint64_t)n * dtype_size(tensor->format);
    sharded->read += bytes, sharded->read_own += from->file == sharded->own ? bytes : 0;
    return e;
}

enum error_code sharded_read(struct sharded *sharded, const char *name, int ndim, const int64_t dim[],
                             const struct box *box, enum dtype want, void *out, struct error *err)
{
    const struct shard_tensor *const tensor = manifest_find(&sharded->manifest, name);
    enum error_code e = OK;
    if (tensor == NULL)
        return fail(err, ERR_FORMAT, "%s/%s: has no tensor %s", printable_path(sharded->dir).text, SHARDS_FILE, name);
    bool same = tensor->ndim == ndim;
    for (int d = 0; d < ndim && same; d++) same = tensor->dim[d] == dim[d];
    if (!same)
        return fail(err, ERR_FORMAT, "%s/%s: %s has another shape than the model's", printable_path(sharded->dir).text,
                    SHARDS_FILE, name);
    for (int b = 0; b < tensor->boxes && !e; b++) {
        struct box both;
        if (box_meet(&tensor->box[b].box, box, ndim, &both))
            e = read_part(sharded, tensor, &tensor->box[b], &both, box, want, out, err);
    }
    return e;
}
