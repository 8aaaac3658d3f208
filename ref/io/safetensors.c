/* safetensors.c -- opens a safetensors file and checks its whole header.
 *
 * ref/model, ref/golden, check/dump/ and cli/ call this file; safetensors_box.c reads the numbers.  Errors are
 * ERR_FORMAT, which names file and tensor, ERR_FILE and ERR_MEMORY.  A failed open leaves nothing to close.
 */
#include "ref/io/safetensors.h"
#include "ref/io/json.h"
#include "ref/io/safetensors_box.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* ---- one tensor of the header ------------------------------------------------------------------------------------ */

static enum error_code fail_tensor(struct error *err, const char *path, const char *name, const char *what)
{
    return fail(err, ERR_FORMAT, "%s: tensor \"%s\" %s", printable_path(path).text, printable(name).text, what);
}

/* Read non-negative integers from a JSON list.  @return how many, or -1. */
static int whole_list(const cJSON *list, int64_t *out, int most)
{
    int n = 0;
    if (!cJSON_IsArray(list)) return -1;
    for (const cJSON *c = list->child; c != NULL; c = c->next, n++)
        if (n == most || !json_whole(c, &out[n]) || out[n] < 0) return -1;
    return n;
}

/* A tensor has exactly these three keys. */
static enum error_code check_keys(const char *path, const cJSON *item, struct error *err)
{
    static const char *const keys[] = { "dtype", "shape", "data_offsets" };
    int known = 0;
    if (!cJSON_IsObject(item)) return fail_tensor(err, path, item->string, "must be an object");
    for (const cJSON *c = item->child; c != NULL; c = c->next) {
        int k = 0;
        while (k < 3 && strcmp(c->string, keys[k]) != 0) k++;
        if (k == 3)
            return fail(err, ERR_FORMAT, "%s: tensor \"%s\" has an unknown key \"%s\"", printable_path(path).text,
                        printable(item->string).text, printable(c->string).text);
        /* A bit for each key that is there. */
        known |= 1 << k;
    }
    for (int k = 0; k < 3; k++)
        if (!(known >> k & 1))
            return fail(err, ERR_FORMAT, "%s: tensor \"%s\" has no \"%s\"", printable_path(path).text,
                        printable(item->string).text, keys[k]);
    return OK;
}

/* Offsets in the header count from the end of the header, data_at; ours from the start of the file. */
static enum error_code parse_entry(const char *path, const cJSON *item, int64_t data_at, int64_t data_bytes,
                                   struct safetensors_entry *entry, struct error *err)
{
    int64_t offset[2];
    enum error_code e = check_keys(path, item, err);
    if (e != OK) return e;
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(item, "dtype");
    entry->name = item->string;
    if (!cJSON_IsString(dtype)) return fail_tensor(err, path, entry->name, "has a \"dtype\" that is not a string");
    entry->dtype = dtype->valuestring;
    if (safetensors_dtype_bits(entry->dtype) == 0)
        return fail(err, ERR_FORMAT, "%s: tensor \"%s\" has dtype \"%s\", which the format does not know",
                    printable_path(path).text, printable(entry->name).text, printable(entry->dtype).text);
    entry->ndim = whole_list(cJSON_GetObjectItemCaseSensitive(item, "shape"), entry->dim, SAFETENSORS_MAX_DIMS);
    if (entry->ndim < 0)
        return fail_tensor(err, path, entry->name,
                           "has a \"shape\" that is not a list of at most 8 whole numbers >= 0");
    const char *fault = entry_measure(entry);
    if (fault != NULL) return fail_tensor(err, path, entry->name, fault);
    if (whole_list(cJSON_GetObjectItemCaseSensitive(item, "data_offsets"), offset, 2) != 2)
        return fail_tensor(err, path, entry->name, "has \"data_offsets\" that are not two whole numbers >= 0");
    /* Offsets are checked before they become addresses in the file. */
    if (offset[1] < offset[0] || offset[1] > data_bytes)
        return fail(err, ERR_FORMAT, "%s: tensor \"%s\" has data_offsets [%lld,%lld], outside the %lld bytes of data%s",
                    printable_path(path).text, printable(entry->name).text, (long long)offset[0], (long long)offset[1],
                    (long long)data_bytes,
                    offset[0] <= data_bytes && offset[1] > data_bytes ? ": was it cut short?" : "");
    if (offset[1] - offset[0] != entry->bytes)
        return fail(err, ERR_FORMAT, "%s: tensor \"%s\" has %lld bytes by data_offsets, %lld by dtype and shape",
                    printable_path(path).text, printable(entry->name).text, (long long)(offset[1] - offset[0]),
                    (long long)entry->bytes);
    entry->offset = data_at + offset[0];
    return OK;
}

/* ---- the header -------------------------------------------------------------------------------------------------- */

static int by_offset(const void *a, const void *b)
{
    const struct safetensors_entry *x = a, *y = b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? -1 : 1;      /* empty ones first: they end here, too */
    return strcmp(x->name, y->name);
}

/* In order of offsets, each tensor must begin where the previous one ends, and the last must end with the file. */
static enum error_code check_cover(const struct safetensors *st, int64_t data_at, int64_t end, struct error *err)
{
    int64_t at = data_at;
    for (int i = 0; i < st->count; i++) {
        const struct safetensors_entry *t = &st->entry[i];
        if (t->offset < at)
            return fail(err, ERR_FORMAT, "%s: tensor \"%s\" overlaps tensor \"%s\"", printable_path(st->path).text,
                        printable(t->name).text, printable(st->entry[i - 1].name).text);
        if (t->offset > at)
            return fail(err, ERR_FORMAT, "%s: %lld bytes before tensor \"%s\" belong to no tensor",
                        printable_path(st->path).text, (long long)(t->offset - at), printable(t->name).text);
        at = t->offset + t->bytes;
    }
    if (at < end)
        return fail(err, ERR_FORMAT, "%s: the last %lld bytes belong to no tensor", printable_path(st->path).text,
                    (long long)(end - at));
    return OK;
}

/* Metadata are pairs of strings, which belong to the tree of the header. */
static enum error_code parse_metadata(struct safetensors *st, const cJSON *object, struct error *err)
{
    int n = 0;
    if (!cJSON_IsObject(object))
        return fail(err, ERR_FORMAT, "%s: \"__metadata__\" must be an object", printable_path(st->path).text);
    st->metadata = calloc((size_t)cJSON_GetArraySize(object) + 1, sizeof *st->metadata);
    if (st->metadata == NULL)
        return fail(err, ERR_MEMORY, "%s: no memory for its header", printable_path(st->path).text);
    for (const cJSON *c = object->child; c != NULL; c = c->next) {
        if (!cJSON_IsString(c))
            return fail(err, ERR_FORMAT, "%s: \"__metadata__\": \"%s\" must be a string", printable_path(st->path).text,
                        printable(c->string).text);
        st->metadata[n++] = (struct safetensors_pair){ c->string, c->valuestring };
    }
    st->metadata_count = n;
    return OK;
}

static int by_pointed_name(const void *a, const void *b)
{
    return strcmp((*(struct safetensors_entry *const *)a)->name, (*(struct safetensors_entry *const *)b)->name);
}

/* Tensors are sorted twice: by offset, to check that they cover the data, and by name, to find them. */
static enum error_code parse_header(struct safetensors *st, int64_t data_at, int64_t end, struct error *err)
{
    const cJSON *root = st->header;
    enum error_code e = OK;
    if (!cJSON_IsObject(root))
        return fail(err, ERR_FORMAT, "%s: the header must be an object", printable_path(st->path).text);
    /* One place too many if there are metadata, and never none. */
    const size_t room = (size_t)cJSON_GetArraySize(root) + 1;
    st->entry = calloc(room, sizeof *st->entry);
    st->by_name = calloc(room, sizeof *st->by_name);
    if (st->entry == NULL || st->by_name == NULL)
        return fail(err, ERR_MEMORY, "%s: no memory for its header", printable_path(st->path).text);
    for (const cJSON *c = root->child; c != NULL && e == OK; c = c->next)
        e = strcmp(c->string, "__metadata__") == 0
                ? parse_metadata(st, c, err)
                : parse_entry(st->path, c, data_at, end - data_at, &st->entry[st->count++], err);
    if (e != OK) return e;
    qsort(st->entry, (size_t)st->count, sizeof *st->entry, by_offset);
    for (int i = 0; i < st->count; i++) st->by_name[i] = &st->entry[i];
    qsort(st->by_name, (size_t)st->count, sizeof *st->by_name, by_pointed_name);
    return check_cover(st, data_at, end, err);
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* The length of the header is checked before memory is taken for it. */
static enum error_code read_header(struct safetensors *st, int64_t size, struct error *err)
{
    unsigned char length[8];
    uint64_t n = 0;
    const struct printable path = printable_path(st->path);
    if (size < 8)
        return fail(err, ERR_FORMAT, "%s: has %lld bytes; a safetensors file has at least 10", path.text,
                    (long long)size);
    enum error_code e = file_read_at(st->fd, st->path, length, 8, 0, err);
    if (e != OK) return e;
    if (memcmp(length, "version ", 8) == 0)             /* "version https://git-lfs.github.com/spec/v1" */
        return fail(err, ERR_FORMAT, "%s: is a pointer of Git LFS, of %lld bytes, in place of the file: git lfs pull",
                    path.text, (long long)size);
    /* The first 8 bytes are the header's length, with the lowest byte first. */
    for (int i = 7; i >= 0; i--) n = n << 8 | length[i];
    if (n < 2 || n > SAFETENSORS_HEADER_LIMIT)
        return fail(err, ERR_FORMAT, "%s: says its header has %llu bytes; it must be 2 to %d: not a safetensors file?",
                    path.text, (unsigned long long)n, SAFETENSORS_HEADER_LIMIT);
    if ((int64_t)n > size - 8)
        return fail(err, ERR_FORMAT, "%s: says its header has %llu bytes; only %lld follow: was it cut short?",
                    path.text, (unsigned long long)n, (long long)(size - 8));
    char *text = malloc((size_t)n + 1);
    if (text == NULL) return fail(err, ERR_MEMORY, "%s: no memory for its header", path.text);
    text[n] = '\0';
    e = file_read_at(st->fd, st->path, text, (size_t)n, 8, err);
    if (e == OK && text[0] != '{') e = fail(err, ERR_FORMAT, "%s: the header must begin with {", path.text);
    if (e == OK) e = json_parse(text, (size_t)n, path.text, &st->header, err);
    free(text);
    return e != OK ? e : parse_header(st, 8 + (int64_t)n, size, err);
}

enum error_code safetensors_open(struct safetensors *st, const char *path, struct error *err)
{
    int64_t size;
    *st = (struct safetensors){ .fd = -1, .path = strdup(path) };
    if (st->path == NULL) return fail(err, ERR_MEMORY, "%s: no memory to open it", printable_path(path).text);
    enum error_code e = file_open(path, &st->fd, &size, err);
    if (e == OK) e = read_header(st, size, err);
    if (e != OK) safetensors_close(st);
    return e;
}

void safetensors_close(struct safetensors *st)
{
    if (st->fd >= 0) close(st->fd);
    cJSON_Delete(st->header);
    free(st->by_name);
    free(st->metadata);
    free(st->entry);
    free(st->path);
    *st = (struct safetensors){ .fd = -1 };
}

/* Tensors keep their order in both lists.  by_name points into entry, so it is made again. */
void safetensors_keep(struct safetensors *st, bool (*wants)(const void *context, const char *name),
                      const void *context)
{
    int count = 0;
    for (int i = 0; i < st->count; i++)
        if (wants(context, st->entry[i].name)) st->entry[count++] = st->entry[i];
    st->count = count;
    for (int i = 0; i < count; i++) st->by_name[i] = &st->entry[i];
    if (count > 0) qsort(st->by_name, (size_t)count, sizeof *st->by_name, by_pointed_name);
}

/* A binary search in by_name. */
const struct safetensors_entry *safetensors_find(const struct safetensors *st, const char *name)
{
    int low = 0, high = st->count;
    while (low < high) {
        const int middle = low + (high - low) / 2, c = strcmp(name, st->by_name[middle]->name);
        if (c == 0) return st->by_name[middle];
        if (c < 0) high = middle;
        else low = middle + 1;
    }
    return NULL;
}

const char *safetensors_metadata(const struct safetensors *st, const char *key)
{
    for (int i = 0; i < st->metadata_count; i++)
        if (strcmp(st->metadata[i].key, key) == 0) return st->metadata[i].value;
    return NULL;
}
