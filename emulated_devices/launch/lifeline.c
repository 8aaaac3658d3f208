/* lifeline.c -- a device ends when a process that started it ends, in any way and at any time.
 *
 *     orrery          its end closes the lifeline, a pipe that every device has inherited
 *       mpiexec       on Linux a child can ask to be killed with its parent: mpiexec with orrery,
 *         proxy       a device with MPICH's proxy; the proxy ends by itself when mpiexec ends
 *           device    a separate thread waits for the end of the lifeline, and of PMI_FD, its pipe to the proxy
 *
 * For each case a part of this suffices.  Together they need no other process to work, no timing assumptions, and no
 * Linux.  launch.c and process.c call these functions.  No function returns an error code.
 */
#include "emulated_devices/launch/launch.h"
#include "ref/machine/system.h"
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- inherited pipes, told by number and inode ------------------------------------------------------------------- */

void tell_pipe(const char *name, int fd)
{
    struct stat st;
    char text[64];
    if (fstat(fd, &st) != 0) return;
    snprintf(text, sizeof text, "%d %llu", fd, (unsigned long long)st.st_ino);
    setenv(name, text, 1);
}

int told_pipe(const char *name)
{
    const char *told = getenv(name);
    struct stat st;
    unsigned long long inode;
    int fd;
    if (told == NULL || sscanf(told, "%d %llu", &fd, &inode) != 2 || fstat(fd, &st) != 0) return -1;
    return S_ISFIFO(st.st_mode) && (unsigned long long)st.st_ino == inode ? fd : -1;
}

/* ---- the parent -------------------------------------------------------------------------------------------------- */

void die_with_parent(void) { system_end_with_parent(); }

/* The signal is sent when the thread that has forked us ends.  MPICH's proxy has only one thread; others may have
 * more. */
static bool parent_is_a_proxy(void) { return getenv("HYDI_CONTROL_FD") != NULL && launcher_is_parent(); }

/* A number that is closed has not hung up: nobody is at its other end, nor ever was. */
static bool has_hung_up(int fd)
{
    struct pollfd p = { .fd = fd };
    return fd >= 0 && poll(&p, 1, 0) == 1 && (p.revents & (POLLHUP | POLLERR)) != 0;
}

/* In the end MPI closes the line itself. */
bool proxy_is_gone(void) { return has_hung_up(launcher_line()); }

/* ---- waiting for the end ----------------------------------------------------------------------------------------- */

static struct { pid_t parent; int lifeline, pmi; } watched;

enum { PARENT_LOOKS = 200 };            /* milliseconds between checks of the parent, if there is no pipe */

/* At the end MPICH itself closes the pipe to the proxy, so its end alone is not sufficient. */
static void *wait_for_the_end(void *unused)
{
    struct pollfd line[2] = { { .fd = watched.lifeline }, { .fd = watched.pmi } };
    for (;;) {
        poll(line, 2, line[1].fd >= 0 ? -1 : PARENT_LOOKS);
        if (line[0].revents != 0 || getppid() != watched.parent) kill(getpid(), SIGKILL);
        if (line[1].fd >= 0 && line[1].revents != 0) line[1].fd = -1;
    }
    return unused;
}

static void start_thread(void *run(void *))
{
    pthread_attr_t small;
    pthread_t thread;
    sigset_t all, before;
    sigfillset(&all);
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 128 << 10);
    pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
    pthread_sigmask(SIG_SETMASK, &all, &before);        /* the device's main thread gets signals */
    pthread_create(&thread, &small, run, NULL);         /* without it the signal of the parent's death remains */
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&small);
}

void hold_lifeline(void)
{
    watched.parent = getppid();
    watched.lifeline = told_pipe("ORRERY_LIFELINE");
    watched.pmi = launcher_line();
    if (parent_is_a_proxy()) die_with_parent();
    if (watched.parent != getppid() || has_hung_up(watched.pmi) || has_hung_up(watched.lifeline))
        kill(getpid(), SIGKILL);
    start_thread(wait_for_the_end);
}
