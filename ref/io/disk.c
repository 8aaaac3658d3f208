/* disk.c -- system calls that change files, each of which tests can let fail.
 *
 * output.c, bundle.c and cli/ call this file.  Results and errno are those of the system.
 */
#include "ref/io/disk.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static atomic_long calls, settled;      /* calls of this process so far, of all its threads; of these no writes */

static const struct { const char *name; int value; } errors[] = {
    { "ENOSPC", ENOSPC }, { "EIO", EIO }, { "EACCES", EACCES }, { "EROFS", EROFS }, { "EDQUOT", EDQUOT },
};

/* A slow disk, for tests of what happens meanwhile. */
static void be_slow(void)
{
    const char *const asked = getenv("ORRERY_DISK_DELAY");
    const long ms = asked ? strtol(asked, NULL, 10) : 0;
    const struct timespec delay = { ms / 1000, ms % 1000 * 1000000 };
    if (ms > 0) nanosleep(&delay, NULL);
}

/* Whether this call must fail; sets errno.  @param[out] torn  do half of the call, then kill the process; NULL for a
 * call that cannot be half done. */
static bool fails_at(const char *fault, long call, bool *torn)
{
    const char *const at = fault ? strchr(fault, '@') : NULL;
    if (at == NULL || strtol(at + 1, NULL, 10) != call) return false;
    const size_t n = (size_t)(at - fault);
    const bool half = strncmp(fault, "torn", n) == 0;
    if (half && torn) return *torn = true, false;
    if (half || strncmp(fault, "kill", n) == 0) raise(SIGKILL);
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (strncmp(fault, errors[i].name, n) == 0 && errors[i].name[n] == '\0') return errno = errors[i].value, true;
    return false;
}

static bool fails(bool *torn)
{
    const char *const fault = getenv("ORRERY_DISK_FAULT");
    const long call = atomic_fetch_add(&calls, 1) + 1;
    be_slow();
    return fails_at(fault, call, torn);
}

/* A call that makes something last is also counted among these alone. */
static bool settling_fails(void)
{
    const char *const fault = getenv("ORRERY_DISK_FAULT");
    const long call = atomic_fetch_add(&settled, 1) + 1;
    if (fault && strncmp(fault, "settle@", 7) == 0 && strtol(fault + 7, NULL, 10) == call) raise(SIGKILL);
    return fails(NULL);
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
int disk_flush(int fd) { return settling_fails() ? -1 : fsync(fd); }
int disk_rename(const char *from, const char *to) { return settling_fails() ? -1 : rename(from, to); }
int disk_remove(const char *path) { return fails(NULL) ? -1 : unlink(path); }
int disk_make_folder(const char *path) { return fails(NULL) ? -1 : mkdir(path, 0777); }
int disk_remove_folder(const char *path) { return fails(NULL) ? -1 : rmdir(path); }

/* A folder that cannot be flushed on this file system is no error. */
int disk_flush_folder(const char *path)
{
    if (settling_fails()) return -1;
    const int fd = open(path, O_RDONLY);
    if (fd < 0) return -1;
    const int flushed = fsync(fd), reason = errno;
    close(fd);
    errno = reason;
    return flushed != 0 && reason != EINVAL && reason != EBADF ? -1 : 0;
}
