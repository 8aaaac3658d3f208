/* actual.c -- opens ACTUAL, a dump or files with a map, and lists its files by rank.  It finds the pieces of a
 * tensor.  emulated_devices/cli/check.c opens and closes ACTUAL.  assembly.c and report/holders.c ask for pieces.
 * Errors name the file or the map and say what would be right. */
#include "emulated_devices/check/dump/actual_open.h"
#include "ref/model/param.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* Each * first matches the shortest text.  If the rest does not match, only the last * is extended.  Everything
 * before this * was matched as early as possible, so extending an earlier * cannot help.  Time: at most the product
 * of both lengths. */
bool pattern_match(const char *pattern, const char *text, const char *starts[], int lengths[], int most)
{
    const char *after = NULL, *begin = NULL, *end = NULL;       /* the pattern after the last *; the text it matches */
    int star = -1;
    for (;;) {
        if (*pattern == '*') {
            star++, after = ++pattern, begin = end = text;
        } else if (*pattern == *text) {
            if (*text == '\0') return true;
            pattern++, text++;
            continue;
        } else {
            if (after == NULL || *text == '\0') return false;
            text = ++end, pattern = after;
        }
        if (star < most) starts[star] = begin, lengths[star] = (int)(end - begin);
    }
}

enum { STARS = 8 };

/* The first entry of the map's "names" that matches gives the name.  Each * of the entry's value becomes the text
 * of the star with the same number in the key.  Without a matching entry both programs use one name.  check_name has
 * refused a map whose names could be longer than ACTUAL_NAME. */
const char *actual_name(const struct actual *actual, const char *ours, char out[ACTUAL_NAME])
{
    const size_t size = ACTUAL_NAME;
    const cJSON *names = actual->map ? cJSON_GetObjectItem(actual->map, "names") : NULL, *one;
    const char *starts[STARS];
    int lengths[STARS];
    cJSON_ArrayForEach(one, names) {
        if (!pattern_match(one->string, ours, starts, lengths, STARS)) continue;
        size_t used = 0;
        int star = 0;
        out[0] = 0;
        /* The value's n-th star is replaced by the text that the key's n-th star has matched. */
        for (const char *c = one->valuestring; *c && used + 1 < size; c++) {
            const int n = *c == '*' ? snprintf(out + used, size - used, "%.*s", lengths[star], starts[star])
                                    : snprintf(out + used, size - used, "%c", *c);
            star += *c == '*';
            used += n > 0 ? (size_t)n : 0;
        }
        return out;
    }
    snprintf(out, size, "%s", ours);
    return out;
}

/* ---- opening ----------------------------------------------------------------------------------------------------- */

/* These functions compare two elements for qsort. */
static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static bool has_ending(const char *name, const char *ending)
{
    const size_t n = strlen(name), m = strlen(ending);
    return n > m && strcmp(name + n - m, ending) == 0;
}

/* These are the paths of a folder's safetensors files, sorted by name.  Ranks need leading zeros: rank02 comes
 * before rank10.  The caller frees the list and each path, also after an error. */
static enum error_code list_folder(const char *path, char ***out, int *count, struct error *err)
{
    DIR *d = opendir(path);
    char **all = NULL;
    int n = 0;
    bool memory = true;
    if (d == NULL) return fail(err, ERR_FILE, "%s: cannot be read", printable_path(path).text);
    for (struct dirent *entry; (entry = readdir(d)) != NULL;) {
        if (!has_ending(entry->d_name, ".safetensors")) continue;
        char **grown = realloc(all, ((size_t)n + 1) * sizeof *all);
        if (!(memory = grown != NULL)) break;
        all = grown;
        all[n] = malloc(strlen(path) + strlen(entry->d_name) + 2);
        if (!(memory = all[n] != NULL)) break;
        sprintf(all[n++], "%s/%s", path, entry->d_name);
    }
    closedir(d);
    /* The system lists entries in no order, so this sort gives the files their ranks. */
    if (n > 0) qsort(all, (size_t)n, sizeof *all, by_text);
    *out = all, *count = n;
    if (!memory) return fail(err, ERR_MEMORY, "%s: no memory for the list of its files", printable_path(path).text);
    return n > 0 ? OK : fail(err, ERR_FILE, "%s: there is no .safetensors file in it", printable_path(path).text);
}

/* These are the paths that the map's "ranks" names, inside `folder`.  The list's order is the order of ranks.  After
 * an error *count says how many paths the caller has to free. */
static enum error_code list_ranks(const cJSON *ranks, const char *folder, const char *map, char ***out, int *count,
                                  struct error *err)
{
    const int n = cJSON_GetArraySize(ranks);
    char **all = calloc((size_t)n + 1, sizeof *all);
    *out = all, *count = 0;
    if (all == NULL) return fail(err, ERR_MEMORY, "no memory for the names of %d files", n);
    for (int i = 0; i < n; i++) {
        const cJSON *one = cJSON_GetArrayItem(ranks, i);
        if (!cJSON_IsString(one))
            return fail(err, ERR_FORMAT, "%s: ranks: element %d is not the name of a file", printable_path(map).text,
                        i);
        all[i] = malloc(strlen(folder) + strlen(one->valuestring) + 2);
        if (all[i] == NULL) return fail(err, ERR_MEMORY, "no memory for the name of a file");
        sprintf(all[i], "%s/%s", folder, one->valuestring);
        ++*count;
    }
    return n > 0 ? OK : fail(err, ERR_FORMAT, "%s: ranks is empty", printable_path(map).text);
}

/* ACTUAL consists of the files of the map's "ranks", of all files of a folder, or of one file. */
static enum error_code list_files(const struct actual *actual, const char *path, char ***out, int *count,
                                  struct error *err)
{
    struct stat s;
    const cJSON *ranks;
    if (stat(path, &s) != 0) return fail(err, ERR_FILE, "%s: cannot be read", printable_path(path).text);
    /* A map without "ranks" leaves the order of files to their names. */
    if (S_ISDIR(s.st_mode) && actual->map && json_has(actual->map, "ranks")) {
        enum error_code e = json_array(actual->map, actual->map_path, "ranks", &ranks, err);
        return e ? e : list_ranks(ranks, path, actual->map_path, out, count, err);
    }
    if (S_ISDIR(s.st_mode)) return list_folder(path, out, count, err);
    *out = calloc(1, sizeof **out);
    if (*out) (*out)[0] = malloc(strlen(path) + 1);
    if (*out == NULL || (*out)[0] == NULL) return fail(err, ERR_MEMORY, "no memory for the name of a file");
    strcpy((*out)[0], path);
    *count = 1;
    return OK;
}

/* After a failed search *axis is AXIS_COUNT, and the caller must not use it as an axis. */
bool actual_axis(const char *name, enum axis *axis)
{
    for (*axis = 0; *axis < AXIS_COUNT; ++*axis)
        if (strcmp(axis_name(*axis), name) == 0) return true;
    return false;
}

/* Axes that the list does not name have the size 1.  The product of sizes is checked at each step, so it cannot
 * overflow. */
enum error_code actual_read_mesh(const cJSON *list, const char *where, struct mesh *mesh, enum axis order[], int *axes,
                                 struct error *err)
{
    int size[AXIS_COUNT] = { 1, 1, 1, 1, 1 };
    int64_t devices = 1;
    const cJSON *one;
    *axes = 0;
    cJSON_ArrayForEach(one, list) {
        enum axis axis;
        int64_t n = 0;
        if (!actual_axis(one->string, &axis) || !json_whole(one, &n) || n < 1 || n > MESH_MOST_LISTED)
            return fail(err, ERR_FORMAT, "%s: mesh: \"%s\" is not one of pp, dp, cp, ep, tp with a size of 1 to %d",
                        where, printable(one->string).text, MESH_MOST_LISTED);
        devices *= n;
        if (devices > MESH_MOST_LISTED)
            return fail(err, ERR_FORMAT, "%s: mesh: has more than %d ranks", where, MESH_MOST_LISTED);
        order[(*axes)++] = axis;
        size[axis] = (int)n;
    }
    return mesh_make(mesh, size, err);
}

/* n mod the last axis's size is the coordinate along the last axis; the quotient gives the axes before it. */
int actual_rank_of(const struct mesh *mesh, const enum axis order[], int axes, int n)
{
    int rank = 0;
    for (int i = axes - 1; i >= 0; i--) {
        rank = mesh_neighbour(mesh, rank, order[i], n % mesh->size[order[i]]);
        n /= mesh->size[order[i]];
    }
    return rank;
}

/* The map's mesh, and each file's rank in our order of axes.  Without a mesh all ranks are along dp. */
static enum error_code place_ranks(struct actual *actual, struct error *err)
{
    enum axis order[AXIS_COUNT] = { DP };
    int axes = 0, size[AXIS_COUNT] = { [PP] = 1, [DP] = actual->files, [CP] = 1, [EP] = 1, [TP] = 1 };
    const cJSON *mesh = NULL;
    /* The map's axes may stand in any order; `order` keeps it, so the n-th file finds its place in the mesh. */
    enum error_code e = actual->map && json_has(actual->map, "mesh")
        ? json_object(actual->map, actual->map_path, "mesh", &mesh, err) : OK;
    if (!e && mesh) e = actual_read_mesh(mesh, printable_path(actual->map_path).text, &actual->mesh, order, &axes, err);
    if (!e && axes == 0) axes = 1, e = mesh_make(&actual->mesh, size, err);
    if (!e && actual->mesh.devices != actual->files)
        e = fail(err, ERR_PLAN, "the map's mesh has %d ranks, but there are %d files", actual->mesh.devices,
                 actual->files);
    for (int f = 0; f < actual->files && !e; f++)
        actual->file[f].number = f, actual->file[f].rank = actual_rank_of(&actual->mesh, order, axes, f);
    return e;
}

/* A dump's rank may have several files, so files of one rank are sorted by their paths. */
static int by_rank(const void *a, const void *b)
{
    const struct actual_file *x = a, *y = b;
    return x->rank != y->rank ? (x->rank > y->rank) - (x->rank < y->rank) : strcmp(x->st.path, y->st.path);
}

/* This function counts the * of a pattern. */
static int stars(const char *text)
{
    int n = 0;
    for (; *text; text++) n += *text == '*';
    return n;
}

/* "layers.*": "h.*" -- every * of the second needs a * in the first. */
static enum error_code check_name(const struct actual *actual, const cJSON *one, struct error *err)
{
    const char *map = actual->map_path;
    if (!cJSON_IsString(one))
        return fail(err, ERR_FORMAT, "%s: names: \"%s\" has no name beside it", printable_path(map).text,
                    printable(one->string).text);
    if (stars(one->string) > STARS)
        return fail(err, ERR_FORMAT, "%s: names: \"%s\" has more than %d *", printable_path(map).text,
                    printable(one->string).text, STARS);
    /* A star that the first name lacks would have no text to stand for. */
    if (stars(one->valuestring) > stars(one->string))
        return fail(err, ERR_FORMAT, "%s: names: \"%s\" has fewer * than \"%s\"", printable_path(map).text,
                    printable(one->string).text, printable(one->valuestring).text);
    /* Each star may stand for a whole name of ours. */
    if (strlen(one->valuestring) + (size_t)stars(one->valuestring) * ACTUAL_OUR_NAME >= ACTUAL_NAME)
        return fail(err, ERR_FORMAT, "%s: names: \"%s\" has %zu characters beside it; with %d * there may be %d",
                    printable_path(map).text, printable(one->string).text, strlen(one->valuestring),
                    stars(one->valuestring), ACTUAL_NAME - 1 - stars(one->valuestring) * ACTUAL_OUR_NAME);
    return OK;
}

/* Check everything that actual_read and actual_name assume. */
static enum error_code check_map(const struct actual *actual, struct error *err)
{
    const cJSON *names = NULL, *layout = NULL, *one;
    const char *text;
    /* Both parts of the map are optional: a missing part keeps its NULL, and cJSON_ArrayForEach skips it. */
    enum error_code e = json_has(actual->map, "names")
        ? json_object(actual->map, actual->map_path, "names", &names, err) : OK;
    if (!e && json_has(actual->map, "layout")) e = json_array(actual->map, actual->map_path, "layout", &layout, err);
    cJSON_ArrayForEach(one, names)
        if (!e) e = check_name(actual, one, err);
    cJSON_ArrayForEach(one, layout) {
        if (e) break;
        if (!cJSON_IsObject(one))
            return fail(err, ERR_FORMAT, "%s: layout: an element is not an object",
                        printable_path(actual->map_path).text);
        e = json_string(one, actual->map_path, "tensors", &text, err);
    }
    return e;
}

/* ---- all files --------------------------------------------------------------------------------------------------- */

/* All files are of dumps, or none is. */
static enum error_code check_alike(const struct actual *actual, struct error *err)
{
    const char *map = actual->map_path;
    /* The message names the file that lacks the mark, whichever of both this is. */
    for (int f = 1; f < actual->files; f++)
        if (actual_is_dump(&actual->file[f].st) != actual_is_dump(&actual->file[0].st))
            return fail(err, ERR_FORMAT, "%s: its metadata has no \"orrery_dump\", but that of %s has",
                        printable_path(actual->file[actual_is_dump(&actual->file[0].st) ? f : 0].st.path).text,
                        printable_path(actual->file[actual_is_dump(&actual->file[0].st) ? 0 : f].st.path).text);
    if (map && actual_is_dump(&actual->file[0].st))
        return fail(err, ERR_FORMAT, "%s: is a dump that says itself what is in it; --map %s must not say it, too",
                    printable_path(actual->file[0].st.path).text, printable_path(map).text);
    return OK;
}

/* Open all files and give each its rank.  On failure the files that are open stay in actual->file; actual_open
 * closes them. */
static enum error_code open_files(struct actual *actual, char **paths, int count, struct error *err)
{
    enum error_code e = OK;
    actual->file = calloc((size_t)count + 1, sizeof *actual->file);
    if (actual->file == NULL) return fail(err, ERR_MEMORY, "no memory for %d files", count);
    while (actual->files < count && !e) {
        e = safetensors_open(&actual->file[actual->files].st, paths[actual->files], err);
        actual->files += !e;
    }
    if (!e) e = check_alike(actual, err);
    /* check_alike has made sure that the first file speaks for all files. */
    actual->dump = !e && actual_is_dump(&actual->file[0].st);
    if (!e) e = actual->dump ? actual_open_dump(actual, err) : place_ranks(actual, err);
    /* Files without a layout may say how they compute, as a dump does. */
    for (int f = 0; f < actual->files && !actual->dump && !e; f++)
        e = actual_read_computation(actual, &actual->file[f], err);
    actual->ranks = actual->mesh.devices;
    /* A dump's files are sorted by actual_open_dump, whose later checks need the order. */
    if (!e && !actual->dump) qsort(actual->file, (size_t)actual->files, sizeof *actual->file, by_rank);
    return e;
}

enum error_code actual_open(struct actual *actual, const char *path, const char *map, struct error *err)
{
    char **paths = NULL;
    int files = 0;
    *actual = (struct actual){ .map_path = map, .dtype = DTYPE_COUNT, .sums = DTYPE_COUNT };
    /* The map is read first, because its "ranks" may name the files. */
    enum error_code e = map ? json_read(map, &actual->map, err) : OK;
    if (!e && map && !cJSON_IsObject(actual->map))
        e = fail(err, ERR_FORMAT, "%s: is not an object", printable_path(map).text);
    if (!e && map) e = check_map(actual, err);
    if (!e) e = list_files(actual, path, &paths, &files, err);
    if (!e) e = open_files(actual, paths, files, err);
    /* The files are open or have failed, so nobody needs the paths any more. */
    for (int f = 0; f < files; f++) free(paths[f]);
    free(paths);
    if (e) actual_close(actual);
    return e;
}

void actual_leave(struct actual *actual)
{
    for (int f = 0; f < actual->files; f++)
        cJSON_Delete(actual->file[f].layout), cJSON_Delete(actual->file[f].left_out),
            cJSON_Delete(actual->file[f].not_recorded);
    free(actual->file), free(actual->entry), adapters_free(&actual->adapters);
    cJSON_Delete(actual->map);
    *actual = (struct actual){ 0 };
}

void actual_close(struct actual *actual)
{
    for (int f = 0; f < actual->files; f++) safetensors_close(&actual->file[f].st);
    actual_leave(actual);
}

/* ---- files that are open already --------------------------------------------------------------------------------- */

enum error_code actual_enter(struct actual *actual, const struct actual_opened *const *opened, int files,
                             struct error *err)
{
    *actual = (struct actual){ .dtype = DTYPE_COUNT, .sums = DTYPE_COUNT, .dump = true, .files = files,
                               .file = calloc((size_t)files + 1, sizeof *actual->file) };
    if (actual->file == NULL) return fail(err, ERR_MEMORY, "no memory for %d files", files);
    for (int f = 0; f < files; f++)
        actual->file[f] = (struct actual_file){ .st = opened[f]->st, .pruned = opened[f]->pruned };
    const enum error_code e = actual_open_dump(actual, err);
    actual->ranks = actual->mesh.devices;
    if (e) actual_leave(actual);
    return e;
}

enum error_code actual_place(const struct safetensors *st, int *rank, struct mesh *mesh, int64_t *begins,
                             struct error *err)
{
    struct actual_file file = { .st = *st };
    struct actual one = { .dtype = DTYPE_COUNT, .sums = DTYPE_COUNT, .dump = true, .files = 1, .file = &file };
    if (!actual_is_dump(st))
        return fail(err, ERR_FORMAT, "%s: does not say whose it is: its metadata has no \"orrery_dump\"",
                    printable_path(st->path).text);
    const enum error_code e = actual_open_alone(&one, err);
    *rank = file.rank, *mesh = one.mesh, *begins = one.begins;
    cJSON_Delete(file.layout), cJSON_Delete(file.left_out), cJSON_Delete(file.not_recorded);
    free(one.entry), adapters_free(&one.adapters);
    return e;
}

/* ---- pieces ------------------------------------------------------------------------------------------------------ */

/* The answer comes from the names alone; no number is read. */
bool actual_has(const struct actual *actual, const char *ours)
{
    char theirs[ACTUAL_NAME];
    int count;
    if (actual->dump) return actual_entries(actual, ours, &count) != NULL;
    actual_name(actual, ours, theirs);
    for (int r = 0; r < actual->ranks; r++)
        if (safetensors_find(&actual->file[r].st, theirs)) return true;
    return false;
}

/* Gradients of weights can always be shown, whatever the list says. */
bool actual_leaves_out(const struct actual *actual, const char *ours)
{
    const char *const name = strncmp(ours, "act/", 4) == 0    ? ours + 4
                             : strncmp(ours, "grad/", 5) == 0 ? ours + 5 : NULL;
    if (name == NULL || param_is_name(ours)) return false;
    for (int f = 0; f < actual->files; f++)
        if (cJSON_HasObjectItem(actual->file[f].left_out, name)) return true;
    return false;
}

int actual_micros(const struct actual *actual)
{
    int most = 0;
    /* Microbatches are numbered from 0, so the largest number plus 1 is their count. */
    for (int i = 0; i < actual->entries; i++) {
        const cJSON *micro = cJSON_GetObjectItemCaseSensitive(actual->entry[i].layout, "micro");
        if (micro && micro->valueint + 1 > most) most = micro->valueint + 1;
    }
    return most;
}

int actual_parts(const struct actual *actual, const char *ours)
{
    int count = 0, most = 1;
    const struct actual_entry *entry = actual->dump ? actual_entries(actual, ours, &count) : NULL;
    for (int i = 0; entry && i < count; i++) {
        const int parts = actual_parts_of_entry(actual, &entry[i]);
        if (parts > most) most = parts;
    }
    return most;
}

/* With a map each rank has one file, and therefore at most one piece of a tensor. */
static enum error_code find_by_map(const struct actual *actual, const char *ours, const int64_t dim[2],
                                   struct actual_pieces *pieces, struct error *err)
{
    char theirs[ACTUAL_NAME];
    enum error_code e = OK;
    actual_name(actual, ours, theirs);
    for (int r = 0; r < actual->ranks && !e; r++) {
        if (safetensors_find(&actual->file[r].st, theirs) == NULL) continue;
        e = actual_piece_of_map(actual, ours, theirs, r, dim, &pieces->all[pieces->count], err);
        pieces->count += !e;
    }
    return e;
}

enum error_code actual_find(const struct actual *actual, const char *ours, const int64_t dim[2],
                            struct actual_pieces *pieces, struct error *err)
{
    /* A dump may have several pieces on each rank, so its entries are counted; a map's ranks are the most pieces. */
    int count = actual->ranks;
    const struct actual_entry *entry = actual->dump ? actual_entries(actual, ours, &count) : NULL;
    *pieces = (struct actual_pieces){ .all = calloc((size_t)count + 1, sizeof *pieces->all) };
    if (pieces->all == NULL) return fail(err, ERR_MEMORY, "no memory for the pieces of %s", ours);
    enum error_code e = actual->dump ? OK : find_by_map(actual, ours, dim, pieces, err);
    for (int i = 0; actual->dump && i < count && !e; i++) {
        e = actual_piece_of_entry(actual, &entry[i], dim, &pieces->all[i], err);
        pieces->count += !e;
    }
    /* The pieces that were made before the error are freed with the list. */
    if (e) actual_pieces_free(pieces);
    return e;
}

static void free_piece(struct actual_piece *piece)
{
    for (int i = 0; i < piece->parts; i++) part_free(&piece->part[i]);
    free(piece->part);
}

void actual_pieces_free(struct actual_pieces *pieces)
{
    for (int i = 0; i < pieces->count; i++) free_piece(&pieces->all[i]);
    free(pieces->all);
    *pieces = (struct actual_pieces){ 0 };
}
