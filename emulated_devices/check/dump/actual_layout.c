/* actual_layout.c -- the part of a tensor in one rank's file, from the map and the shapes in the files.
 * actual.c calls actual_piece_of_map for each rank that has the tensor.  actual_entry.c uses actual_shape, too.
 * Errors: ERR_CHECK if shapes do not fit, ERR_FORMAT if the map is wrong, ERR_MEMORY. */
#include "emulated_devices/check/dump/actual_open.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* This says where a rank's tensor of ACTUAL is. */
struct where {
    const struct actual *a;
    const char *ours, *theirs;
    int rank;
    const int64_t *dim;                 /* [2] of the whole */
    bool transposed;
    bool loose;                         /* a list of boxes, or a flat piece: the shape in the file is not compared */
    bool padded;                        /* the file may have padding after them */
};

/* Fail with ERR_CHECK at this rank's tensor. */
static enum error_code actual_layout_bad(const struct where *where, struct error *err, const char *what)
{
    return fail(err, ERR_CHECK, "%s in %s: %s", printable(where->theirs).text,
                printable_path(where->a->file[where->rank].st.path).text, what);
}

/* A tensor [.., last] becomes rows x columns; a vector [n] becomes n rows and a single column. */
void actual_shape(const struct safetensors_entry *entry, bool transposed, int64_t shape[2])
{
    const int64_t last = entry->ndim > 1 ? entry->dim[entry->ndim - 1] : 1, rest = last > 0 ? entry->count / last : 0;
    shape[0] = transposed ? last : rest;
    shape[1] = transposed ? rest : last;
}

/* Write the shape in a rank's file. */
static bool shape_of(const struct where *where, int rank, int64_t shape[2])
{
    const struct safetensors_entry *e = safetensors_find(&where->a->file[rank].st, where->theirs);
    if (e) actual_shape(e, where->transposed, shape);
    return e != NULL;
}

/* Read the axis that an entry's "over" names. */
static enum error_code axis_of(const struct where *where, const cJSON *entry, enum axis *axis, struct error *err)
{
    const char *over;
    enum error_code e = json_string(entry, where->a->map_path, "over", &over, err);
    if (e || actual_axis(over, axis)) return e;
    return fail(err, ERR_FORMAT, "%s: layout: \"over\": \"%s\" is not one of pp, dp, cp, ep, tp",
                printable_path(where->a->map_path).text, printable(over).text);
}

/* Rows, columns or elements that the pieces along an axis have: those before this rank's, its own, and all. */
struct pieces { int64_t before, own, all; };

/* Add up the sizes of the pieces along an axis, as the ranks' files have them.  A fused matrix has `parts` equal
 * parts; all numbers are those of a single part.  @param d rows or columns; -1: elements. */
static enum error_code add_pieces(const struct where *where, enum axis axis, int d, int64_t parts,
                                  struct pieces *pieces, struct error *err)
{
    const int place = mesh_coordinate(&where->a->mesh, where->rank, axis);
    *pieces = (struct pieces){ 0 };
    for (int i = 0; i < where->a->mesh.size[axis]; i++) {
        /* The neighbours along the axis have the other pieces; each must have the tensor, or the sizes cannot be
         * added up. */
        int64_t shape[2];
        if (!shape_of(where, mesh_neighbour(&where->a->mesh, where->rank, axis, i), shape))
            return actual_layout_bad(where, err, "a rank beside it has no piece of it");
        const int64_t n = d < 0 ? shape[0] * shape[1] : shape[d];
        if (n % parts != 0) return actual_layout_bad(where, err, "its columns cannot be cut into that many parts");
        if (i < place) pieces->before += n / parts;
        if (i == place) pieces->own = n / parts;
        pieces->all += n / parts;
    }
    return OK;
}

/* Contiguous pieces: this one begins at the end of those before it. */
static enum error_code contiguous(const struct where *where, const cJSON *entry, int d, struct intervals *intervals,
                                  struct error *err)
{
    enum axis axis;
    struct pieces has;
    int64_t parts = 1;
    enum error_code e = axis_of(where, entry, &axis, err);
    if (!e && json_has(entry, "parts"))
        e = json_int(entry, where->a->map_path, "parts", 1, where->dim[d] > 0 ? where->dim[d] : 1, &parts, err);
    if (!e) e = add_pieces(where, axis, d, parts, &has, err);
    if (e) return e;
    /* The pieces must cover the golden tensor exactly, or a rank's first row would be a guess. */
    if (has.all * parts != where->dim[d]) {
        char text[128];
        snprintf(text, sizeof text, "over %s the pieces have %lld %s together, not %lld", axis_name(axis),
                 (long long)(has.all * parts), d ? "columns" : "rows", (long long)where->dim[d]);
        return actual_layout_bad(where, err, text);
    }
    /* Each of the P parts has a range for this rank: it begins `before` rows or columns after the part's begin. */
    for (int64_t p = 0; p < parts; p++)
        intervals_add(intervals, (struct interval){ p * (where->dim[d] / parts) + has.before, has.own });
    return OK;
}

/* Rank r of n has the chunks r and 2n-1-r of each sequence.  With a causal mask all ranks then have equal work. */
static enum error_code zigzag(const struct where *where, const cJSON *entry, struct intervals *intervals,
                              struct error *err)
{
    enum axis axis;
    int64_t sequences = 1;
    enum error_code e = axis_of(where, entry, &axis, err);
    if (!e && json_has(entry, "sequences"))
        e = json_int(entry, where->a->map_path, "sequences", 1, where->dim[0] > 0 ? where->dim[0] : 1, &sequences, err);
    if (e) return e;
    const int n = where->a->mesh.size[axis], r = mesh_coordinate(&where->a->mesh, where->rank, axis);
    const int64_t S = where->dim[0] / sequences;
    if (S * sequences != where->dim[0])
        return actual_layout_bad(where, err, "its rows are not that many sequences of one length");
    /* Each sequence has 2 n chunks, and its rows follow those of the sequence before. */
    for (int64_t b = 0; b < sequences; b++) {
        const int chunk[2] = { r, 2 * n - 1 - r };
        for (int c = 0; c < 2; c++) intervals_add(intervals, interval_moved(block_at(S, 2 * n, chunk[c]), b * S));
    }
    return OK;
}

/* This function makes room for n parts.  piece->parts is set with the list, so an error path frees what exists. */
static bool make_parts(struct actual_piece *piece, int n)
{
    piece->part = calloc((size_t)n + 1, sizeof *piece->part);
    piece->parts = piece->part ? n : 0;
    return piece->part != NULL;
}

/* Shards of a tensor as one row of numbers, as FSDP has them.  The last rank's padding lies after the tensor's end
 * and is cut off. */
static enum error_code flat(struct where *where, const cJSON *entry, struct actual_piece *piece, struct error *err)
{
    enum axis axis;
    struct pieces has;
    const int64_t n = where->dim[0] * where->dim[1];
    enum error_code e = axis_of(where, entry, &axis, err);
    if (!e) e = add_pieces(where, axis, -1, 1, &has, err);
    if (e) return e;
    /* A rank whose shard is padding only begins at the end and has no element. */
    const int64_t first = has.before < n ? has.before : n;
    if (!make_parts(piece, 1)) return fail(err, ERR_MEMORY, "no memory for a layout");
    where->loose = where->padded = true;
    *piece->part = (struct part){ .dim = { n, 1 }, .cols = intervals_whole(1) };
    intervals_add(&piece->part->rows, (struct interval){ first, has.own < n - first ? has.own : n - first });
    return OK;
}

/* Read [[row, column], [rows, columns]]; a vector needs no columns.  @return false if the box leaves the tensor. */
static bool box_from(const cJSON *box, const int64_t dim[2], struct part *part)
{
    int64_t at[2][2];
    if (cJSON_GetArraySize(box) != 2) return false;
    for (int i = 0; i < 2; i++)
        for (int d = 0; d < 2; d++) {
            const cJSON *list = cJSON_GetArrayItem(box, i), *n = cJSON_GetArrayItem(list, d);
            if (d >= cJSON_GetArraySize(list) && d == 1) at[i][d] = i;          /* a vector: column 0, count 1 */
            else if (n == NULL || !json_whole(n, &at[i][d])) return false;
        }
    *part = (struct part){ .dim = { dim[0], dim[1] } };
    for (int d = 0; d < 2; d++) {
        if (at[0][d] < 0 || at[1][d] < 0 || at[0][d] > dim[d] || at[1][d] > dim[d] - at[0][d]) return false;
        intervals_add(d ? &part->cols : &part->rows, (struct interval){ at[0][d], at[1][d] });
    }
    return true;
}

/* The map lists each rank's boxes one by one; their elements follow each other in the rank's file. */
static enum error_code boxes(struct where *where, const cJSON *entry, struct actual_piece *piece, struct error *err)
{
    const cJSON *all, *own, *one;
    enum error_code e = json_array(entry, where->a->map_path, "boxes", &all, err);
    if (e) return e;
    own = cJSON_GetArrayItem(all, where->rank);
    if (!cJSON_IsArray(own)) return actual_layout_bad(where, err, "\"boxes\" has no list for its rank");
    if (!make_parts(piece, cJSON_GetArraySize(own))) return fail(err, ERR_MEMORY, "no memory for a layout");
    int i = 0;
    /* The k-th box of the rank's list becomes part k; only the number of elements must fit. */
    where->loose = true;
    cJSON_ArrayForEach(one, own)
        if (!box_from(one, where->dim, &piece->part[i++]))
            return actual_layout_bad(where, err, "a box is not [[row, column], [rows, columns]] inside the tensor");
    return OK;
}

/* Apply an entry that matches this tensor.  For rows and for columns the first entry counts.  *alone says that flat
 * or boxes exclude other entries. */
static enum error_code take_entry(struct where *where, const cJSON *entry, struct part *part, bool cut[2],
                                  struct actual_piece *piece, bool *alone, struct error *err)
{
    const char *split;
    const enum error_code e = json_string(entry, where->a->map_path, "split", &split, err);
    if (e) return e;
    const int d = strcmp(split, "columns") == 0;
    const bool flatly = strcmp(split, "flat") == 0, zigzagged = strcmp(split, "zigzag") == 0;
    *alone = flatly || strcmp(split, "boxes") == 0;
    if (*alone) return flatly ? flat(where, entry, piece, err) : boxes(where, entry, piece, err);
    /* "flat" and "boxes" have returned above; any other word is refused here. */
    if (strcmp(split, "rows") != 0 && !zigzagged && !d)
        return fail(err, ERR_FORMAT, "%s: layout: \"split\": \"%s\" is not one of rows, columns, flat, zigzag, boxes",
                    printable_path(where->a->map_path).text, printable(split).text);
    if (cut[d]) return OK;
    cut[d] = true;
    return zigzagged ? zigzag(where, entry, &part->rows, err)
           : contiguous(where, entry, d, d ? &part->cols : &part->rows, err);
}

/* check_map has checked that "tensors" is a text. */
static bool is_about(const cJSON *entry, const struct where *where)
{
    return pattern_match(cJSON_GetStringValue(cJSON_GetObjectItem(entry, "tensors")), where->ours, NULL, NULL, 0);
}

/* Build this rank's part from all entries that match.  Dimensions without an entry are whole. */
static enum error_code find_parts(struct where *where, struct actual_piece *piece, struct error *err)
{
    const cJSON *layout = where->a->map ? cJSON_GetObjectItem(where->a->map, "layout") : NULL, *entry;
    struct part part = { .dim = { where->dim[0], where->dim[1] } };
    bool cut[2] = { false, false }, alone = false;
    enum error_code e = OK;
    /* The first pass looks for "transposed" alone, since sizes of pieces depend on it. */
    cJSON_ArrayForEach(entry, layout)
        if (is_about(entry, where) && cJSON_IsTrue(cJSON_GetObjectItem(entry, "transposed"))) where->transposed = true;
    cJSON_ArrayForEach(entry, layout)
        if (!e && !alone && is_about(entry, where) && json_has(entry, "split"))
            e = take_entry(where, entry, &part, cut, piece, &alone, err);
    for (int d = 0; d < 2 && !alone; d++)
        if (!cut[d]) intervals_add(d ? &part.cols : &part.rows, (struct interval){ 0, where->dim[d] });
    if (!e && !alone && (!part_made(&part) || !make_parts(piece, 1)))
        e = fail(err, ERR_MEMORY, "no memory for a layout");
    /* piece->part has its own list when an entry stands alone; otherwise the part made here becomes its only
     * element. */
    if (e || alone) part_free(&part);
    else *piece->part = part;
    return e;
}

/* Compare the stored shape with the part.  Boxes and flat pieces have no shape of their own, so only elements are
 * counted. */
static enum error_code check_shape(const struct where *where, struct actual_piece *piece, struct error *err)
{
    const struct safetensors_entry *entry = piece->stored;
    int64_t shape[2];
    actual_shape(entry, where->transposed, shape);
    for (int i = 0; i < piece->parts; i++) piece->count += part_count(&piece->part[i]);
    /* A padded flat piece may have more elements than its part; boxes must have as many, other pieces their shape. */
    const bool fits = where->padded ? entry->count >= piece->count : where->loose ? entry->count == piece->count
                    : shape[0] == intervals_total(&piece->part->rows)
                        && shape[1] == intervals_total(&piece->part->cols);
    if (!fits) {
        char text[160];
        snprintf(text, sizeof text, "it is %lld x %lld; of the golden %lld x %lld its part is %lld elements%s",
                 (long long)shape[0], (long long)shape[1], (long long)where->dim[0], (long long)where->dim[1],
                 (long long)piece->count, where->a->map ? "" : " (a --map can say how it is cut)");
        return actual_layout_bad(where, err, text);
    }
    if (where->transposed && entry->ndim != 2) return actual_layout_bad(where, err, "only a matrix can be transposed");
    return OK;
}

enum error_code actual_piece_of_map(const struct actual *actual, const char *ours, const char *theirs, int rank,
                                    const int64_t dim[2], struct actual_piece *piece, struct error *err)
{
    struct where w = { .a = actual, .ours = ours, .theirs = theirs, .rank = rank, .dim = dim };
    *piece = (struct actual_piece){ .file = &actual->file[rank],
                                   .stored = safetensors_find(&actual->file[rank].st, theirs),
                                .times = 1, .micro = ACTUAL_NO_MICRO };
    enum error_code e = find_parts(&w, piece, err);
    piece->transposed = w.transposed;
    if (!e) e = check_shape(&w, piece, err);
    /* After an error the piece has no memory, and the caller does not free it. */
    for (int i = 0; e && i < piece->parts; i++) part_free(&piece->part[i]);
    if (e) free(piece->part);
    return e;
}
