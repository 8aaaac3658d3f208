/* actual_entry.c -- the piece of a tensor that an entry of a dump's layout describes (docs/checking/dumps.md).
 * actual_dump.c checks every entry when the dump is opened, without knowing the tensor's shape: ERR_FORMAT.  actual.c
 * makes a piece when a tensor is compared and its rows and columns are known: ERR_CHECK. */
#include "emulated_devices/check/dump/actual_open.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Fail at an entry: the message names the tensor and its file. */
static enum error_code actual_entry_bad(const struct actual_entry *entry, enum error_code code, struct error *err,
                                        const char *what)
{
    return fail(err, code, "%s in %s: %s", printable(entry->stored->name).text,
                printable_path(entry->file->st.path).text, what);
}

/* ---- without the tensor ------------------------------------------------------------------------------------------ */

/* Read two whole numbers of at least 0. */
static bool pair(const cJSON *list, int64_t out[2])
{
    const cJSON *first = cJSON_IsArray(list) ? list->child : NULL, *second = first ? first->next : NULL;
    return second && second->next == NULL && json_whole(first, &out[0]) && json_whole(second, &out[1]) && out[0] >= 0 &&
           out[1] >= 0;
}

/* Whether a list consists of pairs [begin, count]. */
static bool actual_entry_pairs(const cJSON *list)
{
    const cJSON *one;
    int64_t at[2];
    cJSON_ArrayForEach(one, list)
        if (!pair(one, at)) return false;
    return cJSON_IsArray(list);
}

/* Whether the axis may be one of "partial": it adds up more than one rank, and is named once. */
static bool adds_up(const struct actual *actual, const char *name, unsigned axes, enum axis *axis)
{
    return name && actual_axis(name, axis) && actual->mesh.size[*axis] > 1 && !(axes & AXIS_BIT(*axis));
}

/* Places along an axis: pairs in ascending order, inside the axis, with that of the entry's own rank. */
static bool are_places(const struct actual *actual, const struct actual_entry *entry, const cJSON *list, enum axis axis)
{
    const cJSON *one;
    int64_t at[2], next = 0;
    bool own = false;
    cJSON_ArrayForEach(one, list) {
        if (!pair(one, at) || at[0] < next || at[1] < 1 || at[1] > actual->mesh.size[axis] - at[0]) return false;
        const int place = mesh_coordinate(&actual->mesh, entry->file->rank, axis);
        own = own || (place >= at[0] && place < at[0] + at[1]);
        next = at[0] + at[1];
    }
    return cJSON_IsArray(list) && own;
}

/* "partial" is a list of axes, or an object that has some places along each.  The result has a bit for each axis; an
 * axis of size 1 adds nothing up and is refused. */
static enum error_code read_axes(const struct actual *actual, const struct actual_entry *entry, const cJSON *list,
                                 unsigned *axes, struct error *err)
{
    const cJSON *one;
    char what[200];
    *axes = 0;
    if (list == NULL) return OK;
    if (!cJSON_IsArray(list) && !cJSON_IsObject(list))
        return actual_entry_bad(entry, ERR_FORMAT, err, "\"partial\" is not a list of axes, [\"tp\"], nor an object "
                                "with places along each, {\"tp\": [[0, 2]]}");
    cJSON_ArrayForEach(one, list) {
        enum axis axis;
        const char *const name = cJSON_IsObject(list) ? one->string : cJSON_GetStringValue(one);
        if (!adds_up(actual, name, *axes, &axis)) {
            snprintf(what, sizeof what, "\"partial\": \"%.40s\" is not an axis of the mesh with more than one rank, "
                     "once", name ? printable(name).text : "?");
            return actual_entry_bad(entry, ERR_FORMAT, err, what);
        }
        if (cJSON_IsObject(list) && !are_places(actual, entry, one, axis)) {
            snprintf(what, sizeof what, "\"partial\": \"%.40s\" is not a list of [begin, count], places of 0 to %d in "
                     "ascending order, with that of its rank", printable(name).text, actual->mesh.size[axis] - 1);
            return actual_entry_bad(entry, ERR_FORMAT, err, what);
        }
        *axes |= AXIS_BIT(axis);
    }
    return OK;
}

/* Whether a sum is over this place along an axis, if it is over some of them. */
static bool has_place(const cJSON *places, enum axis axis, int place)
{
    const cJSON *list = places ? cJSON_GetObjectItemCaseSensitive(places, axis_name(axis)) : NULL, *one;
    int64_t at[2];
    cJSON_ArrayForEach(one, list)
        if (pair(one, at) && place >= at[0] && place < at[0] + at[1]) return true;
    return list == NULL;
}

int actual_members(const struct actual *actual, const struct actual_piece *piece, int rank[])
{
    const struct mesh *const mesh = &actual->mesh;
    const int all = mesh_members(mesh, piece->file->rank, piece->partial, rank);
    int members = 0;
    for (int i = 0; i < all; i++) {
        bool is_member = true;
        for (enum axis a = 0; a < AXIS_COUNT; a++)
            is_member = is_member && has_place(piece->places, a, mesh_coordinate(mesh, rank[i], a));
        if (is_member) rank[members++] = rank[i];
    }
    return members;
}

bool actual_same_sum(const struct actual *actual, const struct actual_piece *a, const struct actual_piece *b)
{
    if (a->partial != b->partial) return false;
    for (enum axis axis = 0; axis < AXIS_COUNT && (a->places || b->places); axis++)
        for (int i = 0; i < actual->mesh.size[axis] && a->partial & AXIS_BIT(axis); i++)
            if (has_place(a->places, axis, i) != has_place(b->places, axis, i)) return false;
    return true;
}

int actual_parts_of_entry(const struct actual *actual, const struct actual_entry *entry)
{
    const cJSON *const partial = cJSON_GetObjectItemCaseSensitive(entry->layout, "partial"), *one;
    int parts = 1;
    cJSON_ArrayForEach(one, partial) {
        enum axis axis;
        if (!actual_axis(cJSON_IsObject(partial) ? one->string : one->valuestring, &axis)) continue;
        int places = 0;
        for (int i = 0; i < actual->mesh.size[axis]; i++)
            places += !cJSON_IsObject(partial) || has_place(partial, axis, i);
        parts *= places;
    }
    return parts;
}

/* A factor of 0 would hide every number of the piece. */
static bool is_times(const cJSON *v) { return cJSON_IsNumber(v) && isfinite(v->valuedouble) && v->valuedouble != 0; }

static bool is_whole(const cJSON *v, int64_t most)
{
    int64_t n;
    return json_whole(v, &n) && n >= 0 && n <= most;
}

/* Say what is wrong with a field of an entry.  NULL: nothing is wrong.  An empty text: the field is unknown. */
static const char *check_field(const cJSON *v)
{
    int64_t at[2];
    if (strcmp(v->string, "of") == 0) return pair(v, at) ? NULL : "\"of\" is not [rows, columns], whole numbers";
    if (strcmp(v->string, "rows") == 0)
        return actual_entry_pairs(v) ? NULL : "\"rows\" is not a list of [begin, count], whole numbers of 0 to 2^53";
    if (strcmp(v->string, "cols") == 0)
        return actual_entry_pairs(v) ? NULL : "\"cols\" is not a list of [begin, count], whole numbers of 0 to 2^53";
    if (strcmp(v->string, "flat") == 0)
        return pair(v, at) ? NULL : "\"flat\" is not [begin, count], whole numbers of 0 to 2^53";
    if (strcmp(v->string, "transposed") == 0) return cJSON_IsBool(v) ? NULL : "\"transposed\" is not true or false";
    if (strcmp(v->string, "times") == 0) return is_times(v) ? NULL : "\"times\" is not a number other than 0";
    if (strcmp(v->string, "micro") == 0)
        return is_whole(v, ACTUAL_MOST_MICROS - 1) ? NULL : "\"micro\" is not the number of a microbatch, 0 to 4095";
    if (strcmp(v->string, "step") == 0) return "\"step\" is no field: names say of which step, adamw/2/weight/NAME";
    if (strcmp(v->string, "partial") == 0) return NULL;
    return "";
}

/* Fields that do not need the tensor's shape are checked here, so a broken dump fails when it is opened. */
enum error_code actual_check_entry(const struct actual *actual, const struct actual_entry *entry, struct error *err)
{
    const cJSON *v;
    char what[160];
    unsigned axes;
    if (entry->length == 0)
        return actual_entry_bad(entry, ERR_FORMAT, err, "its name is empty; it must be NAME or NAME#PIECE");
    if (entry->layout == NULL) return OK;
    if (!cJSON_IsObject(entry->layout)) return actual_entry_bad(entry, ERR_FORMAT, err, "its layout is not an object");
    cJSON_ArrayForEach(v, entry->layout) {
        const char *wrong = check_field(v);
        if (wrong && wrong[0]) return actual_entry_bad(entry, ERR_FORMAT, err, wrong);
        /* An empty text from check_field means that the field's name is unknown. */
        if (wrong == NULL) continue;
        snprintf(what, sizeof what, "its layout has \"%.40s\", which is none of of, rows, cols, flat, partial, "
                 "transposed, times, micro, step", printable(v->string).text);
        return actual_entry_bad(entry, ERR_FORMAT, err, what);
    }
    /* A flat piece is a range of the tensor's elements: rows, columns and a transpose mean nothing there. */
    if (json_has(entry->layout, "flat") &&
        (json_has(entry->layout, "rows") || json_has(entry->layout, "cols") ||
         cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(entry->layout, "transposed"))))
        return actual_entry_bad(entry, ERR_FORMAT, err, "\"flat\" goes with none of rows, cols, transposed");
    return read_axes(actual, entry, cJSON_GetObjectItemCaseSensitive(entry->layout, "partial"), &axes, err);
}

/* ---- of the tensor ----------------------------------------------------------------------------------------------- */

/* Fail with ERR_CHECK: an interval leaves the golden tensor. */
static enum error_code outside(const struct actual_entry *entry, const char *key, const int64_t at[2], int64_t dim,
                               const char *what, struct error *err)
{
    char text[160];
    snprintf(text, sizeof text, "\"%s\": %lld from %lld are not inside the golden %lld %s", key, (long long)at[1],
             (long long)at[0], (long long)dim, what);
    return actual_entry_bad(entry, ERR_CHECK, err, text);
}

/* This function reads the intervals of "rows" or "cols" in their order.  Without the key the piece has all of
 * them. */
static enum error_code read_intervals(const struct actual_entry *entry, const char *key, int64_t dim, const char *what,
                                      struct intervals *out, struct error *err)
{
    const cJSON *list = entry->layout ? cJSON_GetObjectItemCaseSensitive(entry->layout, key) : NULL, *one;
    if (list == NULL) intervals_add(out, (struct interval){ 0, dim });
    cJSON_ArrayForEach(one, list) {
        int64_t at[2];
        /* at[0] + at[1] could overflow, so the count is compared with the space that is left. */
        if (!pair(one, at) || at[0] > dim || at[1] > dim - at[0]) return outside(entry, key, at, dim, what, err);
        intervals_add(out, (struct interval){ at[0], at[1] });
    }
    return OK;
}

/* "of" is a check only: the dump's author may state the shape of the whole tensor. */
static enum error_code check_whole(const struct actual_entry *entry, const int64_t dim[2], struct error *err)
{
    const cJSON *of = cJSON_GetObjectItemCaseSensitive(entry->layout, "of");
    char text[160];
    int64_t have[2];
    if (of == NULL || (pair(of, have) && have[0] == dim[0] && have[1] == dim[1])) return OK;
    snprintf(text, sizeof text, "it is of %lld x %lld (\"of\"), but the golden tensor is %lld x %lld",
             (long long)have[0], (long long)have[1], (long long)dim[0], (long long)dim[1]);
    return actual_entry_bad(entry, ERR_CHECK, err, text);
}

/* The part of a flat piece is a range of rows of an [n, 1] matrix.  The file may have padding after the range. */
static enum error_code read_flat(const struct actual_entry *entry, const cJSON *flat, const int64_t dim[2],
                                 struct part *part, struct error *err)
{
    const int64_t n = dim[0] * dim[1];
    int64_t at[2];
    if (!pair(flat, at) || at[0] > n || at[1] > n - at[0]) return outside(entry, "flat", at, n, "elements", err);
    *part = (struct part){ .dim = { n, 1 }, .cols = intervals_whole(1) };
    intervals_add(&part->rows, (struct interval){ at[0], at[1] });
    if (entry->stored->count >= at[1]) return OK;
    char text[160];
    snprintf(text, sizeof text, "it has %lld elements, but \"flat\" says %lld", (long long)entry->stored->count,
             (long long)at[1]);
    return actual_entry_bad(entry, ERR_CHECK, err, text);
}

/* The part is the product of row ranges and column ranges.  The stored shape must be exactly as large. */
static enum error_code read_box(const struct actual_entry *entry, const int64_t dim[2], bool transposed,
                                struct part *part, struct error *err)
{
    int64_t shape[2];
    char text[200];
    *part = (struct part){ .dim = { dim[0], dim[1] } };
    enum error_code e = read_intervals(entry, "rows", dim[0], "rows", &part->rows, err);
    if (!e) e = read_intervals(entry, "cols", dim[1], "columns", &part->cols, err);
    if (e) return e;
    if (transposed && entry->stored->ndim != 2)
        return actual_entry_bad(entry, ERR_CHECK, err, "only a matrix can be transposed");
    const int64_t rows = intervals_total(&part->rows), cols = intervals_total(&part->cols);
    actual_shape(entry->stored, transposed, shape);
    if (shape[0] == rows && shape[1] == cols) return OK;
    snprintf(text, sizeof text, "it is %lld x %lld%s, but its part of the golden %lld x %lld is %lld x %lld",
             (long long)shape[0], (long long)shape[1], transposed ? " (the transpose)" : "", (long long)dim[0],
             (long long)dim[1], (long long)rows, (long long)cols);
    return actual_entry_bad(entry, ERR_CHECK, err, text);
}

/* Whole numbers, fp8 and other formats of safetensors cannot be compared and are refused. */
static bool is_real(const struct safetensors_entry *entry)
{
    static const char *const real[] = { "F64", "F32", "BF16", "F16" };
    for (int i = 0; i < 4; i++)
        if (strcmp(entry->dtype, real[i]) == 0) return true;
    return false;
}

enum error_code actual_piece_of_entry(const struct actual *actual, const struct actual_entry *entry,
                                      const int64_t dim[2], struct actual_piece *piece, struct error *err)
{
    const cJSON *flat = NULL, *v;
    *piece = (struct actual_piece){ .file = entry->file, .stored = entry->stored, .times = 1,
                                   .micro = ACTUAL_NO_MICRO };
    if (!is_real(entry->stored))
        return actual_entry_bad(entry, ERR_CHECK, err, "its numbers are none of F64, F32, BF16, F16");
    /* A piece of a dump has exactly one part. */
    piece->part = calloc(1, sizeof *piece->part);
    if (piece->part == NULL) return fail(err, ERR_MEMORY, "no memory for a layout");
    enum error_code e = OK;
    /* Values were checked by actual_check_entry; here they are only taken. */
    if (entry->layout) {
        flat = cJSON_GetObjectItemCaseSensitive(entry->layout, "flat");
        piece->transposed = cJSON_IsTrue(cJSON_GetObjectItemCaseSensitive(entry->layout, "transposed"));
        if ((v = cJSON_GetObjectItemCaseSensitive(entry->layout, "times")) != NULL) piece->times = v->valuedouble;
        if ((v = cJSON_GetObjectItemCaseSensitive(entry->layout, "micro")) != NULL) piece->micro = v->valueint;
        v = cJSON_GetObjectItemCaseSensitive(entry->layout, "partial");
        if (cJSON_IsObject(v)) piece->places = v;
        e = read_axes(actual, entry, v, &piece->partial, err);
        if (!e) e = check_whole(entry, dim, err);
    }
    if (!e) e = flat ? read_flat(entry, flat, dim, piece->part, err)
        : read_box(entry, dim, piece->transposed, piece->part, err);
    /* A list of intervals without memory shows only here, when the part is complete. */
    if (!e && !part_made(piece->part)) e = fail(err, ERR_MEMORY, "no memory for a layout");
    piece->parts = 1;
    piece->count = e ? 0 : part_count(piece->part);
    if (e) part_free(piece->part), free(piece->part);
    return e;
}
