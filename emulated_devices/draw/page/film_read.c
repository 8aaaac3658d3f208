/* film_read.c -- reads a film from JSON, which is not trusted.  film_report.c and film_run.c call film_read.  Errors:
 * ERR_FORMAT with the place in the document; ERR_MEMORY. */
#include "emulated_devices/draw/page/film.h"
#include "ref/io/json.h"
#include "ref/io/output.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_TIME_BITS = 53, MOST_FILM_DEVICES = 4096, MOST_TILES = 1 << 16, LONGEST_ROW = FILM_MEMORIES + 1 };
static const int64_t most_time = (int64_t)1 << MOST_TIME_BITS;

/* The range of a number of a row. */
struct range { int64_t least, most; };

/* A document that is read, and the film that it becomes. */
struct film_reading { struct film *film; const char *where; struct error *err; };

static enum error_code row_fails(const struct film_reading *reading, const char *key, int i, const char *why)
{
    return fail(reading->err, ERR_FORMAT, "%s: %s[%d]: %s", printable_path(reading->where).text, key, i, why);
}

/* The next numbers of a row, from `from` on. */
static enum error_code read_numbers(const struct film_reading *reading, const char *key, int i, const cJSON *row,
                                    int from, int count, const struct range range[], int64_t number[])
{
    const cJSON *item = cJSON_IsArray(row) ? row->child : NULL;
    for (int k = 0; k < from && item; k++) item = item->next;
    for (int k = 0; k < count; k++, item = item->next)
        if (item == NULL || !json_whole(item, &number[k]) || number[k] < range[k].least || number[k] > range[k].most)
            return row_fails(reading, key, i, "a number of the row is missing, no whole number, or outside its range");
    return OK;
}

/* The list of a key; of a film without it an empty one, NULL. */
static enum error_code list_of(const struct film_reading *reading, const cJSON *root, const char *key,
                               const cJSON **list)
{
    *list = NULL;
    return json_has(root, key) ? json_array(root, reading->where, key, list, reading->err) : OK;
}

static const char *word_at(const cJSON *row, int i)
{
    const cJSON *const item = cJSON_IsArray(row) ? cJSON_GetArrayItem(row, i) : NULL;
    return cJSON_IsString(item) ? item->valuestring : NULL;
}

typedef enum error_code row_fn(const struct film_reading *, const char *key, int i, const cJSON *row);

/* Read each row of a list. */
static enum error_code read_rows(const struct film_reading *reading, const cJSON *root, const char *key, int most,
                                 row_fn *read)
{
    const cJSON *list, *row;
    int i = 0;
    enum error_code e = list_of(reading, root, key, &list);
    if (e || list == NULL) return e;
    cJSON_ArrayForEach(row, list) {
        if (i == most) return row_fails(reading, key, i, "more than a film can have");
        e = read(reading, key, i++, row);
        if (e) return e;
    }
    return OK;
}

static enum error_code read_axis(const struct film_reading *reading, const char *key, int i, const cJSON *row)
{
    int64_t size;
    const enum error_code e = read_numbers(reading, key, i, row, 1, 1, (struct range[]){ { 1, MOST_TILES } }, &size);
    if (e) return e;
    if (word_at(row, 0) == NULL) return row_fails(reading, key, i, "an axis has no name");
    return film_axis(reading->film, word_at(row, 0), (int)size), OK;
}

static enum error_code read_device(const struct film_reading *reading, const char *key, int i, const cJSON *row)
{
    struct film_device d = { .place = NULL };
    int64_t at[2];
    (void)key, (void)i;
    enum error_code e = json_string(row, reading->where, "place", &d.place, reading->err);
    if (!e && json_has(row, "has")) e = json_string(row, reading->where, "has", &d.has, reading->err);
    if (!e) e = json_int(row, reading->where, "row", 0, MOST_TILES, &at[0], reading->err);
    if (!e) e = json_int(row, reading->where, "column", 0, MOST_TILES, &at[1], reading->err);
    if (e) return e;
    d.row = (int)at[0], d.column = (int)at[1];
    return film_device(reading->film, d), OK;
}

static enum error_code read_kind(const struct film_reading *reading, const char *key, int i, const cJSON *row)
{
    const char *name, *mark, *of = NULL;
    int k = 0;
    enum error_code e = json_string(row, reading->where, "name", &name, reading->err);
    if (!e) e = json_string(row, reading->where, "mark", &mark, reading->err);
    if (!e) e = json_string(row, reading->where, "of", &of, reading->err);
    if (e) return e;
    while (k < FILM_OFS && strcmp(film_of_names[k], of) != 0) k++;
    if (k == FILM_OFS) return row_fails(reading, key, i, "\"of\" is none of compute, message, wait, other");
    if (film_kind(reading->film, name, mark, (enum film_of)k) != i && !reading->film->failed)
        return row_fails(reading, key, i, "its name is there twice");
    return OK;
}

static enum error_code read_word(const struct film_reading *reading, const char *key, int i, const cJSON *row)
{
    if (!cJSON_IsString(row)) return row_fails(reading, key, i, "is no text");
    if (strcmp(key, "lanes") == 0) film_lane(reading->film, row->valuestring);
    else if (strcmp(key, "columns") == 0) film_column(reading->film, row->valuestring);
    else film_note(reading->film, "%s", row->valuestring);
    return OK;
}

static enum error_code read_detail_row(const struct film_reading *reading, const char *key, int i, const cJSON *row)
{
    if (!word_at(row, 0) || !word_at(row, 1)) return row_fails(reading, key, i, "is no pair of texts");
    return film_detail_row(reading->film, reading->film->details - 1, word_at(row, 0), word_at(row, 1)), OK;
}

static enum error_code read_detail(const struct film_reading *reading, const char *key, int i, const cJSON *row)
{
    const char *title;
    const enum error_code e = json_string(row, reading->where, "title", &title, reading->err);
    (void)key, (void)i;
    if (e || film_detail(reading->film, title) < 0) return e;
    return read_rows(reading, row, "rows", 1000, read_detail_row);
}

static enum error_code read_pass(const struct film_reading *reading, const char *key, int i, const cJSON *row)
{
    const struct film *const f = reading->film;
    const struct range range[] = { { 0, f->devices - 1 }, { 0, f->lanes - 1 }, { 0, f->end }, { 0, f->end },
                                   { 0, f->kinds - 1 }, { -1, INT32_MAX }, { -2, INT32_MAX }, { -1, f->details - 1 } };
    int64_t n[8];
    const enum error_code e = read_numbers(reading, key, i, row, 0, 8, range, n);
    if (e) return e;
    if (n[3] < n[2]) return row_fails(reading, key, i, "it ends before it begins");
    film_pass(reading->film, (struct film_pass){ .device = (int)n[0], .lane = (int)n[1], .start = n[2], .end = n[3],
                                                 .kind = (int)n[4], .micro = (int)n[5], .layer = (int)n[6],
                                                 .detail = (int)n[7] });
    return OK;
}

static enum error_code read_message(const struct film_reading *reading, const char *key, int i, const cJSON *row)
{
    const struct film *const f = reading->film;
    const struct range range[] = { { 0, f->devices - 1 }, { 0, f->devices - 1 }, { 0, f->end }, { 0, f->end },
                                   { 0, most_time }, { 0, f->kinds - 1 } };
    int64_t n[6];
    const enum error_code e = read_numbers(reading, key, i, row, 0, 6, range, n);
    if (e) return e;
    if (n[3] < n[2]) return row_fails(reading, key, i, "it ends before it begins");
    film_message(reading->film, (struct film_message){ .from = (int)n[0], .to = (int)n[1], .start = n[2], .end = n[3],
                                                       .bytes = n[4], .kind = (int)n[5] });
    return OK;
}

static enum error_code read_memory(const struct film_reading *reading, const char *key, int i, const cJSON *device)
{
    const cJSON *kinds, *rows, *item;
    struct film *const f = reading->film;
    struct range range[LONGEST_ROW] = { { 0, f->end } };
    enum error_code e = json_array(device, reading->where, "kinds", &kinds, reading->err);
    if (!e) e = json_array(device, reading->where, "rows", &rows, reading->err);
    if (e) return e;
    if (i >= f->devices) return row_fails(reading, key, i, "there is no such device");
    if (i == 0)
        cJSON_ArrayForEach(item, kinds) if (cJSON_IsString(item)) film_memory_kind(f, item->valuestring);
    if (cJSON_GetArraySize(kinds) != f->memory_kinds && !f->failed)
        return row_fails(reading, key, i, "its kinds are not those of the first device, or too many");
    for (int k = 1; k < LONGEST_ROW; k++) range[k] = (struct range){ 0, most_time };
    cJSON_ArrayForEach(item, rows) {
        int64_t n[LONGEST_ROW];
        struct film_memory memory = { .device = i };
        e = read_numbers(reading, key, i, item, 0, f->memory_kinds + 1, range, n);
        if (e) return e;
        memory.at = n[0], memcpy(memory.bytes, n + 1, (size_t)f->memory_kinds * sizeof *n);
        film_memory(f, &memory);
    }
    return OK;
}

static enum error_code read_cell(const struct film_reading *reading, const char *key, int i, const cJSON *row)
{
    const struct film *const f = reading->film;
    const struct range range[] = { { 0, f->end }, { 0, f->devices - 1 }, { 0, f->columns - 1 } };
    int64_t n[3], state;
    enum error_code e = read_numbers(reading, key, i, row, 0, 3, range, n);
    if (!e) e = read_numbers(reading, key, i, row, 4, 1, (struct range[]){ { 0, FILM_STATES - 1 } }, &state);
    if (e) return e;
    if (word_at(row, 3) == NULL) return row_fails(reading, key, i, "it has no text");
    film_cell(reading->film, (int)n[1], (int)n[2], n[0], word_at(row, 3), (enum film_state)state);
    return OK;
}

static enum error_code read_loss(const struct film_reading *reading, const char *key, int i, const cJSON *row)
{
    if (!cJSON_IsNumber(row) && !cJSON_IsNull(row)) return row_fails(reading, key, i, "is no number");
    return film_loss(reading->film, cJSON_IsNull(row) ? NAN : row->valuedouble), OK;
}

static enum error_code read_check(const struct film_reading *reading, const char *key, int i, const cJSON *row)
{
    struct film_check c = { .error = NAN, .bound = NAN };
    int64_t device;
    const struct { const char *key; const char **to; } texts[] = { { "first", &c.first }, { "evidence", &c.evidence },
                                                                   { "diagnosis", &c.diagnosis } };
    (void)key, (void)i;
    enum error_code e = json_string(row, reading->where, "tensor", &c.tensor, reading->err);
    if (!e) e = json_int(row, reading->where, "device", -1, MOST_TILES, &device, reading->err);
    if (!e) e = json_bool(row, reading->where, "holds", &c.holds, reading->err);
    if (!e && json_has(row, "error")) e = json_double(row, reading->where, "error", &c.error, reading->err);
    if (!e && json_has(row, "bound")) e = json_double(row, reading->where, "bound", &c.bound, reading->err);
    for (int k = 0; k < 3 && !e; k++)
        if (json_has(row, texts[k].key)) e = json_string(row, reading->where, texts[k].key, texts[k].to, reading->err);
    if (e) return e;
    c.device = (int)device;
    return film_check(reading->film, c), OK;
}

static enum error_code read_mark(const struct film_reading *reading, const char *key, int i, const cJSON *row)
{
    int64_t at;
    if (!json_whole(row, &at) || at < 0 || at > reading->film->end)
        return row_fails(reading, key, i, "is no time of the film");
    return film_mark(reading->film, at), OK;
}

static enum error_code read_share(const struct film_reading *reading, const char *key, int i, const cJSON *row)
{
    struct film *const f = reading->film;
    const struct range range[] = { { 0, f->end }, { 0, f->end }, { 0, f->end } };
    if (f->share == NULL) f->share = calloc((size_t)f->devices + 1, sizeof *f->share);
    if (f->share == NULL) return fail(reading->err, ERR_MEMORY, "no memory for a film");
    if (i >= f->devices) return row_fails(reading, key, i, "there is no such device");
    const enum error_code e = read_numbers(reading, key, i, row, 0, FILM_SHARES, range, f->share[i]);
    if (e) return e;
    if (f->share[i][0] + f->share[i][1] + f->share[i][2] != f->end)
        return row_fails(reading, key, i, "the parts of the time do not add up to the end");
    return OK;
}

static enum error_code read_sent(const struct film_reading *reading, const cJSON *root)
{
    const struct range range[] = { { 0, most_time }, { 0, most_time } };
    if (!json_has(root, "sent")) return OK;
    reading->film->counted = true;
    return read_numbers(reading, "sent", 0, cJSON_GetObjectItemCaseSensitive(root, "sent"), 0, 2, range,
                        reading->film->sent);
}

static enum error_code read_head(const struct film_reading *reading, const cJSON *root)
{
    int64_t version, end = 0;
    const char *made_by, *title, *kind = NULL, *unit = NULL;
    int k = 0;
    enum error_code e = json_int(root, reading->where, "film", 1, INT32_MAX, &version, reading->err);
    if (!e && version != FILM_VERSION)
        e = fail(reading->err, ERR_FORMAT, "%s: a film of version %lld; this program reads version %d",
                 printable_path(reading->where).text, (long long)version, FILM_VERSION);
    if (!e) e = json_string(root, reading->where, "made_by", &made_by, reading->err);
    if (!e) e = json_string(root, reading->where, "title", &title, reading->err);
    if (!e) e = json_string(root, reading->where, "kind", &kind, reading->err);
    if (!e) e = json_string(root, reading->where, "unit", &unit, reading->err);
    if (!e) e = json_int(root, reading->where, "end", 0, most_time, &end, reading->err);
    if (e) return e;
    while (film_kinds[k] && strcmp(film_kinds[k], kind) != 0) k++;
    if (film_kinds[k] == NULL) return row_fails(reading, "kind", 0, "there is no such kind of film");
    if (strcmp(unit, "ps") != 0 && strcmp(unit, "tick") != 0)
        return row_fails(reading, "unit", 0, "is neither ps nor tick");
    film_open(reading->film, film_kinds[k], strcmp(unit, "ps") == 0 ? "ps" : "tick", title);
    film_made_by(reading->film, made_by);
    reading->film->end = end;
    return OK;
}

enum error_code film_read(struct film *film, const cJSON *root, const char *where, struct error *err)
{
    const struct film_reading r = { film, where, err };
    const cJSON *cells = NULL;
    *film = (struct film){ .kind = NULL };
    enum error_code e = read_head(&r, root);
    if (!e) e = read_rows(&r, root, "axes", 8, read_axis);
    if (!e) e = read_rows(&r, root, "devices", MOST_FILM_DEVICES, read_device);
    if (!e) e = read_rows(&r, root, "kinds", 256, read_kind);
    if (!e) e = read_rows(&r, root, "lanes", 64, read_word);
    if (!e) e = read_rows(&r, root, "details", 100000, read_detail);
    if (!e) e = read_rows(&r, root, "passes", 1 << 22, read_pass);
    if (!e) e = read_rows(&r, root, "messages", 1 << 22, read_message);
    if (!e) e = read_sent(&r, root);
    if (!e) e = read_rows(&r, root, "memory", MOST_FILM_DEVICES, read_memory);
    if (!e && json_has(root, "cells")) e = json_object(root, where, "cells", &cells, err);
    if (!e && cells) e = read_rows(&r, cells, "columns", 4096, read_word);
    if (!e && cells) e = read_rows(&r, cells, "rows", 1 << 20, read_cell);
    if (!e) e = read_rows(&r, root, "losses", 1 << 20, read_loss);
    if (!e) e = read_rows(&r, root, "checks", 100000, read_check);
    if (!e) e = read_rows(&r, root, "marks", 1 << 20, read_mark);
    if (!e) e = read_rows(&r, root, "shares", MOST_FILM_DEVICES, read_share);
    if (!e) e = read_rows(&r, root, "notes", 1000, read_word);
    if (!e && film->share) {
        const cJSON *const shares = cJSON_GetObjectItemCaseSensitive(root, "shares");
        if (cJSON_GetArraySize(shares) != film->devices) e = row_fails(&r, "shares", 0, "not one for each device");
    }
    return e || !film->failed ? e : fail(err, ERR_MEMORY, "%s: no memory for the film", printable_path(where).text);
}
