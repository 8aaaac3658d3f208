/* check_batch.c -- repeats the batch of a golden file, a tensor at a time.
 *
 * check_speed.c calls this file, so that a dump of any size can be made in the memory of a small one.
 */
#include "emulated_devices/bench/check_batch.h"
#include "ref/golden/bounds.h"
#include "ref/golden/seal.h"
#include "ref/io/json.h"
#include "ref/io/safetensors.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The dimension that repeats, and by what numbers are divided. */
struct repeated { int dim, times, divided; };

/* A gradient is one of an activation if the file has that activation. */
static bool is_of_activation(const struct safetensors *file, const char *name)
{
    char other[RECORD_NAME];
    snprintf(other, sizeof other, "act/%s", strncmp(name, "grad/", 5) == 0 ? name + 5 : "");
    return strncmp(name, "act/", 4) == 0 || safetensors_find(file, other) != NULL;
}

static struct repeated repeated_of(const struct golden *golden, const struct safetensors_entry *entry, int times)
{
    if (strcmp(entry->name, "ids") == 0 || strcmp(entry->name, "labels") == 0)
        return (struct repeated){ .dim = 1, .times = times, .divided = 1 };
    if (!is_of_activation(&golden->file, entry->name)) return (struct repeated){ .times = 1, .divided = 1 };
    return (struct repeated){ .times = times, .divided = entry->name[0] == 'g' ? times : 1 };
}

/* Rows of experts and of parallel streams are in another order in a larger batch. */
static enum error_code batch_layout(const struct golden *golden, int times, struct safetensors_entry *all,
                                    struct error *err)
{
    for (int i = 0; i < golden->file.count; i++) {
        const struct repeated r = repeated_of(golden, &golden->file.entry[i], times);
        all[i] = golden->file.entry[i];
        if (is_of_activation(&golden->file, all[i].name) && all[i].dim[0] != golden->B * golden->S)
            return fail(err, ERR_USAGE, "--repeat %d: this model's %s has rows that are not the batch's tokens", times,
                        all[i].name);
        if (r.times > 1) all[i].dim[r.dim] *= times;
    }
    return OK;
}

/* Write a tensor as often as it repeats, and find the hash of all. */
static enum error_code batch_write(const struct golden *golden, int i, struct repeated r, struct safetensors_writer *to,
                                   cJSON *hashes, struct error *err)
{
    const struct safetensors_entry *entry = &golden->file.entry[i];
    const bool integers = strcmp(entry->dtype, "I32") == 0;
    const size_t bytes = (size_t)entry->bytes, n = (size_t)r.times;
    char *numbers = malloc(integers ? n * bytes + 1 : bytes + 1), text[17];
    int64_t first[SAFETENSORS_MAX_DIMS] = { 0 };
    uint64_t hash = seal_begin(n * bytes);
    if (numbers == NULL) return fail(err, ERR_MEMORY, "no memory to repeat %s", entry->name);
    enum error_code e = safetensors_read(&golden->file, entry, integers ? I32 : F64, numbers, err);
    for (int64_t k = 0; !e && !integers && r.divided > 1 && k < entry->count; k++) ((double *)numbers)[k] /= r.divided;
    for (size_t k = 0; k < n && !e; k++) {
        first[r.dim] = (int64_t)k * entry->dim[r.dim];
        e = safetensors_write_box(to, i, first, entry->dim, false, numbers, err);
        if (!integers) hash = seal_more(hash, numbers, bytes / 8);
        else if (k > 0) memcpy(numbers + k * bytes, numbers, bytes);
    }
    hash = integers ? seal_hash(numbers, n * bytes) : seal_end(hash, NULL, 0);
    snprintf(text, sizeof text, "%016" PRIx64, hash);
    if (!e && cJSON_AddStringToObject(hashes, entry->name, text) == NULL)
        e = fail(err, ERR_MEMORY, "no memory for the hash of %s", entry->name);
    free(numbers);
    return e;
}

/* The bounds are those of `from`: they are stated, not measured. */
static enum error_code batch_bounds(const char *from, const char *path, cJSON *hashes, struct error *err)
{
    const struct bounds_path old = bounds_beside(from), new = bounds_beside(path);
    cJSON *root;
    enum error_code e = json_read(old.text, &root, err);
    if (e) cJSON_Delete(hashes);
    if (e) return e;
    cJSON_DeleteItemFromObjectCaseSensitive(root, "tensors");
    cJSON_AddItemToObject(root, "tensors", hashes);
    e = json_write(new.text, root, err);
    cJSON_Delete(root);
    return e;
}

static enum error_code batch_write_all(const struct golden *golden, const char *from, const char *path, int times,
                                       struct error *err)
{
    struct safetensors_entry *all = calloc((size_t)golden->file.count + 1, sizeof *all);
    struct safetensors_writer w;
    cJSON *hashes = cJSON_CreateObject();
    enum error_code e = all && hashes ? batch_layout(golden, times, all, err)
                                      : fail(err, ERR_MEMORY, "no memory to repeat %s", from);
    if (!e) e = safetensors_create(&w, path, all, golden->file.count, golden->file.metadata,
                                   golden->file.metadata_count, err);
    if (e) cJSON_Delete(hashes);
    else {
        for (int i = 0; i < golden->file.count && !e; i++)
            e = batch_write(golden, i, repeated_of(golden, &golden->file.entry[i], times), &w, hashes, err);
        if (!e) e = batch_bounds(from, path, hashes, err);
        else cJSON_Delete(hashes);
        if (e) safetensors_abort(&w);
        else e = safetensors_commit(&w, err);
    }
    free(all);
    return e;
}

enum error_code golden_repeat(const char *from, const char *path, int times, struct error *err)
{
    struct golden g;
    enum error_code e = golden_open(&g, from, err);
    if (e) return e;
    e = batch_write_all(&g, from, path, times, err);
    golden_close(&g);
    return e;
}
