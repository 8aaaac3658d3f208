/* actual_extent.c -- the shape of a whole tensor, as its pieces show it where no golden file says it.
 * report/pairs.c asks for tensors that are not golden.  A shape that no piece shows is 0 x 0; nothing can fail. */
#include "emulated_devices/check/dump/actual_open.h"
#include <string.h>

/* Where the intervals of "rows" or "cols" end; without the field the piece has all that is stored. */
static int64_t extent_of_field(const cJSON *layout, const char *field, int64_t stored)
{
    const cJSON *const list = cJSON_GetObjectItemCaseSensitive(layout, field), *one;
    int64_t most = 0;
    if (list == NULL) return stored;
    cJSON_ArrayForEach(one, list) {
        int64_t begin = 0, count = 0;
        if (json_whole(cJSON_GetArrayItem(one, 0), &begin) && json_whole(cJSON_GetArrayItem(one, 1), &count) &&
            begin <= INT64_MAX - count && begin + count > most)
            most = begin + count;
    }
    return most;
}

/* Enlarge the shape by what a piece of a dump shows. */
static void extent_add(const struct actual_entry *entry, struct actual_extent *out)
{
    const cJSON *const of = cJSON_GetObjectItemCaseSensitive(entry->layout, "of"),
                *const flat = cJSON_GetObjectItemCaseSensitive(entry->layout, "flat");
    const bool transposed = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(entry->layout, "transposed"));
    int64_t shape[2], begin = 0, count = 0;
    actual_shape(entry->stored, transposed, shape);
    if (of && json_whole(cJSON_GetArrayItem(of, 0), &shape[0]) && json_whole(cJSON_GetArrayItem(of, 1), &shape[1])) {
        out->shaped = true;
    } else if (flat) {
        if (!json_whole(cJSON_GetArrayItem(flat, 0), &begin) || !json_whole(cJSON_GetArrayItem(flat, 1), &count) ||
            begin > INT64_MAX - count)
            return;
        if (begin + count > out->elements) out->elements = begin + count;
        return;
    } else {
        shape[0] = extent_of_field(entry->layout, "rows", shape[0]);
        shape[1] = extent_of_field(entry->layout, "cols", shape[1]);
        out->shaped = true;
    }
    for (int k = 0; k < 2; k++)
        if (shape[k] > out->dim[k]) out->dim[k] = shape[k];
}

struct actual_extent actual_extent(const struct actual *actual, const char *name)
{
    struct actual_extent out = { .shaped = false };
    int count = 0;
    const struct actual_entry *const entry = actual->dump ? actual_entries(actual, name, &count) : NULL;
    for (int i = 0; i < count; i++) extent_add(&entry[i], &out), out.stored += entry[i].stored->count;
    for (int f = 0; f < actual->files && !actual->dump && !out.shaped; f++) {
        const struct safetensors_entry *const stored = safetensors_find(&actual->file[f].st, name);
        if (stored) actual_shape(stored, false, out.dim), out.shaped = true, out.stored = stored->count;
    }
    return out;
}
