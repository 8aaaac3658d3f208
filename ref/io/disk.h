/* disk.h -- wrappers of the system calls that change files; tests can make each of them fail.
 *
 *   ORRERY_DISK_FAULT=kill@N     the process is killed before its Nth such call (counted from 1)
 *   ORRERY_DISK_FAULT=torn@N     the process is killed during its Nth call: a write writes half of its bytes first
 *   ORRERY_DISK_FAULT=settle@N   the process is killed before its Nth flush or renaming, other calls not counted
 *   ORRERY_DISK_FAULT=ENOSPC@N   the Nth call fails with this error; so do EIO, EACCES, EROFS and EDQUOT
 *   ORRERY_DISK_DELAY=MS         every call takes so many milliseconds more
 *
 * If a variable is unset, they are the plain system calls.  Each process counts its own calls.  Results and errno are
 * those of the system calls.
 *
 * output.c and bundle.c call these instead of the system; so do subcommands that write files of their own.
 */
#ifndef ORRERY_DISK_H
#define ORRERY_DISK_H

#include <stdint.h>
#include <sys/types.h>

int disk_create(const char *path, int flags);           /* open with O_CREAT and mode 0666 */
ssize_t disk_write(int fd, const void *data, size_t bytes);
ssize_t disk_write_at(int fd, const void *data, size_t bytes, int64_t at);
int disk_resize(int fd, int64_t bytes);
int disk_flush(int fd);
int disk_rename(const char *from, const char *to);
int disk_remove(const char *path);
int disk_make_folder(const char *path);
int disk_remove_folder(const char *path);

/** Flush a folder: files created, renamed and removed in it are then on the disk.
 *  Does nothing on file systems without this operation. */
int disk_flush_folder(const char *path);

#endif
