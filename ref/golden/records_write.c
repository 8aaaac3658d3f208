/* records_write.c -- writes recorded tensors as a safetensors file.
 *
 * make.c, cli/dump.c, run/golden.c and verify/dump/ call this file.  Errors are those of safetensors_write.c; no file
 * is left then.
 */
#include "ref/golden/replay.h"
#include <stdlib.h>
#include <string.h>

enum error_code records_write(const struct record *record, int count,
                              const struct safetensors_pair *metadata, int pairs, const char *path, struct error *err)
{
    struct safetensors_writer w;
    enum error_code e = records_start(&w, record, count, metadata, pairs, path, err);
    return e ? e : safetensors_commit(&w, err);
}

/* All tensors are written, and the file waits for its name: safetensors_commit gives it. */
enum error_code records_start(struct safetensors_writer *writer, const struct record *record, int count,
                              const struct safetensors_pair *metadata, int pairs, const char *path, struct error *err)
{
    struct safetensors_entry *entry = calloc((size_t)count + 1, sizeof *entry);
    if (entry == NULL) return fail(err, ERR_MEMORY, "%s: no memory to write it", printable_path(path).text);
    for (int i = 0; i < count; i++) {
        const struct tensor t = record[i].values;
        entry[i] = (struct safetensors_entry){ .name = record[i].name, .dtype = dtype_file_name(t.dtype),
                                              .ndim = t.ndim };
        memcpy(entry[i].dim, t.dim, sizeof t.dim);
    }
    enum error_code e = safetensors_create(writer, path, entry, count, metadata, pairs, err);
    for (int i = 0; i < count && !e; i++) e = safetensors_write(writer, i, record[i].values.data, err);
    free(entry);
    return e;
}
