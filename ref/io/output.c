/* output.c -- writes files atomically, and reads whole files or parts.
 *
 * Nearly every room that reads or writes a file calls this file.  Errors are ERR_FILE (from the system), ERR_FORMAT
 * (too long) and ERR_MEMORY; each names the file.  A failed output removes its temporary file.
 */
#include "ref/io/output.h"
#include "ref/io/plain.h"
#include "ref/io/disk.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool inside_character(char c) { return ((unsigned char)c & 0xc0) == 0x80; }      /* of UTF-8 */

/* Text from outside may move a terminal's cursor, so control characters become "?". */
static void copy_shown(char *to, const char *from, size_t n)
{
    memcpy(to, from, n);
    to[n] = '\0';
    plain_text(to);
}

/* A long name keeps its beginning, whole characters of UTF-8. */
struct printable printable(const char *name)
{
    enum { MOST = 80 };
    struct printable s;
    size_t n = strlen(name);
    if (n <= MOST) {
        copy_shown(s.text, name, n);
        return s;
    }
    /* The cut moves back to the beginning of a character. */
    for (n = MOST - 3; n > 0 && inside_character(name[n]); n--);
    copy_shown(s.text, name, n);
    strcpy(s.text + n, "...");
    return s;
}

/* A long path keeps its end, where its file is. */
struct printable printable_path(const char *path)
{
    enum { MOST = 160 };
    struct printable s = { "..." };
    const size_t n = strlen(path);
    if (n <= MOST) {
        copy_shown(s.text, path, n);
        return s;
    }
    const char *from = path + n - (MOST - 3);
    /* The cut moves on to the beginning of a character. */
    while (inside_character(*from)) from++;
    copy_shown(s.text + 3, from, strlen(from));
    return s;
}

const char *temporary_folder(void)
{
    const char *folder = getenv("TMPDIR");
    return folder != NULL && folder[0] != '\0' ? folder : "/tmp";       /* if TMPDIR is not set */
}

static enum error_code fail_errno(struct error *err, const char *path, const char *what)
{
    return fail(err, ERR_FILE, "%s: %s: %s", printable_path(path).text, what, strerror(errno));
}

/* ---- output ------------------------------------------------------------------------------------------------------ */

static void output_forget(struct output *output)
{
    free(output->path);
    free(output->temp);
    *output = (struct output){ .fd = -1 };
}

/* The message is made before the abort, which forgets the path and may change errno. */
static enum error_code give_up(struct output *output, struct error *err, const char *what)
{
    const enum error_code e = fail_errno(err, output->path, what);
    output_abort(output);
    return e;
}

/* A stream is written directly, since a pipe or device cannot be renamed over. */
static enum error_code open_stream(struct output *output, struct error *err)
{
    output->stream = true;
    output->fd = strcmp(output->path, "-") == 0 ? dup(STDOUT_FILENO) : open(output->path, O_WRONLY);
    return output->fd < 0 ? give_up(output, err, "cannot be written") : OK;
}

/* Open the temporary file beside the final one, so that the renaming stays within a file system. */
enum error_code output_create(struct output *output, const char *path, struct error *err)
{
    struct stat st;
    const bool exists = stat(path, &st) == 0;
    const size_t room = strlen(path) + 32;
    *output = (struct output){ .fd = -1, .owner = true, .path = strdup(path), .temp = malloc(room) };
    if (output->path == NULL || output->temp == NULL) {
        output_forget(output);
        return fail(err, ERR_MEMORY, "%s: no memory to write it", printable_path(path).text);
    }
    /* A folder cannot be replaced by a file. */
    if (exists && S_ISDIR(st.st_mode)) {
        output_forget(output);
        return fail(err, ERR_FILE, "%s: cannot be written: it is a folder", printable_path(path).text);
    }
    if (strcmp(path, "-") == 0 || (exists && !S_ISREG(st.st_mode))) return open_stream(output, err);

    /* The process's number keeps two writers of one path apart. */
    snprintf(output->temp, room, "%s.tmp.%ld", path, (long)getpid());
    output->fd = disk_create(output->temp, O_RDWR | O_TRUNC);
    if (output->fd >= 0) return OK;
    const enum error_code e = fail_errno(err, path, "cannot be written");
    output_forget(output);
    return e;
}

/* Other processes write their parts into the temporary file of its owner, who renames it. */
enum error_code output_join(struct output *output, const char *path, const char *temp, struct error *err)
{
    *output = (struct output){ .fd = -1, .path = strdup(path), .temp = strdup(temp) };
    if (output->path == NULL || output->temp == NULL) {
        output_forget(output);
        return fail(err, ERR_MEMORY, "%s: no memory to write it", printable_path(path).text);
    }
    output->fd = open(temp, O_RDWR);
    if (output->fd >= 0) return OK;
    const enum error_code e = fail_errno(err, temp, "cannot be written");
    output_forget(output);
    return e;
}

enum error_code output_resize(struct output *output, int64_t bytes, struct error *err)
{
    if (output->stream) return OK;
    return disk_resize(output->fd, bytes) != 0 ? give_up(output, err, "making room failed") : OK;
}

/* Write all bytes; a call may write fewer.  A stream takes them only in order. */
enum error_code output_write(struct output *output, const void *data, size_t bytes, int64_t at, struct error *err)
{
    if (output->fd < 0) return fail(err, ERR_FILE, "a file was written to after it had failed or was finished");
    /* A stream cannot go back. */
    if (output->stream && at != output->written) {
        errno = ESPIPE;
        return give_up(output, err, "cannot be written in pieces");
    }
    const bool to_stdout = output->stream && strcmp(output->path, "-") == 0;
    const char *from = data;
    while (bytes > 0) {
        const ssize_t n = output->stream ? disk_write(output->fd, from, bytes)
            : disk_write_at(output->fd, from, bytes, at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EPIPE && to_stdout) break;        /* the reader has seen enough, as head */
        if (n == 0) errno = ENOSPC;                     /* POSIX sets no errno if nothing was written */
        if (n <= 0) return give_up(output, err, "writing failed");
        from += n, at += n, bytes -= (size_t)n;
        output->written += n;
    }
    output->written += (int64_t)bytes;                       /* nobody reads the rest */
    return OK;
}

bool output_reader_has_left(int fd)
{
    struct pollfd p = { .fd = fd, .events = POLLOUT };
    return poll(&p, 1, 0) == 1 && p.revents & POLLERR;
}

/* The probe makes the temporary file and removes it: a wrong path is found before hours of work. */
enum error_code output_probe(const char *path, struct error *err)
{
    struct stat st;
    struct output o;
    if (strcmp(path, "-") == 0 || (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))) return OK;
    const enum error_code e = output_create(&o, path, err);
    if (e == OK) output_abort(&o);
    return e;
}

enum error_code output_flush(struct output *output, struct error *err)
{
    if (output->fd < 0) return fail(err, ERR_FILE, "a file was finished after it had failed or was finished");
    return !output->stream && disk_flush(output->fd) != 0 ? give_up(output, err, "flushing to the disk failed") : OK;
}

/* After a commit the output is forgotten; after a failure the temporary file is gone, and the old file stays. */
enum error_code output_commit(struct output *output, struct error *err)
{
    const enum error_code e = output_flush(output, err);
    if (e != OK) return e;
    /* Some file systems report a full disk only when a file is closed. */
    const int closed = close(output->fd);
    output->fd = -1;
    if (closed != 0) return give_up(output, err, "closing failed");
    if (output->owner && !output->stream && disk_rename(output->temp, output->path) != 0)
        return give_up(output, err, "renaming the finished file failed");
    output_forget(output);
    return OK;
}

enum error_code file_write_all(const char *path, const void *bytes, size_t count, struct error *err)
{
    struct output o;
    enum error_code e = output_create(&o, path, err);
    if (!e) e = output_write(&o, bytes, count, 0, err);
    return e ? e : output_commit(&o, err);
}

void output_abort(struct output *output)
{
    if (output->path == NULL) return;
    if (output->fd >= 0) close(output->fd);
    /* A process that only joined removes it, too: without its part nobody may finish the file. */
    if (!output->stream) disk_remove(output->temp);
    output_forget(output);
}

/* ---- input ------------------------------------------------------------------------------------------------------- */

/* A file or, where `pipes` allows it, a pipe.  Folders and devices are refused by name. */
static enum error_code open_to_read(const char *path, bool pipes, int *fd, int64_t *size, struct error *err)
{
    struct stat st;
    *fd = -1;
    if (stat(path, &st) != 0) return fail_errno(err, path, "cannot be opened");
    if (S_ISDIR(st.st_mode))
        return fail(err, ERR_FILE, "%s: is a folder, a file was expected", printable_path(path).text);
    /* Opening a pipe or device could wait for ever, so the kind is looked at first. */
    if (!S_ISREG(st.st_mode) && !(pipes && S_ISFIFO(st.st_mode)))
        return fail(err, ERR_FILE, "%s: is a %s, a file was expected", printable_path(path).text,
                    S_ISFIFO(st.st_mode) ? "pipe" : "device");
    do *fd = open(path, O_RDONLY); while (*fd < 0 && errno == EINTR);
    if (*fd < 0) return fail_errno(err, path, "cannot be opened");
    if (fstat(*fd, &st) != 0) {
        const enum error_code e = fail_errno(err, path, "cannot be read");
        close(*fd);
        *fd = -1;
        return e;
    }
    *size = st.st_size;
    return OK;
}

enum error_code file_open(const char *path, int *fd, int64_t *size, struct error *err)
{
    return open_to_read(path, false, fd, size, err);
}

/* Read exactly so many bytes: a file that has become shorter is an error. */
enum error_code file_read_at(int fd, const char *path, void *out, size_t bytes, int64_t at, struct error *err)
{
    char *to = out;
    while (bytes > 0) {
        const ssize_t n = pread(fd, to, bytes, (off_t)at);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail_errno(err, path, "reading failed");
        if (n == 0)
            return fail(err, ERR_FILE, "%s: ends at byte %lld, %zu bytes more were expected", printable_path(path).text,
                        (long long)at, bytes);
        to += n, at += n, bytes -= (size_t)n;
    }
    return OK;
}

/* The last pipe that was read to its end. */
static struct printable pipe_read;

bool file_pipe_taken(char *path, size_t size)
{
    const bool any = pipe_read.text[0] != '\0';
    if (any && path) snprintf(path, size, "%s", pipe_read.text);
    pipe_read.text[0] = '\0';
    return any;
}

/* A pipe has no size, and files of the system say 0 or one page: the end is where no byte comes.
 * @param size  bytes that are expected. */
static enum error_code read_to_end(int fd, const char *path, int64_t size, int64_t limit, char **bytes, size_t *count,
                                   struct error *err)
{
    size_t room = size > 0 ? (size_t)size + 1 : 4096;           /* a byte more, to see that nothing follows */
    *count = 0;
    for (;;) {
        /* One byte always stays free, for the 0 at the end. */
        char *more = *bytes && *count + 1 < room ? *bytes : realloc(*bytes, *bytes ? room *= 2 : ++room);
        if (more == NULL) return fail(err, ERR_MEMORY, "%s: no memory for its bytes", printable_path(path).text);
        *bytes = more;
        const ssize_t n = read(fd, *bytes + *count, room - 1 - *count);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return fail_errno(err, path, "reading failed");
        if (n == 0) return OK;
        *count += (size_t)n;
        if ((int64_t)*count > limit)
            return fail(err, ERR_FORMAT, "%s: has more bytes than the %lld that are read", printable_path(path).text,
                        (long long)limit);
    }
}

/* A byte 0 follows the bytes, which `count` does not count.  The caller frees them. */
enum error_code file_read_all(const char *path, int64_t limit, char **bytes, size_t *count, struct error *err)
{
    int fd;
    int64_t size = 0;
    struct stat st;
    *bytes = NULL;
    enum error_code e = open_to_read(path, true, &fd, &size, err);
    if (e != OK) return e;
    if (size > limit)
        e = fail(err, ERR_FORMAT, "%s: has %lld bytes, at most %lld are read", printable_path(path).text,
                 (long long)size, (long long)limit);
    else
        e = read_to_end(fd, path, size, limit, bytes, count, err);
    close(fd);
    if (e != OK) {
        free(*bytes);
        *bytes = NULL;
        return e;
    }
    (*bytes)[*count] = '\0';
    /* A pipe that was read is empty now, which somebody may have to know. */
    if (stat(path, &st) == 0 && S_ISFIFO(st.st_mode)) pipe_read = printable_path(path);
    return OK;
}
