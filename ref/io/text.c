/* text.c -- loads texts of bytes, and cuts batches out of them at drawn places.
 *
 * orrery train, golden and other subcommands call this file.  Errors are ERR_FILE, ERR_FORMAT (no text), ERR_MEMORY,
 * and ERR_USAGE for a text that is too short.  A failed load leaves nothing to free.
 */
#include "ref/io/text.h"
#include "ref/io/output.h"
#include "ref/numeric/philox.h"
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const int64_t NO_LIMIT = INT64_C(1) << 40;       /* bytes: more than fits in memory */

/* ---- loading ----------------------------------------------------------------------------------------------------- */

/* The limit cuts the last file. */
static enum error_code text_append(struct text *text, const char *path, int64_t limit, struct error *err)
{
    char *bytes;
    size_t n;
    const enum error_code e = file_read_all(path, NO_LIMIT, &bytes, &n, err);
    if (e != OK) return e;
    if ((int64_t)n > limit - text->count) n = (size_t)(limit - text->count);
    uint8_t *grown = realloc(text->bytes, (size_t)text->count + n + 1);
    if (grown == NULL) {
        free(bytes);
        return fail(err, ERR_MEMORY, "%s: no memory to join it to the text before it", printable_path(path).text);
    }
    memcpy(grown + text->count, bytes, n);
    free(bytes);
    text->bytes = grown;
    text->count += (int64_t)n;
    text->files++;
    return OK;
}

/* All files become one text, in this order; nine tenths of it are for training. */
static enum error_code io_text_load(struct text *text, const char *const *paths, int n, int64_t limit,
                                    struct error *err)
{
    enum error_code e = OK;
    for (int i = 0; i < n && e == OK && text->count < limit; i++) e = text_append(text, paths[i], limit, err);
    if (e == OK && text->count == 0)
        e = fail(err, ERR_FORMAT, "%s: is empty: there is no text to train on", text->name);
    if (e != OK) text_free(text);
    text->train = text->count - text->count / 10;
    return e;
}

enum error_code text_load(struct text *text, const char *const *paths, int n, struct error *err)
{
    *text = (struct text){ 0 };
    assert(n >= 1);
    /* The name is for messages: the first file, and how many more. */
    const struct printable first = printable_path(paths[0]);
    if (n == 1) snprintf(text->name, sizeof text->name, "%s", first.text);
    else snprintf(text->name, sizeof text->name, "%s and %d more", first.text, n - 1);
    return io_text_load(text, paths, n, NO_LIMIT, err);
}

enum error_code text_load_own(struct text *text, struct error *err)
{
    *text = (struct text){ .bytes = malloc(text_plays_bytes), .count = (int64_t)text_plays_bytes, .files = 1,
                        .name = "two plays of Shakespeare" };
    if (text->bytes == NULL) {
        *text = (struct text){ 0 };
        return fail(err, ERR_MEMORY, "no memory for the program's own text");
    }
    /* The text is copied, so that text_free serves all texts alike. */
    memcpy(text->bytes, text_plays, text_plays_bytes);
    text->train = text->count - text->count / 10;
    return OK;
}

void text_free(struct text *text)
{
    free(text->bytes);
    packing_free(&text->packing);
    *text = (struct text){ 0 };
}

/* ---- a tree of files --------------------------------------------------------------------------------------------- */

struct path_list { char **path; int count, room; };

static void path_list_free(struct path_list *path_list)
{
    for (int i = 0; i < path_list->count; i++) free(path_list->path[i]);
    free(path_list->path);
}

/* Takes ownership of `path` (from malloc); frees it if there is no memory for the list. */
static bool path_list_add(struct path_list *path_list, char *path)
{
    if (path_list->count == path_list->room) {
        const int room = path_list->room == 0 ? 64 : 2 * path_list->room;
        char **grown = realloc(path_list->path, (size_t)room * sizeof *grown);
        if (grown == NULL) {
            free(path);
            return false;
        }
        path_list->path = grown;
        path_list->room = room;
    }
    path_list->path[path_list->count++] = path;
    return true;
}

static bool is_text_file(const char *name)
{
    static const char *const ends[] = { ".c", ".h", ".md", ".sh", ".py" };
    const size_t n = strlen(name);
    for (size_t i = 0; i < sizeof ends / sizeof *ends; i++) {
        const size_t m = strlen(ends[i]);
        if (n > m && strcmp(name + n - m, ends[i]) == 0) return true;
    }
    return strcmp(name, "Makefile") == 0;
}

static bool is_left_out(const char *folder)
{
    return strncmp(folder, "build", 5) == 0 || strcmp(folder, "golden") == 0 || strcmp(folder, "work") == 0;
}

static enum error_code text_collect_pieces(struct path_list *path_list, const char *root, int depth, struct error *err);

/* One entry of a folder: list it, visit it, or skip it.  Symbolic links are skipped: they may form cycles. */
static enum error_code visit(struct path_list *path_list, const char *folder, const char *name, int depth,
                             struct error *err)
{
    struct stat st;
    const size_t room = strlen(folder) + strlen(name) + 2;
    char *path = malloc(room);
    if (path == NULL) return fail(err, ERR_MEMORY, "%s: no memory to list it", folder);
    snprintf(path, room, "%s/%s", folder, name);
    if (lstat(path, &st) == 0 && S_ISREG(st.st_mode) && is_text_file(name))
        return path_list_add(path_list, path) ? OK : fail(err, ERR_MEMORY, "%s: no memory to list it", folder);
    enum error_code e = OK;
    if (lstat(path, &st) == 0 && S_ISDIR(st.st_mode) && !is_left_out(name))
        e = text_collect_pieces(path_list, path, depth + 1, err);
    free(path);
    return e;
}

static enum error_code text_collect_pieces(struct path_list *path_list, const char *root, int depth, struct error *err)
{
    enum { DEEPEST = 32 };                              /* each level keeps a folder open */
    DIR *d = depth < DEEPEST ? opendir(root) : NULL;
    if (d == NULL && depth > 0) return OK;              /* skip an unreadable folder */
    if (d == NULL) return fail(err, ERR_FILE, "%s: cannot be listed: %s", printable_path(root).text, strerror(errno));
    enum error_code e = OK;
    const struct dirent *entry;
    while (e == OK && (entry = readdir(d)) != NULL)
        if (entry->d_name[0] != '.') e = visit(path_list, root, entry->d_name, depth, err);
    closedir(d);
    return e;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* All files of the tree in the order of their names, up to `limit` bytes. */
enum error_code text_load_tree(struct text *text, const char *root, int64_t limit, struct error *err)
{
    struct path_list list = { 0 };
    *text = (struct text){ 0 };
    snprintf(text->name, sizeof text->name, "%s", printable_path(root).text);
    enum error_code e = text_collect_pieces(&list, root, 0, err);
    /* The order of readdir depends on the file system; strcmp's does not. */
    if (e == OK && list.count > 0) qsort(list.path, (size_t)list.count, sizeof *list.path, by_bytes);
    if (e == OK && list.count == 0)
        e = fail(err, ERR_FORMAT, "%s: has no *.c, *.h, *.md, *.sh, *.py or Makefile to read as text", text->name);
    if (e == OK) e = io_text_load(text, (const char *const *)list.path, list.count, limit, err);
    else text_free(text);
    path_list_free(&list);
    return e;
}

/* A folder is a tree of sources, NULL is the program's own text, any other path is a file. */
enum error_code text_load_named(struct text *text, const char *path, struct error *err)
{
    struct stat st;
    if (path == NULL) return text_load_own(text, err);
    if (stat(path, &st) == 0 && S_ISDIR(st.st_mode)) return text_load_tree(text, path, TEXT_TREE_LIMIT, err);
    return text_load(text, &path, 1, err);
}

/* ---- batches ----------------------------------------------------------------------------------------------------- */

static int64_t split_start(const struct text *text, enum text_split split)
{
    return split == TEXT_TRAIN ? 0 : text->train;
}
static int64_t split_count(const struct text *text, enum text_split split)
{
    return split == TEXT_TRAIN ? text->train : text->count - text->train;
}

/* A split needs S + 2 tokens: S inputs, a label for the last one, and two places to draw from. */
enum error_code text_check_length(const struct text *text, int64_t S, struct error *err)
{
    static const char *const what[] = { "training", "validation" };
    for (int s = TEXT_TRAIN; s <= (text->whole ? TEXT_TRAIN : TEXT_VALIDATION); s++)
        if (split_count(text, (enum text_split)s) < S + 2)
            return fail(err, ERR_USAGE, "%s: has %lld tokens for %s (of %lld), sequences of %lld need at least %lld",
                        text->name, (long long)split_count(text, (enum text_split)s), what[s], (long long)text->count,
                        (long long)S, (long long)S + 2);
    return OK;
}

/* The offset is a pure function of its arguments, so every device draws the same without messages. */
int64_t text_offset(const struct text *text, enum text_split split, uint64_t seed, int64_t step, int64_t b, int64_t S)
{
    /* Every place from which S tokens and a label can be read. */
    const uint64_t places = (uint64_t)(split_count(text, split) - S);
    const uint32_t counter[4] = { (uint32_t)b, (uint32_t)((uint64_t)b >> 32), (uint32_t)step,
                                  (uint32_t)((uint64_t)step >> 32) };
    /* Each split has its own seed, different from usual seeds and from those of the parameters. */
    const uint64_t k = seed ^ random_stream(split == TEXT_TRAIN ? "text train" : "text validation");
    const uint32_t key[2] = { (uint32_t)k, (uint32_t)(k >> 32) };
    uint32_t w[4];
    assert(S >= 1 && split_count(text, split) >= S + 2);
    philox4x32(counter, key, w);
    /* The bias of the remainder is below places / 2^64. */
    return split_start(text, split) + (int64_t)(((uint64_t)w[1] << 32 | w[0]) % places);
}

/* inputs [count, S] and labels [count, S]: a label is the byte after its input. */
void text_batch(const struct text *text, enum text_split split, uint64_t seed, int64_t step, int64_t S, int64_t b0,
                int64_t count, int32_t *inputs, int32_t *labels)
{
    for (int64_t i = 0; i < count; i++) {
        const uint8_t *from = text->bytes + text_offset(text, split, seed, step, b0 + i, S);
        for (int64_t s = 0; s < S; s++) {
            inputs[i * S + s] = from[s];
            labels[i * S + s] = from[s + 1];
        }
    }
}
