/* caller.h -- a program that has started this one and wants to know how it ends: the library, the Python package.
 *
 * The caller sets the variable ORRERY_CALLER to "PID:DESCRIPTOR" for its child.  The child ends when the caller
 * ends, and writes its exit status as one byte to the descriptor; -1: it writes none.  A caller who ignores SIGCHLD
 * learns the status from there alone.
 *
 * launch/process.c calls these functions; library/commands.c sets the variable.  No function returns an error code.
 */
#ifndef ORRERY_CALLER_H
#define ORRERY_CALLER_H

#define CALLER "ORRERY_CALLER"

/** Look who has called this process, at its start.  Processes that this one starts have other callers. */
void caller_note(void);

/** Tell the caller the exit status.  Does nothing if there is none. */
void caller_tell(int status);

#endif
