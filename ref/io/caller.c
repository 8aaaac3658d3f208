/* caller.c -- tells whoever has started this program how it ends, and ends with whoever that is.  launch/process.c
 * calls this file.  No function returns an error code.
 */
#include "ref/io/caller.h"
#include "ref/machine/system.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int told = -1;                   /* where the status is written; -1: nowhere */

void caller_note(void)
{
    const char *const caller = getenv(CALLER);
    long pid;
    int descriptor;
    if (caller == NULL) return;
    /* A device of a job, or a program behind a script, has another parent: its end is not the caller's concern. */
    if (sscanf(caller, "%ld:%d", &pid, &descriptor) == 2 && pid == (long)getppid()) {
        system_end_with_parent();
        told = descriptor;
        if (told >= 0) fcntl(told, F_SETFD, FD_CLOEXEC);
        if (pid != (long)getppid()) _exit(127);         /* the caller ended before the system was told */
    }
    unsetenv(CALLER);
}

void caller_tell(int status)
{
    const unsigned char byte = (unsigned char)status;
    if (told >= 0 && write(told, &byte, 1) < 0) told = -1;
}
