/* disk.h -- the system calls that change files, each of which a test can let fail.
 *
 *   ORRERY_DISK_FAULT=kill@N     the process is killed before its Nth such call (counted from 1)
 *   ORRERY_DISK_FAULT=torn@N     ... in the midst of it: if it writes, half of the bytes are written first
 *   ORRERY_DISK_FAULT=ENOSPC@N   the Nth call fails with this error; so do EIO, EACCES, EROFS and EDQUOT
 *
 * Unset, which is the rule, all of them are the system's.  Each process counts for itself.  They return what the
 * system's do, and set errno as these do.
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

/** Flush a folder: what was made, renamed and removed in it is then on the disk.
 * File systems that know no such thing do nothing. */
int disk_flush_folder(const char *path);

#endif
