#include "ref/golden/replay.h"
#include <stdlib.h>

enum error_code records_write(const struct record *r, int count, const char *generator, const char *model,
                              const char *path, struct error *err)
{
    const struct safetensors_pair metadata[] = { { "generator", generator }, { "model", model } };
    struct safetensors_writer w;
    struct safetensors_entry *entry = calloc((size_t)count + 1, sizeof *entry);
    if (entry == NULL) return fail(err, ERR_MEMORY, "%s: no memory to write it", printable_path(path).text);
    for (int i = 0; i < count; i++) {
        const struct tensor t = r[i].values;
        entry[i] = (struct safetensors_entry){
            .name = r[i].name, .dtype = dtype_file_name(t.dtype), .ndim = t.ndim, .dim = { t.dim[0], t.dim[1] }
        };
    }
    enum error_code e = safetensors_create(&w, path, entry, count, metadata, 2, err);
    for (int i = 0; i < count && !e; i++) e = safetensors_write(&w, i, r[i].values.data, err);
    if (!e) e = safetensors_commit(&w, err);
    free(entry);
    return e;
}
