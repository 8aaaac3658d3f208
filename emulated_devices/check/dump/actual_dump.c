/* actual_dump.c -- what the files of a dump say of themselves (docs/checking/dumps.md): version, rank, mesh, formats,
 * layout.
 * actual.c calls actual_open_dump once, after all files are open, and actual_entries for each tensor.  Every error is
 * ERR_FORMAT with the name of the file and the key, or ERR_MEMORY. */
#include "emulated_devices/check/dump/actual_open.h"
#include "ref/numeric/dtype.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* This is the version of the dump format that this program reads. */
static const char VERSION[] = "1";

bool actual_is_dump(const struct safetensors *st) { return safetensors_metadata(st, "orrery_dump") != NULL; }

/* Fail with ERR_FORMAT at a key of a file's metadata. */
static enum error_code actual_dump_bad(const struct actual_file *file, struct error *err, const char *key,
                                       const char *what)
{
    return fail(err, ERR_FORMAT, "%s: metadata \"%s\" %s", printable_path(file->st.path).text, key, what);
}

/* Read a whole number written as text.  @return -1 if it is none, or above `most`. */
static int64_t actual_dump_number(const char *text, int64_t most)
{
    int64_t n = 0;
    if (*text == '\0') return -1;
    for (; *text; text++) {
        if (*text < '0' || *text > '9') return -1;
        n = 10 * n + (*text - '0');
        if (n > most) return -1;
    }
    return n;
}

/* Read a JSON object in the metadata.  @param[out] root  for cJSON_Delete; NULL if there is no such key. */
static enum error_code read_object(const struct actual_file *file, const char *key, cJSON **root, struct error *err)
{
    const char *text = safetensors_metadata(&file->st, key);
    char where[256];
    *root = NULL;
    if (text == NULL) return OK;
    /* The path is cut to 180 characters, so that the key fits behind it. */
    snprintf(where, sizeof where, "%.180s: metadata \"%s\"", printable_path(file->st.path).text, key);
    enum error_code e = json_parse(text, strlen(text), where, root, err);
    if (e || cJSON_IsObject(*root)) return e;
    cJSON_Delete(*root);
    *root = NULL;
    return actual_dump_bad(file, err, key, "is not an object");
}

/* ---- rank and mesh ----------------------------------------------------------------------------------------------- */

/* This is a file's mesh, and the order in which the file writes the axes: a rank's number counts in this order. */
struct axes { enum axis order[AXIS_COUNT]; int count; struct mesh mesh; };

/* Every file of a dump carries the mesh.  The list stays open to the end, since the error texts use it. */
static enum error_code read_mesh(const struct actual_file *file, struct axes *axes, struct error *err)
{
    cJSON *list;
    enum error_code e = read_object(file, "mesh", &list, err);
    if (!e && list == NULL)
        return actual_dump_bad(file, err, "mesh",
                               "is missing; it has the axes and their sizes, {\"dp\": 2, \"tp\": 2}");
    if (!e) e = actual_read_mesh(list, printable_path(file->st.path).text, &axes->mesh, axes->order, &axes->count, err);
    cJSON_Delete(list);
    return e;
}

/* Axes of size 1 may stand anywhere, or be left out. */
static bool same_mesh(const struct axes *a, const struct axes *b)
{
    /* Two lists are compared from left to right, past all axes of size 1. */
    int i = 0, j = 0;
    for (;;) {
        while (i < a->count && a->mesh.size[a->order[i]] == 1) i++;
        while (j < b->count && b->mesh.size[b->order[j]] == 1) j++;
        if (i == a->count || j == b->count) return i == a->count && j == b->count;
        if (a->order[i] != b->order[j] || a->mesh.size[a->order[i]] != b->mesh.size[b->order[j]]) return false;
        i++, j++;
    }
}

/* "coordinates" is optional.  With it the rank's place comes from its axes, not from its number.  Every axis with
 * more than one rank must be named. */
static enum error_code read_coordinates(struct actual_file *file, const struct axes *axes, struct error *err)
{
    cJSON *list;
    const cJSON *one;
    enum error_code e = read_object(file, "coordinates", &list, err);
    if (e || list == NULL) return e;
    bool has[AXIS_COUNT] = { false };
    int rank = 0;
    /* The rank starts at 0 and moves along each axis that the list names. */
    cJSON_ArrayForEach(one, list) {
        enum axis axis;
        int64_t n;
        if (e) break;
        if (!actual_axis(one->string, &axis) || !json_whole(one, &n) || n < 0 || n >= axes->mesh.size[axis])
            e = fail(err, ERR_FORMAT, "%s: metadata \"coordinates\": \"%s\" is not an axis with a place on it: 0 to "
                     "its size in \"mesh\" less 1", printable_path(file->st.path).text, printable(one->string).text);
        else rank = mesh_neighbour(&axes->mesh, rank, axis, (int)n), has[axis] = true;
    }
    for (enum axis a = 0; a < AXIS_COUNT && !e; a++)
        if (axes->mesh.size[a] > 1 && !has[a])
            e = fail(err, ERR_FORMAT, "%s: metadata \"coordinates\" has no \"%s\", which \"mesh\" has",
                     printable_path(file->st.path).text, axis_name(a));
    file->rank = rank;
    cJSON_Delete(list);
    return e;
}

/* "rank" is required and numbers the file's rank in the program's own order of axes.  "coordinates" may move the
 * rank to another place. */
static enum error_code read_rank(struct actual_file *file, const struct axes *axes, struct error *err)
{
    const char *text = safetensors_metadata(&file->st, "rank");
    char what[96];
    const int64_t n = text ? actual_dump_number(text, axes->mesh.devices - 1) : -1;
    snprintf(what, sizeof what, "must be the rank, a number of 0 to %d, because the mesh has %d ranks",
             axes->mesh.devices - 1, axes->mesh.devices);
    if (n < 0) return actual_dump_bad(file, err, "rank", what);
    file->number = (int)n;
    file->rank = actual_rank_of(&axes->mesh, axes->order, axes->count, file->number);
    return read_coordinates(file, axes, err);
}

static int by_rank(const void *a, const void *b)
{
    const struct actual_file *x = a, *y = b;
    return x->rank != y->rank ? (x->rank > y->rank) - (x->rank < y->rank) : strcmp(x->st.path, y->st.path);
}

/* Every place of the mesh has a rank with files, and one rank only. */
static enum error_code check_ranks(const struct actual *actual, struct error *err)
{
    int next = 0;
    char text[64];
    /* Files are sorted by rank, so a gap shows as a rank above `next`. */
    for (int f = 0; f < actual->files; f++) {
        const struct actual_file *x = &actual->file[f], *before = f > 0 ? &actual->file[f - 1] : NULL;
        if (before && before->rank == x->rank) {
            if (before->number == x->number) continue;
            return fail(err, ERR_FORMAT, "%s: rank %d has the coordinates of rank %d, %s, in %s",
                        printable_path(x->st.path).text, x->number, before->number,
                        mesh_describe(&actual->mesh, x->rank, text, sizeof text), printable_path(before->st.path).text);
        }
        if (x->rank > next) break;
        next++;
    }
    if (next == actual->mesh.devices) return OK;
    /* A place is empty.  If another place has two files, a wrong "rank" is the likely reason, and the message names
     * both files. */
    for (int f = 1; f < actual->files; f++)
        if (actual->file[f].rank == actual->file[f - 1].rank)
            return fail(err, ERR_FORMAT, "there is no file of the rank with %s, but two of rank %d: %s and %s",
                        mesh_describe(&actual->mesh, next, text, sizeof text), actual->file[f].number,
                        printable_path(actual->file[f - 1].st.path).text, printable_path(actual->file[f].st.path).text);
    return fail(err, ERR_FORMAT, "there is no file of the rank with %s, but \"mesh\" in %s has %d ranks; it must have "
                "those that were dumped", mesh_describe(&actual->mesh, next, text, sizeof text),
                printable_path(actual->file[0].st.path).text, actual->mesh.devices);
}

/* A rank must stand at one place in all of its files. */
static enum error_code check_numbers(const struct actual *actual, struct error *err)
{
    /* The list `of` has the first file of each number; later files of this number are compared with it. */
    const struct actual_file **of = calloc((size_t)actual->mesh.devices, sizeof *of);
    enum error_code e = of ? OK : fail(err, ERR_MEMORY, "no memory for %d ranks", actual->mesh.devices);
    for (int f = 0; f < actual->files && !e; f++) {
        const struct actual_file *x = &actual->file[f], *y = of[x->number];
        if (y && y->rank != x->rank)
            e = fail(err, ERR_FORMAT, "%s: rank %d has other coordinates than in %s", printable_path(x->st.path).text,
                     x->number, printable_path(y->st.path).text);
        of[x->number] = x;
    }
    free(of);
    return e;
}

/* ---- what holds for the whole dump ------------------------------------------------------------------------------- */

/* This function reads a key with a format, such as "dtype".  All files that have the key must agree; *out keeps the
 * first file's format. */
static enum error_code read_format(const struct actual_file *file, const char *key, enum dtype *out, struct error *err)
{
    static const enum dtype formats[] = { F64, F32, BF16, F16 };
    const char *text = safetensors_metadata(&file->st, key);
    for (int i = 0; text && i < 4; i++)
        if (strcmp(text, dtype_name(formats[i])) == 0) {
            if (*out != DTYPE_COUNT && *out != formats[i])
                return actual_dump_bad(file, err, key, "is not that of the files before it");
            *out = formats[i];
            return OK;
        }
    return text ? actual_dump_bad(file, err, key, "is none of fp64, fp32, bf16, fp16") : OK;
}

/* "parts" says how many stored parts of each product the program adds up, as the option --parts does. */
static enum error_code read_parts(struct actual *actual, const struct actual_file *file, struct error *err)
{
    const char *text = safetensors_metadata(&file->st, "parts");
    if (text == NULL) return OK;
    const int64_t n = actual_dump_number(text, 64);
    if (n < 1) return actual_dump_bad(file, err, "parts", "is not a number of 1 to 64");
    if (actual->parts > 0 && actual->parts != (int)n)
        return actual_dump_bad(file, err, "parts", "is not that of the files before it");
    actual->parts = (int)n;
    return OK;
}

/* "begins" says after which step a program was resumed whose dump begins there. */
static enum error_code read_begins(struct actual *actual, const struct actual_file *file, struct error *err)
{
    const char *text = safetensors_metadata(&file->st, "begins");
    const int64_t n = text ? actual_dump_number(text, INT32_MAX) : 0;
    if (text && n < 1)
        return actual_dump_bad(file, err, "begins", "is not the number of a step after which the program was resumed");
    if (file != actual->file && actual->begins != n)
        return actual_dump_bad(file, err, "begins", "is not that of the files before it");
    actual->begins = n;
    return OK;
}

/* "arithmetic" says whether sums round before they are finished, as `orrery train --arithmetic` does. */
static enum error_code read_arithmetic(struct actual *actual, const struct actual_file *file, struct error *err)
{
    const char *const text = safetensors_metadata(&file->st, "arithmetic");
    const enum exact_rule exact = exact_rule_named(text);
    if (text && strcmp(text, exact_rule_names[exact]) != 0)
        return actual_dump_bad(file, err, "arithmetic", "is none of ordinary, exact, exact2");
    if (file != actual->file && actual->exact != exact)
        return actual_dump_bad(file, err, "arithmetic", "is not that of the files before it");
    actual->exact = exact;
    return OK;
}

/* The loss scale is a power of two, so that numbers divided by it lose no bits. */
static enum error_code read_loss_scale(struct actual *actual, const struct actual_file *file, struct error *err)
{
    const char *const text = safetensors_metadata(&file->st, "loss_scale");
    char *end = NULL;
    int exponent;
    if (text == NULL) return OK;
    actual->loss_scale = strtod(text, &end);
    if (end == text || *end || !(actual->loss_scale > 0) || frexp(actual->loss_scale, &exponent) != 0.5)
        return actual_dump_bad(file, err, "loss_scale", "is not a power of two");
    return OK;
}

enum error_code actual_read_computation(struct actual *actual, const struct actual_file *file, struct error *err)
{
    enum error_code e = read_arithmetic(actual, file, err);
    if (e || safetensors_metadata(&file->st, "arithmetic") == NULL) return e;
    e = read_format(file, "dtype", &actual->dtype, err);
    return e ? e : read_loss_scale(actual, file, err);
}

/* These keys hold for the whole dump.  The first file that names its program gives the name for messages. */
static enum error_code read_common(struct actual *actual, const struct actual_file *file, struct error *err)
{
    const char *program = safetensors_metadata(&file->st, "program");
    if (program && actual->program == NULL) actual->program = program;
    if (strcmp(safetensors_metadata(&file->st, "orrery_dump"), VERSION) != 0)
        return actual_dump_bad(file, err, "orrery_dump",
                               "must be \"1\", the version of the format that this program reads");
    enum error_code e = read_format(file, "dtype", &actual->dtype, err);
    if (!e) e = read_format(file, "sums", &actual->sums, err);
    if (!e) e = read_parts(actual, file, err);
    if (!e) e = read_arithmetic(actual, file, err);
    return e ? e : read_begins(actual, file, err);
}

/* A key with a slip in it would be as if it were not there.  "format" is what the safetensors library writes. */
static enum error_code check_keys(const struct actual_file *file, struct error *err)
{
    static const char *const known[] = { "orrery_dump", "rank", "mesh", "coordinates", "dtype", "sums", "parts",
                                         "arithmetic", "begins", "program", "layout", "left_out", "not_recorded",
                                         "adapters", "trained", "format" };
    for (int i = 0; i < file->st.metadata_count; i++) {
        bool found = false;
        for (size_t k = 0; k < sizeof known / sizeof *known; k++)
            found = found || strcmp(file->st.metadata[i].key, known[k]) == 0;
        if (!found)
            return fail(err, ERR_FORMAT, "%s: metadata \"%.60s\" is none of orrery_dump, rank, mesh, coordinates, "
                        "dtype, sums, parts, arithmetic, begins, program, layout, left_out, not_recorded, adapters, "
                        "trained, format",
                        printable_path(file->st.path).text,
                        printable(file->st.metadata[i].key).text);
    }
    return OK;
}

/* Read all metadata of a file.  The order matters: coordinates need the mesh, and later files compare their mesh
 * with the first. */
static enum error_code read_file(struct actual *actual, struct actual_file *file, struct axes *first, struct error *err)
{
    struct axes own;
    enum error_code e = check_keys(file, err);
    if (!e) e = read_common(actual, file, err);
    if (!e) e = read_mesh(file, &own, err);
    if (!e && file == actual->file) *first = own;
    if (!e && !same_mesh(first, &own))
        e = fail(err, ERR_FORMAT, "%s: metadata \"mesh\" is not that of %s; all files of a dump have the same",
                 printable_path(file->st.path).text, printable_path(actual->file[0].st.path).text);
    if (!e) e = read_rank(file, first, err);
    if (!e) e = read_object(file, "left_out", &file->left_out, err);
    if (!e) e = actual_read_declared(file, err);
    if (!e) e = adapters_read(&actual->adapters, &file->st, err);
    return e ? e : read_object(file, "layout", &file->layout, err);
}

/* ---- the list of tensors ----------------------------------------------------------------------------------------- */

/* A key is NAME or NAME#PIECE; the name ends before the first #. */
static int name_length(const char *key)
{
    const char *mark = strchr(key, '#');
    return mark ? (int)(mark - key) : (int)strlen(key);
}

/* Entries are sorted by name, then rank, then key.  actual_entries searches this order by halves. */
static int by_name(const void *a, const void *b)
{
    const struct actual_entry *x = a, *y = b;
    const int n = x->length < y->length ? x->length : y->length;
    const int c = memcmp(x->stored->name, y->stored->name, (size_t)n);
    if (c != 0) return c;
    if (x->length != y->length) return x->length < y->length ? -1 : 1;
    if (x->file->rank != y->file->rank) return x->file->rank < y->file->rank ? -1 : 1;
    return strcmp(x->stored->name, y->stored->name);
}

/* Each key of a layout must be a tensor of the file: a slip in a key would leave its tensor described as whole. */
static enum error_code check_layout(const struct actual_file *file, struct error *err)
{
    const cJSON *one;
    cJSON_ArrayForEach(one, file->layout)
        if (safetensors_find(&file->st, one->string) == NULL)
            return fail(err, ERR_FORMAT, "%s: metadata \"layout\" describes \"%s\", but the file has no such tensor",
                        printable_path(file->st.path).text, printable(one->string).text);
    return OK;
}

static int by_key(const void *a, const void *b)
{
    return strcmp((*(const cJSON *const *)a)->string, (*(const cJSON *const *)b)->string);
}

/* The layouts of a file in order of their keys, which is that of file.st.by_name. */
static enum error_code list_file(struct actual *actual, const struct actual_file *file, struct error *err)
{
    const int n = cJSON_GetArraySize(file->layout);
    const cJSON **layout = calloc((size_t)n + 1, sizeof *layout), *one;
    enum error_code e = layout ? OK : fail(err, ERR_MEMORY, "no memory for a layout");
    if (!e && !file->pruned) e = check_layout(file, err);
    int found = 0, next = 0;
    cJSON_ArrayForEach(one, file->layout)
        if (!e) layout[found++] = one;
    if (found > 0) qsort(layout, (size_t)found, sizeof *layout, by_key);
    /* Both lists are in order of keys, so a single pass finds each tensor's description. */
    for (int i = 0; i < file->st.count && !e; i++) {
        const struct safetensors_entry *stored = file->st.by_name[i];
        struct actual_entry *x = &actual->entry[actual->entries++];
        *x = (struct actual_entry){ .file = file, .stored = stored, .length = name_length(stored->name) };
        while (next < found && strcmp(layout[next]->string, stored->name) < 0) next++;
        if (next < found && strcmp(layout[next]->string, stored->name) == 0) x->layout = layout[next++];
        e = actual_check_entry(actual, x, err);
    }
    free(layout);
    return e;
}

/* List the tensors of all files.  Two files of one rank may not have the same key. */
static enum error_code list_entries(struct actual *actual, struct error *err)
{
    size_t room = 1;
    /* The room has one element more than tensors, since calloc of nothing may return NULL. */
    for (int f = 0; f < actual->files; f++) room += (size_t)actual->file[f].st.count;
    actual->entry = calloc(room, sizeof *actual->entry);
    enum error_code e = actual->entry ? OK : fail(err, ERR_MEMORY, "no memory for %zu tensors", room);
    for (int f = 0; f < actual->files && !e; f++) e = list_file(actual, &actual->file[f], err);
    if (!e && actual->entries > 0) qsort(actual->entry, (size_t)actual->entries, sizeof *actual->entry, by_name);
    for (int i = 1; i < actual->entries && !e; i++) {
        const struct actual_entry *x = &actual->entry[i - 1], *y = &actual->entry[i];
        if (x->file->rank == y->file->rank && strcmp(x->stored->name, y->stored->name) == 0)
            e = fail(err, ERR_FORMAT, "%s: \"%s\" of rank %d is in %s, too; pieces of one tensor have names of their "
                     "own, NAME#PIECE", printable_path(y->file->st.path).text, printable(y->stored->name).text,
                     y->file->number, printable_path(x->file->st.path).text);
    }
    return e;
}

enum error_code actual_open_alone(struct actual *actual, struct error *err)
{
    struct axes axes;
    enum error_code e = read_file(actual, actual->file, &axes, err);
    if (e) return e;
    actual->mesh = axes.mesh;
    return list_entries(actual, err);
}

enum error_code actual_open_dump(struct actual *actual, struct error *err)
{
    struct axes first;
    enum error_code e = OK;
    /* Each step below relies on those before it: numbers are checked after the sort, holes after the numbers. */
    for (int f = 0; f < actual->files && !e; f++) e = read_file(actual, &actual->file[f], &first, err);
    if (e) return e;
    actual->mesh = first.mesh;
    qsort(actual->file, (size_t)actual->files, sizeof *actual->file, by_rank);
    e = check_numbers(actual, err);
    if (!e) e = check_ranks(actual, err);
    return e ? e : list_entries(actual, err);
}

const struct actual_entry *actual_entries(const struct actual *actual, const char *ours, int *count)
{
    const int length = (int)strlen(ours);
    int low = 0, high = actual->entries;
    while (low < high) {                                /* the first entry that does not come before the name */
        const int middle = low + (high - low) / 2;
        const struct actual_entry *x = &actual->entry[middle];
        const int n = x->length < length ? x->length : length, c = memcmp(x->stored->name, ours, (size_t)n);
        if (c < 0 || (c == 0 && x->length < length)) low = middle + 1;
        else high = middle;
    }
    *count = 0;
    /* Entries of one name follow each other; no entry of another name is between them. */
    while (low + *count < actual->entries && actual->entry[low + *count].length == length &&
           memcmp(actual->entry[low + *count].stored->name, ours, (size_t)length) == 0)
        ++*count;
    return *count > 0 ? &actual->entry[low] : NULL;
}
