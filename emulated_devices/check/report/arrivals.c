/* arrivals.c -- opens the files of a folder as a running program writes them, and finds the steps that are whole.
 * emulated_devices/cli/check_watch.c calls.  Files are foreign: one that cannot be used is told in a line.  Errors are
 * ERR_FILE for the folder, and ERR_MEMORY; arrivals_close frees what there is. */
#include "emulated_devices/check/report/arrivals.h"
#include "emulated_devices/check/report/checked_kinds.h"
#include "ref/machine/system.h"
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- the files that are known ------------------------------------------------------------------------------------ */

static struct arrival_identity identity_of(const struct stat *s)
{
    return (struct arrival_identity){ (uint64_t)s->st_dev, (uint64_t)s->st_ino, s->st_size, system_changed(s).tv_sec,
                                      system_changed(s).tv_nsec };
}

static bool is_same_file(const struct arrival_identity *a, const struct arrival_identity *b)
{
    return a->device == b->device && a->number == b->number && a->bytes == b->bytes && a->seconds == b->seconds &&
           a->nanoseconds == b->nanoseconds;
}

/* The place of a name in the list, or where it would be. */
static int arrivals_find(const struct arrivals *arrivals, const char *name)
{
    int low = 0, high = arrivals->count;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (strcmp(arrivals->all[middle]->name, name) < 0) low = middle + 1;
        else high = middle;
    }
    return low;
}

static void arrival_drop(struct arrivals *arrivals, struct arrival *arrival)
{
    if (!arrival->open) return;
    safetensors_close(&arrival->file.st);
    arrival->open = false, arrivals->open--;
}

/* Make a place in the list.  NULL: no memory. */
static struct arrival *arrivals_add(struct arrivals *arrivals, const char *name)
{
    const int at = arrivals_find(arrivals, name);
    struct arrival *const arrival = calloc(1, sizeof *arrival);
    char *const copy = strdup(name);
    struct arrival **const more = realloc(arrivals->all, (size_t)(arrivals->count + 1) * sizeof *more);
    if (more) arrivals->all = more;
    if (arrival == NULL || copy == NULL || more == NULL) {
        free(arrival), free(copy);
        return NULL;
    }
    memmove(&more[at + 1], &more[at], (size_t)(arrivals->count++ - at) * sizeof *more);
    arrival->name = copy;
    return more[at] = arrival;
}

/* ---- a file ------------------------------------------------------------------------------------------------------ */

static void arrivals_tell(struct arrivals *arrivals, const char *line)
{
    if (arrivals->tell) arrivals->tell(arrivals->context, line);
}

/* Find the step that a file is of.  Weights before the first may be in a file of their own, or in that of the first. */
static enum error_code arrival_find_step(const struct golden *golden, struct arrival *arrival, struct error *err)
{
    const struct safetensors *const st = &arrival->file.st;
    int64_t step = -1;
    for (int i = 0; i < st->count; i++) {
        char name[256];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(st->entry[i].name, "#"), st->entry[i].name);
        const int64_t its = checker_step_of(golden, name);
        const bool before = its == arrival->begins && its != golden->steps;
        if (its < 0 || (before && step >= 0)) continue;
        if (step > arrival->begins && its != step)
            return fail(err, ERR_FORMAT, "%s: has tensors of step %lld and of step %lld, such as %s; a file that is "
                        "watched has those of one step", printable_path(st->path).text, (long long)step, (long long)its,
                        printable(name).text);
        step = its;
    }
    arrival->step = step;
    if (step >= 0) return OK;
    return fail(err, ERR_FORMAT, "%s: has no tensor of a step of the golden file", printable_path(st->path).text);
}

/* All files begin after the same step, which the golden file has, and others behind it. */
static enum error_code arrival_check_begins(const struct arrivals *arrivals, const struct arrival *arrival,
                                            struct error *err)
{
    const struct printable path = printable_path(arrival->file.st.path);
    const long long begins = (long long)arrival->begins, steps = (long long)arrivals->golden->steps;
    if (begins >= steps)
        return fail(err, ERR_FORMAT, "%s: begins after step %lld; the golden file has %lld step%s", path.text, begins,
                    steps, steps == 1 ? "" : "s");
    if (!arrivals->begun || begins == arrivals->begins) return OK;
    return fail(err, ERR_FORMAT, "%s: begins after step %lld, and the files before it after step %lld", path.text,
                begins, (long long)arrivals->begins);
}

/* Open a file and read what it says of itself.  On failure nothing is open. */
static enum error_code arrival_read(const struct arrivals *arrivals, struct arrival *arrival, struct error *err)
{
    char path[4096];
    struct mesh mesh;
    arrival->file.pruned = false;
    if (snprintf(path, sizeof path, "%s/%s", arrivals->folder, arrival->name) >= (int)sizeof path)
        return fail(err, ERR_FILE, "%s: its path is too long", printable_path(arrival->name).text);
    enum error_code e = safetensors_open(&arrival->file.st, path, err);
    if (e) return e;
    e = actual_place(&arrival->file.st, &arrival->rank, &mesh, &arrival->begins, err);
    if (!e) e = arrival_check_begins(arrivals, arrival, err);
    if (!e) e = arrival_find_step(arrivals->golden, arrival, err);
    arrival->ranks = mesh.devices;
    if (e) safetensors_close(&arrival->file.st);
    return e;
}

static bool is_beyond(const struct arrivals *arrivals, const struct arrival *arrival)
{
    return arrival->step > arrivals->last;
}

/* A file has come, or another one of the same name.  A step that is judged stays judged: what comes then is told. */
static enum error_code arrival_take(struct arrivals *arrivals, struct arrival *arrival, struct error *err)
{
    struct error why = { 0 };
    char line[sizeof why.text + 64];
    const enum error_code e = arrival_read(arrivals, arrival, &why);
    if (e == ERR_MEMORY) return fail(err, e, "%s", why.text);
    if (e) {
        arrivals->unusable++;
        arrivals_tell(arrivals, why.text);
        return OK;
    }
    if (!arrivals->begun) arrivals->begins = arrivals->passed = arrival->begins;
    arrivals->begun = arrival->open = true, arrivals->open++;
    if (is_beyond(arrivals, arrival)) {
        arrival_drop(arrivals, arrival);
        return OK;
    }
    const bool before = arrival->step == arrivals->begins && arrivals->passed == arrivals->begins;
    if (arrival->step > arrivals->passed || before) return OK;
    snprintf(line, sizeof line, "%s: came after step %lld was judged or given up: it is not judged",
             printable_path(arrival->file.st.path).text, (long long)arrival->step);
    arrivals_tell(arrivals, line);
    arrivals->late++;
    arrival_drop(arrivals, arrival);
    return OK;
}

/* Look at a name of the folder.  A file that is gone again is none. */
static enum error_code arrivals_see(struct arrivals *arrivals, int folder, const char *name, struct error *err)
{
    static const char ending[] = ".safetensors";
    const size_t length = strlen(name);
    struct stat s;
    if (strcmp(name, ARRIVALS_END) == 0) arrivals->ended = true;
    if (length < sizeof ending || strcmp(name + length - strlen(ending), ending) != 0) return OK;
    if (fstatat(folder, name, &s, 0) != 0) return OK;
    const struct arrival_identity identity = identity_of(&s);
    const int at = arrivals_find(arrivals, name);
    const bool is_known = at < arrivals->count && strcmp(arrivals->all[at]->name, name) == 0;
    struct arrival *known = is_known ? arrivals->all[at] : NULL;
    if (known && is_same_file(&known->identity, &identity)) return OK;
    arrivals->crowded = arrivals->open >= arrivals->most_open;
    if (arrivals->crowded) return OK;
    if (known == NULL) known = arrivals_add(arrivals, name);
    if (known == NULL) return fail(err, ERR_MEMORY, "no memory for the files of %s", arrivals->folder);
    arrival_drop(arrivals, known);
    known->identity = identity;
    return arrival_take(arrivals, known, err);
}

/* ---- the folder -------------------------------------------------------------------------------------------------- */

/* Some descriptors are left for the golden file, the page, and the system. */
enum { DESCRIPTORS_LEFT = 48, DESCRIPTORS_LEAST = 8 };

enum error_code arrivals_open(struct arrivals *arrivals, const struct golden *golden, const char *folder, int64_t last,
                              struct error *err)
{
    struct stat s;
    struct rlimit files = { .rlim_cur = 256 };
    *arrivals = (struct arrivals){ .folder = folder, .golden = golden, .last = last };
    if (stat(folder, &s) == 0 && !S_ISDIR(s.st_mode))
        return fail(err, ERR_FILE, "%s: is not a folder; --watch looks into the one that the program writes",
                    printable_path(folder).text);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0 && files.rlim_cur < files.rlim_max) {
        struct rlimit more = { files.rlim_max, files.rlim_max };
        if (setrlimit(RLIMIT_NOFILE, &more) == 0) files = more;
    }
    const rlim_t most = files.rlim_cur > 1 << 20 ? 1 << 20 : files.rlim_cur;
    arrivals->most_open =
        most > DESCRIPTORS_LEFT + DESCRIPTORS_LEAST ? (int)most - DESCRIPTORS_LEFT : DESCRIPTORS_LEAST;
    return OK;
}

void arrivals_close(struct arrivals *arrivals)
{
    for (int i = 0; i < arrivals->count; i++) {
        arrival_drop(arrivals, arrivals->all[i]);
        free(arrivals->all[i]->name), free(arrivals->all[i]);
    }
    free(arrivals->all);
    *arrivals = (struct arrivals){ 0 };
}

/* A folder that has not changed for so many looks is not read: a change in the same instant as a look is seen by one
 * of those that follow. */
enum { LOOKS_AFTER_CHANGE = 12 };

enum error_code arrivals_look(struct arrivals *arrivals, struct error *err)
{
    struct stat s;
    enum error_code e = OK;
    arrivals->there = stat(arrivals->folder, &s) == 0;
    if (!arrivals->there) return OK;
    const struct arrival_identity now = identity_of(&s);
    arrivals->same = is_same_file(&now, &arrivals->seen) ? arrivals->same + 1 : 0;
    arrivals->seen = now;
    if (arrivals->same > LOOKS_AFTER_CHANGE && !arrivals->crowded) return OK;
    DIR *const d = opendir(arrivals->folder);
    if (d == NULL && errno == ENOENT) return OK;
    if (d == NULL) return fail(err, ERR_FILE, "%s: cannot be read", printable_path(arrivals->folder).text);
    for (const struct dirent *entry; !e && (entry = readdir(d)) != NULL;)
        e = arrivals_see(arrivals, dirfd(d), entry->d_name, err);
    closedir(d);
    return e;
}

/* ---- steps ------------------------------------------------------------------------------------------------------- */

int arrivals_lacking(const struct arrivals *arrivals, int64_t step, int *ranks)
{
    struct devices has = { 0 };
    *ranks = 0;
    for (int i = 0; i < arrivals->count; i++) {
        const struct arrival *const a = arrivals->all[i];
        if (!a->open) continue;
        if (a->step == step || *ranks == 0) *ranks = a->ranks;
        if (a->step == step) devices_add(&has, a->rank);
    }
    int rank = 0;
    while (rank < *ranks && devices_have(&has, rank)) rank++;
    return rank;
}

/* Whether a rank has gone on without a file of this step. */
static bool is_left_behind(const struct arrivals *arrivals, int64_t step)
{
    for (int i = 0; i < arrivals->count; i++) {
        const struct arrival *const later = arrivals->all[i];
        bool has = false;
        if (!later->open || later->step <= step) continue;
        for (int k = 0; k < arrivals->count && !has; k++) {
            const struct arrival *const a = arrivals->all[k];
            has = a->open && a->step == step && a->rank == later->rank;
        }
        if (!has || arrivals->ended) return true;
    }
    return false;
}

enum arrival_state arrivals_next(const struct arrivals *arrivals)
{
    const int64_t step = arrivals->passed + 1;
    int ranks;
    if (step > arrivals->last) return ARRIVAL_WAITS;
    const int lacking = arrivals_lacking(arrivals, step, &ranks);
    if (ranks > 0 && lacking == ranks) return ARRIVAL_IS_THERE;
    return is_left_behind(arrivals, step) ? ARRIVAL_IS_GONE : ARRIVAL_WAITS;
}

enum error_code arrivals_enter(const struct arrivals *arrivals, struct actual *actual, struct error *err)
{
    const struct actual_opened **files = calloc((size_t)arrivals->count + 1, sizeof *files);
    const int64_t step = arrivals->passed + 1;
    int count = 0, ranks;
    if (files == NULL) return fail(err, ERR_MEMORY, "no memory for the files of step %lld", (long long)step);
    const bool before = step == arrivals->begins + 1 || arrivals_lacking(arrivals, step - 1, &ranks) == ranks;
    for (int i = 0; i < arrivals->count; i++) {
        const struct arrival *const a = arrivals->all[i];
        if (a->open && (a->step == step || (before && a->step == step - 1))) files[count++] = &a->file;
    }
    const enum error_code e = actual_enter(actual, files, count, err);
    free(files);
    /* A later step of a resumed program begins with its own weights, too. */
    if (!e && arrivals->begins > 0) actual->begins = step - 1;
    return e;
}

/* The step after a step begins with its weights and states.  It does not with its gradients, nor with what the step
 * itself began with. */
struct arrival_kept { const struct golden *golden; int64_t step; };

static bool is_begun_with(const void *context, const char *key)
{
    const struct arrival_kept *const kept = context;
    char name[256];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(key, "#"), key);
    return checked_kind_of(name) == KIND_STEP && strstr(name, "/grad/") == NULL
        && checker_step_of(kept->golden, name) == kept->step;
}

void arrivals_pass(struct arrivals *arrivals)
{
    arrivals->passed++;
    for (int i = 0; i < arrivals->count; i++) {
        struct arrival *const a = arrivals->all[i];
        if (!a->open || a->step > arrivals->passed) continue;
        if (a->step < arrivals->passed) {
            arrival_drop(arrivals, a);
            continue;
        }
        const struct arrival_kept kept = { arrivals->golden, a->step };
        safetensors_keep(&a->file.st, is_begun_with, &kept), a->file.pruned = true;
    }
}
