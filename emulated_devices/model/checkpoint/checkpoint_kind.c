/* checkpoint_kind.c -- which kind of checkpoint a folder has, and how one kind follows the other in the same folder.
 * checkpoint.c, checkpoint_write.c, series.c and sharded/ call.  Errors: those of bundle_begin. */
#include "emulated_devices/model/checkpoint/checkpoint_parts.h"
#include "emulated_devices/model/checkpoint/sharded/sharded.h"
#include "ref/io/disk.h"
#include "ref/io/output.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { LIST_LIMIT = 8 << 10 };

bool checkpoint_exists(const char *dir)
{
    char list[BUNDLE_PATH + 300];
    struct stat st;
    snprintf(list, sizeof list, "%s/%s", dir, CHECKPOINT_LIST);
    return stat(list, &st) == 0;
}

/* The list names the files.  One that cannot be read is reported by whoever opens it. */
const struct bundle_kind *checkpoint_kind(const char *dir)
{
    char path[BUNDLE_PATH + 300], *text;
    size_t count;
    snprintf(path, sizeof path, "%s/%s", dir, CHECKPOINT_LIST);
    if (file_read_all(path, LIST_LIMIT, &text, &count, NULL)) return &checkpoint_files;
    const bool sharded = strstr(text, "  " SHARDS_FILE "\n") != NULL;
    free(text);
    return sharded ? &sharded_files : &checkpoint_files;
}

enum error_code checkpoint_complete_other(const struct bundle_kind *kind, const char *dir, struct error *err)
{
    struct bundle_writer writer;
    if (!checkpoint_exists(dir) || checkpoint_kind(dir) == kind) return OK;
    const enum error_code e = bundle_begin(&writer, checkpoint_kind(dir), dir, err);
    if (!e) bundle_end(&writer);
    return e;
}

/* A file that is not there is no change of the disk. */
static void forget(const char *dir, const struct bundle_kind *kind, const struct bundle_kind *now)
{
    char path[BUNDLE_PATH + 300];
    struct stat st;
    for (int i = 0; kind->name[i]; i++) {
        bool stays = false;
        for (int j = 0; now->name[j]; j++) stays = stays || strcmp(kind->name[i], now->name[j]) == 0;
        snprintf(path, sizeof path, "%s/%s", dir, kind->name[i]);
        if (!stays && stat(path, &st) == 0) disk_remove(path);
    }
}

void checkpoint_forget_whole(const char *dir) { forget(dir, &checkpoint_files, &sharded_files); }

void checkpoint_forget_shards(const char *dir)
{
    forget(dir, &sharded_files, &checkpoint_files);
    sharded_sweep(dir, NULL);
}
