/* disk.c -- system calls that change files, each of which tests can let fail.
 *
 * output.c, bundle.c and cli/ call this file.  Results and errno are those of the system.
 */
#include "ref/io/disk.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static long calls;                      /* calls of this process so far */

static const struct { const char *name; int value; } errors[] = {
    { "ENOSPC", ENOSPC }, { "EIO", EIO }, { "EACCES", EACCES }, { "EROFS", EROFS }, { "EDQUOT", EDQUOT },
};

/* Whether this call must fail; sets errno.  @param[out] torn  do half of the call, then kill the process; NULL for a
 * call that cannot be half done. */
static bool fails(bool *torn)
{
    const char *fault = getenv("ORRERY_DISK_FAULT"), *at = fault ? strchr(fault, '@') : NULL;
    calls++;
    if (at == NULL || strtol(at + 1, NULL, 10) != calls) return false;
    const size_t n = (size_t)(at - fault);
    const bool half = strncmp(fault, "torn", n) == 0;
    if (half && torn) return *torn = true, false;
    if (half || strncmp(fault, "kill", n) == 0) raise(SIGKILL);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (strncmp(fault, errors[i].name, n) == 0 && errors[i].name[n] == '\0') return errno = errors[i].value, true;
    return false;
}

int disk_create(const char *path, int flags) { return fails(NULL) ? -1 : open(path, flags | O_CREAT, 0666); }

ssize_t disk_write(int fd, const void *data, size_t bytes)
{
    bool torn = false;
    if (fails(&torn)) return -1;
    const ssize_t n = write(fd, data, torn ? bytes / 2 : bytes);
    if (torn) raise(SIGKILL);
    return n;
}

ssize_t disk_write_at(int fd, const void *data, size_t bytes, int64_t at)
{
    bool torn = false;
    if (fails(&torn)) return -1;
    const ssize_t n = pwrite(fd, data, torn ? bytes / 2 : bytes, (off_t)at);
    if (torn) raise(SIGKILL);
    return n;
}

int disk_resize(int fd, int64_t bytes) { return fails(NULL) ? -1 : ftruncate(fd, (off_t)bytes); }
int disk_flush(int fd) { return fails(NULL) ? -1 : fsync(fd); }
int disk_rename(const char *from, const char *to) { return fails(NULL) ? -1 : rename(from, to); }
int disk_remove(const char *path) { return fails(NULL) ? -1 : unlink(path); }
int disk_make_folder(const char *path) { return fails(NULL) ? -1 : mkdir(path, 0777); }
int disk_remove_folder(const char *path) { return fails(NULL) ? -1 : rmdir(path); }

/* A folder that cannot be flushed on this file system is no error. */
int disk_flush_folder(const char *path)
{
    if (fails(NULL)) return -1;
    const int fd = open(path, O_RDONLY);
    if (fd < 0) return -1;
    const int flushed = fsync(fd), reason = errno;
    close(fd);
    errno = reason;
    return flushed != 0 && reason != EINVAL && reason != EBADF ? -1 : 0;
}
