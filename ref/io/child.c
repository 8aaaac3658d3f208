/* child.c -- starts processes that do not outlive this one, and waits for or stops them.
 *
 * launch/, course/, bench/, library/ and run/sweep.c call this file.  child_start returns -1 as fork does; nothing
 * else fails.  Signal handlers are installed while there is a child, if child_take_signals was called.
 */
#define _DEFAULT_SOURCE                 /* wait4 */
#include "ref/io/child.h"
#include "ref/machine/system.h"
#include <errno.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* ---- signals ----------------------------------------------------------------------------------------------------- */

enum { MOST = 64 };
static volatile pid_t running[MOST];    /* the children; 0: a free place */
static int count;
static volatile sig_atomic_t caught;    /* the signal that stops us; 0: none */
static void (*when_stopped)(int);

static const int stopping[] = { SIGINT, SIGTERM, SIGHUP, SIGALRM };
enum { STOPPING = sizeof stopping / sizeof *stopping };
static struct sigaction before[STOPPING];

/* To all children and what these have started; a child that has not ended when the alarm comes is killed. */
static void child_pass_on(int number)
{
    const int error = errno;
    /* A first signal is passed on, and the alarm is set for children that do not end. */
    if (number != SIGALRM) caught = number, alarm(CHILD_PATIENCE);
    for (int i = 0; i < MOST; i++)
        if (running[i] > 0) kill(number == SIGALRM ? running[i] : -running[i], number == SIGALRM ? SIGKILL : number);
    errno = error;
}

static void take_over(void)
{
    const struct sigaction act = { .sa_handler = child_pass_on };
    for (int i = 0; i < STOPPING; i++) {
        sigaction(stopping[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN || stopping[i] == SIGALRM) sigaction(stopping[i], &act, NULL);
    }
}

static void child_give_back(void)
{
    alarm(0);
    for (int i = 0; i < STOPPING; i++) sigaction(stopping[i], &before[i], NULL);
}

void child_take_signals(void (*stopped)(int number)) { when_stopped = stopped; }

/* ---- the children ------------------------------------------------------------------------------------------------ */

/* A child beyond MOST is counted but gets no signals. */
static void child_remember(pid_t child)
{
    for (int i = 0; i < MOST; i++)
        if (running[i] == 0) {
            running[i] = child;
            break;
        }
    count++;
}

/* The last one gives the signals back; only then is one answered that came meanwhile. */
static void child_forget(pid_t child)
{
    for (int i = 0; i < MOST; i++)
        if (running[i] == child) running[i] = 0;
    if (--count > 0 || when_stopped == NULL) return;
    child_give_back();
    const int number = caught;
    caught = 0;
    if (number != 0) when_stopped(number);
}

/* ---- starting ---------------------------------------------------------------------------------------------------- */

/* A parent that has ended already cannot send the signal any more, so the child looks once itself. */
void child_ends_with(pid_t parent)
{
    system_end_with_parent();
    if (getppid() != parent) _exit(127);
}

/* The child has no children, handlers or list of its parent. */
static void become_child(pid_t parent)
{
    if (when_stopped != NULL) child_give_back();
    when_stopped = NULL;
    count = 0, caught = 0;
    for (int i = 0; i < MOST; i++) running[i] = 0;
    signal(SIGPIPE, SIG_DFL);                           /* other programs expect to be stopped by it */
    setpgid(0, 0);                                      /* what it starts gets signals, too; Ctrl-C comes from us */
    child_ends_with(parent);
}

/* All signals wait until the child is in the list, so that none is lost between. */
pid_t child_start(void)
{
    sigset_t all, usual;
    const pid_t parent = getpid();
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &usual);             /* none comes between its start and its place in the list */
    if (count == 0 && when_stopped != NULL) take_over();
    const pid_t child = fork();
    if (child == 0) become_child(parent);
    else if (child > 0) setpgid(child, child), child_remember(child);         /* whoever is first */
    else if (count == 0 && when_stopped != NULL) child_give_back();
    sigprocmask(SIG_SETMASK, &usual, NULL);
    return child;
}

/* ---- waiting ----------------------------------------------------------------------------------------------------- */

static double child_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* @return whether it has ended within so many seconds; negative: whenever it ends. */
static bool ends_within(pid_t child, double seconds, struct child_end *end)
{
    const struct timespec moment = { .tv_nsec = 5000000 };
    const double begin = child_now();
    pid_t got;
    while ((got = wait4(child, &end->how, seconds < 0 ? 0 : WNOHANG, &end->used)) != child) {
        if (got < 0 && errno != EINTR) {
            *end = (struct child_end){ .how = 127 << 8 };       /* nobody can say */
            break;
        }
        if (got == 0 && child_now() - begin >= seconds) return false;
        if (got == 0) nanosleep(&moment, NULL);
    }
    return true;
}

bool child_wait(pid_t child, double limit, struct child_end *end)
{
    if (!ends_within(child, limit > 0 ? limit : -1, end)) return false;
    child_forget(child);
    return true;
}

/* The child has CHILD_PATIENCE seconds to end, then it is killed. */
void child_stop(pid_t child, struct child_end *end)
{
    kill(-child, SIGTERM);
    if (!ends_within(child, CHILD_PATIENCE, end)) kill(child, SIGKILL), ends_within(child, -1, end);
    child_forget(child);
}
