/* safetensors_write.c -- writes safetensors files, by one process or by several at once.
 *
 * ref/model, ref/golden, verify/dump/ and bench/check_speed.c call this file.  Errors are ERR_USAGE (a tensor that
 * cannot be written), ERR_FILE and ERR_MEMORY.  After an error the temporary file is gone, and only abort is allowed.
 */
#include "ref/io/json.h"
#include "ref/io/safetensors.h"
#include "ref/io/safetensors_box.h"
#include <assert.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- layout and header ------------------------------------------------------------------------------------------- */

/* Larger elements first, so that each tensor is aligned to its element size; then by name, like the format's own
 * library. */
static int by_layout(const void *a, const void *b)
{
    const struct safetensors_entry *x = *(struct safetensors_entry *const *)a;
    const struct safetensors_entry *y = *(struct safetensors_entry *const *)b;
    const int bits = safetensors_dtype_bits(y->dtype) - safetensors_dtype_bits(x->dtype);
    return bits != 0 ? bits : strcmp(x->name, y->name);
}

/* Names and shapes come from the caller, so a wrong one is ERR_USAGE. */
static enum error_code check_entries(const char *path, struct safetensors_entry *entry, int n, struct error *err)
{
    for (int i = 0; i < n; i++) {
        const char *fault = entry[i].name[0] == '\0' || strcmp(entry[i].name, "__metadata__") == 0
                                ? "has a name that is not allowed"
                                : entry_measure(&entry[i]);
        if (fault == NULL && safetensors_dtype_bits(entry[i].dtype) % 8 != 0)
            fault = "has elements of less than a byte, which are not written";
        if (fault != NULL)
            return fail(err, ERR_USAGE, "%s: tensor \"%s\" %s", printable_path(path).text,
                        printable(entry[i].name).text, fault);
    }
    return OK;
}

/* Add a tensor's entry to the header.  @return false: no memory. */
static bool add_entry(cJSON *root, const struct safetensors_entry *entry)
{
    char list[SAFETENSORS_MAX_DIMS * 21 + 3];
    size_t n = (size_t)snprintf(list, sizeof list, "[");
    for (int d = 0; d < entry->ndim; d++)
        n += (size_t)snprintf(list + n, sizeof list - n, "%s%" PRId64, d > 0 ? "," : "", entry->dim[d]);
    snprintf(list + n, sizeof list - n, "]");
    char offsets[64];
    snprintf(offsets, sizeof offsets, "[%" PRId64 ",%" PRId64 "]", entry->offset, entry->offset + entry->bytes);
    /* Numbers are written as raw text: cJSON's are doubles, which it may print as 1e+15. */
    cJSON *item = cJSON_AddObjectToObject(root, entry->name);
    return item != NULL && cJSON_AddStringToObject(item, "dtype", entry->dtype) != NULL
        && cJSON_AddRawToObject(item, "shape", list) != NULL
        && cJSON_AddRawToObject(item, "data_offsets", offsets) != NULL;
}

static bool add_metadata(cJSON *root, const struct safetensors_pair *metadata, int pairs)
{
    if (pairs == 0) return true;
    cJSON *object = cJSON_AddObjectToObject(root, "__metadata__");
    for (int i = 0; i < pairs && object != NULL; i++)
        if (cJSON_AddStringToObject(object, metadata[i].key, metadata[i].value) == NULL) return false;
    return object != NULL;
}

/* Assign offsets, counted from the end of the header, and add the entries in this order.  @return false: no memory. */
static bool safetensors_write_lay_out(cJSON *root, struct safetensors_entry *entry, int n, int64_t *data_bytes)
{
    struct safetensors_entry **order = malloc(((size_t)n + 1) * sizeof *order);
    bool good = order != NULL && root != NULL;
    *data_bytes = 0;
    for (int i = 0; i < n && good; i++) order[i] = &entry[i];
    if (good) qsort(order, (size_t)n, sizeof *order, by_layout);
    for (int i = 0; i < n && good; i++) {
        order[i]->offset = *data_bytes;
        *data_bytes += order[i]->bytes;
        good = add_entry(root, order[i]);
    }
    free(order);
    return good;
}

/* The whole header in new memory: length, JSON, spaces up to a multiple of 8. */
static enum error_code make_header(struct safetensors_writer *writer, const char *path,
                                   const struct safetensors_pair *metadata, int pairs, char **header, size_t *bytes,
                                   int64_t *data_bytes, struct error *err)
{
    cJSON *root = cJSON_CreateObject(), *parsed = NULL;
    struct error fault;
    enum error_code e = OK;
    char *text = root != NULL && add_metadata(root, metadata, pairs)
        && safetensors_write_lay_out(root, writer->entry, writer->count, data_bytes)
                     ? json_text(root, false) : NULL;
    const size_t length = text != NULL ? strlen(text) : 0, padded = (length + 7) / 8 * 8;
    *bytes = 8 + padded;
    *header = text != NULL ? malloc(*bytes) : NULL;
    if (*header == NULL) e = fail(err, ERR_MEMORY, "%s: no memory for its header", printable_path(path).text);
    /* Refuse what a reader would refuse, such as two tensors with the same name. */
    else if (json_parse(text, length, printable_path(path).text, &parsed, &fault) != OK)
        e = fail(err, ERR_USAGE, "%s", fault.text);
    else if (padded > SAFETENSORS_HEADER_LIMIT)
        e = fail(err, ERR_USAGE, "%s: its header would have %zu bytes; at most %d are allowed",
                 printable_path(path).text, padded, SAFETENSORS_HEADER_LIMIT);
    else {
        for (int i = 0; i < 8; i++) (*header)[i] = (char)((uint64_t)padded >> (8 * i) & 255);
        memset(*header + 8, ' ', padded);
        memcpy(*header + 8, text, length);
    }
    if (e != OK) {
        free(*header);
        *header = NULL;
    }
    cJSON_Delete(parsed);
    cJSON_Delete(root);
    cJSON_free(text);
    return e;
}

/* ---- starting ---------------------------------------------------------------------------------------------------- */

static enum error_code safetensors_write_start(struct safetensors_writer *writer, const char *path,
                                               const struct safetensors_entry *tensors, int n, struct error *err)
{
    *writer = (struct safetensors_writer){ .file.fd = -1, .count = n,
                                          .entry = malloc(((size_t)n + 1) * sizeof *writer->entry) };
    if (writer->entry == NULL) return fail(err, ERR_MEMORY, "%s: no memory to write it", printable_path(path).text);
    /* The caller's list is copied; its names have to live until the end. */
    if (n > 0) memcpy(writer->entry, tensors, (size_t)n * sizeof *writer->entry);
    return check_entries(path, writer->entry, n, err);
}

/* Lay out the tensors and write the header; the file has its full length then, and reads as zeros. */
enum error_code safetensors_create(struct safetensors_writer *writer, const char *path,
                                   const struct safetensors_entry *tensors, int n,
                                   const struct safetensors_pair *metadata, int pairs, struct error *err)
{
    char *header = NULL;
    size_t bytes = 0;
    int64_t data_bytes = 0;
    enum error_code e = safetensors_write_start(writer, path, tensors, n, err);
    if (e == OK) e = make_header(writer, path, metadata, pairs, &header, &bytes, &data_bytes, err);
    if (e == OK) e = output_create(&writer->file, path, err);
    if (e == OK) e = output_write(&writer->file, header, bytes, 0, err);
    if (e == OK) e = output_resize(&writer->file, (int64_t)bytes + data_bytes, err);
    for (int i = 0; i < n && e == OK; i++) writer->entry[i].offset += (int64_t)bytes;
    free(header);
    if (e != OK) safetensors_abort(writer);
    return e;
}

static bool same_shape(const struct safetensors_entry *a, const struct safetensors_entry *b)
{
    bool same = strcmp(a->dtype, b->dtype) == 0 && a->ndim == b->ndim;
    for (int d = 0; d < a->ndim && same; d++) same = a->dim[d] == b->dim[d];
    return same;
}

/* A process that joins takes the offsets from the owner's file, and checks that both mean the same tensors. */
enum error_code safetensors_join(struct safetensors_writer *writer, const char *path, const char *temp,
                                 const struct safetensors_entry *tensors, int n, struct error *err)
{
    struct safetensors st;
    enum error_code e = safetensors_write_start(writer, path, tensors, n, err);
    if (e == OK && (e = safetensors_open(&st, temp, err)) == OK) {      /* valid already: its data reads as zeros */
        for (int i = 0; i < n && e == OK; i++) {
            const struct safetensors_entry *t = safetensors_find(&st, tensors[i].name);
            if (t == NULL || !same_shape(t, &tensors[i]))
                e = fail(err, ERR_USAGE, "%s: tensor \"%s\" is not in it with this dtype and shape",
                         printable_path(temp).text, printable(tensors[i].name).text);
            else writer->entry[i].offset = t->offset;
        }
        safetensors_close(&st);
    }
    if (e == OK) e = output_join(&writer->file, path, temp, err);
    if (e != OK) safetensors_abort(writer);
    return e;
}

/* ---- writing ----------------------------------------------------------------------------------------------------- */

/* Consecutive elements are written at once; elements at a distance are gathered piece by piece first. */
static enum error_code write_run(struct safetensors_writer *writer, struct run run, size_t size, int64_t offset,
                                 const char *data, struct error *err)
{
    char gathered[32768];
    const int64_t at = offset + run.file_at * (int64_t)size, most = (int64_t)(sizeof gathered / size);
    if (run.stride == 1)
        return output_write(&writer->file, data + (size_t)run.memory_at * size, (size_t)run.count * size, at, err);
    enum error_code e = OK;
    for (int64_t done = 0; done < run.count && e == OK; done += most) {
        const int64_t n = run.count - done < most ? run.count - done : most;
        for (int64_t i = 0; i < n; i++)
            memcpy(gathered + (size_t)i * size, data + (size_t)(run.memory_at + (done + i) * run.stride) * size, size);
        e = output_write(&writer->file, gathered, (size_t)n * size, at + done * (int64_t)size, err);
    }
    return e;
}

/* The box is a part of the tensor; `data` has its elements in row-major order, or transposed. */
enum error_code safetensors_write_box(struct safetensors_writer *writer, int tensor, const int64_t *start_at,
                                      const int64_t *extent, bool transposed, const void *data, struct error *err)
{
    struct box box;
    if (writer->file.fd < 0) return fail(err, ERR_FILE, "a file was written to after it had failed or was finished");
    assert(tensor >= 0 && tensor < writer->count);
    const struct safetensors_entry t = writer->entry[tensor];
    const size_t size = (size_t)safetensors_dtype_bits(t.dtype) / 8;
    enum error_code e = box_open(&box, writer->file.path, &t, start_at, extent, transposed, err);
    while (e == OK && box_next(&box)) e = write_run(writer, box.run, size, t.offset, data, err);
    if (e != OK) safetensors_abort(writer);
    return e;
}

enum error_code safetensors_write(struct safetensors_writer *writer, int tensor, const void *data, struct error *err)
{
    return safetensors_write_box(writer, tensor, NULL, NULL, false, data, err);
}

enum error_code safetensors_commit(struct safetensors_writer *writer, struct error *err)
{
    const enum error_code e = output_commit(&writer->file, err);
    safetensors_abort(writer);                               /* after a commit this only frees memory */
    return e;
}

void safetensors_abort(struct safetensors_writer *writer)
{
    output_abort(&writer->file);
    free(writer->entry);
    *writer = (struct safetensors_writer){ .file.fd = -1 };
}
