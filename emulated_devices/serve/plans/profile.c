/* profile.c -- reads, writes and interpolates tables of measured times.  cost.c, measure.c and cli/train/ call.
 * Errors: ERR_FILE; ERR_FORMAT names file, line and column; ERR_MEMORY. */
#include "emulated_devices/serve/plans/profile.h"
#include "ref/io/output.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define COMM(name) { "comm", name, 3, { { "num_nodes", true }, { "num_gpus_per_node", true }, { "size(kb)", false } } }

const struct profile_kind profile_kinds[PROFILE_LISTS] = {
    [PROFILE_ALL_REDUCE] = COMM("all_reduce"), [PROFILE_ALL_GATHER] = COMM("all_gather"),
    [PROFILE_REDUCE_SCATTER] = COMM("reduce_scatter"), [PROFILE_ALL_TO_ALL] = COMM("alltoall"),
    [PROFILE_SEND] = COMM("sendrecv"),
    [PROFILE_GEMM] = { "comp", "gemm_0", 3, { { "n", false }, { "m", false }, { "k", false } } },
    [PROFILE_ATTENTION] = { "comp", "mha_0", 4, { { "head_size", true }, { "seq_len", false }, { "batch_size", false },
                                                  { "num_heads", false } } },
    [PROFILE_DECODE] = { "comp", "decode_0", 4, { { "head_size", true }, { "num_heads", false },
                                                  { "batch_size", false }, { "keys", false } } },
};

enum { PROFILE_LIMIT = 1 << 28, CSV_COLUMNS = 32, PATH_ROOM = 4096 };

static const char *word_of(enum dtype dtype)
{
    return dtype == F16 || dtype == BF16 ? "half" : dtype == F32 ? "float" : NULL;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

bool profile_add(struct time_profile *profile, enum profile_list which, const double *key, double microseconds)
{
    const int keys = profile_kinds[which].keys;
    if (profile->list[which].rows == profile->list[which].room) {
        const int64_t room = profile->list[which].room > 0 ? 2 * profile->list[which].room : 64;
        struct profile_row *const more = realloc(profile->list[which].row, (size_t)room * sizeof *more);
        if (more == NULL) return false;
        profile->list[which].row = more, profile->list[which].room = room;
    }
    struct profile_row *const row = &profile->list[which].row[profile->list[which].rows++];
    *row = (struct profile_row){ .microseconds = microseconds };
    memcpy(row->key, key, (size_t)keys * sizeof *key);
    profile->list[which].sorted = false;
    return true;
}

void profile_clear(struct time_profile *profile, enum profile_list which)
{
    free(profile->list[which].row);
    profile->list[which].row = NULL, profile->list[which].rows = profile->list[which].room = 0;
}

void profile_free(struct time_profile *profile)
{
    for (enum profile_list l = 0; l < PROFILE_LISTS; l++) profile_clear(profile, l);
}

static int profile_compare(const void *a, const void *b)
{
    const struct profile_row *const x = a, *const y = b;
    for (int k = 0; k < PROFILE_KEYS; k++)
        if (x->key[k] != y->key[k]) return x->key[k] < y->key[k] ? -1 : 1;
    return (x->microseconds > y->microseconds) - (x->microseconds < y->microseconds);
}

/* ---- between rows ------------------------------------------------------------------------------------------------ */

/* Rows that are alike in the columns before this one, and ascend in it. */
struct alike { const struct profile_row *row; int64_t count; const struct profile_kind *kind; int key; };

/* The first of them whose column is at least, or above, a value. */
static int64_t first_from(const struct alike *alike, double value, bool above)
{
    int64_t low = 0, high = alike->count;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        const double has = alike->row[middle].key[alike->key];
        if (has < value || (above && has == value)) low = middle + 1;
        else high = middle;
    }
    return low;
}

static double between(const struct alike *alike, const double *key);

/* The time with this column at a value that rows have. */
static double time_at(const struct alike *alike, double value, const double *key)
{
    const int64_t from = first_from(alike, value, false), to = first_from(alike, value, true);
    const struct alike inside = { alike->row + from, to - from, alike->kind, alike->key + 1 };
    return between(&inside, key);
}

static double between(const struct alike *alike, const double *key)
{
    if (alike->count == 0) return -1;
    if (alike->key == alike->kind->keys) return alike->row[0].microseconds;
    const double x = key[alike->key];
    const int64_t at = first_from(alike, x, false);
    if (at < alike->count && alike->row[at].key[alike->key] == x) return time_at(alike, x, key);
    if (alike->kind->key[alike->key].exact) return -1;
    const double last = alike->row[alike->count - 1].key[alike->key], first = alike->row[0].key[alike->key];
    if (x > last) return last > 0 ? time_at(alike, last, key) * x / last : -1;
    if (x < first) return time_at(alike, first, key);
    const double low = alike->row[at - 1].key[alike->key], high = alike->row[at].key[alike->key];
    const double below = time_at(alike, low, key), above = time_at(alike, high, key);
    return below < 0 || above < 0 ? -1 : below + (above - below) * (x - low) / (high - low);
}

double profile_seconds(struct time_profile *profile, enum profile_list which, const double *key)
{
    if (!profile->list[which].sorted && profile->list[which].rows > 0)
        qsort(profile->list[which].row, (size_t)profile->list[which].rows, sizeof(struct profile_row), profile_compare);
    profile->list[which].sorted = true;
    const struct alike all = { profile->list[which].row, profile->list[which].rows, &profile_kinds[which], 0 };
    const double us = between(&all, key);
    return us < 0 ? -1 : us * 1e-6;
}

/* ---- files ------------------------------------------------------------------------------------------------------- */

/* A line of a file, cut at its commas. */
struct csv_line { char *cell[CSV_COLUMNS]; int cells; };

static struct csv_line cut_line(char *text)
{
    struct csv_line line = { .cells = 0 };
    for (char *at = text; at && line.cells < CSV_COLUMNS;) {
        char *const comma = strchr(at, ',');
        line.cell[line.cells++] = at;
        if (comma) *comma = '\0';
        at = comma ? comma + 1 : NULL;
    }
    return line;
}

static int column_of(const struct csv_line *head, const char *name)
{
    for (int i = 0; i < head->cells; i++)
        if (strcmp(head->cell[i], name) == 0) return i;
    return -1;
}

/* A file that is being read has its columns at these places. */
struct csv_file { const char *path; enum profile_list which; const char *dtype; int at[PROFILE_KEYS + 2], columns; };

static const char *column_name(const struct csv_file *file, int i)
{
    const struct profile_kind *const kind = &profile_kinds[file->which];
    return i < kind->keys ? kind->key[i].name : i == kind->keys ? "time(us)" : "dtype";
}

static enum error_code find_columns(struct csv_file *file, const struct csv_line *head, struct error *err)
{
    file->columns = profile_kinds[file->which].keys + 2;
    for (int i = 0; i < file->columns; i++) {
        file->at[i] = column_of(head, column_name(file, i));
        if (file->at[i] < 0)
            return fail(err, ERR_FORMAT, "%s:1: there is no column %s", printable_path(file->path).text,
                        column_name(file, i));
    }
    return OK;
}

static enum error_code profile_take_row(struct time_profile *profile, const struct csv_file *file,
                                        const struct csv_line *line, int64_t number, struct error *err)
{
    const int keys = file->columns - 2;
    double value[PROFILE_KEYS + 1];
    for (int i = 0; i < file->columns; i++)
        if (file->at[i] >= line->cells)
            return fail(err, ERR_FORMAT, "%s:%lld: has no %s", printable_path(file->path).text, (long long)number,
                        column_name(file, i));
    if (strcmp(line->cell[file->at[keys + 1]], file->dtype) != 0) return OK;
    for (int i = 0; i <= keys; i++) {
        const char *const text = line->cell[file->at[i]];
        char *end;
        value[i] = strtod(text, &end);
        if (end == text || *end != '\0' || !(value[i] >= 0 && value[i] <= 1e15))
            return fail(err, ERR_FORMAT, "%s:%lld: %s: %s; must be a number, 0 to 1e15",
                        printable_path(file->path).text, (long long)number, column_name(file, i), printable(text).text);
    }
    return profile_add(profile, file->which, value, value[keys]) ? OK
           : fail(err, ERR_MEMORY, "no memory for the table %s", printable_path(file->path).text);
}

static enum error_code take_file(struct time_profile *profile, struct csv_file *file, char *text, struct error *err)
{
    enum error_code e = OK;
    int64_t number = 1;
    profile_clear(profile, file->which);
    for (char *at = text; at && *at && !e; number++) {
        char *const end = strchr(at, '\n');
        if (end) *end = '\0';
        at[strcspn(at, "\r")] = '\0';
        const struct csv_line line = cut_line(at);
        if (number == 1) e = find_columns(file, &line, err);
        else if (*at) e = profile_take_row(profile, file, &line, number, err);
        at = end ? end + 1 : NULL;
    }
    if (!e && profile->list[file->which].rows == 0)
        e = fail(err, ERR_FORMAT, "%s: has no row with dtype %s", printable_path(file->path).text, file->dtype);
    return e;
}

enum error_code profile_read_file(struct time_profile *profile, enum profile_list which, const char *path,
                                  enum dtype dtype, struct error *err)
{
    struct csv_file file = { .path = path, .which = which, .dtype = word_of(dtype) };
    char *text = NULL;
    size_t bytes;
    if (file.dtype == NULL)
        return fail(err, ERR_FORMAT, "%s: tables are of half and float; the run is in %s", printable_path(path).text,
                    dtype_name(dtype));
    enum error_code e = file_read_all(path, PROFILE_LIMIT, &text, &bytes, err);
    if (!e && strlen(text) != bytes) e = fail(err, ERR_FORMAT, "%s: is not text", printable_path(path).text);
    if (!e) e = take_file(profile, &file, text, err);
    free(text);
    return e;
}

enum error_code profile_read(struct time_profile *profile, const char *folder, const char *gpu, enum dtype dtype,
                             struct error *err)
{
    int found = 0;
    enum error_code e = OK;
    for (enum profile_list l = 0; l < PROFILE_LISTS && !e; l++) {
        char path[PATH_ROOM];
        struct stat st;
        snprintf(path, sizeof path, "%s/%s/%s/%s.csv", folder, profile_kinds[l].folder, gpu, profile_kinds[l].file);
        if (stat(path, &st) != 0) continue;
        e = profile_read_file(profile, l, path, dtype, err), found++;
    }
    if (!e && found == 0)
        e = fail(err, ERR_FILE, "%s: has no table of comm/%s/ or comp/%s/", printable_path(folder).text,
                 printable(gpu).text, printable(gpu).text);
    return e;
}

static enum error_code make_folder(const char *path, struct error *err)
{
    if (mkdir(path, 0777) == 0 || errno == EEXIST) return OK;
    return fail(err, ERR_FILE, "%s: %s", printable_path(path).text, strerror(errno));
}

static enum error_code write_list(const struct time_profile *profile, enum profile_list which, const char *path,
                                  const char *gpu, const char *dtype, struct error *err)
{
    const struct profile_kind *const kind = &profile_kinds[which];
    char *all = NULL;
    size_t bytes = 0;
    FILE *const out = open_memstream(&all, &bytes);
    if (out == NULL) return fail(err, ERR_MEMORY, "no memory to write a table");
    fprintf(out, "gpu,dtype");
    for (int k = 0; k < kind->keys; k++) fprintf(out, ",%s", kind->key[k].name);
    fprintf(out, ",time(us)\n");
    for (int64_t r = 0; r < profile->list[which].rows; r++) {
        const struct profile_row *const row = &profile->list[which].row[r];
        fprintf(out, "%s,%s", gpu, dtype);
        for (int k = 0; k < kind->keys; k++) fprintf(out, ",%.17g", row->key[k]);
        fprintf(out, ",%.17g\n", row->microseconds);
    }
    const bool ok = fclose(out) == 0 && all;
    const enum error_code e = ok ? file_write_all(path, all, bytes, err)
                                 : fail(err, ERR_MEMORY, "no memory to write a table");
    free(all);
    return e;
}

enum error_code profile_write(const struct time_profile *profile, const char *folder, const char *gpu, enum dtype dtype,
                              struct error *err)
{
    const char *const word = word_of(dtype);
    char path[PATH_ROOM];
    if (word == NULL)
        return fail(err, ERR_FORMAT, "%s: tables are of half and float; the run is in %s", printable_path(folder).text,
                    dtype_name(dtype));
    enum error_code e = make_folder(folder, err);
    for (enum profile_list l = 0; l < PROFILE_LISTS && !e; l++) {
        if (profile->list[l].rows == 0) continue;
        snprintf(path, sizeof path, "%s/%s", folder, profile_kinds[l].folder);
        e = make_folder(path, err);
        snprintf(path, sizeof path, "%s/%s/%s", folder, profile_kinds[l].folder, gpu);
        if (!e) e = make_folder(path, err);
        snprintf(path, sizeof path, "%s/%s/%s/%s.csv", folder, profile_kinds[l].folder, gpu, profile_kinds[l].file);
        if (!e) e = write_list(profile, l, path, gpu, word, err);
    }
    return e;
}
