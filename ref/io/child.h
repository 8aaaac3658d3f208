/* child.h -- processes that this one starts: none of them outlives it, however it ends.
 *
 * On Linux the system kills a child when its parent ends.  And while there is a child, a signal that stops this process
 * (SIGINT, SIGTERM, SIGHUP) goes to it first: it may end in its own way, within CHILD_PATIENCE seconds.  A program that
 * starts devices is such a child: it ends them, whether it is asked to or killed (emulated_devices/launch/).
 *
 *     const pid_t child = child_start();
 *     if (child == 0) execvp(...), _exit(127);
 *     if (child > 0 && !child_wait(child, 600, &end)) child_stop(child, &end);
 *
 * launch/, cli/, course/ and the library start processes here.
 */
#ifndef ORRERY_CHILD_H
#define ORRERY_CHILD_H

#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

enum { CHILD_PATIENCE = 10 };           /* seconds, from the wish that a child ends until it is killed */

/* How a child has ended. */
struct child_end {
    int how;                            /* for WIFEXITED and its like */
    struct rusage used;                 /* by it, and by what it has waited for */
};

/** fork(2), for a child that ends with this process: it has a process group of its own, signals have their usual
 *  meaning, and SIGKILL comes when the thread ends that has called this.
 *  @return as fork's: 0 in the child, -1 if there is no room for another process. */
pid_t child_start(void);

/** In a child, after it has become another user, by which the system forgets that it ends with its parent.
 *  Kills this process if the parent is gone already.  @param parent  getppid() before. */
void child_ends_with(pid_t parent);

/**
 * Wait until a child has ended.  If a signal has stopped it and this process, the function of child_take_signals is
 * called before this one returns.
 * @param limit  seconds; 0: none.
 * @return false: it has not ended within them, and is still there: child_stop.
 */
bool child_wait(pid_t, double limit, struct child_end *);

/** End a child and what it has started: SIGTERM to its group, and to the child SIGKILL if it is still there after
 *  CHILD_PATIENCE seconds. */
void child_stop(pid_t, struct child_end *);

/** From now on, signals that stop this process go to its children first.  Signals that are ignored stay so.  Without
 *  this call, as in a library, they are left alone.
 *  @param stopped  called when the children have ended, with the signal; usually it does not return. */
void child_take_signals(void (*stopped)(int number));

#endif
