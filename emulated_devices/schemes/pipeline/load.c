/* load.c -- a schedule by the name that the user gives: a registered one, or a file.
 *
 * plan/plan.c and cli/show/schedule.c call schedule_by_name; run/words/take.c calls schedule_is_file.  Every device
 * reads the file by itself, without messages.  The errors are ERR_FILE, ERR_FORMAT with the line, ERR_PLAN for a file
 * that does not fit, and those of schedule_make.
 */
#include "emulated_devices/schemes/pipeline/schedule_file.h"
#include "ref/io/output.h"
#include <errno.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { FILE_MOST = 64 << 20 };          /* bytes of a file with several schedules */

/* A registered name wins over a file of the same name in the current folder. */
bool schedule_is_file(const char *name)
{
    struct stat st;
    if (schedule_generator(name, NULL) != NULL) return false;
    return strpbrk(name, "/.") != NULL || (stat(name, &st) == 0 && S_ISREG(st.st_mode));
}

/* Every device reads the file, so it cannot be a pipe. */
static enum error_code check_regular(const char *path, struct error *err)
{
    struct stat st;
    if (stat(path, &st) != 0) return fail(err, ERR_FILE, "%s: %s", printable_path(path).text, strerror(errno));
    if (!S_ISREG(st.st_mode))
        return fail(err, ERR_FILE, "%s: is not a regular file; a schedule is read more than once",
                    printable_path(path).text);
    return OK;
}

/* FILE:NAME, unless there is a file of the whole name.  @return the colon, or NULL. */
static const char *colon_of(const char *path)
{
    struct stat st;
    const char *colon = strrchr(path, ':');
    return stat(path, &st) == 0 || colon == path ? NULL : colon;
}

/* read_one_of reads the schedule that is named after the colon, out of a file with several schedules. */
static enum error_code read_one_of(struct schedule *schedule, const char *path, const char *colon, struct error *err)
{
    char file[PATH_MAX], *text = NULL;
    size_t bytes;
    /* The part before the colon is the file's name. */
    if (snprintf(file, sizeof file, "%.*s", (int)(colon - path), path) >= (int)sizeof file)
        return fail(err, ERR_FILE, "%s: too long", printable_path(path).text);
    enum error_code e = check_regular(file, err);
    if (!e) e = file_read_all(file, FILE_MOST, &text, &bytes, err);
    /* A byte 0 would end the text early and hide the schedules after this byte. */
    if (!e && strlen(text) != bytes)
        e = fail(err, ERR_FORMAT, "%s: has a byte 0: expected text", printable_path(file).text);
    if (!e) e = schedule_read_named(schedule, text, colon + 1, printable_path(file).text, err);
    free(text);
    return e;
}

/* A path FILE:NAME selects one schedule of the file; any other path is a file with a single schedule. */
static enum error_code read_file(struct schedule *schedule, const char *path, struct error *err)
{
    const char *colon = colon_of(path);
    if (colon) return read_one_of(schedule, path, colon, err);
    enum error_code e = check_regular(path, err);
    if (e) return e;
    FILE *f = fopen(path, "r");
    if (f == NULL) return fail(err, ERR_FILE, "%s: cannot be opened: %s", printable_path(path).text, strerror(errno));
    e = schedule_read(schedule, f, printable_path(path).text, err);
    fclose(f);
    return e;
}

/* A number that the user has not given is 0 and fits every file. */
static bool load_fits(int have, int asked) { return asked == 0 || have == asked; }

enum error_code schedule_by_name(struct schedule *schedule, const char *name, const struct schedule_request *request,
                                 struct error *err)
{
    /* A file's list is complete, so options that shape a list are refused for files. */
    if (!schedule_is_file(name)) return schedule_make(schedule, name, request, err);
    if (request->skip > 0 || request->update_every > 0)
        return fail(err, ERR_PLAN, "%s: %s %d is for registered schedules; a file has its own %s",
                    printable_path(name).text, request->skip > 0 ? "--skip" : "--update-every",
                    request->skip > 0 ? request->skip : request->update_every, request->skip > 0 ? "routes" : "update");
    if (request->pairs)
        return fail(err, ERR_PLAN, "%s: --pairs is for registered schedules; a file says &B0 for a pass beside another",
                    printable_path(name).text);
    enum error_code e = read_file(schedule, name, err);
    if (e) return e;
    if (load_fits(schedule->devices, request->devices) && load_fits(schedule->micros, request->micros)
        && load_fits(schedule->chunks, request->chunks)) return OK;
    /* The message shows the file's own value for each number that the user has not given. */
    e = fail(err, ERR_PLAN,
             "%s: has a schedule for --pp %d --micro %d --chunks %d; --pp %d --micro %d --chunks %d do not fit",
             printable_path(name).text, schedule->devices, schedule->micros, schedule->chunks, request->devices
                 ? request->devices : schedule->devices,
             request->micros ? request->micros : schedule->micros, request->chunks ? request->chunks
                 : schedule->chunks);
    schedule_free(schedule);
    return e;
}
