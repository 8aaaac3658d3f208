/* series.c -- makes the folder of a series of checkpoints, finds the newest, and removes old ones.  run/between.c
 * makes and prunes; run/words/take.c, cli/sample.c and draw/report/runs.c look for the newest.  A folder that cannot
 * be made, or a list that cannot be removed, is ERR_FILE.  An interrupted removal leaves no valid checkpoint. */
#include "emulated_devices/model/checkpoint/series.h"
#include "emulated_devices/model/checkpoint/checkpoint_parts.h"
#include "emulated_devices/model/checkpoint/sharded/sharded.h"
#include "ref/io/output.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_ROOM = BUNDLE_PATH };

void series_path(char *path, size_t size, const char *dir, int64_t step)
{
    snprintf(path, size, "%s/step-%08lld", dir, (long long)step);
}

enum error_code series_make(const char *dir, struct error *err)
{
    return mkdir(dir, 0777) == 0 || errno == EEXIST
               ? OK
               : fail(err, ERR_FILE, "%s: this folder cannot be made: %s", printable_path(dir).text, strerror(errno));
}

static int later_first(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

/* The steps of a folder's checkpoints, the last first.  @return their number. */
static int list_steps(const char *dir, int64_t **steps)
{
    char path[PATH_ROOM];
    int count = 0, room = 0;
    DIR *d = opendir(dir);
    *steps = NULL;
    for (const struct dirent *e; d != NULL && (e = readdir(d)) != NULL;) {
        long long step;
        int used = 0;
        if (sscanf(e->d_name, "step-%18lld%n", &step, &used) != 1 || e->d_name[used] || step < 0) continue;
        series_path(path, sizeof path, dir, step);
        if (!checkpoint_exists(path)) continue;
        int64_t *const more = count == room ? realloc(*steps, (size_t)(room = 2 * room + 8) * sizeof *more) : *steps;
        if (more == NULL) break;
        *steps = more;
        (*steps)[count++] = step;
    }
    if (d) closedir(d);
    if (count) qsort(*steps, (size_t)count, sizeof **steps, later_first);
    return count;
}

bool series_newest(char *path, size_t size, const char *dir)
{
    int64_t *steps;
    const bool itself = checkpoint_exists(dir);
    const int count = list_steps(dir, &steps);
    if (itself) snprintf(path, size, "%s", dir);
    else if (count) series_path(path, size, dir, steps[0]);
    free(steps);
    return itself || count > 0;
}

int64_t series_last(const char *dir)
{
    int64_t *steps, last = -1;
    if (list_steps(dir, &steps)) last = steps[0];
    free(steps);
    return last;
}

/* The list first: what is left if this is interrupted is no checkpoint. */
static enum error_code remove_one(const char *dir, struct error *err)
{
    char path[PATH_ROOM + 300];
    const struct bundle_kind *const kind = checkpoint_kind(dir);
    snprintf(path, sizeof path, "%s/%s", dir, kind->list);
    if (unlink(path) != 0)
        return fail(err, ERR_FILE, "%s: cannot be removed: %s", printable_path(path).text, strerror(errno));
    if (kind == &sharded_files) sharded_sweep(dir, NULL);
    for (int i = 0; kind->name[i]; i++) {
        snprintf(path, sizeof path, "%s/%s", dir, kind->name[i]);
        unlink(path);
        strcat(path, ".new");
        unlink(path);
    }
    rmdir(dir);                         /* not empty if somebody has put something there */
    return OK;
}

enum error_code series_prune(const char *dir, int keep, struct error *err)
{
    char path[PATH_ROOM];
    int64_t *steps;
    const int count = list_steps(dir, &steps);
    enum error_code e = OK;
    for (int i = keep; i < count && !e; i++) {
        series_path(path, sizeof path, dir, steps[i]);
        e = remove_one(path, err);
    }
    free(steps);
    return e;
}
