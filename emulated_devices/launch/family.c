/* family.c -- keeps track of all processes of a job, and ends those that are left.  Only launch/launch.c calls, in
 * the launching process.  No function reports errors; family_end returns how many processes are left. */
#define _DEFAULT_SOURCE                 /* shmctl */
#include "emulated_devices/launch/family.h"
#include "ref/machine/measure.h"
#include "ref/machine/system.h"
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/shm.h>
#include <sys/wait.h>
#include <unistd.h>

void family_adopt(void) { system_adopt(); }

void family_mark(pid_t launcher)
{
    char text[32];
    snprintf(text, sizeof text, "%ld", (long)launcher);
    setenv("ORRERY_LAUNCHED", text, 1);
}

void family_reap(struct family *family)
{
    int how;
    pid_t pid;
    while ((pid = waitpid(-1, &how, WNOHANG)) > 0)
        if (pid == family->job) family->job_ended = true, family->how = how;
}

/* ---- who is there ------------------------------------------------------------------------------------------------ */

/* Whether a process has our mark.  We may have other children, of a shell that has replaced itself by this program. */
bool family_has(long pid)
{
    char mark[48];
    snprintf(mark, sizeof mark, "ORRERY_LAUNCHED=%ld", (long)getpid());
    return system_tells_processes() ? system_has_variable(pid, mark) : pid > 0;
}

static bool is_living(const struct system_process *process) { return strchr("ZX", process->state) == NULL; }

static bool has_ended(long pid)
{
    struct system_process process;
    if (!system_tells_processes()) return kill((pid_t)pid, 0) != 0;
    return !system_process(pid, &process) || !is_living(&process);
}

/* Signalling our children is sufficient: when they have ended, their children become ours. */
static int signal_children(const struct family *family, int number)
{
    struct system_process process;
    int there = 0, count;
    long *pid = system_processes(&count);
    for (int i = 0; i < count; i++) {
        if (!system_process(pid[i], &process) || !is_living(&process) || process.parent != (long)getpid()) continue;
        if (pid[i] != family->job && !family_has(pid[i])) continue;
        there++;
        kill((pid_t)pid[i], number);
    }
    free(pid);
    return there;
}

/* Where the system tells of no processes: those that have announced themselves. */
static int signal_announced(const struct family *family, const struct watch *watch, int number)
{
    int there = !family->job_ended && kill(family->job, number) == 0;
    for (int i = 0; i < watch->known; i++) there += kill((pid_t)watch->process[i].pid, number) == 0;
    return there;
}

static int signal_all(const struct family *family, const struct watch *watch, int number)
{
    return system_tells_processes() ? signal_children(family, number) : signal_announced(family, watch, number);
}

/* A process whose parent has been waited for has left its time there. */
double family_seconds(const struct family *family)
{
    struct system_process process;
    double seconds = 0;
    int count;
    long *pid = system_processes(&count);
    for (int i = 0; i < count; i++)
        if ((pid[i] == family->job || family_has(pid[i])) && system_process(pid[i], &process))
            seconds += process.seconds;
    free(pid);
    return seconds;
}

bool family_is_gone(const struct watch *watch)
{
    char here[sizeof watch->process->host] = "";
    if (watch->known < watch->room || gethostname(here, sizeof here - 1) != 0) return false;
    for (int i = 0; i < watch->known; i++)
        if (strcmp(watch->process[i].host, here) != 0 || !has_ended(watch->process[i].pid)) return false;
    return true;
}

static bool has_announced(const struct watch *watch, long pid)
{
    for (int i = 0; i < watch->known; i++)
        if (watch->process[i].pid == pid) return true;
    return false;
}

static void remove_unused(int id, long maker, void *watch)
{
    if (has_announced(watch, maker)) shmctl(id, IPC_RMID, NULL);
}

void family_sweep(const struct watch *watch)
{
    system_each_unused_memory(remove_unused, (void *)(uintptr_t)watch);
}

int family_end(struct family *family, const struct watch *watch, double patience)
{
    const double start = measure_now();
    int left;
    for (;;) {
        family_reap(family);
        const double waited = measure_now() - start;
        left = signal_all(family, watch, waited < patience ? 0 : SIGKILL);
        if ((left == 0 && family->job_ended) || waited > patience + 5) return left;
        poll(NULL, 0, 10);
    }
}
