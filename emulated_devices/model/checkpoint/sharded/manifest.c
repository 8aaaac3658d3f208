/* manifest.c -- makes, writes, reads and checks the manifest of a sharded checkpoint.
 * sharded_write.c, shards.c and reshard.c call.  A file that lies is ERR_FORMAT with the tensor's name. */
#include "emulated_devices/model/checkpoint/sharded/manifest.h"
#include "emulated_devices/plan/sections_file.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MANIFEST_FORMAT "orrery shards 1"

const char *shard_name(const struct shard_tensor *tensor, const struct box *box, char text[SHARD_TENSOR])
{
    int used = snprintf(text, SHARD_TENSOR, "%s[", tensor->name);
    for (int d = 0; d < tensor->ndim; d++)
        used += snprintf(text + used, SHARD_TENSOR - (size_t)used, "%s%lld:%lld", d ? "," : "",
                         (long long)box->start[d], (long long)(box->start[d] + box->extent[d]));
    snprintf(text + used, SHARD_TENSOR - (size_t)used, "]");
    return text;
}

const char *mesh_words(const struct plan *plan, char *text, size_t size)
{
    size_t used = 0;
    if (plan->sections) {
        char words[MESH_WORDS_LINE];
        snprintf(text, size, "--plan \"%s\"", sections_words(plan, words, sizeof words));
        return text;
    }
    for (int a = 0; a < AXIS_COUNT && used < size; a++)
        if (plan->mesh.size[a] > 1)
            used += (size_t)snprintf(text + used, size - used, "%s--%s %d", used ? " " : "", axis_name(a),
                                     plan->mesh.size[a]);
    if (plan_ep(plan) > 1 && used < size)
        used += (size_t)snprintf(text + used, size - used, "%s--ep %d", used ? " " : "", plan_ep(plan));
    if (plan_etp(plan) > 1 && used < size)
        used += (size_t)snprintf(text + used, size - used, "%s--etp %d", used ? " " : "", plan_etp(plan));
    if (used == 0) snprintf(text, size, "one device");
    return text;
}

static int manifest_by_name(const void *a, const void *b)
{
    return strcmp((*(struct shard_tensor *const *)a)->name, (*(struct shard_tensor *const *)b)->name);
}

static enum error_code manifest_room(struct manifest *manifest, int files, int tensors, struct error *err)
{
    *manifest = (struct manifest){ .file = calloc((size_t)files + 1, sizeof *manifest->file),
                                   .tensor = calloc((size_t)tensors + 1, sizeof *manifest->tensor),
                                   .by_name = calloc((size_t)tensors + 1, sizeof *manifest->by_name) };
    if (!manifest->file || !manifest->tensor || !manifest->by_name)
        return fail(err, ERR_MEMORY, "no memory for a list of %d tensors in %d files", tensors, files);
    manifest->files = files, manifest->tensors = tensors;
    for (int t = 0; t < tensors; t++) manifest->by_name[t] = &manifest->tensor[t];
    return OK;
}

void manifest_close(struct manifest *manifest)
{
    for (int t = 0; t < manifest->tensors; t++) free(manifest->tensor[t].box);
    free(manifest->file), free(manifest->tensor), free(manifest->by_name);
    *manifest = (struct manifest){ 0 };
}

const struct shard_tensor *manifest_find(const struct manifest *manifest, const char *name)
{
    int from = 0, to = manifest->tensors;
    while (from < to) {
        const int middle = from + (to - from) / 2;
        const int order = strcmp(manifest->by_name[middle]->name, name);
        if (order == 0) return manifest->by_name[middle];
        if (order < 0) from = middle + 1;
        else to = middle;
    }
    return NULL;
}

/* ---- of a plan --------------------------------------------------------------------------------------------------- */

static enum error_code make_tensor(struct shard_tensor *tensor, const struct collection *collection, int place,
                                   struct boxes *boxes, int files, struct error *err)
{
    const struct named_tensor *const t = &collection->tensor[place];
    enum error_code e = collection_writes(collection, place, boxes, files, err);
    int count = 0;
    for (int f = 0; f < files && !e; f++) count += boxes[f].count;
    snprintf(tensor->name, sizeof tensor->name, "%s", t->name);
    tensor->format = t->format, tensor->ndim = t->ndim;
    memcpy(tensor->dim, t->dim, sizeof tensor->dim);
    if (!e && (tensor->box = calloc((size_t)count + 1, sizeof *tensor->box)) == NULL)
        e = fail(err, ERR_MEMORY, "no memory for the boxes of %s", t->name);
    for (int f = 0; f < files && !e; f++)
        for (int b = 0; b < boxes[f].count; b++)
            tensor->box[tensor->boxes++] = (struct shard_box){ f, boxes[f].at[b] };
    for (int f = 0; f < files; f++) boxes_free(&boxes[f]);
    return e;
}

enum error_code manifest_make(struct manifest *manifest, const struct collection *collection, int generation,
                              struct error *err)
{
    const int files = collection->trainer->plan.mesh.devices;
    struct boxes *const boxes = calloc((size_t)files, sizeof *boxes);
    enum error_code e = manifest_room(manifest, files, collection->count, err);
    if (!e && boxes == NULL) e = fail(err, ERR_MEMORY, "no memory for the boxes of %d devices", files);
    if (!e) mesh_words(&collection->trainer->plan, manifest->mesh, sizeof manifest->mesh);
    for (int f = 0; f < files && !e; f++)
        snprintf(manifest->file[f].name, SHARD_NAME, "device-%05d.%d.safetensors", f, generation);
    for (int t = 0; t < collection->count && !e; t++)
        e = make_tensor(&manifest->tensor[t], collection, t, boxes, files, err);
    free(boxes);
    if (!e) qsort(manifest->by_name, (size_t)manifest->tensors, sizeof *manifest->by_name, manifest_by_name);
    return e;
}

/* ---- as JSON ----------------------------------------------------------------------------------------------------- */

static bool add_numbers(cJSON *object, const char *name, const int64_t number[], int count)
{
    cJSON *const list = cJSON_AddArrayToObject(object, name);
    bool ok = list != NULL;
    for (int i = 0; i < count && ok; i++) ok = cJSON_AddItemToArray(list, cJSON_CreateNumber((double)number[i]));
    return ok;
}

static bool manifest_add_tensor(cJSON *list, const struct shard_tensor *tensor)
{
    cJSON *const row = json_add(json_row(list), "name %s dtype %s", tensor->name, dtype_file_name(tensor->format));
    bool ok = add_numbers(row, "shape", tensor->dim, tensor->ndim);
    cJSON *const boxes = cJSON_AddArrayToObject(row, "boxes");
    for (int b = 0; b < tensor->boxes && ok; b++) {
        cJSON *const box = json_add(json_row(boxes), "file %d", tensor->box[b].file);
        ok = add_numbers(box, "start", tensor->box[b].box.start, tensor->ndim)
            && add_numbers(box, "extent", tensor->box[b].box.extent, tensor->ndim);
    }
    return ok;
}

enum error_code manifest_write(const struct manifest *manifest, const char *path, struct error *err)
{
    cJSON *const root = cJSON_CreateObject();
    json_add(root, "format %s mesh %s", MANIFEST_FORMAT, manifest->mesh);
    cJSON *const files = cJSON_AddArrayToObject(root, "files"), *const tensors = cJSON_AddArrayToObject(root,
                                                                                                        "tensors");
    bool ok = files && tensors;
    for (int f = 0; f < manifest->files && ok; f++)
        ok = json_add(json_row(files), "name %s bytes %g sha256 %s", manifest->file[f].name,
                      (double)manifest->file[f].bytes, manifest->file[f].sum.text) != NULL;
    for (int t = 0; t < manifest->tensors && ok; t++) ok = manifest_add_tensor(tensors, &manifest->tensor[t]);
    if (ok) return json_finish(path, root, err);
    cJSON_Delete(root);
    return fail(err, ERR_MEMORY, "%s: no memory to write it", printable_path(path).text);
}

static enum error_code read_numbers(const cJSON *object, const char *where, const char *name, int64_t least, int count,
                                    int64_t number[], struct error *err)
{
    const cJSON *list, *one;
    enum error_code e = json_array(object, where, name, &list, err);
    int i = 0;
    if (!e && cJSON_GetArraySize(list) != count)
        return fail(err, ERR_FORMAT, "%s: %s has %d numbers, not %d", printable_path(where).text, name,
                    cJSON_GetArraySize(list), count);
    if (!e) cJSON_ArrayForEach(one, list)
        if (!e && (!json_whole(one, &number[i++]) || number[i - 1] < least))
            e = fail(err, ERR_FORMAT, "%s: %s: number %d is not a whole number of at least %lld",
                     printable_path(where).text, name, i - 1, (long long)least);
    return e;
}

static enum error_code manifest_read_file(struct shard_file *file, const cJSON *row, const char *where,
                                          struct error *err)
{
    const char *name, *sum;
    enum error_code e = json_string(row, where, "name", &name, err);
    if (!e) e = json_string(row, where, "sha256", &sum, err);
    if (!e) e = json_int(row, where, "bytes", 0, INT64_C(1) << 52, &file->bytes, err);
    if (e) return e;
    if (strncmp(name, "device-", 7) != 0 || strchr(name, '/') || strlen(name) >= SHARD_NAME)
        return fail(err, ERR_FORMAT, "%s: files: %.60s is not the name of a device's file", printable_path(where).text,
                    printable(name).text);
    if (strlen(sum) != sizeof file->sum.text - 1)
        return fail(err, ERR_FORMAT, "%s: %s: its checksum is no SHA-256", printable_path(where).text, name);
    strcpy(file->name, name), strcpy(file->sum.text, sum);
    return OK;
}

/* Boxes that overlap nowhere and are together as many elements as the tensor are the tensor, each element once. */
static enum error_code check_boxes(const struct manifest *manifest, const struct shard_tensor *tensor,
                                   const char *where, struct error *err)
{
    const struct layout whole = layout_whole(tensor->ndim, tensor->dim);
    const int64_t all = box_elements(&whole.box[0], tensor->ndim);
    int64_t there = 0;
    for (int b = 0; b < tensor->boxes; b++) {
        const struct shard_box *const one = &tensor->box[b];
        struct box both;
        for (int d = 0; d < tensor->ndim; d++)
            if (one->box.extent[d] > tensor->dim[d] || one->box.start[d] > tensor->dim[d] - one->box.extent[d])
                return fail(err, ERR_FORMAT, "%s: %s: a box of %s lies outside the tensor", printable_path(where).text,
                            printable(tensor->name).text, manifest->file[one->file].name);
        for (int a = 0; a < b; a++)
            if (box_meet(&tensor->box[a].box, &one->box, tensor->ndim, &both))
                return fail(err, ERR_FORMAT, "%s: %s: boxes of %s and %s overlap", printable_path(where).text,
                            printable(tensor->name).text, manifest->file[tensor->box[a].file].name,
                            manifest->file[one->file].name);
        there += box_elements(&one->box, tensor->ndim);
    }
    return there == all ? OK
        : fail(err, ERR_FORMAT, "%s: %s: %lld of its %lld elements are in no file", printable_path(where).text,
               printable(tensor->name).text, (long long)(all - there), (long long)all);
}

static enum error_code read_box(struct shard_box *box, const struct manifest *manifest, int ndim, const cJSON *row,
                                const char *where, struct error *err)
{
    int64_t file = 0;
    enum error_code e = json_int(row, where, "file", 0, manifest->files - 1, &file, err);
    if (!e) e = read_numbers(row, where, "start", 0, ndim, box->box.start, err);
    if (!e) e = read_numbers(row, where, "extent", 1, ndim, box->box.extent, err);
    box->file = (int)file;
    return e;
}

/* Numbers of elements stay below 2^53, so that no product overflows. */
static enum error_code read_shape(struct shard_tensor *tensor, const cJSON *row, const char *where, struct error *err)
{
    const cJSON *shape;
    int64_t n = 1;
    enum error_code e = json_array(row, where, "shape", &shape, err);
    tensor->ndim = e ? 0 : cJSON_GetArraySize(shape);
    if (!e && (tensor->ndim < 1 || tensor->ndim > TENSOR_MAX_DIMS))
        return fail(err, ERR_FORMAT, "%s: %s: has %d dimensions", printable_path(where).text,
                    printable(tensor->name).text, tensor->ndim);
    if (!e) e = read_numbers(row, where, "shape", 1, tensor->ndim, tensor->dim, err);
    for (int d = 0; d < tensor->ndim && !e; d++) {
        if (tensor->dim[d] > (INT64_C(1) << 52) / n)
            return fail(err, ERR_FORMAT, "%s: %s: is too large", printable_path(where).text,
                        printable(tensor->name).text);
        n *= tensor->dim[d];
    }
    return e;
}

static enum error_code read_tensor(struct shard_tensor *tensor, const struct manifest *manifest, const cJSON *row,
                                   const char *where, struct error *err)
{
    const char *name, *dtype;
    const cJSON *boxes = NULL, *one;
    enum error_code e = json_string(row, where, "name", &name, err);
    if (!e) e = json_string(row, where, "dtype", &dtype, err);
    if (e) return e;
    snprintf(tensor->name, sizeof tensor->name, "%s", name);
    tensor->format = 0;
    while (tensor->format < DTYPE_COUNT && strcmp(dtype_file_name(tensor->format), dtype) != 0) tensor->format++;
    if (strlen(name) >= sizeof tensor->name || tensor->format == DTYPE_COUNT)
        return fail(err, ERR_FORMAT, "%s: %.60s: has a name or a dtype that no tensor of a job has",
                    printable_path(where).text, printable(name).text);
    e = read_shape(tensor, row, where, err);
    if (!e) e = json_array(row, where, "boxes", &boxes, err);
    if (!e && (tensor->box = calloc((size_t)cJSON_GetArraySize(boxes) + 1, sizeof *tensor->box)) == NULL)
        e = fail(err, ERR_MEMORY, "%s: no memory to read it", printable_path(where).text);
    if (!e) cJSON_ArrayForEach(one, boxes)
        if (!e) e = read_box(&tensor->box[tensor->boxes++], manifest, tensor->ndim, one, where, err);
    return e ? e : check_boxes(manifest, tensor, where, err);
}

static enum error_code read_lists(struct manifest *manifest, const cJSON *root, const char *path, struct error *err)
{
    const cJSON *files, *tensors, *one;
    const char *format, *mesh;
    int f = 0, t = 0;
    enum error_code e = json_string(root, path, "format", &format, err);
    if (!e && strcmp(format, MANIFEST_FORMAT) != 0)
        return fail(err, ERR_FORMAT, "%s: its format is \"%.40s\", not \"%s\"", printable_path(path).text,
                    printable(format).text, MANIFEST_FORMAT);
    if (!e) e = json_string(root, path, "mesh", &mesh, err);
    if (!e) e = json_array(root, path, "files", &files, err);
    if (!e) e = json_array(root, path, "tensors", &tensors, err);
    if (!e) e = manifest_room(manifest, cJSON_GetArraySize(files), cJSON_GetArraySize(tensors), err);
    if (e) return e;
    snprintf(manifest->mesh, sizeof manifest->mesh, "%s", printable(mesh).text);
    cJSON_ArrayForEach(one, files) if (!e) e = manifest_read_file(&manifest->file[f++], one, path, err);
    cJSON_ArrayForEach(one, tensors) if (!e) e = read_tensor(&manifest->tensor[t++], manifest, one, path, err);
    if (e) return e;
    qsort(manifest->by_name, (size_t)manifest->tensors, sizeof *manifest->by_name, manifest_by_name);
    for (int i = 1; i < manifest->tensors && !e; i++)
        if (strcmp(manifest->by_name[i - 1]->name, manifest->by_name[i]->name) == 0)
            e = fail(err, ERR_FORMAT, "%s: %s: is listed twice", printable_path(path).text,
                     printable(manifest->by_name[i]->name).text);
    return e;
}

enum error_code manifest_read(struct manifest *manifest, const struct bundle *bundle, const char *name,
                              struct error *err)
{
    char path[BUNDLE_PATH], *text = NULL;
    size_t count;
    cJSON *root = NULL;
    *manifest = (struct manifest){ 0 };
    snprintf(path, sizeof path, "%s/%s", bundle->dir, name);
    enum error_code e = bundle_read(bundle, name, JSON_FILE_LIMIT, &text, &count, err);
    if (!e) e = json_parse(text, count, path, &root, err);
    if (!e) e = read_lists(manifest, root, path, err);
    cJSON_Delete(root);
    free(text);
    return e;
}
