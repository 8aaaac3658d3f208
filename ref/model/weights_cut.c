/* weights_cut.c -- copies the tensors of a file of weights into several, and writes their index.  cli/reshard.c calls.
 * Errors: ERR_FILE, ERR_FORMAT, ERR_MEMORY; the file that is cut stays until all others are there. */
#include "ref/model/weights_cut.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include "ref/io/safetensors.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CUT_PATH = 4096 };

/* A file that is cut, and in which part each tensor lies. */
struct cutting { struct safetensors whole; int *part; int parts; cJSON *index; };

static void part_name(const struct cutting *cutting, int part, char name[64])
{
    snprintf(name, 64, "model-%05d-of-%05d.safetensors", part + 1, cutting->parts);
}

static void choose_parts(struct cutting *cutting, uint64_t most)
{
    uint64_t used = 0;
    cutting->parts = 1;
    for (int i = 0; i < cutting->whole.count; i++) {
        const uint64_t bytes = (uint64_t)cutting->whole.entry[i].bytes;
        if (used > 0 && used + bytes > most) used = 0, cutting->parts++;
        cutting->part[i] = cutting->parts - 1, used += bytes;
    }
}

static enum error_code read_raw(const struct safetensors *file, const struct safetensors_entry *entry, char *data,
                                struct error *err)
{
    for (int64_t at = 0; at < entry->bytes;) {
        const ssize_t n = pread(file->fd, data + at, (size_t)(entry->bytes - at), entry->offset + at);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0)
            return fail(err, ERR_FILE, "%s: cannot be read: %s", printable_path(file->path).text,
                        n < 0 ? strerror(errno) : "it has become shorter");
        at += n;
    }
    return OK;
}

static enum error_code copy_tensor(const struct cutting *cutting, int i, struct safetensors_writer *writer, int at,
                                   struct error *err)
{
    const struct safetensors_entry *const entry = &cutting->whole.entry[i];
    char *const data = malloc((size_t)entry->bytes + 1);
    enum error_code e = data ? read_raw(&cutting->whole, entry, data, err)
        : fail(err, ERR_MEMORY, "no memory to copy %s", entry->name);
    if (!e) e = safetensors_write(writer, at, data, err);
    free(data);
    return e;
}

static enum error_code write_part(const struct cutting *cutting, const char *dir, int part, struct error *err)
{
    struct safetensors_entry *const own = calloc((size_t)cutting->whole.count + 1, sizeof *own);
    char path[CUT_PATH + 70], name[64];
    struct safetensors_writer writer;
    int count = 0;
    if (own == NULL) return fail(err, ERR_MEMORY, "no memory for a list of %d tensors", cutting->whole.count);
    for (int i = 0; i < cutting->whole.count; i++)
        if (cutting->part[i] == part) own[count++] = cutting->whole.entry[i];
    part_name(cutting, part, name);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    enum error_code e = safetensors_create(&writer, path, own, count, cutting->whole.metadata,
                                           cutting->whole.metadata_count, err);
    const bool open = e == OK;
    for (int i = 0, at = 0; i < cutting->whole.count && !e; i++)
        if (cutting->part[i] == part) e = copy_tensor(cutting, i, &writer, at++, err);
    if (!e) e = safetensors_commit(&writer, err);
    if (open) safetensors_abort(&writer);
    free(own);
    return e;
}

/* The names of all tensors and their files. */
static enum error_code write_index(const struct cutting *cutting, const char *dir, struct error *err)
{
    char path[CUT_PATH + 70], name[64];
    double bytes = 0;
    cJSON *const root = cJSON_CreateObject(), *const data = cJSON_AddObjectToObject(root, "metadata"),
        *const map = cJSON_AddObjectToObject(root, "weight_map");
    bool ok = data && map;
    for (int i = 0; i < cutting->whole.count && ok; i++) {
        part_name(cutting, cutting->part[i], name);
        ok = cJSON_AddStringToObject(map, cutting->whole.entry[i].name, name) != NULL;
        bytes += (double)cutting->whole.entry[i].bytes;
    }
    ok = ok && cJSON_AddNumberToObject(data, "total_size", bytes);
    if (!ok) {
        cJSON_Delete(root);
        return fail(err, ERR_MEMORY, "no memory for the index of %d tensors", cutting->whole.count);
    }
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
    return json_finish(path, root, err);
}

static enum error_code cut(struct cutting *cutting, const char *dir, const char *path, uint64_t most,
                           struct error *err)
{
    enum error_code e = OK;
    cutting->part = calloc((size_t)cutting->whole.count + 1, sizeof *cutting->part);
    if (cutting->part == NULL)
        return fail(err, ERR_MEMORY, "no memory for a list of %d tensors", cutting->whole.count);
    choose_parts(cutting, most);
    if (cutting->parts == 1) return OK;
    for (int part = 0; part < cutting->parts && !e; part++) e = write_part(cutting, dir, part, err);
    if (!e) e = write_index(cutting, dir, err);
    for (int part = 0; part < cutting->parts && e; part++) {
        char name[64], left[CUT_PATH + 70];
        part_name(cutting, part, name);
        snprintf(left, sizeof left, "%s/%s", dir, name);
        unlink(left);
    }
    if (!e && unlink(path) != 0)
        e = fail(err, ERR_FILE, "%s: cannot be removed: %s", printable_path(path).text, strerror(errno));
    return e;
}

enum error_code weights_cut(const char *dir, uint64_t most, int *files, struct error *err)
{
    struct cutting cutting = { .parts = 0 };
    char path[CUT_PATH + 70];
    if (strlen(dir) > CUT_PATH) return fail(err, ERR_FILE, "%s: this name is too long", printable_path(dir).text);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    enum error_code e = safetensors_open(&cutting.whole, path, err);
    if (e) return e;
    e = cut(&cutting, dir, path, most, err);
    *files = cutting.parts;
    free(cutting.part);
    safetensors_close(&cutting.whole);
    return e;
}
