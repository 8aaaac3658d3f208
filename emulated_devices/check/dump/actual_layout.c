/* actual_layout.c -- the part of a tensor in one rank's file, from the map and the shapes in the files. */
#include "emulated_devices/check/dump/actual_open.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One rank's tensor of ACTUAL. */
struct where {
    const struct actual *a;
    const char *ours, *theirs;
    int rank;
    const int64_t *dim;                 /* [2] of the whole */
    bool transposed;
    bool loose;                         /* a list of boxes, or a flat piece: the shape in the file is not compared */
    bool padded;                        /* the file may have padding after them */
};

static enum error_code bad(const struct where *w, struct error *err, const char *what)
{
    return fail(err, ERR_CHECK, "%s in %s: %s", printable(w->theirs).text,
                printable_path(w->a->file[w->rank].st.path).text, what);
}

void actual_shape(const struct safetensors_entry *e, bool transposed, int64_t shape[2])
{
    const int64_t last = e->ndim > 1 ? e->dim[e->ndim - 1] : 1, rest = last > 0 ? e->count / last : 0;
    shape[0] = transposed ? last : rest;
    shape[1] = transposed ? rest : last;
}

/* The shape in a rank's file. */
static bool shape_of(const struct where *w, int rank, int64_t shape[2])
{
    const struct safetensors_entry *e = safetensors_find(&w->a->file[rank].st, w->theirs);
    if (e) actual_shape(e, w->transposed, shape);
    return e != NULL;
}

static enum error_code axis_of(const struct where *w, const cJSON *entry, enum axis *axis, struct error *err)
{
    const char *over;
    enum error_code e = json_string(entry, w->a->map_path, "over", &over, err);
    if (e || actual_axis(over, axis)) return e;
    return fail(err, ERR_FORMAT, "%s: layout: \"over\": \"%s\" is not one of pp, dp, cp, ep, tp",
                printable_path(w->a->map_path).text, printable(over).text);
}

/* What the pieces along an axis have: those before this rank's, its own, and all. */
struct pieces { int64_t before, own, all; };

/* @param d  rows or columns; -1: elements.  @param parts  of each, as if it were one of them. */
static enum error_code add_pieces(const struct where *w, enum axis axis, int d, int64_t parts, struct pieces *p,
                                  struct error *err)
{
    const int place = mesh_coordinate(&w->a->mesh, w->rank, axis);
    *p = (struct pieces){ 0 };
    for (int i = 0; i < w->a->mesh.size[axis]; i++) {
        int64_t shape[2];
        if (!shape_of(w, mesh_neighbour(&w->a->mesh, w->rank, axis, i), shape))
            return bad(w, err, "a rank beside it has no piece of it");
        const int64_t n = d < 0 ? shape[0] * shape[1] : shape[d];
        if (n % parts != 0) return bad(w, err, "its columns cannot be cut into that many parts");
        if (i < place) p->before += n / parts;
        if (i == place) p->own = n / parts;
        p->all += n / parts;
    }
    return OK;
}

/* Contiguous pieces: this one begins at the end of those before it. */
static enum error_code contiguous(const struct where *w, const cJSON *entry, int d, struct intervals *s,
                                  struct error *err)
{
    enum axis axis;
    struct pieces has;
    int64_t parts = 1;
    enum error_code e = axis_of(w, entry, &axis, err);
    if (!e && json_has(entry, "parts"))
        e = json_int(entry, w->a->map_path, "parts", 1, w->dim[d] > 0 ? w->dim[d] : 1, &parts, err);
    if (!e) e = add_pieces(w, axis, d, parts, &has, err);
    if (e) return e;
    if (has.all * parts != w->dim[d]) {
        char text[128];
        snprintf(text, sizeof text, "over %s the pieces have %lld %s together, not %lld", axis_name(axis),
                 (long long)(has.all * parts), d ? "columns" : "rows", (long long)w->dim[d]);
        return bad(w, err, text);
    }
    for (int64_t p = 0; p < parts; p++)
        intervals_add(s, (struct interval){ p * (w->dim[d] / parts) + has.before, has.own });
    return OK;
}

static enum error_code zigzag(const struct where *w, const cJSON *entry, struct intervals *s, struct error *err)
{
    enum axis axis;
    int64_t sequences = 1;
    enum error_code e = axis_of(w, entry, &axis, err);
    if (!e && json_has(entry, "sequences"))
        e = json_int(entry, w->a->map_path, "sequences", 1, w->dim[0] > 0 ? w->dim[0] : 1, &sequences, err);
    if (e) return e;
    const int n = w->a->mesh.size[axis], r = mesh_coordinate(&w->a->mesh, w->rank, axis);
    const int64_t S = w->dim[0] / sequences;
    if (S * sequences != w->dim[0]) return bad(w, err, "its rows are not that many sequences of one length");
    for (int64_t b = 0; b < sequences; b++) {
        const int chunk[2] = { r, 2 * n - 1 - r };
        for (int c = 0; c < 2; c++) intervals_add(s, interval_moved(block_at(S, 2 * n, chunk[c]), b * S));
    }
    return OK;
}

static bool make_parts(struct actual_piece *p, int n)
{
    p->part = calloc((size_t)n + 1, sizeof *p->part);
    p->parts = p->part ? n : 0;
    return p->part != NULL;
}

static enum error_code flat(struct where *w, const cJSON *entry, struct actual_piece *p, struct error *err)
{
    enum axis axis;
    struct pieces has;
    const int64_t n = w->dim[0] * w->dim[1];
    enum error_code e = axis_of(w, entry, &axis, err);
    if (!e) e = add_pieces(w, axis, -1, 1, &has, err);
    if (e) return e;
    const int64_t first = has.before < n ? has.before : n;
    if (!make_parts(p, 1)) return fail(err, ERR_MEMORY, "no memory for a layout");
    w->loose = w->padded = true;
    *p->part = (struct part){ .dim = { n, 1 }, .cols = intervals_whole(1) };
    intervals_add(&p->part->rows, (struct interval){ first, has.own < n - first ? has.own : n - first });
    return OK;
}

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

static enum error_code boxes(struct where *w, const cJSON *entry, struct actual_piece *p, struct error *err)
{
    const cJSON *all, *own, *one;
    enum error_code e = json_array(entry, w->a->map_path, "boxes", &all, err);
    if (e) return e;
    own = cJSON_GetArrayItem(all, w->rank);
    if (!cJSON_IsArray(own)) return bad(w, err, "\"boxes\" has no list for its rank");
    if (!make_parts(p, cJSON_GetArraySize(own))) return fail(err, ERR_MEMORY, "no memory for a layout");
    int i = 0;
    w->loose = true;
    cJSON_ArrayForEach(one, own)
        if (!box_from(one, w->dim, &p->part[i++]))
            return bad(w, err, "a box is not [[row, column], [rows, columns]] inside the tensor");
    return OK;
}

/* Apply one entry that matches this tensor.  For rows and for columns the first entry counts; flat and boxes exclude
 * other entries: *alone. */
static enum error_code take_entry(struct where *w, const cJSON *entry, struct part *part, bool cut[2],
                                  struct actual_piece *p, bool *alone, struct error *err)
{
    const char *split;
    const enum error_code e = json_string(entry, w->a->map_path, "split", &split, err);
    if (e) return e;
    const int d = strcmp(split, "columns") == 0;
    const bool flatly = strcmp(split, "flat") == 0, zigzagged = strcmp(split, "zigzag") == 0;
    *alone = flatly || strcmp(split, "boxes") == 0;
    if (*alone) return flatly ? flat(w, entry, p, err) : boxes(w, entry, p, err);
    if (strcmp(split, "rows") != 0 && !zigzagged && !d)
        return fail(err, ERR_FORMAT, "%s: layout: \"split\": \"%s\" is not one of rows, columns, flat, zigzag, boxes",
                    printable_path(w->a->map_path).text, printable(split).text);
    if (cut[d]) return OK;
    cut[d] = true;
    return zigzagged ? zigzag(w, entry, &part->rows, err) : contiguous(w, entry, d, d ? &part->cols : &part->rows, err);
}

/* check_map has checked that "tensors" is a text. */
static bool is_about(const cJSON *entry, const struct where *w)
{
    return pattern_match(cJSON_GetStringValue(cJSON_GetObjectItem(entry, "tensors")), w->ours, NULL, NULL, 0);
}

static enum error_code find_parts(struct where *w, struct actual_piece *p, struct error *err)
{
    const cJSON *layout = w->a->map ? cJSON_GetObjectItem(w->a->map, "layout") : NULL, *entry;
    struct part part = { .dim = { w->dim[0], w->dim[1] } };
    bool cut[2] = { false, false }, alone = false;
    enum error_code e = OK;
    cJSON_ArrayForEach(entry, layout)
        if (is_about(entry, w) && cJSON_IsTrue(cJSON_GetObjectItem(entry, "transposed"))) w->transposed = true;
    cJSON_ArrayForEach(entry, layout)
        if (!e && !alone && is_about(entry, w) && json_has(entry, "split"))
            e = take_entry(w, entry, &part, cut, p, &alone, err);
    for (int d = 0; d < 2 && !alone; d++)
        if (!cut[d]) intervals_add(d ? &part.cols : &part.rows, (struct interval){ 0, w->dim[d] });
    if (!e && !alone && (!part_made(&part) || !make_parts(p, 1))) e = fail(err, ERR_MEMORY, "no memory for a layout");
    if (e || alone) part_free(&part);
    else *p->part = part;
    return e;
}

static enum error_code check_shape(const struct where *w, struct actual_piece *p, struct error *err)
{
    const struct safetensors_entry *entry = p->stored;
    int64_t shape[2];
    actual_shape(entry, w->transposed, shape);
    for (int i = 0; i < p->parts; i++) p->count += part_count(&p->part[i]);
    const bool fits = w->padded ? entry->count >= p->count : w->loose ? entry->count == p->count
                    : shape[0] == intervals_total(&p->part->rows) && shape[1] == intervals_total(&p->part->cols);
    if (!fits) {
        char text[160];
        snprintf(text, sizeof text, "it is %lld x %lld; of the golden %lld x %lld its part is %lld elements%s",
                 (long long)shape[0], (long long)shape[1], (long long)w->dim[0], (long long)w->dim[1],
                 (long long)p->count, w->a->map ? "" : " (a --map can say how it is cut)");
        return bad(w, err, text);
    }
    if (w->transposed && entry->ndim != 2) return bad(w, err, "only a matrix can be transposed");
    return OK;
}

enum error_code actual_piece_of_map(const struct actual *a, const char *ours, const char *theirs, int rank,
                                    const int64_t dim[2], struct actual_piece *p, struct error *err)
{
    struct where w = { .a = a, .ours = ours, .theirs = theirs, .rank = rank, .dim = dim };
    *p = (struct actual_piece){ .file = &a->file[rank], .stored = safetensors_find(&a->file[rank].st, theirs),
                                .times = 1, .micro = ACTUAL_NO_MICRO };
    enum error_code e = find_parts(&w, p, err);
    p->transposed = w.transposed;
    if (!e) e = check_shape(&w, p, err);
    for (int i = 0; e && i < p->parts; i++) part_free(&p->part[i]);
    if (e) free(p->part);
    return e;
}
