/* tensors.c -- tensor files of the library: ref/io/safetensors.h with doubles and plain messages.
 * Other programs call these functions through orrery.h.  Errors are a return value and a message, never an exit.  A
 * tensor whose numbers are no doubles cannot be read. */
#include "emulated_devices/library/orrery.h"
#include "ref/io/safetensors.h"
#include "ref/version.h"
#include <stdio.h>
#include <stdlib.h>

struct orrery_tensors { struct safetensors st; };

const char *orrery_version(void) { return ORRERY_VERSION; }

/* Hand a message to a caller who wants it. */
static void tensors_tell(char message[ORRERY_MESSAGE], const char *text)
{
    if (message) snprintf(message, ORRERY_MESSAGE, "%s", text);
}

/* The reason comes from ref/io; without memory for the handle it is "no memory". */
struct orrery_tensors *orrery_tensors_open(const char *path, char message[ORRERY_MESSAGE])
{
    struct orrery_tensors *file = malloc(sizeof *file);
    struct error err = { OK, "no memory" };
    if (file && safetensors_open(&file->st, path, &err) == OK) return file;
    tensors_tell(message, err.text);
    free(file);
    return NULL;
}

void orrery_tensors_close(struct orrery_tensors *file)
{
    if (file) safetensors_close(&file->st);
    free(file);
}

int orrery_tensors_count(const struct orrery_tensors *file) { return file->st.count; }

/* Tensors have at most ORRERY_DIMS dimensions; ref/io has refused files with more. */
int orrery_tensors_get(const struct orrery_tensors *file, int i, struct orrery_tensor *tensor)
{
    if (i < 0 || i >= file->st.count) return 1;
    const struct safetensors_entry *e = &file->st.entry[i];
    *tensor = (struct orrery_tensor){ .name = e->name, .dtype = e->dtype, .ndim = e->ndim, .count = e->count };
    for (int d = 0; d < e->ndim && d < ORRERY_DIMS; d++) tensor->dim[d] = e->dim[d];
    return 0;
}

int orrery_tensors_find(const struct orrery_tensors *file, const char *name)
{
    const struct safetensors_entry *e = safetensors_find(&file->st, name);
    return e ? (int)(e - file->st.entry) : -1;
}

const char *orrery_tensors_metadata(const struct orrery_tensors *file, const char *key)
{
    return safetensors_metadata(&file->st, key);
}

/* Read whole numbers as doubles.  Only 64-bit integers have numbers of more than 53 bits, which are refused. */
static enum error_code read_whole_numbers(const struct orrery_tensors *file, const struct safetensors_entry *entry,
                                          double *out, struct error *err)
{
    int64_t *const numbers = (int64_t *)out;            /* the same size: converted in place */
    const enum error_code code = safetensors_read(&file->st, entry, I64, numbers, err);
    for (int64_t i = 0; i < entry->count && !code; i++) {
        const int64_t x = numbers[i];
        if (x > INT64_C(1) << 53 || x < -(INT64_C(1) << 53))
            return fail(err, ERR_FORMAT, "%s: has numbers that are no doubles", entry->name);
        out[i] = (double)x;
    }
    return code;
}

int orrery_tensors_read(const struct orrery_tensors *file, int i, double *out, char message[ORRERY_MESSAGE])
{
    struct error err = { OK, "there is no such tensor" };
    if (i < 0 || i >= file->st.count) return tensors_tell(message, err.text), 1;
    const struct safetensors_entry *e = &file->st.entry[i];
    /* The names of real formats begin with F or BF; fp8 formats begin with F, too. */
    const bool real = e->dtype[0] == 'F' || (e->dtype[0] == 'B' && e->dtype[1] == 'F');
    const enum error_code code = real ? safetensors_read(&file->st, e, F64, out, &err)
                                      : read_whole_numbers(file, e, out, &err);
    if (code) tensors_tell(message, err.text);
    return code != OK;
}
