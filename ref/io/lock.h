/* lock.h -- one process at a time writes into a folder, or into a file that grows.
 *
 * A lock is a file: DIR/.orrery.lock of a folder, .NAME.lock beside a file.  It says who holds it: the run, the
 * process, when that process started, its host, the host's boot, and the process's name space.  It is put in place by
 * link(), which succeeds for one process, also on NFS.  Where the file system has no links it is made by O_EXCL and
 * read again.  The holder renews the file's time.  The file is removed at the end.
 *
 * A lock is void, and the next one takes it over, if
 *   - its process has ended: on the same host, boot and name space, no process has its number and its time of start;
 *   - it is another host's, and its time has not been renewed for LOCK_VOID seconds by the clock of the file system.
 *
 * A lock keeps runs of this program apart.  Nothing else heeds it, and readers need none.  run/keeping.c calls
 * these functions.
 */
#ifndef ORRERY_LOCK_H
#define ORRERY_LOCK_H

#include "ref/error.h"
#include <stdbool.h>
#include <stddef.h>

enum {
    LOCK_BEAT = 20,                     /* seconds from one renewal to the next */
    LOCK_VOID = 300,                    /* seconds without a renewal: NFS shows a change after 60 at most */
    LOCK_PATH = 4096                    /* bytes of a path */
};

/* Who writes, for those who are refused. */
struct lock_owner {
    const char *run;                    /* its short name */
    long process;                       /* whom a user would stop: the launching process; 0: this one */
};

struct lock {
    char path[LOCK_PATH];               /* of the lock's file; "": nothing is locked */
    char folder[LOCK_PATH];             /* the folder, if this lock has made it; else "" */
    char *text;                         /* what the file says; owned */
};

/**
 * Take a lock, which stays where it is in memory until its release.  A folder that is not there is made; where it
 * cannot be made or written into, nothing is locked: whoever writes says why.  Pipes, devices and "-" are not locked.
 * @param path         a folder, or a file.
 * @param folder       which of them.
 * @param[out] void_of  the holder of a void lock that was taken over, in words; "" if there was none.
 * @return OK; ERR_FILE naming who holds it, since when, and what to do; ERR_MEMORY.  On failure nothing is locked.
 */
enum error_code lock_take(struct lock *, const char *path, bool folder, const struct lock_owner *, char *void_of,
                          size_t size, struct error *);

/** Only see whether lock_take would be refused.  Changes nothing.  @return OK or ERR_FILE. */
enum error_code lock_look(const char *path, bool folder, struct error *);

/** Whether the lock still stands; nobody takes over the lock of a process that runs.
 *  @return OK, or ERR_FILE naming who has it now. */
enum error_code lock_stands(const struct lock *, struct error *);

/** Remove the lock, and a folder that it has made if nothing is in it.  Does nothing if nothing is locked. */
void lock_release(struct lock *);

#endif
