/* bundle.c -- a folder of files that are replaced together, as bundle.h describes.
 *
 * model/checkpoint/ calls this file for checkpoints.  Errors are ERR_FILE, ERR_FORMAT for a damaged list or file, and
 * ERR_MEMORY. bundle_end has to follow bundle_begin in every case, and frees the lock.
 */
#include "ref/io/bundle.h"
#include "ref/io/disk.h"
#include "ref/io/output.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LIST_LIMIT = 8 << 10 };

static char *bundle_join(char *path, const char *dir, const char *name, const char *suffix)
{
    snprintf(path, BUNDLE_PATH, "%s/%s%s", dir, name, suffix);
    return path;
}

/* Every path in the folder must fit into BUNDLE_PATH bytes. */
static enum error_code check_length(const char *dir, struct error *err)
{
    return strlen(dir) < BUNDLE_FOLDER ? OK
                                       : fail(err, ERR_FILE, "%s: this name is too long", printable_path(dir).text);
}

static bool is_there(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0;
}

static enum error_code fail_errno(struct error *err, const char *path, const char *what)
{
    return fail(err, ERR_FILE, "%s: %s: %s", printable_path(path).text, what, strerror(errno));
}

/* ---- the list ---------------------------------------------------------------------------------------------------- */

/* Print the list.  A list that was read is valid if printing its checksums gives the same text. */
static void print_list(const struct bundle_kind *kind, const struct sha256_text sum[], char *text)
{
    int used = snprintf(text, LIST_LIMIT, "# %s; `sha256sum -c %s` checks it\n", kind->title, kind->list);
    for (int i = 0; kind->name[i]; i++)
        used += snprintf(text + used, LIST_LIMIT - (size_t)used, "%s  %s\n", sum[i].text, kind->name[i]);
    snprintf(text + used, LIST_LIMIT - (size_t)used, "# %s of the lines above\n", sha256_of(text, (size_t)used).text);
}

/* The list is read by its sums alone; printing it again shows whether every byte is as it was written. */
static bool read_list(struct bundle *bundle, const char *text, size_t count)
{
    char again[LIST_LIMIT];
    const char *line = strchr(text, '\n');
    for (int i = 0; bundle->kind->name[i]; i++) {
        /* Line i + 1 has the sum of file i; the first line is the title. */
        if (line == NULL || sscanf(line + 1, "%64[0-9a-f]", bundle->sum[i].text) != 1) return false;
        line = strchr(line + 1, '\n');
    }
    print_list(bundle->kind, bundle->sum, again);
    return strlen(again) == count && memcmp(again, text, count) == 0;
}

/* Without a list there is no bundle (*there is false), and that is no error. */
enum error_code bundle_open(struct bundle *bundle, const struct bundle_kind *kind, const char *dir, bool *there,
                            struct error *err)
{
    char path[BUNDLE_PATH], *text;
    size_t count;
    *bundle = (struct bundle){ .kind = kind, .dir = dir };
    *there = false;
    enum error_code e = check_length(dir, err);
    if (e) return e;
    /* Without a list files are taken as they are. */
    if (!is_there(bundle_join(path, dir, kind->list, ""))) return OK;
    *there = true;
    e = file_read_all(path, LIST_LIMIT, &text, &count, err);
    if (e) return e;
    if (!read_list(bundle, text, count))
        e = fail(err, ERR_FORMAT, "%s: is damaged: its lines are not those that were written",
                 printable_path(path).text);
    free(text);
    return e;
}

/* The name has to be one of the kind's; callers have them from there. */
static int bundle_place_of(const struct bundle *bundle, const char *name)
{
    int i = 0;
    while (strcmp(bundle->kind->name[i], name) != 0) i++;
    return i;
}

static bool has_sum(const struct bundle *bundle, const char *name, const char *path)
{
    struct sha256_text found;
    return sha256_file(path, &found, NULL) == OK
           && strcmp(found.text, bundle->sum[bundle_place_of(bundle, name)].text) == 0;
}

void bundle_find(const struct bundle *bundle, const char *name, char *path)
{
    char beside[BUNDLE_PATH];
    bundle_join(path, bundle->dir, name, "");
    /* A complete file beside the old one waits for its name: a writer was stopped in between. */
    if (is_there(bundle_join(beside, bundle->dir, name, ".new")) && !has_sum(bundle, name, path)
        && has_sum(bundle, name, beside)) strcpy(path, beside);
}

static enum error_code fail_damaged(const char *path, const char *list, struct error *err)
{
    return fail(err, ERR_FORMAT,
                "%s: is damaged, or not the file that was saved: its SHA-256 is not the one in %s, without which files "
                "are taken as they are",
                printable_path(path).text, list);
}

enum error_code bundle_check(const struct bundle *bundle, const char *name, struct error *err)
{
    char path[BUNDLE_PATH];
    struct sha256_text found;
    bundle_find(bundle, name, path);
    enum error_code e = sha256_file(path, &found, err);
    if (!e && strcmp(found.text, bundle->sum[bundle_place_of(bundle, name)].text) != 0)
        e = fail_damaged(path, bundle->kind->list, err);
    return e;
}

/* The bytes are checked in memory, so that nothing can change between check and use. */
enum error_code bundle_read(const struct bundle *bundle, const char *name, int64_t limit, char **bytes, size_t *count,
                            struct error *err)
{
    char path[BUNDLE_PATH];
    bundle_find(bundle, name, path);
    const enum error_code e = file_read_all(path, limit, bytes, count, err);
    if (e) return e;
    if (strcmp(sha256_of(*bytes, *count).text, bundle->sum[bundle_place_of(bundle, name)].text) == 0) return OK;
    free(*bytes);
    *bytes = NULL;
    return fail_damaged(path, bundle->kind->list, err);
}

/* ---- beginning to write ------------------------------------------------------------------------------------------ */

int bundle_lock_to_read(const char *dir)
{
    const int fd = open(dir, O_RDONLY);
    if (fd >= 0 && flock(fd, LOCK_SH) != 0) return close(fd), -1;
    return fd;
}

/* Does nothing where the file system has no locks. */
static enum error_code lock(struct bundle_writer *writer, struct error *err)
{
    const struct timespec pause = { .tv_nsec = 50000000 };
    writer->lock = open(writer->dir, O_RDONLY);
    if (writer->lock < 0) return fail_errno(err, writer->dir, "cannot be written to");
    for (int waited = 0; flock(writer->lock, LOCK_EX | LOCK_NB) != 0 && (errno == EWOULDBLOCK || errno == EINTR);
         waited++) {
        if (waited == 20 * BUNDLE_PATIENCE)
            return fail(err, ERR_FILE, "%s: another process has been writing to this folder for %d seconds",
                        printable_path(writer->dir).text, BUNDLE_PATIENCE);
        nanosleep(&pause, NULL);
    }
    return OK;
}

/* Step 3: each NAME.new becomes NAME.  A process that is killed here leaves the rest to the next writer. */
static enum error_code give_names(const struct bundle_writer *writer, struct error *err)
{
    char from[BUNDLE_PATH], to[BUNDLE_PATH];
    for (int i = 0; writer->kind->name[i]; i++) {
        if (!is_there(bundle_join(from, writer->dir, writer->kind->name[i], ".new"))) continue;
        if (disk_rename(from, bundle_join(to, writer->dir, writer->kind->name[i], "")) != 0)
            return fail_errno(err, to, "is complete, but cannot be given its name");
    }
    return disk_flush_folder(writer->dir) != 0 ? fail_errno(err, writer->dir, "cannot be flushed to the disk") : OK;
}

/* Finish the renaming of a writer that was killed after its list was in place.  A damaged list is ignored. */
static enum error_code bundle_complete(const struct bundle_writer *writer, struct error *err)
{
    struct bundle b;
    bool there, pending = false;
    char path[BUNDLE_PATH], found[BUNDLE_PATH];
    if (bundle_open(&b, writer->kind, writer->dir, &there, NULL) != OK || !there) return OK;
    for (int i = 0; writer->kind->name[i]; i++) {
        bundle_find(&b, writer->kind->name[i], found);
        pending = pending || strcmp(found, bundle_join(path, writer->dir, writer->kind->name[i], ".new")) == 0;
    }
    return pending ? give_names(writer, err) : OK;
}

/* Leftovers are NAME.new, and temporary files of output.c for a NAME or for the list. */
static bool is_left_over(const struct bundle_kind *kind, const char *entry)
{
    for (int i = 0; kind->name[i]; i++) {
        const size_t n = strlen(kind->name[i]);
        if (strncmp(entry, kind->name[i], n) == 0 &&
            (strncmp(entry + n, ".new", 4) == 0 || strncmp(entry + n, ".tmp.", 5) == 0))
            return true;
    }
    const size_t n = strlen(kind->list);
    return strncmp(entry, kind->list, n) == 0 && strncmp(entry + n, ".tmp.", 5) == 0;
}

/* Remove leftovers of writers that were killed before their list was in place. */
static void sweep(const struct bundle_writer *writer)
{
    DIR *d = opendir(writer->dir);
    char path[BUNDLE_PATH];
    const struct dirent *entry;
    while (d && (entry = readdir(d)) != NULL)
        if (is_left_over(writer->kind, entry->d_name)) disk_remove(bundle_join(path, writer->dir, entry->d_name, ""));
    if (d) closedir(d);
}

/* Refuse a folder or device that has the name of a file: it could not be replaced. */
static enum error_code check_names(const struct bundle_writer *writer, struct error *err)
{
    char path[BUNDLE_PATH];
    struct stat st;
    for (int i = 0; writer->kind->name[i]; i++)
        if (stat(bundle_join(path, writer->dir, writer->kind->name[i], ""), &st) == 0 && !S_ISREG(st.st_mode))
            return fail(err, ERR_FILE, "%s: cannot be written: it is %s", printable_path(path).text,
                        S_ISDIR(st.st_mode) ? "a folder" : "no file");
    return OK;
}

/* Begin: make the folder, refuse what cannot be replaced, take the lock, finish and clean up after earlier writers. */
enum error_code bundle_begin(struct bundle_writer *writer, const struct bundle_kind *kind, const char *dir,
                             struct error *err)
{
    struct stat st;
    *writer = (struct bundle_writer){ .kind = kind, .lock = -1 };
    enum error_code e = check_length(dir, err);
    if (e) return e;
    strcpy(writer->dir, dir);
    /* bundle_end removes the folder again only if this call has made it. */
    writer->made = disk_make_folder(dir) == 0;
    if (!writer->made && !(errno == EEXIST && stat(dir, &st) == 0 && S_ISDIR(st.st_mode))) {
        if (errno == EEXIST) errno = ENOTDIR;
        return fail_errno(err, dir, "this folder cannot be made");
    }
    e = check_names(writer, err);
    if (!e) e = lock(writer, err);
    writer->begun = !e;
    if (!e) e = bundle_complete(writer, err);
    if (!e) sweep(writer);
    if (e) bundle_end(writer);
    return e;
}

/* ---- ending ------------------------------------------------------------------------------------------------------ */

char *bundle_new_path(const struct bundle_writer *writer, const char *name, char *path)
{
    return bundle_join(path, writer->dir, name, ".new");
}

/* The list is written like any other file: aside, flushed, then renamed. */
static enum error_code write_list(const struct bundle_writer *writer, const struct sha256_text sum[], struct error *err)
{
    char text[LIST_LIMIT], path[BUNDLE_PATH];
    struct output o;
    print_list(writer->kind, sum, text);
    enum error_code e = output_create(&o, bundle_join(path, writer->dir, writer->kind->list, ""), err);
    if (!e) e = output_write(&o, text, strlen(text), 0, err);
    return e ? e : output_commit(&o, err);
}

enum error_code bundle_commit(struct bundle_writer *writer, struct error *err)
{
    struct sha256_text sum[BUNDLE_MOST];
    char path[BUNDLE_PATH];
    enum error_code e = OK;
    for (int i = 0; writer->kind->name[i] && !e; i++)
        e = sha256_file(bundle_new_path(writer, writer->kind->name[i], path), &sum[i], err);
    if (!e && disk_flush_folder(writer->dir) != 0) e = fail_errno(err, writer->dir, "cannot be flushed to the disk");
    /* The list comes last: until it is in place, the old files are the valid ones. */
    if (!e) e = write_list(writer, sum, err);
    if (e) return e;
    /* From here on the new files are the valid ones, whatever fails later. */
    writer->committed = true;
    if (disk_flush_folder(writer->dir) != 0) return fail_errno(err, writer->dir, "cannot be flushed to the disk");
    return give_names(writer, err);
}

/* A writer that did not commit leaves no file behind, nor the folder that it has made. */
void bundle_end(struct bundle_writer *writer)
{
    if (writer->kind == NULL) return;
    if (writer->begun && !writer->committed) sweep(writer);
    if (!writer->committed && writer->made) disk_remove_folder(writer->dir);
    if (writer->lock >= 0) close(writer->lock);
    *writer = (struct bundle_writer){ .lock = -1 };
}
