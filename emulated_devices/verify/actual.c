#include "emulated_devices/verify/actual.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- names ------------------------------------------------------------------------------------------------------- */

/* Each * first matches the shortest text.  If the rest does not match, only the last * is extended: everything before
 * it was matched as early as possible, so extending an earlier * cannot help.  Time: at most the product of both
 * lengths. */
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

const char *actual_name(const struct actual *a, const char *ours, char *out, size_t size)
{
    const cJSON *names = a->map ? cJSON_GetObjectItem(a->map, "names") : NULL, *one;
    const char *starts[STARS];
    int lengths[STARS];
    cJSON_ArrayForEach(one, names) {
        if (!pattern_match(one->string, ours, starts, lengths, STARS)) continue;
        size_t used = 0;
        int star = 0;
        out[0] = 0;
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

static int by_text(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

static bool has_ending(const char *name, const char *ending)
{
    const size_t n = strlen(name), m = strlen(ending);
    return n > m && strcmp(name + n - m, ending) == 0;
}

/* Paths of a folder's safetensors files, sorted by name, so ranks need leading zeros: rank02 before rank10. */
static enum error_code list_folder(const char *path, char ***out, int *count, struct error *err)
{
    DIR *d = opendir(path);
    char **all = NULL;
    int n = 0;
    if (d == NULL) return fail(err, ERR_FILE, "%s: cannot be read", printable_path(path).text);
    for (struct dirent *entry; (entry = readdir(d)) != NULL;) {
        if (!has_ending(entry->d_name, ".safetensors")) continue;
        char **grown = realloc(all, ((size_t)n + 1) * sizeof *all);
        if (grown == NULL) break;
        all = grown;
        all[n] = malloc(strlen(path) + strlen(entry->d_name) + 2);
        if (all[n] == NULL) break;
        sprintf(all[n++], "%s/%s", path, entry->d_name);
    }
    closedir(d);
    if (n > 0) qsort(all, (size_t)n, sizeof *all, by_text);
    *out = all, *count = n;
    return n > 0 ? OK : fail(err, ERR_FILE, "%s: there is no .safetensors file in it", printable_path(path).text);
}

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

static enum error_code list_files(const struct actual *a, const char *path, char ***out, int *count, struct error *err)
{
    struct stat s;
    const cJSON *ranks;
    if (stat(path, &s) != 0) return fail(err, ERR_FILE, "%s: cannot be read", printable_path(path).text);
    if (S_ISDIR(s.st_mode) && a->map && json_has(a->map, "ranks")) {
        enum error_code e = json_array(a->map, a->map_path, "ranks", &ranks, err);
        return e ? e : list_ranks(ranks, path, a->map_path, out, count, err);
    }
    if (S_ISDIR(s.st_mode)) return list_folder(path, out, count, err);
    *out = calloc(1, sizeof **out);
    if (*out) (*out)[0] = malloc(strlen(path) + 1);
    if (*out == NULL || (*out)[0] == NULL) return fail(err, ERR_MEMORY, "no memory for the name of a file");
    strcpy((*out)[0], path);
    *count = 1;
    return OK;
}

/* The map's mesh, and each file's rank in our order of axes.  Without a mesh all ranks are along dp. */
static enum error_code place_ranks(struct actual *a, int files, int rank_of[], struct error *err)
{
    int size[AXIS_COUNT] = { 1, 1, 1, 1, 1 }, order[AXIS_COUNT], axes = 0;
    const cJSON *mesh = NULL, *one;
    enum error_code e = a->map && json_has(a->map, "mesh") ? json_object(a->map, a->map_path, "mesh", &mesh, err) : OK;
    if (e) return e;
    cJSON_ArrayForEach(one, mesh) {
        enum axis axis = 0;
        int64_t n = 0;
        while (axis < AXIS_COUNT && strcmp(axis_name(axis), one->string) != 0) axis++;
        if (axis == AXIS_COUNT || !json_whole(one, &n) || n < 1 || n > MESH_MOST_DEVICES || axes == AXIS_COUNT)
            return fail(err, ERR_FORMAT, "%s: mesh: \"%s\" is not one of pp, dp, cp, ep, tp with a size of at least 1",
                        printable_path(a->map_path).text, printable(one->string).text);
        order[axes++] = (int)axis;
        size[axis] = (int)n;
    }
    if (axes == 0) size[DP] = files, order[axes++] = DP;
    e = mesh_make(&a->mesh, size, err);
    if (!e && a->mesh.devices != files)
        e = fail(err, ERR_PLAN, "the map's mesh has %d ranks, but there are %d files", a->mesh.devices, files);
    for (int f = 0; f < files && !e; f++) {
        int rank = 0, left = f;
        for (int i = axes - 1; i >= 0; i--) {
            rank = mesh_neighbour(&a->mesh, rank, (enum axis)order[i], left % size[order[i]]);
            left /= size[order[i]];
        }
        rank_of[f] = rank;
    }
    return e;
}

static int stars(const char *text)
{
    int n = 0;
    for (; *text; text++) n += *text == '*';
    return n;
}

/* "layers.*": "h.*" -- every * of the second needs a * in the first. */
static enum error_code check_name(const struct actual *a, const cJSON *one, struct error *err)
{
    const char *map = a->map_path;
    if (!cJSON_IsString(one))
        return fail(err, ERR_FORMAT, "%s: names: \"%s\" has no name beside it", printable_path(map).text,
                    printable(one->string).text);
    if (stars(one->string) > STARS)
        return fail(err, ERR_FORMAT, "%s: names: \"%s\" has more than %d *", printable_path(map).text,
                    printable(one->string).text, STARS);
    if (stars(one->valuestring) > stars(one->string))
        return fail(err, ERR_FORMAT, "%s: names: \"%s\" has fewer * than \"%s\"", printable_path(map).text,
                    printable(one->string).text, printable(one->valuestring).text);
    return OK;
}

/* Check everything that actual_read and actual_name assume. */
static enum error_code check_map(const struct actual *a, struct error *err)
{
    const cJSON *names = NULL, *layout = NULL, *one;
    const char *text;
    enum error_code e = json_has(a->map, "names") ? json_object(a->map, a->map_path, "names", &names, err) : OK;
    if (!e && json_has(a->map, "layout")) e = json_array(a->map, a->map_path, "layout", &layout, err);
    cJSON_ArrayForEach(one, names)
        if (!e) e = check_name(a, one, err);
    cJSON_ArrayForEach(one, layout) {
        if (e) break;
        if (!cJSON_IsObject(one))
            return fail(err, ERR_FORMAT, "%s: layout: an element is not an object", printable_path(a->map_path).text);
        e = json_string(one, a->map_path, "tensors", &text, err);
    }
    return e;
}

enum error_code actual_open(struct actual *a, const char *path, const char *map, struct error *err)
{
    char **paths = NULL;
    int files = 0, *rank_of = NULL;
    *a = (struct actual){ .map_path = map };
    enum error_code e = map ? json_read(map, &a->map, err) : OK;
    if (!e && map && !cJSON_IsObject(a->map))
        e = fail(err, ERR_FORMAT, "%s: is not an object", printable_path(map).text);
    if (!e && map) e = check_map(a, err);
    if (!e) e = list_files(a, path, &paths, &files, err);
    if (!e) {
        a->file = calloc((size_t)files, sizeof *a->file);
        rank_of = calloc((size_t)files, sizeof *rank_of);
        if (a->file == NULL || rank_of == NULL) e = fail(err, ERR_MEMORY, "no memory for %d files", files);
    }
    if (!e) e = place_ranks(a, files, rank_of, err);
    for (int f = 0; f < files && !e; f++) {
        e = safetensors_open(&a->file[rank_of[f]], paths[f], err);
        if (!e) a->ranks++;
        else a->file[rank_of[f]] = (struct safetensors){ 0 };
    }
    for (int f = 0; f < files; f++) free(paths[f]);
    free(paths), free(rank_of);
    if (e) {
        for (int f = 0; a->file && f < files; f++)
            if (a->file[f].path) safetensors_close(&a->file[f]);
        free(a->file);
        cJSON_Delete(a->map);
        *a = (struct actual){ 0 };
    }
    return e;
}

void actual_close(struct actual *a)
{
    for (int r = 0; r < a->ranks; r++) safetensors_close(&a->file[r]);
    free(a->file);
    cJSON_Delete(a->map);
    *a = (struct actual){ 0 };
}
