/* sharded_files.c -- the devices' files of a folder: starts, measures and removes them.
 * sharded_write.c, reshard.c and series.c call.  Errors: ERR_FILE, ERR_MEMORY; removing reports none, for what is not
 * listed is not read. */
#include "emulated_devices/model/checkpoint/sharded/sharded.h"
#include "ref/io/disk.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* "device-00003.0.safetensors", or its temporary file. */
static bool is_of_device(const char *entry, int *generation)
{
    int device, used = 0;
    return sscanf(entry, "device-%d.%d.safetensors%n", &device, generation, &used) == 2 && used > 0;
}

static bool is_listed(const struct manifest *manifest, const char *entry)
{
    for (int f = 0; manifest && f < manifest->files; f++)
        if (strcmp(manifest->file[f].name, entry) == 0) return true;
    return false;
}

void sharded_sweep(const char *dir, const struct manifest *keep)
{
    char path[BUNDLE_PATH + 300];
    int generation;
    const struct dirent *entry;
    DIR *d = opendir(dir);
    while (d && (entry = readdir(d)) != NULL) {
        if (!is_of_device(entry->d_name, &generation) || is_listed(keep, entry->d_name)) continue;
        snprintf(path, sizeof path, "%s/%s", dir, entry->d_name);
        disk_remove(path);
    }
    if (d) closedir(d);
}

int sharded_generation(const char *dir)
{
    int first = 0, generation;
    const struct dirent *entry;
    DIR *d = opendir(dir);
    while (d && (entry = readdir(d)) != NULL)
        if (is_of_device(entry->d_name, &generation) && generation >= first) first = generation + 1;
    if (d) closedir(d);
    return first;
}

enum error_code sharded_create(struct safetensors_writer *writer, const struct manifest *manifest, int file,
                               const char *dir, char (**names)[SHARD_TENSOR], struct error *err)
{
    char path[BUNDLE_PATH], device[16];
    const struct safetensors_pair metadata[] = { { "format", "pt" }, { "device", device } };
    int count = 0;
    for (int t = 0; t < manifest->tensors; t++)
        for (int b = 0; b < manifest->tensor[t].boxes; b++) count += manifest->tensor[t].box[b].file == file;
    struct safetensors_entry *const entry = calloc((size_t)count + 1, sizeof *entry);
    *names = calloc((size_t)count + 1, sizeof **names);
    if (entry == NULL || *names == NULL) {
        free(entry);
        return fail(err, ERR_MEMORY, "no memory for a list of %d boxes", count);
    }
    count = 0;
    for (int t = 0; t < manifest->tensors; t++)
        for (int b = 0; b < manifest->tensor[t].boxes; b++) {
            const struct shard_tensor *const of = &manifest->tensor[t];
            if (of->box[b].file != file) continue;
            entry[count] = (struct safetensors_entry){ .name = shard_name(of, &of->box[b].box, (*names)[count]),
                                                       .dtype = dtype_file_name(of->format), .ndim = of->ndim };
            memcpy(entry[count].dim, of->box[b].box.extent, sizeof *entry->dim * (size_t)of->ndim);
            count++;
        }
    snprintf(path, sizeof path, "%s/%s", dir, manifest->file[file].name);
    snprintf(device, sizeof device, "%d", file);
    const enum error_code e = safetensors_create(writer, path, entry, count, metadata, 2, err);
    free(entry);
    return e;
}

enum error_code sharded_measure(struct shard_file *file, const char *dir, struct error *err)
{
    char path[BUNDLE_PATH];
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", dir, file->name);
    if (stat(path, &st) != 0)
        return fail(err, ERR_FILE, "%s: cannot be read: %s", printable_path(path).text, strerror(errno));
    file->bytes = (int64_t)st.st_size;
    return sha256_file(path, &file->sum, err);
}
