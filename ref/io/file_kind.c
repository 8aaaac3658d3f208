/* file_kind.c -- looks at a file or folder that a command cannot use, and says what it is.
 * file_kind.h names the callers.  Nothing fails here: what cannot be read is unknown. */
#include "ref/io/file_kind.h"
#include "ref/io/safetensors.h"
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *const words[] = {
#define X(id, words, command) words,
    FILE_KINDS(X)
#undef X
};
static const char *const commands[] = {
#define X(id, words, command) command,
    FILE_KINDS(X)
#undef X
};

static bool is_there(const char *folder, const char *name)
{
    char path[4096];
    struct stat s;
    const int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    return n > 0 && (size_t)n < sizeof path && stat(path, &s) == 0 && S_ISREG(s.st_mode);
}

/* The metadata of a file of tensors says who has written it. */
static enum file_kind kind_of_tensors(const char *path)
{
    struct safetensors st;
    struct error err = { 0 };
    enum file_kind kind = FILE_UNKNOWN;
    if (safetensors_open(&st, path, &err)) return FILE_UNKNOWN;
    const char *const by = safetensors_metadata(&st, "generator");
    if (safetensors_metadata(&st, "orrery_dump")) kind = FILE_DUMP;
    else if (safetensors_metadata(&st, "config") && safetensors_metadata(&st, "seed")) kind = FILE_GOLDEN;
    else if (by && strcmp(by, "orrery dump") == 0) kind = FILE_PASS;
    safetensors_close(&st);
    return kind;
}

/* A trace begins with its events, so its first bytes are enough. */
static bool is_trace(const char *path)
{
    char begin[64] = "";
    FILE *const file = fopen(path, "rb");
    const size_t n = file ? fread(begin, 1, sizeof begin - 1, file) : 0;
    if (file) fclose(file);
    begin[n] = 0;
    return strstr(begin, "\"traceEvents\"") != NULL;
}

/* Any file of a dump says that the folder is one. */
static bool has_dump(const char *folder)
{
    DIR *const dir = opendir(folder);
    bool found = false, looked = false;
    for (const struct dirent *one; dir && !looked && (one = readdir(dir)) != NULL;) {
        char path[4096];
        const char *const dot = strrchr(one->d_name, '.');
        const int n = snprintf(path, sizeof path, "%s/%s", folder, one->d_name);
        if (dot == NULL || strcmp(dot, ".safetensors") != 0 || n < 0 || (size_t)n >= sizeof path) continue;
        looked = true, found = kind_of_tensors(path) == FILE_DUMP;
    }
    if (dir) closedir(dir);
    return found;
}

enum file_kind file_kind_of(const char *path)
{
    struct stat s;
    if (path == NULL || stat(path, &s) != 0) return FILE_UNKNOWN;
    if (S_ISREG(s.st_mode)) return is_trace(path) ? FILE_TRACE : kind_of_tensors(path);
    if (!S_ISDIR(s.st_mode)) return FILE_UNKNOWN;
    if (is_there(path, "adapter_config.json")) return FILE_ADAPTER;
    if (is_there(path, "checkpoint.sha256")) return FILE_CHECKPOINT;
    if (is_there(path, "config.json")) return FILE_MODEL;
    return has_dump(path) ? FILE_DUMP : FILE_UNKNOWN;
}

enum error_code file_kind_refuse(enum error_code failed, const char *path, const char *wanted, enum file_kind is,
                                 struct error *err)
{
    const enum file_kind kind = failed ? file_kind_of(path) : FILE_UNKNOWN;
    if (kind == FILE_UNKNOWN || kind == is) return failed;
    return fail(err, failed, "%s: is %s, not %s: %s", printable_path(path).text, words[kind], wanted, commands[kind]);
}
